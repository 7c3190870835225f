// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells `wakeful top PID` which threads wait at this moment in a program under `wakeful profile`.
//!
//! The profiler listens on an abstract socket that bears its process's number. A process that connects gets a
//! line that says how many follow ([`Head`]), and a line of JSON for each thread that waits. Only
//! its own user and root are answered. While nobody asks, this is one call of accept4(2) in a turn.

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

/// What the profiler says before the lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub lines: usize,
    /// Threads that wait and have no line.
    pub others: usize,
    /// One wait of how many is told: for locks and semaphores, and at barriers.
    pub one_in: [u64; 2],
    /// Processes that tell their waits.
    pub processes: u32,
    /// Why none can.
    pub obstacle: Option<String>,
    /// The program is stopped from outside.
    #[serde(default)]
    pub is_stopped: bool,
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
pub struct Listener {
    socket: Option<UnixListener>,
    obstacle: Option<String>,
}

impl Listener {
    /// `obstacle`: why the program can tell nothing.
    pub fn new(obstacle: Option<String>) -> Self {
        let socket = address(std::process::id()).and_then(|address| UnixListener::bind_addr(&address));
        Self { socket: socket.ok().filter(|socket| socket.set_nonblocking(true).is_ok()), obstacle }
    }

    /// Answers one who asks, if somebody does.
    pub fn answer(&self, now: &Now) {
        let Some(Ok((socket, _))) = self.socket.as_ref().map(UnixListener::accept) else { return };
        let may = peer(&socket).is_some_and(|(_, user)| user == 0 || user == own_user());
        if may {
            let (waiting, others) = now.waiting();
            let (one_in, processes, obstacle) = (now.one_in, now.processes, self.obstacle.clone());
            let is_stopped = now.is_stopped;
            let head = Head { lines: waiting.len(), others, one_in, processes, obstacle, is_stopped };
            _ = send(socket, &head, waiting.iter().map(Line::of));
        }
    }
}

/// The head, and then the lines, as far as they find room at once: the program's events do not wait for this.
fn send(mut socket: UnixStream, head: &Head, lines: impl Iterator<Item = Line>) -> io::Result<()> {
    let mut text = serde_json::to_vec(head)?;
    text.push(b'\n');
    for line in lines {
        serde_json::to_writer(&mut text, &line)?;
        text.push(b'\n');
    }
    socket.set_nonblocking(true)?;
    socket.write_all(&text)
}

/// BOUND: an answer of 2,000 lines is below this, and comes within the next turn.
const MOST_BYTES: u64 = 2_000_000;
const PATIENCE: Duration = Duration::from_secs(2);

/// The lines that came, and what was said before them. Those that did not come are among the others.
fn receive(mut socket: UnixStream) -> Option<(Vec<Line>, Head)> {
    socket.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut text = String::new();
    (&mut socket).take(MOST_BYTES).read_to_string(&mut text).ok()?;
    let mut parts = text.split_inclusive('\n');
    let mut head: Head = serde_json::from_str(parts.next()?).ok()?;
    // The last one may have found no room.
    let lines: Vec<Line> = parts.filter_map(|line| serde_json::from_str(line).ok()).collect();
    head.others = head.others.saturating_add(head.lines.saturating_sub(lines.len()));
    Some((lines, head))
}

/// A way to the profiler that has this number. None if there is none, or if another process has its name.
fn connect(profiler: u32) -> Option<UnixStream> {
    let socket = UnixStream::connect_addr(&address(profiler).ok()?).ok()?;
    let (process, user) = peer(&socket)?;
    if process != profiler || (user != own_user() && own_user() != 0) {
        return None;
    }
    Some(socket)
}

/// Is that process a profiler?
pub fn is_there(profiler: u32) -> bool {
    connect(profiler).is_some()
}

/// Asks the profiler that has this number who waits, and what it does not see. None if there is none, or if
/// it does not answer.
pub fn ask(profiler: u32) -> Option<(Vec<Line>, Head)> {
    receive(connect(profiler)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_in_an_answer_is_counted() {
        let line = |thread| Line { thread, kind: "mutex".into(), ..Line::default() };
        for (count, others) in [(0, 0), (3, 2), (20_000, 1)] {
            let (to, from) = UnixStream::pair().unwrap();
            let head = Head { lines: count as usize, others, one_in: [8, 1], ..Head::default() };
            let sent = send(to, &head, (0..count).map(line));
            let (lines, came) = receive(from).unwrap();
            let missing = came.others;
            assert_eq!((lines.len() + missing, came.one_in), (count as usize + others, [8, 1]));
            assert_eq!(sent.is_ok(), missing == others, "{missing} of {count}");
            assert!(lines.iter().zip(0..).all(|(one, thread)| *one == line(thread)));
            assert_eq!(missing > others, count == 20_000);
        }
    }
}
