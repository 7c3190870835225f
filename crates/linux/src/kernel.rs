// SPDX-License-Identifier: MIT OR Apache-2.0
//! [`Linux`] for code in which no fiber is parked: a wait blocks the kernel thread, whatever runs on it, and
//! a wake-up is for kernel threads only. A runtime of fibers uses it in its locks, deques and tokens, and so
//! do fibers that unwind. What is not named here is the trait's own: no rooms, no naps next to a lock, no
//! crowd.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use platform::{
    Costs, Deadline, Ordering, Platform, Priority, RunState, StaticPlatform, ThreadId, Wait, Wide, Wish,
};

use crate::{Linux, futex, slice};

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kernel;

/// What is the same.
macro_rules! as_linux {
    ($($name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(#[inline]
        fn $name($($arg: $type),*) $(-> $result)? {
            Linux::$name($($arg),*)
        })*
    };
}

impl Platform for Kernel {
    type AtomicU32 = AtomicU32;
    type AtomicPtr<T: 'static> = AtomicPtr<T>;

    as_linux! {
        costs() -> Costs;
        stamp() -> u32;
        set_stamp(rest: u32);
        register() -> ThreadId;
        run_state(thread: ThreadId) -> RunState;
        higher_preempted(than: Priority) -> bool;
        priority(thread: ThreadId) -> Priority;
        set_priority(thread: ThreadId, priority: Priority);
        change_priority(thread: ThreadId, from: Priority, to: Priority) -> bool;
        holds(thread: ThreadId) -> Option<&'static AtomicU32>;
        away(lock: *const ()) -> &'static AtomicU32;
        spare_processors() -> bool;
        set_wish(thread: ThreadId, wish: Wish);
        wish(thread: ThreadId) -> Wish;
        honours_wishes() -> bool;
        change_wish(thread: ThreadId, from: Wish, to: Wish) -> bool;
        warning(thread: ThreadId) -> bool;
        word(thread: ThreadId, index: usize) -> &'static AtomicU32;
        generation() -> u32;
        processors() -> u32;
        cpu_ns() -> u64;
        now_ns() -> u64;
        past(deadline: Deadline) -> bool;
        pause();
    }

    fn hand_off() {
        Self::yield_now();
    }

    fn wait(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> Wait {
        futex::wait(word, expected, deadline)
    }

    fn wake(word: *const AtomicU32, count: u32) -> u32 {
        futex::wake(word, count)
    }

    fn nap(ns: u64) {
        futex::nap(ns);
    }

    fn yield_now() {
        if slice::owes() {
            return slice::repay();
        }
        futex::sched_yield();
    }
}

impl Wide for Kernel {
    type AtomicU64 = AtomicU64;

    #[inline(always)]
    fn fence(order: Ordering) {
        Linux::fence(order);
    }
}

impl StaticPlatform for Kernel {
    #[allow(clippy::declare_interior_mutable_const)] // an initialiser, used once per static
    const ZERO_U32: AtomicU32 = AtomicU32::new(0);
}
