// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread blocks: taken by a thread that registers, freed when it exits, reclaimed when it is gone.

use core::sync::atomic::Ordering::*;

use abi::RunState;
use platform::ThreadId;

use super::space::Registry;
use super::watch::{ALWAYS, REFUSED, switches};
use crate::futex;

/// BOUND: ns between two searches for dead threads; one is a system call a block, so 1 ms for all of them.
const RECLAIM_NS: u64 = 100_000_000;

/// The value of `tid` while somebody frees the block of a dead thread.
const RECLAIMING: u32 = u32::MAX;

impl Registry {
    /// Registers the calling thread in a free block; [`ThreadId::NONE`] if there is none.
    pub(super) fn add(&self, always: bool) -> ThreadId {
        let local = self.local();
        let id = self.take_block().or_else(|| if self.reclaim() { self.take_block() } else { None });
        let Some(id) = id else {
            local.turned_away.fetch_add(1, Relaxed);
            return ThreadId::NONE;
        };
        let (block, own) = (self.thread(id), self.own(id));
        block.tid.store(own.tid.load(Relaxed), Relaxed);
        block.priority.store(abi::Priority::Running as u32, Relaxed);
        own.holds.store(0, Relaxed);
        block.warning.store(0, Relaxed);
        for word in &own.words {
            word.store(0, Relaxed);
        }
        // Until the view says otherwise; the last holder of the block left nothing here.
        block.state.store(abi::state::new(RunState::Unknown, abi::Wish::Preemptable), Relaxed);
        self.tell_place(id);
        self.forget(id, switches().0);
        if always {
            self.watch(id, ALWAYS);
        }
        id
    }

    /// Takes the first free block.
    pub(super) fn take_block(&self) -> Option<ThreadId> {
        let local = self.local();
        // SAFETY: no arguments.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
        let from = local.free_from.0.load(Relaxed);
        // From the hint on, and then, because the hint may have been wrong, all.
        let most = local.most.load(Relaxed);
        for index in (from..most).chain(1..from) {
            let owner = &self.own(ThreadId(index)).tid;
            // ORDER: Acquire, pairs with the Release in `free`: its detach comes before our attach.
            if owner.load(Relaxed) == 0 && owner.compare_exchange(0, tid, Acquire, Relaxed).is_ok() {
                local.free_from.0.store(index + 1, Relaxed);
                local.high_water.fetch_max(index + 1, Relaxed);
                crate::reading::announce(index);
                return Some(ThreadId(index));
            }
        }
        local.full.store(1, Relaxed);
        None
    }

    /// Frees the block of the calling thread.
    pub(super) fn remove(&self, id: ThreadId) {
        self.unwatch(id);
        self.free(id);
    }

    /// Makes the block available. It is the caller's, and no view writes to it any more.
    pub(super) fn free(&self, id: ThreadId) {
        let block = self.thread(id);
        block.lease.store(0, Relaxed);
        block.state.store(0, Relaxed);
        block.priority.store(0, Relaxed);
        block.tid.store(0, Relaxed);
        self.own(id).processor.store(0, Relaxed);
        // ORDER: Release, pairs with the Acquire in `take_block`.
        self.own(id).tid.store(0, Release);
        let local = self.local();
        local.free_from.0.fetch_min(id.0, Relaxed);
        local.full.store(0, Relaxed);
    }

    /// Frees the blocks of threads that are no more and did not unregister: those that ended by a bare
    /// system call, and those whose thread-exit destructor could not be armed. True if there were any.
    /// Looks at most every [`RECLAIM_NS`].
    pub(super) fn reclaim(&self) -> bool {
        let at = &self.local().reclaim_at;
        let (now, due) = (futex::now_ns(), at.load(Relaxed));
        if now < due || at.compare_exchange(due, now + RECLAIM_NS, Relaxed, Relaxed).is_err() {
            return false;
        }
        let mut any = false;
        for id in self.ids() {
            let own = self.own(id);
            let tid = own.tid.load(Relaxed);
            if tid == 0 || tid == RECLAIMING || alive(tid) {
                continue;
            }
            if own.tid.compare_exchange(tid, RECLAIMING, Acquire, Relaxed).is_ok() {
                self.end_ring(id);
                self.free(id);
                any = true;
            }
        }
        any
    }

    /// Threads with a block; of these, refused by the view; searches for a block that found none.
    pub fn census(&self) -> (u32, u32, u32) {
        let (mut registered, mut unseen) = (0, 0);
        for id in self.ids() {
            let own = self.own(id);
            if own.tid.load(Relaxed) != 0 {
                registered += 1;
                unseen += (own.watch.load(Relaxed) == REFUSED) as u32;
            }
        }
        (registered, unseen, self.local().turned_away.load(Relaxed))
    }
}

/// Does a thread of this process have this id?
fn alive(tid: u32) -> bool {
    // SAFETY: signal 0 is not sent; errno is this thread's.
    unsafe {
        libc::syscall(libc::SYS_tgkill, libc::syscall(libc::SYS_getpid), tid, 0) == 0
            || *libc::__errno_location() != libc::ESRCH
    }
}
