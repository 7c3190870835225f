// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups of tasks: `taskgroup`, and what reduces in one.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use sync::openmp::Awaited;

use crate::memory::Own;
use crate::task::Group;
use crate::tasks::work_until;
use crate::thread::Thread;

/// A new group around what the current task makes next.
#[inline]
pub fn begin_group(thread: &Thread) {
    let task = thread.task();
    let group = || Group {
        outer: task.group.get(),
        tasks: Awaited::default(),
        cancelled: AtomicBool::new(false),
        workshares: Cell::new(false),
        reductions: Cell::new(ptr::null_mut()),
        reducing: Cell::new(ptr::null_mut()),
    };
    task.group.set(Own::needed("a taskgroup", group).into_raw());
}

/// The same, for what the tasks of a worksharing construct reduce.
pub fn begin_workshare_group(thread: &Thread) {
    begin_group(thread);
    if let Some(group) = thread.task().group() {
        group.workshares.set(true);
    }
}

/// Waits for the tasks of the current task's innermost group, which ends. What [`Group::reducing`] was.
#[inline]
pub fn end_group(thread: &Thread) -> *mut c_void {
    let task = thread.task();
    let inner = task.group.get();
    // SAFETY: from `begin_group`, and freed below.
    let Some(group) = (unsafe { inner.as_ref() }) else { return ptr::null_mut() };
    work_until(thread, || group.tasks.are_none());
    task.group.set(group.outer);
    // SAFETY: its tasks are done, and whoever did the last does not look at it any more.
    unsafe { Own::from_raw(inner.cast_mut()) }.reducing.get()
}

/// What the innermost group of the current task reduces.
pub fn set_group_reductions(thread: &Thread, list: *mut usize) {
    if let Some(group) = thread.task().group() {
        group.reductions.set(list);
    }
}

/// Cancels the innermost group of the current task.
pub fn cancel_group(thread: &Thread) {
    if let Some(group) = thread.task().group() {
        group.of_program().cancelled.store(true, Relaxed);
    }
}

/// Is the innermost group of the current task cancelled?
#[inline]
pub fn group_is_cancelled(thread: &Thread) -> bool {
    thread.task().group().is_some_and(Group::is_cancelled)
}

/// Is there nothing that the current task may begin?
#[inline]
pub fn are_cancelled(thread: &Thread) -> bool {
    thread.team().is_cancelled() || group_is_cancelled(thread)
}
