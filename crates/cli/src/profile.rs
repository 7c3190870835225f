// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful profile`: runs a program, and says for whom its threads waited, and what those did meanwhile.

mod chain;
pub mod live;
pub mod names;
mod page;
mod report;
mod stacks;
mod summary;
mod text;
mod trace;
mod verdict;
mod verify;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Result, anyhow, bail};
use launch::closure::Reach;
use launch::interposer::{PROFILE_NAME, preload_list, prepend};
use launch::{Launch, Target, When, library};
use linux::environment::PROFILE;
use recorder::Program;
use recorder::profile::{Profile, Profiling, Timeline, events::Events};

use crate::recorded::{Output, Sink, cannot_start, end_as, pass_signals_on, signals_as_before, take_signals};
use names::Names;
use report::Report;

/// Run a program, and say for whom its threads waited, and what those did meanwhile
///
/// For programs that lock through pthread, and for OpenMP's. Their locks stay the C library's. Each wait is
/// told by a library that is preloaded, and joined with what the kernel says of who runs.
/// The report goes to standard error when the program has ended. Exit status: the program's; 125, 126 and 127
/// as for `wakeful run`.
#[derive(clap::Args)]
pub struct Args {
    /// Give the program the locks of `wakeful run`, and profile it with those
    #[arg(long)]
    wakeful: bool,
    #[command(flatten)]
    output: Output,
    /// Also write the report as a page with pictures, for a browser
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also write a trace, for Perfetto and chrome://tracing
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Also write the waiting by call stack, in us, for programs that draw flame graphs
    #[arg(long, value_name = "FILE")]
    folded: Option<PathBuf>,
    /// Then run the program plainly and with `wakeful run`, in turns, and say what that really gains
    #[arg(long)]
    verify: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

pub fn main(args: Args) -> Result<ExitCode> {
    let first_ns = recorder::now_ns();
    launch::names::misspelt().iter().for_each(|line| eprintln!("wakeful: {line}"));
    let name = args.command[0].clone();
    if args.verify {
        launch::check_not_preloaded()?;
    }
    let target = Target {
        lock: None,
        rwlock: None,
        barrier: None,
        view: None,
        openmp: When::Auto,
        command: args.command,
    };
    let launch = Launch::prepare(target, if args.verify { Reach::All } else { Reach::Near })?;
    let library = library::find()?.with_file_name(PROFILE_NAME);
    if !library.is_file() {
        bail!("{} is not there;\n{}", library.display(), library::AGAIN);
    }
    let mut output = args.output.open()?;
    let sink = |path: &Option<PathBuf>| path.as_deref().map(Sink::file).transpose();
    let (html, trace, folded) = (sink(&args.html)?, sink(&args.trace)?, sink(&args.folded)?);
    let all: Vec<_> =
        [Some(&output), html.as_ref(), trace.as_ref(), folded.as_ref()].into_iter().flatten().collect();
    if (1..all.len()).any(|at| all[..at].iter().any(|before| before.is_same(all[at]))) {
        bail!("two outputs would go to one file; name another for one of them");
    }
    let keep = html.is_some() || trace.is_some();
    let mut throttling = Throttled::new();
    let profile = record(&launch, &library, args.wakeful, keep, &mut throttling)
        .map_err(|error| cannot_start(error, &name, &launch.path))?;
    let mut names = Names::new(&profile);
    let (told, throttled) = throttling.finish();
    let report = Report::of(
        &profile,
        &launch,
        (args.wakeful, told, profile.from_ns.saturating_sub(first_ns)),
        &mut names,
    );
    let is_json = args.output.is_json();
    output.write(|to| if is_json { report.write_json(to) } else { text::write(&report, to) });
    pictures(profile, &report, &throttled, &mut names, [html, trace, folded]);
    if args.verify {
        // A user who does not want to wait for it has the report.
        signals_as_before();
        let verified = verify::run(&launch, &report.verdict, report.status);
        output.write(|to| verified.write(is_json, to));
    }
    signals_as_before();
    drop(output);
    Ok(end_as(report.status))
}

/// What was asked for beside the report.
fn pictures(
    mut profile: Profile,
    report: &Report,
    throttled: &[(u64, u64)],
    names: &mut Names,
    [html, trace, folded]: [Option<Sink>; 3],
) {
    let stacks = match html.is_some() || folded.is_some() {
        true => stacks::stacks(&profile, names),
        false => Vec::new(),
    };
    if let Some(mut folded) = folded {
        folded.write(|to| stacks::write_folded(&stacks, &report.summary.program, to));
    }
    let Some(mut timeline) = profile.timeline.take() else { return };
    if report.summary.is_hidden {
        // What there is was before the program began.
        timeline = Timeline::new(profile.from_ns);
    }
    let stretches = timeline.take_stretches();
    let period_ns = report.summary.period_us.unwrap_or(0) * 1_000;
    let own_time = |time_ns: u64| profile.own_time_ns(time_ns);
    let throttled: Stretches = throttled.iter().map(|(from, to)| (own_time(*from), own_time(*to))).collect();
    let throttled = &stopped(timeline.take_stopped(), &throttled, period_ns);
    if let Some(mut trace) = trace {
        trace.write(|to| trace::write(&profile, &timeline, &stretches, throttled, names, to));
    }
    if let Some(mut html) = html {
        let held = timeline.take_held();
        let (profile, timeline, stretches) = (&profile, &timeline, &stretches);
        let parts =
            page::Parts { profile, report, timeline, stretches, held: &held, stacks: &stacks, throttled };
        html.write(|to| page::write(&parts, names, to));
    }
}

/// When a quota stopped the program: its threads wanted a processor and had none, shortly before the kernel
/// counted a period as throttled, which it does at the period's end. Without such stretches: when it was
/// counted.
fn stopped(stopped: Stretches, counted: &[(u64, u64)], period_ns: u64) -> Stretches {
    let is_it = |(from_ns, to_ns): &(u64, u64)| {
        counted.iter().any(|(since_ns, until_ns)| from_ns < until_ns && *to_ns + period_ns > *since_ns)
    };
    let by_quota: Stretches = stopped.into_iter().filter(is_it).collect();
    if by_quota.is_empty() { counted.to_vec() } else { by_quota }
}

/// From and to.
type Stretches = Vec<(u64, u64)>;

/// When a quota stopped the program.
struct Throttled {
    first: Option<linux::Throttlings>,
    last: Option<linux::Throttlings>,
    looked_ns: u64,
    stretches: Stretches,
}

/// BOUND: from one look at the quota to the next, which takes 50 us.
const LOOK_NS: u64 = 50_000_000;
/// BOUND: stretches that are kept apart. Then each two become one.
const MOST_THROTTLED: usize = 2_000;

impl Throttled {
    fn new() -> Self {
        let first = linux::throttling();
        Self { first, last: first, looked_ns: recorder::now_ns(), stretches: Vec::new() }
    }

    fn look(&mut self, at_least_ns: u64) {
        let now_ns = recorder::now_ns();
        if self.last.is_none() || now_ns - self.looked_ns < at_least_ns {
            return;
        }
        let now = linux::throttling();
        let stopped = now.zip(self.last).is_some_and(|(now, last)| now.since(&last).throttled > 0);
        if stopped {
            self.add(self.looked_ns, now_ns);
        }
        (self.last, self.looked_ns) = (now.or(self.last), now_ns);
    }

    fn add(&mut self, from_ns: u64, to_ns: u64) {
        match self.stretches.last_mut() {
            Some(last) if last.1 >= from_ns => last.1 = to_ns,
            _ => self.stretches.push((from_ns, to_ns)),
        }
        if self.stretches.len() > MOST_THROTTLED {
            let pairs = self.stretches.chunks(2).map(|pair| (pair[0].0, pair[pair.len() - 1].1));
            self.stretches = pairs.collect();
        }
    }

    /// How often in all, and when.
    fn finish(mut self) -> (Option<linux::Throttling>, Stretches) {
        self.look(0);
        let all = self.last.zip(self.first).map(|(last, first)| last.since(&first));
        (all, self.stretches)
    }
}

fn record(
    launch: &Launch,
    library: &Path,
    wakeful: bool,
    keep: bool,
    throttled: &mut Throttled,
) -> Result<Profile> {
    let events = Events::new().map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::FileTooLarge => "raise `ulimit -f`, the limit of file sizes, to 300 MB",
            _ => "end other programs, or raise `ulimit -v` and the cgroup's limit of memory",
        };
        anyhow!("no memory for the events of the program, 256 MB that are mostly holes: {error};\n{advice}")
    })?;
    let command = command(launch, library, wakeful, &events.path());
    let program = Program::prepare(|| launch::become_program(&command, &launch.path))?;
    let mut profiling = Profiling::new(program, events);
    if keep {
        profiling.keep_timeline();
    }
    pass_signals_on();
    let obstacle = launch.program.obstacle.as_ref().map(ToString::to_string);
    let listener = live::Listener::new(obstacle);
    profiling.start()?;
    Ok(profiling.run(|program, now| {
        take_signals().for_each(|number| program.signal(number));
        listener.answer(now);
        if keep {
            throttled.look(LOOK_NS);
        }
    }))
}

/// The program with our library, unless that cannot be loaded into it.
fn command(launch: &Launch, library: &Path, wakeful: bool, events: &str) -> Command {
    if launch.program.obstacle.is_some() {
        return launch.plain();
    }
    let mut command = if wakeful { launch.helped() } else { launch.plain() };
    let list = command.get_envs().find(|(name, _)| *name == "LD_PRELOAD").and_then(|(_, list)| list);
    let list = list.map_or_else(|| preload_list(library), |list| prepend(library, list));
    command.env("LD_PRELOAD", list).env(PROFILE.name(), events);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_of_a_quota_join_and_stay_few() {
        let mut throttled = Throttled { first: None, last: None, looked_ns: 0, stretches: Vec::new() };
        throttled.add(10, 20);
        throttled.add(20, 30);
        throttled.add(40, 50);
        assert_eq!(throttled.stretches, [(10, 30), (40, 50)]);
        (0..10_000).for_each(|at| throttled.add(100 + at * 10, 105 + at * 10));
        assert!(throttled.stretches.len() <= MOST_THROTTLED);
        assert_eq!(throttled.stretches.first().unwrap().0, 10);
        assert_eq!(throttled.stretches.last().unwrap().1, 105 + 99_990);
    }
}
