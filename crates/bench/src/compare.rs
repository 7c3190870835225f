// SPDX-License-Identifier: MIT OR Apache-2.0
//! A whole program with and without the interposer, in turns.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use serde::Serialize;

use crate::process::{self, Usage};
use crate::stats::{self, Finding, Interval};

/// What becomes of the program's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Thrown away.
    Discard,
    /// Sent to our standard error.
    Show,
    /// Standard output is compared, standard error thrown away.
    Compare,
}

/// What to compare.
pub struct Plan<'a> {
    /// Makes the command without the interposer.
    pub plain: &'a dyn Fn() -> Command,
    /// Makes the command with it.
    pub helped: &'a dyn Fn() -> Command,
    /// Pairs of runs.
    pub pairs: usize,
    /// Runs before them that do not count, of each.
    pub warm_ups: usize,
    /// A run that takes longer is killed.
    pub timeout: Option<Duration>,
    /// What becomes of the output.
    pub output: Output,
    /// An exit status other than 0 is a result like any other, if all runs have it.
    pub ignore_failure: bool,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// With an exit status.
    Exit(i32),
    /// By a signal.
    Signal(i32),
    /// We killed it when its time was up.
    TimedOut,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::Exit(status) => write!(f, "exit status {status}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::TimedOut => f.write_str("killed after the timeout"),
        }
    }
}

fn end(status: ExitStatus, timed_out: bool) -> End {
    match (timed_out, status.code()) {
        (true, _) => End::TimedOut,
        (_, Some(code)) => End::Exit(code),
        _ => End::Signal(status.signal().unwrap_or_default()),
    }
}

/// One run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Run {
    /// How it ended.
    pub end: End,
    /// From start to end.
    pub wall_seconds: f64,
    /// What it used, with the children that it waited for.
    #[serde(flatten)]
    pub usage: Usage,
    /// Hash of its standard output, if that is compared.
    pub output: Option<u64>,
}

/// Medians of one side.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Side {
    /// Wall-clock seconds.
    pub wall_seconds: f64,
    /// Seconds in user mode.
    pub user_seconds: f64,
    /// Seconds in the kernel.
    pub system_seconds: f64,
    /// Context switches, voluntary.
    pub voluntary_switches: f64,
    /// Context switches, involuntary.
    pub involuntary_switches: f64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every time that the interval allows is shorter with the interposer.
    Faster,
    /// Every one is longer.
    Slower,
    /// The difference is within the spread.
    NoDifference,
    /// Fewer than five pairs.
    TooFewRuns,
    /// A run was killed, or failed, on both sides alike.
    Failed,
    /// The runs did not all end alike.
    EndsDiffer,
    /// They wrote different things.
    OutputsDiffer,
}

/// A comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Runs without.
    pub plain_runs: Vec<Run>,
    /// Runs with, in pairs with those.
    pub helped_runs: Vec<Run>,
    /// Medians without.
    pub plain: Side,
    /// Medians with.
    pub helped: Side,
    /// Wall-clock time without over that with: above 1 is faster with.
    pub speedup: Option<Interval>,
    /// Processor time with over that without: above 1 costs more with. `None` where it is too short to be
    /// seen.
    pub cpu_ratio: Option<Interval>,
    /// Every pair wrote the same, if that was compared.
    pub same_output: Option<bool>,
    /// What follows.
    pub verdict: Verdict,
}

fn hash(file: &mut File) -> io::Result<u64> {
    let (mut hasher, mut buffer) = (DefaultHasher::new(), vec![0; 1 << 16]);
    file.rewind()?;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            bytes => hasher.write(&buffer[..bytes]),
        }
    }
}

fn run(mut command: Command, plan: &Plan) -> io::Result<Run> {
    let mut written = None;
    command.stdin(Stdio::null());
    match plan.output {
        Output::Show => {
            command.stdout(io::stderr());
        }
        Output::Discard => {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        Output::Compare => {
            let file = tempfile::tempfile()?;
            command.stdout(file.try_clone()?).stderr(Stdio::null());
            written = Some(file);
        }
    }
    let finished = process::run(&mut command, plan.timeout)?;
    Ok(Run {
        end: end(finished.status, finished.timed_out),
        wall_seconds: finished.wall.as_secs_f64(),
        usage: finished.usage,
        output: written.as_mut().map(hash).transpose()?,
    })
}

fn values(runs: &[Run], value: impl Fn(&Run) -> f64) -> Vec<f64> {
    runs.iter().map(value).collect()
}

fn side(runs: &[Run]) -> Side {
    let median = |value: fn(&Run) -> f64| stats::median(&values(runs, value));
    Side {
        wall_seconds: median(|run| run.wall_seconds),
        user_seconds: median(|run| run.usage.user_seconds),
        system_seconds: median(|run| run.usage.system_seconds),
        voluntary_switches: median(|run| run.usage.voluntary_switches as f64),
        involuntary_switches: median(|run| run.usage.involuntary_switches as f64),
    }
}

/// Judges runs that were made in pairs.
pub fn judge(plain_runs: Vec<Run>, helped_runs: Vec<Run>, ignore_failure: bool) -> Comparison {
    let speedup = stats::paired_ratio(
        &values(&plain_runs, |run| run.wall_seconds),
        &values(&helped_runs, |run| run.wall_seconds),
    );
    let cpu_ratio = stats::paired_ratio(
        &values(&helped_runs, |run| run.usage.cpu_seconds()),
        &values(&plain_runs, |run| run.usage.cpu_seconds()),
    );
    let all = || plain_runs.iter().chain(&helped_runs);
    let compared = all().all(|run| run.output.is_some());
    let same_output = compared.then(|| all().all(|run| run.output == plain_runs[0].output));
    let first = plain_runs[0].end;
    let verdict = if all().any(|run| run.end != first) {
        Verdict::EndsDiffer
    } else if first != End::Exit(0) && !(ignore_failure && matches!(first, End::Exit(_))) {
        Verdict::Failed
    } else if same_output == Some(false) {
        Verdict::OutputsDiffer
    } else {
        match speedup.map(|ratio| ratio.finding()) {
            Some(Finding::Greater) => Verdict::Faster,
            Some(Finding::Less) => Verdict::Slower,
            Some(Finding::Undecided) => Verdict::NoDifference,
            Some(Finding::TooFew) | None => Verdict::TooFewRuns,
        }
    };
    let (plain, helped) = (side(&plain_runs), side(&helped_runs));
    Comparison { plain_runs, helped_runs, plain, helped, speedup, cpu_ratio, same_output, verdict }
}

/// Runs the program. `before_run` hears of every run before it starts.
pub fn compare(plan: &Plan, mut before_run: impl FnMut()) -> io::Result<Comparison> {
    let (mut plain, mut helped) = (Vec::new(), Vec::new());
    for pair in 0..plan.warm_ups + plan.pairs {
        // Every other pair the other way round: neither side always has the warmer caches.
        for turn in 0..2 {
            before_run();
            let (make, runs) = match (pair + turn) % 2 {
                0 => (plan.plain, &mut plain),
                _ => (plan.helped, &mut helped),
            };
            let run = run(make(), plan)?;
            if pair >= plan.warm_ups {
                runs.push(run);
            }
        }
    }
    Ok(judge(plain, helped, plan.ignore_failure))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(plain: Vec<Run>, helped: Vec<Run>) -> Comparison {
        super::judge(plain, helped, false)
    }

    fn runs(walls: &[f64]) -> Vec<Run> {
        let run =
            |&wall_seconds| Run { end: End::Exit(0), wall_seconds, usage: Usage::default(), output: None };
        walls.iter().map(run).collect()
    }

    const BASE: [f64; 5] = [1.0, 1.1, 0.9, 1.0, 1.2];

    fn scaled(factor: f64) -> Vec<Run> {
        runs(&BASE.map(|wall| wall * factor))
    }

    #[test]
    fn the_verdict_is_of_the_interval() {
        assert_eq!(judge(scaled(1.0), scaled(0.5)).verdict, Verdict::Faster);
        assert_eq!(judge(scaled(1.0), scaled(1.3)).verdict, Verdict::Slower);
        assert_eq!(judge(scaled(1.0), runs(&[1.1, 1.0, 1.0, 0.9, 1.1])).verdict, Verdict::NoDifference);
        assert_eq!(judge(runs(&BASE[..3]), runs(&[0.1, 0.1, 0.1])).verdict, Verdict::TooFewRuns);
        assert_eq!(judge(scaled(1.0), scaled(0.5)).speedup.unwrap().median, 2.0);
    }

    /// Both ratios as the text words them: so many times as fast, so many times the processor time.
    #[test]
    fn ratios_are_times_plain() {
        let user_seconds = 3.0;
        let busy = |runs: Vec<Run>, factor: f64| -> Vec<Run> {
            let usage = Usage { user_seconds: user_seconds * factor, ..Usage::default() };
            runs.into_iter().map(|run| Run { usage, ..run }).collect()
        };
        let it = judge(busy(scaled(1.0), 1.0), busy(scaled(0.5), 4.0));
        assert_eq!((it.speedup.unwrap().median, it.cpu_ratio.unwrap().median), (2.0, 4.0));
    }

    #[test]
    fn runs_that_end_differently_are_not_judged() {
        let mut helped = scaled(0.5);
        helped[3].end = End::Signal(11);
        assert_eq!(judge(scaled(1.0), helped).verdict, Verdict::EndsDiffer);
    }

    #[test]
    fn failure_on_both_sides_is_no_result() {
        let fail = |factor, end| scaled(factor).into_iter().map(|run| Run { end, ..run }).collect();
        let exit = End::Exit(3);
        assert_eq!(judge(fail(1.0, exit), fail(0.5, exit)).verdict, Verdict::Failed);
        assert_eq!(super::judge(fail(1.0, exit), fail(0.5, exit), true).verdict, Verdict::Faster);
        let late = End::TimedOut;
        assert_eq!(super::judge(fail(1.0, late), fail(1.0, late), true).verdict, Verdict::Failed);
    }

    #[test]
    fn outputs_are_compared_if_they_were_kept() {
        let kept = |hash: u64| -> Vec<Run> {
            scaled(1.0).into_iter().map(|run| Run { output: Some(hash), ..run }).collect()
        };
        assert_eq!(judge(scaled(1.0), scaled(1.0)).same_output, None);
        assert_eq!(judge(kept(1), kept(1)).same_output, Some(true));
        let differ = judge(kept(1), kept(2));
        assert_eq!((differ.same_output, differ.verdict), (Some(false), Verdict::OutputsDiffer));
    }
}
