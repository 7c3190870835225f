// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the events cost while the program runs, and how many waits are told therefore.
//!
//! The cost is the processor time that they take here, and what the program's threads take to write them.
//! When it is above [`MOST`] of the time, half as many waits are told, or less. When it is below [`LEAST`],
//! twice as many. Barriers are judged apart from all else, so that neither is sampled for the other. What the
//! other one costs is not to be spent, but for a half.

use abi::profile::MOST_EVERY;

/// BOUND: from one look to the next.
const LOOK_NS: u64 = 20_000_000;
/// BOUND: parts of one processor's time.
const MOST: f64 = 0.03;
const LEAST: f64 = 0.01;
/// BOUND: ns that an event takes its thread, about: the clock, and 32 bytes.
const EVENT_NS: u64 = 50;

/// What a sample has fewer of: locks and semaphores; and barriers.
pub(super) type Both<T> = [T; 2];

/// Decides.
#[derive(Debug, Default)]
pub(super) struct Cost {
    looked_ns: u64,
    /// Since the last look.
    cost_ns: Both<u64>,
    /// What there had been before the last time.
    taken: Both<u64>,
    others: [u64; 2],
    back: u64,
    dropped: u64,
    every: Both<u32>,
    /// For how long not all were told.
    sampled_ns: u64,
}

impl Cost {
    /// It took so long to take what there was. Since the beginning, these were events that a sample has fewer
    /// of; other events, and the kernel's records; releases of locks that were told, or taken back; and
    /// events that found no room. Of those nobody knows what they were: they count as the events do.
    pub fn took(&mut self, took_ns: u64, events: Both<u64>, others: [u64; 2], (back, dropped): (u64, u64)) {
        let came = [0, 1].map(|at| events[at].saturating_sub(self.taken[at]));
        let [other, records] = [0, 1].map(|at| others[at].saturating_sub(self.others[at]));
        let lost_ns = dropped.saturating_sub(self.dropped) * EVENT_NS;
        self.cost_ns[0] += back.saturating_sub(self.back) * EVENT_NS;
        (self.taken, self.others, self.back, self.dropped) = (events, others, back, dropped);
        let told = (came[0] + came[1] + other).max(1);
        for (cost_ns, came) in self.cost_ns.iter_mut().zip(came) {
            let part = |of_ns: u64, all: u64| (of_ns as f64 * came as f64 / all as f64) as u64;
            *cost_ns += part(took_ns, told + records) + part(lost_ns, told) + came * EVENT_NS;
        }
    }

    /// One wait of how many is to be told, as powers of two, if that changes.
    pub fn look(&mut self, now_ns: u64) -> Option<Both<u32>> {
        if self.looked_ns == 0 {
            (self.looked_ns, self.cost_ns) = (now_ns, [0; 2]);
        }
        let passed_ns = now_ns.saturating_sub(self.looked_ns);
        if passed_ns < LOOK_NS {
            return None;
        }
        let costs = std::mem::take(&mut self.cost_ns).map(|cost_ns| cost_ns as f64 / passed_ns as f64);
        self.looked_ns = now_ns;
        if self.every != [0; 2] {
            self.sampled_ns += passed_ns;
        }
        let every = [0, 1].map(|at| step(self.every[at], costs[at], costs[1 - at]));
        (std::mem::replace(&mut self.every, every) != every).then_some(every)
    }

    /// One wait of how many is told now.
    pub fn one_in(&self) -> Both<u64> {
        self.every.map(|power| 1 << power)
    }

    /// For how long not all waits were told.
    pub fn sampled_ns(&self) -> u64 {
        self.sampled_ns
    }
}

fn step(every: u32, cost: f64, other: f64) -> u32 {
    let [most, least] = [MOST, LEAST].map(|bound| bound - other.min(bound / 2.0));
    if cost > most {
        let halves = (cost / most).log2().ceil().max(1.0) as u32;
        every.saturating_add(halves).min(MOST_EVERY)
    } else if cost < least {
        every.saturating_sub(1)
    } else {
        every
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_too_much_is_told_more_seldom_and_then_again() {
        let mut cost = Cost::default();
        assert_eq!(cost.look(1), None);
        // Too much of the time, and half of a look's time is no look.
        let double_ns = (LOOK_NS as f64 * MOST * 1.9) as u64;
        cost.took(double_ns, [0; 2], [0; 2], (0, 0));
        assert_eq!(cost.look(1 + LOOK_NS / 2), None);
        assert_eq!(cost.look(1 + LOOK_NS), None, "no event took that");
        cost.took(double_ns, [10, 0], [0; 2], (0, 0));
        assert_eq!(cost.look(1 + 2 * LOOK_NS), Some([1, 0]));
        // Most of it was records, which no wait makes.
        cost.took(double_ns, [20, 0], [0, 10], (0, 0));
        assert_eq!(cost.look(1 + 3 * LOOK_NS), None);
        // Almost eight times too much, by what the threads take.
        cost.took(0, [20, 0], [0, 10], (double_ns * 4 / EVENT_NS, 0));
        assert_eq!(cost.look(1 + 4 * LOOK_NS), Some([4, 0]));
        for every in [3, 2, 1, 0] {
            assert_eq!(cost.look(1 + (8 - u64::from(every)) * LOOK_NS), Some([every, 0]));
        }
        assert_eq!(cost.sampled_ns(), 6 * LOOK_NS);
        assert_eq!(step(MOST_EVERY, 1.0, 0.0), MOST_EVERY);
    }

    #[test]
    fn neither_is_sampled_for_the_other() {
        for (at, more) in [(0, [1, 0]), (1, [0, 1])] {
            let mut cost = Cost::default();
            cost.look(1);
            let (much_ns, mut events) = ((LOOK_NS as f64 * MOST * 1.9) as u64, [10; 2]);
            events[at] = 10_000;
            cost.took(much_ns - 10_000 * EVENT_NS, events, [0; 2], (0, 0));
            assert_eq!(cost.look(1 + LOOK_NS), Some(more));
        }
        // What finds no room is like the rest.
        let mut cost = Cost::default();
        cost.look(1);
        cost.took(0, [1, 999], [0; 2], (0, LOOK_NS / 10 / EVENT_NS));
        assert_eq!(cost.look(1 + LOOK_NS), Some([0, 2]));
        let mut cost = Cost::default();
        cost.look(1);
        cost.took(0, [1, 0], [999, 0], (0, LOOK_NS / 10 / EVENT_NS));
        assert_eq!(cost.look(1 + LOOK_NS), None, "others found no room");
        // Together they do not take more, and one that takes nothing is told again beside the other.
        assert_eq!([step(2, MOST * 0.9, MOST * 0.9), step(2, MOST * 0.4, MOST * 0.4)], [3, 2]);
        assert_eq!([step(2, LEAST / 10.0, MOST), step(2, LEAST * 0.6, MOST)], [1, 2]);
    }
}
