// SPDX-License-Identifier: MIT OR Apache-2.0
//! A processor server that only hears, and the block that it would keep.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::fs::File;
use std::io::{IoSlice, Read};
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr;

use abi::Partition;
use abi::server::{Answer, BLOCK_SIZE, Block, Envelope, MAGIC, Packet, Reply, Request, SIZE, State, VERSION};

/// A server's socket that hears everything and answers to nothing but `Join`.
pub struct Server(OwnedFd);

impl Server {
    pub fn new(path: &str) -> Self {
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

    /// The next connection's only request, and the connection.
    pub fn hear(&self) -> (Envelope, File) {
        // SAFETY: a listener; the descriptor is new.
        let mut connection = unsafe {
            let fd = libc::accept4(self.0.as_raw_fd(), ptr::null_mut(), ptr::null_mut(), libc::SOCK_CLOEXEC);
            assert!(fd >= 0, "nobody speaks");
            File::from_raw_fd(fd)
        };
        let mut bytes = [0; SIZE];
        assert_eq!(connection.read(&mut bytes).unwrap(), bytes.len());
        (Envelope::decode(&bytes).unwrap(), connection)
    }

    pub fn is_quiet(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which lives.
        unsafe { libc::poll(&mut poll, 1, 0) == 0 }
    }
}

/// A block for 2 processors, as the server would keep it.
pub fn block() -> File {
    // SAFETY: a C string; the descriptor is new.
    let file = unsafe { File::from_raw_fd(libc::memfd_create(c"block".as_ptr(), libc::MFD_CLOEXEC)) };
    file.set_len(BLOCK_SIZE as u64).unwrap();
    word(&file, offset_of!(Block, partition) + offset_of!(Partition, processors), 2);
    word(&file, offset_of!(Block, version), VERSION);
    word(&file, offset_of!(Block, magic), MAGIC);
    file
}

pub fn word(block: &File, at: usize, value: u32) {
    block.write_all_at(&value.to_ne_bytes(), at as u64).unwrap();
}

pub fn send_with(connection: &mut File, packet: &Packet, block: &File) {
    let bytes = packet.bytes();
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

/// Answers to the next `Join` with the block.
pub fn grant(server: &Server, block: &File) -> Request {
    let (Envelope { tag, request, .. }, mut connection) = server.hear();
    assert!(matches!(request, Request::Join(_)), "{request:?}");
    let reply = Reply::State(State { holds: 2, ..State::default() });
    send_with(&mut connection, &Answer { tag, reply }.encode(), block);
    request
}
