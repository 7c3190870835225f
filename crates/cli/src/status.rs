// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful status`: who has which processors, and who waits.

use std::process::ExitCode;

use anyhow::Result;
use linux::server::{Connection, THREADS};

use crate::format;
use crate::partition::{self, Observed, Status, explain, processors};

/// Show which programs have processors of their own, which wait for some, and what observed threads do
///
/// Asks `wakefuld`. Exit status 125 if none runs. The second table is about programs that it has lent its
/// observer: how many threads are known, run, were preempted, or sleep. Then it tells how many hold a lock,
/// how many of these have no processor, and how many ask not to be preempted. Locks say so that are
/// informed or have wishes; see `wakeful locks`.
#[derive(clap::Args)]
pub struct Args {
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One JSON object
    Json,
    /// OpenMetrics text, for a collector
    Openmetrics,
}

pub fn main(args: Args) -> Result<ExitCode> {
    let status =
        Connection::open().and_then(|mut connection| partition::status(&mut connection)).map_err(explain)?;
    match args.format {
        Format::Text => text(&status),
        Format::Json => format::json("status", &status)?,
        Format::Openmetrics => print_lines(&open_metrics(&status)),
    }
    Ok(ExitCode::SUCCESS)
}

fn print_lines(text: &str) {
    text.lines().for_each(|line| println!("{line}"));
}

fn text(status: &Status) {
    let default = processors(status.default_count);
    println!("default partition: {default} ({}); kept by {}", status.default_partition, status.enforcement);
    applications(status);
    if status.more > 0 {
        println!("and {} more programs have asked", status.more);
    }
    if !status.observed.is_empty() {
        println!("\n{}", Observed::head().join(" "));
        status.observed.iter().for_each(|one| println!("{}", one.row().join(" ")));
    }
    if status.unlisted > 0 {
        println!("and {} more programs are observed", status.unlisted);
    }
}

fn applications(status: &Status) {
    if status.applications.is_empty() {
        println!("no program has asked for processors; `wakeful run --cpus 1 -- PROGRAM` does");
        return;
    }
    println!(
        "{:>8} {:<15} {:>6} {:>8} {:>6} {:>4}  PROCESSORS",
        "PROCESS", "PROGRAM", "USER", "PRIORITY", "ASKED", "HAS"
    );
    for application in &status.applications {
        let partition::Application { process, program, user, priority, asked, holds, processors, .. } =
            application;
        let remark = partition::remark(application);
        let both = if processors.is_empty() || remark.is_empty() { "" } else { "; " };
        let row = format!("{process:>8} {program:<15.15} {user:>6} {priority:>8} {asked:>6} {holds:>4}");
        println!("{row}  {processors}{both}{remark}");
    }
}

/// The text that OpenMetrics collectors read.
fn open_metrics(status: &Status) -> String {
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, value: u64| {
        text +=
            &format!("# TYPE wakeful_{name} gauge\n# HELP wakeful_{name} {help}\nwakeful_{name} {value}\n");
    };
    let sum = |of: fn(&partition::Application) -> u32| {
        status.applications.iter().map(|one| u64::from(of(one))).sum()
    };
    gauge("default_processors", "Processors of the default partition.", status.default_count.into());
    gauge("granted_processors", "Processors of all other partitions.", sum(|one| one.holds));
    gauge(
        "applications",
        "Programs that have, or wait for, a partition.",
        status.applications.len() as u64 + u64::from(status.more),
    );
    gauge("waiting_processors", "Processors that are waited for.", sum(|one| one.lacks));
    gauge(
        "spare_processors",
        "Processors that their holders have hinted they can spare.",
        sum(|one| one.spare),
    );
    gauge(
        "observed_programs",
        "Programs that have an arena.",
        status.observed.len() as u64 + u64::from(status.unlisted),
    );
    for (index, name) in THREADS.iter().enumerate() {
        let help = format!("Threads of the listed observed programs: {}.", name.replace('_', " and "));
        gauge(
            &format!("threads_{name}"),
            &help,
            status.observed.iter().map(|one| u64::from(one.threads.values()[index])).sum(),
        );
    }
    for (name, value) in &status.counters {
        let words = name.replace('_', " ");
        text += &format!(
            "# TYPE wakeful_{name} counter\n# HELP wakeful_{name} Since the server was started: {words}.\n"
        );
        text += &format!("wakeful_{name}_total {value}\n");
    }
    text + "# EOF\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_complete_and_end() {
        let counters = linux::server::COUNTERS.into_iter().zip(1..).collect();
        let (enforcement, default_partition) = ("affinity", "0".into());
        let observed = partition::Observed {
            process: 1,
            program: "x".into(),
            user: 0,
            threads: linux::server::Threads::from_values([5, 2, 2, 1, 2, 1, 0, 0]),
        };
        let (applications, observed, observer, unlisted) = (vec![], vec![observed], true, 1);
        let status = Status {
            enforcement,
            default_partition,
            default_count: 3,
            more: 0,
            applications,
            observer,
            observed,
            unlisted,
            counters,
        };
        let text = open_metrics(&status);
        assert!(text.ends_with("# EOF\n") && text.contains("\nwakeful_messages_total 1\n"), "{text}");
        assert!(text.contains("\nwakeful_default_processors 3\n"), "{text}");
        assert!(text.contains("\nwakeful_threads_preempted_holding 1\n"), "{text}");
        assert!(text.contains("\nwakeful_observed_programs 2\n"), "{text}");
        // Each sample has its type, before it.
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(' ').next().unwrap().trim_end_matches("_total");
            assert!(text.contains(&format!("# TYPE {name} ")), "{line}");
        }
    }
}
