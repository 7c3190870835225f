// SPDX-License-Identifier: MIT OR Apache-2.0
//! The action of SIGPIPE: Rust's runtime ignores the signal before `main`, and a program that we become
//! must find what we found.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What we were started with.
static FOUND: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

extern "C" fn look() {
    // SAFETY: zeros are a valid sigaction; only asks.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action);
        FOUND.store(action.sa_sigaction, Relaxed);
    }
}

// SAFETY: the C library calls what is here once, before `main`, in a state in which it can be called itself.
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK: extern "C" fn() = look;

fn set(action: usize) {
    // SAFETY: the default action or to ignore; nothing of ours runs in a handler.
    unsafe { libc::signal(libc::SIGPIPE, action) };
}

/// We end quietly when nobody reads our output any more.
pub fn default() {
    set(libc::SIG_DFL);
}

/// As it was when we were started.
pub fn restore() {
    set(FOUND.load(Relaxed));
}
