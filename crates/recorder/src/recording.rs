// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop: sleep, take the records, look at threads that are blocked.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::account::{Account, Block, Lengths, State, Sum, Thread, Times};
use crate::became::Became;
use crate::look::{self, Look};
use crate::maps::Maps;
use crate::record::{Record, What};
use crate::rings::Rings;
use crate::stops::Stops;
use crate::unwind::{Stack, Unwinder};
use crate::{Halt, OpenError, Program, fast, now_ns};

/// BOUND: looks in one turn at threads that have been blocked for a turn. A thousand of them take 16 turns.
const MOST_OLD: usize = 64;
/// BOUND: looks in one turn at threads that have just blocked: some of the short blocks are to be seen.
const MOST_YOUNG: usize = 4;
/// BOUND: different stacks that are kept apart, and descriptors that are named for each.
const MOST_SITES: usize = 20_000;
const MOST_DESCRIPTORS: usize = 4;

/// What to record.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A block is long from here on.
    pub threshold_ns: u64,
    /// The longest sleep between two turns. A block of two turns is looked at, if this process gets its turns
    /// and there are not too many such blocks.
    pub turn_ns: u64,
}

/// Where threads block: the same call with the same stack.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub struct Site {
    /// What the threads have in common.
    pub pool: String,
    /// The system call's number; none in a page fault.
    pub call: Option<u32>,
    /// The stack.
    pub stack: Stack,
}

/// What happened at a site.
#[derive(Clone, Default)]
pub struct Blocks {
    /// How long.
    pub lengths: Lengths,
    /// What the descriptors led to, where the call has one. Not all, if there are many.
    pub descriptors: Vec<PathBuf>,
}

/// What a recording shows.
pub struct Outcome {
    /// The threads.
    pub account: Account,
    /// Where they blocked, as far as it was seen.
    pub sites: HashMap<Site, Blocks>,
    /// By pool: blocks that nobody looked at, and their time.
    pub unseen: HashMap<String, Sum>,
    /// From the program's start to its end, without the time for which it was stopped.
    pub elapsed_ns: u64,
    /// How often it was stopped from outside, and for how long in all: that counts nowhere.
    pub stopped: (u64, u64),
    /// Processes that were stopped while others went on.
    pub halted: Vec<Halt>,
    /// By process: what it became by its last exec(2). The program's own process; and processes that have not
    /// ended.
    pub programs: fast::HashMap<u32, String>,
    /// See `programs`.
    pub process: u32,
    /// See `programs`.
    pub processes_left: u32,
    /// When it began.
    pub began: SystemTime,
    /// The program's status, as wait(2) has it.
    pub status: i32,
    /// Looks that saw something.
    pub looks: u64,
    /// Processes that nobody was allowed to look at.
    pub hidden: u64,
    /// How much of a processor this recording took.
    pub own_ns: u64,
}

/// A look, and between which times of the program's own.
struct Looked {
    from_ns: u64,
    to_ns: u64,
    look: Look,
    descriptor: Option<PathBuf>,
}

/// A program that is recorded.
pub struct Recording {
    program: Program,
    rings: Rings,
    options: Options,
    began: SystemTime,
    account: Account,
    stops: Stops,
    became: Became,
    maps: Maps,
    unwinder: Unwinder,
    batch: Vec<Record>,
    /// Threads that blocked and have not been looked at: when.
    blocked: VecDeque<(u32, u64)>,
    looked: HashMap<u32, Looked>,
    sites: HashMap<Site, Blocks>,
    unseen: HashMap<String, Sum>,
    looks: u64,
    hidden: u64,
    /// The living ones of the hidden processes.
    hiding: HashSet<u32>,
    /// The first record's time, which is the program's first, and when its first process ended.
    from_ns: Option<u64>,
    exited_ns: Option<u64>,
}

impl Recording {
    /// Prepares to record a program that has not started.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn new(program: Program, options: Options) -> Result<Self, OpenError> {
        let began = SystemTime::now();
        Ok(Self {
            rings: Rings::open(program.process() as libc::pid_t, false)?,
            program,
            options,
            began,
            account: Account::default(),
            stops: Stops::new(true),
            became: Became::default(),
            maps: Maps::default(),
            unwinder: Unwinder::new(began),
            batch: Vec::new(),
            blocked: VecDeque::new(),
            looked: HashMap::new(),
            sites: HashMap::new(),
            unseen: HashMap::new(),
            looks: 0,
            hidden: 0,
            hiding: HashSet::new(),
            from_ns: None,
            exited_ns: None,
        })
    }

    /// The program.
    pub fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Records until the program ends. `each_turn` may send it signals.
    pub fn run(mut self, mut each_turn: impl FnMut(&Program)) -> Outcome {
        let began_ns = now_ns();
        let mut lived_ns = began_ns;
        let own = own_ns();
        let status = loop {
            self.stops.sleeps();
            self.rings.wait(Duration::from_nanos(self.options.turn_ns));
            let looked_ns = now_ns();
            // Before the records are taken: those of a program that has ended are all there.
            let ended = self.program.ended();
            self.stops.look(&mut self.program, self.account.living(), (lived_ns, looked_ns));
            self.take(if ended.is_some() { u64::MAX } else { now_ns() });
            self.stops.look_at_each(self.account.living(), looked_ns);
            if let Some(status) = ended {
                break status;
            }
            lived_ns = looked_ns;
            self.look();
            each_turn(&self.program);
        };
        // We may have seen both late. Of a program that takes other rights by exec(2) the records end there,
        // as if it ended.
        let from_ns = self.from_ns.unwrap_or(began_ns);
        let stops = self.stops.finish(now_ns()).len() as u64;
        let lived_ns = lived_ns.saturating_sub(self.stops.sum_ns());
        let exited_ns = self.exited_ns.filter(|exited_ns| *exited_ns >= lived_ns);
        let to_ns = exited_ns.unwrap_or_else(|| self.stops.now_ns(now_ns()));
        let (threads, processes_left) = (self.account.threads.clone(), self.account.left());
        for block in self.account.finish(to_ns) {
            self.block(&block, &threads[&block.thread]);
        }
        Outcome {
            account: self.account,
            sites: self.sites,
            unseen: self.unseen,
            elapsed_ns: to_ns.saturating_sub(from_ns),
            stopped: (stops, self.stops.sum_ns()),
            halted: self.stops.halted(),
            programs: self.became.names(),
            process: self.program.process(),
            processes_left,
            began: self.began,
            status,
            looks: self.looks,
            hidden: self.hidden,
            own_ns: own_ns() - own,
        }
    }

    /// Takes the records that are older than this time. One that is newer may come before one of another
    /// processor that is still to be read.
    fn take(&mut self, horizon_ns: u64) {
        let batch = &mut self.batch;
        self.rings.drain(|record, _| batch.push(record));
        batch.sort_by_key(|record| record.time_ns);
        let rest = batch.split_off(batch.partition_point(|record| record.time_ns < horizon_ns));
        for mut record in std::mem::replace(batch, rest) {
            record.time_ns = self.stops.passed(record.time_ns, Some(&record));
            for woken in self.stops.woken(&self.account) {
                // What was until then is no block, but the stop.
                self.account.apply(&woken);
            }
            self.apply(&record);
        }
    }

    fn apply(&mut self, record: &Record) {
        self.from_ns.get_or_insert(record.time_ns);
        self.became.apply(record);
        match &record.what {
            What::Mapped(mapping) => self.maps.mapped(record.process, mapping),
            What::Forked { parent, .. } => self.maps.forked(record.process, *parent),
            What::Named { by_exec: true, .. } => self.maps.cleared(record.process),
            What::Exited => {
                self.looked.remove(&record.thread);
                if record.thread == self.program.process() {
                    self.exited_ns = Some(record.time_ns);
                }
                // One that goes on has taken other rights by exec(2): the kernel tells nothing more of it.
                if record.thread == record.process && look::is_forbidden(record.process, record.thread) {
                    self.hidden += u64::from(self.hiding.insert(record.process));
                }
            }
            _ => {}
        }
        let process = self.account.threads.get(&record.thread).map(|thread| thread.process);
        let block = self.account.apply(record);
        let Some(thread) = self.account.threads.get(&record.thread) else {
            // It has ended, and its process if nobody is left.
            if let Some(process) = process.filter(|&process| !self.account.is_alive(process)) {
                self.maps.cleared(process);
                self.hiding.remove(&process);
            }
            return;
        };
        if let Some(block) = block {
            let thread = thread.clone();
            self.block(&block, &thread);
        } else if record.what == What::Out {
            self.blocked.push_back((record.thread, thread.since_ns));
        }
    }

    /// A block is over: counts it where it was seen, or else among the unseen ones.
    fn block(&mut self, block: &Block, thread: &Thread) {
        let pool = self.account.pool(thread);
        let threshold = self.options.threshold_ns;
        let looked = match self.looked.remove(&block.thread) {
            // A look at a later block.
            Some(looked) if looked.from_ns >= block.to_ns => {
                self.looked.insert(block.thread, looked);
                None
            }
            looked => looked.filter(|looked| looked.from_ns >= block.from_ns && looked.to_ns <= block.to_ns),
        };
        let Some(looked) = looked else {
            return self.unseen.entry(pool).or_default().add(block, threshold);
        };
        let stack = match self.maps.of(thread.process) {
            Some(space) => self.unwinder.unwind(space, &looked.look),
            None => Stack::default(),
        };
        let site = Site { pool, call: looked.look.call.map(|(number, _)| number), stack };
        if self.sites.len() >= MOST_SITES && !self.sites.contains_key(&site) {
            return self.unseen.entry(site.pool).or_default().add(block, threshold);
        }
        let blocks = self.sites.entry(site).or_default();
        blocks.lengths.add(block, threshold);
        if let Some(path) = looked.descriptor
            && blocks.descriptors.len() < MOST_DESCRIPTORS
            && !blocks.descriptors.contains(&path)
        {
            blocks.descriptors.push(path);
        }
    }

    /// Looks at threads that are blocked: those first that have been so for long, then a few of the others.
    fn look(&mut self) {
        if self.stops.is_stopped() {
            return;
        }
        let own_ns = |stops: &Stops| stops.now_ns(now_ns());
        let old = own_ns(&self.stops).saturating_sub(self.options.turn_ns.min(self.options.threshold_ns));
        let (mut olds, mut youngs) = (MOST_OLD, MOST_YOUNG);
        let mut left = VecDeque::new();
        for (id, since_ns) in std::mem::take(&mut self.blocked) {
            let thread = self.account.threads.get(&id);
            let Some(thread) = thread.filter(|one| one.state == State::Blocked && one.since_ns == since_ns)
            else {
                continue;
            };
            let budget = if since_ns <= old { &mut olds } else { &mut youngs };
            if *budget == 0 {
                left.push_back((id, since_ns));
                continue;
            }
            *budget -= 1;
            let process = thread.process;
            let from_ns = own_ns(&self.stops);
            match look::look(process, id) {
                Some(look) => {
                    let descriptor = look
                        .call
                        .filter(|(number, _)| crate::calls::has_descriptor(*number))
                        .and_then(|(_, arguments)| look::descriptor(process, arguments[0]));
                    let looked = Looked { from_ns, to_ns: own_ns(&self.stops), look, descriptor };
                    self.looked.insert(id, looked);
                    self.looks += 1;
                }
                None if look::is_forbidden(process, id) => {
                    self.hidden += u64::from(self.hiding.insert(process));
                }
                None => {}
            }
        }
        self.blocked = left;
    }
}

/// The processor time of this process.
pub(crate) fn own_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives across the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Outcome {
    /// All threads' times together.
    pub fn times(&self) -> Times {
        let mut times = Times::default();
        for (_, one) in self.account.pools.values() {
            times.add(one);
        }
        times
    }
}
