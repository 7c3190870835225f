// SPDX-License-Identifier: MIT OR Apache-2.0
//! Leaves: the arrivals of one cluster of processors, carried to the barrier together.
//!
//! | step | what happens |
//! |---|---|
//! | L1 | Add one to the own cluster's leaf. |
//! | L2 | A thread that finds no carrier becomes it. It takes what is there and arrives for all of it. |
//! | L3 | It looks again before it stops. |
//!
//! L1 release -> L2 acquire. A carrier that is preempted stops nobody who would not wait for it anyway.

use platform::{Atomic, AtomicInt, Ordering::*, Platform};

use super::episode::{Arrival, Episode, MOST};

/// Somebody is carrying; below it, the arrivals that nobody has carried yet.
const CARRIED: u32 = 1 << 31;

/// A cluster's arrivals on their way to the barrier.
#[repr(align(128))]
pub struct BWakefulLeaf<P: Platform> {
    arrivals: P::AtomicU32,
}

impl<P: Platform> Default for BWakefulLeaf<P> {
    fn default() -> Self {
        Self { arrivals: P::AtomicU32::new(0) }
    }
}

impl<P: Platform> BWakefulLeaf<P> {
    /// Arrives in `episode`, the present one. The caller is one of exactly as many threads as there are
    /// parties. `arrive` carries so many to the barrier.
    pub(super) fn arrive(&self, episode: u16, arrive: impl Fn(u32) -> Arrival) -> Arrival {
        let waits = || Arrival::Waits(Episode { number: episode, others: MOST });
        // ORDER: Release (L1), pairs with L2.
        if self.arrivals.fetch_add(1, Release) & CARRIED != 0 {
            return waits();
        }
        let mut arrivals = self.arrivals.fetch_or(CARRIED, Relaxed);
        if arrivals & CARRIED != 0 {
            return waits();
        }
        loop {
            // ORDER: Acquire (L2), pairs with L1.
            let all = arrivals | CARRIED;
            let carry = match self.arrivals.compare_exchange_weak(all, CARRIED, Acquire, Relaxed) {
                Ok(_) => arrivals & !CARRIED,
                Err(now) => {
                    arrivals = now;
                    continue;
                }
            };
            // Ours, or later ones; of the next episode even, which cannot be over without us.
            if carry > 0
                && let last @ Arrival::Last { .. } = arrive(carry)
            {
                self.carried_last(arrive);
                return last;
            }
            // L3.
            match self.arrivals.compare_exchange(CARRIED, 0, Relaxed, Relaxed) {
                Ok(_) => return waits(),
                Err(now) => arrivals = now,
            }
        }
    }

    /// We have completed the episode. Members of the next one may be in the leaf already, and somebody has to
    /// carry them.
    fn carried_last(&self, arrive: impl Fn(u32) -> Arrival) {
        loop {
            // L3.
            if self.arrivals.compare_exchange(CARRIED, 0, Relaxed, Relaxed).is_ok() {
                return;
            }
            // ORDER: Acquire (L2), pairs with L1.
            let carry = self.arrivals.swap(CARRIED, Acquire) & !CARRIED;
            if carry > 0 {
                // Not the last of its episode: that one needs us.
                arrive(carry);
            }
        }
    }
}
