// SPDX-License-Identifier: MIT OR Apache-2.0
//! Does delegation pay? The default lock measures it, since it cannot know what sections and threads do.
//!
//! The holder counts sections. Now and then it looks at the clock: the sections in a *window* are a rate. A
//! *trial* is some windows, in turns with delegation and without. What gave the higher sum is kept for the
//! next windows. If a trial says the same as the one before, there are twice as many windows until the next.
//! So the worse of the two is used in a tenth of the time at first, and soon in less than a hundredth.
//!
//! - Without delegation a trial begins only if somebody waits for the mutex: else there is nothing to gain.
//! - Delegation has to be better by a seventh, because rates differ by so much where threads outnumber the
//!   processors.
//! - A trial in which the lock was idle for long says nothing, and is dropped. So does a window between two.
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
        let window = (((P::costs().slice / 3) >> UNIT) as u32).max(1);
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
            return on && (idle || !slow);
        }
        if idle {
            return self.drop_trial();
        }
        let sum = if on { &self.with } else { &self.without };
        sum.store(sum.load(Relaxed) + rate, Relaxed);
        if turn == TRIAL {
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
        self.reference.store(self.without.load(Relaxed), Relaxed);
        self.forget(rest);
        verdict
    }

    /// What was known before is still true.
    fn drop_trial(&self) -> bool {
        self.forget(self.rest.load(Relaxed).max(REST));
        self.verdict.load(Relaxed) != 0
    }

    /// There is no trial for so many windows.
    fn forget(&self, rest: u32) {
        self.left.store(rest, Relaxed);
        self.turn.store(0, Relaxed);
        self.with.store(0, Relaxed);
        self.without.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use linux::Linux;

    use super::*;

    /// Ends windows of these rates with and without delegation, until a trial has ended. Returns the verdict.
    fn trial(judge: &Judge<Linux>, mut on: bool, with: u32, without: u32, idle_in: Option<u32>) -> bool {
        while judge.turn.load(Relaxed) == 0 {
            on = judge.end_window(on, if on { with } else { without }, false, true);
        }
        while judge.turn.load(Relaxed) != 0 {
            let idle = idle_in == Some(judge.turn.load(Relaxed));
            on = judge.end_window(on, if on { with } else { without }, idle, true);
        }
        on
    }

    #[test]
    fn what_is_quicker_by_a_seventh_is_kept() {
        for (with, expected) in [(100, false), (114, false), (115, true)] {
            assert_eq!(trial(&Judge::new(), false, with, 100, None), expected, "{with}");
        }
    }

    #[test]
    fn the_same_verdict_doubles_the_rest() {
        let judge = Judge::<Linux>::new();
        let mut on = false;
        let rests = [(200, REST), (200, 2 * REST), (50, REST), (50, 2 * REST)].map(|(with, rest)| {
            on = trial(&judge, on, with, 100, None);
            assert_eq!(on, with > 100);
            judge.rest.load(Relaxed) == rest
        });
        assert_eq!(rests, [true; 4]);
        (0..10).for_each(|_| on = trial(&judge, on, 50, 100, None));
        assert_eq!(judge.rest.load(Relaxed), MOST_REST);
    }

    #[test]
    fn an_idle_lock_keeps_its_verdict() {
        let judge = Judge::<Linux>::new();
        assert!(trial(&judge, false, 200, 100, None));
        let rest = judge.rest.load(Relaxed);
        assert!(judge.end_window(true, 0, true, false), "an idle window ended delegation");
        for idle_in in 1..=TRIAL {
            assert!(trial(&judge, true, 200, 100, Some(idle_in)), "an idle trial ended delegation");
            assert_eq!((judge.rest.load(Relaxed), judge.left.load(Relaxed)), (rest, rest));
            assert_eq!(judge.reference.load(Relaxed), 400);
        }
        assert!(!judge.end_window(true, 99, false, false), "a slow window did not end it");
    }

    #[test]
    fn a_lock_that_nobody_waits_for_is_not_tried() {
        let judge = Judge::<Linux>::new();
        for _ in 0..2 * MOST_REST {
            assert!(!judge.end_window(false, 100, false, false));
        }
        assert_eq!(judge.turn.load(Relaxed), 0);
    }
}
