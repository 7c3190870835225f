// SPDX-License-Identifier: MIT OR Apache-2.0
//! A task, what it depends on, and the groups that it may be in.
//!
//! A task's memory stays until it is done and so are its children: they point to it.

use std::alloc::Layout;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use linux::Linux;
use sync::openmp::{Awaited, Dependent, Deque, Holders, Kin, Linked, Links};

use crate::blocks::Blocks;
use crate::current;
use crate::icv::{Icv, settings};
use crate::lock::Guarded;
use crate::memory::{self, List, Map};
use crate::team::{Function, Team};

/// Copies a task's arguments.
pub type Copy = unsafe extern "C" fn(*mut c_void, *mut c_void);

/// A task, deferred or implicit. What follows it in memory are its arguments.
pub struct Task {
    pub icv: Cell<Icv>,
    pub(crate) parent: Cell<*const Task>,
    pub(crate) team: Cell<*const Team>,
    /// The innermost group that its new children belong to.
    pub group: Cell<*const Group>,
    pub(crate) function: Cell<Option<Function>>,
    /// What is called with the arguments instead, if it never runs.
    pub(crate) instead: Cell<Option<Function>>,
    pub(crate) data: Cell<*mut c_void>,
    pub(crate) layout: Cell<Option<Layout>>,
    pub(crate) is_final: Cell<bool>,
    /// It has been, or has had, something in a table.
    pub(crate) depends: Cell<bool>,
    pub(crate) priority: Cell<u32>,
    /// Children that are not done, and those who may still look at it: itself until it is done, its children,
    /// tables and lists that it is in.
    pub(crate) kin: Kin<Linux>,
    /// What is left to be done before it is complete: its code, and an event if it has one.
    pub(crate) parts: Holders<Linux>,
    /// Its predecessors, and those who wait for it.
    pub(crate) dependent: Dependent<Linux, List<Successor>>,
    /// What its children depend on.
    pub(crate) table: Guarded<Table>,
    pub(crate) links: Links<Task>,
}

// SAFETY: tasks go from thread to thread; what is not atomic or behind a lock is the running thread's.
unsafe impl Sync for Task {}

impl Linked for Task {
    fn links(&self) -> &Links<Self> {
        &self.links
    }
}

/// A task that waits for another one.
pub(crate) struct Successor(pub(crate) *const Task);

// SAFETY: as above.
unsafe impl Send for Successor {}

/// A member's tasks that can be run.
pub type Queue = Deque<Linux, Task>;

/// A team's tasks.
pub type Tasks = sync::openmp::Tasks<Linux, Task>;

impl Task {
    /// Of a member.
    pub fn implicit() -> Self {
        Self::new(settings().initial, ptr::null(), ptr::null(), ptr::null())
    }

    pub(crate) fn new(icv: Icv, parent: *const Task, team: *const Team, group: *const Group) -> Self {
        Self {
            icv: Cell::new(icv),
            parent: Cell::new(parent),
            team: Cell::new(team),
            group: Cell::new(group),
            function: Cell::new(None),
            instead: Cell::new(None),
            data: Cell::new(ptr::null_mut()),
            layout: Cell::new(None),
            is_final: Cell::new(false),
            depends: Cell::new(false),
            priority: Cell::new(0),
            kin: Kin::default(),
            parts: Holders::new(1),
            dependent: Dependent::default(),
            table: Guarded::default(),
            links: Links::default(),
        }
    }

    /// A region begins for its member.
    #[inline]
    pub(crate) fn begin_implicit(&self, icv: Icv, parent: *const Task) {
        self.icv.set(icv);
        self.parent.set(parent);
        self.group.set(ptr::null());
        // SAFETY: the task in which the region was met waits for its end.
        self.is_final.set(unsafe { parent.as_ref() }.is_some_and(|parent| parent.is_final.get()));
        if self.depends.replace(false) {
            self.forget_dependences();
        }
    }

    #[inline]
    pub fn is_final(&self) -> bool {
        self.is_final.get()
    }

    /// Is it an explicit one?
    pub fn is_explicit(&self) -> bool {
        self.layout.get().is_some()
    }

    /// Its arguments.
    pub fn data(&self) -> *mut c_void {
        self.data.get()
    }

    /// Before it is launched; as the clause says.
    pub fn set_priority(&self, priority: c_int) {
        self.priority.set(priority.clamp(0, settings().max_task_priority as c_int) as u32);
    }

    /// Before it is launched: what is called instead of its function if it is cancelled or not wanted.
    pub fn set_instead(&self, function: Function) {
        self.instead.set(Some(function));
    }

    /// Before it is launched: it is complete when an event has come besides.
    pub fn expect_event(&self) {
        self.parts.restart(2);
    }

    /// Before it begins.
    #[inline]
    pub fn has_event(&self) -> bool {
        self.parts.are_more()
    }

    #[inline]
    pub fn group(&self) -> Option<&Group> {
        // SAFETY: a group ends when its tasks are done, of which this is one, or has begun it.
        unsafe { self.group.get().as_ref() }
    }

    /// Is it this one, or does it descend from it?
    #[inline]
    pub(crate) fn descends_from(&self, ancestor: *const Task) -> bool {
        let mut task = ptr::from_ref(self);
        // SAFETY: parents stay.
        while let Some(this) = unsafe { task.as_ref() } {
            if ptr::eq(task, ancestor) {
                return true;
            }
            task = this.parent.get();
        }
        false
    }

    /// For [`run_on_stack`]. An explicit task has a layout.
    pub(crate) fn on_stack() -> Self {
        let mut task = Self::new(settings().initial, ptr::null(), ptr::null(), ptr::null());
        task.layout = Cell::new(Some(Layout::new::<Self>()));
        task
    }

    /// One who may look at it less.
    #[inline]
    pub(crate) fn release(&self) {
        if self.kin.let_go() {
            self.end();
        }
    }

    /// Its last holder has let go.
    pub(crate) fn end(&self) {
        if let Some(layout) = self.layout.get() {
            let parent = self.parent.get();
            self.free(layout);
            // SAFETY: a parent stays for its children.
            unsafe { (*parent).release() };
        }
    }

    /// A new one is not wanted after all.
    pub fn discard(&self) {
        if let Some(function) = self.instead.get() {
            // SAFETY: the program's, with its arguments.
            unsafe { function(self.data.get()) };
        }
        // One with an event stays: that may come all the same.
        if !self.has_event()
            && let Some(layout) = self.layout.get()
        {
            self.free(layout);
        }
    }

    /// Nobody has it any more.
    #[inline]
    pub(crate) fn free(&self, layout: Layout) {
        let this = ptr::from_ref(self).cast_mut();
        // SAFETY: from `create`.
        unsafe {
            ptr::drop_in_place(this);
            match current::blocks() {
                Some(blocks) => blocks.put(this.cast(), layout),
                None => Blocks::default().put(this.cast(), layout),
            }
        }
    }

    #[cold]
    pub fn forget_dependences(&self) {
        drop(self.table.with(mem::take));
    }

    /// Does nobody have to wait for it any more?
    pub fn is_done(&self) -> bool {
        self.dependent.is_done()
    }
}

/// A task that has run, and that nobody has.
#[derive(Default)]
pub struct Spare(pub Cell<Option<*const Task>>);

impl Drop for Spare {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            // SAFETY: from `included`.
            unsafe {
                ptr::drop_in_place(task.cast_mut());
                memory::put(task.cast_mut().cast(), Blocks::LAYOUT);
            }
        }
    }
}

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
    pub(crate) fn of_program(&self) -> &Self {
        // SAFETY: a group stays as long as those inside.
        let outer = if self.workshares.get() { unsafe { self.outer.as_ref() } } else { None };
        outer.unwrap_or(self)
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed) || self.of_program().cancelled.load(Relaxed)
    }
}

/// BOUND: addresses in a table of which half may be forgotten before it is looked for those: their tasks take
/// some ten KiB.
pub(crate) const LEAST_FORGOTTEN: usize = 64;

/// By address, the tasks that the next one has to wait for.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) users: Option<Map<Users>>,
    /// Addresses beyond which those are forgotten whose tasks are done.
    pub(crate) most: usize,
}

// SAFETY: as above.
unsafe impl Send for Table {}

#[derive(Default)]
pub(crate) struct Users {
    pub(crate) writer: Option<Held>,
    pub(crate) readers: List<Held>,
}

impl Users {
    pub(crate) fn are_done(&self) -> bool {
        self.writer.iter().chain(self.readers.iter()).all(|held| held.task().is_done())
    }
}

/// A task that stays because of this.
pub(crate) struct Held(pub(crate) *const Task);

impl Held {
    pub(crate) fn new(task: &Task) -> Self {
        task.kin.hold();
        Self(task)
    }

    pub(crate) fn task(&self) -> &Task {
        // SAFETY: held.
        unsafe { &*self.0 }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.task().release();
    }
}
