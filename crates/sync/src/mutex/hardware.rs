// SPDX-License-Identifier: MIT OR Apache-2.0
//! `hardware`, `hardware-np`: the lock that a machine's own hardware makes; `-np` asks the kernel not to
//! preempt who is inside.
//!
//! "A lock employing machine-specific hardware", Kontothanassis, Wisniewski, Scott, TR 1994, section 5.2,
//! "Native" and "Native-np". A KSR 1 locks the line (`get_subpage`): a processor that asks for it stalls, and
//! the nearest one in the ring has it next. The simulator has such machines ([`Platform::locks_lines`]).
//! Elsewhere the lock is what the paper has on an SGI Challenge: test-and-test_and_set without backoff.
//! Choose it to compare with. Unchanged; the paper does not print it.
//!
//! # State
//!
//! | word | meaning |
//! |---|---|
//! | 0 | free, or the machine locks the line instead |
//! | 1 | held |
//!
//! `0 -> 1` by the thread that acquires, `1 -> 0` by the one that holds.
//!
//! # Invariants
//!
//! I1. The line is locked, or the word is 1, exactly while one thread is between A2 or A4 and R1.
//! I2. In `-np`: a thread that tries (A2, A4), or holds a lock of any kind that wishes, wishes not to be
//! preempted; one that looks (A3) or does neither does not.
//!
//! # Protocol
//!
//! A1. In `-np`, wish not to be preempted. A2. If the word is 0, `0 -> 1`. A3. Else withdraw the wish, yield
//! if the kernel had put a preemption off (KE-2), and look until the word is 0; again from A1. A4. On a
//! machine that locks lines, instead of A2 and A3: ask for the line, and stall until it is here. R1. Store 0,
//! or free the line. R2. In `-np`, withdraw the wish, if this was the thread's last such lock, and repay it
//! as in A3.
//!
//! # Memory order
//!
//! R1 release -> A2 acquire publishes the protected data; a line that is freed and locked does, too.
//!
//! # Under the scheduler
//!
//! Oblivious. A preempted holder stalls everybody. A thread that loses its processor while it is stalled is
//! no longer one of those who ask, and asks again when it runs. In `-np` a stalled thread keeps its wish: it
//! does not know the moment at which the line is its own. Hint stale: a warning missed costs the next section
//! its grace. Killed while holding: lost.
//!
//! # Fairness and space
//!
//! None: the nearest, or whoever looks first. A line of its own, because the hardware locks all of it.
//!
//! # Rejected
//!
//! The wish after A4 only: while the line is on its way, the kernel could take the processor from its holder.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle, without locked lines; a twin that does not look at what its
//! test_and_set has found. `crates/sim/tests/hardware.rs`: with locked lines.

use core::marker::PhantomData;
use platform::{Atomic, Ordering::*, Platform, StaticPlatform, ThreadId};

use super::RawMutex;
use crate::wait::{self, Preemptable, Preemption, Unpreemptable};

/// What the machine's hardware makes; with `N` its holder wishes not to be preempted.
#[repr(C, align(128))]
pub struct Hardware<P: Platform, N = Preemptable> {
    word: P::AtomicU32,
    /// A free lock is zeros.
    _rest: [u32; 31],
    platform: PhantomData<(P, N)>,
}

/// The same, whose holder wishes not to be preempted.
pub type HardwareNp<P> = Hardware<P, Unpreemptable>;

impl<P: StaticPlatform, N> Hardware<P, N> {
    /// A free lock, for a `static`.
    pub const INIT: Self = Self { word: P::ZERO_U32, _rest: [0; 31], platform: PhantomData };
}

impl<P: Platform, N: Preemption> Hardware<P, N> {
    /// A2, or A4 if it `waits`.
    #[inline(always)]
    fn acquire(&self, waits: bool) -> bool {
        if P::locks_lines() {
            return P::lock_line(&self.word, waits);
        }
        // ORDER: Acquire (A2), pairs with R1.
        self.word.load(Relaxed) == 0 && self.word.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    /// A3.
    #[cold]
    #[inline(never)]
    fn lock_slow(&self, me: ThreadId) {
        loop {
            wait::unshield::<N, P>(me);
            while self.word.load(Relaxed) != 0 {
                P::pause();
            }
            wait::shield::<N, P>();
            if self.acquire(true) {
                return;
            }
        }
    }
}

impl<P: Platform, N: Preemption> RawMutex<P> for Hardware<P, N> {
    type Node = ();

    fn new() -> Self {
        Self { word: P::AtomicU32::new(0), _rest: [0; 31], platform: PhantomData }
    }

    #[inline]
    unsafe fn lock(&self, _: &()) {
        let me = wait::shield::<N, P>();
        if !self.acquire(true) {
            self.lock_slow(me);
        }
        wait::inside::<N, P>(me);
    }

    #[inline]
    unsafe fn try_lock(&self, _: &()) -> bool {
        let me = wait::shield::<N, P>();
        let got = self.acquire(false);
        if got {
            wait::inside::<N, P>(me);
        } else {
            wait::unshield::<N, P>(me);
        }
        got
    }

    #[inline]
    unsafe fn unlock(&self, _: &()) {
        if P::locks_lines() {
            P::unlock_line(&self.word);
        } else {
            // ORDER: Release (R1), pairs with A2; publishes the protected data.
            self.word.store(0, Release);
        }
        wait::outside::<N, P>();
    }
}
