// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks.
//!
//! Each member has a queue, of which it takes the newest and others the oldest. A thread that waits for
//! children runs what descends from the task that waits, and nothing else (OpenMP 5.1, section 2.12.6: tied
//! tasks); all tasks are tied. A thread at a barrier runs whatever there is.
//!
//! A task's memory stays until it is done and so are its children: they point to it.
//!
//! A task for which there is no memory runs at once, on the stack of its parent.

use std::alloc::Layout;
use std::ffi::c_void;
use std::ptr;

use linux::Linux;
use sync::barrier::BWakeful;

use crate::depend::is_empty;
pub use crate::depend::{Dependence, Dependences, no_dependences};
use crate::icv::settings;
use crate::memory::{self, Need};
use crate::named::Named;
use crate::pool::Hold;
pub use crate::task::{Copy, Group, Task};
use crate::team::{Context, Function, Team};
use crate::thread::{Thread, me};
use crate::wait::{self, ByUser};

impl Task {
    /// A new task, with a copy of its arguments. It is the value of its event, which is null if it has none.
    /// `None` if there is no memory and the caller can do without.
    ///
    /// # Safety
    /// `data` are arguments of this size and alignment, of which `copy` makes others; of a task with an
    /// event the first is that.
    #[inline]
    pub unsafe fn create(
        thread: &Thread,
        function: Function,
        data: *mut c_void,
        copy: Option<Copy>,
        (size, align): (usize, usize),
        is_final: bool,
        event: *mut *const Self,
        need: Need,
    ) -> Option<&'static Self> {
        let parent = thread.task();
        let here = Layout::new::<Self>();
        let arguments = Layout::from_size_align(size, align.max(1));
        let (layout, offset) = arguments.and_then(|arguments| here.extend(arguments)).ok()?;
        let memory = thread.blocks.get(layout, need)?;
        // SAFETY: the layout is not empty; the arguments have their place in it.
        unsafe {
            // At once: a task that is made elsewhere would be copied.
            memory.cast::<Self>().write(Self::new(
                parent.icv.get(),
                parent,
                thread.team(),
                parent.group.get(),
            ));
            let task = &*memory.cast::<Self>();
            let there = memory.add(offset).cast::<c_void>();
            task.layout.set(Some(layout));
            task.is_final.set(parent.is_final() || is_final);
            task.function.set(Some(function));
            task.data.set(there);
            if !event.is_null() {
                *event = memory.cast();
                if !data.is_null() {
                    *data.cast::<*const Self>() = memory.cast();
                }
            }
            match copy {
                Some(copy) => copy(there, data),
                None => ptr::copy_nonoverlapping(data.cast::<u8>(), there.cast(), size),
            }
            Some(task)
        }
    }

    /// As [`Task::create`], for a caller who cannot do without.
    ///
    /// # Safety
    /// Likewise.
    pub unsafe fn needed(
        thread: &Thread,
        function: Function,
        data: *mut c_void,
        copy: Option<Copy>,
        arguments: (usize, usize),
        is_final: bool,
        event: *mut *const Self,
    ) -> &'static Self {
        // SAFETY: as promised.
        let task =
            unsafe { Self::create(thread, function, data, copy, arguments, is_final, event, Need::Must) };
        task.unwrap_or_else(|| memory::end(format_args!("a task with arguments of {} bytes", arguments.0)))
    }

    /// For [`run_included`]; `None` if there is no memory.
    #[cold]
    pub(crate) fn included(thread: &Thread) -> Option<&'static Self> {
        // SAFETY: memory for it.
        unsafe {
            let memory = thread.blocks.get(Layout::new::<Self>(), Need::Wish)?.cast::<Self>();
            memory.write(Self::on_stack());
            Some(&*memory)
        }
    }

    /// Runs its code, in this thread.
    #[inline]
    pub(crate) fn run(&self, thread: &Thread) {
        let before = thread.context();
        thread.set_context(Context { task: self, ..before });
        let cancelled = thread.team().is_cancelled() || self.group().is_some_and(Group::is_cancelled);
        if let Some(function) = if cancelled { self.instead.get() } else { self.function.get() } {
            // SAFETY: the program's, with its arguments.
            unsafe { function(self.data.get()) };
        }
        thread.set_context(before);
    }

    /// Its code has been run, by a member: that or its event, whichever is second, completes it.
    #[inline]
    pub(crate) fn part_done(&self) {
        if self.parts.let_go() {
            self.complete();
        }
    }

    /// The caller is in its team, or holds it. When the last task is done the team may go, and is rung then.
    #[inline]
    fn complete(&self) {
        // SAFETY: the team stays for the caller, and a task's memory until `release`.
        let team = unsafe { &*self.team.get() };
        self.finish_dependences(team);
        // SAFETY: the parent stays for its children, the group for its tasks.
        let (parent, group) = unsafe { (&*self.parent.get(), self.group.get().as_ref()) };
        let mut awaited = false;
        if let Some(group) = group {
            // The group may be gone after it.
            awaited |= group.tasks.done();
        }
        if self.kin.is_one() {
            if let Some(layout) = self.layout.get() {
                self.free(layout);
            }
            let (was_last_child, was_last) = parent.kin.child_gone();
            awaited |= was_last_child;
            if was_last {
                parent.end();
            }
        } else {
            awaited |= parent.kin.child_done();
            self.release();
        }
        team.tasks.one_done(team, awaited);
    }
}

impl Team {
    /// Waits for all members, and for all tasks.
    #[inline]
    pub fn meet(&self, thread: &Thread) {
        let meetings = &thread.member().meetings;
        meetings.set(meetings.get().wrapping_add(1));
        match self.size() {
            1 => finish(self, thread),
            _ if self.is_alone() => {}
            _ => match self.named() {
                None => meet_at(self, &self.meeting.0.barrier, thread, || false),
                Some(barrier) => {
                    finish(self, thread);
                    barrier.wait(thread.number());
                }
            },
        }
    }

    #[inline]
    fn named(&self) -> Option<&Named> {
        // SAFETY: written between regions only.
        unsafe { (*self.named.get()).as_ref() }
    }

    /// As [`Team::meet`]; true, at once or early, if the region is cancelled.
    #[inline]
    pub fn meet_or_cancelled(&self, thread: &Thread) -> bool {
        let meetings = &thread.member().meetings;
        meetings.set(meetings.get().wrapping_add(1));
        if self.size() == 1 || self.is_cancelled() || self.is_alone() {
            return self.is_cancelled();
        }
        // Tasks first: this barrier knows nothing of them.
        finish(self, thread);
        // SAFETY: made anew between regions only.
        meet_at(self, unsafe { &*self.early_barrier.0.get() }, thread, || self.is_cancelled());
        self.is_cancelled()
    }
}

/// BOUND: tasks a member that are not done, beyond which new ones are run at once: enough to steal, and no
/// more memory than some hundred KiB.
pub(crate) const MOST_OPEN: u32 = 64;

/// A task can be run.
#[inline]
pub(crate) fn put(team: &Team, thread: &Thread, task: &'static Task) {
    let priority = task.priority.get();
    let before = (priority > 0).then_some(|other: &Task| other.priority.get() < priority);
    // Whoever fulfils an event may be in no team, or another.
    let is_member = ptr::eq(thread.context().team, team);
    team.tasks.put(team, task, before, is_member.then(|| thread.number()), || thread.task_puts());
}

/// Takes a task that descends from the current one.
#[inline]
pub(crate) fn take(team: &Team, thread: &Thread) -> Option<&'static Task> {
    let within = thread.context().task;
    team.tasks.take(team, thread.number() as usize, |task| task.descends_from(within), || false)
}

pub(crate) fn run(thread: &Thread, task: &'static Task) {
    task.run(thread);
    task.part_done();
}

/// Has the calling thread run whatever there is, until `stop`.
#[inline]
pub fn run_all(team: &Team, thread: &Thread, stop: impl Fn() -> bool) {
    let runs_all = &thread.member().runs_all;
    runs_all.set(true);
    team.tasks.run_all(team, thread.number() as usize, |task| run(thread, task), stop);
    runs_all.set(false);
}

/// Runs tasks, and waits for those that others run, until all are done.
#[inline]
pub fn finish(team: &Team, thread: &Thread) {
    if team.tasks.are_open() {
        let number = thread.number() as usize;
        let runs_all = &thread.member().runs_all;
        let run = |task| {
            runs_all.set(true);
            run(thread, task);
            runs_all.set(false);
        };
        team.tasks.finish::<_, ByUser>(team, number, run);
    }
}

/// Waits at a barrier of the team's, and runs tasks meanwhile; returns early if `left`.
#[inline(always)]
pub fn meet_at(team: &Team, barrier: &BWakeful<Linux>, thread: &Thread, left: impl Fn() -> bool) {
    let runs_all = &thread.member().runs_all;
    let run = |task| {
        runs_all.set(true);
        run(thread, task);
        runs_all.set(false);
    };
    team.tasks.meet_at::<_, ByUser>(team, barrier, || thread.number() as usize, run, left);
}

/// Waits for what others run; if the thread runs whatever there is, somebody else may do so meanwhile.
fn pause(team: &Team, thread: &Thread, wait: impl FnOnce()) {
    match thread.member().runs_all.get() {
        true => team.tasks.pause(team, wait),
        false => team.tasks.wait(team, wait),
    }
}

/// Runs descendants of the current task until `done`, for which somebody rings the team's bell.
#[inline]
pub(crate) fn work_until(thread: &Thread, done: impl Fn() -> bool) {
    let team = thread.team();
    while !done() {
        if let Some(task) = take(team, thread) {
            run(thread, task);
            continue;
        }
        let watch = team.bell.0.watch();
        match take(team, thread) {
            Some(task) => {
                watch.end();
                run(thread, task);
            }
            None if done() => return watch.end(),
            None => pause(team, thread, || watch.wait::<ByUser>(&done)),
        }
    }
}

/// Runs a new task that waits for nothing and needs no copy of its arguments, now.
///
/// # Safety
/// `function` may be called with `data`.
#[inline]
pub unsafe fn run_included(thread: &Thread, function: Function, data: *mut c_void, is_final: bool) {
    let known = match thread.spare.0.take() {
        // SAFETY: kept below, as if new.
        Some(task) => Some(unsafe { &*task }),
        None => Task::included(thread),
    };
    // SAFETY: as promised.
    unsafe {
        let Some(task) = known else { return run_on_stack(thread, function, data, is_final) };
        execute(thread, task, function, data, is_final);
        if task.kin.is_one() && !task.depends.get() && thread.spare.0.get().is_none() {
            return thread.spare.0.set(Some(task));
        }
        finish_now(thread, task);
    }
}

/// Runs a task's function in the place of the current task.
///
/// # Safety
/// `function` may be called with `data`.
#[inline]
unsafe fn execute(thread: &Thread, task: &Task, function: Function, data: *mut c_void, is_final: bool) {
    let before = thread.context();
    let parent = thread.task();
    task.icv.set(parent.icv.get());
    task.parent.set(parent);
    task.team.set(before.team);
    task.group.set(parent.group.get());
    task.is_final.set(is_final || parent.is_final());
    thread.set_context(Context { task, ..before });
    // SAFETY: as promised.
    unsafe { function(data) };
    thread.set_context(before);
}

/// As [`run_included`], without memory for the task: it goes when nobody has it any more, which is waited
/// for.
///
/// # Safety
/// Likewise.
#[cold]
#[inline(never)]
unsafe fn run_on_stack(thread: &Thread, function: Function, data: *mut c_void, is_final: bool) {
    let (task, before) = (Task::on_stack(), thread.context());
    // SAFETY: as promised.
    unsafe { execute(thread, &task, function, data, is_final) };
    thread.set_context(Context { task: &task, ..before });
    work_until(thread, || task.kin.is_childless());
    let team = thread.team();
    task.finish_dependences(team);
    // Children of its children, which they did not wait for.
    while !task.kin.is_one() {
        match take(team, thread) {
            Some(descendant) => run(thread, descendant),
            None => wait::nap(),
        }
    }
    thread.set_context(before);
}

/// Runs a task that nobody waits for elsewhere, now.
#[inline]
fn run_now(thread: &Thread, task: &Task) {
    task.run(thread);
    finish_now(thread, task);
}

/// The calling thread executes the task's code itself, until [`leave`].
pub fn enter(thread: &Thread, task: &Task) {
    if task.has_event() {
        count(thread, task);
    }
    thread.set_context(Context { task, ..thread.context() });
}

/// `has_event`: it had one when it was entered.
pub fn leave(thread: &Thread, task: &Task, has_event: bool) {
    thread.set_context(Context { task: task.parent.get(), ..thread.context() });
    match has_event {
        true => task.part_done(),
        false => finish_now(thread, task),
    }
}

#[inline]
fn finish_now(thread: &Thread, task: &Task) {
    task.finish_dependences(thread.team());
    match task.layout.get() {
        Some(layout) if task.kin.is_one() => task.free(layout),
        _ => {
            // It has children, for whom its parent stays as well.
            thread.task().kin.hold();
            task.release();
        }
    }
}

/// Are new tasks run at once?
#[inline]
pub fn are_run_at_once(thread: &Thread, has_event: bool, dependences: impl Dependences) -> bool {
    let team = thread.team();
    let many = !has_event && team.tasks.open() > MOST_OPEN * team.size() && settings().throttles;
    // A lone thread does not wait for a predecessor: it may have an event, which the current task fulfils
    // later.
    let alone = team.size() == 1 && !has_event;
    thread.task().is_final() || many || alone && !thread.task().would_wait(dependences, ptr::null())
}

/// Runs a new task now, its predecessors being done, or has it run when they are.
#[inline]
pub fn launch(thread: &Thread, task: &'static Task, now: bool, dependences: impl Dependences) {
    let (team, parent) = (thread.team(), thread.task());
    if now && !task.has_event() {
        return run_now(thread, task);
    }
    let depends = !is_empty(&dependences);
    if depends && !parent.depend(task, dependences.clone(), true) {
        return launch_unknown(thread, task, dependences);
    }
    count(thread, task);
    if now {
        run(thread, task);
    } else if !depends {
        task.dependent.has_none();
        put(team, thread, task);
    } else {
        task.preceded(team);
    }
}

/// Runs a new task whose dependences there was no memory for, when nobody is left that it has to wait for.
#[cold]
fn launch_unknown(thread: &Thread, task: &Task, dependences: impl Dependences) {
    if task.has_event() {
        memory::end(format_args!("the dependences of a task with an event"));
    }
    let parent = thread.task();
    // It is not counted yet: the last of the others rings the bell. The 1 is that of the beginning.
    let follows = || task.dependent.predecessors() > 1;
    work_until(thread, || !follows() && !parent.would_wait(dependences.clone(), task));
    run_now(thread, task);
}

/// A new task is waited for until [`Task::complete`].
#[inline]
fn count(thread: &Thread, task: &Task) {
    let (team, parent) = (thread.team(), thread.task());
    parent.kin.add_child();
    if let Some(group) = task.group() {
        group.tasks.add();
    }
    team.tasks.one_more();
}

/// Waits for the tasks that a task with these dependences would wait for.
pub fn await_predecessors(thread: &Thread, dependences: impl Dependences) {
    let parent = thread.task();
    if is_empty(&dependences) || parent.kin.is_childless() {
        return;
    }
    let nobody = Task::new(parent.icv.get(), parent, thread.team(), ptr::null());
    let follows_all = parent.depend(&nobody, dependences.clone(), false);
    nobody.dependent.preceded();
    let waits = || !follows_all && parent.would_wait(dependences.clone(), &nobody);
    work_until(thread, || nobody.dependent.predecessors() == 0 && !waits());
}

/// How many tasks, and how many iterations each; the first so many have one more.
pub type Cut = (u64, u64, u64);

/// Cuts a loop into tasks: `count` of them, or with so many iterations `each`; 0 where neither was given.
pub fn cut(iterations: u64, count: u64, each: bool, strict: bool, size: u32) -> Cut {
    let tasks = match count {
        0 => size as u64,
        // At least so many iterations a task, and less than twice as many; or exactly, but for the last.
        grain if each && strict => return (iterations.div_ceil(grain), grain, 0),
        grain if each => (iterations / grain).max(1),
        tasks => tasks,
    };
    let tasks = tasks.min(iterations).max(1);
    (tasks, iterations / tasks, iterations % tasks)
}

/// Waits for the children of the current task.
#[inline]
pub fn wait_for_children() {
    let thread = me();
    let task = thread.task();
    if !task.kin.is_childless() {
        work_until(thread, || task.kin.is_childless());
    }
}

/// All tasks are tied, and a thread that yields may run nothing but children, of which it runs the newest.
pub fn yield_now() {
    let thread = me();
    let team = thread.team();
    if let Some(task) = take(team, thread) {
        run(thread, task);
    }
}

/// # Safety
/// The event of a task that has not come.
pub unsafe fn fulfill_event(event: *const Task) {
    let thread = me();
    let before = thread.context();
    // As from outside of its team: what waits for this the thread may not run itself.
    thread.set_context(Context { team: ptr::null(), ..before });
    // SAFETY: a task that waits for this.
    let task = unsafe { &*event };
    if task.parts.let_go() {
        // SAFETY: a team stays while it has tasks, also where its thread ends.
        let _held = Hold::of(unsafe { &*task.team.get() });
        task.complete();
    }
    thread.set_context(before);
}
