// SPDX-License-Identifier: MIT OR Apache-2.0
//! `native`, `native-np`: what this system offers, a futex with three states; `-np` asks the kernel not to
//! preempt who is inside.
//!
//! The lock that a programmer of this machine would use, as the native lock of the TR was for its machines
//! (TR 1994, section 5.2, "Native", "Native-np"): Drepper, "Futexes Are Tricky", mutex3, which is glibc's
//! low-level lock. Choose it to compare with, or where threads wait long. Changed: a waiter that finds 2
//! does not sleep at once but swaps first, too; and the release swaps, as glibc's, where Drepper's
//! decrements and then stores.
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
//! I2. While a thread sleeps the word is 2, or a sleeper is about to be woken (between R1 and R2), or a
//! woken thread has yet to execute A2. (Who gives up at its deadline was not woken.)
//! I3. In `-np`: a thread that tries (A1, A2), or holds a lock of any kind that wishes, wishes not to be
//! preempted; one that sleeps or does neither does not, unless it holds another such lock.
//!
//! # Protocol
//!
//! A1. `0 -> 1`. A2. Else swap 2 until that returns 0, sleeping on 2 in between. R1. Swap 0. R2. If it was
//! 2, wake one. In `-np` the wish comes before A1 and, withdrawn for each sleep, before A2; after R1 it is
//! withdrawn, if this was the thread's last such lock, so that no grace is spent on the wake-up, and after
//! R2 the processor is yielded if the kernel had put a preemption off (KE-2).
//!
//! # Memory order
//!
//! R1 release -> A1, A2 acquire publishes the protected data.
//!
//! # Under the scheduler
//!
//! Oblivious: nobody spins, so that a preempted holder costs nothing but itself, and every contended
//! hand-over costs a sleep. A waiter that gives up leaves 2 behind: one wake-up in vain. `-np`: see
//! `tas-b`. Killed while holding: lost.
//!
//! # Fairness and space
//!
//! None: a running thread overtakes the woken one. 4 bytes, no node.
//!
//! # Rejected
//!
//! Drepper's mutex2, with compare-and-swaps `1 -> 2` and `0 -> 2` for A2's swap: it retries when the word
//! changes in between.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; the twin whose woken sleeper forgets that others may sleep
//! still (A2) is caught, and when nobody is woken.

use core::marker::PhantomData;
use platform::{Atomic, Deadline, Ordering::*, Platform, StaticPlatform, ThreadId, Wait};

use super::{RawMutex, RawMutexTimed};
use crate::wait::{self, Preemptable, Preemption};

const LOCKED: u32 = 1;
const SLEEPERS: u32 = 2;

/// A futex with three states; with `N` its holder wishes not to be preempted.
#[repr(transparent)]
pub struct Native<P: Platform, N = Preemptable> {
    word: P::AtomicU32,
    platform: PhantomData<(P, N)>,
}

impl<P: StaticPlatform, N> Native<P, N> {
    /// A free lock, for a `static`.
    pub const INIT: Self = Self { word: P::ZERO_U32, platform: PhantomData };
}

impl<P: Platform, N: Preemption> Native<P, N> {
    #[inline(always)]
    fn acquire(&self, deadline: Option<Deadline>, waits: bool) -> bool {
        let me = wait::shield::<N, P>();
        // ORDER: Acquire (A1), pairs with R1.
        let got = self.word.compare_exchange(0, LOCKED, Acquire, Relaxed).is_ok()
            || waits && self.lock_slow(me, deadline);
        if got {
            wait::inside::<N, P>(me);
        } else {
            wait::unshield::<N, P>(me);
        }
        got
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, me: ThreadId, deadline: Option<Deadline>) -> bool {
        // ORDER: Acquire (A2), pairs with R1.
        while self.word.swap(SLEEPERS, Acquire) != 0 {
            wait::unshield::<N, P>(me);
            // A waiter that gives up leaves SLEEPERS behind: one wake-up in vain.
            let result = P::wait(&self.word, SLEEPERS, deadline);
            wait::shield::<N, P>();
            if result == Wait::TimedOut {
                return false;
            }
        }
        true
    }
}

impl<P: Platform, N: Preemption> RawMutex<P> for Native<P, N> {
    type Node = ();

    fn new() -> Self {
        Self { word: P::AtomicU32::new(0), platform: PhantomData }
    }

    #[inline]
    unsafe fn lock(&self, _: &()) {
        self.acquire(None, true);
    }

    #[inline]
    unsafe fn try_lock(&self, _: &()) -> bool {
        self.acquire(None, false)
    }

    #[inline]
    unsafe fn unlock(&self, _: &()) {
        // ORDER: Release (R1), pairs with A1 and A2; publishes the protected data.
        let sleepers = self.word.swap(0, Release) == SLEEPERS;
        let me = wait::withdraw::<N, P>();
        if sleepers {
            P::wake(&self.word, 1);
        }
        wait::repay::<N, P>(me);
    }
}

impl<P: Platform, N: Preemption> RawMutexTimed<P> for Native<P, N> {
    #[inline]
    unsafe fn lock_until(&self, _: &(), deadline: Deadline) -> bool {
        self.acquire(Some(deadline), true)
    }
}
