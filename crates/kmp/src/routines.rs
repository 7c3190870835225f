// SPDX-License-Identifier: MIT OR Apache-2.0
//! OpenMP's routines by other names of LLVM's, and what its `omp.h` has besides. Of these, what sets how
//! threads wait and how the runtime speaks changes nothing here.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use omp::icv::settings;
use omp::lock::ATOMIC;
use sync::mutex::RawMutex;

use crate::Ident;

/// Functions that do what another one does, with the arguments after those that are of no use here.
macro_rules! names {
    ($($name:ident($($ignored:ty),*; $($argument:ident: $type:ty),*) $(-> $result:ty)? = $target:ident;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($(_: $ignored,)* $($argument: $type),*) $(-> $result)? {
                unsafe extern "C" {
                    fn $target($($argument: $type),*) $(-> $result)?;
                }
                // SAFETY: the caller's arguments.
                unsafe { $target($($argument),*) }
            }
        )*
    };
}

names! {
    __kmpc_alloc(c_int; size: usize, allocator: usize) -> *mut c_void = omp_alloc;
    __kmpc_aligned_alloc(c_int; align: usize, size: usize, allocator: usize) -> *mut c_void = omp_aligned_alloc;
    __kmpc_calloc(c_int; count: usize, size: usize, allocator: usize) -> *mut c_void = omp_calloc;
    __kmpc_realloc(c_int; memory: *mut c_void, size: usize, allocator: usize, from: usize) -> *mut c_void = omp_realloc;
    __kmpc_free(c_int; memory: *mut c_void, allocator: usize) = omp_free;
    __kmpc_init_allocator(c_int; space: usize, count: c_int, traits: *const c_void) -> usize = omp_init_allocator;
    __kmpc_destroy_allocator(c_int; allocator: usize) = omp_destroy_allocator;
    __kmpc_set_default_allocator(c_int; allocator: usize) = omp_set_default_allocator;
    __kmpc_get_default_allocator(c_int;) -> usize = omp_get_default_allocator;

    __kmpc_init_lock(*const Ident, c_int; lock: *mut c_void) = omp_init_lock;
    __kmpc_init_lock_with_hint(*const Ident, c_int; lock: *mut c_void, hint: u32) = omp_init_lock_with_hint;
    __kmpc_destroy_lock(*const Ident, c_int; lock: *mut c_void) = omp_destroy_lock;
    __kmpc_set_lock(*const Ident, c_int; lock: *mut c_void) = omp_set_lock;
    __kmpc_unset_lock(*const Ident, c_int; lock: *mut c_void) = omp_unset_lock;
    __kmpc_test_lock(*const Ident, c_int; lock: *mut c_void) -> c_int = omp_test_lock;
    __kmpc_init_nest_lock(*const Ident, c_int; lock: *mut c_void) = omp_init_nest_lock;
    __kmpc_init_nest_lock_with_hint(*const Ident, c_int; lock: *mut c_void, hint: u32) = omp_init_nest_lock_with_hint;
    __kmpc_destroy_nest_lock(*const Ident, c_int; lock: *mut c_void) = omp_destroy_nest_lock;
    __kmpc_set_nest_lock(*const Ident, c_int; lock: *mut c_void) = omp_set_nest_lock;
    __kmpc_unset_nest_lock(*const Ident, c_int; lock: *mut c_void) = omp_unset_nest_lock;
    __kmpc_test_nest_lock(*const Ident, c_int; lock: *mut c_void) -> c_int = omp_test_nest_lock;

    ompc_set_affinity_format(; text: *const c_char) = omp_set_affinity_format;
    ompc_get_affinity_format(; buffer: *mut c_char, room: usize) -> usize = omp_get_affinity_format;
    ompc_display_affinity(; text: *const c_char) = omp_display_affinity;
    ompc_capture_affinity(; buffer: *mut c_char, room: usize, text: *const c_char) -> usize = omp_capture_affinity;

    kmp_malloc(; size: usize) -> *mut c_void = malloc;
    kmp_calloc(; count: usize, size: usize) -> *mut c_void = calloc;
    kmp_realloc(; memory: *mut c_void, size: usize) -> *mut c_void = realloc;
    kmp_free(; memory: *mut c_void) = free;
}

#[unsafe(no_mangle)]
extern "C" fn kmp_aligned_malloc(size: usize, align: usize) -> *mut c_void {
    match align.is_power_of_two() {
        // SAFETY: gives memory, or null.
        true => unsafe { libc::memalign(align, size) },
        false => std::ptr::null_mut(),
    }
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_atomic_start() {
    // SAFETY: released by `__kmpc_atomic_end`.
    unsafe { ATOMIC.raw().lock(&()) };
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_atomic_end() {
    // SAFETY: acquired by `__kmpc_atomic_start`.
    unsafe { ATOMIC.raw().unlock(&()) };
}

/// Functions that set what is of no use here.
macro_rules! unused {
    ($($name:ident($($type:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name($(_: $type),*) {}
        )*
    };
}

unused! {
    kmp_set_library(c_int);
    kmp_set_library_serial();
    kmp_set_library_turnaround();
    kmp_set_library_throughput();
    kmp_set_defaults(*const c_char);
    kmp_set_stacksize(c_int);
    kmp_set_stacksize_s(usize);
    kmp_set_disp_num_buffers(c_int);
    kmp_set_warnings_on();
    kmp_set_warnings_off();
}

/// What was set; below 0: nothing.
static BLOCKTIME: AtomicI32 = AtomicI32::new(-1);

/// Milliseconds for which who waits is to spin. They are kept for who asks, and waiting goes by the
/// processors that there are.
#[unsafe(no_mangle)]
extern "C" fn kmp_set_blocktime(milliseconds: c_int) {
    BLOCKTIME.store(milliseconds.max(0), Relaxed);
}

#[unsafe(no_mangle)]
extern "C" fn kmp_get_blocktime() -> c_int {
    /// libomp's.
    const DEFAULT: c_int = 200;
    match (BLOCKTIME.load(Relaxed), settings().wait_policy) {
        (set @ 0.., _) => set,
        (_, Some(true)) => c_int::MAX,
        (_, Some(false)) => 0,
        (_, None) => DEFAULT,
    }
}

#[unsafe(no_mangle)]
extern "C" fn kmp_get_library() -> c_int {
    /// `library_throughput`: who waits does not keep others from running.
    const THROUGHPUT: c_int = 3;
    THROUGHPUT
}

#[unsafe(no_mangle)]
extern "C" fn kmp_get_stacksize_s() -> usize {
    settings().stack.unwrap_or(0)
}

#[unsafe(no_mangle)]
extern "C" fn kmp_get_stacksize() -> c_int {
    kmp_get_stacksize_s() as c_int
}
