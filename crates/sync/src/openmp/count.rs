// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts: of those who are waited for, and of those who still hold something.
//!
//! A task waits for its children, a taskgroup for its tasks. A task's memory goes when the last of those who
//! may look at it has let go. A task with an event is complete with the second of two parts. Each is one
//! word. They differ in who acts at the end: a waiter that looks ([`Awaited`]), or the last one itself
//! ([`Holders`]). A task's children are both, and most end both at once. So the two counts of a task are one
//! word ([`Kin`]).
//!
//! A [`Flag`] is the least count: a region that is cancelled, which publishes what came before, as OpenMP's
//! flush does.
//!
//! ```text
//! Awaited:  A1 add ... A2 one done (release)          W1 waiter sees 0 (acquire), goes on
//! Holders:  H1 add ... H2 let go (acquire, release)   the last one frees
//! Kin:      A1 and H1 in one step, A2 and H2 in one step or in two
//! ```
//!
//! # State
//!
//! `Flag`: `0 -> 1`, back between regions. Else a number. `Awaited`: `n -> n + 1` (A1), `n -> n - 1` (A2).
//! `Holders`: the same by H1 and H2, from 1 on. The last one may leave 1. `Kin`: 32 bits of each.
//!
//! # Invariants
//!
//! I1. Whoever adds is itself waited for, or a holder, or the waiter: the number does not rise from 0 behind
//! somebody's back.
//! I2. Exactly one A2 or H2 is told that it was the last.
//!
//! # Protocol
//!
//! As above. After the last A2 the count may be gone: the waiter may have seen it and freed the memory. So
//! the one who counts down touches nothing after it, but what the caller knows to stay.
//!
//! # Memory order
//!
//! A2 release -> W1 acquire publishes what the counted ones did; each A2 is a read-modify-write, so all of
//! them count. H2 release -> H2 acquire (and -> [`Holders::is_one`]): all that any holder did comes before
//! the end. `Flag::raise` release -> `Flag::is_up` acquire.
//!
//! # Under the scheduler
//!
//! No step waits. Whoever is preempted before A2 keeps the waiter waiting; how it waits is the caller's
//! business. Killed: the process dies with it.
//!
//! # Fairness and space
//!
//! 4 bytes, and [`Kin`] 8. 2^32 - 1 of each at most, which memory does not allow.
//!
//! # Rejected
//!
//! A waiter's bit in the count, so that A2 knows whether anybody waits: the event's look at its waiters
//! costs as much.
//!
//! # Checked by
//!
//! `conformance`, `openmp`: real threads, loom, shuttle; a twin that counts down in two steps is caught.

use platform::{Atomic, AtomicInt, Ordering::*, Platform, Wide};

/// Those who are waited for.
pub struct Awaited<P: Platform>(P::AtomicU32);

impl<P: Platform> Default for Awaited<P> {
    fn default() -> Self {
        Self(Atomic::new(0))
    }
}

impl<P: Platform> Awaited<P> {
    /// One more; true for the first. A1.
    #[inline]
    pub fn add(&self) -> bool {
        self.0.fetch_add(1, Relaxed) == 0
    }

    /// One is done; true for the last. A2.
    #[inline]
    pub fn done(&self) -> bool {
        // ORDER: Release (A2), pairs with W1; publishes what this one did.
        self.0.fetch_sub(1, Release) == 1
    }

    /// Are all done? W1.
    #[inline]
    pub fn are_none(&self) -> bool {
        // ORDER: Acquire (W1), pairs with A2.
        self.0.load(Acquire) == 0
    }

    /// HINT: how many are not done.
    #[inline]
    pub fn number(&self) -> u32 {
        self.0.load(Relaxed)
    }
}

/// Those who hold something, of whom the last one ends it.
pub struct Holders<P: Platform>(P::AtomicU32);

impl<P: Platform> Holders<P> {
    /// So many.
    pub fn new(count: u32) -> Self {
        Self(Atomic::new(count))
    }

    /// One more, by somebody who is one, or for whom one stays. H1.
    #[inline]
    pub fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// One less; true for the last. H2.
    #[inline]
    pub fn let_go(&self) -> bool {
        // The only one left knows that without a step: nobody can add any more (I1).
        // ORDER: AcqRel (H2), pairs with itself: what all holders did comes before the last one's end.
        self.is_one() || self.0.fetch_sub(1, AcqRel) == 1
    }

    /// Is there one only? It is the caller.
    #[inline]
    pub fn is_one(&self) -> bool {
        // ORDER: Acquire, pairs with H2.
        self.0.load(Acquire) == 1
    }

    /// HINT: is there more than one? To be asked where nobody lets go.
    #[inline]
    pub fn are_more(&self) -> bool {
        self.0.load(Relaxed) > 1
    }

    /// Counts anew, before anybody else knows of it.
    #[inline]
    pub fn restart(&self, count: u32) {
        self.0.store(count, Relaxed);
    }
}

const CHILD: u64 = 1 << 32;

fn holders(word: u64) -> u32 {
    word as u32
}

fn children(word: u64) -> u32 {
    (word >> 32) as u32
}

/// A task's children that are not done, and those who may still look at the task: itself until it is done,
/// each child until it is gone, and others.
pub struct Kin<P: Wide>(P::AtomicU64);

impl<P: Wide> Default for Kin<P> {
    /// No child, and the task itself.
    fn default() -> Self {
        Self(Atomic::new(1))
    }
}

impl<P: Wide> Kin<P> {
    /// A child more, which also holds the task. A1, H1.
    #[inline]
    pub fn add_child(&self) {
        self.0.fetch_add(CHILD + 1, Relaxed);
    }

    /// A child is done, and still holds the task; true for the last. A2.
    #[inline]
    pub fn child_done(&self) -> bool {
        // ORDER: Release (A2), pairs with W1; publishes what this one did.
        children(self.0.fetch_sub(CHILD, Release)) == 1
    }

    /// A child is done and gone: was it the last child, and the last holder? A2, H2.
    #[inline]
    pub fn child_gone(&self) -> (bool, bool) {
        // ORDER: AcqRel (A2, H2), pairs with W1 and with H2.
        let was = self.0.fetch_sub(CHILD + 1, AcqRel);
        (children(was) == 1, holders(was) == 1)
    }

    /// Are all children done? W1.
    #[inline]
    pub fn is_childless(&self) -> bool {
        // ORDER: Acquire (W1), pairs with A2.
        children(self.0.load(Acquire)) == 0
    }

    /// As [`Holders::add`]. H1.
    #[inline]
    pub fn hold(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// As [`Holders::let_go`]. H2.
    #[inline]
    pub fn let_go(&self) -> bool {
        // ORDER: AcqRel (H2), pairs with itself and with `child_gone`.
        self.is_one() || holders(self.0.fetch_sub(1, AcqRel)) == 1
    }

    /// As [`Holders::is_one`].
    #[inline]
    pub fn is_one(&self) -> bool {
        // ORDER: Acquire, pairs with H2.
        holders(self.0.load(Acquire)) == 1
    }
}

/// Something has been said to all.
pub struct Flag<P: Platform>(P::AtomicU32);

impl<P: Platform> Default for Flag<P> {
    fn default() -> Self {
        Self(Atomic::new(0))
    }
}

impl<P: Platform> Flag<P> {
    /// Says it.
    pub fn raise(&self) {
        // ORDER: Release, pairs with `is_up`.
        self.0.store(1, Release);
    }

    /// Was it said?
    #[inline]
    pub fn is_up(&self) -> bool {
        // ORDER: Acquire, pairs with `raise`.
        self.0.load(Acquire) != 0
    }

    /// As if it had not been, while nobody asks.
    pub fn lower(&self) {
        self.0.store(0, Relaxed);
    }
}
