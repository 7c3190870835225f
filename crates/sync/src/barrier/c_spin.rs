// SPDX-License-Identifier: MIT OR Apache-2.0
//! `c-spin`: a counter and a sense; everybody spins.
//!
//! The baseline of TR 1994, section 5.4.1. Unchanged: figure 8 without its semaphores, and so without its
//! lock. Choose it with a processor for each thread and nobody else on the machine.
//!
//! # State
//!
//! `count`: members that have arrived. `sense`: 0 or 1, turned by the last one. Private: the sense that the
//! member waits for.
//!
//! # Invariants
//!
//! I1. `count` is the number of members that have arrived in this episode; the last one sets it to 0 before
//! it turns the sense.
//! I2. A member waits for a sense that only the last arrival of its own episode writes, and that cannot
//! turn back before the member itself has arrived again.
//!
//! # Protocol
//!
//! A1. Flip the private sense. A2. Increment the counter. A3. The last one: counter to 0, then A4. the
//! global sense to its own. A5. The others spin until they are equal.
//!
//! # Memory order
//!
//! The counter is a chain of AcqRel increments, so the last one has seen what all wrote; its release of the
//! sense -> the waiters' acquire publishes it to all, and the counter's 0 with it.
//!
//! # Under the scheduler
//!
//! Oblivious. A member without a processor costs everybody who spins a slice, and with more threads than
//! processors there always is one.
//!
//! # Fairness and space
//!
//! 12 bytes on one line. Each arrival disturbs those who spin.
//!
//! # Rejected
//!
//! Nothing: it is the yardstick.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; twins without a sense, that clear the counter late (I1),
//! that open one too early, and with two serial ones are caught.

use core::marker::PhantomData;
use platform::{Atomic, AtomicInt, Ordering::*, Platform};

use super::{RawBarrier, Sense};

/// Centralized, spinning.
pub struct CSpin<P: Platform> {
    parties: u32,
    count: P::AtomicU32,
    sense: P::AtomicU32,
    platform: PhantomData<P>,
}

impl<P: Platform> RawBarrier<P> for CSpin<P> {
    type Place = ();
    type Member = Sense;

    fn new(parties: u32) -> Self {
        let zero = || P::AtomicU32::new(0);
        Self { parties: parties.max(1), count: zero(), sense: zero(), platform: PhantomData }
    }

    fn places(_: u32) -> usize {
        0
    }

    #[inline]
    unsafe fn wait(&self, _: &[()], _: u32, member: &mut Sense) -> bool {
        let sense = member.flip();
        // ORDER: AcqRel (A2), a chain that ends at the last one.
        if self.count.fetch_add(1, AcqRel) == self.parties - 1 {
            self.count.store(0, Relaxed);
            // ORDER: Release (A4), pairs with A5.
            self.sense.store(sense, Release);
            return true;
        }
        // ORDER: Acquire (A5), pairs with A4.
        while self.sense.load(Acquire) != sense {
            P::pause();
        }
        false
    }
}
