// SPDX-License-Identifier: MIT OR Apache-2.0
//! The default spin lock: for programs that call `pthread_spin_lock` on a machine they do not have for
//! themselves.
//!
//! ```text
//!   arrival ── A1 the word is 1 ────────────────────────────────────> holder ── R1 store 1
//!      └── A2 poll while the holder runs ── A3 nap, twice as long ── A1
//! ```
//!
//! # State
//!
//! One word with the values that the C library uses on x86_64, so that both can work on one process-shared
//! lock:
//!
//! | value (signed) | means |
//! |---|---|
//! | 1              | free |
//! | 0              | held, by a thread that has not registered (or by the C library's `lock dec`) |
//! | -n             | held, by thread n (or n foreign waiters have decremented it: then the hint is wrong) |
//!
//! Transitions: 1 -> -me (acquire), any -> 1 (release).
//!
//! # Invariants
//!
//! I1. Only a change from 1 acquires, and only one thread can make it. I2. Nobody sleeps until woken: every
//! sleep is a nap that ends by itself. So a release owes nobody anything and is one plain store, which is
//! what a spin lock is chosen for.
//!
//! # Protocol
//!
//! | step | what happens |
//! |---|---|
//! | A1 | Compare-and-swap 1 -> -me. |
//! | A2 | Held: poll with growing gaps while the holder is not seen off its processor, for as long as a |
//! | | sleep costs at most. |
//! | A3 | Else nap, each time twice as long, and go to A1. |
//! | R1 | Store 1. |
//!
//! # Memory order
//!
//! R1 release -> A1 acquire publishes the critical section.
//!
//! # Under the scheduler
//!
//! Holder preempted: the waiters nap, so it gets a processor back soon instead of at the end of their time
//! slices. More threads than processors: waiters who do not get the lock within a few microseconds nap, so
//! that those who run find it free. A hint that is stale costs a nap or a few microseconds of polling,
//! never more. Killed while holding: as any spin lock, held for ever.
//!
//! # Fairness and space
//!
//! None promised: the lock goes to who comes at the right moment. 4 bytes.
//!
//! # Rejected
//!
//! `docs/design/spin.md`.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; twins that acquire in two steps or without order are caught.
//! `crates/preload/tests/c/stress.c` and `misuse.c`, with and
//! without the library.

use core::marker::PhantomData;
use platform::{Atomic, Ordering::*, Platform, ThreadId};

use crate::wait::look;

/// Naps double up to so many times a sleep's cost. COST: by trial, 640 us on two virtual processors. No cell
/// known.
const NAPS_MOST: u64 = 64;

const FREE: u32 = 1;

/// The default spin lock.
#[repr(transparent)]
pub struct Wakeful<P: Platform> {
    word: P::AtomicU32,
    platform: PhantomData<P>,
}

impl<P: Platform> Default for Wakeful<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform> Wakeful<P> {
    /// A free lock.
    pub fn new() -> Self {
        Self { word: P::AtomicU32::new(FREE), platform: PhantomData }
    }

    #[inline(always)]
    fn try_take(&self) -> Result<u32, u32> {
        // ORDER: Acquire, pairs with R1.
        self.word.compare_exchange(FREE, P::current().0.wrapping_neg(), Acquire, Relaxed)
    }

    /// Acquires the lock (A1).
    #[inline(always)]
    pub fn lock(&self) {
        if self.try_take().is_err() {
            self.lock_slow();
        }
    }

    /// Acquires the lock if it is free.
    #[inline(always)]
    pub fn try_lock(&self) -> bool {
        self.word.load(Relaxed) == FREE && self.try_take().is_ok()
    }

    /// Releases the lock (R1).
    ///
    /// # Safety
    /// The caller holds it.
    #[inline(always)]
    pub unsafe fn unlock(&self) {
        // ORDER: Release, pairs with A1; publishes the critical section.
        self.word.store(FREE, Release);
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self) {
        look::begin::<P>();
        let costs = P::costs();
        // A nap costs a sleep and a wake-up, which is what a look may cost before it (Karlin).
        let mut nap = 2 * costs.sleep;
        loop {
            // A2.
            let mut taken = || {
                let word = self.word.load(Relaxed);
                if word == FREE && self.try_take().is_ok() {
                    return None;
                }
                // HINT: a stale or foreign owner only chooses between polling and napping.
                Some(ThreadId(word.wrapping_neg() % ThreadId::LIMIT))
            };
            if look::while_it_runs::<P>(costs.sleep, costs.line, 2 * costs.switch, &mut taken) {
                return;
            }
            // A3.
            P::nap(nap);
            nap = (nap * 2).min(NAPS_MOST * costs.sleep);
        }
    }
}
