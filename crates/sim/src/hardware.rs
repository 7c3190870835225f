// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks of the machine's own: a processor locks a line (`get_subpage` of a KSR 1), and others that ask for
//! it stall until it is freed.
//!
//! - A line that is free costs as much as to write it, and the time that the description names.
//! - Who asks for a locked line stalls: the thread keeps its processor and does nothing else. If the thread
//!   loses the processor, it does not ask any more. When it runs again, it asks again.
//! - Who frees a line gives it to one of those that stall: the nearest, or the one that has asked first. It
//!   is theirs from that moment on, though it takes the time of a transfer until they go on.
//! - Who does not wait and finds the line locked has lost a transfer from the holder and nothing else.

use crate::engine::{Engine, suspend, sync};
use crate::lines::{Asks, Lines, Locked};
use crate::machine::LockOrder;
use crate::memory::{Kind, LineId, Time};
use crate::run::touch;
use crate::thread::{NOBODY, Reason};
use crate::tree::NEVER;

impl Engine {
    fn lines(&mut self) -> &mut Lines {
        self.lines.as_mut().expect("who asks has seen that there are such locks")
    }

    /// The processor goes on with the line at a later moment.
    fn fetch(&mut self, processor: usize, line: LineId, now: Time) -> Time {
        let get = self.lines().get;
        self.memory.access(processor, line, Kind::Store, now) + get
    }

    /// The running thread is about to stall.
    fn stall(&mut self, line: LineId) {
        let (processor, thread) = (self.processor, self.current);
        self.threads[thread].asks = Asks::For(line);
        self.lines().locked.get_mut(&line).expect("locked").stalled.push(processor);
    }

    /// The thread of this processor stalls from now on.
    pub(crate) fn stalls(&mut self, processor: usize) {
        self.processors[processor].resume = NEVER;
        self.schedule(processor);
    }

    /// A thread loses its processor. True if it stalled there.
    pub(crate) fn asks_no_more(&mut self, processor: usize, thread: usize) -> bool {
        let Asks::For(line) = self.threads[thread].asks else { return false };
        self.threads[thread].asks = Asks::Nothing;
        if let Some(locked) = self.lines().locked.get_mut(&line) {
            locked.stalled.retain(|&other| other != processor);
        }
        true
    }

    /// Gives a line that its holder frees to one of those who stall, if there are any.
    fn pass_on(&mut self, line: LineId) {
        let now = self.now;
        let Self { lines: Some(lines), memory, .. } = self else { return };
        let Some(locked) = lines.locked.get_mut(&line) else { return };
        let Locked { processor: from, stalled } = &*locked;
        let place = match lines.order {
            LockOrder::Arrival => (!stalled.is_empty()).then_some(0),
            LockOrder::Nearest => (0..stalled.len()).min_by_key(|&at| memory.steps(*from, stalled[at])),
        };
        let Some(place) = place else {
            lines.locked.remove(&line);
            return;
        };
        let next = locked.stalled.remove(place);
        locked.processor = next;
        let thread = self.processors[next].thread;
        self.threads[thread].asks = Asks::Given;
        self.processors[next].resume = self.fetch(next, line, now);
        self.schedule(next);
        self.set_limit();
    }
}

/// The running thread locks the line of this address; false if it does not wait and it is locked.
///
/// # Safety
/// `this` is the current machine, a thread of its runs, and it has such locks.
pub(crate) unsafe fn lock_line(this: *mut Engine, address: usize, waits: bool) -> bool {
    // SAFETY: as the caller promises; no reference is held while the thread is suspended.
    unsafe {
        let line = (*this).memory.line(address);
        loop {
            sync(this);
            let it = &mut *this;
            let (processor, current) = (it.processor, it.current);
            it.threads[current].spinner.disturb();
            let Some(locked) = it.lines().locked.get(&line) else {
                it.lines().locked.insert(line, Locked { processor, stalled: Vec::new() });
                it.now = it.fetch(processor, line, it.now);
                return true;
            };
            if !waits {
                let from = locked.processor;
                it.now += it.memory.transfer(processor, from);
                return false;
            }
            it.stall(line);
            suspend(this, Reason::Stalls);
            let it = &mut *this;
            if std::mem::take(&mut it.threads[current].asks) == Asks::Given {
                return true;
            }
        }
    }
}

/// The running thread frees the line of this address, which it has locked, perhaps on another processor.
///
/// # Safety
/// As for [`lock_line`].
pub(crate) unsafe fn unlock_line(this: *mut Engine, address: usize) {
    // SAFETY: as for `lock_line`.
    unsafe {
        let line = (*this).memory.line(address);
        touch(this, line, Kind::Store);
        let it = &mut *this;
        debug_assert_ne!(it.current, NOBODY);
        it.threads[it.current].spinner.disturb();
        it.now += it.lines().free;
        sync(this);
        let it = &mut *this;
        let processor = it.processor;
        it.lines().locked.get_mut(&line).expect("locked").processor = processor;
        it.pass_on(line);
    }
}
