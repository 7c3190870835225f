// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `wakeful sim` prints.

use ::sim::{MACHINES, Machine, Program, Results, Workload};
use anyhow::Result;
use launch::suggest;
use serde::Serialize;

use super::{App, MachinesArgs, RunArgs, machine};
use crate::format::{self, Format};

#[derive(Serialize)]
struct CsvRun<'a> {
    machine: &'a str,
    processors: u32,
    lock: &'a str,
    threads: u32,
    instances: u32,
    mp: f64,
    seed: u64,
    elapsed_ms: f64,
    estimated_ms: f64,
    limited: bool,
    sections: u64,
    rate: f64,
    fairness: f64,
    wait_mean_ns: Option<f64>,
    p50_ns: Option<u64>,
    p90_ns: Option<u64>,
    p99_ns: Option<u64>,
    p999_ns: Option<u64>,
    max_ns: Option<u64>,
    cpu_ms: f64,
    work_ms: f64,
    foreign_ms: f64,
    context_switches: u64,
    preemptions: u64,
    put_off: u64,
    migrations: u64,
    accesses: u64,
    misses: u64,
    queued_ms: f64,
}

pub(super) fn csv(args: &RunArgs, workload: &Workload, results: &Results) -> Result<()> {
    let waits = results.waits.as_ref();
    let mut csv = csv::Writer::from_writer(std::io::stdout());
    csv.serialize(CsvRun {
        machine: &results.machine,
        processors: results.processors,
        lock: &args.lock,
        threads: workload.threads,
        instances: workload.instances,
        mp: args.mp,
        seed: results.seed,
        elapsed_ms: results.elapsed_ms,
        estimated_ms: results.estimated_ms,
        limited: results.limited,
        sections: results.sections,
        rate: results.rate(),
        fairness: results.fairness(),
        wait_mean_ns: waits.map(|waits| waits.mean_ns),
        p50_ns: waits.map(|waits| waits.p50_ns),
        p90_ns: waits.map(|waits| waits.p90_ns),
        p99_ns: waits.map(|waits| waits.p99_ns),
        p999_ns: waits.map(|waits| waits.p999_ns),
        max_ns: waits.map(|waits| waits.max_ns),
        cpu_ms: results.cpu_ms,
        work_ms: results.work_ms,
        foreign_ms: results.foreign_ms,
        context_switches: results.context_switches,
        preemptions: results.preemptions,
        put_off: results.put_off,
        migrations: results.migrations,
        accesses: results.accesses,
        misses: results.misses,
        queued_ms: results.queued_ms,
    })?;
    Ok(csv.flush()?)
}

pub(super) fn text(args: &RunArgs, workload: &Workload, results: &Results) {
    let ms = |ms: f64| format::ns((ms * 1e6) as u64);
    let share = |part: f64, whole: f64| if whole > 0.0 { 100.0 * part / whole } else { 0.0 };
    let barrier = matches!(workload.program, Program::Barrier { .. } | Program::Gauss { .. });
    let what = match args.app {
        None if barrier => "episodes",
        None => "sections",
        Some(App::Quicksort) => "numbers ",
        Some(_) => "columns ",
    };
    println!("{} on {}, {} processors", args.lock, results.machine, results.processors);
    println!(
        "{} threads{}, level {}, seed {}",
        workload.threads,
        if workload.instances > 1 {
            format!(" in each of {} programs", workload.instances)
        } else {
            String::new()
        },
        args.mp,
        results.seed
    );
    println!();
    let late = if results.limited { " (the limit; not done)" } else { "" };
    println!("virtual time    {}{late}", ms(results.elapsed_ms));
    if results.limited {
        println!("at this rate    {}", ms(results.estimated_ms));
    }
    // Each thread counts an episode; people count it once.
    let parties = if barrier { f64::from(workload.threads) } else { 1.0 };
    println!(
        "{what}        {}, {} a second",
        results.sections as f64 / parties,
        format::count(results.rate() / parties)
    );
    if let Some(digest) = results.digest {
        println!("digest          {digest:08x}");
    }
    if let Some(waits) = &results.waits {
        println!(
            "waits           p50 {}  p90 {}  p99 {}  p99.9 {}  max {}",
            format::ns(waits.p50_ns),
            format::ns(waits.p90_ns),
            format::ns(waits.p99_ns),
            format::ns(waits.p999_ns),
            format::ns(waits.max_ns)
        );
    }
    println!(
        "processor time  {}, {:.1} % of it work; foreign {}",
        ms(results.cpu_ms),
        share(results.work_ms, results.cpu_ms),
        ms(results.foreign_ms)
    );
    println!(
        "kernel          {} switches, {} preemptions, {} put off, {} migrations",
        results.context_switches, results.preemptions, results.put_off, results.migrations
    );
    println!(
        "accesses        {}, {:.1} % misses, which queued for {}",
        format::whole(results.accesses),
        share(results.misses as f64, results.accesses as f64),
        ms(results.queued_ms)
    );
}

#[derive(Serialize)]
pub(super) struct MachineLine<'a> {
    machine: &'a str,
    processors: u32,
    summary: &'a str,
}

#[derive(Serialize)]
pub(super) struct FigureLine<'a> {
    machine: &'a str,
    #[serde(flatten)]
    figure: &'a ::sim::Figure,
}

#[derive(Serialize)]
pub(super) struct CsvFigure<'a> {
    machine: &'a str,
    field: &'a str,
    value: &'a str,
    source: &'a str,
}

pub(super) fn machines(args: &MachinesArgs) -> Result<()> {
    let all = MACHINES.iter().filter_map(|name| Machine::named(name));
    match &args.machine {
        None => {
            let all: Vec<Machine> = all.collect();
            let lines = all.iter().map(|machine| MachineLine {
                machine: &machine.name,
                processors: machine.processors.count.value,
                summary: &machine.summary,
            });
            match args.format {
                Format::Text => lines.for_each(|line| {
                    println!("{:<18}{:>5}  {}", line.machine, line.processors, line.summary)
                }),
                Format::Json => lines.into_iter().try_for_each(|line| format::json("machine", &line))?,
                Format::Csv => {
                    let mut csv = csv::Writer::from_writer(std::io::stdout());
                    lines.into_iter().try_for_each(|line| csv.serialize(line))?;
                    csv.flush()?;
                }
            }
        }
        Some(name) => {
            let machine = machine(name)?;
            let figures = machine.figures();
            match args.format {
                Format::Text => {
                    println!("{}: {}", machine.name, machine.summary);
                    for figure in &figures {
                        println!("{:<40}{:>12}", figure.field, figure.value);
                        println!("{}", suggest::wrap(&format!("    {}", figure.source), suggest::WIDTH));
                    }
                }
                Format::Json => figures.iter().try_for_each(|figure| {
                    format::json("figure", &FigureLine { machine: &machine.name, figure })
                })?,
                Format::Csv => {
                    let mut csv = csv::Writer::from_writer(std::io::stdout());
                    for ::sim::Figure { field, value, source } in &figures {
                        csv.serialize(CsvFigure { machine: &machine.name, field, value, source })?;
                    }
                    csv.flush()?;
                }
            }
        }
    }
    Ok(())
}
