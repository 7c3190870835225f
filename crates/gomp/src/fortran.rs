// SPDX-License-Identifier: MIT OR Apache-2.0
//! Routines as gfortran calls them, but for those that stand beside their C counterparts: an underscore at
//! the end, arguments by address, `_8_` where a default integer has eight bytes, and strings without an end,
//! with their lengths as last arguments.

use std::ffi::{c_char, c_int};

use omp::alloc::Trait;
use omp::display::{capture, display_in, set_format, with_format};
use omp::nest_lock::NestLock;
use omp::routines::ancestor;
use omp::tasks::Task;

use crate::alloc::*;
use crate::device::*;
use crate::lock::*;
use crate::routines::*;
use crate::tasks::omp_fulfill_event;

/// `name_` of no arguments.
macro_rules! plain {
    ($($fortran:ident $name:ident $result:ty;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $fortran() -> $result {
                $name()
            }
        )*
    };
}

plain! {
    omp_get_num_devices_ omp_get_num_devices c_int;
    omp_get_initial_device_ omp_get_initial_device c_int;
    omp_get_device_num_ omp_get_device_num c_int;
    omp_is_initial_device_ omp_is_initial_device c_int;
    omp_get_default_allocator_ omp_get_default_allocator usize;
}

/// `name_` and perhaps `name_8_` of one integer.
macro_rules! of_one {
    ($($fortran:ident $(($fortran_8:ident))? $name:ident $result:ty;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $fortran(value: *const i32) -> $result {
                // SAFETY: the program's variable; likewise below.
                $name(unsafe { *value })
            }

            $(
                #[unsafe(no_mangle)]
                unsafe extern "C" fn $fortran_8(value: *const i64) -> $result {
                    // SAFETY: as above.
                    $name(narrow(unsafe { *value }))
                }
            )?
        )*
    };
}

of_one! {
    omp_get_place_num_procs_ (omp_get_place_num_procs_8_) omp_get_place_num_procs c_int;
    omp_display_env_ (omp_display_env_8_) omp_display_env ();
    omp_pause_resource_all_ omp_pause_resource_all c_int;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_get_ancestor_thread_num_8_(level: *const i64) -> c_int {
    // SAFETY: as above; likewise in all that follow.
    ancestor(narrow(unsafe { *level }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_get_team_size_8_(level: *const i64) -> c_int {
    // SAFETY: as above.
    omp_get_team_size(narrow(unsafe { *level }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_pause_resource_(kind: *const i32, device: *const i32) -> c_int {
    // SAFETY: as above.
    unsafe { omp_pause_resource(*kind, *device) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_set_schedule_8_(kind: *const u32, chunk: *const i64) {
    // SAFETY: as above.
    unsafe { omp_set_schedule(*kind, narrow(*chunk)) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_get_schedule_8_(kind: *mut u32, chunk: *mut i64) {
    let mut small = 0;
    // SAFETY: as above.
    unsafe {
        omp_get_schedule_(kind, &mut small);
        chunk.write(small as i64);
    }
}

// --- places ------------------------------------------------------------------

/// # Safety
/// `to` has room for `count` numbers, of which `write` writes so many of half the size.
unsafe fn widened(count: c_int, to: *mut i64, write: impl FnOnce(*mut c_int)) {
    write(to.cast());
    // From the last, so that none is overwritten before it is read.
    for index in (0..count.max(0) as usize).rev() {
        // SAFETY: as promised.
        unsafe { to.add(index).write(to.cast::<c_int>().add(index).read() as i64) };
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_get_place_proc_ids_(place: *const i32, ids: *mut c_int) {
    // SAFETY: as above.
    unsafe { omp_get_place_proc_ids(*place, ids) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_get_place_proc_ids_8_(place: *const i64, ids: *mut i64) {
    // SAFETY: as above.
    unsafe {
        let place = narrow(*place);
        widened(omp_get_place_num_procs(place), ids, |ids| omp_get_place_proc_ids(place, ids));
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_get_partition_place_nums_(places: *mut c_int) {
    // SAFETY: as above.
    unsafe { omp_get_partition_place_nums(places) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_get_partition_place_nums_8_(places: *mut i64) {
    // SAFETY: as above.
    unsafe { widened(omp_get_partition_num_places(), places, |places| omp_get_partition_place_nums(places)) };
}

// --- strings -----------------------------------------------------------------

/// A string of Fortran's. Blanks at its end belong to it, as in libgomp.
///
/// # Safety
/// It has this length.
unsafe fn text<'a>(start: *const c_char, length: usize) -> &'a [u8] {
    // SAFETY: as promised.
    if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start.cast(), length) } }
}

/// Fills a string of Fortran's, and returns the length that there would be.
///
/// # Safety
/// It has this length.
unsafe fn fill(start: *mut c_char, length: usize, text: &[u8]) -> c_int {
    let count = text.len().min(length);
    if length > 0 {
        // SAFETY: as promised.
        let there = unsafe { std::slice::from_raw_parts_mut(start.cast::<u8>(), length) };
        there[..count].copy_from_slice(&text[..count]);
        there[count..].fill(b' ');
    }
    text.len() as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_set_affinity_format_(format: *const c_char, length: usize) {
    // SAFETY: the program's string; likewise below.
    set_format(unsafe { text(format, length) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_get_affinity_format_(buffer: *mut c_char, length: usize) -> c_int {
    // SAFETY: as above.
    with_format(|format| unsafe { fill(buffer, length, format.as_bytes()) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_display_affinity_(format: *const c_char, length: usize) {
    // SAFETY: as above.
    display_in(unsafe { text(format, length) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_capture_affinity_(
    buffer: *mut c_char,
    format: *const c_char,
    length: usize,
    format_length: usize,
) -> c_int {
    // SAFETY: as above.
    unsafe { fill(buffer, length, capture(text(format, format_length)).bytes()) }
}

// --- allocators and events ---------------------------------------------------

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_init_allocator_(
    space: *const usize,
    count: *const i32,
    traits: *const Trait,
) -> usize {
    // SAFETY: the program's variables; likewise below.
    unsafe { omp_init_allocator(*space, *count, traits) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_init_allocator_8_(
    space: *const usize,
    count: *const i64,
    traits: *const Trait,
) -> usize {
    // SAFETY: as above.
    unsafe { omp_init_allocator(*space, narrow(*count), traits) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_destroy_allocator_(allocator: *const usize) {
    // SAFETY: as above.
    unsafe { omp_destroy_allocator(*allocator) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_set_default_allocator_(allocator: *const usize) {
    // SAFETY: as above.
    omp_set_default_allocator(unsafe { *allocator });
}

/// By value, as its interface says.
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_fulfill_event_(event: *const Task) {
    // SAFETY: as there.
    unsafe { omp_fulfill_event(event) };
}

// --- locks -------------------------------------------------------------------

/// `omp_lock_kind` has four bytes, as a lock has, and `omp_nest_lock_kind` eight, of which the lock is made
/// as in C.
macro_rules! locks {
    ($($fortran:ident $name:ident ($lock:ty) -> $result:ty;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $fortran(lock: $lock) -> $result {
                // SAFETY: the program's lock; likewise below.
                unsafe { $name(lock) }
            }
        )*
    };
}

locks! {
    omp_init_lock_ omp_init_lock (*mut u32) -> ();
    omp_set_lock_ omp_set_lock (*mut u32) -> ();
    omp_unset_lock_ omp_unset_lock (*mut u32) -> ();
    omp_test_lock_ omp_test_lock (*mut u32) -> i32;
    omp_init_nest_lock_ omp_init_nest_lock (*mut *mut NestLock) -> ();
    omp_destroy_nest_lock_ omp_destroy_nest_lock (*mut *mut NestLock) -> ();
    omp_set_nest_lock_ omp_set_nest_lock (*const *const NestLock) -> ();
    omp_unset_nest_lock_ omp_unset_nest_lock (*const *const NestLock) -> ();
    omp_test_nest_lock_ omp_test_nest_lock (*const *const NestLock) -> i32;
}

#[unsafe(no_mangle)]
extern "C" fn omp_destroy_lock_(_lock: *mut u32) {}
