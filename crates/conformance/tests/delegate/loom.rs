// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every delegating lock in loom.

use conformance::delegate as bodies;
use conformance::loom::{Loom, explore_all};
use sync::delegate::{CcSynch, FlatCombining, Rcl};

fn each(name: &str, preemptions: usize, executions: usize, body: fn()) {
    explore_all(name, &super::all(), preemptions, executions, body);
}

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
                each(concat!($name, ", two"), 3, 300, || bodies::exclusion::<P, $type>(2, 2));
            }

            #[test]
            fn three() {
                each(concat!($name, ", three"), 2, 300, || bodies::exclusion::<P, $type>(3, 1));
            }

            timed_only! { $kind
                #[test]
                fn holding() {
                    each(concat!($name, ", holding"), 2, 300, || bodies::holding::<P, $type>(3, 1));
                }

                #[test]
                fn timing() {
                    each(concat!($name, ", timing"), 2, 300, || bodies::timing::<P, $type>(3, 1, 3_000_000));
                }
            }
        })*
    };
}
catalog::delegates!(suite);

/// Two clients, one place.
#[test]
fn one_place() {
    each("cc-synch, one place", 2, 200, || bodies::exclusion::<Loom, CcSynch<Loom, 1>>(2, 2));
    each("flat-combining, one place", 2, 200, || bodies::exclusion::<Loom, FlatCombining<Loom, 1>>(2, 2));
    each("rcl, one place", 2, 200, || bodies::exclusion::<Loom, Rcl<Loom, 1>>(2, 2));
}

#[test]
fn two_locks_of_one_server() {
    each("rcl, two locks", 2, 200, || bodies::two_locks::<Loom>(1, 2, 1));
    each("rcl, two locks and a spare", 2, 200, || bodies::two_locks::<Loom>(2, 2, 1));
    each("rcl, two servers", 2, 200, bodies::serving_in_turn::<Loom>);
}

#[test]
fn sections_that_wait_for_others() {
    each("rcl, awake in a section", 2, 200, || bodies::waiting_inside::<Loom>(1, false));
    each("rcl, asleep in a section", 2, 200, || bodies::waiting_inside::<Loom>(1, true));
}

#[test]
fn locks_that_clients_hold() {
    each("rcl, held", 2, 200, || bodies::held_locks::<Loom>(2, 1));
}

#[test]
fn spare_threads() {
    each("rcl, a spare", 2, 200, || bodies::with_a_spare::<Loom, Rcl<Loom, 2>>(2, 1));
}

#[test]
fn requests_that_are_taken_back() {
    each("rcl, taken back", 2, 200, || bodies::timing::<Loom, Rcl<Loom, 2>>(2, 1, 3_000_000));
    // One after the other in one slot: the second number is read with the first one's request, or not.
    each("rcl, taken back at once", 3, 400, || bodies::timing::<Loom, Rcl<Loom, 2>>(1, 2, 0));
    each("rcl, taken back late", 2, 200, || bodies::timing::<Loom, Rcl<Loom, 1>>(2, 1, 3_000_000));
}

#[test]
fn requests_that_are_left_with_a_server() {
    each("rcl, left", 2, 200, || bodies::leaving_with_a_server::<Loom>(1, 2, 1));
}

#[test]
fn requests_that_wait_for_one_another() {
    each("rcl, left, awake in a section", 2, 200, || bodies::leaving_one_that_waits::<Loom>(false));
    each("rcl, left, asleep in a section", 2, 200, || bodies::leaving_one_that_waits::<Loom>(true));
}

#[test]
fn requests_that_are_left() {
    each("d-wakeful-on, left", 2, 200, || {
        bodies::leaving::<Loom>(2, 1);
    });
}
