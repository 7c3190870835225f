// SPDX-License-Identifier: MIT OR Apache-2.0
//! [`Blocks`] of cache lines for what has no room where the program keeps it: barriers of many threads.
//!
//! All blocks are of one size and lie in one mapping, made when the first is taken and never unmapped. So a
//! thread may look at a block that was given back, and even at one that serves somebody else by then. Nothing
//! is allocated by what can abort; if there is no block, the caller does without.

use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use platform::{Block, Blocks};

use crate::{Linux, memory};

/// BOUND: blocks, of which number 0 is not given out. On 64 processors the mapping has 1.2 MB, of which those
/// pages count that are used.
pub const BLOCKS: u32 = 1024;

/// Begins with the blocks' size in pieces, in block 0.
static SPACE: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

/// HINT: the block after the one that was taken last. A thread on its way out of an old barrier has left long
/// before its block comes round again.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// A bit each.
static TAKEN: [AtomicU32; BLOCKS as usize / 32] = [const { AtomicU32::new(0) }; BLOCKS as usize / 32];

// SAFETY: a block is its taker's by its bit in `TAKEN`; the mapping stays.
unsafe impl Blocks for Linux {
    fn take_block(pieces: usize) -> Option<Block> {
        take(pieces.max(3))
    }

    #[inline]
    fn block(number: u32) -> Option<Block> {
        at(number)
    }

    fn give_block(number: u32) {
        // ORDER: Release, pairs with `take`.
        TAKEN[(number % BLOCKS / 32) as usize].fetch_and(!(1 << (number % 32)), Release);
    }
}

fn take(pieces: usize) -> Option<Block> {
    if SPACE.load(Relaxed).is_null() {
        map(pieces)?;
    }
    let (words, next) = (BLOCKS / 32, NEXT.load(Relaxed) % BLOCKS);
    // The first word comes twice: from the next block on, and at the end all of it.
    for turn in 0..=words {
        let index = (next / 32 + turn) % words;
        let (word, from) = (&TAKEN[index as usize], if turn == 0 { !0 << (next % 32) } else { !0 });
        let mut taken = word.load(Relaxed);
        loop {
            let free = !taken & from & if index == 0 { !1 } else { !0 };
            if free == 0 {
                break;
            }
            let bit = free & free.wrapping_neg();
            // ORDER: Acquire, pairs with `give_block`.
            match word.compare_exchange_weak(taken, taken | bit, Acquire, Relaxed) {
                Ok(_) => {
                    let number = index * 32 + bit.trailing_zeros();
                    NEXT.store(number + 1, Relaxed);
                    return at(number);
                }
                Err(now) => taken = now,
            }
        }
    }
    None
}

#[inline]
fn at(number: u32) -> Option<Block> {
    // ORDER: Acquire, pairs with `map`.
    let space = NonNull::new(SPACE.load(Acquire))?;
    // SAFETY: the space begins so, and has a block of this number.
    unsafe {
        let pieces = space.as_ref().load(Relaxed) as usize;
        let at = (number % BLOCKS) as usize * pieces * Block::PIECE;
        Some(Block { number, memory: space.cast::<u8>().add(at), pieces })
    }
}

#[cold]
fn map(pieces: usize) -> Option<()> {
    let size = BLOCKS as usize * pieces * Block::PIECE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new memory, given back if another thread was first.
    unsafe {
        let space = memory::map(null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, kind, -1);
        if space == libc::MAP_FAILED {
            return None;
        }
        let space = space.cast::<AtomicU32>();
        (*space).store(pieces as u32, Relaxed);
        // ORDER: Release, pairs with `at`.
        if SPACE.compare_exchange(null_mut(), space, Release, Relaxed).is_err() {
            memory::unmap(space.cast::<c_void>(), size);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_blocks_and_no_more() {
        let blocks: Vec<Block> = std::iter::from_fn(|| take(3)).collect();
        assert_eq!(blocks.len(), BLOCKS as usize - 1);
        for (index, block) in blocks.iter().enumerate() {
            assert_eq!((block.number as usize, block.pieces), (index + 1, 3), "one after the other");
            assert_eq!(block.memory.as_ptr() as usize % Block::PIECE, 0);
            assert_eq!(at(block.number).map(|at| at.memory), Some(block.memory));
            // SAFETY: it is ours: no block has the bytes of another.
            unsafe {
                let bytes = std::slice::from_raw_parts_mut(block.memory.as_ptr(), 3 * Block::PIECE);
                assert!(bytes.iter().all(|&byte| byte == 0), "{index}");
                bytes.fill(1);
            }
        }
        let number = || take(3).map(|block| block.number);
        [700, 77].into_iter().for_each(Linux::give_block);
        assert_eq!([number(), number(), number()], [Some(77), Some(700), None]);
        // The one that was taken last comes last.
        [700, 77].into_iter().for_each(Linux::give_block);
        assert_eq!([number(), number(), number()], [Some(77), Some(700), None]);
        [701, 700, 699].into_iter().for_each(Linux::give_block);
        assert_eq!([number(), number(), number(), number()], [Some(701), Some(699), Some(700), None]);
        blocks.iter().for_each(|block| Linux::give_block(block.number));
    }
}
