// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors, past the C library.
//!
//! Some libraries put functions of their own in place of `socket`, `connect`, `fcntl` and `close`
//! (socket_wrapper, torsocks). Those take locks, and would come back to us, who may be in the midst of one.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// A descriptor that is closed with this.
#[derive(Debug)]
pub struct Fd(RawFd);

impl Fd {
    /// From what a system call has answered.
    ///
    /// # Errors
    /// Errno, if that is no descriptor.
    ///
    /// # Safety
    /// A descriptor is open, and nobody else closes it.
    pub unsafe fn new(answer: libc::c_long) -> io::Result<Self> {
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(Self(answer as RawFd)) }
    }

    /// Leaves it open.
    pub fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: open, and ours.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as this lives.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

impl From<OwnedFd> for Fd {
    fn from(fd: OwnedFd) -> Self {
        Self(fd.into_raw_fd())
    }
}

impl From<Fd> for OwnedFd {
    fn from(fd: Fd) -> Self {
        let number = fd.0;
        fd.forget();
        // SAFETY: open, and nobody else's any more.
        unsafe { Self::from_raw_fd(number) }
    }
}
