// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts kernel threads without std, whose threads take a lock when they begin and end. A child that was
//! forked meanwhile would wait for that lock for ever.

use core::ffi::{CStr, c_void};
use core::mem::MaybeUninit;
use std::ffi::CString;
use std::io;

/// Bytes of stack: what std gives its threads.
const STACK: usize = 2 << 20;

struct Start {
    name: CString,
    body: Box<dyn FnOnce() + Send>,
}

/// Runs this in a new kernel thread, which nobody joins.
///
/// # Errors
/// That of `pthread_create`.
pub fn start(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let start = Box::new(Start { name: CString::new(name)?, body: Box::new(body) });
    let start = Box::into_raw(start);
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: all places live across the calls, and the new thread owns `start` if there is one.
    unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK);
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        let error = libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), main, start.cast());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        if error != 0 {
            drop(Box::from_raw(start));
            return Err(io::Error::from_raw_os_error(error));
        }
    }
    Ok(())
}

extern "C" fn main(start: *mut c_void) -> *mut c_void {
    // SAFETY: made by `start`, for this thread only.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    set_name(&start.name);
    (start.body)();
    core::ptr::null_mut()
}

/// At most 15 bytes; a longer one is refused, and the thread has its maker's name.
fn set_name(name: &CStr) {
    // SAFETY: the name lives across the call.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()) };
}
