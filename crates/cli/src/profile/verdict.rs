// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why the program waits, in words, and what to do about it: the greatest cause first.

use recorder::profile::Class;
use serde::Serialize;

use super::report::{Row, Summary};
use crate::format::{ns, whole};

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
    /// The other causes, by the same words, and their shares of the waiting.
    pub others: Vec<Other>,
}

#[derive(Debug, Serialize)]
pub struct Other {
    pub cause: &'static str,
    pub share: f64,
}

/// A bound of what a change can gain, as far as the record supports one.
#[derive(Clone, Debug, Serialize)]
pub struct Gain {
    /// `run`, or `fewer-threads`.
    pub by: &'static str,
    /// So many times as fast, at most.
    pub at_most: f64,
    pub words: String,
}

/// BOUND: waiting that is less than this part of the threads' time is nothing.
const NOTHING: f64 = 0.01;
/// BOUND: a cause that is less than this part of the waiting is not told in the text.
const MINOR: f64 = 0.10;
/// BOUND: from this part of the quota's periods on the quota comes first.
const THROTTLED: f64 = 0.25;
/// BOUND: wake-ups in vain come first from these parts of a place's wake-ups and of all processor time on.
const VAIN: f64 = 0.5;
const VAIN_RUN: f64 = 0.05;

/// BOUND: from this part on it is mostly that.
const MOSTLY: f64 = 0.75;
/// BOUND: fewer threads are spoken of from this part of the time on.
const OWN: f64 = 0.05;
/// BOUND: a greater gain says that the record bounds nothing.
const MOST_GAIN: f64 = 20.0;

/// What the time went to, and how much of it.
struct Cause {
    name: &'static str,
    total_ns: u64,
    /// Where most of it was, with the time there.
    most: Option<(String, u64)>,
    /// That is an OpenMP region.
    is_openmp: bool,
    /// In what those were seen there who were blocked.
    seen: Option<String>,
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
    let seen = most.and_then(|row| row.blocked_in.first());
    let seen = seen.map(|one| format!("in a {} in {}", one.call, one.place.label()));
    let most = most.map(|row| (format!("{} in {}", row.kind, row.place.label()), part(row)));
    Cause { name, total_ns: meant().map(part).sum(), most, is_openmp, seen }
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
    let first = throttled(summary, command).or_else(|| vain(summary, rows)).or_else(|| {
        (total_ns as f64 >= all_ns as f64 * NOTHING && total_ns > 0).then(|| {
            others.remove(0);
            let behind_own = behind_own(rows, causes[0].name);
            waiting(&causes[0], share(&causes[0]), all_ns, total_ns, &Told { summary, command, behind_own })
        })
    });
    let (cause, words, advice) = first.unwrap_or_else(|| nothing(summary, rows, total_ns));
    let gains = gains(summary, cause);
    Verdict { cause, words, advice, gains, others }
}

/// What is left of the program's time without that part of it. The program's threads need their processor
/// time in any case.
fn at_most(summary: &Summary, without_ns: u64) -> f64 {
    let elapsed_ns = summary.elapsed_ns.max(1) as f64;
    let needed_ns = summary.run_ns as f64 / f64::from(summary.processors.max(1));
    let rest_ns = (elapsed_ns - without_ns as f64).max(needed_ns).max(elapsed_ns / MOST_GAIN);
    (elapsed_ns / rest_ns).max(1.0)
}

/// Causes that other locks or fewer threads change.
const CHANGED: [&str; 4] = ["preempted", "free", "last-preempted", "woken-late"];

fn gains(summary: &Summary, cause: &str) -> Vec<Gain> {
    let mut gains = Vec::new();
    if summary.without_switches.is_some() || !CHANGED.contains(&cause) {
        return gains;
    }
    let part = |part_ns: u64| percent(part_ns as f64 / summary.elapsed_ns.max(1) as f64);
    let without_ns = summary.waited_for_preempted_or_free_ns;
    let at_most_now = at_most(summary, without_ns);
    let words = format!(
        "{} by `wakeful run`: for {} of the time, somebody waited for a thread without a processor, or for \
         nobody",
        times(at_most_now),
        part(without_ns)
    );
    gains.push(Gain { by: "run", at_most: at_most_now, words });
    let own_ns = summary.waited_behind_own_ns;
    let processors = summary.processors.max(1);
    if own_ns as f64 >= summary.elapsed_ns as f64 * OWN && summary.threads > u64::from(processors) {
        let at_most = at_most(summary, own_ns);
        let words = format!(
            "{} by {processors} thread{} instead of {}: for {} of the time, another thread of the program \
             had that processor",
            times(at_most),
            if processors == 1 { "" } else { "s" },
            whole(summary.threads),
            part(own_ns)
        );
        gains.push(Gain { by: "fewer-threads", at_most, words });
    }
    gains
}

fn times(at_most: f64) -> String {
    if at_most >= MOST_GAIN { "more than 20 x".into() } else { format!("{at_most:.1} x") }
}

/// The bounds in a sentence, if there are any.
pub fn gained(verdict: &Verdict) -> Option<String> {
    let words: Vec<&str> = verdict.gains.iter().map(|gain| gain.words.as_str()).collect();
    (!words.is_empty()).then(|| format!("To gain at most: {}.", words.join("; ")))
}

/// All threads' time.
fn lifetime_ns(summary: &Summary) -> u64 {
    let known = summary.run_ns + summary.ready_ns + summary.blocked_ns;
    if known > 0 { known } else { summary.elapsed_ns * summary.threads.max(1) }
}

type Said = (&'static str, String, String);

fn throttled(summary: &Summary, command: &str) -> Option<Said> {
    let (throttled, periods) = (summary.throttled?, summary.periods?);
    if throttled == 0 || (throttled as f64) < periods as f64 * THROTTLED {
        return None;
    }
    let words = format!(
        "the CPU quota stopped the whole program in {} of {} periods.",
        whole(throttled),
        whole(periods)
    );
    let advice = format!(
        "Raise the quota, or use as many threads as it has processors. `wakeful run -- {command}` spins less \
         under a quota."
    );
    Some(("throttled", words, advice))
}

fn vain(summary: &Summary, rows: &[Row]) -> Option<Said> {
    let woken = |row: &Row| row.waits.saturating_sub(row.timeouts);
    let is_vain =
        |row: &&Row| row.class == Class::Cond && row.vain > 0 && row.vain as f64 >= woken(row) as f64 * VAIN;
    let most = rows.iter().filter(is_vain).max_by_key(|row| row.vain)?;
    let run_ns: u64 = rows.iter().filter(is_vain).map(|row| row.vain_run_ns).sum();
    // Without the kernel's word nobody knows what they cost.
    let costs = summary.run_ns == 0 || run_ns as f64 >= summary.run_ns as f64 * VAIN_RUN;
    if !costs {
        return None;
    }
    let cost = match summary.run_ns {
        0 => String::new(),
        all => format!("; {} of the processor time went there", percent(run_ns as f64 / all as f64)),
    };
    let words = format!(
        "{} of {} wake-ups from the condition variable in {} were in vain{cost}.",
        whole(most.vain),
        whole(woken(most)),
        most.place.label()
    );
    let advice = "A woken thread waited again at once: it neither released its mutex nor signalled. Signal \
                  once for each item instead of a broadcast, or give each kind of waiter its own condition \
                  variable.";
    Some(("vain", words, advice.into()))
}

/// Of the time that somebody waited for preempted holders: another thread of the program had the processor.
fn behind_own(rows: &[Row], cause: &str) -> f64 {
    let is_meant = if cause == "preempted" { is_lock } else { is_barrier };
    let meant = || rows.iter().filter(is_meant);
    let all_ns: u64 = meant().map(|row| row.holder_preempted_ns).sum();
    meant().map(|row| row.holder_behind_own_ns).sum::<u64>() as f64 / all_ns.max(1) as f64
}

/// What else is known.
struct Told<'a> {
    summary: &'a Summary,
    command: &'a str,
    behind_own: f64,
}

fn waiting(cause: &Cause, share: f64, all_ns: u64, total_ns: u64, told: &Told) -> Said {
    let Told { summary, command, behind_own } = *told;
    let whom = match cause.name {
        "preempted" => "for holders of locks that had lost their processor",
        "blocked" => "for holders of locks that were blocked, or ready again and without a processor",
        "running" => "for holders of locks that ran: their sections are long, or too many threads want them",
        "free" => "for locks that were free already: the waiters had to wake up, or had no processor",
        "last-preempted" => "at barriers for a last thread that had lost its processor",
        "last-blocked" => "at barriers for a last thread that was blocked, or ready again",
        "last-running" => "at barriers for a last thread that still worked",
        "last-unknown" => "at barriers for a last thread whose doing is unknown, or that never came",
        "woken-late" => "at barriers that were complete: the threads had to wake up, or had no processor",
        _ => "for holders whose doing is unknown",
    };
    let place = match &cause.most {
        Some((place, part_ns)) if *part_ns > 0 => {
            let most = *part_ns as f64 / cause.total_ns.max(1) as f64;
            format!(" {} of that at the {place}.", percent(most))
        }
        _ => String::new(),
    };
    let words = format!(
        "{} of the waiting was {whom}.{place} The threads waited for locks and barriers for {}, {} of their \
         time.",
        percent(share),
        ns(total_ns),
        percent(total_ns as f64 / all_ns.max(1) as f64)
    );
    let compare = format!("`wakeful compare -- {command}` measures what that gains here.");
    let advice = match cause.name {
        "preempted" | "last-preempted" => {
            let who = match behind_own {
                own if own >= MOSTLY => "Another thread of the program had taken the processor",
                own if own <= 1.0 - MOSTLY => "Another program had the processor",
                _ => "Other threads of the program had taken the processor, and other programs had it",
            };
            format!("{who}. Use fewer threads, or locks that know who runs: {compare}")
        }
        "free" | "woken-late" => {
            format!(
                "Each hand-over costs a wake-up. Locks that spin for a holder that runs save it: {compare}"
            )
        }
        "blocked" => format!(
            "Move what blocks out of the section{}",
            cause.seen.as_ref().map_or(": `wakeful watch` shows where it does.".into(), |seen| {
                format!(". The holder was seen {seen}; `wakeful watch` has its stack.")
            })
        ),
        "running" => "Make the section shorter, or split the lock. Another lock does not help.".into(),
        "last-blocked" => match &cause.seen {
            Some(seen) => format!("The last thread was seen {seen}; `wakeful watch` has its stack."),
            None => "`wakeful watch` shows where it blocks: a file, a page fault, another lock.".into(),
        },
        "last-running" if cause.is_openmp => {
            "Divide the work more evenly, as by schedule(dynamic). Another runtime does not help.".into()
        }
        "last-running" => "Divide the work more evenly. Another barrier does not help.".into(),
        _ if summary.without_switches.is_some() => "Allow perf events, see below.".into(),
        "last-unknown" => "`wakeful watch` shows where the threads are that do not come.".into(),
        _ => "A lock's readers are not followed, only the waits for it are.".into(),
    };
    (cause.name, words, advice)
}

fn nothing(summary: &Summary, rows: &[Row], total_ns: u64) -> Said {
    if summary.obstacle.is_some() {
        let words = "none: the waits of this program cannot be seen.".into();
        return ("unknown", words, "The times of its threads are all that is known.".into());
    }
    if summary.processes_elsewhere > 0 {
        let words = "none: a process runs in another PID namespace, and its waits cannot be seen.".into();
        return ("unknown", words, "Run `wakeful profile` inside the container.".into());
    }
    if summary.processes_unmapped > 0 {
        let words = "none: a process could not map the memory for its events.".into();
        return ("unknown", words, "Does ulimit -v or mlockall forbid 256 MB that are mostly holes?".into());
    }
    if summary.processes == 0 {
        let words = "none: the program did not load the library that tells the waits.".into();
        let advice = "Is LD_PRELOAD removed on the way, or does another user's program start?".into();
        return ("unknown", words, advice);
    }
    if let Some(runtime) = summary.openmp {
        let words = format!(
            "nothing waited for pthread's locks and barriers. The program uses {runtime}, but no region \
             of OpenMP was seen."
        );
        return ("nothing", words, "`wakeful compare` measures what another runtime gains.".into());
    }
    let amount = match total_ns {
        0 => "nothing waited for a lock or a barrier of pthread's".into(),
        some => format!("almost nothing waited: {} in all", ns(some)),
    };
    let semaphores_ns: u64 =
        rows.iter().filter(|row| row.class == Class::Semaphore).map(|row| row.waited_ns).sum();
    let amount = match semaphores_ns {
        0 => amount,
        some => format!("{amount}. Threads waited for semaphores for {}, maybe for work", ns(some)),
    };
    let idle = summary.blocked_ns > (summary.run_ns + summary.ready_ns) * 2;
    let advice = if summary.ready_ns > summary.run_ns / 2 && summary.ready_ns > summary.elapsed_ns / 4 {
        "Its threads were ready for long without a processor: fewer threads would do."
    } else if idle {
        "It was blocked most of the time: `wakeful watch` shows in which calls."
    } else {
        "Locks are not its problem: a profiler of functions, such as perf, says what it computes."
    };
    ("nothing", format!("{amount}."), advice.into())
}

/// The other causes in a line, if there are any.
pub fn others(verdict: &Verdict) -> Option<String> {
    let told = verdict.others.iter().filter(|other| other.share >= MINOR);
    let told: Vec<String> =
        told.map(|other| format!("{} {}", percent(other.share), short(other.cause))).collect();
    (!told.is_empty()).then(|| format!("Then: {}.", told.join(", ")))
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

pub fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".into(),
        part if part < 1.0 => "less than 1 %".into(),
        part => format!("{part:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::names::Site;

    fn row(class: Class, set: impl FnOnce(&mut Row)) -> Row {
        let mut row = Row::new(class, &Site { name: "work".into(), ..Site::default() });
        set(&mut row);
        row
    }

    fn summary() -> Summary {
        Summary { run_ns: 1_000, elapsed_ns: 1_000, threads: 2, processes: 1, ..Summary::default() }
    }

    #[test]
    fn the_greatest_cause_comes_first() {
        let lock = row(Class::Mutex, |row| {
            row.holder_preempted_ns = 600;
            row.holder_running_ns = 100;
        });
        let barrier = row(Class::Barrier, |row| row.holder_running_ns = 300);
        let verdict = of(&summary(), &[lock.clone(), barrier.clone()], "prog");
        assert_eq!(verdict.cause, "preempted");
        assert!(verdict.words.starts_with("60 % of the waiting"), "{}", verdict.words);
        assert!(verdict.words.contains("100 % of that at the mutex in work"), "{}", verdict.words);
        let then = others(&verdict).unwrap();
        assert_eq!(then, "Then: 30 % for a last thread that worked, 10 % for running holders.");
        let other = row(Class::Barrier, |row| row.holder_running_ns = 3_000);
        assert_eq!(of(&summary(), &[lock.clone(), other], "prog").cause, "last-running");
        // A quota stops whoever it may be that waits.
        let throttled = Summary { throttled: Some(3), periods: Some(9), ..summary() };
        assert_eq!(of(&throttled, &[lock.clone(), barrier], "prog").cause, "throttled");
        let seldom = Summary { throttled: Some(1), periods: Some(9), ..summary() };
        assert_eq!(of(&seldom, &[lock], "prog").cause, "preempted");
    }

    #[test]
    fn a_gain_is_bounded_by_what_is_left() {
        let lock = row(Class::Mutex, |row| {
            (row.holder_preempted_ns, row.holder_behind_own_ns) = (600, 500);
        });
        let base = Summary { run_ns: 800, threads: 6, processors: 2, ..summary() };
        let waited = Summary { waited_for_preempted_or_free_ns: 500, waited_behind_own_ns: 200, ..base };
        let verdict = of(&waited, std::slice::from_ref(&lock), "prog");
        let bounds = |verdict: &Verdict| -> Vec<(&str, f64)> {
            verdict.gains.iter().map(|gain| (gain.by, gain.at_most)).collect()
        };
        assert_eq!(bounds(&verdict), [("run", 2.0), ("fewer-threads", 1.25)]);
        assert!(verdict.advice.starts_with("Another thread of the program had taken"), "{}", verdict.advice);
        let words = gained(&verdict).unwrap();
        assert!(words.contains("2.0 x by `wakeful run`: for 50 %"), "{words}");
        assert!(words.contains("1.2 x by 2 threads instead of 6: for 20 %"), "{words}");
        // The processors are full already.
        let full = Summary { run_ns: 1_600, ..waited };
        assert_eq!(
            bounds(&of(&full, std::slice::from_ref(&lock), "prog")),
            [("run", 1.25), ("fewer-threads", 1.25)]
        );
        let few = Summary { threads: 2, run_ns: 800, ..full };
        assert_eq!(bounds(&of(&few, std::slice::from_ref(&lock), "prog")), [("run", 2.0)]);
        let always = Summary { waited_for_preempted_or_free_ns: 1_000, run_ns: 10, ..few };
        let verdict = of(&always, std::slice::from_ref(&lock), "prog");
        assert!(gained(&verdict).unwrap().contains("more than 20 x by `wakeful run`"), "{verdict:?}");
        // Nobody knows, or a section is long: other locks change nothing.
        let unknown = Summary { without_switches: Some("denied".into()), ..always };
        assert!(of(&unknown, &[lock], "prog").gains.is_empty());
        let long = row(Class::Mutex, |row| row.holder_running_ns = 600);
        assert_eq!(gained(&of(&summary(), &[long], "prog")), None);
    }

    #[test]
    fn wake_ups_in_vain_count_by_what_they_cost() {
        let cond = |vain, vain_run_ns| {
            row(Class::Cond, |row| (row.waits, row.vain, row.vain_run_ns) = (100, vain, vain_run_ns))
        };
        assert_eq!(of(&summary(), &[cond(80, 100)], "prog").cause, "vain");
        assert_eq!(of(&summary(), &[cond(20, 100)], "prog").cause, "nothing");
        assert_eq!(of(&summary(), &[cond(80, 10)], "prog").cause, "nothing");
        let unknown = Summary { run_ns: 0, ..summary() };
        assert_eq!(of(&unknown, &[cond(80, 0)], "prog").cause, "vain");
    }

    #[test]
    fn who_waits_for_work_at_a_semaphore_hides_no_lock() {
        let pool = row(Class::Semaphore, |row| {
            (row.waited_ns, row.holder_unknown_ns) = (9_000, 9_000);
        });
        let lock = row(Class::Mutex, |row| row.holder_running_ns = 100);
        let verdict = of(&summary(), &[pool.clone(), lock], "prog");
        assert_eq!(verdict.cause, "running");
        assert!(verdict.words.starts_with("100 % of the waiting"), "{}", verdict.words);
        let verdict = of(&summary(), &[pool], "prog");
        assert_eq!(verdict.cause, "nothing");
        assert!(verdict.words.contains("for semaphores for 9.00us, maybe for work"), "{}", verdict.words);
    }

    #[test]
    fn a_barrier_has_words_of_its_own_for_what_is_unknown() {
        let barrier = row(Class::Barrier, |row| row.holder_unknown_ns = 900);
        let verdict = of(&summary(), &[barrier], "prog");
        assert_eq!(verdict.cause, "last-unknown");
        assert!(
            verdict.words.contains("never came") && !verdict.advice.contains("readers"),
            "{}",
            verdict.words
        );
    }

    #[test]
    fn who_does_not_wait_is_told_so() {
        let verdict = of(&summary(), &[], "prog");
        assert!(verdict.words.starts_with("nothing waited"), "{}", verdict.words);
        let little = row(Class::Mutex, |row| row.free_ns = 9);
        assert!(of(&summary(), &[little], "prog").words.starts_with("almost nothing waited: 9ns"));
        let unloaded = Summary { processes: 0, ..summary() };
        let verdict = of(&unloaded, &[], "prog");
        assert!(verdict.cause == "unknown" && verdict.advice.contains("LD_PRELOAD"), "{}", verdict.advice);
        let elsewhere = Summary { processes_elsewhere: 1, ..summary() };
        assert!(of(&elsewhere, &[], "prog").words.contains("PID namespace"));
        let unmapped = Summary { processes_unmapped: 1, ..summary() };
        assert!(of(&unmapped, &[], "prog").advice.contains("ulimit -v"));
        let openmp = Summary { openmp: Some("libgomp"), ..summary() };
        assert!(of(&openmp, &[], "prog").words.contains("libgomp"));
    }
}
