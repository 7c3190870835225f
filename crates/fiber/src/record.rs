// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a fiber is: a record on top of its stack, made once and used for one fiber after another.

use core::alloc::Layout;
use core::any::Any;
use core::cell::{Cell, UnsafeCell};
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::Arc;

use corosensei::{Coroutine, Yielder};
use linux::Kernel;

use crate::abode::Abode;
use crate::done::Done;
use crate::stack::{self, Part};
use crate::token::Token;

/// Why a fiber switched away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is ready, after the others.
    Yields,
    /// It is ready, and its carrier has no seat.
    GivesWay,
    /// It waits for its token.
    Parks,
}

/// Who has fibers made ready.
pub trait Home: Sync {
    /// The fiber can go on; nobody else says so.
    fn ready(&self, fiber: *mut Fiber);
    /// The same, for a signal handler: it may have interrupted what this thread has for itself.
    fn post(&self, fiber: *mut Fiber);
    /// A queue of a policy has dropped the fiber, which is ready.
    fn again(&self, fiber: *mut Fiber);
    /// HINT: false if it can only go on with a carrier that is blocked, or has just come back.
    fn can_run(&self, fiber: &Fiber) -> bool;
    /// Nobody refers to this fiber any more, and it was cleared.
    fn free(&self, fiber: *mut Fiber);
}

/// What a scope and its fibers share.
pub struct Scope {
    pub running: AtomicU32,
    pub panicked: AtomicU32,
}

/// What a fiber keeps for itself: see [`crate::local`].
pub type Locals = Vec<(usize, Box<dyn Any>)>;

/// A fiber. References to it are counted in `refs`, and its memory stays a record for ever.
#[repr(C, align(64))]
pub struct Fiber {
    pub token: Token<Kernel>,
    pub refs: AtomicU32,
    pub done: Done<Kernel>,
    /// May go on with another carrier.
    pub movable: Cell<bool>,
    /// For the policy.
    pub rank: Cell<u32>,
    /// Twice how many fibers the record has been; 1 more while a [`crate::thread::RawHandle`] waits for it.
    pub claim: AtomicU64,
    /// See `cancel.rs`.
    pub cancelled: AtomicU64,
    /// Its stack is 2 to this power times as long as the runtime's usual ones.
    pub class: u8,
    pub started: Cell<bool>,
    /// The carrier with which it goes on: with which it began, unless it is a task or movable.
    pub abode: Abode<Kernel>,
    /// Its joiner runs it, and nobody else waits for it.
    pub nested: Cell<bool>,
    /// Belongs to whatever list the fiber is in; a fiber is in one at a time.
    pub next: Cell<*mut Fiber>,
    pub yielder: Cell<*const Yielder<(), Why>>,
    pub coroutine: UnsafeCell<MaybeUninit<Coroutine<(), Why, (), Part>>>,
    /// The scope that waits for its end; null: none.
    pub scope: Cell<*const Scope>,
    /// The closure, then the result.
    pub packet: Cell<*mut u8>,
    /// How the packet was allocated, if it was too big for the stack.
    pub allocated: Cell<Option<Layout>>,
    pub runtime: &'static dyn Home,
    pub name: UnsafeCell<Option<Arc<str>>>,
    pub locals: UnsafeCell<Locals>,
    pub stack: usize,
    /// Its next higher neighbour begins below this.
    pub top: usize,
}

// SAFETY: the cells belong to whoever runs the fiber, or, before and after, to who makes or frees it. Tokens
// and queues publish them from one to the next.
unsafe impl Sync for Fiber {}

impl Fiber {
    /// Makes a record on top of this stack.
    ///
    /// # Safety
    /// `stack` is the lowest address of a stack of this stride, with its guard, that nobody uses.
    pub unsafe fn make(stack: usize, stride: usize, class: u8, runtime: &'static dyn Home) -> *mut Fiber {
        let place = stack::record(stack, stride).as_ptr();
        // SAFETY: inside the stack, aligned, and nobody else's.
        unsafe {
            place.write(Fiber {
                token: Token::new(),
                refs: AtomicU32::new(0),
                done: Done::default(),
                movable: Cell::new(false),
                rank: Cell::new(0),
                claim: AtomicU64::new(0),
                cancelled: AtomicU64::new(0),
                class,
                started: Cell::new(false),
                abode: Abode::default(),
                nested: Cell::new(false),
                next: Cell::new(null_mut()),
                yielder: Cell::new(core::ptr::null()),
                coroutine: UnsafeCell::new(MaybeUninit::uninit()),
                scope: Cell::new(core::ptr::null()),
                packet: Cell::new(null_mut()),
                allocated: Cell::new(None),
                runtime,
                name: UnsafeCell::new(None),
                locals: UnsafeCell::new(Vec::new()),
                stack,
                top: place.addr(),
            });
        }
        place
    }

    /// Room for what the fiber is to run and what it returns, below the record; the stack begins below that.
    #[inline]
    pub fn place(&self, size: usize, align: usize) -> usize {
        (self.top - size) & !(align.max(16) - 1)
    }

    /// The stack below this address.
    #[inline]
    pub fn part(&self, base: usize) -> Part {
        Part::new(self.stack, base)
    }

    /// Bytes of stack.
    pub fn size(&self) -> usize {
        self.top - self.stack
    }

    /// The name, if it has one.
    pub fn name(&self) -> Option<&str> {
        // SAFETY: written before the fiber is published, and not while somebody has a reference.
        unsafe { (*self.name.get()).as_deref() }
    }

    /// Ends the wait of [`crate::thread::park`].
    pub fn unpark(&self) {
        self.go_on(self.token.unpark());
    }

    /// Has the fiber look again at what it waits for.
    pub fn nudge(&self) {
        self.go_on(self.token.give());
    }

    /// As [`Fiber::nudge`], for a signal handler.
    pub fn post(&self) {
        if self.token.give() {
            self.runtime.post(core::ptr::from_ref(self).cast_mut());
        }
    }

    #[inline]
    fn go_on(&self, parked: bool) {
        if parked {
            self.runtime.ready(core::ptr::from_ref(self).cast_mut());
        }
    }

    /// One reference more.
    pub fn retain(&self) {
        // As `Arc`: handles that are forgotten must not add up to a fiber that is freed too early.
        if self.refs.fetch_add(1, Relaxed) > i32::MAX as u32 {
            std::process::abort();
        }
    }

    /// One reference less. True: it was the last one, and the caller frees the fiber.
    #[must_use]
    pub fn release(&self) -> bool {
        // Alone, nobody can make it more: no locked instruction.
        // ORDER: Acquire, AcqRel: who frees comes after all who used.
        self.refs.load(Acquire) == 1 || self.refs.fetch_sub(1, AcqRel) == 1
    }

    /// Empties a record that nobody refers to any more.
    ///
    /// # Safety
    /// The caller dropped the last reference, and the fiber has ended.
    pub unsafe fn clear(&self) {
        if let Some(layout) = self.allocated.take() {
            // SAFETY: so it was allocated, and it is empty.
            unsafe { std::alloc::dealloc(self.packet.get(), layout) };
        }
        // SAFETY: nobody else has it.
        unsafe {
            if (*self.name.get()).is_some() {
                *self.name.get() = None;
            }
        }
    }
}

impl core::fmt::Debug for Fiber {
    /// Words only: whoever runs or frees the fiber may write the rest now.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Fiber")
            .field("token", &self.token.word())
            .field("done", &self.done.word())
            .field("home", &self.abode.home())
            .field("refs", &self.refs.load(Relaxed))
            .finish_non_exhaustive()
    }
}
