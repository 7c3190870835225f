// SPDX-License-Identifier: MIT OR Apache-2.0
//! `c-block`: a counter and a semaphore; everybody sleeps.
//!
//! The baseline of TR 1994, section 5.4.1. Unchanged, but that the units come at once ("Rejected"). Choose
//! it where processors must not be burnt and rounds are long.
//!
//! # State
//!
//! `count`: members that have arrived. `wakeup`: a semaphore for each sense. Private: the member's sense.
//!
//! # Invariants
//!
//! I1. As in `c-spin`. I2. An episode puts as many units into its semaphore as members wait there, and all
//! are taken before the semaphore is used again, two episodes later: the episode between needs everybody.
//!
//! # Protocol
//!
//! A1. Flip the private sense. A2. Increment the counter. A3. The last one: counter to 0, then A4. N - 1
//! times V. A5. The others: P.
//!
//! # Memory order
//!
//! The counter is a chain of AcqRel increments. A4 release -> A5 acquire publishes all to all, and the
//! counter's 0.
//!
//! # Under the scheduler
//!
//! Nobody burns a processor. Each member but the last is switched away and woken again in each round,
//! whether that was needed or not; waking an idle processor is what takes longest.
//!
//! # Fairness and space
//!
//! 16 bytes.
//!
//! # Rejected
//!
//! One V a member, as the papers have it: a system call each. The semaphore takes all units at once.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; a twin that wakes only those it has seen asleep is caught,
//! and so is the barrier itself when nobody is woken.

use platform::{Atomic, AtomicInt, Ordering::*, Platform};

use super::{RawBarrier, Semaphore, Sense};

/// Centralized, sleeping.
pub struct CBlock<P: Platform> {
    parties: u32,
    count: P::AtomicU32,
    wakeup: [Semaphore<P>; 2],
}

impl<P: Platform> RawBarrier<P> for CBlock<P> {
    type Place = ();
    type Member = Sense;

    fn new(parties: u32) -> Self {
        Self {
            parties: parties.max(1),
            count: P::AtomicU32::new(0),
            wakeup: [Semaphore::new(), Semaphore::new()],
        }
    }

    fn places(_: u32) -> usize {
        0
    }

    #[inline]
    unsafe fn wait(&self, _: &[()], _: u32, member: &mut Sense) -> bool {
        let wakeup = &self.wakeup[member.flip() as usize];
        // ORDER: AcqRel (A2), a chain that ends at the last one.
        let last = self.count.fetch_add(1, AcqRel) == self.parties - 1;
        if last {
            self.count.store(0, Relaxed);
            wakeup.release(self.parties - 1);
        } else {
            wakeup.acquire();
        }
        last
    }
}
