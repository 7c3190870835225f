// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks.

use std::ffi::{c_int, c_long, c_uint, c_void};
use std::ptr;

use omp::groups::*;
use omp::memory::{self, Need};
use omp::tasks::*;
use omp::team::Function;
use omp::thread::me;

pub const FINAL: c_uint = 1 << 1;
pub const DEPEND: c_uint = 1 << 3;
pub const PRIORITY: c_uint = 1 << 4;
pub const UP: c_uint = 1 << 8;
pub const GRAIN: c_uint = 1 << 9;
pub const IF: c_uint = 1 << 10;
pub const NO_GROUP: c_uint = 1 << 11;
pub const REDUCTION: c_uint = 1 << 12;
pub const DETACH: c_uint = 1 << 13;
pub const STRICT: c_uint = 1 << 14;

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_task(
    function: Function,
    data: *mut c_void,
    copy: Option<Copy>,
    size: c_long,
    align: c_long,
    deferred: bool,
    flags: c_uint,
    depend: *const *const c_void,
    priority: c_int,
    event: *mut *const Task,
) {
    // SAFETY: the compiler's arguments.
    unsafe {
        spawn(function, data, copy, (size as usize, align as usize), deferred, flags, depend, priority, event)
    };
}

/// # Safety
/// As [`Task::create`]; `depend` is there where the flags say so, and `event` likewise.
#[allow(clippy::too_many_arguments)] // the ABI's
unsafe fn spawn(
    function: Function,
    data: *mut c_void,
    copy: Option<Copy>,
    arguments: (usize, usize),
    deferred: bool,
    flags: c_uint,
    depend: *const *const c_void,
    priority: c_int,
    event: *mut *const Task,
) {
    let thread = me();
    if are_cancelled(thread) {
        return;
    }
    let has_event = flags & DETACH != 0 && !event.is_null();
    let event = if has_event { event } else { ptr::null_mut() };
    let depend = if flags & DEPEND != 0 { depend } else { ptr::null() };
    // SAFETY: the compiler's arguments.
    let dependences = unsafe { Dependence::all(depend) };
    let now = !deferred || are_run_at_once(thread, has_event, dependences.clone());
    // The task can run on the arguments that there are.
    let needs_none = !has_event && copy.is_none();
    if now && needs_none && depend.is_null() {
        // SAFETY: the compiler's arguments.
        return unsafe { run_included(thread, function, data, flags & FINAL != 0) };
    }
    // SAFETY: the compiler's arguments.
    unsafe {
        // As the compiler wants it: what the constructor copies may depend on what a predecessor does.
        if now {
            await_predecessors(thread, dependences.clone());
        }
        let (is_final, need) = (flags & FINAL != 0, if needs_none { Need::Wish } else { Need::Must });
        let Some(task) = Task::create(thread, function, data, copy, arguments, is_final, event, need) else {
            if !needs_none {
                memory::end(format_args!("a task with arguments of {} bytes", arguments.0));
            }
            await_predecessors(thread, dependences);
            return run_included(thread, function, data, is_final);
        };
        if flags & PRIORITY != 0 {
            task.set_priority(priority);
        }
        if has_event {
            task.expect_event();
        }
        if copy.is_some() {
            // It is the task that destroys what has been constructed.
            task.set_instead(function);
        }
        launch(thread, task, now, dependences);
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn GOMP_taskwait_depend(list: *const *const c_void) {
    // SAFETY: the compiler's.
    await_predecessors(me(), unsafe { Dependence::all(list) });
}

/// A task that does nothing, for others to wait for.
#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_taskwait_depend_nowait(list: *const *const c_void) {
    unsafe extern "C" fn nothing(_: *mut c_void) {}
    let none = ptr::null_mut();
    // SAFETY: the compiler's; there are no arguments.
    unsafe { spawn(nothing, none, None, (0, 1), true, DEPEND, list, 0, ptr::null_mut()) };
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_taskgroup_start() {
    begin_group(me());
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_taskgroup_end() {
    end_group(me());
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_taskwait() {
    wait_for_children();
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_taskyield() {
    yield_now();
}

/// # Safety
/// The event of a task that has not come.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_fulfill_event(event: *const Task) {
    // SAFETY: as promised.
    unsafe { fulfill_event(event) };
}
