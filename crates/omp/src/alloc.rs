// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory (OpenMP 5.1, section 3.13): there is one kind, whatever an allocator asks for; alignment and fallback are kept.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::thread::me;

/// The number of a predefined allocator.
pub fn predefined(name: &str) -> Option<usize> {
    const NAMES: [&str; 8] = [
        "omp_default_mem_alloc",
        "omp_large_cap_mem_alloc",
        "omp_const_mem_alloc",
        "omp_high_bw_mem_alloc",
        "omp_low_lat_mem_alloc",
        "omp_cgroup_mem_alloc",
        "omp_pteam_mem_alloc",
        "omp_thread_mem_alloc",
    ];
    NAMES.iter().position(|known| name.eq_ignore_ascii_case(known)).map(|index| index + 1)
}

const PREDEFINED: usize = 8;
const DEFAULT: usize = 1;
/// Traits, and values of them, by their numbers in `omp.h`.
const ALIGNMENT: c_int = 2;
const POOL_SIZE: c_int = 4;
const FALLBACK: c_int = 5;
const FALLBACK_DATA: c_int = 6;
const NULL_FB: usize = 12;
const ABORT_FB: usize = 13;
const ALLOCATOR_FB: usize = 14;

/// `omp_alloctrait_t`.
#[repr(C)]
pub(crate) struct Trait {
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

/// A block, zeros if so wished.
fn block(align: usize, size: usize, allocator: usize, zeros: bool) -> *mut c_void {
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
        Some(own) if own.fallback == ALLOCATOR_FB => block(align, size, own.fallback_data, zeros),
        Some(own) if own.fallback != NULL_FB => block(align, size, DEFAULT, zeros),
        _ => ptr::null_mut(),
    };
    let Some(all) = size.checked_add(size_of::<Header>() + align) else { return failed() };
    if let Some(own) = own
        && own.used.fetch_add(size, Relaxed).saturating_add(size) > own.pool
    {
        own.used.fetch_sub(size, Relaxed);
        return failed();
    }
    // SAFETY: the header and, aligned, the block are inside what was allocated.
    unsafe {
        let start = if zeros { libc::calloc(1, all) } else { libc::malloc(all) };
        if start.is_null() {
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
/// From [`block`], or null.
unsafe fn free(memory: *mut c_void) {
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

#[unsafe(no_mangle)]
extern "C" fn GOMP_alloc(align: usize, size: usize, allocator: usize) -> *mut c_void {
    block(align, size, allocator, false)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_free(memory: *mut c_void, _allocator: usize) {
    // SAFETY: from `GOMP_alloc`; likewise below.
    unsafe { free(memory) };
}

#[unsafe(no_mangle)]
extern "C" fn omp_alloc(size: usize, allocator: usize) -> *mut c_void {
    block(1, size, allocator, false)
}

#[unsafe(no_mangle)]
extern "C" fn omp_aligned_alloc(align: usize, size: usize, allocator: usize) -> *mut c_void {
    block(align, size, allocator, false)
}

#[unsafe(no_mangle)]
extern "C" fn omp_calloc(count: usize, size: usize, allocator: usize) -> *mut c_void {
    omp_aligned_calloc(1, count, size, allocator)
}

#[unsafe(no_mangle)]
extern "C" fn omp_aligned_calloc(align: usize, count: usize, size: usize, allocator: usize) -> *mut c_void {
    count.checked_mul(size).map_or(ptr::null_mut(), |size| block(align, size, allocator, true))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_realloc(memory: *mut c_void, size: usize, allocator: usize, _from: usize) -> *mut c_void {
    // SAFETY: as above; what is copied is in both.
    unsafe {
        let new = block(1, size, allocator, false);
        if !new.is_null() && !memory.is_null() {
            let before = memory.cast::<Header>().sub(1).read_unaligned().size;
            ptr::copy_nonoverlapping(memory.cast::<u8>(), new.cast(), before.min(size));
        }
        if !new.is_null() || size == 0 {
            free(memory);
        }
        new
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_free(memory: *mut c_void, _allocator: usize) {
    // SAFETY: as above.
    unsafe { free(memory) };
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_init_allocator(_space: usize, count: c_int, traits: *const Trait) -> usize {
    let mut allocator =
        Allocator { alignment: 1, pool: usize::MAX, used: AtomicUsize::new(0), fallback: 0, fallback_data: 0 };
    for index in 0..count.max(0) as usize {
        // SAFETY: the program's, so many.
        let Trait { key, value } = unsafe { traits.add(index).read() };
        match key {
            ALIGNMENT if value.is_power_of_two() => allocator.alignment = value,
            ALIGNMENT => return 0,
            POOL_SIZE => allocator.pool = value,
            FALLBACK => allocator.fallback = value,
            FALLBACK_DATA => allocator.fallback_data = value,
            _ => {}
        }
    }
    Box::into_raw(Box::new(allocator)).addr()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_destroy_allocator(allocator: usize) {
    if allocator > PREDEFINED {
        // SAFETY: from `omp_init_allocator`, and the program does not use it any more.
        drop(unsafe { Box::from_raw(allocator as *mut Allocator) });
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_set_default_allocator(allocator: usize) {
    if allocator != 0 {
        me().change_icv(|icv| icv.allocator = allocator);
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_get_default_allocator() -> usize {
    me().icv().allocator
}
