// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fork and join: a primary thread and its helpers go from region to region.
//!
//! The problem: a parallel region costs a fork and a join, and most programs have thousands of short ones.
//! Two barriers a region would cost two arrivals a member and two waits.
//!
//! The idea: one episode of the default barrier is both the end of a region and the beginning of the next.
//! Helpers arrive when they are through with a region, and wait there. The primary thread does not arrive
//! at the end. It looks until only itself is missing, which is the join. It arrives when it has written
//! what is to be run next, which is the fork.
//!
//! ```text
//! helper:   ... region 1 ... H1 arrive ------ wait ------ H2 read keep ... region 2 ... H1 arrive
//! primary:  ... region 1 ... J1 only I am missing?   (sequential part)   F1 write keep   F2 arrive   ... region 2 ...
//! ```
//!
//! # State
//!
//! The barrier's parties: the primary thread, and each helper from before its start until it leaves.
//! `keep`: helpers that stay; those with a higher number leave at H2. `forks`: how often F2 came. `forked`:
//! F2's episode, if it was not the last.
//!
//! # Invariants
//!
//! I1. What the primary thread writes before F2 is stable until J1 says that all helpers are back. I2. A
//! helper takes part in F2 number n exactly once, for each n from its start on. I3. A new helper is a party
//! before its thread begins (P1): the barrier does not open without it.
//!
//! # Protocol
//!
//! F1, F2, H1, H2, J1 as above. J1 looks first whether F2's episode has passed, for helpers may still be on
//! the way from the region before. P1. `recruit` adds a party; `dismissed` takes it back if there is no
//! thread. A helper whose arrival leaves one missing rings the primary thread's event. A helper that leaves
//! arrives as one party less, and rings likewise.
//!
//! # Memory order
//!
//! The barrier's: F2 -> H2 publishes the region, H1 -> J1 what helpers did. `keep` is Relaxed within that.
//!
//! # Under the scheduler
//!
//! A helper without a processor: the primary thread waits for it at the barrier, which decides by the
//! processors really to be had whether to spin, yield or sleep. Primary thread preempted: helpers wait as
//! at a barrier. Forked: the caller sees that the helpers are elsewhere, and uses another one. Killed: the
//! process dies with it.
//!
//! # Fairness and space
//!
//! All helpers come each time, also those whom the region does not need: after some regions in a row the
//! caller lets them go. 384 bytes.
//!
//! # Rejected
//!
//! A fork barrier and a join barrier: an arrival and a wait more. To offer each helper its part, as `team`
//! does: members of a region may wait for each other, so all must come.
//!
//! # Checked by
//!
//! `conformance`, `openmp`: real threads, loom, shuttle; twins that join early and that fork early are
//! caught.

use core::cell::Cell;

use platform::{Atomic, Ordering::*, Wide};

use super::{Apart, Event, Patience, await_or};
use crate::barrier::{BWakeful, Episode, RawBarrier, RawBarrierDynamic};

/// Where a primary thread and its helpers meet.
pub struct ForkJoin<P: Wide> {
    barrier: Apart<BWakeful<P>>,
    keep: Apart<P::AtomicU32>,
    forks: Cell<u32>,
    forked: Cell<Option<Episode>>,
}

// SAFETY: the cells are the primary thread's.
unsafe impl<P: Wide> Sync for ForkJoin<P> {}

impl<P: Wide> Default for ForkJoin<P> {
    fn default() -> Self {
        Self {
            barrier: Apart(BWakeful::new(1)),
            keep: Apart(Atomic::new(0)),
            forks: Cell::new(0),
            forked: Cell::new(None),
        }
    }
}

impl<P: Wide> ForkJoin<P> {
    /// Times that helpers were released, for [`ForkJoin::serve`]. Of the primary thread, as all that follow
    /// up to `join`.
    #[inline]
    pub fn forks(&self) -> u32 {
        self.forks.get()
    }

    /// One of the helpers that wait here looks at what there is to do.
    pub fn summon(&self) {
        self.barrier.0.summon(1);
    }

    /// Is the primary thread the only one that is missing? What is written before this look has to be fenced
    /// from it. If a helper is missing, nobody else need ring: that helper does when it arrives.
    #[inline]
    pub fn are_back(&self) -> bool {
        self.barrier.0.lacks_one()
    }

    /// A helper more, before its thread is made. P1.
    pub fn recruit(&self) {
        self.barrier.0.join();
    }

    /// Its thread could not be made.
    pub fn dismissed(&self) {
        self.barrier.0.arrive_and_drop();
    }

    /// Lets the helpers go on; those above `keep` leave. `begin` hears the number of this fork before they
    /// do. F1, F2.
    #[inline]
    pub fn fork(&self, keep: u32, begin: impl FnOnce(u32)) {
        // Writes only what changes: the line stays in the caches of those who read it in each region.
        if self.keep.0.load(Relaxed) != keep {
            self.keep.0.store(keep, Relaxed);
        }
        self.forks.set(self.forks.get().wrapping_add(1));
        begin(self.forks.get());
        self.forked.set(self.barrier.0.enter());
    }

    /// Waits until the helpers have come back and `rest` says that there is nothing else; does `work`
    /// whenever there is some. J1.
    #[inline]
    pub fn join<W: Patience>(
        &self,
        back: &Event<P>,
        rest: impl Fn() -> bool,
        has_work: impl Fn() -> bool,
        work: impl Fn(),
    ) {
        let barrier = &self.barrier.0;
        let forked = self.forked.get();
        let over =
            || forked.is_none_or(|episode| barrier.has_passed(&episode)) && barrier.lacks_one() && rest();
        loop {
            if has_work() {
                work();
            }
            if over() {
                return;
            }
            let done = || over() || has_work();
            match W::is_passive() {
                true => back.sleep_until(done),
                false => barrier.await_as_party(done, || back.sleep_until(done)),
            }
        }
    }

    /// A helper's life, from the fork after `forks` of them on. `region` runs a region. While it waits,
    /// `has_work` is asked whether to `work`; both hear how many forks there were. H1, H2.
    pub fn serve<W: Patience>(
        &self,
        number: u32,
        mut forks: u32,
        back: &Event<P>,
        has_work: impl Fn(u32) -> bool,
        work: impl Fn(u32),
        region: impl Fn(),
    ) {
        let barrier = &self.barrier.0;
        loop {
            if let Some(episode) = barrier.enter() {
                if episode.others() == 1 {
                    back.notify();
                }
                while !await_or::<W, P>(barrier, &episode, || has_work(forks)) {
                    work(forks);
                }
            }
            forks = forks.wrapping_add(1);
            if number > self.keep.0.load(Relaxed) {
                barrier.arrive_and_drop();
                return back.notify();
            }
            region();
        }
    }
}
