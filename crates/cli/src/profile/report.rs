// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a profile shows, with names: by place in the program, by thread, and a verdict.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use launch::Launch;
use launch::program::Obstacle;
use recorder::account::{Account, Thread, Times};
use recorder::calls::name as call_name;
use recorder::fast;
use recorder::profile::{Class, Key, Object, Profile, Region, Shares, Sum, Wait};
use recorder::symbols::Variable;
use serde::Serialize;

use super::chain::{LongestWait, NAME};
use super::names::{Names, Site, kind};
use super::summary::Summary;
use super::verdict::{self, Verdict};
use crate::format::{ns, percent, whole};
use crate::recorded::{Called, called, cut, halted, line, signal};

/// Everything.
pub struct Report {
    pub summary: Summary,
    pub rows: Vec<Row>,
    pub regions: Vec<RegionRow>,
    pub threads: Vec<One>,
    pub verdict: Verdict,
    /// The program's, as wait(2) has it.
    pub status: i32,
}

/// All that is waited at from one place in the program, mostly.
#[derive(Clone, Serialize)]
pub struct Row {
    #[serde(skip)]
    pub class: Class,
    pub kind: &'static str,
    pub place: Site,
    /// The variable that is waited at, or that of the object that most of it was for; behind its name, how
    /// far from its beginning. None where no symbol names the memory.
    pub name: Option<String>,
    /// Locks, or whatever they are, and those that most of it was for.
    pub objects: u64,
    pub locks: Vec<Lock>,
    #[serde(flatten)]
    pub turns: Turned,
    /// The same in words.
    pub turns_words: Option<String>,
    pub waits: u64,
    pub waited_ns: u64,
    /// Of that: by waits that were not told, like those that were; and in regions that were not told, which
    /// only the verdict's rows have.
    pub estimated_ns: u64,
    pub longest_ns: u64,
    /// What those did who were waited for.
    pub holder_running_ns: u64,
    pub holder_preempted_ns: u64,
    /// Of that: another thread of the program had taken the processor.
    pub holder_behind_own_ns: u64,
    pub holder_blocked_ns: u64,
    pub holder_unknown_ns: u64,
    /// Waited for nobody: to wake up, and for a processor.
    pub free_ns: u64,
    /// Waits below 1 us, 2 us, 4 us and so on, each without those before.
    pub lengths: Vec<u64>,
    /// Of a condition variable.
    pub timeouts: u64,
    pub vain: u64,
    pub vain_run_ns: u64,
    /// Of a barrier.
    pub rounds: u64,
    pub last: Vec<Last>,
    /// From where, the longest first.
    pub sites: Vec<Site>,
    /// The functions that led there, as far as one was seen waiting, innermost first.
    pub callers: Vec<Site>,
    /// In what those were seen who were blocked while others waited for them, the most frequent first.
    pub blocked_in: Vec<BlockedIn>,
    /// Of a lock or a barrier.
    pub longest: Option<LongestWait>,
    /// In which functions those were seen computing for whom others waited, the most frequent first.
    pub worked_in: Vec<WorkedIn>,
}

/// One lock, or whatever it is. Where it is no variable, it has an address alone.
#[derive(Clone, Serialize)]
pub struct Lock {
    /// In its process.
    pub object: u64,
    pub name: Option<String>,
    /// The file of the variable, its build id, and where the lock lies by the file's own symbols.
    pub module: Option<String>,
    pub build_id: Option<String>,
    pub address: Option<u64>,
    pub waits: u64,
    pub waited_ns: u64,
    #[serde(flatten)]
    pub turns: Turned,
}

/// How often a lock was taken, or those of a row, as far as it was seen. Of other things than locks nothing.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Turned {
    /// Until the last event at each, also where nobody waited, of those where somebody counts that; None if
    /// nobody does.
    pub taken: Option<u64>,
    /// Locks that were seen to be taken, and where nobody counts it.
    #[serde(skip)]
    uncounted: u64,
    /// While somebody waited; and of that by another thread than before, and on another processor.
    pub taken_while_waited: u64,
    pub taken_by_another: u64,
    pub taken_elsewhere: u64,
    /// For how long threads had it while somebody waited.
    pub inside_ns: u64,
}

impl Turned {
    fn of(key: Key, object: &Object) -> Self {
        if !key.class.is_lock() {
            return Self::default();
        }
        let turns = object.turns;
        Self {
            taken: (turns.taken > 0).then_some(turns.taken),
            uncounted: u64::from(turns.taken == 0 && turns.while_waited > 0),
            taken_while_waited: turns.while_waited,
            taken_by_another: turns.by_another,
            taken_elsewhere: turns.elsewhere,
            inside_ns: object.inside_ns(),
        }
    }

    /// Together with those of another one.
    fn add(&mut self, other: &Self) {
        self.taken = match (self.taken, other.taken) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
        self.uncounted += other.uncounted;
        self.taken_while_waited += other.taken_while_waited;
        self.taken_by_another += other.taken_by_another;
        self.taken_elsewhere += other.taken_elsewhere;
        self.inside_ns += other.inside_ns;
    }

    /// In a sentence or two; `knows`: on which processor threads were. Where nobody counts, a thread that
    /// takes its lock again and again is seen once, and so no share or average is known.
    pub fn words(&self, knows: bool) -> Option<String> {
        if self.taken_while_waited == 0 {
            return None;
        }
        let seen = whole(self.taken_while_waited);
        let Some(taken) = self.taken.filter(|_| self.uncounted == 0) else {
            return Some(format!("While others waited: taken at least {seen} times."));
        };
        let part = |count: u64| percent(count as f64 / self.taken_while_waited as f64);
        let elsewhere = match knows {
            true => format!(", {} on another processor", part(self.taken_elsewhere)),
            false => String::new(),
        };
        Some(format!(
            "Taken {} times. While others waited: {seen} times, {} inside on average, {} by another thread \
             than before{elsewhere}.",
            whole(taken),
            ns(self.inside_ns / self.taken_while_waited),
            part(self.taken_by_another)
        ))
    }
}

impl Lock {
    fn of(key: Key, object: &Object, variable: Option<Variable>) -> Self {
        Self {
            object: key.object,
            name: variable.as_ref().map(Variable::label),
            address: variable.as_ref().map(|variable| variable.address),
            build_id: variable.as_ref().and_then(|variable| variable.build_id.clone()),
            module: variable.map(|variable| variable.module),
            waits: object.waits.count,
            waited_ns: object.waits.total_ns,
            turns: Turned::of(key, object),
        }
    }
}

/// BOUND: locks of one row that are told.
const MOST_LOCKS: usize = 16;

/// A function of the program, or of a library that it calls, and those that called it, innermost first.
#[derive(Clone, Default, Serialize)]
pub struct WorkedIn {
    pub place: Site,
    pub callers: Vec<String>,
    pub looks: u32,
}

/// BOUND: callers that are told of it.
const MOST_CALLERS: usize = 3;

/// A call, or a page fault, and the function of the program that it was in.
#[derive(Clone, Serialize)]
pub struct BlockedIn {
    pub call: String,
    pub place: Site,
    pub looks: u32,
}

impl BlockedIn {
    /// A call by its name, other things by words.
    pub fn called(&self) -> String {
        if self.call.contains(' ') { format!("a {}", self.call) } else { self.call.clone() }
    }
}

/// A thread that came last to a barrier.
#[derive(Clone, Default, Serialize)]
pub struct Last {
    pub thread: u32,
    pub name: String,
    pub rounds: u64,
    /// What it did while others waited, once for each of them.
    pub running_ns: u64,
    pub preempted_ns: u64,
    pub blocked_ns: u64,
    pub unknown_ns: u64,
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
    pub waited_ns: u64,
    pub preemptions: u64,
}

/// The OpenMP regions that one place begins. Times are of those that were told; those of threads are sums
/// over the team.
#[derive(Clone, Default, Serialize)]
pub struct RegionRow {
    pub place: Site,
    pub told: u64,
    /// Regions between those, of which only the number is known.
    pub untold: u64,
    /// Of one region, on average and at most.
    pub threads: f64,
    pub most_threads: u64,
    /// Processors that they had, on average; without the kernel's word none.
    pub processors: Option<f64>,
    pub elapsed_ns: u64,
    /// What the others took, as far as they are like those.
    pub untold_ns: u64,
    pub longest_ns: u64,
    /// Until a thread begins its part; from the end of the last part on.
    pub fork_ns: u64,
    pub join_ns: u64,
    /// What the threads did in their parts.
    pub run_ns: u64,
    pub ready_ns: u64,
    pub blocked_ns: u64,
    /// At barriers inside and at the end, and of that: for a thread that still worked; for one without a
    /// processor; for one that was blocked; to wake up.
    pub waited_ns: u64,
    pub imbalance_ns: u64,
    pub waited_for_preempted_ns: u64,
    pub waited_for_blocked_ns: u64,
    pub free_ns: u64,
    /// Each region's time, so often as it had threads.
    pub team_ns: u64,
    /// What the threads waited in the others, as far as they are like those.
    pub untold_waited_ns: u64,
    #[serde(skip)]
    untold_waited: Shares,
}

impl RegionRow {
    /// All regions, also those that were not told.
    pub fn count(&self) -> u64 {
        self.told + self.untold
    }

    /// Their time, as far as those told are like the others.
    pub fn all_ns(&self) -> u64 {
        self.elapsed_ns + self.untold_ns
    }

    /// The part of the threads' time in the regions.
    pub fn share(&self, part_ns: u64) -> f64 {
        part_ns as f64 / self.team_ns.max(1) as f64
    }
}

impl Report {
    /// Has the program wakeful's locks? With its quota's throttled periods, and all.
    pub fn of(
        profile: &Profile,
        launch: &Launch,
        (is_helped, throttled, start_ns): (bool, Option<linux::Throttling>, u64),
        names: &mut Names,
    ) -> Self {
        let rows = rows(profile, names);
        let regions = regions(profile, names);
        let is_hidden = matches!(launch.program.obstacle, Some(Obstacle::Privileged(_)));
        let threads = if is_hidden { Vec::new() } else { threads(profile) };
        let mut times = Times::default();
        if !is_hidden {
            profile.account.pools.values().for_each(|(_, one)| times.add(one));
        }
        let known = profile.account.pools.values().map(|(count, _)| count).sum::<u64>();
        let there = linux::Processors::look();
        let Called { program, started_by, ran_longest } =
            called(launch.name(), profile.process, &profile.programs, &profile.account);
        let summary = Summary {
            program,
            started_by,
            ran_longest: ran_longest.filter(|_| !is_hidden),
            signal: signal(profile.status),
            elapsed_ns: profile.elapsed_ns,
            threads: if is_hidden { 0 } else { known.max(profile.waited_ns.len() as u64) },
            threads_at_once: if is_hidden { 0 } else { profile.account.most_at_once as u64 },
            run_ns: times.run_ns,
            ready_ns: times.ready_ns,
            blocked_ns: times.blocked_ns,
            waited_ns: profile.waited_ns.values().sum(),
            waited_for_preempted_ns: profile.lost.preempted_ns,
            waited_behind_own_ns: profile.lost.behind_own_ns,
            waited_behind_waiters_or_free_ns: profile.lost.behind_waiters_or_free_ns,
            processors: match profile.processors {
                0 => there.count(),
                used => used,
            },
            processors_allowed: there.affinity,
            foreign_ns: profile.foreign_ns.filter(|_| !is_hidden),
            had: profile.had,
            is_helped: is_helped && launch.program.obstacle.is_none() || profile.is_helped,
            quota_milli: there.quota_milli,
            throttled: throttled.map(|all| all.throttled),
            periods: throttled.map(|all| all.periods),
            period_us: throttled.map(|all| all.period_us).filter(|period_us| *period_us > 0),
            without_switches: profile.without_switches.as_ref().map(crate::recorded::advice),
            obstacle: launch.program.obstacle.as_ref().map(ToString::to_string),
            is_hidden,
            openmp: launch.openmp_instead_of().filter(|_| regions.is_empty()),
            spinning: match is_helped {
                true => launch.spinning().into_iter().map(String::from).collect(),
                false => Vec::new(),
            },
            profiler_ns: profile.own_ns,
            profiler_start_ns: start_ns,
            ..recorded(profile, names)
        };
        let verdict = verdict::of(&summary, &with_untold(&rows, &regions), &launch.words());
        Self { summary, rows, regions, threads, verdict, status: profile.status }
    }

    pub fn write_json(&self, to: &mut dyn Write) -> io::Result<()> {
        line(to, "profile", &self.summary)?;
        self.rows.iter().try_for_each(|row| line(to, "waits", row))?;
        self.regions.iter().try_for_each(|region| line(to, "region", region))?;
        self.threads.iter().try_for_each(|thread| line(to, "thread", thread))?;
        line(to, "verdict", &self.verdict)?;
        to.flush()
    }
}

fn threads(profile: &Profile) -> Vec<One> {
    let one = |thread: &Thread| {
        let Times { run_ns, ready_ns, blocked_ns, preemptions, .. } = thread.times;
        let waited_ns = profile.waited_ns.get(&thread.thread).copied().unwrap_or(0);
        One {
            process: thread.process,
            thread: thread.thread,
            name: thread.name.clone(),
            pool: pool(&profile.account, thread),
            run_ns,
            ready_ns,
            blocked_ns,
            waited_ns,
            preemptions,
        }
    };
    let mut all: Vec<One> = profile.account.ended.iter().map(one).collect();
    all.sort_by_key(|one| (std::cmp::Reverse(one.waited_ns), one.process, one.thread));
    all
}

/// What the record says as it is.
fn recorded(profile: &Profile, names: &mut Names) -> Summary {
    let (elsewhere_ns, elsewhere_in) = elsewhere(profile, names);
    Summary {
        stopped_ns: profile.stopped_ns,
        stops: profile.stops.len() as u64,
        halted: halted(&profile.halted, &profile.programs),
        processes_all: profile.account.processes,
        processes_at_once: profile.account.most_processes as u64,
        threads_of_one: profile.account.most_of_one.into(),
        processors_bound: profile.allowed,
        elsewhere_ns,
        elsewhere_in,
        elsewhere_looks: profile.elsewhere.looks,
        processes: profile.processes,
        events: profile.events,
        lost_events: profile.dropped,
        lost_records: profile.account.lost,
        untold: profile.untold,
        waits_told: profile.sampled.0,
        waits_counted: profile.sampled.1,
        sampled_ns: profile.sampled.2,
        threads_without_ring: profile.without_ring,
        processes_elsewhere: profile.refused.0,
        processes_unmapped: profile.refused.1,
        programs_silent: profile.programs_silent,
        processes_left: profile.processes_left,
        ..Summary::default()
    }
}

/// For how long threads were blocked in futex(2) outside of what is told, and where mostly.
fn elsewhere(profile: &Profile, names: &mut Names) -> (u64, Option<String>) {
    let mut places: BTreeMap<String, u32> = BTreeMap::new();
    let (mut all, mut meant) = (0, 0);
    for (stack, looks) in &profile.elsewhere.stacks {
        all += looks;
        if let Some(site) = names.waits_in(stack) {
            meant += looks;
            *places.entry(site.label()).or_default() += looks;
        }
    }
    let most = places.into_iter().max_by_key(|(_, looks)| *looks);
    let blocked_ns = profile.elsewhere.blocked_ns as f64 * f64::from(meant) / f64::from(all.max(1));
    (blocked_ns as u64, most.map(|(label, _)| label).filter(|label| !label.is_empty()))
}

fn pool(account: &Account, thread: &Thread) -> String {
    let pool = thread.pool();
    if account.pools.contains_key(&pool) { pool } else { recorder::account::OTHERS.into() }
}

/// The greatest first.
fn regions(profile: &Profile, names: &mut Names) -> Vec<RegionRow> {
    let knows = profile.without_switches.is_none();
    let row = |(site, region): (&u32, &Region)| {
        let Shares { holder, free_ns } = region.waited;
        let elapsed_ns = region.elapsed_ns;
        let run_ns = region.did.running_ns;
        RegionRow {
            place: names.site(profile, *site),
            told: region.told,
            untold: region.untold,
            threads: region.threads as f64 / region.told.max(1) as f64,
            most_threads: region.most_threads,
            processors: knows.then(|| run_ns as f64 / elapsed_ns.max(1) as f64),
            elapsed_ns,
            untold_ns: region.untold_ns,
            longest_ns: region.longest_ns,
            fork_ns: region.fork_ns,
            join_ns: region.join_ns,
            run_ns,
            ready_ns: region.did.preempted_ns,
            blocked_ns: region.did.blocked_ns,
            waited_ns: region.waited.total_ns(),
            imbalance_ns: holder.running_ns,
            waited_for_preempted_ns: holder.preempted_ns,
            waited_for_blocked_ns: holder.blocked_ns,
            free_ns,
            team_ns: region.team_ns,
            untold_waited_ns: region.untold_waited.total_ns(),
            untold_waited: region.untold_waited,
        }
    };
    let mut all: Vec<RegionRow> = profile.regions.iter().map(row).collect();
    all.sort_by(|a, b| (b.all_ns(), &a.place.name).cmp(&(a.all_ns(), &b.place.name)));
    all
}

/// The rows, as if the regions that were not told had been: what their threads waited is like what the others
/// did at the end.
fn with_untold(rows: &[Row], regions: &[RegionRow]) -> Vec<Row> {
    let mut rows = rows.to_vec();
    for region in regions.iter().filter(|region| region.untold_waited_ns > 0) {
        let label = region.place.label();
        let is_its = |row: &Row| row.class == Class::Region && row.place.label() == label;
        let at = rows.iter().position(is_its).unwrap_or_else(|| {
            rows.push(Row::new(Class::Region, &region.place));
            rows.len() - 1
        });
        rows[at].add(&region.untold_waited);
        rows[at].waited_ns += region.untold_waited_ns;
        rows[at].estimated_ns += region.untold_waited_ns;
    }
    rows
}

/// Objects that threads wait at from the same place, mostly, are one row: a program may have thousands.
fn rows(profile: &Profile, names: &mut Names) -> Vec<Row> {
    let mut rows: BTreeMap<(Class, String), Gathered> = BTreeMap::new();
    let mut objects: Vec<(&Key, &Object)> = profile.objects.iter().collect();
    objects.retain(|(_, object)| object.waits.count > 0);
    // So those come first that a row names.
    objects.sort_by_key(|(key, object)| (std::cmp::Reverse(object.waits.total_ns), key.image, key.object));
    for (key, object) in objects {
        let mut sites: Vec<(u32, Sum)> = object.sites.iter().map(|(site, sum)| (*site, *sum)).collect();
        sites.sort_by_key(|(site, sum)| (std::cmp::Reverse(sum.total_ns), *site));
        let mut named = Vec::new();
        let mut callers = Vec::new();
        for (site, sum) in sites {
            let (place, above) = names.of(profile, *key, site);
            named.push(Site { waits: sum.count, waited_ns: sum.total_ns, ..place });
            if callers.is_empty() {
                callers = above;
            }
        }
        let Some(first) = named.first() else { continue };
        let gathered =
            rows.entry((key.class, first.label())).or_insert_with(|| Gathered::new(key.class, first));
        gathered.add(object, named, &profile.names);
        gathered.lock(*key, object, |key| names.variable(profile, key));
        gathered.longest(object, |wait| LongestWait::of(wait, &object.chain, profile, names));
        for (seen, count) in profile.blocked.get(key).into_iter().flatten() {
            gathered.blocked(call_name(seen.call), names.caller_of(&seen.places), *count);
        }
        for (places, looks) in profile.worked.get(key).into_iter().flatten() {
            gathered.worked(names.own_stack(places), *looks);
        }
        if gathered.row.callers.is_empty() {
            gathered.row.callers = callers;
        }
    }
    let mut rows: Vec<Row> = rows.into_values().map(|gathered| gathered.row).collect();
    for row in &mut rows {
        row.sites.sort_by_key(|site| std::cmp::Reverse(site.waited_ns));
        row.last.sort_by_key(|last| std::cmp::Reverse(last.rounds));
        row.name = row.locks.first().and_then(|lock| lock.name.clone());
        row.turns_words = row.turns.words(profile.without_switches.is_none());
        row.blocked_in.sort_by_key(|one| std::cmp::Reverse(one.looks));
        row.worked_in.sort_by_key(|one| std::cmp::Reverse(one.looks));
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.waited_ns));
    rows
}

impl Row {
    pub fn new(class: Class, place: &Site) -> Self {
        Self {
            class,
            kind: kind(class),
            place: Site { waits: 0, waited_ns: 0, ..place.clone() },
            name: None,
            objects: 0,
            locks: Vec::new(),
            turns: Turned::default(),
            turns_words: None,
            waits: 0,
            waited_ns: 0,
            estimated_ns: 0,
            longest_ns: 0,
            holder_running_ns: 0,
            holder_preempted_ns: 0,
            holder_behind_own_ns: 0,
            holder_blocked_ns: 0,
            holder_unknown_ns: 0,
            free_ns: 0,
            lengths: Vec::new(),
            timeouts: 0,
            vain: 0,
            vain_run_ns: 0,
            rounds: 0,
            last: Vec::new(),
            sites: Vec::new(),
            callers: Vec::new(),
            blocked_in: Vec::new(),
            worked_in: Vec::new(),
            longest: None,
        }
    }

    /// What it is, with its name if it is one alone.
    pub fn named(&self) -> String {
        match &self.name {
            Some(name) if self.objects == 1 => format!("{} `{}`", self.kind, cut(name, NAME)),
            _ => self.kind.into(),
        }
    }

    /// Time that was waited there, by why.
    fn add(&mut self, Shares { holder, free_ns }: &Shares) {
        self.holder_running_ns += holder.running_ns;
        self.holder_preempted_ns += holder.preempted_ns;
        self.holder_behind_own_ns += holder.behind_own_ns;
        self.holder_blocked_ns += holder.blocked_ns;
        self.holder_unknown_ns += holder.unknown_ns;
        self.free_ns += free_ns;
    }
}

/// A row to which objects are added.
struct Gathered {
    row: Row,
    /// Where in the row a place is, by its label, and a thread that came last.
    sites: HashMap<String, usize>,
    last: HashMap<u32, usize>,
}

impl Gathered {
    fn new(class: Class, place: &Site) -> Self {
        Self { row: Row::new(class, place), sites: HashMap::new(), last: HashMap::new() }
    }

    fn blocked(&mut self, call: String, place: Site, looks: u32) {
        let same = |one: &&mut BlockedIn| one.call == call && one.place.label() == place.label();
        match self.row.blocked_in.iter_mut().find(same) {
            Some(one) => one.looks += looks,
            None => self.row.blocked_in.push(BlockedIn { call, place, looks }),
        }
    }

    /// A function is one if its callers are the same. Its line is that which was seen first.
    fn worked(&mut self, stack: Vec<Site>, looks: u32) {
        let mut stack = stack.into_iter();
        let Some(place) = stack.next() else { return };
        let callers: Vec<String> = stack.take(MOST_CALLERS).map(|site| site.name).collect();
        let same = |one: &&mut WorkedIn| {
            (&one.place.name, &one.place.module) == (&place.name, &place.module) && one.callers == callers
        };
        match self.row.worked_in.iter_mut().find(same) {
            Some(one) => one.looks += looks,
            None => self.row.worked_in.push(WorkedIn { place, callers, looks }),
        }
    }

    /// Keeps those that most of the time was for, the longest first. There may be thousands, so that only
    /// those are named.
    fn lock(&mut self, key: Key, object: &Object, name: impl FnOnce(Key) -> Option<Variable>) {
        self.row.turns.add(&Turned::of(key, object));
        let locks = &mut self.row.locks;
        let order = |lock: &Lock| (std::cmp::Reverse(lock.waited_ns), lock.object);
        let own = (std::cmp::Reverse(object.waits.total_ns), key.object);
        let at = locks.partition_point(|lock| order(lock) < own);
        if at < MOST_LOCKS {
            locks.truncate(MOST_LOCKS - 1);
            locks.insert(at, Lock::of(key, object, name(key)));
        }
    }

    fn longest(&mut self, object: &Object, named: impl FnOnce(&Wait) -> LongestWait) {
        let known_ns = self.row.longest.as_ref().map_or(0, |one| one.length_ns);
        if let Some(wait) = object.longest.as_ref().filter(|wait| wait.to_ns - wait.from_ns > known_ns) {
            self.row.longest = Some(named(wait));
        }
    }

    fn add(&mut self, object: &Object, sites: Vec<Site>, names: &fast::HashMap<u32, String>) {
        let row = &mut self.row;
        row.add(&object.shares);
        row.objects += 1;
        row.waits += object.waits.count;
        row.waited_ns += object.waits.total_ns;
        row.estimated_ns += object.estimated_ns;
        row.longest_ns = row.longest_ns.max(object.waits.longest_ns);
        let longest = object.lengths.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        row.lengths.resize(row.lengths.len().max(longest), 0);
        row.lengths.iter_mut().zip(object.lengths).for_each(|(sum, count)| *sum += u64::from(count));
        row.timeouts += object.timeouts;
        row.vain += object.vain;
        row.vain_run_ns += object.vain_ns;
        row.rounds += object.rounds;
        for site in sites {
            let at = *self.sites.entry(site.label()).or_insert(row.sites.len());
            match row.sites.get_mut(at) {
                Some(known) => {
                    known.waits += site.waits;
                    known.waited_ns += site.waited_ns;
                }
                None => row.sites.push(site),
            }
        }
        // One thread may be the last at several barriers of the row.
        for (thread, (rounds, shares)) in &object.last {
            let at = *self.last.entry(*thread).or_insert(row.last.len());
            if at == row.last.len() {
                let name = names.get(thread).cloned().unwrap_or_default();
                row.last.push(Last { thread: *thread, name, ..Last::default() });
            }
            let last = &mut row.last[at];
            last.rounds += rounds;
            last.running_ns += shares.holder.running_ns;
            last.preempted_ns += shares.holder.preempted_ns;
            last.blocked_ns += shares.holder.blocked_ns;
            last.unknown_ns += shares.holder.unknown_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_have_shares_where_somebody_counts_them_alone() {
        let counted = Turned { taken: Some(90), taken_while_waited: 10, ..Turned::default() };
        let seen = Turned { uncounted: 1, taken_while_waited: 2, ..Turned::default() };
        let mut both = Turned::default();
        [&seen, &counted].into_iter().for_each(|one| both.add(one));
        assert_eq!((both.taken, both.taken_while_waited), (Some(90), 12));
        assert_eq!(both.words(true).unwrap(), "While others waited: taken at least 12 times.");
        let words = counted.words(false).unwrap();
        assert!(words.starts_with("Taken 90 times. While others waited: 10 times, "), "{words}");
        assert_eq!(Turned::default().words(true), None);
    }

    #[test]
    fn regions_that_were_not_told_wait_as_the_others_did() {
        let place = |name: &str| Site { name: name.into(), ..Site::default() };
        let end = Row { waited_ns: 20, free_ns: 20, ..Row::new(Class::Region, &place("often")) };
        let barrier = Row { waited_ns: 7, ..Row::new(Class::Team, &place("often")) };
        let mut untold_waited = Shares { free_ns: 900, ..Shares::default() };
        untold_waited.holder.running_ns = 100;
        let region = |name| RegionRow {
            place: place(name),
            untold_waited_ns: untold_waited.total_ns(),
            untold_waited,
            ..RegionRow::default()
        };
        let rows =
            with_untold(&[end, barrier], &[region("often"), region("never told"), RegionRow::default()]);
        let seen: Vec<_> = rows.iter().map(|row| (row.waited_ns, row.free_ns, row.estimated_ns)).collect();
        assert_eq!(seen, [(1_020, 920, 1_000), (7, 0, 0), (1_000, 900, 1_000)]);
        assert_eq!((rows[0].holder_running_ns, rows[2].class), (100, Class::Region));
        // A team's share is one of its own time.
        let row = RegionRow { team_ns: 4_000, elapsed_ns: 1_000, threads: 1.1, ..RegionRow::default() };
        assert_eq!(row.share(3_600), 0.9);
    }

    #[test]
    fn who_comes_last_at_two_barriers_of_a_place_is_one() {
        let site = |waited_ns| Site { name: "meet".into(), waits: 1, waited_ns, ..Site::default() };
        let mut barrier = Object::default();
        barrier.rounds = 3;
        let mut shares = Shares::default();
        shares.holder.running_ns = 10;
        barrier.last = [(7, (2, shares)), (8, (1, shares))].into_iter().collect();
        let mut gathered = Gathered::new(Class::Barrier, &site(0));
        for waited_ns in [100, 20] {
            gathered.add(&barrier, vec![site(waited_ns)], &[(7, "slow".into())].into_iter().collect());
        }
        let row = gathered.row;
        let mut last: Vec<_> = row.last.iter().map(|one| (one.thread, one.rounds, one.running_ns)).collect();
        last.sort_unstable();
        assert_eq!((row.objects, row.rounds, last), (2, 6, vec![(7, 4, 20), (8, 2, 20)]));
        let sites: Vec<_> = row.sites.iter().map(|site| (site.waits, site.waited_ns)).collect();
        assert_eq!(sites, [(2, 120)]);
    }
}
