// SPDX-License-Identifier: MIT OR Apache-2.0
//! The situations that the published tests of std and of parking_lot put their locks in, put to ours.
//! Written anew; what those libraries have and we do not (poison, numbers of woken threads) is left out.

mod barrier;
mod condvar;
mod mutex;
mod rwlock;

use std::time::Duration;

/// Longer than any correct wait here.
const LONG: Duration = Duration::from_secs(60);
/// Long enough that a thread which was to arrive has arrived, as a rule; no test depends on it.
const SHORT: Duration = Duration::from_millis(20);

/// Runs its function when dropped, also while the thread panics.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
