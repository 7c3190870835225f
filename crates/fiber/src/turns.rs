// SPDX-License-Identifier: MIT OR Apache-2.0
//! The turns of a carrier. Every ROUND turns it looks at what it has left alone. [`Overdue`] is what the
//! sentinels know of how long a turn takes; `overdue.rs` acts on it.
//!
//! Only the carrier counts, by a load and a store. A sentinel that ends a round sets the low bits by an
//! atomic or. If the carrier is counting just then, that is lost: so the sentinel says it again a second
//! later, as long as there is a reason. Checked by `conformance`, loom and shuttle: a twin that says it once
//! is caught.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use platform::{Atomic, AtomicInt, Ordering::*, Platform};

/// See the head of this file. ROUND is a power of two.
pub struct Turns<P: Platform, const ROUND: u32>(P::AtomicU32);

impl<P: Platform, const ROUND: u32> Default for Turns<P, ROUND> {
    fn default() -> Self {
        const { assert!(ROUND.is_power_of_two()) };
        Self(Atomic::new(0))
    }
}

impl<P: Platform, const ROUND: u32> Turns<P, ROUND> {
    /// By the carrier: its next turn.
    #[inline]
    pub fn next(&self) -> u32 {
        let turn = self.0.load(Relaxed).wrapping_add(1);
        self.0.store(turn, Relaxed);
        turn
    }

    /// By the carrier, within a turn: counts one more, unless a round is over with that one.
    #[inline]
    pub fn nest(&self) -> bool {
        let turn = self.0.load(Relaxed).wrapping_add(1);
        let nests = !Self::ends_round(turn);
        if nests {
            self.0.store(turn, Relaxed);
        }
        nests
    }

    /// HINT: which turn it is.
    pub fn now(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Is a round over with this turn?
    #[inline]
    pub fn ends_round(turn: u32) -> bool {
        turn.is_multiple_of(ROUND)
    }

    /// By a sentinel: a round is over with the next turn. HINT: the carrier may be counting just now.
    pub fn end_round(&self) {
        self.0.fetch_or(ROUND - 1, Relaxed);
    }
}

/// BOUND: a carrier in whose place another one is to run has been in one turn for so long.
pub const LONG_NS: u64 = 15_000_000;
/// BOUND: so long a carrier is known for it.
const MEMORY_NS: u64 = 5_000_000_000;

/// What the sentinels have seen of a carrier.
#[derive(Default)]
pub struct Overdue {
    turn: AtomicU32,
    since: AtomicU64,
    /// Its seat went to another one for that.
    pub replaced: AtomicBool,
    /// When it was last seen in a turn that took long.
    long_at: AtomicU64,
}

impl Overdue {
    /// HINT: for how long has it been in this turn?
    pub fn ns(&self, turn: u32, now: u64) -> u64 {
        if self.turn.swap(turn, Relaxed) != turn || self.since.load(Relaxed) == 0 {
            self.since.store(now, Relaxed);
        }
        let ns = now.saturating_sub(self.since.load(Relaxed));
        if ns >= LONG_NS {
            self.long_at.store(now, Relaxed);
        }
        ns
    }

    /// HINT: does a fiber there compute for long, now and then?
    pub fn is_usual(&self, now: u64) -> bool {
        let at = self.long_at.load(Relaxed);
        at != 0 && now.saturating_sub(at) < MEMORY_NS
    }
}
