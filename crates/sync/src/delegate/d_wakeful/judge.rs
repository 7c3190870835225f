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
//! - Delegation ends at the first window that is slower than the trial's without: some programs fall from a
//!   quick rhythm into a slow one. To end it for nothing costs what there was to gain until the next trial.
//!
//! All words are the holder's; `on`, which it sets, is read by all. Rates, and so verdicts, are hints.

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
    /// Sections in this window, and at how many to look at the clock.
    sections: P::AtomicU32,
    due: P::AtomicU32,
    /// When it began.
    began: P::AtomicU32,
    /// Which window of a trial it is, from 1; 0: no trial.
    turn: P::AtomicU32,
    /// The sums of the trial, and what the last one would have had without delegation.
    with: P::AtomicU32,
    without: P::AtomicU32,
    reference: P::AtomicU32,
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
            sections: zero(),
            due: zero(),
            began: zero(),
            turn: zero(),
            with: zero(),
            without: zero(),
            reference: zero(),
            verdict: zero(),
            left: zero(),
            rest: zero(),
        }
    }

    /// The holder has a section to run. `on`: 1, delegate.
    #[inline(always)]
    pub fn count(&self, on: &P::AtomicU32, contended: impl FnOnce() -> bool) {
        let sections = self.sections.load(Relaxed).wrapping_add(1);
        self.sections.store(sections, Relaxed);
        if sections >= self.due.load(Relaxed) {
            self.look(on, sections, contended());
        }
    }

    /// The holder has run so many sections of others.
    pub fn add(&self, ran: u32) {
        if ran > 0 {
            self.sections.store(self.sections.load(Relaxed).wrapping_add(ran), Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    fn look(&self, on: &P::AtomicU32, sections: u32, contended: bool) {
        let window = ((P::costs().slice / 3) >> UNIT) as u32;
        let now = (P::now_ns() >> UNIT) as u32;
        let elapsed = now.wrapping_sub(self.began.load(Relaxed));
        let every = EVERY.min(P::PAUSES);
        if elapsed < window {
            return self.due.store(sections.saturating_add(every), Relaxed);
        }
        let rate = u64::from(sections) * u64::from(window) / u64::from(elapsed);
        let rate = rate.min(u64::from(u32::MAX / TRIAL)) as u32;
        let was = on.load(Relaxed) != 0;
        let next = self.end_window(was, rate, elapsed > IDLE * window, contended);
        if next != was {
            on.store(u32::from(next), Relaxed);
        }
        self.sections.store(0, Relaxed);
        self.due.store(every, Relaxed);
        self.began.store(now, Relaxed);
    }

    /// Returns whether the next window is with delegation.
    fn end_window(&self, on: bool, rate: u32, idle: bool, contended: bool) -> bool {
        let turn = self.turn.load(Relaxed);
        if turn == 0 {
            let left = self.left.load(Relaxed);
            if left == 0 && (contended || on) {
                return self.begin_turn(1);
            }
            self.left.store(left.saturating_sub(1), Relaxed);
            let slow = u64::from(rate) * u64::from(TRIAL / 2) < u64::from(self.reference.load(Relaxed));
            return on && !slow;
        }
        let sum = if on { &self.with } else { &self.without };
        sum.store(sum.load(Relaxed) + rate, Relaxed);
        if idle {
            self.end_trial(false)
        } else if turn == TRIAL {
            let (with, without) = (self.with.load(Relaxed), self.without.load(Relaxed));
            self.end_trial(with - with / 8 > without)
        } else {
            self.begin_turn(turn + 1)
        }
    }

    /// The odd ones are with delegation.
    fn begin_turn(&self, turn: u32) -> bool {
        self.turn.store(turn, Relaxed);
        !turn.is_multiple_of(2)
    }

    fn end_trial(&self, verdict: bool) -> bool {
        let same = self.verdict.swap(u32::from(verdict), Relaxed) == u32::from(verdict);
        let rest = if same { (self.rest.load(Relaxed) * 2).clamp(REST, MOST_REST) } else { REST };
        self.rest.store(rest, Relaxed);
        self.left.store(rest, Relaxed);
        self.turn.store(0, Relaxed);
        self.reference.store(self.without.load(Relaxed), Relaxed);
        self.with.store(0, Relaxed);
        self.without.store(0, Relaxed);
        verdict
    }
}
