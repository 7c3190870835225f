// SPDX-License-Identifier: MIT OR Apache-2.0
//! One observer for many applications, loaded by a server. A context switch costs the same however many there are.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::{Link, MapCore, MapHandle, Object};

use crate::load::{load_observer, map, quietly};
use crate::{Admission, Error, admission};

/// Slots, of which 0 is never an application's.
pub const SLOTS: u32 = 4096;

/// The loaded observer. It observes until it is dropped, or its process ends; what applications have then says nothing new.
pub struct Observer {
    object: Object,
    _link: Link,
}

impl Observer {
    /// Loads it into the kernel and starts it. Privileged; takes some milliseconds.
    ///
    /// # Errors
    /// Says what is missing.
    pub fn load() -> Result<Self, Error> {
        let (object, link) = quietly(load_observer)?;
        Ok(Self { object, _link: link })
    }

    /// Its slots, which another thread may have: what changes them waits until no processor can be in the observer any more, some milliseconds.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn slots(&self) -> Result<Slots, Error> {
        let enrol = self.object.progs().find(|program| program.name() == "enrol").expect("the object has it");
        Ok(Slots {
            arenas: MapHandle::try_from(&map(&self.object, "arenas"))?,
            enrol: enrol.as_fd().try_clone_to_owned()?,
        })
    }

    /// Makes a process, a pidfd, the application of a slot that is ready, before or after it has created threads; but who is enrolled stays where it is.
    ///
    /// # Errors
    /// Those of bpf(2): ESRCH if the process has ended.
    pub fn admit(&self, process: BorrowedFd<'_>, slot: u32) -> Result<(), Error> {
        admission::admit(&self.object, "members", process, slot)
    }
}

/// See [`Observer::slots`].
#[derive(Debug)]
pub struct Slots {
    arenas: MapHandle,
    enrol: OwnedFd,
}

impl Slots {
    /// Makes a slot ready for an application, with an empty arena. Best one that has been free for long: of a process that has just ended, a thread
    /// may still be on its way off its processor.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no such slot, and those of bpf(2).
    pub fn prepare(&self, slot: u32) -> Result<Admission, Error> {
        if slot == 0 || slot >= SLOTS {
            return Err(Error::Full);
        }
        admission::prepare_in(&self.arenas, self.enrol.as_fd(), slot, None)
    }

    /// Forgets the application of a process that has ended.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn release(&self, slot: u32) -> Result<(), Error> {
        Ok(self.arenas.delete(&slot.to_ne_bytes())?)
    }
}
