// SPDX-License-Identifier: MIT OR Apache-2.0
//! The deque of new fibers: its owner pushes and pops at one end, thieves take from the other.
//!
//! The THE protocol of Cilk-5 (Frigo, Leiserson, Randall, PLDI 1998, section 5), with the owner's fence made
//! light ([`Fences`]). Thieves come one at a time. So the owner needs no locked instruction, not even for
//! the last entry. The deque of Chase and Lev needs two for that one, and Null Fork takes the last entry.
//!
//! # State
//! `bottom`, `top`: numbers modulo 2^32; the entries are `top..bottom`. `slots[n % CAPACITY]` holds entry n.
//! `thieves` is held by whoever steals, and by an owner that meets a thief.
//!
//! # Invariants
//! - I1. Only the owner writes `bottom`. Only the holder of `thieves` writes `top`.
//! - I2. `top <= bottom + 1`; one more than `bottom` only until the thief or the owner looks.
//! - I3. Each entry goes to exactly one taker.
//!
//! # Protocol
//! - P1. Push: write the slot, then `bottom + 1`. At most CAPACITY - 1 entries: a thief may not have read the
//!   slot that it has counted off.
//! - O1. Pop: `bottom - 1`, light fence, read `top`. If `top <= bottom`, the entry is ours. O2. Else take
//!   `thieves` and look again; if it is gone, `bottom + 1`.
//! - T1. Steal: take `thieves`, `top + 1`, heavy fence, read `bottom`. If `top > bottom`, T2: `top - 1`,
//!   none.
//!   Else read the slot.
//! - T3. Steal from an owner that is blocked in the kernel: as T1, but instead of the heavy fence a full one,
//!   and then a look whether the owner is blocked still. If not, T2.
//!
//! # Memory order
//! `bottom` release (P1, O1) -> T1 acquire publishes the slot. `top` release (T1) -> P1 acquire: the slot of
//! the entry before it has been read. O1 and T1 are Dekker's two sides: one of them sees the other. T3: an
//! owner that is blocked passed a full fence on its way there, and passes another one on its way back. On
//! other machines than x86-64 the fence on the way back may be missing, before about Linux 5.5. So the fibers
//! use T3 on x86-64 only.
//!
//! # Under the scheduler
//! - *Owner preempted or blocked anywhere*: thieves go on; that is how a spare takes its queue over.
//! - *Thief preempted inside T1*: other thieves wait, and so does an owner at its last entry.
//!
//! # Fairness and space
//! The owner takes the newest, a thief the oldest. CAPACITY words.
//!
//! # Rejected
//! crossbeam-deque: its owner pays a fence and a compare-and-swap for the last entry, by its source (0.8).
//!
//! # Checked by
//! `conformance`, loom and shuttle, where both fences are full ones; twins without the fence and with a late
//! count are caught. T3 without any other fence; an owner that comes back without one and a thief that looks
//! before it counts are caught. No checker knows `membarrier`: that the two sides pair is the kernel's
//! promise.

use core::cell::UnsafeCell;
use core::marker::PhantomData;

use platform::{Atomic, Ordering::*};
use sync::mutex::{Native, RawMutex};

use crate::fences::Fences;

/// See the head of this file.
pub struct Deque<P: Fences, T: 'static, const CAPACITY: usize> {
    top: P::AtomicU32,
    thieves: Native<P>,
    bottom: P::AtomicU32,
    slots: [P::AtomicPtr<T>; CAPACITY],
    owner: PhantomData<UnsafeCell<()>>,
}

// SAFETY: all fields are atomics. The methods of the owner are unsafe and say who may call them.
unsafe impl<P: Fences, T: Send, const CAPACITY: usize> Sync for Deque<P, T, CAPACITY> {}

/// `a` comes after `b`, modulo 2^32.
fn after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

impl<P: Fences, T: 'static, const CAPACITY: usize> Default for Deque<P, T, CAPACITY> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Fences, T: 'static, const CAPACITY: usize> Deque<P, T, CAPACITY> {
    /// An empty one.
    pub fn new() -> Self {
        const { assert!(CAPACITY.is_power_of_two() && CAPACITY > 1) };
        Self {
            top: Atomic::new(0),
            thieves: RawMutex::new(),
            bottom: Atomic::new(0),
            slots: core::array::from_fn(|_| Atomic::new(core::ptr::null_mut())),
            owner: PhantomData,
        }
    }

    fn slot(&self, number: u32) -> &P::AtomicPtr<T> {
        &self.slots[number as usize % CAPACITY]
    }

    /// P1. False if it is full.
    ///
    /// # Safety
    /// The caller is the owner.
    #[inline]
    pub unsafe fn push(&self, entry: *mut T) -> bool {
        let bottom = self.bottom.load(Relaxed);
        // ORDER: Acquire, pairs with T1 and T2: the entry whose slot is written anew has been read.
        if bottom.wrapping_sub(self.top.load(Acquire)) as usize >= CAPACITY - 1 {
            return false;
        }
        self.slot(bottom).store(entry, Relaxed);
        // ORDER: Release (P1), pairs with T1; publishes the slot and the entry.
        self.bottom.store(bottom.wrapping_add(1), Release);
        true
    }

    /// HINT: the newest entry, which a thief may be taking.
    ///
    /// # Safety
    /// The caller is the owner.
    #[inline]
    pub unsafe fn newest(&self) -> Option<*mut T> {
        let bottom = self.bottom.load(Relaxed);
        (bottom != self.top.load(Relaxed)).then(|| self.slot(bottom.wrapping_sub(1)).load(Relaxed))
    }

    /// O1, O2. The newest entry.
    ///
    /// # Safety
    /// The caller is the owner.
    #[inline]
    pub unsafe fn pop(&self) -> Option<*mut T> {
        let bottom = self.bottom.load(Relaxed);
        if bottom == self.top.load(Relaxed) {
            return None;
        }
        let last = bottom.wrapping_sub(1);
        // ORDER: Release, as P1: a thief may read this value and then an older slot.
        self.bottom.store(last, Release);
        P::light();
        if after(self.top.load(Relaxed), last) {
            self.pop_last(last)
        } else {
            Some(self.slot(last).load(Relaxed))
        }
    }

    /// O2.
    #[cold]
    #[inline(never)]
    fn pop_last(&self, last: u32) -> Option<*mut T> {
        // SAFETY: released below, once.
        unsafe { self.thieves.lock(&()) };
        let entry = if after(self.top.load(Relaxed), last) {
            // Nobody takes an entry by this value: `top` is as great, and only grows.
            self.bottom.store(last.wrapping_add(1), Relaxed);
            None
        } else {
            Some(self.slot(last).load(Relaxed))
        };
        // SAFETY: locked above.
        unsafe { self.thieves.unlock(&()) };
        entry
    }

    /// T1, T2. The oldest entry.
    pub fn steal(&self) -> Option<*mut T> {
        self.steal_if(|| {
            P::heavy();
            true
        })
    }

    /// T3. The oldest entry, if the owner is blocked.
    ///
    /// # Safety
    /// If `blocked` returns true, the owner was in the kernel then, passed a full fence before, and passes
    /// another one before it comes back.
    pub unsafe fn steal_from_blocked(&self, blocked: impl FnOnce() -> bool) -> Option<*mut T> {
        self.steal_if(|| {
            // ORDER: SeqCst (T3), pairs with the owner's way into the kernel and back.
            P::fence(SeqCst);
            blocked()
        })
    }

    fn steal_if(&self, fenced: impl FnOnce() -> bool) -> Option<*mut T> {
        if !self.has_any() {
            return None;
        }
        // SAFETY: released below, once.
        unsafe { self.thieves.lock(&()) };
        let top = self.top.load(Relaxed);
        // ORDER: Release (T1), pairs with P1: the slot before this one has been read.
        self.top.store(top.wrapping_add(1), Release);
        // ORDER: Acquire (T1), pairs with P1.
        let entry = if !fenced() || after(top.wrapping_add(1), self.bottom.load(Acquire)) {
            // ORDER: Release (T2), as T1.
            self.top.store(top, Release);
            None
        } else {
            Some(self.slot(top).load(Relaxed))
        };
        // SAFETY: locked above.
        unsafe { self.thieves.unlock(&()) };
        entry
    }

    /// HINT for thieves: is there an entry?
    pub fn has_any(&self) -> bool {
        // A sleeper sees what was pushed before by its heavy fence. Who takes an entry acquires it in T1.
        after(self.bottom.load(Relaxed), self.top.load(Relaxed))
    }
}
