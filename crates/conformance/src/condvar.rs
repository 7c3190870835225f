// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a condition variable must do: bodies generic over it, its mutex and the machine. Each panics on
//! failure; who waits for ever, on a model, is a failure that the checker reports.

use std::sync::Arc;

use platform::{Atomic, Clock, Deadline, Ordering::*, Platform, Priority, Wait};
use sync::condvar::{Step, Waiter, Wakeful};
use sync::mutex::RawMutex;
use sync::wait::publish;

use crate::bodies::together;
use crate::{Cell, Machine};

/// A condition variable in pieces, as the interposer uses it.
pub trait Condvar<P: Platform>: Send + Sync + 'static {
    /// Nobody waits for it.
    fn new() -> Self;
    /// Starts a wait; the caller holds the mutex and releases it next.
    fn enter(&self) -> Waiter;
    /// Waits to the end; false at the deadline.
    fn wait(&self, waiter: Waiter, deadline: Option<Deadline>) -> bool;
    /// The mutex could not be released after [`Condvar::enter`].
    fn abandon(&self, waiter: Waiter);
    /// The first step of a wait, cancelled as soon as it sleeps; false if it did not.
    fn cancel(&self, waiter: Waiter) -> bool;
    /// Wakes one.
    fn signal(&self);
    /// Wakes all.
    fn broadcast(&self);
    /// The mutex, under which [`Condvar::broadcast`] may have been called, has been released.
    fn released(&self) {}
}

impl<P: Platform> Condvar<P> for Wakeful<P> {
    fn new() -> Self {
        Self::new()
    }
    fn enter(&self) -> Waiter {
        self.enter()
    }
    fn wait(&self, waiter: Waiter, deadline: Option<Deadline>) -> bool {
        self.wait(waiter, deadline)
    }
    fn abandon(&self, waiter: Waiter) {
        self.abandon(waiter);
    }
    fn cancel(&self, mut waiter: Waiter) -> bool {
        let Step::Sleep(expected) = self.step(&mut waiter, None) else { return false };
        // The end of this sleep is the cancellation, whatever else it is.
        let soon = Deadline { ns: P::now_ns() + 1_000_000, clock: Clock::Monotonic };
        let slept = P::wait(self.word(), expected, Some(soon)) != Wait::Changed;
        if slept {
            self.cancelled();
        }
        slept
    }
    fn signal(&self) {
        self.signal();
    }
    fn broadcast(&self) {
        self.broadcast(u32::MAX);
    }
}

/// A mutex, a condition variable, and what they are about: things given and things taken.
struct Monitor<M: Machine, L, C> {
    mutex: L,
    changed: C,
    given: M::Cell,
    taken: M::Cell,
    /// Waiters that have been between `enter` and the release of the mutex.
    waiting: M::Cell,
    /// Not protected: how far the test is.
    phase: M::AtomicU32,
}

impl<M: Machine, L: RawMutex<M, Node = ()>, C: Condvar<M>> Monitor<M, L, C> {
    fn new() -> Arc<Self> {
        Self::of(C::new())
    }

    fn of(changed: C) -> Arc<Self> {
        Arc::new(Self {
            mutex: L::new(),
            changed,
            given: M::Cell::new(),
            taken: M::Cell::new(),
            waiting: M::Cell::new(),
            phase: M::AtomicU32::new(0),
        })
    }

    fn locked<R>(&self, body: impl FnOnce(&Self) -> R) -> R {
        // SAFETY: there is no node; released below.
        unsafe { self.mutex.lock(&()) };
        let result = body(self);
        // SAFETY: locked above; who waits inside has it again when it comes back.
        unsafe { self.mutex.unlock(&()) };
        self.changed.released();
        result
    }

    /// The mutex is held, before and after; false at the deadline.
    fn wait(&self, deadline: Option<Deadline>) -> bool {
        let waiter = self.changed.enter();
        self.waiting.bump();
        // SAFETY: held by this thread, and by it again when this returns.
        unsafe { self.mutex.unlock(&()) };
        let signalled = self.changed.wait(waiter, deadline);
        // SAFETY: there is no node.
        unsafe { self.mutex.lock(&()) };
        signalled
    }

    fn something(&self) -> bool {
        self.given.get() > self.taken.get()
    }

    /// Takes a thing, or nothing if the deadline comes first.
    fn take(&self, deadline: Option<Deadline>) -> bool {
        self.locked(|this| {
            let mut in_time = true;
            while !this.something() && in_time {
                in_time = this.wait(deadline);
            }
            let found = this.something();
            if found {
                this.taken.bump();
            } else {
                assert!(deadline.is_some_and(M::past), "came back with nothing before the deadline");
            }
            found
        })
    }

    /// Gives a thing; signals with the mutex held or after.
    fn give(&self, inside: bool) {
        self.locked(|this| {
            this.given.bump();
            if inside {
                this.changed.signal();
            }
        });
        if !inside {
            self.changed.signal();
        }
    }

    fn await_phase(&self, phase: u32) {
        // ORDER: Acquire, pairs with `next_phase`.
        while self.phase.load(Acquire) < phase {
            M::pause();
        }
    }

    fn next_phase(&self, phase: u32) {
        // ORDER: Release, pairs with `await_phase`.
        self.phase.store(phase, Release);
    }

    /// Waits until this many have begun to wait.
    fn await_waiters(&self, count: u32) {
        while self.locked(|this| this.waiting.get()) < count {
            M::pause();
        }
    }
}

/// As many things as there are takers, a signal for each: nobody waits for ever.
pub fn signals<M: Machine, L: RawMutex<M, Node = ()> + 'static, C: Condvar<M>>(
    takers: u32,
    rounds: u32,
    inside: bool,
) {
    signals_of::<M, L, C>(C::new(), takers, rounds, inside);
}

/// The same with a condition variable in a certain state, for which nobody of ours waits.
pub fn signals_of<M: Machine, L: RawMutex<M, Node = ()> + 'static, C: Condvar<M>>(
    changed: C,
    takers: u32,
    rounds: u32,
    inside: bool,
) {
    let monitor = Monitor::<M, L, C>::of(changed);
    let ours = monitor.clone();
    together::<M>(takers + 1, move |index| {
        for _ in 0..rounds {
            if index == 0 {
                (0..takers).for_each(|_| ours.give(inside));
            } else {
                assert!(ours.take(None));
            }
        }
    });
    monitor.locked(|this| assert_eq!(this.given.get(), this.taken.get()));
}

/// Where a scheduler listens, a standby is a contender (S6 of `wait::publish`), beside a lock that it holds
/// more, and is as before when it has its signal. `told` is called for each that is seen to stand by beside
/// a lock.
pub fn publishing<M: Machine, C: Condvar<M>>(changed: C, rounds: u32, told: fn()) {
    let monitor = Monitor::<M, sync::mutex::Native<M>, C>::of(changed);
    let taker = Arc::new(M::AtomicU32::new(0));
    let (ours, theirs) = (monitor.clone(), taker.clone());
    let other = M::spawn(move || {
        let me = M::register();
        theirs.store(me.0, Release);
        for round in 0..rounds {
            let holds = round % 2 == 1;
            if holds {
                publish::claim::<M>();
                publish::entered::<M>();
            }
            let before = M::priority(me);
            assert!(ours.take(None));
            assert_eq!(M::priority(me), before, "who has its signal is not as before");
            if holds {
                publish::left::<M>();
            }
            assert_eq!(M::priority(me), Priority::Running, "who holds nothing is not as before");
        }
    });
    for _ in 0..rounds {
        let id = platform::ThreadId(taker.load(Acquire));
        if M::priority(id) == Priority::LockImmediateWaiter {
            told();
        }
        monitor.give(true);
    }
    M::join(other);
}

/// Signals only for those who wait already, and all of them get there.
pub fn signals_to_sleepers<M: Machine, L: RawMutex<M, Node = ()> + 'static, C: Condvar<M>>(
    takers: u32,
    inside: bool,
) {
    let monitor = Monitor::<M, L, C>::new();
    let ours = monitor.clone();
    together::<M>(takers + 1, move |index| {
        if index == 0 {
            ours.await_waiters(takers);
            (0..takers).for_each(|_| ours.give(inside));
        } else {
            assert!(ours.take(None));
        }
    });
}

/// A broadcast wakes all.
pub fn broadcasts<M: Machine, L: RawMutex<M, Node = ()> + 'static, C: Condvar<M>>(
    waiters: u32,
    rounds: u32,
    inside: bool,
) {
    let monitor = Monitor::<M, L, C>::new();
    let ours = monitor.clone();
    together::<M>(waiters + 1, move |index| {
        for round in 1..=rounds {
            if index == 0 {
                ours.locked(|this| {
                    this.given.bump();
                    if inside {
                        this.changed.broadcast();
                    }
                });
                if !inside {
                    ours.changed.broadcast();
                }
            } else {
                ours.locked(|this| {
                    while this.given.get() < round {
                        this.wait(None);
                    }
                });
            }
        }
    });
}

/// Some wait with a deadline and some without. A timed waiter may take a signal on its way out, but then it
/// sees what was given; nobody without a deadline waits for ever.
pub fn timing<M: Machine, L: RawMutex<M, Node = ()> + 'static, C: Condvar<M>>(
    timed: u32,
    untimed: u32,
    patience_ns: u64,
    inside: bool,
) {
    let monitor = Monitor::<M, L, C>::new();
    let ours = monitor.clone();
    together::<M>(timed + untimed + 1, move |index| {
        if index == 0 {
            (0..timed + untimed).for_each(|_| ours.give(inside));
        } else if index <= timed {
            let deadline = Deadline { ns: M::now_ns() + patience_ns, clock: Clock::Monotonic };
            ours.take(Some(deadline));
        } else {
            assert!(ours.take(None));
        }
    });
}

/// Nobody signals: a waiter comes back after its deadline.
pub fn timing_out<M: Machine, L: RawMutex<M, Node = ()> + 'static, C: Condvar<M>>(
    waiters: u32,
    patience_ns: u64,
) {
    let monitor = Monitor::<M, L, C>::new();
    let ours = monitor.clone();
    together::<M>(waiters, move |_| {
        let deadline = Deadline { ns: M::now_ns() + patience_ns, clock: Clock::Monotonic };
        assert!(!ours.take(Some(deadline)), "there is nothing to take");
    });
}

/// POSIX: a signal unblocks a thread that is blocked when it is sent. Waiters that come later, however
/// many, do not take it from those.
pub fn no_stealing<M: Machine, L: RawMutex<M, Node = ()> + 'static, C: Condvar<M>>(early: u32, late: u32) {
    let monitor = Monitor::<M, L, C>::new();
    let spawn = |early: bool| {
        let ours = monitor.clone();
        M::spawn(move || {
            if early {
                ours.locked(|this| this.wait(None));
            } else {
                ours.await_phase(1);
                ours.locked(|this| {
                    while this.given.get() == 0 {
                        this.wait(None);
                    }
                });
            }
        })
    };
    let first: Vec<_> = (0..early).map(|_| spawn(true)).collect();
    let second: Vec<_> = (0..late).map(|_| spawn(false)).collect();
    monitor.await_waiters(early);
    (0..early).for_each(|_| monitor.changed.signal());
    monitor.next_phase(1);
    // Here the test hangs if one of the second has taken a signal from one of the first.
    first.into_iter().for_each(M::join);
    monitor.locked(|this| {
        this.given.bump();
        this.changed.broadcast();
    });
    second.into_iter().for_each(M::join);
}

/// A waiter ends its wait in another way, and the signal that it may have had goes to somebody who waits.
pub fn giving_up<M: Machine, L: RawMutex<M, Node = ()> + 'static, C: Condvar<M>>(
    others: u32,
    cancelled: bool,
) {
    let monitor = Monitor::<M, L, C>::new();
    let ours = monitor.clone();
    together::<M>(others + 2, move |index| match index {
        0 => {
            ours.await_waiters(others);
            (0..others).for_each(|_| ours.give(false));
        }
        1 if cancelled => {
            let waiter = ours.locked(|this| this.changed.enter());
            if !ours.changed.cancel(waiter) {
                // It had the signal and has no use for it, which its user would know.
                ours.changed.signal();
            }
        }
        // Twice: as a sleeper and as a standby, where the hints are mixed.
        1 => (0..2).for_each(|_| ours.locked(|this| this.changed.abandon(this.changed.enter()))),
        _ => assert!(ours.take(None)),
    });
}

/// A bounded buffer with room for one, and two condition variables.
pub fn buffer<M: Machine, L: RawMutex<M, Node = ()> + 'static, C: Condvar<M>>(pairs: u32, rounds: u32) {
    struct Buffer<L, C>(L, C, C);
    let shared = Arc::new(Buffer(L::new(), C::new(), C::new()));
    let (full, produced) = (Arc::new(M::AtomicU32::new(0)), Arc::new(M::Cell::new()));
    let (ours, count) = (shared.clone(), produced.clone());
    together::<M>(pairs * 2, move |index| {
        let Buffer(mutex, filled, drained) = &*ours;
        let produces = index % 2 == 0;
        let (mine, theirs) = if produces { (drained, filled) } else { (filled, drained) };
        for _ in 0..rounds {
            // SAFETY: there is no node; released below.
            unsafe { mutex.lock(&()) };
            while full.load(Relaxed) == produces as u32 {
                let waiter = mine.enter();
                // SAFETY: held.
                unsafe { mutex.unlock(&()) };
                mine.wait(waiter, None);
                // SAFETY: there is no node; released below.
                unsafe { mutex.lock(&()) };
            }
            full.store(produces as u32, Relaxed);
            if produces {
                count.bump();
            }
            theirs.signal();
            // SAFETY: held.
            unsafe { mutex.unlock(&()) };
        }
    });
    assert_eq!(produced.get(), pairs * rounds);
}
