// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `wakeful bench` prints.

use std::io::IsTerminal;
use std::time::Duration;

use ::bench::contender::Contender;
use ::bench::job::Work;
use ::bench::machine::{self, Machine};
use ::bench::suite::{Cell, Row, Suite, Watch, summarise};
use ::bench::workload::{Length, parallel::Body};
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use launch::suggest;
use serde::Serialize;

use crate::format::{self, Format};

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
        command: launch::shell_words(std::env::args()),
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

pub(super) struct Show {
    format: Format,
    bar: ProgressBar,
    csv: csv::Writer<std::io::Stdout>,
}

impl Show {
    pub(super) fn new(suite: &Suite, format: Format) -> Result<Self> {
        say_where(format, suite.rounds, suite.interval, suite.warm_up)?;
        let bar = bar(suite.samples())?;
        Ok(Self { format, bar, csv: csv::Writer::from_writer(std::io::stdout()) })
    }

    pub(super) fn end(self, cells: &[Cell], rounds: usize) -> Result<()> {
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

/// Which view each contender took that did not say which. The best view of a machine may change with who
/// runs us.
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
        Work::Mutex(work) | Work::Delegate(work) | Work::Spin(work) => {
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

/// Nanoseconds an operation, if there was one.
fn each(ns: f64) -> String {
    if ns.is_finite() { format!("{ns:.0}") } else { "-".into() }
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
            print!(" {:>6}", each(row.ns));
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
    ns: Option<f64>,
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
        Work::Delegate(work) => ("delegate", Some(work.critical), None, work.outside, None),
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
        // Nothing was done.
        ns: row.ns.is_finite().then_some(row.ns),
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
    use super::warning;

    #[test]
    fn warnings_fit_a_terminal() {
        for (noisy, rounds) in [(123_456, 1), (123_456, 5), (0, 1)] {
            let text = format!("wakeful: {}", warning(noisy, rounds, 999_999).unwrap());
            assert!(text.lines().all(|line| line.len() < 80), "{text}");
        }
        assert_eq!(warning(0, 5, 10), None);
        assert_eq!(warning(0, 1, 0), None);
    }
}
