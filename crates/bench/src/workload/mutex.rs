// SPDX-License-Identifier: MIT OR Apache-2.0
//! The synthetic program of TR 1994, section 5.2: every thread, for ever, enters a critical section and
//! then works outside it.

use std::cell::UnsafeCell;
use std::time::Instant;

use catalog::MutexVisitor;
use linux::Linux;
use platform::Platform;
use serde::{Deserialize, Serialize};
use sync::mutex::RawMutex;

use super::{Data, Length, units};
use crate::error::{JobError, check_view};
use crate::harness::{self, Padded, Plan, Sample};

/// What to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mutex {
    /// Critical section.
    pub critical: Length,
    /// Units of work outside; see [`units`].
    pub outside: u64,
    /// Threads.
    pub threads: usize,
}

/// The locks that are not in the catalogue, with what there is to say about each.
pub const FOREIGN: &[(&str, &str)] = &[
    ("std", "std::sync::Mutex"),
    ("parking_lot", "parking_lot::Mutex"),
    ("glibc", "pthread_mutex_t of the C library"),
    ("spin", "pthread_spinlock_t of the C library"),
];

/// A lock under test. `Node` is what a thread brings; see [`RawMutex`].
pub(super) trait Lock: Send + Sync {
    type Node: Default;
    fn new() -> Self;
    /// Runs a critical section. The caller is not in one already.
    fn with<R>(&self, node: &Self::Node, section: impl FnOnce() -> R) -> R;
}

struct Ours<L>(L);

impl<L: RawMutex<Linux>> Lock for Ours<L> {
    type Node = L::Node;
    fn new() -> Self {
        Self(L::new())
    }
    #[inline(always)]
    fn with<R>(&self, node: &L::Node, section: impl FnOnce() -> R) -> R {
        // SAFETY: the node is this thread's, used for one acquisition at a time, and outlives it.
        unsafe {
            self.0.lock(node);
            let result = section();
            self.0.unlock(node);
            result
        }
    }
}

struct Std(std::sync::Mutex<()>);

impl Lock for Std {
    type Node = ();
    fn new() -> Self {
        Self(std::sync::Mutex::new(()))
    }
    #[inline(always)]
    fn with<R>(&self, (): &(), section: impl FnOnce() -> R) -> R {
        let _guard = self.0.lock().expect("a section does not panic");
        section()
    }
}

struct ParkingLot(parking_lot::Mutex<()>);

impl Lock for ParkingLot {
    type Node = ();
    fn new() -> Self {
        Self(parking_lot::Mutex::new(()))
    }
    #[inline(always)]
    fn with<R>(&self, (): &(), section: impl FnOnce() -> R) -> R {
        let _guard = self.0.lock();
        section()
    }
}

struct Glibc(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a pthread mutex is made to be shared.
unsafe impl Sync for Glibc {}
// SAFETY: it moves only before its first use.
unsafe impl Send for Glibc {}

impl Lock for Glibc {
    type Node = ();
    fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }
    #[inline(always)]
    fn with<R>(&self, (): &(), section: impl FnOnce() -> R) -> R {
        // SAFETY: initialised, does not move while in use, and unlocked by the thread that locked it.
        unsafe {
            libc::pthread_mutex_lock(self.0.get());
            let result = section();
            libc::pthread_mutex_unlock(self.0.get());
            result
        }
    }
}

struct Spin(UnsafeCell<libc::pthread_spinlock_t>);

// SAFETY: as for `Glibc`.
unsafe impl Sync for Spin {}
// SAFETY: as for `Glibc`.
unsafe impl Send for Spin {}

impl Lock for Spin {
    type Node = ();
    fn new() -> Self {
        let spin = Self(UnsafeCell::new(0));
        // SAFETY: valid memory. A pthread spin lock may move before its first use: it is a plain word.
        unsafe { libc::pthread_spin_init(spin.0.get(), libc::PTHREAD_PROCESS_PRIVATE) };
        spin
    }
    #[inline(always)]
    fn with<R>(&self, (): &(), section: impl FnOnce() -> R) -> R {
        // SAFETY: as for `Glibc`.
        unsafe {
            libc::pthread_spin_lock(self.0.get());
            let result = section();
            libc::pthread_spin_unlock(self.0.get());
            result
        }
    }
}

/// What is to be measured of a lock.
pub(super) trait Measure {
    type Output;
    fn on<L: Lock>(self, lock: &Padded<L>) -> Result<Self::Output, JobError>;
}

/// Sections a second, and waits.
pub(super) struct Counted<'a>(pub &'a Mutex, pub Plan);

impl Measure for Counted<'_> {
    type Output = Sample;
    fn on<L: Lock>(self, lock: &Padded<L>) -> Result<Sample, JobError> {
        run_on(lock, self.0, self.1)
    }
}

fn run_on<L: Lock>(lock: &Padded<L>, work: &Mutex, plan: Plan) -> Result<Sample, JobError> {
    let mut data = Data::new(work.critical);
    // BOUND: two clock readings, about 50 ns, for each timed wait: every 16th where a section is that
    // short, else every one.
    let every = match work.critical {
        Length::Lines(_) => 16,
        Length::Time(_) => 1,
    };
    let (sample, counted) = harness::measure(
        plan,
        |worker| {
            let node = L::Node::default();
            while worker.goes_on() {
                if worker.operations.is_multiple_of(every) {
                    let asked = Instant::now();
                    let wait = lock.0.with(&node, || {
                        let wait = asked.elapsed();
                        // SAFETY: this is what the lock is for; it is checked below.
                        unsafe { data.section() };
                        wait
                    });
                    worker.waited(wait);
                } else {
                    // SAFETY: as above.
                    lock.0.with(&node, || unsafe { data.section() });
                }
                units(work.outside);
                worker.count();
            }
        },
        || (),
    )?;
    match data.sections() {
        sections if sections == counted => Ok(sample),
        sections => Err(JobError::Exclusion { sections, counted }),
    }
}

struct Visitor<M>(M);

impl<M: Measure> MutexVisitor<Linux> for Visitor<M> {
    type Output = Result<M::Output, JobError>;
    fn visit<L: RawMutex<Linux> + 'static>(self, _: &'static catalog::Entry) -> Self::Output {
        // The view is set up here, also a privileged one, and not by the first thread that waits.
        linux::init();
        Linux::register();
        // Looking costs milliseconds, so only who asks for one that may be missing pays.
        check_view(|| linux::report().chosen)?;
        self.0.on(&Padded(Ours::<L>::new()))
    }
}

/// Of a lock of this name, in this process.
pub(super) fn with_lock<M: Measure>(lock: &str, measure: M) -> Result<M::Output, JobError> {
    match lock {
        "std" => measure.on(&Padded(Std::new())),
        "parking_lot" => measure.on(&Padded(ParkingLot::new())),
        "glibc" => measure.on(&Padded(Glibc::new())),
        "spin" => measure.on(&Padded(Spin::new())),
        _ => catalog::visit_mutex(lock, Visitor(measure))
            .unwrap_or_else(|| Err(JobError::UnknownLock(lock.to_string()))),
    }
}

impl Mutex {
    /// Measures a lock, in this process.
    pub fn run(&self, lock: &str, plan: Plan) -> Result<Sample, JobError> {
        with_lock(lock, Counted(self, plan))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const PLAN: Plan = Plan {
        threads: 3,
        counted: 3,
        warm_up: Duration::from_millis(5),
        interval: Duration::from_millis(40),
    };

    /// Excludes nobody.
    struct Busted;

    impl Lock for Busted {
        type Node = ();
        fn new() -> Self {
            Self
        }
        fn with<R>(&self, (): &(), section: impl FnOnce() -> R) -> R {
            section()
        }
    }

    #[test]
    fn every_lock_runs_and_keeps_exclusion() {
        let work = Mutex { critical: Length::Lines(5), outside: 100, threads: 3 };
        let names =
            FOREIGN.iter().map(|(name, _)| *name).chain(catalog::MUTEXES.iter().map(|entry| entry.name));
        for name in names {
            let fail = |error| panic!("{name}: {error}");
            let alone = harness::some(name, || work.run(name, Plan { threads: 1, counted: 1, ..PLAN }));
            assert!(
                alone.operations > 0 && alone.wait.is_some() && alone.fairness.is_none(),
                "{name}: {alone:?}"
            );
            // Some collapse with three threads, and then there may be no operation to see; exclusion is
            // checked all the same.
            let together = work.run(name, PLAN).unwrap_or_else(fail);
            assert!(
                together.fairness.is_none_or(|factor| (0.5..=1.0).contains(&factor)),
                "{name}: {together:?}"
            );
        }
    }

    /// A section of 200 us, and no lock: threads overlap even on one processor.
    #[test]
    fn a_lock_that_does_not_exclude_is_found_out() {
        let work = Mutex { critical: Length::Lines(200_000), outside: 0, threads: 3 };
        let plan = Plan { interval: Duration::from_millis(200), ..PLAN };
        assert!(matches!(run_on(&Padded(Busted), &work, plan), Err(JobError::Exclusion { .. })));
    }

    #[test]
    fn an_unknown_lock_is_an_error() {
        let work = Mutex { critical: Length::Lines(1), outside: 0, threads: 1 };
        assert!(matches!(work.run("nonesuch", PLAN), Err(JobError::UnknownLock(name)) if name == "nonesuch"));
    }
}
