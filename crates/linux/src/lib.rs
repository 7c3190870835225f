// SPDX-License-Identifier: MIT OR Apache-2.0
//! [`Platform`] on Linux.

mod futex;
mod processors;
mod registry;
mod tls;
pub mod view;

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use abi::View;
use platform::{Deadline, Platform, Priority, RunState, StaticPlatform, ThreadId, Wait, Wish};

/// The machine that this program runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

fn requested_view() -> View {
    // SAFETY: the name is a C string; the environment is not being changed by a program that reads it here first.
    let value = unsafe { libc::getenv(c"WAKEFUL_VIEW".as_ptr()) };
    if value.is_null() {
        return View::Perf;
    }
    // SAFETY: getenv returns a C string.
    match unsafe { core::ffi::CStr::from_ptr(value) }.to_bytes() {
        b"none" => View::None,
        _ => View::Perf,
    }
}

impl Platform for Linux {
    type AtomicU32 = AtomicU32;
    type AtomicPtr<T: 'static> = AtomicPtr<T>;

    #[inline(always)]
    fn current() -> ThreadId {
        ThreadId(tls::id())
    }

    fn register() -> ThreadId {
        registry::register()
    }

    #[inline]
    fn run_state(thread: ThreadId) -> RunState {
        registry::live().map_or(RunState::Unknown, |registry| registry.run_state(thread))
    }

    fn higher_preempted(than: Priority) -> bool {
        registry::live().is_some_and(|registry| registry.higher_preempted(than as u32))
    }

    fn hand_off() {
        Self::yield_now();
    }

    #[inline]
    fn priority(thread: ThreadId) -> Priority {
        match registry::live() {
            Some(registry) if thread != ThreadId::NONE => Priority::from_u32(registry.priority(thread).load(Relaxed)),
            _ => Priority::Running,
        }
    }

    #[inline]
    fn set_priority(thread: ThreadId, priority: Priority) {
        if thread != ThreadId::NONE
            && let Some(registry) = registry::live()
        {
            registry.priority(thread).store(priority as u32, Relaxed);
        }
    }

    #[inline]
    fn change_priority(thread: ThreadId, from: Priority, to: Priority) -> bool {
        thread == ThreadId::NONE
            || registry::live().is_none_or(|registry| {
                registry.priority(thread).compare_exchange(from as u32, to as u32, Relaxed, Relaxed).is_ok()
            })
    }

    #[inline]
    fn holds(thread: ThreadId) -> Option<&'static AtomicU32> {
        let registry = registry::live()?;
        (thread != ThreadId::NONE).then(|| registry.holds(thread))
    }

    #[inline]
    fn set_wish(thread: ThreadId, wish: Wish) {
        if thread != ThreadId::NONE
            && let Some(registry) = registry::live()
        {
            registry.wish(thread).store(wish as u32, Relaxed);
        }
    }

    #[inline]
    fn change_wish(thread: ThreadId, from: Wish, to: Wish) -> bool {
        thread == ThreadId::NONE
            || registry::live().is_none_or(|registry| {
                !matches!(registry.run_state(thread), RunState::Preempted | RunState::Blocked)
                    && registry.wish(thread).compare_exchange(from as u32, to as u32, Relaxed, Relaxed).is_ok()
            })
    }

    #[inline]
    fn warning(thread: ThreadId) -> bool {
        thread != ThreadId::NONE && registry::live().is_some_and(|registry| registry.warning(thread).load(Relaxed) != 0)
    }

    #[inline]
    fn queue_word(thread: ThreadId, index: usize) -> &'static AtomicU32 {
        registry::queue_word(thread, index)
    }

    fn generation() -> u32 {
        registry::generation()
    }

    fn processors() -> u32 {
        processors::available()
    }

    fn wait(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> Wait {
        futex::wait(word, expected, deadline)
    }

    fn wake(word: *const AtomicU32, count: u32) -> u32 {
        futex::wake(word, count)
    }

    fn now_ns() -> u64 {
        futex::now_ns()
    }

    fn past(deadline: Deadline) -> bool {
        futex::past(deadline)
    }

    #[inline(always)]
    fn pause() {
        core::hint::spin_loop();
    }

    fn nap(ns: u64) {
        futex::nap(ns);
    }

    fn yield_now() {
        // SAFETY: no arguments.
        unsafe { libc::sched_yield() };
    }
}

impl StaticPlatform for Linux {
    #[allow(clippy::declare_interior_mutable_const)] // an initialiser, used once per static
    const ZERO_U32: AtomicU32 = AtomicU32::new(0);
}
