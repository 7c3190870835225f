// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups of tasks: `taskgroup`, and what reduces in one.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use linux::Linux;
use sync::openmp::Awaited;

use crate::memory::Own;
use crate::tasks::work_until;
use crate::thread::Thread;

/// A `taskgroup`.
pub struct Group {
    pub(crate) outer: *const Group,
    /// Tasks that are not done.
    pub(crate) tasks: Awaited<Linux>,
    pub(crate) cancelled: AtomicBool,
    /// It is there for the reductions of a worksharing construct, and so is cancelled with the group around
    /// it.
    pub(crate) workshares: Cell<bool>,
    pub reductions: Cell<*mut usize>,
    /// What LLVM's interface keeps of the same.
    pub reducing: Cell<*mut c_void>,
}

impl Group {
    pub fn outer(&self) -> *const Self {
        self.outer
    }

    /// The group of the program's directive.
    fn of_program(&self) -> &Self {
        // SAFETY: a group stays as long as those inside.
        let outer = if self.workshares.get() { unsafe { self.outer.as_ref() } } else { None };
        outer.unwrap_or(self)
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed) || self.of_program().cancelled.load(Relaxed)
    }
}

/// A new group around what the current task makes next.
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
pub fn group_is_cancelled(thread: &Thread) -> bool {
    thread.task().group().is_some_and(Group::is_cancelled)
}
