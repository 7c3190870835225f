// SPDX-License-Identifier: MIT OR Apache-2.0
//! Does delegation pay? The default lock measures it, since it cannot know what sections and threads do.
//!
//! The holder counts sections. Now and then it looks at the clock: the sections in a *window* are a rate. A
//! *trial* is some windows, in turns with delegation and without. What gave the higher sum is kept for the
//! next windows. If a trial says the same as the one before, there are twice as many windows until the next.
//! So the worse of the two is used in a twentieth of the time, and soon in less than a hundredth.
//!
//! - Without delegation a trial begins only if somebody waits for the mutex: else there is nothing to gain.
//! - Delegation has to be better by an eighth, because rates differ by so much where threads outnumber the
//!   processors.
//! - A trial in which the lock was idle for long says nothing, and is dropped.
//!
//! All words but `on` are the holder's. Rates, and so verdicts, are hints.

use platform::{Atomic, Ordering::*, Platform};

/// BOUND: sections between two looks at the clock, which costs as much as a lock and a release.
const EVERY: u32 = 64;
/// Units of the clock words: 1,024 ns.
const UNIT: u32 = 10;
/// BOUND: windows in a trial, half of them with delegation: enough for a slice of each processor.
const TRIAL: u32 = 8;
/// BOUND: windows between two trials, at first and at most.
const REST: u32 = 32;
const MOST_REST: u32 = 1024;
/// BOUND: a window that took so many times its length tells nothing.
const IDLE: u32 = 8;

/// See the head of this file.
pub struct Judge<P: Platform> {
    /// 1: delegate.
    on: P::AtomicU32,
    /// Sections in this window, and at how many to look at the clock.
    sections: P::AtomicU32,
    due: P::AtomicU32,
    /// When it began.
    began: P::AtomicU32,
    /// Which window of a trial it is, from 1; 0: no trial.
    turn: P::AtomicU32,
    /// The sums of the trial.
    with: P::AtomicU32,
    without: P::AtomicU32,
    /// The last verdict.
    verdict: P::AtomicU32,
    /// Windows to the next trial, and how many they were.
    left: P::AtomicU32,
    rest: P::AtomicU32,
}

impl<P: Platform> Judge<P> {
    pub fn new() -> Self {
        let zero = || P::AtomicU32::new(0);
        Self {
            on: zero(),
            sections: zero(),
            due: zero(),
            began: zero(),
            turn: zero(),
            with: zero(),
            without: zero(),
            verdict: zero(),
            left: zero(),
            rest: zero(),
        }
    }

    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.on.load(Relaxed) != 0
    }

    /// The holder has run so many sections.
    #[inline]
    pub fn count(&self, ran: u32, contended: impl FnOnce() -> bool) {
        let sections = self.sections.load(Relaxed).wrapping_add(ran);
        self.sections.store(sections, Relaxed);
        if sections >= self.due.load(Relaxed) {
            self.look(sections, contended());
        }
    }

    #[cold]
    #[inline(never)]
    fn look(&self, sections: u32, contended: bool) {
        let window = (P::costs().slice / 3 >> UNIT) as u32;
        let now = (P::now_ns() >> UNIT) as u32;
        let elapsed = now.wrapping_sub(self.began.load(Relaxed));
        let every = EVERY.min(P::PAUSES);
        if elapsed < window {
            return self.due.store(sections.saturating_add(every), Relaxed);
        }
        let rate = u64::from(sections) * u64::from(window) / u64::from(elapsed);
        self.end_window(rate.min(u64::from(u32::MAX / TRIAL)) as u32, elapsed > IDLE * window, contended);
        self.sections.store(0, Relaxed);
        self.due.store(every, Relaxed);
        self.began.store(now, Relaxed);
    }

    fn end_window(&self, rate: u32, idle: bool, contended: bool) {
        let turn = self.turn.load(Relaxed);
        if turn == 0 {
            match self.left.load(Relaxed) {
                0 if contended || self.is_on() => self.begin_turn(1),
                0 => {}
                left => self.left.store(left - 1, Relaxed),
            }
            return;
        }
        let sum = if self.is_on() { &self.with } else { &self.without };
        sum.store(sum.load(Relaxed) + rate, Relaxed);
        if idle {
            self.end_trial(false);
        } else if turn == TRIAL {
            let (with, without) = (self.with.load(Relaxed), self.without.load(Relaxed));
            self.end_trial(with - with / 8 > without);
        } else {
            self.begin_turn(turn + 1);
        }
    }

    /// The odd ones are with delegation.
    fn begin_turn(&self, turn: u32) {
        self.turn.store(turn, Relaxed);
        self.on.store(turn % 2, Relaxed);
    }

    fn end_trial(&self, verdict: bool) {
        let verdict = u32::from(verdict);
        let same = self.verdict.load(Relaxed) == verdict;
        let rest = if same { (self.rest.load(Relaxed) * 2).clamp(REST, MOST_REST) } else { REST };
        self.verdict.store(verdict, Relaxed);
        self.rest.store(rest, Relaxed);
        self.left.store(rest, Relaxed);
        self.turn.store(0, Relaxed);
        self.with.store(0, Relaxed);
        self.without.store(0, Relaxed);
        self.on.store(verdict, Relaxed);
    }
}
