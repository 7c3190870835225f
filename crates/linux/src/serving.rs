// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the threads run that serve delegated sections: for those who place memory.
//!
//! Two may want to know. One is linked with the program and says so ([`on_serving`]). The other is a
//! preloaded `malloc`, which is linked with nothing: it is found by the name of its function.

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::*};

use abi::environment::NUMA;

use crate::server;

/// Is called on the thread that serves: with 1 when it begins to, or has come to another processor; with 0
/// when it ends to. `server` is an address that no other server has.
pub type Serving = extern "C" fn(server: *const c_void, serves: i32);

/// By this name a preloaded library has a [`Serving`].
pub const SYMBOL: &CStr = c"wakeful_malloc_serves";

static OURS: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// The preloaded one; null: there is none. It was there when the program began.
static PRELOADED: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Before anybody serves. A server must not look it up: that takes the loader's lock, and who has that lock,
/// such as a plugin's constructor, may wait for the server.
#[unsafe(link_section = "wakeful_start")] // see the interposer's constructor
extern "C" fn look_up() {
    // To look for what is not there takes longer than all else at the start of a program, and allocates. That
    // library does nothing without the variable.
    if server::variable(NUMA, |_| Some(())).is_some() {
        PRELOADED.store(crate::exported(SYMBOL), Relaxed);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_UP: extern "C" fn() = look_up;

/// From now on `told` is called. One at a time is.
pub fn on_serving(told: Serving) {
    OURS.store(told as *mut c_void, Relaxed);
}

/// Called when a server begins and ends, and when it has been moved.
#[cold]
pub(crate) fn tell(server: *const (), serves: bool) {
    for told in [OURS.load(Relaxed), PRELOADED.load(Relaxed)] {
        if !told.is_null() {
            // SAFETY: from `on_serving`, or of the name that only such a function has.
            let told = unsafe { core::mem::transmute::<*mut c_void, Serving>(told) };
            told(server.cast(), i32::from(serves));
        }
    }
}
