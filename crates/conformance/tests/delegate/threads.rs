// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every delegating lock on this computer, with many more threads than processors.

use conformance::delegate as bodies;
use conformance::long;
use conformance::twist::{Fickle, Lying, Strangers, Twisted};
use linux::Linux;
use sync::delegate::{CcSynch, FlatCombining, Rcl};

fn rounds() -> u32 {
    if long() { 2_000 } else { 100 }
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
                for threads in [1, 2, 8, 32] {
                    bodies::exclusion::<P, $type>(threads, rounds());
                }
            }

            #[test]
            fn exclusion_with_wrong_hints() {
                {
                    type P = Twisted<Linux, Lying>;
                    bodies::exclusion::<P, $type>(8, rounds());
                }
                type P = Twisted<Linux, Fickle>;
                bodies::exclusion::<P, $type>(8, rounds());
            }

            #[test]
            fn unwinding() {
                type P = Linux;
                bodies::unwinding::<P, $type>(8, rounds());
            }

            #[test]
            fn nesting() {
                type P = Linux;
                bodies::nesting::<P, $type>(8, rounds());
            }

            timed_only! { $kind
                #[test]
                fn holding() {
                    type P = Linux;
                    bodies::holding::<P, $type>(32, rounds());
                }

                #[test]
                fn timing() {
                    type P = Linux;
                    bodies::timing::<P, $type>(32, rounds(), 200_000);
                    bodies::timing::<P, $type>(32, rounds(), 0);
                }

                #[test]
                fn strangers() {
                    type P = Twisted<Linux, Strangers>;
                    bodies::exclusion::<P, $type>(8, rounds());
                }
            }
        })*
    };
}
catalog::delegates!(suite);

#[test]
fn more_clients_than_places() {
    bodies::exclusion::<Linux, CcSynch<Linux, 3>>(32, rounds());
    bodies::exclusion::<Linux, FlatCombining<Linux, 3>>(32, rounds());
    bodies::exclusion::<Linux, Rcl<Linux, 3>>(32, rounds());
}

/// Threads without an id have no place of their own, and a server must have one.
#[test]
fn strangers() {
    type P = Twisted<Linux, Strangers>;
    bodies::exclusion::<P, CcSynch<P>>(8, rounds());
    bodies::exclusion::<P, FlatCombining<P>>(8, rounds());
    assert!(!sync::delegate::RawDelegate::<P>::serve(&<Rcl<P> as sync::delegate::RawDelegate<P>>::new()));
}

#[test]
fn two_locks_of_one_server() {
    bodies::two_locks::<Linux>(8, rounds());
    bodies::serving_in_turn::<Linux>();
}
