// SPDX-License-Identifier: MIT OR Apache-2.0
//! In which functions those compute for whom others wait: the last one at a barrier, the holder of a lock.
//!
//! The kernel samples each thread in every few milliseconds of its processor time, outside of system calls
//! and faults. A sample counts if the records say that somebody waited for this thread at that time. While
//! nobody waits, nothing is unwound.

use std::collections::VecDeque;

use super::waits::{Key, Piece, Whom};
use crate::fast::HashMap;
use crate::look::Look;
use crate::maps::{Place, Space};
use crate::record::Sample;
use crate::unwind::Unwinder;

/// BOUND: samples that are unwound in a turn, and stacks that are told apart.
const MOST_IN_TURN: u32 = 16;
const MOST_STACKS: usize = 10_000;
/// BOUND: samples of one thread that may yet count.
const MOST_SAMPLES: usize = 1 << 14;
/// BOUND: functions of a stack, innermost first.
const MOST_PLACES: usize = 12;

/// Where a thread was at a time.
struct One {
    time_ns: u64,
    stack: u32,
    /// For what it counts already: all who wait at a barrier wait for the same.
    counted: Option<Key>,
}

/// All samples.
#[derive(Default)]
pub(super) struct Work {
    of_thread: HashMap<u32, VecDeque<One>>,
    stacks: Vec<Vec<Place>>,
    numbers: HashMap<Vec<Place>, u32>,
    seen: HashMap<Key, HashMap<u32, u32>>,
    in_turn: u32,
}

impl Work {
    /// Takes what a thread was seen in, while somebody waits.
    pub fn sampled(
        &mut self,
        (thread, time_ns): (u32, u64),
        sample: Sample,
        space: &Space,
        unwinder: &mut Unwinder,
    ) {
        if self.in_turn >= MOST_IN_TURN {
            return;
        }
        self.in_turn += 1;
        let Sample { pc, bp, sp, stack } = sample;
        let stack = unwinder.unwind(space, &Look { call: None, sp, pc, bp: Some(bp), stack });
        let sure = stack.guessed_from.unwrap_or(usize::MAX).min(MOST_PLACES);
        let mut places: Vec<Place> = stack.places.into_iter().take(sure).collect();
        // As the others are: behind an instruction of the function.
        places.iter_mut().take(1).for_each(|place| place.offset += 1);
        if !places.is_empty() {
            self.keep(thread, time_ns, places);
        }
    }

    fn keep(&mut self, thread: u32, time_ns: u64, places: Vec<Place>) {
        let stacks = &mut self.stacks;
        if stacks.len() >= MOST_STACKS && !self.numbers.contains_key(&places) {
            return;
        }
        let number = *self.numbers.entry(places).or_insert_with_key(|places| {
            stacks.push(places.clone());
            stacks.len() as u32 - 1
        });
        let all = self.of_thread.entry(thread).or_default();
        if all.len() >= MOST_SAMPLES {
            all.pop_front();
        }
        all.push_back(One { time_ns, stack: number, counted: None });
    }

    /// A turn is over, and nobody asks about what was before this time.
    pub fn forget(&mut self, before_ns: u64) {
        self.in_turn = 0;
        self.of_thread.retain(|_, all| {
            while all.front().is_some_and(|one| one.time_ns < before_ns) {
                all.pop_front();
            }
            !all.is_empty()
        });
    }

    /// Somebody has waited: for one who was seen meanwhile?
    pub fn piece(&mut self, piece: &Piece) {
        let Whom::Thread(whom) = piece.whom else { return };
        let Some(all) = self.of_thread.get_mut(&whom) else { return };
        let first = all.partition_point(|one| one.time_ns < piece.from_ns);
        for one in all.range_mut(first..).take_while(|one| one.time_ns < piece.to_ns) {
            if one.counted != Some(piece.key) {
                one.counted = Some(piece.key);
                *self.seen.entry(piece.key).or_default().entry(one.stack).or_default() += 1;
            }
        }
    }

    /// By what was waited at: the stacks, innermost function first, and how often each was seen.
    pub fn finish(self) -> HashMap<Key, Vec<(Vec<Place>, u32)>> {
        let (seen, stacks) = (self.seen, self.stacks);
        let named = |(stack, count): (u32, u32)| (stacks[stack as usize].clone(), count);
        seen.into_iter().map(|(key, all)| (key, all.into_iter().map(named).collect())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::profile::Class;

    #[test]
    fn a_sample_counts_once_for_a_lock_at_which_somebody_waited_for_that_thread() {
        let mut work = Work::default();
        let at = |offset| vec![Place { file: None, offset }];
        for (thread, time_ns, offset) in [(7, 100, 1), (7, 200, 2), (7, 300, 1), (8, 200, 3), (7, 400, 1)] {
            work.keep(thread, time_ns, at(offset));
        }
        work.forget(150);
        let key = |object| Key { image: 1, object, class: Class::Barrier };
        let piece = |from_ns, to_ns, whom, object| Piece {
            key: key(object),
            site: 0,
            from_ns,
            to_ns,
            waiters: 1,
            whom,
        };
        work.piece(&piece(50, 400, Whom::Thread(7), 16));
        work.piece(&piece(250, 400, Whom::Thread(7), 16));
        work.piece(&piece(50, 500, Whom::Free, 16));
        work.piece(&piece(50, 300, Whom::Thread(7), 32));
        let mut seen = work.finish();
        let mut first = seen.remove(&key(16)).unwrap();
        first.sort_by_key(|(places, _)| places[0].offset);
        assert_eq!(first, [(at(1), 1), (at(2), 1)]);
        assert_eq!((seen.remove(&key(32)).unwrap(), seen.len()), (vec![(at(2), 1)], 0));
    }

    #[test]
    fn many_samples_take_bounded_memory() {
        let mut work = Work::default();
        for at in 0..2 * MOST_SAMPLES as u64 {
            work.keep(7, at, vec![Place { file: None, offset: at }]);
        }
        assert_eq!((work.stacks.len(), work.of_thread[&7].len()), (MOST_STACKS, MOST_STACKS));
    }
}
