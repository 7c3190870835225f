// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report in words.

use std::io::{self, Write};

use launch::suggest::{WIDTH, wrap};
use recorder::account::MAIN;
use recorder::calls::Why;

use super::report::{Pool, Report, Shown, Site, Summary, Verdict};
use crate::format::{ns, plain, whole};
use crate::recorded::{Called, cut, left, stopped, takes_rights};

/// BOUND: what is shown of each; `--json` has all.
const MOST_THREADS: usize = 16;
const MOST_POOLS: usize = 24;
const MOST_SITES: usize = 8;
/// BOUND: frames of a stack before the program's own one, and from it on.
const MOST_INNER: usize = 3;
const MOST_OUTER: usize = 5;

pub fn write(report: &Report, to: &mut dyn Write) -> io::Result<()> {
    let summary = &report.summary;
    writeln!(to, "{}", wrap(&plain(&head(report)), WIDTH))?;
    if let Some(stopped) = stopped(summary.stops, summary.stopped_ns, &summary.halted) {
        writeln!(to, "{}", wrap(&stopped, WIDTH))?;
    }
    writeln!(to)?;
    if summary.takes_rights {
        return said(report, to);
    }
    writeln!(to, "{:<18} {:>7}  RUN      READY    BLOCKED  BLOCKS  LONG   LONGEST", "THREADS", "NUMBER")?;
    for pool in report.pools.iter().take(MOST_POOLS) {
        row(to, &pool.pool, &whole(pool.threads), pool, Some((pool.long, pool.longest_ns)))?;
        let members = || report.threads.iter().filter(|one| one.pool == pool.pool);
        if pool.threads > 1 && report.threads.len() <= MOST_THREADS {
            for one in members() {
                let times = (one.run_ns, one.ready_ns, one.blocked_ns, one.blocks);
                row(to, &format!("  {}", one.name), &one.thread.to_string(), times, None)?;
            }
        }
    }
    if report.pools.len() > MOST_POOLS {
        writeln!(to, "and {} more kinds; --json has all", report.pools.len() - MOST_POOLS)?;
    }
    sites(report, to)?;
    remarks(report, to)?;
    writeln!(to)?;
    said(report, to)
}

fn said(report: &Report, to: &mut dyn Write) -> io::Result<()> {
    writeln!(to, "{}", wrap(&plain(&format!("Verdict: {}", report.verdict.words)), WIDTH))?;
    writeln!(to, "{}", wrap(&report.verdict.advice, WIDTH))?;
    to.flush()
}

/// BOUND: the average of a shorter time says nothing.
const AVERAGE_NS: u64 = 10_000_000;

fn head(report: &Report) -> String {
    let summary = &report.summary;
    let (by, longest) = Called::words(summary.started_by.as_ref(), summary.ran_longest.as_ref());
    let took = format!("wakeful: `{}`{by} took {}", summary.program, ns(summary.elapsed_ns));
    let ended = match &summary.signal {
        Some(signal) => format!(". Signal {signal} ended it, and the report ends there"),
        None => String::new(),
    };
    if summary.takes_rights {
        return format!("{took}; its threads and their times are hidden from this user{ended}");
    }
    let run_ns: u64 = report.pools.iter().map(|pool| pool.run_ns).sum();
    let used = match summary.elapsed_ns {
        ..AVERAGE_NS => String::new(),
        elapsed_ns => format!(", {:.2} processors on average", run_ns as f64 / elapsed_ns as f64),
    };
    let threads = many(summary.threads, "thread");
    format!("{took}, {threads}{used}{longest}{ended}")
}

/// "1 thread", "2 threads".
fn many(count: u64, what: &str) -> String {
    format!("{} {what}{}", whole(count), if count == 1 { "" } else { "s" })
}

/// Running, ready and blocked, and how often blocked.
struct Cells(u64, u64, u64, u64);

impl From<&Pool> for Cells {
    fn from(pool: &Pool) -> Self {
        Self(pool.run_ns, pool.ready_ns, pool.blocked_ns, pool.blocks)
    }
}

impl From<(u64, u64, u64, u64)> for Cells {
    fn from((run, ready, blocked, blocks): (u64, u64, u64, u64)) -> Self {
        Self(run, ready, blocked, blocks)
    }
}

fn row(
    to: &mut dyn Write,
    name: &str,
    count: &str,
    cells: impl Into<Cells>,
    long: Option<(u64, u64)>,
) -> io::Result<()> {
    let Cells(run, ready, blocked, blocks) = cells.into();
    let (long, longest) = match long {
        Some((0, _)) => ("0".into(), "-".into()),
        Some((long, longest)) => (whole(long), ns(longest)),
        None => (String::new(), String::new()),
    };
    let line = format!(
        "{:<18} {count:>7}  {:<8} {:<8} {:<8} {:<7} {long:<6} {longest}",
        cut(name, 18),
        ns(run),
        ns(ready),
        ns(blocked),
        whole(blocks)
    );
    writeln!(to, "{}", line.trim_end())
}

fn sites(report: &Report, to: &mut dyn Write) -> io::Result<()> {
    let held: Vec<_> = report.sites.iter().filter(|site| site.kind != Why::Idle).collect();
    if !held.is_empty() {
        writeln!(to, "\nWhere they were blocked, without waits for work:")?;
    }
    for site in held.iter().take(MOST_SITES) {
        writeln!(to)?;
        let own = site.stack.get(site.own).map_or(String::new(), |frame| format!(" in {}", frame.name));
        writeln!(to, "{}", cut(&format!("{}: {}{own}", site.pool, site.call), WIDTH))?;
        let lengths = format!(
            "  {}, {} together; median {}, 99 % {}, longest {}",
            times(site.count),
            ns(site.total_ns),
            ns(site.median_ns),
            ns(site.p99_ns),
            ns(site.longest_ns)
        );
        writeln!(to, "{lengths}")?;
        if site.others_ready_ns > 0 {
            writeln!(
                to,
                "  for {} of that time, other threads of the program waited for a processor",
                ns(site.others_ready_ns)
            )?;
        }
        if let Some(path) = site.descriptors.first() {
            let more = site.descriptors.len() - 1;
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            writeln!(to, "{}", cut(&format!("  on {path}{more}"), WIDTH))?;
        }
        stack(site, to)?;
    }
    if held.len() > MOST_SITES {
        writeln!(to, "\nand {} more places; --json has all", held.len() - MOST_SITES)?;
    }
    Ok(())
}

fn times(count: u64) -> String {
    if count == 1 { "once".into() } else { format!("{} times", whole(count)) }
}

fn stack(site: &Site, to: &mut dyn Write) -> io::Result<()> {
    let from = site.own.saturating_sub(MOST_INNER);
    let shown = site.stack.iter().enumerate().skip(from).take(site.own - from + MOST_OUTER);
    for (index, frame) in shown {
        let mark = if index == site.own { ">" } else { " " };
        let guess = if frame.guess { "?" } else { " " };
        writeln!(to, "  {mark}{guess} {}", place(frame, WIDTH - 5))?;
    }
    if !site.whole && site.stack.len() <= site.own + MOST_OUTER {
        writeln!(to, "     (the stack cannot be followed further)")?;
    }
    Ok(())
}

/// Name and line; without a line, name and file.
fn place(frame: &Shown, width: usize) -> String {
    let at = plain(frame.line.as_ref().unwrap_or(&frame.module));
    let room = width.saturating_sub(at.chars().count() + 1).max(20);
    if frame.line.is_none() && frame.name.starts_with(&frame.module) {
        return cut(&frame.name, width);
    }
    format!("{} {at}", cut(&frame.name, room))
}

fn remarks(report: &Report, to: &mut dyn Write) -> io::Result<()> {
    let summary = &report.summary;
    let unseen: u64 = report.pools.iter().map(|pool| pool.unseen).sum();
    let unseen_ns: u64 = report.pools.iter().map(|pool| pool.unseen_ns).sum();
    let share = summary.watcher_ns as f64 / summary.elapsed_ns.max(1) as f64 * 100.0;
    writeln!(to)?;
    if unseen > 0 {
        let longest = report.pools.iter().map(|pool| pool.unseen_longest_ns).max().unwrap_or(0);
        let why = if summary.hidden > 0 { "" } else { " They were over before the watcher looked." };
        let (are, why) = match unseen {
            1 => ("is", why.replace("They were", "It was")),
            _ => ("are", why.into()),
        };
        let blocks = many(unseen, "block");
        let text =
            format!("{blocks}, {} together, at most {}, {are} in no stack.{why}", ns(unseen_ns), ns(longest));
        writeln!(to, "{}", wrap(&text, WIDTH))?;
    }
    if report.sites.iter().any(|site| site.stack.iter().any(|frame| frame.guess)) {
        writeln!(to, "A frame with ? is a guess: the code keeps its frame where nobody can see it.")?;
    }
    if report.sites.iter().any(|site| site.stack.iter().any(|frame| frame.name.contains("+0x"))) {
        writeln!(to, "name+0x..: that file has no symbols; build with them, or do not strip it.")?;
    }
    // Where all are hidden, the verdict says it.
    if summary.hidden > 0 && summary.looks > 0 {
        let plural = if summary.hidden == 1 { "" } else { "es" };
        let text = format!("{} process{plural} could not be looked at. ", whole(summary.hidden));
        writeln!(to, "{}", wrap(&(text + &hidden_advice(summary.ptrace_scope)), WIDTH))?;
    }
    if summary.lost_records > 0 {
        writeln!(to, "{} records were lost: times are wrong.", whole(summary.lost_records))?;
    }
    writeln!(to, "The watcher took {share:.1} % of a processor.")
}

/// Runtimes by what their stacks have, and what to do instead there.
const RUNTIMES: &[(&str, &str)] = &[
    (
        "tokio::runtime",
        "tokio runs nothing else on that thread meanwhile: use tokio's own call, or \
         put it into spawn_blocking.",
    ),
    ("rayon_core", "rayon runs nothing else on that thread meanwhile: do it outside of the pool."),
    ("uv__", "libuv has few such threads: raise UV_THREADPOOL_SIZE, or start fewer such calls at a time."),
    (
        "runtime.goexit",
        "Go lets another thread run instead, but late in a call, and not at all in a page fault.",
    ),
    ("PyEval", "Python: more workers, or asyncio's own call for it."),
];

/// One line in words, and one about what to do.
pub fn verdict(summary: &Summary, pools: &[Pool], sites: &[Site]) -> Verdict {
    let mut verdict = of_blocks(summary, pools, sites);
    verdict.words += &left(summary.processes_left, summary.elapsed_ns, "blocks");
    verdict
}

fn of_blocks(summary: &Summary, pools: &[Pool], sites: &[Site]) -> Verdict {
    let threshold = ns(summary.threshold_ns);
    let held = sites.iter().find(|site| site.kind != Why::Idle && site.long > 0);
    let Some(site) = held.filter(|_| !summary.takes_rights) else {
        return nothing(summary, pools, &threshold);
    };
    let pool = pools.iter().find(|pool| pool.pool == site.pool);
    let threads = pool.map_or(1, |pool| pool.threads);
    let own = site.stack.get(site.own);
    let place = own.map_or(String::new(), |frame| {
        let line = frame.line.as_ref().map_or(String::new(), |line| format!(" ({line})"));
        format!(", called by {}{line}", frame.name)
    });
    let who = if threads == 1 { "the thread".into() } else { format!("a thread of the {}", whole(threads)) };
    let words = format!(
        "{who} `{}` blocked {} for {threshold} or longer in {}{place}: {} together, at most {}.",
        site.pool,
        times(site.long),
        site.call,
        ns(site.long_ns),
        ns(site.longest_ns)
    );
    let usual = if site.kind == Why::Lock {
        ""
    } else if !site.pool.ends_with(MAIN) {
        "A thread of the pool does nothing else meanwhile: let a thread of its own do it."
    } else if has_pool(pools) {
        "It is no thread of a pool, but the first one of its process."
    } else {
        "There is no pool: the program itself waits."
    };
    let runtime = RUNTIMES.iter().find(|(part, _)| site.stack.iter().any(|frame| frame.name.contains(part)));
    let runtime = runtime.map_or(usual, |(_, advice)| advice);
    let cause = match site.kind {
        Why::Sleep => "It sleeps. ",
        Why::File => "It waits for a file, a pipe or a device. ",
        Why::Network => "It waits for a socket. ",
        Why::Fault => "Pages are not in memory: read them before (madvise(2), MADV_WILLNEED). ",
        Why::Child => "It waits for a process. ",
        Why::Lock => lock(&site.call),
        Why::Idle | Why::Other => "",
    };
    Verdict { words: capital(&words), advice: format!("{cause}{runtime}").trim_end().to_owned() }
}

/// What a lock is that a thread waits for in this call.
fn lock(call: &str) -> &'static str {
    match call {
        "futex" | "futex_waitv" => "It waits for a lock: `wakeful compare` says if other locks help. ",
        "mmap" | "munmap" | "mprotect" | "madvise" | "mremap" | "brk" => {
            "One thread at a time changes the memory map of a process: map and unmap less often. "
        }
        _ => "It waits for a lock of the system, which another process may have. ",
    }
}

/// Are there threads that are not the first ones of their processes?
fn has_pool(pools: &[Pool]) -> bool {
    pools.iter().any(|pool| !pool.pool.ends_with(MAIN))
}

/// Why a process may not be looked at, and what helps.
fn hidden_advice(ptrace_scope: Option<u32>) -> String {
    match ptrace_scope {
        Some(3..) => "kernel.yama.ptrace_scope is 3, which stays so until the next boot.".into(),
        Some(2) => "kernel.yama.ptrace_scope is 2; as root: `sysctl kernel.yama.ptrace_scope=1`, or watch \
                    as root."
            .into(),
        // Yama knows no child any more whose parent has ended.
        Some(1) => {
            "It called prctl(2) with PR_SET_DUMPABLE, has rights that you have not, or its parent has \
                    ended (kernel.yama.ptrace_scope is 1). Watch as root."
                .into()
        }
        _ => {
            "It called prctl(2) with PR_SET_DUMPABLE, or has rights that you have not. Watch as root.".into()
        }
    }
}

fn nothing(summary: &Summary, pools: &[Pool], threshold: &str) -> Verdict {
    let all = |value: fn(&Pool) -> u64| pools.iter().map(value).sum::<u64>();
    let (ready_ns, run_ns) = (all(|pool| pool.ready_ns), all(|pool| pool.run_ns));
    let (words, advice) = if summary.takes_rights {
        (
            "none: the program has other rights than you, so the kernel hides its threads.".into(),
            takes_rights("watch"),
        )
    } else if summary.hidden > 0 && summary.looks == 0 {
        (
            "none: the kernel does not let you look at its threads, and only their times are known.".into(),
            hidden_advice(summary.ptrace_scope),
        )
    } else if all(|pool| pool.unseen_long) > 0 {
        let (long, ns_of_them) = (all(|pool| pool.unseen_long), ns(all(|pool| pool.unseen_long_ns)));
        let were = if long == 1 { "block of" } else { "blocks of" };
        (
            format!(
                "{} {were} {threshold} or longer, {ns_of_them} together, {} over before the watcher looked.",
                whole(long),
                if long == 1 { "was" } else { "were" }
            ),
            "In which calls is unknown. Watch it for longer, or while fewer other programs run.".into(),
        )
    } else {
        let words = match all(|pool| pool.blocks) {
            0 => "no thread blocked.".into(),
            _ => format!("no thread blocked for {threshold} or longer, other than for want of work."),
        };
        let advice = if ready_ns <= run_ns / 2 || ready_ns <= summary.elapsed_ns / 4 {
            match all(|pool| pool.blocks) {
                0 => "It computed: a profiler of functions, such as perf, says what.",
                _ => "A lower --threshold shows shorter blocks.",
            }
        } else if summary.threads_at_once > summary.processors.into() {
            "But threads were ready for long without a processor: fewer threads would do."
        } else {
            "But threads were ready for long without a processor: other programs had it, or a quota or \
             taskset keeps them from the others."
        };
        (words, advice.into())
    };
    Verdict { words: capital(&words), advice }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(unseen_longest_ns: u64, ready_ns: u64) -> Pool {
        Pool {
            pool: "pool".into(),
            threads: 2,
            run_ns: 1_000,
            ready_ns,
            blocked_ns: 9_000_000,
            blocks: 3,
            preemptions: 0,
            long: 0,
            long_ns: 0,
            longest_ns: 0,
            unseen: 3,
            unseen_ns: 9_000_000,
            unseen_longest_ns,
            unseen_long: if unseen_longest_ns < 1_000_000 { 0 } else { 2 },
            unseen_long_ns: unseen_longest_ns,
        }
    }

    fn summary(hidden: u64, looks: u64) -> Summary {
        Summary {
            program: "program".into(),
            started_by: None,
            ran_longest: None,
            halted: Vec::new(),
            processes_left: 0,
            signal: None,
            threads_at_once: 2,
            processors: 1,
            takes_rights: false,
            elapsed_ns: 10_000_000,
            stopped_ns: 0,
            stops: 0,
            threshold_ns: 1_000_000,
            threads: 2,
            unlisted: 0,
            lost_records: 0,
            hidden,
            looks,
            ptrace_scope: None,
            watcher_ns: 0,
        }
    }

    #[test]
    fn where_nothing_was_seen_it_says_why() {
        for (hidden, looks, unseen, ready, words, advice) in [
            (1, 0, 8_000_000, 0, "not let you look", "PR_SET_DUMPABLE"),
            (1, 5, 8_000_000, 0, "2 blocks of 1.00ms or longer", "In which calls is unknown"),
            (0, 0, 8_000_000, 0, "8.00ms together, were over before", "fewer other programs"),
            (0, 5, 0, 20_000_000, "No thread blocked for 1.00ms or longer", "fewer threads"),
            (0, 5, 0, 0, "No thread blocked for 1.00ms or longer", "lower --threshold"),
        ] {
            let said = verdict(&summary(hidden, looks), &[pool(unseen, ready)], &[]);
            assert!(
                said.words.contains(words) && said.advice.contains(advice),
                "{} {}",
                said.words,
                said.advice
            );
        }
    }

    #[test]
    fn a_program_that_computes_is_told_no_threshold() {
        let with = |processors, threads_at_once, ready_ns| {
            let summary = Summary { processors, threads_at_once, ..summary(0, 5) };
            let one = Pool { blocks: 0, blocked_ns: 0, unseen: 0, run_ns: 9_000_000, ..pool(0, ready_ns) };
            verdict(&summary, &[one], &[])
        };
        assert_eq!(with(2, 1, 0).words, "No thread blocked.");
        assert!(with(2, 1, 0).advice.starts_with("It computed"));
        assert!(with(2, 1, 9_000_000).advice.contains("other programs had it"));
        assert!(with(2, 4, 9_000_000).advice.contains("fewer threads would do"));
    }

    /// `git gc` has one process with threads, and many without.
    #[test]
    fn what_a_first_thread_waits_for_is_no_reason_to_see_nothing() {
        let of = |kind| Site { pool: "git (main)".into(), kind, ..site() };
        let pools = [pool(0, 0), Pool { pool: "git (main)".into(), threads: 8, ..pool(8_000_000, 0) }];
        let said = verdict(&summary(0, 5), &pools, &[of(Why::File)]);
        assert!(said.words.starts_with("A thread of the 8 `git (main)` blocked once"), "{}", said.words);
        assert!(said.advice.contains("first one of its process"), "{}", said.advice);
        let said = verdict(&summary(0, 5), &pools, &[of(Why::Child)]);
        assert!(said.advice.starts_with("It waits for a process."), "{}", said.advice);
        for (call, advice) in [("futex", "wakeful compare"), ("mmap", "memory map"), ("flock", "system")] {
            assert!(lock(call).contains(advice), "{call}");
        }
    }

    #[test]
    fn a_program_with_other_rights_and_one_that_a_signal_ends() {
        let summary = Summary { takes_rights: true, signal: Some("9 (SIGKILL)".into()), ..summary(0, 0) };
        let text = written(&report(summary, Vec::new()));
        for part in ["hidden from this user. Signal 9 (SIGKILL)", "Verdict: None: the", "cp(1)"] {
            assert!(text.replace('\n', " ").contains(part), "{part}: {text}");
        }
        assert!(!text.contains("BLOCKED"), "{text}");
        let summary = Summary { signal: Some("9 (SIGKILL)".into()), ..self::summary(0, 5) };
        let text = written(&report(summary, Vec::new()));
        assert!(text.contains("took 10.0ms, 2 threads, 0.00 processors on average. Signal 9"), "{text}");
    }

    fn written(report: &Report) -> String {
        let mut text = Vec::new();
        write(report, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    fn report(summary: Summary, sites: Vec<Site>) -> Report {
        let pools = vec![pool(0, 0)];
        let verdict = verdict(&summary, &pools, &sites);
        Report { summary, pools, threads: Vec::new(), sites, verdict }
    }

    fn site() -> Site {
        let frame = |name: &str, line: Option<&str>| {
            let (module, line) = ("file\x1b[3m".to_string(), line.map(str::to_string));
            Shown { name: name.into(), line, module, address: 16, build_id: None, guess: false }
        };
        Site {
            pool: "pool".into(),
            call: "read".into(),
            why: "file",
            count: 1,
            total_ns: 2_000_000,
            median_ns: 2_000_000,
            p99_ns: 2_000_000,
            longest_ns: 2_000_000,
            long: 1,
            long_ns: 2_000_000,
            others_ready_ns: 0,
            descriptors: vec!["/a\n\x1b]0;b".into()],
            own: 0,
            stack: vec![frame("own\x1b[2J", Some("a\nb.c:1")), frame("outer", None)],
            whole: true,
            kind: Why::File,
        }
    }

    #[test]
    fn some_hidden_processes_are_a_remark() {
        let text = written(&report(summary(2, 5), vec![site()]));
        assert!(text.contains("2 processes could not be looked at."), "{text}");
        assert!(text.contains("Verdict: A thread of the 2 `pool` blocked once"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() < 80), "{text}");
        for (scope, advice) in [(None, "DUMPABLE"), (Some(1), "parent"), (Some(2), "ptrace_scope=1")] {
            assert!(hidden_advice(scope).contains(advice), "{scope:?}");
        }
    }

    #[test]
    fn no_name_gives_the_terminal_orders() {
        let mut summary = summary(0, 1);
        summary.program = "a\x1b[2J".into();
        let mut site = site();
        site.pool = "pool\u{9b}".into();
        let text = written(&report(summary, vec![site]));
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        for part in ["`a?[2J`", "own?[2J a?b.c:1", "on /a??]0;b", "outer file?[3m"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
