// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spare servicing threads: who notices that the thread in charge does not get on, and takes over.
//!
//! A section may block, fault, or wait for what another section has yet to do. The server's other locks
//! shall not wait for that. Of the threads in `serve` one is in charge. One more is the *watcher*, which
//! sleeps until it is called. The others wait for the watcher's place, which is a mutex.
//!
//! - V1. A client that is about to sleep, or that leaves its request, calls: it sets `called`, and wakes the
//!   watcher if that was 0. It also does so if the thread in charge has blocked in another lock's section
//!   (HINT).
//! - V2. The watcher looks at once, and after each [`TICK_NS`], as long as there is a request.
//! - V3. It takes the charge by compare-and-swap if the thread in charge is IN a section, a request waits
//!   whose lock is not busy, and the thread does not run (HINT) or is in the same section as one look ago.
//!   Any late client counts as such a request (HINT): at worst, the charge changes hands for nothing.
//!   It leaves the watcher's place to the next spare thread.
//! - V4. Without a request it clears `called`, looks once more, and sleeps.
//!
//! V1 release -> V4 acquire publishes the request: V4 sees it, or V1 finds 0 there.
//!
//! A section that blocks so delays the others by a switch if a client looks or the watcher is called, else by
//! one tick, and by two where no view tells that it has blocked. Each section that is stuck takes a thread.
//! If all are stuck, requests wait. A section that spins keeps its processor until the system's tick: so the
//! watcher asks to run at once when it wakes ([`Platform::hurry`]).

use platform::{Atomic, AtomicInt, Clock, Deadline, Ordering::*, Platform, ThreadId};

use super::ask::RclLock;
use super::{ID, IN, RclServer};
use crate::mutex::{Native, RawMutex};
use crate::wait::look::may_run;

/// BOUND: twice that, and as much again until it has a processor, is less than 1 ms. A look costs a wake-up:
/// 2 % of a processor, as long as a client waits.
const TICK_NS: u64 = 150_000;

/// The watcher's place, and its bell.
pub struct Watch<P: Platform> {
    place: Native<P>,
    called: P::AtomicU32,
    /// Threads that stand by.
    pub(super) spares: P::AtomicU32,
}

impl<P: Platform> Watch<P> {
    pub fn new() -> Self {
        Self { place: Native::new(), called: P::AtomicU32::new(0), spares: P::AtomicU32::new(0) }
    }
}

impl<P: Platform, const SLOTS: usize> RclServer<P, SLOTS> {
    /// V1.
    #[cold]
    pub(super) fn call(&self, lock: &RclLock<P>) {
        let called = &self.watch.0.called;
        // ORDER: Release (V1), pairs with V4; publishes the request, and `used`.
        let sleeps = called.swap(1, Release) == 0;
        // HINT: wrong, the watcher looks in vain, or at its next tick.
        let is_stuck = || {
            // First what the thread in charge does not write at each section: a look at that costs it a miss.
            !may_run::<P>(self.server())
                && self.charge.0.load(Relaxed) & IN != 0
                && lock.busy.load(Relaxed) == 0
        };
        if sleeps || is_stuck() {
            P::wake(called, 1);
        }
    }

    /// The server is closed: the spare threads go.
    pub(super) fn dismiss(&self) {
        // ORDER: Release, pairs with V4; publishes `closed`.
        self.watch.0.called.swap(1, Release);
        P::wake(&raw const self.watch.0.called, 1);
    }

    /// V2 to V4. Returns the thread that was in charge before the calling one took the charge; `None` if the
    /// server is closed.
    pub(super) fn stand_by(&self, me: ThreadId) -> Option<ThreadId> {
        let Watch { place, spares, .. } = &self.watch.0;
        spares.fetch_add(1, Relaxed);
        // SAFETY: there is no node, and it is unlocked once, below.
        unsafe { place.lock(&()) };
        P::hurry(true);
        let took = self.keep_watch(me);
        P::hurry(false);
        spares.fetch_sub(1, Relaxed);
        // SAFETY: locked above.
        unsafe { place.unlock(&()) };
        took
    }

    fn keep_watch(&self, me: ThreadId) -> Option<ThreadId> {
        let called = &self.watch.0.called;
        let asked = || self.late.0.is_used() || self.slots().any(|slot| slot.ask.answer.is_asked());
        let mut before = 0;
        loop {
            if self.closed.load(Relaxed) != 0 {
                return None;
            }
            let charge = self.charge.0.load(Relaxed);
            if self.is_for_us(charge, before) && self.take(charge, me) {
                return Some(ThreadId(charge & ID));
            }
            before = charge;
            if asked() {
                if called.load(Relaxed) == 0 {
                    // No store: V4 is to read what V1 published through it.
                    called.swap(1, Relaxed);
                }
                let tick = Deadline { ns: P::now_ns() + TICK_NS, clock: Clock::Monotonic };
                P::wait(called, 1, Some(tick));
                // A model's tick takes no time: there the others go first.
                P::pause();
                continue;
            }
            // ORDER: Acquire (V4), pairs with V1.
            called.swap(0, Acquire);
            if !asked() && self.closed.load(Relaxed) == 0 {
                P::wait(called, 0, None);
            }
        }
    }

    /// V3. Nobody is in charge yet, or who is does not get on.
    fn is_for_us(&self, charge: u32, before: u32) -> bool {
        // HINT: wrong, two threads take turns for nothing, or it takes until the next look.
        let is_stuck = || charge == before || !may_run::<P>(ThreadId(charge & ID));
        let waits = || self.late.0.is_used() || self.slots().any(|slot| slot.ask.to_run().is_some());
        charge & ID == 0 || charge & IN != 0 && is_stuck() && waits()
    }

    /// V3.
    fn take(&self, charge: u32, me: ThreadId) -> bool {
        let ours = charge & !(ID | IN) | me.0;
        // ORDER: Acquire (V3), pairs with S1.
        let took = self.charge.0.compare_exchange(charge, ours, Acquire, Relaxed).is_ok();
        if took {
            self.generation.store(P::generation(), Relaxed);
            self.server.store(me.0, Relaxed);
        }
        took
    }
}
