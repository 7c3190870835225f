// SPDX-License-Identifier: MIT OR Apache-2.0
//! With which carrier a fiber goes on: where it lives, who may send it elsewhere, and how many live where.
//!
//! # State
//! Of each fiber: `home`, 1 + the index of the carrier with which it goes on, 0: with any; `loose`: it is a
//! task between two polls; `resides`: whether a carrier counts it. Of each carrier: its *residents*, pinned
//! fibers that have waited and have not ended (`waited`), and those that others sent there to begin (`sent`).
//!
//! # Invariants
//! - I1. One has a fiber in hand at a time: the carrier that runs it. Then the thread that took the token of
//!   `token.rs` from PARKED. Then the list where it lies, and the carrier that takes it from there.
//! - I2. A pinned fiber that has begun is in no list but its home's.
//! - I3. A fiber is counted at most once, by its home.
//!
//! # Protocol
//! - M1. Loosen: the fiber, before it waits between two polls, is counted no longer.
//! - M2. Send: who made a loose fiber ready, and finds that its home is blocked or busy beside a free seat,
//!   sets `home` to 0: any carrier goes on with it.
//! - M3. Fasten: the fiber, when it goes on, sets `home` to where it is. A wait inside of a poll comes home.
//! - D1. Leave: a carrier that is about to begin a fiber counts it for another one, whose home it is from
//!   then on, and sends it there: B1 of `seats.rs`. It is sent once only.
//!
//! # Memory order
//! `home`, `loose` and `resides` change hands by I1. The counts are HINTs: `waited` is its carrier's own.
//!
//! # Under the scheduler
//! *The new home is preempted, blocked or busy*: what was sent there waits for it, as what has begun there.
//!
//! # Fairness and space
//! 12 bytes a fiber, 8 a carrier.
//!
//! # Rejected
//! A loose fiber that always lies where all look: its own carrier would come to it last.
//!
//! # Checked by
//! `conformance`, loom and shuttle. Caught twins: a fiber that is left and nobody is told, one that is sent
//! twice; by shuttle only a task that is not fastened, and one that is made ready here and there.

use core::cell::Cell;

use platform::{Atomic, AtomicInt, Ordering::*, Platform};

use crate::fences::Fences;
use crate::seats::Seats;

/// Is a pinned fiber counted by its carrier?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resides {
    No,
    /// It waited there.
    Waited,
    /// Another carrier sent it there to begin.
    Sent,
}

/// The residents of a carrier.
pub struct Residents<P: Platform> {
    waited: P::AtomicU32,
    sent: P::AtomicU32,
}

impl<P: Platform> Default for Residents<P> {
    fn default() -> Self {
        Self { waited: Atomic::new(0), sent: Atomic::new(0) }
    }
}

impl<P: Platform> Residents<P> {
    /// HINT: how many fibers are pinned here that wait now and then.
    #[inline]
    pub fn count(&self) -> u32 {
        self.waited.load(Relaxed) + self.sent.load(Relaxed)
    }
}

/// See the head of this file.
pub struct Abode<P: Platform> {
    home: P::AtomicU32,
    loose: Cell<bool>,
    resides: Cell<Resides>,
}

// SAFETY: the cells are those of whoever has the fiber in hand (I1).
unsafe impl<P: Platform> Sync for Abode<P> {}

impl<P: Platform> Default for Abode<P> {
    fn default() -> Self {
        Self { home: Atomic::new(0), loose: Cell::new(false), resides: Cell::new(Resides::No) }
    }
}

impl<P: Platform> Abode<P> {
    /// The carrier with which it goes on. `None`: with any.
    #[inline]
    pub fn home(&self) -> Option<u32> {
        self.home.load(Relaxed).checked_sub(1)
    }

    /// Its home is this carrier: it begins here.
    #[inline]
    pub fn settle(&self, carrier: u32) {
        self.home.store(carrier + 1, Relaxed);
    }

    /// It has no home: it is new, or any carrier may go on with it.
    #[inline]
    pub fn release(&self) {
        self.home.store(0, Relaxed);
    }

    /// Is it a task between two polls?
    #[inline]
    pub fn is_loose(&self) -> bool {
        self.loose.get()
    }

    /// M1, by the fiber.
    pub fn loosen(&self, here: &Residents<P>) {
        self.reside(here, false);
        self.loose.set(true);
    }

    /// M3, by the fiber.
    pub fn fasten(&self, carrier: u32) {
        if self.loose.replace(false) {
            self.settle(carrier);
        }
    }

    /// M2, by who made it ready: where does it go?
    pub fn destination(&self, seats: &Seats<P>) -> Option<u32>
    where
        P: Fences,
    {
        // HINT: its home is blocked, or runs others while a seat is free.
        let better = |home| seats.is_away(home) || seats.holds(home) && !seats.is_full();
        if self.is_loose() && self.home().is_some_and(better) {
            self.release();
        }
        self.home()
    }

    /// This pinned fiber waits, or has ended, at its home.
    #[inline]
    pub fn reside(&self, here: &Residents<P>, stays: bool) {
        match self.resides.get() {
            Resides::No if stays => {
                self.resides.set(Resides::Waited);
                // Only this thread writes it.
                here.waited.store(here.waited.load(Relaxed) + 1, Relaxed);
            }
            Resides::Waited if !stays => {
                self.resides.set(Resides::No);
                here.waited.store(here.waited.load(Relaxed) - 1, Relaxed);
            }
            Resides::Sent if !stays => {
                self.resides.set(Resides::No);
                here.sent.fetch_sub(1, Relaxed);
            }
            _ => {}
        }
    }

    /// D1. True: it is to begin there, and the caller sends it.
    pub fn leave(&self, here: &Residents<P>, other: &Residents<P>, carrier: u32) -> bool {
        let leaves = self.resides.get() == Resides::No && other.count() < here.count();
        if leaves {
            self.send(other, carrier);
        }
        leaves
    }

    /// The same by the kernel thread that made it.
    pub fn send(&self, to: &Residents<P>, carrier: u32) {
        self.resides.set(Resides::Sent);
        to.sent.fetch_add(1, Relaxed);
        self.settle(carrier);
    }
}
