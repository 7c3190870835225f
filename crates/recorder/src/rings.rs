// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's rings: one event and one ring on each processor, for a program that is yet to begin.
//!
//! An event that children inherit can be mapped only if it is bound to a processor, hence one on each. A ring
//! is a queue: the kernel moves its head, we its tail. What finds no room is lost, and a record says so.
//!
//! Samples are a second event on each processor, which writes into the first one's ring and begins disabled.
//! Its timer costs at each switch while it is on, which the first event does not.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

use crate::record::{self, Record};

const PAGE: usize = 4096;
/// Byte offsets of `data_head` and `data_tail` in `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// BOUND: pages of a ring. 128 and the control page are what `perf_event_mlock_kb` grants for each processor:
/// room for 20,000 switches. All rings of a user share these grants and the locked memory of the process.
const PAGES: [usize; 5] = [512, 128, 32, 8, 2];

/// BOUND: from one look to the next where the kernel tells nothing any more.
const ENDED: Duration = Duration::from_millis(1);

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
const PERF_COUNT_SW_DUMMY: u64 = 9;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_IP: u64 = 1;
const SAMPLE_REGS_USER: u64 = 1 << 12;
const SAMPLE_STACK_USER: u64 = 1 << 13;
/// Of x86: the frame pointer, the stack pointer, the program counter.
const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;

/// BOUND: processor time from one sample of a thread to its next one, in no step with the kernel's ticks; and
/// bytes of its stack.
const SAMPLE_NS: u64 = 3_917_000;
const SAMPLE_STACK: u32 = 1024;

/// `PERF_EVENT_IOC_ENABLE`, `DISABLE` and `SET_OUTPUT`. The first two are also for what children inherited.
const ENABLE: libc::Ioctl = 0x2400;
const DISABLE: libc::Ioctl = 0x2401;
const SET_OUTPUT: libc::Ioctl = 0x2405;

/// Of the flags below: disabled, inherit, exclude_kernel, exclude_hv, watermark, sample_id_all, use_clockid.
const SAMPLE_FLAGS: u64 = 1 | 1 << 1 | 1 << 5 | 1 << 6 | 1 << 14 | 1 << 18 | 1 << 25;

/// The flags of `struct perf_event_attr`: disabled, inherit, exclude_kernel, exclude_hv, mmap, comm,
/// enable_on_exec, task, watermark, sample_id_all, mmap2, comm_exec, use_clockid, context_switch.
const FLAGS: u64 = 1
    | 1 << 1
    | 1 << 5
    | 1 << 6
    | 1 << 8
    | 1 << 9
    | 1 << 12
    | 1 << 13
    | 1 << 14
    | 1 << 18
    | 1 << 23
    | 1 << 24
    | 1 << 25
    | 1 << 26;

/// `struct perf_event_attr`, its first 96 bytes; the kernel takes the rest as zero.
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
}

/// Why nothing can be recorded.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The kernel or a sandbox lets this user have no event.
    #[error("the kernel does not let you have perf events")]
    Denied,
    /// It does, but grants no memory for their records.
    #[error("no memory may be locked for perf's rings")]
    NoMemory,
    /// Anything else.
    #[error("cannot open a perf event")]
    Other(#[from] io::Error),
}

/// One processor's ring.
struct Ring {
    event: OwnedFd,
    memory: Memory,
    /// Samples what threads compute there, while it is on.
    samples: Option<OwnedFd>,
}

/// A ring's pages.
struct Memory {
    base: *mut u8,
    /// Bytes of its data, without the control page.
    size: usize,
}

// SAFETY: the mapping is this value's alone.
unsafe impl Send for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has a reference into it.
        unsafe { libc::munmap(self.base.cast(), PAGE + self.size) };
    }
}

/// All processors' rings.
pub struct Rings {
    rings: Vec<Ring>,
    /// A record as it came, without the ring's end in its middle.
    bytes: Vec<u8>,
}

/// Sleeps so long, or until a signal comes: that of a child which is stopped or goes on.
pub(crate) fn sleep(most: Duration) {
    poll_for(&mut [], most);
}

fn poll_for(polls: &mut [libc::pollfd], most: Duration) {
    let time = libc::timespec { tv_sec: most.as_secs() as _, tv_nsec: most.subsec_nanos().into() };
    // SAFETY: the slice and the time live across the call.
    unsafe { libc::ppoll(polls.as_mut_ptr(), polls.len() as _, &time, std::ptr::null()) };
}

impl Rings {
    /// Rings for the process, which is ours and has not called exec(2) yet: they begin with that. With
    /// samples of what its threads compute, if these are wanted and can be had; they are off at first.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(process: libc::pid_t, samples: bool) -> Result<Self, OpenError> {
        let mut events = Vec::new();
        for processor in online() {
            match open(&Attr::switches(), process, processor) {
                Ok(event) => events.push((event, processor)),
                // It went offline meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => {
                    return Err(match error.raw_os_error() {
                        Some(libc::EACCES | libc::EPERM | libc::ENOSYS) => OpenError::Denied,
                        _ => OpenError::Other(error),
                    });
                }
            }
        }
        let memories = of_one_size(events.len(), |ring, size| map(&events[ring].0, size))?;
        let with_samples = |event: &OwnedFd, processor| {
            let samples = open(&Attr::samples(), process, processor).ok()?;
            control(&samples, SET_OUTPUT, event.as_raw_fd()).then_some(samples)
        };
        let ring = |((event, processor), memory)| {
            let is_wanted = samples && cfg!(target_arch = "x86_64");
            let samples = is_wanted.then(|| with_samples(&event, processor)).flatten();
            Ring { event, memory, samples }
        };
        let mut rings: Vec<_> = events.into_iter().zip(memories).map(ring).collect();
        // Too many descriptors: those that there were are for others.
        if rings.iter().any(|ring| ring.samples.is_none()) {
            rings.iter_mut().for_each(|ring| ring.samples = None);
        }
        Ok(Self { rings, bytes: Vec::new() })
    }

    /// How many there are.
    pub fn processors(&self) -> usize {
        self.rings.len()
    }

    /// Samples what threads compute from now on, or no more.
    pub fn sample(&self, is_on: bool) {
        for samples in self.rings.iter().filter_map(|ring| ring.samples.as_ref()) {
            control(samples, if is_on { ENABLE } else { DISABLE }, 0);
        }
    }

    /// Sleeps until a ring is half full, or this long; or until a signal comes.
    pub fn wait(&self, most: Duration) {
        let poll =
            |ring: &Ring| libc::pollfd { fd: ring.event.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut polls: Vec<_> = self.rings.iter().map(poll).collect();
        poll_for(&mut polls, most);
        // An event whose processes have all ended is always ready. So is one of a program that changed the
        // user, which goes on.
        if polls.iter().any(|poll| poll.revents & libc::POLLHUP != 0) {
            sleep(most.min(ENDED));
        }
    }

    /// Takes all records that there are, of one processor after the other, each with a number that its
    /// processor alone has.
    pub fn drain(&mut self, mut take: impl FnMut(Record, u32)) {
        for (processor, ring) in (0..).zip(&self.rings) {
            // SAFETY: both words lie in the control page. The kernel writes the first one, we the second.
            let (head, tail) = unsafe {
                (
                    &*ring.memory.base.add(DATA_HEAD).cast::<AtomicU64>(),
                    &*ring.memory.base.add(DATA_TAIL).cast::<AtomicU64>(),
                )
            };
            // ORDER: Acquire, pairs with the kernel's smp_wmb; what is before the head has been written.
            let end = head.load(Acquire);
            let mut at = tail.load(Relaxed);
            while at < end {
                let header = ring.word(at);
                let size = (header >> 48) as usize;
                if size < 8 || at + size as u64 > end {
                    break;
                }
                if let Some(record) = ring.record(header, at, &mut self.bytes) {
                    take(record, processor);
                }
                at += size as u64;
            }
            // ORDER: Release, pairs with the kernel's read of the tail; we have read what it may overwrite.
            tail.store(end, Release);
        }
    }
}

impl Ring {
    /// The record at this place, if it is one that is asked for.
    fn record(&self, header: u64, at: u64, bytes: &mut Vec<u8>) -> Option<Record> {
        let size = (header >> 48) as usize;
        if size == record::SWITCH_SIZE
            && let Some(switch) = record::switch([header, self.word(at + 8), self.word(at + 16)])
        {
            return Some(switch);
        }
        bytes.clear();
        for offset in (0..size).step_by(8) {
            bytes.extend_from_slice(&self.word(at + offset as u64).to_ne_bytes());
        }
        record::parse(bytes)
    }

    /// Eight bytes; records lie at multiples of eight.
    fn word(&self, at: u64) -> u64 {
        let offset = PAGE + (at as usize & (self.memory.size - 1));
        // SAFETY: inside the ring, aligned; the kernel writes it no more until the tail has moved on.
        unsafe { self.memory.base.add(offset).cast::<u64>().read_volatile() }
    }
}

impl Attr {
    /// No counter: tells of switches, and of threads that begin, end, and map files.
    fn switches() -> Self {
        Self {
            kind: PERF_TYPE_SOFTWARE,
            size: size_of::<Self>() as u32,
            config: PERF_COUNT_SW_DUMMY,
            sample_type: SAMPLE_TID | SAMPLE_TIME,
            flags: FLAGS,
            clockid: libc::CLOCK_MONOTONIC,
            ..Self::default()
        }
    }

    fn samples() -> Self {
        Self {
            config: PERF_COUNT_SW_CPU_CLOCK,
            sample_period: SAMPLE_NS,
            sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_IP | SAMPLE_REGS_USER | SAMPLE_STACK_USER,
            flags: SAMPLE_FLAGS,
            sample_regs_user: REGISTERS,
            sample_stack_user: SAMPLE_STACK,
            ..Self::switches()
        }
    }
}

/// Can it be done?
fn control(event: &OwnedFd, what: libc::Ioctl, argument: i32) -> bool {
    // SAFETY: an event's descriptor, and a number.
    unsafe { libc::ioctl(event.as_raw_fd(), what, argument) == 0 }
}

fn open(attr: &Attr, process: libc::pid_t, processor: i32) -> io::Result<OwnedFd> {
    // SAFETY: `attr` is a valid perf_event_attr of the size it states. The descriptor is new.
    unsafe {
        let flags = PERF_FLAG_FD_CLOEXEC;
        match libc::syscall(libc::SYS_perf_event_open, attr, process, processor, -1, flags) {
            number if number >= 0 => Ok(OwnedFd::from_raw_fd(number as i32)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Memory for so many rings, as much as all of them can have. The kernel grants it for all together: rings
/// that took as much as they get one by one would leave nothing for the last ones.
fn of_one_size<M>(
    rings: usize,
    mut map: impl FnMut(usize, usize) -> io::Result<M>,
) -> Result<Vec<M>, OpenError> {
    for pages in PAGES {
        match (0..rings).map(|ring| map(ring, pages * PAGE)).collect::<io::Result<Vec<M>>>() {
            Ok(memories) => return Ok(memories),
            // What there was of them has been freed.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(OpenError::NoMemory)
}

fn map(event: &OwnedFd, size: usize) -> io::Result<Memory> {
    // SAFETY: a fresh mapping.
    let base = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), PAGE + size, access, libc::MAP_SHARED, event.as_raw_fd(), 0)
    };
    if base == libc::MAP_FAILED {
        Err(io::Error::last_os_error())
    } else {
        Ok(Memory { base: base.cast(), size })
    }
}

/// The numbers of the processors that are online, as "0-3,8".
fn online() -> Vec<i32> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online");
    // Without /sys: as many as this process may use, which are the first ones on most machines.
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    let list = list.unwrap_or_else(|_| format!("0-{}", here - 1));
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// So many pages of a budget, until it is dropped.
    struct Taken<'a>(&'a Cell<usize>, usize);

    impl Drop for Taken<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + self.1);
        }
    }

    /// The pages that each of so many rings gets of a budget; each has a control page, too.
    fn shared(rings: usize, budget: usize) -> Option<Vec<usize>> {
        let left = Cell::new(budget);
        let map = |_, size: usize| {
            let pages = 1 + size / PAGE;
            let rest = left.get().checked_sub(pages).ok_or(io::Error::from_raw_os_error(libc::EPERM))?;
            left.set(rest);
            Ok(Taken(&left, pages))
        };
        let taken = match of_one_size(rings, map) {
            Ok(taken) => taken,
            Err(OpenError::NoMemory) => return None,
            Err(error) => panic!("{error}"),
        };
        Some(taken.iter().map(|one| one.1 - 1).collect())
    }

    #[test]
    fn all_rings_have_one_size_which_they_can_all_have() {
        // What the kernel grants for each processor, and the memory that a process may lock.
        for (processors, locked, pages) in [(2, 2048, 512), (8, 2048, 128), (64, 0, 128), (256, 16, 128)] {
            let budget = processors * 129 + locked;
            assert_eq!(shared(processors, budget), Some(vec![pages; processors]), "{processors}");
        }
        assert_eq!(shared(3, 3 * 129 - 1), Some(vec![32; 3]));
        assert_eq!(shared(3, 9), Some(vec![2; 3]));
        assert_eq!(shared(3, 8), None);
    }

    #[test]
    fn another_error_is_told() {
        let map = |_, _| io::Result::<()>::Err(io::Error::from_raw_os_error(libc::ENOMEM));
        assert!(matches!(of_one_size(2, map), Err(OpenError::Other(_))));
    }
}
