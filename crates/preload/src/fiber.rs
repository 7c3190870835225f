// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fibers of the program, or of a library of its: they wait here as everywhere, and their carriers go on.
//!
//! A runtime of fibers finds [`wakeful_preload_fibers_2`] by its name, and says how its fibers wait
//! (`linux::host`). What a thread owns, a fiber owns here: recursive mutexes, and who writes. It owns them
//! also while it unwinds, when it must not be parked.

use core::ffi::c_int;
use core::sync::atomic::AtomicU32;

use libc::timespec;
use linux::host::{self, Host};
use platform::{Platform, Wait};

use crate::{tid, time};

/// The calling thread is a carrier of this host's fibers.
#[unsafe(no_mangle)]
extern "C" fn wakeful_preload_fibers_2(of: &'static Host) {
    host::add(of);
    host::here_is_a_carrier();
}

/// The calling fiber's number, else the calling thread's kernel id.
#[inline(always)]
pub fn caller() -> u32 {
    host::number().unwrap_or_else(tid::get)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wakeful_host_sleep(
    word: *const AtomicU32,
    expected: u32,
    clock: c_int,
    until: *const timespec,
) -> c_int {
    if host::here().is_none() {
        return 0;
    }
    // SAFETY: cancel.c and sem.c pass a word that lives, and a time if there is a clock.
    let (word, deadline) = unsafe {
        let deadline = time::clock(clock).ok().and_then(|clock| time::deadline(clock, &*until).ok());
        (&*word, deadline)
    };
    match linux::Linux::wait(word, expected, deadline) {
        Wait::Woken | Wait::Interrupted => -1,
        Wait::TimedOut => libc::ETIMEDOUT,
        Wait::Changed => libc::EAGAIN,
    }
}
