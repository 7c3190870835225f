// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts kernel threads without std, whose threads take a lock when they begin and end. A child that was
//! forked meanwhile would wait for that lock for ever.

use core::ffi::{CStr, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering::*};
use std::ffi::CString;
use std::io;

/// Bytes of stack: what std gives its threads.
const STACK: usize = 2 << 20;

struct Start {
    name: CString,
    left: fn(),
    body: Box<dyn FnOnce() + Send>,
}

/// Runs this in a new kernel thread, which nobody joins. `left` is called in it if it ends.
///
/// # Errors
/// That of `pthread_create`.
pub fn start(name: String, left: fn(), body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let start = Box::new(Start { name: CString::new(name)?, left, body: Box::new(body) });
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
    at_end(start.left);
    (start.body)();
    core::ptr::null_mut()
}

/// At most 15 bytes; a longer one is refused, and the thread has its maker's name.
fn set_name(name: &CStr) {
    // SAFETY: the name lives across the call.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()) };
}

/// What C's `pthread_exit` unwinds of a fiber's stack need not notice it, as frames of C do not. A key's
/// destructor does, which `exit` does not call. Frames that stop the unwinding end the program by themselves.
fn at_end(left: fn()) {
    /// And one more; 0: there is none yet.
    static KEY: AtomicU64 = AtomicU64::new(0);
    // SAFETY: the place lives across the call; the key is ours, and its values are such functions.
    unsafe {
        if KEY.load(Relaxed) == 0 {
            let mut key = 0;
            if libc::pthread_key_create(&mut key, Some(ended)) != 0 {
                return;
            }
            if KEY.compare_exchange(0, u64::from(key) + 1, Relaxed, Relaxed).is_err() {
                libc::pthread_key_delete(key);
            }
        }
        libc::pthread_setspecific((KEY.load(Relaxed) - 1) as libc::pthread_key_t, left as *const c_void);
    }
}

unsafe extern "C" fn ended(left: *mut c_void) {
    // SAFETY: set by `at_end`.
    unsafe { core::mem::transmute::<*mut c_void, fn()>(left)() };
}
