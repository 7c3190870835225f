// SPDX-License-Identifier: MIT OR Apache-2.0
//! The observer: an eBPF program on `sched_switch` that tells one application which of its threads run.
//!
//! `bpf/observer.bpf.c` says how it works; this is its loader, behind the feature `load`, and what an application does with an arena. Loading needs privilege and memory; [`Enrolment`], which
//! threads use to come under observation, is one system call and needs neither. Everything lives exactly as long as the descriptors:
//! nothing is pinned, so nothing is left behind by a program that was killed.
//!
//! An observer can be loaded by one process and used by a child that has no privilege ([`Observer::hand_over`],
//! [`Observer::take_over`]): the descriptors are inherited, their numbers travel in an environment variable. A server that observes many
//! applications loads one for all ([`shared::Observer`]) and hands each its [`Admission`].

#[cfg(feature = "shared")]
mod admission;
mod fd;
#[cfg(feature = "load")]
mod load;
#[cfg(feature = "load")]
pub mod scheduler;
#[cfg(feature = "shared")]
pub mod shared;
mod sys;

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::str::FromStr;

use abi::{Arena, MAX_THREADS, Thread};
#[cfg(feature = "shared")]
pub use admission::{Admission, exists, pidfd};
pub use fd::Fd;
use sys::What;
#[cfg(feature = "load")]
pub use sys::program_exists;

/// Bytes of the arena with its thread blocks.
pub const ARENA_SIZE: usize = size_of::<Arena>() + MAX_THREADS * size_of::<Thread>();

/// Why there is no observer, and what it would need.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel carries no type information.
    #[error("the kernel has no BTF (/sys/kernel/btf/vmlinux); it needs CONFIG_DEBUG_INFO_BTF=y")]
    NoBtf,
    /// The kernel refused for lack of privilege.
    #[error("not permitted; loading eBPF programs needs root, or CAP_BPF and CAP_PERFMON")]
    NotPermitted,
    /// The kernel knows no bpf() system call, or a seccomp filter hides it.
    #[error("no bpf() system call; the kernel lacks CONFIG_BPF_SYSCALL or a seccomp filter forbids it")]
    NoBpf,
    /// The kernel refused the program for another reason.
    #[cfg(feature = "load")]
    #[error("the kernel refused the observer (it needs Linux 5.17 or newer): {0}")]
    Refused(#[source] libbpf_rs::Error),
    /// The arena could not be mapped, or a descriptor not be duplicated.
    #[error("cannot set the observer up: {0}")]
    System(#[from] io::Error),
    /// The inherited descriptors are not there, or they are something else by now.
    #[error("the inherited observer is gone: descriptor {0} is closed or belongs to something else")]
    Gone(RawFd),
    /// The text is not a handle.
    #[error("not an observer's handle; expected six numbers, as Observer::hand_over gives them, or four")]
    BadHandle,
    /// The kernel has no sched_ext.
    #[error("the kernel has no sched_ext; it needs Linux 6.12 with CONFIG_SCHED_CLASS_EXT")]
    NoSchedExt,
    /// Another scheduler is in charge.
    #[error("the scheduler `{0}` is in charge; only one can be, so stop it first")]
    Busy(String), // ALLOC: by the scheduler's loader, which is no program's.
    /// No application can be admitted.
    #[error("all places for applications are taken")]
    Full,
    /// Another program has the arena.
    #[error("another program uses the inherited observer already")]
    Taken,
}

/// What a child needs to use an observer that it inherited: descriptors, each with the kernel's id of what it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    arena: (RawFd, u32),
    enrol: (RawFd, u32),
    /// What keeps it going; the scheduler's goes on without its applications.
    link: Option<(RawFd, u32)>,
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { arena, enrol, link } = self;
        write!(f, "{} {} {} {}", arena.0, arena.1, enrol.0, enrol.1)?;
        link.map_or(Ok(()), |link| write!(f, " {} {}", link.0, link.1))
    }
}

impl FromStr for Handle {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut numbers = [0u32; 6];
        let mut count = 0;
        for word in text.split(' ') {
            *numbers.get_mut(count).ok_or(Error::BadHandle)? = word.parse().map_err(|_| Error::BadHandle)?;
            count += 1;
        }
        let fd = |number: u32| RawFd::try_from(number).map_err(|_| Error::BadHandle);
        match numbers[..count] {
            [a, b, c, d] => Ok(Self { arena: (fd(a)?, b), enrol: (fd(c)?, d), link: None }),
            [a, b, c, d, e, f] => {
                Ok(Self { arena: (fd(a)?, b), enrol: (fd(c)?, d), link: Some((fd(e)?, f)) })
            }
            _ => Err(Error::BadHandle),
        }
    }
}

impl Handle {
    /// What threads use to come under observation.
    pub const fn enrolment(&self) -> Enrolment {
        Enrolment(self.enrol.0)
    }

    /// As numbers that can be kept one by one; 0: there is none.
    pub fn words(&self) -> [u64; 3] {
        let word = |(fd, id): (RawFd, u32)| (fd as u64) << 32 | u64::from(id);
        [word(self.arena), word(self.enrol), self.link.map_or(0, word)]
    }

    /// Closes the descriptors as [`Self::close_copies`] does, of a handle of these words.
    pub fn close_copies_of(words: [u64; 3]) {
        let part = |word: u64| ((word >> 32) as RawFd, word as u32);
        let [arena, enrol, link] = words;
        if enrol != 0 {
            let link = (link != 0).then(|| part(link));
            Self { arena: part(arena), enrol: part(enrol), link }.close_copies();
        }
    }

    fn parts(&self) -> impl Iterator<Item = ((RawFd, u32), What)> {
        let link = self.link.map(|link| (link, What::Link));
        [(self.arena, What::Arena), (self.enrol, What::Enrol)].into_iter().chain(link)
    }

    /// Closes the descriptors, as far as they still are what the handle says: for a forked child, whose copies would keep
    /// the observer going after its parent. System calls only; changes errno.
    fn close_copies(&self) {
        for ((fd, id), what) in self.parts() {
            if sys::id(fd, what).is_ok_and(|found| found == id) {
                // SAFETY: the descriptor is the observer's, and no Observer of this process owns it.
                unsafe { libc::syscall(libc::SYS_close, fd) };
            }
        }
    }
}

/// A loaded observer. It observes until it is dropped here and in each process that it was handed to.
#[derive(Debug)]
pub struct Observer {
    arena: Fd,
    enrol: Fd,
    link: Option<Fd>,
}

/// Out of the way of programs that count on descriptor numbers, and of their loops that close the first few.
fn move_up(fd: BorrowedFd<'_>) -> io::Result<Fd> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let old = core::ptr::null::<libc::rlimit>();
    // SAFETY: the pointer is valid, and the other one null, which changes nothing.
    unsafe { libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, old, &mut limit) };
    // BOUND: 1024 is the usual limit; a higher number would make the kernel enlarge the descriptor table.
    let from = limit.rlim_cur.min(1024).saturating_sub(32) as RawFd;
    let copy = |from: RawFd| {
        // SAFETY: plain numbers; what comes is new, and ours.
        unsafe { Fd::new(libc::syscall(libc::SYS_fcntl, fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, from)) }
    };
    copy(from).or_else(|_| copy(3))
}

impl Observer {
    /// Maps the arena, zeros at first, over `at` (page aligned), or anywhere if that is null. A forked child does not inherit the mapping.
    ///
    /// # Safety
    /// [`ARENA_SIZE`] bytes at `at`, rounded up to pages, are the caller's to map over.
    ///
    /// # Errors
    /// Those of mmap.
    pub unsafe fn map(&self, at: *mut u8) -> io::Result<NonNull<Arena>> {
        let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
        // The call itself: an allocator may have put its own function in place of mmap, and have called us.
        // SAFETY: as the caller promised.
        let start = unsafe {
            libc::syscall(
                libc::SYS_mmap,
                at,
                ARENA_SIZE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | fixed,
                self.arena.as_raw_fd(),
                0usize,
            ) as *mut libc::c_void
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping is ours.
        if unsafe { libc::syscall(libc::SYS_madvise, start, ARENA_SIZE, libc::MADV_DONTFORK) } != 0 {
            let error = io::Error::last_os_error();
            if at.is_null() {
                // SAFETY: as above, and nobody has seen it.
                unsafe { libc::syscall(libc::SYS_munmap, start, ARENA_SIZE) };
            }
            return Err(error);
        }
        Ok(NonNull::new(start.cast()).expect("mmap does not return null"))
    }

    /// Maps the arena somewhere, for good.
    ///
    /// # Errors
    /// Those of mmap.
    pub fn arena(&self) -> io::Result<&'static Arena> {
        // SAFETY: null asks for a place of its own; zeros are a valid Arena, its fields are atomics, and it is never unmapped.
        unsafe { self.map(std::ptr::null_mut()).map(|arena| arena.as_ref()) }
    }

    /// From what a server has sent: an arena of this process's own, and what its threads enrol with. Nothing of it keeps the observer going.
    ///
    /// # Errors
    /// If they are something else.
    pub fn given(arena: impl Into<Fd>, enrol: impl Into<Fd>) -> Result<Self, Error> {
        let (arena, enrol): (Fd, Fd) = (arena.into(), enrol.into());
        sys::id(arena.as_raw_fd(), What::Arena)?;
        sys::id(enrol.as_raw_fd(), What::Enrol)?;
        Ok(Self { arena: move_up(arena.as_fd())?, enrol: move_up(enrol.as_fd())?, link: None })
    }

    /// It observes as long as this process lives, which has mapped the arena and so needs no descriptor of it: a child, or whoever else got hold of one,
    /// could write to it.
    pub fn keep_mapped(self) {
        let Self { arena, enrol, link } = self;
        drop(arena);
        enrol.forget();
        if let Some(link) = link {
            link.forget();
        }
    }

    /// What threads use to come under observation. Valid as long as the observer is.
    pub fn enrolment(&self) -> Enrolment {
        Enrolment(self.enrol.as_raw_fd())
    }

    /// What a process that has copies of these descriptors needs to know.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn handle(&self) -> io::Result<Handle> {
        let described = |fd: &Fd, what| Ok::<_, io::Error>((fd.as_raw_fd(), sys::id(fd.as_raw_fd(), what)?));
        Ok(Handle {
            arena: described(&self.arena, What::Arena)?,
            enrol: described(&self.enrol, What::Enrol)?,
            link: self.link.as_ref().map(|link| described(link, What::Link)).transpose()?,
        })
    }

    /// Lets programs that this process executes inherit the observer. Put the handle, as text, into their environment as
    /// [`abi::environment::OBSERVER`].
    ///
    /// # Errors
    /// Those of fcntl and bpf(2).
    pub fn hand_over(&self) -> io::Result<Handle> {
        for fd in [&self.arena, &self.enrol].into_iter().chain(&self.link) {
            // SAFETY: plain numbers.
            if unsafe { libc::syscall(libc::SYS_fcntl, fd.as_raw_fd(), libc::F_SETFD, 0) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        self.handle()
    }

    /// Takes an inherited observer over: this process's children do not inherit it further. The first program that writes the arena's
    /// header has it; see [`Error::Taken`].
    ///
    /// # Errors
    /// [`Error::Gone`] if a descriptor is not what the handle says; nothing was changed then.
    pub fn take_over(handle: Handle) -> Result<Self, Error> {
        let Handle { arena, enrol, link } = handle;
        for ((fd, id), what) in handle.parts() {
            match sys::id(fd, what) {
                Ok(found) if found == id => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => return Err(Error::NoBpf),
                _ => return Err(Error::Gone(fd)),
            }
        }
        let take = |fd: RawFd| {
            // SAFETY: the descriptor is the observer's, and the handle says that it is for us.
            move_up(unsafe { Fd::new(fd.into()) }?.as_fd())
        };
        Ok(Self {
            arena: take(arena.0)?,
            enrol: take(enrol.0)?,
            link: link.map(|link| take(link.0)).transpose()?,
        })
    }
}

/// How the calling thread comes under observation. System calls only; changes errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enrolment(RawFd);

impl Enrolment {
    /// From the number that [`Enrolment::number`] gave.
    pub const fn from_number(number: RawFd) -> Self {
        Self(number)
    }

    /// A number that stands for this, to be kept where only a number fits.
    pub const fn number(self) -> RawFd {
        self.0
    }

    /// The kernel fills the block `index` of the arena for the calling thread from now on, while the block's lease is `lease`.
    /// False if it will not, or if `lease` is 0: that is the lease of blocks which nobody has.
    pub fn attach(self, index: u32, lease: u32) -> bool {
        index != 0
            && lease != 0
            && (index as usize) < MAX_THREADS
            && sys::run(self.0, [index, lease]) == Some(0)
    }

    /// Ends what [`Enrolment::attach`] began. False if it was not attached.
    pub fn detach(self) -> bool {
        sys::run(self.0, [0, 0]) == Some(0)
    }
}
