// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looks at threads that are blocked while others wait for them: in which call, or page fault, and where.
//!
//! A lock's holder is known. The thread that will come last to a barrier is not. So each blocked thread that
//! waits for nothing itself is looked at once, while somebody waits at a barrier. If it then comes last, that
//! counts.

use std::collections::{HashMap, HashSet};

use super::history::{Did, History};
use super::waits::{Key, Piece, Waits, Whom};
use crate::account::Account;
use crate::look;
use crate::maps::{Maps, Place};
use crate::unwind::Unwinder;

/// BOUND: looks in one turn, and at all.
const LOOKS: usize = 2;
const MOST_LOOKS: u32 = 4_000;
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

/// All looks.
#[derive(Default)]
pub(super) struct Looks {
    /// How often a thread for which others waited there was seen so.
    pub seen: HashMap<Key, HashMap<Seen, u32>>,
    /// Threads that may come last to a barrier: when they were looked at.
    maybe: HashMap<u32, (u64, Seen)>,
    /// Threads and since when they were blocked, at which somebody has looked.
    looked: HashSet<(u32, u64)>,
    count: u32,
}

impl Looks {
    /// Whom to look at: blocked since then or longer; and for which lock, if that is known.
    fn wanted(
        &self,
        waits: &Waits,
        history: &History,
        account: &Account,
        since_ns: u64,
    ) -> Vec<(u32, u64, Option<Key>)> {
        let blocked = |thread: u32| match history.now(thread) {
            Some((Did::Blocked, at_ns)) if at_ns <= since_ns => Some(at_ns),
            _ => None,
        };
        let mut wanted = Vec::new();
        let mut barriers = HashSet::new();
        for (thread, now) in waits.waiting().filter(|(_, now)| now.since_ns <= since_ns) {
            match waits.whom(now.key, thread) {
                Whom::Thread(holder) if waits.where_waits(holder).is_none() => {
                    wanted.extend(blocked(holder).map(|at_ns| (holder, at_ns, Some(now.key))));
                }
                _ if now.key.class.is_barrier() => _ = barriers.insert(now.process),
                _ => {}
            }
        }
        if !barriers.is_empty() {
            let others = account.threads.values().filter(|one| barriers.contains(&one.process));
            let others = others.filter(|one| waits.where_waits(one.thread).is_none());
            wanted.extend(others.filter_map(|one| Some((one.thread, blocked(one.thread)?, None))));
        }
        wanted.retain(|(thread, at_ns, _)| !self.looked.contains(&(*thread, *at_ns)));
        wanted
    }

    pub fn look(
        &mut self,
        (waits, history, account): (&Waits, &History, &Account),
        (maps, unwinder): (&Maps, &mut Unwinder),
        since_ns: u64,
        now_ns: u64,
    ) {
        if self.count >= MOST_LOOKS {
            return;
        }
        for (thread, at_ns, key) in self.wanted(waits, history, account, since_ns).into_iter().take(LOOKS) {
            self.count += 1;
            self.looked.insert((thread, at_ns));
            let Some(process) = account.threads.get(&thread).map(|one| one.process) else { continue };
            let Some(look) = look::look(process, thread) else { continue };
            let Some(space) = maps.of(process) else { continue };
            let stack = unwinder.unwind(space, &look);
            let sure = stack.guessed_from.unwrap_or(usize::MAX).min(MOST_PLACES);
            let call = look.call.map(|(number, _)| number);
            let seen = Seen { call, places: stack.places.into_iter().take(sure).collect() };
            match key {
                Some(key) => *self.seen.entry(key).or_default().entry(seen).or_default() += 1,
                None => _ = self.maybe.insert(thread, (now_ns, seen)),
            }
        }
    }

    /// Somebody has waited at a barrier: for one at whom we have looked meanwhile?
    pub fn piece(&mut self, piece: &Piece) {
        let Whom::Thread(last) = piece.whom else { return };
        if !piece.key.class.is_barrier() {
            return;
        }
        let is_then = |at_ns: u64| piece.from_ns <= at_ns && at_ns <= piece.to_ns;
        if self.maybe.get(&last).is_some_and(|(at_ns, _)| is_then(*at_ns))
            && let Some((_, seen)) = self.maybe.remove(&last)
        {
            *self.seen.entry(piece.key).or_default().entry(seen).or_default() += 1;
        }
    }
}
