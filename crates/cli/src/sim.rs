// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful sim`: the simulated multiprocessor.

mod auto;
mod claims;
mod delegate;
mod knowledge;
mod lost;
mod show;

use std::borrow::Borrow;
use std::fs::File;
use std::io::Read;
use std::process::ExitCode;
use std::time::Instant;

use ::sim::defaults as experiment;
use ::sim::{Hints, MACHINES, Machine, PRINTED, Program, Repartition, Results, Setting, Workload, simulate};
use anyhow::{Context, Result, anyhow, bail};
use launch::suggest;
use serde::Serialize;

use self::show::{csv, machines, text};
use crate::figure;
use crate::format::{self, Format, whole_number};

/// Run locks and barriers on a simulated multiprocessor, with the same result on any computer
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum App {
    /// Quicksort: ranges on a stack under the lock
    Quicksort,
    /// Sparse Cholesky factorization: a lock a column and one for the queue
    Cholesky,
    /// Radiosity of a room: a lock a thread's queue, one a patch, and stealing
    Radiosity,
    /// Gaussian elimination: a barrier a column
    Gauss,
    /// LU factorization in blocks: two barriers a step
    Lu,
}

#[derive(clap::Subcommand)]
enum What {
    Run(RunArgs),
    Sweep(SweepArgs),
    Defaults(DefaultsArgs),
    Lost(lost::LostArgs),
    Delegate(delegate::DelegateArgs),
    Knowledge(knowledge::KnowledgeArgs),
    Auto(auto::AutoArgs),
    Figure(figure::FigureArgs),
    Report(figure::ReportArgs),
    Claims(claims::ClaimsArgs),
    Machines(MachinesArgs),
}

/// One lock or barrier, one machine, one simulation
///
/// With a lock, each thread enters a critical section and works outside it, again and again. With a barrier, it
/// works and waits for the others.
#[derive(clap::Args)]
struct RunArgs {
    /// One of `wakeful sim machines`, or a file with a description
    #[arg(long, value_name = "MACHINE", default_value = "sgi-challenge-11")]
    machine: String,
    /// Another number of processors than the machine's
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(1..=4096))]
    processors: Option<u32>,
    /// A lock or a barrier of `wakeful locks`, or ticket-np-printed: ticket-np as its paper prints it
    #[arg(long, value_name = "NAME")]
    lock: String,
    /// A real program in the place of the loop: with a mutex quicksort, cholesky or radiosity, with a barrier
    /// gauss or lu
    #[arg(long, value_enum, conflicts_with_all = ["critical", "outside", "vary", "writers", "rounds"])]
    app: Option<App>,
    /// Size of its input: numbers to sort, columns to factor, patches a side of a wall, equations to solve or
    /// blocks a side [default: 16384, 508, 3, 128 or 16]
    #[arg(long, value_name = "N", requires = "app", value_parser = whole_number::<u32>(1..=1_000_000))]
    size: Option<u32>,
    /// Threads; by default one a processor, of a barrier as many as the multiprogramming level
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(1..=4094))]
    threads: Option<u32>,
    /// Multiprogramming level, processes a processor: with a lock the others are foreign, with a barrier they are
    /// the program's own
    #[arg(long, value_name = "LEVEL", default_value = "1", value_parser = level)]
    mp: f64,
    /// Identical programs side by side
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole_number::<u32>(1..=64))]
    instances: u32,
    /// Threads may go to other processors, where the machine's kernel moves them
    #[arg(long)]
    unbound: bool,
    /// Length of a critical section [default: 20us]
    #[arg(long, value_name = "TIME", value_parser = time)]
    critical: Option<f64>,
    /// Length of the work outside, or between two barriers [default: 280us; 0 between barriers]
    #[arg(long, value_name = "TIME", value_parser = time)]
    outside: Option<f64>,
    /// By which fraction lengths vary
    #[arg(long, value_name = "FRACTION", default_value = "0.2", value_parser = fraction)]
    vary: f64,
    /// Of 100 sections under a reader-writer lock, so many write [default: 5]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    writers: Option<f64>,
    /// Sections or episodes of each thread
    #[arg(long, value_name = "N", default_value = "1000")]
    #[arg(value_parser = whole_number::<u64>(1..=100_000_000))]
    rounds: u64,
    /// What the kernel tells: true, none, inverted, delayed:TIME or dropped:FRACTION
    #[arg(long, value_name = "HINTS", default_value = "true", value_parser = hints)]
    hints: Hints,
    /// The partition changes: each TIME to between LEAST and MOST processors
    #[arg(long, value_name = "TIME:LEAST-MOST", value_parser = repartition)]
    repartition: Option<Repartition>,
    /// With --repartition: as the processor server decides, and not at random. The program asks for LEAST to
    /// MOST, and each TIME another one asks, hints or exits
    #[arg(long, requires = "repartition")]
    served: bool,
    /// The simulation ends after this virtual time, done or not
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    limit: f64,
    /// Seed of all that is random
    #[arg(long, value_name = "SEED", default_value = "1", value_parser = whole_number::<u64>(0..))]
    seed: u64,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Say on stderr how fast the simulator was
    #[arg(long, short)]
    verbose: bool,
}

impl Default for RunArgs {
    /// As on the command line.
    fn default() -> Self {
        Self {
            machine: String::new(),
            processors: None,
            lock: String::new(),
            app: None,
            size: None,
            threads: None,
            mp: 1.0,
            instances: 1,
            unbound: false,
            critical: None,
            outside: None,
            vary: 0.2,
            writers: None,
            rounds: 1000,
            hints: Hints::True,
            repartition: None,
            served: false,
            limit: 60e9,
            seed: 1,
            format: Format::Text,
            verbose: false,
        }
    }
}

/// Many runs: each lock on each machine at each number of processors and each level, against the best of them
///
/// All locks of a sweep do the same, so that they are all mutexes, all reader-writer locks or all barriers.
#[derive(clap::Args)]
struct SweepArgs {
    /// Machines of `wakeful sim machines`, or files with descriptions
    #[arg(long, value_name = "MACHINE,...", value_delimiter = ',', default_value = "sgi-challenge-11")]
    machine: Vec<String>,
    /// Other numbers of processors than the machines'
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = whole_number::<u32>(1..=4096))]
    processors: Vec<u32>,
    /// Locks or barriers of `wakeful locks`
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', required = true)]
    lock: Vec<String>,
    /// Multiprogramming levels
    #[arg(long, value_name = "LEVEL,...", value_delimiter = ',', default_value = "1", value_parser = level)]
    mp: Vec<f64>,
    /// Length of a critical section
    #[arg(long, value_name = "TIME", value_parser = time)]
    critical: Option<f64>,
    /// Length of the work outside, or between two barriers
    #[arg(long, value_name = "TIME", value_parser = time)]
    outside: Option<f64>,
    /// Of 100 sections under a reader-writer lock, so many write
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    writers: Option<f64>,
    /// Sections or episodes of each thread
    #[arg(long, value_name = "N", default_value = "1000")]
    #[arg(value_parser = whole_number::<u64>(1..=100_000_000))]
    rounds: u64,
    /// Each simulation ends after this virtual time, done or not
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    limit: f64,
    /// Seed of all that is random
    #[arg(long, value_name = "SEED", default_value = "1", value_parser = whole_number::<u64>(0..))]
    seed: u64,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// The default mutex, reader-writer lock and barrier against the best of the catalogue on many processors
///
/// Mutexes run the loop of TR 1994, section 5.2, with sections of 20us and of 1us. The work outside takes as many
/// times as long as there are processors. Reader-writer locks run that of section 5.3 (20us and 280us, 5 %
/// write). Barriers have 20us of work between episodes, or none. 64 processors are those of epyc-64, more are of
/// cxl-1024. Its kernel honours wishes, so that the default mutex and reader-writer lock make them.
#[derive(clap::Args)]
struct DefaultsArgs {
    /// Kinds
    #[arg(
        long,
        value_name = "KIND,...",
        value_enum,
        value_delimiter = ',',
        default_value = "mutex,rwlock,barrier"
    )]
    kind: Vec<DefaultKind>,
    /// Numbers of processors
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "64,256,1024")]
    #[arg(value_parser = whole_number::<u32>(3..=1024))]
    processors: Vec<u32>,
    /// Multiprogramming levels
    #[arg(long, value_name = "LEVEL,...", value_delimiter = ',', default_value = "1,2,4", value_parser = level)]
    mp: Vec<f64>,
    /// Each simulation ends after this virtual time
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = time)]
    limit: f64,
    /// Seed of all that is random
    #[arg(long, value_name = "SEED", default_value = "1", value_parser = whole_number::<u64>(0..))]
    seed: u64,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum DefaultKind {
    /// wakeful-np
    Mutex,
    /// rw-wakeful-np
    Rwlock,
    /// b-wakeful
    Barrier,
}

impl DefaultKind {
    fn meant(self) -> experiment::Kind {
        match self {
            Self::Mutex => experiment::Kind::Mutex,
            Self::Rwlock => experiment::Kind::RwLock,
            Self::Barrier => experiment::Kind::Barrier,
        }
    }
}

/// List the machines, or every number of one with its source
#[derive(clap::Args)]
struct MachinesArgs {
    /// This one, with all its numbers
    #[arg(long, value_name = "MACHINE")]
    machine: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

fn number(text: &str, least: f64, most: f64) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        _ => Err(format!("give a number from {least} to {most}")),
    }
}

fn level(text: &str) -> Result<f64, String> {
    number(text, 1.0, 64.0)
}

fn fraction(text: &str) -> Result<f64, String> {
    number(text, 0.0, 1.0)
}

fn percent(text: &str) -> Result<f64, String> {
    number(text, 0.0, 100.0)
}

/// Nanoseconds.
fn time(text: &str) -> Result<f64, String> {
    if text == "0" {
        return Ok(0.0);
    }
    match humantime::parse_duration(text) {
        // BOUND: a day of virtual time is hours of ours.
        Ok(time) if time.as_secs() < 86_400 => Ok(time.as_nanos() as f64),
        Ok(_) => Err("give a time below a day".into()),
        Err(_) => Err("give a time with its unit, such as 20us".into()),
    }
}

fn hints(text: &str) -> Result<Hints, String> {
    Ok(match text.split_once(':') {
        None if text == "true" => Hints::True,
        None if text == "none" => Hints::None,
        None if text == "inverted" => Hints::Inverted,
        Some(("delayed", by)) => Hints::Delayed { us: time(by)? / 1e3 },
        Some(("dropped", of)) => Hints::Dropped { fraction: fraction(of)? },
        _ => return Err("give true, none, inverted, delayed:10us or dropped:0.1".into()),
    })
}

fn repartition(text: &str) -> Result<Repartition, String> {
    let parse = || {
        let (every, range) = text.split_once(':')?;
        let (least, most) = range.split_once('-')?;
        let (least, most): (u32, u32) = (least.parse().ok()?, most.parse().ok()?);
        let every_ms = time(every).ok()? / 1e6;
        (every_ms > 0.0 && (1..=most).contains(&least)).then_some(Repartition {
            every_ms,
            least,
            most,
            served: false,
        })
    };
    parse().ok_or_else(|| "give a time and the processors, such as 80ms:5-11".into())
}

pub fn main(args: Args) -> Result<ExitCode> {
    match args.what {
        What::Run(args) => run(&args)?,
        What::Sweep(args) => sweep(&args)?,
        What::Defaults(args) => defaults(&args)?,
        What::Lost(args) => lost::main(&args)?,
        What::Delegate(args) => delegate::main(&args)?,
        What::Knowledge(args) => knowledge::main(&args)?,
        What::Auto(args) => auto::main(&args)?,
        What::Figure(args) => figure::main(&args)?,
        What::Report(args) => figure::report(&args)?,
        What::Claims(args) => claims::main(&args)?,
        What::Machines(args) => machines(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The machine of this name, or of the description in this file.
pub fn machine(name: &str) -> Result<Machine> {
    if let Some(machine) = Machine::named(name) {
        return Ok(machine);
    }
    if !name.contains(['/', '.']) {
        bail!("there is no machine `{name}`.{}", suggest::hint(name, MACHINES.iter().copied()));
    }
    let cannot = || format!("cannot read the machine's description {name}");
    let mut text = String::new();
    // BOUND: bytes; those that come with the crate have 3,000. A device may have no end.
    let read = File::open(name)
        .and_then(|file| file.take(1 << 20).read_to_string(&mut text))
        .with_context(cannot)?;
    if read == 1 << 20 {
        bail!(
            "{name} is longer than 1 MiB and so no machine's description;\n`wakeful sim machines` lists those that there are"
        );
    }
    Machine::parse(&text).with_context(|| format!("{name} does not describe a machine"))
}

/// Line of a name in the catalogue.
enum Kind {
    Mutex,
    RwLock,
    Barrier,
}

fn kind(name: &str) -> Result<Kind> {
    if catalog::entry(name).is_some() || name == PRINTED.name {
        return Ok(Kind::Mutex);
    }
    if catalog::rwlock(name).is_some() {
        return Ok(Kind::RwLock);
    }
    if catalog::barrier(name).is_some() {
        return Ok(Kind::Barrier);
    }
    let locks = catalog::MUTEXES.iter().chain(catalog::RWLOCKS).map(|entry| entry.name);
    let all = locks.chain(catalog::BARRIERS.iter().map(|entry| entry.name));
    bail!("there is no lock or barrier `{name}`.{}", suggest::hint(name, all));
}

fn workload(args: &RunArgs, processors: u32) -> Result<Workload> {
    let outside_ns = args.outside.unwrap_or(280_000.0);
    let lock = args.lock.clone();
    let kind = kind(&lock)?;
    let barrier = matches!(kind, Kind::Barrier);
    if args.writers.is_some() && !matches!(kind, Kind::RwLock) {
        bail!("--writers is for reader-writer locks, and {lock} is none: leave it out");
    }
    if args.critical.is_some() && barrier {
        bail!(
            "--critical is for locks, and {lock} is a barrier: leave it out,\nor say --outside for the work between two episodes"
        );
    }
    let critical_ns = args.critical.unwrap_or(20_000.0);
    let program = match (args.app, kind) {
        (Some(App::Quicksort), Kind::Mutex) => {
            Program::Quicksort { lock, elements: args.size.unwrap_or(16_384), small: ::sim::SMALL }
        }
        (Some(App::Cholesky), Kind::Mutex) => {
            let columns = args.size.unwrap_or(508);
            // A tree of n levels has 2^n - 1 nodes of 4 columns.
            Program::Cholesky { lock, levels: (columns / 4 + 1).ilog2().clamp(1, 10), block: 1 }
        }
        (Some(App::Gauss), Kind::Barrier) => match args.size.unwrap_or(128) {
            // BOUND: equations; 1,000 are 4 MB of words, and take a minute.
            rows @ ..=2000 => Program::Gauss { barrier: lock, rows },
            _ => bail!("gauss solves at most 2000 equations: give a smaller --size"),
        },
        (Some(App::Radiosity), Kind::Mutex) => match args.size.unwrap_or(3) {
            // BOUND: patches a side; 8 are 122,880 pairs in each iteration.
            side @ ..=8 => Program::Radiosity { lock, side },
            _ => bail!("radiosity takes at most 8 patches a side of a wall: give a smaller --size"),
        },
        (Some(App::Lu), Kind::Barrier) => match args.size.unwrap_or(16) {
            // BOUND: blocks a side; 128 are some 700,000 products of blocks.
            blocks @ ..=128 => Program::Lu { barrier: lock, blocks },
            _ => bail!("lu takes at most 128 blocks a side: give a smaller --size"),
        },
        (Some(app), _) => {
            let takes = if matches!(app, App::Gauss | App::Lu) { "barrier" } else { "mutex" };
            let app = clap::ValueEnum::to_possible_value(&app);
            let name = app.as_ref().map_or("", |app| app.get_name());
            bail!("--app {name} takes a {takes}, and {lock} is none: see `wakeful locks`")
        }
        (None, Kind::Mutex) => Program::Mutex { lock, critical_ns, outside_ns },
        (None, Kind::RwLock) => {
            Program::RwLock { lock, critical_ns, outside_ns, writers_percent: args.writers.unwrap_or(5.0) }
        }
        (None, Kind::Barrier) => Program::Barrier { barrier: lock, outside_ns: args.outside.unwrap_or(0.0) },
    };
    let of_level = if barrier { (args.mp * f64::from(processors)).round() as u32 } else { processors };
    if barrier && args.threads.is_some() && args.mp != 1.0 {
        bail!("of a barrier, --mp says how many threads there are:\nleave it or --threads out");
    }
    Ok(Workload {
        program,
        threads: args.threads.unwrap_or(of_level),
        rounds: args.rounds,
        vary: args.vary,
        instances: args.instances,
        setting: Setting {
            foreign: if barrier { 0.0 } else { args.mp - 1.0 },
            bound: !args.unbound,
            repartition: args.repartition.clone().map(|it| Repartition { served: args.served, ..it }),
            hints: args.hints,
            limit_ms: args.limit / 1e6,
            ..Setting::default()
        },
    })
}

#[derive(Serialize)]
struct Run<'a> {
    lock: &'a str,
    mp: f64,
    workload: &'a Workload,
    #[serde(flatten)]
    results: &'a Results,
}

fn run(args: &RunArgs) -> Result<()> {
    let mut machine = machine(&args.machine)?;
    if let Some(processors) = args.processors {
        machine = machine.with_processors(processors);
    }
    let processors = machine.processors.count.value;
    let workload = workload(args, processors)?;
    let begin = Instant::now();
    let results = simulate(&machine, &workload, args.seed)?;
    let took = begin.elapsed().as_secs_f64();
    match args.format {
        Format::Text => text(args, &workload, &results),
        Format::Json => {
            format::json(
                "simulation",
                &Run { lock: &args.lock, mp: args.mp, workload: &workload, results: &results },
            )?;
        }
        Format::Csv => csv(args, &workload, &results)?,
    }
    if args.verbose {
        let executed = (results.accesses - results.passed_over) as f64;
        eprintln!(
            "{took:.2} s: {} accesses a second; {} without those of\nspinners that were passed over",
            format::count(results.accesses as f64 / took),
            format::count(executed / took),
        );
    }
    if let Some(failure) = &results.failure {
        bail!("the simulation ended at {}: {failure}", format::ns((results.elapsed_ms * 1e6) as u64));
    }
    Ok(())
}

/// A cell of a sweep. The whole time is that of a run that is done, or at the rate until the limit.
#[derive(Serialize)]
struct Cell<'a> {
    machine: &'a str,
    processors: u32,
    mp: f64,
    lock: &'a str,
    seed: u64,
    estimated_ms: f64,
    limited: bool,
    /// By the fastest of the cells of this machine, number of processors and level.
    by_best: f64,
    fairness: f64,
    max_wait_ns: Option<u64>,
    failure: Option<&'a str>,
}

/// Refuses what would be simulated, and printed, twice.
fn once<T: PartialEq + std::fmt::Display>(option: &str, values: &[T]) -> Result<()> {
    match values.iter().enumerate().find(|(index, value)| values[..*index].contains(value)) {
        Some((_, value)) => bail!("--{option} has `{value}` twice"),
        None => Ok(()),
    }
}

/// As many at once as there are processors, behind a progress bar of this name.
fn simulate_all(
    name: &'static str,
    jobs: &[(impl Borrow<Machine> + Sync, Workload)],
    seed: u64,
) -> Result<Vec<Results>> {
    let bar = figure::bar(name, jobs.len())?;
    let results = ::sim::in_parallel(
        jobs,
        std::thread::available_parallelism().map_or(1, usize::from),
        |(machine, workload)| simulate(machine.borrow(), workload, seed),
        || bar.inc(1),
    );
    bar.finish_and_clear();
    Ok(results.into_iter().collect::<Result<_, _>>()?)
}

fn sweep(args: &SweepArgs) -> Result<()> {
    let kinds = args.lock.iter().map(|lock| kind(lock)).collect::<Result<Vec<_>>>()?;
    if kinds.windows(2).any(|two| std::mem::discriminant(&two[0]) != std::mem::discriminant(&two[1])) {
        bail!("locks of one kind only can be compared: make a sweep of each kind");
    }
    once("machine", &args.machine)?;
    once("processors", &args.processors)?;
    once("lock", &args.lock)?;
    once("mp", &args.mp)?;
    let mut places = Vec::new();
    for name in &args.machine {
        let machine = machine(name)?;
        let own = [machine.processors.count.value];
        let counts = if args.processors.is_empty() { &own[..] } else { &args.processors };
        for &count in counts {
            args.mp.iter().for_each(|&mp| places.push((machine.clone().with_processors(count), mp)));
        }
    }
    let mut jobs = Vec::new();
    for (machine, mp) in &places {
        for lock in &args.lock {
            let run = RunArgs {
                lock: lock.clone(),
                mp: *mp,
                critical: args.critical,
                outside: args.outside,
                writers: args.writers,
                rounds: args.rounds,
                limit: args.limit,
                ..RunArgs::default()
            };
            jobs.push((machine, workload(&run, machine.processors.count.value)?));
        }
    }
    let results = simulate_all("sweep", &jobs, args.seed)?;
    let mut csv = csv::Writer::from_writer(std::io::stdout());
    for ((machine, mp), results) in places.iter().zip(results.chunks(args.lock.len())) {
        let sound = results.iter().filter(|it| it.failure.is_none()).map(|it| it.estimated_ms);
        let best = sound.fold(f64::INFINITY, f64::min);
        let processors = machine.processors.count.value;
        if args.format == Format::Text {
            println!("{}, {processors} processors, level {mp}", machine.name);
        }
        for (lock, it) in args.lock.iter().zip(results) {
            let cell = Cell {
                machine: &machine.name,
                processors,
                mp: *mp,
                lock,
                seed: args.seed,
                estimated_ms: it.estimated_ms,
                limited: it.limited,
                by_best: it.estimated_ms / best,
                fairness: it.fairness(),
                max_wait_ns: it.waits.as_ref().map(|waits| waits.max_ns),
                failure: it.failure.as_deref(),
            };
            match args.format {
                Format::Json => format::json("cell", &cell)?,
                Format::Csv => csv.serialize(cell)?,
                Format::Text => {
                    let late = if cell.limited { "*" } else { " " };
                    let time = format::ns((cell.estimated_ms * 1e6) as u64);
                    let wait = cell.max_wait_ns.map_or("-".into(), format::ns);
                    println!(
                        "  {lock:<24}{time:>9}{late} {:>8.2} x best, longest wait {wait:>7}",
                        cell.by_best
                    );
                    if let Some(failure) = cell.failure {
                        println!("{}", suggest::wrap(&format!("    failed: {failure}"), suggest::WIDTH));
                    }
                }
            }
        }
    }
    if args.format == Format::Text && results.iter().any(|it| it.limited) {
        println!("* not done at the limit of virtual time; at the rate until then");
    }
    csv.flush()?;
    if let Some(failed) = results.iter().position(|it| it.failure.is_some()) {
        bail!("a simulation failed: {}", args.lock[failed % args.lock.len()]);
    }
    Ok(())
}

/// A row of the table.
#[derive(Serialize)]
struct DefaultRow<'a> {
    kind: &'a str,
    machine: &'a str,
    processors: u32,
    mp: f64,
    default: &'a str,
    best: &'a str,
    /// Rate of the best by that of the default.
    by_best: f64,
    within: bool,
    seed: u64,
}

fn defaults(args: &DefaultsArgs) -> Result<()> {
    let kinds: Vec<_> = args.kind.iter().map(|kind| kind.meant()).collect();
    let cells = experiment::cells(&kinds, &args.processors, &args.mp);
    let limit_ms = args.limit / 1e6;
    let of_cell = |cell: &experiment::Cell| cell.workloads(limit_ms).collect::<Vec<_>>();
    let jobs: Vec<_> = cells
        .iter()
        .flat_map(|cell| of_cell(cell).into_iter().map(|workload| (&cell.machine, workload)))
        .collect();
    let mut results = simulate_all("defaults", &jobs, args.seed)?.into_iter();
    let mut csv = csv::Writer::from_writer(std::io::stdout());
    let mut missed = 0;
    for cell in &cells {
        let of_cell: Vec<_> = results.by_ref().take(of_cell(cell).len()).collect();
        let verdict = cell.verdict(&of_cell).map_err(|why| anyhow!("a simulation failed: {why}"))?;
        missed += usize::from(!verdict.within());
        let row = DefaultRow {
            kind: cell.name(),
            machine: &cell.machine.name,
            processors: cell.machine.processors.count.value,
            mp: cell.level,
            default: verdict.default,
            best: verdict.best,
            by_best: verdict.by_best,
            within: verdict.within(),
            seed: args.seed,
        };
        match args.format {
            Format::Json => format::json("default", &row)?,
            Format::Csv => csv.serialize(row)?,
            Format::Text => println!(
                "{:<14}{:>5} processors, level {:<4}{:>6.2} {} best, {}",
                row.kind,
                row.processors,
                row.mp,
                row.by_best,
                if row.within { "x" } else { "X" },
                row.best,
            ),
        }
    }
    if args.format == Format::Text {
        println!("{missed} of {} more than {} times the best (X)", cells.len(), experiment::WITHIN);
    }
    Ok(csv.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_refused() {
        assert_eq!(time("20us"), Ok(20_000.0));
        assert!(time("2 days").is_err() && time("x").is_err());
        assert_eq!(hints("delayed:10us"), Ok(Hints::Delayed { us: 10.0 }));
        assert!(hints("delayed").is_err() && hints("dropped:2").is_err());
        assert_eq!(
            repartition("80ms:5-11"),
            Ok(Repartition { every_ms: 80.0, least: 5, most: 11, served: false })
        );
        assert!(
            repartition("80ms:11-5").is_err()
                && repartition("80ms").is_err()
                && repartition("0:1-2").is_err()
        );
    }
}
