// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be gained at most: a bound, and no guess.

use serde::Serialize;

use crate::format::{ns, percent};
use crate::profile::summary::{Summary, counted, plural};

/// A bound of what a change can gain, as far as the record supports one.
#[derive(Clone, Debug, Serialize)]
pub struct Gain {
    /// `run`, `fewer-threads`, or `quota`.
    pub by: &'static str,
    /// So many times as fast, at most.
    pub at_most: f64,
    pub words: String,
}

/// BOUND: fewer threads are spoken of from this part of the time on.
const OWN: f64 = 0.05;
/// BOUND: a greater gain says that the record bounds nothing.
const MOST_GAIN: f64 = 20.0;
/// BOUND: nothing is advised, and no gain is told in the text, whose bound is less.
const LEAST_GAIN: f64 = 1.05;
/// BOUND: from this part of its quota on, a program got it.
const NEARLY: f64 = 0.9;
/// BOUND: other programs are spoken of from this part of the processors on. The kernel counts by ticks, which
/// made it 0.11 for nobody where threads switched 100,000 times a second.
const FOREIGN: f64 = 0.15;

/// Causes that other locks or fewer threads change.
pub(super) const CHANGED: [&str; 4] = ["preempted", "free", "last-preempted", "woken-late"];

impl Summary {
    /// The part of its processors that other programs had, while it could have used them, if that is much.
    /// What its quota does not let it have, nobody takes from it.
    pub fn foreign(&self) -> Option<f64> {
        let all_ns = (self.elapsed_ns * u64::from(self.processors)).max(1);
        let share = self.foreign_ns.map(|foreign_ns| foreign_ns as f64 / all_ns as f64);
        share.filter(|share| *share >= FOREIGN && !self.got_quota())
    }

    /// What other programs had was not measured, and this one lacked processors: as in a short run.
    pub fn is_unmeasured(&self) -> bool {
        let lacked = |had: f64| had < f64::from(self.processors) * (1.0 - FOREIGN);
        self.foreign_ns.is_none() && self.had.is_some_and(lacked)
    }

    /// Was it stopped by its quota, and got nearly all of that?
    fn got_quota(&self) -> bool {
        let quota = self.quota_milli.filter(|_| self.throttled > Some(0)).map(|milli| milli as f64 / 1e3);
        quota.zip(self.had).is_some_and(|(quota, had)| had >= quota * NEARLY)
    }

    /// Processors that there are for the program: beside other programs and within its quota.
    fn room(&self, processors: u32) -> f64 {
        let all = f64::from(processors.max(1));
        // The others are taken to have as much of those on which no thread ran.
        let had = self.had.map(|had| had * all / f64::from(self.processors.max(1)));
        let beside = self.foreign().and(had).unwrap_or(all);
        self.quota_milli.map_or(beside, |milli| beside.min(milli as f64 / 1e3)).max(0.01)
    }
}

/// What is left of the program's time without that part of it. The program's threads need their processor
/// time in any case.
fn at_most(summary: &Summary, without_ns: u64) -> f64 {
    let elapsed_ns = summary.elapsed_ns.max(1) as f64;
    let needed_ns = summary.run_ns as f64 / summary.room(summary.processors);
    let rest_ns = (elapsed_ns - without_ns as f64).max(needed_ns).max(elapsed_ns / MOST_GAIN);
    (elapsed_ns / rest_ns).max(1.0)
}

/// None where the record bounds nothing, or where other locks change nothing.
pub(super) fn gains(summary: &Summary, cause: &str, is_bounded: bool) -> Vec<Gain> {
    let mut gains = Vec::new();
    if is_bounded && cause == "throttled" {
        gains.extend(by_quota(summary));
    }
    if !is_bounded || !CHANGED.contains(&cause) {
        return gains;
    }
    let part = |part_ns: u64| percent(part_ns as f64 / summary.elapsed_ns.max(1) as f64);
    let without_ns = summary.waited_behind_waiters_or_free_ns;
    // Those are the program's locks already.
    if !summary.is_helped {
        let at_most_now = at_most(summary, without_ns);
        let words = format!(
            "{} by `wakeful run`: for {} of the time, somebody waited for nobody, or for a thread whose \
             processor another waiter had taken",
            times(at_most_now),
            part(without_ns)
        );
        gains.push(Gain { by: "run", at_most: at_most_now, words });
    }
    let own_ns = summary.waited_behind_own_ns;
    let (processors, threads) = (summary.processors.max(1), summary.at_once());
    if own_ns as f64 >= summary.elapsed_ns as f64 * OWN && threads > u64::from(processors) {
        let at_most = at_most(summary, own_ns);
        let words = format!(
            "{} by no more {} at work than processors, {processors} (there were {} at one time): for {} of \
             the time, another {} of the program had that processor",
            times(at_most),
            plural(summary.unit()),
            summary.at_once_words(),
            part(own_ns),
            summary.unit()
        );
        gains.push(Gain { by: "fewer-threads", at_most, words });
    }
    gains
}

/// Its threads, as many as they are, need their processor time without that quota, too, on the processors
/// that there are for them. None where threads may burn their time, or do so unseen.
fn by_quota(summary: &Summary) -> Option<Gain> {
    let untold = summary.processes_elsewhere + summary.processes_unmapped + summary.programs_silent;
    let is_seen = summary.processes > 0 && untold == 0 && summary.obstacle.is_none();
    if !is_seen || summary.openmp.is_some() || !summary.spinning.is_empty() || summary.is_helped {
        return None;
    }
    let all = summary.processors_allowed.max(summary.processors).max(1);
    let at_once = u64::from(all).min(summary.at_once().max(1));
    let needed_ns = summary.run_ns as f64 / at_once as f64;
    if summary.run_ns == 0 || summary.quota_milli? >= at_once * 1_000 {
        return None;
    }
    let elapsed_ns = summary.elapsed_ns.max(1) as f64;
    let at_most = elapsed_ns / needed_ns.max(1.0);
    let words = format!(
        "{at_most:.1} x by a quota of {}, with as many threads: they took {} of processor time in {}",
        counted(at_once, "processor"),
        ns(summary.run_ns),
        ns(summary.elapsed_ns)
    );
    Some(Gain { by: "quota", at_most: at_most.max(1.0), words })
}

fn times(at_most: f64) -> String {
    if at_most >= MOST_GAIN { "more than 20 x".into() } else { format!("{at_most:.1} x") }
}

impl Gain {
    /// Is it more than what no run would show?
    pub fn is_some(&self) -> bool {
        self.at_most >= LEAST_GAIN
    }
}

/// What shorter sections, or work divided evenly, gain at most: the processor time stays, and needs
/// processors, and while nobody waits nothing is gained.
pub(super) fn room(summary: &Summary) -> String {
    let all = summary.room(summary.processors_allowed.max(summary.processors));
    let busy = summary.run_ns as f64 / summary.elapsed_ns.max(1) as f64;
    if all < busy * LEAST_GAIN || busy <= 0.0 || summary.is_unmeasured() {
        return String::new();
    }
    let rest_ns = summary.elapsed_ns.saturating_sub(summary.waited_ns);
    let by_waits = summary.elapsed_ns as f64 / rest_ns.max(1) as f64;
    let gain = by_waits.min(all / busy);
    if !(LEAST_GAIN..MOST_GAIN).contains(&gain) {
        return String::new();
    }
    let gain = times(gain);
    if by_waits < all / busy {
        let [waited, elapsed] = [summary.waited_ns, summary.elapsed_ns].map(ns);
        return format!(" At most {gain} is to be gained: threads waited for {waited} of {elapsed}.");
    }
    let there = match summary.quota_milli.map(|milli| milli as f64 / 1e3) {
        Some(quota) if quota <= all => format!("its quota is {all:.2}"),
        _ if all == 1.0 => "there is 1".into(),
        _ if all.fract() == 0.0 => format!("there are {all:.0}"),
        _ => format!("other programs leave it {all:.2}"),
    };
    format!(" At most {gain} is to be gained: the program kept {busy:.2} processors busy, and {there}.")
}
