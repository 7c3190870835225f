// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loops cut into tasks.

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};
use std::ptr;

use omp::groups::*;
use omp::loops::{iterations, iterations_ull};
use omp::reductions;
use omp::tasks::*;
use omp::team::Function;
use omp::thread::me;

use crate::tasks::{FINAL, GRAIN, IF, NO_GROUP, PRIORITY, REDUCTION, STRICT, UP};

/// What the arguments of a `taskloop`'s tasks begin with, with the loop's type for both.
#[repr(C)]
struct Bounds {
    begin: u64,
    end: u64,
    reductions: *mut usize,
}

/// The tasks of a `taskloop`.
struct Taskloop {
    function: Function,
    data: *mut c_void,
    copy: Option<Copy>,
    arguments: (usize, usize),
    flags: c_uint,
    /// Tasks, or iterations a task; 0: neither was given.
    count: u64,
    priority: c_int,
    begin: u64,
    step: u64,
    iterations: u64,
    end: u64,
}

impl Taskloop {
    fn cut(&self, size: u32) -> Cut {
        let each = self.flags & GRAIN != 0;
        cut(self.iterations, self.count, each, self.flags & STRICT != 0, size)
    }

    /// # Safety
    /// As [`Task::create`]; the arguments begin with [`Bounds`].
    unsafe fn run(&self) {
        let thread = me();
        let grouped = self.flags & NO_GROUP == 0;
        let bounds = self.data.cast::<Bounds>();
        if self.iterations == 0 || thread.team().is_cancelled() {
            if grouped && self.flags & REDUCTION != 0 {
                // SAFETY: as the flag says.
                unsafe { reductions::decline((*bounds).reductions) };
            }
            return;
        }
        if grouped {
            begin_group(thread);
            if self.flags & REDUCTION != 0 {
                // SAFETY: as the flag says.
                unsafe { reductions::register_group((*bounds).reductions) };
            }
        }
        let (tasks, each, longer) = self.cut(thread.team().size());
        let deferred = self.flags & IF != 0;
        let mut done = 0;
        for index in 0..tasks {
            let next = (done + each + (index < longer) as u64).min(self.iterations);
            let at = |iteration: u64| self.begin.wrapping_add(iteration.wrapping_mul(self.step));
            if are_cancelled(thread) {
                break;
            }
            let now = !deferred || are_run_at_once(thread, false, no_dependences());
            let (is_final, no_event) = (self.flags & FINAL != 0, ptr::null_mut());
            // SAFETY: the compiler's arguments, of which the first two are the task's bounds. Its function
            // that copies does not copy these.
            let task = unsafe {
                let task = Task::needed(
                    thread,
                    self.function,
                    self.data,
                    self.copy,
                    self.arguments,
                    is_final,
                    no_event,
                );
                let bounds = task.data().cast::<Bounds>();
                (*bounds).begin = at(done);
                (*bounds).end = if next == self.iterations { self.end } else { at(next) };
                task
            };
            if self.flags & PRIORITY != 0 {
                task.set_priority(self.priority);
            }
            launch(thread, task, now, no_dependences());
            done = next;
        }
        if grouped {
            end_group(thread);
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_taskloop(
    function: Function,
    data: *mut c_void,
    copy: Option<Copy>,
    size: c_long,
    align: c_long,
    flags: c_uint,
    count: c_ulong,
    priority: c_int,
    begin: c_long,
    end: c_long,
    step: c_long,
) {
    let iterations = iterations(begin, end, step);
    let arguments = (size as usize, align as usize);
    let (begin, end, step) = (begin as u64, end as u64, step as u64);
    let taskloop =
        Taskloop { function, data, copy, arguments, flags, count, priority, begin, step, iterations, end };
    // SAFETY: the compiler's arguments.
    unsafe { taskloop.run() };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_taskloop_ull(
    function: Function,
    data: *mut c_void,
    copy: Option<Copy>,
    size: c_long,
    align: c_long,
    flags: c_uint,
    count: c_ulong,
    priority: c_int,
    begin: u64,
    end: u64,
    step: u64,
) {
    let iterations = iterations_ull(flags & UP != 0, begin, end, step);
    let arguments = (size as usize, align as usize);
    let taskloop =
        Taskloop { function, data, copy, arguments, flags, count, priority, begin, step, iterations, end };
    // SAFETY: the compiler's arguments.
    unsafe { taskloop.run() };
}
