// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report in words, on one screen.

use std::io::{self, Write};

use launch::suggest::{WIDTH, wrap};
use recorder::profile::Class;
use recorder::symbols::MADE;

use super::chain::NAME;
use super::names::Site;
use super::report::{One, RegionRow, Report, Row};
use super::summary::Summary;
use super::verdict::{gained, others, some};
use crate::format::{grouped, ns, percent, plain, whole};
use crate::recorded::{Called, cut};

/// BOUND: what is shown of each; `--json` has all.
const MOST_ROWS: usize = 8;
const MOST_THREADS: usize = 8;
/// BOUND: callers of a place that are shown.
const MOST_CALLERS: usize = 3;
/// Columns of a place.
const PLACE: usize = 37;

pub fn write(report: &Report, to: &mut dyn Write) -> io::Result<()> {
    let summary = &report.summary;
    let line = format!("wakeful: `{}`{} {}", summary.program, by(summary), head(summary));
    writeln!(to, "{}", wrap(&plain(&line), WIDTH))?;
    if let Some(stopped) = summary.stopped() {
        writeln!(to, "{}", wrap(&stopped, WIDTH))?;
    }
    writeln!(to)?;
    writeln!(to, "{}", wrap(&plain(&format!("Verdict: {}", report.verdict.words)), WIDTH))?;
    if let Some(then) = others(&report.verdict) {
        writeln!(to, "{}", wrap(&then, WIDTH))?;
    }
    if let Some(longest) = &report.verdict.longest {
        writeln!(to, "{}", wrap(&plain(longest), WIDTH))?;
    }
    writeln!(to, "{}", wrap(&plain(&report.verdict.advice), WIDTH))?;
    if let Some(gained) = gained(&report.verdict) {
        writeln!(to, "{}", wrap(&gained, WIDTH))?;
    }
    if let Some(dear) = summary.dear() {
        writeln!(to, "{}", wrap(&dear, WIDTH))?;
    }
    locks(report, to)?;
    regions(report, to)?;
    conditions(report, to)?;
    threads(report, to)?;
    writeln!(to)?;
    remarks(report).iter().try_for_each(|remark| writeln!(to, "{}", wrap(&plain(remark), WIDTH)))?;
    to.flush()
}

/// How long it took, and with how much.
pub fn head(summary: &Summary) -> String {
    let time = ns(summary.elapsed_ns);
    let ended = match &summary.signal {
        Some(signal) => format!(". Signal {signal} ended it, and the report ends there"),
        None => String::new(),
    };
    if summary.is_hidden {
        return format!("took {time}; its threads and their times are hidden from this user{ended}");
    }
    let (_, longest) = Called::words(None, summary.ran_longest.as_ref());
    let (all, used) = (summary.all_words(), average(summary));
    format!("took {time}, {all}{used}{}{longest}{ended}", room(summary))
}

/// The command that became it.
fn by(summary: &Summary) -> String {
    Called::words(summary.started_by.as_ref(), None).0
}

/// BOUND: the average of a shorter time says nothing.
const AVERAGE_NS: u64 = 10_000_000;

/// How many processors it had on average, if it ran for long enough.
fn average(summary: &Summary) -> String {
    if summary.run_ns == 0 || summary.elapsed_ns < AVERAGE_NS {
        return String::new();
    }
    format!(", {:.2} processors on average", summary.run_ns as f64 / summary.elapsed_ns as f64)
}

/// The processors that the program ran on, and those that it could have.
fn room(summary: &Summary) -> String {
    let allowed = summary.processors_allowed.max(summary.processors);
    let mut words = match allowed {
        0 => String::new(),
        all => format!(
            "; it ran on {} of {all} processor{}",
            summary.processors,
            if all == 1 { "" } else { "s" }
        ),
    };
    if let Some(milli) = summary.quota_milli {
        words += &format!(", with a quota of {:.2}", milli as f64 / 1e3);
    }
    words
}

fn locks(report: &Report, to: &mut dyn Write) -> io::Result<()> {
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.class != Class::Cond).collect();
    if rows.is_empty() {
        return Ok(());
    }
    // Of the first lock alone, so that it stays one screen.
    let first = rows.iter().position(|row| row.turns_words.is_some());
    let knows = report.summary.without_switches.is_none();
    let holders = if knows { "PREE BLCK  RUN FREE" } else { "" };
    writeln!(to, "\n{:<PLACE$} {:>6} {:>6} {:>7} {holders}", "WAITED AT", "TIMES", "TIME", "LONGEST")?;
    for (at, row) in rows.iter().enumerate().take(MOST_ROWS) {
        let part = |part_ns: u64| format!("{:.0}%", part_ns as f64 * 100.0 / row.waited_ns.max(1) as f64);
        let parts = [row.holder_preempted_ns, row.holder_blocked_ns, row.holder_running_ns, row.free_ns];
        let parts: Vec<String> = parts.map(part).iter().map(|part| format!("{part:>4}")).collect();
        let place = cut(&format!("{}: {}", row.kind, row.place.label()), PLACE);
        let shown = if knows { parts.join(" ") } else { String::new() };
        let (times, time, longest) = (whole(row.waits), ns(row.waited_ns), ns(row.longest_ns));
        let line = format!("{place:<PLACE$} {times:>6} {time:>6} {longest:>7} {shown}");
        writeln!(to, "{}", line.trim_end())?;
        more(row, to)?;
        if let Some(words) = row.turns_words.as_ref().filter(|_| Some(at) == first) {
            wrap(words, WIDTH - 2).lines().try_for_each(|line| writeln!(to, "  {line}"))?;
        }
    }
    if rows.len() > MOST_ROWS {
        writeln!(to, "and {} more places; --json has all", rows.len() - MOST_ROWS)?;
    }
    if knows {
        let legend = "PREE, BLCK, RUN: whom they waited for had lost its processor, was blocked, ran. \
                      FREE: nobody held it, or all had come; they woke up or had no processor. The rest is \
                      unknown.";
        writeln!(to, "{}", wrap(legend, WIDTH))?;
    }
    Ok(())
}

/// What one row has beyond its numbers.
fn more(row: &Row, to: &mut dyn Write) -> io::Result<()> {
    let mut words = Vec::new();
    match (&row.name, row.objects) {
        (Some(name), ..=1) => words.push(format!("named {}", cut(name, NAME))),
        (None, ..=1) => {}
        (Some(name), many) => {
            words.push(format!("{} different ones, above all {}", whole(many), cut(name, NAME)));
        }
        (None, many) => words.push(format!("{} different ones", whole(many))),
    }
    if let Some(second) = row.sites.get(1) {
        let all = row.sites.len() - 1;
        let rest = if all > 1 { format!(" and {} more", all - 1) } else { String::new() };
        words.push(format!("also from {}{rest}", second.label()));
    }
    if let Some(seen) = row.blocked_in.first().filter(|_| row.holder_blocked_ns * 10 >= row.waited_ns) {
        words.push(format!("blocked in {} in {}", seen.called(), seen.place.name));
    }
    if let Some(last) = row.last.first()
        && row.rounds > 0
    {
        let share = percent(last.rounds as f64 / row.rounds as f64);
        let name = if last.name.is_empty() { "thread" } else { &last.name };
        words.push(format!(
            "`{name}` ({}) came last in {share} of {}",
            last.thread,
            some(row.rounds, "round")
        ));
    }
    let ran = row.holder_running_ns * 10 >= row.waited_ns;
    if let Some(worked) = row.worked_in.first().filter(|_| ran && row.class != Class::Cond) {
        words.push(format!("at work in {}", worked.place.label()));
    }
    // At the end: names without symbols are long, and the line is cut.
    let callers: Vec<&str> = row.callers.iter().take(MOST_CALLERS).map(|site| site.name.as_str()).collect();
    if !callers.is_empty() {
        words.push(format!("called by {}", callers.join(", ")));
    }
    if words.is_empty() {
        return Ok(());
    }
    writeln!(to, "{}", cut(&format!("  {}", words.join("; ")), WIDTH))
}

/// Columns of a region's place.
const REGION: usize = 30;

fn regions(report: &Report, to: &mut dyn Write) -> io::Result<()> {
    if report.regions.is_empty() {
        return Ok(());
    }
    let [times, time, threads, processors] = ["TIMES", "TIME", "THRD", "PROC"];
    let [fork, join, waits, imbalance] = ["FORK", "JOIN", "WAIT", "IMBL"];
    writeln!(
        to,
        "\n{:<REGION$} {times:>6} {time:>6} {threads:>4} {processors:>4} {fork:>6} {join:>6} {waits:>4} \
         {imbalance:>4}",
        "OPENMP REGION"
    )?;
    report.regions.iter().take(MOST_ROWS).try_for_each(|row| region(row, to))?;
    if report.regions.len() > MOST_ROWS {
        writeln!(to, "and {} more places; --json has all", report.regions.len() - MOST_ROWS)?;
    }
    let legend = "THRD: threads. PROC: processors at work on it. FORK: until a thread begins. JOIN: from the \
                  last part's end on. WAIT: at barriers and the end, of their time. IMBL: of that, for one \
                  that still worked.";
    writeln!(to, "{}", wrap(legend, WIDTH))
}

fn region(row: &RegionRow, to: &mut dyn Write) -> io::Result<()> {
    let part = |part_ns: u64| format!("{:.0}%", row.share(part_ns) * 100.0);
    let forks = (row.told as f64 * row.threads).max(1.0);
    let [fork, join] = [row.fork_ns as f64 / forks, row.join_ns as f64 / row.told.max(1) as f64];
    let processors = row.processors.map_or("-".into(), |processors| format!("{processors:.1}"));
    writeln!(
        to,
        "{:<REGION$} {:>6} {:>6} {:>4.0} {processors:>4} {:>6} {:>6} {:>4} {:>4}",
        cut(&row.place.label(), REGION),
        whole(row.count()),
        ns(row.all_ns()),
        row.threads,
        ns(fork as u64),
        ns(join as u64),
        part(row.waited_ns),
        part(row.imbalance_ns)
    )
}

fn conditions(report: &Report, to: &mut dyn Write) -> io::Result<()> {
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.class == Class::Cond).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let head = ["TIMES", "TIME", "TIMEOUT", "IN VAIN", "RUN SO"];
    let [times, time, timeout, vain, run] = head;
    writeln!(to, "\n{:<PLACE$} {times:>6} {time:>6} {timeout:>7} {vain:>8} {run:>7}", "CONDITION VARIABLE")?;
    for row in rows.iter().take(MOST_ROWS) {
        let place = cut(&row.place.label(), PLACE);
        writeln!(
            to,
            "{place:<PLACE$} {:>6} {:>6} {:>7} {:>8} {:>7}",
            whole(row.waits),
            ns(row.waited_ns),
            whole(row.timeouts),
            whole(row.vain),
            ns(row.vain_run_ns)
        )?;
        more(row, to)?;
    }
    if rows.len() > MOST_ROWS {
        writeln!(to, "and {} more places; --json has all", rows.len() - MOST_ROWS)?;
    }
    Ok(())
}

fn threads(report: &Report, to: &mut dyn Write) -> io::Result<()> {
    if report.threads.is_empty() {
        return Ok(());
    }
    writeln!(to, "\n{:<PLACE$} {:>9} {:>9} {:>9} {:>9}", "THREAD", "RUN", "READY", "BLOCKED", "WAITED")?;
    for one in report.threads.iter().take(MOST_THREADS) {
        let name = cut(&format!("{} ({})", one.name, one.thread), PLACE);
        writeln!(to, "{name:<PLACE$} {}", times(one))?;
    }
    let rest = &report.threads[report.threads.len().min(MOST_THREADS)..];
    if !rest.is_empty() {
        let sum = |part: fn(&One) -> u64| rest.iter().map(part).sum();
        let all = One {
            process: 0,
            thread: 0,
            name: String::new(),
            pool: String::new(),
            run_ns: sum(|one| one.run_ns),
            ready_ns: sum(|one| one.ready_ns),
            blocked_ns: sum(|one| one.blocked_ns),
            waited_ns: sum(|one| one.waited_ns),
            preemptions: 0,
        };
        let name = format!("{} others together", whole(rest.len() as u64));
        writeln!(to, "{name:<PLACE$} {}", times(&all))?;
    }
    Ok(())
}

fn times(one: &One) -> String {
    let [run, ready, blocked, waited] = [one.run_ns, one.ready_ns, one.blocked_ns, one.waited_ns].map(ns);
    format!("{run:>9} {ready:>9} {blocked:>9} {waited:>9}")
}

/// All places that a row names.
fn places(row: &Row) -> impl Iterator<Item = &Site> {
    let worked = row.worked_in.iter().map(|one| &one.place);
    let blocked = row.blocked_in.iter().map(|one| &one.place);
    [&row.place].into_iter().chain(&row.callers).chain(worked).chain(blocked)
}

/// What is behind the tables.
pub fn remarks(report: &Report) -> Vec<String> {
    let summary = &report.summary;
    let mut all: Vec<String> = Vec::new();
    let mut say = |text: &str| all.push(text.into());
    if let Some(obstacle) = &summary.obstacle {
        say(&format!("The program ran unchanged: {}", obstacle.replace('\n', " ")));
    }
    if let Some(reason) = &summary.without_switches {
        say(&format!("What the threads did is unknown: {}", reason.replace('\n', " ")));
    }
    if report.verdict.cause != "throttled"
        && let (Some(throttled @ 1..), Some(periods)) = (summary.throttled, summary.periods)
    {
        say(&format!("Throttled in {} of {} periods of its quota.", grouped(throttled), grouped(periods)));
    }
    let without_name = || report.rows.iter().flat_map(places).filter(|place| place.name.contains("+0x"));
    if without_name().any(|place| place.module != MADE) {
        say("name+0x..: that file has no symbols; build with them, or do not strip it.");
    }
    if without_name().any(|place| place.module == MADE) {
        say("[no file]+0x..: code that was made while the program ran, and no /tmp/perf-PID.map names it. \
             Have it written, as by `node --perf-basic-prof` or `python3 -X perf`.");
    }
    if summary.lost_events + summary.untold > 0 || summary.threads_without_ring > 0 {
        say(&format!(
            "{} of {} events found no room, and {} threads had none: times are wrong where they are missing.",
            grouped(summary.lost_events + summary.untold),
            grouped(summary.events + summary.lost_events),
            grouped(summary.threads_without_ring.into())
        ));
    }
    sampled(summary).iter().for_each(|words| say(words));
    if summary.processes > 0 && summary.processes_elsewhere + summary.processes_unmapped > 0 {
        say(&format!(
            "{} processes in another PID namespace and {} without room for the events told nothing.",
            grouped(summary.processes_elsewhere.into()),
            grouped(summary.processes_unmapped.into())
        ));
    }
    if summary.programs_silent > 0 && summary.obstacle.is_none() {
        say(&format!(
            "Of {} no wait is known: /proc is hidden there (chroot, hidepid), or a program is static, \
             set-user-ID, or without our library.",
            match summary.programs_silent {
                1 => "a program that it started".into(),
                many => format!("{} programs that it started", grouped(many.into())),
            }
        ));
    }
    let (threads, processors) = (summary.at_once(), u64::from(summary.processors));
    if !summary.spinning.is_empty() && threads > processors {
        say(&format!(
            "{} spins, though a holder has no processor, and {} shared {}: a waiter may burn a whole slice. \
             Take one that knows the running threads.",
            summary.spinning.join(" and "),
            summary.at_once_words(),
            some(processors, "processor")
        ));
    }
    if summary.lost_records > 0 {
        say(&format!("{} records were lost: times are wrong.", grouped(summary.lost_records)));
    }
    say(&format!(
        "The profiler took {:.1} % of a processor while the program ran ({}), and {} before that.",
        summary.profiler() * 100.0,
        ns(summary.profiler_ns),
        ns(summary.profiler_start_ns)
    ));
    all
}

/// What is an estimate.
fn sampled(summary: &Summary) -> Option<String> {
    (summary.waits_counted > 0).then(|| {
        let why = match summary.sampled_ns {
            0 => "Some threads waited too often to tell each wait".to_owned(),
            ns => {
                let share = percent(ns as f64 / summary.elapsed_ns.max(1) as f64);
                format!("For {share} of the time it would have cost too much to tell each wait")
            }
        };
        format!(
            "{why}: {} were told, and {} only counted, with their time. What their holders did is taken to \
             be as in the others.",
            whole(summary.waits_told),
            whole(summary.waits_counted)
        )
    })
}
