// SPDX-License-Identifier: MIT OR Apache-2.0
//! When the program was stopped from outside: by SIGSTOP, Ctrl-Z, a debugger or a frozen control group. Its
//! time goes on without that.
//!
//! No thread does anything while it is stopped. So each record and event comes earlier by all stops before
//! it. Whatever is made of them then knows of no stop: waits, shares, bounds and columns.
//!
//! **What a stop is.** No thread of the program has a processor, and meanwhile a process of it was seen
//! stopped. It begins when the last thread left its processor, and ends with what the program does next. The
//! profiler may be stopped as well, and see nothing. Then the kernel says that the program was continued, and
//! the stop is what takes most of the time since the last look.
//!
//! A thread that sleeps while its control group is frozen does nothing for that, nor when it is thawed, under
//! version 1. So such a stop begins and ends with a look, if the program does nothing. Whoever looks may be
//! frozen along with it ([`away`](crate::away)). A process that is stopped while others go on is no stop. It
//! is told apart ([`halted`](crate::halted)).
//!
//! Behind a stop the threads want a processor, and others may have them all. Nobody says when a thread is
//! woken. So whoever left its processor shortly before a stop is ready from the stop's end on, unless it
//! sleeps then.
//!
//! Without the kernel's records a stop begins and ends when somebody looks. What the program did before that
//! look is still to be read then, so it ends for good at the second one.

use crate::account::{Account, State, Thread};
use crate::away::Away;
use crate::frozen::Groups;
use crate::halted::{Halt, Halted};
use crate::record::{Record, What};
use crate::{Program, look, now_ns, program};

/// BOUND: a shorter one is none: a tracer stops a program at each of its calls.
const LEAST_NS: u64 = 10_000_000;
/// BOUND: the same where a signal has stopped the program itself, of which the kernel tells us at once, and
/// it has no other process.
const LEAST_BY_SIGNAL_NS: u64 = 1_000_000;
/// BOUND: so long after a wait that was only counted it is read, at most.
const READ_NS: u64 = 50_000_000;
/// BOUND: so long after a look all that was before it is read.
const TAKEN_NS: u64 = 25_000_000;
/// BOUND: so long after it is continued a thread of it has a processor, if others have them.
const LATE_NS: u64 = 500_000_000;
/// BOUND: between its parts a stop's threads had processors for less than that, all in all, as far as no look
/// saw it go on; or its time went on by less.
const NEAR_NS: u64 = 20_000_000;
/// BOUND: stops that are listed. Others count.
const MOST: usize = 1_000;
/// BOUND: from one question whether a process is stopped to the next, and processes that are asked at once.
const ASK_NS: u64 = 5_000_000;
const MOST_ASKED: usize = 3;

/// A stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Its beginning, on the monotonic clock.
    pub from_ns: u64,
    /// The same in the program's time.
    pub at_ns: u64,
    /// How long it was.
    pub length_ns: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    /// The kernel tells who runs.
    has_records: bool,
    /// Threads that have a processor, each behind its process, and since when there is none or one.
    running: Vec<(u32, u32)>,
    idle_ns: Option<u64>,
    busy_ns: Option<u64>,
    /// For how long some had one since the last stop began, and when that ended.
    ran_ns: u64,
    ended_ns: u64,
    /// From when to when each look saw it stopped, for the last time. Later looks come before what was until
    /// then is known.
    seen: Option<(u64, u64)>,
    /// When the first look after the last stop had seen it stopped: a stop ends later.
    sighted_ns: u64,
    /// By a signal; and when looks found the last two times that somebody had let it go on.
    is_by_signal: bool,
    resumed_ns: [u64; 2],
    /// A look after that saw it go on. Without records: when the first one did, as long as what was before
    /// is to be read.
    is_past: bool,
    went_on_ns: Option<u64>,
    /// It was continued in this time.
    continued: Option<(u64, u64)>,
    /// All together.
    sum_ns: u64,
    all: Vec<Stop>,
    /// A stop has just ended, at this moment of the program's time.
    woke_ns: Option<u64>,
    /// When somebody asked last whether a process is stopped, and which is the next one to be asked; and when
    /// somebody asked for control groups.
    asked: (u64, usize),
    asked_groups_ns: u64,
    groups: Groups,
    /// The control group is frozen; and since when it is no more, until the next such look.
    is_frozen: bool,
    thawed_ns: Option<u64>,
    /// Whoever looks was frozen along with it; and processes that are stopped alone.
    away: Away,
    halted: Halted,
}

impl Stops {
    pub fn new(has_records: bool) -> Self {
        Self { has_records, ..Self::default() }
    }

    /// The program is stopped, as a look saw that began and ended at these times.
    fn seen(&mut self, from_ns: u64, to_ns: u64) {
        if !self.has_records {
            self.ended_at(self.went_on_ns);
            self.idle_ns.get_or_insert(from_ns);
        }
        if self.is_past || self.seen.is_none_or(|(_, last_ns)| last_ns < self.ended_ns) {
            self.sighted_ns = to_ns;
        }
        let first_ns = self.seen.filter(|_| !self.is_past).map_or(to_ns, |(first_ns, _)| first_ns);
        (self.seen, self.is_past) = (Some((first_ns, from_ns)), false);
    }

    /// The program is not stopped at that time, as far as somebody has looked.
    fn goes_on(&mut self, now_ns: u64) {
        self.is_past = true;
        if !self.has_records && self.idle_ns.is_some() {
            match self.went_on_ns {
                Some(went_on_ns) if went_on_ns + TAKEN_NS <= now_ns => self.ended_at(Some(went_on_ns)),
                Some(_) => {}
                None => self.went_on_ns = Some(now_ns),
            }
        }
    }

    /// Without records: all that was before is read.
    fn ended_at(&mut self, went_on_ns: Option<u64>) {
        if let Some(went_on_ns) = went_on_ns {
            self.over(went_on_ns);
            (self.idle_ns, self.went_on_ns) = (None, None);
        }
    }

    /// The kernel says that it was continued between these times.
    fn continued(&mut self, from_ns: u64, to_ns: u64) {
        self.continued = Some((from_ns, to_ns));
        self.resumed_ns = [self.resumed_ns[1], to_ns];
    }

    /// Takes the time of what the program did, in the order of times: when that was in its own time.
    pub fn passed(&mut self, time_ns: u64, record: Option<&Record>) -> u64 {
        match self.went_on_ns {
            // What is later than the last look at the stop comes after it.
            Some(went_on_ns) if self.seen.is_some_and(|(_, last_ns)| last_ns < time_ns) => {
                self.ended_at(Some(went_on_ns.min(time_ns)));
            }
            _ => self.over(time_ns),
        }
        if let Some(record) = record {
            self.record(time_ns, record);
        } else if !self.has_records && self.idle_ns.is_some_and(|idle_ns| idle_ns < time_ns) {
            self.idle_ns = None;
        }
        time_ns.saturating_sub(self.sum_ns)
    }

    /// Takes who has a processor from then on.
    fn record(&mut self, time_ns: u64, record: &Record) {
        let one = (record.process, record.thread);
        match record.what {
            What::In => {
                self.halted.ran(record.process);
                if !self.running.contains(&one) {
                    self.running.push(one);
                }
            }
            What::Named { by_exec: true, .. } => {
                // Its other threads are gone. If one of those called exec(2), no record says that its own
                // number is.
                self.running.retain(|(process, _)| *process != record.process);
                self.running.push(one);
            }
            What::Out | What::Preempted | What::Exited => {
                self.running.retain(|(_, thread)| *thread != record.thread);
                if !self.running.is_empty() {
                    return;
                }
            }
            // Any of them may have left its processor.
            What::Lost(_) => self.running.clear(),
            _ => return,
        }
        if self.running.is_empty() {
            self.idle_ns = Some(time_ns);
            self.ran_ns += self.busy_ns.take().map_or(0, |busy_ns| time_ns.saturating_sub(busy_ns));
        } else {
            self.idle_ns = None;
            self.busy_ns.get_or_insert(time_ns);
        }
    }

    /// Something happens. Was there a stop before it?
    fn over(&mut self, now_ns: u64) {
        let Some(idle_ns) = self.idle_ns.filter(|idle_ns| *idle_ns < now_ns) else { return };
        let is_seen = self.seen.is_some_and(|(_, last_ns)| last_ns >= idle_ns && self.sighted_ns < now_ns);
        let since_ns = if is_seen { Some(idle_ns) } else { self.unseen_since_ns(idle_ns, now_ns) };
        let least_ns = if is_seen && self.is_by_signal { LEAST_BY_SIGNAL_NS } else { LEAST_NS };
        let Some(from_ns) = since_ns.filter(|since_ns| now_ns - since_ns >= least_ns) else { return };
        let length_ns = now_ns - from_ns;
        let (at_ns, many) = (from_ns - self.sum_ns, self.all.len());
        // Each thread needs a processor to stop, and to go on, which others may have for long.
        let has_seen_both = self.seen.is_some_and(|(first_ns, _)| first_ns <= self.ended_ns);
        let is_same = self.has_records && has_seen_both && self.ran_ns < NEAR_NS;
        let resumed_ns = self.resumed_ns;
        let is_another =
            |last: &Stop| resumed_ns.iter().any(|time_ns| (last.from_ns..=from_ns).contains(time_ns));
        match self.all.last_mut() {
            // Unless somebody has let it go on in between.
            Some(last) if (is_same || at_ns < last.at_ns + NEAR_NS) && !is_another(last) => {
                last.length_ns += length_ns;
            }
            _ => {
                self.ran_ns = 0;
                if many < MOST {
                    self.all.push(Stop { from_ns, at_ns, length_ns });
                }
            }
        }
        self.sum_ns += length_ns;
        (self.ended_ns, self.woke_ns) = (now_ns, Some(at_ns));
        // One continuation ends one stop.
        self.continued = self.continued.filter(|(since_ns, _)| now_ns < *since_ns);
        // What comes late is of the same moment.
        self.idle_ns = Some(now_ns);
    }

    /// Since when it was stopped, if nobody has seen that: the kernel says that it was continued, and nobody
    /// looked for long. Nothing was done from `idle_ns` to `now_ns`. At the last look before it was alive.
    fn unseen_since_ns(&self, idle_ns: u64, now_ns: u64) -> Option<u64> {
        let (since_ns, until_ns) = self.continued?;
        let from_ns = idle_ns.max(since_ns);
        let part_ns = now_ns.min(until_ns).saturating_sub(from_ns);
        let is_most = part_ns >= 2 * LEAST_NS && part_ns * 2 > until_ns - since_ns;
        (is_most && now_ns <= until_ns + LATE_NS).then_some(from_ns)
    }

    /// Whoever looks is about to sleep.
    pub fn sleeps(&mut self) {
        self.away.sleeps();
    }

    /// Is the program stopped from outside at that time, a little ago? Only where nobody runs, the living
    /// processes are asked, some in a turn. The last look that saw the program alive was at `lived_ns`.
    pub fn look(
        &mut self,
        program: &mut Program,
        living: impl Iterator<Item = u32>,
        (lived_ns, looked_ns): (u64, u64),
    ) {
        let mut living = living.peekable();
        // Somebody may have stopped the one who looks alone.
        let went_on = program::went_on();
        let was_away = self.away.look(looked_ns) && !went_on;
        let was_continued = program.was_continued() || was_away;
        // It took other rights, and its records end.
        if self.has_records && living.peek().is_none() {
            return;
        }
        if was_continued {
            self.continued(lived_ns, looked_ns);
        }
        // Without records nobody knows who runs.
        let Some(idle_ns) = (if self.has_records { self.idle_ns } else { Some(0) }) else { return };
        if program.is_stopped() {
            self.seen(looked_ns, now_ns());
            // Others may go on, and sleep for a moment.
            self.is_by_signal = living.nth(1).is_none();
            return;
        }
        let (asked_ns, next) = self.asked;
        if looked_ns < idle_ns.max(asked_ns) + ASK_NS {
            return;
        }
        let living = living.filter(|process| *process != program.process());
        let mut asked: Vec<u32> = living.skip(next).take(MOST_ASKED).collect();
        self.asked = (looked_ns, if asked.len() < MOST_ASKED { 0 } else { next + MOST_ASKED });
        asked.push(program.process());
        let is_frozen = self.groups.are_frozen(program.process(), looked_ns);
        self.group(is_frozen, looked_ns);
        if is_frozen || asked.into_iter().any(is_stopped) {
            self.seen(looked_ns, now_ns());
            self.is_by_signal = false;
        } else {
            self.goes_on(looked_ns);
        }
    }

    /// Asks for processes that are stopped while others go on. After the records until then are taken.
    pub fn look_at_each(&mut self, living: impl Iterator<Item = u32>, now_ns: u64) {
        self.look_by(living, now_ns, is_stopped);
    }

    fn look_by(&mut self, living: impl Iterator<Item = u32>, now_ns: u64, is_stopped: impl Fn(u32) -> bool) {
        let own_ns = self.now_ns(now_ns);
        self.halted.look(living, own_ns, is_stopped);
    }

    /// Those that were.
    pub fn halted(&mut self) -> Vec<Halt> {
        self.halted.finish()
    }

    /// Its control group is frozen at that time, or not.
    fn group(&mut self, is_frozen: bool, now_ns: u64) {
        let asked_ns = std::mem::replace(&mut self.asked_groups_ns, now_ns);
        match (std::mem::replace(&mut self.is_frozen, is_frozen), is_frozen) {
            (false, true) => {
                if let Some(thawed_ns) = self.thawed_ns.take().filter(|_| self.has_records) {
                    self.thawed(thawed_ns);
                }
                self.idle_ns = self.idle_ns.map(|idle_ns| idle_ns.max(asked_ns));
            }
            (true, false) => self.thawed_ns = Some(now_ns),
            (false, false) if self.has_records => {
                // Nothing that it did before ends the stop.
                if let Some(thawed_ns) = self.thawed_ns.take() {
                    self.thawed(thawed_ns);
                    self.seen = None;
                }
            }
            _ => {}
        }
    }

    /// It is frozen no more since then, and has done nothing. When somebody asks who was woken, that may be
    /// long ago: a thread that runs then may have slept on for most of it.
    fn thawed(&mut self, thawed_ns: u64) {
        self.over(thawed_ns);
        self.woke_ns = None;
    }

    /// Did a stop end, since the last question? Then those threads want a processor from that moment on which
    /// left theirs shortly before it: nobody says when they are woken. Their records, which come before the
    /// next one.
    pub fn woken(&mut self, account: &Account) -> Vec<Record> {
        let Some(time_ns) = self.woke_ns.take() else { return Vec::new() };
        // One that was blocked of its own accord sleeps on. If the answer is late, its next switch is near.
        let is_meant = |one: &&Thread| {
            one.state == State::Blocked
                && time_ns < one.since_ns + NEAR_NS
                && !sleeps(one.process, one.thread)
        };
        let record = |one: &Thread| {
            let (process, thread, what) = (one.process, one.thread, What::Preempted);
            Record { process, thread, time_ns, what }
        };
        account.threads.values().filter(is_meant).map(record).collect()
    }

    /// Is the program stopped, as far as is known?
    pub fn is_stopped(&self) -> bool {
        let last_ns = self.seen.map_or(0, |(_, last_ns)| last_ns);
        self.idle_ns.is_some_and(|from_ns| from_ns <= last_ns)
    }

    /// This moment in the program's time. It does not go on while the record that ends a stop is still to
    /// come, or it would go back then.
    pub fn now_ns(&self, now_ns: u64) -> u64 {
        let stopped_ns = self.idle_ns.and_then(|idle_ns| match self.is_stopped() {
            true => Some(idle_ns),
            false => self.unseen_since_ns(idle_ns, now_ns),
        });
        stopped_ns.map_or(now_ns, |from_ns| from_ns.min(now_ns)).saturating_sub(self.sum_ns)
    }

    /// A wait was only counted, and is read at that time on the monotonic clock: how long it was in the
    /// program's time. A thread that waited during a stop did so for all of it.
    pub fn counted_ns(&self, ns: u64, now_ns: u64) -> u64 {
        let last = || self.all.last().map(|last| (last.from_ns + last.length_ns, last.length_ns));
        let stopped_ns = match self.idle_ns.filter(|_| self.is_stopped()) {
            Some(from_ns) => now_ns.saturating_sub(from_ns),
            None => {
                last().filter(|(to_ns, _)| now_ns < to_ns + READ_NS).map_or(0, |(_, length_ns)| length_ns)
            }
        };
        if stopped_ns < LEAST_NS || ns + LEAST_NS < stopped_ns { ns } else { ns.saturating_sub(stopped_ns) }
    }

    /// How long they took, together.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The program ends at that time, on the monotonic clock.
    pub fn finish(&mut self, now_ns: u64) -> Vec<Stop> {
        self.ended_at(self.went_on_ns);
        self.over(now_ns);
        std::mem::take(&mut self.all)
    }
}

/// Is this process stopped, by a signal or a debugger?
fn is_stopped(process: u32) -> bool {
    // Its first thread's: the process's own adds all threads up.
    matches!(look::state(process, process), Some(b'T' | b't'))
}

/// Does the thread sleep?
fn sleeps(process: u32, thread: u32) -> bool {
    matches!(look::state(process, thread), Some(b'S' | b'D'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn record(thread: u32, what: What) -> Record {
        Record { process: 1, thread, time_ns: 0, what }
    }

    /// Each is the time in ms, the thread, and whether it has a processor from then on.
    fn passed(stops: &mut Stops, switches: &[(u64, u32, bool)]) -> Vec<u64> {
        let one = |&(ms, thread, runs): &(u64, u32, bool)| {
            stops.passed(ms * MS, Some(&record(thread, if runs { What::In } else { What::Out }))) / MS
        };
        switches.iter().map(one).collect()
    }

    #[test]
    fn a_sleep_after_it_was_continued_is_no_stop() {
        for seen in [true, false] {
            let mut stops = Stops::new(true);
            passed(&mut stops, &[(0, 7, true), (1_000, 7, false)]);
            if seen {
                stops.seen(1_500 * MS, 1_500 * MS);
            }
            stops.continued(if seen { 2_994 } else { 990 } * MS, 3_004 * MS);
            let after = [(3_000, 7, true), (3_001, 7, false), (3_051, 7, true), (3_052, 7, false)];
            assert_eq!(passed(&mut stops, &after), [1_000, 1_001, 1_051, 1_052]);
            assert_eq!(stops.finish(3_100 * MS).len(), 1);
        }
    }

    #[test]
    fn time_goes_on_without_a_stop() {
        let mut stops = Stops::new(true);
        assert_eq!(
            passed(&mut stops, &[(0, 7, true), (5, 8, true), (10, 7, false), (20, 8, false)]),
            [0, 5, 10, 20]
        );
        stops.seen(25 * MS, 25 * MS);
        assert!(stops.is_stopped());
        assert_eq!(stops.now_ns(3_000 * MS), 20 * MS);
        assert_eq!(
            passed(&mut stops, &[(3_220, 8, true), (3_221, 7, true), (3_230, 8, false)]),
            [20, 21, 30]
        );
        assert!(!stops.is_stopped());
        // Those that wait through it count the clock's time.
        assert_eq!([3_205, 30].map(|ms| stops.counted_ns(ms * MS, 3_235 * MS) / MS), [5, 30]);
        assert_eq!((stops.sum_ns(), stops.now_ns(3_240 * MS)), (3_200 * MS, 40 * MS));
        let one = Stop { from_ns: 20 * MS, at_ns: 20 * MS, length_ns: 3_200 * MS };
        assert_eq!(stops.finish(3_240 * MS), [one]);
        // The threads stop one after the other, where others have the processors: that is one stop.
        passed(&mut stops, &[(3_241, 7, false)]);
        stops.seen(3_245 * MS, 3_245 * MS);
        passed(&mut stops, &[(3_261, 7, true), (3_262, 7, false)]);
        stops.seen(3_270 * MS, 3_270 * MS);
        passed(&mut stops, &[(3_300, 7, true)]);
        assert_eq!(stops.all.iter().map(|one| one.length_ns / MS).collect::<Vec<_>>(), [20 + 38]);
    }

    /// Another process ends a stop by its next step. Who looks before that step is known sees it stopped yet.
    #[test]
    fn a_look_that_is_ahead_of_the_records_hides_no_stop() {
        let mut stops = Stops::new(true);
        passed(&mut stops, &[(0, 7, true), (20, 7, false)]);
        [22, 300, 321].iter().for_each(|ms| stops.seen(ms * MS, ms * MS));
        assert_eq!(passed(&mut stops, &[(320, 8, true), (322, 8, false)]), [20, 22]);
        // It goes on, and is blocked for long before it is stopped again.
        stops.goes_on(330 * MS);
        passed(&mut stops, &[(340, 8, true), (341, 8, false)]);
        stops.seen(500 * MS, 500 * MS);
        assert_eq!(passed(&mut stops, &[(480, 7, true), (490, 7, false), (600, 7, true)]), [180, 190, 190]);
    }

    /// Nobody looked while it was stopped, for less than a look's distance.
    #[test]
    fn a_short_stop_in_a_long_sleep_is_none() {
        let mut stops = Stops::new(true);
        passed(&mut stops, &[(0, 7, true), (1_000, 7, false)]);
        stops.continued(10_995 * MS, 11_005 * MS);
        let all = [(11_000, 7, true), (11_001, 7, false), (11_080, 7, true), (11_081, 7, false)];
        assert_eq!(passed(&mut stops, &all), [11_000, 11_001, 11_080, 11_081]);
        // Whoever looks is stopped along with it. It was alive at the last look before.
        stops.continued(20_000 * MS, 23_010 * MS);
        assert_eq!(passed(&mut stops, &[(23_005, 7, true)]), [20_000]);
    }

    /// The stop begins and ends within a look.
    #[test]
    fn a_look_that_lasts_makes_no_stop_of_what_was_before() {
        let mut stops = Stops::new(true);
        passed(&mut stops, &[(0, 7, true), (1_000, 7, false)]);
        stops.seen(9_000 * MS, 9_003 * MS);
        assert_eq!(passed(&mut stops, &[(9_001, 7, true), (9_002, 7, false)]), [9_001, 9_002]);
        stops.seen(9_005 * MS, 9_005 * MS);
        assert_eq!(passed(&mut stops, &[(9_502, 7, true)]), [9_002]);
    }

    /// As by `cpulimit`.
    #[test]
    fn stops_between_which_it_ran_are_several() {
        let mut stops = Stops::new(true);
        for start in [0, 100, 200, 300, 400, 500] {
            passed(&mut stops, &[(start, 7, true), (start + 15, 7, false)]);
            stops.seen((start + 20) * MS, (start + 20) * MS);
        }
        assert_eq!((stops.finish(600 * MS).len(), stops.sum_ns()), (3, 6 * 85 * MS));
    }

    #[test]
    fn who_is_blocked_and_not_seen_stopped_is_not() {
        let mut stops = Stops::new(true);
        passed(&mut stops, &[(0, 7, true), (10, 7, false)]);
        assert_eq!(passed(&mut stops, &[(500, 7, true), (510, 7, false)]), [500, 510]);
        // Another process of the program goes on meanwhile.
        passed(&mut stops, &[(520, 7, true)]);
        stops.seen(600 * MS, 600 * MS);
        assert_eq!(passed(&mut stops, &[(700, 8, true), (710, 8, false), (720, 7, false)]), [700, 710, 720]);
        // A tracer stops it for a moment.
        stops.seen(721 * MS, 721 * MS);
        assert_eq!(passed(&mut stops, &[(722, 7, true), (800, 7, false)]), [722, 800]);
        assert_eq!(stops.sum_ns(), 0);
        // It is ended while it is stopped.
        stops.seen(900 * MS, 900 * MS);
        assert_eq!(stops.finish(1_000 * MS)[0].length_ns, 200 * MS);
    }

    /// As by Ctrl-Z.
    #[test]
    fn whoever_is_stopped_along_with_it_learns_it_afterwards() {
        let mut stops = Stops::new(true);
        passed(&mut stops, &[(0, 7, true), (100, 7, false)]);
        stops.continued(95 * MS, 2_110 * MS);
        // The record of its end is not there yet.
        assert_eq!(stops.now_ns(2_109 * MS), 100 * MS);
        assert_eq!(passed(&mut stops, &[(2_100, 7, true), (2_105, 7, false)]), [100, 105]);
        // Later it is blocked for long, of its own accord; and not for most of the time.
        assert_eq!(passed(&mut stops, &[(9_105, 7, true), (9_110, 7, false)]), [7_105, 7_110]);
        stops.continued(9_000 * MS, 9_300 * MS);
        assert_eq!(passed(&mut stops, &[(9_200, 7, true), (9_400, 7, false)]), [7_200, 7_400]);
        assert_eq!(stops.sum_ns(), 2_000 * MS);
        // Whoever looks has a processor before the program has.
        stops.continued(9_390 * MS, 10_390 * MS);
        assert_eq!(passed(&mut stops, &[(10_400, 7, true)]), [7_400]);
    }

    #[test]
    fn without_records_a_stop_is_as_it_was_seen() {
        let mut stops = Stops::new(false);
        stops.goes_on(5 * MS);
        assert_eq!(stops.passed(8 * MS, None), 8 * MS);
        stops.seen(10 * MS, 10 * MS);
        // Late, and of before.
        assert_eq!(stops.passed(9 * MS, None), 9 * MS);
        stops.seen(20 * MS, 20 * MS);
        assert_eq!(stops.now_ns(30 * MS), 10 * MS);
        stops.goes_on(110 * MS);
        // What is read after that look was before it, and time does not step back.
        assert_eq!([105, 109, 111].map(|ms| stops.passed(ms * MS, None) / MS), [10, 14, 16]);
        stops.seen(200 * MS, 200 * MS);
        stops.seen(300 * MS, 300 * MS);
        // It goes on before anybody looks.
        assert_eq!(stops.passed(305 * MS, None), 105 * MS);
        stops.goes_on(310 * MS);
        assert_eq!((stops.passed(320 * MS, None), stops.finish(330 * MS).len()), (120 * MS, 2));
    }

    /// Others have the processors: a thread gets one for a moment, now and then.
    #[test]
    fn one_stop_is_one_however_late_each_thread_stops() {
        let mut stops = Stops::new(true);
        passed(&mut stops, &[(0, 7, true), (20, 7, false)]);
        stops.seen(30 * MS, 30 * MS);
        for start in [40, 49, 58, 67, 300, 309, 318, 327] {
            stops.seen(start * MS, start * MS);
            passed(&mut stops, &[(start, 8, true), (start + 1, 8, false)]);
        }
        stops.seen(450 * MS, 450 * MS);
        passed(&mut stops, &[(460, 7, true)]);
        assert_eq!(stops.finish(470 * MS).len(), 1);
        // They run for long, and are stopped again.
        let mut stops = Stops::new(true);
        for start in [0, 100, 200] {
            passed(&mut stops, &[(start, 7, true), (start + 50, 7, false)]);
            stops.seen((start + 70) * MS, (start + 70) * MS);
        }
        assert_eq!(stops.finish(300 * MS).len(), 3);
        // It sleeps in between.
        let mut stops = Stops::new(true);
        passed(&mut stops, &[(0, 7, true), (1, 7, false)]);
        for start in [0, 1_000, 2_000] {
            stops.seen((start + 20) * MS, (start + 20) * MS);
            passed(&mut stops, &[(start + 50, 7, true), (start + 51, 7, false)]);
            stops.goes_on((start + 60) * MS);
            passed(&mut stops, &[(start + 990, 7, true), (start + 991, 7, false)]);
        }
        assert_eq!(stops.finish(3_000 * MS).len(), 3);
    }

    /// The thread that calls exec(2) has its process's number from then on.
    #[test]
    fn a_stop_after_an_exec_by_another_thread_is_seen() {
        let mut stops = Stops::new(true);
        passed(&mut stops, &[(0, 1, true), (1, 2, true), (2, 1, false)]);
        let exec = What::Named { name: "new".into(), by_exec: true };
        stops.passed(5 * MS, Some(&record(1, exec)));
        passed(&mut stops, &[(9, 1, false)]);
        stops.seen(20 * MS, 20 * MS);
        assert!(stops.is_stopped());
        assert_eq!(passed(&mut stops, &[(109, 1, true)]), [9]);
        // Its last thread's end was lost.
        passed(&mut stops, &[(110, 3, true), (111, 1, false)]);
        stops.passed(112 * MS, Some(&record(1, What::Lost(9))));
        stops.seen(130 * MS, 130 * MS);
        assert_eq!(stops.finish(140 * MS).len(), 1);
        assert_eq!(stops.sum_ns(), 128 * MS);
    }

    /// The kernel tells at once of a signal that stops the program itself, and when it goes on.
    #[test]
    fn short_stops_by_a_signal_count_and_each_is_one() {
        let mut stops = Stops::new(true);
        let mut since = Vec::new();
        for start in [0, 10, 20, 30] {
            since.extend(passed(&mut stops, &[(start, 7, true), (start + 5, 7, false)]));
            stops.seen((start + 5) * MS, (start + 5) * MS);
            stops.is_by_signal = true;
            stops.continued((start + 6) * MS, (start + 10) * MS);
        }
        assert_eq!(since, [0, 5, 5, 10, 10, 15, 15, 20]);
        assert_eq!((stops.finish(40 * MS).len(), stops.sum_ns()), (4, 20 * MS));
    }

    /// It may take long until they have a processor again. They are not blocked then.
    #[test]
    fn whoever_was_stopped_wants_a_processor_behind_the_stop() {
        let (mut stops, mut account) = (Stops::new(true), Account::default());
        let switches =
            [(0, 7, true), (1, 8, true), (2, 9, true), (3, 9, false), (40, 7, false), (41, 8, false)];
        for (ms, thread, runs) in switches {
            let mut one = record(thread, if runs { What::In } else { What::Out });
            one.time_ns = stops.passed(ms * MS, Some(&one));
            account.apply(&one);
        }
        stops.seen(60 * MS, 60 * MS);
        assert_eq!(passed(&mut stops, &[(191, 8, true)]), [41]);
        let mut woken: Vec<_> =
            stops.woken(&account).iter().map(|one| (one.thread, one.time_ns / MS)).collect();
        woken.sort_unstable();
        assert_eq!((woken, stops.woken(&account)), (vec![(7, 41), (8, 41)], vec![]));
    }

    /// A parent may wait for the process that is stopped, and sleeps on behind the stop.
    #[test]
    fn whoever_sleeps_behind_a_stop_wants_no_processor() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            // SAFETY: no arguments.
            tell.send(unsafe { libc::gettid() } as u32).unwrap();
            _ = wait.recv();
        });
        let (own, thread) = (std::process::id(), told.recv().unwrap());
        while !sleeps(own, thread) {
            std::thread::yield_now();
        }
        // No process has the other one's number.
        let (other, mut account) = (u32::MAX, Account::default());
        let mut stops = Stops::new(true);
        for (ms, process, thread, what) in [
            (0, own, thread, What::In),
            (1, other, other, What::In),
            (35, own, thread, What::Out),
            (40, other, other, What::Out),
        ] {
            let one = Record { process, thread, time_ns: ms * MS, what };
            stops.passed(ms * MS, Some(&one));
            account.apply(&one);
        }
        stops.seen(60 * MS, 60 * MS);
        stops.passed(150 * MS, Some(&Record { process: other, ..record(other, What::In) }));
        let woken = stops.woken(&account);
        assert_eq!(woken.iter().map(|one| one.thread).collect::<Vec<_>>(), [other]);
        account.apply(&woken[0]);
        let thread = &account.threads[&other];
        assert_eq!((thread.state, thread.times.preemptions), (State::Ready, 0));
        drop(end);
        sleeper.join().unwrap();
    }

    /// As by `cpulimit -i`. Each first look is ahead of the records.
    #[test]
    fn a_program_that_is_always_stopped_as_a_whole_has_no_part_that_is() {
        let mut stops = Stops::new(true);
        for start in (0..1_000).step_by(100) {
            let one = |process, what| Record { process, ..record(process, what) };
            [7, 8].iter().for_each(|&who| _ = stops.passed(start * MS, Some(&one(who, What::In))));
            for ms in [30, 40, 90] {
                stops.seen((start + ms) * MS, (start + ms) * MS);
                stops.look_by([7, 8].into_iter(), (start + ms) * MS, |_| true);
                if ms == 30 {
                    let out = |who| one(who, What::Out);
                    [7, 8].iter().for_each(|&who| _ = stops.passed((start + 29) * MS, Some(&out(who))));
                }
            }
        }
        assert_eq!((stops.halted(), stops.sum_ns()), (Vec::new(), 9 * 71 * MS));
    }

    /// The look comes before the records of what the program did until then.
    #[test]
    fn a_block_before_a_later_stop_is_no_part_of_it() {
        let mut stops = Stops::new(true);
        passed(&mut stops, &[(0, 7, true), (20, 7, false)]);
        stops.seen(25 * MS, 25 * MS);
        assert_eq!(passed(&mut stops, &[(100, 7, true)]), [20]);
        stops.seen(120 * MS, 120 * MS);
        let all = [(105, 7, false), (118, 7, true), (119, 7, false), (200, 7, true)];
        assert_eq!(passed(&mut stops, &all), [25, 38, 39, 39]);
    }

    #[test]
    fn a_sleep_around_a_frozen_time_is_no_stop() {
        let mut stops = Stops::new(true);
        passed(&mut stops, &[(0, 7, true), (10, 7, false)]);
        for ms in (60..1_000).step_by(50) {
            let is_frozen = (400..600).contains(&ms);
            stops.group(is_frozen, ms * MS);
            if is_frozen {
                stops.seen(ms * MS, ms * MS);
            }
        }
        assert_eq!(passed(&mut stops, &[(2_000, 7, true)]), [1_750]);
        assert_eq!(
            stops.finish(2_100 * MS)[0],
            Stop { from_ns: 360 * MS, at_ns: 360 * MS, length_ns: 250 * MS }
        );
    }
}
