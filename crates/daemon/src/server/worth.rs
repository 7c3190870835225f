// SPDX-License-Identifier: MIT OR Apache-2.0
//! What programs make of their processors for whom the server chooses how many.
//!
//! Looked at once a second, where there are two such programs or more. The measure is the processor time of
//! the partition's processes. [`policy::Seen`] says what follows.

use std::time::Duration;

use policy::{Count, Event, Id};

use super::{AUDIT, Server};
use crate::kernel::Kernel;

/// When a program was looked at last, and how things were.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    at: Duration,
    used_ns: u64,
    holds: u32,
    /// See [`policy::Application::since`].
    since: u64,
}

impl Used {
    /// Hundredths of a processor in use since then; `None` if the processors are others, or it is too long
    /// ago.
    fn until(self, now: Self) -> Option<u32> {
        let time = now.at.saturating_sub(self.at);
        if (self.holds, self.since) != (now.holds, now.since) || !(AUDIT / 2..2 * AUDIT).contains(&time) {
            return None;
        }
        // Who joins the group brings all its time with it.
        let used_ns = u128::from(now.used_ns.checked_sub(self.used_ns)?);
        let hundredths = used_ns * 100 / time.as_nanos().max(1);
        let most = u128::from(now.holds) * 100;
        (hundredths <= most + most / 10).then(|| hundredths.min(most) as u32)
    }
}

impl<K: Kernel> Server<K> {
    /// Tells the policy.
    pub(super) fn look_at_use(&mut self) {
        let at = self.kernel.now();
        let chosen = self.system.applications().filter_map(|(id, application)| {
            let is = matches!(application.demand.count, Count::Choose { .. });
            (is && application.holds() > 0).then(|| (id, application.holds(), application.since))
        });
        let chosen: Vec<(Id, u32, u64)> = chosen.collect();
        if chosen.len() < 2 {
            return;
        }
        let mut all = Vec::new();
        for (id, holds, since) in chosen {
            let Some(member) = self.members.get_mut(&id) else { continue };
            let used = self.partitions.used(&self.kernel, member.process);
            let now = used.map(|used_ns| Used { at, used_ns, holds, since });
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
        let then = Used { at: Duration::from_secs(7), used_ns: 10_000_000_000, holds: 4, since: 3 };
        let now = Used { at: Duration::from_millis(8100), used_ns: 12_750_000_000, ..then };
        assert_eq!(then.until(now), Some(250));
        assert_eq!(then.until(Used { holds: 3, ..now }), None);
        assert_eq!(then.until(Used { since: 4, ..now }), None, "taken and given back");
        assert_eq!(then.until(Used { used_ns: 0, ..now }), None);
        assert_eq!(then.until(Used { used_ns: 14_500_000_000, ..now }), Some(400), "clocks differ a little");
        assert_eq!(then.until(Used { used_ns: 20_000_000_000, ..now }), None, "more than there is");
        assert_eq!(then.until(Used { at: Duration::from_secs(10), ..now }), None, "nobody looked meanwhile");
    }
}
