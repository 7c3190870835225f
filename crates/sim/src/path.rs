// SPDX-License-Identifier: MIT OR Apache-2.0
//! The critical path of critical sections (Paznikov 2016, figure 1): the hand-over, then the section, then
//! the next hand-over.

use serde::Serialize;

use crate::memory::{Fetches, NS, Time};

/// What sections cost, one after the other: means of all that ran.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Path {
    /// From the end of a section to the beginning of the next one, whoever runs it. Where nobody waits, that
    /// is also the time in which nobody came.
    pub handover_ns: f64,
    /// From the beginning of a section to its end.
    pub section_ns: f64,
    /// Accesses in a section that the processor's own cache did not answer.
    pub misses: f64,
    /// Of these, those that went to memory.
    pub memory: f64,
    /// Of these, those that went to another node's memory.
    pub remote: f64,
}

/// What [`Path`] is made of.
#[derive(Default)]
pub(crate) struct Walked {
    sections: u64,
    inside: Time,
    handovers: u64,
    between: Time,
    fetches: Fetches,
    began: Time,
    ended: Option<Time>,
    /// Where the section runs, and what that processor had fetched before.
    processor: usize,
    fetched: Fetches,
}

impl Walked {
    pub fn enter(&mut self, now: Time, processor: usize, fetched: Fetches) {
        if let Some(ended) = self.ended {
            self.handovers += 1;
            self.between += now.saturating_sub(ended);
        }
        (self.began, self.processor, self.fetched) = (now, processor, fetched);
    }

    pub fn leave(&mut self, now: Time, processor: usize, fetched: Fetches) {
        self.sections += 1;
        self.inside += now.saturating_sub(self.began);
        self.ended = Some(now);
        // A thread that has moved meanwhile is not counted.
        if processor == self.processor {
            self.fetches.misses += fetched.misses - self.fetched.misses;
            self.fetches.memory += fetched.memory - self.fetched.memory;
            self.fetches.remote += fetched.remote - self.fetched.remote;
        }
    }

    pub fn result(&self) -> Option<Path> {
        let mean = |sum: u64, count: u64| sum as f64 / count.max(1) as f64;
        let ns = |sum: Time, count: u64| mean(sum, count) / NS as f64;
        (self.sections > 0).then(|| Path {
            handover_ns: ns(self.between, self.handovers),
            section_ns: ns(self.inside, self.sections),
            misses: mean(self.fetches.misses, self.sections),
            memory: mean(self.fetches.memory, self.sections),
            remote: mean(self.fetches.remote, self.sections),
        })
    }
}
