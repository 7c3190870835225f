// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the time of a program's threads was lost to: TR 1994, table 1, with numbers.
//!
//! Programs tell when a thread begins to wait for a lock or a barrier, when it has it, and when it gives it
//! back; the kernel tells who has a processor. All that goes into a log, if [`Setting::lost`] asks for one.
//! The log is read when the simulation is over, because only then is it known to whom a free lock went:
//!
//! - **Who holds a lock** is who got it last and has not begun to give it back.
//! - From then until the next one has it, the lock is *handed over*. To whom is known afterwards. While that
//!   thread has no processor, the others wait for a preempted waiter. Where anybody may take a free lock,
//!   somebody who runs does so, and there is no such time.
//! - Who gives a lock back and is preempted before anybody has it counts as a preempted holder.
//! - **At a barrier** the holder is who has not come yet. When all have come, who has not left yet and has
//!   no processor is a preempted waiter: in a tree others wait for it.
//!
//! Each moment of a thread, from the beginning to its end, is counted once. So all parts together are the
//! threads' time exactly.
//!
//! [`Setting::lost`]: crate::Setting::lost

pub(crate) mod log;
mod svg;
mod sweep;

use serde::{Serialize, Serializer};

use crate::memory::{NS, Time};
use crate::platform::{look, moment};
use log::Mark;
pub use svg::{Bar, bars};

fn ms<S: Serializer>(time: &Time, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(*time as f64 / (NS as f64 * 1e6))
}

/// Waiting for a lock or at a barrier, by what for; in ps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Waited {
    /// For a holder without a processor. At a barrier: anybody who has not come has none.
    #[serde(rename = "holder_preempted_ms", serialize_with = "ms")]
    pub holder_preempted: Time,
    /// For a waiter without a processor, to whom the lock goes next. At a barrier: anybody inside has none.
    #[serde(rename = "waiter_preempted_ms", serialize_with = "ms")]
    pub waiter_preempted: Time,
    /// For a holder that runs or sleeps.
    #[serde(rename = "holder_runs_ms", serialize_with = "ms")]
    pub holder_runs: Time,
    /// For nobody: the lock is passed on, or taken, perhaps by a sleeper. What is open at the end, too.
    #[serde(rename = "hand_over_ms", serialize_with = "ms")]
    pub hand_over: Time,
}

impl Waited {
    /// All of it.
    pub fn sum(&self) -> Time {
        self.holder_preempted + self.waiter_preempted + self.holder_runs + self.hand_over
    }
}

/// Where the time of a program's threads went; in ps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Of all threads, from the beginning to the end of each, or of the simulation. The others are its parts.
    #[serde(rename = "whole_ms", serialize_with = "ms")]
    pub whole: Time,
    /// Inside and outside of sections.
    #[serde(rename = "work_ms", serialize_with = "ms")]
    pub work: Time,
    /// Waiting on a processor.
    pub spun: Waited,
    /// Waiting asleep.
    pub slept: Waited,
    /// The kernel changed to the thread.
    #[serde(rename = "switches_ms", serialize_with = "ms")]
    pub switches: Time,
    /// Then its cache was filled again, where the machine charges that by the lump: as a migration. Finite
    /// caches charge it as misses, which are where the thread then is.
    #[serde(rename = "refills_ms", serialize_with = "ms")]
    pub refills: Time,
    /// On a processor, and neither work nor waiting: shared accesses, system calls, giving locks back.
    #[serde(rename = "rest_ms", serialize_with = "ms")]
    pub rest: Time,
    /// Ready, without a processor.
    #[serde(rename = "away_ms", serialize_with = "ms")]
    pub away: Time,
    /// Asleep, and not waiting for a lock or at a barrier.
    #[serde(rename = "asleep_ms", serialize_with = "ms")]
    pub asleep: Time,
}

impl Lost {
    /// Processor time that was the program's, with the changes to it.
    pub fn processors(&self) -> Time {
        self.work + self.spun.sum() + self.switches + self.refills + self.rest
    }

    /// All parts.
    pub fn sum(&self) -> Time {
        self.processors() + self.slept.sum() + self.away + self.asleep
    }
}

fn tell(mark: Mark) {
    if look(|it| it.tally.log.is_some()) {
        moment();
        look(|it| it.mark(it.current, it.now, mark));
    }
}

/// The running thread begins to wait for this lock.
pub(crate) fn wants(lock: usize) {
    tell(Mark::Wants(lock));
}

/// It has it.
pub(crate) fn has(lock: usize) {
    tell(Mark::Has(lock));
}

/// It begins to give it back.
pub(crate) fn frees(lock: usize) {
    tell(Mark::Frees(lock));
}

/// It has done so.
pub(crate) fn freed(lock: usize) {
    tell(Mark::Freed(lock));
}

/// The running thread comes to this barrier.
pub(crate) fn comes(barrier: usize) {
    tell(Mark::Comes(barrier));
}

/// It goes on.
pub(crate) fn goes(barrier: usize) {
    tell(Mark::Goes(barrier));
}
