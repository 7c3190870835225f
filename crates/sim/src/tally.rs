// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a simulation counts, and how it ended: what [`crate::Results`] are made of, beside the threads' own.

use hdrhistogram::Histogram;

use crate::lost::log::Log;
use crate::memory::Time;
use crate::path::Walked;

pub(crate) struct Tally {
    pub switches: u64,
    pub preemptions: u64,
    pub migrations: u64,
    pub put_off: u64,
    pub handed: u64,
    pub overrun: u64,
    pub repartitions: u64,
    pub resumes: u64,
    pub skipped: u64,
    pub foreign: Time,
    pub waits: Histogram<u64>,
    pub path: Walked,
    pub idle: Idle,
    /// What happened to whom, if somebody asks.
    pub log: Option<Log>,
    /// The last moment until now.
    pub end: Time,
    /// The time was over before all was done.
    pub capped: bool,
    /// What was to be done was done then, and nobody cares about the other threads.
    pub over: Option<Time>,
    /// What went wrong first.
    pub failure: Option<String>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            switches: 0,
            preemptions: 0,
            migrations: 0,
            put_off: 0,
            handed: 0,
            overrun: 0,
            repartitions: 0,
            resumes: 0,
            skipped: 0,
            foreign: 0,
            // BOUND: two digits, so that a percentile is within 1 %; up to 1,000 s in ns.
            path: Walked::default(),
            idle: Idle::default(),
            log: None,
            waits: Histogram::new_with_bounds(1, 1_000_000_000_000, 2).expect("constant bounds"),
            end: 0,
            capped: false,
            over: None,
            failure: None,
        }
    }
}

/// Processors that idle while fibers are ready, of a program that says how many are.
///
/// It counts from the moment at which half of those that there were have begun, so that the first kernel
/// threads are made, to that at which the last one begins.
#[derive(Default)]
pub(crate) struct Idle {
    ready: u64,
    most: u64,
    seen: Time,
    /// The two ends of the window: when, and how much work was done before.
    from: Option<(Time, Time)>,
    to: Option<(Time, Time)>,
    /// Processor time lost in the window.
    pub lost: Time,
    /// Times that the kernel kept a thread.
    pub blocks: u64,
}

impl Idle {
    /// Until now so many processors had nobody.
    pub fn pass(&mut self, idle: u64, now: Time) {
        if self.from.is_some() && self.to.is_none() {
            self.lost += idle.min(self.ready) * now.saturating_sub(self.seen);
        }
        self.seen = self.seen.max(now);
    }

    /// More fibers are ready, or fewer.
    pub fn change(&mut self, by: i64, now: Time, work: Time) {
        self.ready = self.ready.saturating_add_signed(by);
        self.most = self.most.max(self.ready);
        if self.from.is_none() && self.ready <= self.most / 2 {
            self.from = Some((now, work));
        }
        if self.to.is_none() && self.ready == 0 {
            self.to = Some((now, work));
        }
    }

    /// The window's length, and the work that was done in it.
    pub fn window(&self) -> Option<(Time, Time)> {
        let (from, to) = (self.from?, self.to?);
        Some((to.0 - from.0, to.1 - from.1))
    }
}
