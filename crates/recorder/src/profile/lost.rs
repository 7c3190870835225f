// SPDX-License-Identifier: MIT OR Apache-2.0
//! For how long of the program's time somebody waited for one reason: what bounds any gain.
//!
//! Two threads that wait at once are one stretch. What lies outside of it goes on as it does, however well
//! somebody else's locks work.

use std::collections::BTreeMap;

use super::history::{Did, History};
use super::waits::{Piece, Whom};
use crate::fast::HashMap;
use abi::profile::Class;

/// BOUND: stretches that are kept apart. The older half is added up, and what comes there later is added
/// without a look: so a sum may be too great, and never too small.
const MOST: usize = 1 << 16;
/// BOUND: the same for one thread that may yet wait, and such threads. Others are taken to.
const MOST_OF_ONE: usize = 1 << 10;
const MOST_THREADS: usize = 512;

/// Stretches of time, of which none is counted twice.
#[derive(Debug, Default)]
struct Union {
    /// From and to, apart from each other.
    stretches: BTreeMap<u64, u64>,
    /// Everything before this is in `sum_ns` alone.
    closed_ns: u64,
    sum_ns: u64,
}

impl Union {
    fn add(&mut self, mut from_ns: u64, mut to_ns: u64) {
        if from_ns < self.closed_ns {
            let end_ns = to_ns.min(self.closed_ns);
            self.sum_ns += end_ns - from_ns;
            from_ns = end_ns;
        }
        if from_ns >= to_ns {
            return;
        }
        while let Some((&start_ns, &end_ns)) = self.stretches.range(..=to_ns).next_back() {
            if end_ns < from_ns {
                break;
            }
            from_ns = from_ns.min(start_ns);
            to_ns = to_ns.max(end_ns);
            self.stretches.remove(&start_ns);
        }
        self.stretches.insert(from_ns, to_ns);
        if self.stretches.len() > MOST {
            self.close(MOST / 2);
        }
    }

    /// Together with another one.
    fn add_all(&mut self, other: &Self) {
        self.sum_ns += other.sum_ns;
        other.stretches.iter().for_each(|(from_ns, to_ns)| self.add(*from_ns, *to_ns));
    }

    /// Adds up so many of the older ones.
    fn close(&mut self, many: usize) {
        let Some(&middle_ns) = self.stretches.keys().nth(many) else { return };
        let newer = self.stretches.split_off(&middle_ns);
        let older = std::mem::replace(&mut self.stretches, newer);
        self.sum_ns += older.iter().map(|(from_ns, to_ns)| to_ns - from_ns).sum::<u64>();
        self.closed_ns = middle_ns;
    }

    fn shorten(&mut self) {
        if self.stretches.len() > MOST_OF_ONE {
            self.close(MOST_OF_ONE / 2);
        }
    }

    fn total_ns(&self) -> u64 {
        self.sum_ns + self.stretches.iter().map(|(from_ns, to_ns)| to_ns - from_ns).sum::<u64>()
    }
}

/// What is being added up.
#[derive(Debug, Default)]
pub(super) struct Losing {
    preempted: Union,
    behind_own: Union,
    late: Union,
    /// By thread: the time in which it had the processor of one that was waited for. It has waited for
    /// nothing yet.
    behind: HashMap<u32, Union>,
}

/// For how long of the program's time somebody waited at a lock or a barrier for this reason.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lost {
    /// For a thread that had lost its processor.
    pub preempted_ns: u64,
    /// For one that had lost it to a thread of the program.
    pub behind_own_ns: u64,
    /// For nobody, or for one that had lost its processor to a thread that waits for locks or at barriers,
    /// too: what other locks can change. Whoever waits for none goes on to want that processor.
    pub behind_waiters_or_free_ns: u64,
}

impl Losing {
    /// A semaphore or a condition variable may wait for work, which is nobody's fault. `waits`: has the
    /// thread waited for anything so far? At the first round of a barrier, nobody has.
    pub fn piece(&mut self, piece: &Piece, history: &History, waits: impl Fn(u32) -> bool) {
        if matches!(piece.key.class, Class::Semaphore | Class::Cond) {
            return;
        }
        match piece.whom {
            Whom::Unknown => {}
            Whom::Free => self.late.add(piece.from_ns, piece.to_ns),
            Whom::Thread(thread) => {
                history.stretches(thread, piece.from_ns, piece.to_ns, |did, by, from_ns, to_ns| {
                    if matches!(did, Did::Ready | Did::Behind) {
                        self.preempted.add(from_ns, to_ns);
                    }
                    if did == Did::Behind {
                        self.behind_own.add(from_ns, to_ns);
                        self.late(by, waits(by)).add(from_ns, to_ns);
                        self.behind.get_mut(&by).into_iter().for_each(Union::shorten);
                    }
                });
            }
        }
    }

    /// Where the time counts in which that thread had somebody's processor.
    fn late(&mut self, thread: u32, waits: bool) -> &mut Union {
        let is_full = self.behind.len() >= MOST_THREADS && !self.behind.contains_key(&thread);
        if waits || is_full { &mut self.late } else { self.behind.entry(thread).or_default() }
    }

    /// `waits`: has the thread waited at all?
    pub fn finish(mut self, waits: impl Fn(u32) -> bool) -> Lost {
        let behind = std::mem::take(&mut self.behind);
        behind.iter().filter(|(thread, _)| waits(**thread)).for_each(|(_, time)| self.late.add_all(time));
        Lost {
            preempted_ns: self.preempted.total_ns(),
            behind_own_ns: self.behind_own.total_ns(),
            behind_waiters_or_free_ns: self.late.total_ns(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::waits::Key;
    use super::*;
    use crate::record::{Record, What};

    #[test]
    fn what_overlaps_counts_once() {
        let mut union = Union::default();
        for (from, to) in [(10, 20), (30, 40), (15, 35), (35, 36), (50, 60), (60, 61), (5, 5), (49, 50)] {
            union.add(from, to);
        }
        assert_eq!(union.stretches, BTreeMap::from([(10, 40), (49, 61)]));
        assert_eq!(union.total_ns(), 30 + 12);
        union.add(0, 100);
        assert_eq!(union.total_ns(), 100);
    }

    #[test]
    fn other_locks_change_nothing_about_who_waits_for_none() {
        let mut history = History::default();
        let at = |time_ns, what| Record { process: 1, thread: 7, time_ns, what };
        [at(0, What::In), at(10, What::Preempted)].iter().for_each(|record| history.apply(record));
        history.is_behind(7, 8, 10);
        let key = Key { image: 1, object: 16, class: Class::Mutex };
        let piece = |whom| Piece { key, site: 0, from_ns: 0, to_ns: 50, waiters: 1, whom };
        for (waiter, changed_ns) in [(8, 40), (9, 0)] {
            let mut losing = Losing::default();
            losing.piece(&piece(Whom::Thread(7)), &history, |thread| thread == waiter);
            let lost = losing.finish(|_| false);
            assert_eq!((lost.preempted_ns, lost.behind_own_ns), (40, 40));
            assert_eq!(lost.behind_waiters_or_free_ns, changed_ns);
        }
        let mut losing = Losing::default();
        losing.piece(&piece(Whom::Thread(7)), &history, |_| true);
        losing.piece(&piece(Whom::Free), &history, |_| false);
        assert_eq!(losing.finish(|_| false).behind_waiters_or_free_ns, 50);
    }

    /// As all threads at a barrier of one round.
    #[test]
    fn a_thread_that_waits_later_is_one_that_waits() {
        let mut history = History::default();
        let at = |time_ns, what| Record { process: 1, thread: 7, time_ns, what };
        [at(0, What::In), at(10, What::Preempted)].iter().for_each(|record| history.apply(record));
        history.is_behind(7, 8, 10);
        let key = Key { image: 1, object: 16, class: Class::Barrier };
        for (waiter, changed_ns) in [(8, 40), (9, 0)] {
            let mut losing = Losing::default();
            // It has waited when the second one is told, and that was at the same time.
            for has_waited in [false, true] {
                let whom = Whom::Thread(7);
                let piece = Piece { key, site: 0, from_ns: 0, to_ns: 50, waiters: 1, whom };
                losing.piece(&piece, &history, |thread| has_waited && thread == waiter);
            }
            assert_eq!(losing.finish(|thread| thread == waiter).behind_waiters_or_free_ns, changed_ns);
        }
    }

    #[test]
    fn many_threads_that_never_wait_take_bounded_memory() {
        let mut losing = Losing::default();
        for thread in 0..2 * MOST_THREADS as u32 {
            losing.late(thread, false).add(0, 10);
        }
        assert_eq!(losing.behind.len(), MOST_THREADS);
        let mut one = Union::default();
        let many = 3 * MOST_OF_ONE as u64;
        for at in 0..many {
            one.add(at * 10, at * 10 + 4);
            one.shorten();
        }
        assert!(one.stretches.len() <= MOST_OF_ONE);
        assert_eq!(one.total_ns(), many * 4);
    }

    #[test]
    fn many_stretches_take_bounded_memory_and_lose_nothing() {
        let mut union = Union::default();
        let many = 3 * MOST as u64;
        (0..many).for_each(|at| union.add(at * 10, at * 10 + 4));
        assert!(union.stretches.len() <= MOST);
        assert_eq!(union.total_ns(), many * 4);
        // What is late is added, known or not.
        union.add(0, 4);
        assert_eq!(union.total_ns(), many * 4 + 4);
    }
}
