// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each thread did when, as far back as somebody may still ask.

use std::collections::{HashMap, VecDeque};

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

    /// So often.
    pub fn times(self, count: u64) -> Self {
        Self {
            running_ns: self.running_ns * count,
            preempted_ns: self.preempted_ns * count,
            blocked_ns: self.blocked_ns * count,
            unknown_ns: self.unknown_ns * count,
        }
    }

    /// Together with another.
    pub fn add(&mut self, other: Self) {
        self.running_ns += other.running_ns;
        self.preempted_ns += other.preempted_ns;
        self.blocked_ns += other.blocked_ns;
        self.unknown_ns += other.unknown_ns;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Did {
    Run,
    Ready,
    Blocked,
    Gone,
}

/// From a time on.
#[derive(Clone, Copy)]
struct Mark {
    at_ns: u64,
    did: Did,
    /// Until then, since the first mark of all.
    before: [u64; 4],
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
        let marks = self.0.entry(record.thread).or_default();
        let at_ns = marks.back().map_or(record.time_ns, |last| record.time_ns.max(last.at_ns));
        let before = marks.back().map_or([0; 4], |last| last.until(at_ns));
        if marks.len() >= MOST_MARKS {
            marks.pop_front();
        }
        marks.push_back(Mark { at_ns, did, before });
    }

    /// What the thread did between these times.
    pub fn split(&self, thread: u32, from_ns: u64, to_ns: u64) -> Split {
        let all = to_ns.saturating_sub(from_ns);
        let Some(marks) = self.0.get(&thread) else { return Split { unknown_ns: all, ..Split::default() } };
        let (from, to) = (until(marks, from_ns), until(marks, to_ns));
        let [running_ns, preempted_ns, blocked_ns, _] = [0, 1, 2, 3].map(|did| to[did] - from[did]);
        let unknown_ns = all.saturating_sub(running_ns + preempted_ns + blocked_ns);
        Split { running_ns, preempted_ns, blocked_ns, unknown_ns }
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
    fn until(&self, at_ns: u64) -> [u64; 4] {
        let mut sums = self.before;
        sums[self.did as usize] += at_ns.saturating_sub(self.at_ns);
        sums
    }
}

/// What was done until then. Before the first mark nothing is known, which is nothing done.
fn until(marks: &VecDeque<Mark>, at_ns: u64) -> [u64; 4] {
    match marks.partition_point(|mark| mark.at_ns <= at_ns).checked_sub(1) {
        Some(index) => marks[index].until(at_ns),
        None => marks.front().map_or([0; 4], |first| first.before),
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
    fn what_is_forgotten_is_unknown_and_the_rest_stays() {
        let mut history = history();
        history.forget(185);
        assert_eq!(
            history.split(7, 100, 300),
            Split { running_ns: 30, preempted_ns: 0, blocked_ns: 90, unknown_ns: 80 }
        );
        assert_eq!(history.split(8, 100, 300).unknown_ns, 200);
        history.forget(400);
        assert!(history.0.is_empty());
    }
}
