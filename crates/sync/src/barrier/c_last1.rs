// SPDX-License-Identifier: MIT OR Apache-2.0
//! `c-last1`: spins for a time that follows the last wait, then sleeps.
//!
//! TR 1994, section 5.4.1. As `c-avg3`, with the last episode only. "Did not exceed it" is taken as in
//! figure 9: the wait was shorter than a context switch (figure 9, `average (episode_time) < SWITCH_TIME`).
//! Compared with the threshold itself, a threshold of 0 could never grow again.
//!
//! # State
//!
//! `count`: members that have arrived. `sense`: turned by the last one. `blocked`: how many sleep, or are
//! about to, guarded by `mutex` together with the turn of the sense. `wakeup`: a semaphore for each sense.
//! Private: the sense and the threshold.
//!
//! # Invariants
//!
//! I1. As in `c-spin`. I2. Who has counted itself into `blocked` in an episode gets a unit of that
//! episode's semaphore: the last one turns the sense and takes `blocked` under the same lock. Who comes to
//! the lock after that sees the sense and does not block.
//!
//! # Protocol
//!
//! A1. Flip the private sense. A2. Increment the counter. A3. Not the last: spin, as long as the policy
//! says. A4. Under the lock, count into `blocked` unless the sense has turned; then P. R1. The last:
//! counter to 0; R2. under the lock, turn the sense, take `blocked`; R3. so many V.
//!
//! # Memory order
//!
//! The counter is a chain of AcqRel increments. R2 release -> A3 acquire publishes all to all; for those
//! who block, R3 release -> P acquire does.
//!
//! # Under the scheduler
//!
//! It takes 9 rounds to notice that the number of processors has changed, and a late member makes all
//! others take themselves for too many. From a threshold of 0 it comes back slowly, as the figure does: a
//! wait that ends in sleep is hardly ever shorter than a context switch, so that only those learn to spin
//! who come so late that the sense has turned before they have the mutex.
//!
//! # Fairness and space
//!
//! 28 bytes, and a few for each member.
//!
//! # Rejected
//!
//! One V a blocked member (R3): a system call each; the semaphore takes all units at once.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; with wake-ups lost it hangs, which is caught. What the lock
//! prevents is a twin of `c-block` that wakes only those it has seen asleep.

use super::{ADJUST, Competitive, Patience, SWITCH_PAUSES};

/// Follows the last wait, step by step.
#[derive(Debug)]
pub struct Last {
    pauses: u32,
}

impl Default for Last {
    fn default() -> Self {
        Self { pauses: SWITCH_PAUSES }
    }
}

impl Patience for Last {
    fn pauses(&self) -> u32 {
        self.pauses
    }

    fn learn(&mut self, waited_ns: u64, switch_ns: u64) {
        self.pauses = if waited_ns < switch_ns {
            (self.pauses + ADJUST).min(SWITCH_PAUSES)
        } else {
            self.pauses.saturating_sub(ADJUST)
        };
    }
}

/// Centralized, competitive, learning.
pub type CLast1<P> = Competitive<P, Last>;
