// SPDX-License-Identifier: MIT OR Apache-2.0
//! `c-avg3`: spins for a time that follows the last three waits, then sleeps.
//!
//! TR 1994, figure 9, unchanged (its threshold counts turns of the loop and its times are read from the
//! clock; so do ours). Choose it over `c-sp-blk` where rounds resemble each other.
//!
//! # State
//!
//! `count`: members that have arrived. `sense`: turned by the last one. `blocked`: how many sleep, or are
//! about to, guarded by `mutex` together with the turn of the sense. `wakeup`: a semaphore for each sense.
//! Private: the sense, the threshold and the last three waits.
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
//! As `c-last1`, back from 0 too, but steadier and slower to learn. One wait of a slice outweighs two short
//! ones: three rounds of less spinning.
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

/// Follows the mean of the last three waits, step by step.
#[derive(Debug)]
pub struct Average {
    pauses: u32,
    /// Before the first wait: none.
    times_ns: Option<[u64; 3]>,
    episode: usize,
}

impl Default for Average {
    fn default() -> Self {
        Self { pauses: SWITCH_PAUSES, times_ns: None, episode: 0 }
    }
}

impl Patience for Average {
    fn pauses(&self) -> u32 {
        self.pauses
    }

    fn learn(&mut self, waited_ns: u64, switch_ns: u64) {
        let times_ns = self.times_ns.get_or_insert([switch_ns; 3]);
        times_ns[self.episode] = waited_ns;
        self.episode = (self.episode + 1) % 3;
        self.pauses = if times_ns.iter().sum::<u64>() / 3 < switch_ns {
            (self.pauses + ADJUST).min(SWITCH_PAUSES)
        } else {
            self.pauses.saturating_sub(ADJUST)
        };
    }
}

/// Centralized, competitive, learning.
pub type CAvg3<P> = Competitive<P, Average>;
