// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules of the crate's documentation over random machines and histories, judged by a model that knows
//! of the policy only what it was told and what it decided; and twins of the policy, each with one fault,
//! that must be found out.

use std::collections::{BTreeMap, BTreeSet};

use policy::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};

/// Something that decides.
trait Subject {
    fn apply(&mut self, event: &Event, now: u64) -> Result<Vec<Move>, Refusal>;
}

impl<P: Policy> Subject for System<P> {
    fn apply(&mut self, event: &Event, now: u64) -> Result<Vec<Move>, Refusal> {
        System::apply(self, event.clone(), now)
    }
}

#[derive(Clone, Debug)]
struct Model {
    machine: BTreeMap<u32, Processor>,
    floor: u32,
    /// Under a lease of this length.
    lease: Option<u64>,
    owner: BTreeMap<u32, Owner>,
    applications: BTreeMap<Id, Known>,
    arrivals: u64,
}

#[derive(Clone, Debug)]
struct Known {
    demand: Demand,
    usable: Option<u32>,
    arrived: u64,
    since: u64,
    /// How often somebody behind it was served while it waited.
    passed: u32,
    seen: Seen,
}

type Verdict = Result<(), &'static str>;

fn holds_if(holds: bool, rule: &'static str) -> Verdict {
    if holds { Ok(()) } else { Err(rule) }
}

impl Model {
    fn new(machine: &Machine, floor: u32, lease: Option<u64>) -> Self {
        let machine: BTreeMap<_, _> =
            machine.iter().map(|(number, processor)| (number, *processor)).collect();
        let first = |processor: &Processor| if processor.online { Owner::Default } else { Owner::Nobody };
        let owner = machine.iter().map(|(&number, processor)| (number, first(processor))).collect();
        Self { machine, floor, lease, owner, applications: BTreeMap::new(), arrivals: 0 }
    }

    fn held(&self, owner: Owner) -> u32 {
        self.owner.values().filter(|&&other| other == owner).count() as u32
    }

    fn holds(&self, id: Id) -> u32 {
        self.held(Owner::Application(id))
    }

    fn capacity(&self) -> u32 {
        (self.machine.values().filter(|processor| processor.online).count() as u32).saturating_sub(self.floor)
    }

    fn least(&self, id: Id) -> u32 {
        match self.applications[&id].demand.count {
            Count::Numbers { least, .. } => least,
            Count::Choose { .. } => 1,
        }
    }

    fn most(&self, id: Id) -> u32 {
        match self.applications[&id].demand.count {
            Count::Numbers { most, .. } => most,
            Count::Choose { most } => most,
        }
    }

    fn wanted(&self, id: Id) -> u32 {
        match self.applications[&id].demand.count {
            Count::Numbers { least, wanted, .. } => wanted.min(self.capacity()).max(least),
            Count::Choose { most } => {
                let worth = self.applications[&id].seen.worth(self.step());
                self.share().min(most).min(worth).max(1)
            }
        }
    }

    /// What one can use, as far as it says so, or was seen to.
    fn size(&self, known: &Known, step: u32) -> u32 {
        let asked = match known.demand.count {
            Count::Numbers { wanted, .. } => wanted,
            Count::Choose { most } => most.min(known.seen.worth(step)),
        };
        asked.min(known.usable.unwrap_or(u32::MAX)).min(self.capacity())
    }

    fn taken(&self, level: u32, step: u32) -> u32 {
        self.applications.values().map(|known| self.size(known, step).min(level)).sum()
    }

    /// How well processors must be used, so that all are.
    fn step(&self) -> u32 {
        let capacity = self.capacity();
        STEPS.into_iter().find(|&step| self.taken(capacity, step) >= capacity).unwrap_or(0)
    }

    /// The most that everybody can have who does not say that it can use less: found by trying.
    fn share(&self) -> u32 {
        let (capacity, step) = (self.capacity(), self.step());
        if self.taken(capacity, step) <= capacity {
            // All have what they can use; one may say that it can use more after all.
            let sizes = self.applications.values().map(|known| self.size(known, step));
            return capacity + sizes.max().unwrap_or(0) - self.taken(capacity, step);
        }
        (0..=capacity).take_while(|&level| self.taken(level, step) <= capacity).last().unwrap_or(0)
    }

    /// What it holds beyond its hint.
    fn spare(&self, id: Id) -> u32 {
        self.applications[&id].usable.map_or(0, |usable| self.holds(id).saturating_sub(usable))
    }

    fn surplus(&self, id: Id) -> u32 {
        self.holds(id).saturating_sub(self.wanted(id))
    }

    /// How many it must be given for its wait to go on to the next step: all of its least, else one. 0: it
    /// does not wait.
    fn next(&self, id: Id) -> u32 {
        let usable = self.applications[&id].usable.unwrap_or(u32::MAX);
        match self.holds(id) {
            0 => self.least(id),
            holds if holds >= self.wanted(id).min(usable) => 0,
            holds => self.least(id).min(usable).saturating_sub(holds).max(1),
        }
    }

    /// Waits, and not for more than there can be now.
    fn waits(&self, id: Id) -> bool {
        self.next(id) > 0 && (self.holds(id) > 0 || self.least(id) <= self.capacity())
    }

    fn before(&self, a: Id, b: Id) -> bool {
        let key = |id: Id| {
            let known = &self.applications[&id];
            (std::cmp::Reverse(known.demand.priority), known.arrived)
        };
        key(a) < key(b)
    }

    fn lease_is_over(&self, holder: Id, asker: Id, now: u64) -> bool {
        let (holder, asker) = (&self.applications[&holder], &self.applications[&asker]);
        self.lease.is_some_and(|length| now >= holder.since + length)
            && asker.demand.priority > holder.demand.priority
    }

    /// Is there enough for its next step?
    fn could(&self, id: Id, now: u64) -> bool {
        let free = self.held(Owner::Default).saturating_sub(self.floor);
        let others = self.applications.keys().filter(|&&other| other != id);
        let given = others.map(|&other| {
            let claim =
                if self.lease_is_over(other, id, now) { self.holds(other).saturating_sub(1) } else { 0 };
            self.spare(other).max(self.surplus(other)).max(claim)
        });
        free + given.sum::<u32>() >= self.next(id)
    }

    fn note(&mut self, all: &[(Id, u32)], now: u64) {
        for (id, hundredths) in all {
            let holds = self.holds(*id);
            let told = |known: &&mut Known| holds > 0 && known.usable.is_none();
            if let Some(known) = self.applications.get_mut(id).filter(told) {
                known.seen.note(holds, *hundredths, now);
            }
        }
    }

    /// What the event itself says. Who is new, and who is to go.
    fn take_in(&mut self, event: &Event, now: u64) -> (Option<Id>, Option<Id>) {
        let mut gone = None;
        let mut enter = |id: Id, demand, usable| {
            self.arrivals += 1;
            self.applications.insert(
                id,
                Known {
                    demand,
                    usable,
                    arrived: self.arrivals,
                    since: now,
                    passed: 0,
                    seen: Seen::default(),
                },
            );
        };
        let fresh = match event {
            Event::Request(id, demand) => {
                enter(*id, *demand, None);
                Some(*id)
            }
            Event::Adopt(all) => {
                all.iter().for_each(|one| enter(one.id, one.demand, one.usable));
                None
            }
            Event::Spare(id, count) => {
                let usable = self.holds(*id).saturating_sub(*count).max(1);
                if self.holds(*id) > 0 {
                    self.applications.get_mut(id).unwrap().usable = Some(usable);
                }
                None
            }
            Event::WantBack(id) => {
                let known = self.applications.get_mut(id).unwrap();
                (known.usable, known.seen) = (None, Seen::default());
                None
            }
            Event::Limit(id, limit) => {
                if let Count::Choose { most } = &mut self.applications.get_mut(id).unwrap().demand.count {
                    *most = *limit;
                }
                None
            }
            Event::Used(all) => {
                self.note(all, now);
                None
            }
            Event::Exit(id) => {
                gone = Some(*id);
                None
            }
            Event::Online(processor) => {
                self.machine.get_mut(processor).unwrap().online = true;
                None
            }
            Event::Offline(processor) => {
                self.machine.get_mut(processor).unwrap().online = false;
                None
            }
            Event::Tick => None,
        };
        (fresh, gone)
    }

    /// Takes an event in, then each move, and says which rule was broken.
    fn judge(&mut self, event: &Event, moves: &[Move], now: u64) -> Verdict {
        let (fresh, gone) = self.take_in(event, now);
        let (mut gained, mut lost) = (BTreeSet::new(), BTreeSet::new());
        let held_before: BTreeMap<_, _> = self.applications.keys().map(|&id| (id, self.holds(id))).collect();
        let mut first_gain = BTreeSet::new();
        let mut more = false;
        for &Move { processor, from, to, why } in moves {
            holds_if(self.owner.get(&processor) == Some(&from) && from != to, "truth")?;
            if let Some(id) = gone
                && why != Why::Exit
            {
                holds_if(self.holds(id) == 0, "truth")?;
                self.applications.remove(&id);
            }
            if let Owner::Application(id) = to {
                holds_if(self.applications.contains_key(&id) && gone != Some(id), "truth")?;
                if why == Why::Adopted {
                    // Nobody is given what another has.
                    holds_if(gained.is_empty(), "adoption")?;
                } else {
                    gained.insert(id);
                    // Beyond what it wants only if nobody waits.
                    let waits = self.waits(id);
                    more |= !waits;
                    holds_if(why == Why::Free || waits, "few moves")?;
                    holds_if(waits || !self.applications.keys().any(|&other| self.waits(other)), "priority")?;
                    if first_gain.insert(id) {
                        // The applications before it could not have had it.
                        let able =
                            |other: Id| self.before(other, id) && self.waits(other) && self.could(other, now);
                        holds_if(!self.applications.keys().any(|&other| able(other)), "priority")?;
                    }
                }
            }
            if let Owner::Application(id) = from {
                // What is gone may be made good.
                if gone != Some(id) && why != Why::Offline {
                    lost.insert(id);
                }
                let justified = match why {
                    Why::Exit => gone == Some(id),
                    Why::Offline => matches!(event, Event::Offline(which) if *which == processor),
                    Why::Floor => self.held(Owner::Default) < self.floor && to == Owner::Default,
                    Why::Hint => self.spare(id) > 0,
                    Why::Surplus => self.surplus(id) > 0,
                    Why::Lease => {
                        matches!(to, Owner::Application(asker) if self.lease_is_over(id, asker, now))
                    }
                    Why::Free | Why::Online | Why::Adopted => false,
                };
                holds_if(justified, "semi-dynamic")?;
                // To the default partition goes only what nobody may keep.
                let due = match why {
                    Why::Hint | Why::Lease => false,
                    Why::Surplus => self.holds(id) > self.most(id).min(self.capacity()).max(self.least(id)),
                    _ => true,
                };
                holds_if(to != Owner::Default || due, "a hint costs nothing")?;
            }
            self.owner.insert(processor, to);
            if let Owner::Application(id) = from
                && self.holds(id) == 0
                && let Some(known) = self.applications.get_mut(&id)
            {
                known.usable = None;
            }
            if let Owner::Application(id) = to {
                let known = self.applications.get_mut(&id).unwrap();
                (known.since, known.passed) = (now, 0);
            }
        }
        if let Some(id) = gone {
            holds_if(self.holds(id) == 0, "truth")?;
            self.applications.remove(&id);
        }
        for (number, processor) in &self.machine {
            holds_if(processor.online == (self.owner[number] != Owner::Nobody), "truth")?;
        }
        let online = self.machine.values().filter(|processor| processor.online).count() as u32;
        holds_if(self.held(Owner::Default) >= self.floor.min(online), "floor")?;
        holds_if(gained.is_disjoint(&lost), "few moves")?;
        for &id in &gained {
            let ahead = self
                .applications
                .keys()
                .copied()
                .filter(|&other| self.before(other, id) && self.waits(other));
            for other in ahead.collect::<Vec<_>>() {
                let passed = &mut self.applications.get_mut(&other).unwrap().passed;
                *passed += 1;
                holds_if(*passed <= PASSES, "priority")?;
            }
            let had = held_before.get(&id).copied().unwrap_or(0);
            holds_if(
                had > 0 && fresh != Some(id) || self.holds(id) >= self.least(id).min(self.capacity()),
                "least and most",
            )?;
            holds_if(self.holds(id) <= self.most(id), "least and most")?;
        }
        let mut waiting: Vec<_> = self.applications.keys().copied().filter(|&id| self.waits(id)).collect();
        waiting.sort_by_key(|&id| {
            (std::cmp::Reverse(self.applications[&id].demand.priority), self.applications[&id].arrived)
        });
        holds_if(!more || waiting.is_empty(), "priority")?;
        for waiter in waiting {
            holds_if(!self.could(waiter, now), "no waiting without need")?;
            if self.applications[&waiter].passed >= PASSES {
                break;
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
struct History {
    machine: Machine,
    floor: u32,
    events: Vec<(u64, Event)>,
}

fn machines() -> impl Strategy<Value = Machine> {
    // By node, by core: how many processors.
    prop::collection::vec(prop::collection::vec(1u32..=3, 1..=3), 1..=3).prop_map(|nodes| {
        let mut processors = Vec::new();
        let mut core = 0;
        for (node, cores) in (0..).zip(nodes) {
            for threads in cores {
                processors.extend((0..threads).map(|_| Processor { core, node, online: true }));
                core += 1;
            }
        }
        // Numbered as some firmware does, siblings apart.
        processors.rotate_left(1);
        (0..).zip(processors).collect()
    })
}

fn limits() -> impl Strategy<Value = u32> {
    prop_oneof![1u32..=4, Just(u32::MAX)]
}

fn demands() -> impl Strategy<Value = Demand> {
    let numbers = (1u32..=4, 0u32..=4, 0u32..=4).prop_map(|(least, more, beyond)| Count::Numbers {
        least,
        wanted: least + more,
        most: least + more + beyond,
    });
    (0u32..=3, prop_oneof![2 => numbers, 1 => limits().prop_map(|most| Count::Choose { most })])
        .prop_map(|(priority, count)| Demand { priority, count })
}

fn histories() -> impl Strategy<Value = History> {
    let id = 0u64..5;
    let event = prop_oneof![
        6 => (id.clone(), demands()).prop_map(|(id, demand)| Event::Request(id, demand)),
        3 => (id.clone(), 0u32..4).prop_map(|(id, count)| Event::Spare(id, count)),
        2 => id.clone().prop_map(Event::WantBack),
        1 => (id.clone(), limits()).prop_map(|(id, most)| Event::Limit(id, most)),
        3 => prop::collection::vec((id.clone(), 0u32..500), 1..4).prop_map(Event::Used),
        3 => id.clone().prop_map(Event::Exit),
        1 => (0u32..12).prop_map(Event::Online),
        1 => (0u32..12).prop_map(Event::Offline),
        1 => prop::collection::vec((id, demands(), prop::collection::btree_set(0u32..12, 0..4)), 1..3).prop_map(|all| {
            let one = |(id, demand, held)| Adopted { id, demand, held, usable: None };
            Event::Adopt(all.into_iter().map(one).collect())
        }),
        1 => Just(Event::Tick),
    ];
    (machines(), 1u32..=2, prop::collection::vec((0u64..20, event), 1..40))
        .prop_map(|(machine, floor, events)| History { machine, floor, events })
}

/// Lives the history through. Events that make no sense at their time are left out.
fn live(history: &History, lease: Option<u64>, subject: &mut dyn Subject) -> Verdict {
    let mut model = Model::new(&history.machine, history.floor, lease);
    let mut now = 0;
    for (passed, event) in &history.events {
        now += passed;
        let known = |id: &Id| model.applications.contains_key(id);
        let sense = match event {
            Event::Spare(id, _) | Event::WantBack(id) | Event::Limit(id, _) | Event::Exit(id) => known(id),
            Event::Online(processor) => {
                model.machine.get(processor).is_some_and(|processor| !processor.online)
            }
            Event::Offline(processor) => {
                model.machine.get(processor).is_some_and(|processor| processor.online)
            }
            Event::Adopt(all) => {
                !all.iter().any(|one| known(&one.id))
                    && all.iter().map(|one| one.id).collect::<BTreeSet<_>>().len() == all.len()
            }
            Event::Request(..) | Event::Used(_) | Event::Tick => true,
        };
        if !sense {
            continue;
        }
        let impossible = matches!(event, Event::Request(_, demand)
            if matches!(demand.count, Count::Numbers { least, .. } if least > (model.machine.len() as u32).saturating_sub(model.floor)));
        match subject.apply(event, now) {
            Ok(moves) => {
                holds_if(!impossible, "refusal")?;
                model.judge(event, &moves, now)?;
            }
            Err(_) => holds_if(impossible, "refusal")?,
        }
    }
    Ok(())
}

const LEASE: u64 = 30;

fn numbers(priority: u32, least: u32) -> Demand {
    Demand { priority, count: Count::Numbers { least, wanted: least, most: least } }
}

/// Of 8 processors 1 is kept and 4 are held: who wants 6 waits, and others have the 3 meanwhile, but not
/// for ever.
#[test]
fn who_waits_for_much_holds_up_others_only_in_the_end() {
    let machine = || (0..8).map(|core| (core, Processor { core, node: 0, online: true })).collect();
    let mut system = System::new(machine(), 1, SemiDynamic);
    let mut ask = |event| system.apply(event, 0).unwrap().len() as u32;
    assert_eq!(ask(Event::Request(1, numbers(0, 4))), 4);
    assert_eq!(ask(Event::Request(2, numbers(9, 6))), 0);
    for round in 0..PASSES + 3 {
        let given = ask(Event::Request(3, numbers(0, 1)));
        assert_eq!(given, u32::from(round < PASSES), "the {round}th is behind the one that waits");
        ask(Event::Exit(3));
    }
    // What is given back is kept for it now, and it has it all at once.
    assert_eq!(ask(Event::Exit(1)), 4 + 6);
}

proptest! {
    #![proptest_config(Config { cases: if std::env::var_os("WAKEFUL_LONG").is_some() { 100_000 } else { 2_000 }, failure_persistence: None, ..Config::default() })]

    #[test]
    fn the_papers_rules_hold(history in histories()) {
        let mut system = System::new(history.machine.clone(), history.floor, SemiDynamic);
        prop_assert_eq!(live(&history, None, &mut system), Ok(()));
    }

    #[test]
    fn they_hold_with_leases_but_for_these(history in histories()) {
        let mut system = System::new(history.machine.clone(), history.floor, Lease { length: LEASE });
        prop_assert_eq!(live(&history, Some(LEASE), &mut system), Ok(()));
    }

    /// Rule 6, on a machine with nobody else.
    #[test]
    fn a_grant_has_few_nodes_and_breaks_one_core(machine in machines(), count in 1u32..12) {
        if count < machine.count() {
            let mut system = System::new(machine.clone(), 1, SemiDynamic);
            prop_assert_eq!(near(&machine, count, &mut system), Ok(()));
        }
    }
}

/// Is the first grant in as few nodes as can be, and at most one core divided?
fn near(machine: &Machine, count: u32, subject: &mut dyn Subject) -> Verdict {
    let exactly = Count::Numbers { least: count, wanted: count, most: count };
    let moves = subject.apply(&Event::Request(1, Demand { priority: 0, count: exactly }), 0).unwrap();
    let mine: BTreeSet<u32> = moves.iter().map(|step| step.processor).collect();
    let by = |of: &dyn Fn(u32) -> u32, numbers: &mut dyn Iterator<Item = u32>| {
        numbers.fold(BTreeMap::<u32, u32>::new(), |mut counts, number| {
            *counts.entry(of(number)).or_default() += 1;
            counts
        })
    };
    let core = |number: u32| machine.get(number).unwrap().core;
    let node = |number: u32| machine.get(number).unwrap().node;
    let mut sizes: Vec<u32> = by(&node, &mut machine.online()).into_values().collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let mut enough = 0;
    let fewest = 1 + sizes
        .iter()
        .take_while(|&&size| {
            enough += size;
            enough < count
        })
        .count();
    holds_if(by(&node, &mut mine.iter().copied()).len() == fewest, "near")?;
    let all = by(&core, &mut machine.online());
    let ours = by(&core, &mut mine.iter().copied());
    let broken = ours.iter().filter(|&(core, &count)| count < all[core]).count();
    holds_if(broken <= fewest, "near")
}

/// A policy with a fault: what it changes on the way in and on the way out.
struct Twin<I, O> {
    system: System<SemiDynamic>,
    tell: I,
    decide: O,
}

impl<I: FnMut(&Event) -> Event, O: FnMut(&System<SemiDynamic>, &Event, Vec<Move>) -> Vec<Move>> Subject
    for Twin<I, O>
{
    fn apply(&mut self, event: &Event, now: u64) -> Result<Vec<Move>, Refusal> {
        let moves = System::apply(&mut self.system, (self.tell)(event), now)?;
        Ok((self.decide)(&self.system, event, moves))
    }
}

fn found_out(
    rule: &'static str,
    tell: impl FnMut(&Event) -> Event + Clone,
    decide: impl FnMut(&System<SemiDynamic>, &Event, Vec<Move>) -> Vec<Move> + Clone,
) {
    let mut runner = TestRunner::deterministic();
    let mut found = BTreeSet::new();
    for _ in 0..2_000 {
        let history = histories().new_tree(&mut runner).unwrap().current();
        let system = System::new(history.machine.clone(), history.floor, SemiDynamic);
        let mut twin = Twin { system, tell: tell.clone(), decide: decide.clone() };
        match live(&history, None, &mut twin) {
            Err(broken) if broken == rule => return,
            Err(broken) => drop(found.insert(broken)),
            Ok(()) => {}
        }
    }
    panic!("nobody found that it breaks the rule {rule:?}, but {found:?}");
}

fn unchanged(_: &System<SemiDynamic>, _: &Event, moves: Vec<Move>) -> Vec<Move> {
    moves
}

fn holder(system: &System<SemiDynamic>, which: impl Fn(&Application) -> bool) -> Option<(Id, u32)> {
    let holder =
        system.applications().find(|(_, application)| !application.held.is_empty() && which(application))?;
    Some((holder.0, *holder.1.held.first().unwrap()))
}

#[test]
fn twin_that_gives_away_the_last_processor() {
    found_out("floor", Event::clone, |system, _, mut moves| {
        let gainer = moves.iter().rev().find(|step| step.why == Why::Free).map(|step| step.to);
        if let (Some(to), Some(&processor)) = (gainer, system.default_partition().first())
            && matches!(to, Owner::Application(id) if system.waiting(id).is_some())
        {
            moves.push(Move { processor, from: Owner::Default, to, why: Why::Free });
        }
        moves
    });
}

#[test]
fn twin_that_takes_without_a_hint() {
    found_out("semi-dynamic", Event::clone, |system, _, mut moves| {
        let waits = system.applications().map(|(id, _)| id).find(|&id| system.waiting(id).is_some());
        if let (Some(to), Some((from, processor))) = (waits, holder(system, |holder| holder.usable.is_none()))
            && to != from
        {
            let (from, to) = (Owner::Application(from), Owner::Application(to));
            moves.push(Move { processor, from, to, why: Why::Hint });
        }
        moves
    });
}

#[test]
fn twin_that_takes_at_once_what_is_hinted() {
    found_out("a hint costs nothing", Event::clone, |system, event, mut moves| {
        if let Event::Spare(id, 1..) = event
            && let Some(application) = system.application(*id)
            && application.holds() > 1
        {
            let processor = *application.held.first().unwrap();
            moves.push(Move { processor, from: Owner::Application(*id), to: Owner::Default, why: Why::Hint });
        }
        moves
    });
}

/// Two that let the server choose: what one can spare is the other's, as long as it can be spared.
#[test]
fn what_one_cannot_use_is_the_others_share() {
    let processors = (0..9).map(|number| (number, Processor { core: number, node: 0, online: true }));
    let mut system = System::new(processors.collect(), 1, SemiDynamic);
    let choose = |most| Demand { priority: 1, count: Count::Choose { most } };
    let holds = |system: &System<SemiDynamic>| {
        [1, 2].map(|id| system.application(id).map_or(0, |application| application.held.len()))
    };
    system.apply(Event::Request(1, choose(u32::MAX)), 0).unwrap();
    assert_eq!(holds(&system), [8, 0], "alone");
    system.apply(Event::Request(2, choose(u32::MAX)), 0).unwrap();
    assert_eq!(holds(&system), [4, 4]);
    system.apply(Event::Spare(1, 2), 0).unwrap();
    assert_eq!(holds(&system), [2, 6], "nobody else could have used them");
    system.apply(Event::WantBack(1), 0).unwrap();
    assert_eq!(holds(&system), [4, 4]);
    system.apply(Event::Limit(2, 1), 0).unwrap();
    assert_eq!(holds(&system), [7, 1], "a limit is as good as a hint");
}

#[test]
fn twin_that_serves_the_lowest_first() {
    let turn = |event: &Event| match event {
        Event::Request(id, demand) => {
            Event::Request(*id, Demand { priority: 9 - demand.priority, ..*demand })
        }
        event => event.clone(),
    };
    found_out("priority", turn, unchanged);
}

#[test]
fn twin_that_lets_requests_wait() {
    found_out("no waiting without need", Event::clone, |_, _, mut moves| {
        moves.retain(|step| step.why != Why::Free);
        moves
    });
}

#[test]
fn twin_that_exchanges_processors() {
    found_out("few moves", Event::clone, |system, _, mut moves| {
        if let Some(&Move { processor, to: to @ Owner::Application(_), why: Why::Free, .. }) = moves.last()
            && let Some(&other) = system.default_partition().first()
        {
            moves.pop();
            moves.push(Move { processor: other, from: Owner::Default, to, why: Why::Free });
            moves.push(Move { processor, from: Owner::Default, to, why: Why::Free });
            moves.push(Move { processor: other, from: to, to: Owner::Default, why: Why::Surplus });
        }
        moves
    });
}

#[test]
fn twin_that_gives_less_than_the_least() {
    let fewer = |event: &Event| match event {
        Event::Request(id, Demand { priority, count: Count::Numbers { wanted, most, .. } }) => {
            let count = Count::Numbers { least: 1, wanted: *wanted, most: *most };
            Event::Request(*id, Demand { priority: *priority, count })
        }
        event => event.clone(),
    };
    found_out("least and most", fewer, unchanged);
}

#[test]
fn twin_that_promises_what_the_machine_has_not() {
    found_out(
        "refusal",
        |event| match event {
            Event::Request(id, Demand { priority, count: Count::Numbers { .. } }) => {
                Event::Request(*id, Demand { priority: *priority, count: Count::Choose { most: u32::MAX } })
            }
            event => event.clone(),
        },
        unchanged,
    );
}

#[test]
fn twin_that_forgets_who_is_gone() {
    found_out("truth", Event::clone, |_, _, mut moves| {
        moves.retain(|step| step.why != Why::Exit);
        moves
    });
}

#[test]
fn twin_that_adopts_one_after_the_other() {
    struct OneByOne(System<SemiDynamic>);
    impl Subject for OneByOne {
        fn apply(&mut self, event: &Event, now: u64) -> Result<Vec<Move>, Refusal> {
            let Event::Adopt(all) = event else { return self.0.apply(event.clone(), now) };
            let one = |one: &Adopted| self.0.apply(Event::Adopt(vec![one.clone()]), now);
            Ok(all.iter().map(one).collect::<Result<Vec<_>, _>>()?.concat())
        }
    }
    let mut runner = TestRunner::deterministic();
    let found = (0..2_000).any(|_| {
        let history = histories().new_tree(&mut runner).unwrap().current();
        let mut twin = OneByOne(System::new(history.machine.clone(), history.floor, SemiDynamic));
        live(&history, None, &mut twin) == Err("adoption")
    });
    assert!(found);
}

#[test]
fn twin_that_does_not_know_the_machine() {
    let mut runner = TestRunner::deterministic();
    let found = (0..2_000).any(|_| {
        let machine = machines().new_tree(&mut runner).unwrap().current();
        let flat = machine
            .iter()
            .map(|(number, _)| (number, Processor { core: number, node: 0, online: true }))
            .collect();
        let mut twin = System::new(flat, 1, SemiDynamic);
        machine.count() > 2 && near(&machine, machine.count() / 2, &mut twin).is_err()
    });
    assert!(found);
}
