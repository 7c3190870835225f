// SPDX-License-Identifier: MIT OR Apache-2.0
//! The line of the default mutex: where threads sleep, oldest first. The steps Q1 to Q4, P1 and P2, and
//! what W6 has to do here.
//!
//! ```text
//!    word.NEWEST --> d --OLDER--> c --OLDER--> b --OLDER--> a      the oldest; its OLDEST is itself
//!                    d <--NEWER-- c <--NEWER-- b <--NEWER-- a      0 until somebody has walked the line
//! ```
//!
//! A thread joins by one compare-and-swap on the lock word, which the release of the lock changes all the
//! time. So it does not wait for the thread before it, as in `mcs`, and it fills in its own link only
//! (OLDER). Whoever takes the oldest out walks the line from the newest and fills in the other direction on
//! its way. Each link is filled in once, so that a walk costs a step a sleeper in all.
//!
//! STATE of a thread's block: `IDLE -> ASLEEP or AWAKE -> PROMOTED or PASSED -> IDLE`, and `AWAKE ->
//! ASLEEP`. Only the role (I3) writes PROMOTED and PASSED, or the thread that ends it (P1). ASLEEP and AWAKE
//! have KEPT beside them if the thread has been passed since it came.
//!
//! - Q1. A waiter takes the role, if it is free, or pushes itself (OLDER = the old NEWEST), in one
//!   compare-and-swap.
//! - Q2. It sleeps until PROMOTED or PASSED. If PROMOTED, it has the role: it is the oldest, unlinks itself,
//!   and is the standby. If PASSED, it is an arrival again.
//! - Q3. The role promotes: it sets STATE of the oldest to PROMOTED, and wakes it if that was ASLEEP.
//! - Q4. The thread that has set RELAY promotes (Q3) once HANDOFF is gone. Then the lock is hot for it
//!   (W3), and it joins the line, so that the new standby finds a processor free.
//! - W6. Before a demand the standby writes the oldest into OLDEST of the newest, where a relay finds it.
//! - P1. In W8 the standby passes the oldest while that is preempted: it sets PASSED, and the thread goes to
//!   Q1 again when it runs. A standby that finds the lock free at once has not looked at the oldest yet, so
//!   it does before Q3: a preempted thread with the role would keep the line waiting. The last one goes only
//!   then, and with it the role: one compare-and-swap clears STANDBY, NEWEST and the generation.
//! - P2. Elsewhere, when its look of W3 finds the lock free throughout, the standby passes as many threads
//!   as there are processors. Never the last one, and none with KEPT. They are arrivals again, behind all
//!   others.
//!
//! P2 is there because the line moves by one wake-up a turn, which is too slow where nobody holds the lock.
//! KEPT bounds it: whom P1 or P2 has passed, P2 does not pass again until that thread has had the lock.
//! The standby unlinks whom it passes.
//!
//! # Memory order
//!
//! Q1 release -> acquire loads in `unlink`, `show` and `head` publishes OLDER, NEWER and OLDEST. Q3, P1 and
//! P2 release -> Q2 acquire (STATE) publishes what the former role wrote in the blocks, and lets a thread
//! that was passed use its own again. Where the role passes by RELAY, A3 or G2 release -> Q4 acquire does.

use platform::{Atomic, Ordering::*, Platform, Priority, RunState, ThreadId, Wish};

use super::waiter::Waiter;
use super::{GENERATION, GENERATION_SHIFT, KICK, NEWEST, NEWEST_SHIFT, STANDBY, Wakeful, limits, newest};
use crate::wait::{self, Preemption};

// Words of a thread's block, see `Platform::word`.
const OLDER: usize = 0;
const NEWER: usize = 1;
const OLDEST: usize = 2;
const STATE: usize = 3;

// Values of STATE.
const IDLE: u32 = 0;
const ASLEEP: u32 = 1;
const PROMOTED: u32 = 2;
const AWAKE: u32 = 3;
const PASSED: u32 = 4;
/// Beside ASLEEP and AWAKE: it has been passed since it came.
const KEPT: u32 = 8;

/// I3. The role. Whoever has this is the only one that writes links of others, promotes and passes. Only the
/// steps of this file make one: Q1 where the role was free, Q2 where the thread was promoted, and Q4.
pub struct Lead(());

/// Is this thread in no line? A signal handler that waits while its thread is in one finds the thread's
/// words taken.
pub fn may_join<P: Platform>(me: ThreadId) -> bool {
    me != ThreadId::NONE && P::word(me, STATE).load(Relaxed) == IDLE
}

impl<P: Platform, N: Preemption> Wakeful<P, N> {
    /// Q1 and Q2: returns as the standby, or as an arrival that was passed, napped (W2) or has got a room.
    pub(super) fn enlist(&self, word: u32, waiter: &mut Waiter<P>) {
        let me = waiter.place_in_line();
        if me != ThreadId::NONE {
            let kept = if waiter.was_passed() { KEPT } else { 0 };
            P::word(me, STATE).store(kept | if waiter.is_awake() { AWAKE } else { ASLEEP }, Relaxed);
        }
        let Some(word) = self.join(word, me, waiter) else { return waiter.do_without_line(self) };
        if word & (STANDBY | KICK) == KICK {
            // F3.
            P::wake(&self.word, u32::MAX);
        }
        let in_line = word & STANDBY != 0;
        if in_line && self.sleep_in_line(me) == PASSED {
            waiter.begin_again::<N>();
            return P::word(me, STATE).store(IDLE, Relaxed);
        }
        let lead = Lead(());
        let mut next = ThreadId::NONE;
        if in_line {
            next = self.unlink(&lead, me, true);
            waiter.come_out_of_line();
        }
        if me != ThreadId::NONE {
            P::word(me, STATE).store(IDLE, Relaxed);
        }
        // The next one may use the room's id from here on.
        waiter.leave_room();
        waiter.become_standby(lead, next);
    }

    /// Q1. Returns the word as it was; `None` if the role is taken and the thread may not join the line.
    fn join(&self, mut word: u32, me: ThreadId, waiter: &Waiter<P>) -> Option<u32> {
        let mut pauses = limits::AGAIN_PAUSES;
        loop {
            let new = if word & STANDBY == 0 {
                word | STANDBY | P::generation() << GENERATION_SHIFT
            } else if me != ThreadId::NONE {
                let older = newest(word);
                P::word(me, OLDER).store(older.0, Relaxed);
                P::word(me, NEWER).store(0, Relaxed);
                P::word(me, OLDEST).store(if older == ThreadId::NONE { me.0 } else { 0 }, Relaxed);
                word & !NEWEST | me.0 << NEWEST_SHIFT
            } else {
                return None;
            };
            // ORDER: Release, pairs with the Acquire in `head` and `unlink`; publishes our links.
            match self.word.compare_exchange_weak(word, new, Release, Relaxed) {
                Ok(_) => return Some(word),
                Err(now) => word = now,
            }
            if waiter.is_awake() {
                if N::WISHES && newest(word) != ThreadId::NONE {
                    pauses = pauses.max(limits::AGAIN_PAUSES_OF_EACH * P::processors());
                }
                wait::pause::<P>(pauses);
                pauses = (pauses * 2).min(limits::AGAIN_MOST_PAUSES);
                word = self.word.load(Relaxed);
            }
        }
    }

    /// Q2, W8: until STATE is PROMOTED, or PASSED.
    fn sleep_in_line(&self, me: ThreadId) -> u32 {
        let state = P::word(me, STATE);
        let mut looks = 0;
        loop {
            // ORDER: Acquire, pairs with Q3; publishes the links that others wrote.
            let now = state.load(Acquire);
            match now & !KEPT {
                ASLEEP => _ = P::wait(state, now, None),
                AWAKE if looks < limits::LINE_LOOKS.min(P::PAUSES) => {
                    wait::pause::<P>(limits::LINE_PAUSES);
                    looks += 1;
                    // W9. HINT: wrong, somebody else comes before this thread.
                    if N::PUBLISHES
                        && looks.is_multiple_of(limits::LINE_ASKS.min(P::PAUSES))
                        && P::hands_off()
                        && P::higher_preempted(Priority::LockWaiter)
                    {
                        P::hand_off();
                    }
                }
                AWAKE => _ = state.compare_exchange(now, ASLEEP | now & KEPT, Relaxed, Relaxed),
                news => return news,
            }
        }
    }

    /// Finds the thread that has slept longest, behind one that shows it (OLDEST).
    fn oldest(&self, lead: &Lead, newest: ThreadId) -> ThreadId {
        let mut thread = newest;
        loop {
            let oldest = P::word(thread, OLDEST).load(Relaxed);
            if oldest != 0 {
                return ThreadId(oldest);
            }
            thread = self.link(lead, thread);
        }
    }

    /// Tells the sleeper that came before this one of it. Returns that.
    fn link(&self, _: &Lead, thread: ThreadId) -> ThreadId {
        let older = ThreadId(P::word(thread, OLDER).load(Relaxed));
        P::word(older, NEWER).store(thread.0, Relaxed);
        older
    }

    /// The oldest sleeper: `next`, if that is known. NONE if nobody sleeps.
    fn head(&self, lead: &Lead, next: ThreadId) -> ThreadId {
        if next != ThreadId::NONE {
            return next;
        }
        // ORDER: Acquire, pairs with Q1.
        match newest(self.word.load(Acquire)) {
            ThreadId::NONE => ThreadId::NONE,
            newest => self.oldest(lead, newest),
        }
    }

    /// W6. Shows the oldest sleeper, which it returns, to a relay.
    pub(super) fn show(&self, lead: &Lead, next: ThreadId) -> ThreadId {
        let head = self.head(lead, next);
        // ORDER: Acquire, pairs with Q1.
        let newest = newest(self.word.load(Acquire));
        if head != ThreadId::NONE {
            P::word(newest, OLDEST).store(head.0, Relaxed);
        }
        head
    }

    /// Q3. Gives the role to the oldest sleeper, `next` if that is known. Somebody sleeps.
    pub(super) fn promote(&self, lead: Lead, next: ThreadId) {
        self.tell(self.head(&lead, next), PROMOTED);
    }

    /// Q4. The caller has set RELAY, and HANDOFF is gone: so the standby has left it the role.
    pub(super) fn promote_as_relay(&self) {
        self.promote(Lead(()), ThreadId::NONE);
    }

    /// Q3 of W8, by the holder: promotes the oldest that is not preempted. If all are, the role ends, and
    /// the next to come finds it free (Q1). Where a thread joins at that moment, or the oldest of several is
    /// preempted after the look, it is promoted all the same.
    pub(super) fn promote_running(&self, lead: Lead, next: ThreadId) {
        let oldest = self.pass(&lead, next);
        // HINT: wrong either way, the last one loses its place, or the line waits for a slice.
        let ends = P::run_state(oldest) == RunState::Preempted && self.end_role(oldest);
        self.tell(oldest, if ends { PASSED } else { PROMOTED });
    }

    /// P1. Empties the line and ends the role, if this thread is alone in line.
    fn end_role(&self, last: ThreadId) -> bool {
        let word = self.word.load(Relaxed);
        let empty = word & !(STANDBY | NEWEST | GENERATION);
        newest(word) == last && self.word.compare_exchange(word, empty, Relaxed, Relaxed).is_ok()
    }

    /// Ends a sleeper's wait.
    fn tell(&self, thread: ThreadId, news: u32) {
        let state = P::word(thread, STATE);
        // Q3, P1, P2. ORDER: Release, pairs with Q2.
        if state.swap(news, Release) & !KEPT == ASLEEP {
            P::wake(state, 1);
        }
    }

    /// P1. Takes those of the oldest who are preempted out of the line. Returns the oldest that is left.
    pub(super) fn pass(&self, lead: &Lead, next: ThreadId) -> ThreadId {
        // HINT: wrong either way, somebody loses his place, or the lock its standby, for a slice.
        let preempted = |thread| P::run_state(thread) == RunState::Preempted;
        // N1. Refused: it sleeps, or it was preempted after the look.
        let refuses = |thread| {
            N::WISHES
                && P::wish(thread) == Wish::Preemptable
                && !P::change_wish(thread, Wish::Preemptable, Wish::UnpreemptableOther)
        };
        let goes = |thread| preempted(thread) || refuses(thread) && preempted(thread);
        self.pass_while(lead, self.head(lead, next), limits::PASSES, goes)
    }

    /// P2. Returns the oldest that is left.
    pub(super) fn thin(&self, lead: &Lead, next: ThreadId) -> ThreadId {
        let not_passed_yet = |thread| P::word(thread, STATE).load(Relaxed) & KEPT == 0;
        self.pass_while(lead, self.head(lead, next), P::processors(), not_passed_yet)
    }

    /// Takes the oldest out of the line, so many at most, but not the last. Returns the oldest that is left.
    fn pass_while(
        &self,
        lead: &Lead,
        mut oldest: ThreadId,
        most: u32,
        goes: impl Fn(ThreadId) -> bool,
    ) -> ThreadId {
        for _ in 0..most {
            if oldest == ThreadId::NONE || !goes(oldest) {
                break;
            }
            match self.unlink(lead, oldest, false) {
                ThreadId::NONE => break,
                second => {
                    self.tell(oldest, PASSED);
                    oldest = second;
                }
            }
        }
        oldest
    }

    /// Takes the oldest out of the line, if it is not the last or `last` may go, too. Returns the one that
    /// is the oldest then.
    fn unlink(&self, lead: &Lead, oldest: ThreadId, last: bool) -> ThreadId {
        loop {
            let newer = P::word(oldest, NEWER).load(Relaxed);
            if newer != 0 {
                return ThreadId(newer);
            }
            // ORDER: Acquire, pairs with Q1.
            let word = self.word.load(Acquire);
            let mut thread = newest(word);
            if thread == oldest {
                if !last || self.word.compare_exchange(word, word & !NEWEST, Relaxed, Relaxed).is_ok() {
                    return ThreadId::NONE;
                }
                continue;
            }
            while thread != oldest {
                thread = self.link(lead, thread);
            }
        }
    }
}
