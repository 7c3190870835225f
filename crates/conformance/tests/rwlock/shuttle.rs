// SPDX-License-Identifier: MIT OR Apache-2.0
//! In shuttle.

use super::*;

macro_rules! suite {
    ($({
        $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*],
        $citation:literal, $summary:literal
    })*) => {
        $(mod $ident {
            use super::*;
            type P = Shuttle;

            #[test]
            fn exclusion() {
                shuttle($name, "exclusion", 100, || bodies::exclusion::<P, $type>(4, 3));
            }

            #[test]
            fn one_writer() {
                shuttle($name, "one writer", 100, || bodies::one_writer::<P, $type>(5, 2));
            }

            #[test]
            fn sharing() {
                shuttle($name, "sharing", 100, || bodies::sharing::<P, $type>(4));
            }

            #[test]
            fn trying() {
                shuttle($name, "trying", 50, || bodies::trying::<P, $type>(4, 3));
            }

            #[test]
            fn wishing() {
                if wishes($name) {
                    shuttle($name, "wishing", 50, || bodies::wishing::<P, $type>(3, 2));
                }
            }

            timed_only! { $kind
                #[test]
                fn timing() {
                    shuttle($name, "timing", 100, || bodies::timing::<P, $type>(4, 3, 3_000_000));
                }
            }
        })*
    };
}
catalog::rwlocks!(suite);
