// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine inside shuttle: many random schedules, sequentially consistent.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ::shuttle::rand::Rng;

use crate::distinct::distinct;
use crate::further;

crate::model::model!(
    /// The machine inside shuttle.
    Shuttle, shuttle, |_| ::shuttle::rand::thread_rng().r#gen::<bool>()
);

/// Nothing: shuttle does not know what comes before what.
pub trait Dies {
    /// The end of an atomic's life.
    fn dies(&mut self) {}
}

impl<A> Dies for A {}

/// Others get a turn between its two steps, so that an update is lost if two threads are in it.
pub struct Cell(UnsafeCell<u32>);

// SAFETY: shuttle runs one thread at a time, and each step is whole.
unsafe impl Sync for Cell {}

impl crate::Cell for Cell {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn bump(&self) {
        let number = self.get();
        thread::yield_now();
        // SAFETY: as for Sync.
        unsafe { *self.0.get() = number + 1 };
    }

    fn get(&self) -> u32 {
        // SAFETY: as for Sync.
        unsafe { *self.0.get() }
    }
}

/// How to choose schedules.
#[derive(Clone, Copy, Debug)]
pub enum Schedules {
    /// Uniformly at each step.
    Random,
    /// By priorities that change this often (probabilistic concurrency testing).
    Pct(usize),
}

/// Fails unless something broken, `what`, fails under one of 20,000 random schedules.
pub fn finds(settings: Settings, what: &str, body: impl Fn() + Send + Sync + 'static) {
    let explore = || explore(settings, Schedules::Random, 20_000, body);
    assert!(catch_unwind(AssertUnwindSafe(explore)).is_err(), "shuttle let {what} pass");
}

/// Runs `body` under `count` schedules ([`further`] in the long exploration) of each of these kinds and
/// settings, and says how many.
pub fn explore_all(name: &str, settings: &[Settings], schedules: &[Schedules], count: usize, body: fn()) {
    let runs = distinct(settings).flat_map(|settings| schedules.iter().map(move |&kind| (settings, kind)));
    let ran: usize = runs.map(|(settings, kind)| explore(settings, kind, count * further(), body)).sum();
    eprintln!("shuttle: {name}: {ran} executions");
}

/// Runs `body` under `count` schedules from a fixed seed. On failure shuttle prints the schedule; give it
/// to [`replay`].
pub fn explore(
    settings: Settings,
    schedules: Schedules,
    count: usize,
    body: impl Fn() + Send + Sync + 'static,
) -> usize {
    explore_erased(None, settings, schedules, count, Box::new(body))
}

/// The same; a failing schedule goes to a file in this folder. (For shuttle the first choice in a process
/// holds for all that come after.)
pub fn explore_into(
    folder: Option<&std::path::Path>,
    settings: Settings,
    schedules: Schedules,
    count: usize,
    body: impl Fn() + Send + Sync + 'static,
) -> usize {
    explore_erased(folder, settings, schedules, count, Box::new(body))
}

/// Not generic, so that shuttle's own part of it is compiled once.
fn explore_erased(
    folder: Option<&std::path::Path>,
    settings: Settings,
    schedules: Schedules,
    count: usize,
    body: Box<dyn Fn() + Send + Sync>,
) -> usize {
    use ::shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
    let scheduler: Box<dyn Scheduler + Send> = match schedules {
        Schedules::Random => Box::new(RandomScheduler::new_from_seed(SEED, count)),
        Schedules::Pct(depth) => Box::new(PctScheduler::new_from_seed(SEED, depth, count)),
    };
    let ran = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = ran.clone();
    let report = Report(&ran, settings, schedules);
    let mut config = ::shuttle::Config::new();
    if let Some(folder) = folder {
        config.failure_persistence = ::shuttle::FailurePersistence::File(Some(folder.to_owned()));
    }
    // BOUND: bytes; a lock with an array is made on a thread's stack, and shuttle's atomics are large.
    config.stack_size = 0x40000;
    config.max_steps = ::shuttle::MaxSteps::FailAfter(200_000);
    ::shuttle::Runner::new(scheduler, config).run(move || {
        let execution = counter.fetch_add(1, Relaxed) + 1;
        in_world(settings, execution, &*body);
    });
    drop(report);
    ran.load(Relaxed)
}

/// Says what failed, if a panic ends its life.
struct Report<'a>(&'a std::sync::atomic::AtomicUsize, Settings, Schedules);

impl Drop for Report<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(ran, settings, schedules) = self;
            eprintln!("shuttle: fails in execution {} ({settings:?}, {schedules:?})", ran.load(Relaxed));
            eprintln!("shuttle: replay() of the schedule above repeats it; WAKEFUL_TRACE=1 shows the steps");
        }
    }
}

const SEED: u64 = 0x5745_414b;

/// Runs `body` under the schedule that a failure printed.
pub fn replay(settings: Settings, schedule: &str, body: impl Fn() + Send + Sync + 'static) {
    let body: Box<dyn Fn() + Send + Sync> = Box::new(body);
    ::shuttle::replay(move || in_world(settings, 1, &*body), schedule);
}
