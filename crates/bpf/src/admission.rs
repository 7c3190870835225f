// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who takes part in what serves many applications, the shared observer or the scheduler: a *slot* for each, with an arena of its own.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::sys::{What, privileged};
use crate::{ARENA_SIZE, Enrolment, Error, Handle, move_up, sys};

/// What an admitted application gets.
#[derive(Debug)]
pub struct Admission {
    /// Its slot.
    pub slot: u32,
    /// Its arena, to be mapped.
    pub arena: OwnedFd,
    /// What its threads enrol with.
    pub enrol: OwnedFd,
}

impl Admission {
    /// For [`crate::Observer::take_over`]; the descriptors are inherited from now on.
    ///
    /// # Errors
    /// Those of fcntl and bpf(2).
    pub fn hand_over(&self) -> io::Result<Handle> {
        let described = |fd: &OwnedFd, what| {
            // SAFETY: plain numbers.
            match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0) } {
                0 => Ok((fd.as_raw_fd(), sys::id(fd.as_raw_fd(), what)?)),
                _ => Err(io::Error::last_os_error()),
            }
        };
        let (arena, enrol) = (described(&self.arena, What::Arena)?, described(&self.enrol, What::Enrol)?);
        // Nothing of an application's keeps the kernel's half going.
        Ok(Handle { arena, enrol, link: None })
    }

    /// The kernel's name of the arena; see [`exists`].
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn id(&self) -> io::Result<u32> {
        sys::id(self.arena.as_raw_fd(), What::Arena)
    }

    /// How its threads come under the kernel's eyes.
    pub fn enrolment(&self) -> Enrolment {
        Enrolment::from_number(self.enrol.as_raw_fd())
    }
}

/// Is an arena still somebody's, wherever its descriptors have gone? Privileged.
///
/// # Errors
/// Those of bpf(2).
pub fn exists(arena: u32) -> Result<bool, Error> {
    match privileged::map_by_id(arena) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A descriptor for this process, by which the kernel knows it even after it has ended.
///
/// # Errors
/// Those of pidfd_open(2).
pub fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: plain numbers.
    match unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } {
        // SAFETY: a new descriptor that nobody else owns.
        fd @ 0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes a slot of the map `arenas` ready, with an arena of these bytes, or of zeros, and what threads enrol with.
pub(crate) fn prepare(
    arenas: BorrowedFd<'_>,
    enrol: BorrowedFd<'_>,
    slot: u32,
    content: Option<&[u8]>,
) -> Result<Admission, Error> {
    let arena = privileged::array(ARENA_SIZE as u32, true)?;
    if let Some(content) = content {
        assert_eq!(content.len(), ARENA_SIZE);
        privileged::update(arena.as_fd(), &0u32, content)?;
    }
    privileged::update(arenas, &slot, &arena.as_raw_fd())?;
    Ok(Admission { slot, arena: move_up(arena.as_fd())?.into(), enrol: move_up(enrol)?.into() })
}

/// Writes the slot into the process's place in this task storage, whose values are so many bytes, and where it comes first.
pub(crate) fn admit(
    storage: BorrowedFd<'_>,
    size: usize,
    process: BorrowedFd<'_>,
    slot: u32,
) -> Result<(), Error> {
    let mut value = vec![0; size];
    value[..4].copy_from_slice(&slot.to_ne_bytes());
    Ok(privileged::update(storage, &process.as_raw_fd(), value.as_slice())?)
}

/// Takes the slot's arena away.
pub(crate) fn release(arenas: BorrowedFd<'_>, slot: u32) -> Result<(), Error> {
    Ok(privileged::delete(arenas, &slot)?)
}
