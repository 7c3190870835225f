// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pthread_once`: see [`sync::once::Wakeful`], whose values for new and done are the C library's.
//!
//! It is entered in once.c, by a jump and not a call, so that no Rust frame is on the stack when the routine is cancelled or throws.

use core::ffi::c_int;

use libc::pthread_once_t;
use linux::Linux;
use sync::once::{Begin, End, RawOnce};

type Once = sync::once::Wakeful<Linux>;

const _: () = assert!(size_of::<Once>() == size_of::<pthread_once_t>());

#[unsafe(no_mangle)]
unsafe extern "C" fn wakeful_once_begin(once: *mut pthread_once_t) -> c_int {
    // SAFETY: once.c passes what the program gave it, a word that starts as 0.
    let once = unsafe { &*once.cast_const().cast::<Once>() };
    (!once.is_done() && matches!(once.begin(true), Begin::Run { .. })).into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wakeful_once_end(once: *mut pthread_once_t, done: c_int) {
    // SAFETY: as above.
    unsafe { &*once.cast_const().cast::<Once>() }.end(if done != 0 { End::Done } else { End::Undone });
}

unsafe extern "C" {
    fn wakeful_once(once: *mut pthread_once_t, routine: Option<unsafe extern "C" fn()>) -> c_int;
}

crate::jump! {
    pthread_once(once: *mut pthread_once_t, routine: Option<unsafe extern "C" fn()>) => wakeful_once;
    __pthread_once(once: *mut pthread_once_t, routine: Option<unsafe extern "C" fn()>) => wakeful_once;
}
