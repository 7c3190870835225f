// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mutual exclusion.

mod array_queue;
mod hardware;
mod mcs;
mod native;
mod queue;
mod queue_hs;
mod smart_q;
mod tas_b;
mod ticket;
mod ticket_np;
mod ttas;
mod wakeful;

pub use array_queue::{ArrayQueue, ArrayQueueNode};
pub use hardware::{Hardware, HardwareNp};
pub use mcs::{Mcs, McsNode};
pub use native::Native;
pub use queue::{Queue, QueueNp};
pub use queue_hs::{QueueHs, QueueHsNode};
pub use smart_q::{SmartQ, SmartQNode};
pub use tas_b::TasB;
pub(crate) use tas_b::{FIRST_BACKOFF, LAST_BACKOFF};
pub use ticket::Ticket;
pub use ticket_np::TicketNp;
pub use ttas::Ttas;
pub use wakeful::{Wakeful, publishes_from_now};

use platform::{Deadline, Platform};

/// A mutual-exclusion lock: the word and its protocol, no data and no guard.
///
/// The signature is the papers': `acquire_lock (L, I)`. The node `I` is the thread's place in line; a lock
/// that lives entirely in its own word has `Node = ()`.
pub trait RawMutex<P: Platform>: Send + Sync {
    /// What a thread brings to the lock and leaves there until it has released it.
    type Node: Default;

    /// A free lock.
    fn new() -> Self;

    /// Acquires the lock.
    ///
    /// # Safety
    /// `node` is not in use by another acquisition and stays where it is until `unlock` has returned.
    unsafe fn lock(&self, node: &Self::Node);

    /// Acquires the lock if that is possible without waiting.
    ///
    /// # Safety
    /// As for [`RawMutex::lock`], if it returns true.
    unsafe fn try_lock(&self, node: &Self::Node) -> bool;

    /// Tells the lock that the caller has just released it and will not come back soon, because it waits
    /// for something else. The lock must still exist. A hint, for locks that are kept for a thread that
    /// comes back at once.
    fn leaving(&self) {}

    /// Releases the lock.
    ///
    /// # Safety
    /// The caller acquired the lock with this `node` and has not released it since.
    unsafe fn unlock(&self, node: &Self::Node);
}

/// A lock that can give up waiting.
pub trait RawMutexTimed<P: Platform>: RawMutex<P> {
    /// Acquires the lock unless the deadline passes first; false if it did.
    ///
    /// # Safety
    /// As for [`RawMutex::lock`], if it returns true.
    unsafe fn lock_until(&self, node: &Self::Node, deadline: Deadline) -> bool;
}
