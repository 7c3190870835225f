// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a sentinel looks at carriers: the upcall "has blocked", and the looks without one.
//!
//! Who has just become a sentinel looks at all carriers in memory. Then a block of which the kernel's word is
//! on its way is found before that word. Where there are many seats, a word of each carrier takes too long.
//! Epoll has the words of those that are heard. So only the others are looked at then, and all of them
//! once a second. And each carrier that lies down asks epoll, too.

use core::sync::atomic::Ordering::*;

use crate::carrier::Carrier;
use crate::runtime::Runtime;
use crate::seats::Awake;
use crate::sentinel::{self, Event, HEARD};

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

    /// HINT: where a search for new fibers begins, where there are many seats.
    pub(crate) fn rich(&self) -> Option<&'static Carrier> {
        if self.is_large() { self.carrier(self.rich.load(Relaxed)) } else { None }
    }

    /// A new fiber was taken from this carrier.
    pub(crate) fn note_rich(&self, carrier: u32) {
        if self.is_large() && self.rich.load(Relaxed) != carrier {
            self.rich.store(carrier, Relaxed);
        }
    }

    /// How many events a sentinel takes at once. Where there are many carriers, who hears one mostly leaves
    /// for a fiber. Others hear the next.
    pub(crate) fn heard_together(&self) -> usize {
        if self.is_large() { 1 } else { HEARD }
    }

    /// By a carrier that is about to sleep. Where there are many, those who stand sentinel may wait for a
    /// processor. So it hears what there is, without waiting.
    pub(crate) fn glance(&'static self, me: &Carrier) -> Option<Awake> {
        let mut again = self.is_large() && self.activates();
        while again {
            again = false;
            let awake = self.sentinel.sleep(
                0,
                1,
                || {},
                |event| {
                    match event {
                        // That was for one of them.
                        Event::Called => self.sentinel.ring(),
                        Event::Deaf => {}
                        event => {
                            again = true;
                            return self.hear(me, event);
                        }
                    }
                    None
                },
            );
            if awake.is_some() {
                return awake;
            }
        }
        None
    }

    /// The first look of a new sentinel. The last look at all was at `looked`, and another one is due so long
    /// after that.
    pub(crate) fn look_first(&'static self, me: &Carrier, every: u64) -> Option<Awake> {
        let due = || sentinel::now_ns() >= self.looked.load(Relaxed) + every;
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
        self.all().fold(None, |found, carrier| found.or_else(|| self.has_switched(me, carrier.index)))
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
        // Who comes second does not touch the event: the first relies on what it says.
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
            if !alone || !carrier.silence() || !sentinel::is_blocked(carrier.thread.load(Relaxed)) {
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
