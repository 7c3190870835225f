// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful locks`: the catalogue.

use std::process::ExitCode;

use catalog::{BARRIERS, BarrierEntry, DELEGATES, DelegateEntry, Entry, MUTEXES, RWLOCKS};
use launch::{names, probe};
use serde::Serialize;

use crate::format::{self, Format};

/// List the locks and barriers: where each comes from and what it can do
#[derive(clap::Args)]
pub struct Args {
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// What to say of locks with the flag `wishes` where nobody acts on wishes.
pub const UNHEARD: &str = "Nobody on this machine acts on that wish: holders are preempted like others.
An -np lock is then its plain twin with the cost of asking. queue-hs, smart-q,
rw-smart-q and ticket-np still pass over waiters that do not run.";

#[derive(Serialize)]
struct Lock {
    name: &'static str,
    kind: &'static str,
    in_place: bool,
    timed: bool,
    fair: bool,
    informed: bool,
    wishes: bool,
    dynamic: bool,
    citation: &'static str,
    summary: &'static str,
}

impl Lock {
    fn new(kind: &'static str, entry: &'static Entry) -> Self {
        let Entry { name, summary, citation, in_place, timed, fair, informed, wishes } = *entry;
        Self { name, kind, in_place, timed, fair, informed, wishes, dynamic: false, citation, summary }
    }

    fn delegate(entry: &'static DelegateEntry) -> Self {
        let DelegateEntry { name, summary, citation, timed, served: _, fair, informed } = *entry;
        let (kind, in_place, wishes, dynamic) = ("delegate", false, false, false);
        Self { name, kind, in_place, timed, fair, informed, wishes, dynamic, citation, summary }
    }

    fn barrier(entry: &'static BarrierEntry) -> Self {
        let BarrierEntry { name, summary, citation, dynamic, informed } = *entry;
        let (kind, in_place) = ("barrier", dynamic);
        Self {
            name,
            kind,
            in_place,
            timed: false,
            fair: false,
            informed,
            wishes: false,
            dynamic,
            citation,
            summary,
        }
    }
}

pub fn main(args: Args) -> anyhow::Result<ExitCode> {
    let mutexes = MUTEXES.iter().map(|entry| Lock::new("mutex", entry));
    let rwlocks = RWLOCKS.iter().map(|entry| Lock::new("rwlock", entry));
    let delegates = DELEGATES.iter().map(Lock::delegate);
    let barriers = BARRIERS.iter().map(Lock::barrier);
    let locks: Vec<Lock> = mutexes.chain(rwlocks).chain(delegates).chain(barriers).collect();
    match args.format {
        Format::Text => text(&locks),
        Format::Json => locks.iter().try_for_each(|lock| format::json("lock", lock))?,
        Format::Csv => {
            let mut csv = csv::Writer::from_writer(std::io::stdout());
            locks.iter().try_for_each(|lock| csv.serialize(lock))?;
            csv.flush()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn text(locks: &[Lock]) {
    let mut kind = "mutex";
    for lock in locks {
        if lock.kind != kind {
            let title = match lock.kind {
                "rwlock" => "reader-writer locks",
                "delegate" => "delegating locks, for `wakeful bench delegate` and Rust",
                _ => "barriers",
            };
            println!("\n{title}\n");
            kind = lock.kind;
        }
        let run = match lock.kind {
            "mutex" => lock.in_place,
            "rwlock" => names::rwlocks().contains(&lock.name),
            "barrier" => true,
            _ => false,
        };
        let abilities = [
            (run, "run"),
            (lock.timed, "timed"),
            (lock.fair, "fair"),
            (lock.informed, "informed"),
            (lock.wishes, "wishes"),
            (lock.dynamic, "dynamic"),
        ];
        let abilities: Vec<&str> = abilities.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
        println!("{}", format!("{:<22} {}", lock.name, abilities.join(", ")).trim_end());
        println!("    {}", lock.summary);
        println!("    from: {}", lock.citation);
    }
    println!();
    println!("run       `wakeful run` takes it, with --lock, --rwlock or --barrier: it fits into");
    println!("          pthread's, or, of barriers, has memory of its own.");
    println!("          glibc's default lets a reader in whenever no writer is inside, and");
    println!("          programs rely on that. So do all reader-writer locks with `run`;");
    println!("          the fair ones do not and are for `wakeful bench` and Rust only");
    println!("timed     can give up waiting");
    println!("fair      serves waiters in the order in which they came");
    println!("informed  uses what the kernel tells about threads and processors");
    println!("dynamic   takes any thread; parties may join and leave");
    println!("wishes    asks the kernel not to preempt the holder");
    if probe::our_scheduler() {
        println!("\nThe scheduler acts on that wish, for what `wakeful run --scheduled` starts.");
    } else if !probe::wishes_are_heard() {
        println!("\n{UNHEARD}");
    }
}
