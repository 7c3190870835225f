// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that is started in two steps: first its process, of which events can be opened, then exec(2).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Why the program did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No process, or no pipe.
    #[error("cannot start a process")]
    Process(#[source] io::Error),
    /// What exec(2) says.
    #[error("cannot run it")]
    Exec(#[source] io::Error),
}

/// A process of ours that is to become the program.
pub struct Program {
    process: libc::pid_t,
    /// A byte through it lets the process go on.
    go: Option<File>,
    /// If exec(2) fails, its error comes through it; else it closes.
    failure: File,
    ended: Option<i32>,
    /// A signal has stopped it; and somebody has let it go on, since the last question.
    is_stopped: bool,
    was_continued: bool,
}

impl Program {
    /// A process that waits, and then calls `become_program`, which returns if it fails.
    ///
    /// # Errors
    /// [`StartError::Process`].
    pub fn prepare(become_program: impl FnOnce() -> io::Error) -> Result<Self, StartError> {
        let (mut wait, go) = pipe().map_err(StartError::Process)?;
        let (failure, mut fail) = pipe().map_err(StartError::Process)?;
        // SAFETY: no other thread of ours runs, at most one waits for us. So the child may call any function.
        match unsafe { libc::fork() } {
            -1 => Err(StartError::Process(io::Error::last_os_error())),
            0 => {
                drop((go, failure));
                // The kernel's word to the program when we are killed. It stays after an exec, but for
                // set-user-ID programs, and its own children do not have it.
                // SAFETY: changes this process alone.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
                // If our parent is gone there is no byte, and nothing to do.
                if wait.read_exact(&mut [0]).is_ok() {
                    let error = become_program();
                    let _ = fail.write_all(&error.raw_os_error().unwrap_or(libc::EINVAL).to_ne_bytes());
                }
                // SAFETY: ends this process, without what the parent has to do at its end.
                unsafe { libc::_exit(127) }
            }
            process => Ok(Self {
                process,
                go: Some(go),
                failure,
                ended: None,
                is_stopped: false,
                was_continued: false,
            }),
        }
    }

    /// The process.
    pub fn process(&self) -> u32 {
        self.process as u32
    }

    /// Lets it become the program. From then on a stop of it, or its going on, ends our sleep at once.
    ///
    /// # Errors
    /// [`StartError::Exec`].
    pub fn start(&mut self) -> Result<(), StartError> {
        hear_of_it();
        if let Some(mut go) = self.go.take() {
            go.write_all(&[1]).map_err(StartError::Process)?;
        }
        let mut number = [0; 4];
        match self.failure.read_exact(&mut number) {
            Ok(()) => Err(StartError::Exec(io::Error::from_raw_os_error(i32::from_ne_bytes(number)))),
            Err(_) => Ok(()),
        }
    }

    /// The status of wait(2), once it has ended. Does not wait.
    pub fn ended(&mut self) -> Option<i32> {
        let news = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
        while self.ended.is_none() {
            let mut status = 0;
            // SAFETY: the number lives across the call; the process is our child, and not waited for yet.
            if unsafe { libc::waitpid(self.process, &mut status, news) } != self.process {
                break;
            }
            match status {
                status if libc::WIFSTOPPED(status) => self.is_stopped = true,
                status if libc::WIFCONTINUED(status) => {
                    (self.is_stopped, self.was_continued) = (false, true);
                }
                status => (self.ended, self.is_stopped) = (Some(status), false),
            }
        }
        self.ended
    }

    /// Has a signal stopped it, as [`Self::ended`] has learnt? A debugger's stops are not told here.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Was it continued since the last time that somebody asked?
    pub fn was_continued(&mut self) -> bool {
        std::mem::take(&mut self.was_continued)
    }

    /// Sends it a signal, unless it has ended.
    pub fn signal(&self, number: i32) {
        if self.ended.is_none() {
            // SAFETY: our child, which nobody else waits for, so that its number is its own.
            unsafe { libc::kill(self.process, number) };
        }
    }
}

impl Drop for Program {
    /// A caller that has not let the program go on ends it.
    fn drop(&mut self) {
        if self.go.take().is_some() {
            let mut status = 0;
            // SAFETY: our child, which ends as its pipe has closed.
            unsafe { libc::waitpid(self.process, &mut status, 0) };
        }
    }
}

/// Somebody has let this process itself go on.
static WENT_ON: AtomicBool = AtomicBool::new(false);

/// Has somebody, since the last question?
pub(crate) fn went_on() -> bool {
    WENT_ON.swap(false, Relaxed)
}

extern "C" fn heard(number: libc::c_int) {
    if number == libc::SIGCONT {
        WENT_ON.store(true, Relaxed);
    }
}

/// A signal that is handled ends a sleep. And who was started with SIGCHLD ignored would not learn the end.
fn hear_of_it() {
    let heard: extern "C" fn(libc::c_int) = heard;
    // SAFETY: the handler stores a word; a structure of zeros is valid, and lives across the calls.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = heard as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        for number in [libc::SIGCHLD, libc::SIGCONT] {
            libc::sigaction(number, &action, std::ptr::null_mut());
        }
    }
}

fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: room for two; they are new, and nobody else's.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])))
    }
}
