// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel tells a program of its threads while it schedules them: the upcalls.
//!
//! A program *listens* to a thread, as by a perf event on Linux. From then on each of the thread's
//! [`Event`]s lies in the program's channel, and wakes one of the threads that *stand* at it. A kernel that
//! does not tell the truth ([`Hints`]) tells late, forgets, or says the opposite. What it told is a hint:
//! the program looks again ([`is_blocked`]).

use platform::{Clock, Deadline};

use crate::chance::unit;
use crate::engine::{Engine, suspend, sync};
use crate::event::Event;
use crate::memory::{NS, Time, from_ns};
use crate::platform::{look, machine, sleep, system_call};
use crate::setting::Hints;
use crate::thread::{Reason, State};
use crate::timers::Timer;
use crate::word::Word;

impl Engine {
    /// A thread's state changes: its program is told, if it listens.
    pub(crate) fn upcall(&mut self, thread: usize, event: Event, now: Time) {
        if !self.threads[thread].listened {
            return;
        }
        match self.rules.setting.hints {
            Hints::True => self.deliver(thread, event, now),
            Hints::None => {}
            Hints::Inverted => self.deliver(thread, event.inverted(), now),
            Hints::Delayed { us } => self.timers.set(now + from_ns(us * 1e3), Timer::Upcall(thread, event)),
            Hints::Dropped { fraction } => {
                if unit(&mut self.random) >= fraction {
                    self.deliver(thread, event, now);
                }
            }
        }
    }

    /// The upcall arrives.
    pub(crate) fn deliver(&mut self, thread: usize, event: Event, now: Time) {
        let app = self.threads[thread].app;
        let channel = &mut self.apps[app].channel;
        channel.counts[event as usize] += 1;
        channel.told.push_back((thread, event));
        self.rouse_standing(app, now);
    }

    fn rouse_standing(&mut self, app: usize, now: Time) {
        if let Some(thread) = self.apps[app].channel.standing.pop_front() {
            let bed = self.threads[thread].sleeps_on;
            self.wake(bed, 1, now);
        }
    }

    /// So many fibers became ready, or began, at this moment: see [`crate::tally::Idle`].
    pub(crate) fn account(&mut self, now: Time) {
        let idle = self.waiting.idle as u64;
        self.tally.idle.pass(idle, now);
    }
}

fn current() -> usize {
    look(|it| it.current)
}

/// The calling thread's number, by which upcalls name it.
pub(crate) fn me() -> usize {
    current()
}

/// The kernel tells of this thread from now on, or no longer: a system call.
pub(crate) fn listen(thread: usize, on: bool) {
    system_call();
    look(|it| it.threads[thread].listened = on);
}

/// The truth about a thread: from the record that the kernel keeps where the program listens, else by a
/// system call.
pub(crate) fn is_blocked(thread: usize) -> bool {
    if look(|it| it.threads[thread].listened) {
        moment()
    } else {
        system_call()
    }
    look(|it| it.threads[thread].state == State::Asleep)
}

/// The calling thread stands at its program's channel: it sleeps until there is an upcall, which it
/// returns, or until the word is another than this or somebody wakes it there, or until the deadline.
pub(crate) fn stand(word: &Word<u32>, expected: u32, deadline: Deadline) -> Option<(usize, Event)> {
    system_call();
    if let Some(told) = told() {
        return Some(told);
    }
    let until = deadline.ns.saturating_mul(NS);
    // SAFETY: one simulated thread at a time.
    if unsafe { *word.at() } != expected || look(|it| until <= it.now) {
        return None;
    }
    look(|it| {
        let (app, me) = (it.threads[it.current].app, it.current);
        it.apps[app].channel.standing.push_back(me);
    });
    sleep(word.at().addr(), Some(until));
    look(|it| {
        let (app, me) = (it.threads[it.current].app, it.current);
        it.apps[app].channel.standing.retain(|&other| other != me);
    });
    told()
}

/// What there is at the caller's channel, without waiting.
pub(crate) fn glance() -> Option<(usize, Event)> {
    system_call();
    told()
}

fn told() -> Option<(usize, Event)> {
    look(|it| it.apps[it.threads[it.current].app].channel.told.pop_front())
}

/// Wakes one of those who stand at the caller's channel.
pub(crate) fn ring() {
    system_call();
    look(|it| {
        let app = it.threads[it.current].app;
        it.rouse_standing(app, it.now);
        it.now += it.rules.costs.wake;
        it.set_limit();
    });
}

/// The kernel keeps the calling thread for so long: a system call that waits, or a page fault.
pub fn block_ns(ns: f64, faults: bool) {
    system_call();
    look(|it| {
        let current = it.current;
        it.threads[current].faults = faults;
    });
    sleep(0, Some(look(|it| it.now) + from_ns(ns).max(1)));
    look(|it| {
        let current = it.current;
        it.threads[current].faults = false;
        it.tally.idle.blocks += 1;
    });
}

/// So many fibers are ready, more or fewer than before.
pub(crate) fn ready(change: i64) {
    moment();
    look(|it| {
        it.account(it.now);
        let work = it.threads.iter().map(|thread| thread.work).sum();
        it.tally.idle.change(change, it.now, work);
    });
}

/// The program is done, whoever still sleeps.
pub(crate) fn exit() {
    moment();
    let this = machine();
    // SAFETY: the current machine, and its running thread, which is not resumed.
    unsafe {
        let it = &mut *this;
        it.tally.end = it.now;
        it.waiting.live = 0;
        suspend(this, Reason::Late);
    }
}

fn moment() {
    // SAFETY: the current machine, and its running thread.
    unsafe { sync(machine()) };
}

/// The clock, without a look at it that costs.
pub(crate) fn deadline(ns: u64) -> Deadline {
    Deadline { ns: look(|it| it.now / NS) + ns, clock: Clock::Monotonic }
}

/// Procedure calls, one after the other.
pub(crate) fn calls(count: u32) {
    look(|it| it.now += Time::from(count) * it.rules.costs.call);
}

/// A kernel thread, or a process, is made and will be ended: what that costs beside its first wake-up.
pub(crate) fn make_thread() {
    system_call();
    look(|it| it.now += it.rules.costs.thread);
}
