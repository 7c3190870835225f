// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a forked child forgets: it has one thread, so nobody else holds a lock, waits, or runs fibers there.

use core::sync::atomic::{AtomicBool, Ordering::*};

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

    /// Registers it. No `Once`: a child that was forked inside of that would wait for ever. The handler may
    /// be registered twice.
    #[inline]
    pub fn prepare(&self) {
        if !self.registered.load(Relaxed) {
            // SAFETY: the function lives for ever.
            let failed = unsafe { libc::pthread_atfork(None, None, Some(self.handler)) };
            self.registered.store(failed == 0, Relaxed);
        }
    }
}
