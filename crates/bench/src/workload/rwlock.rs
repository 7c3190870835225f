// SPDX-License-Identifier: MIT OR Apache-2.0
//! The synthetic program of TR 1994, section 5.3: every thread, for ever, reads shared data, or writes them
//! in some of its turns, and then works outside.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use catalog::RwLockVisitor;
use linux::Linux;
use platform::Platform;
use serde::{Deserialize, Serialize};
use sync::rwlock::RawRwLock;

use super::{Data, Length, units};
use crate::error::{JobError, check_view};
use crate::harness::{self, Padded, Plan, Sample};

/// What to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RwLock {
    /// Critical section: what a writer updates and a reader reads.
    pub critical: Length,
    /// Units of work outside; see [`units`].
    pub outside: u64,
    /// Percentage of the sections that write.
    pub writers: f64,
    /// Threads.
    pub threads: usize,
}

/// The locks that are not in the catalogue, with what there is to say about each.
pub const FOREIGN: &[(&str, &str)] = &[
    ("glibc", "pthread_rwlock_t of the C library"),
    ("std", "std::sync::RwLock"),
    ("parking_lot", "parking_lot::RwLock"),
];

/// A lock under test. `Node` is what a thread brings; see [`RawRwLock`].
trait Lock: Send + Sync {
    type Node: Default;
    fn new() -> Self;
    /// The caller is not in a section already.
    fn read<R>(&self, node: &Self::Node, section: impl FnOnce() -> R) -> R;
    /// The caller is not in a section already.
    fn write<R>(&self, node: &Self::Node, section: impl FnOnce() -> R) -> R;
}

struct Ours<L>(L);

impl<L: RawRwLock<Linux>> Lock for Ours<L> {
    type Node = L::Node;
    fn new() -> Self {
        Self(L::new())
    }
    #[inline(always)]
    fn read<R>(&self, node: &L::Node, section: impl FnOnce() -> R) -> R {
        // SAFETY: the node is this thread's, used for one acquisition at a time, and outlives it.
        unsafe {
            self.0.read(node);
            let result = section();
            self.0.unlock_read(node);
            result
        }
    }
    #[inline(always)]
    fn write<R>(&self, node: &L::Node, section: impl FnOnce() -> R) -> R {
        // SAFETY: as above.
        unsafe {
            self.0.write(node);
            let result = section();
            self.0.unlock_write(node);
            result
        }
    }
}

struct Std(std::sync::RwLock<()>);

impl Lock for Std {
    type Node = ();
    fn new() -> Self {
        Self(std::sync::RwLock::new(()))
    }
    #[inline(always)]
    fn read<R>(&self, (): &(), section: impl FnOnce() -> R) -> R {
        let _guard = self.0.read().expect("a section does not panic");
        section()
    }
    #[inline(always)]
    fn write<R>(&self, (): &(), section: impl FnOnce() -> R) -> R {
        let _guard = self.0.write().expect("a section does not panic");
        section()
    }
}

struct ParkingLot(parking_lot::RwLock<()>);

impl Lock for ParkingLot {
    type Node = ();
    fn new() -> Self {
        Self(parking_lot::RwLock::new(()))
    }
    #[inline(always)]
    fn read<R>(&self, (): &(), section: impl FnOnce() -> R) -> R {
        let _guard = self.0.read();
        section()
    }
    #[inline(always)]
    fn write<R>(&self, (): &(), section: impl FnOnce() -> R) -> R {
        let _guard = self.0.write();
        section()
    }
}

struct Glibc(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: a pthread lock is made to be shared.
unsafe impl Sync for Glibc {}
// SAFETY: it moves only before its first use.
unsafe impl Send for Glibc {}

impl Lock for Glibc {
    type Node = ();
    fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER))
    }
    #[inline(always)]
    fn read<R>(&self, (): &(), section: impl FnOnce() -> R) -> R {
        // SAFETY: initialised, does not move while in use, and unlocked by the thread that locked it.
        unsafe {
            libc::pthread_rwlock_rdlock(self.0.get());
            let result = section();
            libc::pthread_rwlock_unlock(self.0.get());
            result
        }
    }
    #[inline(always)]
    fn write<R>(&self, (): &(), section: impl FnOnce() -> R) -> R {
        // SAFETY: as above.
        unsafe {
            libc::pthread_rwlock_wrlock(self.0.get());
            let result = section();
            libc::pthread_rwlock_unlock(self.0.get());
            result
        }
    }
}

/// Which turns write: a generator of one's own for each thread (Marsaglia's xorshift), so that threads do
/// not go in step.
struct Turns {
    state: u64,
    limit: u64,
}

impl Turns {
    fn new(index: usize, percent: f64) -> Self {
        let limit = (percent / 100.0 * u64::MAX as f64) as u64;
        Self { state: 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(index as u64 + 1), limit }
    }

    #[inline(always)]
    fn writes(&mut self) -> bool {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        // Multiplied, because the low end of a xorshift is not evenly spread.
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) < self.limit
    }
}

fn run_with<L: Lock>(work: &RwLock, plan: Plan) -> Result<Sample, JobError> {
    let lock = Padded::<L>(L::new());
    let mut data = Data::new(work.critical);
    let written = AtomicU64::new(0);
    let torn = AtomicU64::new(0);
    // BOUND: two clock readings, about 50 ns, for each timed wait: every 16th where a section is that
    // short, else every one.
    let every = match work.critical {
        Length::Lines(_) => 16,
        Length::Time(_) => 1,
    };
    let (sample, _) = harness::measure(
        plan,
        |worker| {
            let node = L::Node::default();
            let mut turns = Turns::new(worker.index, work.writers);
            let (mut wrote, mut bad) = (0u64, 0u64);
            while worker.goes_on() {
                let writes = turns.writes();
                // Every writer where they are few.
                let clock = worker.operations.is_multiple_of(every) || writes && work.writers <= 5.0;
                let asked = clock.then(Instant::now);
                let wait = if writes {
                    wrote += 1;
                    lock.0.write(&node, || {
                        let wait = asked.map(|asked| asked.elapsed());
                        // SAFETY: this is what the lock is for; it is checked below.
                        unsafe { data.section() };
                        wait
                    })
                } else {
                    lock.0.read(&node, || {
                        let wait = asked.map(|asked| asked.elapsed());
                        // SAFETY: as above.
                        bad += u64::from(unsafe { data.read() });
                        wait
                    })
                };
                if let Some(wait) = wait {
                    // Writers' waits where there are both: theirs is the question.
                    if writes || work.writers == 0.0 {
                        worker.waited(wait);
                    }
                }
                units(work.outside);
                worker.count();
            }
            written.fetch_add(wrote, Relaxed);
            torn.fetch_add(bad, Relaxed);
        },
        || (),
    )?;
    let (sections, counted, torn) = (data.sections(), written.into_inner(), torn.into_inner());
    if sections != counted {
        return Err(JobError::Exclusion { sections, counted });
    }
    if torn > 0 {
        return Err(JobError::Torn { torn });
    }
    Ok(sample)
}

struct Visitor<'a>(&'a RwLock, Plan);

impl RwLockVisitor<Linux> for Visitor<'_> {
    type Output = Result<Sample, JobError>;
    fn visit<L: RawRwLock<Linux> + 'static>(self, _: &'static catalog::Entry) -> Self::Output {
        // The view is set up here, also a privileged one, and not by the first thread that waits.
        linux::init();
        Linux::register();
        check_view(|| linux::report().chosen)?;
        run_with::<Ours<L>>(self.0, self.1)
    }
}

impl RwLock {
    /// Measures a lock, in this process.
    pub fn run(&self, lock: &str, plan: Plan) -> Result<Sample, JobError> {
        match lock {
            "std" => run_with::<Std>(self, plan),
            "parking_lot" => run_with::<ParkingLot>(self, plan),
            "glibc" => run_with::<Glibc>(self, plan),
            _ => catalog::visit_rwlock(lock, Visitor(self, plan))
                .unwrap_or_else(|| Err(JobError::UnknownLock(lock.to_string()))),
        }
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

    /// Keeps writers apart, and readers not from them.
    struct Busted(std::sync::Mutex<()>);

    impl Lock for Busted {
        type Node = ();
        fn new() -> Self {
            Self(std::sync::Mutex::new(()))
        }
        fn read<R>(&self, (): &(), section: impl FnOnce() -> R) -> R {
            section()
        }
        fn write<R>(&self, (): &(), section: impl FnOnce() -> R) -> R {
            let _guard = self.0.lock();
            section()
        }
    }

    #[test]
    fn every_lock_runs_and_keeps_exclusion() {
        let names =
            FOREIGN.iter().map(|(name, _)| *name).chain(catalog::RWLOCKS.iter().map(|entry| entry.name));
        for name in names {
            for writers in [0.0, 20.0] {
                let work = RwLock { critical: Length::Lines(5), outside: 100, writers, threads: 3 };
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
    }

    /// A section of 200 us, and readers beside the writers.
    #[test]
    fn a_lock_that_lets_readers_in_beside_a_writer_is_found_out() {
        let work = RwLock { critical: Length::Lines(200_000), outside: 0, writers: 50.0, threads: 3 };
        let plan = Plan { interval: Duration::from_millis(200), ..PLAN };
        // Where others have the processors, nobody may come while another one is inside.
        assert!((0..20).any(|_| matches!(run_with::<Busted>(&work, plan), Err(JobError::Torn { .. }))));
    }

    #[test]
    fn the_share_of_writers_is_what_was_asked_for() {
        for percent in [0.0, 1.0, 5.0, 50.0, 100.0] {
            let mut turns = Turns::new(3, percent);
            let wrote = (0..100_000).filter(|_| turns.writes()).count() as f64 / 1_000.0;
            assert!((wrote - percent).abs() <= 0.5, "{wrote} % instead of {percent} %");
        }
    }

    #[test]
    fn an_unknown_lock_is_an_error() {
        let work = RwLock { critical: Length::Lines(1), outside: 0, writers: 0.0, threads: 1 };
        assert!(matches!(work.run("nonesuch", PLAN), Err(JobError::UnknownLock(name)) if name == "nonesuch"));
    }
}
