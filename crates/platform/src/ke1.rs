// SPDX-License-Identifier: MIT OR Apache-2.0
//! KE-1: a thread's run state and its wish not to be preempted, which kernel and program change together.
//! (TR 1994, section 3 and figures 1 and 3: `cb->state`, "manipulated under certain rules by either".)
//!
//! Changed: the paper's variable has four values, of which `preempted` takes the place of the wish. Here the
//! word keeps both, so that a preempted thread has its wish when it comes back.
//!
//! # State
//!
//! One word of 32 bits (`abi::state`). The lowest byte is the run state: UNKNOWN, RUNNING, PREEMPTED,
//! BLOCKED. The kernel's half writes it. The next byte is the wish: PREEMPTABLE, SELF, OTHER. The thread
//! writes it, and whoever hands it a lock.
//!
//! # Invariants
//!
//! I1. Run state and wish have one order of changes, because they are one word.
//! I2. Nobody is granted a lock at the moment he loses his processor. That is: a grant (G2) that succeeds
//! comes before the kernel's decision (K1), which then refuses; or the decision comes first, and the grant
//! fails.
//! I3. No change of one half loses a change of the other.
//!
//! # Protocol
//!
//! K1. The kernel wants the processor of a running thread: PREEMPTABLE and RUNNING to PREEMPTED, by
//! compare-and-swap ([`preempt`]). If the wish forbids it, or has changed meanwhile, the kernel puts the
//! preemption off once and warns (KE-2). K2. If it had put it off before, it sets PREEMPTED, whatever the
//! wish is. K3. The thread has a processor again, or blocks: the run state alone changes.
//! G1. The thread sets its own wish, whatever the run state is ([`set_wish`]). G2. The wish changes from
//! one value to another if the thread is neither PREEMPTED nor BLOCKED, by compare-and-swap
//! ([`change_wish`]). A releaser grants the lock so (to OTHER); a waiter withdraws its wish so (SELF to
//! PREEMPTABLE).
//!
//! # Memory order
//!
//! Relaxed. Read-modify-writes of one word have one order, which is all that I1 to I3 need. What the lock
//! protects is published by the lock's own words. Two words would need sequential consistency on both
//! sides, and a second look by the one that decides later.
//!
//! # Under the scheduler
//!
//! Who does what:
//! - Our sched_ext scheduler decides by K1 in `dispatch`, before it looks for another thread. If there is
//!   none, K3 sets RUNNING again. Threads of the kernel's own classes come before ours, and ask nobody: then
//!   the scheduler hears of it in `stopping`, and can only tell (K3). A grant just before is then a grant to
//!   a holder who is preempted, as in K2.
//! - The observer of the view `bpf` cannot refuse anything, and only tells (K3). G2 sees that in its
//!   compare-and-swap.
//! - The view `perf` has no kernel's half that writes: the run state is in the event's ring, which the kernel
//!   writes and nobody else. G2 looks at the ring and then changes the word, in two steps. Nobody acts on
//!   the wishes of others in that view, so nothing is lost but the hint's last microsecond.
//! - The simulator does K1 in one moment, and G2 is one access of the line with the word.
//!
//! Hint stale in either direction: a running thread is passed over, or a preempted one is granted a lock.
//! Killed: the block is freed and the word starts again.
//!
//! # Fairness and space
//!
//! K2 bounds what a wish takes. Two bytes of a block's first line, which the kernel writes at each switch:
//! on the thread's own processor, so a wish is a store to a line that is there unless others have looked.
//!
//! # Rejected
//!
//! Two words, as here before: a twin that the checkers catch. A compare-and-swap for G1 and K3: a store of
//! one byte loses nothing of the other, and is as cheap as the store of a word that it replaces.
//!
//! # Checked by
//!
//! `conformance/tests/ke1.rs`, in loom and shuttle, with twins; the simulator's explorer, with the twin
//! under `smart-q`; the guest's tests of the scheduler. Stores of a byte are read-modify-writes there.

use abi::{RunState, Wish, state};

use crate::{AtomicInt, Ordering::Relaxed};

/// Changes the word by this until nobody interferes, or it says no.
fn update(word: &impl AtomicInt<u32>, change: impl Fn(u32) -> Option<u32>) -> bool {
    let mut now = word.load(Relaxed);
    while let Some(then) = change(now) {
        match word.compare_exchange(now, then, Relaxed, Relaxed) {
            Ok(_) => return true,
            Err(found) => now = found,
        }
    }
    false
}

/// G1, where a byte cannot be stored.
pub fn set_wish(word: &impl AtomicInt<u32>, wish: Wish) {
    update(word, |now| Some(state::with_wish(now, wish)));
}

/// Has it no processor, as far as anybody knows?
fn is_away(state: RunState) -> bool {
    matches!(state, RunState::Preempted | RunState::Blocked)
}

/// G2.
pub fn change_wish(word: &impl AtomicInt<u32>, from: Wish, to: Wish) -> bool {
    update(word, |now| {
        let may = state::wish(now) == from && !is_away(state::run_state(now));
        may.then_some(state::with_wish(now, to))
    })
}

/// K1. False: the thread stays.
pub fn preempt(word: &impl AtomicInt<u32>) -> bool {
    let now = word.load(Relaxed);
    state::wish(now) == Wish::Preemptable
        && word
            .compare_exchange(now, state::with_run_state(now, RunState::Preempted), Relaxed, Relaxed)
            .is_ok()
}

/// K2 and K3, where a byte cannot be stored.
pub fn set_run_state(word: &impl AtomicInt<u32>, to: RunState) {
    update(word, |now| Some(state::with_run_state(now, to)));
}
