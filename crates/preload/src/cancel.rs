// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pthread_cancel`: the C library's. It loads the unwinder for the thread that is cancelled, and so do we:
//! see `unwind.c` in the crate `linux`.

use core::ffi::c_int;

use libc::pthread_t;

use crate::real;

unsafe extern "C" {
    fn wakeful_unwind_prepare();
}

/// # Safety
/// As the C library's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cancel(thread: pthread_t) -> c_int {
    // SAFETY: as promised.
    unsafe {
        wakeful_unwind_prepare();
        real::cancel(thread)
    }
}
