// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful sim knowledge`: what it is worth to the defaults to know which threads run.

use std::path::PathBuf;

use ::sim::figure::{Axis, Drawing, Point, lines};
use ::sim::knowledge::{Knowledge, LEAST, Loop, Worth, limit_ms, loops, machine};
use ::sim::{Machine, Workload, simulate};
use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::{DefaultKind, level, once, time};
use crate::figure;
use crate::format::{self, Format, whole_number};

/// What it is worth to the defaults to know which threads run, by processors and multiprogramming level
///
/// The default mutex, reader-writer lock and barrier run the loops of `wakeful sim defaults` without hints,
/// with true ones, with hints that come a context switch late and, the locks, with true hints under a kernel
/// that honours the holder's wish not to be preempted. The numbers are the rates in times that without hints.
#[derive(clap::Args)]
pub struct KnowledgeArgs {
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
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "2,4,8,16,32,64,128,256,512,1024",
        value_parser = whole_number::<u32>(2..=1024)
    )]
    processors: Vec<u32>,
    /// Multiprogramming levels
    #[arg(
        long,
        value_name = "LEVEL,...",
        value_delimiter = ',',
        default_value = "1,2,4",
        value_parser = level
    )]
    mp: Vec<f64>,
    /// Each cell runs with so many seeds; noise is what differs among them
    #[arg(
        long,
        value_name = "N",
        default_value = "5",
        value_parser = whole_number::<u32>(1..=1000)
    )]
    seeds: u32,
    /// Each simulation ends after this virtual time [default: 3.2s by the number of processors, from 30ms to
    /// 400ms; barriers a quarter]
    #[arg(long, value_name = "TIME", value_parser = time)]
    limit: Option<f64>,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value = "1", value_parser = whole_number::<u64>(0..))]
    seed: u64,
    /// Draw it into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// A place of the figure, with the rates of each seed without hints and with each kind of them.
struct Cell {
    of: &'static Loop,
    machine: Machine,
    level: f64,
}

impl Cell {
    fn conditions(&self) -> impl Iterator<Item = Knowledge> {
        [Knowledge::None].into_iter().chain(self.of.known().iter().copied())
    }
}

#[derive(Serialize)]
struct Row<'a> {
    kind: &'a str,
    machine: &'a str,
    processors: u32,
    mp: f64,
    known: Knowledge,
    /// Sections or episodes a second without hints, the mean of the seeds.
    unknown_rate: f64,
    /// In times that.
    ratio: f64,
    /// One standard error.
    error: f64,
    seeds: u32,
    seed: u64,
}

fn rows<'a>(args: &KnowledgeArgs, cell: &'a Cell, rates: &[Vec<f64>]) -> Vec<Row<'a>> {
    let unknown = &rates[0];
    let each = cell.of.known().iter().zip(&rates[1..]).map(|(&known, rates)| {
        let Worth { ratio, error } = Worth::of(rates, unknown);
        Row {
            kind: cell.of.name,
            machine: &cell.machine.name,
            processors: cell.machine.processors.count.value,
            mp: cell.level,
            known,
            unknown_rate: unknown.iter().sum::<f64>() / unknown.len() as f64,
            ratio,
            error,
            seeds: args.seeds,
            seed: args.seed,
        }
    });
    each.collect()
}

fn worth(row: &Row) -> Worth {
    Worth { ratio: row.ratio, error: row.error }
}

/// All rates, cell by cell, by what is known, by seed.
fn rates(args: &KnowledgeArgs, cells: &[Cell]) -> Result<Vec<Vec<Vec<f64>>>> {
    let mut jobs: Vec<(&Machine, Workload, u64)> = Vec::new();
    for cell in cells {
        let of_machine = limit_ms(cell.of.kind, cell.machine.processors.count.value);
        let limit = args.limit.map_or(of_machine, |limit| limit / 1e6);
        for known in cell.conditions() {
            let workload = cell.of.workload(&cell.machine, cell.level, known, limit);
            let seeds = (0..args.seeds).map(|number| args.seed.wrapping_add(number.into()));
            jobs.extend(seeds.map(|seed| (&cell.machine, workload.clone(), seed)));
        }
    }
    let bar = figure::bar("knowledge", jobs.len())?;
    let results = ::sim::in_parallel(
        &jobs,
        std::thread::available_parallelism().map_or(1, usize::from),
        |(machine, workload, seed)| simulate(machine, workload, *seed),
        || bar.inc(1),
    );
    bar.finish_and_clear();
    let mut results = results.into_iter();
    let mut one = || -> Result<f64> {
        let results = results.next().context("a job has a result")??;
        match results.failure {
            Some(failure) => bail!("a simulation failed: {failure}"),
            None => Ok(results.rate()),
        }
    };
    let mut of_cell = |cell: &Cell| -> Result<Vec<Vec<f64>>> {
        cell.conditions().map(|_| (0..args.seeds).map(|_| one()).collect()).collect()
    };
    cells.iter().map(&mut of_cell).collect()
}

pub fn main(args: &KnowledgeArgs) -> Result<()> {
    once("processors", &args.processors)?;
    once("mp", &args.mp)?;
    if let Some(file) = &args.svg {
        // Not after minutes.
        std::fs::write(file, "").with_context(|| format!("cannot write {}", file.display()))?;
    }
    let kinds: Vec<_> = args.kind.iter().map(|kind| kind.meant()).collect();
    let mut cells = Vec::new();
    for of in loops(&kinds) {
        for &count in &args.processors {
            cells.extend(args.mp.iter().map(|&level| Cell { of, machine: machine(count), level }));
        }
    }
    let rates = rates(args, &cells)?;
    let all: Vec<Vec<Row>> = cells.iter().zip(&rates).map(|(cell, rates)| rows(args, cell, rates)).collect();
    let mut csv = csv::Writer::from_writer(std::io::stdout());
    for rows in &all {
        match args.format {
            Format::Json => rows.iter().try_for_each(|row| format::json("knowledge", row))?,
            Format::Csv => rows.iter().try_for_each(|row| csv.serialize(row))?,
            Format::Text => text(rows),
        }
    }
    csv.flush()?;
    let flat: Vec<&Row> = all.iter().flatten().collect();
    if args.format == Format::Text {
        let lost = flat.iter().filter(|row| worth(row).lost()).count();
        let surely = flat.iter().filter(|row| worth(row).surely_lost()).count();
        println!("{lost} of {} below {LEAST} (x), {surely} of them by more than two errors (X)", flat.len());
    }
    if let Some(file) = &args.svg {
        std::fs::write(file, drawing(args, &flat)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

fn text(rows: &[Row]) {
    let Row { kind, processors, mp, .. } = rows[0];
    print!("{kind:<14}{processors:>5} processors, level {mp:<4}");
    for row in rows {
        let mark = if worth(row).surely_lost() {
            "X"
        } else if worth(row).lost() {
            "x"
        } else {
            " "
        };
        print!("  {:>6} {:>5.2}{mark}", row.known.name(), row.ratio);
    }
    println!();
}

/// One picture a loop, below one another.
fn drawing(args: &KnowledgeArgs, rows: &[&Row]) -> Result<String> {
    const HEIGHT: usize = 500;
    let x = Axis { label: "processors", unit: "", log: true };
    let y = Axis { label: "rate, in times that without hints", unit: "", log: true };
    let kinds: Vec<_> = args.kind.iter().map(|kind| kind.meant()).collect();
    let mut pictures = String::new();
    let mut top = 0;
    for of in loops(&kinds) {
        let own = || rows.iter().filter(|row| row.kind == of.name);
        let places = of.known().iter().flat_map(|&known| args.mp.iter().map(move |&level| (known, level)));
        let name = |known: Knowledge, level: f64| format!("{}, level {level}", known.name());
        let places: Vec<_> = places.map(|(known, level)| (known, level, name(known, level))).collect();
        let mut points = Vec::new();
        for (known, level, series) in &places {
            // The figures' series live as long as the program; so do these few.
            let series: &'static str = series.clone().leak();
            let own = own().filter(|row| row.known == *known && row.mp == *level);
            points.extend(own.map(|row| Point {
                series,
                x: row.processors.into(),
                y: row.ratio,
                extrapolated: false,
                failure: None,
            }));
        }
        let series: Vec<&str> = places.iter().map(|(_, _, name)| name.as_str()).collect();
        let title = format!("What knowledge is worth: {}", of.name);
        let picture = lines(&Drawing { title: &title, x, y, series: &series, points: &points });
        pictures += &picture.replacen("<svg ", &format!("<svg y=\"{top}\" "), 1);
        top += HEIGHT;
    }
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 860 {top}\" width=\"860\" \
         height=\"{top}\">\n{pictures}</svg>\n"
    ))
}
