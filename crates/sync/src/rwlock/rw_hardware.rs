// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rw-hardware`, `rw-hardware-np`: a count of readers behind the lock of a machine's own hardware.
//!
//! "A reader-writer lock based on the native synchronization primitive", Kontothanassis, Wisniewski, Scott,
//! TR 1994, section 5.3, "RW-Native" and "RW-Native-np". Choose it to compare with. The paper does not print
//! it, and says that on an SGI it is RW-TAS-B. Ours is the plain one on a KSR: a *gate*, which is the mutex
//! `hardware`, that readers pass and a writer keeps.
//!
//! # State
//!
//! | part | meaning |
//! |---|---|
//! | gate | held by a writer, or by a reader on its way in |
//! | readers | so many readers have passed the gate and are inside |
//!
//! # Invariants
//!
//! I1. A writer holds the gate from A3 to R2, and from A4 on `readers` is 0: only who holds the gate adds to
//! it.
//! I2. `readers` is the number of acquisitions between A2 and R1, below 2^32.
//! I3. With `np`: a thread that tries, or holds a lock of any kind that wishes, wishes not to be preempted;
//! one that looks at the gate or does neither does not.
//!
//! # Protocol
//!
//! A1. Reader: lock the gate. A2. Add 1 to `readers`, and unlock the gate. A3. Writer: lock the gate. A4.
//! Look until `readers` is 0. R1. Subtract 1. R2. Unlock the gate. Who does not wait gives up at a gate that
//! is locked, if only by a reader on its way in.
//!
//! # Memory order
//!
//! R2 -> A1, A3 by the gate publishes the protected data. R1 release -> A4 acquire: the writer's changes come
//! after the readers' last look.
//!
//! # Under the scheduler
//!
//! Oblivious but for the wish. A preempted writer stalls everybody, a preempted reader all writers and those
//! behind them. A writer that waits for readers keeps its wish: it holds the gate. Killed while holding:
//! lost.
//!
//! # Fairness and space
//!
//! Readers and writers as at the gate. Two lines.
//!
//! # Rejected
//!
//! The count in the gate's line: a reader could not leave while a writer holds it.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle, without locked lines; a twin whose readers unlock the gate
//! before they count themselves. The simulator: with locked lines.

use platform::{Atomic, AtomicInt, Ordering::*, Platform, StaticPlatform};

use super::RawRwLock;
use crate::mutex::{self, RawMutex};
use crate::wait::{self, Preemptable, Preemption, Unpreemptable};

/// A line of its own; free, it is zeros.
#[repr(C, align(128))]
struct Line<T> {
    word: T,
    _rest: [u32; 31],
}

/// A count of readers behind the lock that the machine's hardware makes.
#[repr(C)]
pub struct Hardware<P: Platform, N = Preemptable> {
    gate: mutex::Hardware<P, N>,
    readers: Line<P::AtomicU32>,
}

/// The same, whose holders wish not to be preempted.
pub type HardwareNp<P> = Hardware<P, Unpreemptable>;

impl<P: StaticPlatform, N> Hardware<P, N> {
    /// A free lock, for a `static`.
    pub const INIT: Self =
        Self { gate: mutex::Hardware::INIT, readers: Line { word: P::ZERO_U32, _rest: [0; 31] } };
}

impl<P: Platform, N: Preemption> Hardware<P, N> {
    /// A2. The caller holds the gate.
    #[inline]
    fn pass(&self) {
        self.readers.word.fetch_add(1, Relaxed);
        wait::inside_after_wait::<N, P>();
        // SAFETY: the caller locked it, and it has no node.
        unsafe { self.gate.unlock(&()) };
    }

    #[inline]
    fn is_empty(&self) -> bool {
        // ORDER: Acquire (A4), pairs with R1.
        self.readers.word.load(Acquire) == 0
    }
}

impl<P: Platform, N: Preemption> RawRwLock<P> for Hardware<P, N> {
    type Node = ();

    fn new() -> Self {
        Self { gate: mutex::Hardware::new(), readers: Line { word: P::AtomicU32::new(0), _rest: [0; 31] } }
    }

    #[inline]
    unsafe fn read(&self, _: &()) {
        // SAFETY: it has no node.
        unsafe { self.gate.lock(&()) };
        self.pass();
    }

    #[inline]
    unsafe fn try_read(&self, _: &()) -> bool {
        // SAFETY: as above.
        let got = unsafe { self.gate.try_lock(&()) };
        if got {
            self.pass();
        }
        got
    }

    #[inline]
    unsafe fn unlock_read(&self, _: &()) {
        // ORDER: Release (R1), pairs with A4.
        self.readers.word.fetch_sub(1, Release);
        wait::outside::<N, P>();
    }

    #[inline]
    unsafe fn write(&self, _: &()) {
        // SAFETY: as above.
        unsafe { self.gate.lock(&()) };
        while !self.is_empty() {
            P::pause();
        }
    }

    #[inline]
    unsafe fn try_write(&self, _: &()) -> bool {
        // SAFETY: as above.
        if !unsafe { self.gate.try_lock(&()) } {
            return false;
        }
        let got = self.is_empty();
        if !got {
            // SAFETY: just locked.
            unsafe { self.gate.unlock(&()) };
        }
        got
    }

    #[inline]
    unsafe fn unlock_write(&self, _: &()) {
        // SAFETY: R2. The writer holds it.
        unsafe { self.gate.unlock(&()) };
    }
}
