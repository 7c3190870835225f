// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program does that wants the server stopped, slow or full. Each attack lasts for a moment; a
//! generator says which one is next.

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use linux::server::{Connection, Demand, Envelope, Error, Request};

use crate::common::*;

/// The variables that the schedule gives to a hostile program: the generator's start, its set-user-ID
/// program, and the file into which it writes what it has done.
pub const SEED: &str = "WAKEFUL_TEST_SEED";
pub const SET_USER: &str = "WAKEFUL_TEST_SET_USER";
pub const LOG: &str = "WAKEFUL_TEST_LOG";

type Attack = fn(&mut Hostile);

/// All of them, by name.
pub const ATTACKS: [(&str, Attack); 10] = [
    ("malformed", Hostile::malformed),
    ("foreign", Hostile::foreign),
    ("deaf", Hostile::deaf),
    ("silent", Hostile::silent),
    ("connects", Hostile::connects),
    ("chatters", Hostile::chatters),
    ("descriptors", Hostile::descriptors),
    ("arenas", Hostile::arenas),
    ("programs", Hostile::programs),
    ("threads", Hostile::threads),
];

/// BOUND: ms. An attack lasts so long at most: in the short form of the test each one has its turn.
const MOMENT: u32 = 150;

pub struct Hostile {
    path: String,
    random: Box<dyn FnMut() -> u32>,
    set_user: String,
    until: Instant,
    others: Vec<TcpStream>,
}

/// Until somebody kills it.
pub fn hostile() -> ! {
    let text = |name: &str| std::env::var(name).unwrap();
    let mut log = File::options().append(true).open(text(LOG)).unwrap();
    let mut hostile = Hostile {
        path: text("WAKEFUL_SERVER"),
        random: Box::new(random_from(text(SEED).parse().unwrap())),
        set_user: text(SET_USER),
        until: Instant::now(),
        others: Vec::new(),
    };
    // What its programs leave behind is its own.
    // SAFETY: plain numbers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    loop {
        let (name, attack) = ATTACKS[hostile.below(ATTACKS.len() as u32) as usize];
        let moment = 20 + hostile.below(MOMENT - 20);
        hostile.until = Instant::now() + Duration::from_millis(moment.into());
        // At once: others write here too.
        log.write_all(format!("{name}\n").as_bytes()).unwrap();
        attack(&mut hostile);
        collect();
    }
}

/// A copy of sleep(1) that gets root's rights.
pub fn set_user_program(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("set-user");
    fs::copy("/bin/sleep", &path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    path
}

/// A child that does this and ends. It is killed with its parent, unless it executes something else.
fn child(body: impl FnOnce()) -> i32 {
    // SAFETY: the child uses the heap, which glibc's fork keeps usable, and makes system calls.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: plain numbers; the child ends here.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                body();
                libc::_exit(0)
            }
        }
        child => child,
    }
}

fn pause() {
    // SAFETY: no arguments.
    unsafe { libc::pause() };
}

fn kill(process: i32) {
    if process > 0 {
        // SAFETY: a child of ours.
        unsafe {
            libc::kill(process, libc::SIGKILL);
            libc::waitpid(process, std::ptr::null_mut(), 0);
        }
    }
}

/// Of the children that have ended, all.
fn collect() {
    // SAFETY: nothing is written.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
}

fn file(number: i64) -> Option<OwnedFd> {
    // SAFETY: a new descriptor is ours.
    (number >= 0).then(|| unsafe { OwnedFd::from_raw_fd(number as i32) })
}

impl Hostile {
    fn open(&self) -> Result<Connection, Error> {
        Connection::open_at(&self.path)
    }

    fn below(&mut self, limit: u32) -> u32 {
        (self.random)() % limit
    }

    fn goes_on(&self) -> bool {
        Instant::now() < self.until
    }

    /// Packets of any size and content.
    fn malformed(&mut self) {
        while self.goes_on() {
            let Ok(connection) = self.open() else { continue };
            for _ in 0..self.below(16) {
                let mut packet = damaged(Request::Join(Demand::default()), &[]);
                for _ in 0..self.below(8) {
                    let at = self.below(packet.len() as u32) as usize;
                    packet[at] = self.below(256) as u8;
                }
                let length = [packet.len(), 0, 1, packet.len() - 1, packet.len() + 1, 65_536];
                packet.resize(length[self.below(6) as usize], 0xff);
                if send_with(&connection, &packet, &[]).is_err() {
                    break;
                }
            }
        }
    }

    /// About processes of others, and with numbers that are none.
    fn foreign(&mut self) {
        while self.goes_on() {
            let Ok(connection) = self.open() else { continue };
            for _ in 0..64 {
                let process = [0, 1, 2, self.below(40_000), u32::MAX][self.below(5) as usize];
                let mut numbers =
                    [0; 4].map(|_| [0, 1, 2, u32::MAX, (self.random)()][self.below(5) as usize]);
                numbers[..3].sort_unstable();
                let [least, wanted, most, priority] = numbers;
                let kind = self.below(24);
                let request = Request::Join(Demand::new(priority, least, wanted, most));
                if send_with(&connection, &damaged(request.of(process), &[(2, kind)]), &[]).is_err() {
                    break;
                }
            }
        }
    }

    /// Asks for long answers, and reads none.
    fn deaf(&mut self) {
        let mut all = Vec::new();
        while self.goes_on() {
            let Ok(connection) = self.open() else { continue };
            (0..64).for_each(|_| drop(connection.send(Request::Status)));
            all.push(connection);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Has as many connections as it gets, and says a word now and then.
    fn silent(&mut self) {
        let mut all = Vec::new();
        while self.goes_on() {
            all.extend(self.open());
            all.truncate(100);
            let at = self.below(all.len().max(1) as u32) as usize;
            if let Some(connection) = all.get(at) {
                let _ = connection.send(Request::WantBack);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Connections without end.
    fn connects(&mut self) {
        while self.goes_on() {
            drop(self.open());
        }
    }

    /// Messages without end, by many connections at once.
    fn chatters(&mut self) {
        let mut all: Vec<_> = (0..32).map_while(|_| self.open().ok()).collect();
        while self.goes_on() && !all.is_empty() {
            all.retain_mut(|connection| {
                matches!(connection.ask(Request::WantBack), Ok(_) | Err(Error::Refused(..)))
            });
        }
    }

    /// Descriptors of all kinds, with packets that are right and packets that are not.
    fn descriptors(&mut self) {
        while self.goes_on() {
            let Ok(connection) = self.open() else { continue };
            let (socket, other) = lingering();
            let mut ends = [0; 2];
            // SAFETY: room for two numbers, or plain numbers and a constant name.
            let all = unsafe {
                libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK);
                // UFFD_USER_MODE_ONLY: ordinary users may.
                let faults = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1);
                let memory = libc::memfd_create(c"x".as_ptr(), libc::MFD_CLOEXEC);
                let pair = libc::epoll_create1(libc::EPOLL_CLOEXEC);
                [ends[0].into(), ends[1].into(), faults, memory.into(), pair.into()].map(file)
            };
            if let Some(Ok(pipe)) = all[1].as_ref().map(|pipe| pipe.try_clone()) {
                let mut pipe = File::from(pipe);
                while pipe.write(&[0; 65_536]).is_ok() {}
            }
            let count = self.below(16) as usize;
            let own = [socket.as_fd(), connection.as_fd()];
            let fds: Vec<_> = own
                .into_iter()
                .chain(all.iter().flatten().map(AsFd::as_fd))
                .cycle()
                .take(count + 1)
                .collect();
            let packet = damaged(Request::WantBack, &[]);
            let length = [3, packet.len()][self.below(2) as usize];
            let barred = send_with(&connection, &packet[..length], &fds).is_err();
            linger_for(&socket, if barred { 0 } else { 3600 });
            self.others.push(other);
            self.others.drain(..self.others.len().saturating_sub(16));
        }
    }

    /// Processes that ask for an arena, write nonsense into it, and end.
    fn arenas(&mut self) {
        while self.goes_on() {
            let (nonsense, again) = (self.below(2) == 0, self.below(3));
            let process = child(|| {
                let Ok(mut connection) = self.open() else { return };
                let answer = connection.ask_for(Request::Observe);
                if let Ok((_, [Some(arena), ..])) = answer
                    && nonsense
                {
                    ruin(&arena);
                }
                (0..again).for_each(|_| drop(connection.send(Request::Observe)));
            });
            // SAFETY: a child of ours.
            unsafe { libc::waitpid(process, std::ptr::null_mut(), 0) };
        }
    }

    /// Programs with a processor that end, or become something else, in the middle.
    fn programs(&mut self) {
        while self.goes_on() {
            let (becomes, rest) = (self.below(7), self.below(5000));
            let process = child(|| self.program(becomes));
            let request = |request: Envelope| self.open().and_then(|mut connection| connection.ask(request));
            let id = process as u32;
            let _ = request(join(id, 1));
            let _ = request(Request::Spare(1).of(id));
            std::thread::sleep(Duration::from_micros(rest.into()));
            let _ = request(Request::WantBack.of(id));
            kill(process);
            collect();
        }
    }

    fn program(&self, becomes: u32) {
        if let Ok(mut connection) = self.open() {
            let _ = connection.ask(join(0, 1));
        }
        let execute = |path: &str| {
            let path = std::ffi::CString::new(path).unwrap();
            let arguments = [path.as_ptr(), c"1000".as_ptr(), std::ptr::null()];
            // SAFETY: strings that live, and the end of the list.
            unsafe { libc::execv(path.as_ptr(), arguments.as_ptr()) };
        };
        match becomes {
            0 => execute("/bin/sleep"),
            1 => execute(&self.set_user),
            // A chain: the process is always another one.
            2 => {
                let end = self.until.min(Instant::now() + Duration::from_millis(20));
                // SAFETY: as in `child`.
                while Instant::now() < end && unsafe { libc::fork() } == 0 {}
            }
            // Many at once.
            3 => {
                (0..20).for_each(|_| _ = child(pause));
                pause();
            }
            4 => {
                let _ = fs::write("/proc/self/comm", b"\xff\xc3) R 1 ");
                pause();
            }
            5 => pause(),
            _ => {}
        }
    }

    /// A program whose threads come and go while it is moved.
    fn threads(&mut self) {
        let until = self.until;
        let process = child(|| {
            let Ok(mut connection) = self.open() else { return };
            while Instant::now() < until {
                let threads =
                    [(); 20].map(|()| std::thread::Builder::new().stack_size(16 << 10).spawn(|| ()));
                let _ = connection.ask(join(0, 1));
                threads.into_iter().flatten().for_each(|thread| _ = thread.join());
                let _ = connection.ask(Request::Leave);
            }
        });
        // SAFETY: a child of ours.
        unsafe { libc::waitpid(process, std::ptr::null_mut(), 0) };
    }
}

/// Fills a process's own arena.
fn ruin(arena: &OwnedFd) {
    use std::os::fd::AsRawFd;
    let (both, length) = (libc::PROT_READ | libc::PROT_WRITE, 4096 * 16);
    // SAFETY: a mapping of our own, written within its length.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), length, both, libc::MAP_SHARED, arena.as_raw_fd(), 0);
        if start != libc::MAP_FAILED {
            std::ptr::write_bytes(start.cast::<u8>(), 0xff, length);
        }
    }
}
