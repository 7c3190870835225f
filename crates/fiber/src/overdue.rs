// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carriers whose fiber computes for long, while others wait for a seat.
//!
//! Nothing can be switched away between two safe points. So the sentinel treats such a carrier as a blocked
//! one: it takes the seat (U1 of `seats.rs`), and another carrier runs what waits. The kernel then shares the
//! processors among both, until the first one comes to a safe point and finds that it has no seat. So a
//! fiber that may run anywhere waits for some tens of ms, whatever the others do. One that is pinned to a
//! carrier that computes waits for that one. So a carrier that was seen so leaves those that are about to
//! begin to one that sleeps (D1 of `abode.rs`).
//!
//! The sentinel looks at the carriers' turns. While nothing waits it looks rarely, and never while nobody
//! runs. So a program whose fibers reach safe points has no carrier more than it has processors.
//!
//! Where what waits computes for long as well, nothing is gained by that, and fibers are pinned to more
//! carriers. So each replacement in vain doubles the pause before the next one.
//!
//! # Rejected
//! - No bound: fibers that each compute for longer than a look would all have a kernel thread at once.
//! - Turns of 15 ms: programs that only compute lost (`docs/design/fiber.md`).

use core::sync::atomic::Ordering::*;

use crate::carrier::Carrier;
use crate::runtime::Runtime;
use crate::seats::Awake;
use crate::sentinel;
use crate::turns::LONG_NS;

/// BOUND: while a carrier runs the sentinels look so often.
const RARELY_NS: u64 = 30_000_000;
/// And so often while something waits.
const OFTEN_NS: u64 = 10_000_000;
/// BOUND: for each seat so many carriers may run without one.
const MOST: u32 = 1;

impl Runtime {
    /// HINT: something could run, and there is no seat for it.
    fn lacks_seats(&self) -> bool {
        self.seats.is_full() && (self.seats.wanted() || self.has_work())
    }

    /// How long a sentinel may sleep.
    pub(crate) fn look_again_ns(&self) -> u64 {
        if !self.activates() || !self.all().any(|carrier| self.seats.holds(carrier.index)) {
            u64::MAX
        } else if self.lacks_seats() {
            OFTEN_NS
        } else {
            RARELY_NS
        }
    }

    /// By a sentinel: the seat of one that has been in a turn for long goes to who waits.
    pub(crate) fn look_at_turns(&'static self, me: &Carrier, now: u64) -> Option<Awake> {
        if now < self.turns_next.load(Relaxed) || !self.activates() {
            return None;
        }
        self.turns_next.store(now + OFTEN_NS / 2, Relaxed);
        let lacks = self.lacks_seats();
        let (mut longest, mut away) = (None, 0);
        for carrier in self.all() {
            let overdue = &carrier.overdue;
            if self.seats.holds(carrier.index) {
                overdue.replaced.store(false, Relaxed);
                longest = longest.max(Some((overdue.ns(carrier.turns.now(), now), carrier.index)));
            } else if lacks && overdue.replaced.load(Relaxed) && self.seats.is_away(carrier.index) {
                away += u32::from(!sentinel::is_blocked(carrier.thread.load(Relaxed)));
            }
        }
        let (ns, index) = longest.filter(|&(ns, _)| lacks && ns >= LONG_NS)?;
        if away >= MOST * self.seats.granted() || now < self.patience.next() {
            return None;
        }
        self.patience.replaces(now, now - ns);
        self.replace(me, self.carrier(index)?)
    }

    /// HINT: a carrier that sleeps, for a fiber that should not begin with one whose fibers compute for long.
    /// Or with one that has others, while low fibers have a processor that it could have.
    pub(crate) fn sleeper_for(&self, me: &Carrier) -> Option<&'static Carrier> {
        let low_one_has_it = || self.outranks() && !self.seats.is_full();
        if !low_one_has_it() && !me.overdue.is_usual(sentinel::now_ns()) {
            return None;
        }
        let sleeps = |other: &&Carrier| {
            self.seats.is_asleep(other.index) && !other.overdue.is_usual(sentinel::now_ns())
        };
        self.all().filter(sleeps).min_by_key(|other| other.residents.count())
    }

    /// U1, U3: as in the upcall.
    fn replace(&'static self, me: &Carrier, carrier: &'static Carrier) -> Option<Awake> {
        // ORDER: AcqRel, Release: what one sentinel did to the event comes before the next one's.
        if carrier.watched.swap(true, AcqRel) {
            return None;
        }
        let mut mine = false;
        if self.seats.take(carrier.index) {
            carrier.overdue.replaced.store(true, Relaxed);
            mine = self.hand_on(me, None);
            // Without a seat it is silenced, too, and that ends it.
            while carrier.silence() {
                if self.seats.take(carrier.index) {
                    mine |= self.hand_on(me, None);
                }
            }
        }
        carrier.watched.store(false, Release);
        mine.then_some(Awake::Seated)
    }
}
