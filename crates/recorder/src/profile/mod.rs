// SPDX-License-Identifier: MIT OR Apache-2.0
//! A profile of a program's waiting: what its threads say ([`events`]), joined with what the kernel says of
//! those whom they wait for ([`history`], [`waits`]).
//!
//! Both have the monotonic clock. Every few milliseconds we take what there is, sort it by time, and apply
//! what is older than the last look. Nothing is kept but the sums, and what threads did lately; and a
//! [`timeline`], if somebody wants one.
//!
//! **Callers.** An event names the function that called the lock, which may be a library's: all of C++'s
//! condition variables are called from one place. So we look at some of those that wait for longer, as
//! [`crate::look`] does. A stack in which the event's place is found is that wait's.
//!
//! Without perf events the waits are known, and not what the holders did.

mod allowed;
mod blocked;
mod busy;
mod chain;
mod cost;
mod elsewhere;
pub mod events;
mod history;
mod live;
mod longest;
mod lost;
mod processors;
mod regions;
mod sampling;
pub mod timeline;
mod waits;
mod work;

use std::ffi::OsStr;
use std::io;
use std::time::{Duration, SystemTime};

pub use crate::stops::Stop;
pub use abi::profile::Class;
use abi::profile::Kind;
pub use blocked::Seen;
pub use chain::Link;
pub use elsewhere::Elsewhere;
pub use history::{Did, Split};
pub use live::{Now, Waiting};
pub use lost::Lost;
pub use regions::Region;
pub use timeline::Timeline;
pub use waits::{Key, LENGTHS, Object, Shares, Sum, Turns, WHOM, Wait, Whom};

use crate::account::Account;
use crate::became::Became;
use crate::fast::{HashMap, HashSet};
use crate::maps::{Maps, Near, Place};
use crate::record::{Record, What};
use crate::rings::Rings;
use crate::stops::Stops;
use crate::unwind::Unwinder;
use crate::{Halt, OpenError, Program, StartError, look, now_ns, rings};
use allowed::Allowed;
use busy::Busy;
pub use busy::LEAST_NS as LEAST_BUSY_NS;
use cost::Cost;
use events::{Event, Events, Untold};
use history::History;
use longest::Longest;
use lost::Losing;
use processors::Processors;
use regions::Regions;
use sampling::Sampling;
use waits::Waits;
use work::Work;

/// BOUND: the times between two turns. The rings are to be a quarter full at most.
const SHORTEST_NS: u64 = 500_000;
const LONGEST_NS: u64 = 10_000_000;
/// BOUND: how far back a thread's switches are known: after an event that is late, and while somebody waits
/// at a barrier or for a lock. That wait is settled each turn, and who was behind it is asked for at its end.
/// A wait for a lock may last as long as the program, and all threads' switches are kept meanwhile.
const KNOWN_NS: u64 = 2_000_000_000;
const KNOWN_IN_LOCKS_NS: u64 = 10_000_000_000;
const KNOWN_IN_WAITS_NS: u64 = 60_000_000_000;
/// BOUND: how old an event is at least when it is applied: a thread may lose its processor between its clock
/// and its ring.
const LATE_NS: u64 = 1_000_000;
/// BOUND: turns from one search for rings of threads that are gone to the next.
const FREE_EACH: u64 = 16;
/// BOUND: callers of a place that are kept.
const MOST_CALLERS: usize = 8;
/// BOUND: looks in one turn, and at one lock from one place; and such pairs.
const LOOKS: usize = 4;
const MOST_LOOKS: u32 = 16;
const MOST_SEEN: usize = 10_000;
/// BOUND: stretches of waiting that are put off until the turn's end.
const MOST_PIECES: usize = 1024;
/// BOUND: places of calls that are told apart.
const MOST_SITES: usize = 20_000;
/// BOUND: addresses of calls, in all images.
const MOST_KNOWN: usize = 1_000_000;
/// How our own command is called: it becomes another program.
const OWN_NAME: &str = "wakeful";
/// The interposer's file.
const INTERPOSER: &str = "libwakeful_preload.so";
/// The number of those beyond.
pub const OTHERS: u32 = u32::MAX;

/// What a profile shows.
pub struct Profile {
    /// The threads, as far as the kernel has told.
    pub account: Account,
    /// What was waited at.
    pub objects: HashMap<Key, Object>,
    /// By thread: how long it waited for locks, semaphores and barriers.
    pub waited_ns: HashMap<u32, u64>,
    /// For how long somebody waited, and why.
    pub lost: Lost,
    /// OpenMP regions, by the place that begins them, as [`Object::sites`] numbers it.
    pub regions: HashMap<u32, Region>,
    /// When threads did what, if that was asked for.
    pub timeline: Option<Timeline>,
    /// With it: the longest waits, the longest first, and how many were shorter.
    pub longest: (Vec<Wait>, u64),
    /// The places that [`Object::sites`] numbers.
    pub sites: Vec<Place>,
    /// By what was waited at: where that lies, as far as a file's memory may be there.
    pub lies: HashMap<Key, Near>,
    /// By what was waited at and from where: the callers that were seen, innermost first, and how often.
    pub callers: HashMap<(Key, u32), HashMap<Vec<Place>, u32>>,
    /// By what was waited at: in what those were seen who were blocked then, and how often.
    pub blocked: HashMap<Key, HashMap<Seen, u32>>,
    /// By what was waited at: the functions, innermost first, in which those computed for whom somebody
    /// waited, and how often that was seen.
    pub worked: HashMap<Key, Vec<(Vec<Place>, u32)>>,
    /// Threads by number: names, also of those that have ended.
    pub names: HashMap<u32, String>,
    /// Why the kernel tells nothing of the threads, if it does not.
    pub without_switches: Option<OpenError>,
    /// Processors on which its threads ran, without those of less than a hundredth of their time; 0 if nobody
    /// knows.
    pub processors: u32,
    /// Of those processors' time, added up: for how long others had them, and could this program have used
    /// them. None if nobody knows.
    pub foreign_ns: Option<u64>,
    /// Of those processors, how many this program got when it could have used all.
    pub had: Option<f64>,
    /// Most events came from processes with the interposer.
    pub is_helped: bool,
    /// The program's start, on the monotonic clock.
    pub from_ns: u64,
    /// From the program's start to its end, without the time for which it was stopped.
    pub elapsed_ns: u64,
    /// When it was stopped from outside, and for how long in all. All other times are without that: later
    /// ones are earlier by the stops before them.
    pub stops: Vec<Stop>,
    /// See `stops`.
    pub stopped_ns: u64,
    /// Processes that were stopped while others went on.
    pub halted: Vec<Halt>,
    /// The most processors that any of its threads might use, if somebody has asked.
    pub allowed: Option<u32>,
    /// Blocked in futex(2) outside of what is told.
    pub elsewhere: Elsewhere,
    /// By process: what it became by its last exec(2), and what its threads ran.
    pub programs: HashMap<u32, String>,
    /// The program's own process.
    pub process: u32,
    /// When it began.
    pub began: SystemTime,
    /// The program's status, as wait(2) has it.
    pub status: i32,
    /// Processes that told something.
    pub processes: u32,
    /// Events that were taken, and those that found no room.
    pub events: u64,
    /// See `events`.
    pub dropped: u64,
    /// Events at objects that are too many to be told apart.
    pub untold: u64,
    /// Waits that may be sampled: those that were told, and those that were only counted; for how long there
    /// were such.
    pub sampled: (u64, u64, u64),
    /// Threads that could tell nothing.
    pub without_ring: u32,
    /// Processes that could tell nothing: in another PID namespace, and without room for the file.
    pub refused: (u32, u32),
    /// Programs that were started here, as far as the kernel told of them, and told nothing.
    pub programs_silent: u32,
    /// Processes that have not ended.
    pub processes_left: u32,
    /// How much of a processor this took.
    pub own_ns: u64,
}

/// A program that is profiled.
pub struct Profiling {
    program: Program,
    events: Events,
    rings: Result<Rings, OpenError>,
    began: SystemTime,
    account: Account,
    maps: Maps,
    history: History,
    waits: Waits,
    losing: Losing,
    regions: Regions,
    timeline: Option<Timeline>,
    processors: Processors,
    stops: Stops,
    allowed: Allowed,
    elsewhere: elsewhere::Looks,
    became: Became,
    sites: Sites,
    lies: HashMap<Key, Near>,
    unwinder: Unwinder,
    looks: HashMap<(Key, u32), u32>,
    callers: HashMap<(Key, u32), HashMap<Vec<Place>, u32>>,
    blocked: blocked::Looks,
    work: Work,
    sampling: Sampling,
    images: HashMap<u32, u32>,
    next_image: u32,
    names: HashMap<u32, String>,
    batch: Vec<Item>,
    /// What was only counted, when it was read, and since when its ring is known.
    counted: Vec<(Untold, u64, u64)>,
    taken: u64,
    /// Of them: such as a sample has fewer of.
    sampled: cost::Both<u64>,
    records: u64,
    from_ns: u64,
    busy: Busy,
    cost: Cost,
    /// Living processes with the interposer, and the events from such.
    helped: HashSet<u32>,
    taken_helped: u64,
    /// Programs that began, but for our own command.
    programs: u32,
    /// When the program's last thread ended; and when the program was still there.
    exited_ns: Option<u64>,
    lived_ns: u64,
}

/// In the order of their times.
enum Item {
    /// With its processor.
    Record(Record, u32),
    Event(Event),
}

impl Item {
    fn time_ns(&self) -> u64 {
        match self {
            Self::Record(record, _) => record.time_ns,
            Self::Event(event) => event.time_ns,
        }
    }
}

/// Places in the program, each once.
#[derive(Default)]
struct Sites {
    places: Vec<Place>,
    numbers: HashMap<Place, u32>,
    /// By image and address.
    known: HashMap<(u32, u64), u32>,
}

impl Sites {
    fn number(&mut self, image: u32, address: u64, place: impl FnOnce() -> Option<Place>) -> u32 {
        // Addresses that a program makes up do not fill the memory either.
        if self.known.len() >= MOST_KNOWN && !self.known.contains_key(&(image, address)) {
            return OTHERS;
        }
        let (places, numbers) = (&mut self.places, &mut self.numbers);
        *self.known.entry((image, address)).or_insert_with(|| {
            let place = place().unwrap_or(Place { file: None, offset: address });
            if let Some(number) = numbers.get(&place) {
                return *number;
            }
            if places.len() >= MOST_SITES {
                return OTHERS;
            }
            numbers.insert(place.clone(), places.len() as u32);
            places.push(place);
            places.len() as u32 - 1
        })
    }
}

impl Profiling {
    /// Prepares to profile a program that has not started. It is to find `events`.
    #[must_use]
    pub fn new(program: Program, events: Events) -> Self {
        let began = SystemTime::now();
        let rings = Rings::open(program.process() as libc::pid_t, true);
        Self {
            stops: Stops::new(rings.is_ok()),
            allowed: Allowed::default(),
            elsewhere: elsewhere::Looks::default(),
            became: Became::default(),
            rings,
            events,
            program,
            began,
            unwinder: Unwinder::new(began),
            looks: HashMap::default(),
            callers: HashMap::default(),
            blocked: blocked::Looks::default(),
            work: Work::default(),
            sampling: Sampling::default(),
            account: Account::default(),
            maps: Maps::default(),
            history: History::default(),
            waits: Waits::default(),
            losing: Losing::default(),
            regions: Regions::default(),
            timeline: None,
            processors: Processors::default(),
            sites: Sites::default(),
            lies: HashMap::default(),
            images: HashMap::default(),
            next_image: 0,
            names: HashMap::default(),
            batch: Vec::new(),
            counted: Vec::new(),
            taken: 0,
            sampled: [0; 2],
            records: 0,
            from_ns: now_ns(),
            busy: Busy::default(),
            cost: Cost::default(),
            helped: HashSet::default(),
            taken_helped: 0,
            programs: 0,
            exited_ns: None,
            lived_ns: 0,
        }
    }

    /// Lets the program begin.
    ///
    /// # Errors
    /// As [`Program::start`].
    pub fn start(&mut self) -> Result<(), StartError> {
        self.busy = Busy::look();
        // Before its first record, so that no thread has run for longer than the program took.
        self.from_ns = now_ns();
        self.program.start()
    }

    /// The program.
    pub fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Keeps a timeline, too: see there what it takes.
    pub fn keep_timeline(&mut self) {
        self.timeline = Some(Timeline::new(now_ns()));
        self.waits.longest = Some(Longest::new(timeline::MOST_WAITS));
    }

    /// Goes on until the program ends. `each_turn` may send it signals, and ask who waits.
    pub fn run(mut self, mut each_turn: impl FnMut(&Program, &Now)) -> Profile {
        let (from_ns, own) = (self.from_ns, crate::recording::own_ns());
        if let Some(timeline) = &mut self.timeline {
            timeline.from_ns = from_ns;
        }
        let mut turn_ns = SHORTEST_NS;
        let mut turns = 0u64;
        // Threads that are gone, whose last events may still be in the batch.
        let mut dead = Vec::new();
        let status = loop {
            self.stops.sleeps();
            match &self.rings {
                Ok(rings) => rings.wait(Duration::from_nanos(turn_ns)),
                Err(_) => rings::sleep(Duration::from_nanos(turn_ns)),
            }
            // Before the rest is taken: that of a program that has ended is all there.
            let looked_ns = now_ns();
            let ended = self.program.ended();
            let times = (self.lived_ns.max(self.from_ns), looked_ns);
            self.stops.look(&mut self.program, self.account.living(), times);
            let horizon_ns = if ended.is_some() { u64::MAX } else { now_ns().saturating_sub(LATE_NS) };
            let before_ns = crate::recording::own_ns();
            let most = self.take(horizon_ns);
            self.stops.look_at_each(self.account.living(), looked_ns);
            let took_ns = crate::recording::own_ns() - before_ns;
            let others = [self.taken - self.sampled.iter().sum::<u64>(), self.records];
            self.cost.took(took_ns, self.sampled, others, self.events.untaken());
            if let Some(status) = ended {
                break status;
            }
            self.lived_ns = looked_ns;
            self.look(turn_ns);
            self.sample();
            let is_full = most > abi::profile::EVENTS / 4;
            turn_ns =
                if is_full { turn_ns / 2 } else { turn_ns + turn_ns / 4 }.clamp(SHORTEST_NS, LONGEST_NS);
            if let Some(every) = self.cost.look(self.stops.now_ns(now_ns())) {
                self.events.tell_each(every);
            }
            turns += 1;
            if turns.is_multiple_of(FREE_EACH) {
                let gone = self.events.free_rings();
                // The kernel's word is exact. Without it, nobody else says that they wait no more.
                if self.rings.is_err() {
                    let before = std::mem::replace(&mut dead, gone);
                    before.iter().for_each(|thread| self.waits.exited(*thread, 0, &self.history));
                }
            }
            let (one_in, processes) = (self.cost.one_in(), self.events.processes());
            let (waits, history, sites) = (&self.waits, &self.history, &self.sites);
            let (ahead_ns, is_stopped) = (self.stops.sum_ns(), self.stops.is_stopped());
            let now = Now { waits, history, sites, ahead_ns, one_in, processes, is_stopped };
            each_turn(&self.program, &now);
        };
        self.finish(from_ns, status, own)
    }

    fn finish(mut self, from_ns: u64, status: i32, own: u64) -> Profile {
        // We may have seen it late. Of a program that takes other rights by exec(2), the records end there,
        // as if it ended.
        let stops = self.stops.finish(now_ns());
        let lived_ns = self.lived_ns.saturating_sub(self.stops.sum_ns());
        let exited_ns = self.exited_ns.filter(|exited_ns| *exited_ns >= lived_ns);
        let to_ns = exited_ns.unwrap_or_else(|| self.stops.now_ns(now_ns()));
        let own_ns = crate::recording::own_ns() - own;
        self.waits.finish(to_ns, &self.history);
        self.pieces();
        if let Some(timeline) = &mut self.timeline {
            timeline.finish(to_ns);
        }
        let processes_left = self.account.left();
        self.account.finish(to_ns);
        for thread in &self.account.ended {
            self.names.entry(thread.thread).or_insert_with(|| thread.name.clone());
        }
        let used = self.processors.used();
        let busy_ns = Busy::look().since(&self.busy, &used, to_ns.saturating_sub(from_ns));
        let (wanted_ns, had_ns) = self.account.wanted_ns(used.len() as u32);
        let (is_known, run_ns) = (self.rings.is_ok(), self.account.run_ns());
        let waited_ns = self.waits.threads;
        let lost = self.losing.finish(|thread| waited_ns.contains_key(&thread));
        Profile {
            account: self.account,
            objects: self.waits.objects,
            waited_ns,
            lost,
            regions: self.regions.finish(to_ns, &mut self.waits.over, &self.history),
            timeline: self.timeline,
            longest: self.waits.longest.map(Longest::finish).unwrap_or_default(),
            sites: self.sites.places,
            lies: self.lies,
            callers: self.callers,
            blocked: self.blocked.seen,
            worked: self.work.finish(),
            names: self.names,
            without_switches: self.rings.err(),
            processors: used.len() as u32,
            foreign_ns: busy_ns.filter(|_| is_known).map(|busy_ns| {
                let others_ns = busy_ns.saturating_sub(run_ns + own_ns);
                others_ns.min(wanted_ns - had_ns)
            }),
            had: (is_known && wanted_ns > 0).then(|| used.len() as f64 * had_ns as f64 / wanted_ns as f64),
            is_helped: self.taken_helped * 2 > self.taken,
            from_ns,
            elapsed_ns: to_ns.saturating_sub(from_ns),
            stops,
            stopped_ns: self.stops.sum_ns(),
            halted: self.stops.halted(),
            allowed: self.allowed.most(),
            elsewhere: self.elsewhere.finish(),
            programs: self.became.names(),
            process: self.program.process(),
            began: self.began,
            status,
            processes: self.events.processes(),
            events: self.taken,
            dropped: self.events.dropped(),
            untold: self.waits.untold,
            sampled: (self.waits.told.0, self.waits.told.1, self.cost.sampled_ns()),
            without_ring: self.events.without_ring(),
            refused: self.events.refused(),
            programs_silent: silent(self.programs, &self.events),
            processes_left,
            own_ns,
        }
    }

    /// Takes what is older than this time. What is newer may come before something that is still to be read.
    /// Says how full the fullest of the program's rings was.
    fn take(&mut self, horizon_ns: u64) -> usize {
        let batch = &mut self.batch;
        // The events first: what the kernel says of the time before them is there, then.
        let mut latest_ns = 0;
        let most = self.events.drain(|event| {
            if is_past(event.time_ns, &mut latest_ns, now_ns) {
                batch.push(Item::Event(event));
            }
        });
        if let Ok(rings) = &mut self.rings {
            rings.drain(|record, processor| batch.push(Item::Record(record, processor)));
        }
        self.untold(now_ns());
        let batch = &mut self.batch;
        batch.sort_by_key(Item::time_ns);
        let rest = batch.split_off(batch.partition_point(|item| item.time_ns() < horizon_ns));
        for mut item in std::mem::replace(batch, rest) {
            match &mut item {
                Item::Record(one, _) => {
                    one.time_ns = self.stops.passed(one.time_ns, Some(one));
                }
                Item::Event(event) => event.time_ns = self.stops.passed(event.time_ns, None),
            }
            for woken in self.stops.woken(&self.account) {
                self.history.apply(&woken);
                self.account.apply(&woken);
                if let Some(timeline) = &mut self.timeline {
                    timeline.record(&woken);
                }
            }
            match item {
                Item::Record(Record { what: What::Sample(sample), thread, time_ns, process }, _) => {
                    if self.waits.is_waited(process)
                        && let Some(space) = self.maps.of(process)
                    {
                        self.work.sampled((thread, time_ns), *sample, space, &mut self.unwinder);
                    }
                }
                Item::Record(record, processor) => {
                    self.records += 1;
                    self.record(&record, processor);
                }
                Item::Event(event) => self.event(&event),
            }
        }
        self.place_counted(|_, then_ns, _| then_ns < horizon_ns);
        if horizon_ns != u64::MAX {
            let horizon_ns = self.stops.now_ns(horizon_ns);
            self.waits.settle(horizon_ns, &self.history);
            self.pieces();
            let (usual_ns, most_ns) = (horizon_ns.saturating_sub(KNOWN_NS), KNOWN_IN_WAITS_NS);
            let locks_ns = horizon_ns.saturating_sub(KNOWN_IN_LOCKS_NS);
            let asked_ns = self.waits.oldest_ns(locks_ns).unwrap_or(usual_ns);
            let before_ns = usual_ns.min(asked_ns.max(horizon_ns.saturating_sub(most_ns)));
            self.history.forget(before_ns);
            self.waits.forget(before_ns);
            self.work.forget(before_ns);
        }
        most
    }

    /// Looks at threads that wait, or are blocked, since the last turn.
    fn look(&mut self, turn_ns: u64) {
        if self.stops.is_stopped() {
            return;
        }
        let now_ns = now_ns();
        self.look_at_waiting(self.stops.now_ns(now_ns).saturating_sub(turn_ns));
        // What is applied is older than that.
        let known = (&self.waits, &self.history, &self.account);
        let since_ns = self.stops.now_ns(now_ns).saturating_sub(LATE_NS);
        self.blocked.look(known, (&self.maps, &mut self.unwinder), (since_ns, self.stops.sum_ns()));
        self.elsewhere.look((&self.waits, &self.account), (&self.maps, &mut self.unwinder), now_ns);
        self.allowed.look(&self.account);
    }

    /// Looks at some of those that wait since then, or longer.
    fn look_at_waiting(&mut self, since_ns: u64) {
        let seen = |now: &waits::Now| self.looks.get(&(now.key, now.site)).copied().unwrap_or(0);
        let is_wanted = |now: &waits::Now| now.since_ns <= since_ns && seen(now) < MOST_LOOKS;
        let some: Vec<_> = self.waits.waiting().filter(|(_, now)| is_wanted(now)).take(LOOKS).collect();
        for (thread, now) in some {
            if self.looks.len() >= MOST_SEEN {
                return;
            }
            *self.looks.entry((now.key, now.site)).or_default() += 1;
            let Some(look) = look::look(now.process, thread) else { continue };
            let Some(space) = self.maps.of(now.process) else { continue };
            let stack = self.unwinder.unwind(space, &look);
            let Some(site) = self.sites.places.get(now.site as usize) else { continue };
            // It may be another wait already.
            let sure = stack.guessed_from.unwrap_or(usize::MAX);
            let places = stack.places.into_iter().take(sure);
            let callers: Vec<Place> =
                places.skip_while(|place| place != site).skip(1).take(MOST_CALLERS).collect();
            if !callers.is_empty() {
                *self.callers.entry((now.key, now.site)).or_default().entry(callers).or_default() += 1;
            }
        }
    }

    /// What was waited since the last time.
    fn pieces(&mut self) {
        let waiters = &self.waits.threads;
        for piece in self.waits.pieces.drain(..) {
            if let Whom::Thread(_) = piece.whom {
                self.sampling.waited(piece.to_ns);
            }
            self.losing.piece(&piece, &self.history, |thread| waiters.contains_key(&thread));
            self.blocked.piece(&piece, &self.history);
            self.work.piece(&piece);
            if let Some(timeline) = &mut self.timeline {
                timeline.piece(&piece, &self.history);
            }
        }
    }

    fn record(&mut self, record: &Record, processor: u32) {
        self.became.apply(record);
        match &record.what {
            What::Mapped(mapping) => {
                if mapping.file.file_name() == Some(OsStr::new(INTERPOSER)) {
                    self.helped.insert(record.process);
                }
                self.maps.mapped(record.process, mapping);
            }
            What::Forked { parent, .. } => {
                if self.helped.contains(parent) {
                    self.helped.insert(record.process);
                }
                self.maps.forked(record.process, *parent);
            }
            What::Named { by_exec: true, name } => {
                self.programs += u32::from(!name.starts_with(OWN_NAME));
                // A program that has become another one takes new rings.
                let by_ns = record.time_ns + self.stops.sum_ns();
                self.place_counted(|process, then_ns, seen_ns| {
                    process == record.process && then_ns.min(seen_ns) < by_ns
                });
                self.allowed.forget(record.process);
                self.helped.remove(&record.process);
                self.maps.cleared(record.process);
                self.images.remove(&record.process);
            }
            What::Named { name, .. } => _ = self.names.insert(record.thread, name.clone()),
            What::Exited => self.waits.exited(record.thread, record.time_ns, &self.history),
            What::In => self.sampling.switched(processor),
            _ => {}
        }
        self.processors.switched(record, processor, &mut self.history, self.timeline.as_mut());
        self.history.apply(record);
        self.account.apply(record);
        if let Some(timeline) = &mut self.timeline {
            timeline.record(record);
        }
        if record.what == What::Exited && !self.account.is_alive(record.process) {
            if record.process == self.program.process() {
                self.exited_ns = Some(record.time_ns);
            }
            self.place_counted(|process, _, _| process == record.process);
            self.helped.remove(&record.process);
            self.maps.cleared(record.process);
            self.images.remove(&record.process);
        }
    }

    /// The numbers of a process's image, and of a place in it.
    fn place(&mut self, process: u32, address: u64) -> (u32, u32) {
        let next = &mut self.next_image;
        let image = *self.images.entry(process).or_insert_with(|| {
            *next += 1;
            *next
        });
        let maps = &mut self.maps;
        let site = self.sites.number(image, address, || {
            maps.of(process).and_then(|space| space.at(address)).or_else(|| maps.look_up(process, address))
        });
        (image, site)
    }

    /// Takes what was only counted. Where the place is not known, its process may be new: then the records
    /// come first. Without them /proc is asked, as long as the process is there.
    fn untold(&mut self, now_ns: u64) {
        let (images, sites, counted) = (&self.images, &self.sites.known, &mut self.counted);
        let (has_records, stops) = (self.rings.is_ok(), &self.stops);
        self.events.drain_untold(|mut one, seen_ns| {
            one.ns = stops.counted_ns(one.ns, now_ns);
            let image = images.get(&one.process);
            let is_known = image.is_some_and(|image| sites.contains_key(&(*image, one.caller)));
            counted.push((one, if is_known || !has_records { 0 } else { now_ns }, seen_ns));
        });
        self.place_counted(|_, then_ns, _| then_ns == 0);
    }

    /// Finds the places of what was only counted, by whose it is, when it was read and since when its ring is
    /// known.
    fn place_counted(&mut self, is_meant: impl Fn(u32, u64, u64) -> bool) {
        let is_meant =
            |(one, then_ns, seen_ns): &mut (Untold, u64, u64)| is_meant(one.process, *then_ns, *seen_ns);
        let meant: Vec<_> = self.counted.extract_if(.., is_meant).collect();
        for (one, ..) in meant {
            let (image, site) = self.place(one.process, one.caller);
            let before = self.waits.objects.len();
            self.waits.untold(&one, image, site);
            self.lies(before, Key { image, object: one.object, class: one.class }, one.process);
        }
    }

    /// Notes where an object lies, if it is new. Later its process may be gone. A team has no address.
    fn lies(&mut self, before: usize, key: Key, process: u32) {
        if self.waits.objects.len() > before
            && !matches!(key.class, Class::Region | Class::Team)
            && let Some(near) = self.maps.of(process).and_then(|space| space.near(key.object))
        {
            self.lies.insert(key, near);
        }
    }

    fn event(&mut self, event: &Event) {
        self.taken += 1;
        self.taken_helped += u64::from(self.helped.contains(&event.process));
        let (image, site) = self.place(event.process, event.caller);
        if event.kind == Kind::Counted {
            let before = self.waits.objects.len();
            self.waits.untold(&Untold::of(event), image, site);
            self.lies(before, Key { image, object: event.object, class: event.class }, event.process);
            return;
        }
        self.sampled[usize::from(event.class.is_barrier())] += u64::from(event.class.can_be_sampled());
        let before = self.waits.objects.len();
        self.waits.is_on(self.processors.of(event.thread));
        self.waits.apply(event, image, site, &self.history);
        self.lies(before, Key { image, object: event.object, class: event.class }, event.process);
        if let Some(timeline) = &mut self.timeline {
            let over = self.waits.over.iter().map(|(thread, ..)| *thread);
            for thread in over.chain([event.thread]) {
                timeline.waits(thread, event.time_ns, self.waits.where_waits(thread));
            }
            self.waits.vain.iter().for_each(|(thread, now_ns)| timeline.woken_in_vain(*thread, *now_ns));
        }
        self.waits.vain.clear();
        self.regions.apply(event, image, site, &mut self.waits.over, &self.history);
        if self.waits.pieces.len() >= MOST_PIECES {
            self.pieces();
        }
    }
}

impl Profile {
    /// A time of the monotonic clock in the program's own, which goes on without its stops.
    #[must_use]
    pub fn own_time_ns(&self, time_ns: u64) -> u64 {
        let before = self.stops.iter().filter(|stop| stop.from_ns < time_ns);
        time_ns - before.map(|stop| stop.length_ns.min(time_ns - stop.from_ns)).sum::<u64>()
    }
}

/// Programs that neither wrote here nor said why they cannot.
fn silent(programs: u32, events: &Events) -> u32 {
    let (elsewhere, unmapped) = events.refused();
    programs.saturating_sub(events.processes() + elsewhere + unmapped)
}

/// A time to come is nonsense, which a program may write. The clock is asked only where the last answer does
/// not do. We may have lost our processor since, while the program went on.
fn is_past(time_ns: u64, latest_ns: &mut u64, clock: impl FnOnce() -> u64) -> bool {
    if time_ns > *latest_ns {
        *latest_ns = clock();
    }
    time_ns <= *latest_ns
}

/// A file for the events of a program, and how the program finds it.
///
/// # Errors
/// As memfd_create(2), ftruncate(2), fcntl(2) and mmap(2).
pub fn events() -> io::Result<Events> {
    Events::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_while_the_rings_are_emptied_is_not_to_come() {
        let mut latest_ns = 0;
        assert!(is_past(100, &mut latest_ns, || 150));
        assert!(is_past(150, &mut latest_ns, || panic!("asked again")));
        // A second later, in the same turn.
        assert!(is_past(1_000_000_150, &mut latest_ns, || 1_000_000_160));
        assert!(!is_past(u64::MAX, &mut latest_ns, || 1_000_000_170));
    }
}
