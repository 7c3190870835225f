// SPDX-License-Identifier: MIT OR Apache-2.0
//! `scal-sc`, `scal-sc-yield`: members of one processor sleep or yield, one of each processor takes part in a
//! tree.
//!
//! The scalable scheduler-conscious barrier: TR 1994, figures 11 and 12, with kernel extension KE-3. Choose
//! it on many processors that are divided among programs, where threads stay on theirs. `scal-sc-yield` is
//! the code that the paper ran on its KSR (section 5.4): a member that is not the last of its processor
//! yields in a loop and looks at the wake-up flag (`global_sense`), and nobody wakes it.
//!
//! Changed:
//! - Which processor a member belongs to is not the kernel's word (`partition->processor_ids`) but `index %
//!   processors`: Linux moves threads as it likes. Where nobody moves them, `taskset` or an OpenMP runtime
//!   puts them there.
//! - The counter of a processor is set to 0 before its last member goes into the tree, not after it has
//!   come out (figure 11). As printed, a member that a reorganization has moved to another processor may
//!   arrive there before that processor's last one has cleared its counter; its arrival is lost, or it
//!   takes itself for the last.
//! - Reorganization (figure 12) needs no phase of its own, in which members would spin for representatives
//!   that may not run: flags hold numbers of episodes, so a new tree needs no preparation, and all members
//!   learn of it in the same episode, from the root.
//!
//! # State
//!
//! A place for each processor: how many of its members have arrived, a semaphore for each sense, a flag for
//! each of four children in the tree. Shared: the wake-up flag; the partition by which this episode goes,
//! `processors` and `generation`. Private: the episode.
//!
//! # Invariants
//!
//! I1. All members of an episode go by the same partition: only the root writes it, when all have arrived
//! and none has been released.
//! I2. A processor's counter is 0 when the first of its members of an episode arrives: it was set to 0
//! before the tree knew of the last one.
//! I3. An episode puts as many units into a semaphore as members wait there, and all are taken before it is
//! used again, two episodes later.
//! I4. The flag that a representative waits for holds an older episode than its own until the child sets
//! it. (Modulo 2^31: a flag that no tree has used for exactly so many would pass for set.)
//!
//! # Protocol
//!
//! A1. Count the episode; find the processor. A2. Increment its counter. A3. Not the last of the processor:
//! P, or yield until the wake-up flag is set. A4. The last: counter to 0, wait for the flags of the
//! children, A5. set the own flag at the parent, A6. wait for the wake-up flag. R1. The root, instead: copy
//! the partition if its generation has changed; R2. set the wake-up flag. R3. The last of each processor: V
//! for the others, if they sleep.
//!
//! # Memory order
//!
//! The counter is a chain of AcqRel increments; A5 release -> A4 acquire up the tree, R2 release -> A6
//! acquire down, R3 release -> A3 acquire to the others; those that yield acquire R2's release themselves.
//! So I1 holds for the partition too.
//!
//! # Under the scheduler
//!
//! Threads on their processors: as few switches as there can be. Those that yield need a scheduler that runs
//! a processor's other threads first. One processor's last member without its processor: the others'
//! representatives burn theirs. Hint stale: for one episode a partition that is gone, on `linux`, which looks
//! once a second, for up to a second; any partition is safe (I1).
//!
//! # Fairness and space
//!
//! A place is a cache line; there are as many as members. The longest path is logarithmic in the
//! processors. The serial one is whichever member of processor 0 comes last.
//!
//! # Rejected
//!
//! Sleeping or yielding representatives: that is `com-tree`, or the default.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; partitions that change at any moment; with wake-ups lost it
//! hangs, which is caught.

use platform::{Atomic, AtomicInt, Ordering::*, Platform};

use super::{Flag, RawBarrier, Semaphore, children, parent};
use crate::wait::Spin;

/// A processor's place.
#[repr(align(64))]
pub struct ScalScPlace<P: Platform> {
    count: P::AtomicU32,
    wakeup: [Semaphore<P>; 2],
    children: [Flag<P>; 4],
}

impl<P: Platform> Default for ScalScPlace<P> {
    fn default() -> Self {
        Self {
            count: P::AtomicU32::new(0),
            wakeup: [Semaphore::new(), Semaphore::new()],
            children: Default::default(),
        }
    }
}

/// Episodes that a member has begun.
pub type ScalScMember = u32;

/// Sleeping on a processor, or yielding there, and a tree between processors.
pub struct ScalSc<P: Platform, const YIELDS: bool = false> {
    parties: u32,
    processors: P::AtomicU32,
    generation: P::AtomicU32,
    wakeup: Flag<P>,
}

impl<P: Platform, const YIELDS: bool> ScalSc<P, YIELDS> {
    /// No more processors than there are members.
    fn partition(parties: u32) -> u32 {
        P::processors().min(parties)
    }

    /// R1.
    fn reorganize(&self) {
        P::refresh_processors(None);
        let mut seen = self.generation.load(Relaxed);
        loop {
            // HINT: a generation that is stale is found at the next episode.
            let now = P::partition_generation();
            if now == seen {
                return;
            }
            seen = now;
            self.generation.store(now, Relaxed);
            self.processors.store(Self::partition(self.parties), Relaxed);
        }
    }
}

impl<P: Platform, const YIELDS: bool> RawBarrier<P> for ScalSc<P, YIELDS> {
    type Place = ScalScPlace<P>;
    type Member = ScalScMember;

    fn new(parties: u32) -> Self {
        let parties = parties.max(1);
        // First: a change between the two is found at the first episode (R1).
        let generation = P::partition_generation();
        Self {
            parties,
            processors: P::AtomicU32::new(Self::partition(parties)),
            generation: P::AtomicU32::new(generation),
            wakeup: Flag::default(),
        }
    }

    fn places(parties: u32) -> usize {
        parties.max(1) as usize
    }

    unsafe fn wait(&self, places: &[ScalScPlace<P>], index: u32, episode: &mut ScalScMember) -> bool {
        *episode = episode.wrapping_add(1);
        let processors = self.processors.load(Relaxed);
        let mine = index % processors;
        let place = &places[mine as usize];
        let wakeup = &place.wakeup[(*episode & 1) as usize];
        // Members whose index modulo the processors is ours.
        let members = (self.parties - mine).div_ceil(processors);
        // ORDER: AcqRel (A2), a chain that ends at the processor's last one.
        let others = place.count.fetch_add(1, AcqRel);
        if others + 1 < members {
            if YIELDS {
                while !self.wakeup.is(*episode) {
                    P::yield_now();
                }
            } else {
                wakeup.acquire();
            }
            return false;
        }
        place.count.store(0, Relaxed);
        for child in children(mine, processors) {
            place.children[child].wait::<Spin>(*episode);
        }
        if mine == 0 {
            self.reorganize();
            self.wakeup.set_awake(*episode);
        } else {
            let (above, flag) = parent(mine);
            places[above].children[flag].set_awake(*episode);
            self.wakeup.wait::<Spin>(*episode);
        }
        if !YIELDS {
            wakeup.release(others);
        }
        mine == 0
    }
}
