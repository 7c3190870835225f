// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loops whose iterations wait for each other, as gcc has them: the compiler tells the loops' lengths, and progress is kept by chunks.

use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;

use linux::Linux;
use sync::openmp::Progress;

use crate::icv::Kind;
use crate::loops::{How, Shape, Share, enter_with};
use crate::memory::{List, Own};
use crate::thread::me;

/// Progress of a loop whose iterations wait for each other.
pub struct Doacross {
    counts: List<u64>,
    /// Iterations of the outermost loop that share a word.
    chunk: u64,
    static_blocks: bool,
    size: u64,
    /// Of each chunk: 1 more than the last iteration that is over, of all dimensions.
    done: List<Progress<Linux>>,
}

/// Begins a loop of `counts.len()` dimensions, of which the first is shared out.
///
/// # Safety
/// The pointers are the compiler's.
pub unsafe fn begin(counts: &[u64], how: How, list: *mut usize, memory: *mut *mut c_void) {
    let thread = me();
    // Chunks of equal size: progress is kept for each.
    let kind = if how.kind == Kind::Guided { Kind::Dynamic } else { how.kind };
    let chunk = if kind == Kind::Dynamic { how.chunk.max(1) } else { how.chunk };
    let iterations = counts[0];
    let shape = Shape::new(0, 1, iterations, (kind, chunk), false);
    let size = thread.team().size() as u64;
    let make = |share: &Share| {
        let static_blocks = chunk == 0;
        let parts = if static_blocks { size } else { iterations.div_ceil(chunk) };
        let what = format_args!("a doacross loop of {iterations} iterations");
        let done = List::needed(parts as usize, what, |_| Progress::default());
        let counts = List::needed(counts.len(), what, |index| counts[index]);
        let doacross = || Doacross { counts, chunk, static_blocks, size, done };
        share.doacross.store(Own::needed("a doacross loop", doacross).into_raw(), Relaxed);
    };
    // SAFETY: as promised.
    unsafe { enter_with(thread, shape, list, memory, make) };
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

/// What `work` makes of the current doacross loop and its share.
pub fn with_doacross<R>(work: impl FnOnce(&Doacross, &Share) -> R) -> Option<R> {
    let share = me().member().work.share()?;
    // SAFETY: stays as long as anybody is inside.
    let doacross = unsafe { share.doacross.load(Relaxed).as_ref() }?;
    Some(work(doacross, share))
}
