// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tasks depend on: by address, those that the next one has to wait for.
//!
//! A task for whose dependences there is no memory waits for its predecessors, and then runs at once, so that nobody has to know it.

use std::ffi::c_void;
use std::mem;
use std::ptr;

use crate::memory::{List, Map};
use crate::tasks::{Successor, Task, put};
use crate::team::Team;
use crate::thread::me;

/// COST: addresses in a table of which half may be forgotten before it is looked for those: their tasks take some ten KiB.
const LEAST_FORGOTTEN: usize = 64;

/// By address, the tasks that the next one has to wait for.
#[derive(Default)]
pub(crate) struct Table {
    users: Option<Map<Users>>,
    /// Addresses beyond which those are forgotten whose tasks are done.
    most: usize,
}

// SAFETY: as above.
unsafe impl Send for Table {}

#[derive(Default)]
struct Users {
    writer: Option<Held>,
    readers: List<Held>,
}

impl Users {
    fn are_done(&self) -> bool {
        self.writer.iter().chain(self.readers.iter()).all(|held| held.task().is_done())
    }
}

/// A task that stays because of this.
struct Held(*const Task);

impl Held {
    fn new(task: &Task) -> Self {
        task.references.add();
        Self(task)
    }

    fn task(&self) -> &Task {
        // SAFETY: held.
        unsafe { &*self.0 }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.task().release();
    }
}

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

/// One entry of a `depend` clause.
#[derive(Clone, Copy)]
pub struct Dependence {
    pub address: usize,
    pub writes: bool,
}

impl Dependence {
    /// `omp_all_memory`. It is the address of nothing else, and in a list it stands for the others.
    pub const ALL: Self = Self { address: usize::MAX, writes: true };

    pub fn is_all(&self) -> bool {
        self.address == Self::ALL.address
    }

    /// From gcc's programs: all memory has the address 0.
    fn new(address: usize, writes: bool) -> Self {
        if writes && address == 0 { Self::ALL } else { Self { address, writes } }
    }

    /// Null is a list of none.
    ///
    /// # Safety
    /// `list` is one that the compiler has made, and stays as it is.
    pub unsafe fn all(list: *const *const c_void) -> impl Dependences {
        // SAFETY: as promised; the counts come first.
        let at = move |index: usize| unsafe { *list.add(index) };
        let number = |index| at(index).addr();
        // Of 4.0: a count, how many of these are written, the addresses. Of 5.0: 0, the count, how many are written,
        // are written in any order, and are read; the rest are objects of two words, address and kind.
        // A list of 4.0 whose iterators have no values has nothing after its two zeros.
        let (count, written, read, first) = match list.is_null() {
            true => (0, 0, 0, 0),
            false => match (number(0), number(1)) {
                (0, 0) => (0, 0, 0, 0),
                (0, count) => (count, number(2) + number(3), number(4), 5),
                (count, written) => (count, written, count - written, 2),
            },
        };
        let plain = (0..written + read).map(move |index| Self::new(at(first + index).addr(), index < written));
        let objects = (written + read..count).map(move |index| {
            // SAFETY: as promised.
            unsafe { Self::object(at(first + index).cast()) }
        });
        plain.chain(objects)
    }

    /// # Safety
    /// An `omp_depend_t`, of two words.
    pub unsafe fn object(object: *const usize) -> Self {
        // SAFETY: as promised.
        unsafe { Self::new(*object, *object.add(1) != 1) }
    }
}

/// What a task depends on. It is looked at more than once.
pub trait Dependences: Iterator<Item = Dependence> + Clone {}

impl<T: Iterator<Item = Dependence> + Clone> Dependences for T {}

/// Of a task that depends on nothing.
pub fn no_dependences() -> impl Dependences {
    std::iter::empty()
}

pub fn is_empty(dependences: &impl Dependences) -> bool {
    dependences.clone().next().is_none()
}

impl Task {
    #[cold]
    pub fn forget_dependences(&self) {
        drop(self.table.with(mem::take));
    }

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

    /// Does nobody have to wait for it any more?
    pub fn is_done(&self) -> bool {
        self.dependent.is_done()
    }

    /// Waits for another one; false if there is no memory.
    pub fn follow(&self, other: &Task) -> bool {
        self.dependent.follow(&other.dependent, |successors| successors.push(Successor(self)))
    }

    /// Enters what a new child depends on; with `known`, later children wait for it. False: there is no memory,
    /// and it follows some of those that it has to wait for.
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
        if is_empty(&dependences) || self.children.are_none() {
            return false;
        }
        self.table.with(|table| {
            let Some(table) = &table.users else { return false };
            let mut any = false;
            for dependence in dependences {
                predecessors(table, &dependence, |other| any |= !ptr::eq(other.0, child) && !other.task().is_done());
            }
            any
        })
    }
}
