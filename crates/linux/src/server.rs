// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processor server, from a program's side: a connection, and the partition block that the server keeps
//! true.
//!
//! Nothing here is needed for a lock. Without a server [`Connection::open`] fails and all else stays as it
//! is.

mod offers;
pub(crate) mod scheduled;

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::*};
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Instant;

use abi::environment::{PARTITION, SERVER, Variable};
pub use abi::server::{
    Answer, COUNTERS, Counters, Demand, Enforcement, Entry, Envelope, Listed, Numbers, Refusal, Reply,
    Request, SOCKET, State, Summary, THREADS, Threads,
};
use abi::server::{BLOCK_SIZE, Block, MAGIC, SIZE, VERSION};

use bpf::Fd;
use platform::Platform;

pub use self::offers::{is_unheard, offer, offered, repeat, unasked};

use crate::{Linux, memory};

/// Why there is no answer that helps.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// No server listens.
    NoServer,
    /// The server said no, for this reason; the number is the limit that it names with some.
    Refused(Refusal, u32),
    /// The path of the socket is longer than the kernel takes.
    LongPath,
    /// Another version of the server, or none at all, answers at the socket.
    Foreign,
    /// The connection broke.
    Io(io::Error),
    /// The observer that the server sent is none.
    Observer(bpf::Error),
    /// Others have the processors that were asked for.
    Taken,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::NoServer if path() == SOCKET.as_bytes() => {
                write!(f, "no processor server runs;\nas root, `wakefuld` starts one")
            }
            Self::NoServer => write!(
                f,
                "no processor server listens at {}, where {SERVER} points;\n\
                 unset {SERVER} for this machine's, or start `wakefuld --folder`",
                path().escape_ascii()
            ),
            Self::Foreign => write!(f, "what answers there is no wakefuld of this version;\nrestart it"),
            Self::LongPath => write!(
                f,
                "the path in {SERVER} has more than the {SOCKET_PATH} bytes that a socket's may have;\n\
                 give wakefuld a --folder with a shorter one, or name it through a symbolic link"
            ),
            Self::Io(error) => write!(f, "the processor server does not answer: {error}"),
            Self::Observer(error) => write!(f, "the processor server has sent no observer: {error}"),
            Self::Taken => write!(
                f,
                "the processors have not become free;\n\
                 `wakeful status` shows who has them; `wakeful set PROCESS --leave` takes them back"
            ),
            Self::Refused(why, limit) => explain(f, *why, *limit),
        }
    }
}

impl std::error::Error for Error {}

/// Why the server has refused, and what to do.
fn explain(f: &mut std::fmt::Formatter, why: Refusal, limit: u32) -> std::fmt::Result {
    match why {
        Refusal::Malformed => write!(f, "the processor server is of another version; restart it"),
        Refusal::Disordered => write!(f, "it must be that 1 <= least <= wanted <= most"),
        Refusal::TooMany => {
            write!(
                f,
                "programs can have {limit} of the processors here at most;\n\
                 the default partition keeps the rest"
            )
        }
        Refusal::Unknown => {
            write!(f, "the process has no partition; `wakeful run --cpus` gives it one")
        }
        Refusal::NotAllowed => {
            write!(
                f,
                "you may not ask for processors;\n\
                 the administrator says who may, in /etc/wakeful/wakefuld.toml"
            )
        }
        Refusal::Share => write!(
            f,
            "your programs may have {limit} of the processors together;\n\
             the administrator says how many, in /etc/wakeful/wakefuld.toml"
        ),
        Refusal::Priority => {
            write!(f, "your highest priority is {limit}; only root may go beyond it")
        }
        Refusal::Crowd => {
            write!(f, "you have too many programs or connections at the server; end some")
        }
        Refusal::NoProcess => write!(f, "there is no such process of yours"),
        Refusal::Later => write!(f, "the processor server has no arena ready; ask again"),
        Refusal::Elsewhere => write!(
            f,
            "its control group takes no partition: \
             it has processors of its own, or is none of the server's;\n\
             enforcement.group and .limits, in /etc/wakeful/wakefuld.toml, say which are"
        ),
        Refusal::NoObserver => write!(f, "the processor server has no observer; its log says why"),
        Refusal::Again => write!(f, "the process has an arena of the processor server already"),
        Refusal::Failed => write!(
            f,
            "the server could not do it; its log says why:\n\
             `journalctl -u wakefuld`, or its standard error"
        ),
    }
}

/// The greatest length of a socket's path.
const SOCKET_PATH: usize = 107;
/// Room for a packet, and for one byte of what is none.
const PACKET: [u8; SIZE + 1] = [0; SIZE + 1];
/// The kind of the server's sockets.
const PACKETS: libc::c_int = libc::SOCK_SEQPACKET;
/// Descriptors of one packet, at most.
pub const DESCRIPTORS: usize = 3;
/// Those that come with an answer.
pub type Descriptors = [Option<OwnedFd>; DESCRIPTORS];
/// The programs that the server tells of.
pub type Entries = Vec<Entry>; // ALLOC: commands ask for them, and no interposer does

unsafe extern "C" {
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

/// Calls `each` with an environment variable, unless the program has more rights than whoever has started it.
#[unsafe(link_section = "wakeful_start")]
pub fn variable<T>(name: Variable, each: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    // SAFETY: a C string; what comes is null or one, and is read before anything else happens.
    unsafe {
        let value = secure_getenv(name.c_name().as_ptr());
        if value.is_null() { None } else { each(CStr::from_ptr(value).to_bytes()) }
    }
}

/// An environment variable that is a number.
#[unsafe(link_section = "wakeful_start")]
fn number(name: Variable) -> Option<i32> {
    variable(name, |text| core::str::from_utf8(text).ok()?.parse().ok())
}

/// The path of a socket. More bytes than it holds make it one that is too long.
struct SocketPath {
    bytes: [u8; SOCKET_PATH + 1],
    length: usize,
}

impl SocketPath {
    fn new(path: &[u8]) -> Self {
        let mut bytes = [0; SOCKET_PATH + 1];
        let length = path.len().min(bytes.len());
        bytes[..length].copy_from_slice(&path[..length]);
        Self { bytes, length }
    }
}

/// When the program started, the environment named no other place. Each start writes it; as for [`BLOCK`].
#[unsafe(link_section = ".data")]
static USUAL: AtomicBool = AtomicBool::new(false);

/// Reads the environment when the program starts: later another thread may change it.
#[inline(always)]
pub(crate) fn decide_path() {
    match variable(SERVER, |_| Some(())) {
        Some(()) => _ = path(),
        None => USUAL.store(true, Relaxed),
    }
}

/// Where the server listens, as of [`decide_path`], or else of the first use.
pub(crate) fn path() -> &'static [u8] {
    if USUAL.load(Relaxed) {
        return SOCKET.as_bytes();
    }
    static PATH: OnceLock<SocketPath> = OnceLock::new();
    let path = PATH.get_or_init(|| {
        variable(SERVER, |path| Some(SocketPath::new(path)))
            .unwrap_or_else(|| SocketPath::new(SOCKET.as_bytes()))
    });
    &path.bytes[..path.length]
}

/// A connection to the server.
#[derive(Debug)]
pub struct Connection {
    socket: Fd,
    tag: u32,
}

impl Connection {
    /// To the server of this machine, or the one that [`SERVER`] names.
    ///
    /// # Errors
    /// [`Error::NoServer`], or what connect(2) says.
    pub fn open() -> Result<Self, Error> {
        Self::open_by(path(), PACKETS, None)
    }

    /// To a server that listens elsewhere.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_at(path: &str) -> Result<Self, Error> {
        Self::open_by(path.as_bytes(), PACKETS, None)
    }

    /// With a kind of socket, and a limit to how long anything on it may take.
    fn open_by(path: &[u8], kind: libc::c_int, patience: Option<Duration>) -> Result<Self, Error> {
        let kind = kind | libc::SOCK_CLOEXEC;
        // SAFETY: plain numbers; the descriptor is new and ours.
        let socket = unsafe { Fd::new(libc::syscall(libc::SYS_socket, libc::AF_UNIX, kind, 0)) };
        let socket = socket.map_err(Error::Io)?;
        // SAFETY: zeros are a valid address.
        let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        if path.len() >= address.sun_path.len() {
            return Err(Error::LongPath);
        }
        if let Some(patience) = patience {
            let time = libc::timeval { tv_sec: 0, tv_usec: patience.as_micros() as libc::suseconds_t };
            for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
                let length = size_of_val(&time) as libc::socklen_t;
                // SAFETY: the time lives and is of this length.
                unsafe {
                    libc::syscall(
                        libc::SYS_setsockopt,
                        socket.as_raw_fd(),
                        libc::SOL_SOCKET,
                        option,
                        &raw const time,
                        length,
                    )
                };
            }
        }
        for (to, from) in address.sun_path.iter_mut().zip(path) {
            *to = *from as libc::c_char;
        }
        let length = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address lives and is of this length.
        let connected =
            unsafe { libc::syscall(libc::SYS_connect, socket.as_raw_fd(), &raw const address, length) };
        if connected != 0 {
            let error = io::Error::last_os_error();
            return Err(match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Error::NoServer,
                _ if error.raw_os_error() == Some(libc::EPROTOTYPE) => Error::Foreign,
                _ => Error::Io(error),
            });
        }
        Ok(Self { socket, tag: 0 })
    }

    /// Asks about a partition, and waits for the answer. The descriptor comes with the answer to `Join`.
    ///
    /// # Errors
    /// If the server refuses, or is gone.
    pub fn ask(&mut self, request: impl Into<Envelope>) -> Result<(State, Option<OwnedFd>), Error> {
        match self.ask_for(request)? {
            (Reply::State(state), [fd, ..]) => Ok((state, fd)),
            _ => Err(Error::Foreign),
        }
    }

    /// Asks for anything, and waits for the first answer to it, and its descriptors.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn ask_for(&mut self, request: impl Into<Envelope>) -> Result<(Reply, Descriptors), Error> {
        self.tag = self.tag.wrapping_add(1).max(1);
        self.send(Envelope { tag: self.tag, ..request.into() })?;
        self.answer()
    }

    /// The next answer to what was asked last. News of our partition may come before.
    fn answer(&mut self) -> Result<(Reply, Descriptors), Error> {
        loop {
            let (answer, fds) = self.hear()?;
            if answer.tag == self.tag {
                return Ok((answer.reply, fds));
            }
        }
    }

    /// All programs that the server tells us of, and what it says of itself.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn status(&mut self) -> Result<(Entries, Summary), Error> {
        let mut entries = Entries::new();
        let summary = self.summary(|entry| entries.push(entry))?;
        Ok((entries, summary))
    }

    /// What the server says of itself, and before it `each` program.
    fn summary(&mut self, mut each: impl FnMut(Entry)) -> Result<Summary, Error> {
        let (mut reply, _) = self.ask_for(Request::Status)?;
        loop {
            match reply {
                Reply::Entry(entry) => each(entry),
                Reply::Summary(summary) => return Ok(summary),
                _ => return Err(Error::Foreign),
            }
            reply = self.answer()?.0;
        }
    }

    /// Asks for what the server lends. On little stack, hence in steps that are not inlined.
    fn lend(&mut self) -> Result<[Option<Fd>; DESCRIPTORS], Error> {
        #[inline(never)]
        fn asks(connection: &Connection) -> Result<(), Error> {
            connection.send(Request::Observe)
        }
        #[inline(never)]
        fn answers(bytes: &[u8]) -> Result<(), Error> {
            match reply(bytes)?.reply {
                Reply::Observed { .. } => Ok(()),
                _ => Err(Error::Foreign),
            }
        }
        asks(self)?;
        let mut bytes = PACKET;
        let (length, fds) = self.receive_bytes(&mut bytes)?;
        answers(&bytes[..length]).map(|()| fds)
    }

    /// As whom the server runs.
    fn user(&self) -> Option<libc::uid_t> {
        // SAFETY: zeros are a valid ucred; the kernel writes at most the size it is told.
        unsafe {
            let mut peer: libc::ucred = core::mem::zeroed();
            let mut length = size_of_val(&peer) as libc::socklen_t;
            let fd = self.socket.as_raw_fd();
            let (level, option, at) = (libc::SOL_SOCKET, libc::SO_PEERCRED, &raw mut peer);
            let got = libc::syscall(libc::SYS_getsockopt, fd, level, option, at, &mut length);
            (got == 0).then_some(peer.uid)
        }
    }

    /// Sends without waiting for the answer.
    ///
    /// # Errors
    /// Those of send(2).
    pub fn send(&self, request: impl Into<Envelope>) -> Result<(), Error> {
        self.send_bytes(request.into().encode().bytes())
    }

    fn send_bytes(&self, bytes: &[u8]) -> Result<(), Error> {
        let (fd, nobody) = (self.socket.as_raw_fd(), core::ptr::null::<libc::sockaddr>());
        let flags = libc::MSG_NOSIGNAL;
        // SAFETY: the bytes live.
        let sent = unsafe {
            libc::syscall(libc::SYS_sendto, fd, bytes.as_ptr(), bytes.len(), flags, nobody, 0usize)
        };
        if sent == bytes.len() as libc::c_long { Ok(()) } else { Err(Error::Io(io::Error::last_os_error())) }
    }

    /// How this process stands now, when its partition has changed.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn receive(&mut self) -> Result<State, Error> {
        match self.hear()?.0.reply {
            Reply::State(state) => Ok(state),
            _ => Err(Error::Foreign),
        }
    }

    /// Whatever the server says next, and the descriptors that come with it.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn hear(&mut self) -> Result<(Answer, Descriptors), Error> {
        let mut bytes = PACKET;
        let (length, fds) = self.receive_bytes(&mut bytes)?;
        Ok((reply(&bytes[..length])?, fds.map(|fd| fd.map(Into::into))))
    }

    /// The next packet: its length, and the descriptors that come with it.
    #[inline(never)]
    fn receive_bytes(&mut self, bytes: &mut [u8]) -> Result<(usize, [Option<Fd>; DESCRIPTORS]), Error> {
        let mut room = [0u64; 8];
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: the message describes live memory; the kernel writes the control data, and the descriptor
        // is new and ours.
        let (length, fds) = unsafe {
            let mut header: libc::msghdr = core::mem::zeroed();
            header.msg_iov = &raw mut part;
            header.msg_iovlen = 1;
            header.msg_control = room.as_mut_ptr().cast();
            header.msg_controllen = size_of_val(&room);
            let length = loop {
                let (fd, flags) = (self.socket.as_raw_fd(), libc::MSG_CMSG_CLOEXEC);
                let length = libc::syscall(libc::SYS_recvmsg, fd, &raw mut header, flags);
                if length >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                    break length;
                }
            };
            let control = libc::CMSG_FIRSTHDR(&header);
            let mut fds = [const { None }; DESCRIPTORS];
            if length >= 0 && !control.is_null() && (*control).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*control).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                for index in 0..bytes / size_of::<i32>() {
                    let number = libc::CMSG_DATA(control).cast::<i32>().add(index).read_unaligned();
                    // One too many is closed.
                    let fd = Fd::new(number.into()).ok();
                    if let Some(place) = fds.get_mut(index) {
                        *place = fd;
                    }
                }
            }
            (length, fds)
        };
        let length = usize::try_from(length).map_err(|_| Error::Io(io::Error::last_os_error()))?;
        if length == 0 {
            return Err(Error::Io(io::ErrorKind::ConnectionReset.into()));
        }
        Ok((length, fds))
    }

    /// Waits until there are processors, if the answer to `Join` says that there are none yet.
    ///
    /// # Errors
    /// [`Error::Taken`] if that takes longer than `limit`.
    pub fn granted(&mut self, mut state: State, limit: Duration) -> Result<State, Error> {
        let end = Instant::now() + limit;
        while state.holds == 0 {
            let left = end.saturating_duration_since(Instant::now()).as_millis() as i32;
            let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one, and it lives.
            if unsafe { libc::poll(&mut poll, 1, left) } == 0 {
                return Err(Error::Taken);
            }
            state = self.receive()?;
        }
        Ok(state)
    }
}

/// What a packet says, unless it is no.
#[inline]
fn reply(packet: &[u8]) -> Result<Answer, Error> {
    match Answer::decode(packet) {
        Some(Answer { reply: Reply::Refused { why, limit }, .. }) => Err(Error::Refused(why, limit)),
        Some(answer) => Ok(answer),
        None => Err(Error::Foreign),
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Asks for processors for this process, and follows its partition from then on. How many it has.
///
/// # Errors
/// If the server refuses, or there is none.
pub fn request(priority: u32, least: u32, most: u32) -> Result<u32, Error> {
    let demand = Demand::new(priority, least, most, most);
    let (state, fd) = hurried(MORE_PATIENCE)?.ask(Request::Join(demand))?;
    if !fd.is_some_and(|fd| follow(fd.as_fd())) {
        return Err(Error::Foreign);
    }
    // The server forgets a hint with a new request.
    offers::forget();
    Linux::refresh_processors(None);
    Ok(state.holds)
}

/// Gives the partition back.
///
/// # Errors
/// As [`request`]; [`Refusal::Unknown`] if there was none.
pub fn leave() -> Result<(), Error> {
    hurried(MORE_PATIENCE)?.ask(Request::Leave)?;
    offers::forget();
    Linux::refresh_processors(None);
    Ok(())
}

/// The process that is the server's, not a forked child. (Not the registry's generation: to ask for it
/// makes a registry, before its view is chosen.)
static MEMBER: AtomicU32 = AtomicU32::new(0);

/// Has this process a partition? A forked child has none.
pub fn is_member() -> bool {
    !BLOCK.load(Relaxed).is_null() && MEMBER.load(Relaxed) == std::process::id()
}

/// The block of this process. Each start reads it; as for the key in `registry/exit.rs`.
#[unsafe(link_section = ".data")]
static BLOCK: AtomicPtr<Block> = AtomicPtr::new(core::ptr::null_mut());
/// The generation of it that was seen last.
static SEEN: AtomicU32 = AtomicU32::new(0);

/// A page of the server's, read-only and for good; `None` if it is none.
fn map<T>(fd: BorrowedFd<'_>) -> Option<&'static T> {
    const { assert!(size_of::<T>() <= BLOCK_SIZE) };
    // SAFETY: zeros are a valid stat, which the call fills.
    let size = unsafe {
        let mut about: libc::stat = core::mem::zeroed();
        if libc::syscall(libc::SYS_fstat, fd.as_raw_fd(), &raw mut about) == 0 { about.st_size } else { 0 }
    };
    if size != BLOCK_SIZE as libc::off_t {
        return None;
    }
    // SAFETY: a mapping of its own, of a file that is so long and that the server never truncates.
    unsafe {
        let (at, fd) = (core::ptr::null_mut(), fd.as_raw_fd());
        let start = memory::map(at, BLOCK_SIZE, libc::PROT_READ, libc::MAP_SHARED, fd);
        (start != libc::MAP_FAILED).then(|| &*start.cast::<T>())
    }
}

/// Puts a page of a server's in the place of another one: see [`memory::replace`].
///
/// # Safety
/// Both come from [`map`], and nobody else knows the new one.
pub(crate) unsafe fn replace_page<T>(at: *mut T, new: &'static T) -> bool {
    // SAFETY: two pages of ours, as the caller promised.
    unsafe { memory::replace(at.cast(), core::ptr::from_ref(new).cast_mut().cast(), BLOCK_SIZE) }
}

/// Follows a block: from now on a change of the partition is noticed at the next look
/// ([`platform::Platform::refresh_processors`]), and not only once a second. False if the descriptor is no
/// block's.
fn follow(fd: BorrowedFd<'_>) -> bool {
    let Some(block) = map::<Block>(fd) else { return false };
    if block.magic.load(Relaxed) != MAGIC || block.version.load(Relaxed) != VERSION {
        // SAFETY: our mapping, which nobody else knows.
        unsafe { memory::unmap(core::ptr::from_ref(block).cast_mut().cast(), BLOCK_SIZE) };
        return false;
    }
    // ORDER: Release, pairs with the Acquire in `changed`.
    BLOCK.store(core::ptr::from_ref(block).cast_mut(), Release);
    if MEMBER.swap(std::process::id(), Relaxed) != std::process::id() {
        offers::forget_parent();
    }
    true
}

/// Follows the block that this program inherited from `wakeful run`. The descriptor stays open, for other
/// libraries of the program in which there is this crate too, and is closed in its children.
#[inline(always)]
pub fn inherit() {
    if !BLOCK.load(Relaxed).is_null() {
        return;
    }
    // SAFETY: F_GETFD changes nothing.
    let Some(number) = number(PARTITION)
        .filter(|&fd| fd > 2 && unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFD) } >= 0)
    else {
        return;
    };
    // SAFETY: open, as was just seen.
    if follow(unsafe { BorrowedFd::borrow_raw(number) }) {
        // SAFETY: a plain number, of a file that is ours.
        unsafe { libc::syscall(libc::SYS_fcntl, number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// How often the partition has changed; 0 without one.
#[inline]
pub(crate) fn generation() -> u32 {
    // ORDER: Acquire, pairs with `follow`.
    let block = BLOCK.load(Acquire);
    // SAFETY: null, or never unmapped.
    // ORDER: Acquire, pairs with the server's Release: the affinity that is looked at next is the new one.
    unsafe { block.as_ref() }.map_or(0, |block| block.partition.generation.load(Acquire))
}

/// The generation, if it is another one than was [`seen`] last.
#[inline]
pub(crate) fn changed() -> Option<u32> {
    let generation = generation();
    (SEEN.load(Relaxed) != generation).then_some(generation)
}

/// Somebody looks at how things are since the change of this generation.
pub(crate) fn seen(generation: u32) {
    SEEN.store(generation, Relaxed);
}

/// The processors of this process's partition, if it has one and follows its block.
pub fn partition() -> Option<&'static abi::Partition> {
    // ORDER: Acquire, pairs with `follow`.
    let block = BLOCK.load(Acquire);
    // SAFETY: null, or never unmapped.
    unsafe { block.as_ref() }
        .map(|block| &block.partition)
        .filter(|partition| partition.processors.load(Relaxed) > 0)
}

/// BOUND: how long a program waits for its arena, once, with a server that is stopped or overloaded. An
/// answer takes a tenth of a millisecond.
const PATIENCE: Duration = Duration::from_millis(15);
/// BOUND: and a thread in the midst of the program, which may be in a lock.
const LITTLE_PATIENCE: Duration = Duration::from_millis(2);
/// BOUND: and a command that wants to know.
const LONGER_PATIENCE: Duration = Duration::from_millis(50);
/// BOUND: and for an answer about its processors: a move into a control group takes some 20 ms.
const MORE_PATIENCE: Duration = Duration::from_secs(5);

/// Of many that ask at once, some have to ask again: after a millisecond, and each time after twice as long.
const TRIES: u32 = 5;

fn hurried(patience: Duration) -> Result<Connection, Error> {
    Connection::open_by(path(), PACKETS, Some(patience))
}

/// Asks the server of this machine for an arena that its observer fills, and for the server's life.
///
/// # Errors
/// If there is no server, or it will not.
pub(crate) fn observe() -> Result<(bpf::Observer, &'static AtomicU32), Error> {
    if !is_there() {
        return Err(Error::NoServer);
    }
    let mut connection = hurried(PATIENCE)?;
    let mut tries = 0;
    loop {
        match connection.lend() {
            Err(Error::Refused(Refusal::Later, _)) if tries < TRIES => {
                std::thread::sleep(Duration::from_millis(1 << tries));
                tries += 1;
            }
            answer => return lent(answer?),
        }
    }
}

/// Is there anything where the server listens? A tenth of what a socket costs, and each process with threads
/// asks. A path that is too long is for [`Connection::open`] to tell.
fn is_there() -> bool {
    let path = path();
    let mut name = [0u8; SOCKET_PATH + 1];
    if path.len() >= name.len() {
        return true;
    }
    name[..path.len()].copy_from_slice(path);
    // SAFETY: a C string; the call changes nothing but errno.
    unsafe {
        libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, name.as_ptr(), libc::F_OK) == 0
            || *libc::__errno_location() != libc::ENOENT
    }
}

/// The same in the midst of a program, once: system calls alone, and of a server that runs as root or as this
/// program does. (After `chroot` others may have put a socket where the server's was.)
pub(crate) fn observe_again() -> Result<(bpf::Observer, &'static AtomicU32), Error> {
    let mut connection = hurried(LITTLE_PATIENCE)?;
    // SAFETY: no arguments.
    let own = unsafe { libc::syscall(libc::SYS_geteuid) } as libc::uid_t;
    if !connection.user().is_some_and(|user| user == 0 || user == own) {
        return Err(Error::Foreign);
    }
    lent(connection.lend()?)
}

/// What has come with the answer to `Observe`.
fn lent(fds: [Option<Fd>; DESCRIPTORS]) -> Result<(bpf::Observer, &'static AtomicU32), Error> {
    let [arena, enrol, life] = fds;
    let (Some(arena), Some(enrol), Some(life)) = (arena, enrol, life) else { return Err(Error::Foreign) };
    let observer = bpf::Observer::given(arena, enrol).map_err(Error::Observer)?;
    Ok((observer, map(life.as_fd()).ok_or(Error::Foreign)?))
}

/// Does the server of this machine lend programs its observer?
pub(crate) fn lends() -> bool {
    let ask = || hurried(LONGER_PATIENCE)?.summary(|_| ());
    ask().is_ok_and(|summary: Summary| summary.observer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_too_long_stays_so() {
        let open = |length| Connection::open_by(&vec![b'x'; length], PACKETS, None);
        assert!(matches!(open(SOCKET_PATH), Err(Error::NoServer)));
        for length in [SOCKET_PATH + 1, 1000] {
            let path = SocketPath::new(&vec![b'x'; length]);
            assert!(matches!(
                Connection::open_by(&path.bytes[..path.length], PACKETS, None),
                Err(Error::LongPath)
            ));
            assert!(matches!(open(length), Err(Error::LongPath)));
        }
    }
}
