// SPDX-License-Identifier: MIT OR Apache-2.0
//! AllocList: the live blocks of the default allocator.
//!
//! Two bits for each 16 bytes of address space: a block begins here, a block ends here. To list a block sets
//! two bits, to unlist it clears them. So there is no lock, no list to grow, and nothing is written into a
//! block or read from one: whoever goes through the list does no harm if a block is freed meanwhile. A leaf
//! of bits covers 1 GiB. It is mapped when the first block there is listed. Pages of it that have no bit
//! take no memory.
//!
//! Blocks do not overlap. The end is set first and cleared last, so a beginning without an end is a block
//! that is being unlisted. Whoever goes through the list passes over it at the next beginning.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};

use linux::memory;

/// Blocks begin at multiples of it: the C library's alignment.
const GRAIN: usize = 16;
/// Bytes of address space a leaf.
const LEAF: usize = 1 << 30;
const WORDS: usize = LEAF / GRAIN / 64;
/// BOUND: no kernel maps above this unless asked.
const ADDRESSES: u32 = if usize::BITS < 48 { usize::BITS } else { 48 };
const LEAVES: usize = 1 << (ADDRESSES - LEAF.trailing_zeros());

/// Bits of a block's first and last grain.
struct Leaf {
    begins: [AtomicU64; WORDS],
    ends: [AtomicU64; WORDS],
}

/// See the head of this file.
pub struct AllocList {
    leaves: [AtomicPtr<Leaf>; LEAVES],
    /// Leaves outside of these numbers were never mapped.
    first: AtomicUsize,
    last: AtomicUsize,
}

/// Where the bit of an address is.
fn bit(address: usize) -> (usize, usize, u64) {
    let grain = address / GRAIN;
    (address / LEAF, grain / 64 % WORDS, 1 << (grain % 64))
}

impl Default for AllocList {
    fn default() -> Self {
        Self::new()
    }
}

impl AllocList {
    /// An empty one.
    pub const fn new() -> Self {
        Self {
            leaves: [const { AtomicPtr::new(null_mut()) }; LEAVES],
            first: AtomicUsize::new(LEAVES),
            last: AtomicUsize::new(0),
        }
    }

    fn leaf(&self, number: usize) -> Option<&Leaf> {
        // ORDER: Acquire, pairs with the SeqCst in `make`: the leaf's zeros are the kernel's.
        let leaf = self.leaves.get(number)?.load(Acquire);
        // SAFETY: null, or mapped for good.
        unsafe { leaf.as_ref() }
    }

    #[cold]
    fn make(&self, number: usize) -> Option<&Leaf> {
        let place = self.leaves.get(number)?;
        let size = size_of::<Leaf>();
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, which is given back if another thread was quicker. Huge pages would make
        // memory of what has hardly a bit.
        unsafe {
            let at = memory::map(null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, kind, -1);
            if at == libc::MAP_FAILED {
                return None;
            }
            memory::advise(at, size, libc::MADV_NOHUGEPAGE);
            // Before anybody can list a block in it: else who goes through the list would pass it over.
            // ORDER: SeqCst, pairs with the loads in `each`; before the leaf, and so before each bit in it.
            self.first.fetch_min(number, SeqCst);
            self.last.fetch_max(number, SeqCst);
            // ORDER: SeqCst, pairs with the Acquire in `leaf`, and with `each`: who misses the leaf there is
            // seen by `add`'s caller.
            if place.compare_exchange(null_mut(), at.cast(), SeqCst, Acquire).is_err() {
                memory::unmap(at, size);
            }
        }
        self.leaf(number)
    }

    /// Lists a block. False if there is no memory for that, or no place for the address.
    ///
    /// A `SeqCst` read-modify-write is its last step: what the caller reads by `SeqCst` then, it reads after.
    pub fn add(&self, block: usize, size: usize) -> bool {
        let last = block + size.max(1) - 1;
        let of = |address| self.leaf(address / LEAF).or_else(|| self.make(address / LEAF));
        let (Some(begin), Some(end)) = (of(block), of(last)) else { return false };
        let (_, word, mask) = bit(last);
        end.ends[word].fetch_or(mask, Relaxed);
        let (_, word, mask) = bit(block);
        // ORDER: SeqCst. Either who goes through the list sees this bit, and by release the other one, or
        // the caller sees why somebody does.
        begin.begins[word].fetch_or(mask, SeqCst);
        true
    }

    /// Unlists a block, and says how many bytes it had, to whole grains; `None` if it was not listed. To be
    /// called before the block is freed.
    pub fn remove(&self, block: usize) -> Option<usize> {
        if !block.is_multiple_of(GRAIN) {
            return None;
        }
        let (number, word, mask) = bit(block);
        let mut leaf = self.leaf(number)?;
        if leaf.begins[word].load(Relaxed) & mask == 0 {
            return None;
        }
        leaf.begins[word].fetch_and(!mask, Relaxed);
        // The first end from here on is its own: blocks do not overlap.
        let (mut number, mut word, mut from) = (number, word, !(mask - 1));
        loop {
            let found = leaf.ends[word].load(Relaxed) & from;
            if found != 0 {
                let at = found.trailing_zeros();
                // ORDER: Release, after the beginning was cleared.
                leaf.ends[word].fetch_and(!(1 << at), Release);
                let last = number * LEAF + (word * 64 + at as usize) * GRAIN;
                return Some(last + GRAIN - block);
            }
            (word, from) = (word + 1, u64::MAX);
            if word == WORDS {
                // Leaves in the midst of a block may not be there.
                let next = (number + 1..LEAVES).find_map(|number| Some((number, self.leaf(number)?)));
                ((number, leaf), word) = (next?, 0);
            }
        }
    }

    /// Does a block begin here, still?
    fn begins(&self, block: usize) -> bool {
        let (number, word, mask) = bit(block);
        self.leaf(number).is_some_and(|leaf| leaf.begins[word].load(Relaxed) & mask != 0)
    }

    /// Calls `each` with the first byte of each listed block and its size, in the order of addresses.
    pub fn each(&self, mut each: impl FnMut(usize, usize)) {
        let mut begun = None;
        // ORDER: SeqCst, pairs with `add`, as below.
        let (first, last) = (self.first.load(SeqCst), self.last.load(SeqCst));
        for number in first..LEAVES.min(last + 1) {
            // ORDER: SeqCst, pairs with `make`, as its widening of these numbers.
            let leaf = self.leaves[number].load(SeqCst);
            // SAFETY: null, or mapped for good.
            let Some(leaf) = (unsafe { leaf.as_ref() }) else { continue };
            for word in 0..WORDS {
                let begins = leaf.begins[word].load(SeqCst);
                let ends = leaf.ends[word].load(SeqCst);
                let mut left = begins | ends;
                while left != 0 {
                    let mask = left & left.wrapping_neg();
                    left &= !mask;
                    let at = number * LEAF + (word * 64 + mask.trailing_zeros() as usize) * GRAIN;
                    if begins & mask != 0 {
                        begun = Some(at);
                    }
                    if ends & mask != 0
                        && let Some(begun) = begun.take()
                        && self.begins(begun)
                    {
                        each(begun, at + GRAIN - begun);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Too large for a test's stack.
    macro_rules! list {
        () => {{
            static LIST: AllocList = AllocList::new();
            &LIST
        }};
    }

    fn of(list: &AllocList) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        list.each(|block, size| found.push((block, size)));
        found
    }

    #[test]
    fn blocks_are_listed_until_removed() {
        let list = list!();
        assert_eq!(of(list), []);
        // In one word, over words, alone in a grain, over leaves, and neighbours.
        let blocks = [(0x1000, 64), (0x1040, 16), (0x2000, 100_000), (LEAF - 32, 3 * LEAF), (5 * LEAF, 1)];
        for (block, size) in blocks {
            assert!(list.add(block, size));
        }
        let rounded = |(block, size): (usize, usize)| (block, size.next_multiple_of(GRAIN));
        assert_eq!(of(list), blocks.map(rounded));
        assert_eq!(list.remove(0x1010), None, "inside a block");
        assert_eq!(list.remove(0x1008), None, "no block begins there");
        for (block, size) in blocks {
            assert_eq!(list.remove(block), Some(rounded((block, size)).1));
            assert_eq!(list.remove(block), None, "twice");
        }
        assert_eq!(of(list), []);
    }

    #[test]
    fn an_address_without_a_place_is_not_listed() {
        let list = list!();
        assert!(!list.add(1 << ADDRESSES, 16));
        assert!(!list.add((1 << ADDRESSES) - 16, 32), "its end has none");
        assert_eq!(list.remove(1 << ADDRESSES), None);
        assert_eq!(of(list), []);
    }

    /// Who goes through the list while others list and unlist sees each block that stays, and none longer
    /// than it is.
    #[test]
    fn blocks_come_and_go_meanwhile() {
        let list = list!();
        let stays: Vec<usize> = (0..1_000).map(|n| 0x10_0000 + n * 4096).collect();
        stays.iter().for_each(|&block| assert!(list.add(block, 48)));
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let stays = &stays;
                scope.spawn(move || {
                    for block in stays.iter().cycle().take(200_000) {
                        let block = block + 1024 * (1 + thread);
                        assert!(list.add(block, 512));
                        assert_eq!(list.remove(block), Some(512));
                    }
                });
            }
            for _ in 0..20 {
                let mut seen = 0;
                list.each(|block, size| {
                    seen += usize::from(block % 4096 == 0 && size == 48);
                    assert!(size <= 4096, "{size}");
                });
                assert_eq!(seen, stays.len());
            }
        });
    }
}
