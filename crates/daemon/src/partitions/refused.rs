// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel refuses a process again and again: said once, and tried less and less often.
//!
//! A group beside the process's own may be bound to the same processors. The kernel then refuses the
//! partition for as long as that is so, and others are not to wait for each try.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use crate::kernel::Set;

/// How long after the first refusal to try again; twice as long each time. As with other failures.
const FIRST: Duration = Duration::from_millis(10);
/// BOUND: an administrator who has mended it waits no longer than this.
const LONGEST: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Refusal {
    processors: Set,
    why: String,
    pause: Duration,
    until: Duration,
}

/// By process.
#[derive(Debug, Default)]
pub(super) struct Refused(BTreeMap<u32, Refusal>);

impl Refused {
    /// Is it too early to ask for these processors again?
    pub(super) fn pauses(&self, process: u32, processors: &Set, now: Duration) -> bool {
        self.0.get(&process).is_some_and(|known| known.processors == *processors && now < known.until)
    }

    /// The kernel has refused them. False if it has said the same before.
    pub(super) fn add(&mut self, process: u32, processors: &Set, error: &io::Error, now: Duration) -> bool {
        let why = error.to_string();
        let known = self.0.remove(&process).filter(|known| known.processors == *processors);
        let is_new = known.as_ref().is_none_or(|known| known.why != why);
        let pause = known.map_or(FIRST, |known| (2 * known.pause).min(LONGEST));
        self.0.insert(process, Refusal { processors: processors.clone(), why, pause, until: now + pause });
        is_new
    }

    /// They were given, or nobody wants them any more.
    pub(super) fn forget(&mut self, process: u32) {
        self.0.remove(&process);
    }

    pub(super) fn retain(&mut self, wanted: impl Fn(u32) -> bool) {
        self.0.retain(|&process, _| wanted(process));
    }

    /// When to try the next one.
    pub(super) fn due(&self) -> Option<Duration> {
        self.0.values().map(|known| known.until).min()
    }
}
