// SPDX-License-Identifier: MIT OR Apache-2.0
//! The condition variable with guards.

use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use core::time::Duration;
use std::time::Instant;

use linux::Linux;
use lock_api::{MutexGuard, RawMutex};
use platform::Deadline;
use sync::condvar;

use crate::held::{self, Owed};

/// Waits for a condition on what a mutex protects.
///
/// 16 bytes, const-constructible. Works with the guard of any mutex of this crate. All threads that wait at
/// one time must use the same mutex; with several the program stays sound, and a notification may reach
/// whom it does not concern.
///
/// A wait can return without a notification, so wait in a loop, or let [`wait_while`](Self::wait_while) do
/// it.
///
/// ```
/// use std::thread;
/// use wakeful::{Condvar, Mutex};
///
/// static READY: Mutex<bool> = Mutex::new(false);
/// static CHANGED: Condvar = Condvar::new();
///
/// let waiter = thread::spawn(|| {
///     let mut ready = READY.lock();
///     CHANGED.wait_while(&mut ready, |ready| !*ready);
///     assert!(*ready);
/// });
/// *READY.lock() = true;
/// CHANGED.notify_one();
/// waiter.join().unwrap();
/// ```
pub struct Condvar {
    pub(crate) algorithm: condvar::Wakeful<Linux>,
    /// The mutex of who waited last.
    mutex: AtomicUsize,
}

/// Did a timed wait end because its time was over?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// True if the time was over (and, for the waits with a condition, the condition still held).
    #[must_use]
    pub const fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    /// A condition variable that nobody waits for.
    #[must_use]
    pub const fn new() -> Self {
        Self { algorithm: condvar::Wakeful::INIT, mutex: AtomicUsize::new(0) }
    }

    /// Releases the mutex, waits for a notification, acquires the mutex again.
    ///
    /// No notification is lost that comes after the release.
    pub fn wait<R: RawMutex, T: ?Sized>(&self, guard: &mut MutexGuard<'_, R, T>) {
        self.wait_before(guard, None);
    }

    /// As [`wait`](Self::wait), but not longer than `timeout`, apart from the time to acquire the mutex
    /// again.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use wakeful::{Condvar, Mutex};
    /// let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    /// assert!(condvar.wait_for(&mut mutex.lock(), Duration::from_millis(1)).timed_out());
    /// ```
    pub fn wait_for<R: RawMutex, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        WaitTimeoutResult(!self.wait_before(guard, Some(crate::time::after(timeout))))
    }

    /// As [`wait`](Self::wait), but not longer than until `moment`, apart from the time to acquire the
    /// mutex again.
    pub fn wait_until<R: RawMutex, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        moment: Instant,
    ) -> WaitTimeoutResult {
        WaitTimeoutResult(!self.wait_before(guard, Some(crate::time::at(moment))))
    }

    /// Waits as long as `condition` holds; does not wait if it does not.
    pub fn wait_while<R: RawMutex, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) {
        self.wait_while_before(guard, condition, None);
    }

    /// Waits as long as `condition` holds, but not longer than `timeout`.
    pub fn wait_while_for<R: RawMutex, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        condition: impl FnMut(&mut T) -> bool,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        self.wait_while_before(guard, condition, Some(crate::time::after(timeout)))
    }

    /// Waits as long as `condition` holds, but not longer than until `moment`.
    pub fn wait_while_until<R: RawMutex, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        condition: impl FnMut(&mut T) -> bool,
        moment: Instant,
    ) -> WaitTimeoutResult {
        self.wait_while_before(guard, condition, Some(crate::time::at(moment)))
    }

    /// Wakes one waiting thread, if there is any.
    ///
    /// Best called with the mutex held: a thread that comes between would find the condition changed and
    /// nobody woken yet.
    #[inline]
    pub fn notify_one(&self) {
        let ours = &self.algorithm;
        if !ours.has_lone_sleeper() || !self.owe(|| ours.take_lone_sleeper().into()) {
            ours.signal();
        }
    }

    /// Wakes all waiting threads.
    #[inline]
    pub fn notify_all(&self) {
        let ours = &self.algorithm;
        let first = held::first();
        if !ours.has_sleepers() || !self.owe(|| ours.take_all(first)) {
            ours.broadcast(first);
        }
    }

    /// Has so many sleepers as `take` says woken when the caller releases their mutex, if it holds that: see
    /// held.rs.
    fn owe(&self, take: impl FnOnce() -> u32) -> bool {
        held::owe(self.mutex.load(Relaxed), || match take() {
            0 => None,
            count => Some(Owed { word: self.algorithm.word(), count, leaves: false }),
        })
    }

    /// False if the deadline passed.
    fn wait_before<R: RawMutex, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        deadline: Option<Deadline>,
    ) -> bool {
        // SAFETY: only the address is used; the guard stays as it is.
        let mutex = core::ptr::from_ref(unsafe { MutexGuard::mutex(guard).raw() }).addr();
        self.mutex.store(mutex, Relaxed);
        held::waits();
        let waiter = self.algorithm.enter();
        if !held::owe(mutex, || Some(Owed { word: core::ptr::null(), count: 0, leaves: true })) {
            held::leaves(mutex);
        }
        MutexGuard::unlocked(guard, || self.algorithm.wait(waiter, deadline))
    }

    fn wait_while_before<R: RawMutex, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        deadline: Option<Deadline>,
    ) -> WaitTimeoutResult {
        let mut in_time = true;
        loop {
            if !condition(&mut **guard) {
                return WaitTimeoutResult(false);
            }
            if !in_time {
                return WaitTimeoutResult(true);
            }
            in_time = self.wait_before(guard, deadline);
        }
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
