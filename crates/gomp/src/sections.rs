// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sections, `scope` and `single`.

use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use omp::fork::begin;
use omp::loops::{Shape, enter_with, is_first};
use omp::team::Function;
use omp::thread::me;

use crate::loops::{finish, finish_or_cancelled};
use crate::parallel_loops::parallel;

#[unsafe(no_mangle)]
extern "C" fn GOMP_sections_start(count: c_uint) -> c_uint {
    let thread = me();
    thread.member().work.start(thread, Shape::counted(count as u64), true, |_| {});
    GOMP_sections_next()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_sections2_start(
    count: c_uint,
    list: *mut usize,
    memory: *mut *mut c_void,
) -> c_uint {
    // SAFETY: the compiler's pointers.
    unsafe { enter_with(me(), Shape::counted(count as u64), list, memory, |_| {}) };
    GOMP_sections_next()
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_sections_next() -> c_uint {
    let thread = me();
    thread.member().work.next(thread).map_or(0, |(section, _)| section as c_uint)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_parallel_sections(
    function: Function,
    data: *mut c_void,
    threads: c_uint,
    count: c_uint,
    flags: c_uint,
) {
    // SAFETY: the compiler's function and data.
    unsafe { parallel(function, data, threads, flags, Shape::counted(count as u64)) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_parallel_sections_start(
    function: Function,
    data: *mut c_void,
    threads: c_uint,
    count: c_uint,
) {
    // SAFETY: the compiler's function and data.
    unsafe { begin(function, data, threads, 0, Some(Shape::counted(count as u64))) };
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_sections_end() {
    finish();
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_sections_end_nowait() {
    me().member().work.leave();
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_sections_end_cancel() -> bool {
    finish_or_cancelled()
}

/// A `scope` with memory for all, or reductions over tasks.
#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_scope_start(list: *mut usize) {
    let thread = me();
    // SAFETY: the compiler's pointers.
    unsafe { enter_with(thread, Shape::counted(0), list, ptr::null_mut(), |_| {}) };
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_single_start() -> bool {
    is_first(me())
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_single_copy_start() -> *mut c_void {
    let thread = me();
    if is_first(thread) {
        return ptr::null_mut();
    }
    thread.team().meet(thread);
    thread.team().copyprivate.load(Relaxed)
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_single_copy_end(data: *mut c_void) {
    let thread = me();
    // The barrier publishes it.
    thread.team().copyprivate.store(data, Relaxed);
    thread.team().meet(thread);
}
