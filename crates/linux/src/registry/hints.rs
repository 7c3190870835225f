// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel view says of the threads. HINT: all of it may be late or wrong.

use core::sync::atomic::{AtomicU32, Ordering::*};

use abi::{RunState, View};
use platform::ThreadId;

use super::space::Registry;
use crate::futex;
use crate::view::bpf::Bpf;
use crate::view::perf::Perf;
use crate::view::{self, Source};

const MEMO_SHIFT: u32 = 4;
/// COST: ns for which the answer of a scan holds: far below a time slice (milliseconds), far above a look (a
/// clock read, 25 ns). No cell known.
const MEMO_NS: u64 = 2_000;
/// BOUND: a scan of n threads takes n x 10 to 20 ns; remembering it this many times as long bounds the whole
/// process's expense for scanning to a fifth of one processor.
const MEMO_FACTOR: u64 = 4;
impl Registry {
    /// HINT: see [`platform::Platform::run_state`]. Counts as a reason to watch the thread.
    #[inline(always)]
    pub fn run_state(&self, id: ThreadId) -> RunState {
        let state = self.look(id);
        if state == RunState::Unknown {
            // Not exact, and need not be: two that ask together may count as one.
            let asked = &self.own(id).asked;
            asked.store(asked.load(Relaxed).saturating_add(1), Relaxed);
        }
        state
    }

    /// HINT: the run state.
    #[inline(always)]
    pub(super) fn look(&self, id: ThreadId) -> RunState {
        if id.0 == 0 {
            return RunState::Unknown;
        }
        let slot = self.slot(id);
        // In the order of their need for speed.
        match self.view() {
            View::Bpf => Bpf::run_state(slot),
            View::Perf => Perf::run_state(slot),
            _ => RunState::Unknown,
        }
    }

    /// The calling thread runs. False if the arena says otherwise, because it missed a switch, or nobody
    /// writes it any more.
    #[inline(always)]
    pub(super) fn sees_me(&self, id: ThreadId) -> bool {
        self.view() != View::Bpf
            || matches!(self.look(id), RunState::Running | RunState::Unknown) && view::bpf::observes()
    }

    /// HINT: is a thread with a priority above `than` preempted?
    ///
    /// In the bpf view the kernel counts: a few loads from one line. In the perf view somebody must look at
    /// each thread; the answer is remembered for [`MEMO_NS`], or [`MEMO_FACTOR`] times as long as it took
    /// to find, and is that stale.
    pub fn higher_preempted(&self, than: u32) -> bool {
        match self.view() {
            // A thread is counted under the priority that it had when it was preempted; it may have been
            // raised since.
            View::Bpf => {
                let counts = &self.arena().preempted;
                let (lower, higher) = counts.split_at((than as usize + 1).min(counts.len()));
                let any = |counts: &[AtomicU32]| counts.iter().any(|count| count.load(Relaxed) != 0);
                any(higher) || any(lower) && self.greatest_preempted() > than + 1
            }
            View::Perf => self.greatest_preempted() > than + 1,
            View::None | View::Unset => false,
        }
    }

    /// HINT: threads that have been registered at one time, at most.
    pub fn registered(&self) -> u32 {
        self.local().high_water.load(Relaxed).saturating_sub(1)
    }

    /// HINT: does the kernel's scheduler act on what the blocks say of wishes and priorities?
    pub fn scheduled(&self) -> bool {
        self.view() == View::Bpf && self.arena().scheduled.load(Relaxed) != 0
    }

    /// HINT: how many processors the scheduler gives us, and how often that has changed; `None` where none
    /// divides them.
    pub fn granted(&self) -> Option<(u32, u32)> {
        let partition = &self.arena().partition;
        let count = self
            .partition_is_kept()
            .then(|| partition.processors.load(Relaxed))
            .filter(|&count| count != 0)?;
        Some((count, partition.generation.load(Relaxed)))
    }

    /// HINT: threads that run or could; 0 where no view looks. Looks at each.
    pub fn runnable(&self) -> u32 {
        let could_run =
            |&id: &ThreadId| matches!(self.run_state(id), RunState::Running | RunState::Preempted);
        self.ids().filter(could_run).count() as u32
    }

    /// HINT: threads that may run, as far as anybody knows: all that are not known to be blocked.
    pub fn may_run(&self) -> u32 {
        self.ids().filter(|&id| self.look(id) != RunState::Blocked).count() as u32
    }

    /// 1 + the greatest priority of a preempted thread; 0: none is.
    pub(super) fn greatest_preempted(&self) -> u32 {
        const ANSWER: u64 = (1 << MEMO_SHIFT) - 1;
        let memo = &self.local().memo.0;
        let known = memo.load(Relaxed);
        let start = futex::now_ns();
        // The others go on with the old answer while one looks.
        if start < known >> MEMO_SHIFT
            || memo
                .compare_exchange(known, (start + MEMO_NS) << MEMO_SHIFT | known & ANSWER, Relaxed, Relaxed)
                .is_err()
        {
            return (known & ANSWER) as u32;
        }
        let greatest = self
            .ids()
            .filter(|&id| self.look(id) == RunState::Preempted)
            .map(|id| 1 + self.thread(id).priority.load(Relaxed).min(abi::PRIORITIES as u32 - 1))
            .max()
            .unwrap_or(0);
        let end = futex::now_ns();
        let until = end + MEMO_NS.max(MEMO_FACTOR * (end - start));
        memo.store(until << MEMO_SHIFT | greatest as u64, Relaxed);
        greatest
    }

    /// A word that the application writes in a thread's block.
    #[inline(always)]
    pub fn priority(&self, id: ThreadId) -> &'static AtomicU32 {
        &self.thread(id).priority
    }

    /// How many locks a thread holds that raised its priority.
    #[inline(always)]
    pub fn holds(&self, id: ThreadId) -> &'static AtomicU32 {
        &self.own(id).holds
    }

    /// The KE-1 word of a thread.
    #[inline(always)]
    pub fn state(&self, id: ThreadId) -> &'static AtomicU32 {
        &self.thread(id).state
    }

    /// The KE-2 warning of a thread.
    #[inline(always)]
    pub fn warning(&self, id: ThreadId) -> &'static AtomicU32 {
        &self.thread(id).warning
    }
}
