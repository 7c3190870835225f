// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each thread did when, as far back as somebody may still ask.

use std::collections::VecDeque;

use crate::fast::HashMap;
use crate::record::{Record, What};

/// BOUND: marks of one thread. A thread that switches more often between two looks is known from there on.
const MOST_MARKS: usize = 1 << 16;

/// A stretch of time by what a thread did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// It had a processor.
    pub running_ns: u64,
    /// It wanted one.
    pub preempted_ns: u64,
    /// Of that: another thread of the program had it then, when it lost it.
    pub behind_own_ns: u64,
    /// It waited for something else.
    pub blocked_ns: u64,
    /// Nobody knows.
    pub unknown_ns: u64,
}

impl Split {
    /// All of it.
    pub fn total_ns(&self) -> u64 {
        self.running_ns + self.preempted_ns + self.blocked_ns + self.unknown_ns
    }

    /// What came to it since then.
    pub(super) fn since(self, then: Self) -> Self {
        Self {
            running_ns: self.running_ns - then.running_ns,
            preempted_ns: self.preempted_ns - then.preempted_ns,
            behind_own_ns: self.behind_own_ns - then.behind_own_ns,
            blocked_ns: self.blocked_ns - then.blocked_ns,
            unknown_ns: self.unknown_ns - then.unknown_ns,
        }
    }

    /// So often.
    pub fn times(self, count: u64) -> Self {
        self.each(|part_ns| part_ns * count)
    }

    pub(super) fn each(self, change: impl Fn(u64) -> u64) -> Self {
        Self {
            running_ns: change(self.running_ns),
            preempted_ns: change(self.preempted_ns),
            behind_own_ns: change(self.behind_own_ns),
            blocked_ns: change(self.blocked_ns),
            unknown_ns: change(self.unknown_ns),
        }
    }

    /// Together with another.
    pub fn add(&mut self, other: Self) {
        self.running_ns += other.running_ns;
        self.preempted_ns += other.preempted_ns;
        self.behind_own_ns += other.behind_own_ns;
        self.blocked_ns += other.blocked_ns;
        self.unknown_ns += other.unknown_ns;
    }
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// It has a processor.
    Run,
    /// It wants one, which another program has, or nobody knows who.
    Ready,
    /// It waits for something else.
    Blocked,
    /// It wants a processor, which another thread of the program took.
    Behind,
    /// It has ended.
    Gone,
}

/// Kinds that take time.
const KINDS: usize = 5;

/// From a time on.
#[derive(Clone, Copy)]
struct Mark {
    at_ns: u64,
    did: Did,
    /// Behind whom it is.
    by: u32,
    /// Until then, since the first mark of all.
    before: [u64; KINDS],
}

/// What a thread has done until a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    at_ns: u64,
    sums: [u64; KINDS],
}

fn split(from: &[u64; KINDS], to: &[u64; KINDS], all_ns: u64) -> Split {
    let part = |did: Did| to[did as usize].saturating_sub(from[did as usize]);
    let (running_ns, blocked_ns, behind_own_ns) = (part(Did::Run), part(Did::Blocked), part(Did::Behind));
    let preempted_ns = part(Did::Ready) + behind_own_ns;
    let unknown_ns = all_ns.saturating_sub(running_ns + preempted_ns + blocked_ns);
    Split { running_ns, preempted_ns, behind_own_ns, blocked_ns, unknown_ns }
}

/// All threads.
#[derive(Default)]
pub struct History(HashMap<u32, VecDeque<Mark>>);

impl History {
    /// Takes a record, in the order of their times.
    pub fn apply(&mut self, record: &Record) {
        let did = match &record.what {
            What::In => Did::Run,
            What::Out => Did::Blocked,
            What::Preempted | What::Forked { .. } => Did::Ready,
            What::Exited => Did::Gone,
            What::Named { by_exec: true, .. } => Did::Run,
            _ => return,
        };
        self.marked(record.thread, did, 0, record.time_ns);
    }

    fn marked(&mut self, thread: u32, did: Did, by: u32, time_ns: u64) {
        let marks = self.0.entry(thread).or_default();
        let at_ns = marks.back().map_or(time_ns, |last| time_ns.max(last.at_ns));
        let before = marks.back().map_or([0; KINDS], |last| last.until(at_ns));
        if marks.len() >= MOST_MARKS {
            marks.pop_front();
        }
        marks.push_back(Mark { at_ns, did, by, before });
    }

    /// What the thread did between these times.
    pub fn split(&self, thread: u32, from_ns: u64, to_ns: u64) -> Split {
        let all = to_ns.saturating_sub(from_ns);
        let Some(marks) = self.0.get(&thread) else { return Split { unknown_ns: all, ..Split::default() } };
        split(&until(marks, from_ns), &until(marks, to_ns), all)
    }

    /// What the thread has done until then, to be asked for what it did [`Self::since`]. As long as nobody
    /// knows the thread, that is nothing.
    pub(super) fn mark(&self, thread: u32, at_ns: u64) -> Done {
        Done { at_ns, sums: self.0.get(&thread).map_or([0; KINDS], |marks| until(marks, at_ns)) }
    }

    /// What it did from then on. Nothing of it need be known any more but the sums.
    pub(super) fn since(&self, thread: u32, from: &Done, to_ns: u64) -> Split {
        let to = self.mark(thread, to_ns.max(from.at_ns));
        split(&from.sums, &to.sums, to.at_ns - from.at_ns)
    }

    /// Is it a thread of the program?
    pub fn knows(&self, thread: u32) -> bool {
        self.0.contains_key(&thread)
    }

    /// What the thread does, and since when.
    pub(super) fn now(&self, thread: u32) -> Option<(Did, u64)> {
        self.0.get(&thread)?.back().map(|last| (last.did, last.at_ns))
    }

    /// The thread lost its processor at that time, and this one of the program has it now.
    pub fn is_behind(&mut self, thread: u32, by: u32, since_ns: u64) {
        let last = self.0.get_mut(&thread).and_then(VecDeque::back_mut);
        if let Some(last) = last.filter(|last| last.did == Did::Ready && last.at_ns == since_ns) {
            (last.did, last.by) = (Did::Behind, by);
        }
    }

    /// The thread lost its processor to another program, if it is still without one. From that time on this
    /// one of the program has it.
    pub fn is_behind_from(&mut self, thread: u32, by: u32, time_ns: u64) {
        if self.now(thread).is_some_and(|(did, _)| did == Did::Ready) {
            self.marked(thread, Did::Behind, by, time_ns);
        }
    }

    /// The thread of this program that had its processor has left it to another program, at that time.
    pub fn is_ready_from(&mut self, thread: u32, time_ns: u64) {
        if self.now(thread).is_some_and(|(did, _)| did == Did::Behind) {
            self.marked(thread, Did::Ready, 0, time_ns);
        }
    }

    /// Each stretch of what the thread did between these times, as far as it is known: what, behind whom,
    /// from when and until when.
    pub fn stretches(&self, thread: u32, from_ns: u64, to_ns: u64, mut each: impl FnMut(Did, u32, u64, u64)) {
        let Some(marks) = self.0.get(&thread) else { return };
        let first = until_then(marks, from_ns).saturating_sub(1);
        let rest = marks.range(first..);
        let ends = marks.range((first + 1).min(marks.len())..).map(|next| next.at_ns).chain([u64::MAX]);
        for (mark, end_ns) in rest.zip(ends) {
            if mark.at_ns >= to_ns {
                return;
            }
            let (from_ns, to_ns) = (mark.at_ns.max(from_ns), end_ns.min(to_ns));
            if from_ns < to_ns {
                each(mark.did, mark.by, from_ns, to_ns);
            }
        }
    }

    /// Nobody asks about what was before.
    pub fn forget(&mut self, before_ns: u64) {
        self.0.retain(|_, marks| {
            while marks.get(1).is_some_and(|next| next.at_ns <= before_ns) {
                marks.pop_front();
            }
            marks.back().is_some_and(|last| last.did != Did::Gone || last.at_ns > before_ns)
        });
    }
}

impl Mark {
    fn until(&self, at_ns: u64) -> [u64; KINDS] {
        let mut sums = self.before;
        sums[self.did as usize] += at_ns.saturating_sub(self.at_ns);
        sums
    }
}

/// How many marks there are until then. Nearly all who ask mean one of the last: there are 60,000, of which a
/// search from the middle would load a line of memory at each step.
fn until_then(marks: &VecDeque<Mark>, at_ns: u64) -> usize {
    let (mut end, mut step) = (marks.len(), 1);
    while end > 0 {
        let start = end.saturating_sub(step);
        if marks[start].at_ns <= at_ns {
            let (mut low, mut high) = (start + 1, end);
            while low < high {
                let middle = low.midpoint(high);
                if marks[middle].at_ns <= at_ns { low = middle + 1 } else { high = middle }
            }
            return low;
        }
        (end, step) = (start, step * 2);
    }
    0
}

/// What was done until then. Before the first mark nothing is known, which is nothing done.
fn until(marks: &VecDeque<Mark>, at_ns: u64) -> [u64; KINDS] {
    match until_then(marks, at_ns).checked_sub(1) {
        Some(index) => marks[index].until(at_ns),
        None => marks.front().map_or([0; KINDS], |first| first.before),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time_ns: u64, what: What) -> Record {
        Record { process: 1, thread: 7, time_ns, what }
    }

    fn history() -> History {
        let mut history = History::default();
        history.apply(&at(100, What::Forked { parent: 1, creator: 1 }));
        history.apply(&at(110, What::In));
        history.apply(&at(150, What::Preempted));
        history.apply(&at(180, What::In));
        history.apply(&at(200, What::Out));
        history.apply(&at(290, What::In));
        history.apply(&at(300, What::Exited));
        history
    }

    #[test]
    fn a_stretch_is_split_at_each_switch() {
        let split = |from, to| {
            let split = history().split(7, from, to);
            assert_eq!(split.total_ns(), to - from);
            [split.running_ns, split.preempted_ns, split.blocked_ns, split.unknown_ns]
        };
        assert_eq!(split(100, 300), [70, 40, 90, 0]);
        assert_eq!(split(140, 190), [20, 30, 0, 0]);
        assert_eq!(split(160, 170), [0, 10, 0, 0]);
        assert_eq!(split(50, 120), [10, 10, 0, 50]);
        assert_eq!(split(250, 350), [10, 0, 40, 50]);
    }

    #[test]
    fn a_mark_is_found_from_the_end_as_from_the_middle() {
        for count in 0..40 {
            let mark = |at: u64| Mark { at_ns: 10 * (at / 2), did: Did::Run, by: 0, before: [0; KINDS] };
            let marks: VecDeque<_> = (0..count).map(mark).collect();
            for at_ns in 0..250 {
                let expected = marks.partition_point(|mark| mark.at_ns <= at_ns);
                assert_eq!(until_then(&marks, at_ns), expected, "{at_ns} of {count}");
            }
        }
    }

    #[test]
    fn who_has_the_processor_is_told_apart() {
        let mut history = history();
        history.apply(&at(400, What::In));
        history.apply(&at(410, What::Preempted));
        // Of an older time, and of a thread that nobody knows.
        history.is_behind(7, 8, 150);
        history.is_behind(8, 7, 410);
        assert_eq!(history.split(7, 400, 430).behind_own_ns, 0);
        history.is_behind(7, 8, 410);
        let split = history.split(7, 400, 430);
        assert_eq!((split.preempted_ns, split.behind_own_ns, split.total_ns()), (20, 20, 30));
        let mut all = Vec::new();
        history.stretches(7, 90, 185, |did, _, from, to| all.push((did, from, to)));
        let (ready, run) = (Did::Ready, Did::Run);
        assert_eq!(all, [(ready, 100, 110), (run, 110, 150), (ready, 150, 180), (run, 180, 185)]);
        all.clear();
        history.stretches(7, 405, 420, |did, by, from, to| all.push((did, from + u64::from(by) * 1000, to)));
        assert_eq!(all, [(run, 405, 410), (Did::Behind, 8_410, 420)], "behind 8");
    }

    #[test]
    fn another_program_has_the_processor_until_one_of_ours_comes() {
        let mut history = history();
        history.apply(&at(400, What::In));
        history.apply(&at(410, What::Preempted));
        history.is_behind_from(7, 8, 425);
        let split = history.split(7, 400, 450);
        assert_eq!((split.running_ns, split.preempted_ns, split.behind_own_ns), (10, 40, 25));
        // It has a processor again, elsewhere.
        history.apply(&at(450, What::In));
        history.is_behind_from(7, 8, 460);
        assert_eq!(history.split(7, 450, 480).running_ns, 30);
    }

    #[test]
    fn what_is_forgotten_is_unknown_and_the_rest_stays() {
        let mut history = history();
        history.forget(185);
        assert_eq!(
            history.split(7, 100, 300),
            Split { running_ns: 30, blocked_ns: 90, unknown_ns: 80, ..Split::default() }
        );
        assert_eq!(history.split(8, 100, 300).unknown_ns, 200);
        history.forget(400);
        assert!(history.0.is_empty());
    }
}
