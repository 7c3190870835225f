// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C library's deadlines.

use core::ffi::c_int;
use libc::{clockid_t, timespec};
use platform::{Clock, Deadline};

/// The clock, if a deadline can be on it.
pub fn clock(id: clockid_t) -> Result<Clock, c_int> {
    match id {
        libc::CLOCK_MONOTONIC => Ok(Clock::Monotonic),
        libc::CLOCK_REALTIME => Ok(Clock::Realtime),
        _ => Err(libc::EINVAL),
    }
}

/// The deadline; EINVAL if the nanoseconds are not. A moment before the epoch is one that has passed, one too far to
/// count is the last that can be counted (in 584 years).
pub fn deadline(clock: Clock, time: &timespec) -> Result<Deadline, c_int> {
    if !(0..1_000_000_000).contains(&time.tv_nsec) {
        return Err(libc::EINVAL);
    }
    let ns = match u64::try_from(time.tv_sec) {
        Ok(seconds) => seconds.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64),
        Err(_) => 0,
    };
    Ok(Deadline { ns, clock })
}
