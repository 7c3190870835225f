// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a recording shows, with names: by thread, by pool and by site, and a verdict.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};
use std::time::Duration;

use recorder::account::{Account, Lengths, MAIN, OTHERS, Sum, Thread, Times};
use recorder::calls::{self, Why};
use recorder::symbols::{Frame, Symbols};
use recorder::{Outcome, Stack};
use serde::Serialize;

use crate::recorded::{Called, Halted, called, halted, line, signal};

/// Everything.
pub struct Report {
    pub summary: Summary,
    pub pools: Vec<Pool>,
    pub threads: Vec<One>,
    pub sites: Vec<Site>,
    pub verdict: Verdict,
}

#[derive(Serialize)]
pub struct Summary {
    pub program: String,
    /// The command that became it, if that has another name; and another program that ran for most of the
    /// time, with its part of the processor time.
    pub started_by: Option<String>,
    pub ran_longest: Option<(String, f64)>,
    /// The signal that ended it, if one did.
    pub signal: Option<String>,
    /// Without the time for which it was stopped from outside, which counts nowhere.
    pub elapsed_ns: u64,
    pub stopped_ns: u64,
    pub stops: u64,
    /// Processes that were stopped while others went on, which counts as blocked.
    pub halted: Vec<Halted>,
    /// Processes that had not ended when the program had.
    pub processes_left: u32,
    pub threshold_ns: u64,
    pub threads: u64,
    /// Most threads that there were at one time, and the processors that they may use.
    pub threads_at_once: u64,
    pub processors: u32,
    /// It takes other rights than ours when it begins: the kernel tells nothing of its threads.
    pub takes_rights: bool,
    /// Threads that are in their pools only.
    pub unlisted: u64,
    pub lost_records: u64,
    /// Processes that nobody was allowed to look at, and looks that saw something.
    pub hidden: u64,
    pub looks: u64,
    /// Whom the kernel lets look at others, if it says so.
    #[serde(skip)]
    pub ptrace_scope: Option<u32>,
    /// Processor time of the watcher.
    pub watcher_ns: u64,
}

#[derive(Serialize)]
pub struct Pool {
    pub pool: String,
    pub threads: u64,
    pub run_ns: u64,
    pub ready_ns: u64,
    pub blocked_ns: u64,
    pub blocks: u64,
    pub preemptions: u64,
    /// Blocks at or above the threshold that are no waits for work.
    pub long: u64,
    pub long_ns: u64,
    pub longest_ns: u64,
    /// Blocks that nobody looked at, and their time.
    pub unseen: u64,
    pub unseen_ns: u64,
    pub unseen_longest_ns: u64,
    /// Those of them that are as long as the threshold.
    pub unseen_long: u64,
    pub unseen_long_ns: u64,
}

#[derive(Serialize)]
pub struct One {
    pub process: u32,
    pub thread: u32,
    pub name: String,
    pub pool: String,
    pub run_ns: u64,
    pub ready_ns: u64,
    pub blocked_ns: u64,
    pub blocks: u64,
    pub preemptions: u64,
}

#[derive(Serialize)]
pub struct Site {
    pub pool: String,
    pub call: String,
    pub why: &'static str,
    pub count: u64,
    pub total_ns: u64,
    pub median_ns: u64,
    pub p99_ns: u64,
    pub longest_ns: u64,
    pub long: u64,
    pub long_ns: u64,
    /// Of the time of the long ones: when another thread was ready and had no processor.
    pub others_ready_ns: u64,
    pub descriptors: Vec<String>,
    /// Which of the stack's frames is the program's own; the first one if none seems to be.
    pub own: usize,
    pub stack: Vec<Shown>,
    /// Does the stack reach the thread's beginning?
    pub whole: bool,
    #[serde(skip)]
    pub kind: Why,
}

#[derive(Clone, Serialize)]
pub struct Shown {
    pub name: String,
    pub line: Option<String>,
    pub module: String,
    pub address: u64,
    pub build_id: Option<String>,
    pub guess: bool,
}

#[derive(Serialize)]
pub struct Verdict {
    pub words: String,
    pub advice: String,
}

impl Report {
    pub fn of(outcome: &Outcome, program: &str, threshold: Duration, takes_rights: bool) -> Self {
        let known = stacks(outcome);
        let workers = workers(outcome, &known);
        let sites = sites(outcome, &known, &workers);
        let pools = pools(outcome, &workers, &sites);
        let mut threads: Vec<One> =
            outcome.account.ended.iter().map(|one| One::of(one, &outcome.account, &workers)).collect();
        threads.sort_by(|a, b| (&a.pool, a.process, a.thread).cmp(&(&b.pool, b.process, b.thread)));
        let Called { program, started_by, ran_longest } =
            called(program.into(), outcome.process, &outcome.programs, &outcome.account);
        let summary = Summary {
            program,
            started_by,
            ran_longest,
            signal: signal(outcome.status),
            elapsed_ns: outcome.elapsed_ns,
            stopped_ns: outcome.stopped.1,
            stops: outcome.stopped.0,
            halted: halted(&outcome.halted, &outcome.programs),
            processes_left: outcome.processes_left,
            threshold_ns: threshold.as_nanos() as u64,
            threads: pools.iter().map(|pool| pool.threads).sum(),
            threads_at_once: outcome.account.most_at_once as u64,
            processors: linux::Processors::look().count(),
            takes_rights,
            unlisted: outcome.account.unlisted,
            lost_records: outcome.account.lost,
            hidden: outcome.hidden,
            looks: outcome.looks,
            ptrace_scope: ptrace_scope(),
            watcher_ns: outcome.own_ns,
        };
        let verdict = super::text::verdict(&summary, &pools, &sites);
        Self { summary, pools, threads, sites, verdict }
    }

    pub fn write_json(&self, to: &mut dyn Write) -> io::Result<()> {
        line(to, "watch", &self.summary)?;
        self.pools.iter().try_for_each(|pool| line(to, "pool", pool))?;
        self.threads.iter().try_for_each(|thread| line(to, "thread", thread))?;
        self.sites.iter().try_for_each(|site| line(to, "site", site))?;
        line(to, "verdict", &self.verdict)?;
        to.flush()
    }
}

impl One {
    fn of(thread: &Thread, account: &Account, workers: &Workers) -> Self {
        let Times { run_ns, ready_ns, blocked_ns, blocks, preemptions } = thread.times;
        let (process, number) = (thread.process, thread.thread);
        let (name, mut pool) = (thread.name.clone(), thread.pool());
        if !account.pools.contains_key(&pool) {
            pool = OTHERS.into();
        }
        let pool = workers.pool(&pool).into();
        Self { process, thread: number, name, pool, run_ns, ready_ns, blocked_ns, blocks, preemptions }
    }
}

/// The restriction that the security module Yama puts on who looks.
fn ptrace_scope() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?.trim().parse().ok()
}

fn pools(outcome: &Outcome, workers: &Workers, sites: &[Site]) -> Vec<Pool> {
    let mut all: BTreeMap<&str, (u64, Times, Sum)> = BTreeMap::new();
    for (name, (threads, times)) in &outcome.account.pools {
        let (known, sum, unseen) = all.entry(workers.pool(name)).or_default();
        *known += threads;
        sum.add(times);
        outcome.unseen.get(name).into_iter().for_each(|more| unseen.merge(more));
    }
    let pool = |(name, (threads, times, unseen)): (&str, (u64, Times, Sum))| {
        let held = || sites.iter().filter(|site| site.pool == name && site.kind != Why::Idle);
        Pool {
            pool: name.into(),
            threads,
            run_ns: times.run_ns,
            ready_ns: times.ready_ns,
            blocked_ns: times.blocked_ns,
            blocks: times.blocks,
            preemptions: times.preemptions,
            long: held().map(|site| site.long).sum(),
            long_ns: held().map(|site| site.long_ns).sum(),
            longest_ns: held().map(|site| site.longest_ns).max().unwrap_or(0),
            unseen: unseen.count,
            unseen_ns: unseen.total_ns,
            unseen_longest_ns: unseen.longest_ns,
            unseen_long: unseen.long.0,
            unseen_long_ns: unseen.long.1,
        }
    };
    let mut pools: Vec<Pool> = all.into_iter().map(pool).collect();
    pools.sort_by(|a, b| (b.long_ns, b.run_ns, &a.pool).cmp(&(a.long_ns, a.run_ns, &b.pool)));
    pools
}

/// The frames of each stack.
type Stacks<'a> = HashMap<&'a Stack, Vec<Frame>>;

fn stacks(outcome: &Outcome) -> Stacks<'_> {
    let mut symbols = Symbols::new(outcome.began);
    let mut known = HashMap::new();
    for site in outcome.sites.keys() {
        known.entry(&site.stack).or_insert_with(|| frames(&mut symbols, &site.stack));
    }
    known
}

/// Stacks that block in the same call for the same line of the program are one site. The one shown is that
/// which took most of the time.
fn sites(outcome: &Outcome, known: &Stacks, workers: &Workers) -> Vec<Site> {
    struct Group {
        lengths: Lengths,
        descriptors: Vec<String>,
        most_ns: u64,
        frames: Vec<Frame>,
        own: usize,
        kind: Why,
        whole: bool,
    }
    let mut groups: BTreeMap<(String, Option<u32>, String), Group> = BTreeMap::new();
    for (site, blocks) in &outcome.sites {
        let frames = &known[&site.stack];
        let kind = calls::why(site.call, frames.iter().filter_map(|frame| frame.function.as_deref()));
        let own = own(frames, &calls::name(site.call));
        let key = frames.get(own).map_or(String::new(), |frame| format!("{}{:?}", frame.name(), frame.line));
        let group = groups
            .entry((workers.pool(&site.pool).into(), site.call, format!("{kind:?}{key}")))
            .or_insert_with(|| {
                let (lengths, descriptors) = Default::default();
                Group { lengths, descriptors, most_ns: 0, frames: Vec::new(), own, kind, whole: false }
            });
        group.lengths.merge(&blocks.lengths);
        for path in &blocks.descriptors {
            let path = path.to_string_lossy();
            if !group.descriptors.iter().any(|known| *known == path) {
                group.descriptors.push(path.into());
            }
        }
        if blocks.lengths.sum.total_ns >= group.most_ns {
            group.most_ns = blocks.lengths.sum.total_ns;
            (group.frames, group.own, group.whole) = (frames.clone(), own, site.stack.is_whole);
        }
    }
    let site = |((pool, call, _), group): ((String, Option<u32>, String), Group)| Site {
        pool,
        call: calls::name(call),
        why: word(group.kind),
        count: group.lengths.sum.count,
        total_ns: group.lengths.sum.total_ns,
        median_ns: group.lengths.percentile_ns(50.0),
        p99_ns: group.lengths.percentile_ns(99.0),
        longest_ns: group.lengths.sum.longest_ns,
        long: group.lengths.sum.long.0,
        long_ns: group.lengths.sum.long.1,
        others_ready_ns: group.lengths.sum.others_ready_ns,
        descriptors: group.descriptors,
        own: group.own,
        stack: group.frames.iter().map(Shown::of).collect(),
        whole: group.whole,
        kind: group.kind,
    };
    let mut sites: Vec<Site> = groups.into_iter().map(site).collect();
    // What a process waits for another one, that one is to blame for.
    sites.sort_by_key(|site| {
        let last = (site.kind == Why::Idle, !workers.has(&site.pool), site.kind == Why::Child);
        (last, std::cmp::Reverse((site.long_ns, site.total_ns)))
    });
    sites
}

/// Pools of threads that do the work of the program.
struct Workers {
    /// There are threads that are not the first ones of their processes.
    has_pool: bool,
    /// First threads of processes, most of which have no other one.
    alone: HashSet<String>,
    /// First threads of processes that work as their others do: Go runs goroutines on all.
    alike: HashSet<String>,
}

impl Workers {
    fn has(&self, pool: &str) -> bool {
        !self.has_pool || !pool.ends_with(MAIN) || self.alone.contains(pool)
    }

    /// The pool to which the threads of this one belong.
    fn pool<'a>(&self, name: &'a str) -> &'a str {
        if self.alike.contains(name) { name.trim_end_matches(MAIN) } else { name }
    }
}

fn workers(outcome: &Outcome, known: &Stacks) -> Workers {
    let account = &outcome.account;
    let mut threads: HashMap<u32, u32> = HashMap::new();
    account.ended.iter().for_each(|thread| *threads.entry(thread.process).or_default() += 1);
    // By the pool: processes of one thread, and all.
    let mut mains: HashMap<String, (u32, u32)> = HashMap::new();
    for thread in account.ended.iter().filter(|thread| thread.process == thread.thread) {
        let (alone, all) = mains.entry(thread.pool()).or_default();
        *alone += u32::from(threads[&thread.process] == 1);
        *all += 1;
    }
    let is_alone = |(pool, (alone, all)): (String, (u32, u32))| (alone * 2 > all && all > 1).then_some(pool);
    Workers {
        has_pool: account.pools.keys().any(|pool| !pool.ends_with(MAIN)),
        alone: mains.into_iter().filter_map(is_alone).collect(),
        alike: mains_of_go(outcome, known),
    }
}

fn mains_of_go(outcome: &Outcome, known: &Stacks) -> HashSet<String> {
    let is_goroutine =
        |stack: &Stack| known[stack].iter().any(|frame| frame.function.as_deref() == Some("runtime.goexit"));
    // The first thread itself may have been seen between two goroutines only.
    let sites = outcome.sites.keys().filter(|site| is_goroutine(&site.stack));
    sites.map(|site| format!("{}{MAIN}", site.pool.trim_end_matches(MAIN))).collect()
}

fn frames(symbols: &mut Symbols, stack: &Stack) -> Vec<Frame> {
    let mut frames = Vec::new();
    for (index, place) in stack.places.iter().enumerate() {
        let is_guess = stack.guessed_from.is_some_and(|from| index >= from);
        let found = symbols.frames(place, index == 0);
        let mut found: Vec<_> = found.into_iter().map(|frame| Frame { is_guess, ..frame }).collect();
        // A function and parts of itself that are inlined in it.
        found.dedup_by(|next, frame| next.function.is_some() && next.function == frame.function);
        frames.append(&mut found);
    }
    frames
}

/// Files and beginnings of names that are no program's own: languages and libraries, and pools of threads.
const LIBRARIES: &[&str] = &["libc.so", "libc-", "libpthread", "ld-linux", "[vdso]", "libstdc++"];
const LANGUAGES: &[&str] = &[
    "std::",
    "core::",
    "alloc::",
    "__rust",
    "syscall.",
    "runtime.",
    "runtime/",
    "internal/",
    "os.",
    "net.",
    "sync.",
    "time.Sleep",
    "io.",
    "bufio.",
    "_Py",
    "Py",
    "pthread_",
    "__",
    "_start",
    "start_thread",
    "clone",
];
const POOLS: &[&str] =
    &["tokio::", "mio::", "rayon::", "rayon_core::", "futures", "parking_lot", "crossbeam", "uv_"];
/// Wrappers of calls, which a statically linked program has itself.
const WRAPPERS: &[&str] =
    &["nanosleep", "usleep", "sleep", "thrd_sleep", "pread", "pwrite", "wait", "waitpid", "recv", "send"];

/// Does a function's name begin with one of these? `<&A as B>::c` is one of `A`, or of `B` where `A` has no
/// path: `<u64 as core::iter::Sum>::sum` is the language's.
fn is_of(name: &str, these: &[&str]) -> bool {
    let whose = match name.split_once(" as ").filter(|_| name.starts_with('<')) {
        Some((kind, of)) if !kind.contains("::") => of,
        _ => name,
    };
    let whose = whose.trim_start_matches(['<', '&']);
    let whose = whose.strip_prefix("mut ").unwrap_or(whose);
    let whose = whose.strip_prefix("dyn ").unwrap_or(whose);
    these.iter().any(|part| whose.starts_with(part))
}

/// The innermost frame that is the program's own; if there is none, the pool's that called for it.
fn own(frames: &[Frame], call: &str) -> usize {
    let is_known = |frame: &Frame, these: &[&str]| {
        let is_library = LIBRARIES.iter().any(|library| frame.module.starts_with(library));
        is_library
            || frame
                .function
                .as_deref()
                .is_some_and(|name| name == call || WRAPPERS.contains(&name) || is_of(name, these))
    };
    let is_library = |frame: &Frame| {
        frame.module.starts_with("libuv") || frame.function.as_deref().is_some_and(|name| is_of(name, POOLS))
    };
    // The loop of libuv's threads, which calls such functions alone.
    let calls_libuv = frames.iter().any(is_library);
    let is_pools =
        |frame: &Frame| is_library(frame) || calls_libuv && frame.function.as_deref() == Some("worker");
    let outside = |frame: &Frame| !is_known(frame, LANGUAGES);
    let own = frames.iter().position(|frame| outside(frame) && !is_pools(frame));
    own.or_else(|| frames.iter().position(outside)).unwrap_or(0)
}

impl Shown {
    fn of(frame: &Frame) -> Self {
        let (module, build_id) = (frame.module.clone(), frame.build_id.clone());
        let (name, line, guess) = (frame.name(), frame.short_line(), frame.is_guess);
        Self { name, line, module, address: frame.address, build_id, guess }
    }
}

fn word(why: Why) -> &'static str {
    match why {
        Why::Idle => "idle",
        Why::Lock => "lock",
        Why::File => "file",
        Why::Network => "network",
        Why::Sleep => "sleep",
        Why::Fault => "fault",
        Why::Child => "child",
        Why::Other => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions, innermost first; whose is the block?
    fn own_of(names: &[&str]) -> usize {
        let frame = |name: &&str| Frame {
            function: Some((*name).into()),
            line: None,
            module: "program".into(),
            address: 0,
            build_id: None,
            is_guess: false,
        };
        own(&names.iter().map(frame).collect::<Vec<_>>(), "read")
    }

    #[test]
    fn the_programs_own_function_is_found_in_the_stacks_of_pools() {
        let std = "std::thread::functions::sleep";
        let sum = "<u64 as core::iter::traits::accum::Sum>::sum";
        let rayon = "<rayon::iter::sum::SumFolder<S> as rayon::iter::plumbing::Folder<T>>::consume_iter";
        assert_eq!(own_of(&[std, "<&dyn core::ops::Fn()>::call", sum, rayon, "mine::main"]), 4);
        assert_eq!(own_of(&[std, "<mine::Kind as core::iter::Iterator>::next", rayon]), 1);
        assert_eq!(own_of(&[std, "<T as mine::Kind>::next", rayon]), 1);
        // A tail call has left nothing of the program: it is the pool's that called.
        assert_eq!(own_of(&[std, sum, rayon, "rayon_core::join::join_context"]), 2);
        let go = ["syscall.Syscall", "syscall.read", "main.badTask", "main.main", "runtime.goexit"];
        assert_eq!(own_of(&go), 2);
        // What JavaScript asked for is on no stack.
        assert_eq!(own_of(&["read", "uv__fs_read", "uv__fs_work", "worker", "start_thread"]), 1);
        assert_eq!(own_of(&["read", "worker", "main"]), 1);
    }
}
