// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful bench`: the microbenchmarks.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use ::bench::contender::{Contender, ContenderError, VIEW_VARIABLE, views};
use ::bench::job::{Job, Work};
use ::bench::machine::{self, Machine};
use ::bench::suite::{Cell, Row, Suite, Watch, summarise};
use ::bench::workload::{
    Length, LengthError, barrier,
    condvar::Condvar,
    mutex,
    parallel::{self, Body, Parallel},
    patterns::{self, PATTERNS, Pattern, Patterns},
    rwlock,
};
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::format::{self, Format};
use crate::launch::{self, Offered, check_view, view_names};
use crate::{bench_partition, grant, library, probe, program, suggest};

/// Measure locks against each other in one interleaved run
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Mutex(MutexArgs),
    Barrier(BarrierArgs),
    Rwlock(RwlockArgs),
    Condvar(CondvarArgs),
    Patterns(PatternsArgs),
    Spin(SpinArgs),
    Parallel(ParallelArgs),
    Switch(SwitchArgs),
    Partition(bench_partition::Args),
    Grant(grant::Args),
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
/// The synthetic program of Kontothanassis, Wisniewski and Scott (TR 1994, section 5.2): every thread enters a critical
/// section and then works outside it, for ever.
///
/// A contender is LOCK[@VIEW], interposed[:LOCK][@VIEW] or preload=PATH. LOCK is one of `wakeful locks`, or std, parking_lot or
/// glibc; `interposed` is the C library's mutex under libwakeful_preload.so; `preload` is the same under any other library.
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
    /// Who takes part
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

/// Rounds of work and a barrier, all combinations
///
/// The synthetic program of Kontothanassis, Wisniewski and Scott (TR 1994, section 5.4), with some work between the barriers.
///
/// A contender is BARRIER[@VIEW], interposed[@VIEW] or preload=PATH. BARRIER is one of the barriers of `wakeful locks`, or std, glibc,
/// gomp or omp (the barriers of GCC's and LLVM's OpenMP libraries, where they are installed).
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
    /// Who takes part
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
/// The synthetic program of Kontothanassis, Wisniewski and Scott (TR 1994, section 5.3): every thread reads shared data,
/// or writes them in so many percent of its turns, and then works outside, for ever. The wait quantiles are the
/// writers', where there are any.
///
/// A contender is LOCK[@VIEW], interposed[@VIEW] or preload=PATH. LOCK is one of `wakeful locks`, or std, parking_lot or
/// glibc; `interposed` is the C library's lock under libwakeful_preload.so; `preload` is the same under any other library.
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
    /// Who takes part
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
    /// Who takes part
    #[arg(long, value_delimiter = ',', value_name = "CONTENDER", default_value = "glibc,interposed")]
    locks: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// What programs build of locks: hand-made barriers, thread pools, pipelines
///
/// Each pattern is a small program that runs for ever: threads that wait for all others, workers with queues, stages of a pipeline, a cache, and so on.
/// All combinations are measured; a work unit is a turn of an empty loop, and 6000 take about a microsecond.
///
/// A contender is KIT[@VIEW], interposed[:LOCK][@VIEW] or preload=PATH. KIT is glibc, std, parking_lot or wakeful: the family of mutex,
/// condition variable, reader-writer lock and semaphore of which the program is built.
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
    /// Who takes part
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "CONTENDER",
        default_value = "glibc,std,parking_lot,wakeful,interposed"
    )]
    locks: Vec<String>,
    /// Foreign busy processes beside the program
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
    /// Who takes part
    #[arg(long, value_delimiter = ',', value_name = "CONTENDER", default_value = "glibc,interposed")]
    locks: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// Parallel loops, or programs made of them, all combinations
///
/// One thread runs loops, one after the other, of as many iterations as members; the ns column is what a loop takes. With no work
/// in it that is fork and join. With --app it is a whole program, again and again: those of Uemura and Kan, section 4.
///
/// A contender is free or bound (the microthreads of the Rust crate), gomp or omp (`omp parallel for` of GCC's and LLVM's OpenMP
/// libraries, where they are installed), or std (threads of its own for each loop). partition is bound on processors of its own: all but
/// the first, to which foreign processes keep meanwhile. OMP_WAIT_POLICY and the like mean what they mean.
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
    /// Who takes part
    #[arg(long, value_delimiter = ',', value_name = "CONTENDER", default_value = "free,bound,gomp,omp,std")]
    locks: Vec<String>,
    /// Foreign busy processes beside the program
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
    /// Foreign busy processes beside the program
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
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u16).range(1..))]
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

fn seconds(text: &str) -> Result<Duration, String> {
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
        What::Mutex(args) => {
            let (critical, outside) = (&args.critical, &args.outside);
            check_patience(critical, &args.threads)?;
            let works = product(critical, outside, &args.threads, |critical, outside, threads| {
                Work::Mutex(mutex::Mutex { critical, outside, threads })
            });
            let foreign = mutex::FOREIGN.iter().map(|(name, _)| *name).filter(|name| *name != "spin");
            // The C library's comes first: it is what a preloaded library replaces.
            let mut built_in: Vec<&str> =
                foreign.chain(catalog::MUTEXES.iter().map(|entry| entry.name)).collect();
            built_in.sort_by_key(|name| *name != "glibc");
            run(works, &args.locks, &built_in, &args.common)
        }
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
        What::Switch(args) => {
            let names = switch_views();
            let contenders = args.views.iter().map(|name| match names.contains(&name.as_str()) {
                true => Ok(Contender::view(name)),
                false => bail!("there is no view `{name}`.{}", suggest::hint(name, names.iter().copied())),
            });
            measure(
                vec![Work::Switch],
                contenders.collect::<Result<_>>()?,
                &[0],
                &["none".to_string()],
                &args.timing,
            )
        }
        What::Partition(args) => bench_partition::main(args),
        What::Grant(args) => grant::main(args),
        What::GrantAsker => Ok(::bench::grant::asker().map(|()| ExitCode::SUCCESS)?),
        What::Job { job } => {
            let job: Job = serde_json::from_str(&job).context("not a job")?;
            serde_json::to_writer(std::io::stdout(), &job.run()?)?;
            Ok(ExitCode::SUCCESS)
        }
    }
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
        unsafe { std::env::set_var(VIEW_VARIABLE, view) };
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

/// What all the following records were measured on and with.
#[derive(Serialize)]
struct Head {
    date: String,
    command: String,
    version: &'static str,
    machine: Machine,
    rounds: usize,
    seconds: f64,
    warm_up_seconds: f64,
}

/// The first lines of a result.
pub fn say_where(format: Format, rounds: usize, interval: Duration, warm_up: Duration) -> Result<()> {
    let head = Head {
        date: machine::date(),
        command: format::shell_words(std::env::args()),
        version: env!("CARGO_PKG_VERSION"),
        machine: Machine::here(),
        rounds,
        seconds: interval.as_secs_f64(),
        warm_up_seconds: warm_up.as_secs_f64(),
    };
    match format {
        Format::Text => {
            let Machine { model, processors, kernel, glibc, virtual_machine, .. } = &head.machine;
            let guest = if *virtual_machine { ", virtual machine" } else { "" };
            println!("{}, wakeful {}", head.date, head.version);
            println!("{model}{guest}");
            println!("{processors} processors, {kernel}, glibc {glibc}");
            let s = if head.rounds == 1 { "" } else { "s" };
            println!("medians of {} round{s} of {} s", head.rounds, head.seconds);
        }
        Format::Json => format::json("run", &head)?,
        Format::Csv => {}
    }
    Ok(())
}

/// On a terminal.
pub fn bar(samples: usize) -> Result<ProgressBar> {
    if !std::io::stderr().is_terminal() {
        return Ok(ProgressBar::hidden());
    }
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {eta} left  {msg}")?;
    Ok(ProgressBar::new(samples as u64).with_style(style))
}

struct Show {
    format: Format,
    bar: ProgressBar,
    csv: csv::Writer<std::io::Stdout>,
}

impl Show {
    fn new(suite: &Suite, format: Format) -> Result<Self> {
        say_where(format, suite.rounds, suite.interval, suite.warm_up)?;
        let bar = bar(suite.samples())?;
        Ok(Self { format, bar, csv: csv::Writer::from_writer(std::io::stdout()) })
    }

    fn end(self, cells: &[Cell], rounds: usize) -> Result<()> {
        self.bar.finish_and_clear();
        let summaries = summarise(cells);
        for summary in &summaries {
            if self.format == Format::Json {
                format::json("summary", summary)?;
            }
        }
        if self.format == Format::Text && cells.len() > 1 && !summaries.is_empty() {
            println!("\nover {} cells, times the baseline: geometric mean (least, greatest)", cells.len());
            for it in &summaries {
                println!("  {:<28} {:>6.2} ({:.2}, {:.2})", it.contender, it.mean, it.least, it.greatest);
            }
        }
        if self.format == Format::Text
            && let Some(views) = views_taken(cells)
        {
            println!("\n{views}");
        }
        let ratios = || cells.iter().flat_map(|cell| &cell.rows).filter_map(|row| row.ratio);
        let noisy = ratios().filter(|ratio| ratio.spread() > NOISY).count();
        if let Some(warning) = warning(noisy, rounds, ratios().count()) {
            eprintln!("wakeful: {warning}");
        }
        Ok(())
    }
}

/// Which view each contender took that did not say which. The best view of a machine may change with who runs us.
fn views_taken(cells: &[Cell]) -> Option<String> {
    let rows = cells.first()?.rows.iter().filter(|row| {
        !row.contender.contains('@') && !matches!(&row.view, Some(view) if *view == row.contender)
    });
    let views: Vec<String> =
        rows.filter_map(|row| row.view.as_ref().map(|view| format!("{} {view}", row.contender))).collect();
    (!views.is_empty()).then(|| suggest::wrap(&format!("views taken: {}", views.join(", ")), suggest::WIDTH))
}

/// BOUND: a median that may be off by a quarter is no result.
const NOISY: f64 = 1.5;
/// BOUND: with five rounds the interval covers the median with the confidence that it claims.
const ROUNDS: usize = 5;

/// What to say about results that say little.
fn warning(noisy: usize, rounds: usize, ratios: usize) -> Option<String> {
    if noisy > 0 {
        Some(format!(
            "{noisy} of {ratios} ratios spread by more than {NOISY} times;\n\
             take more --rounds, a longer --seconds or a quieter machine"
        ))
    } else if ratios > 0 && rounds < ROUNDS {
        Some(format!("fewer than {ROUNDS} rounds say little about the spread; take --rounds {ROUNDS}"))
    } else {
        None
    }
}

fn threads_of(cell: &Cell) -> String {
    match cell.work.threads() {
        1 => "1 thread".to_string(),
        threads => format!("{threads} threads"),
    }
}

fn section(critical: Length) -> String {
    let unit = match critical {
        Length::Lines(1) => " line",
        Length::Lines(_) => " lines",
        Length::Time(_) => "",
    };
    format!("critical {critical}{unit}")
}

fn title(cell: &Cell) -> String {
    let foreign = if cell.foreign > 0 { format!(", {} foreign", cell.foreign) } else { String::new() };
    match &cell.work {
        Work::Mutex(work) | Work::Spin(work) => {
            format!("{}, {}, outside {}{foreign}", threads_of(cell), section(work.critical), work.outside)
        }
        Work::Rwlock(work) => {
            let (section, outside, writers) = (section(work.critical), work.outside, work.writers);
            format!("{}, {writers} % writers, {section}, outside {outside}{foreign}", threads_of(cell))
        }
        Work::Barrier(work) => {
            let uneven = if work.uneven { ", uneven" } else { "" };
            let memory = if work.memory { ", in memory" } else { "" };
            format!("{}, barrier, outside {}{uneven}{memory}{foreign}", threads_of(cell), work.outside)
        }
        Work::Condvar(work) => {
            format!("{}, buffer of {}, outside {}{foreign}", threads_of(cell), work.capacity, work.outside)
        }
        Work::Patterns(work) => {
            format!("{}, {}, outside {}{foreign}", threads_of(cell), work.pattern, work.outside)
        }
        Work::Parallel(work) => format!("{}, {}{foreign}", threads_of(cell), work.body),
        Work::Switch => "context switches on one processor".to_string(),
    }
}

/// Width of a name; a longer one loses its start.
const NAME: usize = 16;

fn text(cell: &Cell) {
    println!("\n{}", title(cell));
    let against = cell.baseline.as_ref().map_or(String::new(), |name| format!("x {name}"));
    // Where all go on together there is nothing to be unfair about.
    let unfair = cell.rows.iter().any(|row| row.fairness.is_some());
    let fair = if unfair { " fair" } else { "" };
    print!("{:<NAME$} {:>6} {against:>17}{fair} {:>5} {:>4}", "", "ops/s", "csw/s", "cpu");
    // A contender that came to no more than a few turns has no quantiles.
    let waits = cell.rows.iter().any(|row| row.wait.is_some());
    if waits {
        print!(" {:>6} {:>6} {:>6}", "p50", "p99.9", "max");
    } else {
        print!(" {:>6}", "ns/op");
    }
    println!();
    for row in &cell.rows {
        let ratio =
            row.ratio.map_or(String::new(), |it| format!("{:.2} ({:.2}-{:.2})", it.median, it.low, it.high));
        let fair = match row.fairness {
            Some(fairness) => format!(" {fairness:.2}"),
            None => " ".repeat(fair.len()),
        };
        let (rate, switches) = (format::count(row.rate), format::count(row.switches));
        let name = shortened(&row.contender);
        print!("{name:<NAME$} {rate:>6} {ratio:>17}{fair} {switches:>5} {:>4.2}", row.processors);
        if let Some(wait) = row.wait {
            let [p50, p999, max] = [wait.p50_ns, wait.p999_ns, wait.max_ns].map(format::ns);
            print!(" {p50:>6} {p999:>6} {max:>6}");
        } else if waits {
            print!(" {0:>6} {0:>6} {0:>6}", "-");
        } else {
            print!(" {:>6.0}", row.ns);
        }
        println!();
    }
}

fn shortened(name: &str) -> String {
    match name.chars().count() {
        length if length <= NAME => name.to_string(),
        length => format!("..{}", name.chars().skip(length - NAME + 2).collect::<String>()),
    }
}

/// A row of the table.
#[derive(Serialize)]
struct CsvRow<'a> {
    workload: &'static str,
    critical: Option<Length>,
    capacity: Option<u64>,
    outside: u64,
    writers: Option<f64>,
    threads: usize,
    foreign: usize,
    contender: &'a str,
    rate: f64,
    ns: f64,
    baseline: Option<&'a str>,
    ratio: Option<f64>,
    ratio_low: Option<f64>,
    ratio_high: Option<f64>,
    fairness: Option<f64>,
    switches: f64,
    processors: f64,
    p50_ns: Option<u64>,
    p90_ns: Option<u64>,
    p99_ns: Option<u64>,
    p999_ns: Option<u64>,
    max_ns: Option<u64>,
}

fn csv_row<'a>(cell: &'a Cell, row: &'a Row) -> CsvRow<'a> {
    let (workload, critical, capacity, outside, writers) = match &cell.work {
        Work::Mutex(work) => ("mutex", Some(work.critical), None, work.outside, None),
        Work::Spin(work) => ("spin", Some(work.critical), None, work.outside, None),
        Work::Rwlock(work) => ("rwlock", Some(work.critical), None, work.outside, Some(work.writers)),
        Work::Barrier(work) => ("barrier", None, None, work.outside, None),
        Work::Parallel(work) => match work.body {
            Body::Units(units) => ("parallel", None, None, units, None),
            Body::Fft { .. } => ("fft", None, None, 0, None),
            Body::Matrix { .. } => ("matrix", None, None, 0, None),
        },
        Work::Patterns(work) => (work.pattern.name(), None, None, work.outside, None),
        Work::Condvar(work) => ("condvar", None, Some(work.capacity), work.outside, None),
        Work::Switch => ("switch", None, None, 0, None),
    };
    CsvRow {
        workload,
        critical,
        capacity,
        outside,
        writers,
        threads: cell.work.threads(),
        foreign: cell.foreign,
        contender: &row.contender,
        rate: row.rate,
        ns: row.ns,
        baseline: cell.baseline.as_deref(),
        ratio: row.ratio.map(|it| it.median),
        ratio_low: row.ratio.map(|it| it.low),
        ratio_high: row.ratio.map(|it| it.high),
        fairness: row.fairness,
        switches: row.switches,
        processors: row.processors,
        p50_ns: row.wait.map(|wait| wait.p50_ns),
        p90_ns: row.wait.map(|wait| wait.p90_ns),
        p99_ns: row.wait.map(|wait| wait.p99_ns),
        p999_ns: row.wait.map(|wait| wait.p999_ns),
        max_ns: row.wait.map(|wait| wait.max_ns),
    }
}

impl Watch for Show {
    fn sample(&mut self, work: &Work, contender: &Contender) {
        self.bar.set_message(format!("{} threads, {contender}", work.threads()));
        self.bar.inc(1);
    }

    fn cell(&mut self, cell: &Cell) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        match self.format {
            Format::Text => self.bar.suspend(|| text(cell)),
            Format::Json => format::json("cell", cell)?,
            Format::Csv => {
                for row in &cell.rows {
                    self.csv.serialize(csv_row(cell, row))?;
                }
                self.csv.flush()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_fit_a_terminal() {
        for (noisy, rounds) in [(123_456, 1), (123_456, 5), (0, 1)] {
            let text = format!("wakeful: {}", warning(noisy, rounds, 999_999).unwrap());
            assert!(text.lines().all(|line| line.len() < 80), "{text}");
        }
        assert_eq!(warning(0, 5, 10), None);
        assert_eq!(warning(0, 1, 0), None);
    }

    #[test]
    fn lengths_have_a_limit_that_is_named() {
        assert!(length("100ms").is_ok() && length("1000000").is_ok() && units("0").is_ok());
        assert!(length("10s").unwrap_err().contains("100ms"));
        assert!(length("1000001").unwrap_err().contains("1000000"));
        assert!(units("100000001").unwrap_err().contains("100000000"));
        assert!(items("0").unwrap_err().contains("1 to 1000000"));
    }
}
