// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which thread waited for what, how long, and what the thread did for which it waited: events and history,
//! joined.
//!
//! Each stretch of that is also a [`Piece`], for those who ask when it was and not only how much.
//!
//! **Locks.** Between two events of a lock nothing about it changes but what its holder does. So at each
//! event the time since the last one is split by the holder's history, once for each waiter. From a release
//! until somebody has the lock, it is free: the waiters were not awake, or had no processor. The holder
//! at the time when the first waiter came is not always known. Then the time is kept until the first release
//! says it.
//!
//! **Samples.** Waits may be only counted ([`Untold`]). In the end they are taken to be like those of the
//! same object that were told.
//!
//! **Readers and semaphores.** Readers are many, and nobody lists them. Up to a reader's release the waiters
//! waited for it, and after the last one for nobody. A semaphore waits for the thread that posts it.
//!
//! **Barriers.** A round is what arrives before the first thread leaves. The last arrival is whom all waited
//! for. What it did meanwhile is why they waited. From then on they wake up. Where a round is never complete,
//! they waited for somebody unknown.
//!
//! An OpenMP region's end is such a barrier: a thread comes when it has done its part, and all leave it when
//! the one that began the region goes on. Where the region has made tasks, its threads run some at its
//! barriers, and none is the last. Then only the time in which a thread was blocked is a wait, for somebody
//! unknown.
//!
//! **Condition variables.** A wake-up is in vain if the thread waits there again at once: it has neither
//! released a mutex nor signalled, and it ran for less than [`VAIN_NS`]. What it ran for since it came to the
//! first of the two waits is lost.

use std::collections::VecDeque;

use abi::profile::{Class, Kind};

use super::chain::{self, Lately, Link};
use super::events::{Event, Untold};
use super::history::{History, Split};
use super::longest::Longest;
use crate::fast::HashMap;

mod turns;

use turns::Hand;
pub use turns::Turns;

/// BOUND: locks, condition variables and barriers that are told apart.
const MOST_OBJECTS: usize = 100_000;
/// BOUND: stretches of one lock whose holder may still be named.
const MOST_PENDING: usize = 256;
/// BOUND: stretches of one lock that are kept for those who wait for it now, to name whom they waited for.
const MOST_STRETCHES: usize = 64;
/// BOUND: threads that are named for one wait.
pub const WHOM: usize = 3;
/// Classes of lengths: less than 1 us, less than 2 us, less than 4 us, and so on.
pub const LENGTHS: usize = 32;
/// BOUND: a thread that ran for longer, from a wake-up to its next wait, has done something. To look at a
/// condition takes less.
const VAIN_NS: u64 = 10_000;

/// What is waited at: an address in one program image, and what lies there.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Key {
    /// A number for the process, as long as it is the same program.
    pub image: u32,
    /// The address.
    pub object: u64,
    /// What lies there.
    pub class: Class,
}

/// Time that threads waited, by why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// By what he did who was waited for.
    pub holder: Split,
    /// There was nobody to wait for any more: the waiters had to wake up, and to have a processor.
    pub free_ns: u64,
}

impl Shares {
    /// All of it.
    pub fn total_ns(&self) -> u64 {
        self.holder.total_ns() + self.free_ns
    }

    /// Together with others.
    pub fn add(&mut self, other: &Self) {
        self.holder.add(other.holder);
        self.free_ns += other.free_ns;
    }

    /// So many parts of so many.
    pub(super) fn scaled(&self, parts: u64, of: u64) -> Self {
        let scaled = |part_ns: u64| (u128::from(part_ns) * u128::from(parts) / u128::from(of.max(1))) as u64;
        Self { holder: self.holder.each(scaled), free_ns: scaled(self.free_ns) }
    }

    /// What came to it since then.
    fn since(&self, then: &Self) -> Self {
        Self { holder: self.holder.since(then.holder), free_ns: self.free_ns - then.free_ns }
    }
}

/// For whom somebody waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whom {
    /// Nobody has said it yet, or ever will.
    #[default]
    Unknown,
    /// Nobody.
    Free,
    /// This thread.
    Thread(u32),
}

/// A stretch of time in which somebody waited for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The object.
    pub key: Key,
    /// From where its first waiter came.
    pub site: u32,
    /// From when.
    pub from_ns: u64,
    /// Until when.
    pub to_ns: u64,
    /// How many waited.
    pub waiters: u64,
    /// For whom.
    pub whom: Whom,
}

/// A wait that is over.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// The thread that waited.
    pub thread: u32,
    /// For what.
    pub key: Key,
    /// From which place.
    pub site: u32,
    /// From when.
    pub from_ns: u64,
    /// Until when.
    pub to_ns: u64,
    /// How often others were seen to take the lock meanwhile.
    pub turns: u64,
    /// Why.
    pub shares: Shares,
    /// For whom and how long: the longest first, at most so many. 0 is no thread.
    pub whom: [(u32, u64); WHOM],
}

/// Lengths of waits, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// Together.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

impl Sum {
    fn one(&mut self, length_ns: u64) {
        self.add(&Self { count: 1, total_ns: length_ns, longest_ns: length_ns });
    }

    /// Together with others.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

/// A lock, or whatever is waited at.
#[derive(Clone, Debug, Default)]
pub struct Object {
    /// Waits that are over, and at the end also the others.
    pub waits: Sum,
    /// Their time, by why.
    pub shares: Shares,
    /// How many were so long: see [`LENGTHS`].
    pub lengths: [u32; LENGTHS],
    /// Of a lock or a barrier: the longest of them, and the threads behind it.
    pub longest: Option<Wait>,
    /// See `longest`.
    pub chain: Vec<Link>,
    /// How often it was taken.
    pub turns: Turns,
    /// Of their time: by waits that were only counted. Their shares and lengths are as if they were like the
    /// others.
    pub estimated_ns: u64,
    /// By the place in the program, as the recording numbers them.
    pub sites: HashMap<u32, Sum>,
    /// Of a condition variable: waits that no wake-up ended.
    pub timeouts: u64,
    /// Of a condition variable: wake-ups in vain, and what was run for them.
    pub vain: u64,
    /// See `vain`.
    pub vain_ns: u64,
    /// Of a barrier: rounds.
    pub rounds: u64,
    /// Other processes may use it, too: what they do with it is not told.
    pub shared: bool,
    /// Of a barrier: who came last how often, and how long the others waited for that.
    pub last: HashMap<u32, (u64, Shares)>,
    /// What was only counted.
    untold: Sum,
    waiters: u64,
    holder: Whom,
    since_ns: u64,
    /// A reader has gone, and since then nobody came.
    is_left: bool,
    pending: Vec<(u64, u64, u64)>,
    arrived: Vec<(u32, u64)>,
    /// From where the first waiter came.
    first_site: u32,
    /// The time by why, as one waiter has it that was there all the time.
    for_one: Shares,
    /// The threads that held it lately, while somebody waits.
    stretches: VecDeque<(u32, u64, u64)>,
}

/// A wait that goes on.
#[derive(Clone, Copy)]
pub struct Now {
    /// For what.
    pub key: Key,
    /// Since when.
    pub since_ns: u64,
    /// From which place.
    pub site: u32,
    /// Whose thread it is.
    pub process: u32,
    /// [`Object::for_one`] and the turns that were seen when it began.
    before: Shares,
    turns: u64,
}

/// What a thread has when its wait is over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Has {
    Nothing,
    /// Nobody else has it.
    Alone,
    /// Others may have it, too; or there is nothing to be had, as of a semaphore.
    Too,
}

/// The last arrival at a barrier, of those that still have to leave it.
#[derive(Clone, Copy)]
struct Leaving {
    last: u32,
    last_ns: u64,
    shares: Shares,
}

/// Everything.
#[derive(Default)]
pub struct Waits {
    /// What was waited at.
    pub objects: HashMap<Key, Object>,
    /// Events at objects beyond [`MOST_OBJECTS`].
    pub untold: u64,
    /// Of what can be sampled: waits that were told, and those that were only counted.
    pub told: (u64, u64),
    /// By thread: time that it waited for locks, semaphores and barriers.
    pub threads: HashMap<u32, u64>,
    /// The longest waits, if anybody wants them.
    pub longest: Option<Longest<Wait>>,
    /// What there was since somebody took them.
    pub pieces: Vec<Piece>,
    /// Waits at barriers that are over, since somebody took them: who waited, at what, and why.
    pub over: Vec<(u32, Class, Shares)>,
    waiting: HashMap<u32, Now>,
    /// By thread: the last arrival at its barrier.
    leaving: HashMap<u32, Leaving>,
    /// Wake-ups in vain, since somebody took them: the thread, and when it waited again.
    pub vain: Vec<(u32, u64)>,
    /// The event at hand ends waits at a barrier that has tasks.
    has_tasks: bool,
    /// What the event at hand says of turns; its processor is told before it is applied.
    hand: Hand,
    lately: Lately,
    /// By thread: when it came to its condition variable and when it was back, for the last time.
    came: HashMap<u32, (u64, u64)>,
    now_ns: u64,
}

impl Waits {
    /// The thread of the event that comes next has this processor.
    pub fn is_on(&mut self, processor: Option<u32>) {
        self.hand.processor = processor;
    }

    /// Takes an event, in the order of their times. `history` is complete up to it.
    pub fn apply(&mut self, event: &Event, image: u32, site: u32, history: &History) {
        let key = Key { image, object: event.object, class: event.class };
        if !self.objects.contains_key(&key) && !matches!(event.kind, Kind::Fork | Kind::Begin) {
            if self.objects.len() >= MOST_OBJECTS {
                self.untold += 1;
                return;
            }
            // Nobody waits for what the thread takes or leaves: another lock has that mark.
            if matches!(event.kind, Kind::Took | Kind::Released | Kind::Join) {
                return;
            }
        }
        // A thread that lost its processor between its clock and its ring is late.
        let now_ns = event.time_ns.max(self.now_ns);
        self.now_ns = now_ns;
        let thread = event.thread;
        let is_end = matches!(event.kind, Kind::Left | Kind::Join);
        self.has_tasks = is_end && event.class != Class::Barrier && event.number != 0;
        let has_number = matches!(event.kind, Kind::Got | Kind::Took | Kind::Released);
        self.hand.number = if has_number && event.class == Class::Mutex { event.number } else { 0 };
        self.hand.time_ns = event.time_ns;
        let before = Shares::default();
        let mut now = Now { key, since_ns: now_ns, site, process: event.process, before, turns: 0 };
        if event.shared {
            self.objects.entry(key).or_default().shared = true;
        }
        match event.kind {
            Kind::Wait => {
                self.end(thread, now_ns, Has::Nothing, history);
                let object = self.objects.entry(key).or_default();
                object.first_comes_from(site);
                object.settle(now_ns, history, key, &mut self.pieces);
                let is_sure = event.class != Class::Rwlock || history.knows(event.number);
                object.first_waiter_sees(if is_sure { event.number } else { 0 });
                object.waiters += 1;
                (now.before, now.turns) = (object.for_one, object.turns.while_waited);
                self.waiting.insert(thread, now);
            }
            Kind::Got => self.end(thread, now_ns, has(event), history),
            Kind::GaveUp => self.end(thread, now_ns, Has::Nothing, history),
            Kind::Took | Kind::Released => {
                let Some(object) = self.objects.get_mut(&key).filter(|object| !object.shared) else { return };
                object.settle(now_ns, history, key, &mut self.pieces);
                match event.kind {
                    Kind::Released => object.released(event, self.hand, history, key, &mut self.pieces),
                    _ => object.taken((thread, has(event), self.hand), history, key, &mut self.pieces),
                }
            }
            Kind::CondWait => self.cond_wait(event, now, history),
            Kind::CondBack => self.cond_back(event, now_ns, history),
            // Whatever it waited for: it goes on.
            Kind::Fork | Kind::Begin => self.end(thread, now_ns, Has::Nothing, history),
            Kind::Arrived | Kind::End => {
                self.end(thread, now_ns, Has::Nothing, history);
                self.waiting.insert(thread, now);
                // The last one may be another process's: then nobody says who it was.
                let object = self.objects.entry(key).or_default();
                object.first_comes_from(site);
                if !event.shared {
                    object.arrived.push((thread, now_ns));
                }
            }
            // See `untold`.
            Kind::Counted => {}
            Kind::Left => self.left(thread, now, history),
            Kind::Join => self.joined(thread, now, history),
        }
    }

    /// All leave at once.
    fn joined(&mut self, thread: u32, now: Now, history: &History) {
        let team: Vec<u32> = match self.objects.get(&now.key) {
            Some(object) => object.arrived.iter().map(|(waiter, _)| *waiter).collect(),
            None => Vec::new(),
        };
        self.left(thread, now, history);
        for waiter in team {
            if self.waiting.get(&waiter).is_some_and(|was| was.key == now.key) {
                self.end(waiter, now.since_ns, Has::Nothing, history);
            }
        }
        if let Some(object) = self.objects.get_mut(&now.key) {
            object.arrived.clear();
        }
    }

    /// A wait is over, whatever ended it, if there is one.
    fn end(&mut self, thread: u32, now_ns: u64, has: Has, history: &History) {
        let Some(now) = self.waiting.remove(&thread) else { return };
        let Some(object) = self.objects.get_mut(&now.key) else { return };
        let mut length_ns = now_ns - now.since_ns;
        let mut spans = Vec::new();
        let mut wait = Wait::of(thread, &now, now_ns);
        match now.key.class {
            Class::Cond => {}
            class if class.is_barrier() => {
                object.arrived.retain(|(arrived, _)| *arrived != thread);
                match self.leaving.remove(&thread) {
                    _ if self.has_tasks => {
                        length_ns = history.split(thread, now.since_ns, now_ns).blocked_ns.min(length_ns);
                        object.shares.holder.unknown_ns += length_ns;
                    }
                    // Up to the last arrival the time is told: see `left`.
                    Some(leaving) => {
                        let free_ns = now_ns.saturating_sub(leaving.last_ns);
                        object.shares.free_ns += free_ns;
                        wait.shares = Shares { free_ns, ..leaving.shares };
                        wait.whom[0] = (leaving.last, leaving.shares.total_ns());
                        spans.push((now.since_ns, leaving.last_ns.max(now.since_ns)));
                        let from_ns = leaving.last_ns.min(now_ns);
                        self.pieces.push(object.piece(now.key, from_ns, now_ns, 1, Whom::Free));
                    }
                    None => object.shares.holder.unknown_ns += length_ns,
                }
            }
            _ => {
                object.settle(now_ns, history, now.key, &mut self.pieces);
                wait.turns = object.turns.while_waited - now.turns;
                object.taken((thread, has, self.hand), history, now.key, &mut self.pieces);
                wait.shares = object.for_one.since(&now.before);
                object.name_holders(&mut wait);
                spans = chain::spans(&object.stretches, &wait);
                object.waiters = object.waiters.saturating_sub(1);
                if object.waiters == 0 {
                    object.resolve(Whom::Unknown, history, now.key, &mut self.pieces);
                    object.stretches.clear();
                }
            }
        }
        object.waited(now.site, length_ns);
        let known_ns = wait.shares.total_ns();
        wait.shares.holder.unknown_ns += length_ns.saturating_sub(known_ns);
        if now.key.class.is_barrier() {
            self.over.push((thread, now.key.class, wait.shares));
        }
        let is_meant = now.key.class.is_lock() || now.key.class.is_barrier() && !self.has_tasks;
        if is_meant && object.longest.is_none_or(|one| one.to_ns - one.from_ns < length_ns) {
            object.longest = Some(wait);
            let chain = self.lately.chain(&wait, spans, history, |thread| self.going_on(thread, now_ns));
            self.objects.entry(now.key).or_default().chain = chain;
        }
        self.lately.add(&wait);
        if let Some(longest) = &mut self.longest {
            longest.push(length_ns, wait);
        }
        // Threads wait for work at a condition variable: that is told there.
        if now.key.class != Class::Cond {
            *self.threads.entry(thread).or_default() += length_ns;
        }
    }

    /// What the thread waits for still.
    fn going_on(&self, thread: u32, now_ns: u64) -> Option<Wait> {
        let now = self.waiting.get(&thread)?;
        let mut wait = Wait::of(thread, now, now_ns);
        self.objects.get(&now.key)?.name_holders(&mut wait);
        Some(wait)
    }

    fn cond_wait(&mut self, event: &Event, now: Now, history: &History) {
        let (thread, now_ns) = (event.thread, now.since_ns);
        self.end(thread, now_ns, Has::Nothing, history);
        let came = self.came.insert(thread, (now_ns, now_ns));
        let object = self.objects.entry(now.key).or_default();
        if event.number != 0 {
            let (came_ns, back_ns) = came.unwrap_or((now_ns, now_ns));
            let since = history.split(thread, back_ns, now_ns);
            if since.running_ns + since.unknown_ns < VAIN_NS {
                object.vain += 1;
                self.vain.push((thread, now_ns));
                object.vain_ns += history.split(thread, came_ns, now_ns).running_ns;
            }
        }
        self.waiting.insert(thread, now);
    }

    fn cond_back(&mut self, event: &Event, now_ns: u64, history: &History) {
        let Some(now) = self.waiting.get(&event.thread) else { return };
        if event.number != 0
            && let Some(object) = self.objects.get_mut(&now.key)
        {
            object.timeouts += 1;
        }
        if let Some((_, back_ns)) = self.came.get_mut(&event.thread) {
            *back_ns = now_ns;
        }
        self.end(event.thread, now_ns, Has::Nothing, history);
    }

    fn left(&mut self, thread: u32, now: Now, history: &History) {
        let is_there = self.waiting.get(&thread).is_some_and(|was| was.key == now.key);
        // Others may have come for the next round already.
        let is_first = is_there && !self.leaving.contains_key(&thread);
        if is_first && let Some(object) = self.objects.get_mut(&now.key) {
            let round = std::mem::take(&mut object.arrived);
            if self.has_tasks {
                object.rounds += 1;
                let shares = Shares::default();
                let leaving = |&(waiter, _): &(u32, u64)| (waiter, Leaving { last: 0, last_ns: 0, shares });
                self.leaving.extend(round.iter().map(leaving));
            } else if let Some(&(last, last_ns)) = round.last() {
                let mut shares = Shares::default();
                for &(waiter, from_ns) in &round {
                    let holder = history.split(last, from_ns, last_ns);
                    shares.holder.add(holder);
                    let own = Shares { holder, free_ns: 0 };
                    self.leaving.insert(waiter, Leaving { last, last_ns, shares: own });
                    if waiter != last {
                        let whom = Whom::Thread(last);
                        self.pieces.push(object.piece(now.key, from_ns, last_ns, 1, whom));
                    }
                }
                object.rounds += 1;
                object.shares.add(&shares);
                let entry = object.last.entry(last).or_default();
                entry.0 += 1;
                entry.1.add(&shares);
            }
        }
        self.end(thread, now.since_ns, Has::Nothing, history);
    }

    /// The thread is gone. It waits no more.
    pub fn exited(&mut self, thread: u32, now_ns: u64, history: &History) {
        self.now_ns = now_ns.max(self.now_ns);
        self.end(thread, self.now_ns, Has::Nothing, history);
        self.came.remove(&thread);
    }

    /// Nobody asks about what was before.
    pub fn forget(&mut self, before_ns: u64) {
        self.lately.forget(before_ns);
    }

    /// The threads that wait.
    pub fn waiting(&self) -> impl Iterator<Item = (u32, Now)> {
        self.waiting.iter().map(|(thread, now)| (*thread, *now))
    }

    /// Does somebody in that process wait at a lock or a barrier?
    pub fn is_waited(&self, process: u32) -> bool {
        let counts = |class: Class| class.is_lock() || class.is_barrier();
        self.waiting.values().any(|now| now.process == process && counts(now.key.class))
    }

    /// Does somebody wait so in any process?
    pub fn is_anybody_waited(&self) -> bool {
        self.waiting.values().any(|now| now.key.class.is_lock() || now.key.class.is_barrier())
    }

    /// For whom a thread waits at that.
    pub fn whom(&self, key: Key, thread: u32) -> Whom {
        match self.objects.get(&key) {
            Some(object) if key.class.is_lock() => object.holder,
            // It is over, and the thread has not noticed.
            Some(_) if self.leaving.contains_key(&thread) => Whom::Free,
            _ => Whom::Unknown,
        }
    }

    /// Where the thread waits.
    pub fn where_waits(&self, thread: u32) -> Option<(Class, u32)> {
        self.waiting.get(&thread).map(|now| (now.key.class, now.site))
    }

    /// Splits what there is up to this time, so that nobody asks again about what was before.
    pub fn settle(&mut self, now_ns: u64, history: &History) {
        self.now_ns = now_ns.max(self.now_ns);
        for now in self.waiting.values() {
            if let Some(object) = self.objects.get_mut(&now.key) {
                object.settle(self.now_ns, history, now.key, &mut self.pieces);
            }
        }
    }

    /// The recording ends. Whatever waits, waits until now.
    pub fn finish(&mut self, now_ns: u64, history: &History) {
        self.settle(now_ns, history);
        let waiting: Vec<u32> = self.waiting.keys().copied().collect();
        for thread in waiting {
            self.end(thread, self.now_ns, Has::Nothing, history);
        }
        for (key, object) in &mut self.objects {
            if key.class.can_be_sampled() {
                self.told = (self.told.0 + object.waits.count, self.told.1 + object.untold.count);
            }
            object.estimate();
        }
    }

    /// Waits that were only counted.
    pub fn untold(&mut self, untold: &Untold, image: u32, site: u32) {
        let key = Key { image, object: untold.object, class: untold.class };
        if self.objects.len() >= MOST_OBJECTS && !self.objects.contains_key(&key) {
            self.untold += untold.count;
            return;
        }
        let sum = Sum { count: untold.count, total_ns: untold.ns, longest_ns: 0 };
        let object = self.objects.entry(key).or_default();
        object.untold.add(&sum);
        object.sites.entry(site).or_default().add(&sum);
        *self.threads.entry(untold.thread).or_default() += untold.ns;
    }

    /// Since when somebody waits at a barrier or a lock: what the last one or the holder does since then is
    /// asked for when it comes, or when the wait is over. For a lock, since then at most.
    pub fn oldest_ns(&self, locks_ns: u64) -> Option<u64> {
        let since = |now: &Now| match now.key.class {
            class if class.is_barrier() => Some(now.since_ns),
            class if class.is_lock() => Some(now.since_ns.max(locks_ns)),
            _ => None,
        };
        self.waiting.values().filter_map(since).min()
    }
}

/// What the event gives its thread. What other processes do is unknown.
fn has(event: &Event) -> Has {
    match event.class {
        _ if event.shared => Has::Nothing,
        Class::Mutex | Class::Spin | Class::Critical => Has::Alone,
        Class::Rwlock if event.writer => Has::Alone,
        Class::Rwlock | Class::Semaphore => Has::Too,
        _ => Has::Nothing,
    }
}

impl Object {
    fn waited(&mut self, site: u32, length_ns: u64) {
        self.waits.one(length_ns);
        self.sites.entry(site).or_default().one(length_ns);
        let class = (u64::BITS - (length_ns / 1000).leading_zeros()) as usize;
        let count = &mut self.lengths[class.min(LENGTHS - 1)];
        *count = count.saturating_add(1);
    }

    /// What was only counted is taken to be like the rest.
    fn estimate(&mut self) {
        let (told, untold) = (self.waits, std::mem::take(&mut self.untold));
        if untold.count == 0 {
            return;
        }
        let parts = |part: u64, of: u64, all: u64| {
            (u128::from(part) * u128::from(all) / u128::from(of.max(1))) as u64
        };
        let mut more = self.shares.scaled(untold.total_ns, told.total_ns);
        more.holder.unknown_ns += untold.total_ns.saturating_sub(more.total_ns());
        self.shares.add(&more);
        let times = |count: u64| count + parts(count, told.count, untold.count);
        for count in &mut self.lengths {
            *count = u32::try_from(times((*count).into())).unwrap_or(u32::MAX);
        }
        self.rounds = times(self.rounds);
        for (rounds, shares) in self.last.values_mut() {
            *rounds = times(*rounds);
            shares.add(&shares.scaled(untold.total_ns, told.total_ns));
        }
        self.waits.add(&untold);
        self.estimated_ns = untold.total_ns;
    }

    fn first_comes_from(&mut self, site: u32) {
        if self.waits.count == 0 && self.waiters == 0 && self.arrived.is_empty() {
            self.first_site = site;
        }
    }

    fn piece(&self, key: Key, from_ns: u64, to_ns: u64, waiters: u64, whom: Whom) -> Piece {
        Piece { key, site: self.first_site, from_ns, to_ns, waiters, whom }
    }

    /// The lock's word names a holder, when somebody begins to wait: better than what was known before
    /// anybody waited.
    fn first_waiter_sees(&mut self, owner: u32) {
        if self.waiters == 0 {
            self.turns.first_waiter_comes(owner);
            self.holder = if owner == 0 { Whom::Unknown } else { Whom::Thread(owner) };
        } else if owner != 0 && self.holder == Whom::Unknown {
            self.holder = Whom::Thread(owner);
        }
    }

    /// Splits the time since the last event.
    fn settle(&mut self, now_ns: u64, history: &History, key: Key, pieces: &mut Vec<Piece>) {
        if self.waiters > 0 && now_ns > self.since_ns {
            let from_ns = self.since_ns;
            match self.holder {
                Whom::Thread(thread) => self.held(thread, from_ns, now_ns, self.waiters, history),
                Whom::Free => {
                    self.shares.free_ns += (now_ns - from_ns) * self.waiters;
                    self.for_one.free_ns += now_ns - from_ns;
                }
                Whom::Unknown => self.put_off(now_ns),
            }
            if self.holder != Whom::Unknown {
                pieces.push(self.piece(key, from_ns, now_ns, self.waiters, self.holder));
            }
        }
        self.since_ns = now_ns;
    }

    /// That thread had it, and so many waited.
    fn held(&mut self, thread: u32, from_ns: u64, to_ns: u64, waiters: u64, history: &History) {
        let split = history.split(thread, from_ns, to_ns);
        self.shares.holder.add(split.times(waiters));
        self.for_one.holder.add(split);
        match self.stretches.back_mut() {
            Some((last, _, end_ns)) if *last == thread && *end_ns == from_ns => *end_ns = to_ns,
            _ => {
                if self.stretches.len() >= MOST_STRETCHES {
                    self.stretches.pop_front();
                }
                self.stretches.push_back((thread, from_ns, to_ns));
            }
        }
    }

    /// Whom this wait was for, as far as it is kept.
    fn name_holders(&self, wait: &mut Wait) {
        let mut all: Vec<(u32, u64)> = Vec::new();
        for &(thread, from_ns, to_ns) in &self.stretches {
            let part_ns = to_ns.min(wait.to_ns).saturating_sub(from_ns.max(wait.from_ns));
            match all.iter_mut().find(|(known, _)| *known == thread) {
                Some((_, sum_ns)) => *sum_ns += part_ns,
                None if part_ns > 0 => all.push((thread, part_ns)),
                None => {}
            }
        }
        all.sort_by_key(|(_, part_ns)| std::cmp::Reverse(*part_ns));
        wait.whom.iter_mut().zip(all).for_each(|(to, one)| *to = one);
    }

    /// For how long a thread that is known had it, while somebody waited.
    pub fn inside_ns(&self) -> u64 {
        self.for_one.holder.total_ns()
    }

    /// Keeps the time since the last event until somebody says who held the lock.
    fn put_off(&mut self, now_ns: u64) {
        let is_full = self.pending.len() >= MOST_PENDING;
        match self.pending.last_mut() {
            Some(last) if last.1 == self.since_ns && last.2 == self.waiters => last.1 = now_ns,
            _ if is_full => self.shares.holder.unknown_ns += (now_ns - self.since_ns) * self.waiters,
            _ => self.pending.push((self.since_ns, now_ns, self.waiters)),
        }
    }

    /// Somebody has it now.
    fn taken(
        &mut self,
        (thread, has, hand): (u32, Has, Hand),
        history: &History,
        key: Key,
        pieces: &mut Vec<Piece>,
    ) {
        if has == Has::Nothing {
            return;
        }
        if self.waiters > 0 {
            self.turns.took(thread, has == Has::Alone, hand);
        }
        let left = std::mem::take(&mut self.is_left);
        // Another reader may come while those before are still inside.
        if has == Has::Alone || left {
            self.resolve(if left { Whom::Free } else { Whom::Unknown }, history, key, pieces);
        }
        self.holder = if has == Has::Alone { Whom::Thread(thread) } else { Whom::Unknown };
    }

    /// Somebody goes.
    fn released(&mut self, event: &Event, hand: Hand, history: &History, key: Key, pieces: &mut Vec<Piece>) {
        let is_reader = event.class == Class::Rwlock && self.holder != Whom::Thread(event.thread);
        if self.waiters > 0 && !is_reader && event.class.is_lock() {
            self.turns.released(event.thread, hand);
        }
        self.resolve(Whom::Thread(event.thread), history, key, pieces);
        self.is_left = is_reader;
        self.holder = if is_reader { Whom::Unknown } else { Whom::Free };
    }

    /// They have waited for that one all the time.
    fn resolve(&mut self, whom: Whom, history: &History, key: Key, pieces: &mut Vec<Piece>) {
        for (from_ns, to_ns, waiters) in std::mem::take(&mut self.pending) {
            let length_ns = to_ns - from_ns;
            match whom {
                Whom::Thread(thread) => self.held(thread, from_ns, to_ns, waiters, history),
                Whom::Free => {
                    self.shares.free_ns += length_ns * waiters;
                    self.for_one.free_ns += length_ns;
                }
                Whom::Unknown => self.shares.holder.unknown_ns += length_ns * waiters,
            }
            pieces.push(self.piece(key, from_ns, to_ns, waiters, whom));
        }
    }
}

#[cfg(test)]
mod tests;
