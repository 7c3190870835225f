// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who goes on at each step of an exploration, by which policy; and what was chosen.

use rand_pcg::Pcg64Mcg;

use crate::chance::below;

/// A step at which it is not as by default, and who goes on there.
pub(crate) type Change = (u64, usize);

pub(crate) enum Policy {
    /// As told.
    Told(Vec<Change>),
    Random(Pcg64Mcg),
    Pct {
        random: Pcg64Mcg,
        priorities: Vec<u64>,
        changes: Vec<u64>,
        least: u64,
    },
}

/// Chooses, and remembers.
pub(crate) struct Explorer {
    policy: Policy,
    pub steps: u64,
    pub most: u64,
    pub changes: Vec<Change>,
    /// Who else could have gone on at each step, a bit a thread.
    pub others: Vec<u64>,
}

impl Explorer {
    pub fn new(policy: Policy, most: u64) -> Self {
        Self { policy, steps: 0, most, changes: Vec::new(), others: Vec::new() }
    }

    /// Who goes on: `default`, or one of `ready`. `paused` is who has just paused.
    pub fn choose(&mut self, default: usize, ready: &[usize], paused: Option<usize>) -> usize {
        let step = self.steps;
        self.steps += 1;
        let all = |thread: usize| ready.contains(&thread);
        let chosen = match &mut self.policy {
            Policy::Told(changes) => match changes.iter().find(|change| change.0 == step) {
                Some(&(_, thread)) if all(thread) => thread,
                _ => default,
            },
            Policy::Random(random) => match below(random, 8) {
                0 => ready[below(random, ready.len() as u64) as usize],
                _ => default,
            },
            Policy::Pct { random, priorities, changes, least } => {
                while priorities.len() <= ready.iter().max().copied().unwrap_or(0) {
                    priorities.push((1 << 32) + below(random, 1 << 32));
                }
                let lowered = if changes.contains(&step) { Some(default) } else { paused };
                if let Some(thread) = lowered {
                    *least -= 1;
                    priorities[thread] = *least;
                }
                ready.iter().copied().max_by_key(|&thread| priorities[thread]).unwrap_or(default)
            }
        };
        if matches!(self.policy, Policy::Told(_)) {
            self.others.push(
                ready.iter().filter(|&&thread| thread != default).fold(0, |bits, &thread| bits | 1 << thread),
            );
        }
        if chosen != default {
            self.changes.push((step, chosen));
        }
        chosen
    }
}
