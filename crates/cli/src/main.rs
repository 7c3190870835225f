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
        if writeln!(std::io::stdout(), $($words)*).is_err() {
            std::process::exit(crate::FAILED.into());
        }
    }};
}

mod bench;
mod compare;
mod completions;
mod doctor;
mod figure;
mod format;
mod launch;
mod library;
mod locks;
mod man;
mod partition;
mod probe;
mod program;
mod run;
#[cfg(feature = "bpf")]
mod scheduler;
mod set;
mod sigpipe;
mod sim;
mod status;
mod suggest;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

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
    Run(run::Args),
    Compare(compare::Args),
    Status(status::Args),
    Set(set::Args),
    Locks(locks::Args),
    Bench(bench::Args),
    Sim(sim::Args),
    Doctor(doctor::Args),
    #[cfg(feature = "bpf")]
    Scheduler(scheduler::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Man(man::Args),
    #[command(hide = true, name = launch::VIEW_VERB)]
    TakenView,
}

fn run(verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Run(args) => run::main(args),
        Verb::Compare(args) => compare::main(args),
        Verb::Status(args) => status::main(args),
        Verb::Set(args) => set::main(args),
        Verb::Locks(args) => locks::main(args),
        Verb::Bench(args) => bench::main(args),
        Verb::Sim(args) => sim::main(args),
        Verb::Doctor(args) => doctor::main(args),
        #[cfg(feature = "bpf")]
        Verb::Scheduler(args) => scheduler::main(args),
        Verb::Completions(args) => completions::main(args, Cli::command()),
        Verb::Man(args) => man::main(args, Cli::command()),
        Verb::TakenView => launch::print_taken_view(),
    }
}

fn main() -> ExitCode {
    sigpipe::default();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { FAILED.into() } else { ExitCode::SUCCESS };
        }
    };
    match run(cli.verb) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("wakeful: {error:#}");
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
