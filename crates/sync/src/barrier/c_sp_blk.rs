// SPDX-License-Identifier: MIT OR Apache-2.0
//! `c-sp-blk`: spins for as long as a context switch takes, then sleeps.
//!
//! TR 1994, figure 8, unchanged. Competitive: at most twice as long as the better of the two would have
//! been. Choose it where nothing is known.
//!
//! # State
//!
//! `count`: members that have arrived. `sense`: turned by the last one. `blocked`: how many sleep, or are
//! about to, guarded by `mutex` together with the turn of the sense. `wakeup`: a semaphore for each sense.
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
//! With more threads than processors the spin is lost each time; with enough processors and arrivals close
//! together nobody sleeps. The mutex is `native`: preempted in R2, the last one keeps those who have spun
//! enough on its futex, and the others spinning.
//!
//! # Fairness and space
//!
//! 28 bytes.
//!
//! # Rejected
//!
//! One V a blocked member (R3): a system call each; the semaphore takes all units at once.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; with wake-ups lost it hangs, which is caught. What the lock
//! prevents is a twin of `c-block` that wakes only those it has seen asleep.

use super::{Competitive, Patience, SWITCH_PAUSES};

/// As long as a context switch takes.
#[derive(Debug, Default)]
pub struct Fixed;

impl Patience for Fixed {
    const LEARNS: bool = false;

    fn pauses(&self) -> u32 {
        SWITCH_PAUSES
    }
}

/// Centralized, competitive with a fixed time.
pub type CSpBlk<P> = Competitive<P, Fixed>;
