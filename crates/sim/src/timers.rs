// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens at a time of its own, the earliest first, of those the one that was set first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::event::Event;
use crate::memory::Time;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The thread's sleep of this number is over.
    Wake(usize, u64),
    /// The partition changes.
    Repartition,
    /// The program is told this of the thread, late.
    Upcall(usize, Event),
}

#[derive(Default)]
pub(crate) struct Timers {
    set: BinaryHeap<Reverse<(Time, u64, Timer)>>,
    sequence: u64,
}

impl Timers {
    pub fn set(&mut self, time: Time, timer: Timer) {
        self.sequence += 1;
        self.set.push(Reverse((time, self.sequence, timer)));
    }

    /// When the next one is due.
    pub fn next(&self) -> Option<Time> {
        self.set.peek().map(|&Reverse((time, ..))| time)
    }

    pub fn pop(&mut self) -> Option<(Time, Timer)> {
        self.set.pop().map(|Reverse((time, _, timer))| (time, timer))
    }

    pub fn iter(&self) -> impl Iterator<Item = Timer> {
        self.set.iter().map(|&Reverse((_, _, timer))| timer)
    }
}
