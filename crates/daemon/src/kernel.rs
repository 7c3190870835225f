// SPDX-License-Identifier: MIT OR Apache-2.0
//! All that the server asks of the system, in one trait, so that tests can let each call fail.

use std::collections::BTreeSet;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, ptr};

use abi::server::{BLOCK_SIZE, Block};
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::net::{self, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags};
use rustix::process::{Pid, PidfdFlags};

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
        let start =
            unsafe { libc::mmap(ptr::null_mut(), ARENA_SIZE, libc::PROT_READ, libc::MAP_SHARED, arena.as_raw_fd(), 0) };
        match NonNull::new(start.cast()) {
            Some(start) if start.as_ptr() as *mut libc::c_void != libc::MAP_FAILED => Ok(Self { start, id }),
            _ => Err(io::Error::last_os_error()),
        }
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
}

impl Life {
    /// Begins with a robust mutex in the page, which the calling thread holds from now on. Its first word is the futex (glibc).
    ///
    /// # Errors
    /// Those of pthread_mutex_lock(3).
    pub fn begin(page: Mapped) -> io::Result<Self> {
        const { assert!(size_of::<libc::pthread_mutex_t>() <= BLOCK_SIZE) };
        let mutex = page.start.as_ptr().cast::<libc::pthread_mutex_t>();
        // SAFETY: attributes that live; a mutex in a page that nobody else writes, and that is held only while the page is there.
        let result = unsafe {
            let mut attributes = std::mem::zeroed();
            libc::pthread_mutexattr_init(&mut attributes);
            libc::pthread_mutexattr_setpshared(&mut attributes, libc::PTHREAD_PROCESS_SHARED);
            libc::pthread_mutexattr_setrobust(&mut attributes, libc::PTHREAD_MUTEX_ROBUST);
            libc::pthread_mutex_init(mutex, &attributes);
            libc::pthread_mutexattr_destroy(&mut attributes);
            libc::pthread_mutex_lock(mutex)
        };
        if result == 0 { Ok(Self { page }) } else { Err(io::Error::from_raw_os_error(result)) }
    }

    /// For programs.
    pub fn reader(&self) -> &OwnedFd {
        &self.page.reader
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // SAFETY: held since `begin`.
        unsafe { libc::pthread_mutex_unlock(self.page.start.as_ptr().cast()) };
    }
}

/// What the server asks of the system.
pub trait Kernel {
    fn accept(&self, listener: BorrowedFd<'_>) -> io::Result<OwnedFd>;
    fn peer(&self, connection: BorrowedFd<'_>) -> io::Result<Peer>;
    /// Becomes readable when the process at the other end ends.
    fn peer_pidfd(&self, connection: BorrowedFd<'_>, process: u32) -> io::Result<OwnedFd>;
    /// A packet's beginning, and the length of all of it; 0 at the end.
    fn receive(&self, connection: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize>;
    fn send(&self, connection: BorrowedFd<'_>, packet: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()>;
    /// From now on `wait` says `token` when there is something to read.
    fn watch(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()>;
    fn unwatch(&self, fd: BorrowedFd<'_>) -> io::Result<()>;
    fn wait(&self, tokens: &mut Vec<u64>, limit: Duration) -> io::Result<()>;
    fn pidfd(&self, process: u32) -> io::Result<OwnedFd>;
    /// Has this process ended? If not, its number is not yet another's.
    fn ended(&self, pidfd: BorrowedFd<'_>) -> io::Result<bool>;
    fn read(&self, file: &Path) -> io::Result<String>;
    /// In one call, to a file that exists.
    fn write(&self, file: &Path, text: &str) -> io::Result<()>;
    fn make_folder(&self, folder: &Path) -> io::Result<()>;
    fn remove_folder(&self, folder: &Path) -> io::Result<()>;
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;
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
}

/// The real one.
#[derive(Debug)]
pub struct Linux {
    epoll: OwnedFd,
    observer: Observer,
}

/// The observer, and the thread that changes its slots: the kernel lets whoever does so wait until no processor can be in the observer.
#[derive(Default)]
struct Observer(std::sync::Mutex<Option<Loaded>>);

struct Loaded {
    observer: bpf::shared::Observer,
    orders: mpsc::Sender<Order>,
    prepared: mpsc::Receiver<Prepared>,
}

enum Order {
    Prepare(u32),
    Release(u32),
}

impl Loaded {
    fn load() -> io::Result<Self> {
        let observer = bpf::shared::Observer::load().map_err(io_error)?;
        let slots = observer.slots().map_err(io_error)?;
        let (orders, ordered) = mpsc::channel();
        let (finish, prepared) = mpsc::channel();
        let make = |slots: &bpf::shared::Slots, slot| {
            let admission = slots.prepare(slot).map_err(io_error)?;
            Ok((Arena::map(admission.arena.as_fd(), admission.id()?)?, [admission.arena, admission.enrol]))
        };
        // Until nobody orders any more.
        let work = move || {
            for order in ordered {
                match order {
                    Order::Prepare(slot) => drop(finish.send(Prepared { slot, arena: make(&slots, slot) })),
                    // If the kernel will not, the next arena of the slot takes the place of this one.
                    Order::Release(slot) => drop(slots.release(slot)),
                }
            }
        };
        std::thread::Builder::new().name("slots".into()).spawn(work)?;
        Ok(Self { observer, orders, prepared })
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}

impl Observer {
    fn with<T>(&self, act: impl FnOnce(&Loaded) -> io::Result<T>) -> io::Result<T> {
        let loaded = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        act(loaded.as_ref().ok_or(io::ErrorKind::NotConnected)?)
    }

    fn order(&self, order: Order) -> io::Result<()> {
        self.with(|loaded| loaded.orders.send(order).map_err(|_| io::ErrorKind::BrokenPipe.into()))
    }
}

/// With the number that the kernel gave, where there is one.
fn io_error(error: bpf::Error) -> io::Error {
    match error {
        bpf::Error::System(error) => error,
        bpf::Error::NotPermitted => io::Error::new(io::ErrorKind::PermissionDenied, error),
        error => io::Error::other(error),
    }
}

impl Linux {
    /// # Errors
    /// Those of epoll_create1(2).
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
                    observer: Observer::default(),
        })
    }
}

/// `SO_PEERPIDFD`, Linux 6.5.
const SO_PEERPIDFD: libc::c_int = 77;

/// COST: events of one wait; the rest comes with the next.
const EVENTS: usize = 64;

impl Kernel for Linux {
    fn accept(&self, listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        Ok(net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?)
    }

    fn peer(&self, connection: BorrowedFd<'_>) -> io::Result<Peer> {
        let who = net::sockopt::socket_peercred(connection)?;
        Ok(Peer { process: who.pid.as_raw_nonzero().get() as u32, user: who.uid.as_raw() })
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

    fn receive(&self, connection: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
        // Descriptors that a client sends along have no room, and the kernel drops them.
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
        let limit = rustix::time::Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        let (events, _) = epoll::wait(&self.epoll, &mut room, Some(&limit))?;
        tokens.extend(events.iter().map(|event| event.data.u64()));
        Ok(())
    }

    fn pidfd(&self, process: u32) -> io::Result<OwnedFd> {
        let process = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(rustix::process::pidfd_open(process, PidfdFlags::empty())?)
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
                return String::from_utf8(text).map_err(|_| io::ErrorKind::InvalidData.into());
            }
            text.reserve(4096);
        }
    }

    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        let fd = rustix::fs::open(file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&fd, text.as_bytes())?;
        Ok(())
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir(folder)
    }

    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        fs::remove_dir(folder)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn make_block(&self, file: &Path) -> io::Result<Mapped> {
        let _ = fs::remove_file(file);
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = rustix::fs::open(file, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC, mode)?;
        // Now, and not as a signal when it is written to: there may be no memory.
        let filled = rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, BLOCK_SIZE as u64);
        filled.map_err(io::Error::from).and_then(|()| map(&fd, file)).inspect_err(|_| drop(fs::remove_file(file)))
    }

    fn open_block(&self, file: &Path) -> io::Result<Mapped> {
        let fd = rustix::fs::open(file, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
        if rustix::fs::fstat(&fd)?.st_size != BLOCK_SIZE as i64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        map(&fd, file)
    }

    fn remove_file(&self, file: &Path) -> io::Result<()> {
        fs::remove_file(file)
    }

    fn set_affinity(&self, thread: u32, processors: &Set) -> io::Result<()> {
        let mut mask = [0u64; 128];
        processors.iter().for_each(|&number| mask[number as usize / 64 % 128] |= 1 << (number % 64));
        // SAFETY: the mask lives and is of this size.
        let result = unsafe { libc::syscall(libc::SYS_sched_setaffinity, thread, size_of_val(&mask), mask.as_ptr()) };
        if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn affinity(&self, thread: u32) -> io::Result<Set> {
        let mut mask = [0u64; 128];
        // SAFETY: as above.
        let result =
            unsafe { libc::syscall(libc::SYS_sched_getaffinity, thread, size_of_val(&mask), mask.as_mut_ptr()) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((0..mask.len() as u32 * 64).filter(|number| mask[*number as usize / 64] >> (number % 64) & 1 == 1).collect())
    }

    fn load_observer(&self) -> io::Result<()> {
        let loaded = Loaded::load()?;
        *self.observer.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(loaded);
        Ok(())
    }

    fn prepare(&self, slot: u32) -> io::Result<()> {
        self.observer.order(Order::Prepare(slot))
    }

    fn prepared(&self) -> io::Result<Option<Prepared>> {
        self.observer.with(|loaded| match loaded.prepared.try_recv() {
            Ok(prepared) => Ok(Some(prepared)),
            Err(mpsc::TryRecvError::Empty) => Ok(None),
            Err(mpsc::TryRecvError::Disconnected) => Err(io::ErrorKind::BrokenPipe.into()),
        })
    }

    fn admit(&self, process: BorrowedFd<'_>, slot: u32) -> io::Result<()> {
        self.observer.with(|loaded| loaded.observer.admit(process, slot).map_err(io_error))
    }

    fn release(&self, slot: u32) -> io::Result<()> {
        self.observer.order(Order::Release(slot))
    }

    fn exists(&self, arena: u32) -> io::Result<bool> {
        bpf::exists(arena).map_err(io_error)
    }

    fn live(&self, file: &Path) -> io::Result<Life> {
        Life::begin(self.make_block(file)?)
    }

    fn now(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }
}

fn map(fd: &OwnedFd, file: &Path) -> io::Result<Mapped> {
    let reader = rustix::fs::open(file, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
    // SAFETY: a mapping of its own, of a file that is so long.
    let start = unsafe {
        let flags = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(ptr::null_mut(), BLOCK_SIZE, flags, libc::MAP_SHARED, fd.as_raw_fd(), 0)
    };
    match NonNull::new(start.cast()) {
        Some(start) if start.as_ptr() as *mut libc::c_void != libc::MAP_FAILED => Ok(Mapped { start, reader }),
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
