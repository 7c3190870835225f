// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a forked child forgets: it has one thread, so nobody else holds a lock, waits, or runs fibers there.

use core::sync::atomic::{AtomicBool, Ordering::*};

use crate::fences;

/// A function that a forked child calls before `fork` returns there.
pub struct Forget {
    handler: extern "C" fn(),
    registered: AtomicBool,
}

impl Forget {
    /// Not registered yet.
    pub const fn by(handler: extern "C" fn()) -> Self {
        Self { handler, registered: AtomicBool::new(false) }
    }

    /// Registers it, and has the kernel fence (`fences.rs`). No `Once`: a child that was forked inside of
    /// that would wait for ever. The handler may be registered twice.
    #[inline]
    pub fn prepare(&self) {
        // ORDER: Acquire, Release: all who come after this agree on whether the kernel fences.
        if !self.registered.load(Acquire) {
            fences::prepare();
            // SAFETY: the function lives for ever.
            let failed = unsafe { libc::pthread_atfork(None, None, Some(self.handler)) };
            self.registered.store(failed == 0, Release);
        }
    }
}
