// SPDX-License-Identifier: MIT OR Apache-2.0
//! `libwakeful`: [`rust::parallel`], fibers and delegated sections for C, by `include/wakeful.h`, which is
//! made of these files.
//!
//! Other locks of kernel threads are not here: a C program gets those by linking with `-lwakeful_preload`
//! before the C library.

mod delegated;
mod fibers;
mod numa;

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use libc::{ECONNREFUSED, EINVAL, EIO, ENOMEM, EPERM};
use linux::Linux;
use platform::Platform;
use rust::importance::{self, Importance};
use rust::parallel::{self, Schedule};
use rust::partition::{self, Refusal};

/// A calling thread and its helpers.
pub struct Team(parallel::Team);

/// A block of equal size for each member, the same for each loop over the same range.
pub const WAKEFUL_STATIC: c_int = 0;
/// Whoever has nothing to do takes the next `chunk` iterations.
pub const WAKEFUL_DYNAMIC: c_int = 1;
/// The same, in chunks that begin large and become smaller, down to `chunk`.
pub const WAKEFUL_GUIDED: c_int = 2;

/// The thread runs when the program's others have nothing to do, and now and then besides.
pub const WAKEFUL_BACKGROUND: c_int = 0;
/// As all threads begin.
pub const WAKEFUL_NORMAL: c_int = 1;
/// It runs before the program's others, but not before one that holds a lock.
pub const WAKEFUL_URGENT: c_int = 2;

/// Where the caller passes no team.
static ALL: Team = Team(parallel::Team::free(parallel::Team::MOST_MEMBERS));

/// What C passes along.
struct Argument(*mut c_void);
// SAFETY: that it may be used by several threads is what the caller of each function here promises; a value
// is passed from one to the next.
unsafe impl Sync for Argument {}
// SAFETY: the same.
unsafe impl Send for Argument {}

impl Argument {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

/// # Safety
/// Null, or a team that is there.
unsafe fn team<'a>(team: *const Team) -> &'a parallel::Team {
    // SAFETY: as the caller promised.
    &unsafe { team.as_ref() }.unwrap_or(&ALL).0
}

fn schedule(kind: c_int, chunk: usize) -> Option<Schedule> {
    Some(match kind {
        WAKEFUL_STATIC => Schedule::Static,
        WAKEFUL_DYNAMIC => Schedule::Dynamic { chunk },
        WAKEFUL_GUIDED => Schedule::Guided { least: chunk },
        _ => return None,
    })
}

/// A team of so many members, the caller included, that run where everybody runs (*free* microthreads); 0
/// counts as 1, more than 64 as 64. A loop uses at most as many of them as the program has processors at
/// the time. Threads are started by the first loop that wants them.
///
/// Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_team_create_free(members: usize) -> *mut Team {
    Box::into_raw(Box::new(Team(parallel::Team::free(members))))
}

/// A team for a program with processors of its own (`wakeful run --cpus`, a cpuset partition): as many
/// members as these at any time (*bound* microthreads), which wait for the next loop with more patience,
/// and tell the processor server when no loop has come for 10 ms.
///
/// Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_team_create_bound() -> *mut Team {
    Box::into_raw(Box::new(Team(parallel::Team::bound())))
}

/// Ends the helpers of a team that runs no loop, and frees it. NULL: does nothing.
///
/// # Safety
/// A team from here, not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_team_destroy(team: *mut Team) {
    if !team.is_null() {
        // SAFETY: from `Box::into_raw` above.
        drop(unsafe { Box::from_raw(team) });
    }
}

/// How many members a loop of this team would have now. NULL: the team of all processors, as everywhere.
///
/// # Safety
/// NULL, or a team from here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_team_members(team: *const Team) -> usize {
    // SAFETY: as the caller promised.
    unsafe { self::team(team) }.members()
}

/// Calls `body(i, argument)` for each i from `begin` to `end` - 1, by several threads at a time, and
/// returns when all calls have returned.
///
/// A `body` may call anything but must return to its caller: neither an exception nor `longjmp` may leave
/// it, nor may it end the thread. It must not wait for another iteration. A loop inside it, or beside a
/// loop of the same team, runs on the calling thread. `chunk` 0 counts as 1; WAKEFUL_STATIC does not look
/// at it.
///
/// Returns 0, or EINVAL if `schedule` is none of the three or `body` is NULL; then nothing was called. An
/// empty range calls nothing.
///
/// # Safety
/// `team` is NULL, or one from here; `body` may be called from several threads with this argument.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_parallel_for(
    team: *const Team,
    begin: usize,
    end: usize,
    schedule: c_int,
    chunk: usize,
    body: Option<unsafe extern "C" fn(index: usize, argument: *mut c_void)>,
    argument: *mut c_void,
) -> c_int {
    let (Some(schedule), Some(body)) = (self::schedule(schedule, chunk), body) else { return EINVAL };
    let argument = Argument(argument);
    // SAFETY: as the caller promised.
    let team = unsafe { self::team(team) };
    // SAFETY: the same.
    team.for_each(begin..end, schedule, |index| unsafe { body(index, argument.get()) });
    0
}

/// As `wakeful_parallel_for`, but calls `body(first, last + 1, argument)` once for each block of
/// iterations. This is the faster one for short iterations, because the loop over the block is the
/// compiler's.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_parallel_blocks(
    team: *const Team,
    begin: usize,
    end: usize,
    schedule: c_int,
    chunk: usize,
    body: Option<unsafe extern "C" fn(begin: usize, end: usize, argument: *mut c_void)>,
    argument: *mut c_void,
) -> c_int {
    let (Some(schedule), Some(body)) = (self::schedule(schedule, chunk), body) else { return EINVAL };
    let argument = Argument(argument);
    // SAFETY: as the caller promised.
    let team = unsafe { self::team(team) };
    // SAFETY: the same.
    team.blocks(begin..end, schedule, |block| unsafe { body(block.start, block.end, argument.get()) });
    0
}

/// Values of so many bytes each, apart from each other, for whoever takes one.
struct Values {
    lines: Vec<UnsafeCell<Line>>,
    lines_each: usize,
    taken: AtomicUsize,
}

// SAFETY: who takes a value is the only one that has it.
unsafe impl Sync for Values {}

#[repr(align(128))]
struct Line(#[allow(dead_code)] [u8; 128]);

impl Values {
    /// # Safety
    /// `size` bytes can be read at `first`.
    unsafe fn copies(first: *const u8, size: usize, count: usize) -> Option<Self> {
        let lines_each = size.div_ceil(size_of::<Line>()).max(1);
        let mut lines = Vec::new();
        lines.try_reserve_exact(lines_each.checked_mul(count)?).ok()?;
        lines.resize_with(lines_each * count, || UnsafeCell::new(Line([0; 128])));
        for value in lines.chunks_exact_mut(lines_each) {
            // SAFETY: so many lines have room for it.
            unsafe { ptr::copy_nonoverlapping(first, value.as_mut_ptr().cast(), size) };
        }
        Some(Self { lines, lines_each, taken: AtomicUsize::new(0) })
    }

    /// One that nobody else has.
    fn take(&self) -> Argument {
        let index = self.taken.fetch_add(1, Relaxed);
        Argument(UnsafeCell::raw_get(self.lines[index * self.lines_each..].as_ptr()).cast())
    }
}

/// Computes one value from a range: each member folds its block into a copy of what is in `result` at the
/// beginning, by `fold(value, i, argument)`, and the members' values are then combined into `result` in the
/// blocks' order, by `combine(value, other, argument)` on the calling thread.
///
/// `size` is that of a value in bytes; a copy is aligned to 128. The result is that of the sequential fold
/// if `combine` is associative and what `result` begins with its neutral element; a sum of floating-point
/// numbers is the same each time for the same number of members.
///
/// Returns 0, EINVAL if `result`, `fold` or `combine` is NULL, or ENOMEM; then nothing was called.
///
/// # Safety
/// As for `wakeful_parallel_for`; `size` bytes of `result` are the caller's, and copies of them mean the
/// same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_reduce(
    team: *const Team,
    begin: usize,
    end: usize,
    result: *mut c_void,
    size: usize,
    fold: Option<unsafe extern "C" fn(value: *mut c_void, index: usize, argument: *mut c_void)>,
    combine: Option<unsafe extern "C" fn(value: *mut c_void, other: *const c_void, argument: *mut c_void)>,
    argument: *mut c_void,
) -> c_int {
    let (Some(fold), Some(combine), false) = (fold, combine, result.is_null()) else { return EINVAL };
    // One for each member, and the one in which they come together.
    // SAFETY: as the caller promised.
    let Some(values) = (unsafe { Values::copies(result.cast(), size, parallel::Team::MOST_MEMBERS + 1) })
    else {
        return ENOMEM;
    };
    let argument = Argument(argument);
    // SAFETY: as the caller promised.
    let team = unsafe { self::team(team) };
    let value = team.reduce(
        begin..end,
        || values.take(),
        |value, index| {
            // SAFETY: as the caller promised; only this member has the value.
            unsafe { fold(value.get(), index, argument.get()) };
            value
        },
        |value, other| {
            // SAFETY: as above.
            unsafe { combine(value.get(), other.get(), argument.get()) };
            value
        },
    );
    // SAFETY: both have so many bytes, and are not the same.
    unsafe { ptr::copy_nonoverlapping(value.get().cast::<u8>(), result.cast(), size) };
    0
}

/// How many processors the program has now: those of its partition, or of its affinity, cpuset and quota.
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_processors() -> usize {
    Linux::refresh_processors(None);
    Linux::processors() as usize
}

/// Asks the processor server for at least and at most so many processors of the program's own, or again
/// with other numbers; 0 and 0: the server chooses. Higher priorities are served first.
///
/// Returns how many the program has now; with 0 it runs where everybody runs until its turn comes.
/// Negative: -EINVAL unless 1 <= least <= most or both are 0, -ECONNREFUSED if no server runs, -EPERM if it
/// refuses (`wakeful run --cpus` says in words why), -EIO if it does not answer.
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_request(priority: u32, least: usize, most: usize) -> c_int {
    partition::request(priority, least..=most).map_or_else(number, |count| count as c_int)
}

/// Gives them back. Returns 0, or as `wakeful_request`.
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_leave() -> c_int {
    partition::leave().map_or_else(number, |()| 0)
}

fn number(error: partition::Error) -> c_int {
    match error {
        partition::Error::NoServer => -ECONNREFUSED,
        partition::Error::Refused(Refusal::Disordered, _) => -EINVAL,
        partition::Error::Refused(..) => -EPERM,
        _ => -EIO,
    }
}

/// Says that the program, in a phase that begins now, can use so many processors at most; 0: all that it
/// has. The processor server lends the others to programs that wait for some; without a server, or while
/// nobody waits, it changes nothing. Returns what was said before, for the end of the phase.
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_use_at_most(processors: usize) -> usize {
    parallel::use_at_most(processors)
}

/// Sets how much the calling thread matters to its program: WAKEFUL_BACKGROUND, WAKEFUL_NORMAL or
/// WAKEFUL_URGENT. The scheduler of `wakeful run --scheduled` goes by it among the threads of a program;
/// other programs notice nothing. Without that scheduler it changes nothing, and in a fiber never.
///
/// Returns what was set before, to be restored; -EINVAL if it is none of the three.
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_importance(importance: c_int) -> c_int {
    Importance::from_number(importance).map_or(-EINVAL, |importance| importance::set(importance) as c_int)
}
