// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful watch`: runs an unmodified program, and says who was blocked, how long, and in which stack.

mod report;
mod text;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result};
use launch::program;
use recorder::{OpenError, Options, Outcome, Program, Recording, StartError};

use crate::format::Format;
use report::Report;

/// Run a program unchanged, and say which thread was blocked, how long, and in which stack
///
/// For programs with a pool of threads: tokio, rayon, Go, libuv, Python's executors. Nothing is preloaded.
/// The report goes to standard error when the program has ended. Exit status: the program's; 125, 126 and 127
/// as for `wakeful run`.
#[derive(clap::Args)]
pub struct Args {
    /// From when on a block is long, such as 500us or 20ms
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = threshold)]
    threshold: Duration,
    /// Write the report to this file instead
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Output format
    #[arg(long, value_parser = format, value_name = "FORMAT", default_value = "text")]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
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
    time.ok_or_else(|| "give a time of 100us or more, such as 1ms".to_string())
}

fn format(text: &str) -> Result<Format, String> {
    match text {
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        _ => Err("text or json".into()),
    }
}

pub fn main(args: Args) -> Result<ExitCode> {
    let name = &args.command[0];
    let path = program::find(name).map_err(|error| launch::cannot_run(name, None, &error))?;
    let mut output: Box<dyn Write> = match &args.output {
        Some(path) => {
            let file = File::create(path);
            Box::new(file.with_context(|| format!("cannot write to {}", path.display()))?)
        }
        None => Box::new(io::stderr()),
    };
    let mut command = Command::new(name);
    command.args(&args.command[1..]);
    let outcome = match record(&command, &path, args.threshold) {
        Ok(outcome) => outcome,
        Err(error) => {
            return Err(match error.downcast::<StartError>() {
                Ok(StartError::Exec(error)) => {
                    // The file may be a script: then its interpreter is what does not run.
                    let image = program::inspect(&path).map_or(path, |program| program.image);
                    launch::cannot_run(name, Some(&image), &error).into()
                }
                Ok(other) => other.into(),
                Err(other) => other,
            });
        }
    };
    let status = ExitStatus::from_raw(outcome.status);
    let report = Report::of(&outcome, &name.to_string_lossy(), args.threshold);
    let written = match args.format {
        Format::Json => report.write_json(&mut output),
        _ if args.json => report.write_json(&mut output),
        _ => text::write(&report, &mut output),
    };
    // The program's status is passed on, whether or not somebody reads the report. A closed pipe is no error.
    if let Err(error) = written
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let to = args.output.map_or("standard error".into(), |path| path.display().to_string());
        let _ = writeln!(io::stderr(), "wakeful: cannot write to {to}: {error}");
    }
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(u8::try_from(code).unwrap_or(crate::FAILED).into())
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

/// The same in words.
pub(crate) fn advice(error: &OpenError) -> String {
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    let level = paranoid.and_then(|text| text.trim().parse::<i32>().ok());
    let advice = match (error, level) {
        (OpenError::Denied, Some(level)) if level > 2 => {
            format!("kernel.perf_event_paranoid is {level}; as root: `sysctl kernel.perf_event_paranoid=2`")
        }
        (OpenError::Denied, _) => {
            "a sandbox forbids perf_event_open(2), such as a container's seccomp filter;\nallow it there"
                .into()
        }
        (OpenError::NoMemory, _) => {
            "other programs of yours have it; as root: `sysctl kernel.perf_event_mlock_kb=4096`".into()
        }
        (OpenError::Other(reason), _) => reason.to_string(),
    };
    format!("{error}:\n{advice}")
}

/// The signals that the program is to have, a bit each.
static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn keep(number: i32) {
    SIGNALS.fetch_or(1 << number, Relaxed);
}

pub(crate) fn take_signals() -> impl Iterator<Item = i32> {
    let signals = SIGNALS.swap(0, Relaxed);
    (1..32).filter(move |number| signals & 1 << number != 0)
}

/// What the terminal sends, the program gets itself. What others send us alone, we pass on. We go on until
/// the program has ended.
pub(crate) fn pass_signals_on() {
    let keep: extern "C" fn(i32) = keep;
    let actions = [
        (libc::SIGINT, libc::SIG_IGN),
        (libc::SIGQUIT, libc::SIG_IGN),
        (libc::SIGTERM, keep as libc::sighandler_t),
        (libc::SIGHUP, keep as libc::sighandler_t),
        (libc::SIGUSR1, keep as libc::sighandler_t),
        (libc::SIGUSR2, keep as libc::sighandler_t),
    ];
    for (number, action) in actions {
        // SAFETY: the handler sets a bit.
        unsafe { libc::signal(number, action) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_signal_takes_the_place_of_another() {
        [libc::SIGTERM, libc::SIGUSR1, libc::SIGHUP, libc::SIGUSR1]
            .into_iter()
            .for_each(|number| keep(number));
        assert_eq!(take_signals().collect::<Vec<_>>(), [libc::SIGHUP, libc::SIGUSR1, libc::SIGTERM]);
        assert_eq!(take_signals().count(), 0);
    }
}
