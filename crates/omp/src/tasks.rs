// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks.
//!
//! Each member has a queue, of which it takes the newest and others the oldest. A thread that waits for children runs what descends from
//! the task that waits, and nothing else (OpenMP 5.1, section 2.12.6: tied tasks); all tasks are tied. A thread at a barrier runs
//! whatever there is.
//!
//! A task's memory stays until it is done and so are its children: they point to it.
//!
//! A task for which there is no memory runs at once, on the stack of its parent. A task for whose dependences there
//! is none waits for its predecessors, and then runs at once, so that nobody has to know it.

use std::alloc::Layout;
use std::cell::Cell;
use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use linux::Linux;
use sync::barrier::BWakeful;
use sync::openmp::{Awaited, Crew, Deque, Dependent, Holders, Linked, Links};

use crate::icv::{Icv, settings};
use crate::lock::Guarded;
use crate::memory::{self, List, Map, Need, Own};
use crate::reductions;
use crate::team::{Function, Team};
use crate::thread::{Context, Thread, me};
use crate::wait::{self, ByUser, Event};

/// Copies a task's arguments.
pub type Copy = unsafe extern "C" fn(*mut c_void, *mut c_void);

/// A task, deferred or implicit. What follows it in memory are its arguments.
pub struct Task {
    pub icv: Cell<Icv>,
    parent: Cell<*const Task>,
    team: Cell<*const Team>,
    /// The innermost group that its new children belong to.
    pub group: Cell<*const Group>,
    function: Cell<Option<Function>>,
    /// What is called with the arguments instead, if it never runs.
    instead: Cell<Option<Function>>,
    data: Cell<*mut c_void>,
    layout: Cell<Option<Layout>>,
    is_final: Cell<bool>,
    /// It has been, or has had, something in a table.
    depends: Cell<bool>,
    priority: Cell<u32>,
    /// Children that are not done.
    children: Awaited<Linux>,
    /// Those who may still look at it: itself until it is done, its children, tables and lists that it is in.
    references: Holders<Linux>,
    /// What is left to be done before it is complete: its code, and an event if it has one.
    parts: Holders<Linux>,
    /// Its predecessors, and those who wait for it.
    dependent: Dependent<Linux, List<Successor>>,
    /// What its children depend on.
    table: Guarded<Table>,
    links: Links<Task>,
}

// SAFETY: tasks go from thread to thread; what is not atomic or behind a lock is the running thread's.
unsafe impl Sync for Task {}

impl Linked for Task {
    fn links(&self) -> &Links<Self> {
        &self.links
    }
}

/// A task that waits for another one.
struct Successor(*const Task);

// SAFETY: as above.
unsafe impl Send for Successor {}

/// By address, the tasks that the next one has to wait for.
#[derive(Default)]
struct Table {
    users: Option<Map<Users>>,
    /// Addresses beyond which those are forgotten whose tasks are done.
    most: usize,
}

// SAFETY: as above.
unsafe impl Send for Table {}

#[derive(Default)]
struct Users {
    writer: Option<Held>,
    readers: List<Held>,
}

impl Users {
    fn are_done(&self) -> bool {
        self.writer.iter().chain(self.readers.iter()).all(|held| held.task().is_done())
    }
}

/// A task that stays because of this.
struct Held(*const Task);

impl Held {
    fn new(task: &Task) -> Self {
        task.references.add();
        Self(task)
    }

    fn task(&self) -> &Task {
        // SAFETY: held.
        unsafe { &*self.0 }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.task().release();
    }
}

/// A `taskgroup`.
pub struct Group {
    outer: *const Group,
    /// Tasks that are not done.
    tasks: Awaited<Linux>,
    cancelled: AtomicBool,
    /// It is there for the reductions of a worksharing construct, and so is cancelled with the group around
    /// it.
    workshares: Cell<bool>,
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

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed) || self.of_program().cancelled.load(Relaxed)
    }
}

/// A member's tasks that can be run.
pub type Queue = Deque<Linux, Task>;

/// A team's tasks.
pub type Tasks = sync::openmp::Tasks<Linux, Task>;

const FINAL: c_uint = 1 << 1;
const DEPEND: c_uint = 1 << 3;
const PRIORITY: c_uint = 1 << 4;
const UP: c_uint = 1 << 8;
const GRAIN: c_uint = 1 << 9;
const IF: c_uint = 1 << 10;
const NO_GROUP: c_uint = 1 << 11;
const REDUCTION: c_uint = 1 << 12;
const DETACH: c_uint = 1 << 13;
const STRICT: c_uint = 1 << 14;

/// COST: tasks a member that are not done, beyond which new ones are run at once: enough to steal, and no more memory than some hundred KiB.
const MOST_OPEN: u32 = 64;
/// COST: addresses in a table of which half may be forgotten before it is looked for those: their tasks take some ten KiB.
const LEAST_FORGOTTEN: usize = 64;

impl Task {
    /// Of a member.
    pub fn implicit() -> Self {
        Self::new(settings().initial, ptr::null(), ptr::null(), ptr::null())
    }

    fn new(icv: Icv, parent: *const Task, team: *const Team, group: *const Group) -> Self {
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
            children: Awaited::default(),
            references: Holders::new(1),
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

    #[cold]
    fn forget_dependences(&self) {
        drop(self.table.with(mem::take));
    }

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
    pub fn has_event(&self) -> bool {
        self.parts.are_more()
    }

    pub fn group(&self) -> Option<&Group> {
        // SAFETY: a group ends when its tasks are done, of which this is one, or has begun it.
        unsafe { self.group.get().as_ref() }
    }

    /// Is it this one, or does it descend from it?
    fn descends_from(&self, ancestor: *const Task) -> bool {
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

    /// A new task, with a copy of its arguments. It is the value of its event, which is null if it has none.
    /// `None` if there is no memory and the caller can do without.
    ///
    /// # Safety
    /// `data` are arguments of this size and alignment, of which `copy` makes others; of a task with an event the first is that.
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
        let mut task = Self::new(parent.icv.get(), parent, thread.team(), parent.group.get());
        task.layout = Cell::new(Some(layout));
        task.is_final = Cell::new(parent.is_final() || is_final);
        // SAFETY: the layout is not empty; the arguments have their place in it.
        unsafe {
            let there = memory.add(offset).cast::<c_void>();
            task.function = Cell::new(Some(function));
            task.data = Cell::new(there);
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
            memory.cast::<Self>().write(task);
            Some(&*memory.cast::<Self>())
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
        let task = unsafe { Self::create(thread, function, data, copy, arguments, is_final, event, Need::Must) };
        task.unwrap_or_else(|| memory::end(format_args!("a task with arguments of {} bytes", arguments.0)))
    }

    /// For [`run_included`]; `None` if there is no memory.
    #[cold]
    fn included(thread: &Thread) -> Option<&'static Self> {
        // SAFETY: memory for it.
        unsafe {
            let memory = thread.blocks.get(Layout::new::<Self>(), Need::Wish)?.cast::<Self>();
            memory.write(Self::on_stack());
            Some(&*memory)
        }
    }

    /// For [`run_on_stack`]. An explicit task has a layout.
    fn on_stack() -> Self {
        let mut task = Self::new(settings().initial, ptr::null(), ptr::null(), ptr::null());
        task.layout = Cell::new(Some(Layout::new::<Self>()));
        task
    }

    /// One who may look at it less.
    fn release(&self) {
        if self.references.let_go()
            && let Some(layout) = self.layout.get()
        {
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
    fn free(&self, layout: Layout) {
        let this = ptr::from_ref(self).cast_mut();
        // SAFETY: from `create`.
        unsafe {
            ptr::drop_in_place(this);
            me().blocks.put(this.cast(), layout);
        }
    }

    /// Runs its code, in this thread.
    fn run(&self, thread: &Thread) {
        let before = thread.context();
        thread.set_context(Context { task: self, ..before });
        let cancelled = thread.team().is_cancelled() || self.group().is_some_and(Group::is_cancelled);
        if let Some(function) = if cancelled { self.instead.get() } else { self.function.get() } {
            // SAFETY: the program's, with its arguments.
            unsafe { function(self.data.get()) };
        }
        thread.set_context(before);
    }

    /// Its code has been run, or its event has come: the second of both completes it.
    fn part_done(&self) {
        if self.parts.let_go() {
            self.complete();
        }
    }

    fn complete(&self) {
        // SAFETY: a team stays while it has tasks, and a task's memory until `release`.
        let team = unsafe { &*self.team.get() };
        self.finish_dependences(team);
        // SAFETY: the parent stays for its children, the group for its tasks.
        let (parent, group) = unsafe { (&*self.parent.get(), self.group.get().as_ref()) };
        let mut awaited = false;
        if let Some(group) = group {
            // The group may be gone after it.
            awaited |= group.tasks.done();
        }
        awaited |= parent.children.done();
        self.release();
        if awaited {
            team.bell.0.notify();
        }
        team.tasks.one_done(team);
    }

    /// Its successors need not wait for it any more, and what it kept of its children's dependences goes.
    fn finish_dependences(&self, team: &Team) {
        if !self.depends.get() {
            return;
        }
        let successors = self.dependent.end();
        for successor in successors.iter().flat_map(|list| list.iter()) {
            // SAFETY: it waits for us, or has another reference in `Held` until `preceded` returns.
            unsafe { &*successor.0 }.preceded(team);
        }
        self.forget_dependences();
    }

    /// A predecessor is done, or all have been counted.
    fn preceded(&self, team: &Team) {
        let function = self.function.get();
        if self.dependent.preceded() {
            match function {
                // SAFETY: it stays until it is done.
                Some(_) => put(team, me(), unsafe { &*ptr::from_ref(self) }),
                None => team.bell.0.notify(),
            }
        }
    }

    /// Does nobody have to wait for it any more?
    fn is_done(&self) -> bool {
        self.dependent.is_done()
    }

    /// Waits for another one; false if there is no memory.
    fn follow(&self, other: &Task) -> bool {
        self.dependent.follow(&other.dependent, |successors| successors.push(Successor(self)))
    }

    /// Enters what a new child depends on; with `known`, later children wait for it. False: there is no memory,
    /// and it follows some of those that it has to wait for.
    fn depend(&self, child: &Task, dependences: impl Dependences, known: bool) -> bool {
        self.depends.set(true);
        child.depends.set(true);
        self.table.with(|table| {
            let Table { users, most } = table;
            let table = users.get_or_insert_default();
            if table.count() > *most {
                table.retain(|users| !users.are_done());
                *most = LEAST_FORGOTTEN.max(2 * table.count());
            }
            let all = dependences.clone().find(Dependence::is_all);
            let others = all.is_none().then_some(dependences).into_iter().flatten();
            for dependence in all.into_iter().chain(others) {
                let mut follows = true;
                predecessors(table, &dependence, |other| {
                    follows &= ptr::eq(other.0, child) || child.follow(other.task());
                });
                if follows && known && dependence.is_all() {
                    // Who follows it follows those before.
                    table.clear();
                }
                if !follows || known && !table.enter(&dependence, child) {
                    return false;
                }
            }
            true
        })
    }

    /// Would a new child with these dependences wait for others?
    fn would_wait(&self, dependences: impl Dependences, child: *const Task) -> bool {
        if is_empty(&dependences) || self.children.are_none() {
            return false;
        }
        self.table.with(|table| {
            let Some(table) = &table.users else { return false };
            let mut any = false;
            for dependence in dependences {
                predecessors(table, &dependence, |other| any |= !ptr::eq(other.0, child) && !other.task().is_done());
            }
            any
        })
    }
}

impl Map<Users> {
    /// False if there is no memory.
    fn enter(&mut self, dependence: &Dependence, child: &Task) -> bool {
        let Some(users) = self.entry(dependence.address) else { return false };
        if dependence.writes {
            users.readers.clear();
            users.writer = Some(Held::new(child));
            return true;
        }
        users.readers.retain(|reader| !reader.task().is_done());
        users.readers.push(Held::new(child))
    }
}

/// Those in a table for whom a task with this dependence waits.
fn predecessors(table: &Map<Users>, dependence: &Dependence, mut visit: impl FnMut(&Held)) {
    let all = dependence.is_all();
    let own = if all { None } else { table.get(dependence.address) };
    let everything = if all { None } else { table.get(Dependence::ALL.address) };
    if all {
        table.values().for_each(|users| users.writer.iter().chain(users.readers.iter()).for_each(&mut visit));
    }
    everything.into_iter().for_each(|users| users.writer.iter().for_each(&mut visit));
    if let Some(own) = own {
        own.writer.iter().for_each(&mut visit);
        if dependence.writes {
            own.readers.iter().for_each(&mut visit);
        }
    }
}

/// COST: bytes for a task and a few arguments.
#[repr(align(64))]
struct Block(#[allow(dead_code)] [u8; 448]);

/// Memory for tasks that a thread keeps.
#[derive(Default)]
pub struct Blocks {
    /// Each begins with the next one's address.
    first: Cell<*mut u8>,
    count: Cell<u32>,
    /// A task that has run, and that nobody has.
    spare: Cell<Option<*const Task>>,
}

impl Blocks {
    const LAYOUT: Layout = Layout::new::<Block>();
    /// COST: blocks that a thread keeps; as many as it may have open tasks.
    const MOST: u32 = MOST_OPEN;

    fn fits(layout: Layout) -> bool {
        layout.size() <= Self::LAYOUT.size() && layout.align() <= Self::LAYOUT.align()
    }

    /// Memory for a task.
    fn get(&self, layout: Layout, need: Need) -> Option<*mut u8> {
        let (first, fits) = (self.first.get(), Self::fits(layout));
        if fits && !first.is_null() {
            // SAFETY: one that is kept begins so.
            self.first.set(unsafe { first.cast::<*mut u8>().read() });
            self.count.set(self.count.get() - 1);
            return Some(first);
        }
        let memory = memory::get(if fits { Self::LAYOUT } else { layout }, need);
        (!memory.is_null()).then_some(memory)
    }

    /// # Safety
    /// From `get`, of this or another thread, with this layout; not used any more.
    unsafe fn put(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as promised.
        unsafe {
            if !Self::fits(layout) {
                memory::put(memory, layout);
            } else if self.count.get() >= Self::MOST {
                memory::put(memory, Self::LAYOUT);
            } else {
                memory.cast::<*mut u8>().write(self.first.get());
                self.first.set(memory);
                self.count.set(self.count.get() + 1);
            }
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        let mut block = self.first.get();
        if let Some(task) = self.spare.take() {
            // SAFETY: from `included`.
            unsafe {
                ptr::drop_in_place(task.cast_mut());
                memory::put(task.cast_mut().cast(), Self::LAYOUT);
            }
        }
        while !block.is_null() {
            // SAFETY: kept, and so from `get`.
            unsafe {
                let next = block.cast::<*mut u8>().read();
                memory::put(block, Self::LAYOUT);
                block = next;
            }
        }
    }
}

/// One entry of a `depend` clause.
#[derive(Clone, Copy)]
pub struct Dependence {
    pub address: usize,
    pub writes: bool,
}

impl Dependence {
    /// `omp_all_memory`. It is the address of nothing else, and in a list it stands for the others.
    pub const ALL: Self = Self { address: usize::MAX, writes: true };

    pub fn is_all(&self) -> bool {
        self.address == Self::ALL.address
    }

    /// From gcc's programs: all memory has the address 0.
    fn new(address: usize, writes: bool) -> Self {
        if writes && address == 0 { Self::ALL } else { Self { address, writes } }
    }

    /// Null is a list of none.
    ///
    /// # Safety
    /// `list` is one that the compiler has made, and stays as it is.
    pub unsafe fn all(list: *const *const c_void) -> impl Dependences {
        // SAFETY: as promised; the counts come first.
        let at = move |index: usize| unsafe { *list.add(index) };
        let number = |index| at(index).addr();
        // Of 4.0: a count, how many of these are written, the addresses. Of 5.0: 0, the count, how many are written,
        // are written in any order, and are read; the rest are objects of two words, address and kind.
        // A list of 4.0 whose iterators have no values has nothing after its two zeros.
        let (count, written, read, first) = match list.is_null() {
            true => (0, 0, 0, 0),
            false => match (number(0), number(1)) {
                (0, 0) => (0, 0, 0, 0),
                (0, count) => (count, number(2) + number(3), number(4), 5),
                (count, written) => (count, written, count - written, 2),
            },
        };
        let plain = (0..written + read).map(move |index| Self::new(at(first + index).addr(), index < written));
        let objects = (written + read..count).map(move |index| {
            // SAFETY: as promised.
            unsafe { Self::object(at(first + index).cast()) }
        });
        plain.chain(objects)
    }

    /// # Safety
    /// An `omp_depend_t`, of two words.
    pub unsafe fn object(object: *const usize) -> Self {
        // SAFETY: as promised.
        unsafe { Self::new(*object, *object.add(1) != 1) }
    }
}

/// What a task depends on. It is looked at more than once.
pub trait Dependences: Iterator<Item = Dependence> + Clone {}

impl<T: Iterator<Item = Dependence> + Clone> Dependences for T {}

/// Of a task that depends on nothing.
pub fn no_dependences() -> impl Dependences {
    std::iter::empty()
}

fn is_empty(dependences: &impl Dependences) -> bool {
    dependences.clone().next().is_none()
}

impl Crew<Linux> for Team {
    type Task = Task;

    #[inline(always)]
    fn size(&self) -> u32 {
        self.size()
    }

    #[inline(always)]
    fn deque(&self, member: usize) -> &Queue {
        &self.member(member).queue
    }

    fn summon(&self) {
        self.summon_for_tasks();
    }

    fn hold(&self) {
        self.hold_barrier();
    }

    fn let_go(&self) {
        self.let_barrier_go();
    }

    #[inline]
    fn bells(&self) -> [&Event; 2] {
        [&self.bell.0, &self.back.0]
    }
}

/// A task can be run.
fn put(team: &Team, thread: &Thread, task: &'static Task) {
    let priority = task.priority.get();
    let before = (priority > 0).then_some(|other: &Task| other.priority.get() < priority);
    // Whoever fulfils an event may be in no team, or another.
    let is_member = ptr::eq(thread.context().team, team);
    team.tasks.put(team, task, before, is_member.then(|| thread.number()), || thread.task_puts());
}

/// Takes a task that descends from the current one.
fn take(team: &Team, thread: &Thread) -> Option<&'static Task> {
    let within = thread.context().task;
    team.tasks.take(team, thread.number() as usize, |task| task.descends_from(within), || false)
}

fn run(thread: &Thread, task: &'static Task) {
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
#[inline]
pub fn meet_at(team: &Team, barrier: &BWakeful<Linux>, thread: &Thread, left: impl Fn() -> bool) {
    let runs_all = &thread.member().runs_all;
    let run = |task| {
        runs_all.set(true);
        run(thread, task);
        runs_all.set(false);
    };
    team.tasks.meet_at::<_, ByUser>(team, barrier, thread.number() as usize, run, left);
}

/// Waits for what others run; if the thread runs whatever there is, somebody else may do so meanwhile.
fn pause(team: &Team, thread: &Thread, wait: impl FnOnce()) {
    match thread.member().runs_all.get() {
        true => team.tasks.pause(team, wait),
        false => wait(),
    }
}

/// Runs descendants of the current task until `done`, for which somebody rings the team's bell.
fn work_until(thread: &Thread, done: impl Fn() -> bool) {
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
unsafe fn run_included(thread: &Thread, function: Function, data: *mut c_void, is_final: bool) {
    let known = match thread.blocks.spare.take() {
        // SAFETY: kept below, as if new.
        Some(task) => Some(unsafe { &*task }),
        None => Task::included(thread),
    };
    // SAFETY: as promised.
    unsafe {
        let Some(task) = known else { return run_on_stack(thread, function, data, is_final) };
        execute(thread, task, function, data, is_final);
        if task.references.is_one() && !task.depends.get() && thread.blocks.spare.get().is_none() {
            return thread.blocks.spare.set(Some(task));
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

/// As [`run_included`], without memory for the task: it goes when nobody has it any more, which is waited for.
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
    work_until(thread, || task.children.are_none());
    let team = thread.team();
    task.finish_dependences(team);
    // Children of its children, which they did not wait for.
    while !task.references.is_one() {
        match take(team, thread) {
            Some(descendant) => run(thread, descendant),
            None => wait::nap(),
        }
    }
    thread.set_context(before);
}

/// Runs a task that nobody waits for elsewhere, now.
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

fn finish_now(thread: &Thread, task: &Task) {
    task.finish_dependences(thread.team());
    match task.layout.get() {
        Some(layout) if task.references.is_one() => task.free(layout),
        _ => {
            // It has children, for whom its parent stays as well.
            thread.task().references.add();
            task.release();
        }
    }
}

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
    unsafe { spawn(function, data, copy, (size as usize, align as usize), deferred, flags, depend, priority, event) };
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

/// Is there nothing that the current task may begin?
pub fn are_cancelled(thread: &Thread) -> bool {
    thread.team().is_cancelled() || group_is_cancelled(thread)
}

/// Are new tasks run at once?
pub fn are_run_at_once(thread: &Thread, has_event: bool, dependences: impl Dependences) -> bool {
    let team = thread.team();
    let many = !has_event && team.tasks.open() > MOST_OPEN * team.size() && settings().throttles;
    // A lone thread does not wait for a predecessor: it may have an event, which the current task fulfils
    // later.
    let alone = team.size() == 1 && !has_event;
    thread.task().is_final() || many || alone && !thread.task().would_wait(dependences, ptr::null())
}

/// Runs a new task now, its predecessors being done, or has it run when they are.
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
fn count(thread: &Thread, task: &Task) {
    let (team, parent) = (thread.team(), thread.task());
    parent.references.add();
    parent.children.add();
    if let Some(group) = task.group() {
        group.tasks.add();
    }
    team.tasks.one_more(team);
}

/// Waits for the tasks that a task with these dependences would wait for.
pub fn await_predecessors(thread: &Thread, dependences: impl Dependences) {
    let parent = thread.task();
    if is_empty(&dependences) || parent.children.are_none() {
        return;
    }
    let nobody = Task::new(parent.icv.get(), parent, thread.team(), ptr::null());
    let follows_all = parent.depend(&nobody, dependences.clone(), false);
    nobody.dependent.preceded();
    let waits = || !follows_all && parent.would_wait(dependences.clone(), &nobody);
    work_until(thread, || nobody.dependent.predecessors() == 0 && !waits());
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_taskwait() {
    let thread = me();
    let task = thread.task();
    if !task.children.are_none() {
        work_until(thread, || task.children.are_none());
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

/// All tasks are tied, and a thread that yields may run nothing but children, of which it runs the newest.
#[unsafe(no_mangle)]
pub extern "C" fn GOMP_taskyield() {
    let thread = me();
    let team = thread.team();
    if let Some(task) = take(team, thread) {
        run(thread, task);
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

#[unsafe(no_mangle)]
extern "C" fn GOMP_taskgroup_start() {
    begin_group(me());
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_taskgroup_end() {
    end_group(me());
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

/// # Safety
/// The event of a task that has not come.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_fulfill_event(event: *const Task) {
    let thread = me();
    let before = thread.context();
    // As from outside of its team: what waits for this the thread may not run itself.
    thread.set_context(Context { team: ptr::null(), ..before });
    // SAFETY: a task that waits for this.
    unsafe { &*event }.part_done();
    thread.set_context(before);
}

/// What the arguments of a `taskloop`'s tasks begin with, with the loop's type for both.
#[repr(C)]
struct Bounds {
    begin: u64,
    end: u64,
    reductions: *mut usize,
}

/// How many tasks, and how many iterations each; the first so many have one more.
type Cut = (u64, u64, u64);

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
                unsafe { reductions::GOMP_taskgroup_reduction_register((*bounds).reductions) };
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
            // SAFETY: the compiler's arguments, of which the first two are the task's bounds. Its function that copies does not copy these.
            let task = unsafe {
                let task =
                    Task::needed(thread, self.function, self.data, self.copy, self.arguments, is_final, no_event);
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
    let iterations = crate::loops::iterations(begin, end, step);
    let arguments = (size as usize, align as usize);
    let (begin, end, step) = (begin as u64, end as u64, step as u64);
    let taskloop = Taskloop { function, data, copy, arguments, flags, count, priority, begin, step, iterations, end };
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
    let iterations = crate::loops::iterations_ull(flags & UP != 0, begin, end, step);
    let arguments = (size as usize, align as usize);
    let taskloop = Taskloop { function, data, copy, arguments, flags, count, priority, begin, step, iterations, end };
    // SAFETY: the compiler's arguments.
    unsafe { taskloop.run() };
}
