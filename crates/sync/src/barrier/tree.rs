// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tree`: arrival by a tree, wake-up by one flag; everybody spins.
//!
//! Mellor-Crummey and Scott, TOCS 1991, with the wake-up of TR 1994, section 5.4.2. Choose it on many
//! processors, all one's own.
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
//!
//! # Protocol
//!
//! A1. Count the episode. A2. Wait for the flag of each child. A3. Set the own flag at the parent. A4. Wait
//! for the wake-up flag. R1. The root, instead of A3 and A4, sets it.
//!
//! # Memory order
//!
//! A3 release -> A2 acquire carries what members wrote up the tree, R1 release -> A4 acquire down to all.
//!
//! # Under the scheduler
//!
//! Oblivious, and worse than a counter: members must arrive in the order of the tree, so that the scheduler
//! may have to go through all threads once for each level.
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
//! `conformance`: real threads, loom, shuttle; a twin whose root does not wait for its last child (I2) is
//! caught.

use core::marker::PhantomData;
use platform::Platform;

use super::{Flag, RawBarrier, children, parent};
use crate::wait::Spin;

/// A member's place: what its children write.
#[repr(align(64))]
pub struct TreePlace<P: Platform> {
    pub(super) children: [Flag<P>; 4],
}

impl<P: Platform> Default for TreePlace<P> {
    fn default() -> Self {
        Self { children: Default::default() }
    }
}

/// Tree of arrivals, one wake-up flag.
pub struct Tree<P: Platform> {
    parties: u32,
    wakeup: Flag<P>,
    platform: PhantomData<P>,
}

impl<P: Platform> RawBarrier<P> for Tree<P> {
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
            places[index as usize].children[child].wait::<Spin>(*episode);
        }
        if index == 0 {
            self.wakeup.set_awake(*episode);
            return true;
        }
        let (above, flag) = parent(index);
        places[above].children[flag].set_awake(*episode);
        self.wakeup.wait::<Spin>(*episode);
        false
    }
}
