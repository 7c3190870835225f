// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paznikov 2016, figure 1: how long a section takes, how long it takes from its end to the beginning of the
//! next one, whoever's that is, and how often the section misses the cache.
//!
//! Each section reads the clock twice; one reading is in the section's time, and one in the hand-over's.
//! Misses are counted in samples of their own, because a reading of the counter is a system call.

use std::cell::UnsafeCell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use linux::Linux;
use platform::Platform;
use serde::Serialize;

use super::mutex::{Lock, Measure, Mutex};
use super::{Data, delegate, units};
use crate::error::JobError;
use crate::harness::{self, Padded, Plan};

/// What a sample found. `None`: there was nothing of that kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Parts {
    /// From a section's begin to its end, ns.
    pub section_ns: Option<f64>,
    /// From a section's end to the next one's beginning, of the same thread, ns.
    pub same_ns: Option<f64>,
    /// The same, of another thread.
    pub other_ns: Option<f64>,
    /// Next sections that are another thread's, of all; 0 to 1.
    pub others: Option<f64>,
    /// Events in a section.
    pub misses: Option<f64>,
}

/// What the kernel is to count: type and number of a perf event.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    kind: u32,
    number: u64,
}

/// PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES.
pub const CACHE_MISSES: Event = Event { kind: 0, number: 3 };

/// `struct perf_event_attr`, its first 64 bytes (PERF_ATTR_SIZE_VER0).
#[repr(C)]
struct Attr {
    kind: u32,
    size: u32,
    number: u64,
    period: u64,
    sample: u64,
    read: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    address: u64,
}

/// exclude_kernel, exclude_hv.
const USER_ONLY: u64 = 1 << 5 | 1 << 6;

/// Counts an event of the calling thread.
struct Counter(OwnedFd);

impl Event {
    fn open(self) -> io::Result<Counter> {
        let attr = Attr {
            kind: self.kind,
            size: size_of::<Attr>() as u32,
            number: self.number,
            period: 0,
            sample: 0,
            read: 0,
            flags: USER_ONLY,
            wakeup: 0,
            breakpoint: 0,
            address: 0,
        };
        // SAFETY: `attr` is a valid perf_event_attr of the size it states; the descriptor is new.
        unsafe {
            match libc::syscall(libc::SYS_perf_event_open, &raw const attr, 0, -1, -1, 0) {
                fd if fd >= 0 => Ok(Counter(OwnedFd::from_raw_fd(fd as i32))),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    /// Why this machine does not count it, if it does not.
    ///
    /// # Errors
    /// What perf_event_open(2) says.
    pub fn check(self) -> io::Result<()> {
        self.open().map(drop)
    }
}

impl Counter {
    fn read(&self) -> u64 {
        let mut count = 0_u64;
        // SAFETY: room for the 8 bytes that an event without a format has.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
        count
    }
}

thread_local! {
    /// A section may run on any thread, which counts for itself.
    static COUNTER: UnsafeCell<Option<Counter>> = const { UnsafeCell::new(None) };
}

/// The events that `section` causes.
fn counted(event: Event, section: impl FnOnce()) -> u64 {
    COUNTER.with(|counter| {
        // SAFETY: a thread's own, and a section begins no other one.
        let counter = unsafe { &mut *counter.get() };
        if counter.is_none() {
            *counter = event.open().ok();
        }
        let read = |counter: &Option<Counter>| counter.as_ref().map_or(0, Counter::read);
        let before = read(counter);
        section();
        read(counter) - before
    })
}

/// Sums over sections. Of the lock.
#[derive(Default)]
struct Sums {
    end: u64,
    owner: usize,
    sections: u64,
    inside: u64,
    same: [u64; 2],
    other: [u64; 2],
    events: u64,
}

struct Shared(UnsafeCell<Sums>);

// SAFETY: only sections touch it.
unsafe impl Sync for Shared {}

impl Shared {
    fn sums(&self) -> *mut Sums {
        self.0.get()
    }
}

impl Sums {
    fn section(&mut self, worker: usize, data: &Data) {
        let begin = Linux::now_ns();
        // SAFETY: this is what the lock is for; it is checked.
        unsafe { data.section() };
        if self.sections > 0 {
            let between = if self.owner == worker { &mut self.same } else { &mut self.other };
            between[0] += begin.saturating_sub(self.end);
            between[1] += 1;
        }
        self.sections += 1;
        self.owner = worker;
        let end = Linux::now_ns();
        self.inside += end - begin;
        self.end = end;
    }

    fn parts(&self, event: Option<Event>) -> Parts {
        let mean = |sum: u64, count: u64| (count > 0).then(|| sum as f64 / count as f64);
        match event {
            Some(_) => Parts { misses: mean(self.events, self.sections), ..Parts::default() },
            None => Parts {
                section_ns: mean(self.inside, self.sections),
                same_ns: mean(self.same[0], self.same[1]),
                other_ns: mean(self.other[0], self.other[1]),
                others: mean(self.other[1], self.same[1] + self.other[1]),
                misses: None,
            },
        }
    }
}

struct Apart<'a>(&'a Mutex, Plan, Option<Event>);

impl Measure for Apart<'_> {
    type Output = Parts;
    fn on<L: Lock>(self, lock: &Padded<L>) -> Result<Parts, JobError> {
        let Self(work, plan, event) = self;
        let (mut data, sums) = (Data::new(work.critical), Padded(Shared(UnsafeCell::default())));
        let (_, ran) = harness::measure(
            plan,
            |worker| {
                let node = L::Node::default();
                let index = worker.index;
                while worker.goes_on() {
                    lock.0.with(&node, || {
                        // SAFETY: as for the data.
                        let sums = unsafe { &mut *sums.0.sums() };
                        match event {
                            None => sums.section(index, &data),
                            Some(event) => {
                                // SAFETY: as above.
                                sums.events += counted(event, || unsafe { data.section() });
                                sums.sections += 1;
                            }
                        }
                    });
                    units(work.outside);
                    worker.count();
                }
            },
            || (),
        )?;
        let sums = sums.0.0.into_inner();
        match data.sections() {
            sections if sections == ran && sums.sections == ran => Ok(sums.parts(event)),
            sections => Err(JobError::Exclusion { sections, counted: ran }),
        }
    }
}

/// Measures a mutex or a delegating lock, in this process. With an event: its count, and no times.
///
/// # Errors
/// If there is no such lock, or it is broken.
pub fn run(work: &Mutex, lock: &str, plan: Plan, event: Option<Event>) -> Result<Parts, JobError> {
    delegate::with_lock(lock, Apart(work, plan, event))
}

/// What a reading of the clock takes, ns.
pub fn clock_ns() -> f64 {
    const READINGS: u64 = 10_000;
    let begin = Linux::now_ns();
    for _ in 1..READINGS {
        std::hint::black_box(Linux::now_ns());
    }
    (Linux::now_ns() - begin) as f64 / READINGS as f64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::workload::Length;

    const PLAN: Plan = Plan {
        threads: 2,
        counted: 2,
        warm_up: Duration::from_millis(2),
        interval: Duration::from_millis(20),
    };
    const WORK: Mutex = Mutex { critical: Length::Lines(5), outside: 10, threads: 2 };

    #[test]
    fn parts_of_each_kind_of_lock() {
        for lock in ["glibc", "mcs-spin", "rcl"] {
            let parts = run(&WORK, lock, PLAN, None).unwrap_or_else(|error| panic!("{lock}: {error}"));
            assert!(parts.section_ns.is_some_and(|ns| ns > 0.0), "{lock}: {parts:?}");
            assert!(parts.others.is_some_and(|others| (0.0..=1.0).contains(&others)), "{lock}: {parts:?}");
            assert_eq!(parts.misses, None);
        }
        assert!(matches!(run(&WORK, "nonesuch", PLAN, None), Err(JobError::UnknownLock(_))));
    }

    /// An event that every kernel counts, in place of misses: PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS.
    #[test]
    fn events_are_those_of_sections() {
        const FAULTS: Event = Event { kind: 1, number: 2 };
        if FAULTS.check().is_err() {
            return println!("skipped: the kernel counts nothing here");
        }
        let parts = run(&WORK, "rcl", PLAN, Some(FAULTS)).unwrap();
        assert!(parts.misses.is_some_and(|faults| faults < 1.0), "{parts:?}");
        let touched = counted(FAULTS, || drop(std::hint::black_box(vec![1_u8; 1 << 22])));
        assert!(touched >= 1, "a section touches new pages, and causes no fault");
        assert!(Event { kind: 0, number: 1 << 20 }.check().is_err(), "there is no such event");
    }
}
