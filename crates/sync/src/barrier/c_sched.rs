// SPDX-License-Identifier: MIT OR Apache-2.0
//! `c-sched`: the first N - P to arrive sleep, the last P spin.
//!
//! The *Scheduler Information* barrier: TR 1994, figure 10, with kernel extension KE-3. Choose it where
//! processors are partitioned among programs and all of a partition are really one's own.
//!
//! Changed: figure 10 as printed spins if `count + 1 >= NUM_PROCESSES - barrier_processors`, where `count`,
//! fetched before the increment, makes `count + 1` the number of arrivals including this one. With N
//! parties and P < N processors:
//!
//! | | block | spin | the last | V | over |
//! |---|---|---|---|---|---|
//! | as printed, `count + 1 >= N - P` | N - P - 1 | P | 1 | N - P | 1 unit |
//! | the text, and here, `count + 1 > N - P` | N - P | P - 1 | 1 | N - P | 0 |
//!
//! ("The first N - P processes should block while the remaining P should spin": of the P, the last need
//! not.) As printed, the decision is wrong: P spin for the last one, which has no processor. And so is the
//! barrier: two episodes later, when the semaphore of that sense is used again, the unit left over lets a
//! member through at once; it arrives for the next episode while this one is open, is counted twice, and so
//! this one is complete without one of the others. Each episode leaves one more. (With N - P = 1 nobody
//! blocks, and the units are never used.) As corrected, units and sleepers agree in each episode (I3),
//! whatever P is. `conformance` has the barrier as printed among the twins: loom and shuttle find the early
//! release.
//!
//! On the simulated machine of the paper (SGI Challenge, 11 processors; `crates/sim/tests/figure10.rs`) the
//! barrier as printed lets a thread go early in the third episode of 13, 16 and 22 threads. Its test with
//! `N - P - 1` units, which would be right, needs 43, 103 and 354 ms for 20 episodes, the text 3.8, 4.2 and
//! 5.0 ms.
//!
//! # State
//!
//! `count`: members that have arrived; on lines of its own, so that an arrival neither ends the copies of
//! those who spin nor takes the line that it has just read `processors` from. `sense`: turned by the last
//! one. `processors`: for each sense, how many processors the episode of that sense reckons with. `wakeup`:
//! a semaphore for each sense. Private: the member's sense.
//!
//! # Invariants
//!
//! I1. `count` is the number of members that have arrived in this episode; the last one sets it to 0 before
//! it turns the sense.
//! I2. A member waits for a sense that only the last arrival of its own episode writes, and that cannot
//! turn back before the member itself has arrived again.
//! I3. All members of an episode decide by the same number of processors: the last arrival of the one
//! before wrote it, before it turned the sense. So exactly N - P find that they are to block, and exactly N
//! - P units come.
//!
//! # Protocol
//!
//! A1. Flip the private sense. A2. Increment the counter. A3. Neither the last nor among the last P: P. A4.
//! Among them: spin. R1. The last: counter to 0; R2. the number of processors for the next episode; R3.
//! turn the sense; R4. N - P times V.
//!
//! # Memory order
//!
//! The counter is a chain of AcqRel increments. R3 release -> A4 acquire, R4 release -> A3 acquire publish
//! all to all, the zero and R2 included.
//!
//! # Under the scheduler
//!
//! Optimal where the P processors run the program's threads and no others. With foreign load the spinners
//! wait for members without a processor. A change of P is one episode late, and on `linux`, which looks
//! once a second, up to a second more. Hint wrong: more or fewer spin; the number of units is right all the
//! same (I3).
//!
//! # Fairness and space
//!
//! 256 bytes, two pairs of lines.
//!
//! # Rejected
//!
//! One V a member: a system call each; the semaphore takes all units at once.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; the simulator; the twin as printed is caught by loom and
//! shuttle with three parties on one processor; with wake-ups lost it hangs, which is caught.

use platform::{Atomic, AtomicInt, Ordering::*, Platform};

use super::{RawBarrier, Semaphore, Sense};

/// On a line that nobody spins on: a pair of lines where the processor fetches pairs.
#[repr(align(128))]
struct Apart<T>(T);

/// Centralized, spinning or sleeping by the number of processors.
pub struct CSched<P: Platform> {
    count: Apart<P::AtomicU32>,
    parties: u32,
    sense: P::AtomicU32,
    processors: [P::AtomicU32; 2],
    wakeup: [Semaphore<P>; 2],
}

impl<P: Platform> RawBarrier<P> for CSched<P> {
    type Place = ();
    type Member = Sense;

    fn new(parties: u32) -> Self {
        let processors = P::processors();
        Self {
            parties: parties.max(1),
            count: Apart(P::AtomicU32::new(0)),
            sense: P::AtomicU32::new(0),
            processors: [P::AtomicU32::new(processors), P::AtomicU32::new(processors)],
            wakeup: [Semaphore::new(), Semaphore::new()],
        }
    }

    fn places(_: u32) -> usize {
        0
    }

    #[inline]
    unsafe fn wait(&self, _: &[()], _: u32, member: &mut Sense) -> bool {
        let sense = member.flip();
        let to_block = self.parties.saturating_sub(self.processors[sense as usize].load(Relaxed));
        // ORDER: AcqRel (A2), a chain that ends at the last one.
        let arrivals = self.count.0.fetch_add(1, AcqRel) + 1;
        if arrivals == self.parties {
            self.count.0.store(0, Relaxed);
            P::refresh_processors(None);
            self.processors[1 - sense as usize].store(P::processors(), Relaxed);
            // ORDER: Release (R3), pairs with A4.
            self.sense.store(sense, Release);
            self.wakeup[sense as usize].release(to_block);
            return true;
        }
        if arrivals > to_block {
            // ORDER: Acquire (A4), pairs with R3.
            while self.sense.load(Acquire) != sense {
                P::pause();
            }
        } else {
            self.wakeup[sense as usize].acquire();
        }
        false
    }
}
