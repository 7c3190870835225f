// SPDX-License-Identifier: MIT OR Apache-2.0
//! `critical`, `atomic`, and `omp_lock_t`: the core's locks for C. The default mutex's zeros are a free lock.

use std::ffi::c_void;

use omp::lock::*;
use omp::nest_lock::*;
use sync::mutex::RawMutex;

#[unsafe(no_mangle)]
extern "C" fn GOMP_critical_start() {
    // SAFETY: released by `GOMP_critical_end`.
    unsafe { CRITICAL.raw().lock(&()) };
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_critical_end() {
    // SAFETY: acquired by `GOMP_critical_start`.
    unsafe { CRITICAL.raw().unlock(&()) };
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_atomic_start() {
    // SAFETY: released by `GOMP_atomic_end`.
    unsafe { ATOMIC.raw().lock(&()) };
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_atomic_end() {
    // SAFETY: acquired by `GOMP_atomic_start`.
    unsafe { ATOMIC.raw().unlock(&()) };
}

// The compiler makes a pointer for each name, null at first. The lock is in its place.
#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_critical_name_start(place: *mut *mut c_void) {
    // SAFETY: a pointer of the program's, in which nobody else writes.
    unsafe { raw(place).lock(&()) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_critical_name_end(place: *mut *mut c_void) {
    // SAFETY: as above.
    unsafe { raw(place).unlock(&()) };
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_init_lock(lock: *mut u32) {
    // SAFETY: the program's lock, which nobody uses before.
    unsafe { lock.write(0) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_init_lock_with_hint(lock: *mut u32, _hint: u32) {
    // SAFETY: as above.
    unsafe { omp_init_lock(lock) };
}

#[unsafe(no_mangle)]
extern "C" fn omp_destroy_lock(_lock: *mut u32) {}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_set_lock(lock: *mut u32) {
    // SAFETY: an initialised lock of the program's; likewise below.
    unsafe { raw(lock).lock(&()) };
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_unset_lock(lock: *mut u32) {
    // SAFETY: as above, and the program holds it.
    unsafe { raw(lock).unlock(&()) };
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_test_lock(lock: *mut u32) -> i32 {
    // SAFETY: as above.
    unsafe { raw(lock).try_lock(&()) as i32 }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_init_nest_lock(lock: *mut *mut NestLock) {
    // SAFETY: the program's lock, which nobody uses before.
    unsafe { init_nest_lock(lock) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_init_nest_lock_with_hint(lock: *mut *mut NestLock, _hint: u32) {
    // SAFETY: as above.
    unsafe { init_nest_lock(lock) };
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_destroy_nest_lock(lock: *mut *mut NestLock) {
    // SAFETY: nobody uses it any more.
    unsafe { destroy_nest_lock(lock) };
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_set_nest_lock(lock: *const *const NestLock) {
    // SAFETY: an initialised lock of the program's; likewise below.
    unsafe { set_nest_lock(lock) };
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_unset_nest_lock(lock: *const *const NestLock) {
    // SAFETY: as above.
    unsafe { unset_nest_lock(lock) };
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_test_nest_lock(lock: *const *const NestLock) -> i32 {
    // SAFETY: as above.
    unsafe { test_nest_lock(lock) }
}
