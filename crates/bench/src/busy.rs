// SPDX-License-Identifier: MIT OR Apache-2.0
//! Foreign load: processes that only burn their processor, or other programs.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::process::{self, Guard};

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

/// Other programs, which end with this, whatever they have started.
#[derive(Debug, Default)]
pub struct Crowd(Option<Guard>, Vec<Child>);

impl Crowd {
    /// Starts a program so often, silent.
    pub fn start(count: usize, program: &Path, arguments: &[&str]) -> io::Result<Self> {
        let guard = Guard::start()?;
        let group = guard.0;
        let mut crowd = Self(Some(guard), Vec::with_capacity(count));
        for _ in 0..count {
            let mut command = Command::new(program);
            command.args(arguments).process_group(group);
            crowd.1.push(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        }
        Ok(crowd)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.0.iter().for_each(Guard::kill_group);
        self.1.iter_mut().for_each(|child| drop(child.wait()));
    }
}
