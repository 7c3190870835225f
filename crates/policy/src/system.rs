// SPDX-License-Identifier: MIT OR Apache-2.0
//! The partitions, and how events change them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::worth::{STEPS, Seen};
use crate::{Count, Demand, Id, Machine, Policy, place};

/// BOUND: requests. So often others are served before a request that waits for more than there is.
pub const PASSES: u32 = 8;

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An application asks, for the first time or for something else than before. Takes back its hint.
    Request(Id, Demand),
    /// It can spare so many of the processors that it holds, until it takes that back.
    Spare(Id, u32),
    /// It can use all that it asked for.
    WantBack(Id),
    /// If the server chooses, it may choose so many from now on. Its place in line stays, and its hint.
    Limit(Id, u32),
    /// They have used so many hundredths of a processor each on the average since this was said last, with as
    /// many processors as they hold. Where the server chooses, it chooses by that. All at once, so that none
    /// is given what another can spare who is looked at later.
    Used(Vec<(Id, u32)>),
    /// It is gone, or wants none any more.
    Exit(Id),
    /// A processor is there (again).
    Online(u32),
    /// A processor is not there any more: unplugged, or taken from all of us by somebody else.
    Offline(u32),
    /// Applications that hold processors already, or wait: found so by a server that has been started anew.
    /// All at once, so that none is given what another has.
    Adopt(Vec<Adopted>),
    /// Time has passed.
    Tick,
}

/// See [`Event::Adopt`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// The application.
    pub id: Id,
    /// What it had asked for.
    pub demand: Demand,
    /// What it holds.
    pub held: BTreeSet<u32>,
    /// Its hint: see [`Application::usable`].
    pub usable: Option<u32>,
}

/// Who has a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// The default partition.
    Default,
    /// The partition of an application.
    Application(Id),
    /// Nobody: it is not online.
    Nobody,
}

/// Why a processor moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// The default partition could do without.
    Free,
    /// Its application held more than it asked for.
    Surplus,
    /// Its application said that it can spare it, and somebody asked.
    Hint,
    /// Its application had had it for long enough, and a higher priority asked.
    Lease,
    /// Its application is gone.
    Exit,
    /// It is gone.
    Offline,
    /// It is there again.
    Online,
    /// The default partition would have had none.
    Floor,
    /// A server that was started anew found it so.
    Adopted,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::Free => "it was free",
            Self::Hint => "its holder could spare it",
            Self::Surplus => "its holder had more than it asked for",
            Self::Lease => "its holder's lease was over",
            Self::Exit => "its holder is gone",
            Self::Offline => "it went offline",
            Self::Online => "it came online",
            Self::Floor => "the default partition had none",
            Self::Adopted => "it was found so",
        })
    }
}

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Which processor.
    pub processor: u32,
    /// From whom.
    pub from: Owner,
    /// To whom.
    pub to: Owner,
    /// The reason.
    pub why: Why,
}

/// Why a request is not even considered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not 1 <= least <= wanted <= most.
    Disordered,
    /// More than the machine has beside the default partition; with what it has.
    TooMany(u32),
    /// No such application.
    Unknown,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Disordered => f.write_str("it must be that 1 <= least <= wanted <= most"),
            Self::TooMany(most) => write!(f, "applications can have {most} processors here at most"),
            Self::Unknown => f.write_str("it has not asked for processors"),
        }
    }
}

impl std::error::Error for Refusal {}

/// Why an application does not have what it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// How many it lacks of what it waits for: of its least, else of what it wants.
    pub lacks: u32,
    /// Requests that are served before it.
    pub behind: u32,
}

/// An application that asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// What it asked for.
    pub demand: Demand,
    /// The processors of its partition.
    pub held: BTreeSet<u32>,
    /// By its hint, it can use so many.
    pub usable: Option<u32>,
    /// When it was last given a processor.
    pub since: u64,
    /// What it made of those that it had.
    seen: Seen,
    arrived: u64,
    /// How often somebody behind it was served since it has waited.
    passed: u32,
}

impl Application {
    /// How many processors it holds.
    pub fn holds(&self) -> u32 {
        self.held.len() as u32
    }

    /// So many it may have where the server chooses, as far as its own use of them goes.
    fn worth(&self, most: u32, step: u32) -> u32 {
        most.min(self.seen.worth(step)).max(1)
    }
}

/// Least, wanted and most, as they are now.
struct Numbers {
    least: u32,
    wanted: u32,
    most: u32,
}

/// All partitions of a machine.
#[derive(Clone, Debug)]
pub struct System<P> {
    policy: P,
    machine: Machine,
    floor: u32,
    applications: BTreeMap<Id, Application>,
    /// In the order in which they are served.
    order: BTreeSet<(Reverse<u32>, u64, Id)>,
    /// Those that hold any.
    holders: BTreeSet<Id>,
    /// Of the default partition.
    default: BTreeSet<u32>,
    /// What [`Count::Choose`] gives at most, and how well it must be used: see [`Self::weigh`].
    share: u32,
    step: u32,
    arrivals: u64,
}

impl<P: Policy> System<P> {
    /// All online processors are in the default partition, which keeps at least `floor` of them, and at
    /// least one.
    pub fn new(machine: Machine, floor: u32, policy: P) -> Self {
        Self {
            default: machine.online().collect(),
            policy,
            machine,
            floor: floor.max(1),
            applications: BTreeMap::new(),
            order: BTreeSet::new(),
            holders: BTreeSet::new(),
            share: 0,
            step: 0,
            arrivals: 0,
        }
    }

    /// The processors.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// What the default partition keeps at least.
    pub fn floor(&self) -> u32 {
        self.floor
    }

    /// The default partition.
    pub fn default_partition(&self) -> &BTreeSet<u32> {
        &self.default
    }

    /// An application.
    pub fn application(&self, id: Id) -> Option<&Application> {
        self.applications.get(&id)
    }

    /// All of them.
    pub fn applications(&self) -> impl Iterator<Item = (Id, &Application)> {
        self.applications.iter().map(|(&id, application)| (id, application))
    }

    /// Does it lack something?
    pub fn waiting(&self, id: Id) -> Option<Waiting> {
        let application = self.applications.get(&id)?;
        let lacks = self.lacks(application);
        let key = Self::key(id, application);
        let before =
            self.order.range(..key).filter(|(_, _, other)| self.lacks(&self.applications[other]) > 0);
        (lacks > 0).then(|| Waiting { lacks, behind: before.count() as u32 })
    }

    /// When to [`Event::Tick`] next.
    pub fn due(&self) -> Option<u64> {
        let holders = self.holders.iter().map(|id| &self.applications[id]);
        holders.filter_map(|holder| self.policy.due(holder)).min()
    }

    /// What follows from an event at `now`, in the order in which it is to be done.
    ///
    /// # Errors
    /// A request that cannot be met ever; nothing has changed then.
    pub fn apply(&mut self, event: Event, now: u64) -> Result<Vec<Move>, Refusal> {
        let mut moves = Vec::new();
        match event {
            Event::Request(id, demand) => {
                self.check(demand.count)?;
                self.enter(id, demand, now);
            }
            Event::Adopt(all) => {
                for Adopted { id, demand, held, usable } in all {
                    self.enter(id, demand, now);
                    for processor in held {
                        if self.default.contains(&processor) {
                            let to = Owner::Application(id);
                            self.shift(processor, Owner::Default, to, Why::Adopted, now, &mut moves);
                        }
                    }
                    let application = self.applications.get_mut(&id).expect("it has entered");
                    application.usable = usable.filter(|_| !application.held.is_empty());
                }
            }
            Event::Spare(id, count) => {
                let application = self.applications.get_mut(&id).ok_or(Refusal::Unknown)?;
                // Who has nothing can spare nothing.
                if !application.held.is_empty() {
                    application.usable = Some(application.holds().saturating_sub(count).max(1));
                }
            }
            Event::WantBack(id) => {
                let application = self.applications.get_mut(&id).ok_or(Refusal::Unknown)?;
                (application.usable, application.seen) = (None, Seen::default());
            }
            Event::Limit(id, limit) => {
                let application = self.applications.get_mut(&id).ok_or(Refusal::Unknown)?;
                if let Count::Choose { most } = &mut application.demand.count {
                    *most = limit;
                }
            }
            Event::Used(all) => self.note(&all, now),
            Event::Exit(id) => {
                let gone = self.applications.get(&id).ok_or(Refusal::Unknown)?;
                for processor in gone.held.clone() {
                    self.shift(processor, Owner::Application(id), Owner::Default, Why::Exit, now, &mut moves);
                }
                self.leave(id);
            }
            Event::Online(processor) => {
                if self.machine.set_online(processor, true) {
                    self.shift(processor, Owner::Nobody, Owner::Default, Why::Online, now, &mut moves);
                }
            }
            Event::Offline(processor) => {
                if self.machine.set_online(processor, false) {
                    let owner = self.owner(processor);
                    self.shift(processor, owner, Owner::Nobody, Why::Offline, now, &mut moves);
                }
            }
            Event::Tick => {}
        }
        self.weigh();
        self.give_back(now, &mut moves);
        self.keep_the_floor(now, &mut moves);
        // Who lost its last processor has lost its hint.
        self.weigh();
        self.serve(now, &mut moves);
        Ok(moves)
    }

    fn note(&mut self, all: &[(Id, u32)], now: u64) {
        for (id, hundredths) in all {
            let Some(application) = self.applications.get_mut(id) else { continue };
            let holds = application.holds();
            // Who has said what it can use is believed.
            if holds > 0 && application.usable.is_none() {
                application.seen.note(holds, *hundredths, now);
            }
        }
    }

    /// Who has a processor.
    pub fn owner(&self, processor: u32) -> Owner {
        if self.default.contains(&processor) {
            return Owner::Default;
        }
        let holder = self.holders.iter().find(|id| self.applications[id].held.contains(&processor));
        holder.map_or(Owner::Nobody, |&id| Owner::Application(id))
    }

    fn check(&self, count: Count) -> Result<(), Refusal> {
        let Count::Numbers { least, wanted, most } = count else { return Ok(()) };
        if !(1 <= least && least <= wanted && wanted <= most) {
            return Err(Refusal::Disordered);
        }
        let there = self.machine.count().saturating_sub(self.floor);
        if least > there { Err(Refusal::TooMany(there)) } else { Ok(()) }
    }

    fn key(id: Id, application: &Application) -> (Reverse<u32>, u64, Id) {
        (Reverse(application.demand.priority), application.arrived, id)
    }

    /// Takes an application up, or its new demand, behind the others of its priority.
    fn enter(&mut self, id: Id, demand: Demand, now: u64) {
        let held = self.leave(id);
        self.arrivals += 1;
        if !held.is_empty() {
            self.holders.insert(id);
        }
        let (arrived, seen) = (self.arrivals, Seen::default());
        let application = Application { demand, held, usable: None, since: now, seen, arrived, passed: 0 };
        self.order.insert(Self::key(id, &application));
        self.applications.insert(id, application);
    }

    /// Forgets it; what it held.
    fn leave(&mut self, id: Id) -> BTreeSet<u32> {
        let Some(application) = self.applications.remove(&id) else { return BTreeSet::new() };
        self.order.remove(&Self::key(id, &application));
        self.holders.remove(&id);
        application.held
    }

    fn shift(&mut self, processor: u32, from: Owner, to: Owner, why: Why, now: u64, moves: &mut Vec<Move>) {
        match from {
            Owner::Default => {
                self.default.remove(&processor);
            }
            Owner::Application(id) => {
                let application = self.applications.get_mut(&id).expect("it holds a processor");
                application.held.remove(&processor);
                if application.held.is_empty() {
                    // The hint was about what it no longer has.
                    application.usable = None;
                    self.holders.remove(&id);
                }
            }
            Owner::Nobody => {}
        }
        match to {
            Owner::Default => {
                self.default.insert(processor);
            }
            Owner::Application(id) => {
                let application = self.applications.get_mut(&id).expect("it is given a processor");
                application.held.insert(processor);
                (application.since, application.passed) = (now, 0);
                self.holders.insert(id);
            }
            Owner::Nobody => {}
        }
        moves.push(Move { processor, from, to, why });
    }

    /// What all applications together can have now.
    fn capacity(&self) -> u32 {
        (self.machine.online().count() as u32).saturating_sub(self.floor)
    }

    /// The equal share of those who let the server choose. Who can use less, or is not worth more, leaves the
    /// rest to the others: it is the level to which water rises that is poured into vessels of these sizes.
    /// If all are full and some is left, they are worth more.
    fn weigh(&mut self) {
        for step in STEPS {
            let size = |application: &Application| {
                let asked = match application.demand.count {
                    Count::Numbers { wanted, .. } => wanted,
                    Count::Choose { most } => application.worth(most, step),
                };
                asked.min(application.usable.unwrap_or(u32::MAX))
            };
            let mut sizes: Vec<_> = self.applications.values().map(size).collect();
            sizes.sort_unstable();
            let (mut left, mut others) = (self.capacity(), sizes.len() as u32);
            (self.share, self.step) = (left, step);
            for size in sizes {
                self.share = left / others;
                if size > self.share {
                    return;
                }
                (left, others) = (left - size, others - 1);
            }
            if left == 0 {
                return;
            }
        }
    }

    fn numbers(&self, application: &Application) -> Numbers {
        let capacity = self.capacity();
        match application.demand.count {
            Count::Numbers { least, wanted, most } => Numbers {
                least,
                wanted: wanted.min(capacity).max(least),
                most: most.min(capacity).max(least),
            },
            Count::Choose { most } => {
                let wanted = self.share.min(application.worth(most, self.step)).max(1);
                Numbers { least: 1, wanted, most: capacity.min(most).max(1) }
            }
        }
    }

    /// What it waits for, less what it has: the least first. A hint takes a wish back.
    fn lacks(&self, application: &Application) -> u32 {
        let Numbers { least, wanted, .. } = self.numbers(application);
        let holds = application.holds();
        if holds == 0 {
            return least;
        }
        let usable = application.usable.unwrap_or(u32::MAX);
        let target = if holds < least.min(usable) { least } else { wanted };
        target.min(usable).saturating_sub(holds)
    }

    /// How many processors a holder gives to one who asks, by reason, the best one first.
    fn gives(&self, holder: &Application, asker: &Application, now: u64) -> [(Why, u32); 3] {
        let holds = holder.holds();
        let surplus = holds.saturating_sub(self.numbers(holder).wanted);
        let spare = holds.saturating_sub(holder.usable.unwrap_or(u32::MAX)).max(surplus);
        let claim = self.policy.claim(holder, asker, now).max(spare);
        [(Why::Surplus, surplus), (Why::Hint, spare - surplus), (Why::Lease, claim - spare)]
    }

    /// Rule 1: if need be at the cost of the lowest priority.
    fn keep_the_floor(&mut self, now: u64, moves: &mut Vec<Move>) {
        while (self.default.len() as u32) < self.floor {
            let willing = |id: &Id| {
                let holder = &self.applications[id];
                let excess =
                    holder.holds() > self.numbers(holder).wanted.min(holder.usable.unwrap_or(u32::MAX));
                // Rather the second processor of one than the only one of another.
                (!excess, holder.holds() == 1, Reverse(Self::key(*id, holder)))
            };
            let Some(&id) = self.holders.iter().min_by_key(|id| willing(id)) else { return };
            let processor = place::best(&self.machine, &self.applications[&id].held, &self.default, 1);
            let Some(processor) = processor else { return };
            self.shift(processor, Owner::Application(id), Owner::Default, Why::Floor, now, moves);
        }
    }

    /// An application gives back what it holds beyond the most that it asked for.
    fn give_back(&mut self, now: u64, moves: &mut Vec<Move>) {
        for id in self.holders.clone() {
            while let application = &self.applications[&id]
                && application.holds() > self.numbers(application).most
                && let Some(processor) = place::best(&self.machine, &application.held, &self.default, 1)
            {
                self.shift(processor, Owner::Application(id), Owner::Default, Why::Surplus, now, moves);
            }
        }
    }

    /// Rules 2 to 7: gives out what can be given out.
    fn serve(&mut self, now: u64, moves: &mut Vec<Move>) {
        let (mut after, mut passed) = (None, Vec::new());
        while let Some(&key) = self.next(after) {
            after = Some(key);
            let id = key.2;
            let application = &self.applications[&id];
            let (lacks, least) = (self.lacks(application), self.numbers(application).least);
            if lacks == 0 || least > self.capacity() && application.held.is_empty() {
                continue;
            }
            let missing = match application.holds() {
                0 => least,
                holds => least.min(application.usable.unwrap_or(u32::MAX)).saturating_sub(holds),
            };
            let sources = self.sources(id, now);
            let all: u32 = sources.iter().map(|&(.., count)| count).sum();
            if all < missing.max(1) {
                // Nobody behind it is given more than it is; nor anything, once that is kept for it.
                if all == 0 || application.passed >= PASSES {
                    return;
                }
                passed.push(id);
                continue;
            }
            for (owner, why, count) in sources {
                for _ in 0..count {
                    let lacks = self.lacks(&self.applications[&id]);
                    if lacks == 0 {
                        break;
                    }
                    let pool = match owner {
                        Owner::Application(from) => &self.applications[&from].held,
                        _ => &self.default,
                    };
                    let Some(processor) =
                        place::best(&self.machine, pool, &self.applications[&id].held, lacks)
                    else {
                        break;
                    };
                    self.shift(processor, owner, Owner::Application(id), why, now, moves);
                }
            }
            for first in &passed {
                self.applications.get_mut(first).expect("it waits").passed += 1;
            }
            let kept = |first: &Id| self.applications[first].passed >= PASSES;
            if self.lacks(&self.applications[&id]) > 0 || passed.iter().any(kept) {
                return;
            }
        }
        if passed.is_empty() {
            self.give_more(now, moves);
        }
    }

    fn next(&self, after: Option<(Reverse<u32>, u64, Id)>) -> Option<&(Reverse<u32>, u64, Id)> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.order.range((after.map_or(Unbounded, Excluded), Unbounded)).next()
    }

    /// From whom one may have how many, best first.
    fn sources(&self, asker: Id, now: u64) -> Vec<(Owner, Why, u32)> {
        let free = (self.default.len() as u32).saturating_sub(self.floor);
        let mut holders: Vec<_> = self
            .holders
            .iter()
            .filter(|&&id| id != asker)
            .flat_map(|&id| {
                let holder = &self.applications[&id];
                let gives = self.gives(holder, &self.applications[&asker], now);
                gives.map(|(why, count)| (why, Reverse(Self::key(id, holder)), id, count))
            })
            .filter(|&(.., count)| count > 0)
            .collect();
        holders.sort_unstable();
        let mut sources = vec![(Owner::Default, Why::Free, free)];
        sources.extend(holders.into_iter().map(|(why, _, id, count)| (Owner::Application(id), why, count)));
        sources
    }

    /// Beyond what is wanted, one each in turns, while nobody waits.
    fn give_more(&mut self, now: u64, moves: &mut Vec<Move>) {
        let mut any = true;
        while std::mem::take(&mut any) {
            let mut ids: Vec<_> =
                self.holders.iter().map(|&id| Self::key(id, &self.applications[&id])).collect();
            ids.sort_unstable();
            for (.., id) in ids {
                let application = &self.applications[&id];
                if self.default.len() as u32 > self.floor
                    && application.usable.is_none()
                    && application.holds() < self.numbers(application).most
                    && let Some(processor) = place::best(&self.machine, &self.default, &application.held, 1)
                {
                    self.shift(processor, Owner::Default, Owner::Application(id), Why::Free, now, moves);
                    any = true;
                }
            }
        }
    }
}
