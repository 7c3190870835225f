// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful sim delegate`: sections that another thread may run, on the simulated machines.

use std::borrow::Borrow;

use ::sim::delegation::{DEFAULT, LOCKS, workload};
use ::sim::{Machine, Path, Results};
use anyhow::{Result, bail};
use launch::suggest;
use serde::Serialize;

use super::{machine, once, simulate_all, time};
use crate::format::{self, Format, whole_number};

/// Delegating locks and mutexes: sections a second by what a section touches and by the number of clients
///
/// Each client has a section run that reads and writes some lines, and works outside. The last processor is
/// left to the server of a lock that needs one. Rates are in times those of the default mutex.
#[derive(clap::Args)]
pub struct DelegateArgs {
    /// One of `wakeful sim machines`, or a file with a description
    #[arg(long, value_name = "MACHINE", default_value = "epyc-64")]
    machine: String,
    /// Delegating locks or mutexes of `wakeful locks` [default: some of both]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    lock: Vec<String>,
    /// Clients
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "8,32,63",
        value_parser = whole_number::<u32>(1..=4_000)
    )]
    clients: Vec<u32>,
    /// Lines that a section reads and writes
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "1,2,3,5,20",
        value_parser = whole_number::<u32>(0..=100_000)
    )]
    lines: Vec<u32>,
    /// Length of the work outside
    #[arg(long, value_name = "TIME", default_value = "200ns", value_parser = time)]
    outside: f64,
    /// Each simulation ends after this virtual time
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = time)]
    limit: f64,
    /// Seed of all that is random
    #[arg(long, value_name = "SEED", default_value = "1", value_parser = whole_number::<u64>(0..))]
    seed: u64,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// A lock in a cell.
#[derive(Serialize)]
struct Row<'a> {
    machine: &'a str,
    clients: u32,
    lines: u32,
    lock: &'a str,
    seed: u64,
    /// Sections a second.
    rate: f64,
    /// In times that of the default mutex.
    by_default: Option<f64>,
    handover_ns: Option<f64>,
    section_ns: Option<f64>,
    misses: Option<f64>,
    /// Threads that went to sleep, a section.
    sleeps: f64,
    failure: Option<&'a str>,
}

fn check(names: &[&str]) -> Result<()> {
    let all = || catalog::DELEGATES.iter().map(|it| it.name).chain(catalog::MUTEXES.iter().map(|it| it.name));
    match names.iter().find(|name| !all().any(|it| it == **name)) {
        None => Ok(()),
        Some(name) => bail!("there is no delegating lock or mutex `{name}`.{}", suggest::hint(name, all())),
    }
}

pub fn main(args: &DelegateArgs) -> Result<()> {
    let names: Vec<&str> =
        if args.lock.is_empty() { LOCKS.to_vec() } else { args.lock.iter().map(Borrow::borrow).collect() };
    check(&names)?;
    once("lock", &names)?;
    once("clients", &args.clients)?;
    once("lines", &args.lines)?;
    let machine = machine(&args.machine)?;
    let cells: Vec<(u32, u32)> =
        args.lines.iter().flat_map(|&lines| args.clients.iter().map(move |&it| (lines, it))).collect();
    let mut jobs = Vec::new();
    for &(lines, clients) in &cells {
        let of = |lock: &&str| workload(&machine, lock, clients, lines, args.outside, args.limit / 1e6);
        jobs.extend(names.iter().map(|lock| (&machine, of(lock))));
    }
    let results = simulate_all("delegate", &jobs, args.seed)?;
    if args.format == Format::Text {
        let of = if names.contains(&DEFAULT) { "in times those of wakeful" } else { "in thousands" };
        println!("{}: sections a second, {of}", machine.name);
        print!("{:>6}{:>8}", "lines", "clients");
        names.iter().for_each(|name| print!(" {name:>w$}", w = width(name)));
        println!();
    }
    let mut csv = csv::Writer::from_writer(std::io::stdout());
    for (&(lines, clients), results) in cells.iter().zip(results.chunks(names.len())) {
        let rows = rows(&machine, args.seed, (lines, clients), &names, results);
        match args.format {
            Format::Json => rows.iter().try_for_each(|row| format::json("delegation", row))?,
            Format::Csv => rows.iter().try_for_each(|row| csv.serialize(row))?,
            Format::Text => text(&rows),
        }
    }
    csv.flush()?;
    match results.iter().find_map(|it| it.failure.as_ref()) {
        None => Ok(()),
        Some(failure) => bail!("a simulation failed: {failure}"),
    }
}

fn rows<'a>(
    machine: &'a Machine,
    seed: u64,
    (lines, clients): (u32, u32),
    names: &[&'a str],
    results: &'a [Results],
) -> Vec<Row<'a>> {
    let default = names.iter().position(|&name| name == DEFAULT).map(|place| results[place].rate());
    let each = names.iter().zip(results).map(|(&lock, it)| {
        let path = |of: fn(&Path) -> f64| it.path.as_ref().map(of);
        let sleeps: u64 = it.threads.iter().map(|thread| thread.sleeps).sum();
        Row {
            machine: &machine.name,
            clients,
            lines,
            lock,
            seed,
            rate: it.rate(),
            by_default: default.map(|default| it.rate() / default),
            handover_ns: path(|path| path.handover_ns),
            section_ns: path(|path| path.section_ns),
            misses: path(|path| path.misses),
            sleeps: sleeps as f64 / it.sections.max(1) as f64,
            failure: it.failure.as_deref(),
        }
    });
    each.collect()
}

fn width(name: &str) -> usize {
    name.len().max(7)
}

fn text(rows: &[Row]) {
    print!("{:>6}{:>8}", rows[0].lines, rows[0].clients);
    for row in rows {
        let shown = match (row.failure, row.by_default) {
            (Some(_), _) => "failed".into(),
            (None, Some(by_default)) => format!("{by_default:.2}"),
            (None, None) => format!("{:.0}", row.rate / 1e3),
        };
        print!(" {shown:>w$}", w = width(row.lock));
    }
    println!();
}
