// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a sentinel looks at carriers: the upcall "has blocked", and the looks without one.
//!
//! A new sentinel looks at all carriers in memory. So it finds a block before the kernel's word of it
//! comes. Where there are many seats, a word of each carrier takes too long. Epoll has the words of those
//! that are heard. So only the others are looked at then. All are looked at once a second, and each 2 ms
//! while one runs of which the kernel does not tell. And each carrier that lies down hears what epoll has,
//! until it is told something itself.
//!
//! It may be preempted between such a word and what it does about it. Then this word, and the next one of
//! that carrier, is late by a slice, as a sentinel is that waits for a processor.

use core::sync::atomic::Ordering::*;

use crate::carrier::Carrier;
use crate::record::Fiber;
use crate::runtime::{Runtime, SECOND_NS};
use crate::seats::Awake;
use crate::sentinel::{self, Event, HEARD, LOOK_NS};

/// All searches may begin at one carrier that always has new fibers. So those of rounds begin elsewhere, each
/// third one, which looks at others' fibers first, one further. BOUND: so a thief comes to each carrier's
/// within three rounds a carrier.
fn step_of_round(round: u32) -> u32 {
    round / 3
}

impl Runtime {
    /// HINT: does a carrier run that the kernel says nothing of?
    pub(crate) fn has_unheard(&self) -> bool {
        self.unheard.load(Relaxed)
            && self.activates()
            && self.all().any(|carrier| !carrier.is_heard() && self.seats.holds(carrier.index))
    }

    /// HINT: are there so many seats that a look at each carrier takes too long?
    fn is_large(&self) -> bool {
        self.many_seats.load(Relaxed)
    }

    /// HINT: where a search for new fibers begins that finds any, where there are many seats.
    pub(crate) fn rich(&self) -> Option<&'static Carrier> {
        if self.is_large() { self.carrier(self.rich.load(Relaxed)) } else { None }
    }

    /// A new fiber for a carrier that has none.
    pub(crate) fn steal_any(&self, me: u32) -> Option<*mut Fiber> {
        let rich = self.rich();
        let (other, fiber) = self.steal(me, rich.map_or(me + 1, |carrier| carrier.index))?;
        if rich.is_some_and(|carrier| carrier.index != other) {
            self.rich.store(other, Relaxed);
        }
        Some(fiber)
    }

    /// The same in this round, so that those of each carrier begin.
    pub(crate) fn steal_in_round(&self, me: u32, round: u32) -> Option<*mut Fiber> {
        let step = if self.is_large() { step_of_round(round) } else { 0 };
        Some(self.steal(me, me + 1 + step)?.1)
    }

    /// How many events a sentinel takes at once. Where there are many seats, who hears one mostly leaves
    /// for a fiber. Others hear the next.
    pub(crate) fn heard_together(&self) -> usize {
        if self.is_large() { 1 } else { HEARD }
    }

    /// By a carrier that is about to sleep. Where there are many, those who stand sentinel may wait for a
    /// processor. So it hears what there is, without waiting, until it has a seat itself.
    pub(crate) fn glance(&'static self, me: &Carrier) -> Option<Awake> {
        let mut again = self.is_large() && self.activates();
        let (mut awake, mut called) = (None, false);
        while again && awake.is_none() && !self.seats.is_told(me.index) {
            again = false;
            awake = self.sentinel.sleep(
                0,
                1,
                || {},
                |event| {
                    again = event != Event::Deaf;
                    called |= event == Event::Called;
                    match event {
                        Event::Switched(_) | Event::Timer => self.hear(me, event),
                        Event::Called | Event::Deaf => None,
                    }
                },
            );
        }
        if called {
            // That was for a sentinel. Before, it would be heard here again.
            self.sentinel.ring();
        }
        awake
    }

    /// All carriers are looked at so often.
    pub(crate) fn look_every_ns(&self) -> u64 {
        if self.has_unheard() { LOOK_NS } else { SECOND_NS }
    }

    /// The first look of a new sentinel.
    pub(crate) fn look_first(&'static self, me: &Carrier) -> Option<Awake> {
        let due = || sentinel::now_ns() >= self.looked.load(Relaxed) + self.look_every_ns();
        if !self.is_large() || due() {
            return self.look_at_all(me);
        }
        if !self.activates() || !self.unheard.load(Relaxed) {
            return None;
        }
        let unheard = self.all().filter(|carrier| !carrier.is_heard());
        unheard.fold(None, |found, carrier| found.or_else(|| self.has_switched(me, carrier.index)))
    }

    pub(crate) fn look_at_all(&'static self, me: &Carrier) -> Option<Awake> {
        self.looked.store(sentinel::now_ns(), Relaxed);
        if !self.activates() {
            return None;
        }
        // Where there are many, this look is for the whole second: it does not end at the first one. More
        // seats than one go to others (`hand_on`).
        let all = self.is_large();
        self.all().fold(None, |found, carrier| match found {
            Some(_) if !all => found,
            _ => found.or(self.has_switched(me, carrier.index)),
        })
    }

    /// The upcall. If this carrier has blocked, its seat goes to whoever has work for it.
    pub(crate) fn has_switched(&'static self, me: &Carrier, carrier: u32) -> Option<Awake> {
        let carrier = self.carrier(carrier)?;
        if !self.seats.holds(carrier.index) {
            return None;
        }
        if !carrier.is_blocked() {
            return None;
        }
        // The second one does not touch the event: the first relies on what it says.
        // ORDER: AcqRel, Release: what one sentinel did to the event comes before the next one's.
        let alone = !carrier.watched.swap(true, AcqRel);
        let mut mine = false;
        loop {
            // Before others may have its seat: then it listens again.
            let blocked = carrier.blocked_at();
            if !self.seats.take(carrier.index) {
                break;
            }
            mine |= self.hand_on(me, blocked);
            if alone && mine && me.handed.get().is_null() {
                me.handed.set(carrier.new_if_blocked());
            }
            if !alone || !carrier.silence() {
                break;
            }
        }
        if alone {
            carrier.watched.store(false, Release);
        }
        mine.then_some(Awake::Seated)
    }

    /// A seat was taken. True: the caller has it now, and runs a fiber.
    pub(crate) fn hand_on(&'static self, me: &Carrier, blocked: Option<u64>) -> bool {
        self.taken.fetch_add(1, Relaxed);
        let wanted = self.seats.wanted();
        let mine = self.has_work() && !wanted && !self.seats.holds(me.index);
        if let Some(since) = blocked
            && (mine || wanted || self.has_work())
        {
            self.was_idle(since, sentinel::now_ns());
        }
        self.rouse(if mine { self.seats.accept(me.index) } else { self.seats.surrender() });
        if self.has_work() {
            self.invite();
        }
        mine
    }
}

#[cfg(test)]
mod tests {
    use super::step_of_round;

    /// In the rounds that begin with other carriers' fibers, the search begins at each.
    #[test]
    fn rounds_begin_everywhere() {
        for count in 2..100 {
            let begin = |round| (1 + step_of_round(round)) % count;
            let begun: Vec<u32> = (0..count).map(|number| begin(2 + 3 * number)).collect();
            assert!((0..count).all(|carrier| begun.contains(&carrier)), "{count}: {begun:?}");
        }
    }
}
