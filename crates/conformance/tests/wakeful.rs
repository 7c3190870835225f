// SPDX-License-Identifier: MIT OR Apache-2.0
//! The default mutex, further than the others: every hint, clocks of several speeds (each phase that ends by the clock lasts
//! one look or many), timed waiters among the others, and words copied by fork.

use conformance::loom::{Bounds, Loom};
use conformance::shuttle::{Schedules, Shuttle};
use conformance::twist::{Mute, Roomy, Twisted};
use conformance::{HINTS, Hints, Settings, bodies, further, long};
use platform::{Atomic, Platform, RunState};
use sync::mutex::Wakeful;
use sync::wait::Unpreemptable;

/// COST: ns a look; the longest phase of the algorithm is 1 ms, the shortest 130 ns.
const STEPS: [u64; 3] = [30_000, 150_000, 1_000_000];

fn all() -> impl Iterator<Item = Settings> {
    HINTS.into_iter().flat_map(|hints| {
        STEPS.into_iter().map(move |clock_step_ns| Settings { hints, clock_step_ns, ..Settings::default() })
    })
}

fn loom(name: &str, preemptions: usize, executions: usize, body: fn()) {
    let mut ran = 0;
    for settings in all() {
        let bounds = Bounds { preemptions: preemptions + long() as usize, executions: executions * further() };
        ran += conformance::loom::explore(name, settings, bounds, body);
    }
    eprintln!("loom: {name}: {ran} executions");
}

fn shuttle(name: &str, count: usize, body: fn()) {
    let mut ran = 0;
    for settings in all() {
        for schedules in [Schedules::Random, Schedules::Pct(2), Schedules::Pct(5)] {
            ran += conformance::shuttle::explore(settings, schedules, count * further(), body);
        }
    }
    eprintln!("shuttle: {name}: {ran} executions");
}

#[test]
fn loom_two() {
    loom("wakeful, two", 3, 1_000, || bodies::exclusion::<Loom, Wakeful<Loom>>(2, 3));
}

#[test]
fn loom_three() {
    loom("wakeful, three", 2, 1_000, || bodies::exclusion::<Loom, Wakeful<Loom>>(3, 2));
}

#[test]
fn loom_timed() {
    loom("wakeful, timed", 2, 500, || bodies::timing::<Loom, Wakeful<Loom>>(3, 2, 2_000_000));
}

#[test]
fn loom_timed_out() {
    loom("wakeful, timed out", 2, 500, || bodies::timing_out::<Loom, Wakeful<Loom>>(2_000_000));
}

#[test]
fn shuttle_exclusion() {
    shuttle("wakeful, exclusion", 150, || bodies::exclusion::<Shuttle, Wakeful<Shuttle>>(5, 4));
}

#[test]
fn shuttle_timed() {
    shuttle("wakeful, timed", 100, || bodies::timing::<Shuttle, Wakeful<Shuttle>>(4, 4, 2_000_000));
}

#[test]
fn shuttle_nested() {
    shuttle("wakeful, nested", 100, || bodies::nesting::<Shuttle, Wakeful<Shuttle>>(4, 3, false));
}

/// W8, P1 and N1: in line awake, passed over if the hint says so, warned and wishing.
mod awake {
    use super::*;
    type L = Twisted<Loom, Roomy>;
    type S = Twisted<Shuttle, Roomy>;

    #[test]
    fn loom_three() {
        loom("wakeful, awake, three", 2, 500, || bodies::exclusion::<L, Wakeful<L>>(3, 2));
    }

    #[test]
    fn loom_wishing() {
        loom("wakeful-np, awake, wishing", 2, 500, || bodies::wishing::<L, Wakeful<L, Unpreemptable>>(3, 1));
    }

    #[test]
    fn shuttle_exclusion() {
        shuttle("wakeful, awake, exclusion", 150, || bodies::exclusion::<S, Wakeful<S>>(5, 4));
        shuttle("wakeful-np, awake, exclusion", 150, || bodies::exclusion::<S, Wakeful<S, Unpreemptable>>(5, 4));
    }

    #[test]
    fn shuttle_timed() {
        shuttle("wakeful-np, awake, timed", 100, || {
            bodies::timing::<S, Wakeful<S, Unpreemptable>>(4, 4, 2_000_000);
        });
    }

    /// Who is passed over, or promoted, and not told of it is missed.
    #[test]
    fn told() {
        type P = Twisted<Loom, Mute>;
        for hint in [RunState::Preempted, RunState::Running] {
            let settings = Settings { hints: Hints::Always(hint), ..Settings::default() };
            conformance::loom::finds(settings, "who is not told", || bodies::exclusion::<P, Wakeful<P>>(3, 1));
        }
    }
}

/// A mutex whose word a parent of this process wrote.
fn copied<P: Platform>(word: u32) -> Wakeful<P> {
    const { assert!(size_of::<Wakeful<P>>() == size_of::<P::AtomicU32>()) };
    let word = std::mem::ManuallyDrop::new(<P::AtomicU32 as Atomic<u32>>::new(word));
    // SAFETY: `Wakeful` is transparent over its word.
    unsafe { std::ptr::from_ref(&word).cast::<Wakeful<P>>().read() }
}

/// Bits of the word, see the state table of `wakeful`.
const LOCKED: u32 = 1;
const STANDBY: u32 = 1 << 1;
const KICK: u32 = 1 << 2;
const HANDOFF: u32 = 1 << 3;
const RELAY: u32 = 1 << 7;
const GENERATION_2: u32 = 2 << 4;
/// Thread 5 of the parent, which is not here, slept on it last.
const NEWEST_5: u32 = 5 << 20;

const COPIES: [u32; 6] = [
    STANDBY | GENERATION_2,
    STANDBY | KICK | GENERATION_2,
    STANDBY | GENERATION_2 | NEWEST_5,
    STANDBY | KICK | GENERATION_2 | NEWEST_5,
    STANDBY | HANDOFF | GENERATION_2 | NEWEST_5,
    STANDBY | HANDOFF | RELAY | GENERATION_2 | NEWEST_5,
];

/// The child's only thread comes to it, and then others, before and after its first contention.
#[test]
fn copied_by_fork() {
    for word in COPIES {
        for settings in all() {
            let settings = Settings { generation: 3, ..settings };
            let bounds = Bounds { preemptions: 2, executions: 100 };
            conformance::loom::explore(&format!("wakeful, copied free {word:x}"), settings, bounds, move || {
                bodies::exclusion_of::<Loom, _>(copied::<Loom>(word), 2, 1)
            });
            conformance::loom::explore(&format!("wakeful, copied held {word:x}"), settings, bounds, move || {
                bodies::release_of::<Loom, _>(copied::<Loom>(word | LOCKED), 2)
            });
            conformance::shuttle::explore(settings, Schedules::Random, 50, move || {
                bodies::release_of::<Shuttle, _>(copied::<Shuttle>(word | LOCKED), 4)
            });
        }
    }
}
