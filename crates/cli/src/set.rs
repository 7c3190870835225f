// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful set`: another partition for a program that runs, or a hint in its name.

use std::process::ExitCode;

use anyhow::Result;
use linux::server::{Connection, Request};

use crate::format::whole_number;
use crate::partition::{Cpus, explain, processors};

/// Change the partition of a program that runs, or give it one
///
/// Asks `wakefuld`; for processes of your own, as root for all.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("what").required(true)))]
pub struct Args {
    /// The process, as `wakeful status` shows it
    #[arg(value_parser = whole_number::<u32>(1..))]
    process: u32,
    /// Ask for so many processors: 2, 1-4 (as many as there are), or auto
    #[arg(long, value_name = "N", group = "what", allow_hyphen_values = true)]
    cpus: Option<Cpus>,
    /// With --cpus: requests of higher priority are served first
    #[arg(
        long, value_name = "N", default_value_t = 0, requires = "cpus",
        allow_negative_numbers = true, value_parser = whole_number::<u32>(0..)
    )]
    priority: u32,
    /// Say that it can spare so many of its processors; they go when somebody asks
    #[arg(
        long, value_name = "N", group = "what",
        allow_negative_numbers = true, value_parser = whole_number::<u32>(0..)
    )]
    spare: Option<u32>,
    /// Say that it can use all its processors again
    #[arg(long, group = "what")]
    want_back: bool,
    /// Give its processors back; it runs in the default partition
    #[arg(long, group = "what")]
    leave: bool,
}

pub fn main(args: Args) -> Result<ExitCode> {
    let process = args.process;
    let request = match (args.cpus, args.spare) {
        (Some(cpus), _) => cpus.request(args.priority),
        (_, Some(count)) => Request::Spare(count),
        _ if args.leave => Request::Leave,
        _ => Request::WantBack,
    };
    let ask = |mut connection: Connection| connection.ask(request.of(process));
    let (state, _) = Connection::open().and_then(ask).map_err(explain)?;
    if args.leave {
        println!("{process} runs in the default partition");
    } else if state.lacks > 0 {
        let has = processors(state.holds);
        println!("{process} has {has}, and waits for {}; `wakeful status` shows who has them", state.lacks);
    } else if args.spare.is_some_and(|count| count > 0) && state.spare == 0 {
        println!("{process} has {}, and keeps one: it has none to spare", processors(state.holds));
    } else {
        println!("{process} has {} ({})", processors(state.holds), state.ids);
    }
    Ok(ExitCode::SUCCESS)
}
