// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful watch`: runs an unmodified program, and says who was blocked, how long, and in which stack.

mod report;
mod text;

use std::ffi::OsString;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Result;
use launch::program::{self, Obstacle};
use recorder::{OpenError, Options, Outcome, Program, Recording};

use crate::recorded::{
    Output, advice, cannot_start, end_as, pass_signals_on, signals_as_before, take_signals,
};
use report::Report;

/// Run a program unchanged, and say which thread was blocked, how long, and in which stack
///
/// For programs with a pool of threads: tokio, rayon, Go, libuv, Python's executors. Nothing is preloaded.
/// The report goes to standard error when the program has ended. Exit status: the program's; 125, 126 and 127
/// as for `wakeful run`. If a signal ends the program, the same one ends this command.
#[derive(clap::Args)]
pub struct Args {
    /// From when on a block is long, with a unit, such as 500us or 20ms
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = threshold)]
    threshold: Duration,
    #[command(flatten)]
    output: Output,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// BOUND: the longest sleep between two looks. Blocks that are shorter than two of them are seen by chance.
const TURN: Duration = Duration::from_millis(1);
/// BOUND: shorter thresholds would have the watcher run all the time.
const SHORTEST: Duration = Duration::from_micros(100);

fn threshold(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).ok().filter(|time| *time >= SHORTEST);
    time.ok_or_else(|| "give a time with its unit, of 100us or more, such as 1ms".to_string())
}

pub fn main(args: Args) -> Result<ExitCode> {
    let name = &args.command[0];
    let path = program::find(name).map_err(|error| launch::cannot_run(name, None, &error))?;
    let mut output = args.output.open()?;
    let mut command = Command::new(name);
    command.args(&args.command[1..]);
    let outcome =
        record(&command, &path, args.threshold).map_err(|error| cannot_start(error, name, &path))?;
    let takes_rights = program::inspect(&path)
        .is_ok_and(|program| matches!(program.obstacle, Some(Obstacle::Privileged(_))));
    let report = Report::of(&outcome, &name.to_string_lossy(), args.threshold, takes_rights);
    output.write(|to| if args.output.is_json() { report.write_json(to) } else { text::write(&report, to) });
    signals_as_before();
    drop(output);
    Ok(end_as(outcome.status))
}

fn record(command: &Command, path: &std::path::Path, threshold: Duration) -> Result<Outcome> {
    let program = Program::prepare(|| launch::become_program(command, path))?;
    let turn_ns = threshold.min(TURN).as_nanos() as u64;
    let options = Options { threshold_ns: threshold.as_nanos() as u64, turn_ns };
    let mut recording = Recording::new(program, options).map_err(explain)?;
    pass_signals_on();
    recording.program().start()?;
    Ok(recording.run(|program| {
        take_signals().for_each(|number| program.signal(number));
    }))
}

/// What the user can do about it: one thing.
fn explain(error: OpenError) -> anyhow::Error {
    match error {
        OpenError::Other(_) => error.into(),
        error => anyhow::anyhow!(advice(&error)),
    }
}
