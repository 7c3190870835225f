// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timeouts as deadlines. One too far away to express lies at the end of time, 584 years off.

use core::time::Duration;
use std::time::Instant;

use linux::Linux;
use platform::{Clock, Deadline, Platform};

pub fn after(timeout: Duration) -> Deadline {
    let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    Deadline { ns: Linux::now_ns().saturating_add(timeout_ns), clock: Clock::Monotonic }
}

/// `Instant` is the monotonic clock on Linux but does not show its reading, hence the detour.
pub fn at(moment: Instant) -> Deadline {
    after(moment.saturating_duration_since(Instant::now()))
}
