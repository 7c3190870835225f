// SPDX-License-Identifier: MIT OR Apache-2.0
//! A team: what its members share, and what each has for itself.
//!
//! A primary thread keeps its helpers in a [`Pool`](crate::pool::Pool) from region to region. How they are forked
//! and joined is in [`sync::openmp::ForkJoin`]: an arrival a member and region.
//!
//! The program's barriers are another barrier, of the region's members. Whoever waits at either runs tasks as
//! soon as there are any. Once a member arrives, tasks that are not done are one party more to the members'
//! barrier, which therefore does not open.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

use linux::Linux;
use platform::Platform;
use sync::barrier::{BWakeful, RawBarrier, RawBarrierDynamic};
pub use sync::openmp::Apart;
use sync::openmp::{Crew, First, Flag, ForkJoin, Holders};

use crate::affinity::Partition;
use crate::icv::{Bind, Icv, MOST_THREADS, settings};
use crate::memory::{List, Own};
use crate::named::Named;
use crate::share::{Loop, SHARES, Shape, Share};
use crate::task::{Queue, Task, Tasks};
use crate::wait::Event;

/// An outlined function of the program's.
pub type Function = unsafe extern "C" fn(*mut c_void);

/// What the first member to come has made.
pub type Slot = sync::openmp::Slot<Linux, c_void>;
/// Those who hold something, of whom the last one ends it.
pub type Shares = Holders<Linux>;

/// A thread's part of a team.
#[repr(align(128))]
pub struct Member {
    pub(crate) number: u32,
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

// SAFETY: what is not atomic is used by the thread that is this member, and by the primary thread between
// regions; the barriers order them.
unsafe impl Sync for Member {}
// SAFETY: it points to nothing that is a thread's own.
unsafe impl Send for Member {}

/// Where the members meet, with what the first of them to come to a `single` writes: whoever came last had
/// the line, and it is wanted at the barrier again.
pub struct Meeting {
    pub(crate) barrier: BWakeful<Linux>,
    pub single: First<Linux>,
}

/// A team: one for a region at a time.
pub struct Team {
    // Written by the primary thread between regions.
    pub(crate) size: Cell<u32>,
    pub(crate) level: Cell<u32>,
    pub(crate) active_level: Cell<u32>,
    /// A [`Function`], or null.
    pub(crate) function: Cell<*mut c_void>,
    pub(crate) data: Cell<*mut c_void>,
    /// See [`begin_copying`].
    pub(crate) words: Apart<[Cell<usize>; WORDS]>,
    pub(crate) icv: Cell<Icv>,
    pub(crate) bind: Cell<Bind>,
    pub(crate) primary: Cell<(Option<u32>, Partition)>,
    pub(crate) league: Cell<(u32, u32)>,
    /// Each member says where it is.
    pub(crate) displays: Cell<bool>,
    pub(crate) constructs: Cell<u32>,
    pub(crate) singles: Cell<u32>,
    /// The region is a combined construct: all begin in this loop.
    pub(crate) combined: Cell<Option<Shape>>,
    /// What the tasks of the whole region reduce, or null.
    pub(crate) reductions: Cell<*mut usize>,
    /// What the primary thread was in.
    pub(crate) outside: Cell<Option<Context>>,
    /// The contention group's count of helpers in regions, kept where `OMP_THREAD_LIMIT` or a clause limits
    /// them; the initial thread's team has it.
    pub(crate) busy: Cell<*const AtomicU32>,
    pub(crate) own_busy: AtomicU32,
    /// Counted there for this region.
    pub(crate) reserved: Cell<u32>,
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
    pub(crate) cancelled: Apart<Flag<Linux>>,
    /// The number of the barrier, and 1 more, before which a worksharing construct was cancelled.
    pub work_cancelled: AtomicU32,
    /// For barriers that a cancellation ends, in regions that can be cancelled.
    pub(crate) early_barrier: Apart<UnsafeCell<BWakeful<Linux>>>,
    pub shares: [Share; SHARES],
    /// Where its members meet instead, if the user has named another barrier.
    pub(crate) named: UnsafeCell<Option<Named>>,
    /// Its pool's.
    pub(crate) fork: *const ForkJoin<Linux>,
    /// The pool that it is in, for `pool.rs`.
    pub(crate) pool: *const (),
}

// SAFETY: the cells are written by the primary thread while nobody else is in a region of this team, and
// read in regions; the barriers order that.
unsafe impl Sync for Team {}
// SAFETY: it points to nothing that is a thread's own.
unsafe impl Send for Team {}

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

/// Words for [`begin_copying`] at most.
pub const WORDS: usize = 18;

/// What a thread executes.
#[derive(Clone, Copy, PartialEq)]
pub struct Context {
    pub team: *const Team,
    pub member: *const Member,
    pub task: *const Task,
}

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
            named: UnsafeCell::new(None),
            fork: ptr::null(),
            pool: ptr::null(),
        }
    }

    #[inline]
    fn fork(&self) -> &ForkJoin<Linux> {
        // SAFETY: each team is in a pool, which has set this.
        unsafe { &*self.fork }
    }

    /// The team of an initial thread.
    pub(crate) fn be_root(&self, icv: Icv) {
        self.member(0).task.begin_implicit(icv, ptr::null());
        self.busy.set(&self.own_busy);
    }

    /// Helpers for a region of so many threads, as many as the limit leaves.
    #[cold]
    pub(crate) fn reserve(&self, limit: u32, size: u32) -> u32 {
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

    pub(crate) fn unreserve(&self) {
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
    pub(crate) fn members(&self) -> &[Own<Member>] {
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

    #[inline]
    pub fn level(&self) -> u32 {
        self.level.get()
    }

    #[inline]
    pub fn active_level(&self) -> u32 {
        self.active_level.get()
    }

    /// The context in which this team's region was met.
    #[inline]
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
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.generation.get() != Linux::generation()
    }

    /// One of those who wait at a barrier looks for tasks.
    pub fn summon_for_tasks(&self) {
        self.meeting.0.barrier.summon(1);
        self.fork().summon();
        if settings().cancellation {
            // SAFETY: made anew between regions only.
            unsafe { &*self.early_barrier.0.get() }.summon(1);
        }
    }

    /// A party more to the barrier, while tasks are not done.
    pub fn hold_barrier(&self) {
        // `MOST_THREADS` leaves room for 4,095 members that do so at the same moment.
        self.meeting.0.barrier.join();
    }

    /// The last task is done, or the party is one too many.
    pub fn let_barrier_go(&self) {
        self.meeting.0.barrier.arrive_and_drop();
    }

    /// The size of a region's team (OpenMP 5.1, section 2.6.1).
    pub(crate) fn decide(&self, icv: &Icv, wanted: u32) -> u32 {
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

    pub(crate) fn open_combined(&self) {
        let construct = self.constructs.get();
        self.shares[construct as usize % SHARES].open_alone(construct, self.size());
    }
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

    #[inline]
    fn are_back(&self) -> bool {
        self.fork().are_back()
    }
}
