// SPDX-License-Identifier: MIT OR Apache-2.0
//! Does delegation pay? The default lock measures it, since it cannot know what sections and threads do.
//!
//! The holder counts sections, and looks at the clock at each 64th: the sections in a *window* are a rate. A
//! *trial* is some windows as it was, with delegation or without. Then come some for the threads to
//! settle, which do not count, and then as many of the other way. What gave the higher sum is kept for the
//! next windows. If a trial says the same as the one before, there are twice as many windows until the next.
//!
//! - The windows of one way are in a row. A mutex that goes from hand to hand by the clock takes some turns
//!   until two threads are awake, one of which can run the other's sections. In turns, window by window, each
//!   way was measured in the other one's state.
//! - Without delegation nothing is counted between two trials: a count in each section made it longer, and
//!   the mutex shares a lock with a second running thread only if sections are short beside what threads do
//!   outside. A thread that has to wait looks at the clock, and begins the next trial. Where nobody waits
//!   there is nothing to gain.
//! - Delegation has to be better by a seventh, because rates differ by so much where threads outnumber the
//!   processors, and because the count is in the mutex's rate too.
//! - A trial in which the lock was idle for long says nothing, and is dropped. So does a window between two.
//! - Delegation ends as soon as some windows in a row are slower than the trial's without: some programs fall
//!   from a quick rhythm into a slow one. To end it for nothing costs what there was to gain until the next
//!   trial.
//!
//! All words are the holder's; what [`Way`] has, others read. Rates, and so verdicts, are hints.

use platform::{Atomic, Ordering::*, Platform};

/// BOUND: sections between two looks at the clock, which costs as much as a lock and a release.
const EVERY: u32 = 64;
/// Units of the clock words: 1,024 ns.
const UNIT: u32 = 10;
/// BOUND: windows of one way in a trial. Together they are longer than a slice, so that each processor's
/// threads have had their turns.
const HALF: u32 = 4;
/// BOUND: windows between them: some of the mutex's turns ([`crate::mutex::Wakeful`], W6).
const SETTLE: u32 = 2;
/// BOUND: windows between two trials, at first and at most.
const REST: u32 = 32;
const MOST_REST: u32 = 1024;
/// BOUND: a window that took so many times its length tells nothing.
const IDLE: u32 = 8;

/// In [`Way::word`]: clients publish, and holders look.
const DELEGATES: u32 = 1;
/// In [`Way::word`]: holders count.
const COUNTS: u32 = 2;

/// What all read and the judge seldom writes.
pub struct Way<P: Platform> {
    word: P::AtomicU32,
    /// Without COUNTS: when the rest began, and how long it is.
    since: P::AtomicU32,
    rest: P::AtomicU32,
}

/// The way of a lock as a thread saw it.
#[derive(Clone, Copy)]
pub struct Seen(u32);

impl Seen {
    #[inline(always)]
    pub fn delegates(self) -> bool {
        self.0 & DELEGATES != 0
    }

    #[inline(always)]
    pub fn counts(self) -> bool {
        self.0 & COUNTS != 0
    }
}

impl<P: Platform> Way<P> {
    pub fn new() -> Self {
        // In a model it begins with delegation: few sections would end before a trial.
        let word = if P::PAUSES == 1 { DELEGATES | COUNTS } else { 0 };
        let zero = || P::AtomicU32::new(0);
        Self { word: Atomic::new(word), since: zero(), rest: zero() }
    }

    #[inline(always)]
    pub fn look(&self) -> Seen {
        Seen(self.word.load(Relaxed))
    }

    /// A thread has to wait: is it time for a trial?
    pub fn is_due(&self) -> bool {
        let now = (P::now_ns() >> UNIT) as u32;
        !self.look().counts() && now.wrapping_sub(self.since.load(Relaxed)) >= self.rest.load(Relaxed)
    }
}

/// See the head of this file.
pub struct Judge<P: Platform> {
    /// Sections in this window, and at how many to look at the clock.
    sections: P::AtomicU32,
    due: P::AtomicU32,
    /// When it began.
    began: P::AtomicU32,
    /// Which window of a trial it is, from 1; 0: no trial.
    turn: P::AtomicU32,
    /// The sums of the trial, and what the last one had without delegation. Between two trials `with` is that
    /// of the last windows.
    with: P::AtomicU32,
    without: P::AtomicU32,
    reference: P::AtomicU32,
    /// The last verdict.
    verdict: P::AtomicU32,
    /// With delegation: windows to the next trial. And how many they were, or would have been.
    left: P::AtomicU32,
    rest: P::AtomicU32,
}

/// In a model few sections end, so its windows and trials are short.
fn short<P: Platform>(count: u32) -> u32 {
    count.min(P::PAUSES)
}

/// A window's length, in units of the clock words.
fn window<P: Platform>() -> u32 {
    (((P::costs().slice / 3) >> UNIT) as u32).max(1)
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

    /// The holder has a section to run, and [`Seen::counts`].
    #[inline(always)]
    pub fn count(&self, way: &Way<P>) {
        let sections = self.sections.load(Relaxed).wrapping_add(1);
        self.sections.store(sections, Relaxed);
        if sections >= self.due.load(Relaxed) {
            self.look(way, sections);
        }
    }

    /// The holder has run so many sections of others.
    pub fn add(&self, ran: u32) {
        if ran > 0 {
            self.sections.store(self.sections.load(Relaxed).wrapping_add(ran), Relaxed);
        }
    }

    /// The holder had to wait, and [`Way::is_due`], unless another one has begun a trial meanwhile.
    #[cold]
    pub fn begin(&self, way: &Way<P>) {
        if way.is_due() {
            self.forget(0);
            self.turn.store(1, Relaxed);
            way.word.store(COUNTS, Relaxed);
            self.begin_window((P::now_ns() >> UNIT) as u32);
        }
    }

    fn begin_window(&self, now: u32) {
        self.sections.store(0, Relaxed);
        self.due.store(short::<P>(EVERY), Relaxed);
        self.began.store(now, Relaxed);
    }

    #[cold]
    #[inline(never)]
    fn look(&self, way: &Way<P>, sections: u32) {
        let window = window::<P>();
        let now = (P::now_ns() >> UNIT) as u32;
        let elapsed = now.wrapping_sub(self.began.load(Relaxed));
        if elapsed < window {
            return self.due.store(sections.saturating_add(short::<P>(EVERY)), Relaxed);
        }
        let rate = u64::from(sections) * u64::from(window) / u64::from(elapsed);
        let rate = rate.min(u64::from(u32::MAX / HALF)) as u32;
        let was = way.look();
        let next = self.end_window(was.delegates(), rate, elapsed > IDLE * window);
        let trial = self.turn.load(Relaxed) != 0;
        let next = if next { DELEGATES } else { 0 } | if next || trial { COUNTS } else { 0 };
        if next == 0 {
            way.since.store(now, Relaxed);
            way.rest.store(self.left.load(Relaxed) * window, Relaxed);
        }
        if next != was.0 {
            way.word.store(next, Relaxed);
        }
        self.begin_window(now);
    }

    /// Returns whether the next window is with delegation.
    fn end_window(&self, on: bool, rate: u32, idle: bool) -> bool {
        let (turn, half, settle) = (self.turn.load(Relaxed), short::<P>(HALF), short::<P>(SETTLE));
        if turn == 0 {
            return self.end_rest(on, rate, idle);
        }
        if idle {
            return self.drop_trial();
        }
        if turn <= half || turn > half + settle {
            let sum = if on { &self.with } else { &self.without };
            sum.store(sum.load(Relaxed) + rate, Relaxed);
        }
        if turn == 2 * half + settle {
            let (with, without) = (self.with.load(Relaxed), self.without.load(Relaxed));
            return self.end_trial(with - with / 8 > without);
        }
        self.turn.store(turn + 1, Relaxed);
        on != (turn == half)
    }

    /// The same between two trials.
    fn end_rest(&self, on: bool, rate: u32, idle: bool) -> bool {
        let left = self.left.load(Relaxed);
        if left == 0 && on {
            self.with.store(0, Relaxed);
            self.turn.store(1, Relaxed);
            return true;
        }
        let left = left.saturating_sub(1);
        self.left.store(left, Relaxed);
        let sum = if idle { 0 } else { self.with.load(Relaxed) + rate };
        let full = idle || left.is_multiple_of(short::<P>(HALF));
        self.with.store(if full { 0 } else { sum }, Relaxed);
        on && (idle || !full || sum >= self.reference.load(Relaxed))
    }

    fn end_trial(&self, verdict: bool) -> bool {
        let same = self.verdict.swap(u32::from(verdict), Relaxed) == u32::from(verdict);
        let least = short::<P>(REST);
        let rest = if same { (self.rest.load(Relaxed) * 2).clamp(least, MOST_REST) } else { least };
        self.rest.store(rest, Relaxed);
        self.reference.store(self.without.load(Relaxed), Relaxed);
        self.forget(rest);
        verdict
    }

    /// What was known before is still true.
    fn drop_trial(&self) -> bool {
        self.forget(self.rest.load(Relaxed).max(short::<P>(REST)));
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
    /// `odd`: what windows of the trial are, unless 0 is returned: `None` for an idle one, or another rate.
    fn trial_with(
        judge: &Judge<Linux>,
        mut on: bool,
        [with, without]: [u32; 2],
        odd: impl Fn(u32) -> Option<u32>,
    ) -> bool {
        while on && judge.turn.load(Relaxed) == 0 {
            on = judge.end_window(on, with, false);
        }
        if !on {
            judge.begin(&Way::new());
        }
        while judge.turn.load(Relaxed) != 0 {
            let rate = if on { with } else { without };
            on = match odd(judge.turn.load(Relaxed)) {
                None => judge.end_window(on, 0, true),
                Some(0) => judge.end_window(on, rate, false),
                Some(other) => judge.end_window(on, other, false),
            };
        }
        on
    }

    fn trial(judge: &Judge<Linux>, on: bool, with: u32, without: u32) -> bool {
        trial_with(judge, on, [with, without], |_| Some(0))
    }

    #[test]
    fn what_is_quicker_by_a_seventh_is_kept() {
        for was in [false, true] {
            for (with, expected) in [(114, false), (115, true)] {
                assert_eq!(trial(&Judge::new(), was, with, 100), expected, "{with}");
            }
        }
    }

    #[test]
    fn windows_in_which_threads_settle_do_not_count() {
        for (with, expected) in [(100, false), (115, true)] {
            let settling = |turn| Some(if (HALF + 1..=HALF + SETTLE).contains(&turn) { 10_000 } else { 0 });
            assert_eq!(trial_with(&Judge::new(), false, [with, 100], settling), expected, "{with}");
        }
    }

    #[test]
    fn the_same_verdict_doubles_the_rest() {
        let judge = Judge::<Linux>::new();
        let mut on = false;
        let rests = [(200, REST), (200, 2 * REST), (50, REST), (50, 2 * REST)].map(|(with, rest)| {
            on = trial(&judge, on, with, 100);
            assert_eq!(on, with > 100);
            judge.rest.load(Relaxed) == rest
        });
        assert_eq!(rests, [true; 4]);
        (0..10).for_each(|_| on = trial(&judge, on, 50, 100));
        assert_eq!(judge.rest.load(Relaxed), MOST_REST);
    }

    #[test]
    fn an_idle_lock_keeps_its_verdict() {
        let judge = Judge::<Linux>::new();
        assert!(trial(&judge, false, 200, 100));
        let rest = judge.rest.load(Relaxed);
        assert!(judge.end_window(true, 0, true), "an idle window ended delegation");
        for idle_in in 1..=2 * HALF + SETTLE {
            let idle = |turn| (turn != idle_in).then_some(0);
            assert!(trial_with(&judge, true, [200, 100], idle), "an idle trial ended delegation");
            assert_eq!((judge.rest.load(Relaxed), judge.left.load(Relaxed)), (rest, rest));
            assert_eq!(judge.reference.load(Relaxed), 100 * HALF);
        }
    }

    #[test]
    fn slow_windows_end_delegation_and_a_slow_one_does_not() {
        let judge = Judge::<Linux>::new();
        assert!(trial(&judge, false, 200, 100));
        for rate in [0, 200, 200, 200, 100, 100, 100] {
            assert!(judge.end_window(true, rate, false), "{rate}");
        }
        assert!(judge.end_window(true, 100, false), "as quick as without");
        let ends = [100, 100, 100, 99].map(|rate| judge.end_window(true, rate, false));
        assert_eq!(ends, [true, true, true, false]);
    }

    #[test]
    fn who_waits_begins_a_trial_after_the_rest() {
        let (judge, way) = (Judge::<Linux>::new(), Way::<Linux>::new());
        let now = || (Linux::now_ns() >> UNIT) as u32;
        way.since.store(now(), Relaxed);
        way.rest.store(1 << 30, Relaxed);
        assert!(!way.is_due() && !way.look().counts());
        way.since.store(now() - 2 * window::<Linux>(), Relaxed);
        way.rest.store(2 * window::<Linux>(), Relaxed);
        assert!(way.is_due());
        judge.begin(&way);
        assert!(way.look().counts() && !way.look().delegates() && !way.is_due());
        assert_eq!(judge.turn.load(Relaxed), 1);
        // A second one that waited as long does not begin it anew.
        judge.turn.store(2, Relaxed);
        judge.begin(&way);
        assert_eq!(judge.turn.load(Relaxed), 2);
    }

    /// Whole windows by the clock: from nobody counts to a verdict that is kept without counting.
    #[test]
    fn a_trial_ends_and_nobody_counts_then() {
        let (judge, way) = (Judge::<Linux>::new(), Way::<Linux>::new());
        let mut ways = [0; 4];
        // A trial is dropped if we have no processor for long.
        for _ in 0..100 {
            way.rest.store(0, Relaxed);
            judge.begin(&way);
            while way.look().counts() {
                judge.count(&way);
                ways[way.look().0 as usize] += 1;
            }
            if ways[(COUNTS | DELEGATES) as usize] > 0 {
                break;
            }
        }
        assert!(ways[COUNTS as usize] > 0 && ways[(COUNTS | DELEGATES) as usize] > 0, "{ways:?}");
    }
}
