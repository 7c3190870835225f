// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory.

use std::ffi::{c_int, c_void};
use std::ptr;

use omp::alloc::*;

#[unsafe(no_mangle)]
extern "C" fn GOMP_alloc(align: usize, size: usize, allocator: usize) -> *mut c_void {
    needed(align, size, allocator)
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
unsafe extern "C" fn omp_realloc(
    memory: *mut c_void,
    size: usize,
    allocator: usize,
    _from: usize,
) -> *mut c_void {
    // SAFETY: as above.
    unsafe { realloc(memory, size, allocator) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_free(memory: *mut c_void, _allocator: usize) {
    // SAFETY: as above.
    unsafe { free(memory) };
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_init_allocator(
    space: usize,
    count: c_int,
    traits: *const Trait,
) -> usize {
    // SAFETY: the program's, so many.
    unsafe { init_allocator(space, count, traits) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_destroy_allocator(allocator: usize) {
    // SAFETY: the program does not use it any more.
    unsafe { destroy_allocator(allocator) };
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_set_default_allocator(allocator: usize) {
    set_default_allocator(allocator);
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_get_default_allocator() -> usize {
    get_default_allocator()
}
