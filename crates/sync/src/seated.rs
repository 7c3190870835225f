// SPDX-License-Identifier: MIT OR Apache-2.0
//! A barrier of the papers for threads that nobody has numbered, as those of `pthread_barrier_wait` are.
//!
//! The papers' barriers know their members: each has an index, and variables of its own. Here a thread takes
//! a *seat* for one episode, and the seat has both. Choose it where a barrier is named by a user.
//!
//! # State
//!
//! `next`: the seat of the next thread to come, 0 to n - 1, for n parties. Each seat: a lock, and the
//! member's variables, which the lock guards.
//!
//! # Invariants
//!
//! I1. Of the first k n threads to come, each seat is promised to exactly k (S1 goes round).
//! I2. A member's variables are used by the thread that has its seat (S2), for one whole episode.
//! I3. A seat is used once in each episode: the barrier does not let its member go before (S3).
//!
//! # Protocol
//!
//! | step | what happens |
//! |---|---|
//! | S1 | Take the number in `next`, and put the following one there. |
//! | S2 | Lock the seat of that number. It may belong yet to a member on its way out. |
//! | S3 S4 | Wait at the barrier as this member. Unlock the seat. |
//! | D1 | To drain: lock each seat, and unlock it. |
//!
//! It is live: a thread at S2 waits for one that S3 has released, or that waits for its own episode. By I1
//! that episode lacks no seat for which a thread has not come.
//!
//! # Memory order
//!
//! S4 -> S2, by the seat's lock: publishes the member's variables. S1 needs none. D1: whoever drains sees
//! what all members did.
//!
//! # Under the scheduler
//!
//! A thread is preempted between S1 and S3: the others wait, as if it had not come. One is preempted between
//! S3 and S4: whoever has its seat in the next episode sleeps at S2. Killed while waiting: the barrier has a
//! party too few for good, as without seats.
//!
//! # Fairness and space
//!
//! A line or two a seat. With more threads than parties, any of those at S2 may get the seat.
//!
//! # Rejected
//!
//! A seat by thread: it needs a table, and a program may bring other threads in each episode.
//!
//! # Checked by
//!
//! `conformance`: threads, loom, shuttle, also with more threads than parties; the twin without the lock.

use core::cell::UnsafeCell;

use platform::{Atomic, Ordering::Relaxed, Platform};

use crate::barrier::RawBarrier;
use crate::mutex::{Native, RawMutex};

/// What one member has: the lock that says who is it, and its variables.
#[repr(align(128))]
pub struct Seat<P: Platform, M> {
    taken: Native<P>,
    member: UnsafeCell<M>,
}

// SAFETY: the lock guards the member (I2).
unsafe impl<P: Platform, M: Send> Sync for Seat<P, M> {}

impl<P: Platform, M: Default> Default for Seat<P, M> {
    fn default() -> Self {
        Self { taken: Native::new(), member: UnsafeCell::new(M::default()) }
    }
}

/// A barrier, with all that its members need.
pub struct Seated<'a, P: Platform, B: RawBarrier<P>> {
    /// The barrier.
    pub barrier: &'a B,
    /// As many as [`RawBarrier::places`] says.
    pub places: &'a [B::Place],
    /// As many as the barrier has parties.
    pub seats: &'a [Seat<P, B::Member>],
    /// Zero at first.
    pub next: &'a P::AtomicU32,
}

impl<P: Platform, B: RawBarrier<P>> Seated<'_, P, B> {
    /// Waits, for whoever comes. As [`RawBarrier::wait`].
    ///
    /// # Safety
    /// All threads bring the same parts, which stay where they are and which nobody else uses.
    pub unsafe fn wait(&self) -> bool {
        let index = self.number();
        // SAFETY: as promised; an index is below the number of seats.
        unsafe { self.wait_as(index) }
    }

    /// Waits as this member (S2 to S4).
    ///
    /// # Safety
    /// As [`Seated::wait`]; the index is below the number of parties.
    pub unsafe fn wait_as(&self, index: u32) -> bool {
        let seat = &self.seats[index as usize];
        // SAFETY: released below; the node is (). By I2 and I3 the member is ours, and has been brought with
        // this index in each episode.
        unsafe {
            seat.taken.lock(&());
            let serial = self.barrier.wait(self.places, index, &mut *seat.member.get());
            seat.taken.unlock(&());
            serial
        }
    }

    /// S1.
    fn number(&self) -> u32 {
        let following = |number: u32| if number + 1 < self.seats.len() as u32 { number + 1 } else { 0 };
        let mut number = self.next.load(Relaxed);
        loop {
            match self.next.compare_exchange_weak(number, following(number), Relaxed, Relaxed) {
                Ok(_) => return number,
                Err(now) => number = now,
            }
        }
    }

    /// Returns when everybody has left whom complete episodes have released (D1). Nobody may be waiting.
    pub fn drain(&self) {
        for seat in self.seats {
            // SAFETY: released at once; the node is ().
            unsafe {
                seat.taken.lock(&());
                seat.taken.unlock(&());
            }
        }
    }
}
