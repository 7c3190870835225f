// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stacks: cut from slabs, each with a guard below and its fiber's record on top.
//!
//! A slab is never returned, and a record stays a record: a late unpark of a fiber that has ended touches
//! valid memory.
//!
//! A guard costs no mapping of its own where the kernel can (`MADV_GUARD_INSTALL`, Linux 6.13). Before,
//! `mprotect` makes two mappings a stack, and `vm.max_map_count` ends at some 32,000 fibers.

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};
use std::io;

use corosensei::stack::{Stack, StackPointer};

use crate::record::Fiber;

const PAGE: usize = 4096;
/// Below each stack. Rust touches each page of a frame; C may have frames that jump over a page.
const GUARD: usize = 16 * PAGE;
const MADV_GUARD_INSTALL: i32 = 102;
/// Stacks in the first slab; each further one has as many as there are, up to MOST.
const FIRST: usize = 64;
const MOST: usize = 4096;
/// BOUND: bytes of a slab of stacks that are longer than usual ones.
const LARGE: usize = 16 << 20;

/// One mapping.
pub struct Slab {
    pub start: usize,
    pub stride: usize,
    pub stacks: usize,
    pub older: *const Slab,
}

/// All slabs of the process, newest first: the handler of faults looks here, and so do debuggers.
pub static SLABS: AtomicPtr<Slab> = AtomicPtr::new(null_mut());
/// Stacks in all of them.
static STACKS: AtomicUsize = AtomicUsize::new(0);

/// The stack of a fiber, without its record, for corosensei.
#[derive(Clone, Copy)]
pub struct Part {
    base: StackPointer,
    limit: StackPointer,
}

impl Part {
    /// From the guard on, up to `base`, which is aligned.
    pub fn new(limit: usize, base: usize) -> Self {
        let pointer = |address| StackPointer::new(address).expect("a mapping begins behind 0");
        Self { base: pointer(base), limit: pointer(limit) }
    }
}

// SAFETY: the lowest pages are a guard, and a slab is never unmapped.
unsafe impl Stack for Part {
    fn base(&self) -> StackPointer {
        self.base
    }

    fn limit(&self) -> StackPointer {
        self.limit
    }
}

/// Rounds a size up to whole pages, with the guard.
pub fn stride(size: usize) -> usize {
    size.max(4 * PAGE).next_multiple_of(PAGE) + GUARD
}

/// Maps a slab. Calls `make` with the lowest address of each stack, and `each` when all can be found.
/// `usual`: the more stacks there are, the more it has.
///
/// # Errors
/// That of `mmap`.
pub fn grow(
    stride: usize,
    usual: bool,
    mut make: impl FnMut(usize) -> *mut Fiber,
    each: impl FnMut(*mut Fiber),
) -> io::Result<()> {
    let stacks = if usual { STACKS.load(Relaxed).clamp(FIRST, MOST) } else { (LARGE / stride).max(1) };
    let size = stacks * stride;
    // SAFETY: a fresh mapping, which is ours. Huge pages would give each stack 2 MB at its first touch.
    let start = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let start = libc::mmap(null_mut(), size, protection, flags, -1, 0);
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        libc::madvise(start, size, libc::MADV_NOHUGEPAGE);
        start as usize
    };
    for stack in 0..stacks {
        if let Err(error) = guard(start + stack * stride) {
            // SAFETY: ours, and nobody has seen it.
            unsafe { libc::munmap(start as *mut _, size) };
            return Err(error);
        }
    }
    let made: Vec<_> = (0..stacks).map(|stack| make(start + stack * stride)).collect();
    let slab = Box::into_raw(Box::new(Slab { start, stride, stacks, older: SLABS.load(Relaxed) }));
    // ORDER: Release, pairs with the Acquire in `overflowed`; publishes the slab and its records. Growing is
    // under the pool's lock, but there may be several runtimes.
    while let Err(now) = SLABS.compare_exchange(
        // SAFETY: ours until it is published.
        unsafe { (*slab).older.cast_mut() },
        slab,
        Release,
        Relaxed,
    ) {
        // SAFETY: as above.
        unsafe { (*slab).older = now };
    }
    STACKS.fetch_add(stacks, Relaxed);
    made.into_iter().for_each(each);
    Ok(())
}

fn guard(place: usize) -> io::Result<()> {
    // SAFETY: pages of a mapping of ours that nobody uses yet.
    unsafe {
        if libc::madvise(place as *mut _, GUARD, MADV_GUARD_INSTALL) == 0
            || libc::mprotect(place as *mut _, GUARD, libc::PROT_NONE) == 0
        {
            return Ok(());
        }
    }
    Err(io::Error::last_os_error())
}

/// Where the record of the stack lies that begins here.
pub fn record(stack: usize, stride: usize) -> NonNull<Fiber> {
    let place = (stack + stride - size_of::<Fiber>()) & !(align_of::<Fiber>() - 1);
    NonNull::new(place as *mut Fiber).expect("a mapping begins behind 0")
}

/// The fiber whose guard this address is in. Fit for a signal handler.
pub fn overflowed(address: usize) -> Option<NonNull<Fiber>> {
    // ORDER: Acquire, pairs with the Release in `grow`.
    let mut slab: *const Slab = SLABS.load(Acquire);
    // SAFETY: slabs are never freed.
    while let Some(here) = unsafe { slab.as_ref() } {
        if let Some(offset) = address.checked_sub(here.start)
            && offset < here.stacks * here.stride
        {
            let within = offset % here.stride;
            return (within < GUARD).then(|| record(address - within, here.stride));
        }
        slab = here.older;
    }
    None
}

/// Calls `each` with all records.
pub fn all(mut each: impl FnMut(&Fiber)) {
    // ORDER: as in `overflowed`.
    let mut slab: *const Slab = SLABS.load(Acquire);
    // SAFETY: slabs are never freed.
    while let Some(here) = unsafe { slab.as_ref() } {
        for stack in 0..here.stacks {
            // SAFETY: a record stays one.
            each(unsafe { record(here.start + stack * here.stride, here.stride).as_ref() });
        }
        slab = here.older;
    }
}
