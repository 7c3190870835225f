// SPDX-License-Identifier: MIT OR Apache-2.0
//! Foreign load: processes that only burn their processor.

use std::io;

/// Busy processes, until dropped.
#[derive(Debug)]
pub struct Busy(Vec<libc::pid_t>);

impl Busy {
    /// Starts so many.
    pub fn start(count: usize) -> io::Result<Self> {
        let mut busy = Self(Vec::with_capacity(count));
        for _ in 0..count {
            // SAFETY: the child calls only prctl, which is async-signal-safe, and then never anything again.
            match unsafe { libc::fork() } {
                -1 => return Err(io::Error::last_os_error()),
                0 => {
                    // SAFETY: as above.
                    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                    let mut spin = 0u64;
                    loop {
                        spin = std::hint::black_box(spin.wrapping_add(1));
                    }
                }
                pid => busy.0.push(pid),
            }
        }
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for &pid in &self.0 {
            // SAFETY: our own child, not yet reaped.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, std::ptr::null_mut(), 0);
            }
        }
    }
}
