// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful sim auto`: programs for whom the processor server chooses, on the simulated machines.

use ::sim::choice::{Divided, MODELS, Model, Outcome, pairs, run};
use anyhow::{Result, anyhow, bail};
use launch::suggest;
use serde::Serialize;

use super::{machine, time};
use crate::figure;
use crate::format::{self, Format, whole_number};

/// Programs for whom the processor server chooses, by what they would get done with equal shares
///
/// Each runs rounds of 80ms of work, of which a part is serial. The server looks once a second at what they
/// use, and moves processors. One processor is everybody's. Numbers are processors that do useful work, on
/// the average.
#[derive(clap::Args)]
pub struct AutoArgs {
    /// One of `wakeful sim machines`, or a file with a description
    #[arg(long, value_name = "MACHINE", default_value = "epyc-64")]
    machine: String,
    /// So many of its processors
    #[arg(long, value_name = "N", default_value = "8", value_parser = whole_number::<u32>(2..=4096))]
    processors: u32,
    /// Programs of one mix, such as `scales,one thread` [default: all pairs]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    mix: Vec<String>,
    /// Virtual time of each simulation
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    limit: f64,
    /// Seed of all that is random
    #[arg(long, value_name = "SEED", default_value = "1", value_parser = whole_number::<u64>(0..))]
    seed: u64,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// A mix.
#[derive(Serialize)]
struct Row {
    mix: String,
    /// One of its programs spins while it waits.
    spins: bool,
    processors: u32,
    seed: u64,
    /// Without partitions.
    undivided: f64,
    equal_shares: f64,
    chosen: f64,
    /// The last by the one before.
    gain: f64,
    /// Each program's, where the server chooses by use, and in equal shares.
    each: Vec<f64>,
    each_equally: Vec<f64>,
    moves: u64,
}

fn model(name: &str) -> Result<Model> {
    let found = MODELS.iter().find(|model| model.name == name);
    let all = || MODELS.iter().map(|model| model.name);
    found.copied().ok_or_else(|| {
        let known: Vec<_> = all().collect();
        anyhow!(
            "there is no program `{name}`.{}\nThere are: {}",
            suggest::hint(name, all()),
            known.join(", ")
        )
    })
}

pub fn main(args: &AutoArgs) -> Result<()> {
    let mixes = match &args.mix[..] {
        [] => [pairs(false), pairs(true)].concat(),
        names => vec![names.iter().map(|name| model(name)).collect::<Result<_>>()?],
    };
    let machine = machine(&args.machine)?.with_processors(args.processors);
    let kinds = [Divided::Not, Divided::Equally, Divided::ByUse];
    let jobs: Vec<_> = mixes.iter().flat_map(|mix| kinds.map(|divided| (mix, divided))).collect();
    let bar = figure::bar("auto", jobs.len())?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let seconds = args.limit / 1e9;
    let one = |(mix, divided): &(&Vec<Model>, Divided)| run(&machine, mix, *divided, seconds, args.seed);
    let outcomes = ::sim::in_parallel(&jobs, cores, one, || bar.inc(1));
    bar.finish_and_clear();
    if let Some(failure) = outcomes.iter().find_map(|it| it.failure.as_ref()) {
        bail!("a simulation failed: {failure}");
    }
    let rows: Vec<Row> =
        mixes.iter().zip(outcomes.chunks(kinds.len())).map(|(mix, of)| row(args, mix, of)).collect();
    let mut csv = csv::Writer::from_writer(std::io::stdout());
    match args.format {
        Format::Json => rows.iter().try_for_each(|row| format::json("auto", row))?,
        // A list has no place in a table.
        Format::Csv => rows.iter().try_for_each(|row| {
            csv.serialize((
                &row.mix,
                row.processors,
                row.seed,
                row.undivided,
                row.equal_shares,
                row.chosen,
                row.gain,
                row.moves,
            ))
        })?,
        Format::Text => text(&rows),
    }
    Ok(csv.flush()?)
}

fn row(args: &AutoArgs, mix: &[Model], of: &[Outcome]) -> Row {
    let names: Vec<_> = mix.iter().map(|model| model.name).collect();
    let [undivided, equally, chosen] = of else { unreachable!("three of each") };
    Row {
        mix: names.join(" + "),
        spins: mix.iter().any(Model::spins),
        processors: args.processors,
        seed: args.seed,
        undivided: undivided.total,
        equal_shares: equally.total,
        chosen: chosen.total,
        gain: chosen.total / equally.total,
        each: chosen.each.clone(),
        each_equally: equally.each.clone(),
        moves: chosen.moves,
    }
}

fn text(rows: &[Row]) {
    println!("{:<30}{:>10}{:>8}{:>8}{:>7}{:>7}", "", "undivided", "equal", "chosen", "gain", "moves");
    for row in rows {
        println!(
            "{:<30}{:>10.2}{:>8.2}{:>8.2}{:>7.3}{:>7}",
            row.mix, row.undivided, row.equal_shares, row.chosen, row.gain, row.moves
        );
    }
    let (spin, sleep): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.spins);
    for (rows, what) in [(sleep, ""), (spin, ", one of which spins")] {
        if !rows.is_empty() {
            let mean = (rows.iter().map(|row| row.gain.ln()).sum::<f64>() / rows.len() as f64).exp();
            let least = rows.iter().map(|row| row.gain).fold(f64::INFINITY, f64::min);
            println!("{} mixes{what}: gain {mean:.3} (geometric mean), least {least:.3}", rows.len());
        }
    }
}
