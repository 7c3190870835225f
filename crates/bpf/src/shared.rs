// SPDX-License-Identifier: MIT OR Apache-2.0
//! One observer for many applications, loaded by a server. A context switch costs the same however many there are.
//!
//! A server is root's, so this loads it without libbpf and libelf, by a *loader program*: libbpf has turned the object into data and an eBPF program of
//! type SYSCALL, which makes the maps and loads the programs when it runs in the kernel (`examples/loader.rs`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::sys::privileged;
use crate::{Admission, Error, admission};

/// Slots, of which 0 is never an application's.
pub const SLOTS: u32 = 4096;

/// What [`LOADER`] makes, in its order.
const MAPS: usize = 3;
const PROGRAMS: usize = 3;
/// Bytes of `struct member`.
const MEMBER: usize = 16;

/// See `examples/loader.rs`: the numbers of bytes of the data and of the instructions, then these.
static LOADER: &[u8] = include_bytes!("bpf/observer.loader");

/// The loaded observer. It observes until it is dropped, or its process ends; what applications have then says nothing new.
pub struct Observer {
    members: OwnedFd,
    slots: Slots,
    _links: [OwnedFd; 2],
}

/// Maps `members` and `arenas`, programs `sched_switch`, `sched_process_exec` and `enrol`.
fn load() -> io::Result<[OwnedFd; MAPS + PROGRAMS - 1]> {
    let word = |at: usize| u32::from_le_bytes(LOADER[at..at + 4].try_into().expect("four")) as usize;
    let (data, instructions) = LOADER[8..8 + word(0) + word(4)].split_at(word(0));
    let instructions: Vec<u64> = instructions
        .chunks_exact(8)
        .map(|bytes| u64::from_ne_bytes(bytes.try_into().expect("eight")))
        .collect();
    let map = privileged::array(data.len() as u32, false)?;
    privileged::update(map.as_fd(), &0u32, data)?;
    let program = privileged::load(&instructions, map.as_fd())?;
    // struct bpf_loader_ctx: its size and five words that stay 0; then of each map a descriptor and three more words; then of each program one.
    let mut context = [0u32; 6 + 4 * MAPS + PROGRAMS];
    context[0] = size_of_val(&context) as u32;
    privileged::run(program.as_fd(), &mut context)?;
    // SAFETY: the program has opened them for us.
    let made = |at: usize| unsafe { OwnedFd::from_raw_fd(context[at] as i32) };
    // That of the variables nobody needs but the programs, which have it.
    let [members, arenas, _, switch, exec, enrol] = [6, 10, 14, 18, 19, 20].map(made);
    Ok([members, arenas, switch, exec, enrol])
}

impl Observer {
    /// Loads it into the kernel and starts it. Privileged; takes some milliseconds.
    ///
    /// # Errors
    /// Says what is missing.
    pub fn load() -> Result<Self, Error> {
        if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(Error::NoBtf);
        }
        let [members, arenas, switch, exec, enrol] = load().map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSYS) => Error::NoBpf,
            Some(libc::EPERM) => Error::NotPermitted,
            _ => Error::System(error),
        })?;
        let _links = [privileged::attach(switch.as_fd())?, privileged::attach(exec.as_fd())?];
        Ok(Self { members, slots: Slots { arenas, enrol }, _links })
    }

    /// Its slots, which another thread may have: what changes them waits until no processor can be in the observer any more, some milliseconds.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn slots(&self) -> Result<Slots, Error> {
        Ok(Slots { arenas: self.slots.arenas.try_clone()?, enrol: self.slots.enrol.try_clone()? })
    }

    /// Makes a process, a pidfd, the application of a slot that is ready, before or after it has created threads; but who is enrolled stays where it is.
    ///
    /// # Errors
    /// Those of bpf(2): ESRCH if the process has ended.
    pub fn admit(&self, process: BorrowedFd<'_>, slot: u32) -> Result<(), Error> {
        admission::admit(self.members.as_fd(), MEMBER, process, slot)
    }
}

/// See [`Observer::slots`].
#[derive(Debug)]
pub struct Slots {
    arenas: OwnedFd,
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
        admission::prepare(self.arenas.as_fd(), self.enrol.as_fd(), slot, None)
    }

    /// Forgets the application of a process that has ended.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn release(&self, slot: u32) -> Result<(), Error> {
        admission::release(self.arenas.as_fd(), slot)
    }
}
