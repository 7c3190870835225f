// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting: one loop, [`Wakeful::wait_as`], for the four roles that a waiter may have.
//!
//! | role | who | it waits |
//! |---|---|---|
//! | [`Arrival`] | a thread that has just come | awake, for a short time; then it goes into line |
//! | [`Front`] | the first of the line | awake for longer, then asleep; it demands the lock |
//! | [`Counted`] | a recursive reader, or a member (A7): counted already | awake for a time, then asleep |
//! | [`Upgrader`] | the upgradable reader | awake for a time, then asleep, until the readers have left |
//!
//! | step | what happens |
//! |---|---|
//! | W0 | If threads seem to share, on few processors: look closely, without a clock. Then H2, or W1. |
//! | W1 | If threads share (F2), look for `arrival` while the holder runs and nobody demands. Then H2. |
//! | W2 | Else, or after a demand was met, lock `line`: now we are the front. |
//! | W3 | A recursive reader is never in line. It sets SLEEPER and sleeps on `state`. Without room it naps. |
//! | W4 | With room ([`look::has_room`]) a reader looks for `roomy` before W2; the front is awake as long. |
//! | F1 | The front counts by VERSION how often others use the lock within two samples: the pace. |
//! | F2 | Used: threads share it now (H1, `share.rs`), ... |
//! | F3 | ... unless that loses (H3), or others run beside a hot lock: nap for a turn, then set DEMAND. |
//! | F4 | Look with growing gaps; take the lock when it is free (A2), clearing DEMAND. |
//! | F5 | After `patience` set DEMAND, whatever the hints say; after `urgent` also URGENT. |
//! | F6 | If the writer does not run, or `spin` after the demand: set SLEEPER and sleep. |
//! | F7 | With the lock, or at the deadline, unlock `line`. |
//!
//! R1 does not clear SLEEPER. So F6 sets DEMAND beside readers, and few readers come to be the last before
//! the sleeper runs.

use platform::{Atomic, AtomicInt, Deadline, Ordering::*, Platform, Readers, RunState, ThreadId};

use super::limits;
use super::share::LEARNED;
use super::turns::{self, Turn};
use super::word::*;
use super::{Until, Wakeful};
use crate::mutex::{RawMutex, RawMutexTimed};
use crate::wait::{self as policy, Preemption, look};

// In `front`: the thread, the generation of its process, that there is one, and what `share.rs` has there.
const GENERATION_SHIFT: u32 = 12;
const GENERATION: u32 = 7 << GENERATION_SHIFT;
const FRONT: u32 = 1 << 15;

/// Lets some time pass between two looks, the more the longer it has `waited`.
fn pass<P: Platform>(now: u64, waited: u64, most: u64) {
    look::pause_until::<P>(now + (waited / 4).clamp(limits::poll::<P>(), most));
}

/// The most between two looks of a waiter that stays awake.
fn most_between_looks<P: Platform>(stays: bool) -> u64 {
    if stays { limits::poll_roomy::<P>() } else { limits::poll_most::<P>() }
}

/// What a waiter made of a state.
enum Seen {
    /// The lock is ours.
    Taken,
    /// It was free, and somebody else was faster.
    Missed,
    /// It was ours, but for readers that did not leave in time.
    TooLate,
    /// It is not for us.
    KeptOut,
    /// It is not for us, and we do not wait for it in this role.
    Leave,
    /// A7. We are counted, and a writer is inside.
    Counted,
}

/// What a waiter does after a state that keeps it out.
enum Step {
    /// Looks again at once.
    Again,
    /// Looks again later: it has waited so long, and waits at most so long.
    Later { waited: u64, most: u64 },
    /// Sleeps, with these bits set.
    Sleep(u32),
    /// Ends this role.
    Leave,
}

/// How waiting ended.
pub enum Waited {
    Taken,
    TooLate,
    /// The role is over, and the waiter still wants the lock.
    Left,
    /// A7. The same, and the waiter is counted.
    Counted,
}

/// Why a waiter waits, and what it does meanwhile.
trait Role<P: Readers, N: Preemption> {
    /// Takes the lock if this state lets it.
    fn look(&mut self, lock: &Wakeful<P, N>, word: u32, deadline: Option<Deadline>) -> Seen;

    /// What to do after that state.
    fn step(&mut self, lock: &Wakeful<P, N>, word: u32, now: u64) -> Step;

    /// The deadline has passed. False if the state has changed, so that it has to look again.
    fn give_up(&mut self, lock: &Wakeful<P, N>, word: u32) -> bool {
        let _ = (lock, word);
        true
    }
}

/// W1 to W4.
struct Arrival {
    want: Want,
    arrived: u64,
    /// W4.
    stays: bool,
    /// W2. It has met a demand: it leaves the lock to the thread that demanded it.
    displaced: bool,
    grace: Option<u64>,
    /// Such a reader waits for its turn.
    turn: Option<Turn>,
}

impl<P: Readers, N: Preemption> Role<P, N> for Arrival {
    fn look(&mut self, lock: &Wakeful<P, N>, word: u32, deadline: Option<Deadline>) -> Seen {
        self.displaced |= word & DEMAND != 0;
        if !self.stays && (self.displaced && word & DEMAND == 0 || !lock.shared(self.arrived)) {
            return Seen::Leave;
        }
        let turns = self.turn.is_some();
        if turns && turns::joins(word) {
            return lock.join();
        }
        if self.want.kept_out(word) || word & URGENT != 0 {
            return Seen::KeptOut;
        }
        if word & DEMAND == 0 || lock.may_pass(word, &mut self.grace, turns) {
            return lock.take(word, self.want, false, deadline);
        }
        if turns {
            return Seen::KeptOut;
        }
        P::pause();
        Seen::Missed
    }

    fn step(&mut self, lock: &Wakeful<P, N>, word: u32, now: u64) -> Step {
        let in_place = self.stays && now < self.arrived + limits::roomy::<P>();
        let waited = now - self.arrived;
        if !in_place
            && (word & DEMAND != 0 || waited >= limits::arrival::<P>() || !lock.holder_runs(word, waited))
        {
            return Step::Leave;
        }
        let Some(turn) = &mut self.turn else {
            return Step::Later { waited, most: most_between_looks::<P>(self.stays) };
        };
        // T4.
        turn.watch(lock, now + (waited / 4).clamp(limits::poll::<P>(), limits::poll_roomy::<P>()));
        Step::Again
    }
}

/// F4 to F6.
struct Front {
    want: Want,
    since: u64,
    demanded: u64,
    awake_ns: u64,
}

impl<P: Readers, N: Preemption> Role<P, N> for Front {
    fn look(&mut self, lock: &Wakeful<P, N>, word: u32, deadline: Option<Deadline>) -> Seen {
        if self.want.kept_out(word) { Seen::KeptOut } else { lock.take(word, self.want, true, deadline) }
    }

    fn step(&mut self, lock: &Wakeful<P, N>, word: u32, now: u64) -> Step {
        let waited = now.saturating_sub(self.demanded);
        if word & DEMAND == 0 && waited >= limits::patience::<P>() {
            lock.state.fetch_or(DEMAND, Relaxed);
            self.demanded = now;
            Step::Again
        } else if word & URGENT == 0 && now >= self.since + limits::urgent::<P>() {
            lock.state.fetch_or(DEMAND | URGENT, Relaxed);
            Step::Again
        } else if !lock.holder_runs(word, waited) || waited >= self.awake_ns {
            Step::Sleep(if word & READERS != 0 { DEMAND } else { 0 })
        } else {
            Step::Later { waited, most: limits::poll_most::<P>() }
        }
    }

    fn give_up(&mut self, lock: &Wakeful<P, N>, _: u32) -> bool {
        lock.withdraw();
        true
    }
}

/// W3, A7. While it is counted no other writer gets in.
struct Counted {
    arrived: u64,
    roomy: bool,
    /// A7. A member. A recursive reader must not step back.
    turn: Option<Turn>,
}

impl<P: Readers, N: Preemption> Role<P, N> for Counted {
    fn look(&mut self, lock: &Wakeful<P, N>, word: u32, _: Option<Deadline>) -> Seen {
        if word & DRAINING == WRITER {
            return Seen::KeptOut;
        }
        // ORDER: Acquire (A6), pairs with R2 and D1. Once the writer is gone, none comes.
        lock.state.load(Acquire);
        Seen::Taken
    }

    fn step(&mut self, lock: &Wakeful<P, N>, word: u32, now: u64) -> Step {
        let awake_ns = if self.roomy { limits::roomy::<P>() } else { limits::arrival::<P>() };
        let waited = now - self.arrived;
        if waited >= awake_ns {
            return Step::Sleep(0);
        }
        if let Some(turn) = &mut self.turn {
            if policy::is_warned::<N, P>(P::current()) {
                // T5.
                lock.after_read(lock.state.fetch_sub(READER, Relaxed));
                return Step::Leave;
            }
            turn.watch(lock, now + limits::spin::<P>());
            Step::Again
        } else if lock.holder_runs(word, waited) {
            Step::Later { waited, most: most_between_looks::<P>(self.roomy) }
        } else {
            Step::Sleep(0)
        }
    }

    fn give_up(&mut self, lock: &Wakeful<P, N>, word: u32) -> bool {
        // A4. Nobody is woken: whoever sleeps waits for the writer, too.
        lock.state.compare_exchange(word, word - READER, Relaxed, Relaxed).is_ok()
    }
}

/// U1.
struct Upgrader {
    since: u64,
}

impl<P: Readers, N: Preemption> Role<P, N> for Upgrader {
    fn look(&mut self, lock: &Wakeful<P, N>, word: u32, deadline: Option<Deadline>) -> Seen {
        if word & READERS != 0 {
            return Seen::KeptOut;
        }
        // ORDER: Acquire (U1), pairs with R1.
        if lock.state.compare_exchange(word, Wakeful::<P, N>::upgraded(word), Acquire, Relaxed).is_err() {
            return Seen::Missed;
        }
        // UPGRADING is gone in either case.
        if lock.alone(word, deadline.into(), UPGRADABLE | BIASED) { Seen::Taken } else { Seen::TooLate }
    }

    fn step(&mut self, lock: &Wakeful<P, N>, word: u32, now: u64) -> Step {
        if word & UPGRADING == 0 {
            lock.state.fetch_or(UPGRADING, Relaxed);
            Step::Again
        } else if now >= self.since + limits::spin::<P>() {
            Step::Sleep(0)
        } else {
            Step::Later { waited: now - self.since, most: limits::poll_most::<P>() }
        }
    }

    fn give_up(&mut self, lock: &Wakeful<P, N>, word: u32) -> bool {
        if word & UPGRADING != 0 {
            lock.release(UPGRADING, 0);
        }
        true
    }
}

impl<P: Readers, N: Preemption> Wakeful<P, N> {
    /// The loop.
    fn wait_as(&self, mut role: impl Role<P, N>, deadline: Option<Deadline>) -> Waited {
        let mut handed = false;
        loop {
            let word = self.state.load(Relaxed);
            match role.look(self, word, deadline) {
                Seen::Taken => return Waited::Taken,
                Seen::Missed => continue,
                Seen::TooLate => return Waited::TooLate,
                Seen::Leave => return Waited::Left,
                Seen::Counted => return Waited::Counted,
                Seen::KeptOut => {}
            }
            if deadline.is_some_and(P::past) {
                if role.give_up(self, word) {
                    return Waited::TooLate;
                }
                continue;
            }
            if N::PUBLISHES && self.hands_off(word, &mut handed) {
                continue;
            }
            let now = P::now_ns();
            match role.step(self, word, now) {
                Step::Again => {}
                Step::Later { waited, most } => pass::<P>(now, waited, most),
                Step::Sleep(with) => self.sleep(word, with, deadline),
                Step::Leave => return Waited::Left,
            }
        }
    }

    /// A recursive reader, which has added itself to `was`.
    pub(super) fn wait_counted(&self, mut was: u32, deadline: Option<Deadline>) -> bool {
        while was & MANY != 0 {
            // A4. There is no room.
            self.after_read(self.state.fetch_sub(READER, Relaxed));
            if deadline.is_some_and(P::past) {
                return false;
            }
            P::nap(limits::nap::<P>());
            was = self.state.fetch_add(READER, Relaxed);
        }
        let arrived = P::now_ns();
        let role = Counted { arrived, roomy: look::has_room::<N, P>(arrived), turn: None };
        matches!(self.wait_as(role, deadline), Waited::Taken)
    }

    /// A7. A reader that is counted, and wishes with `N`. Without the lock it has no wish. `None`: it was
    /// warned, and is to come anew (T5).
    pub(super) fn wait_as_member(&self, deadline: Option<Deadline>) -> Option<bool> {
        let role = Counted { arrived: P::now_ns(), roomy: true, turn: Some(Turn::of(self)) };
        match self.wait_as(role, deadline) {
            Waited::Taken => Some(true),
            Waited::TooLate => Some(false),
            _ => {
                policy::unshield::<N, P>(P::current());
                None
            }
        }
    }

    /// A7. A writer seems to be inside.
    fn join(&self) -> Seen {
        let me = policy::shield::<N, P>();
        // ORDER: Acquire (A7), pairs with R2 and D1, if the writer has just gone.
        let was = self.state.fetch_add(READER, Acquire);
        if turns::joins(was) {
            return Seen::Counted;
        }
        if was & (Want::Read.excluded() | DEMAND) == 0 {
            return Seen::Taken;
        }
        // A4.
        self.after_read(self.state.fetch_sub(READER, Relaxed));
        policy::unshield::<N, P>(me);
        Seen::Missed
    }

    #[cold]
    #[inline(never)]
    pub(super) fn upgrade_by(&self, deadline: Option<Deadline>) -> bool {
        let (_, since) = look::begin::<P>();
        matches!(self.wait_as(Upgrader { since }, deadline), Waited::Taken)
    }

    /// W0. Takes the lock when it is free, unless somebody demands it, or it is biased.
    fn look_closely(&self, want: Want) -> bool {
        for _ in 0..limits::CLOSE_LOOKS.min(P::PAUSES) {
            P::pause();
            let word = self.state.load(Relaxed);
            if word & (BIASED | DEMAND | URGENT) != 0 {
                return false;
            }
            if !want.kept_out(word) && matches!(self.take(word, want, false, None), Seen::Taken) {
                return true;
            }
        }
        false
    }

    /// W0 to W4, then in line.
    pub(super) fn wait_as_it_is(&self, want: Want, deadline: Option<Deadline>) -> bool {
        if self.seems_shared() && self.look_closely(want) {
            self.learn();
            return true;
        }
        loop {
            let arrived = P::now_ns();
            let roomy = look::has_room::<N, P>(arrived);
            let stays = roomy && want == Want::Read;
            let turn = (stays && turns::are_taken::<P, N>()).then(|| Turn::of(self));
            let role = Arrival { want, arrived, stays, displaced: false, grace: None, turn };
            let shared = !stays && self.shared(arrived);
            let waited = self.wait_as(role, deadline);
            if shared {
                self.learn();
            }
            match waited {
                Waited::Taken => return true,
                Waited::TooLate => return false,
                Waited::Counted => match self.wait_as_member(deadline) {
                    Some(taken) => return taken,
                    None => continue,
                },
                Waited::Left => return self.wait_in_line(want, roomy, deadline),
            }
        }
    }

    fn wait_in_line(&self, want: Want, roomy: bool, deadline: Option<Deadline>) -> bool {
        self.purge();
        match deadline {
            // SAFETY: unlocked below.
            None => unsafe { self.line.lock(&()) },
            // SAFETY: unlocked below, if it was locked.
            Some(deadline) if !unsafe { self.line.lock_until(&(), deadline) } => return false,
            Some(_) => {}
        }
        let learned = self.front.load(Relaxed) & LEARNED;
        self.front.store(learned | FRONT | P::generation() << GENERATION_SHIFT | P::current().0, Relaxed);
        let taken = self.wait_in_front(want, roomy, deadline);
        self.front.store(self.front.load(Relaxed) & LEARNED, Relaxed);
        // SAFETY: locked above.
        unsafe { self.line.unlock(&()) };
        taken
    }

    /// The only waiter that watches the state: F1 to F3, then the role.
    fn wait_in_front(&self, want: Want, roomy: bool, deadline: Option<Deadline>) -> bool {
        let since = look::begin_unnamed::<P>();
        if !self.shared(since) {
            let uses = self.uses();
            self.pace(uses);
            let now = P::now_ns();
            if self.is_for_one(uses, now) {
                if !self.nap(since + limits::turn::<P>(), deadline) {
                    return false;
                }
            } else if uses > 0 {
                self.may_share(now);
            }
        }
        let awake_ns = if roomy { limits::roomy::<P>() } else { limits::spin::<P>() };
        let role = Front { want, since, demanded: P::now_ns(), awake_ns };
        matches!(self.wait_as(role, deadline), Waited::Taken)
    }

    /// F1. How often others use the lock while we look.
    fn uses(&self) -> u32 {
        let mut uses = 0;
        let mut now = P::now_ns();
        let mut version = self.state.load(Relaxed) >> VERSION_SHIFT;
        for _ in 0..2 {
            now += limits::sample::<P>();
            look::pause_until::<P>(now);
            let later = self.state.load(Relaxed) >> VERSION_SHIFT;
            uses += later.wrapping_sub(version) % VERSIONS;
            version = later;
        }
        uses
    }

    /// The front leaves the lock to the thread that uses it, for a turn; then demands it. False at the
    /// deadline.
    fn nap(&self, until: u64, deadline: Option<Deadline>) -> bool {
        let mut nap = limits::nap::<P>();
        while P::now_ns() < until {
            if deadline.is_some_and(P::past) {
                return false;
            }
            P::nap(nap);
            nap = (nap * 2).min(limits::nap_most::<P>());
        }
        self.state.fetch_or(DEMAND, Relaxed);
        true
    }

    /// HINT: wrong either way, it costs a spin or a sleep.
    fn holder_runs(&self, word: u32, waited: u64) -> bool {
        let owner = ThreadId(self.owner.load(Relaxed) % ThreadId::LIMIT);
        if word & WRITER == 0 {
            return !(N::PUBLISHES && P::hands_off() && look::is_wanted::<P>());
        }
        look::may_run_after::<P>(owner, waited)
    }

    /// The lock is free and the front demands it: may another thread take it?
    fn may_pass(&self, word: u32, grace: &mut Option<u64>, turns: bool) -> bool {
        let front = self.front.load(Relaxed);
        // HINT: a front that does run demands again.
        if P::run_state(ThreadId(front % ThreadId::LIMIT)) == RunState::Preempted {
            return true;
        }
        let now = P::now_ns();
        let ns = if turns {
            // T6. Else it passes each front while other readers are inside.
            limits::nap_most::<P>()
        } else if word & SLEEPER == 0 {
            limits::grace::<P>()
        } else {
            limits::waking::<P>()
        };
        now >= *grace.get_or_insert(now + ns)
    }

    /// Takes the lock from a state in which `want` may have it. Ends the demand, which a front that is not
    /// here would leave standing.
    fn take(&self, word: u32, want: Want, in_front: bool, deadline: Option<Deadline>) -> Seen {
        // Who sleeps because of UPGRADABLE, or to upgrade, is woken by others.
        let sleeper = if word & UPGRADABLE == 0 { SLEEPER } else { 0 };
        let new = Self::telling(want, want.added_to(word & !(DEMAND | URGENT | sleeper)));
        // ORDER: Acquire (A2), pairs with R1 and R2.
        if self.state.compare_exchange(word, new, Acquire, Relaxed).is_err() {
            return Seen::Missed;
        }
        if word & sleeper != 0 && !in_front {
            P::wake(&self.state, u32::MAX);
        }
        let alone = want != Want::Write || self.alone(word, Until::from(deadline), BIASED);
        if alone { Seen::Taken } else { Seen::TooLate }
    }

    /// Sleeps until a release, unless the state changes first.
    fn sleep(&self, word: u32, with: u32, deadline: Option<Deadline>) {
        let new = word | SLEEPER | with;
        if new != word && self.state.compare_exchange(word, new, Relaxed, Relaxed).is_err() {
            return;
        }
        P::wait(&self.state, new, deadline);
    }

    /// The front gives up, or is not here.
    fn withdraw(&self) {
        let mut word = self.state.load(Relaxed);
        loop {
            // W3: beside a writer, its readers may sleep.
            let sleeper = if word & (UPGRADING | WRITER) == 0 { SLEEPER } else { 0 };
            let new = word & !(DEMAND | URGENT | sleeper);
            match self.state.compare_exchange_weak(word, new, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// A front that a fork left in the parent.
    fn purge(&self) {
        let mut front = self.front.load(Relaxed);
        while front & FRONT != 0 && (front & GENERATION) >> GENERATION_SHIFT != P::generation() {
            // Others may learn something meanwhile.
            match self.front.compare_exchange(front, front & LEARNED, Relaxed, Relaxed) {
                Ok(_) => {
                    self.withdraw();
                    // SAFETY: the thread that locked it is not here, and only one thread gets here.
                    return unsafe { self.line.unlock(&()) };
                }
                Err(now) => front = now,
            }
        }
    }
}
