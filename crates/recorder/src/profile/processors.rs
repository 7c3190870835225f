// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each processor is had by a thread of the program or by another program. The program's own switches tell
//! which.
//!
//! A thread that is preempted waits where it was. While a thread of the program has that processor, it is
//! *behind* that one. From the moment when that one leaves, until the next one of the program comes, another
//! program has it; unless the next one comes at once.

use super::history::History;
use super::timeline::Timeline;
use crate::fast::HashMap;
use crate::record::{Record, What};

/// BOUND: the next thread of the program begins so soon after another one has lost that processor, if nobody
/// else has had it meanwhile: a switch takes 1 to 5 us.
const SAME_SWITCH_NS: u64 = 20_000;
/// BOUND: the whole program is stopped for so long at least.
const STOPPED_NS: u64 = 1_000_000;
/// BOUND: threads that wait at one processor and are followed. What the others wait behind is as at first.
const MOST_READY: usize = 32;

#[derive(Default)]
struct Processor {
    /// Since when a thread of the program has it, or had it, and for how long in all.
    used: (u64, u64),
    /// Who lost it last, and when, if nobody of the program has had it since.
    lost: Option<(u32, u64)>,
    /// Since when no thread of the program has it.
    left_ns: Option<u64>,
    /// Threads that were preempted there, and have had no processor since.
    ready: Vec<u32>,
}

/// All of them.
#[derive(Default)]
pub(super) struct Processors {
    all: HashMap<u32, Processor>,
    /// Where a thread is in the list.
    ready_at: HashMap<u32, u32>,
    /// Where a thread was put last.
    last: HashMap<u32, u32>,
    /// How many have a thread of the program, and since when none has though some thread wants it.
    running: u32,
    stopped_ns: Option<u64>,
}

/// What is told of a thread that waits for a processor.
struct Told<'a> {
    history: &'a mut History,
    timeline: Option<&'a mut Timeline>,
}

impl Told<'_> {
    fn is_behind(&mut self, thread: u32, by: u32, since_ns: u64) {
        self.history.is_behind(thread, by, since_ns);
        if let Some(timeline) = &mut self.timeline {
            timeline.is_behind(thread, by);
        }
    }

    fn is_behind_from(&mut self, thread: u32, by: u32, time_ns: u64) {
        self.history.is_behind_from(thread, by, time_ns);
        if let Some(timeline) = &mut self.timeline {
            timeline.is_behind_from(thread, by, time_ns);
        }
    }

    fn is_ready_from(&mut self, thread: u32, time_ns: u64) {
        self.history.is_ready_from(thread, time_ns);
        if let Some(timeline) = &mut self.timeline {
            timeline.is_ready_from(thread, time_ns);
        }
    }
}

impl Processors {
    /// Takes a record, before the history and the time line do.
    pub fn switched(
        &mut self,
        record: &Record,
        processor: u32,
        history: &mut History,
        mut timeline: Option<&mut Timeline>,
    ) {
        let (thread, now_ns) = (record.thread, record.time_ns);
        match record.what {
            What::In => {
                self.last.insert(thread, processor);
                if let Some(from_ns) = self.stopped_ns.take().filter(|from_ns| now_ns >= from_ns + STOPPED_NS)
                    && let Some(timeline) = &mut timeline
                {
                    timeline.was_stopped(from_ns, now_ns);
                }
                self.came(thread, processor, now_ns, &mut Told { history, timeline });
            }
            What::Out | What::Preempted => {
                self.left(processor, now_ns);
                let one = self.all.entry(processor).or_default();
                one.lost = None;
                if record.what == What::Preempted {
                    one.lost = Some((thread, now_ns));
                    if one.ready.len() < MOST_READY && self.ready_at.insert(thread, processor).is_none() {
                        one.ready.push(thread);
                    }
                }
                self.may_be_stopped(now_ns);
            }
            // The kernel takes its events away before it leaves the processor: no `Out` follows.
            What::Exited => {
                self.left(processor, now_ns);
                self.forget(thread);
                self.last.remove(&thread);
                self.may_be_stopped(now_ns);
            }
            _ => {}
        }
    }

    /// The processor that the thread has, or had last.
    pub fn of(&self, thread: u32) -> Option<u32> {
        self.last.get(&thread).copied()
    }

    fn may_be_stopped(&mut self, now_ns: u64) {
        if self.running == 0 && !self.ready_at.is_empty() {
            self.stopped_ns = Some(now_ns);
        }
    }

    /// A thread of ours leaves the processor. Of one that came before the events began, nobody knew.
    fn left(&mut self, processor: u32, now_ns: u64) {
        let was_known = self.all.contains_key(&processor);
        let one = self.all.entry(processor).or_default();
        if one.left_ns.is_none() {
            self.running -= u32::from(was_known);
            if one.used.0 > 0 {
                one.used.1 += now_ns.saturating_sub(one.used.0);
            }
            one.left_ns = Some(now_ns);
        }
    }

    fn came(&mut self, thread: u32, processor: u32, now_ns: u64, told: &mut Told) {
        // Where it waited, another program may have had the processor lately.
        let left_ns = self.ready_at.get(&thread).and_then(|at| self.all.get(at)?.left_ns);
        if let Some(left_ns) = left_ns.filter(|left_ns| is_long(*left_ns, now_ns)) {
            told.is_ready_from(thread, left_ns);
        }
        self.forget(thread);
        let is_first = !self.all.contains_key(&processor);
        let one = self.all.entry(processor).or_default();
        one.used.0 = now_ns;
        let (left_ns, lost) = (one.left_ns.take(), one.lost.take());
        self.running += u32::from(is_first || left_ns.is_some());
        if let Some(left_ns) = left_ns.filter(|left_ns| is_long(*left_ns, now_ns)) {
            for ready in &one.ready {
                told.is_ready_from(*ready, left_ns);
                told.is_behind_from(*ready, thread, now_ns);
            }
        }
        match lost.filter(|(loser, _)| *loser != thread) {
            Some((loser, since_ns)) if is_long(since_ns, now_ns) => {
                told.is_behind_from(loser, thread, now_ns);
            }
            Some((loser, since_ns)) => told.is_behind(loser, thread, since_ns),
            None => {}
        }
    }

    fn forget(&mut self, thread: u32) {
        if let Some(at) = self.ready_at.remove(&thread)
            && let Some(one) = self.all.get_mut(&at)
        {
            one.ready.retain(|ready| *ready != thread);
        }
    }

    /// Those on which threads ran for not nearly nothing of all that they ran.
    pub fn used(&self) -> Vec<u32> {
        let sum: u64 = self.all.values().map(|one| one.used.1).sum();
        let is_much = |one: &Processor| one.used.1 > 0 && one.used.1 * 100 >= sum;
        self.all.iter().filter(|(_, one)| is_much(one)).map(|(processor, _)| *processor).collect()
    }
}

fn is_long(from_ns: u64, to_ns: u64) -> bool {
    to_ns.saturating_sub(from_ns) > SAME_SWITCH_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// What each of the threads was without a processor: behind another, and in all.
    fn lacked(switches: &[(u64, u32, What)], thread: u32, to_ns: u64) -> (u64, u64) {
        let (mut processors, mut history) = (Processors::default(), History::default());
        for (time_ns, thread, what) in switches {
            let what = match what {
                What::In => What::In,
                What::Out => What::Out,
                _ => What::Preempted,
            };
            let record = Record { process: 1, thread: *thread, time_ns: *time_ns, what };
            processors.switched(&record, 0, &mut history, None);
            history.apply(&record);
        }
        let split = history.split(thread, 0, to_ns);
        (split.behind_own_ns, split.preempted_ns)
    }

    #[test]
    fn who_waits_behind_a_thread_of_the_program_does_so_only_while_that_has_the_processor() {
        let switches = [
            (MS, 7, What::In),
            (2 * MS, 7, What::Preempted),
            // At once another one of the program, then another program, then a third one of ours.
            (2 * MS + 2_000, 8, What::In),
            (4 * MS, 8, What::Preempted),
            (9 * MS, 9, What::In),
            (10 * MS, 9, What::Out),
            // And another program again, until it has it itself.
            (13 * MS, 7, What::In),
        ];
        assert_eq!(lacked(&switches, 7, 13 * MS), (2 * MS + MS, 11 * MS));
        assert_eq!(lacked(&switches, 8, 13 * MS), (MS, 9 * MS));
        // The third one leaves it to the first at once.
        let switches = [(MS, 7, What::In), (2 * MS, 7, What::Preempted), (2 * MS, 8, What::In)];
        let rest = [(5 * MS, 8, What::Out), (5 * MS + 1_000, 9, What::In), (7 * MS, 9, What::Out)];
        let all: Vec<_> = switches.into_iter().chain(rest).chain([(7 * MS, 7, What::In)]).collect();
        assert_eq!(lacked(&all, 7, 7 * MS), (5 * MS, 5 * MS));
    }

    #[test]
    fn who_runs_is_counted_from_the_middle_and_to_an_exit() {
        let (mut processors, mut history) = (Processors::default(), History::default());
        let mut running = |time_ns, thread, processor, what| {
            processors.switched(&Record { process: 1, thread, time_ns, what }, processor, &mut history, None);
            (processors.running, processors.stopped_ns)
        };
        assert_eq!(running(1, 8, 1, What::In), (1, None));
        // It came before the events did.
        assert_eq!(running(2, 7, 0, What::Preempted), (1, None));
        assert_eq!(running(3, 8, 1, What::Exited), (0, Some(3)));
        // Another kernel tells that it left, too.
        assert_eq!(running(4, 8, 1, What::Out).0, 0);
        assert_eq!(running(5, 7, 0, What::In), (1, None));
        assert_eq!(running(6, 7, 0, What::Out).0, 0);
    }

    #[test]
    fn a_processor_that_was_hardly_used_is_none() {
        let many = |times: &[u64]| {
            let one = |time: &u64| Processor { used: (1, *time), ..Processor::default() };
            let all = (0..).zip(times.iter().map(one)).collect();
            Processors { all, ..Processors::default() }.used().len()
        };
        assert_eq!(many(&[500, 0, 499, 1]), 2);
        assert_eq!((many(&[7]), many(&[0, 0])), (1, 0));
    }
}
