// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the events cost while the program runs, and how many waits are told therefore.
//!
//! The cost is the processor time that they take here, and what the program's threads take to write them.
//! When it is above [`MOST`] of the time, half as many waits are told, or less. When it is below [`LEAST`],
//! twice as many.

use abi::profile::MOST_EVERY;

/// BOUND: from one look to the next.
const LOOK_NS: u64 = 20_000_000;
/// BOUND: parts of one processor's time.
const MOST: f64 = 0.03;
const LEAST: f64 = 0.01;
/// BOUND: ns that an event takes its thread, about: the clock, and 32 bytes.
const EVENT_NS: u64 = 50;

/// Decides.
#[derive(Debug, Default)]
pub(super) struct Cost {
    looked_ns: u64,
    /// Since the last look, and what there had been before the last time.
    cost_ns: u64,
    taken: [u64; 3],
    every: u32,
    /// For how long not all were told.
    sampled_ns: u64,
}

impl Cost {
    /// It took so long to take what there was. Since the beginning, these were events that a sample has fewer
    /// of; others, with the kernel's records; and such events that found no room, or were taken back.
    pub fn took(&mut self, took_ns: u64, events: u64, others: u64, untaken: u64) {
        let now = [events, others, untaken];
        let came = [0, 1, 2].map(|at| now[at].saturating_sub(self.taken[at]));
        self.taken = now;
        let part = came[0] as f64 / (came[0] + came[1]).max(1) as f64;
        self.cost_ns += (took_ns as f64 * part) as u64 + (came[0] + came[2]) * EVENT_NS;
    }

    /// One wait of how many is to be told, as a power of two, if that changes.
    pub fn look(&mut self, now_ns: u64) -> Option<u32> {
        if self.looked_ns == 0 {
            (self.looked_ns, self.cost_ns) = (now_ns, 0);
        }
        let passed_ns = now_ns.saturating_sub(self.looked_ns);
        if passed_ns < LOOK_NS {
            return None;
        }
        let cost_ns = std::mem::take(&mut self.cost_ns);
        self.looked_ns = now_ns;
        if self.every > 0 {
            self.sampled_ns += passed_ns;
        }
        let every = step(self.every, cost_ns as f64 / passed_ns as f64);
        (std::mem::replace(&mut self.every, every) != every).then_some(every)
    }

    /// For how long not all waits were told.
    pub fn sampled_ns(&self) -> u64 {
        self.sampled_ns
    }
}

fn step(every: u32, cost: f64) -> u32 {
    if cost > MOST {
        let halves = (cost / MOST).log2().ceil().max(1.0) as u32;
        every.saturating_add(halves).min(MOST_EVERY)
    } else if cost < LEAST {
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
        cost.took(double_ns, 0, 0, 0);
        assert_eq!(cost.look(1 + LOOK_NS / 2), None);
        assert_eq!(cost.look(1 + LOOK_NS), None, "no event took that");
        cost.took(double_ns, 10, 0, 0);
        assert_eq!(cost.look(1 + 2 * LOOK_NS), Some(1));
        // Most of it was records, which no wait makes.
        cost.took(double_ns, 20, 10, 0);
        assert_eq!(cost.look(1 + 3 * LOOK_NS), None);
        // Almost eight times too much, by what the threads take.
        cost.took(0, 20, 10, double_ns * 4 / EVENT_NS);
        assert_eq!(cost.look(1 + 4 * LOOK_NS), Some(4));
        for every in [3, 2, 1, 0] {
            assert_eq!(cost.look(1 + (8 - u64::from(every)) * LOOK_NS), Some(every));
        }
        assert_eq!(cost.sampled_ns(), 6 * LOOK_NS);
        assert_eq!(step(MOST_EVERY, 1.0), MOST_EVERY);
    }
}
