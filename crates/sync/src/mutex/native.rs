// SPDX-License-Identifier: MIT OR Apache-2.0
//! `native`: what this system offers, a futex with three states.
//!
//! The lock that a programmer of this machine would use, as the native lock of the TR was for its machines (TR 1994, section
//! 5.2, "Native"): Drepper, "Futexes Are Tricky", mutex2, which is glibc's low-level lock. Choose it to compare
//! with, or where threads wait long. Changed: nothing.
//!
//! # State
//!
//! | word | meaning |
//! |---|---|
//! | 0 | free |
//! | 1 LOCKED | held, nobody sleeps |
//! | 2 SLEEPERS | held, somebody may sleep |
//!
//! `0 -> 1` (A1), any `-> 2` (A2), any `-> 0` (R1).
//!
//! # Invariants
//!
//! I1. Not 0 exactly while one thread is between A1 or A2 and R1.
//! I2. While a thread sleeps the word is 2, or a sleeper is about to be woken (between R1 and R2), or a woken thread has yet to execute A2.
//!
//! # Protocol
//!
//! A1. `0 -> 1`. A2. Else swap 2 until that returns 0, sleeping on 2 in between. R1. Swap 0. R2. If it was 2, wake one.
//!
//! # Memory order
//!
//! R1 release -> A1, A2 acquire publishes the protected data.
//!
//! # Under the scheduler
//!
//! Oblivious: nobody spins, so that a preempted holder costs nothing but itself, and every contended hand-over costs a sleep.
//! Killed while holding: lost.
//!
//! # Fairness and space
//!
//! None: a running thread overtakes the woken one. 4 bytes, no node.
//!
//! # Rejected
//!
//! Drepper's mutex3 keeps a compare-and-swap on A2's path to spare a store; no gain where a swap costs the same.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; the twin that releases 2 as if it were 1 is caught.

use core::marker::PhantomData;
use platform::{Atomic, Deadline, Ordering::*, Platform, StaticPlatform, Wait};

use super::{RawMutex, RawMutexTimed};

const LOCKED: u32 = 1;
const SLEEPERS: u32 = 2;

/// A futex with three states.
#[repr(transparent)]
pub struct Native<P: Platform> {
    word: P::AtomicU32,
    platform: PhantomData<P>,
}

impl<P: StaticPlatform> Native<P> {
    /// A free lock, for a `static`.
    pub const INIT: Self = Self { word: P::ZERO_U32, platform: PhantomData };
}

impl<P: Platform> Native<P> {
    #[cold]
    #[inline(never)]
    fn lock_slow(&self, deadline: Option<Deadline>) -> bool {
        // ORDER: Acquire (A2), pairs with R1.
        while self.word.swap(SLEEPERS, Acquire) != 0 {
            // A waiter that gives up leaves SLEEPERS behind: one wake-up in vain.
            if P::wait(&self.word, SLEEPERS, deadline) == Wait::TimedOut {
                return false;
            }
        }
        true
    }
}

impl<P: Platform> RawMutex<P> for Native<P> {
    type Node = ();

    fn new() -> Self {
        Self { word: P::AtomicU32::new(0), platform: PhantomData }
    }

    #[inline]
    unsafe fn lock(&self, node: &()) {
        // SAFETY: as the caller promised.
        if !unsafe { self.try_lock(node) } {
            self.lock_slow(None);
        }
    }

    #[inline]
    unsafe fn try_lock(&self, _: &()) -> bool {
        // ORDER: Acquire (A1), pairs with R1.
        self.word.compare_exchange(0, LOCKED, Acquire, Relaxed).is_ok()
    }

    #[inline]
    unsafe fn unlock(&self, _: &()) {
        // ORDER: Release (R1), pairs with A1 and A2; publishes the protected data.
        if self.word.swap(0, Release) == SLEEPERS {
            P::wake(&self.word, 1);
        }
    }
}

impl<P: Platform> RawMutexTimed<P> for Native<P> {
    #[inline]
    unsafe fn lock_until(&self, node: &(), deadline: Deadline) -> bool {
        // SAFETY: as the caller promised.
        unsafe { self.try_lock(node) || self.lock_slow(Some(deadline)) }
    }
}
