// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful bench grant`: how fast the processor server is.

use std::process::ExitCode;
use std::time::Duration;

use ::bench::grant::{self, From, Grants, Plan};
use anyhow::{Context, Result};

use crate::format::{self, Format, whole_number};

/// Times from asking for a processor, or from its release, to the first instruction on it
///
/// Needs a running wakefuld with a processor to give; this command starts the programs that ask for one.
#[derive(clap::Args)]
pub struct Args {
    /// Grants of each kind
    #[arg(long, default_value_t = 200, value_parser = whole_number::<u32>(1..))]
    rounds: u32,
    /// Busy processes that load the default partition; two a processor by default
    #[arg(long, value_name = "N")]
    foreign: Option<usize>,
    /// Milliseconds without a request before each grant
    #[arg(long, value_name = "MS", default_value_t = 20)]
    pause: u64,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub fn main(args: Args) -> Result<ExitCode> {
    // Not after the heading.
    linux::server::Connection::open().map_err(crate::partition::explain)?;
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
    let plan = Plan {
        rounds: args.rounds,
        busy: args.foreign.unwrap_or(2 * processors),
        pause: Duration::from_millis(args.pause),
    };
    let mut table = csv::Writer::from_writer(std::io::stdout());
    let mut failure = Ok(());
    if args.format == Format::Text {
        let busy = plan.busy;
        println!("to the first instruction on the processor, while {busy} busy processes run");
        println!(
            "{:<24} {:>6} {:>7} {:>7} {:>7} {:>7} {:>7}",
            "", "grants", "min", "p50", "p90", "p99", "max"
        );
    }
    let show = |grants: Grants| {
        let written = match args.format {
            Format::Text => {
                text(&grants);
                Ok(())
            }
            Format::Json => format::json("grants", &grants),
            Format::Csv => table.serialize(&grants).and_then(|()| Ok(table.flush()?)).map_err(Into::into),
        };
        failure = std::mem::replace(&mut failure, Ok(())).and(written);
    };
    let program = std::env::current_exe().context("cannot find this program, to start it again")?;
    grant::run(&program, plan, show)?;
    failure.map(|()| ExitCode::SUCCESS)
}

fn text(grants: &Grants) {
    let from = match grants.from {
        From::New => "a new program asks",
        From::Known => "it asks again",
        From::Released => "the holder gives back",
        From::Killed => "the holder is killed",
    };
    let [min, p50, p90, p99, max] =
        [grants.min_ns, grants.p50_ns, grants.p90_ns, grants.p99_ns, grants.max_ns].map(format::ns);
    println!("{from:<24} {:>6} {min:>7} {p50:>7} {p90:>7} {p99:>7} {max:>7}", grants.count);
}
