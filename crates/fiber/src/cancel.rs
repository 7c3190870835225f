// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cancellation: a fiber ends where it parks, sleeps or yields, or says so.
//!
//! Nothing is interrupted. The fiber that is cancelled finds it out at its next such *point*, and unwinds
//! from there: its destructors run, and who joins it gets [`Cancelled`] as the payload. A future that is
//! pending in `block_on` is at a point as well. A wait for a lock, a channel or a join is none, and neither
//! is a call of the kernel: code that waits there need not expect to unwind.
//!
//! # State
//! `Fiber::cancelled`: twice the number of the fiber that was cancelled last in this record, and 1 more until
//! that has found out.
//!
//! # Protocol
//! - C1. Cancel: raise the word to that of this fiber, then make it ready (G1 or G2 of `token.rs`). It never
//!   falls, so a handle of a fiber that was here before does nothing to this one.
//! - C2. At a point: if the word is this fiber's, take the 1 away and unwind. A point that waits looks after
//!   each token. So it finds C1, or is made ready, or takes the token of G2, and looks again.
//!
//! Each cancellation is delivered once. So code after `catch_unwind` waits as before. A destructor that it
//! runs waits as in a panic: it blocks the kernel thread, whose seat goes to another.

use core::fmt;
use core::sync::atomic::Ordering::Relaxed;
use std::panic::resume_unwind;

use crate::carrier;
use crate::record::Fiber;

/// What the join of a fiber that was cancelled returns as its error. No message was printed.
pub struct Cancelled(());

impl fmt::Debug for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cancelled")
    }
}

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fiber was cancelled")
    }
}

impl core::error::Error for Cancelled {}

/// C1. `number`: which of the fibers that were in this record.
pub fn cancel(fiber: &Fiber, number: u64) {
    fiber.cancelled.fetch_max(number << 1 | 1, Relaxed);
    fiber.nudge();
}

/// Was it cancelled, and has not found out?
#[inline]
pub fn is_due(fiber: &Fiber) -> bool {
    fiber.cancelled.load(Relaxed) == fiber.claim.load(Relaxed) | 1
}

/// C2 without unwinding: was the calling fiber cancelled? It has found out now.
pub fn take() -> bool {
    // SAFETY: the calling fiber runs.
    unsafe { carrier::current().as_ref() }.is_some_and(|fiber| {
        let due = fiber.claim.load(Relaxed) | 1;
        is_due(fiber) && fiber.cancelled.compare_exchange(due, due - 1, Relaxed, Relaxed).is_ok()
    })
}

/// A place where the calling fiber ends, if it was cancelled ([`JoinHandle::cancel`]). Nothing outside of
/// fibers, and while it unwinds.
///
/// [`JoinHandle::cancel`]: crate::thread::JoinHandle::cancel
#[inline]
pub fn cancellation_point() {
    // SAFETY: as above.
    if unsafe { carrier::current().as_ref() }.is_some_and(is_due) && !std::thread::panicking() && take() {
        resume_unwind(Box::new(Cancelled(())));
    }
}
