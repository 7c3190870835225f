// SPDX-License-Identifier: MIT OR Apache-2.0
//! On this computer.

use super::*;

/// COST: a queue that is oblivious of the scheduler waits for a slice (3 ms on 2 processors) at nearly each
/// of these.
fn rounds(name: &str) -> u32 {
    match (name, long()) {
        ("rw-queue", false) => 10,
        ("rw-queue", true) | (_, false) => 100,
        (_, true) => 2_000,
    }
}

macro_rules! suite {
    ($({
        $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*],
        $citation:literal, $summary:literal
    })*) => {
        $(mod $ident {
            use super::*;

            #[test]
            fn exclusion() {
                type P = Linux;
                bodies::exclusion::<P, $type>(MANY, rounds($name));
            }

            #[test]
            fn exclusion_with_wrong_hints() {
                {
                    type P = Twisted<Linux, Lying>;
                    bodies::exclusion::<P, $type>(8, rounds($name));
                }
                type P = Twisted<Linux, Fickle>;
                bodies::exclusion::<P, $type>(8, rounds($name));
            }

            #[test]
            fn one_writer() {
                type P = Linux;
                bodies::one_writer::<P, $type>(8, rounds($name));
            }

            #[test]
            fn sharing() {
                type P = Linux;
                (0..rounds($name) / 5).for_each(|_| bodies::sharing::<P, $type>(6));
            }

            #[test]
            fn trying() {
                type P = Linux;
                bodies::trying::<P, $type>(8, rounds($name));
            }

            #[test]
            fn unwinding() {
                type P = Linux;
                bodies::unwinding::<P, $type>(4);
            }

            #[test]
            fn wishing() {
                type P = Linux;
                if wishes($name) {
                    bodies::wishing::<P, $type>(4, rounds($name));
                }
            }

            timed_only! { $kind
                #[test]
                fn timing() {
                    type P = Linux;
                    bodies::timing::<P, $type>(MANY, rounds($name), 200_000);
                    bodies::timing::<P, $type>(MANY, rounds($name), 0);
                }

                #[test]
                fn timing_out() {
                    type P = Linux;
                    for patience_ns in [0, 1, 50_000, 5_000_000] {
                        bodies::timing_out::<P, $type>(patience_ns);
                    }
                }
            }
        })*
    };
}
catalog::rwlocks!(suite);
