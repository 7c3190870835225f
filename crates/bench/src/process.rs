// SPDX-License-Identifier: MIT OR Apache-2.0
//! Child processes: started so that they do not outlive us, waited for with a deadline, and billed.

use std::io;
use std::ops::Sub;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use serde::Serialize;

/// What a process used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Usage {
    /// Processor seconds in user mode.
    pub user_seconds: f64,
    /// Processor seconds in the kernel.
    pub system_seconds: f64,
    /// Times that a thread gave its processor up.
    pub voluntary_switches: u64,
    /// Times that a thread's processor was taken.
    pub involuntary_switches: u64,
}

impl Usage {
    /// User and system.
    pub fn cpu_seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }

    /// Voluntary and not.
    pub fn context_switches(&self) -> u64 {
        self.voluntary_switches + self.involuntary_switches
    }
}

impl Sub for Usage {
    type Output = Self;
    fn sub(self, before: Self) -> Self {
        Self {
            user_seconds: self.user_seconds - before.user_seconds,
            system_seconds: self.system_seconds - before.system_seconds,
            voluntary_switches: self.voluntary_switches - before.voluntary_switches,
            involuntary_switches: self.involuntary_switches - before.involuntary_switches,
        }
    }
}

impl From<libc::rusage> for Usage {
    fn from(usage: libc::rusage) -> Self {
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Self {
            user_seconds: seconds(usage.ru_utime),
            system_seconds: seconds(usage.ru_stime),
            voluntary_switches: usage.ru_nvcsw as u64,
            involuntary_switches: usage.ru_nivcsw as u64,
        }
    }
}

/// What this process has used so far.
pub fn own_usage() -> Usage {
    // SAFETY: zeros are a valid rusage, and getrusage fills it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage.into()
    }
}

/// A child that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// From start to end.
    pub wall: Duration,
    /// What it and the children that it waited for used.
    pub usage: Usage,
    /// We killed it because its time was up.
    pub timed_out: bool,
}

/// Process group of the child that runs now; 0: none.
static RUNNING: AtomicI32 = AtomicI32::new(0);

/// Kills the child that runs now and whatever it started; for a signal handler.
pub fn kill_running() {
    let group = RUNNING.load(SeqCst);
    if group > 0 {
        // SAFETY: plain numbers; the group is our child's, which we have not reaped yet.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
}

/// Makes the child die with us.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    // SAFETY: prctl and getppid are async-signal-safe and allocate nothing.
    unsafe {
        let parent = libc::getpid();
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() == parent { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
        })
    }
}

/// Runs a command to its end in a process group of its own, or kills that group when the time is up.
pub fn run(command: &mut Command, timeout: Option<Duration>) -> io::Result<Finished> {
    die_with_parent(command).process_group(0);
    let began = Instant::now();
    let child = command.spawn()?;
    let pid = child.id() as libc::pid_t;
    RUNNING.store(pid, SeqCst);
    let timed_out = match timeout {
        Some(timeout) => !ends_within(pid, timeout)?,
        None => false,
    };
    if timed_out {
        kill_running();
    }
    let mut status = 0;
    // SAFETY: zeros are a valid rusage; the pointers live across the call.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: as above. std does not reap the child: `child` is dropped unwaited.
    while unsafe { libc::wait4(pid, &mut status, 0, &mut usage) } == -1 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            RUNNING.store(0, SeqCst);
            return Err(error);
        }
    }
    let wall = began.elapsed();
    if timed_out {
        kill_running();
    }
    RUNNING.store(0, SeqCst);
    Ok(Finished { status: ExitStatus::from_raw(status), wall, usage: usage.into(), timed_out })
}

/// Waits for a child without reaping it; false if it has not ended by then.
fn ends_within(pid: libc::pid_t, timeout: Duration) -> io::Result<bool> {
    // SAFETY: plain numbers; the descriptor is new and ours.
    let pidfd = unsafe {
        match libc::syscall(libc::SYS_pidfd_open, pid, 0) {
            fd if fd >= 0 => OwnedFd::from_raw_fd(fd as i32),
            _ => return Err(io::Error::last_os_error()),
        }
    };
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, and it lives across the call.
        match unsafe { libc::poll(&mut poll, 1, left.as_millis().min(i32::MAX as u128) as i32 + 1) } {
            0 if left.is_zero() => return Ok(false),
            n if n > 0 => return Ok(true),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    // One test, because `RUNNING` is one per process.
    #[test]
    fn ends_are_told_apart_and_billed() {
        let ended = run(&mut shell("exit 7"), None).unwrap();
        assert_eq!((ended.status.code(), ended.timed_out), (Some(7), false));

        let killed = run(&mut shell("kill -9 $$"), Some(Duration::from_secs(20))).unwrap();
        assert_eq!((killed.status.signal(), killed.timed_out), (Some(9), false));

        let slow = run(&mut shell("sleep 60"), Some(Duration::from_millis(50))).unwrap();
        assert!(slow.timed_out && slow.wall < Duration::from_secs(20), "{slow:?}");

        let busy = run(&mut shell("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"), None).unwrap();
        assert!(busy.usage.cpu_seconds() > 0.0, "{busy:?}");

        assert_eq!(run(&mut Command::new("/nonexistent"), None).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
