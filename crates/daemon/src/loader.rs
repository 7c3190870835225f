// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process of its own for what takes the rights to load eBPF programs and to look into processes. It hears the server alone, in messages of two numbers.
//!
//! The server, which hears everybody, gives these rights up ([`keep_only`]). The loader knows no user, no file and no policy: whoever got hold of the server could
//! have threads observed and cpusets changed, and no more than that. If either ends, so does the other, and with them the observer; the next server loads another one.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc;

use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::kernel::{Arena, Prepared};

/// capabilities(7).
pub const DAC_OVERRIDE: u32 = 1;
pub const SYS_PTRACE: u32 = 19;
/// To tell which arenas there still are (BPF_MAP_GET_FD_BY_ID), and to make remote partitions: the kernel lets no lesser right do it.
pub const SYS_ADMIN: u32 = 21;
pub const SYS_NICE: u32 = 23;
pub const PERFMON: u32 = 38;
pub const BPF: u32 = 39;

/// What the loader can be asked. Each is answered with 0 or an error's number, and a value.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Ask {
    /// The observer.
    Load = 1,
    /// Order an arena in a slot.
    Prepare,
    /// Order that a slot's is forgotten.
    Release,
    /// Make a slot that of the process whose pidfd comes along.
    Admit,
    /// Is this arena still somebody's?
    Exists,
    /// Is this process in our own pid and user namespaces?
    AtHome,
    /// Where does the stack of this process's image begin?
    Image,
    /// Write into the file of a cpuset that comes along, what can be read from the pipe that comes with it.
    Write,
}

impl Ask {
    fn from(number: u64) -> Option<Self> {
        use Ask::*;
        [Load, Prepare, Release, Admit, Exists, AtHome, Image, Write]
            .into_iter()
            .find(|ask| *ask as u64 == number)
    }
}

/// The server's side.
#[derive(Debug)]
pub struct Loader {
    asks: OwnedFd,
    /// Arenas, when they are there.
    prepared: OwnedFd,
    /// Becomes readable when it has ended.
    pub pidfd: OwnedFd,
}

fn send(socket: BorrowedFd<'_>, words: [u64; 2], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = words.map(u64::to_ne_bytes).concat();
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(socket: BorrowedFd<'_>, flags: RecvFlags) -> io::Result<([u64; 2], Vec<OwnedFd>)> {
    let mut bytes = [0u8; 16];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let length = loop {
        match net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?.bytes,
        }
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            fds.extend(sent);
        }
    }
    if length != bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let (first, second) = bytes.split_at(8);
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight"));
    Ok(([word(first), word(second)], fds))
}

impl Loader {
    /// Divides this process, which has one thread yet. `prepare` is done in the new one first.
    ///
    /// # Errors
    /// Those of socketpair(2) and fork(2).
    pub fn fork(prepare: impl FnOnce()) -> io::Result<Self> {
        let pair = || net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let ((asks, asked), (prepared, prepares)) = (pair()?, pair()?);
        // SAFETY: no arguments.
        let server = unsafe { libc::getpid() };
        // SAFETY: there is one thread, so the child may do what it likes.
        match unsafe { libc::fork() } {
            0 => {
                drop((asks, prepared));
                // SAFETY: plain numbers; a name that lives.
                let alone = unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::prctl(libc::PR_SET_NAME, c"wakeful-loader".as_ptr());
                    // The server decides when both end, not who presses Ctrl-C.
                    libc::signal(libc::SIGINT, libc::SIG_IGN);
                    libc::signal(libc::SIGTERM, libc::SIG_IGN);
                    libc::getppid() != server
                };
                if !alone {
                    prepare();
                    keep_only(&[SYS_PTRACE, SYS_ADMIN, PERFMON, BPF]);
                    serve(&asked, prepares);
                }
                // SAFETY: a number.
                unsafe { libc::_exit(0) }
            }
            -1 => Err(io::Error::last_os_error()),
            process => {
                let process = rustix::process::Pid::from_raw(process).expect("a child has a number");
                let pidfd = rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty())?;
                Ok(Self { asks, prepared, pidfd })
            }
        }
    }

    fn ask(&self, what: Ask, about: u64, fds: &[BorrowedFd<'_>]) -> io::Result<u64> {
        send(self.asks.as_fd(), [what as u64, about], fds)?;
        match receive(self.asks.as_fd(), RecvFlags::empty())?.0 {
            [0, value] => Ok(value),
            [error, _] => Err(io::Error::from_raw_os_error(error as i32)),
        }
    }

    /// # Errors
    /// Those of bpf(2), as for the next ones.
    pub fn load(&self) -> io::Result<()> {
        self.ask(Ask::Load, 0, &[]).map(drop)
    }

    pub fn prepare(&self, slot: u32) -> io::Result<()> {
        self.ask(Ask::Prepare, slot.into(), &[]).map(drop)
    }

    pub fn release(&self, slot: u32) -> io::Result<()> {
        self.ask(Ask::Release, slot.into(), &[]).map(drop)
    }

    pub fn admit(&self, process: BorrowedFd<'_>, slot: u32) -> io::Result<()> {
        self.ask(Ask::Admit, slot.into(), &[process]).map(drop)
    }

    pub fn exists(&self, arena: u32) -> io::Result<bool> {
        self.ask(Ask::Exists, arena.into(), &[]).map(|exists| exists == 1)
    }

    /// # Errors
    /// Those of stat(2).
    pub fn at_home(&self, process: u32) -> io::Result<bool> {
        self.ask(Ask::AtHome, process.into(), &[]).map(|is| is == 1)
    }

    /// # Errors
    /// Those of open(2).
    pub fn image(&self, process: u32) -> io::Result<u64> {
        self.ask(Ask::Image, process.into(), &[])
    }

    /// Writes into an open file of a cpuset: remote partitions are made by the administrator alone.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn write(&self, file: BorrowedFd<'_>, text: &str) -> io::Result<()> {
        let (reader, mut writer) = io::pipe()?;
        writer.write_all(text.as_bytes())?;
        drop(writer);
        self.ask(Ask::Write, 0, &[file, reader.as_fd()]).map(drop)
    }

    /// What was ordered and is there.
    ///
    /// # Errors
    /// If the loader is gone.
    pub fn prepared(&self) -> io::Result<Option<Prepared>> {
        let ([about, id], fds) = match receive(self.prepared.as_fd(), RecvFlags::DONTWAIT) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            received => received?,
        };
        let arena = match <[OwnedFd; 2]>::try_from(fds) {
            Ok(fds) => Arena::map(fds[0].as_fd(), id as u32).map(|arena| (arena, fds)),
            Err(_) => Err(io::Error::from_raw_os_error(id as i32)),
        };
        Ok(Some(Prepared { slot: about as u32, arena }))
    }
}

/// With the number that the kernel gave, where there is one.
fn number(error: &bpf::Error) -> u64 {
    let number = match error {
        bpf::Error::System(error) => error.raw_os_error(),
        bpf::Error::NotPermitted => Some(libc::EPERM),
        bpf::Error::NoBpf | bpf::Error::NoBtf => Some(libc::ENOSYS),
        _ => None,
    };
    number.unwrap_or(libc::EIO) as u64
}

enum Order {
    Prepare(u32),
    Release(u32),
}

struct Loaded {
    observer: bpf::shared::Observer,
    /// To the thread that changes slots: the kernel lets whoever does so wait until no processor can be in the observer.
    orders: mpsc::Sender<Order>,
}

fn load(prepares: OwnedFd) -> Result<Loaded, bpf::Error> {
    let observer = bpf::shared::Observer::load()?;
    let slots = observer.slots()?;
    let (orders, ordered) = mpsc::channel();
    let work = move || {
        for order in ordered {
            let sent = match order {
                Order::Prepare(slot) => {
                    let made = slots.prepare(slot).and_then(|made| Ok((made.id()?, made)));
                    match &made {
                        Ok((id, made)) => {
                            let fds = [made.arena.as_fd(), made.enrol.as_fd()];
                            send(prepares.as_fd(), [slot.into(), (*id).into()], &fds)
                        }
                        Err(error) => send(prepares.as_fd(), [slot.into(), number(error)], &[]),
                    }
                }
                // If the kernel will not, the next arena of the slot takes the place of this one.
                Order::Release(slot) => {
                    let _ = slots.release(slot);
                    Ok(())
                }
            };
            if sent.is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("slots".into()).spawn(work)?;
    Ok(Loaded { observer, orders })
}

/// Until the server has ended.
fn serve(asked: &OwnedFd, prepares: OwnedFd) {
    let mut loaded: Option<Loaded> = None;
    let mut prepares = Some(prepares);
    while let Ok(([what, about], fds)) = receive(asked.as_fd(), RecvFlags::empty()) {
        let order = |order: Order| match &loaded {
            Some(loaded) => loaded.orders.send(order).map(|()| 0).map_err(|_| libc::EPIPE as u64),
            None => Err(libc::ENOTCONN as u64),
        };
        let about = about as u32;
        let answer = match Ask::from(what) {
            Some(Ask::Load) => match prepares.take() {
                Some(prepares) => {
                    load(prepares).map(|new| loaded = Some(new)).map(|()| 0).map_err(|error| number(&error))
                }
                None => Err(libc::EALREADY as u64),
            },
            Some(Ask::Prepare) => order(Order::Prepare(about)),
            Some(Ask::Release) => order(Order::Release(about)),
            Some(Ask::Admit) => match (&loaded, fds.first()) {
                (Some(loaded), Some(process)) => {
                    loaded.observer.admit(process.as_fd(), about).map(|()| 0).map_err(|error| number(&error))
                }
                _ => Err(libc::EINVAL as u64),
            },
            Some(Ask::Exists) => bpf::exists(about).map(u64::from).map_err(|error| number(&error)),
            Some(Ask::AtHome) => at_home(about).map(u64::from).map_err(|error| os(&error)),
            Some(Ask::Image) => image(about).map_err(|error| os(&error)),
            Some(Ask::Write) => write(fds).map(|()| 0).map_err(|error| os(&error)),
            None => Err(libc::EINVAL as u64),
        };
        let words = answer.map_or_else(|error| [error, 0], |value| [0, value]);
        if send(asked.as_fd(), words, &[]).is_err() {
            return;
        }
    }
}

fn os(error: &io::Error) -> u64 {
    error.raw_os_error().unwrap_or(libc::EIO) as u64
}

/// Is the process in our own pid and user namespaces?
///
/// # Errors
/// Those of stat(2): for the processes of others, it takes the right to trace them.
pub fn at_home(process: u32) -> io::Result<bool> {
    let same = |name: &str| {
        let of = |process: &str| rustix::fs::stat(format!("/proc/{process}/ns/{name}"));
        let (ours, theirs) = (of("self")?, of(&process.to_string())?);
        io::Result::Ok((ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino))
    };
    Ok(same("pid")? && same("user")?)
}

/// Which image does a process execute? To those that may not trace it, the kernel says 0 of each.
///
/// # Errors
/// Those of open(2).
pub fn image(process: u32) -> io::Result<u64> {
    let stat = std::fs::read(Path::new(&format!("/proc/{process}/stat")))?;
    crate::stat::image(&String::from_utf8_lossy(&stat))
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}

/// BOUND: bytes of a set of processors, the longest that the kernel writes.
const TEXT: u64 = 4096;

/// To two files of control groups and no others: whoever got hold of the server has these open anyway.
fn write(fds: Vec<OwnedFd>) -> io::Result<()> {
    const CGROUP2: u64 = 0x6367_7270;
    let [file, text] = <[OwnedFd; 2]>::try_from(fds).map_err(|_| io::ErrorKind::InvalidInput)?;
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if rustix::fs::fstatfs(&file)?.f_type as u64 != CGROUP2
        || !["cpuset.cpus.exclusive", "cpuset.cpus.partition"].contains(&name)
    {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut bytes = Vec::new();
    File::from(text).take(TEXT).read_to_end(&mut bytes)?;
    rustix::io::write(&file, &bytes)?;
    Ok(())
}

/// Gives up all capabilities but these, for good; those that one does not have stay so.
pub fn keep_only(capabilities: &[u32]) {
    let mut kept = [0u32; 2];
    capabilities.iter().for_each(|&number| kept[number as usize / 32] |= 1 << (number % 32));
    // capset(2): version 3, this thread; of each half of the numbers, effective, permitted and inheritable.
    let header = [0x2008_0522u32, 0];
    let mut sets = [0u32; 6];
    // SAFETY: live memory of the sizes that the calls know; plain numbers.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        for number in 0..64 {
            if kept[number / 32] >> (number % 32) & 1 == 0 {
                libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0);
            }
        }
        if libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) == 0 {
            for half in 0..2 {
                let permitted = sets[3 * half + 1] & kept[half];
                sets[3 * half..3 * half + 3].copy_from_slice(&[permitted, permitted, 0]);
            }
            libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr());
        }
    }
}
