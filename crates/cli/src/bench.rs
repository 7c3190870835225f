// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful bench`: the microbenchmarks.

mod draw;
mod parts;
mod show;

use std::process::ExitCode;
use std::time::Duration;

use ::bench::contender::{Contender, ContenderError};
use ::bench::job::{Job, Work};
use ::bench::suite::Suite;
use ::bench::workload::{
    Length, LengthError, barrier,
    condvar::Condvar,
    mutex,
    parallel::{self, Body, Parallel},
    patterns::{self, PATTERNS, Pattern, Patterns},
    rwlock,
};
use anyhow::{Context, Result, bail};
use launch::interposer::views;
use launch::names::{check_view, view_names};
use launch::{library, probe, program, suggest};
use linux::environment::VIEW;

use self::show::Show;
use crate::format::{Format, whole_number};
use crate::target::Offered;
use crate::{bench_partition, grant};

pub use self::show::{bar, say_where};

/// Measure locks against each other in one interleaved run
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Mutex(MutexArgs),
    Delegate(DelegateArgs),
    Parts(parts::Args),
    Barrier(BarrierArgs),
    Rwlock(RwlockArgs),
    Condvar(CondvarArgs),
    Patterns(PatternsArgs),
    Spin(SpinArgs),
    Parallel(ParallelArgs),
    Switch(SwitchArgs),
    Partition(bench_partition::Args),
    Grant(grant::Args),
    Draw(draw::Args),
    /// Asks for processors as it is told; `grant` starts it
    #[command(hide = true)]
    GrantAsker,
    /// Takes one sample and prints it; the other verbs start it
    #[command(hide = true)]
    Job {
        job: String,
    },
}

/// Critical sections under a mutex, work outside, all combinations
///
/// The synthetic program of Kontothanassis, Wisniewski and Scott (TR 1994, section 5.2). Every thread enters a
/// critical section and then works outside it, for ever.
///
/// A contender is LOCK[@VIEW], interposed[:LOCK][@VIEW] or preload=PATH. LOCK is one of `wakeful locks`, or
/// std, parking_lot or glibc. `interposed` is the C library's mutex under libwakeful_preload.so; `preload` is
/// the same under any other library.
#[derive(clap::Args)]
struct MutexArgs {
    /// Critical sections: cache lines updated, or a time such as 10us
    #[arg(long, value_delimiter = ',', value_name = "LENGTH", default_value = "5,20,100", value_parser = length)]
    critical: Vec<Length>,
    /// Units of work outside: turns of an empty loop
    #[arg(long, value_delimiter = ',', value_name = "UNITS", default_value = "100,400,2000", value_parser = units)]
    outside: Vec<u64>,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,2,4,8,16,32", value_parser = threads)]
    threads: Vec<usize>,
    /// The contenders
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "CONTENDER",
        default_value = "wakeful,glibc,std,parking_lot"
    )]
    locks: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// Critical sections that other threads may run, work outside, all combinations
///
/// As `wakeful bench mutex`, with locks whose sections another thread may run. One of them, rcl, has a thread
/// for that, which is not counted among the threads.
///
/// A contender is LOCK[@VIEW], a delegating lock or a mutex of `wakeful locks`, or std, parking_lot or glibc.
#[derive(clap::Args)]
struct DelegateArgs {
    /// Critical sections: cache lines updated, or a time such as 10us
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LENGTH",
        default_value = "1,5,20,100",
        value_parser = length
    )]
    critical: Vec<Length>,
    /// Units of work outside: turns of an empty loop
    #[arg(long, value_delimiter = ',', value_name = "UNITS", default_value = "400", value_parser = units)]
    outside: Vec<u64>,
    /// Numbers of threads
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "N",
        default_value = "1,2,4,8,32",
        value_parser = threads
    )]
    threads: Vec<usize>,
    /// The contenders
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "CONTENDER",
        default_value = "d-wakeful,d-wakeful-on,cc-synch,flat-combining,rcl,wakeful,parking_lot,std"
    )]
    locks: Vec<String>,
    /// Foreign busy processes that run next to the program
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "0")]
    foreign: Vec<usize>,
    /// Kernel view of contenders that name none: auto, bpf, perf or none
    #[arg(long, value_parser = Offered(view_names), hide_possible_values = true)]
    view: Option<String>,
    /// Ratios are against the best of these in each cell
    #[arg(long, value_delimiter = ',', value_name = "CONTENDER", default_value = "wakeful")]
    baseline: Vec<String>,
    #[command(flatten)]
    timing: Timing,
}

/// Rounds of work and a barrier, all combinations
///
/// The synthetic program of Kontothanassis, Wisniewski and Scott (TR 1994, section 5.4), with some work between
/// the barriers.
///
/// A contender is BARRIER[@VIEW], interposed[@VIEW] or preload=PATH. BARRIER is one of the barriers of
/// `wakeful locks`, or std, glibc, gomp or omp. The last two are the barriers of GCC's and LLVM's OpenMP
/// libraries, where they are installed.
#[derive(clap::Args)]
struct BarrierArgs {
    /// Units of work between two barriers: turns of an empty loop
    #[arg(long, value_delimiter = ',', value_name = "UNITS", default_value = "6000", value_parser = units)]
    outside: Vec<u64>,
    /// Each thread has from half to twice that in a round, at random
    #[arg(long)]
    uneven: bool,
    /// A unit is a cell of a stencil, in memory of 8 MB a thread
    #[arg(long)]
    memory: bool,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "2,4,8,16,32", value_parser = threads)]
    threads: Vec<usize>,
    /// The contenders
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "CONTENDER",
        default_value = "b-wakeful,glibc,std,gomp,omp"
    )]
    locks: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// Readers and writers under a reader-writer lock, work outside, all combinations
///
/// The synthetic program of Kontothanassis, Wisniewski and Scott (TR 1994, section 5.3). Every thread reads
/// shared data, or writes them in so many percent of its turns, and then works outside, for ever. The wait
/// quantiles are the writers', where there are any.
///
/// A contender is LOCK[@VIEW], interposed[@VIEW] or preload=PATH. LOCK is one of `wakeful locks`, or std,
/// parking_lot or glibc. `interposed` is the C library's lock under libwakeful_preload.so; `preload` is the
/// same under any other library.
#[derive(clap::Args)]
struct RwlockArgs {
    /// Critical sections: cache lines written or read, or a time such as 10us
    #[arg(long, value_delimiter = ',', value_name = "LENGTH", default_value = "20", value_parser = length)]
    critical: Vec<Length>,
    /// Units of work outside: turns of an empty loop
    #[arg(long, value_delimiter = ',', value_name = "UNITS", default_value = "400", value_parser = units)]
    outside: Vec<u64>,
    /// Percentages of the sections that write
    #[arg(long, value_delimiter = ',', value_name = "PERCENT", default_value = "0,1,5,50", value_parser = percent)]
    writers: Vec<f64>,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,2,4,8,16,32", value_parser = threads)]
    threads: Vec<usize>,
    /// The contenders
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "CONTENDER",
        default_value = "rw-wakeful,glibc,std,parking_lot"
    )]
    locks: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// A bounded buffer over pthread condition variables
///
/// A contender is glibc, interposed[:LOCK][@VIEW] or preload=PATH.
#[derive(clap::Args)]
struct CondvarArgs {
    /// Items that the buffer holds
    #[arg(long, value_delimiter = ',', value_name = "ITEMS", default_value = "16", value_parser = items)]
    capacity: Vec<u64>,
    /// Units of work between two items: turns of an empty loop
    #[arg(long, value_delimiter = ',', value_name = "UNITS", default_value = "100", value_parser = units)]
    outside: Vec<u64>,
    /// Numbers of threads, half of which put and half take
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "2,4,8,16,32", value_parser = threads)]
    threads: Vec<usize>,
    /// The contenders
    #[arg(long, value_delimiter = ',', value_name = "CONTENDER", default_value = "glibc,interposed")]
    locks: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// What programs build of locks: hand-made barriers, thread pools, pipelines
///
/// Each pattern is a small program that runs for ever. Threads wait for all others, workers have queues, a
/// pipeline has stages, and so on. All combinations are measured. A work unit is a turn of an empty loop, and
/// 6000 take about a microsecond.
///
/// A contender is KIT[@VIEW], interposed[:LOCK][@VIEW] or preload=PATH. KIT is glibc, std, parking_lot or
/// wakeful: the family of mutex, condition variable, reader-writer lock and semaphore of which the program is
/// built.
#[derive(clap::Args)]
#[command(after_long_help = pattern_list())]
struct PatternsArgs {
    /// Which patterns; see the list below
    #[arg(long, value_delimiter = ',', value_name = "PATTERN", default_values_t = PATTERNS.iter().map(|(_, pattern, _)| *pattern))]
    pattern: Vec<Pattern>,
    /// Units of work an operation: turns of an empty loop
    #[arg(long, value_delimiter = ',', value_name = "UNITS", default_value = "6000,130000,1300000", value_parser = units)]
    outside: Vec<u64>,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "2,4,8,16,32", value_parser = threads)]
    threads: Vec<usize>,
    /// The contenders
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "CONTENDER",
        default_value = "glibc,std,parking_lot,wakeful,interposed"
    )]
    locks: Vec<String>,
    /// Foreign busy processes that run next to the program
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "0")]
    foreign: Vec<usize>,
    /// Kernel view of contenders that name none: auto, bpf, perf or none
    #[arg(long, value_parser = Offered(view_names), hide_possible_values = true)]
    view: Option<String>,
    /// Ratios are against the best of these in each cell
    #[arg(long, value_delimiter = ',', value_name = "CONTENDER", default_value = "glibc,std,parking_lot")]
    baseline: Vec<String>,
    #[command(flatten)]
    timing: Timing,
}

/// Critical sections under a pthread spin lock
///
/// A contender is glibc, interposed[:LOCK][@VIEW] or preload=PATH.
#[derive(clap::Args)]
struct SpinArgs {
    /// Critical sections: cache lines updated, or a time such as 10us
    #[arg(long, value_delimiter = ',', value_name = "LENGTH", default_value = "20,10us", value_parser = length)]
    critical: Vec<Length>,
    /// Units of work outside: turns of an empty loop
    #[arg(long, value_delimiter = ',', value_name = "UNITS", default_value = "100", value_parser = units)]
    outside: Vec<u64>,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,2,4,8,16,32", value_parser = threads)]
    threads: Vec<usize>,
    /// The contenders
    #[arg(long, value_delimiter = ',', value_name = "CONTENDER", default_value = "glibc,interposed")]
    locks: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// Parallel loops, or programs made of them, all combinations
///
/// One thread runs loops, one after the other, of as many iterations as members. The ns column is what a loop
/// takes: without work in it, that is fork and join. With --app it is a whole program, again and again: those
/// of Uemura and Kan, section 4.
///
/// A contender is free or bound: the microthreads of the Rust crate. Or it is gomp or omp: `omp parallel for`
/// of GCC's and LLVM's OpenMP libraries, where they are installed. std starts threads for each loop.
/// partition is bound on processors of its own: all but the first, where foreign processes stay meanwhile.
/// OMP_WAIT_POLICY and the like mean what they mean.
#[derive(clap::Args)]
struct ParallelArgs {
    /// Units of work in an iteration: turns of an empty loop
    #[arg(long, value_delimiter = ',', value_name = "UNITS", default_value = "0,6000", value_parser = units)]
    outside: Vec<u64>,
    /// Programs instead: fft, fft:ROWSxCOLUMNS, matrix, matrix:ROWS
    #[arg(long, value_delimiter = ',', value_name = "APP", conflicts_with = "outside")]
    app: Vec<Body>,
    /// Members of the team
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "2,8", value_parser = threads)]
    threads: Vec<usize>,
    /// The contenders
    #[arg(long, value_delimiter = ',', value_name = "CONTENDER", default_value = "free,bound,gomp,omp,std")]
    locks: Vec<String>,
    /// Foreign busy processes that run next to the program
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "0")]
    foreign: Vec<usize>,
    /// Ratios are against the best of these in each cell
    #[arg(long, value_delimiter = ',', value_name = "CONTENDER", default_value = "gomp,omp")]
    baseline: Vec<String>,
    #[command(flatten)]
    timing: Timing,
}

/// What a kernel view costs: context switches between two threads on one processor
///
/// The contenders are views: none, perf and bpf. The ns column is what a switch takes.
#[derive(clap::Args)]
struct SwitchArgs {
    /// Which views
    #[arg(long, value_delimiter = ',', value_name = "VIEW", default_value = "none,perf",
        value_parser = Offered(switch_views), hide_possible_values = true)]
    views: Vec<String>,
    #[command(flatten)]
    timing: Timing,
}

#[derive(clap::Args)]
struct Common {
    /// Foreign busy processes that run next to the program
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "0")]
    foreign: Vec<usize>,
    /// Kernel view of contenders that name none: auto, bpf, perf or none
    #[arg(long, value_parser = Offered(view_names), hide_possible_values = true)]
    view: Option<String>,
    /// Ratios are against the best of these in each cell
    #[arg(long, value_delimiter = ',', value_name = "CONTENDER", default_value = "glibc")]
    baseline: Vec<String>,
    #[command(flatten)]
    timing: Timing,
}

#[derive(clap::Args)]
pub struct Timing {
    /// Seconds counted a sample
    #[arg(long, default_value = "0.3", value_parser = seconds)]
    pub seconds: Duration,
    /// Seconds before counting starts
    #[arg(long, value_name = "SECONDS", default_value = "0.05", value_parser = seconds)]
    pub warm_up: Duration,
    /// How often every contender runs in every cell
    #[arg(long, default_value = "5", value_parser = whole_number::<u16>(1..))]
    pub rounds: u16,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

/// BOUND: a thread is a thread of this machine; ten thousand is where starting them takes longer than measuring.
const MOST_THREADS: u64 = 10_000;

pub fn threads(text: &str) -> Result<usize, String> {
    bounded(text, "threads", 1, MOST_THREADS).map(|count| count as usize)
}

/// A number of things from `least` to `most`.
fn bounded(text: &str, what: &str, least: u64, most: u64) -> Result<u64, String> {
    match text.parse() {
        Ok(count) if (least..=most).contains(&count) => Ok(count),
        _ => Err(format!("give a number of {what} from {least} to {most}")),
    }
}

/// BOUND: a turn takes some tenths of a nanosecond, and a sample counts whole sections in fractions of a second: of 100 ms no
/// median can be made.
const MOST_UNITS: u64 = 100_000_000;
/// BOUND: 64 bytes each, so 64 MB.
const MOST_LINES: usize = 1_000_000;
/// As for [`MOST_UNITS`].
const LONGEST: Duration = Duration::from_millis(100);

fn units(text: &str) -> Result<u64, String> {
    bounded(text, "units", 0, MOST_UNITS)
}

fn items(text: &str) -> Result<u64, String> {
    bounded(text, "items", 1, MOST_LINES as u64)
}

fn length(text: &str) -> Result<Length, String> {
    match text.parse().map_err(|error: LengthError| error.to_string())? {
        Length::Lines(lines) if lines > MOST_LINES => Err(format!("give at most {MOST_LINES} cache lines")),
        Length::Time(time) if time > LONGEST => {
            Err(format!("give a time of at most {}ms", LONGEST.as_millis()))
        }
        length => Ok(length),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|percent| (0.0..=100.0).contains(percent))
        .ok_or_else(|| "give a percentage from 0 to 100".to_string())
}

pub fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.001..=3600.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "give a number of seconds from 0.001 to 3600".to_string())
}

pub fn main(args: Args) -> Result<ExitCode> {
    // A job is what a contender runs in, and some are preloaded.
    if !matches!(args.what, What::Job { .. }) {
        launch::check_not_preloaded()?;
    }
    match args.what {
        What::Mutex(args) => mutex(&args),
        What::Delegate(args) => delegate(args),
        What::Parts(args) => parts::main(&args),
        What::Rwlock(args) => {
            check_patience(&args.critical, &args.threads)?;
            let works = args.writers.iter().flat_map(|&writers| {
                product(&args.critical, &args.outside, &args.threads, move |critical, outside, threads| {
                    Work::Rwlock(rwlock::RwLock { critical, outside, writers, threads })
                })
            });
            let foreign = rwlock::FOREIGN.iter().map(|(name, _)| *name);
            // The C library's is the first: it is what a preloaded library replaces.
            let built_in: Vec<&str> =
                foreign.chain(catalog::RWLOCKS.iter().map(|entry| entry.name)).collect();
            run(works.collect(), &args.locks, &built_in, &args.common)
        }
        What::Spin(args) => {
            check_patience(&args.critical, &args.threads)?;
            let works =
                product(&args.critical, &args.outside, &args.threads, |critical, outside, threads| {
                    Work::Spin(mutex::Mutex { critical, outside, threads })
                });
            run(works, &args.locks, &["glibc"], &args.common)
        }
        What::Barrier(args) => {
            let (uneven, memory) = (args.uneven, args.memory);
            let works = args.outside.iter().flat_map(|&outside| {
                let work = move |threads| barrier::Barrier { outside, uneven, memory, threads };
                args.threads.iter().map(move |&threads| Work::Barrier(work(threads)))
            });
            let foreign = barrier::FOREIGN.iter().map(|(name, _)| *name);
            let built_in: Vec<&str> =
                foreign.chain(catalog::BARRIERS.iter().map(|entry| entry.name)).collect();
            run(works.collect(), &installed(&args.locks), &built_in, &args.common)
        }
        What::Condvar(args) => {
            if args.threads.contains(&1) {
                bail!("a bounded buffer takes two threads at least: one that puts, one that takes");
            }
            let works =
                product(&args.capacity, &args.outside, &args.threads, |capacity, outside, threads| {
                    Work::Condvar(Condvar { capacity, outside, threads })
                });
            run(works, &args.locks, &["glibc"], &args.common)
        }
        What::Patterns(args) => {
            if args.threads.contains(&1) {
                bail!("a pattern takes two threads at least");
            }
            let works = product(&args.pattern, &args.outside, &args.threads, |pattern, outside, threads| {
                Work::Patterns(Patterns { pattern, outside, threads })
            });
            let built_in: Vec<&str> = patterns::KITS.iter().map(|(name, _)| *name).collect();
            let baseline = taking_part(args.baseline, &["glibc", "std", "parking_lot"], &args.locks);
            let common = Common { foreign: args.foreign, view: args.view, baseline, timing: args.timing };
            run(works, &args.locks, &built_in, &common)
        }
        What::Parallel(args) => {
            let bodies = match args.app.is_empty() {
                true => args.outside.into_iter().map(Body::Units).collect(),
                false => args.app,
            };
            let works = bodies.iter().flat_map(|&body| {
                args.threads.iter().map(move |&threads| Work::Parallel(Parallel { body, threads }))
            });
            let built_in: Vec<&str> = parallel::CONTENDERS.iter().map(|(name, _)| *name).collect();
            let locks = installed(&args.locks);
            let baseline = taking_part(args.baseline, &["gomp", "omp"], &locks);
            let common = Common { foreign: args.foreign, view: None, baseline, timing: args.timing };
            run(works.collect(), &locks, &built_in, &common)
        }
        What::Switch(args) => switch(&args),
        What::Partition(args) => bench_partition::main(args),
        What::Grant(args) => grant::main(args),
        What::Draw(args) => draw::main(&args),
        What::GrantAsker => Ok(::bench::grant::asker().map(|()| ExitCode::SUCCESS)?),
        What::Job { job } => sample(&job),
    }
}

fn switch(args: &SwitchArgs) -> Result<ExitCode> {
    let names = switch_views();
    let contenders = args.views.iter().map(|name| match names.contains(&name.as_str()) {
        true => Ok(Contender::view(name)),
        false => bail!("there is no view `{name}`.{}", suggest::hint(name, names.iter().copied())),
    });
    let contenders = contenders.collect::<Result<_>>()?;
    measure(vec![Work::Switch], contenders, &[0], &["none".to_string()], &args.timing)
}

fn sample(job: &str) -> Result<ExitCode> {
    let job: Job = serde_json::from_str(job).context("not a job")?;
    serde_json::to_writer(std::io::stdout(), &job.run()?)?;
    Ok(ExitCode::SUCCESS)
}

fn mutex(args: &MutexArgs) -> Result<ExitCode> {
    check_patience(&args.critical, &args.threads)?;
    let works = product(&args.critical, &args.outside, &args.threads, |critical, outside, threads| {
        Work::Mutex(mutex::Mutex { critical, outside, threads })
    });
    run(works, &args.locks, &mutexes(), &args.common)
}

/// Those that `bench mutex` offers. The C library's comes first: it is what a preloaded library replaces.
fn mutexes() -> Vec<&'static str> {
    let foreign = mutex::FOREIGN.iter().map(|(name, _)| *name).filter(|name| *name != "spin");
    let mut all: Vec<&str> = foreign.chain(catalog::MUTEXES.iter().map(|entry| entry.name)).collect();
    all.sort_by_key(|name| *name != "glibc");
    all
}

fn delegate(args: DelegateArgs) -> Result<ExitCode> {
    check_patience(&args.critical, &args.threads)?;
    let works = product(&args.critical, &args.outside, &args.threads, |critical, outside, threads| {
        Work::Delegate(mutex::Mutex { critical, outside, threads })
    });
    let mut built_in = mutexes();
    built_in.extend(catalog::DELEGATES.iter().map(|entry| entry.name));
    let baseline = taking_part(args.baseline, &["wakeful"], &args.locks);
    let common = Common { foreign: args.foreign, view: args.view, baseline, timing: args.timing };
    run(works, &args.locks, &built_in, &common)
}

/// BOUND: at the end of a sample every thread may still do a section, one after the other; this is half the time that a sample gets
/// before it counts as hung.
const LAST_SECTIONS: Duration = Duration::from_secs(30);

fn check_patience(critical: &[Length], threads: &[usize]) -> Result<()> {
    let threads = threads.iter().copied().max().unwrap_or(0) as u32;
    for length in critical {
        if let Length::Time(time) = length
            && *time * threads > LAST_SECTIONS
        {
            bail!(
                "{threads} threads with sections of {length} take {:.0} s for one section each;\n\
                 threads times critical section may be {} s at most",
                (*time * threads).as_secs_f64(),
                LAST_SECTIONS.as_secs()
            );
        }
    }
    Ok(())
}

/// Those contenders whose library is there.
fn installed(contenders: &[String]) -> Vec<String> {
    let (there, missing): (Vec<String>, Vec<String>) =
        contenders.iter().cloned().partition(|name| !barrier::missing(name));
    for name in missing {
        eprintln!(
            "wakeful: `{name}` does not take part: its library is not installed (apt-get install libgomp1 libomp5)"
        );
    }
    there
}

/// The baselines; of those that nobody chose, those that take part.
fn taking_part(baselines: Vec<String>, defaults: &[&str], locks: &[String]) -> Vec<String> {
    match baselines == defaults {
        true => baselines.into_iter().filter(|name| locks.contains(name)).collect(),
        false => baselines,
    }
}

/// The patterns, for the help.
fn pattern_list() -> String {
    let lines = PATTERNS.iter().map(|(name, _, what)| format!("  {name:<14} {what}\n"));
    format!("Patterns:\n{}", lines.collect::<String>())
}

fn switch_views() -> Vec<&'static str> {
    views().filter(|view| *view != "auto").collect()
}

fn product<A: Copy>(a: &[A], b: &[u64], c: &[usize], make: impl Fn(A, u64, usize) -> Work) -> Vec<Work> {
    let make = &make;
    a.iter().flat_map(|&a| b.iter().flat_map(move |&b| c.iter().map(move |&c| make(a, b, c)))).collect()
}

fn contender(text: &str, built_in: &[&str]) -> Result<Contender> {
    let found = library::find();
    Contender::parse(text, built_in, found.as_deref().ok()).map_err(|error| match &error {
        ContenderError::Unknown { name, known } | ContenderError::NotInPlace { name, known } => {
            let hint = suggest::hint(name, known.iter().map(String::as_str));
            anyhow::anyhow!("{error}.{hint}")
        }
        ContenderError::UnknownView { name } => {
            anyhow::anyhow!("{error}.{}", suggest::hint(name, views()))
        }
        ContenderError::NoInterposer { .. } => match found {
            Err(reason) => reason.context("no `interposed`"),
            Ok(_) => error.into(),
        },
    })
}

/// Does this contender (LOCK, LOCK@VIEW, interposed:LOCK) ask the kernel not to preempt it?
fn wishes(contender: &str) -> bool {
    let name = contender.split('@').next().unwrap_or(contender);
    let name = name.strip_prefix("interposed:").unwrap_or(name);
    catalog::entry(name).or_else(|| catalog::rwlock(name)).is_some_and(|entry| entry.wishes)
}

fn run(works: Vec<Work>, locks: &[String], built_in: &[&str], common: &Common) -> Result<ExitCode> {
    let contenders = locks.iter().map(|text| contender(text, built_in)).collect::<Result<Vec<_>>>()?;
    if let Some(view) = &common.view {
        check_view(view)?;
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var(VIEW.name(), view) };
    }
    let wishing: Vec<&str> = locks.iter().map(String::as_str).filter(|name| wishes(name)).collect();
    if !wishing.is_empty()
        && let Some(tunables) = probe::tunables()
    {
        // SAFETY: as above; the contenders run in processes that we start.
        unsafe { std::env::set_var(linux::slice::TUNABLES, tunables) };
    }
    if !wishing.is_empty() && !probe::wishes_are_heard() {
        eprintln!("wakeful: {}: nobody here acts on the wish not to be preempted;", wishing.join(", "));
        eprintln!("wakeful: `wakeful locks` says what that leaves of them");
    }
    let defaulted = common.baseline == ["glibc"];
    for baseline in &common.baseline {
        if !defaulted && !locks.contains(baseline) {
            let there = locks.join(", ");
            bail!("the baseline `{baseline}` does not take part; add it to --locks.\nThere are: {there}");
        }
    }
    measure(works, contenders, &common.foreign, &common.baseline, &common.timing)
}

/// A view that somebody asks for and nobody can have is better found missing now than when its turn comes. (The interposer may be another
/// build, which says so itself.)
fn check_views(contenders: &[Contender]) -> Result<()> {
    let asks = |contender: &&Contender| contender.preload.is_none() && contender.view.is_some();
    let asking: Vec<&Contender> = contenders.iter().filter(asks).collect();
    if asking.is_empty() {
        return Ok(());
    }
    let missing: Vec<probe::View> = probe::views().into_iter().filter(|view| !view.available).collect();
    for contender in asking {
        let Some(view) = missing.iter().find(|view| contender.view.as_deref() == Some(view.name)) else {
            continue;
        };
        let remedy = view.remedy.as_ref().map_or(String::new(), |remedy| format!("\n{remedy}, or"));
        bail!(
            "`{contender}`: there is no view `{}` here: {}{remedy}\nleave that contender out; `wakeful doctor` says more",
            view.name,
            view.finding.trim_start_matches("no: ")
        );
    }
    Ok(())
}

/// More busy processes than that measure the patience of the machine's other users.
const FOREIGN_MOST: usize = 1000;

fn measure(
    works: Vec<Work>,
    contenders: Vec<Contender>,
    foreign: &[usize],
    baselines: &[String],
    timing: &Timing,
) -> Result<ExitCode> {
    if let Some(many) = foreign.iter().find(|&&many| many > FOREIGN_MOST) {
        bail!("--foreign {many}: at most {FOREIGN_MOST} busy processes");
    }
    for (index, contender) in contenders.iter().enumerate() {
        if let Some(path) = &contender.preload {
            program::library(path)
                .with_context(|| format!("`{contender}`: cannot preload {}", path.display()))?;
        }
        if contenders[..index].contains(contender) {
            bail!("`{contender}` takes part twice");
        }
    }
    check_views(&contenders)?;
    let suite = Suite {
        program: std::env::current_exe().context("cannot find out where this program is")?,
        prefix: vec!["bench", "job"],
        works,
        foreign: foreign.to_vec(),
        contenders,
        baselines: baselines.to_vec(),
        rounds: timing.rounds.into(),
        warm_up: timing.warm_up,
        interval: timing.seconds,
    };
    let mut show = Show::new(&suite, timing.format)?;
    let cells = suite.run(&mut show)?;
    show.end(&cells, suite.rounds)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_a_limit_that_is_named() {
        assert!(length("100ms").is_ok() && length("1000000").is_ok() && units("0").is_ok());
        assert!(length("10s").unwrap_err().contains("100ms"));
        assert!(length("1000001").unwrap_err().contains("1000000"));
        assert!(units("100000001").unwrap_err().contains("100000000"));
        assert!(items("0").unwrap_err().contains("1 to 1000000"));
    }
}
