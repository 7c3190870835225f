// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the members share about a worksharing construct, and where each is in it.
//!
//! A loop is its iterations' numbers, 0 and up, in 64 bits, whatever type the program counts in: wrapping
//! arithmetic makes values of them again. What members share about one construct is a [`Share`], of which a
//! team has a ring: a member is ahead of another by as many constructs at most.

use std::cell::Cell;
use std::ffi::{c_long, c_void};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use linux::Linux;
use sync::openmp::{Iterations, Order, Turn};

use crate::doacross::Doacross;
use crate::icv::Kind;
use crate::memory::{self, Own};
use crate::wait::{ByUser, Event};

/// Worksharing constructs that the fastest member may be ahead of the slowest.
/// BOUND: bytes, 128 each; LLVM's runtime has 7.
pub const SHARES: usize = 16;

/// Which of some iterations are over.
pub type Over = sync::openmp::Over<Linux>;

/// A loop as the program has it.
#[derive(Clone, Copy, PartialEq)]
pub struct Shape {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) step: u64,
    pub(crate) iterations: u64,
    pub(crate) kind: Kind,
    /// 0: none.
    pub(crate) chunk: u64,
    /// Of a guided loop: its chunks, but for the last, are multiples of this.
    pub(crate) multiple: u64,
    pub(crate) ordered: bool,
}

/// Iterations of a signed loop.
#[inline]
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

impl Shape {
    #[inline]
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
    #[inline]
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
    #[inline]
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

    #[inline]
    pub fn is_shared(&self) -> bool {
        self.kind != Kind::Static || self.ordered
    }

    /// Where an iteration begins; the last one ends where the loop does.
    #[inline]
    pub fn value(&self, iteration: u64) -> u64 {
        if iteration >= self.iterations {
            self.end
        } else {
            self.begin.wrapping_add(iteration.wrapping_mul(self.step))
        }
    }
}

/// What the members share about a construct.
#[repr(C, align(128))]
pub struct Share {
    pub(crate) turn: Turn<Linux>,
    pub(crate) iterations: Iterations<Linux>,
    pub(crate) order: Order<Linux>,
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

    /// BOUND: bytes; as much as an allocator gives.
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

    #[inline]
    pub(crate) fn restart(&self) {
        self.iterations.restart();
        self.order.restart();
    }

    /// For a combined construct, before anybody else can come.
    #[inline]
    pub fn open_alone(&self, construct: u32, size: u32) {
        self.restart();
        self.turn.open_alone(construct, size);
    }

    /// For a construct; the first to come makes what belongs to it.
    #[inline]
    pub(crate) fn open(&self, construct: u32, size: u32, make: impl FnOnce(&Self)) {
        self.turn.open::<ByUser>(construct, size, || {
            self.restart();
            make(self);
        });
    }

    /// The last to leave makes it free for the construct that comes a round later.
    #[inline]
    pub(crate) fn leave(&self) {
        self.turn.leave(SHARES as u32, || self.clear());
    }

    #[inline]
    pub(crate) fn clear(&self) {
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
    pub(crate) fn cancel(&self) {
        self.iterations.cancel();
    }
}

/// The loop, or sections, in which a member is.
#[derive(Default)]
pub struct Loop {
    pub(crate) shape: Cell<Option<Shape>>,
    pub(crate) share: Cell<Option<*const Share>>,
    /// Chunks taken, where they are dealt out in turn.
    pub(crate) turns: Cell<u64>,
    /// The iterations that it has.
    pub(crate) first: Cell<u64>,
    pub(crate) last: Cell<u64>,
    /// Has it left its place in the order?
    pub(crate) ordered: Cell<bool>,
}

impl How {
    pub fn new(kind: Kind, chunk: i64) -> Self {
        Self { kind, chunk: chunk.max(0) as u64 }
    }
}

impl Loop {
    #[inline]
    pub fn share(&self) -> Option<&Share> {
        // SAFETY: the team's, which stays.
        self.share.get().map(|share| unsafe { &*share })
    }

    #[inline]
    pub(crate) fn enter(&self, shape: Shape, share: Option<&Share>) {
        self.shape.set(Some(shape));
        self.share.set(share.map(ptr::from_ref));
        self.turns.set(0);
        self.first.set(0);
        self.last.set(0);
        self.ordered.set(false);
    }

    /// Static: a block for each, or chunks in turn.
    #[inline]
    pub(crate) fn deal(&self, shape: &Shape, size: u64, number: u64) -> Option<(u64, u64)> {
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

    pub(crate) fn chunk(&self) -> u64 {
        self.shape.get().map_or(1, |shape| shape.chunk)
    }

    /// What it was in is made anew.
    pub fn abandon(&self) {
        self.share.set(None);
    }
}
