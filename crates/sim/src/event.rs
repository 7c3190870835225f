// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can become of a thread, and the channel in which its program is told: see `upcall.rs`.

use std::collections::VecDeque;

/// What became of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A system call keeps it.
    Blocked,
    /// A page fault keeps it.
    Faulted,
    /// It can go on.
    Unblocked,
    /// Its processor went to another.
    Preempted,
}

impl Event {
    /// What a kernel says that tells the opposite.
    pub(crate) fn inverted(self) -> Self {
        match self {
            Self::Blocked | Self::Faulted => Self::Unblocked,
            Self::Unblocked | Self::Preempted => Self::Blocked,
        }
    }
}

/// A program's channel.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    pub told: VecDeque<(usize, Event)>,
    pub standing: VecDeque<usize>,
    /// Upcalls, by [`Event`].
    pub counts: [u64; 4],
}
