// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pthread_key_create` and `tss_create`: the C library's. Only the last key is ours to give: we notice by a key of our own when a thread
//! exits, and a program that asks for all of them gets that one, too.

use core::ffi::{c_int, c_void};

use libc::pthread_key_t;

use crate::real;

type Destructor = Option<unsafe extern "C" fn(*mut c_void)>;

/// # Safety
/// As the C library's function of this name; likewise below.
#[unsafe(no_mangle)]
#[unsafe(link_section = "wakeful_start")]
pub unsafe extern "C" fn pthread_key_create(key: *mut pthread_key_t, destructor: Destructor) -> c_int {
    // SAFETY: as promised.
    match unsafe { real::key_create(key, destructor) } {
        // SAFETY: as promised.
        libc::EAGAIN if linux::give_key_back() => unsafe { real::key_create(key, destructor) },
        result => result,
    }
}

/// The C library's does not go through `pthread_key_create`.
#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn tss_create(key: *mut pthread_key_t, destructor: Destructor) -> c_int {
    // SAFETY: as promised. A program that calls it comes with a C library that has it.
    match unsafe { real::tss_create(key, destructor) } {
        0 => 0,
        // SAFETY: as promised. It fails for want of keys only.
        _ if linux::give_key_back() => unsafe { real::tss_create(key, destructor) },
        error => error,
    }
}

crate::aliases! {
    __pthread_key_create = pthread_key_create(key: *mut pthread_key_t, destructor: Destructor);
}
