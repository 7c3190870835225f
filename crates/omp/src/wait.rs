// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a thread waits for something other than a barrier.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::icv::settings;
use linux::Linux;
use platform::{Platform, Priority};
use sync::openmp::Patience;
use sync::wait::{Informing, LOOK_PAUSES, Waiting};

/// COST: yields, of 300 ns where nobody takes them, before a waiter sleeps: a third of what that costs. Not
/// from `costs()`: a yield is a system call, which no switch's price tells. No cell known.
const YIELDS: u32 = 8;
/// Yields for a turn that goes round the team: two to three sleeps.
const TURN_YIELDS: u32 = 8 * YIELDS;
/// For so long nobody yields after that: the slice that a yield loses is a thirty-second part of it.
fn memory_ns() -> u64 {
    32 * Linux::costs().slice
}

/// Are threads to sleep that wait? By `OMP_WAIT_POLICY`; where it says `active`, or nothing, they do what is
/// best.
#[inline]
pub fn is_passive() -> bool {
    settings().wait_policy == Some(false)
}

/// When a yield was last taken by another program.
static LOST_NS: AtomicU64 = AtomicU64::new(0);

/// Yields, unless other programs would take it; false then.
fn yields_to_us() -> bool {
    let before = Linux::now_ns();
    // HINT: wrong, a slice is lost, or somebody sleeps that need not.
    if before.wrapping_sub(LOST_NS.load(Relaxed)) < memory_ns() {
        return false;
    }
    Linux::yield_now();
    let after = Linux::now_ns();
    // Another program had it, which costs a slice.
    if after - before > sync::barrier::long_ns::<Linux>() {
        LOST_NS.store(after, Relaxed);
    }
    true
}

/// Spins while the kernel's view has nothing against it, then yields; false if that was in vain.
fn awake(done: &impl Fn() -> bool) -> bool {
    let (mut looks, mut yields) = (0, if is_passive() { YIELDS } else { 0 });
    while yields < YIELDS {
        for _ in 0..LOOK_PAUSES {
            if done() {
                return true;
            }
            Linux::pause();
        }
        looks += 1;
        // HINT: wrong, it yields too early, or spins for some microseconds more.
        if looks > 1 && !Informing::may_spin::<Linux>(Priority::BarrierWaiter, looks) {
            yields += 1;
            if !yields_to_us() {
                break;
            }
        }
    }
    done()
}

/// Yields to those of the program's threads for whom it is, where there are more of them than processors;
/// false if that was in vain.
pub fn yielding(done: impl Fn() -> bool) -> bool {
    let most = if is_passive() { 0 } else { TURN_YIELDS };
    (0..most).any(|_| done() || !yields_to_us()) && done()
}

/// Waits for what takes another thread some instructions, of which it may be preempted.
pub fn briefly(done: impl Fn() -> bool) {
    if done() {
        return;
    }
    while !awake(&done) {
        nap();
    }
}

/// Leaves the processor to others for a while.
pub fn nap() {
    Linux::nap(Linux::costs().idle);
}

/// Something happened: for those who wait for what is written elsewhere.
pub type Event = sync::openmp::Event<Linux>;

/// As `OMP_WAIT_POLICY` says; where it says `active`, or nothing, by what is best.
pub struct ByUser;

impl Patience for ByUser {
    #[inline(always)]
    fn is_passive() -> bool {
        is_passive()
    }

    fn awake(done: impl Fn() -> bool) -> bool {
        awake(&done)
    }

    #[inline]
    fn briefly(done: impl Fn() -> bool) {
        briefly(done);
    }
}
