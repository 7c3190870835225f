// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a simulation counts, and how it ended: what [`crate::Results`] are made of, beside the threads' own.

use hdrhistogram::Histogram;

use crate::memory::Time;
use crate::path::Walked;

pub(crate) struct Tally {
    pub switches: u64,
    pub preemptions: u64,
    pub migrations: u64,
    pub put_off: u64,
    pub overrun: u64,
    pub repartitions: u64,
    pub resumes: u64,
    pub skipped: u64,
    pub foreign: Time,
    pub waits: Histogram<u64>,
    pub path: Walked,
    /// The last moment until now.
    pub end: Time,
    /// The time was over before all was done.
    pub capped: bool,
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
            overrun: 0,
            repartitions: 0,
            resumes: 0,
            skipped: 0,
            foreign: 0,
            // BOUND: two digits, so that a percentile is within 1 %; up to 1,000 s in ns.
            path: Walked::default(),
            waits: Histogram::new_with_bounds(1, 1_000_000_000_000, 2).expect("constant bounds"),
            end: 0,
            capped: false,
            failure: None,
        }
    }
}
