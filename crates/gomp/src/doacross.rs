// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loops whose iterations wait for each other.

use std::ffi::{c_long, c_uint, c_void};
use std::ptr;

use omp::icv::Kind;
use omp::loops::{How, begin_doacross, with_doacross};
use omp::wait::ByUser;

use crate::loops::{Number, next};

/// Begins a loop of `dimensions`, of which the first is shared out, and hands iterations out if there are
/// pointers for them.
///
/// # Safety
/// The pointers are the compiler's.
unsafe fn doacross<T: Number>(
    dimensions: c_uint,
    counts: *const u64,
    how: How,
    first: *mut T,
    last: *mut T,
    list: *mut usize,
    memory: *mut *mut c_void,
) -> bool {
    // SAFETY: as promised.
    unsafe {
        begin_doacross(std::slice::from_raw_parts(counts, dimensions as usize), how, list, memory);
        if first.is_null() { true } else { next(first, last) }
    }
}

#[unsafe(no_mangle)]
extern "C" fn wakeful_doacross_dimensions() -> c_uint {
    with_doacross(|doacross, _| doacross.dimensions() as c_uint).unwrap_or(1)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wakeful_doacross_await(iteration: *const u64) {
    with_doacross(|doacross, share| {
        // SAFETY: as many as there are dimensions.
        let iteration = unsafe { std::slice::from_raw_parts(iteration, doacross.dimensions()) };
        let place = doacross.place(iteration);
        if let Some(progress) = doacross.progress(iteration[0]) {
            progress.wait::<ByUser>(place, &share.changed);
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_doacross_post(iteration: *const u64) {
    with_doacross(|doacross, share| {
        // SAFETY: as many as there are dimensions.
        let iteration = unsafe { std::slice::from_raw_parts(iteration, doacross.dimensions()) };
        let place = doacross.place(iteration);
        if let Some(progress) = doacross.progress(iteration[0]) {
            progress.post(place, &share.changed);
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_doacross_ull_post(iteration: *const u64) {
    // SAFETY: the same.
    unsafe { GOMP_doacross_post(iteration) };
}

crate::in_c! {
    GOMP_doacross_wait => wakeful_doacross_wait;
    GOMP_doacross_ull_wait => wakeful_doacross_ull_wait;
}

/// The functions that begin such loops.
macro_rules! doacross_loops {
    ($($start:ident $start_ull:ident $kind:ident;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $start(
                dimensions: c_uint, counts: *const u64, chunk: c_long, first: *mut c_long, last: *mut c_long,
            ) -> bool {
                let (how, none) = (How::new(Kind::$kind, chunk), ptr::null_mut());
                // SAFETY: the compiler's pointers; likewise below.
                unsafe { doacross(dimensions, counts, how, first, last, none, ptr::null_mut()) }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $start_ull(
                dimensions: c_uint, counts: *const u64, chunk: u64, first: *mut u64, last: *mut u64,
            ) -> bool {
                let how = How { kind: Kind::$kind, chunk };
                // SAFETY: as above.
                unsafe { doacross(dimensions, counts, how, first, last, ptr::null_mut(), ptr::null_mut()) }
            }
        )*
    };
}

doacross_loops! {
    GOMP_loop_doacross_static_start GOMP_loop_ull_doacross_static_start Static;
    GOMP_loop_doacross_dynamic_start GOMP_loop_ull_doacross_dynamic_start Dynamic;
    GOMP_loop_doacross_guided_start GOMP_loop_ull_doacross_guided_start Guided;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_loop_doacross_runtime_start(
    dimensions: c_uint,
    counts: *const u64,
    first: *mut c_long,
    last: *mut c_long,
) -> bool {
    // SAFETY: the compiler's pointers; likewise below.
    unsafe { doacross(dimensions, counts, How::runtime(), first, last, ptr::null_mut(), ptr::null_mut()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_loop_ull_doacross_runtime_start(
    dimensions: c_uint,
    counts: *const u64,
    first: *mut u64,
    last: *mut u64,
) -> bool {
    // SAFETY: as above.
    unsafe { doacross(dimensions, counts, How::runtime(), first, last, ptr::null_mut(), ptr::null_mut()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_loop_doacross_start(
    dimensions: c_uint,
    counts: *const u64,
    kind: c_long,
    chunk: c_long,
    first: *mut c_long,
    last: *mut c_long,
    list: *mut usize,
    memory: *mut *mut c_void,
) -> bool {
    // SAFETY: as above.
    unsafe { doacross(dimensions, counts, How::by_number(kind, chunk), first, last, list, memory) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_loop_ull_doacross_start(
    dimensions: c_uint,
    counts: *const u64,
    kind: c_long,
    chunk: u64,
    first: *mut u64,
    last: *mut u64,
    list: *mut usize,
    memory: *mut *mut c_void,
) -> bool {
    // SAFETY: as above.
    unsafe { doacross(dimensions, counts, How::by_number(kind, chunk as i64), first, last, list, memory) }
}
