// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard streams that were closed: Rust's runtime opens /dev/null in their place before `main`, and a
//! program that we become must find what we found.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

extern "C" fn look() {
    for (stream, closed) in (0..).zip(&CLOSED) {
        // SAFETY: only asks.
        closed.store(unsafe { libc::fcntl(stream, libc::F_GETFD) } < 0, Relaxed);
    }
}

// SAFETY: as in sigpipe.rs.
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK: extern "C" fn() = look;

/// Was this one closed when we were started?
pub fn was_closed(stream: c_int) -> bool {
    CLOSED[stream as usize].load(Relaxed)
}

/// What was closed is so again after an exec; if that fails, we still have somewhere to write.
pub fn close_on_exec() {
    for stream in (0..CLOSED.len() as c_int).filter(|&stream| was_closed(stream)) {
        // SAFETY: /dev/null, opened by the runtime.
        unsafe { libc::fcntl(stream, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}
