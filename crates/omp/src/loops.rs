// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worksharing: loops, sections, `single`, `ordered`, and `doacross`.
//!
//! A loop is its iterations' numbers, 0 and up, in 64 bits, whatever type the program counts in: wrapping arithmetic makes values of them again. What
//! members share about one construct is a [`Share`], of which a team has a ring: a member is ahead of another by as many
//! constructs at most.

use std::cell::Cell;
use std::ffi::{c_long, c_uint, c_void};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use linux::Linux;
use platform::Platform;
use sync::openmp::{Iterations, Order, Progress, Turn};

use crate::icv::{Kind, MONOTONIC};
use crate::memory::{self, List, Own};
use crate::reductions;
use crate::tasks;
use crate::team::{Function, Member, SHARES, Team, begin, end};
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
    fn new(kind: Kind, chunk: i64) -> Self {
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
    fn by_number(kind: c_long, chunk: i64) -> Self {
        match Kind::from_u32(kind as u32 & !MONOTONIC) {
            None => Self::runtime(),
            Some(Kind::Auto) => Self::new(Kind::Static, 0),
            Some(kind) => Self::new(kind, chunk),
        }
    }
}

impl Shape {
    fn signed(begin: c_long, end: c_long, step: c_long, how: How, ordered: bool) -> Self {
        let iterations = iterations(begin, end, step);
        let (begin, end, step) = (begin as u64, end as u64, step as u64);
        Self { begin, end, step, iterations, kind: how.kind, chunk: how.chunk, multiple: 1, ordered }
    }

    fn unsigned(up: bool, begin: u64, end: u64, step: u64, how: How, ordered: bool) -> Self {
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
    doacross: AtomicPtr<Doacross>,
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

/// Progress of a loop whose iterations wait for each other.
struct Doacross {
    counts: List<u64>,
    /// Iterations of the outermost loop that share a word.
    chunk: u64,
    static_blocks: bool,
    size: u64,
    /// Of each chunk: 1 more than the last iteration that is over, of all dimensions.
    done: List<Progress<Linux>>,
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
    fn next(&self, thread: &Thread) -> Option<(u64, u64)> {
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

/// Functions with variable arguments, which are in C.
#[doc(hidden)]
#[macro_export]
macro_rules! in_c {
    ($($name:ident => $target:ident;)*) => {
        unsafe extern "C" {
            $(fn $target();)*
        }
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
                core::arch::naked_asm!("jmp {}", sym $target);
                #[cfg(any(target_arch = "aarch64", target_arch = "arm"))]
                core::arch::naked_asm!("b {}", sym $target);
                #[cfg(target_arch = "riscv64")]
                core::arch::naked_asm!("tail {}", sym $target);
            }
        )*
    };
}

/// The type in which a program counts.
trait Number: Copy {
    fn from_bits(bits: u64) -> Self;
}

impl Number for c_long {
    fn from_bits(bits: u64) -> Self {
        bits as Self
    }
}

impl Number for u64 {
    fn from_bits(bits: u64) -> Self {
        bits
    }
}

/// Hands the next iterations out.
///
/// # Safety
/// The pointers may be written to.
#[inline]
unsafe fn next<T: Number>(first: *mut T, last: *mut T) -> bool {
    let thread = me();
    match thread.member().work.next(thread) {
        Some((begin, end)) => {
            // SAFETY: as promised.
            unsafe {
                first.write(T::from_bits(begin));
                last.write(T::from_bits(end));
            }
            true
        }
        None => false,
    }
}

/// Begins a loop, and hands the first iterations out.
///
/// # Safety
/// As [`next`].
#[inline]
unsafe fn start<T: Number>(shape: Shape, first: *mut T, last: *mut T) -> bool {
    let thread = me();
    thread.member().work.start(thread, shape, shape.is_shared(), |_| {});
    // SAFETY: as promised.
    unsafe { next(first, last) }
}

/// Functions of one kind of loop, signed and unsigned.
macro_rules! loops {
    ($($start:ident $start_ull:ident $next:ident $next_ull:ident ($kind:ident, $ordered:literal);)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $start(
                begin: c_long, end: c_long, step: c_long, chunk: c_long, first: *mut c_long, last: *mut c_long,
            ) -> bool {
                let shape = Shape::signed(begin, end, step, How::new(Kind::$kind, chunk), $ordered);
                // SAFETY: the compiler's pointers; likewise below.
                unsafe { start(shape, first, last) }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $start_ull(
                up: bool, begin: u64, end: u64, step: u64, chunk: u64, first: *mut u64, last: *mut u64,
            ) -> bool {
                let how = How { kind: Kind::$kind, chunk };
                // SAFETY: as above.
                unsafe { start(Shape::unsigned(up, begin, end, step, how, $ordered), first, last) }
            }

            loops!(next $next $next_ull);
        )*
    };
    (next $next:ident $next_ull:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $next(first: *mut c_long, last: *mut c_long) -> bool {
            // SAFETY: the compiler's pointers.
            unsafe { next(first, last) }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $next_ull(first: *mut u64, last: *mut u64) -> bool {
            // SAFETY: the compiler's pointers.
            unsafe { next(first, last) }
        }
    };
}

loops! {
    GOMP_loop_static_start GOMP_loop_ull_static_start GOMP_loop_static_next GOMP_loop_ull_static_next (Static, false);
    GOMP_loop_dynamic_start GOMP_loop_ull_dynamic_start GOMP_loop_dynamic_next GOMP_loop_ull_dynamic_next (Dynamic, false);
    GOMP_loop_guided_start GOMP_loop_ull_guided_start GOMP_loop_guided_next GOMP_loop_ull_guided_next (Guided, false);
    GOMP_loop_nonmonotonic_dynamic_start GOMP_loop_ull_nonmonotonic_dynamic_start
        GOMP_loop_nonmonotonic_dynamic_next GOMP_loop_ull_nonmonotonic_dynamic_next (Dynamic, false);
    GOMP_loop_nonmonotonic_guided_start GOMP_loop_ull_nonmonotonic_guided_start
        GOMP_loop_nonmonotonic_guided_next GOMP_loop_ull_nonmonotonic_guided_next (Guided, false);
    GOMP_loop_ordered_static_start GOMP_loop_ull_ordered_static_start
        GOMP_loop_ordered_static_next GOMP_loop_ull_ordered_static_next (Static, true);
    GOMP_loop_ordered_dynamic_start GOMP_loop_ull_ordered_dynamic_start
        GOMP_loop_ordered_dynamic_next GOMP_loop_ull_ordered_dynamic_next (Dynamic, true);
    GOMP_loop_ordered_guided_start GOMP_loop_ull_ordered_guided_start
        GOMP_loop_ordered_guided_next GOMP_loop_ull_ordered_guided_next (Guided, true);
}

/// Functions of loops whose kind is found out at run time.
macro_rules! runtime_loops {
    ($($start:ident $start_ull:ident $next:ident $next_ull:ident ($ordered:literal);)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $start(
                begin: c_long, end: c_long, step: c_long, first: *mut c_long, last: *mut c_long,
            ) -> bool {
                // SAFETY: the compiler's pointers; likewise below.
                unsafe { start(Shape::signed(begin, end, step, How::runtime(), $ordered), first, last) }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $start_ull(
                up: bool, begin: u64, end: u64, step: u64, first: *mut u64, last: *mut u64,
            ) -> bool {
                // SAFETY: as above.
                unsafe { start(Shape::unsigned(up, begin, end, step, How::runtime(), $ordered), first, last) }
            }

            loops!(next $next $next_ull);
        )*
    };
}

runtime_loops! {
    GOMP_loop_runtime_start GOMP_loop_ull_runtime_start GOMP_loop_runtime_next GOMP_loop_ull_runtime_next (false);
    GOMP_loop_nonmonotonic_runtime_start GOMP_loop_ull_nonmonotonic_runtime_start
        GOMP_loop_nonmonotonic_runtime_next GOMP_loop_ull_nonmonotonic_runtime_next (false);
    GOMP_loop_maybe_nonmonotonic_runtime_start GOMP_loop_ull_maybe_nonmonotonic_runtime_start
        GOMP_loop_maybe_nonmonotonic_runtime_next GOMP_loop_ull_maybe_nonmonotonic_runtime_next (false);
    GOMP_loop_ordered_runtime_start GOMP_loop_ull_ordered_runtime_start
        GOMP_loop_ordered_runtime_next GOMP_loop_ull_ordered_runtime_next (true);
}

/// Begins a loop of any kind, with memory for all and reductions over tasks, and hands iterations out if there are pointers for them.
///
/// # Safety
/// The pointers are the compiler's.
unsafe fn start_with<T: Number>(
    shape: Shape,
    first: *mut T,
    last: *mut T,
    list: *mut usize,
    memory: *mut *mut c_void,
) -> bool {
    let thread = me();
    // SAFETY: as promised.
    unsafe {
        if list.is_null() && memory.is_null() {
            thread.member().work.start(thread, shape, shape.is_shared(), |_| {});
        } else {
            enter_with(thread, shape, list, memory, |_| {});
        }
        if first.is_null() { true } else { next(first, last) }
    }
}

/// Begins a construct with memory for all, or reductions over tasks.
///
/// # Safety
/// The pointers are the compiler's.
unsafe fn enter_with(
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

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_loop_start(
    begin: c_long,
    end: c_long,
    step: c_long,
    kind: c_long,
    chunk: c_long,
    first: *mut c_long,
    last: *mut c_long,
    list: *mut usize,
    memory: *mut *mut c_void,
) -> bool {
    // SAFETY: the compiler's pointers; likewise below.
    unsafe {
        start_with(Shape::signed(begin, end, step, How::by_number(kind, chunk), false), first, last, list, memory)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_loop_ordered_start(
    begin: c_long,
    end: c_long,
    step: c_long,
    kind: c_long,
    chunk: c_long,
    first: *mut c_long,
    last: *mut c_long,
    list: *mut usize,
    memory: *mut *mut c_void,
) -> bool {
    // SAFETY: as above.
    unsafe { start_with(Shape::signed(begin, end, step, How::by_number(kind, chunk), true), first, last, list, memory) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_loop_ull_start(
    up: bool,
    begin: u64,
    end: u64,
    step: u64,
    kind: c_long,
    chunk: u64,
    first: *mut u64,
    last: *mut u64,
    list: *mut usize,
    memory: *mut *mut c_void,
) -> bool {
    let how = How::by_number(kind, chunk as i64);
    // SAFETY: as above.
    unsafe { start_with(Shape::unsigned(up, begin, end, step, how, false), first, last, list, memory) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_loop_ull_ordered_start(
    up: bool,
    begin: u64,
    end: u64,
    step: u64,
    kind: c_long,
    chunk: u64,
    first: *mut u64,
    last: *mut u64,
    list: *mut usize,
    memory: *mut *mut c_void,
) -> bool {
    let how = How::by_number(kind, chunk as i64);
    // SAFETY: as above.
    unsafe { start_with(Shape::unsigned(up, begin, end, step, how, true), first, last, list, memory) }
}

/// The end of a construct that is not a loop's only.
fn finish() {
    let thread = me();
    thread.member().work.leave();
    thread.team().meet(thread);
}

/// The same in a region that can be cancelled; true if it is.
fn finish_or_cancelled() -> bool {
    let thread = me();
    thread.member().work.leave();
    thread.team().meet_or_cancelled(thread)
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_loop_end() {
    finish();
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_loop_end_nowait() {
    me().member().work.leave();
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_loop_end_cancel() -> bool {
    finish_or_cancelled()
}

/// Regions that begin with a loop. The older functions return to the primary thread, which runs the region itself and ends it by `GOMP_parallel_end`.
macro_rules! parallel_loops {
    ($($name:ident $old:tt $kind:ident;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                function: Function, data: *mut c_void, threads: c_uint,
                first: c_long, last: c_long, step: c_long, chunk: c_long, flags: c_uint,
            ) {
                let shape = Shape::signed(first, last, step, How::new(Kind::$kind, chunk), false);
                // SAFETY: the compiler's function and data.
                unsafe { parallel(function, data, threads, flags, shape) };
            }

            parallel_loops!(old $old $kind);
        )*
    };
    (old _ $kind:ident) => {};
    (old $old:ident $kind:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $old(
            function: Function, data: *mut c_void, threads: c_uint,
            first: c_long, last: c_long, step: c_long, chunk: c_long,
        ) {
            let shape = Shape::signed(first, last, step, How::new(Kind::$kind, chunk), false);
            // SAFETY: the compiler's function and data.
            unsafe { begin(function, data, threads, 0, Some(shape)) };
        }
    };
}

parallel_loops! {
    GOMP_parallel_loop_static GOMP_parallel_loop_static_start Static;
    GOMP_parallel_loop_dynamic GOMP_parallel_loop_dynamic_start Dynamic;
    GOMP_parallel_loop_guided GOMP_parallel_loop_guided_start Guided;
    GOMP_parallel_loop_nonmonotonic_dynamic _ Dynamic;
    GOMP_parallel_loop_nonmonotonic_guided _ Guided;
}

/// The same where the kind is found out at run time.
macro_rules! parallel_runtime_loops {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                function: Function, data: *mut c_void, threads: c_uint,
                first: c_long, last: c_long, step: c_long, flags: c_uint,
            ) {
                // SAFETY: the compiler's function and data.
                unsafe { parallel(function, data, threads, flags, Shape::signed(first, last, step, How::runtime(), false)) };
            }
        )*
    };
}

parallel_runtime_loops! {
    GOMP_parallel_loop_runtime
    GOMP_parallel_loop_nonmonotonic_runtime
    GOMP_parallel_loop_maybe_nonmonotonic_runtime
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_parallel_loop_runtime_start(
    function: Function,
    data: *mut c_void,
    threads: c_uint,
    first: c_long,
    last: c_long,
    step: c_long,
) {
    // SAFETY: the compiler's function and data.
    unsafe { begin(function, data, threads, 0, Some(Shape::signed(first, last, step, How::runtime(), false))) };
}

/// Runs a region that begins with this loop.
///
/// # Safety
/// As [`begin`].
unsafe fn parallel(function: Function, data: *mut c_void, threads: c_uint, flags: c_uint, shape: Shape) {
    // SAFETY: as promised.
    unsafe {
        begin(function, data, threads, flags, Some(shape));
        function(data);
    }
    end();
}

#[unsafe(no_mangle)]
pub extern "C" fn GOMP_ordered_start() {
    me().member().work.await_turn();
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_ordered_end() {}

// --- sections ----------------------------------------------------------------

#[unsafe(no_mangle)]
extern "C" fn GOMP_sections_start(count: c_uint) -> c_uint {
    let thread = me();
    thread.member().work.start(thread, Shape::counted(count as u64), true, |_| {});
    GOMP_sections_next()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_sections2_start(count: c_uint, list: *mut usize, memory: *mut *mut c_void) -> c_uint {
    // SAFETY: the compiler's pointers.
    unsafe { enter_with(me(), Shape::counted(count as u64), list, memory, |_| {}) };
    GOMP_sections_next()
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_sections_next() -> c_uint {
    let thread = me();
    thread.member().work.next(thread).map_or(0, |(section, _)| section as c_uint)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_parallel_sections(
    function: Function,
    data: *mut c_void,
    threads: c_uint,
    count: c_uint,
    flags: c_uint,
) {
    // SAFETY: the compiler's function and data.
    unsafe { parallel(function, data, threads, flags, Shape::counted(count as u64)) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_parallel_sections_start(
    function: Function,
    data: *mut c_void,
    threads: c_uint,
    count: c_uint,
) {
    // SAFETY: the compiler's function and data.
    unsafe { begin(function, data, threads, 0, Some(Shape::counted(count as u64))) };
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_sections_end() {
    finish();
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_sections_end_nowait() {
    me().member().work.leave();
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_sections_end_cancel() -> bool {
    finish_or_cancelled()
}

/// A `scope` with memory for all, or reductions over tasks.
#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_scope_start(list: *mut usize) {
    let thread = me();
    // SAFETY: the compiler's pointers.
    unsafe { enter_with(thread, Shape::counted(0), list, ptr::null_mut(), |_| {}) };
}

// --- single ------------------------------------------------------------------

/// Is this member the first to come to this construct?
pub fn is_first(thread: &Thread) -> bool {
    let member = thread.member();
    let mine = member.singles.get();
    member.singles.set(mine.wrapping_add(1));
    thread.team().meeting.0.single.is_first(mine, thread.team().size())
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_single_start() -> bool {
    is_first(me())
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_single_copy_start() -> *mut c_void {
    let thread = me();
    if is_first(thread) {
        return ptr::null_mut();
    }
    thread.team().meet(thread);
    thread.team().copyprivate.load(Relaxed)
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_single_copy_end(data: *mut c_void) {
    let thread = me();
    // The barrier publishes it.
    thread.team().copyprivate.store(data, Relaxed);
    thread.team().meet(thread);
}

// --- doacross ----------------------------------------------------------------

/// Begins a loop of `counts.len()` dimensions, of which the first is shared out.
///
/// # Safety
/// The pointers are the compiler's.
unsafe fn doacross<T: Number>(
    dimensions: c_uint,
    counts: *const u64,
    how: How,
    first: *mut T,
    last: *mut T,
    list: *mut usize,
    memory: *mut *mut c_void,
) -> bool {
    let thread = me();
    // SAFETY: as many as there are dimensions.
    let counts = unsafe { std::slice::from_raw_parts(counts, dimensions as usize) };
    // Chunks of equal size: progress is kept for each.
    let kind = if how.kind == Kind::Guided { Kind::Dynamic } else { how.kind };
    let chunk = if kind == Kind::Dynamic { how.chunk.max(1) } else { how.chunk };
    let iterations = counts[0];
    let shape = Shape { begin: 0, end: iterations, step: 1, iterations, kind, chunk, multiple: 1, ordered: false };
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
    unsafe {
        enter_with(thread, shape, list, memory, make);
        if first.is_null() { true } else { next(first, last) }
    }
}

impl Doacross {
    /// The word of the chunk with this iteration of the outermost loop.
    fn progress(&self, outer: u64) -> Option<&Progress<Linux>> {
        let index = match self.static_blocks {
            true => {
                let (block, rest) = (self.counts[0] / self.size, self.counts[0] % self.size);
                let longer = rest * (block + 1);
                if outer < longer { outer / (block + 1) } else { rest + (outer - longer) / block.max(1) }
            }
            false => outer / self.chunk,
        };
        self.done.get(index as usize)
    }

    /// An iteration's place among all, from 1.
    fn place(&self, iteration: &[u64]) -> u64 {
        let place = self
            .counts
            .iter()
            .zip(iteration)
            .fold(0u64, |place, (&count, &index)| place.wrapping_mul(count).wrapping_add(index));
        place.wrapping_add(1)
    }
}

/// What `work` makes of the current doacross loop and its share.
fn with_doacross<R>(work: impl FnOnce(&Doacross, &Share) -> R) -> Option<R> {
    let share = me().member().work.share()?;
    // SAFETY: stays as long as anybody is inside.
    let doacross = unsafe { share.doacross.load(Relaxed).as_ref() }?;
    Some(work(doacross, share))
}

#[unsafe(no_mangle)]
extern "C" fn wakeful_doacross_dimensions() -> c_uint {
    with_doacross(|doacross, _| doacross.counts.len() as c_uint).unwrap_or(1)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wakeful_doacross_await(iteration: *const u64) {
    with_doacross(|doacross, share| {
        // SAFETY: as many as there are dimensions.
        let iteration = unsafe { std::slice::from_raw_parts(iteration, doacross.counts.len()) };
        let place = doacross.place(iteration);
        if let Some(progress) = doacross.progress(iteration[0]) {
            progress.wait::<ByUser>(place, &share.changed);
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_doacross_post(iteration: *const u64) {
    with_doacross(|doacross, share| {
        // SAFETY: as many as there are dimensions.
        let iteration = unsafe { std::slice::from_raw_parts(iteration, doacross.counts.len()) };
        let place = doacross.place(iteration);
        if let Some(progress) = doacross.progress(iteration[0]) {
            progress.post(place, &share.changed);
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_doacross_ull_post(iteration: *const u64) {
    // SAFETY: the same.
    unsafe { GOMP_doacross_post(iteration) };
}

crate::in_c! {
    GOMP_doacross_wait => wakeful_doacross_wait;
    GOMP_doacross_ull_wait => wakeful_doacross_ull_wait;
}

/// The functions that begin such loops.
macro_rules! doacross_loops {
    ($($start:ident $start_ull:ident $kind:ident;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $start(
                dimensions: c_uint, counts: *const u64, chunk: c_long, first: *mut c_long, last: *mut c_long,
            ) -> bool {
                let (how, none) = (How::new(Kind::$kind, chunk), ptr::null_mut());
                // SAFETY: the compiler's pointers; likewise below.
                unsafe { doacross(dimensions, counts, how, first, last, none, ptr::null_mut()) }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $start_ull(
                dimensions: c_uint, counts: *const u64, chunk: u64, first: *mut u64, last: *mut u64,
            ) -> bool {
                let how = How { kind: Kind::$kind, chunk };
                // SAFETY: as above.
                unsafe { doacross(dimensions, counts, how, first, last, ptr::null_mut(), ptr::null_mut()) }
            }
        )*
    };
}

doacross_loops! {
    GOMP_loop_doacross_static_start GOMP_loop_ull_doacross_static_start Static;
    GOMP_loop_doacross_dynamic_start GOMP_loop_ull_doacross_dynamic_start Dynamic;
    GOMP_loop_doacross_guided_start GOMP_loop_ull_doacross_guided_start Guided;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_loop_doacross_runtime_start(
    dimensions: c_uint,
    counts: *const u64,
    first: *mut c_long,
    last: *mut c_long,
) -> bool {
    // SAFETY: the compiler's pointers; likewise below.
    unsafe { doacross(dimensions, counts, How::runtime(), first, last, ptr::null_mut(), ptr::null_mut()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_loop_ull_doacross_runtime_start(
    dimensions: c_uint,
    counts: *const u64,
    first: *mut u64,
    last: *mut u64,
) -> bool {
    // SAFETY: as above.
    unsafe { doacross(dimensions, counts, How::runtime(), first, last, ptr::null_mut(), ptr::null_mut()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_loop_doacross_start(
    dimensions: c_uint,
    counts: *const u64,
    kind: c_long,
    chunk: c_long,
    first: *mut c_long,
    last: *mut c_long,
    list: *mut usize,
    memory: *mut *mut c_void,
) -> bool {
    // SAFETY: as above.
    unsafe { doacross(dimensions, counts, How::by_number(kind, chunk), first, last, list, memory) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_loop_ull_doacross_start(
    dimensions: c_uint,
    counts: *const u64,
    kind: c_long,
    chunk: u64,
    first: *mut u64,
    last: *mut u64,
    list: *mut usize,
    memory: *mut *mut c_void,
) -> bool {
    // SAFETY: as above.
    unsafe { doacross(dimensions, counts, How::by_number(kind, chunk as i64), first, last, list, memory) }
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
