// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chores of the project itself: `cargo xtask`.

mod mutate;
mod sites;

use clap::Parser;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of the project itself")]
enum Chore {
    Mutate(mutate::Options),
}

fn main() -> anyhow::Result<std::process::ExitCode> {
    match Chore::parse() {
        Chore::Mutate(options) => mutate::mutate(&options),
    }
}
