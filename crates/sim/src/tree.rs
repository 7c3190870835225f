// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose turn is it? The next moment of each processor, in a tree of winners: the least one is at the root,
//! and a change costs a comparison a level.

use crate::memory::Time;

/// Nothing will happen.
pub(crate) const NEVER: Time = Time::MAX;

pub(crate) struct Tree {
    /// Leaves a power of two; node 1 is the root.
    leaves: usize,
    /// (time, processor) of the winner below each node.
    nodes: Vec<(Time, u32)>,
}

impl Tree {
    pub fn new(count: usize) -> Self {
        let leaves = count.next_power_of_two();
        let mut nodes = vec![(NEVER, 0); 2 * leaves];
        for leaf in 0..leaves {
            nodes[leaves + leaf].1 = leaf as u32;
        }
        for node in (1..leaves).rev() {
            nodes[node] = nodes[2 * node].min(nodes[2 * node + 1]);
        }
        Self { leaves, nodes }
    }

    /// The earliest, and of those the one of the lowest number.
    #[inline]
    pub fn first(&self) -> (Time, usize) {
        let (time, processor) = self.nodes[1];
        (time, processor as usize)
    }

    #[inline]
    pub fn set(&mut self, processor: usize, time: Time) {
        let mut node = self.leaves + processor;
        let mut winner = (time, processor as u32);
        self.nodes[node] = winner;
        while node > 1 {
            winner = winner.min(self.nodes[node ^ 1]);
            node /= 2;
            if self.nodes[node] == winner {
                return;
            }
            self.nodes[node] = winner;
        }
    }

    /// The earliest of all others.
    #[inline]
    pub fn first_but(&self, processor: usize) -> Time {
        let mut node = self.leaves + processor;
        let mut first = NEVER;
        while node > 1 {
            first = first.min(self.nodes[node ^ 1].0);
            node /= 2;
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_first() {
        let mut tree = Tree::new(5);
        let mut times = [NEVER; 5];
        let mut random = 12345u64;
        for _ in 0..10_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (processor, time) = ((random >> 33) as usize % 5, (random >> 40) % 50);
            times[processor] = time;
            tree.set(processor, time);
            let least = (0..5).min_by_key(|&other| (times[other], other)).unwrap();
            assert_eq!(tree.first(), (times[least], least));
            let others = (0..5).filter(|&other| other != processor).map(|other| times[other]).min();
            assert_eq!(tree.first_but(processor), others.unwrap());
        }
    }
}
