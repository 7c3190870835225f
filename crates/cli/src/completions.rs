// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful completions`: what a shell needs to complete our arguments.

use std::io::Write;
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;

/// Print a completion script for a shell
#[derive(clap::Args)]
pub struct Args {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

pub fn main(args: Args, mut command: Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "wakeful", &mut script);
    if let Err(error) = std::io::stdout().write_all(&script) {
        crate::unwritten(&error);
    }
    Ok(ExitCode::SUCCESS)
}
