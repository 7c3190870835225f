// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `wakeful` command. One file per verb; what a verb prints, other crates have computed.

/// As the standard one, but a reader who is gone, or a full disk, must not keep us from our work: talk is lost.
macro_rules! eprintln {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

/// As the standard one, but data that nobody gets is a failure of ours and not a panic.
macro_rules! println {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        if let Err(error) = writeln!(std::io::stdout(), $($words)*) {
            crate::unwritten(&error);
        }
    }};
}

mod bench;
mod bench_partition;
mod compare;
mod completions;
mod demo;
mod doctor;
mod fibers;
mod figure;
mod format;
mod grant;
mod locks;
mod man;
#[cfg(test)]
mod pages;
mod partition;
mod profile;
mod recorded;
mod run;
#[cfg(feature = "bpf")]
mod scheduler;
mod set;
mod sim;
mod status;
mod target;
mod throttle;
mod top;
mod watch;

use std::io::Write;
use std::process::ExitCode;

use anyhow::bail;
use clap::{CommandFactory, Parser, Subcommand};
use launch::interposer::Interposer;
use launch::{sigpipe, stack, streams};

/// Exit status of our own failures, as env(1) and its kind have it.
pub const FAILED: u8 = 125;

/// Locks that know who is awake: keeps threaded programs fast when they have more threads than processors
#[derive(Parser)]
#[command(name = "wakeful", version, max_term_width = 79, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Demo(demo::Args),
    Run(run::Args),
    Compare(compare::Args),
    Status(status::Args),
    Top(top::Args),
    Watch(watch::Args),
    Profile(profile::Args),
    Set(set::Args),
    Locks(locks::Args),
    Bench(bench::Args),
    Sim(sim::Args),
    Doctor(doctor::Args),
    #[cfg(feature = "bpf")]
    Scheduler(scheduler::Args),
    #[cfg(not(feature = "bpf"))]
    #[command(hide = true, disable_help_flag = true)]
    Scheduler(Missing),
    Completions(completions::Args),
    #[command(hide = true)]
    Man(man::Args),
    #[command(hide = true, name = launch::VIEW_VERB)]
    TakenView,
}

/// What is said to a verb that another build has.
#[cfg(not(feature = "bpf"))]
#[derive(clap::Args)]
struct Missing {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<std::ffi::OsString>,
}

/// What is said to who asks for the scheduler.
#[cfg(not(feature = "bpf"))]
const WITHOUT_SCHEDULER: &str = "this wakeful is built without the scheduler; build it with\n\
     --features wakeful-cli/bpf,wakeful-preload/bpf (needs libelf and zlib)";

impl Verb {
    /// Does it write data of ours to standard output?
    fn prints(&self) -> bool {
        !matches!(self, Self::Run(_) | Self::Watch(_) | Self::Profile(_) | Self::Scheduler(_))
    }
}

/// Ends because data could not be written.
fn unwritten(error: &std::io::Error) -> ! {
    eprintln!(
        "wakeful: cannot write to standard output: {error};\nsend it elsewhere, for example with `>file`"
    );
    std::process::exit(FAILED.into());
}

/// Refuses to write data to a standard output that we were started without; Rust's runtime has put /dev/null there.
fn check_output() {
    if streams::was_closed(libc::STDOUT_FILENO) {
        eprintln!("wakeful: standard output is closed; open it, for example with `>/dev/null`");
        std::process::exit(FAILED.into());
    }
}

/// Prints the view that the interposer, which is preloaded here, takes.
fn print_taken_view() -> anyhow::Result<ExitCode> {
    let Some(interposer) = Interposer::here() else { bail!("no interposer is preloaded here") };
    std::io::stdout().write_all(interposer.view().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn run(verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Demo(args) => demo::main(args),
        Verb::Run(args) => run::main(args),
        Verb::Compare(args) => compare::main(args),
        Verb::Status(args) => status::main(args),
        Verb::Top(args) => top::main(args),
        Verb::Watch(args) => watch::main(args),
        Verb::Profile(args) => profile::main(args),
        Verb::Set(args) => set::main(args),
        Verb::Locks(args) => locks::main(args),
        Verb::Bench(args) => bench::main(args),
        Verb::Sim(args) => sim::main(args),
        Verb::Doctor(args) => doctor::main(args),
        #[cfg(feature = "bpf")]
        Verb::Scheduler(args) => scheduler::main(args),
        #[cfg(not(feature = "bpf"))]
        Verb::Scheduler(_) => bail!(WITHOUT_SCHEDULER),
        Verb::Completions(args) => completions::main(args, Cli::command()),
        Verb::Man(args) => man::main(args, Cli::command()),
        Verb::TakenView => print_taken_view(),
    }
}

fn main() -> ExitCode {
    sigpipe::default();
    stack::with_enough(work).unwrap_or(FAILED.into())
}

/// `wakeful run` alone. To describe all other verbs to the parser takes longer than to run a program.
#[derive(Parser)]
#[command(name = "wakeful", version, max_term_width = 79, disable_help_subcommand = true)]
struct Runner {
    #[command(subcommand)]
    verb: RunVerb,
}

#[derive(Subcommand)]
enum RunVerb {
    Run(run::Args),
}

fn parse() -> Result<Cli, clap::Error> {
    if std::env::args_os().nth(1).is_some_and(|verb| verb == "run") {
        let Runner { verb: RunVerb::Run(args) } = Runner::try_parse()?;
        return Ok(Cli { verb: Verb::Run(args) });
    }
    Cli::try_parse()
}

fn work() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            let _ = error.print();
            return FAILED.into();
        }
        Err(help) => {
            check_output();
            if let Err(error) = help.print() {
                unwritten(&error);
            }
            return ExitCode::SUCCESS;
        }
    };
    if cli.verb.prints() {
        check_output();
    }
    match run(cli.verb) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("wakeful: {}", launch::suggest::reason(&error));
            error.downcast_ref::<launch::CannotRun>().map_or(FAILED, |error| error.status).into()
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_arguments_are_consistent() {
        <super::Cli as clap::CommandFactory>::command().debug_assert();
    }
}
