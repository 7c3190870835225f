// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits of the calling fiber: to be unparked, for a time, for its next turn.

use core::time::Duration;

use linux::Linux;
use platform::Platform;

use crate::cancel::{cancellation_point, is_due};
use crate::carrier::{self, switch};
use crate::record::Why;
use crate::table;

/// Waits until somebody has called [`Thread::unpark`] since the last time, or for no reason. Outside of
/// fibers it is `std::thread::park`.
///
/// [`Thread::unpark`]: crate::thread::Thread::unpark
pub fn park() {
    uncancelled::park();
    cancellation_point();
}

/// As [`park`], but not longer than this.
pub fn park_timeout(timeout: Duration) {
    uncancelled::park_timeout(timeout);
    cancellation_point();
}

/// Lets the other fibers go first. Outside of fibers it is `std::thread::yield_now`.
#[inline]
pub fn yield_now() {
    uncancelled::yield_now();
    cancellation_point();
}

/// Waits for at least this long; the carrier takes another fiber.
pub fn sleep(time: Duration) {
    uncancelled::sleep(time);
    cancellation_point();
}

fn after(timeout: Duration) -> u64 {
    Linux::now_ns().saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
}

/// Sleeps for so long, cancelled or not.
pub fn nap(time: Duration) {
    // SAFETY: null, or the calling fiber, which runs.
    match unsafe { table::switching().as_ref() } {
        None => std::thread::sleep(time),
        Some(fiber) => table::sleep_until(fiber, after(time), |_| false),
    }
}

/// The same waits for code that must not unwind. A cancellation ends them, but for a yield, and is not
/// delivered.
#[doc(hidden)]
pub mod uncancelled {
    use super::*;
    pub use crate::cancel::take;

    /// As [`super::park`].
    pub fn park() {
        // SAFETY: the calling fiber runs.
        match unsafe { carrier::current().as_ref() } {
            Some(fiber) => table::park(fiber),
            None => std::thread::park(),
        }
    }

    /// As [`super::park_timeout`].
    pub fn park_timeout(timeout: Duration) {
        // SAFETY: null, or the calling fiber, which runs.
        match unsafe { table::switching().as_ref() } {
            Some(fiber) => table::park_until(fiber, after(timeout)),
            None => std::thread::park_timeout(timeout),
        }
    }

    /// As [`super::yield_now`].
    #[inline]
    pub fn yield_now() {
        let fiber = table::switching();
        if fiber.is_null() {
            return std::thread::yield_now();
        }
        switch(fiber, Why::Yields);
    }

    /// As [`super::sleep`].
    pub fn sleep(time: Duration) {
        // SAFETY: null, or the calling fiber, which runs.
        match unsafe { table::switching().as_ref() } {
            None => std::thread::sleep(time),
            Some(fiber) => table::sleep_until(fiber, after(time), is_due),
        }
    }
}
