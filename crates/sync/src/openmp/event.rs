// SPDX-License-Identifier: MIT OR Apache-2.0
//! An event: threads wait for a condition that is written elsewhere.
//!
//! The problem: a task ends, and a thread may wait for that. The condition is a count or a word of the
//! program's, so the thread cannot sleep on it. Most of the time nobody waits, and then whoever makes the
//! condition true must not pay.
//!
//! The idea is the event count (Reed and Kanodia, CACM 1979), with a count of waiters. A waiter registers,
//! looks at the condition, and sleeps on the number of notices. Whoever has made the condition true looks at
//! the count of waiters, and gives notice only if there are some. Choose it where notices are frequent and
//! waiters are rare.
//!
//! ```text
//! waiter:    W1 waiters += 1   W2 fence   W3 read number   W4 look   W5 set SLEEPERS, sleep on the number
//! notifier:  N1 write what is waited for   N2 fence   N3 read waiters   N4 number += 1   N5 wake
//! ```
//!
//! # State
//!
//! `count`: bit 0 SLEEPERS, above it the number of notices. `waiters`: threads between W1 and the end of
//! their wait.
//!
//! | from | to | by |
//! |---|---|---|
//! | n, s | n + 1, s | N4, a notice |
//! | n, 0 | n, 1 | W5, about to sleep |
//! | n, 1 | n, 0 | N5, about to wake all |
//!
//! # Invariants
//!
//! I1. A waiter whose look fails has registered before the write, or has seen a number from before its
//! notice.
//! I2. Whoever sleeps has found its number and SLEEPERS in `count` in one step.
//! I3. Each notice that finds SLEEPERS wakes all.
//!
//! # Protocol
//!
//! W1 to W5 and N1 to N5 as above. W2 and N2 are full fences: either N3 sees the waiter, or W4 sees the
//! write (I1). If N3 sees the waiter, N4 changes the number. Then W5 fails, or the futex refuses to sleep,
//! or N5 wakes.
//!
//! # Memory order
//!
//! The fences W2 and N2 pair. N2 also makes a release of N4 -> W3 acquire: a waiter that begins on the new
//! number sees what the notice was about. W5 and N5 are read-modify-writes, which keep N4's release visible.
//!
//! # Under the scheduler
//!
//! Notifier preempted between N1 and N5: an awake waiter sees the write, a sleeping one goes on sleeping
//! until N5. Waiter preempted: nobody waits for it. How long a waiter stays awake is the business of
//! [`Patience`]. Killed: the process dies with it.
//!
//! # Fairness and space
//!
//! All waiters wake at once. 8 bytes. The number has 31 bits: a waiter that sleeps through exactly 2^31
//! notices between two looks sleeps through one more.
//!
//! # Rejected
//!
//! A read-modify-write of `waiters` instead of N2: each notice would take the line from the other notifiers.
//! A count of sleepers beside the number: one more word, and sequentially consistent accesses that no
//! checker of ours can weaken.
//!
//! # Checked by
//!
//! `conformance`, `openmp`: real threads, loom, shuttle; a twin that gives notice before it writes is caught.

use platform::{Atomic, AtomicInt, Ordering::*, Wide};

use super::Patience;

const SLEEPERS: u32 = 1;
const NOTICE: u32 = 2;

/// Something happened: for those who wait for what is written elsewhere.
pub struct Event<P: Wide> {
    count: P::AtomicU32,
    waiters: P::AtomicU32,
}

impl<P: Wide> Default for Event<P> {
    fn default() -> Self {
        Self { count: Atomic::new(0), waiters: Atomic::new(0) }
    }
}

/// From when on a waiter misses nothing. To be ended by [`Watch::wait`] or [`Watch::end`].
#[must_use]
pub struct Watch<'a, P: Wide> {
    event: &'a Event<P>,
    number: u32,
}

impl<P: Wide> Event<P> {
    /// To be followed by a look at what is waited for, and a wait if that was in vain. W1 to W3.
    pub fn watch(&self) -> Watch<'_, P> {
        self.waiters.fetch_add(1, Relaxed);
        // ORDER: SeqCst (W2), pairs with N2: that sees this waiter, or it sees what was written before.
        P::fence(SeqCst);
        // ORDER: Acquire (W3), pairs with N2, which comes before N4.
        Watch { event: self, number: self.count.load(Acquire) / NOTICE }
    }

    /// Waits until `done` says so, which becomes true before somebody calls [`Event::notify`].
    pub fn wait_until<W: Patience>(&self, done: impl Fn() -> bool) {
        if done() {
            return;
        }
        loop {
            let watch = self.watch();
            if done() {
                return watch.end();
            }
            watch.wait::<W>(&done);
        }
    }

    /// The same, asleep at once.
    pub fn sleep_until(&self, done: impl Fn() -> bool) {
        loop {
            let watch = self.watch();
            if done() {
                return watch.end();
            }
            watch.sleep();
            watch.end();
        }
    }

    /// Has those who wait look again.
    #[inline]
    pub fn notify(&self) {
        Self::written();
        self.ring();
    }

    /// What several events are about has been written. N2.
    #[inline]
    pub fn written() {
        // ORDER: SeqCst (N2), pairs with W2.
        P::fence(SeqCst);
    }

    /// As [`Event::notify`], after [`Event::written`]. N3 to N5.
    #[inline]
    pub fn ring(&self) {
        if self.waiters.load(Relaxed) == 0 {
            return;
        }
        // N2 comes before, and makes this a release for W3.
        if self.count.fetch_add(NOTICE, Relaxed) & SLEEPERS != 0 {
            self.count.fetch_and(!SLEEPERS, Relaxed);
            P::wake(&self.count, u32::MAX);
        }
    }
}

impl<P: Wide> Watch<'_, P> {
    /// Waits until something has happened since, or `done`.
    pub fn wait<W: Patience>(self, done: &impl Fn() -> bool) {
        if !W::awake(|| self.event.count.load(Relaxed) / NOTICE != self.number || done()) {
            self.sleep();
        }
        self.end();
    }

    /// The thread waits no longer. (No destructor: a checker that ends a thread would run it.)
    pub fn end(self) {
        self.event.waiters.fetch_sub(1, Relaxed);
    }

    /// Sleeps until something has happened since. W5.
    fn sleep(&self) {
        let count = &self.event.count;
        loop {
            let now = count.load(Relaxed);
            if now / NOTICE != self.number {
                return;
            }
            if now & SLEEPERS != 0 || count.compare_exchange(now, now | SLEEPERS, Relaxed, Relaxed).is_ok() {
                P::wait(count, now | SLEEPERS, None);
            }
        }
    }
}
