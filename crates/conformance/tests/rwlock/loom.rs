// SPDX-License-Identifier: MIT OR Apache-2.0
//! In loom.

use super::*;

macro_rules! suite {
    ($({
        $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*],
        $citation:literal, $summary:literal
    })*) => {
        $(mod $ident {
            use super::*;
            type P = Loom;

            #[test]
            fn two() {
                loom($name, "two", 3, 1_000, || bodies::exclusion::<P, $type>(2, 2));
            }

            #[test]
            fn three() {
                loom($name, "three", 2, 1_000, || bodies::exclusion::<P, $type>(3, 1));
            }

            #[test]
            fn one_writer() {
                loom($name, "one writer", 2, 1_000, || bodies::one_writer::<P, $type>(3, 1));
            }

            #[test]
            fn sharing() {
                loom($name, "sharing", 2, 1_000, || bodies::sharing::<P, $type>(2));
            }

            #[test]
            fn trying() {
                loom($name, "trying", 2, 500, || bodies::trying::<P, $type>(2, 2));
            }

            #[test]
            fn wishing() {
                if wishes($name) {
                    loom($name, "wishing", 2, 500, || bodies::wishing::<P, $type>(2, 1));
                }
            }

            #[test]
            fn unwinding() {
                // Not further in the long exploration: see loom.rs.
                let bounds = Bounds { preemptions: 2, executions: 300 };
                for settings in conformance::distinct(&settings($name)) {
                    let what = concat!($name, ", unwinding");
                    conformance::loom::explore(what, settings, bounds, || bodies::unwinding::<P, $type>(3));
                }
            }

            timed_only! { $kind
                #[test]
                fn timing() {
                    loom($name, "timing", 2, 1_000, || bodies::timing::<P, $type>(3, 1, 3_000_000));
                }

                #[test]
                fn timing_out() {
                    loom($name, "timing out", 2, 500, || bodies::timing_out::<P, $type>(3_000_000));
                }
            }
        })*
    };
}
catalog::rwlocks!(suite);
