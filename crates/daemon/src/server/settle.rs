// SPDX-License-Identifier: MIT OR Apache-2.0
//! What follows a decision: the kernel is told, then the programs; and what follows the end of one.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Relaxed, Release};

use abi::Processors;
use abi::server::Reply;
use policy::{Event, Id};
use tracing::{debug, info, warn};

use super::{AGAIN, AUDIT, Member, Server};
use crate::kernel::{Kernel, Set};
use crate::partitions::Failure;

impl<K: Kernel> Server<K> {
    /// Tells the kernel, then the programs.
    pub(super) fn settle(&mut self) {
        self.settle_for(None);
    }

    /// The same, where the answer to a request tells a program, by the connection that it asked by.
    pub(super) fn settle_for(&mut self, answered: Option<(Id, u64)>) {
        if !self.unsettled {
            return;
        }
        let moves = |&(&id, member): &(&Id, &Member)| {
            let held = self.partitions.held(member.process);
            held != self
                .system
                .application(id)
                .map(|application| &application.held)
                .filter(|held| !held.is_empty())
        };
        let moved: Vec<Id> = self.members.iter().filter(moves).map(|(&id, _)| id).collect();
        // Its number may be another's by now: looked at before anything is written, and afterwards.
        let dead: Vec<Id> = moved.iter().copied().filter(|&id| self.has_ended(id)).collect();
        dead.into_iter().for_each(|id| self.end_of(id));
        let here = |id: &Id| self.members.contains_key(id);
        let others: Vec<Id> = moved.iter().copied().filter(here).filter(|&id| self.is_another(id)).collect();
        others.into_iter().for_each(|id| self.expel(id));
        let holders = self.members.iter().filter_map(|(&id, member)| {
            let held = &self.system.application(id)?.held;
            (!held.is_empty()).then(|| (member.process, held.clone()))
        });
        let wanted: BTreeMap<u32, Set> = holders.collect();
        let others = self.members.iter().filter(|(_, member)| !wanted.contains_key(&member.process));
        let (waiting, left): (Vec<_>, Vec<_>) =
            others.partition(|&(&id, _)| self.system.application(id).is_some());
        let others: Vec<u32> = waiting.into_iter().chain(left).map(|(_, member)| member.process).collect();
        let failures =
            self.partitions.bring_about(&self.kernel, &wanted, &others, self.system.default_partition());
        self.unsettled = !failures.is_empty();
        self.report(failures);
        let here = |id: &Id| self.members.contains_key(id);
        let dead: Vec<Id> = moved.into_iter().filter(here).filter(|&id| self.has_ended(id)).collect();
        // The rest of it in the next turn.
        dead.into_iter().for_each(|id| self.end_of(id));
        let ids: Vec<Id> = self.members.keys().copied().collect();
        for id in ids {
            if self.write_block(id)
                && let Some(token) = self.members[&id].connection
                && answered != Some((id, token))
            {
                let state = self.state(id);
                self.send(token, 0, Reply::State(state), None);
            }
        }
    }

    /// Says what the kernel has refused, and when to try again.
    pub(super) fn report(&mut self, failures: Vec<Failure>) {
        if failures.is_empty() {
            // What could not be done may be left all the same.
            if !self.unsettled && !self.partitions.untidy() {
                self.again = AGAIN;
            }
            return;
        }
        self.retry = self.kernel.now() + self.again;
        self.again = (2 * self.again).min(AUDIT);
        for failure in failures {
            self.counters.failures += 1;
            let of = match failure.process {
                0 => "the default partition".to_string(),
                process => format!("the group of {process}"),
            };
            warn!("cannot change {of}: {}", failure.error);
        }
    }

    /// Writes what the kernel was seen to do; false if that is there already.
    fn write_block(&self, id: Id) -> bool {
        let member = &self.members[&id];
        let held: Processors = self.partitions.held(member.process).into_iter().flatten().copied().collect();
        let partition = &member.block.block().partition;
        if partition.load_ids() == held {
            return false;
        }
        partition.store_ids(&held);
        let generation = partition.generation.load(Relaxed).wrapping_add(1);
        // ORDER: Release, pairs with the program's Acquire; publishes the rest of the block, and the change
        // of its masks.
        partition.generation.store(generation, Release);
        true
    }

    /// A process has ended.
    pub(super) fn bury(&mut self, id: Id) {
        if let Some(member) = self.members.get(&id) {
            debug!(process = member.process, "has ended");
            self.end_of(id);
            self.settle();
        }
    }

    fn has_ended(&self, id: Id) -> bool {
        self.kernel.ended(self.members[&id].pidfd.as_fd()).unwrap_or(false)
    }

    /// Of a member whose process has ended.
    fn end_of(&mut self, id: Id) {
        info!(process = self.members[&id].process, "is gone");
        self.counters.clients_gone += 1;
        let _ = self.apply(Event::Exit(id));
        self.forget(id);
        self.level();
    }

    /// Members that ask for nothing.
    pub(super) fn idle(&self) -> usize {
        self.members.len() - self.system.applications().count()
    }

    pub(super) fn forget(&mut self, id: Id) {
        let Some(member) = self.members.remove(&id) else { return };
        self.by_process.remove(&member.process);
        self.unsettled = true;
        // Its file may be hard to remove, and the next server is not to take it for a member's.
        member.block.block().started.store(0, Relaxed);
        let partition = &member.block.block().partition;
        partition.store_ids(&Processors::default());
        // ORDER: Release, as in `write_block`.
        partition.generation.fetch_add(1, Release);
        self.former.push(member);
    }

    /// Closes what is left of former members.
    pub(super) fn clear(&mut self) {
        for member in std::mem::take(&mut self.former) {
            if let Err(error) = self.kernel.unwatch(member.pidfd.as_fd()) {
                self.fail("stop watching a process", &error);
            }
            // Its number may be another's by now.
            if !self.by_process.contains_key(&member.process)
                && let Err(error) = self.kernel.remove_file(&self.file(member.process))
                && error.kind() != io::ErrorKind::NotFound
            {
                self.fail("remove a partition block", &error);
            }
        }
    }
}
