// SPDX-License-Identifier: MIT OR Apache-2.0
//! A line for each thread, in which it says which reader-writer lock it reads, if it does not count itself in
//! that lock. And the words that tell waiting readers when to look at their lock.
//!
//! Not in the arena: the lines must stay where they are when a fork moves on to another arena, and a thread's
//! line belongs to whoever has its id.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use platform::ThreadId;

use crate::futex;

#[repr(align(64))]
struct Line(AtomicPtr<()>);

const COUNT: usize = ThreadId::LIMIT as usize;
static LINES: [Line; COUNT] = [const { Line(AtomicPtr::new(ptr::null_mut())) }; COUNT];

/// The ids of all threads that ever were are below this. Not of the registry, which begins anew in a forked
/// child: the child's thread has another id there and may still hold what it reads under its old one.
static MOST: AtomicU32 = AtomicU32::new(1);

/// A thread is about to get this id.
pub fn announce(id: u32) {
    // ORDER: AcqRel, pairs with `most_threads`: who asked before us is seen by what we do after.
    MOST.fetch_max(id + 1, AcqRel);
}

/// See [`platform::Readers::most_threads`].
pub fn most_threads() -> u32 {
    // ORDER: AcqRel, see `announce`.
    MOST.fetch_add(0, AcqRel).min(ThreadId::LIMIT)
}

/// The thread's place.
#[inline]
pub fn place(thread: ThreadId) -> &'static AtomicPtr<()> {
    &LINES[(thread.0 % ThreadId::LIMIT) as usize].0
}

#[repr(align(64))]
struct Turn(AtomicU32);

/// BOUND: a line each. Locks that share one make each other's waiting readers look.
const TURNS: usize = 64;
static TURN: [Turn; TURNS] = [const { Turn(AtomicU32::new(0)) }; TURNS];

/// See [`platform::Readers::turn`].
pub fn turn(lock: *const ()) -> &'static AtomicU32 {
    &TURN[futex::hash(lock.addr()) as usize % TURNS].0
}
