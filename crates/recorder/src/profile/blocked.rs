// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looks at threads that are blocked while others wait for them: in which call, or page fault, and where.
//!
//! A look is at what a thread does now, and what we know of it is older: it may have left the lock, and wait
//! for another one itself. So a look counts if the records say later that somebody waited for this thread at
//! that time, and that it had been blocked since before. The thread that will come last to a barrier is not
//! known at all. So each blocked thread that waits for nothing is looked at, while somebody waits at one.

use super::history::{Did, History};
use super::waits::{Key, Piece, Waits, Whom};
use crate::account::Account;
use crate::fast::{HashMap, HashSet};
use crate::look;
use crate::maps::{Maps, Place};
use crate::unwind::Unwinder;

/// BOUND: looks in one turn, and at all.
const LOOKS: usize = 2;
const MOST_LOOKS: u32 = 4_000;
/// BOUND: looks in each turn. Then they are made in each eighth turn alone: a look takes some 0.1 ms.
const FIRST_LOOKS: u32 = 100;
const SELDOM: u32 = 8;
/// BOUND: functions that are kept of a stack, innermost first.
const MOST_PLACES: usize = 12;

/// What a thread was seen in.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub struct Seen {
    /// The system call; none in a page fault.
    pub call: Option<u32>,
    /// The functions, innermost first.
    pub places: Vec<Place>,
}

/// A look at a thread for which somebody may have waited.
struct Maybe {
    /// When that was, and since when the thread was blocked.
    now_ns: u64,
    at_ns: u64,
    seen: Seen,
}

/// All looks.
#[derive(Default)]
pub(super) struct Looks {
    /// How often a thread for which others waited there was seen so.
    pub seen: HashMap<Key, HashMap<Seen, u32>>,
    /// By thread: the last look at it.
    maybe: HashMap<u32, Maybe>,
    /// Threads and since when they were blocked, at which somebody has looked.
    looked: HashSet<(u32, u64)>,
    count: u32,
    turns: u32,
}

impl Looks {
    /// Whom to look at: blocked since then or longer.
    fn wanted(&self, waits: &Waits, history: &History, account: &Account, since_ns: u64) -> Vec<(u32, u64)> {
        let blocked = |thread: u32| match history.now(thread) {
            Some((Did::Blocked, at_ns)) if at_ns <= since_ns => Some(at_ns),
            _ => None,
        };
        let mut wanted = Vec::new();
        let mut barriers = HashSet::default();
        for (thread, now) in waits.waiting().filter(|(_, now)| now.since_ns <= since_ns) {
            match waits.whom(now.key, thread) {
                Whom::Thread(holder) if waits.where_waits(holder).is_none() => {
                    wanted.extend(blocked(holder).map(|at_ns| (holder, at_ns)));
                }
                _ if now.key.class.is_barrier() => _ = barriers.insert(now.process),
                _ => {}
            }
        }
        if !barriers.is_empty() {
            let others = account.threads.values().filter(|one| barriers.contains(&one.process));
            let others = others.filter(|one| waits.where_waits(one.thread).is_none());
            wanted.extend(others.filter_map(|one| Some((one.thread, blocked(one.thread)?))));
        }
        wanted.retain(|one| !self.looked.contains(one));
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }

    /// At those that are blocked since then, in the program's time; the clock is ahead of that by so much.
    pub fn look(
        &mut self,
        (waits, history, account): (&Waits, &History, &Account),
        (maps, unwinder): (&Maps, &mut Unwinder),
        (since_ns, ahead_ns): (u64, u64),
    ) {
        self.turns = self.turns.wrapping_add(1);
        let is_turn = self.count < FIRST_LOOKS || self.turns.is_multiple_of(SELDOM);
        if self.count >= MOST_LOOKS || !is_turn {
            return;
        }
        for (thread, at_ns) in self.wanted(waits, history, account, since_ns).into_iter().take(LOOKS) {
            self.count += 1;
            self.looked.insert((thread, at_ns));
            let Some(process) = account.threads.get(&thread).map(|one| one.process) else { continue };
            let Some(look) = look::look(process, thread) else { continue };
            let now_ns = crate::now_ns().saturating_sub(ahead_ns);
            let Some(space) = maps.of(process) else { continue };
            let stack = unwinder.unwind(space, &look);
            let sure = stack.guessed_from.unwrap_or(usize::MAX).min(MOST_PLACES);
            let call = look.call.map(|(number, _)| number);
            let seen = Seen { call, places: stack.places.into_iter().take(sure).collect() };
            self.maybe.insert(thread, Maybe { now_ns, at_ns, seen });
        }
    }

    /// Somebody has waited: for one at whom we have looked meanwhile, and who was blocked then?
    pub fn piece(&mut self, piece: &Piece, history: &History) {
        let Whom::Thread(whom) = piece.whom else { return };
        let Some(Maybe { now_ns, at_ns, seen }) = self.maybe.get(&whom) else { return };
        let was_blocked = || history.split(whom, *at_ns, *now_ns).blocked_ns == now_ns - at_ns;
        if (piece.from_ns..piece.to_ns).contains(now_ns) && was_blocked() {
            *self.seen.entry(piece.key).or_default().entry(seen.clone()).or_default() += 1;
            // All who wait at a barrier wait for the same.
            if piece.key.class.is_barrier() {
                self.maybe.remove(&whom);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Record, What};
    use abi::profile::Class;

    /// Blocked from 100 to 200, and from 300 on.
    fn history() -> History {
        let mut history = History::default();
        for (time_ns, what) in [(0, What::In), (100, What::Out), (200, What::In), (300, What::Out)] {
            history.apply(&Record { process: 1, thread: 7, time_ns, what });
        }
        history
    }

    fn looked(at_ns: u64, now_ns: u64, class: Class, whom: u32, times: std::ops::Range<u64>) -> usize {
        let seen = Seen { call: None, places: Vec::new() };
        let maybe = [(7, Maybe { now_ns, at_ns, seen })].into_iter().collect();
        let mut looks = Looks { maybe, ..Looks::default() };
        let key = Key { image: 1, object: 0x40, class };
        let (from_ns, to_ns, whom) = (times.start, times.end, Whom::Thread(whom));
        let piece = Piece { key, site: 0, from_ns, to_ns, waiters: 2, whom };
        for _ in 0..2 {
            looks.piece(&piece, &history());
        }
        looks.seen.values().flat_map(HashMap::values).map(|count| *count as usize).sum()
    }

    #[test]
    fn a_look_counts_if_it_was_at_the_holder_in_that_block() {
        let lock = Class::Mutex;
        assert_eq!(looked(100, 150, lock, 7, 120..180), 2);
        assert_eq!(looked(100, 150, Class::Barrier, 7, 120..180), 1);
        // It had left the lock, or not got it yet; another thread had it.
        assert_eq!(looked(300, 350, lock, 7, 120..180), 0);
        assert_eq!(looked(100, 150, lock, 7, 160..180), 0);
        assert_eq!(looked(100, 150, lock, 8, 120..180), 0);
        // It ran meanwhile, and is blocked again.
        assert_eq!(looked(100, 350, lock, 7, 0..400), 0);
    }
}
