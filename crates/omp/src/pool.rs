// SPDX-License-Identifier: MIT OR Apache-2.0
//! A primary thread's helpers: how they are started, and end.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::mem;
use std::ops::Deref;
use std::ptr;
use std::sync::Once;

use linux::Linux;
use platform::Platform;
use sync::barrier::{BWakeful, RawBarrier, RawBarrierDynamic};
use sync::openmp::{ForkJoin, Holders};

use crate::icv::settings;
use crate::memory::Own;
use crate::tasks;
use crate::team::{Member, Team};
use crate::thread::{Context, Thread};
use crate::wait::{self, ByUser};

/// A primary thread's team and helpers.
pub struct Pool {
    pub team: Team,
    pub fork: ForkJoin<Linux>,
    helpers: Cell<u32>,
    /// Threads of the team's barrier.
    parties: Cell<u32>,
    /// Regions in a row that wanted fewer.
    surplus: Cell<u32>,
    /// Its primary thread, and helpers that have not ended.
    holders: Holders<Linux>,
}

// SAFETY: as for teams.
unsafe impl Sync for Pool {}

/// A pool that stays because of this.
pub struct Hold(*const Pool);

// SAFETY: the last holder frees it.
unsafe impl Send for Hold {}

impl Hold {
    fn again(pool: &Pool) -> Self {
        pool.holders.add();
        Self(pool)
    }
}

impl Deref for Hold {
    type Target = Pool;

    #[inline(always)]
    fn deref(&self) -> &Pool {
        // SAFETY: held.
        unsafe { &*self.0 }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.holders.let_go() {
            // SAFETY: from `Pool::make`, and nobody else has it.
            drop(unsafe { Own::from_raw(self.0.cast_mut()) });
        }
    }
}

/// COST: regions in a row for which helpers are woken that are not wanted, before they end: a thread costs about as much as so many.
const SURPLUS_REGIONS: u32 = 32;

/// What a new helper is told.
struct Recruit {
    pool: Hold,
    number: usize,
    forks: u32,
}

impl Pool {
    pub fn make() -> Hold {
        let mut pool = Own::needed("a team", || Self {
            team: Team::new(),
            fork: ForkJoin::default(),
            helpers: Cell::new(0),
            parties: Cell::new(1),
            surplus: Cell::new(0),
            holders: Holders::new(1),
        });
        pool.team.generation.set(Linux::generation());
        pool.team.fork = &raw const pool.fork;
        Hold(pool.into_raw())
    }

    /// Are its helpers in this process?
    pub fn is_here(&self) -> bool {
        self.helpers.get() == 0 || !self.team.is_alone()
    }

    /// Brings the team to this size; less if no more threads are to be had.
    #[inline]
    pub fn hire(&self, size: u32) -> u32 {
        let size = if size > 1 && size - 1 > self.helpers.get() { self.grow(size) } else { size };
        self.team.size.set(size);
        if size > 1 && size != self.parties.get() {
            self.resize(size);
        }
        size
    }

    #[cold]
    fn resize(&self, size: u32) {
        let (barrier, was) = (&self.team.meeting.0.barrier, self.parties.replace(size));
        (was..size).for_each(|_| _ = barrier.join());
        (size..was).for_each(|_| barrier.arrive_and_drop());
        // SAFETY: between regions.
        unsafe { *self.team.early_barrier.0.get() = BWakeful::new(size) };
    }

    /// Lets the helpers go on.
    #[inline]
    pub fn release(&self, size: u32) {
        let helpers = self.helpers.get();
        let surplus = if size <= helpers { self.surplus.get() + 1 } else { 0 };
        let keep = if surplus >= SURPLUS_REGIONS { size - 1 } else { helpers };
        self.surplus.set(surplus);
        self.helpers.set(keep);
        self.fork(keep);
    }

    #[inline]
    pub fn fork(&self, keep: u32) {
        self.fork.fork(keep, |forks| self.team.tasks.begin_epoch(forks));
    }

    /// Waits until the helpers have come back, and all tasks are done.
    #[inline]
    pub fn join(&self, thread: &Thread) {
        let (team, tasks) = (&self.team, &self.team.tasks);
        let run = || tasks::run_all(team, thread, || false);
        self.fork.join::<ByUser>(&team.back.0, || !tasks.are_open(), || tasks.are_there(), run);
    }

    /// Starts helpers until there are enough. One that cannot be had is done without.
    #[cold]
    fn grow(&self, size: u32) -> u32 {
        if self.helpers.get() == 0 {
            self.team.generation.set(Linux::generation());
        }
        // A helper may still be looking for tasks of the last region among the members.
        wait::briefly(|| !self.team.tasks.are_run());
        // SAFETY: between regions, by the primary thread, and nobody looks at them.
        let members = unsafe { &mut *self.team.members.get() };
        while self.helpers.get() < size - 1 {
            let number = self.helpers.get() + 1;
            if members.len() <= number as usize
                && !Own::new(|| Member::new(number)).is_some_and(|member| members.push(member))
            {
                break;
            }
            // A party to the fork, before the thread: that might come there first.
            self.fork.recruit();
            if !self.start(number as usize) {
                self.fork.dismissed();
                break;
            }
            self.helpers.set(number);
        }
        self.helpers.get() + 1
    }

    fn start(&self, number: usize) -> bool {
        let recruit = || Recruit { pool: Hold::again(self), number, forks: self.fork.forks() };
        let Some(recruit) = Own::new(recruit).map(Own::into_raw) else { return false };
        let mut result = create(settings().stack, recruit);
        if result != 0
            && let Some(stack) = settings().stack
        {
            let why = Reason(result);
            say_once(&NO_STACK, format_args!("OMP_STACKSIZE={stack}B: {why}; the system's default is used"));
            result = create(None, recruit);
        }
        if result != 0 {
            let why = Reason(result);
            say_once(&NO_THREAD, format_args!("no more threads: {why}; teams go on with fewer"));
            // SAFETY: nobody has it.
            drop(unsafe { Own::from_raw(recruit) });
        }
        result == 0
    }

    /// Ends the helpers.
    pub fn dismiss(&self) {
        if self.helpers.replace(0) > 0 {
            self.fork(0);
        }
    }
}

static NO_STACK: Once = Once::new();
static NO_THREAD: Once = Once::new();

/// Where the compilers' own runtimes end the program.
#[cold]
fn say_once(once: &Once, what: fmt::Arguments) {
    once.call_once(|| eprintln!("wakeful: {what}"));
}

/// An error's number, with the C library's words for it.
struct Reason(c_int);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut text = [0u8; 128];
        // SAFETY: a buffer of this size.
        unsafe { libc::strerror_r(self.0, text.as_mut_ptr().cast(), text.len()) };
        let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
        write!(f, "{} (os error {})", text.to_bytes().escape_ascii(), self.0)
    }
}

/// Makes a thread for a recruit, with a stack of this size or the system's default. 0 or an error's number.
fn create(stack: Option<usize>, recruit: *mut Recruit) -> c_int {
    // SAFETY: the attributes are initialised before they are used; the new thread gets the recruit.
    unsafe {
        let mut attributes = mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let mut result = stack.map_or(0, |stack| libc::pthread_attr_setstacksize(&mut attributes, stack));
        if result == 0 {
            let mut thread = 0;
            result = libc::pthread_create(&mut thread, &attributes, serve, recruit.cast());
        }
        libc::pthread_attr_destroy(&mut attributes);
        result
    }
}

/// A helper's life.
extern "C" fn serve(recruit: *mut c_void) -> *mut c_void {
    // SAFETY: from `start`.
    let recruit = unsafe { Own::from_raw(recruit.cast::<Recruit>()) };
    let Recruit { pool, number, forks } = recruit.into_inner();
    let team = &pool.team;
    let idle = Context { team, member: ptr::null(), task: ptr::null() };
    Thread::helper(idle, |thread| {
        let is_member = Cell::new(false);
        // Those of the region that is just ending.
        let is_over = |forks| team.tasks.epoch() != forks;
        let has_work = |forks| is_member.get() && team.tasks.are_for_more() && !is_over(forks);
        let work = |forks| tasks::run_all(team, thread, || is_over(forks));
        let region = || {
            is_member.set((number as u32) < team.size());
            if is_member.get() {
                team.help(thread, number);
            }
        };
        pool.fork.serve::<ByUser>(number as u32, forks, &team.back.0, has_work, work, region);
    });
    ptr::null_mut()
}
