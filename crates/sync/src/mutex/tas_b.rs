// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tas-b`, `tas-b-np`: test-and-test_and_set with bounded exponential backoff; `-np` asks the kernel not
//! to preempt who is inside.
//!
//! The simplest lock that does not drown its bus, for short sections on a machine of one's own, and the
//! plain reference for all others; `tas-b-np` the best of the TR's simple locks where the kernel honours
//! the wish (figures 13 to 16). Kontothanassis, Wisniewski, Scott, TR 1994, section 5.2, "TAS-B" and
//! "TAS-B-np". Unchanged.
//!
//! # State
//!
//! | word | meaning |
//! |---|---|
//! | 0 | free |
//! | 1 | held |
//!
//! `0 -> 1` by the thread that acquires, `1 -> 0` by the one that holds.
//!
//! # Invariants
//!
//! I1. The word is 1 exactly while one thread is between A2 and R1.
//! I2. In `-np`: a thread that tries (A2), or holds a lock of any kind that wishes, wishes not to be
//! preempted; one that does neither does not.
//!
//! # Protocol
//!
//! A1. In `-np`, wish not to be preempted. A2. If the word is 0, `0 -> 1`. A3. Else withdraw the wish,
//! yield if the kernel had put a preemption off (KE-2), and pause, twice as long after each look, up to a
//! bound; again from A1. R1. Store 0. R2. In `-np`, withdraw the wish, if this was the thread's last such
//! lock, and repay it as in A3.
//!
//! # Memory order
//!
//! R1 release -> A2 acquire publishes the protected data. Wishes publish nothing.
//!
//! # Under the scheduler
//!
//! Oblivious. A preempted holder stalls everybody, who spin through its slice; a preempted waiter harms
//! nobody, because the next to come takes the lock. In `-np` the holder is not preempted within the
//! kernel's grace, where wishes are honoured; elsewhere it is `tas-b`, dearer by four stores to the
//! thread's own block. Hint stale: a warning missed costs the next section its grace. Killed while holding:
//! lost.
//!
//! # Fairness and space
//!
//! None: whoever looks first. 4 bytes, no node.
//!
//! # Rejected
//!
//! A swap to test and set: it writes when it fails, too, and loom (0.7) does not order such a write before
//! R1's plain store. Random backoff: the seam has no source of chance, and the scheduler supplies enough of
//! it.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; the twins that test and then set, in two steps, and that
//! forget their wish are caught.

use core::marker::PhantomData;
use platform::{Atomic, Ordering::*, Platform, StaticPlatform, ThreadId};

use super::RawMutex;
use crate::wait::{self, Preemptable, Preemption};

/// COST: pauses; the bound is 5 to 22 us, less than the scheduler's shortest slice by far. No cell known.
pub(crate) const FIRST_BACKOFF: u32 = 4;
/// See [`FIRST_BACKOFF`].
pub(crate) const LAST_BACKOFF: u32 = 512;

/// Test-and-test_and_set with bounded exponential backoff; with `N` its holder wishes not to be preempted.
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
    #[inline(always)]
    fn acquire(&self) -> bool {
        // ORDER: Acquire (A2), pairs with R1.
        self.word.load(Relaxed) == 0 && self.word.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, me: ThreadId) {
        let mut backoff = FIRST_BACKOFF;
        loop {
            wait::unshield::<N, P>(me);
            wait::pause::<P>(backoff);
            backoff = (backoff * 2).min(LAST_BACKOFF);
            wait::shield::<N, P>();
            if self.acquire() {
                return;
            }
        }
    }
}

impl<P: Platform, N: Preemption> RawMutex<P> for TasB<P, N> {
    type Node = ();

    fn new() -> Self {
        Self { word: P::AtomicU32::new(0), platform: PhantomData }
    }

    #[inline]
    unsafe fn lock(&self, _: &()) {
        let me = wait::shield::<N, P>();
        if !self.acquire() {
            self.lock_slow(me);
        }
        wait::inside::<N, P>(me);
    }

    #[inline]
    unsafe fn try_lock(&self, _: &()) -> bool {
        let me = wait::shield::<N, P>();
        let got = self.acquire();
        if got {
            wait::inside::<N, P>(me);
        } else {
            wait::unshield::<N, P>(me);
        }
        got
    }

    #[inline]
    unsafe fn unlock(&self, _: &()) {
        // ORDER: Release (R1), pairs with A2; publishes the protected data.
        self.word.store(0, Release);
        wait::outside::<N, P>();
    }
}
