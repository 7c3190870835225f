// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happened to whom, and when.

use crate::memory::Time;

/// Something that happens to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It gets a processor, which takes so long, and so long to fill its cache again.
    Starts {
        switch: Time,
        refill: Time,
    },
    /// That is over.
    Runs,
    /// It has no processor: it lost it, or has not got one yet.
    Loses,
    /// It has given its processor up.
    Yields,
    /// It sleeps.
    Sleeps,
    /// It is done.
    Ends,
    /// See [`super::wants`] and so on.
    Wants(usize),
    Has(usize),
    Frees(usize),
    Freed(usize),
    Comes(usize),
    Goes(usize),
}

pub(crate) struct Entry {
    pub at: Time,
    pub thread: usize,
    pub mark: Mark,
}

/// In the order in which it was told, which is that of time for each thread.
#[derive(Default)]
pub(crate) struct Log {
    pub entries: Vec<Entry>,
    /// Where the last entry of each thread is, and one more; 0 if it has none.
    last: Vec<usize>,
}

impl Log {
    /// A thread that is woken at a later moment may be given a processor before it: then it was ready before.
    pub fn add(&mut self, thread: usize, at: Time, mark: Mark) {
        if self.last.len() <= thread {
            self.last.resize(thread + 1, 0);
        }
        if let Some(last) = self.last[thread].checked_sub(1) {
            let before = &mut self.entries[last].at;
            *before = at.min(*before);
        }
        self.entries.push(Entry { at, thread, mark });
        self.last[thread] = self.entries.len();
        if let Mark::Starts { switch, refill } = mark {
            self.entries.push(Entry { at: at + switch + refill, thread, mark: Mark::Runs });
        }
    }
}
