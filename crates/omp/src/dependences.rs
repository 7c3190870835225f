// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tasks depend on: by address, those that the next one has to wait for.
//!
//! A task for whose dependences there is no memory waits for its predecessors, and then runs at once, so
//! that nobody has to know it.

use std::ptr;

use crate::depend::{Dependence, Dependences, is_empty};
use crate::memory::Map;
use crate::task::{Held, LEAST_FORGOTTEN, Successor, Table, Task, Users};
use crate::tasks::put;
use crate::team::Team;
use crate::thread::me;

impl Map<Users> {
    /// False if there is no memory.
    fn enter(&mut self, dependence: &Dependence, child: &Task) -> bool {
        let Some(users) = self.entry(dependence.address) else { return false };
        if dependence.writes {
            users.readers.clear();
            users.writer = Some(Held::new(child));
            return true;
        }
        users.readers.retain(|reader| !reader.task().is_done());
        users.readers.push(Held::new(child))
    }
}

/// Those in a table for whom a task with this dependence waits.
fn predecessors(table: &Map<Users>, dependence: &Dependence, mut visit: impl FnMut(&Held)) {
    let all = dependence.is_all();
    let own = if all { None } else { table.get(dependence.address) };
    let everything = if all { None } else { table.get(Dependence::ALL.address) };
    if all {
        table.values().for_each(|users| users.writer.iter().chain(users.readers.iter()).for_each(&mut visit));
    }
    everything.into_iter().for_each(|users| users.writer.iter().for_each(&mut visit));
    if let Some(own) = own {
        own.writer.iter().for_each(&mut visit);
        if dependence.writes {
            own.readers.iter().for_each(&mut visit);
        }
    }
}

impl Task {
    /// Its successors need not wait for it any more, and what it kept of its children's dependences goes.
    pub fn finish_dependences(&self, team: &Team) {
        if !self.depends.get() {
            return;
        }
        let successors = self.dependent.end();
        for successor in successors.iter().flat_map(|list| list.iter()) {
            // SAFETY: it waits for us, or has another reference in `Held` until `preceded` returns.
            unsafe { &*successor.0 }.preceded(team);
        }
        self.forget_dependences();
    }

    /// A predecessor is done, or all have been counted.
    pub fn preceded(&self, team: &Team) {
        let function = self.function.get();
        if self.dependent.preceded() {
            match function {
                // SAFETY: it stays until it is done.
                Some(_) => put(team, me(), unsafe { &*ptr::from_ref(self) }),
                None => team.bell.0.notify(),
            }
        }
    }

    /// Waits for another one; false if there is no memory.
    pub fn follow(&self, other: &Task) -> bool {
        self.dependent.follow(&other.dependent, |successors| successors.push(Successor(self)))
    }

    /// Enters what a new child depends on; with `known`, later children wait for it. False: there is no
    /// memory, and it follows some of those that it has to wait for.
    pub fn depend(&self, child: &Task, dependences: impl Dependences, known: bool) -> bool {
        self.depends.set(true);
        child.depends.set(true);
        self.table.with(|table| {
            let Table { users, most } = table;
            let table = users.get_or_insert_default();
            if table.count() > *most {
                table.retain(|users| !users.are_done());
                *most = LEAST_FORGOTTEN.max(2 * table.count());
            }
            let all = dependences.clone().find(Dependence::is_all);
            let others = all.is_none().then_some(dependences).into_iter().flatten();
            for dependence in all.into_iter().chain(others) {
                let mut follows = true;
                predecessors(table, &dependence, |other| {
                    follows &= ptr::eq(other.0, child) || child.follow(other.task());
                });
                if follows && known && dependence.is_all() {
                    // Who follows it follows those before.
                    table.clear();
                }
                if !follows || known && !table.enter(&dependence, child) {
                    return false;
                }
            }
            true
        })
    }

    /// Would a new child with these dependences wait for others?
    pub fn would_wait(&self, dependences: impl Dependences, child: *const Task) -> bool {
        if is_empty(&dependences) || self.kin.is_childless() {
            return false;
        }
        self.table.with(|table| {
            let Some(table) = &table.users else { return false };
            let mut any = false;
            for dependence in dependences {
                predecessors(table, &dependence, |other| {
                    any |= !ptr::eq(other.0, child) && !other.task().is_done()
                });
            }
            any
        })
    }
}
