// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is to be nudged when.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Mutex, TryLockError};

use crate::record::Fiber;

/// Who could not fire the timers tries again after so long.
const SOON_NS: u64 = 100_000;

/// A timer that is set: its moment, and a number that makes it unique.
pub type Timer = (u64, u64);

#[derive(Clone, Copy)]
struct Sleeper(*const Fiber);

// SAFETY: a fiber's memory stays a record for ever, and nudging one that has gone on is harmless.
unsafe impl Send for Sleeper {}

/// All timers of a runtime.
#[derive(Default)]
pub struct Timers {
    set: Mutex<BTreeMap<Timer, Sleeper>>,
    number: AtomicU64,
    /// HINT: the earliest moment; 0: none.
    earliest: AtomicU64,
}

impl Timers {
    /// Has this fiber nudged at `ns`. If that is the earliest now, `arm` is told, under the lock: two that
    /// set timers at once must not arm in the wrong order.
    pub fn set(&self, ns: u64, fiber: *const Fiber, arm: impl FnOnce(u64)) -> Timer {
        let timer = (ns.max(1), self.number.fetch_add(1, Relaxed));
        let mut set = self.set.lock().unwrap_or_else(|poison| poison.into_inner());
        set.insert(timer, Sleeper(fiber));
        if set.first_key_value().is_some_and(|(first, _)| *first == timer) {
            self.earliest.store(timer.0, Relaxed);
            arm(timer.0);
        }
        timer
    }

    /// Takes a timer back, if it has not fired.
    pub fn cancel(&self, timer: Timer) {
        let mut set = self.set.lock().unwrap_or_else(|poison| poison.into_inner());
        set.remove(&timer);
        self.earliest.store(set.first_key_value().map_or(0, |(first, _)| first.0), Relaxed);
    }

    /// HINT: is any timer set?
    #[inline]
    pub fn any(&self) -> bool {
        self.earliest.load(Relaxed) != 0
    }

    /// For people: how many there are, and when the first is due.
    pub fn describe(&self) -> (usize, u64) {
        let set = self.set.lock().unwrap_or_else(|poison| poison.into_inner());
        (set.len(), set.first_key_value().map_or(0, |(first, _)| first.0))
    }

    /// HINT: is a timer due?
    pub fn due(&self, now_ns: u64) -> bool {
        let earliest = self.earliest.load(Relaxed);
        earliest != 0 && earliest <= now_ns
    }

    /// Nudges all that are due. Arms for the next one; 0: there is none. If another has the lock, it may be
    /// blocked in the allocator, and the caller may be the sentinel, who must hear of that: arms for soon.
    pub fn fire(&self, now_ns: u64, arm: impl FnOnce(u64)) {
        loop {
            let mut set = match self.set.try_lock() {
                Ok(set) => set,
                Err(TryLockError::Poisoned(poison)) => poison.into_inner(),
                Err(TryLockError::WouldBlock) => return arm(now_ns + SOON_NS),
            };
            let first = set.first_key_value().map(|(timer, sleeper)| (*timer, *sleeper));
            let Some((timer, Sleeper(fiber))) = first.filter(|(timer, _)| timer.0 <= now_ns) else {
                let next = first.map_or(0, |(timer, _)| timer.0);
                self.earliest.store(next, Relaxed);
                return arm(next);
            };
            set.remove(&timer);
            drop(set);
            // SAFETY: as for Send.
            unsafe { (*fiber).nudge() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody waits for a fiber that is blocked while it sets a timer.
    #[test]
    fn firing_does_not_wait() {
        let (timers, mut armed) = (Timers::default(), 0);
        let held = timers.set.lock().unwrap();
        timers.fire(5, |ns| armed = ns);
        assert_eq!(armed, 5 + SOON_NS);
        drop(held);
        timers.fire(5, |ns| armed = ns);
        assert_eq!(armed, 0);
    }
}
