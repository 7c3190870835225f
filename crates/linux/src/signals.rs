// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals, or cancellation, off for a few instructions.

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

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, old: *mut libc::c_int) -> libc::c_int;
}

const PTHREAD_CANCEL_DISABLE: libc::c_int = 1;

/// No cancellation ends the thread while this lives: it may be inside a lock, and to open a file is a
/// cancellation point.
pub struct Uncancelled(libc::c_int);

impl Uncancelled {
    /// Until it is dropped.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let mut old = 0;
        // SAFETY: a number, and a place for one.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut old) };
        Self(old)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: as in `new`; the C library allows null here.
        unsafe { pthread_setcancelstate(self.0, core::ptr::null_mut()) };
    }
}
