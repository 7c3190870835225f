// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rw-tas-b`, `rw-tas-b-np`: one word, test-and-test_and_set, bounded exponential backoff.
//!
//! The simplest reader-writer lock, and the plain reference for the others. `rw-tas-b-np` asks the kernel
//! besides not to preempt who holds it, or is about to. Kontothanassis, Wisniewski, Scott, TR 1994, section
//! 5.3, "RW-TAS-B" and "RW-TAS-B-np" (wish of the Symunix interface: KE-1 and KE-2). Changed: the paper
//! does not print them; the word counts readers, as the centralized locks of Mellor-Crummey and Scott
//! (PPoPP 1991) do.
//!
//! # State
//!
//! | word | meaning |
//! |---|---|
//! | 0 | free |
//! | n > 0, top bit clear | n readers |
//! | top bit | a writer |
//!
//! `n -> n + 1` (while n < 2^30), `n -> n - 1` by readers, `0 -> W`, `W -> 0` by the writer.
//!
//! # Invariants
//!
//! I1. The top bit is set exactly while one thread is between A2 and R2, and then the count is 0.
//! I2. The count is the number of acquisitions between A1 and R1, 2^30 at most: it never looks like the top
//! bit.
//! I3. With `np`: a thread that tries, or holds a lock of any kind that wishes, wishes not to be preempted;
//! one that does neither does not.
//!
//! # Protocol
//!
//! A1. Reader: read until the top bit is clear (and 2^30 readers are not there), pausing twice as long
//! after each look, up to a bound; then add 1.
//! A2. Writer: the same until the word is 0; then set the top bit. R1. Subtract 1. R2. Store 0. With `np`:
//! the wish not to be preempted is made before each attempt (N1) and withdrawn after one that failed, and
//! after R1 or R2 (N2), unless the thread holds another lock of a kind that wishes; who withdraws it yields
//! if the kernel has put a preemption off (KE-2).
//!
//! # Memory order
//!
//! R2 release -> A1, A2 acquire publishes the protected data; R1 release -> A2 acquire: the writer's
//! changes come after the readers' last look.
//!
//! # Under the scheduler
//!
//! Oblivious but for the wish. A preempted writer stalls everybody, a preempted reader all writers, who
//! spin through its slice. Where nobody honours the wish (see the view), `np` is the plain lock, dearer by
//! four stores to the thread's own block. Hint stale: a warning missed costs the next section its grace.
//! Killed while holding: lost.
//!
//! # Fairness and space
//!
//! None: readers who overlap keep writers out for ever. 4 bytes, no node. Read locks that are never
//! released (forgotten guards) count for ever; the 2^30th keeps all later readers out.
//!
//! # Rejected
//!
//! A test-and-set lock around a count: two words to change where one will do. Adding first and taking back
//! if a writer is there: R2 could not be a plain store.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle, a full count; the twins that lose a reader and that let a
//! writer in are caught.

use core::marker::PhantomData;
use platform::{Atomic, AtomicInt, Ordering::*, Platform, StaticPlatform};

use super::RawRwLock;
use crate::mutex::{FIRST_BACKOFF, LAST_BACKOFF};
use crate::wait::{self, Preemptable, Preemption};

const WRITER: u32 = 1 << 31;
/// So many readers keep the next one out.
const MANY: u32 = 1 << 30;

/// Test-and-test_and_set with bounded exponential backoff.
#[repr(transparent)]
pub struct TasB<P: Platform, N = Preemptable> {
    word: P::AtomicU32,
    platform: PhantomData<(P, N)>,
}

impl<P: StaticPlatform, N> TasB<P, N> {
    /// A free lock, for a `static`.
    pub const INIT: Self = Self { word: P::ZERO_U32, platform: PhantomData };
}

impl<P: Platform, N: Preemption> TasB<P, N> {
    /// Adds `unit` if no bit of `excluded` is set.
    #[inline]
    fn attempt(&self, excluded: u32, unit: u32) -> bool {
        let me = wait::shield::<N, P>();
        let mut word = self.word.load(Relaxed);
        while word & excluded == 0 {
            // ORDER: Acquire (A1, A2), pairs with R1 and R2.
            match self.word.compare_exchange_weak(word, word + unit, Acquire, Relaxed) {
                Ok(_) => {
                    wait::inside::<N, P>(me);
                    return true;
                }
                Err(now) => word = now,
            }
        }
        wait::unshield::<N, P>(me);
        false
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, excluded: u32, unit: u32) {
        let mut backoff = FIRST_BACKOFF;
        loop {
            wait::pause::<P>(backoff);
            backoff = (backoff * 2).min(LAST_BACKOFF);
            if self.word.load(Relaxed) & excluded == 0 && self.attempt(excluded, unit) {
                return;
            }
        }
    }
}

impl<P: Platform, N: Preemption> RawRwLock<P> for TasB<P, N> {
    type Node = ();

    fn new() -> Self {
        Self { word: P::AtomicU32::new(0), platform: PhantomData }
    }

    #[inline]
    unsafe fn read(&self, _: &()) {
        if !self.attempt(WRITER | MANY, 1) {
            self.wait(WRITER | MANY, 1);
        }
    }

    #[inline]
    unsafe fn try_read(&self, _: &()) -> bool {
        self.attempt(WRITER | MANY, 1)
    }

    #[inline]
    unsafe fn unlock_read(&self, _: &()) {
        // ORDER: Release (R1), pairs with A2.
        self.word.fetch_sub(1, Release);
        wait::outside::<N, P>();
    }

    #[inline]
    unsafe fn write(&self, _: &()) {
        if !self.attempt(u32::MAX, WRITER) {
            self.wait(u32::MAX, WRITER);
        }
    }

    #[inline]
    unsafe fn try_write(&self, _: &()) -> bool {
        self.attempt(u32::MAX, WRITER)
    }

    #[inline]
    unsafe fn unlock_write(&self, _: &()) {
        // ORDER: Release (R2), pairs with A1 and A2; publishes the protected data.
        self.word.store(0, Release);
        wait::outside::<N, P>();
    }
}
