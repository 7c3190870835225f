// SPDX-License-Identifier: MIT OR Apache-2.0
//! What programs build of mutexes, condition variables, reader-writer locks and semaphores.
//!
//! Each pattern is one function over a [`Kit`]: a family of such objects. Every operation also leaves its
//! mark under a lock, and the marks are compared with what the threads counted.

mod kits;

use std::array;
use std::collections::VecDeque;
use std::fmt;
use std::hint::black_box;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use linux::Linux;
use platform::Platform;
use serde::{Deserialize, Serialize};

use self::kits::{Glibc, Kit, Ours, ParkingLot, Semaphore, Std};
use super::units;
use crate::error::{JobError, check_view};
use crate::harness::{self, Plan, Sample, Worker};

/// What to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Patterns {
    /// Which pattern.
    pub pattern: Pattern,
    /// Units of work an operation; see [`units`].
    pub outside: u64,
    /// Threads.
    pub threads: usize,
}

/// What the threads do; [`PATTERNS`] says it in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Pattern {
    Barrier,
    Uneven,
    Latch,
    Configuration,
    Pool,
    Queues,
    Pipeline,
    Future,
    Timeout,
    Cache,
    Barber,
    Yield,
    Poll,
    Mixed,
}

/// The patterns, and what there is to say about each.
pub const PATTERNS: &[(&str, Pattern, &str)] = &[
    ("barrier", Pattern::Barrier, "work, then wait for all: mutex, counter, generation, broadcast"),
    ("uneven", Pattern::Uneven, "the same, with 0 to 2 times the work"),
    ("latch", Pattern::Latch, "one thread starts all others, waits until all are done"),
    ("configuration", Pattern::Configuration, "a new version every 100 us, which all others take"),
    ("pool", Pattern::Pool, "one thread puts batches of tasks into one queue"),
    ("queues", Pattern::Queues, "the same, with a queue for each worker"),
    ("pipeline", Pattern::Pipeline, "each thread is a stage; 16 items fit between two"),
    ("future", Pattern::Future, "half of the threads ask for results, half make them"),
    ("timeout", Pattern::Timeout, "waits of 100 us for what never comes"),
    ("cache", Pattern::Cache, "a reader-writer lock; 1 of 64 operations writes"),
    ("barber", Pattern::Barber, "one thread serves all others, by semaphores"),
    ("yield", Pattern::Yield, "a section with sched_yield in it"),
    ("poll", Pattern::Poll, "a buffer of 16: half poll with sched_yield, half sleep"),
    ("mixed", Pattern::Mixed, "eight atomic additions for each section"),
];

/// The kits, and what there is to say about each. The C library's is the first: it is what a preloaded
/// library replaces.
pub const KITS: &[(&str, &str)] = &[
    ("glibc", "pthread and sem_t of the C library"),
    ("std", "std::sync; semaphores of a mutex and a condition variable"),
    ("parking_lot", "parking_lot; semaphores likewise"),
    ("wakeful", "the Rust crate"),
];

/// The name of a pattern that is none.
#[derive(Debug, thiserror::Error)]
#[error("give one of {}", PATTERNS.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(", "))]
pub struct PatternError;

impl FromStr for Pattern {
    type Err = PatternError;
    fn from_str(text: &str) -> Result<Self, PatternError> {
        PATTERNS.iter().find(|(name, ..)| *name == text).map(|(_, pattern, _)| *pattern).ok_or(PatternError)
    }
}

impl Pattern {
    /// As the user writes it.
    pub fn name(self) -> &'static str {
        PATTERNS.iter().find(|(_, pattern, _)| *pattern == self).expect("all are there").0
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A value, its mutex, and the condition variable on which threads wait for the value to change.
struct Post<K: Kit, T: Send> {
    value: K::Mutex<T>,
    changed: K::Condvar,
}

impl<K: Kit, T: Send> Post<K, T> {
    fn new(value: T) -> Self {
        Self { value: K::mutex(value), changed: K::Condvar::default() }
    }

    /// Waits until `take` gives something; `None` if it is time to stop.
    fn wait<R>(&self, worker: &Worker, mut take: impl FnMut(&mut T) -> Option<R>) -> Option<R> {
        let mut value = K::lock(&self.value);
        while worker.goes_on() {
            if let Some(taken) = take(&mut value) {
                return Some(taken);
            }
            value = K::wait(&self.changed, value);
        }
        None
    }

    /// Changes the value for one waiter.
    fn tell_one(&self, change: impl FnOnce(&mut T)) {
        let mut value = K::lock(&self.value);
        change(&mut value);
        K::notify_one(&self.changed);
    }

    /// Changes the value for all waiters.
    fn tell_all(&self, change: impl FnOnce(&mut T)) {
        let mut value = K::lock(&self.value);
        change(&mut value);
        K::notify_all(&self.changed);
    }

    /// Gets everybody to look whether it is time to stop.
    fn release(&self) {
        self.tell_all(|_| ());
    }

    /// Changes a value for which nobody waits, or reads it.
    fn with<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut K::lock(&self.value))
    }
}

/// A buffer between threads that put and threads that take.
#[derive(Default)]
struct Buffer {
    now: u64,
    put: u64,
}

impl Buffer {
    /// Items that fit.
    const CAPACITY: u64 = 16;

    fn put(&mut self) -> Option<()> {
        (self.now < Self::CAPACITY).then(|| {
            self.now += 1;
            self.put += 1;
        })
    }

    fn take(&mut self) -> Option<()> {
        (self.now > 0).then(|| self.now -= 1)
    }

    fn taken(&self) -> u64 {
        self.put - self.now
    }
}

/// How much work comes next: 0 to 2 times the average (Knuth's linear congruential generator, one for each
/// thread).
struct Uneven(u64);

impl Uneven {
    fn next(&mut self, average: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(2 * average + 1) * u128::from(self.0)) >> 64) as u64
    }
}

/// What was measured, what the threads counted, and how often that left its mark.
type Outcome = Result<(Sample, u64, u64), JobError>;

/// BOUND: how long a version, or a wait for what never comes, takes: some context switches, so that there
/// are thousands in a sample.
const PERIOD: Duration = Duration::from_micros(100);
/// One of so many operations on the cache writes.
const WRITES: u64 = 64;
/// Customers that the barber lets wait.
const CHAIRS: u64 = 8;
/// Additions for each section.
const ADDITIONS: u64 = 8;
/// Tasks a worker and batch.
const TASKS: u64 = 4;

impl Patterns {
    fn barrier<K: Kit>(&self, plan: Plan, uneven: bool) -> Outcome {
        #[derive(Default)]
        struct Rounds {
            arrived: usize,
            generation: u64,
            marks: u64,
        }
        let post = Post::<K, Rounds>::new(Rounds::default());
        let body = |worker: &mut Worker| {
            let mut work = Uneven(worker.index as u64);
            while worker.goes_on() {
                units(if uneven { work.next(self.outside) } else { self.outside });
                let mut rounds = K::lock(&post.value);
                rounds.arrived += 1;
                rounds.marks += 1;
                let mine = rounds.generation;
                if rounds.arrived == self.threads {
                    rounds.arrived = 0;
                    rounds.generation += 1;
                    K::notify_all(&post.changed);
                }
                while rounds.generation == mine && worker.goes_on() {
                    rounds = K::wait(&post.changed, rounds);
                }
                drop(rounds);
                worker.count();
            }
        };
        let (sample, counted) = harness::measure(plan, body, || post.release())?;
        Ok((sample, counted, post.with(|rounds| rounds.marks)))
    }

    fn latch<K: Kit>(&self, plan: Plan) -> Outcome {
        #[derive(Default)]
        struct Done {
            left: usize,
            marks: u64,
        }
        let (start, done) = (Post::<K, u64>::new(0), Post::<K, Done>::new(Done::default()));
        let workers = self.threads - 1;
        let body = |worker: &mut Worker| {
            let mut seen = 0;
            if worker.index == workers {
                while worker.goes_on() {
                    done.with(|done| done.left = workers);
                    start.tell_all(|round| *round += 1);
                    done.wait(worker, |done| (done.left == 0).then_some(()));
                }
                return;
            }
            while let Some(round) = start.wait(worker, |round| (*round != seen).then_some(*round)) {
                seen = round;
                units(self.outside);
                let mut done_now = K::lock(&done.value);
                done_now.left -= 1;
                done_now.marks += 1;
                if done_now.left == 0 {
                    K::notify_one(&done.changed);
                }
                drop(done_now);
                worker.count();
            }
        };
        let release = || {
            start.release();
            done.release();
        };
        let (sample, counted) = harness::measure(Plan { counted: workers, ..plan }, body, release)?;
        Ok((sample, counted, done.with(|done| done.marks)))
    }

    fn configuration<K: Kit>(&self, plan: Plan) -> Outcome {
        #[derive(Default)]
        struct News {
            version: u64,
            marks: u64,
        }
        let news = Post::<K, News>::new(News::default());
        let readers = self.threads - 1;
        let body = |worker: &mut Worker| {
            let mut seen = 0;
            if worker.index == readers {
                while worker.goes_on() {
                    thread::sleep(PERIOD);
                    news.tell_all(|news| news.version += 1);
                }
                return;
            }
            let mut take = |news: &mut News| {
                (news.version != seen).then(|| {
                    seen = news.version;
                    news.marks += 1;
                })
            };
            while news.wait(worker, &mut take).is_some() {
                worker.count();
                units(self.outside);
            }
        };
        let (sample, counted) = harness::measure(Plan { counted: readers, ..plan }, body, || news.release())?;
        Ok((sample, counted, news.with(|news| news.marks)))
    }

    /// With one queue for all workers, or one for each.
    fn pool<K: Kit>(&self, plan: Plan, queues: usize) -> Outcome {
        #[derive(Default)]
        struct Left {
            tasks: u64,
            marks: u64,
        }
        let workers = self.threads - 1;
        let queues: Vec<_> = (0..queues).map(|_| Post::<K, u64>::new(0)).collect();
        let left = Post::<K, Left>::new(Left::default());
        let body = |worker: &mut Worker| {
            if worker.index == workers {
                while worker.goes_on() {
                    left.with(|left| left.tasks = TASKS * workers as u64);
                    for task in 0..TASKS as usize * workers {
                        queues[task % queues.len()].tell_one(|tasks| *tasks += 1);
                    }
                    left.wait(worker, |left| (left.tasks == 0).then_some(()));
                }
                return;
            }
            let queue = &queues[worker.index % queues.len()];
            while queue.wait(worker, |tasks| (*tasks > 0).then(|| *tasks -= 1)).is_some() {
                units(self.outside);
                let mut left_now = K::lock(&left.value);
                left_now.tasks -= 1;
                left_now.marks += 1;
                if left_now.tasks == 0 {
                    K::notify_one(&left.changed);
                }
                drop(left_now);
                worker.count();
            }
        };
        let release = || {
            queues.iter().for_each(Post::release);
            left.release();
        };
        let (sample, counted) = harness::measure(Plan { counted: workers, ..plan }, body, release)?;
        Ok((sample, counted, left.with(|left| left.marks)))
    }

    /// The first thread is the last stage.
    fn pipeline<K: Kit>(&self, plan: Plan) -> Outcome {
        struct Gap<K: Kit> {
            buffer: Post<K, Buffer>,
            room: K::Condvar,
        }
        let gaps: Vec<_> = (1..self.threads)
            .map(|_| Gap::<K> { buffer: Post::new(Buffer::default()), room: K::Condvar::default() })
            .collect();
        let body = |worker: &mut Worker| {
            let from = gaps.get(worker.index);
            let to = worker.index.checked_sub(1).map(|to| &gaps[to]);
            while worker.goes_on() {
                if let Some(gap) = from {
                    if gap.buffer.wait(worker, Buffer::take).is_none() {
                        return;
                    }
                    worker.count();
                    K::notify_one(&gap.room);
                }
                units(self.outside);
                if let Some(gap) = to {
                    let mut buffer = K::lock(&gap.buffer.value);
                    while worker.goes_on() && buffer.put().is_none() {
                        buffer = K::wait(&gap.room, buffer);
                    }
                    drop(buffer);
                    K::notify_one(&gap.buffer.changed);
                }
            }
        };
        let release = || {
            for gap in &gaps {
                gap.buffer.release();
                gap.buffer.with(|_| K::notify_all(&gap.room));
            }
        };
        let (sample, counted) = harness::measure(Plan { counted: 1, ..plan }, body, release)?;
        Ok((sample, counted, gaps[0].buffer.with(|buffer| buffer.taken())))
    }

    /// The first half of the threads asks. Each question has a promise of its own, which both sides keep
    /// alive.
    fn future<K: Kit>(&self, plan: Plan) -> Outcome {
        struct Questions<K: Kit> {
            open: VecDeque<Arc<Post<K, bool>>>,
            marks: u64,
        }
        let questions = Post::<K, Questions<K>>::new(Questions { open: VecDeque::new(), marks: 0 });
        let clients = self.threads.div_ceil(2);
        let body = |worker: &mut Worker| {
            if worker.index >= clients {
                while let Some(promise) = questions.wait(worker, |questions| questions.open.pop_front()) {
                    units(self.outside);
                    promise.tell_one(|kept| *kept = true);
                }
                // Nobody makes what is left.
                while let Some(promise) = questions.with(|questions| questions.open.pop_front()) {
                    promise.release();
                }
                return;
            }
            while worker.goes_on() {
                let promise = Arc::new(Post::<K, bool>::new(false));
                questions.tell_one(|questions| {
                    questions.open.push_back(promise.clone());
                    questions.marks += 1;
                });
                worker.count();
                promise.wait(worker, |kept| kept.then_some(()));
            }
        };
        let (sample, counted) =
            harness::measure(Plan { counted: clients, ..plan }, body, || questions.release())?;
        Ok((sample, counted, questions.with(|questions| questions.marks)))
    }

    fn timeout<K: Kit>(&self, plan: Plan) -> Outcome {
        let post = Post::<K, u64>::new(0);
        let body = |worker: &mut Worker| {
            while worker.goes_on() {
                let mut marks = K::wait_for(&post.changed, K::lock(&post.value), PERIOD);
                *marks += 1;
                drop(marks);
                worker.count();
                units(self.outside);
            }
        };
        let (sample, counted) = harness::measure(plan, body, || post.release())?;
        Ok((sample, counted, post.with(|marks| *marks)))
    }

    fn cache<K: Kit>(&self, plan: Plan) -> Outcome {
        let lines = K::rwlock([0u64; 64]);
        let (wrote, torn) = (AtomicU64::new(0), AtomicU64::new(0));
        let body = |worker: &mut Worker| {
            while worker.goes_on() {
                if (worker.operations + worker.index as u64).is_multiple_of(WRITES) {
                    K::write(&lines, |lines| lines.iter_mut().for_each(|line| *line += 1));
                    wrote.fetch_add(1, Relaxed);
                } else if K::read(&lines, |lines| lines.iter().any(|line| *line != lines[0])) {
                    torn.fetch_add(1, Relaxed);
                }
                worker.count();
                units(self.outside);
            }
        };
        let (sample, _) = harness::measure(plan, body, || ())?;
        match torn.into_inner() {
            0 => Ok((sample, wrote.into_inner(), K::read(&lines, |lines| lines[0]))),
            torn => Err(JobError::Torn { torn }),
        }
    }

    /// The first thread is the barber.
    fn barber<K: Kit>(&self, plan: Plan) -> Outcome {
        #[derive(Default)]
        struct Shop {
            waiting: u64,
            marks: u64,
        }
        let shop = Post::<K, Shop>::new(Shop::default());
        let [customers, chair]: [K::Semaphore; 2] = array::from_fn(|_| K::Semaphore::new());
        let body = |worker: &mut Worker| {
            while worker.goes_on() {
                if worker.index == 0 {
                    customers.acquire();
                    let came = shop.with(|shop| {
                        // Without a customer it was called to stop.
                        let came = shop.waiting > 0;
                        shop.waiting -= u64::from(came);
                        shop.marks += u64::from(came);
                        came
                    });
                    if came {
                        worker.count();
                        units(self.outside);
                        chair.release();
                    }
                } else {
                    let stays = shop.with(|shop| {
                        let stays = shop.waiting < CHAIRS;
                        shop.waiting += u64::from(stays);
                        stays
                    });
                    if stays {
                        customers.release();
                        chair.acquire();
                    }
                    units(self.outside);
                }
            }
        };
        let release = || {
            customers.release();
            (1..self.threads).for_each(|_| chair.release());
        };
        let (sample, counted) = harness::measure(Plan { counted: 1, ..plan }, body, release)?;
        Ok((sample, counted, shop.with(|shop| shop.marks)))
    }

    fn yields<K: Kit>(&self, plan: Plan) -> Outcome {
        let post = Post::<K, u64>::new(0);
        let body = |worker: &mut Worker| {
            while worker.goes_on() {
                post.with(|marks| {
                    let mark = black_box(*marks) + 1;
                    units(self.outside);
                    thread::yield_now();
                    *marks = mark;
                });
                worker.count();
            }
        };
        let (sample, counted) = harness::measure(plan, body, || ())?;
        Ok((sample, counted, post.with(|marks| *marks)))
    }

    /// The larger half of the threads takes.
    fn poll<K: Kit>(&self, plan: Plan) -> Outcome {
        let buffer = Post::<K, Buffer>::new(Buffer::default());
        let takers = self.threads.div_ceil(2);
        let body = |worker: &mut Worker| {
            while worker.goes_on() {
                if worker.index < takers {
                    if buffer.wait(worker, Buffer::take).is_none() {
                        return;
                    }
                    worker.count();
                } else {
                    let mut items = K::lock(&buffer.value);
                    while worker.goes_on() && items.put().is_none() {
                        drop(items);
                        thread::yield_now();
                        items = K::lock(&buffer.value);
                    }
                    K::notify_one(&buffer.changed);
                }
                units(self.outside);
            }
        };
        let (sample, counted) =
            harness::measure(Plan { counted: takers, ..plan }, body, || buffer.release())?;
        Ok((sample, counted, buffer.with(|buffer| buffer.taken())))
    }

    fn mixed<K: Kit>(&self, plan: Plan) -> Outcome {
        let (hits, post) = (AtomicU64::new(0), Post::<K, u64>::new(0));
        let body = |worker: &mut Worker| {
            while worker.goes_on() {
                for _ in 0..ADDITIONS {
                    hits.fetch_add(1, Relaxed);
                    units(self.outside / ADDITIONS);
                }
                post.with(|marks| *marks += 1);
                worker.count();
            }
        };
        let (sample, counted) = harness::measure(plan, body, || ())?;
        Ok((sample, counted, post.with(|marks| *marks)))
    }

    fn run_with<K: Kit>(&self, plan: Plan) -> Result<Sample, JobError> {
        let (sample, counted, sections) = match self.pattern {
            Pattern::Barrier => self.barrier::<K>(plan, false),
            Pattern::Uneven => self.barrier::<K>(plan, true),
            Pattern::Latch => self.latch::<K>(plan),
            Pattern::Configuration => self.configuration::<K>(plan),
            Pattern::Pool => self.pool::<K>(plan, 1),
            Pattern::Queues => self.pool::<K>(plan, self.threads - 1),
            Pattern::Pipeline => self.pipeline::<K>(plan),
            Pattern::Future => self.future::<K>(plan),
            Pattern::Timeout => self.timeout::<K>(plan),
            Pattern::Cache => self.cache::<K>(plan),
            Pattern::Barber => self.barber::<K>(plan),
            Pattern::Yield => self.yields::<K>(plan),
            Pattern::Poll => self.poll::<K>(plan),
            Pattern::Mixed => self.mixed::<K>(plan),
        }?;
        if sections == counted { Ok(sample) } else { Err(JobError::Exclusion { sections, counted }) }
    }

    /// Measures a kit, in this process.
    pub fn run(&self, kit: &str, plan: Plan) -> Result<Sample, JobError> {
        match kit {
            "glibc" => self.run_with::<Glibc>(plan),
            "std" => self.run_with::<Std>(plan),
            "parking_lot" => self.run_with::<ParkingLot>(plan),
            "wakeful" => {
                // The view is set up here, also a privileged one, and not by the first thread that waits.
                linux::init();
                Linux::register();
                check_view(|| linux::report().chosen)?;
                self.run_with::<Ours>(plan)
            }
            _ => Err(JobError::UnknownLock(kit.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::kits::{Permits, lock_api_kit};
    use super::*;

    fn plan(threads: usize) -> Plan {
        Plan {
            threads,
            counted: threads,
            warm_up: Duration::from_millis(2),
            interval: Duration::from_millis(20),
        }
    }

    #[test]
    fn every_pattern_runs_with_every_kit_and_everybody_stops() {
        for (name, pattern, _) in PATTERNS {
            assert_eq!((pattern.to_string().as_str(), name.parse::<Pattern>().unwrap()), (*name, *pattern));
            for (kit, _) in KITS {
                for threads in [2, 3, 8] {
                    let work = Patterns { pattern: *pattern, outside: 100, threads };
                    let name = format!("{name}, {kit}, {threads} threads");
                    assert!(harness::some(&name, || work.run(kit, plan(threads))).operations > 0, "{name}");
                }
            }
        }
    }

    mod busted {
        use wakeful::lock_api;

        /// Excludes nobody.
        pub struct Raw;

        // SAFETY: none; what comes of that is the test.
        unsafe impl lock_api::RawMutex for Raw {
            #[allow(clippy::declare_interior_mutable_const)]
            const INIT: Self = Self;
            type GuardMarker = lock_api::GuardSend;
            fn lock(&self) {}
            fn try_lock(&self) -> bool {
                true
            }
            unsafe fn unlock(&self) {}
        }

        pub type Mutex<T> = lock_api::Mutex<Raw, T>;
        pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, Raw, T>;
        pub use wakeful::{Condvar, RwLock};
    }

    lock_api_kit!(Busted, busted, Permits<Self>);

    #[test]
    fn a_mutex_that_does_not_exclude_is_found_out() {
        let work = Patterns { pattern: Pattern::Yield, outside: 200_000, threads: 3 };
        let long = Plan { interval: Duration::from_millis(200), ..plan(3) };
        // Where others have the processors, nobody may come while another one is inside.
        assert!((0..20).any(|_| matches!(work.run_with::<Busted>(long), Err(JobError::Exclusion { .. }))));
    }

    #[test]
    fn the_average_of_uneven_work_is_as_asked() {
        let mut work = Uneven(3);
        let all: Vec<u64> = (0..100_000).map(|_| work.next(1_000)).collect();
        let average = all.iter().sum::<u64>() / all.len() as u64;
        assert!((990..=1_010).contains(&average) && all.iter().all(|units| *units <= 2_000), "{average}");
    }

    #[test]
    fn what_is_unknown_is_an_error() {
        let work = Patterns { pattern: Pattern::Mixed, outside: 1, threads: 2 };
        assert!(
            matches!(work.run("nonesuch", plan(2)), Err(JobError::UnknownLock(name)) if name == "nonesuch")
        );
        assert!("nonesuch".parse::<Pattern>().unwrap_err().to_string().contains("barrier, uneven"));
    }
}
