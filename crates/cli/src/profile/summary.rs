// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a profile says of the program as a whole.

use serde::Serialize;

use crate::format::{grouped, ns, percent};
use crate::recorded::Halted;

#[derive(Clone, Default, Serialize)]
pub struct Summary {
    pub program: String,
    /// The command that became it, if that has another name, as env(1).
    pub started_by: Option<String>,
    /// Another program that the processes of this one became, and that ran for most of the time: its name,
    /// and its part of the processor time.
    pub ran_longest: Option<(String, f64)>,
    /// The signal that ended it, if one did.
    pub signal: Option<String>,
    /// Without the time for which it was stopped from outside, which counts nowhere.
    pub elapsed_ns: u64,
    pub stopped_ns: u64,
    pub stops: u64,
    /// Processes that were stopped while others went on, which counts as blocked.
    pub halted: Vec<Halted>,
    /// All that there were, and most at one time; the latter is 0 if nobody knows.
    pub threads: u64,
    pub threads_at_once: u64,
    /// All processes, most at one time, and most threads of one at one time; 0 if nobody knows.
    pub processes_all: u64,
    pub processes_at_once: u64,
    pub threads_of_one: u64,
    pub run_ns: u64,
    pub ready_ns: u64,
    pub blocked_ns: u64,
    /// For locks, semaphores and barriers, all threads together.
    pub waited_ns: u64,
    /// Of the program's time: somebody waited for a thread without a processor; for one that had lost it to
    /// another thread of the program; for nobody, or for one that had lost it to a thread that waits for
    /// locks or at barriers, too.
    pub waited_for_preempted_ns: u64,
    pub waited_behind_own_ns: u64,
    pub waited_behind_waiters_or_free_ns: u64,
    /// Processors on which the program's threads ran.
    pub processors: u32,
    /// Processors that the profiler, and so the program at its start, may use.
    pub processors_allowed: u32,
    /// The most that one of its threads might use, if somebody has asked.
    pub processors_bound: Option<u32>,
    /// Blocked in futex(2) outside of all that is told, all threads together, as an estimate; and in which
    /// function mostly. Looks that found it.
    pub elsewhere_ns: u64,
    pub elsewhere_in: Option<String>,
    pub elsewhere_looks: u32,
    /// Of those on which they ran, added up: for how long other programs had them, and the threads could have
    /// used them. Then how many the threads got, when they could have used all.
    pub foreign_ns: Option<u64>,
    pub had: Option<f64>,
    /// The program has wakeful's locks already.
    pub is_helped: bool,
    /// The quota, in thousandths of a processor.
    pub quota_milli: Option<u64>,
    /// Periods of the quota in which the program was throttled, and all; without a quota none.
    pub throttled: Option<u64>,
    pub periods: Option<u64>,
    /// How long such a period is.
    pub period_us: Option<u64>,
    /// Why nobody knows what the holders did; or why no wait is seen.
    pub without_switches: Option<String>,
    pub obstacle: Option<String>,
    /// The program has other rights than ours: the kernel tells nothing of its threads, and no library is
    /// preloaded. What little is known was before it began.
    pub is_hidden: bool,
    /// Does it use an OpenMP runtime, of which no region was seen?
    pub openmp: Option<&'static str>,
    pub processes: u32,
    pub events: u64,
    pub lost_events: u64,
    pub lost_records: u64,
    pub untold: u64,
    /// Waits that may be sampled: those that were told, and those that were only counted; for how long there
    /// were such.
    pub waits_told: u64,
    pub waits_counted: u64,
    pub sampled_ns: u64,
    pub threads_without_ring: u32,
    /// Processes that could tell nothing: in another PID namespace, or without room for the events.
    pub processes_elsewhere: u32,
    pub processes_unmapped: u32,
    /// Programs that it started, as far as the kernel told of them, of which none of that is known.
    pub programs_silent: u32,
    /// Processes that had not ended when the program had.
    pub processes_left: u32,
    /// Locks and barriers that were chosen by name, and spin whoever runs.
    pub spinning: Vec<String>,
    /// Processor time of the profiler while the program ran; and how long it took before the program began.
    pub profiler_ns: u64,
    pub profiler_start_ns: u64,
}

/// BOUND: what the profiler takes of a processor is worth a sentence from this part on.
const DEAR: f64 = 0.03;
/// BOUND: and from this time on. Of less, its own beginning and end are much, whatever the program does.
const LITTLE_NS: u64 = 20_000_000;

impl Summary {
    /// What the profiler took while the program ran, as a part of one processor.
    pub fn profiler(&self) -> f64 {
        self.profiler_ns as f64 / self.elapsed_ns.max(1) as f64
    }

    /// What that means, if it is much.
    pub fn dear(&self) -> Option<String> {
        let share = self.profiler();
        if share < DEAR || self.profiler_ns < LITTLE_NS {
            return None;
        }
        Some(format!(
            "The profiler took {} of a processor meanwhile, {}: the program waits very often, or has many \
             threads. Where the processors were full, its threads had so much less, and its times are too \
             long by up to that.",
            percent(share),
            ns(self.profiler_ns)
        ))
    }

    /// That it was stopped, if it was.
    pub fn stopped(&self) -> Option<String> {
        crate::recorded::stopped(self.stops, self.stopped_ns, &self.halted)
    }

    /// As many of what there were at one time: threads, processes with one thread each, or both.
    pub fn at_once_words(&self) -> String {
        units(self.at_once(), self.processes_at_once, self.threads_of_one)
    }

    /// All of them.
    pub fn all_words(&self) -> String {
        units(self.threads, self.processes_all, self.threads_of_one)
    }

    /// What the program has several of: `thread` or `process`.
    pub fn unit(&self) -> &'static str {
        if self.processes_at_once > 1 && self.threads_of_one <= 1 { "process" } else { "thread" }
    }

    /// Threads at one time, at most.
    pub fn at_once(&self) -> u64 {
        if self.threads_at_once > 0 { self.threads_at_once } else { self.threads }
    }
}

/// So many threads, of so many processes, of which each has so many at most.
fn units(threads: u64, processes: u64, of_one: u64) -> String {
    match (processes, of_one) {
        (0 | 1, _) => counted(threads, "thread"),
        (_, 0 | 1) => counted(threads, "process"),
        _ => format!("{} of {}", counted(threads, "thread"), counted(processes, "process")),
    }
}

/// A count, and what it counts.
pub fn counted(count: u64, what: &str) -> String {
    format!("{} {}", grouped(count), if count == 1 { what.into() } else { plural(what) })
}

/// More than one of it.
pub fn plural(what: &str) -> String {
    format!("{what}{}", if what.ends_with('s') { "es" } else { "s" })
}
