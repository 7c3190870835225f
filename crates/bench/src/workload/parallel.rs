// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parallel loops: one thread runs a loop of as many iterations as there are members, again and again. With
//! no work in them, what is left is fork and join. Or a program made of loops, again and again: those of
//! Uemura and Kan, section 4.

use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use apps::{LoopApp, Loops, Sequential};
use linux::server;
use serde::{Deserialize, Serialize};
use wakeful::parallel::{Schedule, Team};

use super::{barrier, units};
use crate::error::JobError;
use crate::harness::{self, Plan, Sample};
use crate::process;

/// What to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parallel {
    /// What is in the loops.
    pub body: Body,
    /// Members of the team.
    pub threads: usize,
}

/// What is in a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Body {
    /// As many iterations as members, of so many [`units`] of work.
    Units(u64),
    /// A two-dimensional Fourier transform, once ([`LoopApp::Fft`]).
    Fft {
        /// Rows.
        rows: u32,
        /// Columns.
        columns: u32,
    },
    /// A matrix product, once ([`LoopApp::Matrix`]).
    Matrix {
        /// Rows and columns.
        size: u32,
    },
}

/// The name of a program that is none, or has a size that is none.
#[derive(Debug, thiserror::Error)]
#[error("give fft, fft:ROWSxCOLUMNS, matrix or matrix:ROWS, with numbers from 1 to 4096")]
pub struct BodyError;

impl FromStr for Body {
    type Err = BodyError;
    fn from_str(text: &str) -> Result<Self, BodyError> {
        let number =
            |text: &str| text.parse().ok().filter(|number| (1..=4096).contains(number)).ok_or(BodyError);
        match text.split_once(':').unwrap_or((text, "")) {
            // The paper's sizes.
            ("fft", "") => Ok(Self::Fft { rows: 64, columns: 1024 }),
            ("matrix", "") => Ok(Self::Matrix { size: 300 }),
            ("fft", size) => {
                let (rows, columns) = size.split_once('x').ok_or(BodyError)?;
                Ok(Self::Fft { rows: number(rows)?, columns: number(columns)? })
            }
            ("matrix", size) => Ok(Self::Matrix { size: number(size)? }),
            _ => Err(BodyError),
        }
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Units(units) => write!(f, "loop, outside {units}"),
            Self::Fft { rows, columns } => write!(f, "{rows} x {columns} FFT"),
            Self::Matrix { size } => write!(f, "{size} x {size} matrix product"),
        }
    }
}

/// The contender that has processors of its own: all but the first, where foreign processes stay while it
/// runs.
pub const PARTITION: &str = "partition";

/// The contender whose processors the server grants: as many as members, or none.
pub const GRANTED: &str = "granted";

/// Who can run a loop, with what there is to say about each.
pub const CONTENDERS: &[(&str, &str)] = &[
    ("free", "wakeful::parallel, free microthreads"),
    ("bound", "wakeful::parallel, bound microthreads: as many as processors"),
    (PARTITION, "the same on all processors but one, which foreign processes keep to"),
    (GRANTED, "the same on as many processors as members, which `wakefuld` grants"),
    ("gomp", "`omp parallel for` of GCC's OpenMP library, where it is installed"),
    ("omp", "`omp parallel for` of LLVM's OpenMP library, where it is installed"),
    ("std", "std::thread::scope, threads of its own for each loop"),
];

/// Microthreads.
struct Ours(Team);

impl Loops for Ours {
    #[inline]
    fn run(&self, iterations: usize, body: &(impl Fn(usize) + Sync)) {
        self.0.for_each(0..iterations, Schedule::Static, body);
    }
}

struct Std(usize);

impl Loops for Std {
    fn run(&self, iterations: usize, body: &(impl Fn(usize) + Sync)) {
        let block = iterations.div_ceil(self.0);
        let part = |index| (index * block..iterations.min(index * block + block)).for_each(body);
        std::thread::scope(|scope| {
            (1..self.0).for_each(|index| drop(scope.spawn(move || part(index))));
            part(0);
        });
    }
}

/// What GCC makes of `#pragma omp parallel for num_threads(n)`.
struct Gomp {
    threads: u32,
    parallel: unsafe extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, u32, u32),
    number: unsafe extern "C" fn() -> i32,
    count: unsafe extern "C" fn() -> i32,
}

/// What Clang makes of `#pragma omp parallel for`.
struct Omp {
    fork_call: unsafe extern "C" fn(*const Ident, i32, Microtask, ...),
    set_threads: unsafe extern "C" fn(i32),
    static_init: StaticInit,
    static_fini: unsafe extern "C" fn(*const Ident, i32),
}

type Microtask = unsafe extern "C" fn(*const i32, *const i32, *const c_void);
type StaticInit =
    unsafe extern "C" fn(*const Ident, i32, i32, *mut i32, *mut i32, *mut i32, *mut i32, i32, i32);

/// LLVM's `ident_t`: where in the source.
#[repr(C)]
struct Ident {
    reserved: i32,
    flags: i32,
    also_reserved: [i32; 2],
    source: *const c_char,
}

// SAFETY: never written.
unsafe impl Sync for Ident {}

const SOURCE: &CStr = c";unknown;unknown;0;0;;";
/// KMP_IDENT_KMPC, and for the loop KMP_IDENT_WORK_LOOP.
static REGION: Ident = Ident { reserved: 0, flags: 0x2, also_reserved: [0; 2], source: SOURCE.as_ptr() };
static LOOP: Ident = Ident { reserved: 0, flags: 0x202, also_reserved: [0; 2], source: SOURCE.as_ptr() };
/// kmp_sch_static.
const STATIC: i32 = 34;

/// What a region is given.
struct Region<'a, L, F> {
    library: &'a L,
    iterations: usize,
    body: &'a F,
}

impl Gomp {
    fn open(threads: u32) -> Option<Self> {
        let library = barrier::open("gomp")?;
        // SAFETY: the types that the library documents.
        unsafe {
            Some(Self {
                threads,
                parallel: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, u32, u32),
                >(library.find(c"GOMP_parallel")?),
                number: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> i32>(
                    library.find(c"omp_get_thread_num")?,
                ),
                count: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> i32>(
                    library.find(c"omp_get_num_threads")?,
                ),
            })
        }
    }
}

impl Loops for Gomp {
    fn run(&self, iterations: usize, body: &(impl Fn(usize) + Sync)) {
        extern "C" fn member<F: Fn(usize) + Sync>(region: *mut c_void) {
            // SAFETY: `run` passes a region of this type, which lives until the call returns.
            let region = unsafe { &*region.cast::<Region<Gomp, F>>() };
            // SAFETY: no arguments.
            let (number, count) =
                unsafe { ((region.library.number)() as usize, (region.library.count)() as usize) };
            let (block, rest) = (region.iterations / count, region.iterations % count);
            let begin = block * number + number.min(rest);
            (begin..begin + block + (number < rest) as usize).for_each(region.body);
        }
        fn member_of<F: Fn(usize) + Sync>(_: &F) -> extern "C" fn(*mut c_void) {
            member::<F>
        }
        let region = Region { library: self, iterations, body };
        // SAFETY: `member` takes such a region, and the call returns when all threads have.
        unsafe { (self.parallel)(member_of(body), (&raw const region).cast_mut().cast(), self.threads, 0) };
    }
}

impl Omp {
    fn open() -> Option<Self> {
        let library = barrier::open("omp")?;
        // SAFETY: the types of LLVM's kmp.h.
        unsafe {
            Some(Self {
                fork_call: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*const Ident, i32, Microtask, ...),
                >(library.find(c"__kmpc_fork_call")?),
                set_threads: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(i32)>(
                    library.find(c"omp_set_num_threads")?,
                ),
                static_init: std::mem::transmute::<*mut c_void, StaticInit>(
                    library.find(c"__kmpc_for_static_init_4")?,
                ),
                static_fini: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const Ident, i32)>(
                    library.find(c"__kmpc_for_static_fini")?,
                ),
            })
        }
    }
}

impl Loops for Omp {
    fn run(&self, iterations: usize, body: &(impl Fn(usize) + Sync)) {
        unsafe extern "C" fn member<F: Fn(usize) + Sync>(
            number: *const i32,
            _: *const i32,
            region: *const c_void,
        ) {
            // SAFETY: `run` passes a region of this type, which lives until the call returns; the library
            // passes a number.
            let (region, number) = unsafe { (&*region.cast::<Region<Omp, F>>(), *number) };
            if region.iterations == 0 {
                return;
            }
            let greatest = region.iterations as i32 - 1;
            let (mut last, mut lower, mut upper, mut stride) = (0, 0, greatest, 1);
            // SAFETY: places for what it writes.
            unsafe {
                (region.library.static_init)(
                    &LOOP,
                    number,
                    STATIC,
                    &mut last,
                    &mut lower,
                    &mut upper,
                    &mut stride,
                    1,
                    1,
                );
            }
            (lower..=upper.min(greatest)).for_each(|index| (region.body)(index as usize));
            // SAFETY: as it was begun.
            unsafe { (region.library.static_fini)(&LOOP, number) };
        }
        fn member_of<F: Fn(usize) + Sync>(_: &F) -> Microtask {
            member::<F>
        }
        let region = Region { library: self, iterations, body };
        // SAFETY: `member` takes one such argument, and the call returns when all threads have.
        unsafe { (self.fork_call)(&REGION, 1, member_of(body), (&raw const region).cast::<c_void>()) };
    }
}

fn run_with(work: &Parallel, plan: Plan, loops: &(impl Loops + Sync)) -> Result<Sample, JobError> {
    let plan = Plan { threads: 1, counted: 1, ..plan };
    let app = match work.body {
        Body::Units(units) => return run_units(units, work.threads, plan, loops),
        Body::Fft { rows, columns } => LoopApp::Fft { rows, columns },
        Body::Matrix { size } => LoopApp::Matrix { size },
    };
    let mut expected = app.load();
    expected.run(&Sequential);
    let app = Mutex::new(app.load());
    let (sample, _) = harness::measure(
        plan,
        |worker| {
            let mut app = app.lock().expect("nobody panics");
            while worker.goes_on() {
                app.run(loops);
                worker.count();
            }
        },
        || (),
    )?;
    match app.into_inner().expect("nobody panics").digest() == expected.digest() {
        true => Ok(sample),
        false => Err(JobError::Result),
    }
}

fn run_units(
    length: u64,
    threads: usize,
    plan: Plan,
    loops: &(impl Loops + Sync),
) -> Result<Sample, JobError> {
    let (sample, _) = harness::measure(
        plan,
        |worker| {
            while worker.goes_on() {
                loops.run(threads, &|_| units(length));
                worker.count();
            }
        },
        || (),
    )?;
    // Afterwards, so that what is measured does not count.
    let runs: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
    (0..ROUNDS).for_each(|_| loops.run(threads, &|index| _ = runs[index].fetch_add(1, Relaxed)));
    match runs.iter().map(|run| run.load(Relaxed)).find(|&run| run != ROUNDS) {
        Some(run) => Err(JobError::Iterations { run, rounds: ROUNDS }),
        None => Ok(sample),
    }
}

/// BOUND: how long to wait for processors that somebody else has: of one who ends, they are back in
/// milliseconds.
pub const GRANT: Duration = Duration::from_secs(10);

/// Loops whose iterations are counted.
const ROUNDS: u64 = 100;

impl Parallel {
    /// Measures whoever runs loops, in this process.
    pub fn run(&self, name: &str, plan: Plan) -> Result<Sample, JobError> {
        let library = || JobError::NoLibrary(name.to_string());
        match name {
            "free" => run_with(self, plan, &Ours(Team::free(self.threads))),
            "bound" => run_with(self, plan, &Ours(Team::bound())),
            PARTITION => {
                let processors = process::processors();
                let own = processors.get(1..).filter(|own| !own.is_empty()).ok_or(JobError::NoPartition)?;
                process::restrict(0, own)?;
                run_with(self, plan, &Ours(Team::bound()))
            }
            GRANTED => {
                let count = self.threads as u32;
                server::request(0, count, count)?;
                let begin = Instant::now();
                while server::partition().is_none() {
                    if begin.elapsed() > GRANT {
                        return Err(server::Error::Taken.into());
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                run_with(self, plan, &Ours(Team::bound()))
            }
            "gomp" => run_with(self, plan, &Gomp::open(self.threads as u32).ok_or_else(library)?),
            "omp" => {
                let omp = Omp::open().ok_or_else(library)?;
                // SAFETY: a plain number.
                unsafe { (omp.set_threads)(self.threads as i32) };
                run_with(self, plan, &omp)
            }
            "std" => run_with(self, plan, &Std(self.threads)),
            _ => Err(JobError::UnknownLock(name.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan {
        threads: 1,
        counted: 1,
        warm_up: Duration::from_millis(5),
        interval: Duration::from_millis(30),
    };

    /// Those that restrict their process are measured in processes of their own.
    fn contenders() -> impl Iterator<Item = &'static str> {
        CONTENDERS
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| ![PARTITION, GRANTED].contains(name) && !barrier::missing(name))
    }

    #[test]
    fn everybody_runs_each_iteration_once() {
        for name in contenders() {
            for threads in [1, 2, 5] {
                let work = Parallel { body: Body::Units(10), threads };
                let sample = harness::some(name, || work.run(name, PLAN));
                assert!(sample.operations > 0, "{name}: {sample:?}");
            }
        }
    }

    #[test]
    fn everybody_computes_the_same() {
        for name in contenders() {
            for body in ["fft:8x30", "matrix:20"].map(|text| text.parse().unwrap()) {
                Parallel { body, threads: 3 }
                    .run(name, PLAN)
                    .unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        }
    }

    /// Leaves an iteration out.
    struct Forgetful;
    impl Loops for Forgetful {
        fn run(&self, iterations: usize, body: &(impl Fn(usize) + Sync)) {
            (1..iterations).for_each(body);
        }
    }

    #[test]
    fn an_iteration_that_is_lost_is_found_out() {
        let run = |body| run_with(&Parallel { body, threads: 2 }, PLAN, &Forgetful);
        assert!(matches!(run(Body::Units(0)), Err(JobError::Iterations { run: 0, .. })));
        assert!(matches!(run(Body::Matrix { size: 5 }), Err(JobError::Result)));
    }

    #[test]
    fn programs_have_names_and_sizes() {
        let parse = |text: &str| text.parse::<Body>().map(|body| body.to_string()).ok();
        assert_eq!(parse("fft").as_deref(), Some("64 x 1024 FFT"));
        assert_eq!(parse("matrix:12").as_deref(), Some("12 x 12 matrix product"));
        assert_eq!(parse("fft:3x5").as_deref(), Some("3 x 5 FFT"));
        for text in ["", "fft:3", "fft:0x5", "matrix:x", "matrix:5000", "gauss"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
