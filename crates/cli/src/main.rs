// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `wakeful` command. One file per verb; what a verb prints, other crates have computed.

mod bench;
mod format;
mod library;
mod suggest;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    Bench(bench::Args),
}

fn run(verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Bench(args) => bench::main(args),
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { FAILED.into() } else { ExitCode::SUCCESS };
        }
    };
    match run(cli.verb) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wakeful: {error:#}");
            FAILED.into()
        }
    }
}

/// Whoever read our output has seen enough.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_arguments_are_consistent() {
        <super::Cli as clap::CommandFactory>::command().debug_assert();
    }
}
