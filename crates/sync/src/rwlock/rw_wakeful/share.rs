// SPDX-License-Identifier: MIT OR Apache-2.0
//! Does it pay that several threads use the lock by turns? What the lock has learned of that: hints all.
//!
//! A thread that comes back at once has the lock and the data in its cache. If another one gets in between,
//! both move. What that costs depends on the section and on the machine: two virtual processors may be
//! neighbours, or far from each other, and that changes while they run. So the lock counts and compares:
//!
//! - the *pace*: how often the others use the lock while the front only looks;
//! - how often it is used while threads share.
//!
//! | step | what happens |
//! |---|---|
//! | H1 | A front finds the lock used (F1): threads share it for `SHARED_MS`, unless H3 or others say no. |
//! | H2 | After W0, W1: the uses since the last H2. What the pace exceeds them is a debt; more pay it off. |
//! | H3 | The debt is `DEBT_MOST` uses: for `alone_ms` the lock is for one *alone*. Then H1 tries again. |
//!
//! While the lock is for one alone, arrivals go into line at once, and the front naps for a turn.
//!
//! VERSION counts modulo 64. If the pace makes more than `TOLD` uses between two H2, the difference cannot be
//! told, and is left out: threads seldom meet, or one had no processor, or a use costs three times as much.
//!
//! A pace below `HOT` is not compared: threads share such a lock. It would come out too high, because a front
//! that sees no use tells nothing. Beside other programs a hot lock is for one alone: there processor time is
//! short, and sharing takes more of it for each section. So is one on more than `FEW` processors, where
//! nothing is learned.
//!
//! Why it is so, and what it gains: `docs/design/rwlock.md`.

use platform::{Atomic, Ordering::*, Readers};

use super::Wakeful;
use super::limits::{self, COUNTED, DEBT_MOST, FEW, HOT, TOLD};
use super::word::{VERSION_SHIFT, VERSIONS};
use crate::wait::{Preemption, look};

// In `front`, above its lowest 16 bits: the debt; the ms of H1 or H3, 0: none; ALONE.
const DEBT_SHIFT: u32 = 16;
const DEBT: u32 = 0x3ff << DEBT_SHIFT;
const SINCE_SHIFT: u32 = 26;
const SINCE: u32 = 0x1f << SINCE_SHIFT;
const ALONE: u32 = 1 << 31;
/// All of them.
pub const LEARNED: u32 = DEBT | SINCE | ALONE;

// In `last`: the version and the time of the last H2, and the pace.
const TIME_SHIFT: u32 = 6;
const TIME: u32 = 0x3_ffff << TIME_SHIFT;
const PACE_SHIFT: u32 = 24;
const PACE: u32 = 0xff << PACE_SHIFT;
/// A unit of time, as a power of two of ns.
const UNIT: u32 = 4;

/// What the lock gained by sharing, in uses, if it was used so often and `alone` is what the pace makes. The
/// uses are known modulo 64 only.
fn gained(uses: u32, alone: u32) -> i32 {
    let less = TOLD - COUNTED;
    (uses.wrapping_sub(alone).wrapping_add(less) % VERSIONS) as i32 - less as i32
}

/// The debt after that.
fn owed(debt: u32, gained: i32, most: u32) -> u32 {
    debt.saturating_add_signed(-gained).min(most)
}

/// How long ago that was, in ms.
fn ms_since(front: u32, now: u64) -> u32 {
    ((now >> 20) as u32).wrapping_sub(front >> SINCE_SHIFT) & (SINCE >> SINCE_SHIFT)
}

/// Never 0: rather a unit too early.
fn since(now: u64) -> u32 {
    match (now >> 20) as u32 & (SINCE >> SINCE_SHIFT) {
        0 => SINCE,
        ms => ms << SINCE_SHIFT,
    }
}

impl<P: Readers, N: Preemption> Wakeful<P, N> {
    /// W0. Sharing was tried, lately or not, and has not been found to lose.
    pub(super) fn seems_shared(&self) -> bool {
        let front = self.front.load(Relaxed);
        front & ALONE == 0 && front & SINCE != 0 && P::processors() <= FEW
    }

    /// W1. Sharing was tried lately, and has not been found to lose.
    pub(super) fn shared(&self, now: u64) -> bool {
        let front = self.front.load(Relaxed);
        front & ALONE == 0 && front & SINCE != 0 && ms_since(front, now) <= limits::SHARED_MS
    }

    /// F3, H3. Sharing was found to lose, lately, or other programs want the processors. By the front, at the
    /// end of H1 or H3, which has counted so many uses.
    pub(super) fn is_for_one(&self, uses: u32, now: u64) -> bool {
        let front = self.front.load(Relaxed);
        let alone = front & ALONE != 0 && ms_since(front, now) < limits::alone_ms::<P>();
        if !alone && front & (SINCE | ALONE) != 0 {
            // Some ms later it would look as if it had begun lately.
            self.front.store(front & !(SINCE | ALONE), Relaxed);
        }
        // More processors may do the same together without any of them being that fast.
        let hot = uses >= HOT.min(P::PAUSES) * (P::processors() - 1).max(1);
        let others = hot && (P::processors() > FEW || look::is_beside_others::<N, P>(now));
        let last = self.last.load(Relaxed);
        if others && last & PACE != 0 {
            // There is nothing to compare with.
            let _ = self.last.compare_exchange(last, last & !PACE, Relaxed, Relaxed);
        }
        uses > 0 && alone || others
    }

    /// F1. The front has counted so many uses.
    pub(super) fn pace(&self, uses: u32) {
        if uses == 0 || P::processors() > FEW {
            return;
        }
        let last = self.last.load(Relaxed);
        let pace = last >> PACE_SHIFT;
        let new = if pace == 0 { uses } else { (3 * pace + uses + 2) / 4 };
        let _ =
            self.last.compare_exchange(last, last & !PACE | new.min(0xff) << PACE_SHIFT, Relaxed, Relaxed);
    }

    /// H1. By the front.
    pub(super) fn may_share(&self, now: u64) {
        let front = self.front.load(Relaxed);
        self.front.store(front & !(SINCE | ALONE) | since(now), Relaxed);
    }

    /// H2. The thread may hold the lock by now, so this is not done each time.
    pub(super) fn learn(&self) {
        let version = self.state.load(Relaxed) >> VERSION_SHIFT;
        let last = self.last.load(Relaxed);
        let (uses, pace) = (version.wrapping_sub(last) % VERSIONS, last >> PACE_SHIFT);
        if uses < COUNTED.min(P::PAUSES) || pace < HOT.min(P::PAUSES) || P::processors() > FEW {
            return;
        }
        let time = (P::now_ns() >> UNIT) as u32 & (TIME >> TIME_SHIFT);
        let new = last & PACE | time << TIME_SHIFT | version;
        if self.last.compare_exchange(last, new, Relaxed, Relaxed).is_err() {
            return;
        }
        let span = u64::from(time.wrapping_sub(last >> TIME_SHIFT) & (TIME >> TIME_SHIFT)) << UNIT;
        let sample = limits::sample::<P>().max(1);
        let alone = (u64::from(pace) * span + sample) / (2 * sample);
        if alone <= TOLD.into() {
            self.settle(gained(uses, alone as u32));
        }
    }

    fn settle(&self, gained: i32) {
        let front = self.front.load(Relaxed);
        let old = (front & DEBT) >> DEBT_SHIFT;
        let most = DEBT_MOST.min(P::PAUSES);
        let debt = owed(old, gained, most);
        if front & ALONE != 0 || debt == old {
            return;
        }
        let learned = match debt == most {
            true => ALONE | since(P::now_ns()),
            false => front & SINCE | debt << DEBT_SHIFT,
        };
        let _ = self.front.compare_exchange(front, front & !LEARNED | learned, Relaxed, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_is_told_from_a_loss_modulo_64() {
        const { assert!(2 * TOLD <= VERSIONS + COUNTED) };
        for alone in 0..=TOLD {
            for uses in COUNTED..alone + VERSIONS - TOLD + COUNTED {
                assert_eq!(gained(uses % VERSIONS, alone), uses as i32 - alone as i32, "{alone}");
            }
        }
    }

    #[test]
    fn losses_add_up_and_gains_pay_them_off() {
        assert_eq!(owed(10, -5, DEBT_MOST), 15);
        assert_eq!(owed(10, 30, DEBT_MOST), 0);
        assert_eq!(owed(DEBT_MOST - 1, -5, DEBT_MOST), DEBT_MOST);
        const { assert!(DEBT_MOST <= DEBT >> DEBT_SHIFT && limits::SHARED_MS < SINCE >> SINCE_SHIFT) };
    }
}
