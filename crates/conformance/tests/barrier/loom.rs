// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every barrier of the catalogue in loom.

use conformance::barrier_bodies::{Anonymous, Noded};
use conformance::loom::{Bounds, Loom, explore};
use conformance::{HINTS, Hints, Settings, barrier_bodies, distinct, further, long};
use platform::RunState;
use sync::barrier::{BWakeful, BWakefulDrained, CBlock, CSpin};

fn bounds(preemptions: usize, executions: usize) -> Bounds {
    Bounds { preemptions: preemptions + long() as usize, executions: executions * further() }
}

/// Each hint for those that look at hints, one for those that do not.
fn each(informed: bool, name: &str, bounds: Bounds, body: fn()) {
    let hints = if informed { &HINTS[..] } else { &HINTS[..1] };
    let settings: Vec<_> = hints.iter().map(|&hints| Settings { hints, ..Settings::default() }).collect();
    let ran: usize = distinct(&settings).map(|settings| explore(name, settings, bounds, body)).sum();
    eprintln!("loom: {name}: {ran} executions");
}

macro_rules! suite {
    ($({
        $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*],
        $citation:literal, $summary:literal
    })*) => {
        $(mod $ident {
            use super::*;
            type P = Loom;

            fn informed() -> bool {
                catalog::barrier($name).expect("it is in the catalogue").informed
            }

            #[test]
            fn two() {
                let body = || barrier_bodies::episodes::<P, $type>(2, 3);
                each(informed(), concat!($name, ", two"), bounds(2, 800), body);
            }

            #[test]
            fn three() {
                let body = || barrier_bodies::episodes::<P, $type>(3, 2);
                each(informed(), concat!($name, ", three"), bounds(2, 800), body);
            }
        })*
    };
}
catalog::barriers!(suite);

type Default = BWakeful<Loom>;

#[test]
fn b_wakeful_combining() {
    each(true, "b-wakeful, two, combining", bounds(2, 800), || {
        barrier_bodies::episodes_with::<Loom, Default>(2, 2, 2)
    });
    each(true, "b-wakeful, three, combining", bounds(2, 800), || {
        barrier_bodies::episodes_with::<Loom, Default>(3, 2, 4)
    });
    each(true, "b-wakeful, coming and going, combining", bounds(2, 800), || {
        barrier_bodies::coming_and_going::<Loom, Noded<_, 2>>(2, 1)
    });
    each(true, "b-wakeful, groups, combining", bounds(2, 800), || {
        barrier_bodies::groups::<Loom, Noded<_, 2>>(2, 2)
    });
}

/// The words and nodes serve another barrier while threads are on their way out.
#[test]
fn b_wakeful_renewing() {
    one("b-wakeful, renewing", UNKNOWN, 2, 10_000, || barrier_bodies::renewing::<Loom, 1, false>(2));
    each(true, "b-wakeful, renewing, two nodes", bounds(2, 800), || {
        barrier_bodies::renewing::<Loom, 2, false>(2)
    });
    one("b-wakeful, coming round", UNKNOWN, 2, 10_000, || barrier_bodies::coming_round::<Loom, 1>(2));
    one("b-wakeful, leaving by era", UNKNOWN, 2, 10_000, barrier_bodies::leaving_by_era::<Loom>);
}

/// No node has a place for those who come. They see all the same what each wrote before (A1), one at a time
/// or two.
#[test]
fn b_wakeful_past_nodes_without_places() {
    each(true, "b-wakeful, one at a time past nodes", bounds(2, 800), || {
        barrier_bodies::groups::<Loom, Noded<_, 2>>(1, 2)
    });
    each(true, "b-wakeful, two past nodes", bounds(2, 800), || {
        barrier_bodies::episodes_with::<Loom, Default>(2, 2, 4)
    });
}

/// What it finds at a node is of another episode than the one it came for (N1).
#[test]
fn b_wakeful_one_too_many() {
    one("b-wakeful, one too many", UNKNOWN, 2, 40_000, barrier_bodies::one_too_many::<Loom, 3>);
}

#[test]
fn b_wakeful_coming_and_going() {
    each(true, "b-wakeful, coming and going", bounds(2, 800), || {
        barrier_bodies::coming_and_going::<Loom, Default>(2, 1)
    });
}

/// The papers' barriers, for threads without numbers: twice as many as there are seats, and as many.
#[test]
fn seated() {
    each(false, "seats, spinning", bounds(2, 2_000), || {
        barrier_bodies::groups::<Loom, Anonymous<_, CSpin<Loom>>>(2, 2)
    });
    each(false, "seats, sleeping", bounds(2, 2_000), || {
        barrier_bodies::groups::<Loom, Anonymous<_, CBlock<Loom>>>(2, 2)
    });
    each(false, "seats, episodes", bounds(2, 800), || {
        barrier_bodies::episodes::<Loom, Anonymous<_, CSpin<Loom>>>(2, 3)
    });
}

#[test]
fn b_wakeful_groups() {
    each(true, "b-wakeful, groups", bounds(2, 800), || barrier_bodies::groups::<Loom, Default>(2, 2));
}

#[test]
fn b_wakeful_draining() {
    each(true, "b-wakeful, draining", bounds(2, 400), || {
        barrier_bodies::draining::<Loom, BWakefulDrained<Loom>>(2, 1)
    });
}

#[test]
fn b_wakeful_summoning() {
    each(true, "b-wakeful, summoning", bounds(2, 400), || barrier_bodies::summoning::<Loom>(1, 2));
    each(true, "b-wakeful, summoning two", bounds(2, 400), || barrier_bodies::summoning::<Loom>(2, 1));
}

/// Who is about to sleep has been called (W3), or sleeps and is woken (C1).
#[test]
fn b_wakeful_summoned_asleep() {
    one("b-wakeful, summoned asleep", UNKNOWN, 2, 5_000, || barrier_bodies::summoning::<Loom>(1, 1));
    one("b-wakeful, called", UNKNOWN, 3, 5_000, barrier_bodies::called::<Loom>);
    one("b-wakeful, two summoned asleep", UNKNOWN, 2, 5_000, || barrier_bodies::summoning::<Loom>(2, 1));
}

#[test]
fn b_wakeful_awaiting_others() {
    each(true, "b-wakeful, awaiting others", bounds(2, 400), || barrier_bodies::awaiting_others::<Loom>(1));
    each(true, "b-wakeful, awaiting two others", bounds(2, 400), || {
        barrier_bodies::awaiting_others::<Loom>(2)
    });
}

/// Under one hint only, but further.
fn one(name: &str, hints: Hints, preemptions: usize, executions: usize, body: fn()) {
    let settings = Settings { hints, clock_step_ns: 10_000_000, generation: 0 };
    let ran = explore(name, settings, bounds(preemptions, executions), body);
    eprintln!("loom: {name}: {ran} executions");
}

const UNKNOWN: Hints = Hints::Always(RunState::Unknown);

/// One that is about to sleep finds that another has said so already: what it waits for must not have been
/// called yet (W2).
#[test]
fn b_wakeful_asleep_beside_another() {
    one("b-wakeful, two asleep", UNKNOWN, 2, 10_000, || barrier_bodies::episodes::<Loom, Default>(3, 1));
}

/// One that comes for the next episode finds its cluster's node full, or another cluster's (N1, N4).
#[test]
fn b_wakeful_arrivals_of_the_next_episode() {
    one("b-wakeful, next episode", Hints::Mixed, 2, 40_000, || {
        barrier_bodies::episodes_with::<Loom, Default>(2, 2, 3)
    });
}

#[test]
fn b_wakeful_joining_alone() {
    one("b-wakeful, joining", UNKNOWN, 2, 20_000, barrier_bodies::joining_alone::<Loom, Default>);
}

#[test]
fn b_wakeful_freeing() {
    one("b-wakeful, freeing", UNKNOWN, 2, 5_000, barrier_bodies::freeing::<Loom, BWakefulDrained<Loom>>);
}
