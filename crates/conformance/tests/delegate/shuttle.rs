// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every delegating lock in shuttle: more threads and rounds than loom can bear, random schedules.

use conformance::delegate as bodies;
use conformance::shuttle::{Schedules, Shuttle, explore_all};
use sync::delegate::{CcSynch, FlatCombining, Rcl};

fn each(name: &str, count: usize, body: fn()) {
    explore_all(name, &super::all(), &[Schedules::Random, Schedules::Pct(3)], count, body);
}

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
                each(concat!($name, ", exclusion"), 50, || bodies::exclusion::<P, $type>(4, 3));
            }

            #[test]
            fn nesting() {
                each(concat!($name, ", nesting"), 30, || bodies::nesting::<P, $type>(3, 2));
            }

            timed_only! { $kind
                #[test]
                fn holding() {
                    each(concat!($name, ", holding"), 50, || bodies::holding::<P, $type>(4, 3));
                }

                #[test]
                fn timing() {
                    each(concat!($name, ", timing"), 50, || bodies::timing::<P, $type>(4, 3, 3_000_000));
                }
            }
        })*
    };
}
catalog::delegates!(suite);

#[test]
fn more_clients_than_places() {
    each("cc-synch, two places", 30, || bodies::exclusion::<Shuttle, CcSynch<Shuttle, 2>>(4, 3));
    each("flat-combining, two places", 30, || bodies::exclusion::<Shuttle, FlatCombining<Shuttle, 2>>(4, 3));
    each("rcl, two places", 30, || bodies::exclusion::<Shuttle, Rcl<Shuttle, 2>>(4, 3));
}

#[test]
fn two_locks_of_one_server() {
    each("rcl, two locks", 30, || bodies::two_locks::<Shuttle>(1, 4, 3));
    each("rcl, two locks and two spares", 30, || bodies::two_locks::<Shuttle>(3, 3, 3));
}

#[test]
fn sections_that_wait_for_others() {
    each("rcl, awake in a section", 30, || bodies::waiting_inside::<Shuttle>(3, false));
    each("rcl, asleep in a section", 30, || bodies::waiting_inside::<Shuttle>(3, true));
}

#[test]
fn locks_that_clients_hold() {
    each("rcl, held", 30, || bodies::held_locks::<Shuttle>(3, 3));
}

#[test]
fn spare_threads() {
    each("rcl, a spare", 30, || bodies::with_a_spare::<Shuttle, Rcl<Shuttle, 2>>(3, 3));
}

#[test]
fn requests_that_are_taken_back() {
    each("rcl, taken back", 50, || bodies::timing::<Shuttle, Rcl<Shuttle, 4>>(4, 3, 3_000_000));
    each("rcl, taken back late", 50, || bodies::timing::<Shuttle, Rcl<Shuttle, 1>>(3, 3, 3_000_000));
}

#[test]
fn requests_that_are_left_with_a_server() {
    each("rcl, left", 30, || bodies::leaving_with_a_server::<Shuttle>(1, 3, 3));
    each("rcl, left, and a spare", 30, || bodies::leaving_with_a_server::<Shuttle>(2, 3, 3));
}

#[test]
fn requests_that_wait_for_one_another() {
    each("rcl, left, awake in a section", 50, || bodies::leaving_one_that_waits::<Shuttle>(false));
    each("rcl, left, asleep in a section", 50, || bodies::leaving_one_that_waits::<Shuttle>(true));
}

#[test]
fn requests_that_are_left() {
    each("d-wakeful-on, left", 30, || {
        bodies::leaving::<Shuttle>(4, 3);
    });
}
