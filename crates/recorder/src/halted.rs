// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes of the program that are stopped while others go on. The program is not stopped then, and what
//! waits for such a process counts as waiting for one that is blocked: so it has to be told.

use crate::fast::HashMap;

/// BOUND: from one question to the next, processes that are asked at once, and processes that are told.
const ASK_NS: u64 = 20_000_000;
const MOST_ASKED: usize = 4;
const MOST: usize = 1_000;
/// BOUND: less is not told: while the whole program is stopped, its processes are so one after the other.
const LEAST_NS: u64 = 50_000_000;

/// A process that was stopped alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halt {
    /// The process.
    pub process: u32,
    /// For how long, as far as it was seen.
    pub length_ns: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Halted {
    /// Those that the last question found stopped, and when that was in the program's time.
    seen: HashMap<u32, u64>,
    sums: HashMap<u32, u64>,
    asked_ns: u64,
    next: usize,
}

impl Halted {
    /// Asks some of the living processes, if it is time. `own_ns` is the program's time, which stands still
    /// while all of it is stopped.
    pub fn look(&mut self, living: impl Iterator<Item = u32>, own_ns: u64, is_stopped: impl Fn(u32) -> bool) {
        if own_ns < self.asked_ns + ASK_NS {
            return;
        }
        self.asked_ns = own_ns;
        let asked: Vec<u32> = living.skip(self.next).take(MOST_ASKED).collect();
        if self.next == 0 && asked.len() < 2 {
            return self.seen.clear();
        }
        self.next = if asked.len() < MOST_ASKED { 0 } else { self.next + MOST_ASKED };
        for process in asked {
            let before_ns = self.seen.remove(&process);
            if !is_stopped(process) || (self.sums.len() >= MOST && !self.sums.contains_key(&process)) {
                continue;
            }
            self.seen.insert(process, own_ns);
            *self.sums.entry(process).or_default() += before_ns.map_or(0, |before_ns| own_ns - before_ns);
        }
    }

    /// A thread of that process has a processor: it was not stopped for all of the time since the last look.
    pub fn ran(&mut self, process: u32) {
        self.seen.remove(&process);
    }

    /// Those that were stopped for long enough to be told, the longest first.
    pub fn finish(&mut self) -> Vec<Halt> {
        let told = self.sums.drain().filter(|(_, length_ns)| *length_ns >= LEAST_NS);
        let mut all: Vec<Halt> = told.map(|(process, length_ns)| Halt { process, length_ns }).collect();
        all.sort_by_key(|halt| (std::cmp::Reverse(halt.length_ns), halt.process));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_process_that_is_stopped_alone_is_told_for_so_long() {
        let mut halted = Halted::default();
        for ms in (100..1_000).step_by(10) {
            halted.look([1, 7].into_iter(), ms * MS, |process| process == 7 && (300..500).contains(&ms));
        }
        assert_eq!(halted.finish(), [Halt { process: 7, length_ns: 180 * MS }]);
        // While all is stopped the program's time stands still. Many processes are asked in turns.
        for at in 0..600 {
            halted.look(0..10, (1_000 + at) * MS, |process| process == 9);
        }
        let [one] = halted.finish()[..] else { panic!("not one") };
        assert!(one.process == 9 && one.length_ns > 400 * MS, "{one:?}");
        for ms in [5_000, 5_100, 5_200, 5_300] {
            halted.look([1].into_iter(), ms * MS, |_| true);
        }
        assert_eq!(halted.finish(), []);
        // It runs in between.
        for ms in (6_000..7_000).step_by(50) {
            halted.look([1, 7].into_iter(), ms * MS, |process| process == 7);
            halted.ran(7);
        }
        assert_eq!(halted.finish(), []);
    }
}
