// SPDX-License-Identifier: MIT OR Apache-2.0
//! Teams: fork, join and barrier.
//!
//! A primary thread keeps its helpers in a [`Pool`] from region to region. Fork and join are one episode of a barrier, the project's default
//! (`b-wakeful`), which decides by the processors really to be had whether who waits spins, yields or sleeps. Helpers come to it at a region's end,
//! and wait there for the next; the primary thread waits at the region's end until only itself is missing, and comes when it has written what is
//! to be run next. So a region costs one arrival a member.
//!
//! The program's barriers are another, of the region's members. Whoever waits at either runs tasks as soon as there are any
//! ([`BWakeful::await_or`]); a task that is not done is a party more to the members' barrier, which therefore does not open.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

use linux::Linux;
use platform::Platform;
use sync::barrier::{BWakeful, RawBarrier, RawBarrierDynamic};
pub use sync::openmp::Apart;
use sync::openmp::{First, Flag, ForkJoin, Holders};

use crate::affinity::{self, Partition};
use crate::dialect::is_llvm;
use crate::icv::{Bind, Icv, MOST_THREADS, settings};
use crate::loops::{Loop, Shape, Share};
use crate::memory::{List, Own};
use crate::reductions;
use crate::routines;
use crate::tasks::{self, Queue, Task, Tasks};
use crate::thread::{Context, Thread, me};
use crate::wait::Event;

/// An outlined function of the program's.
pub type Function = unsafe extern "C" fn(*mut c_void);

/// What the first member to come has made.
pub type Slot = sync::openmp::Slot<Linux, c_void>;
/// Those who hold something, of whom the last one ends it.
pub type Shares = Holders<Linux>;

/// Worksharing constructs that the fastest member may be ahead of the slowest.
/// COST: bytes, 128 each; LLVM's runtime has 7.
pub const SHARES: usize = 16;

/// A thread's part of a team.
#[repr(align(128))]
pub struct Member {
    number: u32,
    /// Worksharing constructs that it has come to; of those that need it, a single one's.
    pub constructs: Cell<u32>,
    pub singles: Cell<u32>,
    /// Barriers in this region.
    pub meetings: Cell<u32>,
    pub work: Loop,
    /// For compilers that begin a doacross loop before the loop itself.
    pub around: Loop,
    /// The implicit task.
    pub task: Task,
    pub queue: Queue,
    /// It runs whatever tasks there are.
    pub runs_all: Cell<bool>,
}

// SAFETY: what is not atomic is used by the thread that is this member, and by the primary thread between regions; the barriers order them.
unsafe impl Sync for Member {}
// SAFETY: it points to nothing that is a thread's own.
unsafe impl Send for Member {}

/// Where the members meet, with what the first of them to come to a `single` writes: whoever came last had the line, and it is wanted at the barrier again.
pub struct Meeting {
    pub(crate) barrier: BWakeful<Linux>,
    pub single: First<Linux>,
}

/// A team: one for a region at a time.
pub struct Team {
    // Written by the primary thread between regions.
    pub(crate) size: Cell<u32>,
    level: Cell<u32>,
    active_level: Cell<u32>,
    /// A [`Function`], or null.
    function: Cell<*mut c_void>,
    data: Cell<*mut c_void>,
    /// See [`begin_copying`].
    words: Apart<[Cell<usize>; WORDS]>,
    icv: Cell<Icv>,
    bind: Cell<Bind>,
    primary: Cell<(Option<u32>, Partition)>,
    league: Cell<(u32, u32)>,
    /// Each member says where it is.
    displays: Cell<bool>,
    constructs: Cell<u32>,
    singles: Cell<u32>,
    /// The region is a combined construct: all begin in this loop.
    combined: Cell<Option<Shape>>,
    /// What the tasks of the whole region reduce, or null.
    reductions: Cell<*mut usize>,
    /// What the primary thread was in.
    outside: Cell<Option<Context>>,
    /// The contention group's count of helpers in regions, kept where `OMP_THREAD_LIMIT` or a clause limits them; the initial thread's team has it.
    busy: Cell<*const AtomicU32>,
    own_busy: AtomicU32,
    /// Counted there for this region.
    reserved: Cell<u32>,
    /// They stay where they are when there are more.
    pub(crate) members: UnsafeCell<List<Own<Member>>>,
    pub(crate) generation: Cell<u32>,
    // Written in regions.
    pub(crate) meeting: Apart<Meeting>,
    pub copyprivate: AtomicPtr<c_void>,
    /// Of LLVM's interface: what the tasks of the region, and of its worksharing construct, reduce.
    pub task_reductions: [Slot; 2],
    pub tasks: Tasks,
    pub bell: Apart<Event>,
    /// The primary thread may find all helpers back, or all tasks done.
    pub back: Apart<Event>,
    cancelled: Apart<Flag<Linux>>,
    /// The number of the barrier, and 1 more, before which a worksharing construct was cancelled.
    pub work_cancelled: AtomicU32,
    /// For barriers that a cancellation ends, in regions that can be cancelled.
    pub(crate) early_barrier: Apart<UnsafeCell<BWakeful<Linux>>>,
    pub shares: [Share; SHARES],
    /// The pool's.
    pub(crate) fork: *const ForkJoin<Linux>,
}

// SAFETY: the cells are written by the primary thread while nobody else is in a region of this team, and read in regions; the barriers order that.
unsafe impl Sync for Team {}
// SAFETY: it points to nothing that is a thread's own.
unsafe impl Send for Team {}

impl Team {
    pub(crate) fn new() -> Self {
        let icv = settings().initial;
        let mut members = List::new();
        members.push_needed(Own::needed("a team", || Member::new(0)), "a team");
        Self {
            size: Cell::new(1),
            level: Cell::new(0),
            active_level: Cell::new(0),
            function: Cell::new(ptr::null_mut()),
            data: Cell::new(ptr::null_mut()),
            words: Apart::default(),
            icv: Cell::new(icv),
            bind: Cell::new(Bind::False),
            primary: Cell::new((None, (0, 0))),
            league: Cell::new((0, 1)),
            displays: Cell::new(false),
            constructs: Cell::new(0),
            singles: Cell::new(0),
            combined: Cell::new(None),
            reductions: Cell::new(ptr::null_mut()),
            outside: Cell::new(None),
            busy: Cell::new(ptr::null()),
            own_busy: AtomicU32::new(0),
            reserved: Cell::new(0),
            members: UnsafeCell::new(members),
            generation: Cell::new(0),
            meeting: Apart(Meeting { barrier: BWakeful::new(1), single: First::default() }),
            copyprivate: AtomicPtr::default(),
            task_reductions: Default::default(),
            tasks: Tasks::default(),
            bell: Apart::default(),
            back: Apart::default(),
            cancelled: Apart::default(),
            work_cancelled: AtomicU32::new(0),
            early_barrier: Apart(UnsafeCell::new(BWakeful::new(1))),
            shares: std::array::from_fn(|index| Share::new(index as u32)),
            fork: ptr::null(),
        }
    }

    /// The team of an initial thread.
    pub fn be_root(&self, icv: Icv) {
        self.member(0).task.begin_implicit(icv, ptr::null());
        self.busy.set(&self.own_busy);
    }

    /// Helpers for a region of so many threads, as many as the limit leaves.
    #[cold]
    fn reserve(&self, limit: u32, size: u32) -> u32 {
        // SAFETY: the team of the initial thread, which waits for all regions inside.
        let Some(busy) = (unsafe { self.busy.get().as_ref() }) else { return size };
        let mut got = 0;
        // It counts, and orders nothing.
        let _ = busy.fetch_update(Relaxed, Relaxed, |busy| {
            got = (size - 1).min((limit - 1).saturating_sub(busy));
            Some(busy + got)
        });
        got + 1
    }

    fn unreserve(&self) {
        // SAFETY: as above.
        if let Some(busy) = unsafe { self.busy.get().as_ref() } {
            busy.fetch_sub(self.reserved.replace(0), Relaxed);
        }
    }

    pub fn context(&self, number: usize) -> Context {
        let member = self.member(number);
        Context { team: self, member, task: &raw const member.task }
    }

    #[inline]
    pub fn member(&self, number: usize) -> &Member {
        &self.members()[number]
    }

    #[inline]
    fn members(&self) -> &[Own<Member>] {
        // SAFETY: grows between regions only.
        unsafe { &*self.members.get() }
    }

    #[inline(always)]
    pub fn size(&self) -> u32 {
        self.size.get()
    }

    /// The copied words.
    pub fn words(&self) -> *mut usize {
        self.words.0.as_ptr().cast_mut().cast()
    }

    pub fn level(&self) -> u32 {
        self.level.get()
    }

    pub fn active_level(&self) -> u32 {
        self.active_level.get()
    }

    /// The context in which this team's region was met.
    pub fn outside(&self) -> Option<Context> {
        self.outside.get()
    }

    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.0.is_up()
    }

    /// Ends the region for all who come to a cancellation point or wait at a barrier.
    pub fn cancel(&self) {
        self.cancelled.0.raise();
        // SAFETY: made anew between regions only.
        unsafe { &*self.early_barrier.0.get() }.summon(u32::MAX);
    }

    /// Has everybody else been left behind in the process from which this one was forked, in this region?
    pub(crate) fn is_alone(&self) -> bool {
        self.generation.get() != Linux::generation()
    }

    /// One of those who wait at a barrier looks for tasks.
    pub fn summon_for_tasks(&self) {
        self.meeting.0.barrier.summon(1);
        // SAFETY: the pool's, which has this team; an initial thread's has none.
        let fork = unsafe { self.fork.as_ref() };
        if let Some(fork) = fork {
            fork.summon();
        }
        if settings().cancellation {
            // SAFETY: made anew between regions only.
            unsafe { &*self.early_barrier.0.get() }.summon(1);
        }
    }

    /// A party more to the barrier, while tasks are not done.
    pub fn hold_barrier(&self) {
        // Room for it is left by `MOST_THREADS`.
        self.meeting.0.barrier.join();
    }

    /// The last task is done.
    pub fn let_barrier_go(&self) {
        self.meeting.0.barrier.arrive_and_drop();
    }

    /// Waits for all members, and for all tasks.
    pub fn meet(&self, thread: &Thread) {
        let meetings = &thread.member().meetings;
        meetings.set(meetings.get().wrapping_add(1));
        match self.size() {
            1 => tasks::finish(self, thread),
            _ if self.is_alone() => {}
            _ => tasks::meet_at(self, &self.meeting.0.barrier, thread, || false),
        }
    }

    /// As [`Team::meet`]; true, at once or early, if the region is cancelled.
    pub fn meet_or_cancelled(&self, thread: &Thread) -> bool {
        let meetings = &thread.member().meetings;
        meetings.set(meetings.get().wrapping_add(1));
        if self.size() == 1 || self.is_cancelled() || self.is_alone() {
            return self.is_cancelled();
        }
        // Tasks first: this barrier knows nothing of them.
        tasks::finish(self, thread);
        // SAFETY: made anew between regions only.
        tasks::meet_at(self, unsafe { &*self.early_barrier.0.get() }, thread, || self.is_cancelled());
        self.is_cancelled()
    }

    /// The size of a region's team (OpenMP 5.1, section 2.6.1).
    fn decide(&self, icv: &Icv, wanted: u32) -> u32 {
        if wanted == 1 || self.active_level.get() >= icv.max_active_levels {
            return 1;
        }
        let threads = if wanted > 0 { wanted } else { icv.threads };
        let threads = threads.min(icv.thread_limit).min(MOST_THREADS);
        if icv.dynamic {
            Linux::refresh_processors(None);
            return threads.min(Linux::processors());
        }
        threads
    }

    /// A member begins.
    #[inline]
    fn admit(&self, thread: &Thread, number: usize) {
        let member = self.member(number);
        let outside = self.outside.get().map_or(ptr::null(), |context| context.task);
        member.task.begin_implicit(self.icv.get(), outside);
        member.constructs.set(self.constructs.get());
        member.singles.set(self.singles.get());
        member.meetings.set(0);
        if let Some(shape) = self.combined.get() {
            member.work.join_combined(self, member, shape);
        }
        thread.set_context(Context { team: self, member, task: &raw const member.task });
        if !self.reductions.get().is_null() {
            tasks::begin_group(thread);
            tasks::set_group_reductions(thread, self.reductions.get());
        }
        if self.bind.get() != Bind::False {
            self.place(thread, number as u32);
        }
        if self.displays.get() {
            routines::with_format(affinity::display);
        }
    }

    /// A helper's part of a region.
    #[inline]
    pub(crate) fn help(&self, thread: &Thread, number: usize) {
        self.admit(thread, number);
        thread.league.set(self.league.get());
        // SAFETY: the region's, with its data.
        unsafe { mem::transmute::<*mut c_void, Function>(self.function.get())(self.data.get()) };
        self.leave_reductions(thread);
        if self.tasks.are_there() {
            tasks::run_all(self, thread, || false);
        }
    }

    #[cold]
    fn place(&self, thread: &Thread, number: u32) {
        let (primary, partition) = self.primary.get();
        let size = self.size.get();
        if let Some(there) = affinity::assign(self.bind.get(), number, size, primary.unwrap_or(partition.0), partition)
        {
            thread.location.enter(there);
        }
    }
}

impl Member {
    pub(crate) fn new(number: u32) -> Self {
        Self {
            number,
            constructs: Cell::new(0),
            singles: Cell::new(0),
            meetings: Cell::new(0),
            work: Loop::default(),
            around: Loop::default(),
            task: Task::implicit(),
            queue: Queue::default(),
            runs_all: Cell::new(false),
        }
    }

    #[inline(always)]
    pub fn number(&self) -> u32 {
        self.number
    }
}

/// Level, size and binding of a region, with its primary thread's place and partition.
pub type Displayed = (u32, u32, Bind, (Option<u32>, Partition));

/// Writes only what changes: the line stays in the caches of those who read it in each region.
#[inline(always)]
fn update<T: Copy + PartialEq>(cell: &Cell<T>, value: T) {
    if cell.get() != value {
        cell.set(value);
    }
}

/// Begins a region: the helpers run `function`, and the calling thread is in it. `wanted` as in the clause, 0 without one.
///
/// # Safety
/// `function` may be called with `data` by all threads until [`end`].
#[inline]
pub unsafe fn begin(function: Function, data: *mut c_void, wanted: u32, flags: u32, combined: Option<Shape>) {
    // SAFETY: as promised.
    unsafe { begin_with(function, data, &[], wanted, flags, combined, ptr::null_mut()) };
}

/// As [`begin`], where the region's tasks reduce.
///
/// # Safety
/// Likewise; `list` is the compiler's.
pub unsafe fn begin_reducing(function: Function, data: *mut c_void, wanted: u32, flags: u32, list: *mut usize) {
    // SAFETY: as promised.
    unsafe { begin_with(function, data, &[], wanted, flags, None, list) };
}

/// Words for [`begin_copying`] at most.
pub const WORDS: usize = 18;

/// As [`begin`], with a copy of a few words for data, which all members find in [`Team::words`]. What they say again from region to region stays in the
/// members' caches.
///
/// # Safety
/// Likewise.
#[inline]
pub unsafe fn begin_copying(function: Function, words: &[usize], wanted: u32, flags: u32) {
    // SAFETY: as promised.
    unsafe { begin_with(function, ptr::null_mut(), words, wanted, flags, None, ptr::null_mut()) };
}

/// # Safety
/// As above.
#[inline(always)]
unsafe fn begin_with(
    function: Function,
    data: *mut c_void,
    words: &[usize],
    wanted: u32,
    flags: u32,
    combined: Option<Shape>,
    reduced: *mut usize,
) {
    let thread = me();
    let outside = thread.context();
    let icv = thread.icv();
    let (level, active_level) = (thread.team().level(), thread.team().active_level());
    let mut size = thread.team().decide(&icv, wanted);
    let busy = thread.team().busy.get();
    let limited = size > 1 && icv.thread_limit != u32::MAX;
    if limited {
        size = thread.team().reserve(icv.thread_limit, size);
    }
    let pool = thread.enter_pool();
    let team = &pool.team;
    // Of the last region here.
    let before = team.member(0);
    update(&team.constructs, before.constructs.get());
    update(&team.singles, before.singles.get());
    update(&team.busy, busy);
    if limited {
        team.reserved.set(size - 1);
    }
    let size = pool.hire(size);
    update(&team.level, level + 1);
    update(&team.active_level, active_level + (size > 1) as u32);
    update(&team.function, function as *mut c_void);
    update(&team.data, if words.is_empty() { data } else { team.words().cast() });
    team.words.0.iter().zip(words).for_each(|(kept, &word)| update(kept, word));
    update(&team.icv, settings().inherit(icv, level + 1));
    update(&team.outside, Some(outside));
    update(&team.league, thread.league.get());
    update(&team.combined, combined);
    update(&team.reductions, reduced);
    if !reduced.is_null() {
        // SAFETY: as promised.
        unsafe { reductions::register(reduced, ptr::null_mut(), size) };
    }
    if combined.is_some() {
        team.open_combined();
    }
    // Its barriers are counted anew.
    if team.work_cancelled.load(Relaxed) != 0 {
        team.work_cancelled.store(0, Relaxed);
    }
    team.begin_binding(thread, icv.bind, flags);
    if settings().display_affinity {
        team.begin_displaying(thread, level);
    }
    match size {
        // The helpers' last one is over.
        1 => team.tasks.begin_epoch(pool.fork.forks().wrapping_add(1)),
        _ => pool.release(size),
    }
    team.admit(thread, 0);
}

/// Ends the region that the calling thread has begun, when everybody has come to its end and all tasks are done.
#[inline]
pub fn end() {
    let thread = me();
    let pool = thread.pool();
    let team = &pool.team;
    team.leave_reductions(thread);
    match team.size() {
        1 => tasks::finish(team, thread),
        _ if team.is_alone() => {}
        _ => pool.join(thread),
    }
    if team.is_cancelled() {
        team.renew();
    }
    if team.reserved.get() > 0 {
        team.unreserve();
    }
    if team.bind.get() != Bind::False {
        thread.location.set_partition(Some(team.primary.get().1));
    }
    if let Some(outside) = team.outside.get() {
        thread.set_context(outside);
    }
    thread.leave_pool();
}

impl Team {
    /// Where the region's members go: by the variable, unless a clause says it.
    fn begin_binding(&self, thread: &Thread, wanted: Bind, flags: u32) {
        let bind = match (wanted, Bind::from_u32(flags & 7)) {
            (Bind::False, _) => Bind::False,
            (bind, None | Some(Bind::False)) => bind,
            (_, Some(bind)) => bind,
        };
        update(&self.bind, bind);
        if self.bind.get() != Bind::False {
            if thread.location.place().is_none()
                && let Some(there) = affinity::assign(Bind::Primary, 0, 1, 0, thread.location.partition())
            {
                thread.location.enter(there);
            }
            self.primary.set((thread.location.place(), thread.location.partition()));
        }
    }

    /// Whether the region's members say where they are.
    #[cold]
    fn begin_displaying(&self, thread: &Thread, level: u32) {
        // Again only where it may be news (OpenMP 5.1, section 6.14). libgomp says nothing of teams of one,
        // and all of a region inside of another.
        let size = self.size();
        let now = Some((level, size, self.bind.get(), self.primary.get()));
        self.displays.set(match is_llvm() {
            true => thread.displayed.replace(now) != now,
            false => size > 1 && (level > 0 || thread.displayed.replace(now) != now),
        });
    }

    /// After a cancelled region, of which everybody may have left a different part undone.
    #[cold]
    fn renew(&self) {
        self.cancelled.0.lower();
        // SAFETY: between regions.
        unsafe { *self.early_barrier.0.get() = BWakeful::new(self.size()) };
        let first = self.member(0);
        first.constructs.set(0);
        first.singles.set(0);
        self.meeting.0.single.renew();
        (0..).zip(&self.shares).for_each(|(index, share)| share.renew(index));
        self.members().iter().for_each(|member| [&member.work, &member.around].iter().for_each(|work| work.abandon()));
    }

    /// The group that all is in has no tasks any more when the region ends, which is waited for there.
    fn leave_reductions(&self, thread: &Thread) {
        if !self.reductions.get().is_null() {
            tasks::end_group(thread);
        }
    }

    fn open_combined(&self) {
        let construct = self.constructs.get();
        self.shares[construct as usize % SHARES].open_alone(construct, self.size());
    }
}
