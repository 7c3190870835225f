// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worksharing: loops, sections, `single` and `ordered`.
//!
//! A loop is its iterations' numbers, 0 and up, in 64 bits, whatever type the program counts in: wrapping arithmetic makes values of them again. What
//! members share about one construct is a [`Share`], of which a team has a ring: a member is ahead of another by as many
//! constructs at most.

use std::cell::Cell;
use std::ffi::{c_long, c_void};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use linux::Linux;
use platform::Platform;
use sync::openmp::{Iterations, Order, Turn};

use crate::doacross::Doacross;
use crate::icv::{Kind, MONOTONIC};
use crate::memory::{self, Own};
use crate::reductions;
use crate::tasks;
use crate::team::{Member, SHARES, Team};
use crate::thread::{Thread, me};
use crate::wait::{ByUser, Event, yielding};

/// Which of some iterations are over.
pub type Over = sync::openmp::Over<Linux>;

/// A loop as the program has it.
#[derive(Clone, Copy, PartialEq)]
pub struct Shape {
    begin: u64,
    end: u64,
    step: u64,
    iterations: u64,
    kind: Kind,
    /// 0: none.
    chunk: u64,
    /// Of a guided loop: its chunks, but for the last, are multiples of this.
    multiple: u64,
    ordered: bool,
}

/// Iterations of a signed loop.
pub fn iterations(begin: c_long, end: c_long, step: c_long) -> u64 {
    match step > 0 {
        true if begin < end => (end as u64).wrapping_sub(begin as u64).div_ceil(step as u64),
        false if begin > end => (begin as u64).wrapping_sub(end as u64).div_ceil(step.unsigned_abs().max(1)),
        _ => 0,
    }
}

/// Iterations of an unsigned loop; downwards, the step is one to be added all the same.
pub fn iterations_ull(up: bool, begin: u64, end: u64, step: u64) -> u64 {
    match up {
        true if begin < end => (end - begin).div_ceil(step.max(1)),
        false if begin > end => (begin - end).div_ceil(step.wrapping_neg().max(1)),
        _ => 0,
    }
}

/// How it is shared out: as the compiler says, or by the task's variable.
#[derive(Clone, Copy)]
pub struct How {
    pub kind: Kind,
    pub chunk: u64,
}

impl How {
    pub fn new(kind: Kind, chunk: i64) -> Self {
        Self { kind, chunk: chunk.max(0) as u64 }
    }

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

impl Shape {
    pub fn signed(begin: c_long, end: c_long, step: c_long, how: How, ordered: bool) -> Self {
        let iterations = iterations(begin, end, step);
        let (begin, end, step) = (begin as u64, end as u64, step as u64);
        Self { begin, end, step, iterations, kind: how.kind, chunk: how.chunk, multiple: 1, ordered }
    }

    pub fn unsigned(up: bool, begin: u64, end: u64, step: u64, how: How, ordered: bool) -> Self {
        let iterations = iterations_ull(up, begin, end, step);
        Self { begin, end, step, iterations, kind: how.kind, chunk: how.chunk, multiple: 1, ordered }
    }

    /// Of a loop of which the compiler has counted the iterations.
    pub fn new(begin: u64, step: u64, iterations: u64, (kind, chunk): (Kind, u64), ordered: bool) -> Self {
        let end = begin.wrapping_add(iterations.wrapping_mul(step));
        Self { begin, end, step, iterations, kind, chunk, multiple: 1, ordered }
    }

    /// In vectors of so many iterations.
    pub fn in_multiples_of(self, multiple: u64) -> Self {
        Self { multiple, ..self }
    }

    pub fn iterations(&self) -> u64 {
        self.iterations
    }

    pub fn step(&self) -> u64 {
        self.step
    }

    /// Sections 1 to `count`, or a loop with nothing to it but a [`Share`].
    pub fn counted(count: u64) -> Self {
        Self {
            begin: 1,
            end: count + 1,
            step: 1,
            iterations: count,
            kind: Kind::Dynamic,
            chunk: 1,
            multiple: 1,
            ordered: false,
        }
    }

    pub fn is_shared(&self) -> bool {
        self.kind != Kind::Static || self.ordered
    }

    /// Where an iteration begins; the last one ends where the loop does.
    pub fn value(&self, iteration: u64) -> u64 {
        if iteration >= self.iterations { self.end } else { self.begin.wrapping_add(iteration.wrapping_mul(self.step)) }
    }
}

/// What the members share about a construct.
#[repr(align(128))]
pub struct Share {
    turn: Turn<Linux>,
    iterations: Iterations<Linux>,
    order: Order<Linux>,
    pub changed: Event,
    pub doacross: AtomicPtr<Doacross>,
    pub reductions: AtomicPtr<usize>,
    pub memory: AtomicPtr<c_void>,
}

impl Share {
    pub fn new(index: u32) -> Self {
        Self {
            turn: Turn::new(index),
            iterations: Iterations::default(),
            order: Order::default(),
            changed: Event::default(),
            doacross: AtomicPtr::default(),
            reductions: AtomicPtr::default(),
            memory: AtomicPtr::default(),
        }
    }

    /// COST: bytes; as much as an allocator gives.
    const ALIGN: usize = 16;

    /// Makes zeros that the members share, by the first to come.
    pub fn make_memory(&self, size: usize, what: fmt::Arguments) {
        self.memory.store(memory::zeros(size, Self::ALIGN, what), Relaxed);
    }

    /// As if new.
    pub fn renew(&self, index: u32) {
        self.clear();
        self.turn.renew(index);
    }

    fn restart(&self) {
        self.iterations.restart();
        self.order.restart();
    }

    /// For a combined construct, before anybody else can come.
    pub fn open_alone(&self, construct: u32, size: u32) {
        self.restart();
        self.turn.open_alone(construct, size);
    }

    /// For a construct; the first to come makes what belongs to it.
    fn open(&self, construct: u32, size: u32, make: impl FnOnce(&Self)) {
        self.turn.open::<ByUser>(construct, size, || {
            self.restart();
            make(self);
        });
    }

    /// The last to leave makes it free for the construct that comes a round later.
    fn leave(&self) {
        self.turn.leave(SHARES as u32, || self.clear());
    }

    fn clear(&self) {
        let doacross = self.doacross.load(Relaxed);
        if !doacross.is_null() {
            // SAFETY: from `Own::into_raw`, and nobody is inside.
            drop(unsafe { Own::from_raw(doacross) });
            self.doacross.store(ptr::null_mut(), Relaxed);
        }
        let memory = self.memory.swap(ptr::null_mut(), Relaxed);
        if !memory.is_null() {
            // SAFETY: nobody is inside.
            unsafe { memory::put_zeros(memory, Self::ALIGN) };
        }
        self.reductions.store(ptr::null_mut(), Relaxed);
    }

    /// Nobody takes any more.
    fn cancel(&self) {
        self.iterations.cancel();
    }
}

/// The loop, or sections, in which a member is.
#[derive(Default)]
pub struct Loop {
    shape: Cell<Option<Shape>>,
    share: Cell<Option<*const Share>>,
    /// Chunks taken, where they are dealt out in turn.
    turns: Cell<u64>,
    /// The iterations that it has.
    first: Cell<u64>,
    last: Cell<u64>,
    /// Has it left its place in the order?
    ordered: Cell<bool>,
}

impl Loop {
    pub fn share(&self) -> Option<&Share> {
        // SAFETY: the team's, which stays.
        self.share.get().map(|share| unsafe { &*share })
    }

    /// A region that begins in a loop, for which the primary thread has made everything.
    pub fn join_combined(&self, team: &Team, member: &Member, shape: Shape) {
        let construct = member.constructs.get();
        member.constructs.set(construct.wrapping_add(1));
        self.enter(shape, Some(&team.shares[construct as usize % SHARES]));
    }

    fn enter(&self, shape: Shape, share: Option<&Share>) {
        self.shape.set(Some(shape));
        self.share.set(share.map(ptr::from_ref));
        self.turns.set(0);
        self.first.set(0);
        self.last.set(0);
        self.ordered.set(false);
    }

    /// Begins a construct; with what `make` adds for all.
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

    /// Static: a block for each, or chunks in turn.
    fn deal(&self, shape: &Shape, size: u64, number: u64) -> Option<(u64, u64)> {
        let turn = self.turns.replace(self.turns.get() + 1);
        if let Some(share) = self.share()
            && share.iterations.are_cancelled()
        {
            return None;
        }
        if shape.chunk == 0 {
            let (block, rest) = (shape.iterations / size, shape.iterations % size);
            let first = block * number + number.min(rest);
            let length = block + (number < rest) as u64;
            return (turn == 0 && length > 0).then_some((first, first + length));
        }
        let first = turn.checked_mul(size)?.checked_add(number)?.checked_mul(shape.chunk)?;
        (first < shape.iterations).then(|| (first, first.saturating_add(shape.chunk).min(shape.iterations)))
    }

    /// Waits for its turn in the order of iterations, unless nothing of the loop is in order.
    pub fn await_turn(&self) {
        if self.ordered.get()
            && let Some(share) = self.share()
        {
            let crowded = me().team().size() > Linux::processors();
            share.order.wait::<ByUser>(self.first.get(), self.chunk(), |is_ours| crowded && yielding(is_ours));
        }
    }

    /// The ordered regions of its iterations are over.
    fn yield_turn(&self) {
        self.await_turn();
        if self.ordered.replace(false)
            && let Some(share) = self.share()
        {
            share.order.pass(self.last.get(), self.chunk());
        }
    }

    fn chunk(&self) -> u64 {
        self.shape.get().map_or(1, |shape| shape.chunk)
    }

    /// What it was in is made anew.
    pub fn abandon(&self) {
        self.share.set(None);
    }

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
        tasks::begin_workshare_group(thread);
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
            tasks::set_group_reductions(thread, list);
        }
    }
}

/// Is this member the first to come to this construct?
pub fn is_first(thread: &Thread) -> bool {
    let member = thread.member();
    let mine = member.singles.get();
    member.singles.set(mine.wrapping_add(1));
    thread.team().meeting.0.single.is_first(mine, thread.team().size())
}

/// Cancels the worksharing construct in which the calling thread is; true always.
pub fn cancel(thread: &Thread) {
    // One that the compiler shares out itself has no share: its members find the number of the barrier at its end.
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
