// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread that waits for the default mutex: what it is, what it knows, and what it does next. The steps
//! W1 to W7, W9, G1 and G2.
//!
//! ```text
//!             joins the line, is promoted, or finds the role free (Q1, Q2)
//!   Arrival -----------------------------------------------------------> Standby ---> holder (A3)
//!    |  ^  \ finds HANDOFF (W7)                                            ^ demands (W6)
//!    |  |   '----> Relay -- HANDOFF is gone: promotes (Q4) --> Arrival     | sleeps on the word (W5)
//!    |  '------------'  somebody barged in                                 '
//!    '-------------------------------------------------------------------------------> holder (A2)
//! ```
//!
//! A *waiter* is a thread that A1 or A2 has failed once. An *arrival* is a waiter that has not been in line
//! yet, or was passed. Names in small letters are times, see [`limits`].
//!
//! | step | by | what, in short |
//! |---|---|---|
//! | W1 | arrival | looks at a held lock for a moment, then joins the line |
//! | W2 | whoever may not join | takes a free role, or goes to a room, or naps |
//! | W3 | a choosy waiter | looks closely at a free lock: takes it, shares it, or leaves it as hot |
//! | W4 | one that shares | takes what it finds free |
//! | W5 W6 | standby | sleeps on the word; demands the lock by the clock |
//! | W7 | others | leave a demanded lock alone for a grace; one of them is the relay |
//! | W9 | all | hand their processor to a preempted holder |
//! | G1 G2 | all | leave at the deadline, and give their duties back |
//!
//! - W1. An arrival beside a held lock looks at the word, with growing gaps, until `arrival` has passed. It
//!   stops before that if the holder does not run, HANDOFF is set, or the lock is hot (W3). Then it does Q1.
//! - W2. Some may not join the line: a thread without an id, one with a deadline, and a signal handler whose
//!   thread is in line. They take the role if it is free. Else they go to a waiting room
//!   ([`crate::wait::room`]), where one thread at a time has the turn. With the turn a thread without a
//!   deadline joins the line, under the room's id. One with a deadline naps between looks. Without a room
//!   both nap.
//! - W3. A waiter is *choosy* (it does not take each free lock that it finds), unless it shares (W4). A
//!   *rival* is a running thread that held the lock when the waiter looked. A thread that comes out of the
//!   line has met one. A choosy waiter that has met a rival, and finds the lock free, looks `SAMPLES` times
//!   more, unless it is a standby that has demanded. The lock was
//!   - held by two owners: the waiter begins again;
//!   - held at one look, and the waiter may share: it shares from then on, and takes the lock;
//!   - held by one owner otherwise: the lock is *hot*. The standby naps, and an arrival joins the line;
//!   - held at no look: the waiter takes the lock.
//! - W4. A waiter that shares takes what it finds free: see [`super::share`].
//! - W5. The standby sleeps on the word if the holder does not run, after `spin` as the standby, or after
//!   `turn` since its demand. The release ends that sleep, or the waiter's deadline. The clock ends a nap, or
//!   R3 does.
//! - W6. The standby *demands*, by HANDOFF, if it has had the role for `patience`, or `turn` if others are in
//!   line. It looks at the clock at each step beside a held lock, before it would sleep. A sleep goes on
//!   beyond that time: the standby then demands at its first step after the release. Beside a holder that
//!   does not run the time is twice as long: a standby that demands and then sleeps makes others leave the
//!   lock idle. Whenever the standby finds HANDOFF gone, it sets it again.
//! - W7. Any thread but the standby that finds the lock free with HANDOFF *steps aside*. If somebody is in
//!   line, and RELAY is not set, it sets RELAY and is the *relay*. It leaves the lock alone for `grace`. If
//!   KICK is set, the standby is only being woken, which takes longer: then for `spin`. If the lock is still
//!   free, the standby seems not to be awake, and the thread takes the lock (A2). In the same
//!   compare-and-swap it clears HANDOFF, KICK and RELAY, unless another thread is the relay. Then all three
//!   stay, because that relay goes by HANDOFF. If it is gone, the standby has the lock (Q4). If it is set on
//!   a held lock, somebody else has it, and the relay clears RELAY. `try_lock` clears nothing. A standby
//!   that finds no RELAY leaves the free lock alone for `relay`, so that one can be set.
//! - W9. Under a scheduler that acts on priorities, a waiter that sees the holder preempted hands its
//!   processor off ([`Platform::hand_off`]; ICPP 2001, figure 1, lines 18 to 20), once for each time that the
//!   holder is preempted. If that did not help, it goes on with W1 or W5. A waiter of W8 in line does so
//!   whenever a thread that matters more is preempted. Before a waiter sleeps on the word, it publishes in
//!   the holder's place that the holder is one (S7 of [`publish`]). The holder takes that back: the word has
//!   KICK, so its release goes the slow path.
//! - G1. At its deadline an arrival just leaves.
//! - G2. At its deadline, or by N1, a relay promotes (Q3) if HANDOFF is gone, and else clears RELAY. A
//!   standby with nobody in line clears all but LOCKED and OWNER. With others in line it clears HANDOFF,
//!   RELAY and KICK, and promotes, unless RELAY was set: then the relay does.
//!
//! While other programs run, and nobody stands by, a waiter sleeps on the word at once: see [`super::futex`].
//!
//! Nobody may know whether the holder runs, or other programs take most of each processor
//! ([`look::is_crowded`]), so that it may not run for long. Then each wait of W1 and W5 that was in vain
//! halves the next ([`crate::wait::vain`]).

use platform::{Atomic, AtomicInt, Deadline, Ordering::*, Platform, RunState, ThreadId, Wait};

use super::line::Lead;
use super::share::{self, in_the_dark, is_sharing, learn, try_share};
use super::{HANDOFF, KICK, LOCKED, NEWEST, OWNER, RELAY, STANDBY, Wakeful, limits, line, owner};
use crate::wait::look::{self, pause_until};
use crate::wait::room::Stay;
use crate::wait::{self, Preemption, publish};

/// Where a waiter sleeps when it may not be the standby.
enum Place<P: Platform> {
    /// In the line, under its own id.
    Line,
    /// In a waiting room, of which it has the turn.
    Room(Stay<P>),
    /// Nowhere yet: it goes to a room, or naps.
    None,
}

/// How a waiter waits, by what it found when it came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// As a thread of a barging lock.
    Barging,
    /// Each thread of ours has a processor, and it may join the line: it waits awake (W8).
    Awake,
    /// Each has one, and other programs take most of it, the holder's too: it spins as in the dark (W1, W5).
    Crowded,
    /// Other programs share the few processors (F1).
    Beside,
}

impl Mode {
    fn of<N: Preemption, P: Platform>(queues: bool, now: u64) -> Self {
        if look::is_crowded::<N, P>(now) {
            Self::Crowded
        } else if queues && P::roomy() {
            Self::Awake
        } else if look::is_beside_others::<N, P>(now) {
            Self::Beside
        } else {
            Self::Barging
        }
    }
}

/// What a waiter is. Only the steps here change it.
enum Role {
    /// It has come; `dark`: it spins for a holder of whom nobody knows whether it runs.
    Arrival { dark: bool },
    /// It stepped aside, and RELAY is its own.
    Relay,
    /// See [`Standby`].
    Standby(Standby),
}

/// The one awake waiter. Times in ns.
struct Standby {
    since: u64,
    /// It set HANDOFF then (W6).
    demanded: Option<u64>,
    /// It promotes this thread next; NONE: it has to look.
    next: ThreadId,
    lead: Lead,
    spin: Spin,
}

/// How a standby has spun (W5).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spin {
    /// It knew that the holder runs.
    Seen,
    /// For a holder of which nobody knows whether it runs, or for how long.
    Dark,
    /// So, and in vain: that is learned, once.
    Vain,
}

/// What a waiter does with a lock that it finds free.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stance {
    /// Looks closely first, if it has a rival (W3).
    Choosy,
    /// Takes it (W4).
    Sharing,
    /// Leaves it: the holder comes back at once (W3).
    Hot,
}

/// What a waiting thread knows of its wait. Times in ns.
pub struct Waiter<P: Platform> {
    me: ThreadId,
    pub deadline: Option<Deadline>,
    arrived: u64,
    place: Place<P>,
    mode: Mode,
    role: Role,
    pub stance: Stance,
    /// It has met somebody who runs and wants the lock too: this thread, NONE if it did not see which.
    pub rival: Option<ThreadId>,
    /// Until then it leaves a free lock to the standby, or as the standby to a relay (W7).
    grace: Option<u64>,
    /// It naps for so long next.
    nap: u64,
    /// It has been taken out of the line since it came (P1, P2).
    passed: bool,
    /// It has handed its processor off to this holder (W9).
    handed: bool,
    /// It was woken on the word, where others may sleep, too (F2, F3).
    pub roused: bool,
}

impl<P: Platform> Waiter<P> {
    fn new<N: Preemption>(me: ThreadId, now: u64, deadline: Option<Deadline>) -> Self {
        let queues = deadline.is_none() && line::may_join::<P>(me);
        let mode = Mode::of::<N, P>(queues, now);
        let shares = mode == Mode::Awake || share::shares::<P>(me, now) || mode == Mode::Beside;
        Self {
            me,
            deadline,
            arrived: now,
            place: if queues { Place::Line } else { Place::None },
            mode,
            role: Role::Arrival { dark: false },
            stance: if shares { Stance::Sharing } else { Stance::Choosy },
            rival: (mode == Mode::Awake).then_some(ThreadId::NONE),
            grace: None,
            nap: limits::nap::<P>(),
            passed: false,
            handed: false,
            roused: false,
        }
    }

    /// The id under which it may join the line; NONE: it may not.
    pub fn place_in_line(&self) -> ThreadId {
        match &self.place {
            Place::Line => self.me,
            Place::Room(stay) if self.deadline.is_none() => stay.guest(),
            _ => ThreadId::NONE,
        }
    }

    /// Gives back the turn in its room, if it has one.
    pub fn leave_room(&mut self) {
        self.place = match core::mem::replace(&mut self.place, Place::None) {
            Place::Room(stay) => {
                stay.end();
                Place::None
            }
            place => place,
        };
    }

    /// W2. The role is taken, and the waiter may not join the line: it goes to a room, or naps.
    pub fn do_without_line<N: Preemption>(&mut self, lock: &Wakeful<P, N>) {
        self.grace = None;
        if self.stance == Stance::Hot {
            self.stance = Stance::Choosy;
        }
        if matches!(self.place, Place::None)
            && let Some(stay) = Stay::begin(core::ptr::from_ref(lock).cast(), self.deadline)
        {
            self.place = Place::Room(stay);
            return;
        }
        P::nap_beside(&lock.word, self.nap);
        let waited = P::now_ns().saturating_sub(self.arrived);
        let most = (waited / limits::NAP_PART).clamp(limits::patience::<P>(), limits::nap_most::<P>());
        self.nap = (self.nap * 2).min(most);
        // It has no place in line, so it is not to be choosy for longer than a turn.
        self.stance = if waited >= limits::turn::<P>() { Stance::Sharing } else { Stance::Choosy };
    }

    /// P1, P2. It was taken out of the line, and is an arrival again.
    pub fn begin_again<N: Preemption>(&mut self) {
        wait::unshield::<N, P>(self.me);
        self.passed = true;
        self.role = Role::Arrival { dark: false };
        if self.stance == Stance::Hot {
            self.stance = Stance::Choosy;
        }
        self.rival = self.is_awake().then_some(ThreadId::NONE);
        self.grace = None;
        self.arrived = P::now_ns();
        // HINT: that it was preempted (P1); if that is not so and stays so, it would be passed each time.
        P::register_lazily();
    }

    /// W9. True if it handed its processor off to the holder, which is in this state.
    pub fn hands_off(&mut self, state: RunState) -> bool {
        let hands = state == RunState::Preempted && P::hands_off();
        let first = hands && !core::mem::replace(&mut self.handed, hands);
        self.handed &= hands;
        if first {
            P::hand_off();
        }
        first
    }

    /// W8.
    pub fn is_awake(&self) -> bool {
        self.mode == Mode::Awake
    }

    /// F1.
    pub fn is_beside(&self) -> bool {
        self.mode == Mode::Beside
    }

    /// P2 does not take it out of the line (again).
    pub fn was_passed(&self) -> bool {
        self.passed
    }

    pub fn is_standby(&self) -> bool {
        matches!(self.role, Role::Standby(_))
    }

    fn has_demanded(&self) -> bool {
        matches!(self.role, Role::Standby(Standby { demanded: Some(_), .. }))
    }

    /// Q2. It slept in line, and has met one who runs: the thread that promoted it.
    pub fn come_out_of_line(&mut self) {
        self.stance = if self.is_awake() { Stance::Sharing } else { Stance::Choosy };
        self.rival = Some(ThreadId::NONE);
    }

    /// Q1, Q2. It has the role, and promotes `next` after itself, if that is known.
    pub fn become_standby(&mut self, lead: Lead, next: ThreadId) {
        self.role =
            Role::Standby(Standby { since: P::now_ns(), demanded: None, next, lead, spin: Spin::Seen });
        self.grace = None;
        self.nap = limits::nap::<P>();
    }

    /// W8. Before its demand the standby looks at whom it promotes.
    pub fn look_behind(&mut self, pass: impl FnOnce(&Lead, ThreadId) -> ThreadId) {
        if let Role::Standby(Standby { demanded: None, lead, next, .. }) = &mut self.role {
            *next = pass(lead, *next);
        }
    }

    /// Q4, W7. A relay is an arrival again: nobody wants anything of it.
    fn relay_no_more(&mut self) {
        self.role = Role::Arrival { dark: false };
    }

    /// A3, G2. What it was: now it holds the lock, or leaves.
    fn end_role(&mut self) -> Role {
        core::mem::replace(&mut self.role, Role::Arrival { dark: false })
    }
}

impl<P: Platform, N: Preemption> Wakeful<P, N> {
    #[cold]
    #[inline(never)]
    pub(super) fn lock_contended(&self, word: u32, deadline: Option<Deadline>) -> bool {
        let (me, now) = look::begin::<P>();
        wait::unshield::<N, P>(me);
        let mut waiter = Waiter::new::<N>(me, now, deadline);
        if waiter.is_awake() {
            self.wait_awake(word, &mut waiter);
            return true;
        }
        let locked = self.wait(&mut waiter);
        waiter.leave_room();
        share::remember::<P>(me, waiter.arrived);
        locked
    }

    /// Waits for the lock and takes it; false at the deadline.
    fn wait(&self, waiter: &mut Waiter<P>) -> bool {
        loop {
            let word = self.word.load(Relaxed);
            if !waiter.is_standby() && self.purge(word) {
                continue;
            }
            if word & STANDBY != 0 {
                self.end_futex(waiter);
            }
            if matches!(waiter.role, Role::Relay) && word & HANDOFF == 0 {
                // Q4. It is the other's turn.
                self.promote_as_relay();
                waiter.relay_no_more();
                waiter.stance = Stance::Hot;
                waiter.grace = None;
                continue;
            }
            let late = waiter.deadline.is_some_and(P::past);
            if word & LOCKED == 0 {
                if self.take(word, waiter) {
                    return true;
                }
                if late {
                    // No time to be choosy: takes it at the next look, or leaves.
                    waiter.stance = Stance::Sharing;
                }
                continue;
            }
            if waiter.stance != Stance::Sharing && is_sharing::<P>(owner(word)) && try_share::<P>(waiter.me) {
                waiter.stance = Stance::Sharing;
            }
            if late {
                self.resign(waiter);
                return false;
            }
            self.wait_for_holder(word, waiter);
        }
    }

    /// One step beside a lock that is held.
    fn wait_for_holder(&self, word: u32, waiter: &mut Waiter<P>) {
        let now = P::now_ns();
        // HINT: wrong either way, it costs a spin or a sleep: see the head of `wakeful.rs`.
        let waited = now - waiter.arrived;
        let state = look::state_after::<P>(owner(word), waited);
        if N::PUBLISHES && waiter.hands_off(state) {
            return;
        }
        let running = !matches!(state, RunState::Preempted | RunState::Blocked);
        let unknown = state == RunState::Unknown || waiter.mode == Mode::Crowded;
        // A holder without a processor is no rival.
        waiter.rival = running.then_some(owner(word));
        let open = waiter.stance != Stance::Hot && word & HANDOFF == 0;
        let futex = waiter.is_futex(word);
        match &mut waiter.role {
            Role::Standby(_) => self.stand_by(word, waiter, state, now),
            Role::Arrival { .. } if futex => self.sleep_as_futex(word, waiter),
            Role::Relay => {
                // Somebody else has barged in.
                if self.word.compare_exchange(word, word & !RELAY, Relaxed, Relaxed).is_ok() {
                    waiter.relay_no_more();
                }
            }
            Role::Arrival { dark } if open && running && waited < arrival::<P>(waiter.me, unknown) => {
                // W1.
                *dark = unknown;
                let sharing = waiter.stance == Stance::Sharing;
                let least = if sharing { limits::poll_sharing::<P>() } else { limits::poll::<P>() };
                pause_until::<P>(now + (waited / 4).clamp(least, limits::poll_most::<P>()));
            }
            Role::Arrival { dark } => {
                if *dark && open {
                    *dark = false;
                    learn::<P>(waiter.me, share::ARRIVAL, true);
                }
                self.enlist(word, waiter);
            }
        }
    }

    /// The lock is free; takes it, unless it should not.
    pub(super) fn take(&self, word: u32, waiter: &mut Waiter<P>) -> bool {
        let standby = waiter.is_standby();
        if word & HANDOFF != 0 && !standby {
            if !self.step_aside_in_vain(word, waiter) {
                return false;
            }
        } else if waiter.stance == Stance::Hot {
            if waiter.grace.is_none() && !waiter.has_demanded() {
                if standby {
                    self.stand_by(word, waiter, RunState::Running, P::now_ns());
                } else {
                    self.enlist(word, waiter);
                }
                return false;
            }
        } else if waiter.stance == Stance::Choosy
            && let Some(rival) = waiter.rival
            && !waiter.has_demanded()
            && !self.look_closely(rival, waiter)
        {
            return false;
        }
        if standby && word & HANDOFF != 0 && word & RELAY == 0 {
            // W7, the standby's side.
            let now = P::now_ns();
            if now < *waiter.grace.get_or_insert(now + limits::relay::<P>()) {
                P::pause();
                return false;
            }
        }
        self.try_take(word, waiter)
    }

    /// A2, A3.
    fn try_take(&self, word: u32, waiter: &mut Waiter<P>) -> bool {
        // F2.
        let mine = LOCKED | P::stamp() & OWNER | if waiter.roused { KICK } else { 0 };
        let new = if !waiter.is_standby() {
            // The standby did not come within the grace: it is not awake. It will ask again. Another thread's
            // relay tells from HANDOFF whether the standby has the lock, so that only its owner may clear it.
            let own = matches!(waiter.role, Role::Relay);
            let rescinded = if own || word & RELAY == 0 { HANDOFF | RELAY | KICK } else { 0 };
            word & !rescinded | mine
        } else if word & NEWEST == 0 {
            mine
        } else {
            word & !(KICK | HANDOFF | RELAY) | mine
        };
        wait::shield::<N, P>();
        // A2, A3. ORDER: Acquire, pairs with R1; Release, pairs with the Acquire in `head`: the role may
        // pass to a relay.
        if let Err(now) = self.word.compare_exchange(word, new, AcqRel, Relaxed) {
            if !waiter.is_awake() {
                wait::unshield::<N, P>(waiter.me);
            } else if waiter.stance != Stance::Hot {
                // W8. If it is free yet, somebody has only joined the line.
                let lost = now & LOCKED == 0 || waiter.rival.is_none_or(|rival| rival != owner(now));
                waiter.stance = if lost { Stance::Sharing } else { Stance::Choosy };
            }
            return false;
        }
        match waiter.end_role() {
            Role::Standby(Standby { next, lead, spin, .. }) => {
                // With RELAY the role is the relay's, and with nobody in line it has ended.
                if new & NEWEST != 0 && word & RELAY == 0 {
                    if waiter.is_awake() {
                        self.promote_running(lead, next);
                    } else {
                        self.promote(lead, next);
                    }
                }
                if spin == Spin::Dark {
                    learn::<P>(waiter.me, share::STANDBY, false);
                }
            }
            Role::Arrival { dark: true } => learn::<P>(waiter.me, share::ARRIVAL, false),
            _ => {}
        }
        true
    }

    /// W7. Leaves a free lock to the standby, which demanded it. True if that did not come.
    fn step_aside_in_vain(&self, word: u32, waiter: &mut Waiter<P>) -> bool {
        if waiter.stance == Stance::Sharing {
            waiter.stance = Stance::Choosy;
        }
        share::keep::<P>(waiter.me);
        if word & RELAY == 0 && word & NEWEST != 0 {
            if self.word.compare_exchange(word, word | RELAY, Relaxed, Relaxed).is_ok() {
                waiter.role = Role::Relay;
            }
            return false;
        }
        let now = P::now_ns();
        let grace = if word & KICK == 0 { limits::grace::<P>() } else { limits::spin::<P>() };
        if now < *waiter.grace.get_or_insert(now + grace) {
            P::pause();
            return false;
        }
        true
    }

    /// W3. False if somebody else has the lock again: then it is hot, or another moment is better.
    fn look_closely(&self, rival: ThreadId, waiter: &mut Waiter<P>) -> bool {
        let (mut seen, mut locked) = (rival, 0);
        let mut sample = P::now_ns();
        for _ in 0..limits::SAMPLES {
            sample += limits::sample::<P>();
            pause_until::<P>(sample);
            let word = self.word.load(Relaxed);
            if word & LOCKED != 0 {
                if seen != ThreadId::NONE && owner(word) != seen {
                    if waiter.is_awake() {
                        waiter.stance = Stance::Sharing;
                    }
                    return false;
                }
                seen = owner(word);
                locked += 1;
            }
        }
        match &mut waiter.role {
            Role::Standby(standby) if locked == 0 && waiter.mode != Mode::Awake => {
                standby.next = self.thin(&standby.lead, standby.next);
                // Until it is held again: those of W8 come back to the line, and our next attempt fails
                // when they do.
                waiter.rival = None;
            }
            _ => {}
        }
        if locked == 1 && (waiter.is_awake() || try_share::<P>(waiter.me)) {
            waiter.stance = Stance::Sharing;
        } else if locked > 0 {
            waiter.stance = Stance::Hot;
            return false;
        }
        true
    }

    /// One step of the standby beside a lock that is held, or hot.
    pub(super) fn stand_by(&self, word: u32, waiter: &mut Waiter<P>, state: RunState, now: u64) {
        let Role::Standby(standby) = &mut waiter.role else { return };
        let running = !matches!(state, RunState::Preempted | RunState::Blocked);
        let dark = state == RunState::Unknown || waiter.mode == Mode::Crowded;
        let limit = if dark {
            in_the_dark::<P>(waiter.me, share::STANDBY, limits::spin::<P>())
        } else if waiter.mode == Mode::Awake {
            // It demands the lock before.
            limits::turn::<P>()
        } else {
            limits::spin::<P>()
        };
        let waited = now.saturating_sub(standby.since);
        let patience = if word & NEWEST == 0 { limits::patience::<P>() } else { limits::turn::<P>() };
        let due = waited >= if running { patience } else { 2 * patience };
        if word & HANDOFF == 0 && (standby.demanded.is_some() || due) {
            // W6. HINT: in time whatever it says.
            standby.next = self.show(&standby.lead, standby.next);
            self.word.fetch_or(HANDOFF, Relaxed);
            standby.demanded = Some(now);
            waiter.grace = None;
        } else if !running {
            self.sleep_as_standby(word, waiter.deadline, &mut waiter.roused);
        } else if let Some(demanded) = standby.demanded {
            if now < demanded + if dark { limit } else { limits::turn::<P>() } {
                P::pause();
            } else {
                self.sleep_as_standby(word, waiter.deadline, &mut waiter.roused);
            }
        } else if waiter.stance == Stance::Hot {
            P::nap_beside(&self.word, waiter.nap);
            waiter.nap = (waiter.nap * 2).min(limits::patience::<P>());
            waiter.stance = Stance::Choosy;
        } else if waited < limit && waiter.mode == Mode::Awake {
            P::pause();
        } else if waited < limit {
            if dark && standby.spin == Spin::Seen {
                standby.spin = Spin::Dark;
            }
            pause_until::<P>(now + (waited / 4).clamp(limits::poll::<P>(), limits::poll_most::<P>()));
        } else {
            if dark && standby.spin != Spin::Vain {
                standby.spin = Spin::Vain;
                learn::<P>(waiter.me, share::STANDBY, true);
            }
            self.sleep_as_standby(word, waiter.deadline, &mut waiter.roused);
        }
    }

    /// W5. Others may sleep on the word by F1 if KICK is set.
    fn sleep_as_standby(&self, word: u32, deadline: Option<Deadline>, roused: &mut bool) {
        *roused |= self.sleep_on_word(word, deadline) == Some(Wait::Woken) && word & KICK != 0;
    }

    /// W5, F1. Sleeps until the release, unless the word changes first.
    pub(super) fn sleep_on_word(&self, word: u32, deadline: Option<Deadline>) -> Option<Wait> {
        if word & KICK == 0 && self.word.compare_exchange(word, word | KICK, Relaxed, Relaxed).is_err() {
            return None;
        }
        if N::PUBLISHES && P::hands_off() {
            let known = |word| word & (LOCKED | OWNER | KICK);
            // A read-modify-write: a load may be older than the holder's release.
            publish::hand_along::<P>(owner(word), || {
                known(self.word.fetch_or(0, Relaxed)) == known(word | KICK)
            });
        }
        Some(P::wait(&self.word, word | KICK, deadline))
    }

    /// G2. Gives back every duty.
    pub(super) fn resign(&self, waiter: &mut Waiter<P>) {
        self.end_futex(waiter);
        let role = waiter.end_role();
        let mut word = self.word.load(Relaxed);
        match role {
            Role::Arrival { .. } => {}
            Role::Relay => loop {
                if word & HANDOFF == 0 {
                    return self.promote_as_relay();
                }
                match self.word.compare_exchange_weak(word, word & !RELAY, Relaxed, Relaxed) {
                    Ok(_) => return,
                    Err(now) => word = now,
                }
            },
            Role::Standby(standby) => loop {
                let alone = word & NEWEST == 0;
                let new = if alone { word & (LOCKED | OWNER) } else { word & !(HANDOFF | RELAY | KICK) };
                // ORDER: Release, pairs with the Acquire in `head`: the role may pass to a relay.
                let freed = self.word.compare_exchange_weak(word, new, Release, Relaxed);
                if N::PUBLISHES && freed.is_ok() {
                    publish::let_go::<P>(owner(word));
                }
                if freed.is_ok() && word & KICK != 0 {
                    // F3: others may go by KICK, too.
                    P::wake(&self.word, u32::MAX);
                }
                match freed {
                    Ok(_) if alone || word & RELAY != 0 => return,
                    Ok(_) => return self.promote(standby.lead, standby.next),
                    Err(now) => word = now,
                }
            },
        }
    }
}

/// W1. How long an arrival looks; less, if nobody knows whether the holder runs.
fn arrival<P: Platform>(me: ThreadId, unknown: bool) -> u64 {
    let most = limits::arrival::<P>();
    if unknown { in_the_dark::<P>(me, share::ARRIVAL, most) } else { most }
}
