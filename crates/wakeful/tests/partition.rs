// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program says to the processor server by itself. One test, because the server is the process's.

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use std::{ptr, thread};

use abi::Partition;
use abi::server::{BLOCK_SIZE, Block, Kind, MAGIC, Message, VERSION};
use wakeful::parallel::{Schedule, Team, with_fewer};
use wakeful::partition::{self, Error};

/// A server's socket that hears everything and answers to nothing but `Join`.
struct Server(OwnedFd);

impl Server {
    fn new(path: &str) -> Self {
        // SAFETY: plain numbers, an address that lives, and a descriptor that is new.
        unsafe {
            let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0);
            let mut address: libc::sockaddr_un = std::mem::zeroed();
            address.sun_family = libc::AF_UNIX as u16;
            for (to, from) in address.sun_path.iter_mut().zip(path.bytes()) {
                *to = from as libc::c_char;
            }
            assert_eq!(libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as u32), 0);
            assert_eq!(libc::listen(fd, 16), 0);
            let limit = libc::timeval { tv_sec: 120, tv_usec: 0 };
            let (option, size) = (libc::SO_RCVTIMEO, size_of_val(&limit) as u32);
            assert_eq!(libc::setsockopt(fd, libc::SOL_SOCKET, option, (&raw const limit).cast(), size), 0);
            Self(OwnedFd::from_raw_fd(fd))
        }
    }

    /// The next connection's only message, and the connection.
    fn hear(&self) -> (Kind, Message, File) {
        // SAFETY: a listener; the descriptor is new.
        let mut connection = unsafe {
            let fd = libc::accept4(self.0.as_raw_fd(), ptr::null_mut(), ptr::null_mut(), libc::SOCK_CLOEXEC);
            assert!(fd >= 0, "nobody speaks");
            File::from_raw_fd(fd)
        };
        let mut bytes = [0; size_of::<Message>()];
        assert_eq!(connection.read(&mut bytes).unwrap(), bytes.len());
        let (message, kind) = Message::from_bytes(&bytes).unwrap();
        (kind, message, connection)
    }

    fn is_quiet(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which lives.
        unsafe { libc::poll(&mut poll, 1, 0) == 0 }
    }
}

/// A block for 2 processors, as the server would keep it.
fn block() -> File {
    // SAFETY: a C string; the descriptor is new.
    let file = unsafe { File::from_raw_fd(libc::memfd_create(c"block".as_ptr(), libc::MFD_CLOEXEC)) };
    file.set_len(BLOCK_SIZE as u64).unwrap();
    word(&file, offset_of!(Block, partition) + offset_of!(Partition, processors), 2);
    word(&file, offset_of!(Block, version), VERSION);
    word(&file, offset_of!(Block, magic), MAGIC);
    file
}

fn word(block: &File, at: usize, value: u32) {
    block.write_all_at(&value.to_ne_bytes(), at as u64).unwrap();
}

fn send_with(connection: &mut File, message: &Message, block: &File) {
    let bytes = message.bytes();
    let mut part = IoSlice::new(bytes);
    let mut room = [0u64; 4];
    // SAFETY: everything lives; the control data has room for one descriptor.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = (&raw mut part).cast();
        header.msg_iovlen = 1;
        header.msg_control = room.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(4) as usize;
        let control = libc::CMSG_FIRSTHDR(&header);
        (*control).cmsg_level = libc::SOL_SOCKET;
        (*control).cmsg_type = libc::SCM_RIGHTS;
        (*control).cmsg_len = libc::CMSG_LEN(4) as usize;
        libc::CMSG_DATA(control).cast::<i32>().write_unaligned(block.as_raw_fd());
        assert_eq!(libc::sendmsg(connection.as_raw_fd(), &header, 0), bytes.len() as isize);
    }
}

#[test]
fn hints_reach_the_server_when_phases_change_and_only_then() {
    // The path is read once, when it is needed first.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wakefuld");
    let path = path.to_str().unwrap();
    // SAFETY: no other thread reads the environment now.
    unsafe { std::env::set_var("WAKEFUL_SERVER", path) };
    assert!(matches!(partition::leave(), Err(Error::NoServer)));
    let server = Server::new(path);

    // Who has no partition has nothing to spare.
    with_fewer(1, || ());

    let asked = thread::spawn(|| partition::request(3, 1..=2));
    let (kind, message, mut connection) = server.hear();
    assert_eq!(
        (kind, message.priority, message.least, message.wanted, message.most),
        (Kind::Join, 3, 1, 2, 2)
    );
    let state = Message { tag: message.tag, holds: 2, ..Message::new(Kind::State) };
    let block = block();
    send_with(&mut connection, &state, &block);
    assert_eq!(asked.join().unwrap().unwrap(), 2);
    drop(connection);

    if thread::available_parallelism().unwrap().get() < 2 {
        return;
    }
    // By hand, and back; nothing is said twice, and an inner phase ends with the outer one's word.
    with_fewer(1, || with_fewer(1, || ()));
    let (kind, message, _connection) = server.hear();
    assert_eq!(kind, Kind::Spare);
    let spare = message.count;
    assert!(spare >= 1);
    assert_eq!(server.hear().0, Kind::WantBack);

    // By itself: a bound team whose helpers have all been idle for long needs one processor.
    let team = Team::bound();
    loop {
        // A helper that has made way for another thread sleeps without a word, until the next loop.
        while server.is_quiet() {
            team.for_each(0..100, Schedule::Static, |_| thread::sleep(Duration::from_micros(100)));
            thread::sleep(Duration::from_millis(30));
        }
        let (kind, message, _connection) = server.hear();
        if kind == Kind::Spare && message.count == spare {
            break;
        }
    }
    // Somebody has taken them: no helper is woken by the next loop, and all are wanted back all the same.
    let masks = confine();
    word(&block, offset_of!(Block, partition) + offset_of!(Partition, generation), 1);
    // The look at the number of processors is one loop in some.
    loops_until(&team, 1);
    let (kind, _, _connection) = server.hear();
    assert_eq!(kind, Kind::WantBack);
    set_masks(&masks);
    word(&block, offset_of!(Block, partition) + offset_of!(Partition, generation), 2);
    loops_until(&team, masks[0].1.count());
    // An answer that nobody reads harms nobody.
    let _ = (&_connection).write(Message::new(Kind::State).bytes());
    team.for_each(0..100, Schedule::Static, |_| ());
}

fn loops_until(team: &Team, members: usize) {
    let start = Instant::now();
    while team.members() != members {
        assert!(start.elapsed() < Duration::from_secs(120), "{} members", team.members());
        team.for_each(0..100, Schedule::Static, |_| ());
    }
}

struct Mask(libc::cpu_set_t);

impl Mask {
    fn count(&self) -> usize {
        // SAFETY: a set that lives.
        unsafe { libc::CPU_COUNT(&self.0) as usize }
    }
}

/// All threads of this process on one processor; where they might run before.
fn confine() -> Vec<(i32, Mask)> {
    let mut masks = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task").unwrap() {
        let thread: i32 = thread.unwrap().file_name().to_str().unwrap().parse().unwrap();
        // SAFETY: sets that live, and their size.
        unsafe {
            let mut mask: libc::cpu_set_t = std::mem::zeroed();
            if libc::sched_getaffinity(thread, size_of_val(&mask), &mut mask) == 0 {
                masks.push((thread, Mask(mask)));
                let mut one: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET((0..1024).find(|&cpu| libc::CPU_ISSET(cpu, &mask)).unwrap(), &mut one);
                assert_eq!(libc::sched_setaffinity(thread, size_of_val(&one), &one), 0);
            }
        }
    }
    masks
}

fn set_masks(masks: &[(i32, Mask)]) {
    for (thread, mask) in masks {
        // SAFETY: a set that lives.
        unsafe { libc::sched_setaffinity(*thread, size_of_val(&mask.0), &mask.0) };
    }
}
