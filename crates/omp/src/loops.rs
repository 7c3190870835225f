// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worksharing: loops, sections, `single`, `ordered` and `doacross`.

use std::ffi::{c_long, c_void};
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use linux::Linux;
use platform::Platform;
use sync::openmp::Progress;

use crate::doacross::Doacross;
use crate::groups;
use crate::icv::{Kind, MONOTONIC};
use crate::memory::{List, Own};
use crate::reductions;
use crate::share::SHARES;
pub use crate::share::{How, Loop, Over, Shape, Share, iterations, iterations_ull};
use crate::team::{Member, Team};
use crate::thread::{Thread, me};
use crate::wait::{ByUser, yielding};

impl How {
    pub fn runtime() -> Self {
        let schedule = me().icv().schedule;
        match schedule.kind {
            Kind::Auto => Self::new(Kind::Static, 0),
            kind => Self::new(kind, schedule.chunk as i64),
        }
    }

    /// As the functions for all kinds have it; 0 is `runtime`.
    pub fn by_number(kind: c_long, chunk: i64) -> Self {
        match Kind::from_u32(kind as u32 & !MONOTONIC) {
            None => Self::runtime(),
            Some(Kind::Auto) => Self::new(Kind::Static, 0),
            Some(kind) => Self::new(kind, chunk),
        }
    }
}

impl Loop {
    /// A region that begins in a loop, for which the primary thread has made everything.
    #[inline]
    pub fn join_combined(&self, team: &Team, member: &Member, shape: Shape) {
        let construct = member.constructs.get();
        member.constructs.set(construct.wrapping_add(1));
        self.enter(shape, Some(&team.shares[construct as usize % SHARES]));
    }

    /// Begins a construct; with what `make` adds for all.
    #[inline]
    pub fn start(&self, thread: &Thread, shape: Shape, needs_share: bool, make: impl FnOnce(&Share)) {
        if !needs_share {
            return self.enter(shape, None);
        }
        let (team, member) = (thread.team(), thread.member());
        let construct = member.constructs.get();
        member.constructs.set(construct.wrapping_add(1));
        let share = &team.shares[construct as usize % SHARES];
        share.open(construct, team.size(), make);
        self.enter(shape, Some(share));
    }

    /// The values between which the next iterations for this member are.
    #[inline]
    pub fn next(&self, thread: &Thread) -> Option<(u64, u64)> {
        self.take(thread).map(|(shape, first, last)| (shape.value(first), shape.value(last)))
    }

    /// The next iterations for this member, by number, and of which loop.
    #[inline]
    pub fn take(&self, thread: &Thread) -> Option<(Shape, u64, u64)> {
        let shape = self.shape.get()?;
        if shape.ordered {
            self.yield_turn();
        }
        let (size, number) = (thread.team().size() as u64, thread.number() as u64);
        let (first, last) = match (shape.kind, self.share()) {
            (Kind::Dynamic, Some(share)) => share.iterations.take_chunk(shape.iterations, shape.chunk, size),
            (Kind::Guided, Some(share)) => {
                share.iterations.take_guided(shape.iterations, shape.chunk, shape.multiple, size)
            }
            _ => self.deal(&shape, size, number),
        }?;
        self.first.set(first);
        self.last.set(last);
        self.ordered.set(shape.ordered);
        Some((shape, first, last))
    }

    /// Waits for its turn in the order of iterations, unless nothing of the loop is in order.
    #[inline]
    pub fn await_turn(&self) {
        if self.ordered.get()
            && let Some(share) = self.share()
        {
            let crowded = me().team().size() > Linux::processors();
            share
                .order
                .wait::<ByUser>(self.first.get(), self.chunk(), |is_ours| crowded && yielding(is_ours));
        }
    }

    /// The ordered regions of its iterations are over.
    #[inline]
    fn yield_turn(&self) {
        self.await_turn();
        if self.ordered.replace(false)
            && let Some(share) = self.share()
        {
            share.order.pass(self.last.get(), self.chunk());
        }
    }

    #[inline]
    pub fn leave(&self) {
        self.yield_turn();
        if let Some(share) = self.share() {
            share.leave();
        }
        self.share.set(None);
    }
}

/// Begins a construct with memory for all, or reductions over tasks.
///
/// # Safety
/// The pointers are the compiler's.
pub unsafe fn enter_with(
    thread: &Thread,
    shape: Shape,
    list: *mut usize,
    memory: *mut *mut c_void,
    make: impl FnOnce(&Share),
) {
    let work = &thread.member().work;
    if !list.is_null() {
        groups::begin_workshare_group(thread);
    }
    work.start(thread, shape, true, |share| {
        make(share);
        if !memory.is_null() {
            // SAFETY: the size is where the address goes.
            share.make_memory(unsafe { (*memory).addr() }, format_args!("a loop's members"));
        }
        if !list.is_null() {
            // SAFETY: the compiler's.
            unsafe { reductions::register(list, ptr::null_mut(), thread.team().size()) };
            share.reductions.store(list, Relaxed);
        }
    });
    let Some(share) = work.share() else { return };
    // SAFETY: as above.
    unsafe {
        if !memory.is_null() {
            memory.write(share.memory.load(Relaxed));
        }
        if !list.is_null() {
            reductions::join(list, share.reductions.load(Relaxed));
            groups::set_group_reductions(thread, list);
        }
    }
}

/// Is this member the first to come to this construct?
#[inline]
pub fn is_first(thread: &Thread) -> bool {
    let member = thread.member();
    let mine = member.singles.get();
    member.singles.set(mine.wrapping_add(1));
    thread.team().meeting.0.single.is_first(mine, thread.team().size())
}

/// Cancels the worksharing construct in which the calling thread is; true always.
pub fn cancel(thread: &Thread) {
    // One that the compiler shares out itself has no share: its members find the number of the barrier at
    // its end.
    let meeting = thread.member().meetings.get().wrapping_add(1);
    thread.team().work_cancelled.store(meeting, Relaxed);
    if let Some(share) = thread.member().work.share() {
        share.cancel();
    }
}

/// Is the worksharing construct cancelled in which the calling thread is?
pub fn is_cancelled(thread: &Thread) -> bool {
    thread.team().work_cancelled.load(Relaxed) == thread.member().meetings.get().wrapping_add(1)
}

/// Begins a loop of `counts.len()` dimensions, of which the first is shared out.
///
/// # Safety
/// The pointers are the compiler's.
pub unsafe fn begin_doacross(counts: &[u64], how: How, list: *mut usize, memory: *mut *mut c_void) {
    let thread = me();
    // Chunks of equal size: progress is kept for each.
    let kind = if how.kind == Kind::Guided { Kind::Dynamic } else { how.kind };
    let chunk = if kind == Kind::Dynamic { how.chunk.max(1) } else { how.chunk };
    let iterations = counts[0];
    let shape = Shape::new(0, 1, iterations, (kind, chunk), false);
    let size = thread.team().size() as u64;
    let make = |share: &Share| {
        let static_blocks = chunk == 0;
        let parts = if static_blocks { size } else { iterations.div_ceil(chunk) };
        let what = format_args!("a doacross loop of {iterations} iterations");
        let done = List::needed(parts as usize, what, |_| Progress::default());
        let counts = List::needed(counts.len(), what, |index| counts[index]);
        let doacross = || Doacross { counts, chunk, static_blocks, size, done };
        share.doacross.store(Own::needed("a doacross loop", doacross).into_raw(), Relaxed);
    };
    // SAFETY: as promised.
    unsafe { enter_with(thread, shape, list, memory, make) };
}

/// What `work` makes of the current doacross loop and its share.
pub fn with_doacross<R>(work: impl FnOnce(&Doacross, &Share) -> R) -> Option<R> {
    let share = me().member().work.share()?;
    // SAFETY: stays as long as anybody is inside.
    let doacross = unsafe { share.doacross.load(Relaxed).as_ref() }?;
    Some(work(doacross, share))
}
