// SPDX-License-Identifier: MIT OR Apache-2.0
//! The seats: who may run fibers. The paper's virtual processors, the upcalls between them, and their sleep.
//!
//! A *carrier* is a kernel thread that runs fibers. A *seat* is the right to run; there are as many as
//! processors were granted. The *sentinel* hears from the kernel that a carrier blocked, and takes its seat.
//!
//! # State
//! Each carrier has a word: `NONE` (awake, no seat), `HELD`, `ASLEEP` (no seat, sleeps or is about to),
//! `CALLED` (as ASLEEP, and to become the sentinel). Under `lock`: `free` seats, `debt` (seats to be given
//! up), `asleep` (carriers with nothing to do), `wanting` (carriers with something to do, longest first).
//! `open`: FREE if `free` is not 0, WANTED if `wanting` or `debt` is not empty. HINT outside the lock.
//!
//! ```text
//!            take (sentinel)             want: a free seat
//!   HELD ----------------------> NONE -----------------------> HELD
//!    | lie_down, pass                \ want: none free
//!    '----------------> ASLEEP <------'      ASLEEP -- invite, kick, give back --> HELD
//! ```
//!
//! # Invariants
//! - I1. Words that are HELD, seats in the hand of a sentinel between `take` and `accept` or `surrender`, and
//!   `free` are together the seats granted plus `debt`.
//! - I2. A carrier in `asleep` or `wanting` is ASLEEP or CALLED, and in one of the two only.
//! - I3. While work is published and `free` is not 0, somebody who is awake will look for work or invite.
//!
//! # Protocol
//! - U1. Take (the upcall "has blocked"): HELD -> NONE by compare-and-swap. The victim leaves HELD the same
//!   way, so the seat goes to one of the two.
//! - U2. The victim (the upcall "has unblocked" is that it runs) finds NONE at its next safe point, and wants
//!   a seat.
//! - U3. Silence: after U1 the sentinel disables the victim's event, which costs each block an interrupt, and
//!   forgets its newest record. If the victim has a seat again, the sentinel enables the event. If the victim
//!   has left that seat by then, U3 begins again. Else the sentinel looks whether the victim has blocked.
//! - U4. A carrier enables its event when it has a seat, and disables it when it lies down.
//! - S1. Sleep: give the seat back, ASLEEP, into `asleep`; heavy fence; S2. look for work; if there is any,
//!   S3. take a free seat, if one is left, and stay. If none is left, and the work is pinned here: want one.
//! - W1. Publish work; light fence; W2. if FREE, give a free seat to a sleeper.
//! - B1. Pinned work for one carrier: publish; light fence; B2. if it sleeps, give it a seat or let it want.
//!
//! # Memory order
//! S1 and W1 (B1) are Dekker's two sides. So are U3 and U4, by the kernel's lock of the event: who enables
//! comes after who disables, or U3 sees HELD. A carrier that lies down leaves HELD before it disables: U3
//! sees that, or the carrier is the last to disable. HELD is stored with release, and its carrier reads it
//! with acquire. U1 publishes nothing. The rest is the lock's.
//!
//! # Under the scheduler
//! - *Victim runs again before U1*: it lost its seat all the same, and goes on until its next safe point.
//! - *Holder of the lock preempted*: others sleep on the lock. Spawning is not concerned unless FREE.
//! - *A wrong word from the kernel*: a seat changes hands for nothing.
//!
//! # Fairness and space
//! `wanting` is first come, first served. Who holds a seat while WANTED passes it on after its quantum.
//!
//! # Rejected
//! Handing the carrier's queue over with the seat: the victim may be blocked inside a push.
//!
//! # Checked by
//! `conformance`: loom, shuttle. Caught twins: a take in two steps (delivered twice), a sleeper that does not
//! look again (lost), a victim that forgets to give its seat back; U3 without its looks at the seat, at the
//! block, without the second look, or with the old record; U4 before there is a seat.

use core::cell::UnsafeCell;
use std::collections::VecDeque;

use platform::{Atomic, AtomicInt, Ordering::*};
use sync::mutex::{Native, RawMutex};

use crate::fences::Fences;
use crate::posts;

const NONE: u32 = 0;
const HELD: u32 = 1;
const ASLEEP: u32 = 2;
const CALLED: u32 = 3;

/// BOUND: of so many sleepers the load is compared.
const MOST: usize = 8;

const FREE: u32 = 1;
const WANTED: u32 = 2;

/// What [`Seats::invite`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invited {
    /// No seat is free.
    Nobody,
    /// This carrier has a seat now, and must be woken.
    Carrier(u32),
    /// The caller has the seat, for a new carrier.
    Newcomer,
}

/// What [`Seats::call`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// Nobody sleeps.
    Nobody,
    /// Somebody was called before and is on its way.
    Before,
    /// This one was called, and must be woken.
    Carrier(u32),
}

/// Why [`Seats::sleep`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awake {
    /// It has a seat.
    Seated,
    /// It had one, and lost it before it woke.
    Lost,
    /// It is to be the sentinel.
    Called,
}

/// A line of its own: its carrier looks at each safe point.
#[repr(align(64))]
struct Seat<P: Fences> {
    word: P::AtomicU32,
}

struct Lists {
    free: u32,
    debt: u32,
    granted: u32,
    /// Who was called last: no other word is CALLED. `u32::MAX`: nobody yet.
    called: u32,
    asleep: Vec<u32>,
    wanting: VecDeque<u32>,
}

/// See the head of this file.
pub struct Seats<P: Fences> {
    open: P::AtomicU32,
    lock: Native<P>,
    lists: UnsafeCell<Lists>,
    seats: Box<[Seat<P>]>,
}

// SAFETY: `lists` is used under `lock` only; the rest are atomics.
unsafe impl<P: Fences> Sync for Seats<P> {}
// SAFETY: as above.
unsafe impl<P: Fences> Send for Seats<P> {}

impl<P: Fences> Seats<P> {
    /// So many free seats, for at most `carriers`.
    pub fn new(granted: u32, carriers: usize) -> Self {
        let lists = Lists {
            free: granted,
            debt: 0,
            granted,
            called: u32::MAX,
            asleep: Vec::with_capacity(carriers),
            wanting: VecDeque::with_capacity(carriers),
        };
        Self {
            open: Atomic::new(if granted > 0 { FREE } else { 0 }),
            lock: RawMutex::new(),
            lists: UnsafeCell::new(lists),
            seats: (0..carriers).map(|_| Seat { word: Atomic::new(NONE) }).collect(),
        }
    }

    fn locked<T>(&self, body: impl FnOnce(&mut Lists) -> T) -> T {
        // SAFETY: released below, once; the lists are ours in between, and `body` does not come back here.
        posts::busy(|| unsafe {
            self.lock.lock(&());
            let lists = &mut *self.lists.get();
            let result = body(lists);
            let free = if lists.free > 0 { FREE } else { 0 };
            let wanted = if lists.wanting.is_empty() && lists.debt == 0 { 0 } else { WANTED };
            if self.open.load(Relaxed) != free | wanted {
                self.open.store(free | wanted, Relaxed);
            }
            self.lock.unlock(&());
            result
        })
    }

    #[inline]
    fn word(&self, carrier: u32) -> &P::AtomicU32 {
        &self.seats[carrier as usize].word
    }

    fn seat(&self, carrier: u32) -> u32 {
        // ORDER: Release, pairs with the Acquire in `look`; publishes the work for which the seat is given.
        self.word(carrier).store(HELD, Release);
        carrier
    }

    /// U1, for the sentinel; or a carrier's own step away from its seat.
    pub fn take(&self, victim: u32) -> bool {
        // Of two who take it one does, in whatever order. What the seats are is under the lock, and what the
        // event is (U3) under the kernel's.
        self.word(victim).compare_exchange(HELD, NONE, Relaxed, Relaxed).is_ok()
    }

    /// U3. The victim of [`Seats::take`] is listened to no longer. True: it has a seat again, and the caller
    /// looks whether it has blocked meanwhile.
    pub fn silence(&self, victim: u32, disable: impl Fn(), enable: impl Fn()) -> bool {
        loop {
            disable();
            if !self.holds(victim) {
                return false;
            }
            enable();
            if self.holds(victim) {
                return true;
            }
            // It has left its seat meanwhile, and may have disabled the event before we enabled it.
        }
    }

    /// HINT for others, the truth for the carrier itself unless somebody takes the seat.
    #[inline(always)]
    pub fn holds(&self, carrier: u32) -> bool {
        self.word(carrier).load(Relaxed) == HELD
    }

    /// HINT: it runs without a seat, or is blocked.
    pub fn is_away(&self, carrier: u32) -> bool {
        self.word(carrier).load(Relaxed) == NONE
    }

    /// HINT: it runs, or is blocked, with a seat or without.
    pub fn is_up(&self, carrier: u32) -> bool {
        matches!(self.word(carrier).load(Relaxed), HELD | NONE)
    }

    /// HINT: it sleeps, or is about to.
    pub fn is_asleep(&self, carrier: u32) -> bool {
        self.word(carrier).load(Relaxed) == ASLEEP
    }

    /// HINT: does somebody want a seat?
    #[inline(always)]
    pub fn wanted(&self) -> bool {
        self.open.load(Relaxed) & WANTED != 0
    }

    /// A seat is left over. Returns who has it now and must be woken.
    fn give_back(&self, lists: &mut Lists) -> Option<u32> {
        if lists.debt > 0 {
            lists.debt -= 1;
        } else if let Some(carrier) = lists.wanting.pop_front() {
            return Some(self.seat(carrier));
        } else {
            lists.free += 1;
        }
        None
    }

    /// S1. Returns who must be woken. The caller looks for work next, then calls [`Seats::get_up`] or
    /// [`Seats::sleep`].
    pub fn lie_down(&self, me: u32) -> Option<u32> {
        let woken = self.locked(|lists| {
            let left = self.take(me);
            self.word(me).store(ASLEEP, Relaxed);
            lists.asleep.push(me);
            if left { self.give_back(lists) } else { None }
        });
        P::heavy();
        woken
    }

    /// S3. There is work; `mine`: which only the caller can do. True: the caller has a seat.
    pub fn get_up(&self, me: u32, mine: bool) -> bool {
        self.locked(|lists| {
            if self.word(me).load(Relaxed) == HELD {
                return true;
            }
            let Some(at) = lists.asleep.iter().position(|&carrier| carrier == me) else { return false };
            if lists.free == 0 && !mine {
                // Who has the seats will find it.
                return false;
            }
            lists.asleep.swap_remove(at);
            if lists.free == 0 {
                // Nobody will kick it for what is there already.
                lists.wanting.push_back(me);
                return false;
            }
            lists.free -= 1;
            self.seat(me);
            true
        })
    }

    /// Sleeps until something is to be done.
    pub fn sleep(&self, me: u32) -> Awake {
        loop {
            if let Some(awake) = self.look(me) {
                return awake;
            }
            P::wait(self.word(me), ASLEEP, None);
        }
    }

    /// As [`Seats::sleep`], for a carrier that sleeps elsewhere: `None` if it may.
    pub fn look(&self, me: u32) -> Option<Awake> {
        let word = self.word(me);
        // ORDER: Acquire, pairs with `seat`.
        match word.load(Acquire) {
            HELD => Some(Awake::Seated),
            NONE => Some(Awake::Lost),
            // Under the lock: who found that we are on our way left the post empty before. So we find it so.
            CALLED => self.locked(|_| {
                word.compare_exchange(CALLED, ASLEEP, Relaxed, Relaxed).ok().map(|_| Awake::Called)
            }),
            _ => None,
        }
    }

    /// The word that a carrier sleeps on, and what it says meanwhile: for one that sleeps elsewhere and is to
    /// be woken by [`Seats::wake`].
    pub fn bed(&self, me: u32) -> (&P::AtomicU32, u32) {
        (self.word(me), ASLEEP)
    }

    /// Wakes a carrier that [`Seats::sleep`]s.
    pub fn wake(&self, carrier: u32) {
        P::wake(self.word(carrier), 1);
    }

    /// W1, W2. To be called after work was published. Where nobody sleeps, a newcomer may come.
    #[inline]
    pub fn invite(&self, newcomers: bool) -> Invited {
        self.invite_least(newcomers, |_| 0)
    }

    /// As [`Seats::invite`]. Of those who lay down last it is one with the least load.
    #[inline]
    pub fn invite_least(&self, newcomers: bool, load: impl Fn(u32) -> u32) -> Invited {
        P::light();
        if self.open.load(Relaxed) & FREE == 0 { Invited::Nobody } else { self.invite_slow(newcomers, load) }
    }

    #[cold]
    #[inline(never)]
    fn invite_slow(&self, newcomers: bool, load: impl Fn(u32) -> u32) -> Invited {
        self.locked(|lists| {
            if lists.free == 0 || lists.asleep.is_empty() && !newcomers {
                // Who is awake will look before it sleeps.
                return Invited::Nobody;
            }
            lists.free -= 1;
            // Not all: others wait for the lock.
            let last = lists.asleep.len().saturating_sub(MOST)..lists.asleep.len();
            match last.rev().min_by_key(|&at| load(lists.asleep[at])) {
                Some(at) => Invited::Carrier(self.seat(lists.asleep.remove(at))),
                None => Invited::Newcomer,
            }
        })
    }

    /// A new carrier begins with the seat of [`Invited::Newcomer`].
    pub fn seat_newcomer(&self, carrier: u32) {
        self.seat(carrier);
    }

    /// The caller has a seat in its hand and no use for it. Returns who must be woken. The caller looks for
    /// work next, and invites if there is any: who lay down meanwhile found no seat.
    pub fn surrender(&self) -> Option<u32> {
        let woken = self.locked(|lists| self.give_back(lists));
        P::heavy();
        woken
    }

    /// The caller, which lay down, keeps the seat that it took from another. Returns who must be woken.
    pub fn accept(&self, me: u32) -> Option<u32> {
        self.locked(|lists| {
            if self.word(me).load(Relaxed) == HELD {
                return self.give_back(lists);
            }
            lists.asleep.retain(|&carrier| carrier != me);
            lists.wanting.retain(|&carrier| carrier != me);
            self.seat(me);
            None
        })
    }

    /// U2. Takes a free seat, if there is one.
    pub fn regain(&self, me: u32) -> bool {
        self.locked(|lists| {
            let free = lists.free > 0;
            if free {
                lists.free -= 1;
                self.seat(me);
            }
            free
        })
    }

    /// U2. The caller has no seat and something to do. True: it has one now. False: it must sleep.
    pub fn want(&self, me: u32) -> bool {
        self.locked(|lists| {
            if lists.free > 0 {
                lists.free -= 1;
                self.seat(me);
                return true;
            }
            self.word(me).store(ASLEEP, Relaxed);
            lists.wanting.push_back(me);
            false
        })
    }

    /// The caller's quantum is over: its seat goes to who wants one longest. `None`: it keeps it. Else it
    /// must
    /// sleep, after it woke whom this names.
    pub fn pass(&self, me: u32) -> Option<Option<u32>> {
        self.locked(|lists| {
            if lists.wanting.is_empty() && lists.debt == 0 || !self.take(me) {
                return None;
            }
            let woken = self.give_back(lists);
            self.word(me).store(ASLEEP, Relaxed);
            lists.wanting.push_back(me);
            Some(woken)
        })
    }

    /// B2. Work that only this carrier can do was published. True: it has a seat and must be woken.
    #[inline]
    pub fn kick(&self, carrier: u32) -> bool {
        P::light();
        matches!(self.word(carrier).load(Relaxed), ASLEEP | CALLED) && self.kick_slow(carrier)
    }

    #[cold]
    #[inline(never)]
    fn kick_slow(&self, carrier: u32) -> bool {
        self.locked(|lists| {
            let Some(at) = lists.asleep.iter().position(|&other| other == carrier) else { return false };
            lists.asleep.swap_remove(at);
            if lists.free == 0 {
                lists.wanting.push_back(carrier);
                return false;
            }
            lists.free -= 1;
            self.seat(carrier);
            true
        })
    }

    /// Calls a sleeper to be the sentinel, unless one that was called has not come yet. That one comes, or
    /// gets a seat and calls another.
    pub fn call(&self, not: u32) -> Called {
        self.locked(|lists| {
            // One word, and not those of all who sleep: others wait for the lock.
            let before = self.seats.get(lists.called as usize);
            if lists.called != not && before.is_some_and(|seat| seat.word.load(Relaxed) == CALLED) {
                return Called::Before;
            }
            let mut asleep = lists.asleep.iter().chain(&lists.wanting).copied().filter(|&other| other != not);
            let called = asleep.find(|&carrier| {
                self.word(carrier).compare_exchange(ASLEEP, CALLED, Relaxed, Relaxed).is_ok()
            });
            lists.called = called.unwrap_or(lists.called);
            called.map_or(Called::Nobody, Called::Carrier)
        })
    }

    /// So many seats are granted from now on. Returns how many more there are than before, for whom the
    /// caller looks for work and invites, and who must be woken.
    pub fn grant(&self, granted: u32, mut wake: impl FnMut(u32)) {
        self.locked(|lists| {
            for _ in lists.granted..granted {
                if let Some(carrier) = self.give_back(lists) {
                    wake(carrier);
                }
            }
            for _ in granted..lists.granted {
                if lists.free > 0 {
                    lists.free -= 1;
                } else {
                    lists.debt += 1;
                }
            }
            lists.granted = granted;
        });
        P::heavy();
    }

    /// HINT: is no seat free?
    pub fn is_full(&self) -> bool {
        self.open.load(Relaxed) & FREE == 0
    }

    /// HINT: of the first carriers, how many have a seat, and how many are awake without one.
    pub fn awake(&self, carriers: u32) -> (u32, u32) {
        let words = (0..carriers).map(|carrier| self.word(carrier).load(Relaxed));
        words.fold((0, 0), |(held, none), word| {
            (held + u32::from(word == HELD), none + u32::from(word == NONE))
        })
    }

    /// Seats granted.
    pub fn granted(&self) -> u32 {
        self.locked(|lists| lists.granted)
    }

    /// How many sleep with nothing to do, but this one?
    pub fn sleepers(&self, but: u32) -> usize {
        self.locked(|lists| lists.asleep.iter().filter(|&&carrier| carrier != but).count())
    }

    /// HINT: was it told something since it lay down?
    pub fn is_told(&self, carrier: u32) -> bool {
        self.word(carrier).load(Relaxed) != ASLEEP
    }

    /// For people: what the lists and the words are now.
    pub fn describe(&self, carriers: u32) -> String {
        let words: Vec<u32> = (0..carriers).map(|carrier| self.word(carrier).load(Relaxed)).collect();
        self.locked(|lists| {
            format!(
                "free {}, debt {}, asleep {:?}, wanting {:?}, words {words:?}",
                lists.free, lists.debt, lists.asleep, lists.wanting
            )
        })
    }

    /// For tests: free seats, and carriers that hold one, at a moment when nothing moves.
    pub fn count(&self) -> (u32, u32) {
        let held = self.seats.iter().filter(|seat| seat.word.load(Relaxed) == HELD).count();
        (self.locked(|lists| lists.free), held as u32)
    }

    /// For tests: nobody wants, and `open` says so.
    pub fn calm(&self) -> bool {
        self.open.fetch_or(0, Relaxed) & WANTED == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::Linux;

    /// A second call finds the first, so that nobody starts a carrier for the post, until it is answered.
    #[test]
    fn one_call_at_a_time() {
        let seats = Seats::<Linux>::new(1, 2);
        assert_eq!(seats.call(2), Called::Nobody);
        (0..2).for_each(|carrier| assert_eq!(seats.lie_down(carrier), None));
        assert_eq!(seats.call(2), Called::Carrier(0));
        assert_eq!(seats.call(2), Called::Before);
        assert_eq!(seats.look(0), Some(Awake::Called));
        assert_eq!(seats.look(0), None);
        assert_eq!(seats.call(0), Called::Carrier(1));
    }
}
