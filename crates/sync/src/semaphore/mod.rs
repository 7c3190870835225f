// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counting semaphores.

mod wakeful;

pub use wakeful::{MAX, Step, Waiter, Wakeful};

use platform::{Deadline, Platform};

/// A counting semaphore: tokens that any thread may add and take.
pub trait RawSemaphore<P: Platform>: Send + Sync {
    /// One with this many tokens.
    fn new(tokens: u32) -> Self;

    /// Takes a token, waiting for one if there is none; false if the deadline passed first.
    fn acquire(&self, deadline: Option<Deadline>) -> bool;

    /// Takes a token if there is one.
    fn try_acquire(&self) -> bool;

    /// Adds a token; false if there are too many to count. The semaphore may be gone once another thread
    /// can have taken it.
    fn release(&self) -> bool;

    /// Tokens that nobody has taken, at some moment during the call.
    fn available(&self) -> u32;
}
