// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dependences: a task begins when its predecessors are done.
//!
//! The problem: a task is made while its predecessors run, and each of them may end meanwhile. The task must
//! be started once, by whoever ends last, and not while it is still being told of its predecessors.
//!
//! The idea: each task counts its predecessors, from 1 on. That 1 stands for the maker, who takes it back
//! when all are known. Each task also has a list of successors behind a lock, until it is done; then there
//! is no list any more.
//!
//! ```text
//! maker:        F1 lock the other's list: done? nothing, else enter and count   F2 take the 1 back
//! predecessor:  E1 lock its own list and take it away   E2 count one down for each successor
//! ```
//!
//! # State
//!
//! `predecessors`: those that are not done, and 1 until F2. `successors`: a list, or none when the task is
//! done.
//!
//! # Invariants
//!
//! I1. A successor in a list is counted once for it, before the list's lock is released.
//! I2. Once a list is taken away nobody enters it.
//! I3. The count falls to 0 once: by F2 or by one E2. Whoever does it starts the task.
//!
//! # Protocol
//!
//! F1, F2, E1, E2 as above. F1 and E1 exclude each other by the lock: a follower is either in the list that
//! E1 takes, or finds that the task is done.
//!
//! # Memory order
//!
//! F2 and E2 (AcqRel) form a chain: whoever counts down to 0 has seen what every predecessor did, and what
//! the maker wrote. F1 counts Relaxed: the lock publishes it to E1. The wait for F2 acquires the same.
//!
//! # Under the scheduler
//!
//! The lock is the default mutex, so that a preempted holder is waited for as there. No other step waits.
//! Killed: the process dies with it.
//!
//! # Fairness and space
//!
//! Successors start in the order in which they followed. 8 bytes and the list.
//!
//! # Rejected
//!
//! A list without a lock: the lock is a swap and a store, and a task with dependences pays for a table as
//! well.
//!
//! # Checked by
//!
//! `conformance`, `openmp`: real threads, loom, shuttle; a twin without the maker's 1 is caught.

use platform::{Atomic, AtomicInt, Ordering::*, Platform};

use super::Guarded;

/// A task among its predecessors and successors. `L` is a list of whatever the caller knows successors by.
pub struct Dependent<P: Platform, L> {
    predecessors: P::AtomicU32,
    successors: Guarded<P, Waiting<L>>,
}

/// Those who wait for a task; none: it is done.
struct Waiting<L>(Option<L>);

impl<L: Default> Default for Waiting<L> {
    fn default() -> Self {
        Self(Some(L::default()))
    }
}

impl<P: Platform, L: Default> Default for Dependent<P, L> {
    fn default() -> Self {
        Self { predecessors: Atomic::new(1), successors: Guarded::default() }
    }
}

impl<P: Platform, L> Dependent<P, L> {
    /// Waits for another one, into whose list `enter` enters it; false if that had no room. F1.
    pub fn follow(&self, other: &Self, enter: impl FnOnce(&mut L) -> bool) -> bool {
        other.successors.with(|successors| {
            successors.0.as_mut().is_none_or(|list| {
                let known = enter(list);
                self.predecessors.fetch_add(known as u32, Relaxed);
                known
            })
        })
    }

    /// A predecessor is done, or all have been counted; true if the task can begin. F2, E2.
    #[inline]
    pub fn preceded(&self) -> bool {
        // ORDER: AcqRel (F2, E2), pairs with itself: what all predecessors did comes before.
        self.predecessors.fetch_sub(1, AcqRel) == 1
    }

    /// It never had any, and nobody else has seen it.
    #[inline]
    pub fn has_none(&self) {
        self.predecessors.store(0, Relaxed);
    }

    /// Predecessors that are not done, and 1 before [`Dependent::preceded`] was called for the maker.
    #[inline]
    pub fn predecessors(&self) -> u32 {
        // ORDER: Acquire, pairs with E2.
        self.predecessors.load(Acquire)
    }

    /// Does nobody have to wait for it any more?
    pub fn is_done(&self) -> bool {
        self.successors.with(|successors| successors.0.is_none())
    }

    /// It is done: its successors, for each of whom [`Dependent::preceded`] is to be called. E1.
    pub fn end(&self) -> Option<L> {
        self.successors.with(|successors| successors.0.take())
    }
}
