// SPDX-License-Identifier: MIT OR Apache-2.0
//! `incremental-spin`, `incremental-block`, `incremental-informing`: a counter and a flag, and three ways
//! to wait.
//!
//! The centralized incremental barrier of ICPP 2001, section 4. Of its two barriers, the `informing`
//! versions beat the spinning ones by up to 1356 times and the sleeping ones by up to 10.5 (section 5).
//! Choose `informing` over the default where threads are in the view anyway and hold locks of the informing
//! kind too: it makes room for those, where the default makes room for anybody.
//!
//! The paper leaves its code to a technical report, but says that it takes more memory with more threads
//! than its plain counterpart does. So here: the last one gives everybody back the priority that it had,
//! because a waiter that was preempted cannot do so itself, and as long as it counts as a waiter nobody
//! makes room for it. Changed, because Linux has no second-level scheduler that acts on our priorities: a
//! waiter gives way by `sched_yield`, which lets the other threads of its processor run, and after some of
//! those in vain it sleeps on the flag. And it takes the lower priority only after a look or two at the
//! flag, so that short waits write nothing that others read.
//!
//! # State
//!
//! `count`: members that have arrived. `flag`: the number of the last complete episode, and whether
//! somebody sleeps. Private: the episode.
//!
//! # Invariants
//!
//! I1. `count` is the number of members that have arrived in this episode; the last one sets it to 0 before
//! it sets the flag.
//! I2. The flag is never two episodes ahead of a member.
//! I3. Who sleeps has marked the flag in a step that found the old episode; who sets the new one sees the
//! mark.
//!
//! # Protocol
//!
//! A1. Count the episode. A2. Increment the counter. A3. The last one: counter to 0, `informing`: raise
//! everybody; then A4. the episode into the flag, and wake who sleeps. A5. The others wait for it.
//! `informing`: in A5 BARRIER_WAITER, from the first look at the others' states on: at once, with more
//! members than processors, else after 3 us; at the end the priority that it was.
//!
//! # Memory order
//!
//! The counter is a chain of AcqRel increments. A4 release -> A5 acquire publishes all to all, and the
//! counter's 0.
//!
//! # Under the scheduler
//!
//! `spin` and `block` are oblivious: `c-spin` and `c-block` in all but the semaphore. `informing`: a waiter
//! spins unless a thread of higher priority (one that computes, or holds a lock) is preempted, and then
//! yields; the last to arrive find nobody preempted and spin. So nobody sleeps, and nobody need be woken,
//! where all are on their way. Foreign load preempts one's own threads, so it makes them yield too, and
//! then each yield gives a slice away: for that there is the default. Who spins for long yields as well,
//! for a thread that was woken and not run yet: the view counts it as blocked. Hint wrong: a waiter gives
//! way that need not, or spins until it is over; one that lowers itself just as it is raised stays low
//! until it looks.
//!
//! # Fairness and space
//!
//! 12 bytes; `informing` a cache line for each member. Any member may be the serial one.
//!
//! # Rejected
//!
//! Priority LOCK_WAITER for waiters: they are worth less than those who wait for a lock, who hold others
//! up.
//!
//! Sleeping at once where a thread that matters more is preempted: whoever is woken and has not run yet
//! counts as blocked, so that the others spin, for a slice, while it waits for a processor: 854 us a round
//! with 4 threads, 4840 with 8, where yielding makes 4 and 8 (2 processors, `perf`, 1500 units of work; two
//! virtual processors).
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; hints right, wrong and mixed; with wake-ups lost those that
//! sleep hang, which is caught. Twins of its counter: `c-spin`.

use core::marker::PhantomData;
use platform::{Atomic, AtomicInt, Ordering::*, Platform};

use super::{Flag, RawBarrier, Waiter};
use crate::wait::Waiting;

/// Who a member is.
#[repr(align(64))]
pub struct IncrementalPlace<P: Platform>(Waiter<P>);

impl<P: Platform> Default for IncrementalPlace<P> {
    fn default() -> Self {
        Self(Waiter::default())
    }
}

/// Centralized, waiting as `W` says.
pub struct Incremental<P: Platform, W> {
    parties: u32,
    count: P::AtomicU32,
    flag: Flag<P>,
    platform: PhantomData<W>,
}

impl<P: Platform, W: Waiting> RawBarrier<P> for Incremental<P, W> {
    type Place = IncrementalPlace<P>;
    type Member = u32;

    fn new(parties: u32) -> Self {
        Self {
            parties: parties.max(1),
            count: P::AtomicU32::new(0),
            flag: Flag::default(),
            platform: PhantomData,
        }
    }

    fn places(parties: u32) -> usize {
        if W::INFORMS { parties.max(1) as usize } else { 0 }
    }

    #[inline]
    unsafe fn wait(&self, places: &[IncrementalPlace<P>], index: u32, episode: &mut u32) -> bool {
        *episode = episode.wrapping_add(1);
        let me = W::INFORMS.then(|| places[index as usize].0.enter::<W>());
        // ORDER: AcqRel (A2), a chain that ends at the last one.
        let last = self.count.fetch_add(1, AcqRel) == self.parties - 1;
        if last {
            self.count.store(0, Relaxed);
            if W::INFORMS {
                P::refresh_processors(None);
                places.iter().for_each(|place| place.0.raise());
            }
            self.flag.set_by::<W>(*episode);
        } else {
            self.flag.wait_as::<W>(*episode, me, W::INFORMS && self.parties > P::processors());
        }
        last
    }
}
