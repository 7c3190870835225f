// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loops whose iterations wait for each other, as gcc has them: the compiler tells the loops' lengths, and
//! progress is kept by chunks.

use linux::Linux;
use sync::openmp::Progress;

use crate::memory::List;

/// Progress of a loop whose iterations wait for each other.
pub struct Doacross {
    pub(crate) counts: List<u64>,
    /// Iterations of the outermost loop that share a word.
    pub(crate) chunk: u64,
    pub(crate) static_blocks: bool,
    pub(crate) size: u64,
    /// Of each chunk: 1 more than the last iteration that is over, of all dimensions.
    pub(crate) done: List<Progress<Linux>>,
}

impl Doacross {
    /// Its dimensions.
    pub fn dimensions(&self) -> usize {
        self.counts.len()
    }

    /// How far the chunk has come with this iteration of the outermost loop.
    pub fn progress(&self, outer: u64) -> Option<&Progress<Linux>> {
        let index = match self.static_blocks {
            true => {
                let (block, rest) = (self.counts[0] / self.size, self.counts[0] % self.size);
                let longer = rest * (block + 1);
                if outer < longer { outer / (block + 1) } else { rest + (outer - longer) / block.max(1) }
            }
            false => outer / self.chunk,
        };
        self.done.get(index as usize)
    }

    /// An iteration's place among all, from 1.
    pub fn place(&self, iteration: &[u64]) -> u64 {
        let place = self
            .counts
            .iter()
            .zip(iteration)
            .fold(0u64, |place, (&count, &index)| place.wrapping_mul(count).wrapping_add(index));
        place.wrapping_add(1)
    }
}
