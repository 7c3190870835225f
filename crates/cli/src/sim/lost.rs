// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful sim lost`: table 1 of TR 1994 with numbers.

use std::path::PathBuf;

use ::sim::{Bar, Lost, Machine, Workload, bars};
use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::{RunArgs, level, machine, once, percent, simulate_all, time, workload};
use crate::format::{self, Format, whole_number};

/// Those of TR 1994, section 5.2.
const LOCKS: &str =
    "tas-b,tas-b-np,queue,queue-np,queue-hs,smart-q,ticket-spin,ticket-np,hardware,hardware-np";

/// What processor time is lost to: preempted holders, preempted waiters, spinning, switches
///
/// Threads run the loop of `wakeful sim run` at each lock or barrier and each multiprogramming level. The
/// numbers are parts of the processor time that the program had: work, and waiting on a processor. They wait
/// for a holder without one, for the next waiter without one, for a holder that runs, or while the lock is
/// handed over. At a barrier, the holder is a thread that has not come yet.
#[derive(clap::Args)]
pub struct LostArgs {
    /// One of `wakeful sim machines`, or a file with a description
    #[arg(long, value_name = "MACHINE", default_value = "sgi-challenge-11")]
    machine: String,
    /// Another number of processors than the machine's
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(1..=256))]
    processors: Option<u32>,
    /// Locks or barriers of `wakeful locks`
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = LOCKS
    )]
    lock: Vec<String>,
    /// Multiprogramming levels
    #[arg(
        long,
        value_name = "LEVEL,...",
        value_delimiter = ',',
        default_value = "1,2,4",
        value_parser = level
    )]
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
    #[arg(long, value_name = "N", default_value = "600", value_parser = whole_number::<u64>(1..=100_000))]
    rounds: u64,
    /// Each simulation ends after this virtual time, done or not
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    limit: f64,
    /// Seed of all that is random
    #[arg(long, value_name = "SEED", default_value = "1", value_parser = whole_number::<u64>(0..))]
    seed: u64,
    /// Draw it into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Serialize)]
struct Row<'a> {
    machine: &'a str,
    processors: u32,
    mp: f64,
    lock: &'a str,
    seed: u64,
    limited: bool,
    #[serde(flatten)]
    lost: &'a Lost,
}

/// Parts of the processor time. The four behind `work` are spent waiting.
#[derive(Serialize)]
struct Parts<'a> {
    machine: &'a str,
    processors: u32,
    mp: f64,
    lock: &'a str,
    seed: u64,
    limited: bool,
    processors_ms: f64,
    work: f64,
    holder_preempted: f64,
    waiter_preempted: f64,
    holder_runs: f64,
    hand_over: f64,
    switches: f64,
    refills: f64,
    rest: f64,
    /// Waiting asleep, by the same whole, of which it is no part.
    slept: f64,
}

fn parts<'a>(row: &Row<'a>) -> Parts<'a> {
    let lost = row.lost;
    let whole = lost.processors() as f64;
    let part = |time: u64| if whole > 0.0 { time as f64 / whole } else { 0.0 };
    Parts {
        machine: row.machine,
        processors: row.processors,
        mp: row.mp,
        lock: row.lock,
        seed: row.seed,
        limited: row.limited,
        processors_ms: whole / 1e9,
        work: part(lost.work),
        holder_preempted: part(lost.spun.holder_preempted),
        waiter_preempted: part(lost.spun.waiter_preempted),
        holder_runs: part(lost.spun.holder_runs),
        hand_over: part(lost.spun.hand_over),
        switches: part(lost.switches),
        refills: part(lost.refills),
        rest: part(lost.rest),
        slept: part(lost.slept.sum()),
    }
}

fn text(row: &Row, first: bool) {
    let parts = parts(row);
    if first {
        println!("{}, {} processors, level {}; % of the processor time", row.machine, row.processors, row.mp);
        println!(
            "  {:<16}{:>6}{:>9}{:>9}{:>7}{:>6}{:>8}{:>6}{:>8}",
            "", "work", "holder", "waiter", "holder", "hand-", "switch,", "rest", "asleep,"
        );
        println!(
            "  {:<16}{:>6}{:>9}{:>9}{:>7}{:>6}{:>8}{:>6}{:>8}",
            "", "", "preempt.", "preempt.", "runs", "over", "refill", "", "waiting"
        );
    }
    let late = if row.limited { "*" } else { " " };
    println!(
        "  {:<16}{:>6.1}{:>9.1}{:>9.1}{:>7.1}{:>6.1}{:>8.1}{:>6.1}{:>8.1}{late}",
        row.lock,
        100.0 * parts.work,
        100.0 * parts.holder_preempted,
        100.0 * parts.waiter_preempted,
        100.0 * parts.holder_runs,
        100.0 * parts.hand_over,
        100.0 * (parts.switches + parts.refills),
        100.0 * parts.rest,
        100.0 * parts.slept,
    );
}

fn jobs<'a>(args: &LostArgs, machine: &'a Machine) -> Result<Vec<(&'a Machine, Workload)>> {
    let mut jobs = Vec::new();
    for &mp in &args.mp {
        for lock in &args.lock {
            let run = RunArgs {
                lock: lock.clone(),
                mp,
                critical: args.critical,
                outside: args.outside,
                writers: args.writers,
                rounds: args.rounds,
                limit: args.limit,
                ..RunArgs::default()
            };
            let mut workload = workload(&run, machine.processors.count.value)?;
            workload.setting.lost = true;
            jobs.push((machine, workload));
        }
    }
    Ok(jobs)
}

fn drawing(args: &LostArgs, rows: &[Row]) -> String {
    let all = rows.iter().map(|row| Bar {
        name: row.lock.into(),
        group: format!("level {}", row.mp),
        lost: *row.lost,
    });
    let title = format!("What processor time is lost to: {}", args.machine);
    bars(&title, &all.collect::<Vec<_>>())
}

pub fn main(args: &LostArgs) -> Result<()> {
    once("lock", &args.lock)?;
    once("mp", &args.mp)?;
    let mut machine = machine(&args.machine)?;
    if let Some(processors) = args.processors {
        machine = machine.with_processors(processors);
    }
    let jobs = jobs(args, &machine)?;
    if let Some(file) = &args.svg {
        // Not after minutes.
        std::fs::write(file, "").with_context(|| format!("cannot write {}", file.display()))?;
    }
    let results = simulate_all("lost", &jobs, args.seed)?;
    let cells = args.mp.iter().flat_map(|&mp| args.lock.iter().map(move |lock| (mp, lock)));
    let mut rows = Vec::new();
    for ((mp, lock), results) in cells.zip(&results) {
        if let Some(failure) = &results.failure {
            bail!("a simulation of {lock} failed: {failure}");
        }
        rows.push(Row {
            machine: &machine.name,
            processors: machine.processors.count.value,
            mp,
            lock,
            seed: args.seed,
            limited: results.limited,
            lost: results.lost.as_ref().context("the setting asks for it")?,
        });
    }
    let mut csv = csv::Writer::from_writer(std::io::stdout());
    for (index, row) in rows.iter().enumerate() {
        match args.format {
            Format::Json => format::json("lost", row)?,
            Format::Csv => csv.serialize(parts(row))?,
            Format::Text => text(row, index % args.lock.len() == 0),
        }
    }
    csv.flush()?;
    if args.format == Format::Text && rows.iter().any(|row| row.limited) {
        println!("* not done at the limit of virtual time");
    }
    if let Some(file) = &args.svg {
        std::fs::write(file, drawing(args, &rows))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}
