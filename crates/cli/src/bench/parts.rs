// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful bench parts`: figure 1 of Paznikov 2016.

use std::process::ExitCode;

use ::bench::harness::Plan;
use ::bench::workload::Length;
use ::bench::workload::mutex::Mutex;
use ::bench::workload::parts::{self, CACHE_MISSES, Parts};
use anyhow::{Result, bail};
use launch::suggest;
use serde::Serialize;

use super::{Timing, bar, length, mutexes, say_where, threads, units};
use crate::format::{self, Format};

/// Where a lock's time goes: in the section, and from its end to the next one's beginning
///
/// Figure 1 of Paznikov 2016. Threads run sections under one lock, and then work outside. The hand-over is
/// the time from a section's end to the beginning of the next one, of the same thread or of another. Cache
/// misses in sections are counted in samples of their own, where the processor's counters can be read.
///
/// A contender is a mutex or a delegating lock of `wakeful locks`, or std, parking_lot or glibc. The server
/// of rcl is not counted among the threads.
#[derive(clap::Args)]
pub struct Args {
    /// Critical sections: cache lines updated
    #[arg(long, value_name = "LINES", default_value = "5", value_parser = length)]
    critical: Length,
    /// Units of work outside: turns of an empty loop
    #[arg(long, value_name = "UNITS", default_value = "400", value_parser = units)]
    outside: u64,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,2", value_parser = threads)]
    threads: Vec<usize>,
    /// The contenders
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "CONTENDER",
        default_value = "glibc,mcs-spin,rcl,wakeful"
    )]
    locks: Vec<String>,
    #[command(flatten)]
    timing: Timing,
}

/// What a contender's samples have in the middle.
#[derive(Serialize)]
struct Row<'a> {
    threads: usize,
    contender: &'a str,
    #[serde(flatten)]
    parts: Parts,
}

/// What holds for all rows.
#[derive(Serialize)]
struct Terms {
    clock_ns: f64,
    /// Why no misses are counted.
    no_misses: Option<String>,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let mut known = mutexes();
    known.extend(catalog::DELEGATES.iter().map(|entry| entry.name));
    if let Some(name) = args.locks.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("there is no lock `{name}`.{}", suggest::hint(name, known.iter().copied()));
    }
    let Timing { seconds, warm_up, rounds, format } = args.timing;
    let no_misses = CACHE_MISSES.check().err().map(|error| error.to_string());
    let terms = Terms { clock_ns: parts::clock_ns(), no_misses };
    say_where(format, rounds.into(), seconds, warm_up)?;
    let bar = bar(args.threads.len() * args.locks.len() * usize::from(rounds))?;
    let mut rows = Vec::new();
    for &threads in &args.threads {
        let work = Mutex { critical: args.critical, outside: args.outside, threads };
        let plan = Plan { threads, counted: threads, warm_up, interval: seconds };
        let mut samples = vec![Vec::new(); args.locks.len()];
        for _ in 0..rounds {
            for (samples, lock) in samples.iter_mut().zip(&args.locks) {
                let mut sample = parts::run(&work, lock, plan, None)?;
                if terms.no_misses.is_none() {
                    sample.misses = parts::run(&work, lock, plan, Some(CACHE_MISSES))?.misses;
                }
                samples.push(sample);
                bar.inc(1);
            }
        }
        let row = |(lock, samples): (&'_ String, &Vec<Parts>)| (threads, lock.clone(), middle(samples));
        rows.extend(args.locks.iter().zip(&samples).map(row));
    }
    bar.finish_and_clear();
    let rows: Vec<Row> = rows
        .iter()
        .map(|(threads, lock, parts)| Row { threads: *threads, contender: lock, parts: *parts })
        .collect();
    match format {
        Format::Text => text(args, &terms, &rows),
        Format::Json => {
            format::json("terms", &terms)?;
            rows.iter().try_for_each(|row| format::json("parts", row))?;
        }
        Format::Csv => csv(&rows)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The median of each part.
fn middle(samples: &[Parts]) -> Parts {
    let of = |part: fn(&Parts) -> Option<f64>| {
        let mut found: Vec<f64> = samples.iter().filter_map(part).collect();
        found.sort_by(f64::total_cmp);
        found.get(found.len() / 2).copied()
    };
    Parts {
        section_ns: of(|parts| parts.section_ns),
        same_ns: of(|parts| parts.same_ns),
        other_ns: of(|parts| parts.other_ns),
        others: of(|parts| parts.others),
        misses: of(|parts| parts.misses),
    }
}

fn text(args: &Args, terms: &Terms, rows: &[Row]) {
    let (critical, outside) = (args.critical, args.outside);
    println!(
        "\ncritical {critical}, outside {outside}; ns; a reading of the clock, {:.0}, is in each time",
        terms.clock_ns
    );
    let number =
        |value: Option<f64>, digits: usize| value.map_or("-".into(), |value| format!("{value:.digits$}"));
    for rows in rows.chunk_by(|a, b| a.threads == b.threads) {
        let s = if rows[0].threads == 1 { "" } else { "s" };
        println!(
            "\n{:<16} {:>8} {:>13} {:>12} {:>12} {:>10}",
            format!("{} thread{s}", rows[0].threads),
            "section",
            "next of same",
            "of another",
            "% another's",
            "misses"
        );
        for Row { contender, parts, .. } in rows {
            println!(
                "{contender:<16} {:>8} {:>13} {:>12} {:>12} {:>10}",
                number(parts.section_ns, 0),
                number(parts.same_ns, 0),
                number(parts.other_ns, 0),
                number(parts.others.map(|others| 100.0 * others), 1),
                number(parts.misses, 2)
            );
        }
    }
    if let Some(why) = &terms.no_misses {
        println!("\nno misses: this machine does not count them for us ({why})");
    }
}

fn csv(rows: &[Row]) -> Result<()> {
    let mut table = csv::Writer::from_writer(std::io::stdout());
    table.write_record(["threads", "contender", "section_ns", "same_ns", "other_ns", "others", "misses"])?;
    for Row { threads, contender, parts: Parts { section_ns, same_ns, other_ns, others, misses } } in rows {
        table.serialize((threads, contender, section_ns, same_ns, other_ns, others, misses))?;
    }
    Ok(table.flush()?)
}
