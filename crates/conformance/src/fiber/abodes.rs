// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fibers that begin on another carrier, tasks that go to another one between their polls, and rounds that a
//! sentinel ends.

use std::cell::Cell as StdCell;
use std::sync::Arc;

use ::fiber::abode::{Abode, Residents};
use ::fiber::bell::Bell;
use ::fiber::fences::Fences;
use ::fiber::seats::{Invited, Seats};
use ::fiber::token::Token;
use ::fiber::turns::Turns;
use platform::{Atomic, AtomicInt, Ordering::*};

use crate::bodies::together;
use crate::{Cell, Machine};

/// Who leaves a fiber to another carrier does not tell it.
pub const UNTOLD: u32 = 16;
/// A fiber that was left to a carrier is left to others.
pub const AGAIN: u32 = 17;
/// A task is not fastened when it goes on.
pub const ADRIFT: u32 = 18;
/// A task is made ready where all look, and at its home.
pub const DOUBLE: u32 = 19;
/// A driver silences its bell after the poll.
pub const SILENCED_LATE: u32 = 20;
/// A sentinel ends a round once.
pub const ONCE: u32 = 21;

/// Seats, and lists of fibers: bits of words.
struct Carriers<M: Machine + Fences> {
    seats: Seats<M>,
    residents: [Residents<M>; 2],
    /// Of each carrier, and of all.
    inbox: [M::AtomicU32; 2],
    common: M::AtomicU32,
    stop: M::AtomicU32,
}

impl<M: Machine + Fences> Carriers<M> {
    fn new(granted: u32) -> Self {
        Self {
            seats: Seats::new(granted, 3),
            residents: Default::default(),
            inbox: [Atomic::new(0), Atomic::new(0)],
            common: Atomic::new(0),
            stop: Atomic::new(0),
        }
    }

    fn rouse(&self, carrier: Option<u32>) {
        carrier.iter().for_each(|&carrier| self.seats.wake(carrier));
    }

    fn invite(&self) {
        let load = |carrier: u32| self.residents.get(carrier as usize).map_or(0, Residents::count);
        match self.seats.invite_least(false, load) {
            Invited::Carrier(carrier) => self.rouse(Some(carrier)),
            Invited::Nobody | Invited::Newcomer => {}
        }
    }

    /// B1, or W1, of `seats.rs`.
    fn send(&self, fiber: u32, home: Option<u32>, tells: bool) {
        match home {
            Some(home) => {
                self.inbox[home as usize].fetch_add(1 << fiber, Release);
                if tells && self.seats.kick(home) {
                    self.rouse(Some(home));
                }
            }
            None => {
                self.common.fetch_add(1 << fiber, Release);
                self.invite();
            }
        }
    }

    fn pop(list: &M::AtomicU32) -> Option<u32> {
        let mut fibers = list.load(Relaxed);
        while fibers != 0 {
            let first = fibers.trailing_zeros();
            match list.compare_exchange(fibers, fibers & (fibers - 1), Acquire, Relaxed) {
                Ok(_) => return Some(first),
                Err(now) => fibers = now,
            }
        }
        None
    }

    /// What a carrier does until it is told to stop.
    fn carry(&self, me: u32, run: impl Fn(u32)) {
        let inbox = &self.inbox[me as usize];
        loop {
            while self.seats.holds(me)
                && let Some(fiber) = Self::pop(inbox).or_else(|| Self::pop(&self.common))
            {
                run(fiber);
            }
            if self.stop.load(Relaxed) != 0 {
                break;
            }
            self.rouse(self.seats.lie_down(me));
            let mine = inbox.load(Relaxed) != 0;
            let more = mine || self.common.load(Relaxed) != 0 || self.stop.load(Relaxed) != 0;
            if !more || !self.seats.get_up(me, mine) {
                self.seats.sleep(me);
            }
        }
    }

    /// All hear of it.
    fn end(&self, granted: u32) {
        self.stop.store(1, Relaxed);
        self.seats.grant(granted, |carrier| self.seats.wake(carrier));
        (0..2).for_each(|_| self.invite());
    }
}

/// Fibers begin, and wait: each on one carrier, where it is counted. `early`: the first carrier
/// has begun so many before.
pub fn spreading<M: Machine + Fences, const MISTAKE: u32>(early: u32, fibers: u32) {
    struct World<M: Machine + Fences> {
        carriers: Carriers<M>,
        fibers: Vec<(Abode<M>, M::Cell)>,
        begun: M::AtomicU32,
    }
    let world = Arc::new(World::<M> {
        carriers: Carriers::new(2),
        fibers: (0..fibers).map(|_| (Abode::default(), M::Cell::new())).collect(),
        begun: Atomic::new(early),
    });
    for (abode, cell) in &world.fibers[..early as usize] {
        abode.settle(0);
        cell.bump();
        abode.reside(&world.carriers.residents[0], true);
    }
    // Two have seats, and one of them is about to begin a fiber.
    world.carriers.common.store(1 << early, Relaxed);
    (0..2).for_each(|carrier| assert!(world.carriers.seats.regain(carrier)));
    let ours = world.clone();
    together::<M>(3, move |index| {
        let World { carriers, fibers, begun } = &*ours;
        if index != 0 {
            let (me, other) = (index - 1, 2 - index);
            let [here, there] = [me, other].map(|carrier| &carriers.residents[carrier as usize]);
            return carriers.carry(me, |number| {
                let (abode, cell) = &fibers[number as usize];
                let leaves = || match MISTAKE {
                    AGAIN => {
                        // Nobody asks whether it is counted.
                        let before = Abode::<M>::default();
                        let leaves = before.leave(here, there, other);
                        if leaves {
                            abode.leave(here, there, other);
                            abode.settle(other);
                        }
                        leaves
                    }
                    _ => abode.leave(here, there, other),
                };
                // HINT: the other one is about to run.
                if here.count() > 0 && carriers.seats.holds(other) && leaves() {
                    return carriers.send(number, abode.home(), MISTAKE != UNTOLD);
                }
                assert!(abode.home().is_none_or(|home| home == me), "a fiber began away from its home");
                abode.settle(me);
                cell.bump();
                abode.reside(here, true);
                begun.fetch_add(1, Release);
            });
        }
        for number in early + 1..fibers.len() as u32 {
            carriers.send(number, None, true);
        }
        while begun.load(Acquire) < fibers.len() as u32 {
            M::pause();
        }
        carriers.end(4);
    });
    let World { carriers, fibers, .. } = &*world;
    for (abode, cell) in fibers {
        assert_eq!(cell.get(), 1, "a fiber began twice");
        let home = abode.home().expect("it has begun");
        abode.reside(&carriers.residents[home as usize], false);
    }
    let left = carriers.residents.each_ref().map(Residents::count);
    assert_eq!(left, [0, 0], "all have ended, and carriers count some");
}

/// A carrier leaves a fiber to another one, which lies down just then. It begins there.
pub fn leaving<M: Machine + Fences, const MISTAKE: u32>() {
    let world = Arc::new((Carriers::<M>::new(2), [Abode::<M>::default(), Abode::default()]));
    let (carriers, fibers) = &*world;
    fibers[0].reside(&carriers.residents[0], true);
    (0..2).for_each(|carrier| assert!(carriers.seats.regain(carrier)));
    let ours = world.clone();
    together::<M>(2, move |me| {
        let (carriers, [_, abode]) = &*ours;
        if me == 1 {
            return carriers.carry(1, |_| carriers.stop.store(1, Relaxed));
        }
        let [here, there] = &carriers.residents;
        if carriers.seats.holds(1) && abode.leave(here, there, 1) {
            carriers.send(0, abode.home(), MISTAKE != UNTOLD);
        } else {
            carriers.end(2);
        }
    });
}

/// A task: what of it is on its stack.
struct Task<M: Machine> {
    token: Token<M>,
    bell: Bell<M>,
    abode: Abode<M>,
    /// The saved context.
    context: M::Cell,
    step: StdCell<Step>,
    /// Where this poll began.
    place: StdCell<u32>,
    /// What the first poll waits for, and the second one inside of itself.
    events: [M::AtomicU32; 2],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Polls,
    /// Loose.
    Waits,
    /// Pinned, within a poll.
    WaitsInside,
    Ended,
}

// SAFETY: the cells are those of whoever has the task in hand; `context` watches that.
unsafe impl<M: Machine> Sync for Task<M> {}

impl<M: Machine> Task<M> {
    fn new() -> Self {
        Self {
            token: Token::new(),
            bell: Bell::default(),
            abode: Abode::default(),
            context: M::Cell::new(),
            step: StdCell::new(Step::Polls),
            place: StdCell::new(0),
            events: [Atomic::new(0), Atomic::new(0)],
        }
    }

    /// Runs the task until it parks, or ends: true.
    fn resume<const MISTAKE: u32>(&self, me: u32, here: &Residents<M>) -> bool {
        self.context.bump();
        loop {
            match self.step.get() {
                Step::Polls => {
                    self.place.set(me);
                    let ready = self.events[0].load(Relaxed) != 0;
                    if MISTAKE == SILENCED_LATE {
                        self.bell.silence();
                    }
                    if ready {
                        self.step.set(Step::WaitsInside);
                        continue;
                    }
                    if !self.bell.is_rung() {
                        self.abode.loosen(here);
                    }
                    self.step.set(Step::Waits);
                }
                Step::Waits if self.bell.is_rung() => {
                    if MISTAKE != ADRIFT {
                        self.abode.fasten(me);
                    }
                    if MISTAKE != SILENCED_LATE {
                        self.bell.silence();
                    }
                    self.step.set(Step::Polls);
                }
                Step::WaitsInside if self.events[1].load(Acquire) != 0 => {
                    assert_eq!(self.place.get(), me, "a poll went on elsewhere");
                    self.step.set(Step::Ended);
                    return true;
                }
                _ if self.token.take() => {}
                _ => {
                    self.context.bump();
                    return false;
                }
            }
        }
    }
}

/// A task waits between its polls, and then in one, while a sentinel takes its carrier's seat. It comes to
/// its end, and is on one carrier at a time, and during a poll on one only. `waits`: it waits already.
pub fn moving<M: Machine + Fences, const MISTAKE: u32>(granted: u32, waits: bool) {
    struct World<M: Machine + Fences> {
        carriers: Carriers<M>,
        task: Task<M>,
        ended: M::AtomicU32,
    }
    let world =
        Arc::new(World::<M> { carriers: Carriers::new(granted), task: Task::new(), ended: Atomic::new(0) });
    // It has begun with the first carrier.
    world.task.abode.settle(0);
    if waits {
        world.task.abode.loosen(&world.carriers.residents[0]);
        world.task.step.set(Step::Waits);
        assert!(world.task.token.settle());
    } else {
        world.carriers.inbox[0].store(1, Relaxed);
    }
    assert!(world.carriers.seats.regain(0));
    together::<M>(3, move |index| {
        let World { carriers, task, ended } = &*world;
        if index != 0 {
            let me = index - 1;
            let here = &carriers.residents[me as usize];
            return carriers.carry(me, |_| {
                // What `put_away` does.
                while !task.resume::<MISTAKE>(me, here) {
                    if !task.abode.is_loose() {
                        task.abode.reside(here, true);
                    }
                    if task.token.settle() {
                        return;
                    }
                }
                ended.store(1, Release);
            });
        }
        let nudge = || {
            if task.token.give() {
                if MISTAKE == DOUBLE && task.abode.is_loose() {
                    carriers.send(0, None, true);
                }
                carriers.send(0, task.abode.destination(&carriers.seats), true);
            }
        };
        // The upcall: the first carrier has blocked, says the kernel, right or wrong.
        if carriers.seats.take(0) {
            carriers.rouse(carriers.seats.surrender());
        }
        task.events[0].store(1, Relaxed);
        if task.bell.ring() {
            nudge();
        }
        task.events[1].store(1, Release);
        nudge();
        while ended.load(Acquire) == 0 {
            M::pause();
        }
        carriers.end(granted + 2);
    });
}

/// A kernel thread that drives a future.
pub fn ringing<M: Machine, const MISTAKE: u32>(ringers: u32) {
    let shared = Arc::new((Bell::<M>::default(), M::AtomicU32::new(0)));
    together::<M>(ringers + 1, move |index| {
        let (bell, events) = &*shared;
        if index != 0 {
            events.fetch_add(1, Relaxed);
            bell.ring();
            return;
        }
        while events.load(Relaxed) < ringers {
            if MISTAKE == SILENCED_LATE {
                bell.silence();
            }
            bell.sleep();
            if MISTAKE != SILENCED_LATE {
                bell.silence();
            }
        }
    });
}

/// A carrier always has work of its own, and a sentinel ends its rounds: it comes to the others'.
pub fn rounds<M: Machine, const MISTAKE: u32>() {
    /// No round ends by itself.
    const ROUND: u32 = 1 << 20;
    let shared = Arc::new((Turns::<M, ROUND>::default(), M::AtomicU32::new(0)));
    together::<M>(2, move |index| {
        let (turns, done) = &*shared;
        if index == 1 {
            while !Turns::<M, ROUND>::ends_round(turns.next()) {
                M::pause();
            }
            return done.store(1, Relaxed);
        }
        while done.load(Relaxed) == 0 {
            turns.end_round();
            if MISTAKE == ONCE {
                break;
            }
            M::pause();
        }
    });
}
