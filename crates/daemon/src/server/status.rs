// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is told about members.

use std::sync::atomic::Ordering::Relaxed;

use abi::server::{Kind, Message, Refusal};
use policy::{Count, Id};

use super::{Connection, Counters, ROOT, Server};
use crate::config::Status;
use crate::kernel::Kernel;

/// BOUND: of each kind of entries; to list more in one answer could be more than what a socket takes at once.
const LISTED: usize = 64;

impl<K: Kernel> Server<K> {
    pub(super) fn state(&self, id: Id) -> Message {
        let Some(member) = self.members.get(&id) else { return Message::new(Kind::State) };
        let partition = &member.block.block().partition;
        let mut state = Message { process: member.process, user: member.user, ..Message::new(Kind::State) };
        state.holds = partition.processors.load(Relaxed);
        state.generation = partition.generation.load(Relaxed);
        state.ids.iter_mut().zip(&partition.ids).for_each(|(to, from)| *to = from.load(Relaxed));
        if let Some(application) = self.system.application(id) {
            state.priority = application.demand.priority & !ROOT;
            if let Count::Numbers { least, wanted, most } = application.demand.count {
                (state.least, state.wanted, state.most) = (least, wanted, most);
            }
            state.count = application.usable.map_or(0, |usable| application.holds().saturating_sub(usable));
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
        let mut entries: Vec<Message> = ids.into_iter().take(LISTED).map(|id| self.state(id)).collect();
        entries.extend(others.iter().take(LISTED).map(|&(process, user)| Message {
            process,
            user,
            error: Refusal::Unknown as u32,
            ..Message::new(Kind::Entry)
        }));
        for entry in entries {
            let threads = self.arenas.threads(entry.process, now);
            let observed = u32::from(threads.is_some());
            let entry = Message {
                kind: Kind::Entry as u32,
                tag,
                observed,
                threads: threads.unwrap_or_default(),
                ..entry
            };
            self.send(token, &entry, None);
        }
        let Counters {
            messages,
            refusals,
            moves,
            hinted_moves,
            connections,
            clients_gone,
            failures,
            repairs,
            arenas,
        } = self.counters;
        let mut summary = Message { tag, ..Message::new(Kind::Summary) };
        summary.counters =
            [messages, refusals, moves, hinted_moves, connections, clients_gone, failures, repairs, arenas];
        summary.observed = u32::from(self.arenas.loaded());
        summary.lacks = self.arenas.ordered(&self.kernel);
        summary.behind = others.len().saturating_sub(LISTED) as u32;
        summary.count = self.system.applications().count() as u32;
        summary.error = self.partitions.by() as u32;
        for &processor in self.system.default_partition() {
            summary.ids[processor as usize / 64] |= 1 << (processor % 64);
            summary.holds += 1;
        }
        self.send(token, &summary, None);
    }
}
