// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the defaults tell a scheduler that listens (steps S1 to S7 of `sync::wait::publish`), and twins that
//! tell too much or too little.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use conformance::loom::Loom;
use conformance::shuttle::{Schedules, Shuttle};
use conformance::twist::{Ending, LISTENS, Listening, Twisted, Uncounted};
use conformance::{Hints, Machine, Settings, barrier_bodies, bodies, condvar, hinted};
use linux::Linux;
use platform::{Atomic, Deadline, Platform, Priority, RunState};
use sync::condvar::{Waiter, Wakeful as Condvar};
use sync::mutex::{RawMutexTimed, Wakeful};

type L = Twisted<Loom, Listening>;
type S = Twisted<Shuttle, Listening>;
type P = Twisted<Linux, Listening>;
/// Nobody counts the locks that a thread holds.
type U = Twisted<Loom, Uncounted>;

/// COST: ns a look, as for the default mutex.
const STEPS: [u64; 3] = [30_000, 150_000, 1_000_000];
const RUNNING: Settings =
    Settings { hints: Hints::Always(RunState::Running), clock_step_ns: 1_000_000, generation: 0 };

fn loom(name: &str, executions: usize, body: fn()) {
    conformance::loom::explore_all(name, &hinted(&STEPS), 2, executions, body);
}

fn shuttle(name: &str, count: usize, body: fn()) {
    let schedules = &[Schedules::Random, Schedules::Pct(2)];
    conformance::shuttle::explore_all(name, &hinted(&STEPS), schedules, count, body);
}

/// S1 to S5, and S7 meanwhile.
#[test]
fn mutex_tells() {
    static TOLD: AtomicU32 = AtomicU32::new(0);
    let told = || _ = TOLD.fetch_add(1, Relaxed);
    loom("mutex, telling", 300, || {
        bodies::publishing::<L, Wakeful<L>>(2, 2, || _ = TOLD.fetch_add(1, Relaxed))
    });
    assert_ne!(TOLD.load(Relaxed), 0, "nobody told");
    shuttle("mutex, telling", 50, || bodies::publishing::<S, Wakeful<S>>(4, 4, || ()));
    bodies::publishing::<P, Wakeful<P>>(16, 2_000, told);
}

/// S7, and its twin, in which nobody takes the word back.
#[test]
fn mutex_is_awaited() {
    loom("mutex, awaited", 200, || bodies::awaited::<L, Wakeful<L>>(|| ()));
    shuttle("mutex, awaited", 50, || bodies::awaited::<S, Wakeful<S>>(|| ()));
    conformance::loom::finds(RUNNING, "a holder that is awaited for ever", || {
        LISTENS.set(true);
        bodies::awaited::<Twisted<Loom, Ending>, Wakeful<_>>(|| LISTENS.set(false));
    });
}

/// S7: who gives up waiting takes its word back.
#[test]
fn mutex_is_awaited_no_more() {
    fn out<M: Machine>()
    where
        Wakeful<M>: RawMutexTimed<M> + 'static,
    {
        bodies::timing_out::<M, Wakeful<M>>(2_000_000);
    }
    loom("mutex, timed out", 200, out::<L>);
    loom("mutex, timed", 200, || bodies::timing::<L, Wakeful<L>>(3, 2, 2_000_000));
    shuttle("mutex, timed", 50, || bodies::timing::<S, Wakeful<S>>(4, 4, 2_000_000));
}

/// S6. The twin's waiters do not know that they hold a lock.
#[test]
fn barrier_tells() {
    static TOLD: AtomicU32 = AtomicU32::new(0);
    loom("barrier, telling", 300, || {
        barrier_bodies::publishing::<L>(2, 2, || _ = TOLD.fetch_add(1, Relaxed));
    });
    assert_ne!(TOLD.load(Relaxed), 0, "nobody told");
    shuttle("barrier, telling", 50, || barrier_bodies::publishing::<S>(4, 4, || ()));
    barrier_bodies::publishing::<P>(8, 2_000, || ());
    conformance::loom::finds(RUNNING, "waiters that nobody counts", || {
        barrier_bodies::publishing::<U>(2, 2, || ());
    });
}

/// A condition variable whose standbys stay what they were while they waited.
struct StandsByForEver<P: Platform>(Condvar<P>);

impl<P: Platform> condvar::Condvar<P> for StandsByForEver<P> {
    fn new() -> Self {
        Self(Condvar::new())
    }
    fn enter(&self) -> Waiter {
        self.0.enter()
    }
    fn wait(&self, waiter: Waiter, deadline: Option<Deadline>) -> bool {
        P::set_priority(P::register_lazily(), Priority::LockWaiter);
        self.0.wait(waiter, deadline)
    }
    fn abandon(&self, waiter: Waiter) {
        self.0.abandon(waiter);
    }
    fn cancel(&self, waiter: Waiter) -> bool {
        condvar::Condvar::cancel(&self.0, waiter)
    }
    fn signal(&self) {
        self.0.signal();
    }
    fn broadcast(&self) {
        condvar::Condvar::broadcast(&self.0);
    }
}

/// S6. The twins' standbys do not know that they hold a lock, or stay what they were.
/// The first wait stands by: see the state of `condvar::Wakeful`.
#[test]
fn condvar_tells() {
    static TOLD: AtomicU32 = AtomicU32::new(0);
    fn resting<M: Machine>() -> Condvar<M> {
        const { assert!(size_of::<Condvar<M>>() == 2 * size_of::<M::AtomicU32>()) };
        let words =
            [7, 1 << 10].map(|word| std::mem::ManuallyDrop::new(<M::AtomicU32 as Atomic<u32>>::new(word)));
        // SAFETY: two words, `sequence` and `state`.
        unsafe { std::ptr::from_ref(&words).cast::<Condvar<M>>().read() }
    }
    loom("condvar, telling", 300, || {
        condvar::publishing::<L, _>(resting::<L>(), 2, || _ = TOLD.fetch_add(1, Relaxed));
    });
    assert_ne!(TOLD.load(Relaxed), 0, "nobody told");
    shuttle("condvar, telling", 50, || condvar::publishing::<S, _>(resting::<S>(), 4, || ()));
    conformance::loom::finds(RUNNING, "standbys that nobody counts", || {
        condvar::publishing::<U, _>(resting::<U>(), 2, || ());
    });
    conformance::loom::finds(RUNNING, "standbys for ever", || {
        condvar::publishing::<L, _>(StandsByForEver(resting::<L>()), 2, || ());
    });
}
