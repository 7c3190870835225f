// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for barriers of an algorithm that was asked for by name: blocks of some sizes, many in one mapping.
//!
//! A block is taken by its bit in the mapping's first words, and the mappings of one size are a list that
//! only grows. So nothing here waits, and a forked child finds it as it was. What is greater than a block has
//! a mapping of its own.
//!
//! A block also says which `pthread_barrier_t` it is for. A program that initialises one again, without
//! `pthread_barrier_destroy`, has the same block again. In a mapping of its own it is lost.

use core::alloc::Layout;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use libc::{MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use linux::memory;

/// Bytes of a mapping, and its alignment.
const MAPPING: usize = 1 << 16;
/// BOUND: sizes of blocks; powers of two, so that each is aligned to its size.
const SIZES: [usize; 4] = [256, 512, 1024, 2048];
/// Behind the barrier.
const OWNER: usize = size_of::<usize>();

#[repr(C)]
struct Mapping {
    next: *mut Mapping,
    /// A bit for each block. Block 0 is this here.
    taken: [AtomicU32; MAPPING / SIZES[0] / 32],
}

const _: () = assert!(size_of::<Mapping>() <= SIZES[0]);

static MAPPINGS: [AtomicPtr<Mapping>; SIZES.len()] = [const { AtomicPtr::new(null_mut()) }; SIZES.len()];

/// Which of [`SIZES`].
fn class(layout: Layout) -> Option<usize> {
    let needed = (layout.size() + OWNER).max(layout.align());
    SIZES.iter().position(|size| *size >= needed)
}

/// Memory for a barrier of this `pthread_barrier_t`; null if there is none.
pub fn take(layout: Layout, owner: usize) -> *mut u8 {
    let Some(class) = class(layout) else {
        // A mapping is aligned to pages.
        return if layout.align() <= 4096 { map(layout.size()) } else { null_mut() };
    };
    // ORDER: Acquire, pairs with `grow`.
    let mut mapping = MAPPINGS[class].load(Acquire);
    // SAFETY: mappings of the list stay, and `in_mapping` gives a block that is ours.
    unsafe {
        while !mapping.is_null() {
            let block = in_mapping(mapping, class, owner);
            if !block.is_null() {
                return block;
            }
            mapping = (*mapping).next;
        }
        grow(class, owner)
    }
}

fn map(size: usize) -> *mut u8 {
    // SAFETY: new memory.
    let at =
        unsafe { memory::map(null_mut(), size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1) };
    if at == MAP_FAILED { null_mut() } else { at.cast() }
}

/// # Safety
/// A mapping of blocks of this class.
unsafe fn in_mapping(mapping: *mut Mapping, class: usize, owner: usize) -> *mut u8 {
    let size = SIZES[class];
    for index in 1..MAPPING / size {
        // SAFETY: as promised.
        unsafe {
            let (word, bit) = (&(*mapping).taken[index / 32], 1 << (index % 32));
            // ORDER: Acquire, pairs with `give`.
            if word.load(Relaxed) & bit == 0 && word.fetch_or(bit, Acquire) & bit == 0 {
                let block = mapping.cast::<u8>().add(index * size);
                block.add(size - OWNER).cast::<usize>().write(owner);
                return block;
            }
        }
    }
    null_mut()
}

/// A block of a new mapping.
#[cold]
fn grow(class: usize, owner: usize) -> *mut u8 {
    let all = map(2 * MAPPING);
    if all.is_null() {
        return null_mut();
    }
    let before = all.align_offset(MAPPING);
    // SAFETY: inside what was mapped, and nobody knows it. Once it is in the list, it stays.
    unsafe {
        let mapping = all.add(before).cast::<Mapping>();
        if before > 0 {
            memory::unmap(all.cast(), before);
        }
        memory::unmap(mapping.cast::<u8>().add(MAPPING).cast(), MAPPING - before);
        let block = in_mapping(mapping, class, owner);
        let mut first = MAPPINGS[class].load(Relaxed);
        loop {
            (*mapping).next = first;
            // ORDER: Release, pairs with `take`; publishes the mapping. Acquire: `next` is one that was.
            match MAPPINGS[class].compare_exchange_weak(first, mapping, AcqRel, Acquire) {
                Ok(_) => return block,
                Err(now) => first = now,
            }
        }
    }
}

/// Gives it back.
///
/// # Safety
/// `take` has given it for this layout, and nobody uses it.
pub unsafe fn give(at: *mut u8, layout: Layout) {
    // SAFETY: as promised.
    unsafe {
        let Some(class) = class(layout) else { return memory::unmap(at.cast(), layout.size()) };
        let within = at.addr() % MAPPING;
        let (mapping, index) = (at.sub(within).cast::<Mapping>(), within / SIZES[class]);
        // ORDER: Release, pairs with `in_mapping`.
        (*mapping).taken[index / 32].fetch_and(!(1 << (index % 32)), Release);
    }
}

/// Is it a block that was taken for this layout and this `pthread_barrier_t`? It may be any number.
pub fn is_taken(at: *mut u8, layout: Layout, owner: usize) -> bool {
    let Some(class) = class(layout) else { return false };
    let (within, size) = (at.addr() % MAPPING, SIZES[class]);
    let (start, index) = (at.addr() - within, within / size);
    // ORDER: Acquire, as in `take`.
    let mut mapping = MAPPINGS[class].load(Acquire);
    // SAFETY: only mappings of the list are looked at, which stay.
    unsafe {
        while !mapping.is_null() && mapping.addr() != start {
            mapping = (*mapping).next;
        }
        !mapping.is_null()
            && index > 0
            && within.is_multiple_of(size)
            && (*mapping).taken[index / 32].load(Relaxed) & 1 << (index % 32) != 0
            && mapping.cast::<u8>().add(within + size - OWNER).cast::<usize>().read() == owner
    }
}
