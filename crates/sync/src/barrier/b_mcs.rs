// SPDX-License-Identifier: MIT OR Apache-2.0
//! `b-mcs-spin`, `b-mcs-block`, `b-mcs-informing`: arrival by a tree of four, wake-up by a tree of two.
//!
//! Mellor-Crummey and Scott, TOCS 1991; waiting in three ways: ICPP 2001, section 4. Choose it over `tree`
//! where one flag that all read would be fought for.
//!
//! Changed in `b-mcs-informing`, because Linux has no second-level scheduler that acts on our priorities: a
//! member gives way by `sched_yield`, and after some of those in vain it sleeps on the flag for which it
//! waits (see `incremental`). Before it sets a flag, a member gives the one that waits for it its priority
//! back, because a waiter that was preempted cannot do so itself.
//!
//! # State
//!
//! A place for each member: a flag for each of its four children in the tree of arrivals, and the flag by
//! which it is woken. A flag holds the number of an episode, and, where members sleep, whether one does.
//! Private: the episode.
//!
//! # Invariants
//!
//! I1. The flag of a child holds the number of the last episode in which its subtree has arrived; only the
//! child writes it.
//! I2. An episode's number comes into a wake-up flag after it came into that of the parent, and into the
//! root's children's after all have arrived.
//! I3. No flag is two episodes ahead of a member that waits for it: each episode needs that member.
//! I4. Who sleeps on a flag has marked it in a step that found an older episode; who sets the new one sees
//! the mark, and wakes.
//!
//! # Protocol
//!
//! A1. Count the episode. A2. Wait for the flag of each child. A3. Set the own flag at the parent. A4. Wait
//! for the own wake-up flag. R1. Set the wake-up flags of the two children in the other tree. The root does
//! A2, then R1. `informing`: BARRIER_WAITER in A2 and A4, from the first look at the others' states on,
//! raised by whoever does A3 and R1, then the priority that it was.
//!
//! # Memory order
//!
//! A3 release -> A2 acquire carries what members wrote up the tree, R1 release -> A4 acquire down.
//!
//! # Under the scheduler
//!
//! `spin` and `block` are oblivious: `spin` waits for slices, `block` pays a switch and a wake-up for each
//! member and level. `informing`: a member spins unless a thread of higher priority (one that computes, or
//! holds a lock) is preempted, and then yields. Hint wrong: it gives way that need not, or spins until it
//! is over. A parent that waits for its first child is raised by its second, too: if it is preempted then,
//! others make room for one that could only wait. And one that lowers itself just as its flag is set stays
//! low until it looks.
//!
//! # Fairness and space
//!
//! A place is a cache line a member. The root is the serial one each time.
//!
//! # Rejected
//!
//! A sense and flags that are set again: numbers need not be.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; hints right, wrong and mixed; with wake-ups lost those that
//! sleep hang, which is caught.

use core::marker::PhantomData;
use platform::Platform;

use super::{Flag, RawBarrier, Waiter, children, parent};
use crate::wait::Waiting;

/// A member's place.
#[repr(align(64))]
pub struct BMcsPlace<P: Platform> {
    children: [Flag<P>; 4],
    wakeup: Flag<P>,
    waiter: Waiter<P>,
}

impl<P: Platform> Default for BMcsPlace<P> {
    fn default() -> Self {
        Self { children: Default::default(), wakeup: Flag::default(), waiter: Waiter::default() }
    }
}

/// Episodes that a member has begun.
pub type BMcsMember = u32;

/// Two trees, waiting as `W` says.
pub struct BMcs<P: Platform, W> {
    parties: u32,
    platform: PhantomData<(P, W)>,
}

impl<P: Platform, W: Waiting> RawBarrier<P> for BMcs<P, W> {
    type Place = BMcsPlace<P>;
    type Member = BMcsMember;

    fn new(parties: u32) -> Self {
        Self { parties: parties.max(1), platform: PhantomData }
    }

    fn places(parties: u32) -> usize {
        parties.max(1) as usize
    }

    #[inline]
    unsafe fn wait(&self, places: &[BMcsPlace<P>], index: u32, episode: &mut BMcsMember) -> bool {
        *episode = episode.wrapping_add(1);
        let mine = &places[index as usize];
        let me = W::INFORMS.then(|| mine.waiter.enter::<W>());
        let set = |place: &BMcsPlace<P>, flag: &Flag<P>| {
            if W::INFORMS {
                place.waiter.raise();
            }
            flag.set_by::<W>(*episode);
        };
        if W::INFORMS && index == 0 {
            P::refresh_processors(None);
        }
        let crowded = W::INFORMS && self.parties > P::processors();
        let wait = |flag: &Flag<P>| flag.wait_as::<W>(*episode, me, crowded);
        for child in children(index, self.parties) {
            wait(&mine.children[child]);
        }
        if index > 0 {
            let (above, flag) = parent(index);
            set(&places[above], &places[above].children[flag]);
            wait(&mine.wakeup);
        }
        for below in [2 * index + 1, 2 * index + 2] {
            if below < self.parties {
                let place = &places[below as usize];
                set(place, &place.wakeup);
            }
        }
        index == 0
    }
}
