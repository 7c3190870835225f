// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a region begins and ends, and what its helpers do.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::mem;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::Ordering::Relaxed;

use linux::Linux;
use platform::{Platform, ThreadId};
use sync::barrier::{BWakeful, RawBarrier};

use crate::affinity;
use crate::dialect::is_llvm;
use crate::display;
use crate::groups;
use crate::icv::{Bind, settings};
use crate::memory::Own;
use crate::pool::{Hold, Pool};
use crate::reductions;
use crate::share::Shape;
use crate::tasks;
use crate::team::{Context, Function, Member, Team};
use crate::thread::{Thread, me};
use crate::wait::{self, ByUser};

/// Writes only what changes: the line stays in the caches of those who read it in each region.
#[inline(always)]
fn update<T: Copy + PartialEq>(cell: &Cell<T>, value: T) {
    if cell.get() != value {
        cell.set(value);
    }
}

/// Begins a region: the helpers run `function`, and the calling thread is in it. `wanted` as in the clause,
/// 0 without one.
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
#[inline]
pub unsafe fn begin_reducing(
    function: Function,
    data: *mut c_void,
    wanted: u32,
    flags: u32,
    list: *mut usize,
) {
    // SAFETY: as promised.
    unsafe { begin_with(function, data, &[], wanted, flags, None, list) };
}

/// As [`begin`], with a copy of a few words for data, which all members find in [`Team::words`]. What they
/// say again from region to region stays in the members' caches.
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

/// Ends the region that the calling thread has begun, when everybody has come to its end and all tasks are
/// done.
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
            groups::begin_group(thread);
            groups::set_group_reductions(thread, self.reductions.get());
        }
        if self.bind.get() != Bind::False {
            self.place(thread, number as u32);
        }
        if self.displays.get() {
            display::with_format(display::display);
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
        if let Some(there) =
            affinity::assign(self.bind.get(), number, size, primary.unwrap_or(partition.0), partition)
        {
            thread.location.enter(there);
        }
    }
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
        self.members()
            .iter()
            .for_each(|member| [&member.work, &member.around].iter().for_each(|work| work.abandon()));
    }

    /// The group that all is in has no tasks any more when the region ends, which is waited for there.
    fn leave_reductions(&self, thread: &Thread) {
        if !self.reductions.get().is_null() {
            groups::end_group(thread);
        }
    }
}

impl Pool {
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
            // Any word: then there is a registry, without which each look at the generation is a system call.
            Linux::word(ThreadId(1), 0);
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
}

/// What a new helper is told.
struct Recruit {
    pool: Hold,
    number: usize,
    forks: u32,
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
