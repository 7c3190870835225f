// SPDX-License-Identifier: MIT OR Apache-2.0
//! The semaphore on this computer, in loom and in shuttle; and the checkers find what is broken.

use conformance::loom::{Bounds, Loom};
use conformance::semaphore::{AddsInTwoSteps, ForgetsSleepers, exclusion, supply, timing, turns};
use conformance::shuttle::{Schedules, Shuttle};
use conformance::twist::{Deaf, Lying, NoAcquire, NoRelease, Twisted};
use conformance::{HINTS, Hints, Settings, further, long};
use linux::Linux;
use platform::{Atomic, Platform, RunState};
use sync::semaphore::{RawSemaphore, Wakeful};

/// COST: ns a look of the models' clock: with the first a standby polls some times, with the second it goes
/// to sleep at once.
const STEPS: [u64; 2] = [15_000, 1_000_000];

fn all() -> impl Iterator<Item = Settings> {
    let settings = |hints, clock_step_ns| Settings { hints, clock_step_ns, ..Settings::default() };
    HINTS.into_iter().flat_map(move |hints| STEPS.into_iter().map(move |step| settings(hints, step)))
}

fn loom(name: &str, preemptions: usize, executions: usize, body: fn()) {
    let bounds = Bounds { preemptions: preemptions + long() as usize, executions: executions * further() };
    let ran: usize = all().map(|settings| conformance::loom::explore(name, settings, bounds, body)).sum();
    eprintln!("loom: {name}: {ran} executions");
}

fn shuttle(name: &str, count: usize, body: fn()) {
    let mut ran = 0;
    for settings in all() {
        for schedules in [Schedules::Random, Schedules::Pct(3)] {
            ran += conformance::shuttle::explore(settings, schedules, count * further(), body);
        }
    }
    eprintln!("shuttle: {name}: {ran} executions");
}

fn rounds() -> u32 {
    if long() { 20_000 } else { 1_000 }
}

#[test]
fn threads() {
    exclusion::<Linux, Wakeful<Linux>>(32, rounds());
    supply::<Linux, Wakeful<Linux>>(31, rounds());
    turns::<Linux, Wakeful<Linux>>(rounds() * 10);
    for patience_ns in [0, 1_000, 200_000] {
        timing::<Linux, Wakeful<Linux>>(32, rounds(), patience_ns);
    }
}

#[test]
fn threads_with_lying_hints() {
    type P = Twisted<Linux, Lying>;
    exclusion::<P, Wakeful<P>>(8, rounds());
    supply::<P, Wakeful<P>>(7, rounds());
}

#[test]
fn loom_exclusion() {
    loom("semaphore, two", 3, 1_000, || exclusion::<Loom, Wakeful<Loom>>(2, 2));
    loom("semaphore, three", 2, 1_000, || exclusion::<Loom, Wakeful<Loom>>(3, 1));
}

#[test]
fn loom_supply() {
    loom("semaphore, supply", 2, 1_000, || supply::<Loom, Wakeful<Loom>>(2, 2));
    loom("semaphore, turns", 3, 500, || turns::<Loom, Wakeful<Loom>>(2));
}

/// Far enough to see a token added between the two steps of L2, in which the flag is clear though a thread
/// sleeps.
#[test]
fn loom_window() {
    let bounds = Bounds { preemptions: 3, executions: 10_000 * further() };
    conformance::loom::explore("semaphore, window", PREEMPTED, bounds, || {
        supply::<Loom, Wakeful<Loom>>(2, 1)
    });
}

#[test]
fn loom_timing() {
    loom("semaphore, timing", 2, 1_000, || timing::<Loom, Wakeful<Loom>>(3, 1, 3_000_000));
}

#[test]
fn shuttle_exclusion() {
    shuttle("semaphore, exclusion", 200, || exclusion::<Shuttle, Wakeful<Shuttle>>(5, 4));
}

#[test]
fn shuttle_supply() {
    // Tokens come while those who were woken for others are on their way.
    shuttle("semaphore, supply", 300, || supply::<Shuttle, Wakeful<Shuttle>>(6, 3));
}

#[test]
fn shuttle_timing() {
    shuttle("semaphore, timing", 200, || timing::<Shuttle, Wakeful<Shuttle>>(5, 3, 3_000_000));
}

/// One whose words a parent of this process wrote, with threads on it that are not here.
fn copied<P: Platform>(state: u32, crowd: u32) -> Wakeful<P> {
    const { assert!(size_of::<Wakeful<P>>() == 2 * size_of::<P::AtomicU32>()) };
    let words =
        [state, crowd].map(|word| std::mem::ManuallyDrop::new(<P::AtomicU32 as Atomic<u32>>::new(word)));
    // SAFETY: `Wakeful` is two words; a test below fails if they change places.
    unsafe { std::ptr::from_ref(&words).cast::<Wakeful<P>>().read() }
}

/// As [`exclusion`], with a copy.
struct Copy<P: Platform, const STATE: u32, const CROWD: u32>(Wakeful<P>);

impl<P: Platform, const STATE: u32, const CROWD: u32> RawSemaphore<P> for Copy<P, STATE, CROWD> {
    fn new(tokens: u32) -> Self {
        let copy = copied::<P>(STATE, CROWD);
        assert_eq!(copy.available(), 0);
        (0..tokens).for_each(|_| assert!(copy.release()));
        Self(copy)
    }
    fn acquire(&self, deadline: Option<platform::Deadline>) -> bool {
        self.0.acquire(deadline)
    }
    fn try_acquire(&self) -> bool {
        self.0.try_acquire()
    }
    fn release(&self) -> bool {
        self.0.release()
    }
    fn available(&self) -> u32 {
        self.0.available()
    }
}

/// STANDBY, SLEEPERS, generation 2 and two sleepers of it.
const STANDBY: u32 = 1;
const SLEEPERS: u32 = 2;
const CROWD: u32 = 2 << 16 | 2;

#[test]
fn copied_by_fork() {
    fn check<P: conformance::Machine>(explore: impl Fn(Settings, fn())) {
        for settings in all() {
            let settings = Settings { generation: 3, ..settings };
            explore(settings, || exclusion::<P, Copy<P, STANDBY, CROWD>>(3, 1));
            explore(settings, || exclusion::<P, Copy<P, { STANDBY | SLEEPERS }, CROWD>>(3, 1));
            explore(settings, || supply::<P, Copy<P, { STANDBY | SLEEPERS }, CROWD>>(2, 1));
        }
    }
    check::<Loom>(|settings, body| {
        let bounds = Bounds { preemptions: 2, executions: 200 };
        conformance::loom::explore("semaphore, copied", settings, bounds, body);
    });
    check::<Shuttle>(|settings, body| {
        conformance::shuttle::explore(settings, Schedules::Random, 100, body);
    });
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
    loom_finds("a token added in two steps", adders::<Loom, AddsInTwoSteps<Loom>>);
    shuttle_finds("a token added in two steps", adders::<Shuttle, AddsInTwoSteps<Shuttle>>);
    loom_finds("forgotten sleepers", || supply::<Loom, ForgetsSleepers<Loom>>(2, 1));
    shuttle_finds("forgotten sleepers", || supply::<Shuttle, ForgetsSleepers<Shuttle>>(3, 1));
}

/// Two tokens, so that two threads add at once.
fn adders<M: conformance::Machine, S: RawSemaphore<M> + 'static>() {
    let semaphore = std::sync::Arc::new(S::new(2));
    let ours = semaphore.clone();
    let other = M::spawn(move || {
        ours.acquire(None);
        ours.release();
    });
    semaphore.acquire(None);
    semaphore.release();
    M::join(other);
    assert_eq!(semaphore.available(), 2);
}

#[test]
fn the_checkers_find_missing_orderings_and_wake_ups() {
    type A = Twisted<Loom, NoAcquire>;
    loom_finds("semaphore without acquire", || exclusion::<A, Wakeful<A>>(2, 1));
    type R = Twisted<Loom, NoRelease>;
    loom_finds("semaphore without release", || exclusion::<R, Wakeful<R>>(2, 1));
    type D = Twisted<Loom, Deaf>;
    loom_finds("deaf semaphore", || exclusion::<D, Wakeful<D>>(2, 2));
    type S = Twisted<Shuttle, Deaf>;
    shuttle_finds("deaf semaphore", || exclusion::<S, Wakeful<S>>(3, 2));
}
