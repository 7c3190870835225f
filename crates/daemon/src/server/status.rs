// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is told about members.

use std::sync::atomic::Ordering::Relaxed;

use abi::server::{Demand, Entry, Listed, Numbers, Reply, State, Summary};
use policy::{Count, Id};

use super::{Connection, ROOT, Server};
use crate::config::Status;
use crate::kernel::Kernel;

/// BOUND: of each kind of entries; to list more in one answer could be more than what a socket takes at once.
const LISTED: usize = 64;

impl<K: Kernel> Server<K> {
    /// How a member stands; zeros of one that is none any more.
    pub(super) fn state(&self, id: Id) -> State {
        let Some(member) = self.members.get(&id) else { return State::default() };
        let partition = &member.block.block().partition;
        let mut state = State {
            process: member.process,
            user: member.user,
            holds: partition.processors.load(Relaxed),
            generation: partition.generation.load(Relaxed),
            ids: partition.load_ids(),
            ..State::default()
        };
        if let Some(application) = self.system.application(id) {
            let numbers = match application.demand.count {
                Count::Numbers { least, wanted, most } => Numbers::new(least, wanted, most),
                Count::Choose { .. } => None,
            };
            state.demand = Demand { priority: application.demand.priority & !ROOT, numbers };
            state.spare = application.usable.map_or(0, |usable| application.holds().saturating_sub(usable));
            if let Some(waiting) = self.system.waiting(id) {
                (state.lacks, state.behind) = (waiting.lacks, waiting.behind);
            }
            // Decided, but the kernel has not done it yet.
            state.lacks = state.lacks.max(application.holds().saturating_sub(state.holds));
        }
        state
    }

    /// Programs of others are nobody's business, but for the sums; unless the administrator says so.
    fn may_see(&self, token: u64, user: u32) -> bool {
        let seen = |connection: &Connection| connection.root || connection.user == user;
        self.config.access.status == Status::All || self.connections.get(&token).is_some_and(seen)
    }

    pub(super) fn status(&mut self, token: u64, tag: u32) {
        let now = self.kernel.now();
        let ids: Vec<Id> =
            self.members.keys().copied().filter(|&id| self.system.application(id).is_some()).collect();
        let asks = |process: u32| {
            self.by_process.get(&process).is_some_and(|&id| self.system.application(id).is_some())
        };
        let others: Vec<(u32, u32)> =
            self.arenas.processes().filter(|&(process, _)| !asks(process)).collect();
        let others = others.into_iter().filter(|&(_, user)| self.may_see(token, user)).collect::<Vec<_>>();
        let ids: Vec<Id> = ids.into_iter().filter(|id| self.may_see(token, self.members[id].user)).collect();
        let members = ids.into_iter().take(LISTED).map(|id| Listed::Member(self.state(id)));
        let observed = others.iter().take(LISTED).map(|&(process, user)| Listed::Observed { process, user });
        for program in members.chain(observed).collect::<Vec<_>>() {
            let mut entry = Entry { program, threads: None };
            entry.threads = self.arenas.threads(entry.process(), now);
            self.send(token, tag, Reply::Entry(entry), None);
        }
        let summary = Summary {
            enforcement: self.partitions.by(),
            default_partition: self.system.default_partition().iter().copied().collect(),
            applications: self.system.applications().count() as u32,
            making: self.arenas.ordered(&self.kernel),
            unlisted: others.len().saturating_sub(LISTED) as u32,
            observer: self.arenas.loaded(),
            counters: self.counters,
        };
        self.send(token, tag, Reply::Summary(summary), None);
    }
}
