// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory (OpenMP 5.1, section 3.13): there is one kind, whatever an allocator asks for; alignment and
//! fallback are kept.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::dialect::is_llvm;
use crate::memory::Own;
use crate::thread::me;

/// No number of a predefined allocator is above this; other compilers' extensions have some in the hundreds.
const PREDEFINED: usize = 1024;
const DEFAULT: usize = 1;
/// Memory spaces, by their numbers in `omp.h`: the last, and one that nobody has here.
const SPACES: usize = 4;
const HIGH_BANDWIDTH: usize = 3;
/// Traits, and values of them, likewise.
const SYNC_HINT: c_int = 1;
const ALIGNMENT: c_int = 2;
const ACCESS: c_int = 3;
const POOL_SIZE: c_int = 4;
const FALLBACK: c_int = 5;
const FALLBACK_DATA: c_int = 6;
const PINNED: c_int = 7;
const PARTITION: c_int = 8;
const ANY: usize = usize::MAX;
const TRUE: usize = 1;
const DEFAULT_FB: usize = 11;
const NULL_FB: usize = 12;
const ABORT_FB: usize = 13;
const ALLOCATOR_FB: usize = 14;

/// `omp_alloctrait_t`.
#[repr(C)]
pub struct Trait {
    key: c_int,
    value: usize,
}

/// An allocator of the program's.
struct Allocator {
    alignment: usize,
    pool: usize,
    used: AtomicUsize,
    fallback: usize,
    fallback_data: usize,
}

impl Allocator {
    /// Counts so many bytes more, and those of the block that they replace no longer, if the pool has room.
    fn take(&self, size: usize, replaced: &Header) -> bool {
        let count = |used: usize| {
            let used = (used - self.share_of(replaced)).checked_add(size)?;
            (used <= self.pool).then_some(used)
        };
        self.used.fetch_update(Relaxed, Relaxed, count).is_ok()
    }

    /// After [`Allocator::take`]: there is no such block after all.
    fn give_back(&self, size: usize, replaced: &Header) {
        self.used.fetch_sub(size.wrapping_sub(self.share_of(replaced)), Relaxed);
    }

    fn share_of(&self, replaced: &Header) -> usize {
        if ptr::eq(replaced.allocator, self) { replaced.size } else { 0 }
    }
}

/// Before each block.
#[repr(C)]
struct Header {
    start: *mut c_void,
    size: usize,
    allocator: *const Allocator,
}

fn own(allocator: usize) -> Option<&'static Allocator> {
    let number = if allocator == 0 { me().icv().allocator } else { allocator };
    // SAFETY: no number of a predefined one, and so from `omp_init_allocator`.
    (number > PREDEFINED).then(|| unsafe { &*(number as *const Allocator) })
}

impl Header {
    /// Of a block that there is not.
    const NONE: Self = Self { start: ptr::null_mut(), size: 0, allocator: ptr::null() };
}

/// A block, zeros if so wished.
pub fn block(align: usize, size: usize, allocator: usize, zeros: bool) -> *mut c_void {
    replacement(align, size, allocator, zeros, &Header::NONE)
}

/// A block for what is in another one, whose bytes are counted for the new one if it has the same allocator.
fn replacement(align: usize, size: usize, allocator: usize, zeros: bool, replaced: &Header) -> *mut c_void {
    let own = own(allocator);
    let align = align.max(own.map_or(1, |own| own.alignment)).max(16);
    if size == 0 || !align.is_power_of_two() {
        return ptr::null_mut();
    }
    let failed = || match own {
        Some(own) if own.fallback == ABORT_FB => {
            eprintln!("wakeful: an allocator whose fallback is abort_fb has no {size} bytes");
            // SAFETY: no arguments.
            unsafe { libc::abort() };
        }
        Some(own) if own.fallback == ALLOCATOR_FB => {
            replacement(align, size, own.fallback_data, zeros, replaced)
        }
        Some(own) if own.fallback != NULL_FB => replacement(align, size, DEFAULT, zeros, replaced),
        _ => ptr::null_mut(),
    };
    let Some(all) = size.checked_add(size_of::<Header>() + align) else { return failed() };
    if own.is_some_and(|own| !own.take(size, replaced)) {
        return failed();
    }
    // SAFETY: the header and, aligned, the block are inside what was allocated.
    unsafe {
        let start = if zeros { libc::calloc(1, all) } else { libc::malloc(all) };
        if start.is_null() {
            if let Some(own) = own {
                own.give_back(size, replaced);
            }
            return failed();
        }
        let after = start.byte_add(size_of::<Header>());
        let there = after.byte_add(after.cast::<u8>().align_offset(align));
        there.cast::<Header>().sub(1).write_unaligned(Header {
            start,
            size,
            allocator: own.map_or(ptr::null(), ptr::from_ref),
        });
        there
    }
}

/// # Safety
/// From [`replacement`], or null.
pub unsafe fn free(memory: *mut c_void) {
    if memory.is_null() {
        return;
    }
    // SAFETY: as promised.
    unsafe {
        let header = memory.cast::<Header>().sub(1).read_unaligned();
        if let Some(own) = header.allocator.as_ref() {
            own.used.fetch_sub(header.size, Relaxed);
        }
        libc::free(header.start);
    }
}

/// For a variable of a directive or clause `allocate`, which has to be somewhere (OpenMP 5.1, section
/// 2.13.3).
pub fn needed(align: usize, size: usize, allocator: usize) -> *mut c_void {
    let block = block(align, size, allocator, false);
    if block.is_null() && size > 0 {
        eprintln!("wakeful: no memory for a variable of {size} bytes");
        std::process::exit(1);
    }
    block
}

/// # Safety
/// A block of `block`'s, or null; not used any more.
pub unsafe fn realloc(memory: *mut c_void, size: usize, allocator: usize) -> *mut c_void {
    if memory.is_null() {
        return block(1, size, allocator, false);
    }
    // SAFETY: as above; what is copied is in both.
    unsafe {
        if size == 0 {
            free(memory);
            return ptr::null_mut();
        }
        let before = memory.cast::<Header>().sub(1).read_unaligned();
        let allocator = match (allocator, before.allocator.addr()) {
            (0, 0) => DEFAULT,
            (0, same) => same,
            (other, _) => other,
        };
        let new = replacement(1, size, allocator, false, &before);
        if !new.is_null() {
            ptr::copy_nonoverlapping(memory.cast::<u8>(), new.cast(), before.size.min(size));
            match new.cast::<Header>().sub(1).read_unaligned().allocator == before.allocator {
                true => libc::free(before.start),
                false => free(memory),
            }
        }
        new
    }
}

/// 0: there is none with these traits.
///
/// # Safety
/// So many traits.
pub unsafe fn init_allocator(space: usize, count: c_int, traits: *const Trait) -> usize {
    let mut allocator = Allocator {
        alignment: 1,
        pool: usize::MAX,
        used: AtomicUsize::new(0),
        fallback: DEFAULT_FB,
        fallback_data: 0,
    };
    let mut is_to_be_had = space <= SPACES && space != HIGH_BANDWIDTH;
    for index in 0..count.max(0) as usize {
        // SAFETY: the program's, so many.
        let Trait { key, value } = unsafe { traits.add(index).read() };
        let default = value == ANY;
        is_to_be_had &= match key {
            SYNC_HINT => default || matches!(value, 3..=6),
            ALIGNMENT => default || value.is_power_of_two(),
            ACCESS => default || matches!(value, 7..=10),
            FALLBACK => default || matches!(value, DEFAULT_FB..=ALLOCATOR_FB),
            // Only LLVM's runtime takes the wish for the deed.
            PINNED => default || value < TRUE || value == TRUE && is_llvm(),
            PARTITION => default || matches!(value, 15..=18),
            POOL_SIZE | FALLBACK_DATA => true,
            _ => false,
        };
        match key {
            ALIGNMENT if !default => allocator.alignment = value,
            POOL_SIZE => allocator.pool = value,
            FALLBACK if !default => allocator.fallback = value,
            FALLBACK_DATA => allocator.fallback_data = value,
            _ => {}
        }
    }
    let allocator = if is_to_be_had { Own::new(|| allocator) } else { None };
    allocator.map_or(0, |allocator| allocator.into_raw().addr())
}

/// # Safety
/// From [`init_allocator`], and the program does not use it any more.
pub unsafe fn destroy_allocator(allocator: usize) {
    if allocator > PREDEFINED {
        // SAFETY: from `omp_init_allocator`, and the program does not use it any more.
        drop(unsafe { Own::from_raw(allocator as *mut Allocator) });
    }
}

pub fn set_default_allocator(allocator: usize) {
    if allocator != 0 {
        me().change_icv(|icv| icv.allocator = allocator);
    }
}

pub fn get_default_allocator() -> usize {
    me().icv().allocator
}
