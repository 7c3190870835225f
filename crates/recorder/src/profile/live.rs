// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads that wait at this moment, for whom and since when: for `wakeful top`.

use abi::profile::Class;

use super::history::{Did, History};
use super::waits::{Waits, Whom};
use super::{Place, Sites};

/// BOUND: threads that are told in one look.
const MOST: usize = 2_000;

/// A thread that waits.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Its process.
    pub process: u32,
    /// Its number.
    pub thread: u32,
    /// At what.
    pub class: Class,
    /// The address of that.
    pub object: u64,
    /// Since when, on the monotonic clock.
    pub since_ns: u64,
    /// From where.
    pub place: Option<Place>,
    /// For whom, as far as anybody has said.
    pub whom: Whom,
    /// What that one does, and since when.
    pub does: Option<(Did, u64)>,
}

/// What is known at a moment.
pub struct Now<'a> {
    pub(super) waits: &'a Waits,
    pub(super) history: &'a History,
    pub(super) sites: &'a Sites,
    /// How far the clock is ahead of the program's time.
    pub(super) ahead_ns: u64,
    /// One wait of how many is told: for locks and semaphores, and at barriers.
    pub one_in: [u64; 2],
    /// Processes that tell their waits.
    pub processes: u32,
    /// The program is stopped from outside.
    pub is_stopped: bool,
}

impl Now<'_> {
    /// Those who wait, the longest first; and how many others there are.
    #[must_use]
    pub fn waiting(&self) -> (Vec<Waiting>, usize) {
        let one = |(thread, now): (u32, super::waits::Now)| {
            let whom = self.waits.whom(now.key, thread);
            let does = match whom {
                Whom::Thread(holder) => {
                    self.history.now(holder).map(|(did, since_ns)| (did, since_ns + self.ahead_ns))
                }
                _ => None,
            };
            Waiting {
                process: now.process,
                thread,
                class: now.key.class,
                object: now.key.object,
                since_ns: now.since_ns + self.ahead_ns,
                place: self.sites.places.get(now.site as usize).cloned(),
                whom,
                does,
            }
        };
        let mut all: Vec<Waiting> = self.waits.waiting().map(one).collect();
        all.sort_by_key(|one| (one.since_ns, one.thread));
        let others = all.len().saturating_sub(MOST);
        all.truncate(MOST);
        (all, others)
    }
}
