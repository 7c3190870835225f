// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lock for sections of some ns, whose release is a plain store.
//!
//! # State
//! `word`: 0 free, 1 held. `waiters`: how many threads sleep on the word, or are about to.
//!
//! # Invariants
//! - I1. Only a change of `word` from 0 to 1 acquires. Only the holder writes 0.
//! - I2. While a thread sleeps, or will without another look at the word, it is counted.
//!
//! # Protocol
//! - A1. Compare-and-swap 0 -> 1. A2. Else look some times. A3. Else count itself, heavy fence; until A1
//!   succeeds sleep on 1; uncount.
//! - R1. Store 0, light fence. R2. If somebody is counted, wake one.
//!
//! # Memory order
//! R1 release -> A1 acquire publishes the section. R1 with R2 and A3 are Dekker's two sides ([`Fences`]):
//! each release sees the waiter, or the waiter sees that release, and each one before it. So one heavy fence
//! is enough for all sleeps of one wait.
//!
//! # Under the scheduler
//! *Holder preempted*: waiters look for 1 to 4 us and sleep. So a holder that they keep from its processor
//! goes on. *Waiter woken late*: others take the lock meanwhile, and each of their releases wakes again. If
//! nobody else comes, those behind it sleep until it has run. Killed while holding: lost.
//!
//! # Fairness and space
//! None promised. 8 bytes.
//!
//! # Rejected
//! `sync::mutex::Native`: a second locked instruction in the release, and it sleeps at once.
//! `sync::spin::Wakeful`: waiters nap, and their carriers with them, though the holder has long released.
//!
//! # Checked by
//! `conformance`: loom, shuttle, real threads; twins without fences, that count late, that wake once only,
//! and whose release publishes nothing, are caught.

use core::marker::PhantomData;

use platform::{Atomic, AtomicInt, Ordering::*, Platform, StaticPlatform};

use crate::fences::Fences;

/// BOUND: looks before a sleep. The heavy fence costs as much as some hundred sections.
const LOOKS: u32 = 100;

/// See the head of this file.
#[repr(C)]
pub struct Bolt<P: Platform> {
    word: P::AtomicU32,
    waiters: P::AtomicU32,
    platform: PhantomData<P>,
}

impl<P: StaticPlatform> Bolt<P> {
    /// Free, for a `static`.
    pub const INIT: Self = Self { word: P::ZERO_U32, waiters: P::ZERO_U32, platform: PhantomData };
}

impl<P: Fences> Default for Bolt<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Fences> Bolt<P> {
    /// Free.
    pub fn new() -> Self {
        Self { word: Atomic::new(0), waiters: Atomic::new(0), platform: PhantomData }
    }

    /// HINT: does nobody hold it or wait for it?
    pub fn is_free(&self) -> bool {
        self.word.load(Relaxed) == 0 && self.waiters.load(Relaxed) == 0
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        // ORDER: Acquire (A1), pairs with R1.
        self.word.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    /// Runs this as the holder. It does not switch, nor come back here.
    #[inline(always)]
    pub fn locked<T>(&self, section: impl FnOnce() -> T) -> T {
        if !self.try_lock() {
            self.lock_slow();
        }
        let result = section();
        // ORDER: Release (R1), pairs with A1; publishes the section.
        self.word.store(0, Release);
        P::light();
        if self.waiters.load(Relaxed) != 0 {
            self.wake();
        }
        result
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self) {
        // A2. In a model checker a look is only a choice more.
        for _ in 0..LOOKS.min(P::PAUSES - 1) {
            P::pause();
            if self.word.load(Relaxed) == 0 && self.try_lock() {
                return;
            }
        }
        // A3.
        self.waiters.fetch_add(1, Relaxed);
        P::heavy();
        while !self.try_lock() {
            P::wait(&self.word, 1, None);
        }
        self.waiters.fetch_sub(1, Relaxed);
    }

    /// R2.
    #[cold]
    #[inline(never)]
    fn wake(&self) {
        P::wake(&raw const self.word, 1);
    }
}
