// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a fiber, and who has its result.
//!
//! # State
//! `RUNS -> ENDED`; `RUNS -> AWAITED -> ENDED` with a joiner asleep on the word; `RUNS -> DROPPED ->
//! ENDED` if
//! its handle is gone; `ENDED -> DROPPED` if the handle goes later.
//!
//! # Invariants
//! - I1. The result is taken or dropped once: by the joiner, by the fiber that finds DROPPED at its end,
//!   or by
//!   the handle that finds ENDED when it goes.
//!
//! # Protocol
//! - E1. End: swap ENDED. E2. It was AWAITED: wake the word; only its address is used.
//! - J1. Join: RUNS -> AWAITED and sleep, until ENDED. D1. Drop the handle: swap DROPPED.
//!
//! # Memory order
//! E1 release -> J1, D1 acquire publishes the result. D1 publishes nothing: a handle has no access to the
//! result, and the references to the record are counted apart.
//!
//! # Under the scheduler
//! A fiber preempted between E1 and E2 delays its joiner.
//!
//! # Fairness and space
//! 4 bytes, one joiner.
//!
//! # Rejected
//! A flag and a token: the joiner may be a kernel thread.
//!
//! # Checked by
//! `conformance`: loom, shuttle; a twin that ends without waking, and one that drops by a look, are caught.

use platform::{Atomic, Ordering::*, Platform};

const RUNS: u32 = 0;
const ENDED: u32 = 1;
const AWAITED: u32 = 2;
const DROPPED: u32 = 3;

/// See the head of this file.
pub struct Done<P: Platform> {
    word: P::AtomicU32,
}

impl<P: Platform> Default for Done<P> {
    /// It runs.
    fn default() -> Self {
        Self { word: Atomic::new(RUNS) }
    }
}

impl<P: Platform> Done<P> {
    /// A new fiber runs.
    #[inline]
    pub fn reset(&self) {
        self.word.store(RUNS, Relaxed);
    }

    /// For people.
    pub fn word(&self) -> u32 {
        self.word.load(Relaxed)
    }

    /// E1, E2, for a joiner who waits on `W`. The result is there. True: the caller drops it.
    #[inline]
    #[must_use]
    pub fn end<W: Platform<AtomicU32 = P::AtomicU32>>(&self) -> bool {
        let word = &raw const self.word;
        // ORDER: Release (E1), pairs with J1 and D1.
        let was = self.word.swap(ENDED, Release);
        if was == AWAITED {
            W::wake(word, u32::MAX);
        }
        was == DROPPED
    }

    /// E1 of a fiber whose joiner runs it, on this very thread.
    #[inline]
    pub fn end_nested(&self) {
        self.word.store(ENDED, Relaxed);
    }

    /// J1, as one waits on `W`.
    pub fn wait<W: Platform<AtomicU32 = P::AtomicU32>>(&self) {
        // ORDER: Acquire of ENDED (J1), pairs with E1.
        while let Ok(_) | Err(AWAITED) = self.word.compare_exchange(RUNS, AWAITED, Relaxed, Acquire) {
            W::wait(&self.word, AWAITED, None);
        }
    }

    /// D1. True: the caller drops the result.
    #[must_use]
    pub fn drop_handle(&self) -> bool {
        // ORDER: Acquire (D1), pairs with E1.
        self.word.swap(DROPPED, Acquire) == ENDED
    }

    /// Has it ended?
    pub fn has_ended(&self) -> bool {
        // ORDER: Acquire, pairs with E1.
        self.word.load(Acquire) == ENDED
    }
}
