// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler's process, from the side of a program that another one has executed.
//!
//! `wakeful run --scheduled` hands an arena to the program that it becomes. If that is a shell, or any other
//! one that executes or starts the program that matters, the arena ends there: it is nobody else's to write
//! to. So a program that finds a handle and no arena asks for one of its own, before its first thread.

use std::os::fd::AsRawFd;
use std::time::Duration;

use abi::server::{POLICY, SCHEDULER};

use super::Connection;

/// BOUND: the scheduler answers one at a time, and gives each that says nothing 200 ms, to read and to write.
const PATIENCE: Duration = Duration::from_millis(500);

/// Asks the scheduler for an arena of this process's own; `None` if the process is none of the scheduler's,
/// or there is none any more.
pub(crate) fn join() -> Option<bpf::Observer> {
    // SAFETY: plain numbers.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) } as i32;
    if policy & !libc::SCHED_RESET_ON_FORK != POLICY {
        return None;
    }
    let kind = libc::SOCK_STREAM;
    let mut connection = Connection::open_by(SCHEDULER.as_bytes(), kind, Some(PATIENCE)).ok()?;
    // After `chroot` others may have put a socket where the scheduler's was.
    if connection.user() != Some(0) {
        return None;
    }
    connection.send_bytes(b"join").ok()?;
    // SAFETY: plain numbers.
    unsafe { libc::syscall(libc::SYS_shutdown, connection.socket.as_raw_fd(), libc::SHUT_WR) };
    // What else it says, with no descriptors, is why not.
    let (_, [arena, enrol, _]) = connection.receive_bytes(&mut [0]).ok()?;
    bpf::Observer::given(arena?, enrol?).ok()
}
