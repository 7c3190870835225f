// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful profile`: runs a program, and says for whom its threads waited, and what those did meanwhile.

mod report;
mod text;
mod verdict;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context, Result, bail};
use launch::closure::Reach;
use launch::interposer::{preload_list, prepend};
use launch::{Launch, Target, When, library, program};
use linux::environment::PROFILE;
use recorder::profile::{Profile, Profiling, events::Events};
use recorder::{Program, StartError};

use crate::format::Format;
use crate::watch::{pass_signals_on, take_signals};
use report::Report;

/// Run a program, and say for whom its threads waited, and what those did meanwhile
///
/// For programs that lock through pthread. Their locks stay the C library's. Each wait is told by a library
/// that is preloaded, and joined with what the kernel says of who runs.
/// The report goes to standard error when the program has ended. Exit status: the program's; 125, 126 and 127
/// as for `wakeful run`.
#[derive(clap::Args)]
pub struct Args {
    /// Give the program the locks of `wakeful run`, and profile it with those
    #[arg(long)]
    wakeful: bool,
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

fn format(text: &str) -> Result<Format, String> {
    match text {
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        _ => Err("text or json".into()),
    }
}

/// File name of the library that tells the waits; it is where the interposer is.
const LIBRARY: &str = "libwakeful_profile.so";

pub fn main(args: Args) -> Result<ExitCode> {
    let name = args.command[0].clone();
    let target = Target { lock: None, rwlock: None, view: None, openmp: When::Auto, command: args.command };
    let launch = Launch::prepare(target, Reach::Near)?;
    let library = library::find()?.with_file_name(LIBRARY);
    if !library.is_file() {
        bail!("{} is not there;\n{}", library.display(), library::AGAIN);
    }
    let mut output: Box<dyn Write> = match &args.output {
        Some(path) => {
            let file = File::create(path);
            Box::new(file.with_context(|| format!("cannot write to {}", path.display()))?)
        }
        None => Box::new(io::stderr()),
    };
    let before = linux::throttling();
    let profile = match record(&launch, &library, args.wakeful) {
        Ok(profile) => profile,
        Err(error) => {
            return Err(match error.downcast::<StartError>() {
                Ok(StartError::Exec(error)) => {
                    let image = program::inspect(&launch.path).map_or(launch.path, |program| program.image);
                    launch::cannot_run(&name, Some(&image), &error).into()
                }
                Ok(other) => other.into(),
                Err(other) => other,
            });
        }
    };
    let throttled = before.and_then(|before| Some(linux::throttling()?.since(before)));
    let status = ExitStatus::from_raw(profile.status);
    let report = Report::of(&profile, &launch, throttled.map(|all| (all.throttled, all.periods)));
    let written = match args.format {
        Format::Json => report.write_json(&mut output),
        _ if args.json => report.write_json(&mut output),
        _ => text::write(&report, &mut output),
    };
    // As for `watch`: the program's status is passed on, whether or not somebody reads the report.
    if let Err(error) = written
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let to = args.output.map_or("standard error".into(), |path| path.display().to_string());
        let _ = writeln!(io::stderr(), "wakeful: cannot write to {to}: {error}");
    }
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(u8::try_from(code).unwrap_or(crate::FAILED).into())
}

fn record(launch: &Launch, library: &Path, wakeful: bool) -> Result<Profile> {
    let events =
        Events::new().context("no memory for the events of the program, 256 MB that are mostly holes")?;
    let command = command(launch, library, wakeful, &events.path());
    let program = Program::prepare(|| launch::become_program(&command, &launch.path))?;
    let mut profiling = Profiling::new(program, events);
    pass_signals_on();
    profiling.program().start()?;
    Ok(profiling.run(|program| {
        take_signals().for_each(|number| program.signal(number));
    }))
}

/// The program with our library, unless that cannot be loaded into it.
fn command(launch: &Launch, library: &Path, wakeful: bool, events: &str) -> Command {
    if launch.program.obstacle.is_some() {
        return launch.plain();
    }
    let mut command = if wakeful { launch.helped() } else { launch.plain() };
    let list = command.get_envs().find(|(name, _)| *name == "LD_PRELOAD").and_then(|(_, list)| list);
    let list = list.map_or_else(|| preload_list(library), |list| prepend(library, list));
    command.env("LD_PRELOAD", list).env(PROFILE.name(), events);
    command
}
