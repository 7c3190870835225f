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
pub const LONG_NS: u64 = 50_000_000;
/// BOUND: pinned fibers are kept from a carrier that has been in one turn for so long.
const VERY_LONG_NS: u64 = 3 * LONG_NS;
/// BOUND: so long a carrier is known for it.
const MEMORY_NS: u64 = 5_000_000_000;

/// What the sentinels have seen of a carrier.
#[derive(Default)]
pub struct Overdue {
    turn: AtomicU32,
    since: AtomicU64,
    /// Its seat went to another one for that.
    pub replaced: AtomicBool,
    /// When it was last seen in a turn that took very long.
    long_at: AtomicU64,
}

impl Overdue {
    /// HINT: for how long has it been in this turn?
    pub fn ns(&self, turn: u32, now: u64) -> u64 {
        if self.turn.swap(turn, Relaxed) != turn || self.since.load(Relaxed) == 0 {
            self.since.store(now, Relaxed);
        }
        let ns = now.saturating_sub(self.since.load(Relaxed));
        if ns >= VERY_LONG_NS {
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

/// BOUND: where it was in vain once or always, the next one is replaced so much later.
const LEAST_PAUSE_NS: u64 = 20_000_000;
const MOST_PAUSE_NS: u64 = 1_000_000_000;

/// Where what waits computes for long as well, there is nothing to gain. So the pause until the next carrier
/// is replaced grows then, and shrinks where it was not so.
#[derive(Default)]
pub struct Patience {
    replaced_at: AtomicU64,
    pause: AtomicU64,
}

impl Patience {
    /// When a carrier may be replaced.
    pub fn next(&self) -> u64 {
        self.replaced_at.load(Relaxed) + self.pause.load(Relaxed)
    }

    /// Of all who have seats, one that is replaced is in its turn longest: since then.
    pub fn replaces(&self, now: u64, since: u64) {
        let last = self.replaced_at.swap(now, Relaxed);
        let pause = self.pause.load(Relaxed);
        // So who got the seat last time is in a long turn, or one that came after that.
        let in_vain = last != 0 && since > last;
        let pause = if in_vain { (2 * pause).clamp(LEAST_PAUSE_NS, MOST_PAUSE_NS) } else { pause / 2 };
        self.pause.store(pause, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_vain_is_done_rarely() {
        let patience = Patience::default();
        let mut now = LONG_NS;
        patience.replaces(now, 0);
        assert_eq!(patience.next(), now, "one time tells nothing");
        let pauses = [1, 2, 4, 8, 16, 32, 50, 50].map(|times| times * LEAST_PAUSE_NS);
        for pause in pauses {
            let since = now + 1;
            now += LONG_NS + pause;
            patience.replaces(now, since);
            assert_eq!(patience.next(), now + pause);
        }
        // A turn from before the last replacement is not of the carrier that got that seat.
        patience.replaces(now + MOST_PAUSE_NS, now - 1);
        assert_eq!(patience.next(), now + MOST_PAUSE_NS + MOST_PAUSE_NS / 2);
    }
}
