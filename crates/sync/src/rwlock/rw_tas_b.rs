// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rw-tas-b`, `rw-tas-b-np`: one word, test-and-test_and_set, bounded exponential backoff.
//!
//! The simplest reader-writer lock, and the plain reference for the others. `rw-tas-b-np` asks the kernel besides not to preempt who holds it, or is about to.
//! Kontothanassis, Wisniewski, Scott, TR 1994, section 5.3, "RW-TAS-B" and "RW-TAS-B-np" (wish of the Symunix interface: KE-1 and KE-2).
//! Changed: the paper does not print them; the word counts readers, as the centralized locks of Mellor-Crummey and Scott (PPoPP 1991) do.
//!
//! # State
//!
//! | word | meaning |
//! |---|---|
//! | 0 | free |
//! | n > 0, top bit clear | n readers |
//! | top bit | a writer |
//!
//! `n -> n + 1`, `n -> n - 1` by readers, `0 -> W`, `W -> 0` by the writer.
//!
//! # Invariants
//!
//! I1. The top bit is set exactly while one thread is between A2 and R2, and then the count is 0.
//! I2. The count is the number of threads between A1 and R1.
//!
//! # Protocol
//!
//! A1. Reader: read until the top bit is clear, pausing twice as long after each look, up to a bound; then add 1.
//! A2. Writer: the same until the word is 0; then set the top bit. R1. Subtract 1. R2. Store 0.
//! With `np`: the wish not to be preempted is set before each attempt (N1) and withdrawn after one that failed, and after R1 or R2 (N2);
//! who withdraws it yields if the kernel has put a preemption off.
//!
//! # Memory order
//!
//! R2 release -> A1, A2 acquire publishes the protected data; R1 release -> A2 acquire: the writer's changes come after the readers' last look.
//!
//! # Under the scheduler
//!
//! Oblivious but for the wish. A preempted writer stalls everybody, a preempted reader all writers, who spin through its slice. Where nobody honours the wish
//! (see the view), `np` is the plain lock at the cost of two stores. Killed while holding: lost.
//!
//! # Fairness and space
//!
//! None: readers who overlap keep writers out for ever. 4 bytes, no node.
//!
//! # Rejected
//!
//! A test-and-set lock around a count: two words to change where one will do. Adding first and taking back if a writer is there: R2 could not be a plain store.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; the twins that lose a reader and that let a writer in are caught.

use core::marker::PhantomData;
use platform::{Atomic, AtomicInt, Ordering::*, Platform, StaticPlatform, ThreadId, Wish};

use super::RawRwLock;
use crate::wait;

/// COST: pauses; the bound is about 10 us, less than the scheduler's shortest slice by far.
const FIRST_BACKOFF: u32 = 4;
const LAST_BACKOFF: u32 = 512;

const WRITER: u32 = 1 << 31;

/// Whether a lock tells the kernel when not to preempt.
pub trait Wishing: Send + Sync + 'static {
    /// It does.
    const WISHES: bool;

    /// N1. The calling thread is about to enter a critical section.
    #[inline(always)]
    fn wish<P: Platform>() {
        if Self::WISHES {
            let me = match P::current() {
                ThreadId::NONE => P::register(),
                me => me,
            };
            P::set_wish(me, Wish::UnpreemptableSelf);
        }
    }

    /// N2. It has left it, or does not enter it yet.
    #[inline(always)]
    fn unwish<P: Platform>() {
        if Self::WISHES {
            let me = P::current();
            P::set_wish(me, Wish::Preemptable);
            // HINT: a warning missed costs the grace of the next section; one too many costs a yield.
            if P::warning(me) {
                P::yield_now();
            }
        }
    }
}

/// It does not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

/// "np": it wishes not to be preempted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Np;

impl Wishing for Plain {
    const WISHES: bool = false;
}

impl Wishing for Np {
    const WISHES: bool = true;
}

/// Test-and-test_and_set with bounded exponential backoff.
#[repr(transparent)]
pub struct TasB<P: Platform, W: Wishing> {
    word: P::AtomicU32,
    platform: PhantomData<(P, W)>,
}

impl<P: StaticPlatform, W: Wishing> TasB<P, W> {
    /// A free lock, for a `static`.
    pub const INIT: Self = Self { word: P::ZERO_U32, platform: PhantomData };
}

impl<P: Platform, W: Wishing> TasB<P, W> {
    /// Adds `unit` if no bit of `excluded` is set.
    #[inline]
    fn attempt(&self, excluded: u32, unit: u32) -> bool {
        W::wish::<P>();
        let mut word = self.word.load(Relaxed);
        while word & excluded == 0 {
            // ORDER: Acquire (A1, A2), pairs with R1 and R2.
            match self.word.compare_exchange_weak(word, word + unit, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        W::unwish::<P>();
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

impl<P: Platform, W: Wishing> RawRwLock<P> for TasB<P, W> {
    type Node = ();

    fn new() -> Self {
        Self { word: P::AtomicU32::new(0), platform: PhantomData }
    }

    #[inline]
    unsafe fn read(&self, _: &()) {
        if !self.attempt(WRITER, 1) {
            self.wait(WRITER, 1);
        }
    }

    #[inline]
    unsafe fn try_read(&self, _: &()) -> bool {
        self.attempt(WRITER, 1)
    }

    #[inline]
    unsafe fn unlock_read(&self, _: &()) {
        // ORDER: Release (R1), pairs with A2.
        self.word.fetch_sub(1, Release);
        W::unwish::<P>();
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
        W::unwish::<P>();
    }
}
