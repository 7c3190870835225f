// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `wakefuld`.

use std::path::PathBuf;

use clap::Parser;

/// Where the configuration is. Without one there, the default: nobody who names a file gets that by a slip of the pen.
pub const CONFIG: &str = "/etc/wakeful/wakefuld.toml";

/// Give programs processors of their own, and keep everybody else off them
///
/// Programs ask with `wakeful run --cpus`, or through the library; `wakeful status` shows who has what. Runs in the foreground until SIGTERM or SIGINT, then gives everything back.
/// If it is killed, programs keep their processors, and the next wakefuld takes them over.
#[derive(Parser)]
#[command(name = "wakefuld", version, max_term_width = 79)]
pub struct Args {
    /// The configuration; without one at the default place, the default
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub config: PathBuf,
    /// Where the socket and the partition blocks are
    #[arg(long, value_name = "FOLDER", default_value = "/run/wakeful")]
    pub folder: PathBuf,
    /// Print the default configuration, with what each key means, and exit
    #[arg(long)]
    pub print_config: bool,
    /// Print the manual page, and exit
    #[arg(long)]
    pub print_man: bool,
    /// Say more on standard error: each decision; twice: each refusal of the kernel too
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}
