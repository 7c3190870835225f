// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful compare`: a program with and without, in turns, and what that shows.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use ::bench::compare::{Comparison, End, Output, Plan, Run, Side, Verdict, compare};
use ::bench::machine::{self, Machine};
use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use launch::closure::Reach;
use launch::{Launch, Taken};
use serde::Serialize;

use crate::format::{self, Format, whole_number};
use crate::target::Target;

/// Run a program with and without, in turns, and say what difference it makes
///
/// The program must do the same work in every run. Its standard input is empty. Exit status: 0 if there is a
/// comparison, also an unfavourable one; 1 if the runs did not end alike or well. 125, 126 and 127 are those of
/// `wakeful run`.
#[derive(clap::Args)]
pub struct Args {
    /// Pairs of runs
    #[arg(short = 'n', long, default_value = "5", value_parser = whole_number::<u16>(1..))]
    pairs: u16,
    /// Pairs before them that do not count: they warm caches
    #[arg(long, value_name = "N", default_value = "1")]
    warm_ups: u16,
    /// Kill a run that takes longer, such as 90s or 10m
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    timeout: Option<Duration>,
    /// Judge also if the program ends with another exit status than 0, the same in every run
    #[arg(short, long)]
    ignore_failure: bool,
    /// Let the program write to our standard error
    #[arg(long, conflicts_with = "same_output")]
    show_output: bool,
    /// Demand that all runs write the same to standard output
    #[arg(long)]
    same_output: bool,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    #[command(flatten)]
    launch: Target,
}

fn timeout(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| "give a time above 0 with its unit, such as 90s".to_string())
}

pub fn main(args: Args) -> Result<ExitCode> {
    launch::check_not_preloaded()?;
    let launch = Launch::prepare(args.launch.into(), Reach::All)?;
    if let Some(obstacle) = &launch.program.obstacle {
        bail!("there is nothing to compare, `{}` cannot be helped:\n{obstacle}", launch.name());
    }
    let Taken { taken: view, instead } = launch.taken_view()?;
    if let Some(instead) = instead {
        eprintln!("wakeful: {instead}");
    }
    let output = match (args.show_output, args.same_output) {
        (true, _) => Output::Show,
        (_, true) => Output::Compare,
        _ => Output::Discard,
    };
    let plan = Plan {
        plain: &|| launch.plain(),
        helped: &|| launch.helped(),
        pairs: args.pairs.into(),
        warm_ups: args.warm_ups.into(),
        timeout: args.timeout,
        output,
        ignore_failure: args.ignore_failure,
    };
    let runs = 2 * (plan.pairs + plan.warm_ups);
    let bar = if std::io::stderr().is_terminal() && output != Output::Show {
        let style = ProgressStyle::with_template("{wide_bar} run {pos} of {len}, {eta} left")?;
        ProgressBar::new(runs as u64).with_style(style)
    } else {
        ProgressBar::hidden()
    };
    bar.enable_steady_tick(Duration::from_secs(1));
    let result = compare(&plan, || bar.inc(1));
    bar.finish_and_clear();
    let result = result.map_err(|error| launch.cannot_run(&error))?;
    match args.format {
        Format::Text => text(&launch, &view, &result),
        Format::Json => json(&launch, &view, &result)?,
        Format::Csv => csv(&result)?,
    }
    Ok(match result.verdict {
        Verdict::Failed | Verdict::EndsDiffer | Verdict::OutputsDiffer => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

#[derive(Serialize)]
struct Record<'a> {
    date: String,
    command: String,
    program: String,
    version: &'static str,
    machine: Machine,
    lock: &'a str,
    view: &'a str,
    view_asked: &'a str,
    #[serde(flatten)]
    comparison: &'a Comparison,
}

fn json(launch: &Launch, view: &str, comparison: &Comparison) -> Result<()> {
    let record = Record {
        date: machine::date(),
        command: launch::shell_words(std::env::args()),
        program: launch.words(),
        version: env!("CARGO_PKG_VERSION"),
        machine: Machine::here(),
        lock: launch.lock(),
        view,
        view_asked: launch.view(),
        comparison,
    };
    format::json("compare", &record)
}

#[derive(Serialize)]
struct CsvRun {
    pair: usize,
    side: &'static str,
    end: String,
    wall_seconds: f64,
    user_seconds: f64,
    system_seconds: f64,
    voluntary_switches: u64,
    involuntary_switches: u64,
}

fn csv(comparison: &Comparison) -> Result<()> {
    let mut csv = csv::Writer::from_writer(std::io::stdout());
    let row = |pair: usize, side, run: &Run| CsvRun {
        pair: pair + 1,
        side,
        end: run.end.to_string(),
        wall_seconds: run.wall_seconds,
        user_seconds: run.usage.user_seconds,
        system_seconds: run.usage.system_seconds,
        voluntary_switches: run.usage.voluntary_switches,
        involuntary_switches: run.usage.involuntary_switches,
    };
    for (pair, (plain, helped)) in comparison.plain_runs.iter().zip(&comparison.helped_runs).enumerate() {
        csv.serialize(row(pair, "plain", plain))?;
        csv.serialize(row(pair, "wakeful", helped))?;
    }
    Ok(csv.flush()?)
}

fn text(launch: &Launch, view: &str, it: &Comparison) {
    println!(
        "{:<9} {:>10} {:>10} {:>10} {:>13} {:>13}",
        "", "wall s", "user s", "system s", "gave up cpu", "lost cpu"
    );
    let side = |name: &str, side: &Side| {
        println!(
            "{name:<9} {:>10.3} {:>10.3} {:>10.3} {:>13} {:>13}",
            side.wall_seconds,
            side.user_seconds,
            side.system_seconds,
            format::count(side.voluntary_switches),
            format::count(side.involuntary_switches)
        );
    };
    side("plain", &it.plain);
    side("wakeful", &it.helped);
    let (runs, lock) = (it.plain_runs.len(), launch.lock());
    let s = if runs == 1 { "" } else { "s" };
    println!("medians of {runs} run{s} each, taken in turns; lock {lock}, view {view}");
    if let (Some(_), Some(other)) = (launch.openmp(), launch.openmp_instead_of()) {
        println!("OpenMP on {other}, and with wakeful on {}", launch::library::OPENMP_NAME);
    }
    for (what, ratio) in [("speed", &it.speedup), ("cpu  ", &it.cpu_ratio)] {
        if let Some(ratio) = ratio {
            let (median, low, high) = (ratio.median, ratio.low, ratio.high);
            println!("{what}  {median:.3} times plain, pair by pair ({low:.3} to {high:.3})");
        }
    }
    if it.same_output == Some(true) {
        println!("output the same in all runs");
    }
    println!("\n{}", verdict(it));
}

fn ends(runs: &[Run]) -> String {
    let mut seen: Vec<(End, usize)> = Vec::new();
    for run in runs {
        match seen.iter_mut().find(|(end, _)| *end == run.end) {
            Some((_, times)) => *times += 1,
            None => seen.push((run.end, 1)),
        }
    }
    seen.iter().map(|(end, times)| format!("{times} x {end}")).collect::<Vec<_>>().join(", ")
}

fn verdict(it: &Comparison) -> String {
    let times = it.speedup.map_or(f64::NAN, |ratio| ratio.median);
    // Not "1.00 times".
    let digits = if (times - 1.0).abs() < 0.01 { 4 } else { 2 };
    match it.verdict {
        Verdict::Faster => format!("Faster with wakeful: {times:.digits$} times as fast, beyond the spread."),
        Verdict::Slower => format!("Slower with wakeful: {times:.digits$} times as fast, beyond the spread."),
        Verdict::NoDifference => {
            "No difference beyond the spread of the runs. If you expected one: more runs (-n 15)\n\
             narrow the spread; a program that does not wait for locks gains nothing."
                .to_string()
        }
        Verdict::TooFewRuns => "Too few runs to judge; take at least 5 (-n 5).".to_string(),
        Verdict::Failed => format!(
            "No verdict: the program fails, with and without wakeful ({}).\n\
             --show-output shows what it says; {}.",
            ends(&it.plain_runs),
            match it.plain_runs[0].end {
                End::Exit(_) => "--ignore-failure judges all the same",
                End::TimedOut => "--timeout gives it more time",
                End::Signal(_) => "a program that a signal ends is not judged",
            }
        ),
        Verdict::EndsDiffer => format!(
            "No verdict: the runs did not end alike.\n  plain:   {}\n  wakeful: {}\n\
             --show-output shows what the program says. If only the runs with wakeful fail,\n\
             please report it.",
            ends(&it.plain_runs),
            ends(&it.helped_runs)
        ),
        Verdict::OutputsDiffer => {
            "No verdict: the outputs differ. A program that prints times or random numbers does so\n\
             also without wakeful; if this one does not, please report it."
                .to_string()
        }
    }
}
