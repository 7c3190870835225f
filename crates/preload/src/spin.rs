// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pthread_spin_*`: see [`sync::spin::Wakeful`], which keeps the C library's values on x86_64, so that a process-shared
//! lock works with processes that run without us.

use core::ffi::c_int;

use libc::pthread_spinlock_t;
use linux::Linux;

type Lock = sync::spin::Wakeful<Linux>;

const _: () = assert!(size_of::<Lock>() == size_of::<pthread_spinlock_t>());

/// # Safety
/// As the C library's function of this name; likewise all below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_lock(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: as promised.
    unsafe { &*lock.cast_const().cast::<Lock>() }.lock();
    0
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)] // as above, likewise below
pub unsafe extern "C" fn pthread_spin_trylock(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: as promised.
    if unsafe { &*lock.cast_const().cast::<Lock>() }.try_lock() { 0 } else { libc::EBUSY }
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_spin_unlock(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: as promised; the C library does not check either that the lock is held.
    unsafe { (*lock.cast_const().cast::<Lock>()).unlock() };
    0
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_spin_init(lock: *mut pthread_spinlock_t, _shared: c_int) -> c_int {
    // SAFETY: as promised.
    unsafe { lock.cast::<Lock>().write(Lock::new()) };
    0
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_spin_destroy(_lock: *mut pthread_spinlock_t) -> c_int {
    0
}
