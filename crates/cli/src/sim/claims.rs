// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful sim claims`: on which share of the machines that differ by the assumptions a claim holds.

mod file;
mod page;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use ::sim::figure::sure::{Sampled, Samples, Share, Spread, Sure};
use ::sim::figure::{Figure, figures};
use ::sim::{SimError, in_parallel};
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use launch::suggest;
use serde::Serialize;

use self::file::{Kept, Record};
use crate::figure::size;
use crate::format::{self, Format, whole_number};

/// How sure the papers' claims are: on which share of the possible machines each holds
///
/// Most numbers of a machine are assumptions. A sample draws each from half to double, and the seed of all
/// that is random. A claim is tested as its words are, and within the bound that `wakeful sim figure` uses,
/// where that is another one. An assumption is named if it separates the samples on which the claim holds
/// from the others.
#[derive(clap::Args)]
pub struct ClaimsArgs {
    /// Samples
    #[arg(
        long,
        value_name = "N",
        default_value = "20",
        value_parser = whole_number::<u32>(1..=100_000)
    )]
    samples: u32,
    /// Figures, or how their names begin: tr, icpp or paz for a paper [default: all]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    figure: Vec<String>,
    /// The machines stay as described; only the seed is drawn
    #[arg(long)]
    described: bool,
    /// Seed of all draws
    #[arg(long, value_name = "SEED", default_value = "1", value_parser = whole_number::<u64>(0..))]
    seed: u64,
    /// This part of the papers' runs, for a quick look; claims need all of it
    #[arg(long, value_name = "FRACTION", default_value = "1", value_parser = size)]
    size: f64,
    /// Keep the samples here; a run that ended early goes on from it, and one with more samples adds to it
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Write a page with the claims and the curves, which needs no other file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Simulations at once [default: as many as there are processors]
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(1..=4096))]
    jobs: Option<u32>,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// Those of these names or beginnings, in the table's order.
fn chosen(names: &[String]) -> Result<Vec<&'static Figure>> {
    for name in names {
        if name.is_empty() || !figures().any(|figure| figure.name.starts_with(name.as_str())) {
            let all = figures().map(|figure| figure.name);
            bail!(
                "there is no figure `{name}`; `wakeful sim figure` lists them.{}",
                suggest::hint(name, all)
            );
        }
    }
    let exact = |name: &str| figures().any(|figure| figure.name == name);
    // A figure's name is that figure, also where another begins with it.
    let wanted = |figure: &Figure, name: &String| {
        if exact(name) { figure.name == name } else { figure.name.starts_with(name.as_str()) }
    };
    Ok(figures().filter(|it| names.is_empty() || names.iter().any(|name| wanted(it, name))).collect())
}

/// What of these samples of these figures is missing, sample by sample.
fn missing(kept: &Kept, chosen: &[&'static Figure], samples: u32) -> Vec<(u32, &'static Figure)> {
    let all = (0..samples).flat_map(|sample| chosen.iter().map(move |&figure| (sample, figure)));
    all.filter(|(sample, figure)| !kept.done.contains_key(&(*sample, figure.name.to_string()))).collect()
}

fn bar(whole: usize, done: usize) -> Result<ProgressBar> {
    let bar = ProgressBar::new(whole as u64).with_position(done as u64);
    bar.set_style(ProgressStyle::with_template("claims [{bar:30}] {pos}/{len} figures, {eta} left")?);
    bar.reset_eta();
    bar.tick();
    Ok(bar)
}

/// Computes what is missing, and keeps it.
fn compute(args: &ClaimsArgs, samples: Samples, chosen: &[&'static Figure], kept: Kept) -> Result<Kept> {
    let jobs = missing(&kept, chosen, args.samples);
    let whole = args.samples as usize * chosen.len();
    let bar = bar(whole, whole - jobs.len())?;
    let cores = args
        .jobs
        .map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), |jobs| jobs as usize);
    let kept = Mutex::new(Ok(kept));
    let run = |&(sample, figure): &(u32, &'static Figure)| -> Result<(), SimError> {
        if kept.lock().is_ok_and(|kept| kept.is_err()) {
            return Ok(());
        }
        let (machine, _) = samples.machine(&figure.described(), sample);
        let data = figure.run_on(&machine, samples.seed(sample), args.size, 1, || {})?;
        let y = |point: &::sim::figure::Point| {
            if point.failure.is_some() { "NaN".into() } else { point.y.to_string() }
        };
        let record = Record { sample, figure: figure.name.into(), y: data.points.iter().map(y).collect() };
        let mut kept = kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Ok(it) = kept.as_mut()
            && let Err(error) = it.keep(record)
        {
            *kept = Err(error);
        }
        Ok(())
    };
    let results = in_parallel(&jobs, cores, run, || bar.inc(1));
    bar.finish_and_clear();
    results.into_iter().collect::<Result<(), SimError>>()?;
    kept.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What was kept of a figure, for the claims.
fn sampled(args: &ClaimsArgs, samples: Samples, figure: &Figure, kept: &Kept) -> Result<Vec<Sampled>> {
    let one = |sample| {
        let ys = &kept.done[&(sample, figure.name.to_string())];
        let (_, draws) = samples.machine(&figure.described(), sample);
        Ok((draws, figure.data(ys).context("a line that was checked has another number of points")?))
    };
    (0..args.samples).map(one).collect()
}

/// A figure with its claims.
struct Judged {
    figure: &'static Figure,
    claims: Vec<Sure>,
    spreads: Vec<Option<Spread>>,
}

#[derive(Serialize)]
struct Row<'a> {
    figure: &'a str,
    machine: &'a str,
    seed: u64,
    size: f64,
    described: bool,
    #[serde(flatten)]
    sure: &'a Sure,
}

#[derive(Serialize)]
struct CsvRow<'a> {
    figure: &'a str,
    claim: &'a str,
    source: &'a str,
    seed: u64,
    size: f64,
    described: bool,
    samples: usize,
    missing: usize,
    low: Option<f64>,
    median: Option<f64>,
    high: Option<f64>,
    words: &'a str,
    words_hold: usize,
    used: &'a str,
    used_hold: usize,
    assumption: Option<&'a str>,
    above: Option<bool>,
    at: Option<f64>,
    separation: Option<f64>,
}

pub fn main(args: &ClaimsArgs) -> Result<()> {
    let chosen = chosen(&args.figure)?;
    if let Some(file) = &args.html {
        // Not after hours.
        std::fs::write(file, "").with_context(|| format!("cannot write {}", file.display()))?;
    }
    let samples = Samples { seed: args.seed, draws: !args.described };
    let header = file::Header::new(args.seed, args.size, args.described);
    let kept = args.file.as_ref().map_or_else(|| Ok(Kept::default()), |path| Kept::open(path, &header))?;
    let kept = compute(args, samples, &chosen, kept)?;
    let mut judged = Vec::new();
    for figure in chosen {
        let sampled = sampled(args, samples, figure, &kept)?;
        judged.push(Judged { figure, claims: figure.sure(&sampled), spreads: figure.spreads(&sampled) });
    }
    match args.format {
        Format::Text => text(args, &judged),
        Format::Json => json(args, &judged)?,
        Format::Csv => csv(args, &judged)?,
    }
    if let Some(file) = &args.html {
        std::fs::write(file, page::page(args, &judged))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

fn json(args: &ClaimsArgs, judged: &[Judged]) -> Result<()> {
    let &ClaimsArgs { seed, size, described, .. } = args;
    for Judged { figure, claims, .. } in judged {
        for sure in claims {
            let row = Row { figure: figure.name, machine: figure.machine, seed, size, described, sure };
            format::json("sure", &row)?;
        }
    }
    Ok(())
}

fn csv(args: &ClaimsArgs, judged: &[Judged]) -> Result<()> {
    let mut csv = csv::Writer::from_writer(std::io::stdout());
    for Judged { figure, claims, .. } in judged {
        for sure in claims {
            let used = sure.used.as_ref().unwrap_or(&sure.words);
            let turn = sure.words.turn.as_ref().or(used.turn.as_ref());
            csv.serialize(CsvRow {
                figure: figure.name,
                claim: sure.claim,
                source: sure.source,
                seed: args.seed,
                size: args.size,
                described: args.described,
                samples: sure.samples,
                missing: sure.missing,
                low: sure.number.map(|it| it.low),
                median: sure.number.map(|it| it.median),
                high: sure.number.map(|it| it.high),
                words: &sure.words.bound,
                words_hold: sure.words.holds,
                used: &used.bound,
                used_hold: used.holds,
                assumption: turn.map(|it| it.assumption.as_str()),
                above: turn.map(|it| it.above),
                at: turn.map(|it| it.at),
                separation: turn.map(|it| it.separation),
            })?;
        }
    }
    Ok(csv.flush()?)
}

/// Three digits or more, and no zeros behind them.
fn short(number: f64) -> String {
    let digits = match number.abs() {
        it if it >= 100.0 => 0,
        it if it >= 10.0 => 1,
        it if it >= 1.0 => 2,
        _ => 3,
    };
    format!("{number:.digits$}")
}

fn spread(number: Option<Spread>) -> String {
    number.map_or("no number".into(), |it| {
        format!("{}, {} to {}", short(it.median), short(it.low), short(it.high))
    })
}

fn percent(holds: usize, samples: usize) -> f64 {
    100.0 * holds as f64 / samples as f64
}

/// Holds on nearly all machines.
const SURE: f64 = 95.0;

/// How many claims hold so often, by their words and within the bounds that are used; and how many there are.
fn counted(judged: &[Judged]) -> [usize; 3] {
    let all = || judged.iter().flat_map(|it| &it.claims);
    let sure = |sure: &Sure, share: &Share| percent(share.holds, sure.samples) >= SURE;
    let by_words = all().filter(|it| sure(it, &it.words)).count();
    let used = all().filter(|it| sure(it, it.used.as_ref().unwrap_or(&it.words))).count();
    [by_words, used, all().count()]
}

/// In words, which assumption decides.
fn turned(share: &Share, samples: usize) -> Option<String> {
    let turn = share.turn.as_ref()?;
    let side = if turn.above { "above" } else { "below" };
    Some(format!(
        "{} decides: it holds {side} {} ({} of {samples}; separation {:.2})",
        turn.assumption,
        short(turn.at),
        samples - turn.errors,
        turn.separation
    ))
}

fn text(args: &ClaimsArgs, judged: &[Judged]) {
    let show = |text: String| println!("{}", suggest::wrap(&text, suggest::WIDTH));
    for Judged { figure, claims, .. } in judged {
        show(format!("{}: {}", figure.name, figure.title));
        for sure in claims {
            println!();
            show(format!("  {} ({})", sure.claim, sure.source));
            show(format!("  {}: {}", sure.measure, spread(sure.number)));
            for (share, of) in [(Some(&sure.words), "the words"), (sure.used.as_ref(), "the bound in use")] {
                let Some(share) = share else { continue };
                println!("{:>5.0} % hold: {} ({of})", percent(share.holds, sure.samples), share.bound);
                if let Some(turned) = turned(share, sure.samples) {
                    show(format!("        {turned}"));
                }
            }
            if sure.missing > 0 {
                println!("        no number on {} of {}", sure.missing, sure.samples);
            }
        }
        println!();
    }
    let [words, used, all] = counted(judged);
    show(format!(
        "{words} of {all} claims hold on at least {SURE} % of {} {} as their words say, {used} within the \
         bounds in use",
        args.samples,
        if args.described { "seeds" } else { "machines" },
    ));
}

/// By figure and sample.
type Done = BTreeMap<(u32, String), Vec<f64>>;
