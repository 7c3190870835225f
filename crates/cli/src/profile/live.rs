// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells `wakeful top PID` who waits at this moment in a program under `wakeful profile`.
//!
//! The profiler listens on an abstract socket that bears its process's number. Whoever connects gets a line
//! of JSON for each thread that waits, and the end. Only its own user and root are answered. While nobody
//! asks, this is one call of accept4(2) in a turn.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use recorder::profile::{Did, Now, Waiting, Whom};
use serde::{Deserialize, Serialize};

use super::names::kind;

/// A thread that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    pub process: u32,
    pub thread: u32,
    pub kind: String,
    pub object: u64,
    /// On the monotonic clock.
    pub since_ns: u64,
    /// The place in the program: a file, its inode, and the offset.
    pub file: Option<(String, u64)>,
    pub offset: u64,
    /// The thread that has it. 0: no thread has; None: unknown.
    pub holder: Option<u32>,
    /// What that one does, and since when.
    pub does: Option<(String, u64)>,
}

impl Line {
    fn of(one: &Waiting) -> Self {
        let does = |did: Did| match did {
            Did::Run => "runs",
            Did::Ready => "has no processor",
            Did::Behind => "has no processor: another thread of the program has it",
            Did::Blocked => "is blocked",
            Did::Gone => "has ended",
        };
        let file = one.place.as_ref().and_then(|place| place.file.as_ref());
        Self {
            process: one.process,
            thread: one.thread,
            kind: kind(one.class).into(),
            object: one.object,
            since_ns: one.since_ns,
            file: file.map(|file| (file.path.to_string_lossy().into_owned(), file.inode)),
            offset: one.place.as_ref().map_or(0, |place| place.offset),
            holder: match one.whom {
                Whom::Unknown => None,
                Whom::Free => Some(0),
                Whom::Thread(thread) => Some(thread),
            },
            does: one.does.map(|(did, since_ns)| (does(did).into(), since_ns)),
        }
    }
}

fn address(process: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("wakeful-profile-{process}"))
}

/// Whom a socket leads to: process and user.
fn peer(socket: &UnixStream) -> Option<(u32, u32)> {
    let mut about = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: a descriptor, and a structure of that size, which lives across the call.
    let asked = unsafe {
        let to = (&raw mut about).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut size)
    };
    (asked == 0).then_some((about.pid as u32, about.uid))
}

fn own_user() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() }
}

/// The profiler's side. Without a socket nobody can ask, which is all.
pub struct Listener(Option<UnixListener>);

impl Listener {
    pub fn new() -> Self {
        let listener = address(std::process::id()).and_then(|address| UnixListener::bind_addr(&address));
        Self(listener.ok().filter(|listener| listener.set_nonblocking(true).is_ok()))
    }

    /// Answers one who asks, if somebody does. What finds no room at once is not sent.
    pub fn answer(&self, now: &Now) {
        let Some(Ok((mut socket, _))) = self.0.as_ref().map(UnixListener::accept) else { return };
        let may = peer(&socket).is_some_and(|(_, user)| user == 0 || user == own_user());
        if !may || socket.set_nonblocking(true).is_err() {
            return;
        }
        for one in now.waiting() {
            let Ok(mut text) = serde_json::to_vec(&Line::of(&one)) else { return };
            text.push(b'\n');
            if socket.write_all(&text).is_err() {
                return;
            }
        }
    }
}

/// BOUND: an answer of 2,000 lines is below this, and comes within the next turn.
const MOST_BYTES: u64 = 2_000_000;
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks the profiler that has this number. None if there is none, or if another process has its name.
pub fn ask(profiler: u32) -> Option<Vec<Line>> {
    let mut socket = UnixStream::connect_addr(&address(profiler).ok()?).ok()?;
    let (process, user) = peer(&socket)?;
    if process != profiler || (user != own_user() && own_user() != 0) {
        return None;
    }
    socket.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut text = String::new();
    (&mut socket).take(MOST_BYTES).read_to_string(&mut text).ok()?;
    // The last one may have found no room.
    Some(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}
