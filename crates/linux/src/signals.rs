// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals off for a few instructions.

/// No signal handler runs while this lives: one that took a lock, or forked, in the midst of a registration
/// would find half of it.
pub struct NoSignals(u64);

/// Bytes of the kernel's signal set.
const SIGSET: usize = 8;

impl NoSignals {
    /// Until it is dropped.
    pub fn new() -> Self {
        let (all, mut old) = (u64::MAX, 0u64);
        // SAFETY: both sets live and are of the size stated. The system call, because pthread_sigmask
        // spares signals that libc uses.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &all, &mut old, SIGSET) };
        Self(old)
    }
}

impl Drop for NoSignals {
    fn drop(&mut self) {
        // SAFETY: as in `new`.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_SETMASK,
                &self.0,
                core::ptr::null_mut::<u64>(),
                SIGSET,
            )
        };
    }
}
