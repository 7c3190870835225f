// SPDX-License-Identifier: MIT OR Apache-2.0
//! Foreign load: processes that only burn their processor.

use std::io;

use crate::process;

/// Busy processes, until dropped.
#[derive(Debug)]
pub struct Busy(Vec<libc::pid_t>);

impl Busy {
    /// Starts so many.
    pub fn start(count: usize) -> io::Result<Self> {
        let mut busy = Self(Vec::with_capacity(count));
        for _ in 0..count {
            // SAFETY: no arguments.
            let parent = unsafe { libc::getpid() };
            // SAFETY: the child calls only what is async-signal-safe, and then never anything again.
            match unsafe { libc::fork() } {
                -1 => return Err(io::Error::last_os_error()),
                0 => {
                    if !process::die_with(parent, libc::SIGKILL) {
                        // SAFETY: async-signal-safe.
                        unsafe { libc::_exit(0) };
                    }
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

    /// Has them run on these processors only.
    pub fn keep_to(&self, processors: &[usize]) -> io::Result<()> {
        self.0.iter().try_for_each(|&pid| process::restrict(pid, processors))
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
