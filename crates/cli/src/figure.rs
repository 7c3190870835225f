// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful sim figure` and `wakeful sim report`: the papers' figures on the simulated machines.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use launch::suggest;
use serde::Serialize;
use sim::figure::{Data, Figure, Point, Verdict, figure, figures, svg};

use crate::format::{self, Format, whole_number};

/// Draw a figure of the papers and say whether their claims hold
///
/// Without a name, lists the figures.
#[derive(clap::Args)]
pub struct FigureArgs {
    /// Such as tr14; without it, a list
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Seed of all that is random
    #[arg(long, value_name = "SEED", default_value = "1", value_parser = whole_number::<u64>(0..))]
    seed: u64,
    /// This part of the run, for a quick look; claims need all of it
    #[arg(long, value_name = "FRACTION", default_value = "1", value_parser = size)]
    size: f64,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Draw it into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Write one page with every figure, its claims and whether they hold
#[derive(clap::Args)]
pub struct ReportArgs {
    /// An HTML file, which needs no other file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Seed of all that is random
    #[arg(long, value_name = "SEED", default_value = "1", value_parser = whole_number::<u64>(0..))]
    seed: u64,
    /// This part of the papers' runs, for a quick look; claims need all of it
    #[arg(long, value_name = "FRACTION", default_value = "1", value_parser = size)]
    size: f64,
}

pub fn size(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.001..=10.0).contains(&value) => Ok(value),
        _ => Err("give a number from 0.001 to 10".into()),
    }
}

#[derive(Serialize)]
struct Named<'a, T: Serialize> {
    figure: &'a str,
    machine: &'a str,
    seed: u64,
    size: f64,
    #[serde(flatten)]
    fields: &'a T,
}

#[derive(Serialize)]
struct CsvPoint<'a> {
    figure: &'a str,
    seed: u64,
    size: f64,
    series: &'a str,
    x: f64,
    x_label: &'a str,
    x_unit: &'a str,
    y: f64,
    y_label: &'a str,
    y_unit: &'a str,
    extrapolated: bool,
    failure: Option<&'a str>,
}

pub fn bar(name: &'static str, points: usize) -> Result<ProgressBar> {
    // indicatif draws on stderr, and nothing if that is no terminal.
    let bar = ProgressBar::new(points as u64);
    bar.set_style(ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len} points, {eta} left")?);
    bar.set_prefix(name);
    bar.tick();
    Ok(bar)
}

/// Simulates it, with a bar on a terminal.
fn run(figure: &Figure, seed: u64, size: f64) -> Result<Data> {
    let bar = bar(figure.name, figure.points())?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let data = figure.run(seed, size, cores, || bar.inc(1))?;
    bar.finish_and_clear();
    Ok(data)
}

fn number(verdict: &Verdict) -> String {
    verdict.number.map_or("none".into(), |number| format!("{number:.3}"))
}

pub fn main(args: &FigureArgs) -> Result<()> {
    let Some(name) = &args.name else {
        figures().for_each(|figure| println!("{:<7}{}", figure.name, figure.title));
        return Ok(());
    };
    let Some(figure) = figure(name) else {
        let names = figures().map(|figure| figure.name);
        bail!("there is no figure `{name}`; `wakeful sim figure` lists them.{}", suggest::hint(name, names));
    };
    if let Some(file) = &args.svg {
        // Not after minutes.
        std::fs::write(file, "").with_context(|| format!("cannot write {}", file.display()))?;
    }
    let data = run(figure, args.seed, args.size)?;
    let verdicts = figure.verdicts(&data);
    match args.format {
        Format::Text => text(figure, &data, &verdicts),
        Format::Json => {
            data.points.iter().try_for_each(|point| json("point", figure, args, point))?;
            verdicts.iter().try_for_each(|verdict| json("claim", figure, args, verdict))?;
        }
        Format::Csv => csv(figure, args, &data)?,
    }
    if let Some(file) = &args.svg {
        std::fs::write(file, svg(figure, &data))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

fn json<T: Serialize>(record: &str, figure: &Figure, args: &FigureArgs, fields: &T) -> Result<()> {
    let named =
        Named { figure: figure.name, machine: figure.machine, seed: args.seed, size: args.size, fields };
    format::json(record, &named)
}

fn csv(figure: &Figure, args: &FigureArgs, data: &Data) -> Result<()> {
    let mut csv = csv::Writer::from_writer(std::io::stdout());
    for Point { series, x, y, extrapolated, failure } in &data.points {
        csv.serialize(CsvPoint {
            figure: figure.name,
            seed: args.seed,
            size: args.size,
            series,
            x: *x,
            x_label: figure.x.label,
            x_unit: figure.x.unit,
            y: *y,
            y_label: figure.y.label,
            y_unit: figure.y.unit,
            extrapolated: *extrapolated,
            failure: failure.as_deref(),
        })?;
    }
    Ok(csv.flush()?)
}

fn text(figure: &Figure, data: &Data, verdicts: &[Verdict]) {
    println!("{}", suggest::wrap(&format!("{}: {}", figure.name, figure.title), suggest::WIDTH));
    println!("{} ({}) by {}", figure.y.label, figure.y.unit, figure.x.label);
    println!();
    print!("{:<22}", "");
    figure.at.iter().for_each(|x| print!("{x:>8}"));
    println!();
    for (series, points) in figure.series.iter().zip(data.points.chunks(figure.at.len())) {
        print!("{series:<22}");
        for point in points {
            let late = if point.failure.is_some() {
                "!"
            } else if point.extrapolated {
                "*"
            } else {
                " "
            };
            print!("{:>7}{late}", format::count(point.y));
        }
        println!();
    }
    if data.points.iter().any(|point| point.extrapolated) {
        println!("* not done at the limit of virtual time; at the rate until then");
    }
    for Point { series, x, failure, .. } in &data.points {
        if let Some(failure) = failure {
            println!("! {series} at {x}: {failure}");
        }
    }
    for verdict in verdicts {
        let holds = if verdict.holds { "holds" } else { "FAILS" };
        println!();
        println!(
            "{}",
            suggest::wrap(&format!("{holds}: {} ({})", verdict.claim, verdict.source), suggest::WIDTH)
        );
        let measure = format!("       {}: {}, {} wanted", verdict.measure, number(verdict), verdict.bound);
        println!("{}", suggest::wrap(&measure, suggest::WIDTH));
        if !verdict.note.is_empty() {
            println!("{}", suggest::wrap(&format!("       {}", verdict.note), suggest::WIDTH));
        }
    }
}

pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
<meta name=\"viewport\" content=\"width=device-width\">\
<meta name=\"color-scheme\" content=\"light dark\"><title>Wakeful: the papers' figures, simulated</title>\n\
<style>body{font:16px/1.4 sans-serif;max-width:56em;margin:2em auto;padding:0 1em}svg{max-width:100%;height:auto}\
table{border-collapse:collapse}td,th{border:1px solid #bbb;padding:.3em .6em;text-align:left;vertical-align:top}\
.fails{font-weight:bold}</style></head><body>\n<h1>The papers' figures, simulated</h1>\n";

fn rows(figure: &Figure, verdicts: &[Verdict]) -> String {
    let mut out = String::new();
    for verdict in verdicts {
        let (class, holds) = if verdict.holds { ("holds", "holds") } else { ("fails", "FAILS") };
        let _ = writeln!(
            out,
            "<tr><td><a href=\"#{0}\">{0}</a></td><td>{1} <small>({2})</small></td><td class=\"{class}\">{holds}</td><td>{3}</td>\
             <td>{4}<br><small>{5} wanted</small>{6}</td></tr>",
            figure.name,
            escape(verdict.claim),
            escape(verdict.source),
            number(verdict),
            escape(verdict.measure),
            verdict.bound,
            if verdict.note.is_empty() {
                String::new()
            } else {
                format!("<br><em>{}.</em>", escape(verdict.note))
            }
        );
    }
    out
}

pub fn report(args: &ReportArgs) -> Result<()> {
    let file: &Path = &args.file;
    std::fs::write(file, "").with_context(|| format!("cannot write {}", file.display()))?;
    let (mut all, mut pictures, mut held, mut claims) = (String::new(), String::new(), 0, 0);
    for figure in figures() {
        let data = run(figure, args.seed, args.size)?;
        let verdicts = figure.verdicts(&data);
        held += verdicts.iter().filter(|verdict| verdict.holds).count();
        claims += verdicts.len();
        let rows = rows(figure, &verdicts);
        let _ = write!(
            pictures,
            "<h2 id=\"{}\">{0}: {}</h2>\n<p>Machine: {}</p>\n{}",
            figure.name,
            escape(figure.title),
            figure.machine,
            svg(figure, &data)
        );
        let _ = writeln!(pictures, "<table>{HEADER}{rows}</table>");
        for point in data.points.iter().filter(|point| point.failure.is_some()) {
            let failure = point.failure.as_deref().unwrap_or_default();
            let _ = writeln!(
                pictures,
                "<p class=\"fails\">{} at {}: {}</p>",
                point.series,
                point.x,
                escape(failure)
            );
        }
        all += &rows;
    }
    let page = format!(
        "{HEAD}<p>{held} of {claims} claims hold. Seed {}, size {}: <code>wakeful sim report --seed {0} --size {1} FILE</code> \
         gives this page again.</p>\n<table>{HEADER}{all}</table>\n{pictures}</body></html>\n",
        args.seed, args.size
    );
    std::fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))?;
    println!("{held} of {claims} claims hold; see {}", file.display());
    Ok(())
}

const HEADER: &str = "<tr><th>figure</th><th>claim</th><th></th><th>number</th><th>of what</th></tr>\n";
