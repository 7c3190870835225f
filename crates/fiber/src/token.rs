// SPDX-License-Identifier: MIT OR Apache-2.0
//! The token of park and unpark.
//!
//! # State
//! `EMPTY` (runs, nobody unparked it), `GIVEN` (unparked), `PARKED` (its context is saved: whoever gives the
//! token makes it ready), `ASLEEP` (its kernel thread sleeps on the word). `EMPTY -> GIVEN -> EMPTY`,
//! `EMPTY -> PARKED -> EMPTY`, `EMPTY -> ASLEEP -> GIVEN`. Beside it `unparked`: 1 if somebody called unpark
//! since the owner last returned from park.
//!
//! # Invariants
//! - I1. Only the owner leaves EMPTY for PARKED or ASLEEP, and only the owner takes the token.
//! - I2. For each step from PARKED one giver makes the owner ready, and only that one.
//! - I3. The token only says "look again": each wait looks at a word of its own. So any wait may take any
//!   token. The word of park is `unparked`, which only park takes.
//!
//! # Protocol
//! - K1. Take: if GIVEN, swap EMPTY. K2. Else the owner switches away, and after the switch its carrier
//!   compares EMPTY with PARKED. If that fails the token is there, and the owner runs on.
//! - G1. Give: PARKED -> EMPTY, and make the owner ready: it looks again anyway, and has no token to take.
//!   G2. Else swap GIVEN. If it was ASLEEP wake the word; if it is PARKED by now make the owner ready.
//! - N1. Unpark: swap `unparked` to 1, then G1 or G2. N2. Park: until `unparked` can be swapped to 0, K1 or
//!   K2.
//!
//! # Memory order
//! G2 release -> K1 acquire publishes what the giver did; after G1 the queue does by which the owner is
//! ready. K2 release -> G1, G2 acquire publishes the saved context to whoever runs the owner next. N1 release
//! -> N2 acquire publishes what each unparker did: all of them swap. Who took the token of N1 by K1 sees
//! `unparked`.
//!
//! # Under the scheduler
//! A giver preempted after G1 or G2 delays the owner, as any waker would. Memory of owners is never returned,
//! so a late giver at worst gives a stranger a token, who sees a wake-up without a cause.
//!
//! # Fairness and space
//! 8 bytes. Tokens do not add up.
//!
//! # Rejected
//! G2 alone: then the owner takes a token after each wait, by one more locked instruction. A plain store at
//! K1: it may wipe out a second giver's token whose writes the owner has not seen. One word for unpark and
//! all other waits: a lock or a sleep between unpark and park takes what park waits for.
//!
//! # Checked by
//! `conformance`: loom, shuttle; twins that park before the switch, that store, that look and then store at
//! G1, that have one word, and that give before they say so, are caught.

use platform::{Atomic, Ordering::*, Platform};

const EMPTY: u32 = 0;
const GIVEN: u32 = 1;
const PARKED: u32 = 2;
const ASLEEP: u32 = 3;

/// See the head of this file.
pub struct Token<P: Platform> {
    word: P::AtomicU32,
    unparked: P::AtomicU32,
}

impl<P: Platform> Default for Token<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform> Token<P> {
    /// Not given.
    pub fn new() -> Self {
        Self { word: Atomic::new(EMPTY), unparked: Atomic::new(0) }
    }

    /// A new owner has it. A late giver may be at it.
    pub fn reset(&self) {
        self.word.store(EMPTY, Relaxed);
        self.unparked.store(0, Relaxed);
    }

    /// Where the word lies, for debuggers.
    pub const WORD: usize = core::mem::offset_of!(Self, word);

    /// For people.
    pub fn word(&self) -> u32 {
        self.word.load(Relaxed)
    }

    /// HINT: does the owner wait?
    pub fn waits(&self) -> bool {
        matches!(self.word.load(Relaxed), PARKED | ASLEEP)
    }

    /// K1. By the owner.
    #[inline]
    pub fn take(&self) -> bool {
        // ORDER: Acquire (K1), pairs with G2.
        self.word.load(Relaxed) == GIVEN && self.word.swap(EMPTY, Acquire) == GIVEN
    }

    /// K2. By the carrier, when the owner's context is saved; true if the owner is parked now.
    #[inline]
    pub fn settle(&self) -> bool {
        // ORDER: Release (K2), pairs with G1 and G2; publishes the saved context.
        self.word.compare_exchange(EMPTY, PARKED, Release, Relaxed).is_ok()
    }

    /// G1, G2. True: the caller makes the owner ready.
    #[inline]
    #[must_use]
    pub fn give(&self) -> bool {
        // ORDER: Acquire (G1), pairs with K2.
        self.word.compare_exchange(PARKED, EMPTY, Acquire, Relaxed).is_ok() || self.give_slow()
    }

    /// G2.
    fn give_slow(&self) -> bool {
        // ORDER: AcqRel (G2), pairs with K1 and K2.
        match self.word.swap(GIVEN, AcqRel) {
            PARKED => true,
            ASLEEP => {
                P::wake(&raw const self.word, 1);
                false
            }
            _ => false,
        }
    }

    /// N1. True: the caller makes the owner ready.
    #[inline]
    #[must_use]
    pub fn unpark(&self) -> bool {
        // ORDER: Release (N1), pairs with N2.
        self.unparked.swap(1, Release);
        self.give()
    }

    /// N2. By the owner.
    #[inline]
    pub fn take_unpark(&self) -> bool {
        // ORDER: Acquire (N2), pairs with N1.
        self.unparked.load(Relaxed) != 0 && self.unparked.swap(0, Acquire) != 0
    }

    /// The owner waits as a kernel thread, for a fiber that may not switch.
    pub fn sleep(&self) {
        while !self.take() {
            if self.word.compare_exchange(EMPTY, ASLEEP, Relaxed, Relaxed).is_ok() {
                P::wait(&self.word, ASLEEP, None);
                // Nobody gave it: a signal.
                let _ = self.word.compare_exchange(ASLEEP, EMPTY, Relaxed, Relaxed);
            }
        }
    }
}
