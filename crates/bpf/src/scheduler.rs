// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler's loader: sched_ext's two levels (`bpf/scheduler.bpf.c`), and who takes part.
//!
//! The scheduler lives as long as [`Scheduler`]; with it, or with its process, the kernel takes all tasks back. An application takes part when it has
//! been admitted ([`Scheduler::prepare`], [`Scheduler::admit`]) and its threads have the policy [`POLICY`], which children inherit.

use std::ffi::CStr;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use abi::{Arena, MAX_PROCESSORS, Partition};
use libbpf_rs::{MapCore, MapFlags, Object};

pub use crate::admission::{Admission, pidfd};
use crate::load::quietly;
use crate::{ARENA_SIZE, Error, admission, sys};

pub use abi::server::POLICY;

/// Applications at a time, of which 0 is all those that were never admitted.
pub const SLOTS: u32 = 64;

static OBJECT: &[u8] = include_bytes!("bpf/scheduler.bpf.o");

/// What can be chosen when it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Config {
    /// How long a thread runs before it is another's turn.
    pub quantum_ns: u64,
    /// For how long a thread that wishes so is not preempted at the end of its quantum; the kernel looks at its ticks.
    pub extension_ns: u64,
    /// How many processors there are to divide.
    #[doc(hidden)]
    pub processors: u64,
    /// A slot whose threads are never chosen: what the kernel's watchdog is there for. [`SLOTS`]: none.
    #[doc(hidden)]
    pub neglected: u64,
}

impl Default for Config {
    fn default() -> Self {
        let processors = online().len().max(1) as u64;
        Self { quantum_ns: 5_000_000, extension_ns: 1_000_000, processors, neglected: SLOTS as u64 }
    }
}

/// What an application has had. Counts since it was admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Application {
    /// Processor time by weight, from any start.
    pub vtime: u64,
    /// Processor time.
    pub cpu_ns: u64,
    /// When a thread was last chosen because it had waited for too long.
    pub overdue: u64,
    /// Preemptions put off (KE-1).
    pub extended: u64,
    /// Wishes refused, because one was granted just before.
    pub refused: u64,
    /// Processors handed off to a thread of higher priority.
    pub handed: u64,
    #[doc(hidden)]
    pub reckoned: u64,
    #[doc(hidden)]
    pub ran: u64,
    /// Threads that run or could.
    pub runnable: u32,
    /// Its weight; 0 stands for 100.
    pub weight: u32,
}

/// Is it still in charge?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is.
    Alive,
    /// The kernel ended it, and says why.
    Ended(String),
}

/// The loaded scheduler. It schedules until it is dropped.
pub struct Scheduler {
    // Before the object: with the link the scheduler ends.
    link: Option<libbpf_rs::Link>,
    object: Object,
}

/// Puts the calling thread, and what it will create, under the scheduler.
///
/// # Errors
/// Those of sched_setscheduler(2): EINVAL where the kernel has no sched_ext.
pub fn join() -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is valid. The system call, because musl's function does nothing.
    match unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, POLICY, &parameter) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The scheduler that is in charge on this machine, by the name that the kernel knows; `None` if there is none.
pub fn in_charge() -> Option<String> {
    let name = std::fs::read_to_string("/sys/kernel/sched_ext/root/ops").ok()?;
    Some(name.trim().to_string())
}

/// What a file of the kernel's about processors says; nothing if it is not there.
fn told(file: &str) -> String {
    std::fs::read_to_string(format!("/sys/devices/system/cpu/{file}")).unwrap_or_default().trim().to_string()
}

/// The numbers of the processors that there are.
fn online() -> Vec<usize> {
    let text = told("online");
    let ranges = text.split(',').map(|range| range.split_once('-').unwrap_or((range, range)));
    ranges.filter_map(|(first, last)| Some(first.parse().ok()?..=last.parse().ok()?)).flatten().collect()
}

/// An arena with what its partition block will say throughout (KE-3); how many processors, the kernel's half writes.
fn new_arena() -> Vec<u8> {
    let mut arena = vec![0; ARENA_SIZE];
    let partition = offset_of!(Arena, partition);
    let siblings = told("cpu0/topology/thread_siblings");
    let siblings: u32 = siblings.chars().filter_map(|digit| digit.to_digit(16)).map(u32::count_ones).sum();
    let at = partition + offset_of!(Partition, threads_per_processor);
    arena[at..at + 4].copy_from_slice(&siblings.max(1).to_ne_bytes());
    let ids = partition + offset_of!(Partition, ids);
    for processor in online().into_iter().filter(|&processor| processor < MAX_PROCESSORS) {
        // The words are little-endian here, as the object is.
        arena[ids + processor / 8] |= 1 << (processor % 8);
    }
    arena
}

fn bytes<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: the types are structs of integers without padding.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

impl Scheduler {
    /// Loads the scheduler and puts it in charge. Privileged; takes some tens of milliseconds.
    ///
    /// # Errors
    /// Says what is missing; [`Error::Busy`] if another one is in charge.
    pub fn start(config: Config) -> Result<Self, Error> {
        if !std::path::Path::new("/sys/kernel/sched_ext").exists() {
            return Err(Error::NoSchedExt);
        }
        if let Some(name) = in_charge() {
            return Err(Error::Busy(name));
        }
        quietly(|| Self::start_quietly(config))
    }

    fn start_quietly(config: Config) -> Result<Self, Error> {
        let mut open = libbpf_rs::ObjectBuilder::default().open_memory(OBJECT)?;
        for mut map in open.maps_mut() {
            if map.name() == ".rodata.config"
                && let Some(value) = map.initial_value_mut()
            {
                value[..size_of::<Config>()].copy_from_slice(bytes(&config));
            }
        }
        let object = open.load()?;
        let mut scheduler = Self { link: None, object };
        let link = scheduler
            .object
            .maps_mut()
            .find(|map| map.name() == "wakeful")
            .expect("the object has it")
            .attach_struct_ops();
        scheduler.link = Some(link?);
        Ok(scheduler)
    }

    fn map(&self, name: &str) -> libbpf_rs::Map<'_> {
        crate::load::map(&self.object, name)
    }

    /// Is it in charge?
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn state(&self) -> Result<State, Error> {
        let state = self.map(".data.state").lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
        if state.first() == Some(&1) {
            return Ok(State::Alive);
        }
        let why = state.get(8..).and_then(|why| CStr::from_bytes_until_nul(why).ok());
        Ok(State::Ended(why.unwrap_or_default().to_string_lossy().into_owned()))
    }

    /// Makes a slot ready for an application, with an empty arena.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no such slot, and those of bpf(2).
    pub fn prepare(&self, slot: u32) -> Result<Admission, Error> {
        if slot == 0 || slot >= SLOTS {
            return Err(Error::Full);
        }
        let application = Application { vtime: self.application(0)?.vtime, ..Application::default() };
        self.map("applications").update(&slot.to_ne_bytes(), bytes(&application), MapFlags::ANY)?;
        self.renew(slot)
    }

    /// Gives the application of a slot an empty arena in the place of its own: its process has executed another
    /// program. The time that it has used stays.
    ///
    /// # Errors
    /// As [`Self::prepare`].
    pub fn renew(&self, slot: u32) -> Result<Admission, Error> {
        if slot == 0 || slot >= SLOTS {
            return Err(Error::Full);
        }
        let enrol = self.object.progs().find(|program| program.name() == "enrol").expect("the object has it");
        admission::prepare(self.map("arenas").as_fd(), enrol.as_fd(), slot, Some(&new_arena()))
    }

    /// Makes a process, a pidfd, the application of a slot that is ready. To be called before the process
    /// creates threads: those that are there already are not moved. The first one moves when it comes under the
    /// scheduler, or, if it is, when it enrols.
    ///
    /// # Errors
    /// Those of bpf(2): ESRCH if the process has ended.
    pub fn admit(&self, process: BorrowedFd<'_>, slot: u32) -> Result<(), Error> {
        admission::admit(self.map("admitted").as_fd(), size_of_val(&slot), process, slot)
    }

    /// Forgets the application of a process that has ended.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn release(&self, slot: u32) -> Result<(), Error> {
        admission::release(self.map("arenas").as_fd(), slot)
    }

    /// What an application has had.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn application(&self, slot: u32) -> Result<Application, Error> {
        let value =
            self.map("applications").lookup(&slot.to_ne_bytes(), MapFlags::ANY)?.ok_or(Error::Full)?;
        assert_eq!(value.len(), size_of::<Application>());
        // SAFETY: as long as the struct, which consists of integers.
        Ok(unsafe { std::ptr::read_unaligned(value.as_ptr().cast()) })
    }

    /// Sets the weight of an application; 100 is that of one that has none.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn set_weight(&self, slot: u32, weight: u32) -> Result<(), Error> {
        let application = Application { weight, ..self.application(slot)? };
        Ok(self.map("applications").update(&slot.to_ne_bytes(), bytes(&application), MapFlags::ANY)?)
    }

    /// Each program's name, and how many instructions the kernel's verifier went through to accept it.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn verified(&self) -> Result<Vec<(String, u32)>, Error> {
        self.object
            .progs()
            .map(|program| {
                Ok((
                    program.name().to_string_lossy().into_owned(),
                    sys::verified(program.as_fd().as_raw_fd())?,
                ))
            })
            .collect()
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        drop(self.link.take());
    }
}
