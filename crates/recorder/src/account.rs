// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long each thread ran, was ready, and was blocked: the kernel's records, added up.
//!
//! A thread is *ready* from its beginning, or from the moment when it was preempted, until it has a
//! processor. It is *blocked* from the moment when it gave its processor up until it has one again. So what
//! it then waits for a processor counts as blocked: an ordinary user is not told when a thread is woken.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;

use crate::fast::{HashMap, HashSet};
use crate::look;
use crate::record::{Record, What};

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has a processor.
    Running,
    /// It wants one.
    Ready,
    /// It waits for something else.
    Blocked,
}

/// A thread's times.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// With a processor.
    pub run_ns: u64,
    /// Without one, and wanting it.
    pub ready_ns: u64,
    /// Waiting for something else.
    pub blocked_ns: u64,
    /// How often it blocked.
    pub blocks: u64,
    /// How often it was preempted.
    pub preemptions: u64,
}

impl Times {
    /// Together with another's.
    pub fn add(&mut self, other: &Self) {
        self.run_ns += other.run_ns;
        self.ready_ns += other.ready_ns;
        self.blocked_ns += other.blocked_ns;
        self.blocks += other.blocks;
        self.preemptions += other.preemptions;
    }
}

/// What stands behind the name of a process's first thread.
pub const MAIN: &str = " (main)";
/// The pool of those that are too many to be told apart.
pub const OTHERS: &str = "others";

/// A thread.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its process.
    pub process: u32,
    /// Its number.
    pub thread: u32,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// What it did.
    pub times: Times,
    /// What it does.
    pub state: State,
    /// Since when.
    pub since_ns: u64,
    /// The time during which others were ready, when it went over into that state.
    others_ready_ns: u64,
}

impl Thread {
    /// The name without the number at its end: what the threads of a pool have in common.
    pub fn pool(&self) -> String {
        let stem = self.name.trim_end_matches(|c: char| c.is_ascii_digit() || "-_#:/ .".contains(c));
        let stem = if stem.is_empty() { &self.name } else { stem };
        if self.is_main() { format!("{stem}{MAIN}") } else { stem.to_string() }
    }

    fn is_main(&self) -> bool {
        self.process == self.thread
    }
}

/// A block that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The thread that blocked.
    pub thread: u32,
    /// From when.
    pub from_ns: u64,
    /// Until when.
    pub to_ns: u64,
    /// For so long of it, another thread of the program was ready and had no processor.
    pub others_ready_ns: u64,
}

/// All threads.
#[derive(Default)]
pub struct Account {
    /// Those that are alive.
    pub threads: HashMap<u32, Thread>,
    /// Those that have ended, as far as [`MOST_ENDED`].
    pub ended: Vec<Thread>,
    /// Those that have ended beyond.
    pub unlisted: u64,
    /// By the threads' common names: how many there were, and what they did together.
    pub pools: HashMap<String, (u64, Times)>,
    /// Names of pools that are told apart: [`MOST_POOLS`] at most.
    names: HashSet<String>,
    /// Living threads of each process.
    living: HashMap<u32, u32>,
    /// Most threads that were alive at one time; most processes; and most threads of one process.
    pub most_at_once: usize,
    /// See `most_at_once`.
    pub most_processes: usize,
    /// See `most_at_once`.
    pub most_of_one: u32,
    /// All processes that there were.
    pub processes: u64,
    /// What the threads of those that have ended ran, as far as there are [`MOST_ENDED`] of them.
    pub ran_ns: HashMap<u32, u64>,
    /// Records that the kernel had no room for.
    pub lost: u64,
    /// By how many threads could run at one time, the last for more: how long that was, and how long
    /// processors had them meanwhile, together.
    could_run: Vec<(u64, u64)>,
    running: u64,
    ready: u64,
    others_ready_ns: u64,
    now_ns: u64,
}

/// BOUND: threads that are listed one by one after their ends.
pub const MOST_ENDED: usize = 10_000;
/// BOUND: threads that can run at one time, as far as that is told apart.
const MOST_WANTED: u64 = 1_024;
/// BOUND: pools that are told apart. Names may have parts that never come again, such as "conn-7f3a".
pub const MOST_POOLS: usize = 1_000;

impl Account {
    /// Takes a record, in the order of their times. Says if a block is over by it.
    pub fn apply(&mut self, record: &Record) -> Option<Block> {
        self.until(record.time_ns.max(self.now_ns));
        match &record.what {
            What::Forked { creator, .. } => self.begin(record, *creator),
            What::Named { name, by_exec } => {
                if *by_exec {
                    self.end_others(record);
                }
                self.thread(record).name.clone_from(name);
                // It calls exec(2), so it has a processor. The first record of all is one of these.
                return if *by_exec { self.change(record, State::Running) } else { None };
            }
            What::In => return self.change(record, State::Running),
            What::Out => return self.change(record, State::Blocked),
            What::Preempted => return self.change(record, State::Ready),
            What::Exited => self.end(record.thread),
            What::Mapped(_) | What::Sample(_) => {}
            What::Lost(count) => self.lost += count,
        }
        None
    }

    /// Nothing changes until then.
    fn until(&mut self, time_ns: u64) {
        let past_ns = time_ns - self.now_ns;
        // Before the first record, no thread is known.
        if past_ns > 0 && self.running + self.ready > 0 {
            if self.ready > 0 {
                self.others_ready_ns += past_ns;
            }
            let many = (self.running + self.ready).min(MOST_WANTED) as usize;
            if self.could_run.len() <= many {
                self.could_run.resize(many + 1, (0, 0));
            }
            let (time, run) = &mut self.could_run[many];
            *time += past_ns;
            *run += past_ns * self.running;
        }
        self.now_ns = time_ns;
    }

    /// Of so many processors: for how long the program's threads could have used one, added up, and for how
    /// long of that they had one.
    pub fn wanted_ns(&self, processors: u32) -> (u64, u64) {
        let wanted = |many: usize, time_ns: u64| time_ns * u64::from(processors).min(many as u64);
        let one = |(many, &(time_ns, run_ns)): (usize, &(u64, u64))| {
            let wanted_ns = wanted(many, time_ns);
            (wanted_ns, run_ns.min(wanted_ns))
        };
        let all = self.could_run.iter().enumerate().map(one);
        all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// What all threads ran together.
    pub fn run_ns(&self) -> u64 {
        self.could_run.iter().map(|(_, run_ns)| run_ns).sum()
    }

    fn begin(&mut self, record: &Record, creator: u32) {
        // A thread's name is its creator's at first.
        let name = self.threads.get(&creator).map_or(String::new(), |thread| thread.name.clone());
        self.end(record.thread);
        self.thread(record).name = name;
    }

    /// After exec(2) a process has one thread, with the process's number. If another one called it, no record
    /// says that its own number is gone.
    fn end_others(&mut self, record: &Record) {
        let is_other = |one: &&Thread| one.process == record.process && one.thread != record.thread;
        let others: Vec<u32> = self.threads.values().filter(is_other).map(|one| one.thread).collect();
        others.into_iter().for_each(|thread| self.end(thread));
    }

    /// Processes with a thread that has not ended.
    pub fn living(&self) -> impl Iterator<Item = u32> {
        self.living.keys().copied()
    }

    /// Of those, the processes that are there. A thread that waits for its parent's wait(2) is not.
    pub fn left(&self) -> u32 {
        let is_there = |one: &&Thread| {
            look::state(one.process, one.thread).is_some_and(|state| !matches!(state, b'Z' | b'X'))
        };
        let left: HashSet<u32> = self.threads.values().filter(is_there).map(|one| one.process).collect();
        left.len() as u32
    }

    /// Has the process a thread that has not ended?
    pub fn is_alive(&self, process: u32) -> bool {
        self.living.contains_key(&process)
    }

    /// The thread's pool, or [`OTHERS`].
    pub fn pool(&mut self, thread: &Thread) -> String {
        let name = thread.pool();
        if self.names.contains(&name) {
            return name;
        }
        if self.names.len() < MOST_POOLS {
            self.names.insert(name.clone());
            return name;
        }
        if thread.is_main() { format!("{OTHERS}{MAIN}") } else { OTHERS.into() }
    }

    fn thread(&mut self, record: &Record) -> &mut Thread {
        let (now_ns, others_ready_ns, ready) = (self.now_ns, self.others_ready_ns, &mut self.ready);
        let living = &mut self.living;
        let count = self.threads.len();
        let most = (&mut self.most_at_once, &mut self.most_processes, &mut self.most_of_one);
        let processes = &mut self.processes;
        self.threads.entry(record.thread).or_insert_with(|| {
            *ready += 1;
            let of_it = living.entry(record.process).or_default();
            *processes += u64::from(*of_it == 0);
            *of_it += 1;
            *most.2 = (*most.2).max(*of_it);
            *most.0 = (*most.0).max(count + 1);
            *most.1 = (*most.1).max(living.len());
            Thread {
                process: record.process,
                thread: record.thread,
                name: String::new(),
                times: Times::default(),
                state: State::Ready,
                since_ns: now_ns,
                others_ready_ns,
            }
        })
    }

    fn change(&mut self, record: &Record, state: State) -> Option<Block> {
        let (now_ns, all_ready_ns) = (self.now_ns, self.others_ready_ns);
        let thread = self.thread(record);
        let block = (thread.state == State::Blocked).then(|| Block {
            thread: record.thread,
            from_ns: thread.since_ns,
            to_ns: now_ns,
            others_ready_ns: all_ready_ns - thread.others_ready_ns,
        });
        match state {
            State::Blocked => thread.times.blocks += 1,
            // One that a stop has blocked was not preempted.
            State::Ready => thread.times.preemptions += u64::from(thread.state != State::Blocked),
            State::Running => {}
        }
        let was = thread.state;
        thread.settle(now_ns);
        thread.state = state;
        thread.others_ready_ns = all_ready_ns;
        self.ready -= u64::from(was == State::Ready);
        self.ready += u64::from(state == State::Ready);
        self.running -= u64::from(was == State::Running);
        self.running += u64::from(state == State::Running);
        block
    }

    /// The thread is there no more.
    fn end(&mut self, thread: u32) {
        let Some(mut thread) = self.threads.remove(&thread) else { return };
        thread.settle(self.now_ns);
        self.ready -= u64::from(thread.state == State::Ready);
        self.running -= u64::from(thread.state == State::Running);
        if let Entry::Occupied(mut living) = self.living.entry(thread.process) {
            *living.get_mut() -= 1;
            if *living.get() == 0 {
                living.remove();
            }
        }
        if self.ran_ns.len() < MOST_ENDED || self.ran_ns.contains_key(&thread.process) {
            *self.ran_ns.entry(thread.process).or_default() += thread.times.run_ns;
        }
        let pool = self.pool(&thread);
        let pool = self.pools.entry(pool).or_default();
        pool.0 += 1;
        pool.1.add(&thread.times);
        if self.ended.len() < MOST_ENDED {
            self.ended.push(thread);
        } else {
            self.unlisted += 1;
        }
    }

    /// The recording ends at that time. What is blocked still is a block that ends then.
    pub fn finish(&mut self, now_ns: u64) -> Vec<Block> {
        let now_ns = now_ns.max(self.now_ns);
        self.until(now_ns);
        let block = |thread: &Thread| Block {
            thread: thread.thread,
            from_ns: thread.since_ns,
            to_ns: now_ns,
            others_ready_ns: self.others_ready_ns - thread.others_ready_ns,
        };
        let blocked = self.threads.values().filter(|thread| thread.state == State::Blocked);
        let blocks = blocked.map(block).collect();
        for thread in self.threads.keys().copied().collect::<Vec<_>>() {
            self.end(thread);
        }
        blocks
    }
}

impl Thread {
    fn settle(&mut self, now_ns: u64) {
        let past = now_ns - self.since_ns;
        match self.state {
            State::Running => self.times.run_ns += past,
            State::Ready => self.times.ready_ns += past,
            State::Blocked => self.times.blocked_ns += past,
        }
        self.since_ns = now_ns;
    }
}

/// Blocks together.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// Together.
    pub total_ns: u64,
    /// The longest one.
    pub longest_ns: u64,
    /// Of those that are as long as the threshold: how many, and together.
    pub long: (u64, u64),
    /// Of the time of these: when another thread of the program was ready.
    pub others_ready_ns: u64,
}

impl Sum {
    /// One more.
    pub fn add(&mut self, block: &Block, threshold_ns: u64) {
        let length = block.to_ns - block.from_ns;
        self.count += 1;
        self.total_ns += length;
        self.longest_ns = self.longest_ns.max(length);
        if length >= threshold_ns {
            self.long = (self.long.0 + 1, self.long.1 + length);
            self.others_ready_ns += block.others_ready_ns;
        }
    }

    /// Those of another one.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.long = (self.long.0 + other.long.0, self.long.1 + other.long.1);
        self.others_ready_ns += other.others_ready_ns;
    }
}

/// Lengths of blocks at one place.
#[derive(Clone, Debug, Default)]
pub struct Lengths {
    /// All together.
    pub sum: Sum,
    /// How many there were of about that length, by its [`class`]: most places have few different ones.
    all: BTreeMap<u16, u64>,
}

/// BOUND: a class of lengths is at most a 128th wide.
const DIGITS: u32 = 7;

/// The lengths with these first digits in base two. A longer one has no lower class.
fn class(length_ns: u64) -> u16 {
    let shift = (u64::BITS - length_ns.leading_zeros()).saturating_sub(DIGITS + 1);
    ((u64::from(shift) << DIGITS) + (length_ns >> shift)) as u16
}

/// The longest of a class.
fn last_ns(class: u16) -> u64 {
    let shift = u32::from(class >> DIGITS).saturating_sub(1);
    let first = (u64::from(class) - (u64::from(shift) << DIGITS)) << shift;
    first + ((1 << shift) - 1)
}

impl Lengths {
    /// One more.
    pub fn add(&mut self, block: &Block, threshold_ns: u64) {
        self.sum.add(block, threshold_ns);
        *self.all.entry(class(block.to_ns - block.from_ns)).or_default() += 1;
    }

    /// Those of another place.
    pub fn merge(&mut self, other: &Self) {
        self.sum.merge(&other.sum);
        for (class, count) in &other.all {
            *self.all.entry(*class).or_default() += count;
        }
    }

    /// The length that so many of a hundred do not exceed, to a 128th.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        let mut left = ((self.sum.count as f64 * percent / 100.0).ceil() as u64).max(1);
        for (class, count) in &self.all {
            match left.checked_sub(*count) {
                None | Some(0) => return last_ns(*class).min(self.sum.longest_ns),
                Some(more) => left = more,
            }
        }
        self.sum.longest_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time_ns: u64, thread: u32, what: What) -> Record {
        Record { process: 1, thread, time_ns, what }
    }

    #[test]
    fn times_add_up() {
        let mut account = Account::default();
        account.apply(&at(100, 1, What::Named { name: "program".into(), by_exec: true }));
        account.apply(&at(150, 2, What::Forked { parent: 1, creator: 1 }));
        account.apply(&at(160, 1, What::Out));
        account.apply(&at(160, 2, What::In));
        account.apply(&at(200, 2, What::Preempted));
        assert_eq!(
            account.apply(&at(200, 1, What::In)),
            Some(Block { thread: 1, from_ns: 160, to_ns: 200, others_ready_ns: 0 })
        );
        account.apply(&at(230, 1, What::Out));
        account.apply(&at(250, 2, What::In));
        let block = account.finish(300);
        // While the first one was blocked for the second time, the other was ready for 20 of 70.
        assert_eq!(block, [Block { thread: 1, from_ns: 230, to_ns: 300, others_ready_ns: 20 }]);
        let times = |thread: u32| {
            let found = account.ended.iter().find(|ended| ended.thread == thread).unwrap();
            (found.times.run_ns, found.times.ready_ns, found.times.blocked_ns, found.name.as_str())
        };
        assert_eq!(times(1), (90, 0, 110, "program"));
        // From 100 on; two could run from 150 to 160 and from 200 to 230.
        assert_eq!(account.wanted_ns(1), (200, 180));
        assert_eq!(account.wanted_ns(2), (240, 180));
        assert_eq!(times(2), (90, 60, 0, "program"));
        assert_eq!(account.pools["program"].0 + account.pools["program (main)"].0, 2);
    }

    /// The thread that calls exec(2) is not the first one: it has the first one's number from then on.
    #[test]
    fn after_exec_a_process_has_one_thread() {
        let mut account = Account::default();
        let named = |name: &str, by_exec| What::Named { name: name.into(), by_exec };
        account.apply(&at(0, 1, named("old", true)));
        account.apply(&at(10, 2, What::Forked { parent: 1, creator: 1 }));
        account.apply(&at(10, 3, What::Forked { parent: 1, creator: 1 }));
        account.apply(&Record { process: 9, ..at(10, 9, What::Forked { parent: 1, creator: 3 }) });
        account.apply(&at(20, 2, What::In));
        account.apply(&at(20, 1, What::Out));
        account.apply(&at(30, 3, What::Exited));
        account.apply(&at(30, 1, What::Exited));
        account.apply(&at(40, 1, named("new", true)));
        assert!(account.threads.len() == 2 && [1, 9].iter().all(|one| account.threads.contains_key(one)));
        account.finish(100);
        let run = |name: &str| -> u64 {
            let named = account.ended.iter().filter(|one| one.name == name);
            named.map(|one| one.times.run_ns).sum()
        };
        assert_eq!((run("new"), run("old")), (60, 20 + 20));
        assert_eq!(account.ended.len(), 5);
        assert!(!account.is_alive(1) && !account.is_alive(9));
    }

    #[test]
    fn a_threads_first_name_is_that_of_the_thread_that_made_it() {
        let mut account = Account::default();
        account.apply(&at(0, 1, What::Named { name: "program".into(), by_exec: true }));
        account.apply(&at(0, 2, What::Named { name: "maker".into(), by_exec: false }));
        account.apply(&at(0, 3, What::Forked { parent: 1, creator: 2 }));
        assert_eq!(account.threads[&3].name, "maker");
    }

    #[test]
    fn a_process_lives_as_long_as_one_of_its_threads() {
        let mut account = Account::default();
        account.apply(&at(0, 1, What::In));
        account.apply(&at(0, 2, What::In));
        account.apply(&at(1, 1, What::Exited));
        assert!(account.is_alive(1));
        account.apply(&at(2, 2, What::Exited));
        assert!(!account.is_alive(1));
        assert_eq!((account.processes, account.most_processes, account.most_of_one), (1, 1, 2));
        for process in 10..13 {
            account.apply(&Record { process, ..at(3, process, What::In) });
        }
        assert_eq!((account.processes, account.most_processes, account.most_of_one), (4, 3, 2));
        account.finish(9);
        assert_eq!(account.ran_ns[&10], 6);
    }

    #[test]
    fn pools_beyond_the_bound_are_the_others() {
        let mut account = Account::default();
        for number in 0..MOST_POOLS as u32 + 7 {
            let name = format!("conn-{number:x}z");
            account.apply(&at(1, number + 10, What::Named { name, by_exec: false }));
            account.apply(&at(1, number + 10, What::Exited));
        }
        assert_eq!((account.pools.len(), account.pools[OTHERS].0), (MOST_POOLS + 1, 7));
        account.apply(&at(1, 1, What::In));
        account.finish(2);
        assert_eq!(account.pools[&format!("{OTHERS}{MAIN}")].0, 1);
    }

    #[test]
    fn a_class_holds_what_is_almost_as_long() {
        for length in [0, 1, 127, 128, 255, 256, 1_000_003, u64::MAX / 3, u64::MAX] {
            let (last, low) = (last_ns(class(length)), class(length.saturating_sub(1)));
            assert!(last >= length && last - length <= length / 128, "{length} {last}");
            assert!(low == class(length) || low + 1 == class(length), "{length}");
        }
    }

    #[test]
    fn a_record_that_comes_late_turns_no_time_back() {
        let mut account = Account::default();
        account.apply(&at(100, 1, What::In));
        account.apply(&at(90, 2, What::In));
        account.apply(&at(95, 2, What::Out));
        account.finish(100);
        assert!(account.ended.iter().all(|thread| thread.times.run_ns == 0));
    }

    #[test]
    fn threads_beyond_the_list_count_in_their_pool() {
        let mut account = Account::default();
        for number in 0..MOST_ENDED as u32 + 5 {
            account.apply(&at(
                1,
                number + 10,
                What::Named { name: format!("pool-{number}"), by_exec: false },
            ));
            account.apply(&at(1, number + 10, What::Exited));
        }
        assert_eq!((account.ended.len(), account.unlisted), (MOST_ENDED, 5));
        assert_eq!(account.pools["pool"].0, MOST_ENDED as u64 + 5);
    }

    #[test]
    fn the_longest_is_no_rounded_number() {
        let mut lengths = Lengths::default();
        for to_ns in [1_000_003, 10_000_019] {
            lengths.add(&Block { thread: 1, from_ns: 0, to_ns, others_ready_ns: 7 }, 2_000_000);
        }
        assert_eq!(
            (lengths.sum.count, lengths.sum.longest_ns, lengths.sum.long),
            (2, 10_000_019, (1, 10_000_019))
        );
        assert_eq!((lengths.percentile_ns(99.0), lengths.sum.others_ready_ns), (10_000_019, 7));
        assert!(lengths.percentile_ns(50.0).abs_diff(1_000_003) < 10_000);
    }
}
