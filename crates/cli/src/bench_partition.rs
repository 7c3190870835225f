// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful bench partition`: figure 3 of Uemura and Kan.

use std::path::PathBuf;
use std::process::ExitCode;

use ::bench::partition::{Load, Panel, Plan, Point};
use ::bench::workload::parallel::Body;
use anyhow::{Context, Result};
use serde::Serialize;
use sim::figure::{self, Axis, Drawing};

use crate::bench::{Timing, bar, say_where, threads};
use crate::format::{self, Format, whole_number};

/// Parallel programs with processors of their own, and without, under a growing load
///
/// Figure 3 of Uemura and Kan: the time of a 64x1024 Fourier transform and of a 300x300 matrix product. They run
/// on microthreads that are bound (in a partition) or free. The load is 0 to 6 processes (the paper's compile),
/// or a program with 0 to 6 threads that computes. Each round runs all of these.
///
/// Needs a running wakefuld with so many processors to give; this command starts the programs that ask for
/// them. Under cgroup v1, start it in the server's base group, or the load is not kept away.
#[derive(clap::Args)]
pub struct Args {
    /// The programs: fft, fft:ROWSxCOLUMNS, matrix, matrix:ROWS
    #[arg(long, value_delimiter = ',', value_name = "APP", default_value = "fft,matrix")]
    app: Vec<Body>,
    /// Microthreads of both; by default, all processors but one
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<usize>,
    /// The load: threads, or a shell command that each process runs again and again
    #[arg(long, value_name = "LOAD", default_value = "threads")]
    load: Vec<Load>,
    /// The most processes, or threads, of the load
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = whole_number::<u16>(1..=1000))]
    most: u16,
    /// Draw it into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    timing: Timing,
}

/// The teams, as the paper's legend has them.
const SERIES: [&str; 3] = ["bound (partition)", "free (no partition)", "free, one a processor"];

pub fn main(args: Args) -> Result<ExitCode> {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
    let threads = args.threads.unwrap_or(processors.saturating_sub(1).max(1));
    if let Some(file) = &args.svg {
        // Not after minutes.
        std::fs::write(file, "").with_context(|| format!("cannot write {}", file.display()))?;
    }
    let mut teams = vec![(threads, true), (threads, false)];
    teams.extend((threads != processors).then_some((processors, false)));
    let plan = Plan {
        program: std::env::current_exe().context("cannot find out where this program is")?,
        prefix: vec!["bench", "job"],
        bodies: args.app,
        loads: args.load,
        most: args.most.into(),
        teams,
        rounds: args.timing.rounds.into(),
        warm_up: args.timing.warm_up,
        interval: args.timing.seconds,
    };
    // Not after the heading.
    linux::server::Connection::open().map_err(crate::partition::explain)?;
    say_where(args.timing.format, plan.rounds, plan.interval, plan.warm_up)?;
    let bar = bar(plan.samples())?;
    let panels = plan.run(|| bar.inc(1))?;
    bar.finish_and_clear();
    let mut table = csv::Writer::from_writer(std::io::stdout());
    for (index, panel) in panels.iter().enumerate() {
        let of = Of { panel: index + 1, app: panel.body.to_string(), load: load(&panel.load) };
        match args.timing.format {
            Format::Text => text(panel),
            Format::Json => {
                panel.points.iter().try_for_each(|point| format::json("point", &Record { of: &of, point }))?
            }
            Format::Csv => csv(&mut table, &of, &panel.points)?,
        }
    }
    if let Some(file) = &args.svg {
        std::fs::write(file, svg(&panels, threads))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Of {
    panel: usize,
    app: String,
    load: &'static str,
}

#[derive(Serialize)]
struct Record<'a> {
    #[serde(flatten)]
    of: &'a Of,
    #[serde(flatten)]
    point: &'a Point,
}

fn load(load: &Load) -> &'static str {
    match load {
        Load::Command(_) => "processes",
        Load::Threads => "computing threads",
    }
}

fn csv(table: &mut csv::Writer<std::io::Stdout>, of: &Of, points: &[Point]) -> Result<()> {
    for point in points {
        let Point { threads, bound, beside, seconds, .. } = point;
        let ratio = point.ratio.map(|it| (it.median, it.low, it.high));
        table.serialize((of, threads, bound, beside, seconds, ratio))?;
    }
    Ok(table.flush()?)
}

/// Points of each team.
fn by_team(panel: &Panel) -> impl Iterator<Item = &[Point]> {
    panel.points.chunk_by(|a, b| (a.threads, a.bound) == (b.threads, b.bound))
}

fn text(panel: &Panel) {
    println!("\n{} under a load of {}: ms, and times that without load", panel.body, load(&panel.load));
    let teams: Vec<&[Point]> = by_team(panel).collect();
    print!("{:>6}", "");
    for team in &teams {
        let Point { threads, bound, .. } = team[0];
        print!(" {:>23}", format!("{threads} {}", if bound { "bound" } else { "free" }));
    }
    println!();
    for beside in 0..teams[0].len() {
        print!("{beside:>6}");
        for Point { seconds, ratio, .. } in teams.iter().map(|team| &team[beside]) {
            let ratio =
                ratio.map_or(String::new(), |it| format!("{:.2} ({:.2}-{:.2})", it.median, it.low, it.high));
            print!(" {:>6.2} {ratio:>16}", seconds * 1e3);
        }
        println!();
    }
}

/// All panels, two in a row.
fn svg(panels: &[Panel], threads: usize) -> String {
    const SIZE: (usize, usize) = (860, 500);
    let rows = panels.len().div_ceil(2);
    let (width, height) = (SIZE.0 * panels.len().min(2), SIZE.1 * rows);
    let mut out =
        format!("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\">\n");
    for (index, panel) in panels.iter().enumerate() {
        let points: Vec<figure::Point> = by_team(panel)
            .zip(SERIES)
            .flat_map(|(team, series)| {
                let of = |point: &Point| (point.beside as f64, point.seconds * 1e3);
                team.iter().map(of).map(move |(x, y)| figure::Point {
                    series,
                    x,
                    y,
                    extrapolated: false,
                    failure: None,
                })
            })
            .collect();
        let s = if threads == 1 { "" } else { "s" };
        let title = format!("{}, {threads} microthread{s}, load: {}", panel.body, load(&panel.load));
        let x = Axis { label: load(&panel.load), unit: "", log: false };
        let y = Axis { label: "execution time", unit: "ms", log: false };
        let series = &SERIES[..by_team(panel).count()];
        let drawn = figure::lines(&Drawing { title: &title, x, y, series, points: &points });
        let (left, top) = (SIZE.0 * (index % 2), SIZE.1 * (index / 2));
        out += &drawn.replacen("<svg ", &format!("<svg x=\"{left}\" y=\"{top}\" "), 1);
    }
    out + "</svg>\n"
}
