// SPDX-License-Identifier: MIT OR Apache-2.0
//! Leases: who has had its processors for long enough must give way to a higher priority. Not in the paper,
//! where a request waits for a hint however long that takes; for machines whose applications do not hint.

use crate::{Application, Policy};

/// From `length` after an application was last given a processor, a waiting request of higher priority may
/// take all but one.
///
/// The one remains because a program that runs must run somewhere; an equal priority takes nothing, or two
/// would take from each other in turns.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    /// In the unit of [`crate::System::apply`]'s `now`.
    pub length: u64,
}

impl Policy for Lease {
    fn claim(&self, holder: &Application, asker: &Application, now: u64) -> u32 {
        let over = self.due(holder).is_some_and(|due| now >= due);
        if over && asker.demand.priority > holder.demand.priority {
            holder.holds().saturating_sub(1)
        } else {
            0
        }
    }

    fn due(&self, holder: &Application) -> Option<u64> {
        (holder.holds() > 1).then(|| holder.since.saturating_add(self.length))
    }
}
