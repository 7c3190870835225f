// SPDX-License-Identifier: MIT OR Apache-2.0
//! A barrier that a party may free as soon as its own wait has returned, as POSIX allows. It counts the
//! threads inside.
//!
//! `inside`: bits 1-31 threads between arrival and return; bit 0 DRAINING: somebody sleeps until there are
//! none.
//!
//! | step | what happens |
//! |---|---|
//! | W5 | Leave `inside`. The last one out that finds DRAINING wakes the drainer, by the address alone. |
//! | F1 | `drain`: spin briefly, then set DRAINING and sleep while anybody is inside. |
//!
//! I5. A thread is counted inside before it arrives, and so before anybody is released.
//!
//! A barrier with nodes has no use for this, and no room for such a counter. It lies in memory that stays.
//!
//! Each change of `inside` ends F1's sleep or keeps it from beginning. W5 is one change for the count and the
//! look at DRAINING, so no wake-up is missed. W5 release -> F1 acquire: the memory may be freed.

use platform::{Atomic, AtomicInt, Ordering::*, Platform};

use super::episode::spin_for;
use super::limits::SPIN_PAUSES;
use super::{BWakeful, Mood};
use crate::barrier::{RawBarrier, RawBarrierDrained};

/// One thread inside, and the bit below.
const INSIDE: u32 = 2;
const DRAINING: u32 = 1;

/// [`BWakeful`] for programs that free it at once: see the head of this file. 28 bytes.
///
/// In Rust nobody can: a thread that waits borrows the barrier until it has come out.
#[repr(C)]
pub struct BWakefulDrained<P: Platform> {
    barrier: BWakeful<P>,
    inside: P::AtomicU32,
}

impl<P: Platform> BWakefulDrained<P> {
    /// As [`BWakeful::wait`].
    #[inline]
    pub fn wait(&self) -> bool {
        // Before our arrival, without which nobody can be in F1.
        self.inside.fetch_add(INSIDE, Relaxed);
        let serial = self.barrier.wait();
        let inside = &raw const self.inside;
        // ORDER: Release (W5), pairs with F1.
        if self.inside.fetch_sub(INSIDE, Release) == INSIDE | DRAINING {
            // The barrier may be gone by now; only the address is used.
            P::wake(inside, 1);
        }
        serial
    }
}

impl<P: Platform> RawBarrier<P> for BWakefulDrained<P> {
    type Place = ();
    type Member = ();

    fn new(parties: u32) -> Self {
        let barrier = BWakeful::<P>::new(parties);
        barrier.mood.begin(&barrier.episodes);
        Self { barrier, inside: Atomic::new(0) }
    }

    fn places(_: u32) -> usize {
        0
    }

    unsafe fn wait(&self, _: &[()], _: u32, _: &mut ()) -> bool {
        self.wait()
    }
}

impl<P: Platform> RawBarrierDrained<P> for BWakefulDrained<P> {
    fn drain(&self) {
        // Those who come out may be running, or run when we yield, as they did at the barrier.
        if !spin_for::<P>(SPIN_PAUSES, &|| self.inside.load(Relaxed) == 0) {
            let mut inside = self.inside.fetch_or(DRAINING, Relaxed) | DRAINING;
            while inside != DRAINING {
                P::wait(&self.inside, inside, None);
                inside = self.inside.load(Relaxed);
            }
        }
        // ORDER: Acquire (F1), pairs with W5.
        self.inside.swap(0, Acquire);
    }
}
