// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers aside: bias, the readers' places, and the writer that ends both.
//!
//! A place is one word of a thread ([`platform::Readers::reading`]). A reader that is in without being
//! counted has the lock's address there.
//!
//! | step | what happens |
//! |---|---|
//! | B0 | A counted reader meets another, once in 64 releases: count. After QUIET_ENOUGH times set BIASED. |
//! | B1 | A reader finds BIASED: compare-and-swap the lock into the own place, if that is empty. |
//! | B2 | Done if the state is still BIASED, without demand or upgrade. Else empty the place, and A1. |
//! | B3 | A writer takes WRITER, clears BIASED and sets UPGRADABLE in one step. It waits for each place. |
//! | B4 | A reader with the lock in its place leaves by emptying that. |
//! | B5 | READERS is 0: in one step with seeing that, the writer clears UPGRADABLE. |
//!
//! A writer that may not wait (`try`, deadline) goes back, setting BIASED again. It does not sleep: the
//! reader would have to look at the lock after leaving it (I5). So it naps.
//!
//! B1 against B3 is store, then look, on both sides. B3 writes each place even where it finds nothing. So
//! either B3 comes before B1 in the place's order, and B2 sees the bias gone; or B3 sees the reader.
//!
//! A recursive reader goes in beside a writer in B3 (A5): it may have the lock in its place, or have had it
//! there.

use core::ptr;
use platform::{Atomic, Ordering::*, Readers, ThreadId};

use super::limits::{self, *};
use super::word::*;
use super::{Until, Wakeful};
use crate::wait::{Preemption, look};

/// In `owner`, above the thread's id: how often the versions went round while readers met and nobody wrote.
const QUIET: u32 = 1 << 12;

impl<P: Readers, N: Preemption> Wakeful<P, N> {
    /// B1. Reads without a write to the lock.
    #[inline]
    pub(super) fn read_aside(&self) -> bool {
        let me = P::current();
        if me == ThreadId::NONE {
            P::register_lazily();
            return false;
        }
        let place = P::reading(me);
        if !place.load(Relaxed).is_null() {
            return false;
        }
        // ORDER: Acquire (B1), pairs with B3: if a writer was here before us, we see what it did to the state
        // before it looked. Compared, because in a forked child another thread may have our id until it
        // registers anew: its place must not be lost.
        if place.compare_exchange(ptr::null_mut(), self.address(), Acquire, Relaxed).is_err() {
            return false;
        }
        // ORDER: Acquire (B2), pairs with R2.
        if self.state.load(Acquire) & (BIASED | DEMAND | UPGRADING | WRITER) == BIASED {
            return true;
        }
        // A read-modify-write, which continues what B4 has released here before.
        if place.compare_exchange(self.address(), ptr::null_mut(), Relaxed, Relaxed).is_err() {
            // Another thread of our id, which is counted, has left by our place: we leave by its count.
            self.leave_count();
        }
        false
    }

    /// B4; false if the lock is not there.
    #[inline(always)]
    pub(super) fn leave_place(&self, place: &P::AtomicPtr<()>) -> bool {
        // ORDER: Release (B4), pairs with B3: the writer's changes come after our reads.
        place.load(Relaxed) == self.address()
            && place.compare_exchange(self.address(), ptr::null_mut(), Release, Relaxed).is_ok()
    }

    /// This lock in the places of the readers that it does not count.
    #[inline(always)]
    fn address(&self) -> *mut () {
        ptr::from_ref(self).cast::<()>().cast_mut()
    }

    /// B0. A reader, inside, has met another reader, and it is time to see whether anybody writes at all.
    #[cold]
    #[inline(never)]
    pub(super) fn readers_meet(&self) {
        // HINT: a writer's store may get lost, or ours: then the bias comes too early, or late.
        let owner = self.owner.load(Relaxed);
        if owner / QUIET + 1 < QUIET_ENOUGH.min(P::PAUSES) {
            self.owner.store(owner + QUIET, Relaxed);
        } else {
            let state = self.state.load(Relaxed);
            // A writer beside a reader: another thread has released that reader's lock. A change meanwhile:
            // some other time.
            if state & (BIASED | DEMAND | UPGRADABLE | WRITER) == 0 {
                let _ = self.state.compare_exchange(state, state | BIASED, Relaxed, Relaxed);
            }
        }
    }

    /// B3. The calling thread has taken WRITER from a biased state, and waits for the readers who are not
    /// counted. False if it may not wait so long.
    #[cold]
    #[inline(never)]
    fn drain(&self, until: Until) -> bool {
        for thread in (1..P::most_threads()).map(ThreadId) {
            let place = P::reading(thread);
            let since = P::now_ns();
            loop {
                let seen = place.load(Relaxed);
                if seen != self.address() {
                    // ORDER: AcqRel (B3): Acquire pairs with B4; Release pairs with B1: who comes after this
                    // sees that the bias is gone.
                    if place.compare_exchange(seen, seen, AcqRel, Relaxed).is_ok() {
                        break;
                    }
                    continue;
                }
                match until {
                    Until::Now => return false,
                    Until::Deadline(deadline) if P::past(deadline) => return false,
                    _ => {}
                }
                // HINT: wrong either way, it costs a spin or a nap.
                let waited = P::now_ns() - since;
                if waited < limits::spin::<P>() && look::may_run_after::<P>(thread, waited) {
                    P::pause();
                } else {
                    P::nap(limits::nap::<P>());
                }
            }
        }
        // A recursive reader may have counted itself meanwhile (A5).
        loop {
            let word = self.state.load(Relaxed);
            if word & READERS == 0 {
                // ORDER: Acquire (B5), pairs with R1.
                if self.state.compare_exchange(word, word & !UPGRADABLE, Acquire, Relaxed).is_ok() {
                    return true;
                }
                continue;
            }
            match until {
                Until::Now => return false,
                Until::Deadline(deadline) if P::past(deadline) => return false,
                _ => P::nap(limits::nap::<P>()),
            }
        }
    }

    /// The calling thread has taken WRITER from this state: is it alone? If not, and it may not wait, it
    /// keeps `instead`.
    #[inline]
    pub(super) fn alone(&self, word: u32, until: Until, instead: u32) -> bool {
        self.owner.store(P::current().0, Relaxed);
        if word & BIASED == 0 || self.drain(until) {
            return true;
        }
        self.release(DRAINING, instead);
        false
    }
}
