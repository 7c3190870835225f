// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the members of a worksharing construct share: its turn, its iterations, and what the first of them
//! makes.
//!
//! The problem: members come to a construct at different times. With `nowait` a fast one comes to the next
//! while a slow one is still in the last. The first to come prepares the construct for all, and the last to
//! leave cleans up.
//!
//! The idea: a team has a ring of shares. Construct number n uses share n modulo the ring's length. The
//! share's turn names the construct that it is for, so that who is a round ahead waits.
//!
//! ```text
//!   FREE n --(S1 first)--> MADE n --(S2 prepared)--> READY n --(S3 last leaves)--> FREE n + ring
//! ```
//!
//! # State
//!
//! `turn`: the construct's number times 4, and MADE, READY or neither. `inside`: members that have not left.
//! `next`: the first iteration that nobody has taken; NONE_LEFT or more after a cancellation. `First`:
//! constructs that were taken by the first to come. `Slot`: null, or what the first has made.
//!
//! # Invariants
//!
//! I1. One member makes: it has changed `turn` from FREE to MADE in one step.
//! I2. Nobody is inside who has not seen READY, and each member leaves once; so the last one out is alone.
//! I3. Each iteration is taken once: `next` only rises while a construct lasts, in one step a taker.
//!
//! # Protocol
//!
//! S1. Wait until the share is for this construct; the first swaps MADE in. S2. Prepare, then READY; others
//! wait for that.
//! S3. Leave; the last cleans, and sets the turn a round on. T1. Take: add a chunk, or for guided loops
//! compare and swap.
//!
//! # Memory order
//!
//! S2 release -> S1 acquire publishes what was prepared. S3 (AcqRel) forms a chain, and its store releases
//! -> S1 acquire of a round later: the share is clean. `Slot`: release -> acquire publishes what was made.
//! T1 orders nothing.
//!
//! # Under the scheduler
//!
//! The first preempted between S1 and S2: all others wait, briefly awake, then in naps. A slow member keeps
//! those waiting who are a whole ring ahead. Killed: the process dies with it.
//!
//! # Fairness and space
//!
//! Who comes first takes first. 8 bytes a turn and 8 for iterations.
//!
//! # Rejected
//!
//! A share a construct from memory: an allocation each time. A lock: the second and later members only look.
//!
//! # Checked by
//!
//! `conformance`, `openmp`: real threads, loom, shuttle; a twin that is ready before it is prepared is
//! caught.

use core::marker::PhantomData;

use platform::{Atomic, AtomicInt, Ordering::*, Platform, Wide};

use super::Patience;

const MADE: u32 = 1;
const READY: u32 = 2;
const TURN: u32 = 4;

/// Whose turn a share is.
pub struct Turn<P: Platform> {
    turn: P::AtomicU32,
    inside: P::AtomicU32,
}

impl<P: Platform> Turn<P> {
    /// Of the share at this place in the ring.
    pub fn new(index: u32) -> Self {
        Self { turn: Atomic::new(index * TURN), inside: Atomic::new(0) }
    }

    /// As if new, while nobody is in a region.
    pub fn renew(&self, index: u32) {
        self.turn.store(index * TURN, Relaxed);
    }

    /// For a construct, by the only one who can have come.
    pub fn open_alone(&self, construct: u32, size: u32) {
        self.inside.store(size, Relaxed);
        self.turn.store(construct.wrapping_mul(TURN) | READY, Relaxed);
    }

    /// Enters a construct of so many members, of whom the first prepares it. S1, S2.
    pub fn open<W: Patience>(&self, construct: u32, size: u32, prepare: impl FnOnce()) {
        let free = construct.wrapping_mul(TURN);
        W::briefly(|| matches!(self.turn.load(Relaxed).wrapping_sub(free), 0 | READY));
        // ORDER: Acquire (S1), pairs with S3.
        if self.turn.load(Relaxed) == free
            && self.turn.compare_exchange(free, free | MADE, Acquire, Relaxed).is_ok()
        {
            self.inside.store(size, Relaxed);
            prepare();
            // ORDER: Release (S2), pairs with S1.
            self.turn.store(free | READY, Release);
        } else {
            // ORDER: Acquire (S1), pairs with S2.
            W::briefly(|| self.turn.load(Acquire) == free | READY);
        }
    }

    /// The last to leave cleans, and makes it free for the construct that comes a round of the ring later.
    /// S3.
    pub fn leave(&self, ring: u32, clean: impl FnOnce()) {
        // ORDER: AcqRel (S3), pairs with itself: what all did with it comes before.
        if self.inside.fetch_sub(1, AcqRel) == 1 {
            clean();
            let turn = self.turn.load(Relaxed) & !(TURN - 1);
            // ORDER: Release (S3), pairs with S1 of a round later.
            self.turn.store(turn.wrapping_add(ring * TURN), Release);
        }
    }
}

/// Beyond all iterations, and so that additions do not overflow.
const NONE_LEFT: u64 = 1 << 63;

/// What of a loop has been taken.
pub struct Iterations<P: Wide>(P::AtomicU64);

impl<P: Wide> Default for Iterations<P> {
    fn default() -> Self {
        Self(Atomic::new(0))
    }
}

/// From, to.
type Range = (u64, u64);

impl<P: Wide> Iterations<P> {
    /// None is taken, before others come.
    pub fn restart(&self) {
        self.0.store(0, Relaxed);
    }

    /// Nobody takes any more.
    pub fn cancel(&self) {
        self.0.store(NONE_LEFT, Relaxed);
    }

    /// After [`Iterations::cancel`]?
    pub fn are_cancelled(&self) -> bool {
        self.0.load(Relaxed) == NONE_LEFT
    }

    /// Changes the word by what `to` makes of it, unless that is nothing; what it was.
    #[inline]
    fn change(&self, to: impl Fn(u64) -> Option<u64>) -> Option<Range> {
        let mut next = self.0.load(Relaxed);
        loop {
            let end = to(next)?;
            match self.0.compare_exchange_weak(next, end, Relaxed, Relaxed) {
                Ok(_) => return Some((next, end)),
                Err(now) => next = now,
            }
        }
    }

    /// The next chunk of so many iterations in all, for one of so many members. T1.
    #[inline]
    pub fn take_chunk(&self, all: u64, chunk: u64, members: u64) -> Option<Range> {
        let chunk = chunk.max(1);
        // Each member takes one too many at most.
        match all.checked_add(chunk.saturating_mul(members)) {
            Some(sum) if sum < NONE_LEFT => {
                let first = self.0.fetch_add(chunk, Relaxed);
                (first < all).then(|| (first, first.saturating_add(chunk).min(all)))
            }
            _ => self.change(|next| (next < all).then(|| next.saturating_add(chunk).min(all))),
        }
    }

    /// The next part of what is left, a member's share, `least` iterations at least and in multiples of
    /// `multiple`. T1.
    pub fn take_guided(&self, all: u64, least: u64, multiple: u64, members: u64) -> Option<Range> {
        self.change(|next| {
            let left = all.checked_sub(next).filter(|&left| left > 0)?;
            let chunk = left.div_ceil(members).max(least.max(1)).min(left);
            Some(next + if multiple > 1 { chunk.next_multiple_of(multiple).min(left) } else { chunk })
        })
    }
}

/// Who is the first to come to a construct. The barrier at its end orders what it does.
pub struct First<P: Platform>(P::AtomicU32);

impl<P: Platform> Default for First<P> {
    fn default() -> Self {
        Self(Atomic::new(0))
    }
}

impl<P: Platform> First<P> {
    /// Is the caller the first of so many members to come to this construct?
    #[inline]
    pub fn is_first(&self, construct: u32, members: u32) -> bool {
        let next = construct.wrapping_add(1);
        if members == 1 {
            self.0.store(next, Relaxed);
            return true;
        }
        // With more than two the line is looked at before it is taken.
        (members == 2 || self.0.load(Relaxed) == construct)
            && self.0.compare_exchange(construct, next, Relaxed, Relaxed).is_ok()
    }

    /// As if new, while nobody is in a region.
    pub fn renew(&self) {
        self.0.store(0, Relaxed);
    }
}

/// What the first to come has made for all.
pub struct Slot<P: Platform, T: 'static>(P::AtomicPtr<T>, PhantomData<P>);

impl<P: Platform, T> Default for Slot<P, T> {
    fn default() -> Self {
        Self(Atomic::new(core::ptr::null_mut()), PhantomData)
    }
}

impl<P: Platform, T> Slot<P, T> {
    /// What is there, or null.
    #[inline]
    pub fn get(&self) -> *mut T {
        // ORDER: Acquire, pairs with the exchange.
        self.0.load(Acquire)
    }

    /// What is there, or what `make` makes; that is given to `discard` if somebody was faster.
    pub fn get_or(&self, make: impl FnOnce() -> *mut T, discard: impl FnOnce(*mut T)) -> *mut T {
        let there = self.get();
        if !there.is_null() {
            return there;
        }
        let made = make();
        // ORDER: Release, pairs with `get`; Acquire where it fails: who finds it finds what is in it.
        match self.0.compare_exchange(core::ptr::null_mut(), made, Release, Acquire) {
            Ok(_) => made,
            Err(first) => {
                discard(made);
                first
            }
        }
    }

    /// Empty, for those who come after the barrier that follows.
    pub fn empty(&self) {
        self.0.store(core::ptr::null_mut(), Relaxed);
    }
}
