// SPDX-License-Identifier: MIT OR Apache-2.0
//! The deque: a member's tasks, of which it takes the newest and others the oldest.
//!
//! The newest task's data are in its maker's caches, and the oldest is most likely to make many others
//! (Blumofe and Leiserson, JACM 1999). OpenMP adds two wishes. A thread that waits for children may run
//! descendants of its task only, so a taker looks for one, from its end. And tasks with a priority stand in
//! order.
//!
//! The idea: a list with two ends behind the default mutex. A task stands in one deque at most, so the links
//! are in the task, and no step needs memory.
//!
//! ```text
//!  oldest                        newest
//!    T1 <-> T2 <-> T3 <-> ... <-> Tn      push: behind Tn    own: from Tn backwards    others: from T1 on
//! ```
//!
//! # State
//!
//! `oldest`, `newest`: the ends, none if the deque is empty. In each task: the neighbours towards either end.
//!
//! # Invariants
//!
//! I1. Ends and links are read and written under the lock only.
//! I2. A task is in one deque at most, and is taken out by one thread, which then has it alone.
//!
//! # Protocol
//!
//! D1. Lock, link in, unlock. D2. Lock, ask whether to stop, look at some tasks from one end, link the first
//! that may be taken out, unlock.
//!
//! # Memory order
//!
//! The mutex: D1's release -> D2's acquire publishes the task.
//!
//! # Under the scheduler
//!
//! As for the default mutex: a preempted holder is waited for asleep. The section is some tens of
//! instructions, but for a look at up to as many tasks as the caller says.
//!
//! # Fairness and space
//!
//! 24 bytes, and 16 a task. A task that few may take can stand behind others for long.
//!
//! # Rejected
//!
//! Chase and Lev's deque without a lock: nothing can be taken out of its middle. An array: it has to grow,
//! and then there may be no memory.
//!
//! # Checked by
//!
//! `conformance`, `openmp`: real threads, loom, shuttle; twins that lose a task and that give one twice are
//! caught.

use core::cell::Cell;

use platform::Platform;

use super::Guarded;

/// Where a task keeps its neighbours.
pub struct Links<T: 'static> {
    older: Cell<Option<&'static T>>,
    newer: Cell<Option<&'static T>>,
}

impl<T> Default for Links<T> {
    fn default() -> Self {
        Self { older: Cell::new(None), newer: Cell::new(None) }
    }
}

/// What can stand in a [`Deque`].
pub trait Linked: Sync + Sized + 'static {
    /// Its links, which belong to the deque.
    fn links(&self) -> &Links<Self>;
}

struct Ends<T: 'static> {
    oldest: Option<&'static T>,
    newest: Option<&'static T>,
}

impl<T> Default for Ends<T> {
    fn default() -> Self {
        Self { oldest: None, newest: None }
    }
}

impl<T: Linked> Ends<T> {
    /// Between two neighbours.
    fn link(&mut self, older: Option<&'static T>, task: &'static T, newer: Option<&'static T>) {
        task.links().older.set(older);
        task.links().newer.set(newer);
        match older {
            Some(older) => older.links().newer.set(Some(task)),
            None => self.oldest = Some(task),
        }
        match newer {
            Some(newer) => newer.links().older.set(Some(task)),
            None => self.newest = Some(task),
        }
    }

    fn unlink(&mut self, task: &'static T) {
        let (older, newer) = (task.links().older.get(), task.links().newer.get());
        match older {
            Some(older) => older.links().newer.set(newer),
            None => self.oldest = newer,
        }
        match newer {
            Some(newer) => newer.links().older.set(older),
            None => self.newest = older,
        }
    }
}

/// A member's tasks.
pub struct Deque<P: Platform, T: Linked>(Guarded<P, Ends<T>>);

impl<P: Platform, T: Linked> Default for Deque<P, T> {
    fn default() -> Self {
        Self(Guarded::default())
    }
}

impl<P: Platform, T: Linked> Deque<P, T> {
    /// As the newest. D1.
    #[inline]
    pub fn push(&self, task: &'static T) {
        self.0.with(|ends| ends.link(ends.newest, task, None));
    }

    /// Behind those that are `before` it, which stand first. D1.
    pub fn insert(&self, task: &'static T, before: impl Fn(&T) -> bool) {
        self.0.with(|ends| {
            let (mut older, mut newer) = (None, ends.oldest);
            while let Some(next) = newer.filter(|next| before(next)) {
                (older, newer) = (Some(next), next.links().newer.get());
            }
            ends.link(older, task, newer);
        });
    }

    /// The newest of so many that may be taken; none if `stop`, which is asked under the lock. D2.
    #[inline]
    pub fn take_newest(
        &self,
        looks: usize,
        stop: impl Fn() -> bool,
        may: impl Fn(&T) -> bool,
    ) -> Option<&'static T> {
        self.take(looks, stop, may, |ends| ends.newest, |links| links.older.get())
    }

    /// The oldest likewise. D2.
    #[inline]
    pub fn take_oldest(
        &self,
        looks: usize,
        stop: impl Fn() -> bool,
        may: impl Fn(&T) -> bool,
    ) -> Option<&'static T> {
        self.take(looks, stop, may, |ends| ends.oldest, |links| links.newer.get())
    }

    #[inline(always)]
    fn take(
        &self,
        looks: usize,
        stop: impl Fn() -> bool,
        may: impl Fn(&T) -> bool,
        first: impl Fn(&Ends<T>) -> Option<&'static T>,
        next: impl Fn(&Links<T>) -> Option<&'static T>,
    ) -> Option<&'static T> {
        self.0.with(|ends| {
            let mut at = if stop() { None } else { first(ends) };
            for _ in 0..looks {
                match at {
                    Some(task) if may(task) => {
                        ends.unlink(task);
                        return at;
                    }
                    Some(task) => at = next(task.links()),
                    None => break,
                }
            }
            None
        })
    }
}

// SAFETY: references to tasks, which threads may share; links are touched by whoever has the lock.
unsafe impl<T: Linked> Send for Ends<T> {}
