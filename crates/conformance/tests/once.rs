// SPDX-License-Identifier: MIT OR Apache-2.0
//! Initialisation that happens once, on this computer, in loom and in shuttle; and the checkers find what
//! is broken.

use conformance::loom::{Bounds, Loom};
use conformance::once::{BeginsTwice, WakesOne, once, once_of, poison};
use conformance::shuttle::{Schedules, Shuttle};
use conformance::twist::{Deaf, Lying, NoAcquire, NoRelease, Twisted};
use conformance::{HINTS, Hints, Settings, further};
use linux::Linux;
use platform::{Atomic, Platform, RunState};
use sync::once::Wakeful;

/// COST: ns a look of the models' clock: with the first a waiter polls some times, with the second it goes
/// to sleep at once.
const STEPS: [u64; 2] = [4_000, 1_000_000];

fn all() -> impl Iterator<Item = Settings> {
    let settings = |hints, clock_step_ns| Settings { hints, clock_step_ns, ..Settings::default() };
    HINTS.into_iter().flat_map(move |hints| STEPS.into_iter().map(move |step| settings(hints, step)))
}

fn loom(name: &str, body: fn()) {
    let bounds = Bounds { preemptions: 3, executions: 1_000 * further() };
    let ran: usize = all().map(|settings| conformance::loom::explore(name, settings, bounds, body)).sum();
    eprintln!("loom: {name}: {ran} executions");
}

fn shuttle(body: fn()) {
    for settings in all() {
        for schedules in [Schedules::Random, Schedules::Pct(3)] {
            conformance::shuttle::explore(settings, schedules, 100 * further(), body);
        }
    }
}

#[test]
fn threads() {
    for round in 0..100 * further() as u32 {
        once::<Linux, Wakeful<Linux>>(16, round % 4);
        once::<Twisted<Linux, Lying>, Wakeful<_>>(8, round % 2);
    }
    poison::<Linux, Wakeful<Linux>>();
}

#[test]
fn loom_once() {
    loom("once, two", || once::<Loom, Wakeful<Loom>>(2, 0));
    loom("once, two, a failure", || once::<Loom, Wakeful<Loom>>(2, 1));
    loom("once, three", || once::<Loom, Wakeful<Loom>>(3, 0));
    loom("once, poison", poison::<Loom, Wakeful<Loom>>);
}

#[test]
fn shuttle_once() {
    shuttle(|| once::<Shuttle, Wakeful<Shuttle>>(5, 0));
    shuttle(|| once::<Shuttle, Wakeful<Shuttle>>(4, 3));
}

/// One whose word a parent of this process wrote: a thread that is not here (number 5) initialises, and
/// others sleep.
fn copied<P: Platform>(word: u32) -> Wakeful<P> {
    const { assert!(size_of::<Wakeful<P>>() == size_of::<P::AtomicU32>()) };
    let word = std::mem::ManuallyDrop::new(<P::AtomicU32 as Atomic<u32>>::new(word));
    // SAFETY: `Wakeful` is transparent over its word.
    unsafe { std::ptr::from_ref(&word).cast::<Wakeful<P>>().read() }
}

const RUNNING: u32 = 1 | 2 << 3 | 5 << 8;
const SLEEPERS: u32 = 4;

#[test]
fn copied_by_fork() {
    for word in [RUNNING, RUNNING | SLEEPERS] {
        for settings in all() {
            let settings = Settings { generation: 3, ..settings };
            let bounds = Bounds { preemptions: 2, executions: 200 };
            conformance::loom::explore("once, copied", settings, bounds, move || {
                once_of::<Loom, _>(copied::<Loom>(word), 3, 0)
            });
            conformance::shuttle::explore(settings, Schedules::Random, 50, move || {
                once_of::<Shuttle, _>(copied::<Shuttle>(word), 5, 2)
            });
        }
    }
}

const PREEMPTED: Settings =
    Settings { hints: Hints::Always(RunState::Preempted), clock_step_ns: 1_000_000, generation: 0 };

fn loom_finds(what: &str, body: impl Fn() + Send + Sync + 'static) {
    conformance::loom::finds(PREEMPTED, what, body);
}

fn shuttle_finds(what: &str, body: impl Fn() + Send + Sync + 'static) {
    conformance::shuttle::finds(PREEMPTED, what, body);
}

#[test]
fn the_checkers_find_twins() {
    loom_finds("a second beginning", || once::<Loom, BeginsTwice<Loom>>(2, 0));
    shuttle_finds("a second beginning", || once::<Shuttle, BeginsTwice<Shuttle>>(2, 0));
    loom_finds("one woken of two", || once::<Loom, WakesOne<Loom>>(3, 0));
    shuttle_finds("one woken of two", || once::<Shuttle, WakesOne<Shuttle>>(3, 0));
}

#[test]
fn the_checkers_find_missing_orderings_and_wake_ups() {
    type A = Twisted<Loom, NoAcquire>;
    loom_finds("once without acquire", || once::<A, Wakeful<A>>(2, 0));
    type R = Twisted<Loom, NoRelease>;
    loom_finds("once without release", || once::<R, Wakeful<R>>(2, 0));
    type D = Twisted<Loom, Deaf>;
    loom_finds("deaf once", || once::<D, Wakeful<D>>(2, 0));
    type S = Twisted<Shuttle, Deaf>;
    shuttle_finds("deaf once", || once::<S, Wakeful<S>>(2, 0));
}
