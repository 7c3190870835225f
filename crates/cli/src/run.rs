// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful run`: becomes the program, with the interposer preloaded.

use std::process::ExitCode;

use anyhow::Context;
use launch::closure::Reach;
use launch::{Launch, Taken, names, probe, program, suggest};

use crate::format::whole_number;
use crate::partition::{self, Cpus};
use crate::target::Target;
use crate::throttle;

/// Run a program with locks that know which of its threads run
///
/// What is replaced: pthread mutexes, condition variables, spin locks, reader-writer locks, barriers,
/// unnamed semaphores and pthread_once, and the OpenMP runtimes of gcc, clang and Python's wheels. Nothing
/// else changes. Nothing is printed, unless the program cannot be helped. Exit status: the program's; 125
/// if wakeful fails, 126 if the program cannot be executed, 127 if it is not found.
#[derive(clap::Args)]
pub struct Args {
    /// Say on standard error which library, lock and view are used, and at the end how often a CPU quota
    /// held the program up
    #[arg(short, long)]
    verbose: bool,
    /// Put the program under the scheduler that `wakeful scheduler start` has started; its reader-writer lock
    /// is rw-wakeful-np then, unless another is chosen
    #[arg(long, hide = cfg!(not(feature = "bpf")))]
    scheduled: bool,
    /// Give the program processors of its own: 2, 1-4 (as many as there are), or auto; see `wakeful status`
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    cpus: Option<Cpus>,
    /// With --cpus: requests of higher priority are served first
    #[arg(
        long, value_name = "N", default_value_t = 0, requires = "cpus",
        allow_negative_numbers = true, value_parser = whole_number::<u32>(0..)
    )]
    priority: u32,
    #[command(flatten)]
    launch: Target,
}

pub fn main(args: Args) -> anyhow::Result<ExitCode> {
    let scheduled = args.scheduled;
    #[cfg(not(feature = "bpf"))]
    if scheduled {
        anyhow::bail!(crate::WITHOUT_SCHEDULER);
    }
    names::misspelt().iter().for_each(|line| eprintln!("wakeful: {line}"));
    #[cfg(feature = "bpf")]
    let args = if scheduled { Args { launch: args.launch.for_the_scheduler(), ..args } } else { args };
    let launch = Launch::prepare(args.launch.into(), if args.verbose { Reach::All } else { Reach::Near })?;
    #[allow(unused_mut)]
    let mut command = match &launch.program.obstacle {
        Some(obstacle) => {
            eprintln!("wakeful: running `{}` unchanged:\n{obstacle}", launch.name());
            launch.plain()
        }
        None => {
            if args.verbose {
                explain(&launch, scheduled);
            } else if let Ok(Taken { instead: Some(instead), .. }) = launch.asked_view() {
                eprintln!("wakeful: {instead}");
            }
            launch.helped()
        }
    };
    #[cfg(feature = "bpf")]
    if scheduled {
        command.env(linux::environment::OBSERVER.name(), crate::scheduler::join()?);
    }
    if let Some(cpus) = args.cpus {
        let (state, block) = partition::join(cpus, args.priority).context("no processors")?;
        if args.verbose {
            eprintln!("wakeful: {} of its own ({})", partition::processors(state.holds), state.ids);
        }
        // One that is not helped would not know what to do with it.
        match partition::hand_over(&block).filter(|_| launch.program.obstacle.is_none()) {
            Some(number) => _ = command.env(linux::environment::PARTITION.name(), number),
            None if launch.program.obstacle.is_some() => {}
            None => eprintln!(
                "wakeful: the program does not learn how many processors it has;\nraise `ulimit -n` above 900"
            ),
        }
    }
    if args.verbose {
        throttle::watch();
    }
    let error = launch::become_program(&command, &launch.path);
    Err(launch.cannot_run(&error).into())
}

fn explain(launch: &Launch, scheduled: bool) {
    eprintln!("wakeful: library {}", launch.library().display());
    eprintln!("wakeful: lock {}", launch.lock());
    eprintln!("wakeful: reader-writer lock {}", launch.rwlock());
    let of_none = if launch.has_barriers() { "" } else { "; the program itself has none" };
    eprintln!("wakeful: barrier {}{of_none}", launch.barrier());
    for name in launch.spinning() {
        let processors = linux::Processors::look().count();
        eprintln!(
            "wakeful: {name} spins, whoever runs; more threads than the {processors} processors burn whole"
        );
        eprintln!("wakeful: slices there, and a round may take seconds");
    }
    if let Some(words) = launch.openmp_says() {
        eprintln!("wakeful: {words}");
    }
    if let Some(name) = launch.wishing() {
        eprint_wish(name, scheduled);
    }
    match launch.taken_view() {
        _ if scheduled && matches!(launch.view(), "auto" | "bpf") => {
            eprintln!("wakeful: view bpf, kept by the scheduler")
        }
        Ok(Taken { instead: Some(instead), .. }) => eprintln!("wakeful: {instead}"),
        Ok(Taken { taken, .. }) if launch.view() == "auto" => {
            eprintln!("wakeful: view {taken}, the best one here")
        }
        Ok(Taken { taken, .. }) => eprintln!("wakeful: view {taken}"),
        // The program runs all the same.
        Err(error) => eprintln!("wakeful: {}", suggest::reason(&error)),
    }
    if program::is_go(&launch.program.image) {
        eprintln!("wakeful: a Go program; its own locks do not use pthread, only C code in it gains");
    }
}

/// What acts on the wishes of this lock.
fn eprint_wish(name: &str, scheduled: bool) {
    if scheduled {
        eprintln!("wakeful: {name} asks the kernel not to preempt its holder; the scheduler grants");
        eprintln!("wakeful: that, once a quantum");
    } else if probe::wishes_are_heard() {
        eprintln!("wakeful: {name} asks the kernel not to preempt its holder; it grants that,");
        eprintln!("wakeful: for some microseconds, by the slice extension of restartable sequences");
    } else {
        eprintln!("wakeful: {name} asks the kernel not to preempt its holder; nobody here acts");
        eprintln!("wakeful: on that, holders are preempted like others; `wakeful locks` says more");
    }
}
