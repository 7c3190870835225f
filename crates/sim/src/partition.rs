// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which processors are the program's, when they change: drawn at random, or decided by the crate `policy`,
//! as on a machine with a processor server, while other applications come, hint and go at random.

use policy::{Count, Demand, Event, Id, Owner, SemiDynamic, System};
use rand_pcg::Pcg64Mcg;

use crate::chance::below;
use crate::machine::Machine;
use crate::setting::Repartition;

/// The program's application.
const OURS: Id = 0;
/// BOUND: other applications at once; with this many, requests wait for each other.
const MOST_OTHERS: usize = 6;

/// The machine as the policy sees it.
pub(crate) fn processors(machine: &Machine) -> policy::Machine {
    let groups = |of: usize| machine.level.get(of).map_or(u32::MAX, |level| level.processors.value.max(1));
    let (core, node) = (groups(0), groups(machine.level.len().saturating_sub(2)));
    let all = 0..machine.processors.count.value;
    all.map(|number| (number, policy::Processor { core: number / core, node: number / node, online: true }))
        .collect()
}

/// The server's knowledge, and the applications beside ours.
struct Server {
    system: System<SemiDynamic>,
    others: Vec<Id>,
    last: Id,
}

impl Server {
    /// A machine with nobody on it but our program, which asks for at least and at most so many processors.
    fn new(machine: &Machine, repartition: &Repartition) -> Self {
        let mut system = System::new(processors(machine), 1, SemiDynamic);
        // The default partition keeps one.
        let most = repartition.most.min(system.machine().count().saturating_sub(1)).max(1);
        let least = repartition.least.clamp(1, most);
        let count = Count::Numbers { least, wanted: least, most };
        // On a machine of one processor it is refused, and runs in the default partition, as all do.
        let _ = system.apply(Event::Request(OURS, Demand { priority: 1, count }), 0);
        Self { system, others: Vec::new(), last: OURS }
    }

    /// One of the others does something.
    fn step(&mut self, random: &mut Pcg64Mcg, now: u64) {
        let mut below = |bound: u64| below(random, bound);
        let most = u64::from(self.system.machine().count()).saturating_sub(1).max(1);
        let event = match below(4) {
            0 if !self.others.is_empty() => {
                Event::Exit(self.others.swap_remove(below(self.others.len() as u64) as usize))
            }
            1 if !self.others.is_empty() => {
                let other = self.others[below(self.others.len() as u64) as usize];
                Event::Spare(other, below(most) as u32)
            }
            _ if self.others.len() < MOST_OTHERS => {
                self.last += 1;
                self.others.push(self.last);
                let wanted = 1 + below(most.div_ceil(2)) as u32;
                let count = Count::Numbers { least: 1, wanted, most: wanted };
                Event::Request(self.last, Demand { priority: below(3) as u32, count })
            }
            _ => Event::Exit(self.others.swap_remove(below(self.others.len() as u64) as usize)),
        };
        let _ = self.system.apply(event, now);
    }

    /// Who has none waits in the default partition.
    fn ours(&self) -> Vec<usize> {
        let ours = self.system.application(OURS).is_some_and(|ours| ours.holds() > 0);
        let owner = if ours { Owner::Application(OURS) } else { Owner::Default };
        self.system
            .machine()
            .online()
            .filter(|&number| self.system.owner(number) == owner)
            .map(|it| it as usize)
            .collect()
    }
}

/// The program's processors.
pub(crate) struct Partition {
    /// In order; at least one.
    pub ours: Vec<usize>,
    /// How often they have changed.
    pub generation: u32,
    /// Decides about them, if somebody does.
    server: Option<Server>,
}

impl Partition {
    /// All of them, for the time being.
    pub fn new(machine: &Machine, repartition: Option<&Repartition>) -> Self {
        let count = machine.processors.count.value as usize;
        let server = repartition.filter(|it| it.served).map(|it| Server::new(machine, it));
        Self { ours: (0..count).collect(), generation: 0, server }
    }

    /// The next one, of so many processors. True if it is another.
    pub fn choose(&mut self, repartition: &Repartition, processors: usize, random: &mut Pcg64Mcg) -> bool {
        let next: Vec<usize> = match &mut self.server {
            Some(server) => {
                // Virtual time is not told: nothing in the policy depends on it.
                server.step(random, 0);
                server.ours()
            }
            None => {
                let most = (repartition.most.max(1) as usize).min(processors);
                let least = (repartition.least.max(1) as usize).min(most);
                let count = least + below(random, (most - least + 1) as u64) as usize;
                (0..count).collect()
            }
        };
        let changes = self.ours != next;
        if changes {
            self.ours = next;
            self.generation += 1;
        }
        changes
    }

    /// Is this processor the program's?
    pub fn has(&self, processor: usize) -> bool {
        self.ours.binary_search(&processor).is_ok()
    }
}
