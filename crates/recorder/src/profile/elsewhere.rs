// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that are blocked in futex(2) outside of all that is told: locks of the program's own, as those of
//! Rust's std and parking_lot, and of Go.
//!
//! In each turn one thread that is blocked and waits for nothing that is told is looked at. It stands for all
//! of them, for the time since the last look. A thread that waits for another one's end is in futex(2), too:
//! that one is no lock, and shared with the kernel by its flag.

use super::waits::Waits;
use crate::account::{Account, State};
use crate::fast::HashMap;
use crate::look;
use crate::maps::{Maps, Place};
use crate::unwind::Unwinder;

/// BOUND: from one look to the next, and the time that one may stand for.
const LOOK_NS: u64 = 9_000_000;
const MOST_NS: u64 = 50_000_000;
/// BOUND: threads of which one is chosen.
const MOST_THREADS: usize = 256;
/// BOUND: looks at a whole stack, and functions that are kept of it.
const MOST_STACKS: u32 = 200;
const MOST_PLACES: usize = 12;
const FUTEX_PRIVATE_FLAG: u64 = 128;

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Elsewhere {
    /// Time of all threads together, as an estimate.
    pub blocked_ns: u64,
    /// Looks that found a thread there.
    pub looks: u32,
    /// Stacks, innermost first, and how often each was seen: the first looks.
    pub stacks: Vec<(Vec<Place>, u32)>,
}

/// Looks so far.
#[derive(Debug, Default)]
pub(super) struct Looks {
    looked_ns: u64,
    next: usize,
    blocked_ns: u64,
    looks: u32,
    unwound: u32,
    stacks: HashMap<Vec<Place>, u32>,
}

impl Looks {
    pub fn look(
        &mut self,
        (waits, account): (&Waits, &Account),
        (maps, unwinder): (&Maps, &mut Unwinder),
        now_ns: u64,
    ) {
        if self.looked_ns == 0 {
            self.looked_ns = now_ns;
        }
        let past_ns = now_ns.saturating_sub(self.looked_ns);
        if past_ns < LOOK_NS {
            return;
        }
        self.looked_ns = now_ns;
        let is_meant = |thread: u32| waits.where_waits(thread).is_none();
        let all = account.threads.values().take(MOST_THREADS);
        let blocked: Vec<(u32, u32)> = all
            .filter(|one| one.state == State::Blocked && is_meant(one.thread))
            .map(|one| (one.process, one.thread))
            .collect();
        self.next = self.next.wrapping_add(1);
        let Some(&(process, thread)) = blocked.get(self.next % blocked.len().max(1)) else { return };
        if !look::call(process, thread).is_some_and(is_wait) {
            return;
        }
        self.looks += 1;
        self.blocked_ns += past_ns.min(MOST_NS) * blocked.len() as u64;
        if self.unwound < MOST_STACKS
            && let Some(look) = look::look(process, thread)
            && let Some(space) = maps.of(process)
        {
            self.unwound += 1;
            let stack = unwinder.unwind(space, &look);
            let sure = stack.guessed_from.unwrap_or(usize::MAX).min(MOST_PLACES);
            *self.stacks.entry(stack.places.into_iter().take(sure).collect()).or_default() += 1;
        }
    }

    pub fn finish(self) -> Elsewhere {
        let stacks = self.stacks.into_iter().collect();
        Elsewhere { blocked_ns: self.blocked_ns, looks: self.looks, stacks }
    }
}

/// A wait in futex(2) that is for no thread's end.
fn is_wait((number, arguments): look::Call) -> bool {
    i64::from(number) == libc::SYS_futex && arguments[1] & FUTEX_PRIVATE_FLAG != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_for_a_threads_end_waits_for_no_lock() {
        let futex = libc::SYS_futex as u32;
        let wait = |operation| (futex, [0x7f00, operation, 2, 0, 0, 0]);
        // FUTEX_WAIT_BITSET, by FUTEX_CLOCK_REALTIME, with and without FUTEX_PRIVATE_FLAG.
        assert_eq!([128, 9 | 128 | 256, 9 | 256].map(|one| is_wait(wait(one))), [true, true, false]);
        assert!(!is_wait((libc::SYS_read as u32, [0, 128, 0, 0, 0, 0])));
    }
}
