// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rw-native`, `rw-native-np`: what this system offers, a futex that counts readers.
//!
//! The lock that a programmer of this machine would write, as RW-Native of the TR was for its machines (TR
//! 1994, section 5.3); readers come first, as in glibc's default. Choose it to compare with, or where
//! threads wait long. `rw-native-np` asks the kernel besides not to preempt who holds it.
//!
//! # State
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | 0 | WRITER | a writer |
//! | 1 | SLEEPERS | somebody may sleep |
//! | 2-31 | READERS | number of readers |
//!
//! Added and taken away by those who hold it; SLEEPERS is set by who goes to sleep while it is held, and
//! cleared by the release that makes it free.
//!
//! # Invariants
//!
//! I1. WRITER is set exactly while one thread is between A2 and R2, and then READERS is 0.
//! I2. READERS is the number of acquisitions between A1 and R1, 2^29 at most: it does not overflow.
//! I3. While a thread sleeps SLEEPERS is set, or a release that has cleared it is about to wake all.
//! I4. With `np`: a thread that tries, or holds a lock of any kind that wishes, wishes not to be preempted;
//! one that sleeps or does neither does not, unless it holds another such lock.
//!
//! # Protocol
//!
//! A1. Reader: add 1 to READERS if WRITER is clear (and 2^29 are not there). A2. Writer: set WRITER if it
//! and READERS are clear. A3. Else set SLEEPERS, sleep while the word stays the same, and try again.
//! R1. Reader: subtract 1; the last clears SLEEPERS in the same step. R2. Writer: clear WRITER and
//! SLEEPERS. R3. Who cleared SLEEPERS wakes all. With `np`: the wish is made before A1 and A2 (N1) and
//! withdrawn before sleeping and between R1 or R2 and R3 (N2), unless the thread holds another lock of a
//! kind that wishes: no grace is spent on the wake-up. Who gives up at a deadline leaves SLEEPERS set: one
//! wake-up in vain.
//!
//! # Memory order
//!
//! R2 release -> A1, A2 acquire publishes the protected data; R1 release -> A2 acquire: the writer's
//! changes come after the readers' last look.
//!
//! # Under the scheduler
//!
//! Nobody spins: a preempted holder costs nothing but itself, and every wait costs a sleep. A writer that
//! waits for readers wakes in vain whenever one of them comes or goes between its look and its sleep. `np`:
//! see `rw-tas-b`. Killed while holding: lost.
//!
//! # Fairness and space
//!
//! None: readers who overlap keep writers out. 4 bytes, no node. Read locks that are never released count
//! for ever; the 2^29th keeps all later readers out.
//!
//! # Rejected
//!
//! glibc's own, with phases and separate words for readers and writers: it is a contender of the benchmark
//! as it is. Waking one writer or all readers: needs to know who sleeps.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle, a full count; the twin whose last reader forgets the
//! sleepers is caught.

use core::marker::PhantomData;
use platform::{Atomic, AtomicInt, Deadline, Ordering::*, Platform, StaticPlatform, Wait};

use super::{RawRwLock, RawRwLockRecursive, RawRwLockTimed};
use crate::wait::{self, Preemptable, Preemption};

const WRITER: u32 = 1;
const SLEEPERS: u32 = 1 << 1;
const READER: u32 = 1 << 2;
const READERS: u32 = u32::MAX << 2;
/// So many readers keep the next one out.
const MANY: u32 = 1 << 31;

/// A futex that counts readers.
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
    /// Adds `unit` if no bit of `excluded` is set; else returns the word.
    #[inline]
    fn attempt(&self, excluded: u32, unit: u32) -> Result<(), u32> {
        let me = wait::shield::<N, P>();
        let mut word = self.word.load(Relaxed);
        while word & excluded == 0 {
            // ORDER: Acquire (A1, A2), pairs with R1 and R2.
            match self.word.compare_exchange_weak(word, word + unit, Acquire, Relaxed) {
                Ok(_) => {
                    wait::inside::<N, P>(me);
                    return Ok(());
                }
                Err(now) => word = now,
            }
        }
        wait::unshield::<N, P>(me);
        Err(word)
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, excluded: u32, unit: u32, deadline: Option<Deadline>) -> bool {
        loop {
            let Err(word) = self.attempt(excluded, unit) else { return true };
            // A3.
            let new = word | SLEEPERS;
            if new != word && self.word.compare_exchange(word, new, Relaxed, Relaxed).is_err() {
                continue;
            }
            if P::wait(&self.word, new, deadline) == Wait::TimedOut || deadline.is_some_and(P::past) {
                return self.attempt(excluded, unit).is_ok();
            }
        }
    }

    /// The word, of which only the address is used, is released: wakes those who sleep on it, if there are
    /// any.
    #[inline]
    fn released(word: *const P::AtomicU32, sleepers: bool) {
        let me = wait::withdraw::<N, P>();
        if sleepers {
            Self::wake(word);
        }
        wait::repay::<N, P>(me);
    }

    #[cold]
    #[inline(never)]
    fn wake(word: *const P::AtomicU32) {
        // R3. The word may be gone by now; only its address is used.
        P::wake(word, u32::MAX);
    }
}

impl<P: Platform, N: Preemption> RawRwLock<P> for Native<P, N> {
    type Node = ();

    fn new() -> Self {
        Self { word: P::AtomicU32::new(0), platform: PhantomData }
    }

    #[inline]
    unsafe fn read(&self, _: &()) {
        if self.attempt(WRITER | MANY, READER).is_err() {
            self.wait(WRITER | MANY, READER, None);
        }
    }

    #[inline]
    unsafe fn try_read(&self, _: &()) -> bool {
        self.attempt(WRITER | MANY, READER).is_ok()
    }

    #[inline]
    unsafe fn unlock_read(&self, _: &()) {
        let mut word = self.word.load(Relaxed);
        let sleepers = loop {
            let last = word & READERS == READER;
            let new = (word - READER) & if last { !SLEEPERS } else { u32::MAX };
            // ORDER: Release (R1), pairs with A2.
            match self.word.compare_exchange_weak(word, new, Release, Relaxed) {
                Ok(_) => break last && word & SLEEPERS != 0,
                Err(now) => word = now,
            }
        };
        Self::released(&self.word, sleepers);
    }

    #[inline]
    unsafe fn write(&self, _: &()) {
        if self.attempt(WRITER | READERS, WRITER).is_err() {
            self.wait(WRITER | READERS, WRITER, None);
        }
    }

    #[inline]
    unsafe fn try_write(&self, _: &()) -> bool {
        self.attempt(WRITER | READERS, WRITER).is_ok()
    }

    #[inline]
    unsafe fn unlock_write(&self, _: &()) {
        // ORDER: Release (R2), pairs with A1 and A2; publishes the protected data.
        let sleepers = self.word.fetch_and(!(WRITER | SLEEPERS), Release) & SLEEPERS != 0;
        Self::released(&self.word, sleepers);
    }
}

impl<P: Platform, N: Preemption> RawRwLockTimed<P> for Native<P, N> {
    #[inline]
    unsafe fn read_until(&self, _: &(), deadline: Deadline) -> bool {
        self.attempt(WRITER | MANY, READER).is_ok() || self.wait(WRITER | MANY, READER, Some(deadline))
    }

    #[inline]
    unsafe fn write_until(&self, _: &(), deadline: Deadline) -> bool {
        self.attempt(WRITER | READERS, WRITER).is_ok() || self.wait(WRITER | READERS, WRITER, Some(deadline))
    }
}

/// Readers come first anyway.
impl<P: Platform, N: Preemption> RawRwLockRecursive<P> for Native<P, N> {
    #[inline]
    fn read_recursive(&self) {
        // SAFETY: there is no node.
        unsafe { self.read(&()) };
    }

    #[inline]
    fn try_read_recursive(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.try_read(&()) }
    }

    #[inline]
    fn read_recursive_until(&self, deadline: Deadline) -> bool {
        // SAFETY: as above.
        unsafe { self.read_until(&(), deadline) }
    }
}
