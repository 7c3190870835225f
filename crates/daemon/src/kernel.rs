// SPDX-License-Identifier: MIT OR Apache-2.0
//! All that the server asks of the system, in one trait, so that tests can let each call fail.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fs, ptr};

use abi::server::{BLOCK_SIZE, Block};
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::net::{self, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags};
use rustix::process::{Pid, PidfdFlags};

use crate::loader::{self, Loader};

/// Processors by number.
pub type Set = BTreeSet<u32>;

/// Who is at the other end of a connection.
#[derive(Debug)]
pub struct Peer {
    pub process: u32,
    pub user: u32,
}

/// A block that is mapped for writing, and its descriptor for the program, read-only.
#[derive(Debug)]
pub struct Mapped {
    start: NonNull<Block>,
    pub reader: OwnedFd,
}

impl Mapped {
    pub fn block(&self) -> &Block {
        // SAFETY: a mapping of this size that lives as long as this; all bytes are valid, and the fields are atomics.
        unsafe { self.start.as_ref() }
    }
}

// SAFETY: the mapping is nobody else's, and no thread's.
unsafe impl Send for Mapped {}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: our mapping.
        unsafe { libc::munmap(self.start.as_ptr().cast(), BLOCK_SIZE) };
    }
}

/// An arena that the observer fills, mapped for reading. The program writes it too.
#[derive(Debug)]
pub struct Arena {
    start: NonNull<abi::Arena>,
    /// The kernel's name of it.
    pub id: u32,
}

/// Bytes of an arena with its blocks.
pub const ARENA_SIZE: usize = size_of::<abi::Arena>() + abi::MAX_THREADS * size_of::<abi::Thread>();

impl Arena {
    /// # Errors
    /// Those of mmap(2).
    pub fn map(arena: BorrowedFd<'_>, id: u32) -> io::Result<Self> {
        // SAFETY: a mapping of its own.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), ARENA_SIZE, libc::PROT_READ, libc::MAP_SHARED, arena.as_raw_fd(), 0)
        };
        match NonNull::new(start.cast()) {
            Some(start) if start.as_ptr() as *mut libc::c_void != libc::MAP_FAILED => Ok(Self { start, id }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Has the program written the head? It says so itself.
    pub fn is_taken(&self) -> bool {
        // SAFETY: the header begins the mapping, which lives as long as this; its fields are atomics.
        unsafe { self.start.as_ref() }.magic.load(Relaxed) != 0
    }

    pub fn threads(&self) -> &[abi::Thread] {
        // SAFETY: the blocks follow the header in a mapping that lives as long as this, of a map that has this size for good; the fields are atomics.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(1).cast(), abi::MAX_THREADS) }
    }
}

// SAFETY: the mapping is no thread's.
unsafe impl Send for Arena {}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: our mapping.
        unsafe { libc::munmap(self.start.as_ptr().cast(), ARENA_SIZE) };
    }
}

/// A slot that has an arena, and what the program gets: the arena's descriptor, and that of what threads enrol with. Or that has none.
#[derive(Debug)]
pub struct Prepared {
    pub slot: u32,
    pub arena: io::Result<(Arena, [OwnedFd; 2])>,
}

/// A page that says for as long as the thread lives that has made it that it does: see [`abi::server::lives`].
#[derive(Debug)]
pub struct Life {
    page: Mapped,
    /// What the kernel goes through when the thread ends. It is ours alone; the page has nothing but the futex word.
    list: Box<RobustList>,
    /// The C library's list of this thread, which it does not use.
    before: (*mut libc::c_void, usize),
}

// SAFETY: the list's addresses are those of memory that it owns.
unsafe impl Send for Life {}

/// struct robust_list_head, and one entry that leads back to it: get_robust_list(2).
#[derive(Debug)]
#[repr(C)]
struct RobustList {
    first: *mut libc::c_void,
    /// From an entry to its futex word.
    offset: libc::c_long,
    pending: *mut libc::c_void,
    entry: *mut libc::c_void,
}

impl Life {
    /// Begins with a futex word at the beginning of the page, which the calling thread holds from now on.
    ///
    /// # Errors
    /// Those of set_robust_list(2).
    pub fn begin(page: Mapped) -> io::Result<Self> {
        let null = std::ptr::null_mut();
        let mut list = Box::new(RobustList { first: null, offset: 0, pending: null, entry: null });
        let start = &raw mut *list;
        list.first = (&raw mut list.entry).cast();
        list.entry = start.cast();
        list.offset = page.start.as_ptr() as libc::c_long - list.first as libc::c_long;
        let mut before = (null, 0usize);
        // SAFETY: the pointers are valid; the list lives as long as the kernel knows it.
        let results = unsafe {
            [
                libc::syscall(libc::SYS_get_robust_list, 0, &raw mut before.0, &raw mut before.1),
                libc::syscall(libc::SYS_set_robust_list, start, 3 * size_of::<usize>()),
            ]
        };
        if results != [0, 0] {
            return Err(io::Error::last_os_error());
        }
        let life = Self { page, list, before };
        // SAFETY: no arguments.
        life.word().store(unsafe { libc::gettid() } as u32, Relaxed);
        Ok(life)
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: the page's first word; all who have it use it as an atomic one.
        unsafe { self.page.start.cast().as_ref() }
    }

    /// For programs.
    pub fn reader(&self) -> &OwnedFd {
        &self.page.reader
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.word().store(0, Relaxed);
        self.list.first = (&raw mut *self.list).cast();
        // SAFETY: the thread that began it; its list of before, which is the C library's and lives as long as the thread.
        unsafe { libc::syscall(libc::SYS_set_robust_list, self.before.0, self.before.1) };
    }
}

/// What the server asks of the system.
pub trait Kernel {
    fn accept(&self, listener: BorrowedFd<'_>) -> io::Result<OwnedFd>;
    fn peer(&self, connection: BorrowedFd<'_>) -> io::Result<Peer>;
    /// Becomes readable when the process at the other end ends.
    fn peer_pidfd(&self, connection: BorrowedFd<'_>, process: u32) -> io::Result<OwnedFd>;
    /// Is the process in our own pid and user namespaces? Only there does number 0 mean the machine's root.
    fn at_home(&self, process: u32) -> io::Result<bool>;
    /// Where the stack of the image begins that a process executes: another one begins elsewhere, by chance.
    fn image(&self, process: u32) -> io::Result<u64>;
    /// From now on who connects there cannot send descriptors. Fails before Linux 6.16.
    fn bar_descriptors(&self, listener: BorrowedFd<'_>) -> io::Result<()>;
    /// Can the other end send descriptors?
    fn carries_descriptors(&self, connection: BorrowedFd<'_>) -> bool;
    /// Does the packet that is received next carry descriptors? It stays where it is: they would be closed in this thread, and what another has open can take
    /// as long to close as it likes.
    fn is_laden(&self, connection: BorrowedFd<'_>) -> io::Result<bool>;
    /// A packet's beginning, and the length of all of it; 0 at the end.
    fn receive(&self, connection: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize>;
    fn send(&self, connection: BorrowedFd<'_>, packet: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()>;
    /// From now on `wait` says `token` when there is something to read.
    fn watch(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()>;
    fn unwatch(&self, fd: BorrowedFd<'_>) -> io::Result<()>;
    fn wait(&self, tokens: &mut Vec<u64>, limit: Duration) -> io::Result<()>;
    fn pidfd(&self, process: u32) -> io::Result<OwnedFd>;
    /// Whose rights this process has, which has, or had, this number: its effective user.
    fn user(&self, pidfd: BorrowedFd<'_>, process: u32) -> io::Result<u32>;
    /// Has this process ended? If not, its number is not yet another's.
    fn ended(&self, pidfd: BorrowedFd<'_>) -> io::Result<bool>;
    fn read(&self, file: &Path) -> io::Result<String>;
    /// In one call, to a file that exists.
    fn write(&self, file: &Path, text: &str) -> io::Result<()>;
    /// The same, with the rights of the machine's administrator, which remote partitions take.
    fn write_as_administrator(&self, file: &Path, text: &str) -> io::Result<()>;
    fn make_folder(&self, folder: &Path) -> io::Result<()>;
    fn remove_folder(&self, folder: &Path) -> io::Result<()>;
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;
    /// Notes at a control group that the server has changed what it gives to the groups below it, or that
    /// this is over.
    fn mark(&self, group: &Path, changed: bool) -> io::Result<()>;
    fn is_marked(&self, group: &Path) -> io::Result<bool>;
    /// The folders in this one; and of each, whether we have made it.
    fn folders(&self, folder: &Path) -> io::Result<Vec<(String, bool)>>;
    fn make_block(&self, file: &Path) -> io::Result<Mapped>;
    fn open_block(&self, file: &Path) -> io::Result<Mapped>;
    fn remove_file(&self, file: &Path) -> io::Result<()>;
    fn set_affinity(&self, thread: u32, processors: &Set) -> io::Result<()>;
    fn affinity(&self, thread: u32) -> io::Result<Set>;
    /// Loads the observer; the next six are about it.
    fn load_observer(&self) -> io::Result<()>;
    /// Orders a new arena in a slot. That takes milliseconds, and nobody waits for it.
    fn prepare(&self, slot: u32) -> io::Result<()>;
    /// What was ordered, and is there.
    fn prepared(&self) -> io::Result<Option<Prepared>>;
    /// Makes a slot a process's.
    fn admit(&self, process: BorrowedFd<'_>, slot: u32) -> io::Result<()>;
    /// Orders that a slot's arena is forgotten.
    fn release(&self, slot: u32) -> io::Result<()>;
    /// Has the kernel not freed this arena yet?
    fn exists(&self, arena: u32) -> io::Result<bool>;
    /// Shows to whoever maps the file that this thread lives.
    fn live(&self, file: &Path) -> io::Result<Life>;
    /// Since some moment; monotonic.
    fn now(&self) -> Duration;
    /// Processor time of this thread.
    fn worked(&self) -> Duration;
}

/// The real one.
#[derive(Debug)]
pub struct Linux {
    epoll: OwnedFd,
    /// The folder of the blocks, in a mount of its own that is read-only for everybody.
    readers: Option<OwnedFd>,
    /// Without one, there is no observer.
    loader: Option<Loader>,
    /// Of the files called [`MASK`] those that were written last, the newest last. A grant waits for each
    /// call.
    open: Mutex<Vec<(PathBuf, OwnedFd)>>,
}

/// A control group's file that grants write.
const MASK: &str = "cpuset.cpus";

/// BOUND: such files that stay open.
const OPEN: usize = 8;

/// An attribute of a control group. Who may write it may also change what the group gives.
const MARK: &str = "user.wakeful";

/// For the end of the loader.
const LOADER: u64 = u64::MAX;

impl Linux {
    /// # Errors
    /// Those of epoll_create1(2).
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, readers: None, loader: None, open: Mutex::default() })
    }

    /// Has a loader do what takes more rights than the server's.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn with(&mut self, loader: Loader) -> io::Result<()> {
        self.watch(loader.pidfd.as_fd(), LOADER)?;
        self.loader = Some(loader);
        Ok(())
    }

    fn loader(&self) -> io::Result<&Loader> {
        self.loader
            .as_ref()
            .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "this server has no loader"))
    }

    /// Programs get the files of this folder through a mount that nobody can write to: a descriptor can be opened anew by whoever has the file's rights, and
    /// number 0 of a container has those of root.
    ///
    /// # Errors
    /// Those of open_tree(2) and mount_setattr(2), Linux 5.12.
    pub fn read_only(&mut self, folder: &Path) -> io::Result<()> {
        const CLONE: libc::c_uint = 1; // OPEN_TREE_CLONE
        const SYS_OPEN_TREE: libc::c_long = 428;
        const SYS_MOUNT_SETATTR: libc::c_long = 442;
        // struct mount_attr: to set (read-only, no set-user-ID, no devices, no programs), to clear, two more.
        let attributes = [1u64 | 2 | 4 | 8, 0, 0, 0];
        let path = CString::new(folder.as_os_str().as_bytes())?;
        let flags = CLONE | libc::O_CLOEXEC as libc::c_uint;
        // SAFETY: a path and attributes that live; the descriptor is new and ours.
        unsafe {
            let tree = libc::syscall(SYS_OPEN_TREE, libc::AT_FDCWD, path.as_ptr(), flags);
            if tree < 0 {
                return Err(io::Error::last_os_error());
            }
            let tree = OwnedFd::from_raw_fd(tree as i32);
            let (size, at) = (size_of_val(&attributes), libc::AT_EMPTY_PATH);
            let fd = tree.as_raw_fd();
            if libc::syscall(SYS_MOUNT_SETATTR, fd, c"".as_ptr(), at, &raw const attributes, size) != 0 {
                return Err(io::Error::last_os_error());
            }
            self.readers = Some(tree);
        }
        Ok(())
    }

    fn opened(&self) -> MutexGuard<'_, Vec<(PathBuf, OwnedFd)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes to a file that is open still; false if it is not, or cannot be written to.
    fn write_open(&self, file: &Path, text: &str) -> bool {
        let mut open = self.opened();
        let Some(at) = open.iter().position(|(known, _)| known == file) else { return false };
        let (path, fd) = open.remove(at);
        let written = rustix::io::pwrite(&fd, text.as_bytes(), 0).is_ok();
        if written {
            open.push((path, fd));
        }
        written
    }

    fn keep(&self, file: &Path, fd: OwnedFd) {
        let mut open = self.opened();
        if open.len() >= OPEN {
            open.remove(0);
        }
        open.push((file.to_owned(), fd));
    }

    fn map(&self, fd: &OwnedFd, file: &Path) -> io::Result<Mapped> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let reader = match (&self.readers, file.file_name()) {
            (Some(readers), Some(name)) => rustix::fs::openat(readers, name, flags, Mode::empty())?,
            _ => rustix::fs::open(file, flags, Mode::empty())?,
        };
        map(fd, reader)
    }
}

/// Linux 6.16.
const SO_PASSRIGHTS: libc::c_int = 83;
/// `SO_PEERPIDFD`, Linux 6.5.
const SO_PEERPIDFD: libc::c_int = 77;

/// Linux 6.13: says in a microsecond what takes 20 to read from /proc.
const PIDFD_GET_INFO: libc::Ioctl = 0xc040_ff0b_u32 as libc::Ioctl;
const PIDFD_INFO_CREDS: u32 = 2;

/// BOUND: events of one wait; the rest comes with the next.
const EVENTS: usize = 256;

impl Kernel for Linux {
    fn accept(&self, listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        Ok(net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?)
    }

    fn peer(&self, connection: BorrowedFd<'_>) -> io::Result<Peer> {
        let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut length = size_of_val(&who) as libc::socklen_t;
        // SAFETY: the pointers are valid and the length is that of the structure.
        let result = unsafe {
            let who = (&raw mut who).cast();
            libc::getsockopt(connection.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, who, &mut length)
        };
        match (result, who.pid) {
            // It has no number in our pid namespace.
            (0, 0) => Err(io::ErrorKind::NotFound.into()),
            (0, process) => Ok(Peer { process: process as u32, user: who.uid }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn peer_pidfd(&self, connection: BorrowedFd<'_>, process: u32) -> io::Result<OwnedFd> {
        let mut fd: libc::c_int = -1;
        let mut length = size_of_val(&fd) as libc::socklen_t;
        // SAFETY: the pointers are valid and the length is that of the number.
        let result = unsafe {
            let fd = (&raw mut fd).cast();
            libc::getsockopt(connection.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, fd, &mut length)
        };
        match result {
            // SAFETY: new, and ours.
            0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            // Before 6.5: of the process that has this number now. The server looks whose it is before it does anything for it.
            _ => self.pidfd(process),
        }
    }

    fn at_home(&self, process: u32) -> io::Result<bool> {
        self.loader.as_ref().map_or_else(|| loader::at_home(process), |loader| loader.at_home(process))
    }

    fn image(&self, process: u32) -> io::Result<u64> {
        self.loader.as_ref().map_or_else(|| loader::image(process), |loader| loader.image(process))
    }

    fn bar_descriptors(&self, listener: BorrowedFd<'_>) -> io::Result<()> {
        let no: libc::c_int = 0;
        let length = size_of_val(&no) as libc::socklen_t;
        // SAFETY: the number lives and is of this length.
        let result = unsafe {
            libc::setsockopt(
                listener.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_PASSRIGHTS,
                (&raw const no).cast(),
                length,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn carries_descriptors(&self, connection: BorrowedFd<'_>) -> bool {
        let mut may: libc::c_int = 1;
        let mut length = size_of_val(&may) as libc::socklen_t;
        // SAFETY: as above.
        let result = unsafe {
            let may = (&raw mut may).cast();
            libc::getsockopt(connection.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, may, &mut length)
        };
        result != 0 || may != 0
    }

    fn is_laden(&self, connection: BorrowedFd<'_>) -> io::Result<bool> {
        let mut byte = [0u8];
        let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        // SAFETY: the message describes live memory, and has no room for descriptors.
        unsafe {
            let mut header: libc::msghdr = std::mem::zeroed();
            (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
            match libc::recvmsg(connection.as_raw_fd(), &mut header, libc::MSG_PEEK | libc::MSG_DONTWAIT) {
                0.. => Ok(header.msg_flags & libc::MSG_CTRUNC != 0),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    fn receive(&self, connection: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
        let (_, length) = net::recv(connection, into, RecvFlags::DONTWAIT | RecvFlags::TRUNC)?;
        Ok(length)
    }

    fn send(&self, connection: BorrowedFd<'_>, packet: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        let parts = [io::IoSlice::new(packet)];
        net::sendmsg(connection, &parts, &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
        Ok(())
    }

    fn watch(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?)
    }

    fn unwatch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    fn wait(&self, tokens: &mut Vec<u64>, limit: Duration) -> io::Result<()> {
        let mut room = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
        let limit =
            rustix::time::Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        let (events, _) = epoll::wait(&self.epoll, &mut room, Some(&limit))?;
        tokens.extend(events.iter().map(|event| event.data.u64()));
        if tokens.contains(&LOADER) {
            // The observer has ended with it, and what we tell programs about our life would not be true.
            tracing::error!("the loader has ended");
            std::process::exit(70);
        }
        Ok(())
    }

    fn pidfd(&self, process: u32) -> io::Result<OwnedFd> {
        let process =
            i32::try_from(process).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(rustix::process::pidfd_open(process, PidfdFlags::empty())?)
    }

    fn user(&self, pidfd: BorrowedFd<'_>, process: u32) -> io::Result<u32> {
        // struct pidfd_info: what is wanted and a number, of 8 bytes each, then six of 4, the last of them
        // the effective user; and more.
        let mut info = [0u32; 16];
        info[0] = PIDFD_INFO_CREDS;
        // SAFETY: a structure of the size that the call knows.
        if unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO, info.as_mut_ptr()) } == 0
            && info[0] & PIDFD_INFO_CREDS != 0
        {
            return Ok(info[9]);
        }
        let status = self.read(Path::new(&format!("/proc/{process}/status")))?;
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        let user = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        user.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn ended(&self, pidfd: BorrowedFd<'_>) -> io::Result<bool> {
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        Ok(poll(&mut [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)], Some(&now))? > 0)
    }

    fn read(&self, file: &Path) -> io::Result<String> {
        // Fewer calls than std's, which asks for the size first; who waits for a grant waits for these.
        let fd = rustix::fs::open(file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut text = Vec::with_capacity(4096);
        loop {
            let length = rustix::io::read(&fd, rustix::buffer::spare_capacity(&mut text))?;
            // What is not the end is a page, less the part of a line.
            if length < 2048 {
                // A process has any bytes for its name, and half a letter where the kernel has cut it.
                return Ok(String::from_utf8(text)
                    .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()));
            }
            text.reserve(4096);
        }
    }

    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        let kept = file.file_name().is_some_and(|name| name == MASK);
        // A group that was removed, and perhaps made again, has other files: then by its path.
        if kept && self.write_open(file, text) {
            return Ok(());
        }
        let write = || {
            let fd = rustix::fs::open(file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
            rustix::io::write(&fd, text.as_bytes()).inspect(|_| {
                if kept {
                    self.keep(file, fd)
                }
            })
        };
        match write() {
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::debug!("{}: {:?}: {error}", file.display(), text.trim());
                Err(error.into())
            }
        }
    }

    fn write_as_administrator(&self, file: &Path, text: &str) -> io::Result<()> {
        let Some(loader) = &self.loader else { return self.write(file, text) };
        let fd = rustix::fs::open(file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        loader.write(fd.as_fd(), text).inspect_err(|error| {
            tracing::debug!("{}: {:?}: {error}", file.display(), text.trim());
        })
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        // Files of one that was here before, and that another removed.
        self.opened().retain(|(file, _)| !file.starts_with(folder));
        fs::create_dir(folder)
    }

    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        self.opened().retain(|(file, _)| !file.starts_with(folder));
        fs::remove_dir(folder)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn mark(&self, group: &Path, changed: bool) -> io::Result<()> {
        let done = match changed {
            true => rustix::fs::setxattr(group, MARK, b"cpuset", rustix::fs::XattrFlags::empty()),
            false => rustix::fs::removexattr(group, MARK),
        };
        match done {
            Err(rustix::io::Errno::NODATA) => Ok(()),
            done => Ok(done?),
        }
    }

    fn is_marked(&self, group: &Path) -> io::Result<bool> {
        match rustix::fs::getxattr(group, MARK, &mut [0u8; 64][..]) {
            Err(rustix::io::Errno::NODATA) => Ok(false),
            read => Ok(read.map(|_| true)?),
        }
    }

    fn folders(&self, folder: &Path) -> io::Result<Vec<(String, bool)>> {
        let us = rustix::process::geteuid().as_raw();
        let mut folders = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            // It may be gone meanwhile.
            if entry.file_type()?.is_dir()
                && let Ok(about) = entry.metadata()
            {
                folders.push((entry.file_name().to_string_lossy().into_owned(), about.uid() == us));
            }
        }
        Ok(folders)
    }

    fn make_block(&self, file: &Path) -> io::Result<Mapped> {
        let _ = fs::remove_file(file);
        let mode = Mode::RUSR | Mode::WUSR;
        let fd =
            rustix::fs::open(file, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC, mode)?;
        // Now, and not as a signal when it is written to: there may be no memory.
        let filled = rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, BLOCK_SIZE as u64);
        filled
            .map_err(io::Error::from)
            .and_then(|()| self.map(&fd, file))
            .inspect_err(|_| drop(fs::remove_file(file)))
    }

    fn open_block(&self, file: &Path) -> io::Result<Mapped> {
        let fd = rustix::fs::open(file, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
        if rustix::fs::fstat(&fd)?.st_size != BLOCK_SIZE as i64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.map(&fd, file)
    }

    fn remove_file(&self, file: &Path) -> io::Result<()> {
        fs::remove_file(file)
    }

    fn set_affinity(&self, thread: u32, processors: &Set) -> io::Result<()> {
        let mut mask = [0u64; 128];
        processors.iter().for_each(|&number| mask[number as usize / 64 % 128] |= 1 << (number % 64));
        // SAFETY: the mask lives and is of this size.
        let result =
            unsafe { libc::syscall(libc::SYS_sched_setaffinity, thread, size_of_val(&mask), mask.as_ptr()) };
        if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn affinity(&self, thread: u32) -> io::Result<Set> {
        let mut mask = [0u64; 128];
        // SAFETY: as above.
        let result = unsafe {
            libc::syscall(libc::SYS_sched_getaffinity, thread, size_of_val(&mask), mask.as_mut_ptr())
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((0..mask.len() as u32 * 64)
            .filter(|number| mask[*number as usize / 64] >> (number % 64) & 1 == 1)
            .collect())
    }

    fn load_observer(&self) -> io::Result<()> {
        self.loader()?.load()
    }

    fn prepare(&self, slot: u32) -> io::Result<()> {
        self.loader()?.prepare(slot)
    }

    fn prepared(&self) -> io::Result<Option<Prepared>> {
        self.loader()?.prepared()
    }

    fn admit(&self, process: BorrowedFd<'_>, slot: u32) -> io::Result<()> {
        self.loader()?.admit(process, slot)
    }

    fn release(&self, slot: u32) -> io::Result<()> {
        self.loader()?.release(slot)
    }

    fn exists(&self, arena: u32) -> io::Result<bool> {
        self.loader()?.exists(arena)
    }

    fn live(&self, file: &Path) -> io::Result<Life> {
        Life::begin(self.make_block(file)?)
    }

    fn now(&self) -> Duration {
        clock(rustix::time::ClockId::Monotonic)
    }

    fn worked(&self) -> Duration {
        clock(rustix::time::ClockId::ThreadCPUTime)
    }
}

fn clock(of: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(of);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn map(fd: &OwnedFd, reader: OwnedFd) -> io::Result<Mapped> {
    // SAFETY: a mapping of its own, of a file that is so long.
    let start = unsafe {
        let flags = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(ptr::null_mut(), BLOCK_SIZE, flags, libc::MAP_SHARED, fd.as_raw_fd(), 0)
    };
    match NonNull::new(start.cast()) {
        Some(start) if start.as_ptr() as *mut libc::c_void != libc::MAP_FAILED => {
            Ok(Mapped { start, reader })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// A socket that clients connect to, at a new file that everybody may use.
///
/// # Errors
/// Those of bind(2) and listen(2).
pub fn listen(path: &Path) -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
    net::listen(&socket, 1024)?;
    Ok(socket)
}

/// Does somebody listen there?
pub fn answers(path: &Path) -> bool {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let Ok(socket) = socket else { return false };
    SocketAddrUnix::new(path).is_ok_and(|address| net::connect(socket.as_fd(), &address).is_ok())
}

/// "0-2,5", as the kernel writes sets of processors.
pub fn show(set: &Set) -> String {
    let mut text = String::new();
    let mut rest = set.iter().copied().peekable();
    while let Some(first) = rest.next() {
        let mut last = first;
        while rest.next_if_eq(&(last + 1)).is_some() {
            last += 1;
        }
        let comma = if text.is_empty() { "" } else { "," };
        text += &if first == last { format!("{comma}{first}") } else { format!("{comma}{first}-{last}") };
    }
    text
}

/// Reads what [`show`] writes. `None` if it is something else.
pub fn parse(text: &str) -> Option<Set> {
    let mut set = Set::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= abi::MAX_PROCESSORS as u32 {
            return None;
        }
        set.extend(first..=last);
    }
    Some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_written_as_the_kernel_does() {
        for text in ["", "0", "0-1", "0-2,5,7-8", "3,5"] {
            assert_eq!(show(&parse(text).unwrap()), text);
        }
        assert_eq!(parse("0-1\n").unwrap(), Set::from([0, 1]));
        for wrong in ["a", "2-1", "0-", "99999"] {
            assert_eq!(parse(wrong), None);
        }
    }
}
