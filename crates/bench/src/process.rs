// SPDX-License-Identifier: MIT OR Apache-2.0
//! Child processes: started so that they do not outlive us, waited for with a deadline, and billed.

use std::io;
use std::ops::Sub;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
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

/// Makes the calling process die with its parent, whose id is given; false if the parent is gone already.
/// Async-signal-safe. The kernel sends the signal when the *thread* that forked ends: that thread must live
/// as long as the child.
pub(crate) fn die_with(parent: libc::pid_t, signal: libc::c_int) -> bool {
    // SAFETY: plain numbers. A parent that died before prctl sends nothing, but is not our parent any more.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) == 0 && libc::getppid() == parent }
}

/// The leader of a process group of its own, which does nothing but wait until we die, even by SIGKILL, and
/// then kills its group: the signal that the kernel sends at a parent's death reaches the child, but not
/// what the child has started.
#[derive(Debug)]
pub(crate) struct Guard(pub(crate) libc::pid_t);

impl Guard {
    pub(crate) fn start() -> io::Result<Self> {
        // SAFETY: no arguments; the child calls async-signal-safe functions only and never returns.
        unsafe {
            let parent = libc::getpid();
            match libc::fork() {
                -1 => Err(io::Error::last_os_error()),
                0 => Self::stand(parent),
                pid => {
                    let guard = Self(pid);
                    // Both sides, because the next child may be there before the guard has run.
                    libc::setpgid(pid, pid);
                    Ok(guard)
                }
            }
        }
    }

    pub(crate) fn kill_group(&self) {
        // SAFETY: plain numbers; the group's leader is our own child, not yet reaped.
        unsafe { libc::kill(-self.0, libc::SIGKILL) };
    }

    /// # Safety
    /// In a forked child.
    unsafe fn stand(parent: libc::pid_t) -> ! {
        // SAFETY: plain numbers and live sets; all of these are async-signal-safe.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut set);
            libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
            libc::setpgid(0, 0);
            // Whoever reads what we write must not wait for the guard.
            libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, 0u32);
            let mut alive = die_with(parent, libc::SIGTERM);
            while alive {
                // Any signal may also come from the program, to its group.
                libc::sigwaitinfo(&set, std::ptr::null_mut());
                alive = libc::getppid() == parent;
            }
            libc::kill(-libc::getpid(), libc::SIGKILL);
            libc::_exit(0)
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: our own child, not yet reaped.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// Runs a command to its end, or kills it when the time is up, in a process group that dies with us.
pub fn run(command: &mut Command, timeout: Option<Duration>) -> io::Result<Finished> {
    let guard = Guard::start()?;
    command.process_group(guard.0);
    // SAFETY: no arguments; `die_with` is async-signal-safe and allocates nothing.
    unsafe {
        let parent = libc::getpid();
        command.pre_exec(move || match die_with(parent, libc::SIGKILL) {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        });
    }
    let began = Instant::now();
    let child = command.spawn()?;
    let pid = child.id() as libc::pid_t;
    let timed_out = match timeout {
        Some(timeout) => !ends_within(pid, timeout)?,
        None => false,
    };
    if timed_out {
        guard.kill_group();
    }
    let mut status = 0;
    // SAFETY: zeros are a valid rusage; the pointers live across the call.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: as above. std does not reap the child: `child` is dropped unwaited.
    while unsafe { libc::wait4(pid, &mut status, 0, &mut usage) } == -1 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let wall = began.elapsed();
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

/// The processors that this process may use.
pub fn processors() -> Vec<usize> {
    // SAFETY: zeros are a valid set, and the kernel is told its size. If it fails the set stays empty.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        (0..libc::CPU_SETSIZE as usize).filter(|&processor| libc::CPU_ISSET(processor, &set)).collect()
    }
}

/// Has a process of one thread, or with 0 the calling thread, run on these processors only; and what it
/// starts from now on.
pub fn restrict(pid: libc::pid_t, processors: &[usize]) -> std::io::Result<()> {
    // SAFETY: zeros are a valid set, `CPU_SET` checks nothing, but `processors` gave no greater number; the
    // kernel is told the size.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        processors.iter().for_each(|&processor| libc::CPU_SET(processor, &mut set));
        libc::sched_setaffinity(pid, size_of_val(&set), &set)
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

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
