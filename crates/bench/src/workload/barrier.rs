// SPDX-License-Identifier: MIT OR Apache-2.0
//! The synthetic program of TR 1994, section 5.4, with a little work: every thread works and then waits for
//! all others, for ever.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use catalog::BarrierVisitor;
use linux::Linux;
use platform::Platform;
use serde::{Deserialize, Serialize};
use sync::barrier::RawBarrier;

use super::units;
use crate::error::{JobError, check_view};
use crate::harness::{self, Padded, Plan, Sample, Worker};

/// What to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Barrier {
    /// Units of work between two barriers; see [`units`].
    pub outside: u64,
    /// Each thread has from half to twice that in a round, at random.
    #[serde(default)]
    pub uneven: bool,
    /// A unit is a cell of a one-dimensional stencil: three numbers read, one written.
    #[serde(default)]
    pub memory: bool,
    /// Threads.
    pub threads: usize,
}

/// What one thread does between two barriers.
struct Phases {
    units: u64,
    uneven: bool,
    random: u64,
    /// The stencil's cells, before and after a round.
    cells: Option<[Vec<f64>; 2]>,
}

/// BOUND: cells a thread: 4 MB each, twice; with two threads more than the caches near the processors hold.
const CELLS: usize = 1 << 19;

impl Phases {
    fn new(work: &Barrier, index: usize) -> Self {
        let cells = work.memory.then(|| [vec![1.0; CELLS], vec![0.0; CELLS]]);
        Self { units: work.outside, uneven: work.uneven, random: index as u64 + 1, cells }
    }

    #[inline(always)]
    fn run(&mut self) {
        let count = if self.uneven { self.next() } else { self.units };
        match &mut self.cells {
            Some(cells) => stencil(cells, count as usize),
            None => units(count),
        }
    }

    /// From half to twice the units (xorshift).
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.units / 2 + self.random % (self.units * 3 / 2 + 1)
    }
}

/// Relaxes so many cells, again from the beginning where there are not as many.
#[inline(never)]
fn stencil([old, new]: &mut [Vec<f64>; 2], mut count: usize) {
    while count > 0 {
        let some = count.min(CELLS - 2);
        for (cell, near) in new[1..=some].iter_mut().zip(old.windows(3)) {
            *cell = 0.25 * near[0] + 0.5 * near[1] + 0.25 * near[2];
        }
        std::mem::swap(old, new);
        count -= some;
    }
}

/// The barriers that are not in the catalogue, with what there is to say about each.
pub const FOREIGN: &[(&str, &str)] = &[
    ("glibc", "pthread_barrier_t of the C library"),
    ("std", "std::sync::Barrier"),
    ("gomp", "the barrier of GCC's OpenMP library, where it is installed"),
    ("omp", "the barrier of LLVM's OpenMP library, where it is installed"),
];

/// A barrier under test.
trait Round: Sync {
    /// What a thread brings.
    type Member: Default;
    /// Waits; true for the serial thread.
    fn wait(&self, index: usize, member: &mut Self::Member) -> bool;
}

struct Ours<B: RawBarrier<Linux>> {
    barrier: Padded<B>,
    places: Vec<B::Place>,
}

impl<B: RawBarrier<Linux>> Ours<B> {
    fn new(threads: usize) -> Self {
        let places = (0..B::places(threads as u32)).map(|_| B::Place::default()).collect();
        Self { barrier: Padded(B::new(threads as u32)), places }
    }
}

impl<B: RawBarrier<Linux>> Round for Ours<B> {
    type Member = B::Member;
    #[inline(always)]
    fn wait(&self, index: usize, member: &mut B::Member) -> bool {
        // SAFETY: places as many as asked for, an index of its own for each thread, and its member each time.
        unsafe { self.barrier.0.wait(&self.places, index as u32, member) }
    }
}

impl Round for std::sync::Barrier {
    type Member = ();
    #[inline(always)]
    fn wait(&self, _: usize, (): &mut ()) -> bool {
        self.wait().is_leader()
    }
}

struct Glibc(UnsafeCell<libc::pthread_barrier_t>);

// SAFETY: a pthread barrier is made to be shared.
unsafe impl Sync for Glibc {}

impl Glibc {
    fn new(threads: usize) -> Box<Self> {
        // SAFETY: zeros are valid bytes; initialised in the place where it stays.
        unsafe {
            let barrier = Box::new(Self(UnsafeCell::new(std::mem::zeroed())));
            libc::pthread_barrier_init(barrier.0.get(), std::ptr::null(), threads as u32);
            barrier
        }
    }
}

impl Round for Glibc {
    type Member = ();
    #[inline(always)]
    fn wait(&self, _: usize, (): &mut ()) -> bool {
        // SAFETY: initialised, and it stays in its box.
        unsafe { libc::pthread_barrier_wait(self.0.get()) == libc::PTHREAD_BARRIER_SERIAL_THREAD }
    }
}

impl Drop for Glibc {
    fn drop(&mut self) {
        // SAFETY: all threads have been joined.
        unsafe { libc::pthread_barrier_destroy(self.0.get()) };
    }
}

/// Whichever library has GCC's interface: its own, or LLVM's.
struct OpenMp {
    parallel: unsafe extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, u32, u32),
    barrier: unsafe extern "C" fn(),
    number: unsafe extern "C" fn() -> i32,
}

/// The file names of an OpenMP library.
fn openmp_files(name: &str) -> &'static [&'static CStr] {
    match name {
        "gomp" => &[c"libgomp.so.1"],
        "omp" => &[c"libomp.so.5", c"libomp.so"],
        _ => &[],
    }
}

/// Is this the name of a barrier that needs a library, and is that not installed?
pub fn missing(name: &str) -> bool {
    !openmp_files(name).is_empty() && OpenMp::open(name).is_none()
}

/// An OpenMP library, which stays.
pub(super) struct Library(*mut c_void);

impl Library {
    pub(super) fn find(&self, symbol: &CStr) -> Option<*mut c_void> {
        // SAFETY: an open library and a C string.
        Some(unsafe { libc::dlsym(self.0, symbol.as_ptr()) }).filter(|found| !found.is_null())
    }
}

pub(super) fn open(name: &str) -> Option<Library> {
    openmp_files(name)
        .iter()
        // SAFETY: a C string; what the libraries' constructors do is harmless.
        .map(|file| unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) })
        .find(|library| !library.is_null())
        .map(Library)
}

impl OpenMp {
    fn open(name: &str) -> Option<Self> {
        let library = open(name)?;
        // SAFETY: each symbol has the type that both libraries document for it.
        unsafe {
            Some(Self {
                parallel: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, u32, u32),
                >(library.find(c"GOMP_parallel")?),
                barrier: std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(
                    library.find(c"GOMP_barrier")?,
                ),
                number: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> i32>(
                    library.find(c"omp_get_thread_num")?,
                ),
            })
        }
    }
}

impl Round for OpenMp {
    type Member = ();
    #[inline(always)]
    fn wait(&self, index: usize, (): &mut ()) -> bool {
        // SAFETY: all threads of the team call it.
        unsafe { (self.barrier)() };
        // It tells no serial thread.
        index == 0
    }
}

/// What the threads share besides the barrier.
struct Rounds<'a> {
    work: &'a Barrier,
    /// The last round, as soon as it is known.
    last: AtomicU64,
    /// The rounds that each thread has begun.
    begun: Vec<Padded<AtomicU64>>,
    serial: AtomicU64,
    overlap: AtomicBool,
}

impl<'a> Rounds<'a> {
    fn new(work: &'a Barrier) -> Self {
        Self {
            work,
            last: AtomicU64::new(u64::MAX),
            begun: (0..work.threads).map(|_| Padded::default()).collect(),
            serial: AtomicU64::new(0),
            overlap: AtomicBool::new(false),
        }
    }

    /// One thread's part. `worker` is the first thread's.
    fn run<R: Round>(&self, barrier: &R, index: usize, mut worker: Option<&mut Worker>) {
        let mut member = R::Member::default();
        let (mine, neighbour) = (&self.begun[index].0, &self.begun[(index + 1) % self.begun.len()].0);
        let mut phases = Phases::new(self.work, index);
        let mut serial = 0;
        for round in 1.. {
            mine.store(round, Relaxed);
            phases.run();
            if let Some(worker) = &worker
                && !worker.goes_on()
            {
                // Stored before our arrival: everybody who comes out of this round sees it.
                self.last.fetch_min(round, Relaxed);
            }
            serial += barrier.wait(index, &mut member) as u64;
            if let Some(worker) = &mut worker {
                worker.count();
            }
            // BOUND: a look at another thread's line, for one round in 16.
            if round % 16 == 0 && neighbour.load(Relaxed) < round {
                self.overlap.store(true, Relaxed);
            }
            if self.last.load(Relaxed) <= round {
                break;
            }
        }
        self.serial.fetch_add(serial, Relaxed);
    }

    /// Was it a barrier?
    fn check(&self, counted: u64) -> Result<(), JobError> {
        let serial = self.serial.load(Relaxed);
        match self.overlap.load(Relaxed) {
            true => Err(JobError::Overlap),
            false if serial != counted => Err(JobError::Serial { serial, rounds: counted }),
            false => Ok(()),
        }
    }
}

fn run_with<R: Round>(work: &Barrier, plan: Plan, barrier: &R) -> Result<Sample, JobError> {
    let rounds = Rounds::new(work);
    let plan = Plan { counted: 1, ..plan };
    let body = |worker: &mut Worker| match worker.index {
        0 => rounds.run(barrier, 0, Some(worker)),
        index => rounds.run(barrier, index, None),
    };
    let (sample, counted) = harness::measure(plan, body, || ())?;
    rounds.check(counted)?;
    Ok(sample)
}

/// A parallel region of an OpenMP library, begun by the only thread of ours.
struct Team<'a, 'b, 'c> {
    rounds: &'a Rounds<'a>,
    library: &'a OpenMp,
    worker: UnsafeCell<&'b mut Worker<'c>>,
}

extern "C" fn member(team: *mut c_void) {
    // SAFETY: `run_openmp` passes a team, which lives until the region has ended.
    let team = unsafe { &*team.cast::<Team>() };
    // SAFETY: no arguments.
    match unsafe { (team.library.number)() } as usize {
        // SAFETY: there is one thread of this number, and it is the one whose worker it is.
        0 => team.rounds.run(team.library, 0, Some(unsafe { &mut *team.worker.get() })),
        index => team.rounds.run(team.library, index, None),
    }
}

fn run_openmp(work: &Barrier, plan: Plan, name: &str) -> Result<Sample, JobError> {
    let library = OpenMp::open(name).ok_or_else(|| JobError::NoLibrary(name.to_string()))?;
    let rounds = Rounds::new(work);
    let body = |worker: &mut Worker| {
        let mut team = Team { rounds: &rounds, library: &library, worker: UnsafeCell::new(worker) };
        let data = std::ptr::from_mut(&mut team).cast();
        // SAFETY: `member` takes a team, and the call returns when all its threads have.
        unsafe { (library.parallel)(member, data, work.threads as u32, 0) };
    };
    let (sample, counted) = harness::measure(Plan { threads: 1, counted: 1, ..plan }, body, || ())?;
    rounds.check(counted)?;
    Ok(sample)
}

struct Visitor<'a>(&'a Barrier, Plan);

impl BarrierVisitor<Linux> for Visitor<'_> {
    type Output = Result<Sample, JobError>;
    fn visit<B: RawBarrier<Linux> + 'static>(self, entry: &'static catalog::BarrierEntry) -> Self::Output
    where
        B::Place: 'static,
        B::Member: 'static,
    {
        // The view is set up here, also a privileged one, and not by the first thread that waits.
        linux::init();
        if entry.informed {
            Linux::register();
            check_view(|| linux::report().chosen)?;
        }
        run_with(self.0, self.1, &Ours::<B>::new(self.0.threads))
    }
}

impl Barrier {
    /// Measures a barrier, in this process.
    pub fn run(&self, name: &str, plan: Plan) -> Result<Sample, JobError> {
        match name {
            "glibc" => run_with(self, plan, &*Glibc::new(self.threads)),
            "std" => run_with(self, plan, &std::sync::Barrier::new(self.threads)),
            "gomp" | "omp" => run_openmp(self, plan, name),
            _ => catalog::visit_barrier(name, Visitor(self, plan))
                .unwrap_or_else(|| Err(JobError::UnknownLock(name.to_string()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn plan(threads: usize) -> Plan {
        Plan {
            threads,
            counted: threads,
            warm_up: Duration::from_millis(5),
            interval: Duration::from_millis(30),
        }
    }

    #[test]
    fn every_barrier_runs_and_keeps_rounds_apart() {
        let names =
            FOREIGN.iter().map(|(name, _)| *name).chain(catalog::BARRIERS.iter().map(|entry| entry.name));
        for name in names.filter(|name| !missing(name)) {
            for threads in [1, 2, 5] {
                let work = Barrier { outside: 100, uneven: threads > 2, memory: false, threads };
                // One that is oblivious of the scheduler may not get through a round in that time.
                if threads > 2 {
                    work.run(name, plan(threads)).unwrap_or_else(|error| panic!("{name}: {error}"));
                } else {
                    let sample = harness::some(name, || work.run(name, plan(threads)));
                    assert!(sample.operations > 0, "{name}: {sample:?}");
                }
            }
        }
    }

    /// Lets everybody through at once.
    struct Open;

    impl Round for Open {
        type Member = ();
        fn wait(&self, index: usize, (): &mut ()) -> bool {
            index == 0
        }
    }

    /// All are serial.
    struct AllSerial(std::sync::Barrier);

    impl Round for AllSerial {
        type Member = ();
        fn wait(&self, _: usize, (): &mut ()) -> bool {
            self.0.wait();
            true
        }
    }

    #[test]
    fn what_is_no_barrier_is_found_out() {
        let work = Barrier { outside: 1000, uneven: false, memory: false, threads: 3 };
        assert!(matches!(run_with(&work, plan(3), &Open), Err(JobError::Overlap)));
        let all = AllSerial(std::sync::Barrier::new(3));
        assert!(matches!(run_with(&work, plan(3), &all), Err(JobError::Serial { .. })));
    }

    #[test]
    fn phases_are_as_long_as_they_should_be() {
        let uneven = Barrier { outside: 1_000, uneven: true, memory: false, threads: 2 };
        let [mut first, mut second] = [0, 1].map(|index| Phases::new(&uneven, index));
        let lengths: Vec<_> = (0..10_000).map(|_| first.next()).collect();
        assert!(lengths.iter().all(|length| (500..=2_000).contains(length)));
        assert!(lengths.iter().any(|&length| length < 600) && lengths.iter().any(|&length| length > 1_900));
        assert_ne!(lengths, (0..10_000).map(|_| second.next()).collect::<Vec<_>>(), "threads differ");
        // A hot cell spreads by one a round.
        let mut cells = [vec![0.0; CELLS], vec![0.0; CELLS]];
        cells[0][10] = 1.0;
        stencil(&mut cells, 100);
        assert_eq!(cells[0][8..13], [0.0, 0.25, 0.5, 0.25, 0.0]);
        stencil(&mut cells, 100);
        assert_eq!(cells[0][8..13], [0.0625, 0.25, 0.375, 0.25, 0.0625]);
        assert_eq!(cells[0].iter().sum::<f64>(), 1.0);
    }

    #[test]
    fn an_unknown_barrier_is_an_error() {
        let work = Barrier { outside: 0, uneven: false, memory: false, threads: 1 };
        assert!(
            matches!(work.run("nonesuch", plan(1)), Err(JobError::UnknownLock(name)) if name == "nonesuch")
        );
    }
}
