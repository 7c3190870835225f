// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful locks`: the catalogue.

use std::process::ExitCode;

use catalog::{BARRIERS, BarrierEntry, Entry, MUTEXES};
use serde::Serialize;

use crate::format::{self, Format};

/// List the locks and barriers: where each comes from and what it can do
#[derive(clap::Args)]
pub struct Args {
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Serialize)]
struct Lock {
    name: &'static str,
    in_place: bool,
    timed: bool,
    fair: bool,
    informed: bool,
    citation: &'static str,
    summary: &'static str,
}

impl From<&'static Entry> for Lock {
    fn from(entry: &'static Entry) -> Self {
        let Entry { name, summary, citation, in_place, timed, fair, informed } = *entry;
        Self { name, in_place, timed, fair, informed, citation, summary }
    }
}

/// A barrier; in a table it stands in the columns of the locks.
#[derive(Serialize)]
struct Barrier {
    name: &'static str,
    dynamic: bool,
    informed: bool,
    citation: &'static str,
    summary: &'static str,
}

impl From<&'static BarrierEntry> for Barrier {
    fn from(entry: &'static BarrierEntry) -> Self {
        let BarrierEntry { name, summary, citation, dynamic, informed } = *entry;
        Self { name, dynamic, informed, citation, summary }
    }
}

impl From<&Barrier> for Lock {
    fn from(&Barrier { name, dynamic, informed, citation, summary }: &Barrier) -> Self {
        Self { name, in_place: dynamic, timed: false, fair: true, informed, citation, summary }
    }
}

pub fn main(args: Args) -> anyhow::Result<ExitCode> {
    let locks: Vec<Lock> = MUTEXES.iter().map(Lock::from).collect();
    let barriers: Vec<Barrier> = BARRIERS.iter().map(Barrier::from).collect();
    match args.format {
        Format::Text => text(&locks, &barriers),
        Format::Json => {
            locks.iter().try_for_each(|lock| format::json("lock", lock))?;
            barriers.iter().try_for_each(|barrier| format::json("barrier", barrier))?;
        }
        Format::Csv => {
            let mut csv = csv::Writer::from_writer(std::io::stdout());
            locks.iter().try_for_each(|lock| csv.serialize(lock))?;
            barriers.iter().try_for_each(|barrier| csv.serialize(Lock::from(barrier)))?;
            csv.flush()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn text(locks: &[Lock], barriers: &[Barrier]) {
    for lock in locks {
        let abilities =
            [(lock.in_place, "run"), (lock.timed, "timed"), (lock.fair, "fair"), (lock.informed, "informed")];
        entry(lock.name, &abilities, lock.summary, lock.citation);
    }
    println!("\nbarriers, for `wakeful bench barrier`\n");
    for barrier in barriers {
        let abilities = [(barrier.dynamic, "run, dynamic"), (barrier.informed, "informed")];
        entry(barrier.name, &abilities, barrier.summary, barrier.citation);
    }
    println!();
    println!("run       fits into its pthread counterpart: `wakeful run --lock` takes it,");
    println!("          or, of the barriers, always takes it");
    println!("timed     can give up waiting");
    println!("fair      serves waiters in the order in which they came");
    println!("dynamic   takes any thread; parties may join and leave");
    println!("informed  uses what the kernel tells about threads and processors");
}

fn entry(name: &str, abilities: &[(bool, &str)], summary: &str, citation: &str) {
    let abilities: Vec<&str> = abilities.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
    let first = format!("{name:<22} {}", abilities.join(", "));
    println!("{}", first.trim_end());
    println!("    {summary}");
    println!("    from: {citation}");
}
