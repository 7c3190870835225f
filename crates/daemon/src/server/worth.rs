// SPDX-License-Identifier: MIT OR Apache-2.0
//! What programs make of their processors for whom the server chooses how many.
//!
//! Looked at once a second, where there are two such programs or more. The measure is the processor time of the
//! partition's processes. [`policy::Seen`] says what follows.

use std::time::Duration;

use policy::{Count, Event, Id};

use super::{AUDIT, Server};
use crate::kernel::Kernel;

/// In nanoseconds: `USER_HZ` is 100 on all machines that there are.
const TICK_NS: u128 = 10_000_000;

/// When a program was looked at last, and how things were.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    at: Duration,
    ticks: u64,
    holds: u32,
    /// See [`policy::Application::since`].
    since: u64,
}

impl Used {
    /// Hundredths of a processor in use since then; `None` if the processors are others, or it is too long ago.
    fn until(self, now: Self) -> Option<u32> {
        let time = now.at.saturating_sub(self.at);
        if (self.holds, self.since) != (now.holds, now.since) || !(AUDIT / 2..2 * AUDIT).contains(&time) {
            return None;
        }
        // A child that is born and gone in another group takes its time with it.
        let ticks = u128::from(now.ticks.checked_sub(self.ticks)?);
        Some((ticks * TICK_NS * 100 / time.as_nanos().max(1)) as u32)
    }
}

impl<K: Kernel> Server<K> {
    /// Tells the policy.
    pub(super) fn look_at_use(&mut self) {
        let at = self.kernel.now();
        let chosen = self.system.applications().filter_map(|(id, application)| {
            let is = matches!(application.demand.count, Count::Choose { .. });
            is.then(|| (id, application.holds(), application.since))
        });
        let chosen: Vec<(Id, u32, u64)> = chosen.collect();
        if chosen.len() < 2 {
            return;
        }
        let mut all = Vec::new();
        for (id, holds, since) in chosen {
            let Some(member) = self.members.get_mut(&id) else { continue };
            let ticks = self.partitions.used(&self.kernel, member.process);
            let now = ticks.map(|ticks| Used { at, ticks, holds, since });
            let before = std::mem::replace(&mut member.used, now);
            if let (Some(before), Some(now)) = (before, now)
                && let Some(hundredths) = before.until(now)
            {
                all.push((id, hundredths));
            }
        }
        if !all.is_empty() {
            let _ = self.apply(Event::Used(all));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_time_with_the_same_processors() {
        let then = Used { at: Duration::from_secs(7), ticks: 1000, holds: 4, since: 3 };
        let now = Used { at: Duration::from_millis(8100), ticks: 1275, ..then };
        assert_eq!(then.until(now), Some(250));
        assert_eq!(then.until(Used { holds: 3, ..now }), None);
        assert_eq!(then.until(Used { since: 4, ..now }), None, "taken and given back");
        assert_eq!(then.until(Used { ticks: 999, ..now }), None);
        assert_eq!(then.until(Used { at: Duration::from_secs(10), ..now }), None, "nobody looked meanwhile");
    }
}
