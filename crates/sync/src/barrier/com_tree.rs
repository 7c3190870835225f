// SPDX-License-Identifier: MIT OR Apache-2.0
//! `com-tree`: `tree`, whose members spin for as long as a context switch takes, and then sleep.
//!
//! TR 1994, section 5.4.2. Choose it where `tree` would be right if all threads had processors, and do not.
//!
//! # State
//!
//! A place for each member: a flag for each of its four children. One wake-up flag for all. A flag holds
//! the number of an episode, and, where members sleep, whether one does. Private: the episode.
//!
//! # Invariants
//!
//! I1. The flag of a child holds the number of the last episode in which its subtree has arrived; only the
//! child writes it.
//! I2. The root writes an episode's number into the wake-up flag after all subtrees have arrived, so after
//! everybody has.
//! I3. No flag is two episodes ahead of a member that waits for it: each episode needs that member.
//! I4. Who sleeps on a flag has marked it in a step that found an older episode; who sets the new one sees
//! the mark, and wakes.
//!
//! # Protocol
//!
//! A1. Count the episode. A2. Wait for the flag of each child. A3. Set the own flag at the parent. A4. Wait
//! for the wake-up flag. R1. The root, instead of A3 and A4, sets it. Waiting: awake for SWITCH_PAUSES at
//! each flag anew, then asleep on it.
//!
//! # Memory order
//!
//! A3 release -> A2 acquire carries what members wrote up the tree, R1 release -> A4 acquire down to all.
//!
//! # Under the scheduler
//!
//! No slice is wasted, but switches are: a member that waits for its children sleeps, is woken, finds that
//! the next child is missing.
//!
//! # Fairness and space
//!
//! A place is a cache line a member; the longest path is logarithmic. The root is the serial one each time.
//!
//! # Rejected
//!
//! The figures' `child_not_ready`, which must be set again after each episode: flags with numbers need not.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; with wake-ups lost it hangs, which is caught.

use core::marker::PhantomData;
use platform::Platform;

use super::{Flag, RawBarrier, SWITCH_PAUSES, TreePlace, children, parent};

/// Competitive tree of arrivals, one wake-up flag.
pub struct ComTree<P: Platform> {
    parties: u32,
    wakeup: Flag<P>,
    platform: PhantomData<P>,
}

impl<P: Platform> RawBarrier<P> for ComTree<P> {
    type Place = TreePlace<P>;
    type Member = u32;

    fn new(parties: u32) -> Self {
        Self { parties: parties.max(1), wakeup: Flag::default(), platform: PhantomData }
    }

    fn places(parties: u32) -> usize {
        parties.max(1) as usize
    }

    #[inline]
    unsafe fn wait(&self, places: &[TreePlace<P>], index: u32, episode: &mut u32) -> bool {
        *episode = episode.wrapping_add(1);
        for child in children(index, self.parties) {
            places[index as usize].children[child].wait_pauses(*episode, SWITCH_PAUSES);
        }
        if index == 0 {
            self.wakeup.set(*episode);
            return true;
        }
        let (above, flag) = parent(index);
        places[above].children[flag].set(*episode);
        self.wakeup.wait_pauses(*episode, SWITCH_PAUSES);
        false
    }
}
