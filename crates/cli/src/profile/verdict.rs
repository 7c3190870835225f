// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why the program waits, in words, and what to do about it: the greatest cause first.

use std::collections::BTreeMap;

use recorder::profile::Class;
use serde::Serialize;

mod gain;
mod unseen;

pub use gain::Gain;
use gain::{CHANGED, gains, room};
use unseen::{elsewhere, silent, unseen};

use super::chain::{self, LongestWait, thread};
use super::report::{Last, Row};
use super::summary::{Summary, counted, plural};
use crate::format::{grouped, ns, percent};

#[derive(Debug, Serialize)]
pub struct Verdict {
    /// The first cause, by a word that stays: `preempted`, `blocked`, `running`, `free`, `last-preempted`,
    /// `last-blocked`, `last-running`, `last-unknown`, `woken-late`, `vain`, `throttled`, `unknown`,
    /// `nothing`.
    pub cause: &'static str,
    pub words: String,
    pub advice: String,
    /// What can be gained at most.
    pub gains: Vec<Gain>,
    /// The part of the threads' time in which they waited for locks and barriers.
    pub waited: f64,
    /// One wait for a lock that took a great part of the program's time.
    pub longest: Option<String>,
    /// The other causes, by the same words, and their shares of that.
    pub others: Vec<Other>,
}

#[derive(Debug, Serialize)]
pub struct Other {
    pub cause: &'static str,
    pub share: f64,
}

/// BOUND: waiting that is less than this part of the threads' time is nothing.
const NOTHING: f64 = 0.01;
/// BOUND: the other causes are not told in the text, if all waiting is less than this part of the threads'
/// time; nor one that is less than this part of the waiting.
const LITTLE: f64 = 0.05;
const MINOR: f64 = 0.10;
/// BOUND: from this part of the quota's periods on the quota comes first.
const THROTTLED: f64 = 0.25;
/// BOUND: wake-ups in vain come first from these parts of a place's wake-ups and of all processor time on.
const VAIN: f64 = 0.5;
const VAIN_RUN: f64 = 0.05;
/// BOUND: wake-ups in vain are told from so many on, whatever they cost.
const MANY_VAIN: u64 = 100;
/// BOUND: one wait is told from this part of the program's time on, if that is not short; and the thread
/// starves if others take the lock so often meanwhile.
const LONG: f64 = 0.25;
const LONG_NS: u64 = 20_000_000;
const STARVES: u64 = 10;
/// BOUND: from this part on it is mostly that.
const MOSTLY: f64 = 0.75;

/// What the time went to, and how much of it.
struct Cause {
    name: &'static str,
    total_ns: u64,
    /// Where most of it was, with the time there.
    most: Option<(String, u64)>,
    /// That is an OpenMP region.
    is_openmp: bool,
    /// A waiter there may burn processor time. Then the bounds are too low.
    may_spin: bool,
    /// In what those were seen there who were blocked.
    seen: Option<String>,
    /// In which function those computed there, and how often it was seen.
    worked: Option<String>,
    /// The longest wait there.
    chain: Option<LongestWait>,
    /// That is a page fault.
    is_fault: bool,
    /// The thread for which most of it was waited, at a barrier, with the time.
    last: Option<(String, u64)>,
}

impl Cause {
    /// Who computed there, and who was behind the longest wait.
    fn more(&self, is_throttled: bool) -> String {
        let chain = self.chain.as_ref().and_then(|longest| chain::words(longest, is_throttled));
        [&self.worked, &chain].map(|words| words.as_deref().unwrap_or_default()).concat()
    }
}

/// A thread at a semaphore or a condition variable may wait for work, which is no lock's fault.
pub fn is_lock(row: &&Row) -> bool {
    row.class.is_lock()
}

pub fn is_barrier(row: &&Row) -> bool {
    row.class.is_barrier()
}

fn cause(name: &'static str, rows: &[Row], is_meant: fn(&&Row) -> bool, part: fn(&Row) -> u64) -> Cause {
    let meant = || rows.iter().filter(is_meant);
    let most = meant().max_by_key(|row| part(row));
    let is_openmp = most.is_some_and(|row| matches!(row.class, Class::Region | Class::Team));
    let may_spin = is_openmp || most.is_some_and(|row| matches!(row.class, Class::Spin | Class::Critical));
    let seen = most.and_then(|row| row.blocked_in.first());
    let is_fault = seen.is_some_and(|one| one.call == "page fault");
    let seen = seen.map(|one| format!("in {} in {}", one.called(), one.place.said()));
    let total_ns: u64 = meant().map(part).sum();
    let last = last(name, rows).filter(|(_, its_ns)| *its_ns > total_ns / 2);
    let worked = most.filter(|_| name.ends_with("running")).and_then(worked);
    let chain =
        most.filter(|row| part(row) > 0 && !name.ends_with("unknown")).and_then(|row| row.longest.clone());
    let most = most.map(|row| (format!("{} in {}", row.named(), row.place.said()), part(row)));
    Cause { name, total_ns, most, is_openmp, may_spin, seen, worked, chain, is_fault, last }
}

/// In which function those were seen mostly who computed while others waited there.
fn worked(row: &Row) -> Option<String> {
    let first = row.worked_in.first()?;
    let all: u32 = row.worked_in.iter().map(|one| one.looks).sum();
    let callers = match first.callers.is_empty() {
        true => String::new(),
        false => format!(", called by {}", first.callers.join(", ")),
    };
    let samples = some(all.into(), "sample");
    let who = if row.class.is_barrier() { "The last one" } else { "The holder" };
    Some(format!(
        " {who} was seen at work in {}{callers} ({} of {samples}).",
        first.place.said(),
        first.looks
    ))
}

/// The thread for which this part of all barriers' time was waited longest, with that time.
fn last(cause: &str, rows: &[Row]) -> Option<(String, u64)> {
    let its: fn(&Last) -> u64 = match cause {
        "last-preempted" => |last| last.preempted_ns,
        "last-blocked" => |last| last.blocked_ns,
        "last-running" => |last| last.running_ns,
        _ => return None,
    };
    let mut all: BTreeMap<u32, (&str, u64)> = BTreeMap::new();
    for last in rows.iter().filter(is_barrier).flat_map(|row| &row.last) {
        all.entry(last.thread).or_insert((&last.name, 0)).1 += its(last);
    }
    let (number, (name, part_ns)) = all.into_iter().max_by_key(|(_, (_, part_ns))| *part_ns)?;
    Some((thread(name, number), part_ns))
}

fn causes(rows: &[Row]) -> Vec<Cause> {
    let mut causes = vec![
        cause("preempted", rows, is_lock, |row| row.holder_preempted_ns),
        cause("blocked", rows, is_lock, |row| row.holder_blocked_ns),
        cause("running", rows, is_lock, |row| row.holder_running_ns),
        cause("free", rows, is_lock, |row| row.free_ns),
        cause("last-preempted", rows, is_barrier, |row| row.holder_preempted_ns),
        cause("last-blocked", rows, is_barrier, |row| row.holder_blocked_ns),
        cause("last-running", rows, is_barrier, |row| row.holder_running_ns),
        cause("woken-late", rows, is_barrier, |row| row.free_ns),
        cause("last-unknown", rows, is_barrier, |row| row.holder_unknown_ns),
        cause("unknown", rows, is_lock, |row| row.holder_unknown_ns),
    ];
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.total_ns));
    causes
}

pub fn of(summary: &Summary, rows: &[Row], command: &str) -> Verdict {
    let causes = causes(rows);
    let total_ns: u64 = causes.iter().map(|cause| cause.total_ns).sum();
    let share = |cause: &Cause| cause.total_ns as f64 / total_ns.max(1) as f64;
    let mut others: Vec<Other> = causes
        .iter()
        .filter(|cause| cause.total_ns > 0)
        .map(|cause| Other { cause: cause.name, share: share(cause) })
        .collect();
    let all_ns = lifetime_ns(summary);
    let estimated =
        |is_meant: fn(&&Row) -> bool| rows.iter().filter(is_meant).map(|row| row.estimated_ns).sum::<u64>();
    let is_region = |row: &&Row| row.class == Class::Region;
    let regions_ns = estimated(is_region);
    let sampled_ns = estimated(is_lock) + estimated(is_barrier) - regions_ns;
    let told = Told { summary, rows, command, all_ns, total_ns, regions_ns, sampled_ns };
    let first = throttled(&told).or_else(|| vain(&told)).or_else(|| {
        told.is_waiting().then(|| {
            others.remove(0);
            waiting(&causes[0], share(&causes[0]), &gains(summary, causes[0].name, told.is_bounded()), &told)
        })
    });
    let (cause, mut words, mut advice) = beside(&told, first.unwrap_or_else(|| nothing(&told)));
    if cause != "nothing"
        && let Some(elsewhere) = elsewhere(summary, told.all_ns)
    {
        words += &format!(" {elsewhere}");
    }
    if CHANGED.contains(&cause) && summary.is_unmeasured() {
        advice += match summary.elapsed_ns < recorder::profile::LEAST_BUSY_NS {
            true => " The run is too short to tell what other programs took: no bound is told.",
            false => {
                " What other programs took is not known, since /proc/stat does not tell: no bound is told."
            }
        };
    }
    words += &crate::recorded::left(summary.processes_left, summary.elapsed_ns, "waits");
    let (gains, waited) = (gains(summary, cause, told.is_bounded()), total_ns as f64 / all_ns.max(1) as f64);
    let longest = longest(summary, rows);
    words += &also_vain(summary, rows, cause);
    Verdict { cause, words, advice, gains, waited, longest, others }
}

/// The bounds in a sentence, if there are any.
pub fn gained(verdict: &Verdict) -> Option<String> {
    let gains = verdict.gains.iter().filter(|gain| gain.is_some());
    let words: Vec<&str> = gains.map(|gain| gain.words.as_str()).collect();
    (!words.is_empty()).then(|| format!("To gain at most: {}.", words.join("; ")))
}

/// One wait that was long is more than its part of a sum: who waits so starves, or somebody keeps the lock.
fn longest(summary: &Summary, rows: &[Row]) -> Option<String> {
    let with = rows.iter().filter(is_lock).filter_map(|row| Some((row, row.longest.as_ref()?)));
    let (row, one) = with.max_by_key(|(_, one)| one.length_ns)?;
    let share = one.length_ns as f64 / summary.elapsed_ns.max(1) as f64;
    if share < LONG || summary.elapsed_ns < LONG_NS {
        return None;
    }
    let who = thread(&one.name, one.thread);
    let place = row.place.label();
    let whom = match one.whom {
        Some(number) if one.whom_ns * 2 > one.length_ns => {
            let part = percent(one.whom_ns as f64 / one.length_ns as f64);
            format!(", {part} of that for {}", thread(&one.whom_name, number))
        }
        _ => String::new(),
    };
    let starves = match one.turns {
        0..STARVES => "",
        _ => &format!(
            " Meanwhile others took that lock at least {} times: the thread starved. A fair lock serves by \
             turns, at a price: `wakeful locks` has some.",
            grouped(one.turns)
        ),
    };
    Some(format!(
        "One wait alone took {}, {} of the program's time: {who} at the {} in {place}{whom}.{starves}",
        ns(one.length_ns),
        percent(share),
        row.named()
    ))
}

/// All threads' time.
fn lifetime_ns(summary: &Summary) -> u64 {
    let known = summary.run_ns + summary.ready_ns + summary.blocked_ns;
    if known > 0 { known } else { summary.elapsed_ns * summary.threads.max(1) }
}

/// The other causes in a line, if there are any and the waiting is worth one.
pub fn others(verdict: &Verdict) -> Option<String> {
    if verdict.waited < LITTLE {
        return None;
    }
    let told = verdict.others.iter().filter(|other| other.share >= MINOR);
    let told: Vec<String> =
        told.map(|other| format!("{} {}", percent(other.share), short(other.cause))).collect();
    let of = match verdict.cause {
        "throttled" | "vain" => {
            format!("Of the waiting for locks and barriers, {} of thread time", percent(verdict.waited))
        }
        _ => "Then, of that waiting".into(),
    };
    (!told.is_empty()).then(|| format!("{of}: {}.", told.join(", ")))
}

fn short(cause: &str) -> &str {
    match cause {
        "preempted" => "for preempted holders",
        "blocked" => "for blocked holders",
        "running" => "for running holders",
        "free" => "to wake up for a free lock",
        "last-preempted" => "for a preempted last thread",
        "last-blocked" => "for a blocked last thread",
        "last-running" => "for a last thread that worked",
        "last-unknown" => "for an unknown last thread",
        "woken-late" => "to wake up at a complete barrier",
        _ => "for unknown holders",
    }
}

/// The cause, the words and the advice.
type Said = (&'static str, String, String);

/// What is known.
struct Told<'a> {
    summary: &'a Summary,
    rows: &'a [Row],
    command: &'a str,
    /// All threads' time, and what they waited of it for locks and barriers.
    all_ns: u64,
    total_ns: u64,
    /// Of the latter: of OpenMP regions that were not told, and of other waits that were not told.
    regions_ns: u64,
    sampled_ns: u64,
}

impl Told<'_> {
    /// This part of the waiting.
    fn share(&self, part_ns: u64) -> f64 {
        part_ns as f64 / self.total_ns.max(1) as f64
    }

    /// Does the record bound what can be gained? Nobody knows when threads waited, if that was not told. Nor
    /// what they burn while they wait.
    fn is_bounded(&self) -> bool {
        let estimated = self.share(self.regions_ns + self.sampled_ns);
        let is_known = self.summary.without_switches.is_none() && !self.summary.is_unmeasured();
        is_known && estimated < MINOR && !self.may_spin()
    }

    /// Of all threads' time.
    fn part(&self, part_ns: u64) -> String {
        percent(part_ns as f64 / self.all_ns.max(1) as f64)
    }

    /// Is much of the waiting where waiters may burn processor time? Then nobody knows what it costs.
    fn may_spin(&self) -> bool {
        let may =
            |row: &&Row| matches!(row.class, Class::Region | Class::Team | Class::Spin | Class::Critical);
        let all_ns: u64 = self.rows.iter().filter(may).map(|row| row.waited_ns).sum();
        all_ns > 0 && all_ns as f64 >= self.total_ns as f64 * MINOR
    }

    /// Did a quota stop the program?
    fn is_throttled(&self) -> bool {
        self.summary.throttled.is_some_and(|throttled| throttled > 0)
    }

    fn is_waiting(&self) -> bool {
        self.total_ns > 0 && self.total_ns as f64 >= self.all_ns as f64 * NOTHING
    }
}

pub fn some(count: u64, what: &str) -> String {
    counted(count, what)
}

/// What other programs took comes first where it is more than what was waited: no lock gives that back.
fn beside(told: &Told, (cause, words, advice): Said) -> Said {
    let summary = told.summary;
    let Some(share) = summary.foreign() else { return (cause, words, advice) };
    let (which, them) = match summary.processors {
        1 => ("of the processor on which the threads ran".into(), "it"),
        many => (format!("of the {many} processors"), "them"),
    };
    let had =
        summary.had.map_or(String::new(), |had| format!(" It got {had:.2} of {them} when it wanted all."));
    let others = format!("ther programs had {} {which}, while this one wanted {them}.{had}", percent(share));
    let stop = "Stop the other programs, or give this one more, by nice(1), a cpuset or a cgroup's weight";
    let is_first = match cause {
        "nothing" => true,
        "vain" | "throttled" => false,
        // What could not be seen comes before all.
        "unknown" if !told.is_waiting() => false,
        _ => summary.foreign_ns > Some(told.total_ns),
    };
    if !is_first {
        return (cause, format!("{words} O{others}"), format!("{advice} {stop}.").trim_start().into());
    }
    let first = format!("{stop}: that comes before its locks.");
    let advice = if advice.is_empty() { first } else { format!("{first} {advice}") };
    (cause, format!("o{others} Then, {words}"), advice)
}

fn throttled(told: &Told) -> Option<Said> {
    let Told { summary, command, .. } = told;
    let (throttled, periods) = (summary.throttled?, summary.periods?);
    if throttled == 0 || (throttled as f64) < periods as f64 * THROTTLED {
        return None;
    }
    let quota = summary.quota_milli.map_or(String::new(), |milli| {
        format!(" of {:.2} processor{}", milli as f64 / 1e3, if milli == 1_000 { "" } else { "s" })
    });
    let long = summary.period_us.map_or(String::new(), |us| format!(" of {}", ns(us * 1_000)));
    let mut words = format!(
        "the CPU quota{quota} stopped the whole program: throttled in {} of {} periods{long}.",
        grouped(throttled),
        grouped(periods)
    );
    if summary.ready_ns > 0 {
        words += &format!(
            " Its threads ran for {}, and were ready without a processor for {}, {} of thread time.",
            ns(summary.run_ns),
            ns(summary.ready_ns),
            told.part(summary.ready_ns)
        );
    }
    if !told.is_waiting() {
        let amount = if told.total_ns == 0 { "Nothing" } else { "Almost nothing" };
        words += &format!(" {amount} waited for a lock or a barrier: this is no lock problem.");
    }
    let mut advice = match summary.quota_milli {
        Some(milli @ ..1_000) => {
            format!("Raise the quota of {:.2} processors: it stops even one thread.", milli as f64 / 1e3)
        }
        Some(milli) if summary.at_once() > milli / 1_000 => {
            let fits = some(milli / 1_000, summary.unit());
            format!("Raise the quota of {:.1} processors, or use {fits}.", milli as f64 / 1e3)
        }
        Some(milli) => format!("Raise the quota of {:.1} processors.", milli as f64 / 1e3),
        None => "Raise the quota, or use as many threads as it has processors.".into(),
    };
    if told.is_waiting() && !summary.is_helped {
        advice += &format!(" `wakeful run -- {command}` spins less under a quota.");
    }
    Some(("throttled", words, advice))
}

/// Wake-ups in vain: where most of them were, and what all of them ran. Not those of less.
fn most_vain(rows: &[Row]) -> Option<(&Row, u64)> {
    let is_vain =
        |row: &&Row| row.class == Class::Cond && row.vain > 0 && row.vain as f64 >= woken(row) as f64 * VAIN;
    let most = rows.iter().filter(is_vain).max_by_key(|row| row.vain)?;
    Some((most, rows.iter().filter(is_vain).map(|row| row.vain_run_ns).sum()))
}

fn woken(row: &Row) -> u64 {
    row.waits.saturating_sub(row.timeouts)
}

fn vain_words(most: &Row, run_ns: u64, summary: &Summary) -> String {
    let cost = match summary.run_ns {
        0 => String::new(),
        all => format!("; {} of the processor time went there", percent(run_ns as f64 / all as f64)),
    };
    format!(
        "{} of {} wake-ups from the condition variable in {} were in vain{cost}.",
        grouped(most.vain),
        grouped(woken(most)),
        most.place.label()
    )
}

fn vain(told: &Told) -> Option<Said> {
    let (most, run_ns) = most_vain(told.rows)?;
    // Without the kernel's word nobody knows what they cost.
    let all_ns = told.summary.run_ns;
    let costs = all_ns == 0 || run_ns as f64 >= all_ns as f64 * VAIN_RUN;
    let advice = "Woken threads seem to have found nothing to do: they waited again at once. Signal once for \
                  each item instead of a broadcast, or give each kind of waiter its own condition variable.";
    costs.then(|| ("vain", vain_words(most, run_ns, told.summary), advice.into()))
}

/// They are told also where they do not cost much, if they are many.
fn also_vain(summary: &Summary, rows: &[Row], cause: &str) -> String {
    match most_vain(rows).filter(|(most, _)| cause != "vain" && most.vain >= MANY_VAIN) {
        Some((most, run_ns)) => format!(" And {}", vain_words(most, run_ns, summary)),
        None => String::new(),
    }
}

/// Of the time that somebody waited for preempted holders: another thread of the program had the processor.
fn behind_own(rows: &[Row], cause: &str) -> f64 {
    let is_meant = if cause == "preempted" { is_lock } else { is_barrier };
    let meant = || rows.iter().filter(is_meant);
    let all_ns: u64 = meant().map(|row| row.holder_preempted_ns).sum();
    meant().map(|row| row.holder_behind_own_ns).sum::<u64>() as f64 / all_ns.max(1) as f64
}

fn waiting(cause: &Cause, share: f64, gains: &[Gain], told: &Told) -> Said {
    let seen = cause.seen.as_ref().map_or("or ready again".into(), |seen| format!("seen {seen}"));
    let (last, mostly) = match &cause.last {
        Some((name, its_ns)) => match percent(*its_ns as f64 / cause.total_ns.max(1) as f64).as_str() {
            "100 %" => (name.as_str(), String::new()),
            part => ("the last thread", format!(" ({part} of that: {name})")),
        },
        None => ("the last thread", String::new()),
    };
    let (size, share) = (told.part(told.total_ns), percent(share));
    let whom = match cause.name {
        "preempted" => format!("{share} of it was for holders of locks that had lost their processor"),
        "blocked" => format!(
            "{share} of it was for holders of locks that were blocked, or ready again and without a processor"
        ),
        "running" => format!(
            "{share} of it was for holders of locks that ran: their sections are long, or too many threads \
             want them"
        ),
        "free" => format!(
            "{share} of it was for locks that were free already: the waiters had to wake up, or had no \
             processor"
        ),
        "last-preempted" => {
            format!(
                "in {share} of it, others stood at a barrier until {last} came, which had lost its \
                 processor{mostly}"
            )
        }
        "last-blocked" => {
            format!(
                "in {share} of it, others stood at a barrier until {last} came, which was blocked, \
                 {seen}{mostly}"
            )
        }
        "last-running" => {
            format!("in {share} of it, others stood at a barrier until {last} finished its work{mostly}")
        }
        "last-unknown" => format!(
            "{share} of it was at barriers for a last thread whose doing is unknown, or that never came; or \
             for tasks of OpenMP"
        ),
        "woken-late" => format!(
            "{share} of it was at barriers to which all had come: the threads had to wake up, or had no \
             processor"
        ),
        _ => format!("{share} of it was for holders whose doing is unknown"),
    };
    let place = match &cause.most {
        Some((place, part_ns)) if *part_ns > 0 => {
            let most = *part_ns as f64 / cause.total_ns.max(1) as f64;
            format!(" {} of that at the {place}.", percent(most))
        }
        _ => String::new(),
    };
    let more = cause.more(told.is_throttled());
    let estimated = match (told.share(told.regions_ns), told.share(told.sampled_ns)) {
        (regions, _) if regions >= MINOR => {
            format!(", {} of it estimated, in OpenMP regions that were not told", percent(regions))
        }
        (_, sampled) if sampled >= MINOR => format!(", {} of it estimated by a sample", percent(sampled)),
        _ => String::new(),
    };
    let words = format!(
        "{size} of thread time was waiting for locks and barriers ({}{estimated}); {whom}.{place}{more}{}",
        ns(told.total_ns),
        ready(told)
    );
    (cause.name, words, advice(cause, gains, told) + &bound(told))
}

/// They waited for processors, and left some alone.
fn bound(told: &Told) -> String {
    let summary = told.summary;
    let (used, allowed) = (summary.processors, summary.processors_allowed);
    if ready(told).is_empty() || used == 0 || used >= allowed || summary.at_once() <= u64::from(used) {
        return String::new();
    }
    match summary.processors_bound {
        Some(bound @ 1..) if bound <= used => format!(
            " Something binds the threads to {bound} of {allowed} processors (taskset, sched_setaffinity or \
             a cpuset): take it away."
        ),
        _ => String::new(),
    }
}

/// More than for locks, the threads may have waited for a processor.
fn ready(told: &Told) -> String {
    let summary = told.summary;
    if summary.ready_ns <= told.total_ns || summary.without_switches.is_some() {
        return String::new();
    }
    format!(
        " For longer, {} of thread time ({}), threads were ready without a processor: {} ran on {} of {}.",
        told.part(summary.ready_ns),
        ns(summary.ready_ns),
        summary.at_once_words(),
        summary.processors,
        some(summary.processors_allowed.max(summary.processors).into(), "processor")
    )
}

/// What else there is where wakeful's locks are not enough, or are there already.
const NAMED: &str = "`wakeful run --lock NAME` tries another one, and `wakeful locks` has the names.";

fn advice(cause: &Cause, gains: &[Gain], told: &Told) -> String {
    let Told { summary, command, .. } = told;
    let gains_by = |by: &str| gains.iter().any(|gain| gain.by == by && gain.is_some());
    let compare = format!("`wakeful compare -- {command}` measures what that gains here.");
    let watch = format!("`wakeful watch -- {command}`");
    match cause.name {
        // These are the locks that know who runs.
        name if CHANGED.contains(&name) && summary.is_helped => helped(name, gains_by("fewer-threads"), told),
        // Where nobody knows what the holders did, there is no bound.
        "preempted" | "last-preempted" | "free" | "woken-late" if cause.may_spin => {
            format!("Threads may burn time while they wait there, so no bound is known: {compare}")
        }
        "preempted" | "last-preempted" | "free" | "woken-late"
            if !gains.is_empty() && !gains.iter().any(Gain::is_some) =>
        {
            not_worth(cause.name, gains, told)
        }
        "preempted" | "last-preempted" => {
            let what = match (gains_by("fewer-threads"), gains_by("run")) {
                (true, true) => {
                    format!("Use fewer {}, or locks that know who runs: {compare}", plural(summary.unit()))
                }
                (true, false) => format!("Use fewer {}.", plural(summary.unit())),
                _ => format!("Use locks that know who runs: {compare}"),
            };
            format!("{} {what}", who(cause.name, told))
        }
        "free" | "woken-late" => {
            format!(
                "Each hand-over costs a wake-up. Locks that spin for a holder that runs save it: {compare}"
            )
        }
        "blocked" if cause.is_fault => format!(
            "Touch the pages before the section: MAP_POPULATE, madvise(MADV_WILLNEED), mlock, or read ahead. \
             {watch} has the stack."
        ),
        "blocked" => match &cause.seen {
            Some(seen) => format!(
                "Move what blocks out of the section. The holder was seen {seen}; {watch} has its stack."
            ),
            None => format!("Move what blocks out of the section: {watch} shows where it does."),
        },
        "running" => format!(
            "Make the section shorter, or split the lock. Another kind of lock does not help.{}",
            room(summary)
        ),
        "last-blocked" if cause.is_fault => format!(
            "Touch the pages before they are needed: MAP_POPULATE, madvise(MADV_WILLNEED), mlock, or read \
             ahead. Another kind of barrier does not help. {watch} has the stack."
        ),
        "last-blocked" if cause.seen.is_some() => {
            format!("Another kind of barrier does not help. {watch} has the stack of the thread that blocks.")
        }
        "last-blocked" => format!("{watch} shows where it blocks: a file, a page fault, another lock."),
        "last-running" if cause.is_openmp => format!(
            "Divide the work more evenly, as by schedule(dynamic). Another runtime does not help.{}",
            room(summary)
        ),
        "last-running" => {
            format!("Divide the work more evenly. Another kind of barrier does not help.{}", room(summary))
        }
        _ if summary.without_switches.is_some() => "Allow perf events, see below.".into(),
        "last-unknown" => format!("{watch} shows where the threads are that do not come."),
        _ => "A lock's readers are not followed, only the waits for it are.".into(),
    }
}

/// The program has wakeful's locks already, and waits so all the same.
fn helped(cause: &str, fewer: bool, told: &Told) -> String {
    let at_barriers = cause.starts_with("last") || cause == "woken-late";
    let already = format!(
        "It has wakeful's {} already, and no more is to be gained by `wakeful run`.",
        if at_barriers { "barriers" } else { "locks" }
    );
    let rest = match cause {
        "preempted" | "last-preempted" if fewer => "Use fewer threads.".into(),
        "preempted" | "last-preempted" if told.summary.foreign().is_some() => String::new(),
        "preempted" => format!("Shorter sections are preempted more seldom. {NAMED}"),
        "last-preempted" => "Fewer threads, or more work between two barriers, remain.".into(),
        "free" => format!("Shorter sections, or more locks, remain. {NAMED}"),
        _ => "More work between two barriers remains, or fewer threads.".into(),
    };
    let who = if cause.ends_with("preempted") { who(cause, told) } else { "" };
    [who, &already, &rest].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Whose thread had the processor that somebody lacked.
fn who(cause: &str, told: &Told) -> &'static str {
    let is_throttled = told.is_throttled();
    match behind_own(told.rows, cause) {
        own if own >= MOSTLY => "Another thread of the program had taken the processor.",
        own if own <= 1.0 - MOSTLY && is_throttled => {
            "Another program had the processor, or the quota stopped this one."
        }
        own if own <= 1.0 - MOSTLY => "Another program had the processor.",
        _ => "Other threads of the program had taken the processor, and other programs had it.",
    }
}

/// Why neither other locks nor fewer threads gain anything.
fn not_worth(cause: &str, gains: &[Gain], told: &Told) -> String {
    let summary = told.summary;
    let at = if cause.starts_with("last") || cause == "woken-late" { "at barriers" } else { "for locks" };
    let processors = u64::from(summary.processors.max(1));
    let busy = summary.run_ns as f64 / (summary.elapsed_ns.max(1) * processors) as f64;
    let lost = summary.waited_behind_waiters_or_free_ns as f64 / summary.elapsed_ns.max(1) as f64;
    let preempted = summary.waited_for_preempted_ns as f64 / summary.elapsed_ns.max(1) as f64;
    let reason = if summary.foreign().is_some() {
        "its threads had all of the processors that the other programs left".into()
    } else if cause.ends_with("preempted") && preempted - lost >= LITTLE && busy + lost < 1.0 {
        return format!(
            "{} No other lock gives a thread its processor back: the other one never waits, and goes on to \
             want it.",
            who(cause, told)
        );
    } else if busy + lost >= 1.0 {
        let which = if processors == 1 { "processor".into() } else { some(processors, "processor") };
        format!("the threads kept the {which} on which they ran {} busy", percent(busy.min(1.0)))
    } else {
        format!("somebody waited so for {} of the time", percent(lost))
    };
    let what = match gains.iter().any(|gain| gain.by == "fewer-threads") {
        true => "Other kinds of locks, or fewer threads, gain less than 5 %",
        false => "Other kinds of locks gain less than 5 %",
    };
    format!("Waiting {at} is not what costs the time: {reason}. {what}.")
}

fn nothing(told: &Told) -> Said {
    let Told { summary, rows, command, total_ns, .. } = told;
    if let Some(said) = unseen(summary) {
        return said;
    }
    if let Some(runtime) = summary.openmp {
        let words = format!(
            "nothing waited for pthread's locks and barriers. The program uses {runtime}, but no region \
             of OpenMP was seen."
        );
        let advice = match summary.is_helped {
            true => "Its runtime is not wakeful's: `wakeful run -v` says why.".into(),
            false => format!("`wakeful compare -- {command}` measures what another runtime gains."),
        };
        return ("nothing", words, advice);
    }
    let amount = match total_ns {
        0 => "nothing waited for a lock or a barrier of pthread's".into(),
        some => format!("almost nothing waited: {} in all", ns(*some)),
    };
    let semaphores_ns: u64 =
        rows.iter().filter(|row| row.class == Class::Semaphore).map(|row| row.waited_ns).sum();
    let amount = match semaphores_ns {
        0 => amount,
        some => format!("{amount}. Threads waited for semaphores for {}, maybe for work", ns(some)),
    };
    // Of a program that was not seen nobody knows whether it waits: that comes first.
    let (cause, amount) = match silent(summary) {
        Some(silent) => ("unknown", format!("{silent} Of what could be seen, {amount}")),
        None => ("nothing", amount),
    };
    let elsewhere = elsewhere(summary, told.all_ns);
    if let Some(elsewhere) = &elsewhere {
        let advice = format!(
            "`wakeful watch -- {command}` shows where they block. Rust programs can take the locks of the \
             crate `wakeful`."
        );
        // Else it is told of whatever cause there is.
        let elsewhere = if cause == "nothing" { format!(" {elsewhere}") } else { String::new() };
        return (cause, format!("{amount}.{elsewhere}"), advice);
    }
    if cause == "unknown" {
        let whom = if summary.programs_silent > 1 { "one of those programs" } else { "that program itself" };
        let advice = format!("Run `wakeful profile` on {whom}: it says why nothing is seen, and what to do.");
        return (cause, format!("{amount}."), advice);
    }
    let idle = summary.blocked_ns > (summary.run_ns + summary.ready_ns) * 2;
    let advice = if summary.foreign().is_some() {
        String::new()
    } else if summary.ready_ns > summary.run_ns / 2 && summary.ready_ns > summary.elapsed_ns / 4 {
        match summary.at_once() {
            0 | 1 => "It was ready for long without a processor: another program had it.".into(),
            _ => {
                let what = plural(summary.unit());
                format!(
                    "Its {what} were ready for long without a processor: {}",
                    match summary.is_unmeasured() {
                        true => "fewer would do, or other programs had it.".into(),
                        false => format!("fewer {what} at one time would do."),
                    }
                )
            }
        }
    } else if idle {
        format!("It was blocked most of the time: `wakeful watch -- {command}` shows in which calls.")
    } else {
        "Locks are not its problem: a profiler of functions, such as perf, says what it computes.".into()
    };
    (cause, format!("{amount}."), advice)
}

#[cfg(test)]
mod tests;
