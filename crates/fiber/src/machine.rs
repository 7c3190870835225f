// SPDX-License-Identifier: MIT OR Apache-2.0
//! [`Platform`] as a fiber sees it: who waits parks the fiber, and its carrier takes another.
//!
//! Fibers have no thread ids: a million do not fit into a lock word, and a movable one would change its stamp
//! while it holds. So this is the platform of the algorithms that need none. A waiting fiber always has
//! something better to do than to look, so nothing stands by.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use linux::Linux;
use platform::{
    Costs, Deadline, Ordering, Platform, Priority, RunState, StaticPlatform, ThreadId, Wait, Wide, Wish,
};

use crate::table;
use crate::waits::{self, uncancelled};

/// The machine that fibers run on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fibers;

static NOWHERE: AtomicU32 = AtomicU32::new(0);

impl Platform for Fibers {
    type AtomicU32 = AtomicU32;
    type AtomicPtr<T: 'static> = AtomicPtr<T>;

    /// A fiber that waits costs a switch between fibers, never a processor.
    fn costs() -> Costs {
        Costs { switch: 20, sleep: 100, idle: 0, ..Linux::costs() }
    }

    #[inline(always)]
    fn stamp() -> u32 {
        0
    }

    fn set_stamp(_: u32) {}

    fn register() -> ThreadId {
        ThreadId::NONE
    }

    fn run_state(_: ThreadId) -> RunState {
        RunState::Unknown
    }

    /// Another fiber always has a use for the processor.
    fn higher_preempted(_: Priority) -> bool {
        true
    }

    fn hand_off() {
        Self::yield_now();
    }

    fn priority(_: ThreadId) -> Priority {
        Priority::Running
    }

    fn set_priority(_: ThreadId, _: Priority) {}

    fn change_priority(_: ThreadId, _: Priority, _: Priority) -> bool {
        true
    }

    fn holds(_: ThreadId) -> Option<&'static AtomicU32> {
        None
    }

    fn away(lock: *const ()) -> &'static AtomicU32 {
        Linux::away(lock)
    }

    fn spare_processors() -> bool {
        false
    }

    fn set_wish(_: ThreadId, _: Wish) {}

    fn wish(_: ThreadId) -> Wish {
        Wish::Preemptable
    }

    fn honours_wishes() -> bool {
        false
    }

    fn change_wish(_: ThreadId, _: Wish, _: Wish) -> bool {
        true
    }

    fn warning(_: ThreadId) -> bool {
        false
    }

    fn word(_: ThreadId, _: usize) -> &'static AtomicU32 {
        &NOWHERE
    }

    /// A forked child has no fibers, so no lock with fibers in its queue is of use there.
    #[inline]
    fn generation() -> u32 {
        0
    }

    /// Who bounds wake-ups by it would wait for fibers that are on their way. One of those may be pinned to a
    /// blocked carrier, and come late. So there is no bound.
    fn processors() -> u32 {
        u32::MAX
    }

    fn cpu_ns() -> u64 {
        Linux::cpu_ns()
    }

    fn wait(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> Wait {
        table::wait::<false>(word, expected, deadline)
    }

    fn wake(word: *const AtomicU32, count: u32) -> u32 {
        table::wake::<false>(word, count)
    }

    fn now_ns() -> u64 {
        Linux::now_ns()
    }

    fn past(deadline: Deadline) -> bool {
        Linux::past(deadline)
    }

    #[inline(always)]
    fn pause() {
        Linux::pause();
    }

    fn nap(ns: u64) {
        waits::nap(core::time::Duration::from_nanos(ns));
    }

    fn yield_now() {
        uncancelled::yield_now();
    }
}

impl Wide for Fibers {
    type AtomicU64 = AtomicU64;

    #[inline(always)]
    fn fence(order: Ordering) {
        Linux::fence(order);
    }
}

impl StaticPlatform for Fibers {
    #[allow(clippy::declare_interior_mutable_const)] // an initialiser, used once per static
    const ZERO_U32: AtomicU32 = AtomicU32::new(0);
}
