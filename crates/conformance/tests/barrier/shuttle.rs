// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every barrier of the catalogue in shuttle: more threads and rounds than loom can bear, random schedules.

use conformance::barrier_bodies::{Anonymous, Noded};
use conformance::shuttle::{Schedules, Shuttle, explore};
use conformance::{HINTS, barrier_bodies, distinct, further, hinted};
use sync::barrier::BWakeful;

const SCHEDULES: [Schedules; 2] = [Schedules::Random, Schedules::Pct(3)];

/// ns a look: what ends by the clock ends after one, or after many.
const STEPS: [u64; 2] = [1_000_000, 50_000];

fn each(informed: bool, name: &str, default: usize, body: fn()) {
    let count = default * further();
    let hints = if informed { HINTS.len() } else { 1 };
    let mut ran = 0;
    for settings in distinct(&hinted(&STEPS)[..hints * STEPS.len()]) {
        for schedules in SCHEDULES {
            ran += explore(settings, schedules, count, body);
        }
    }
    eprintln!("shuttle: {name}: {ran} executions");
}

macro_rules! suite {
    ($({
        $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*],
        $citation:literal, $summary:literal
    })*) => {
        $(#[test]
        fn $ident() {
            type P = Shuttle;
            let informed = catalog::barrier($name).expect("it is in the catalogue").informed;
            each(informed, $name, 50, || barrier_bodies::episodes::<P, $type>(5, 4));
        })*
    };
}
catalog::barriers!(suite);

type Default = BWakeful<Shuttle>;

#[test]
fn b_wakeful_combining() {
    each(true, "b-wakeful, combining", 50, || barrier_bodies::episodes_with::<Shuttle, Default>(6, 4, 3));
    each(true, "b-wakeful, two levels", 50, || barrier_bodies::episodes_with::<Shuttle, Default>(6, 4, 7));
    each(true, "b-wakeful, coming and going, combining", 50, || {
        barrier_bodies::coming_and_going::<Shuttle, Noded<_, 2>>(4, 3)
    });
    each(true, "b-wakeful, groups, combining", 50, || {
        barrier_bodies::groups::<Shuttle, Noded<_, 2>>(2, 3);
    });
    each(true, "b-wakeful, two groups, combining", 50, || {
        barrier_bodies::groups::<Shuttle, Noded<_, 2>>(3, 2);
    });
    each(true, "b-wakeful, joining, combining", 50, barrier_bodies::joining_alone::<Shuttle, Noded<_, 1>>);
}

#[test]
fn b_wakeful_renewing() {
    each(true, "b-wakeful, renewing", 100, || barrier_bodies::renewing::<Shuttle, 1, false>(2));
    each(true, "b-wakeful, coming round", 100, || barrier_bodies::coming_round::<Shuttle, 2>(3));
    each(true, "b-wakeful, renewing, three nodes", 50, || barrier_bodies::renewing::<Shuttle, 3, false>(4));
}

#[test]
fn b_wakeful_one_too_many() {
    each(true, "b-wakeful, one too many", 50, barrier_bodies::one_too_many::<Shuttle, 3>);
}

#[test]
fn b_wakeful_coming_and_going() {
    each(true, "b-wakeful, coming and going", 50, || {
        barrier_bodies::coming_and_going::<Shuttle, Default>(4, 3)
    });
}

#[test]
fn seated() {
    each(false, "seats, spinning", 50, || {
        barrier_bodies::groups::<Shuttle, Anonymous<_, sync::barrier::CSpin<Shuttle>>>(2, 3);
    });
    each(false, "seats, trees", 50, || {
        barrier_bodies::groups::<Shuttle, Anonymous<_, sync::barrier::ComTree<Shuttle>>>(3, 2);
    });
}

#[test]
fn b_wakeful_groups() {
    each(true, "b-wakeful, groups", 50, || barrier_bodies::groups::<Shuttle, Default>(2, 3));
}

#[test]
fn b_wakeful_draining() {
    each(true, "b-wakeful, draining", 50, || {
        barrier_bodies::draining::<Shuttle, sync::barrier::BWakefulDrained<Shuttle>>(3, 3)
    });
}

#[test]
fn b_wakeful_summoning() {
    each(true, "b-wakeful, summoning", 50, || barrier_bodies::summoning::<Shuttle>(3, 4));
}

#[test]
fn b_wakeful_joining_alone() {
    each(true, "b-wakeful, joining", 50, barrier_bodies::joining_alone::<Shuttle, Default>);
}
