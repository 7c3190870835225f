// SPDX-License-Identifier: MIT OR Apache-2.0
//! The semaphore.

use core::fmt;
use core::sync::atomic::AtomicU32;
use core::time::Duration;
use std::time::Instant;

use linux::Linux;
use sync::semaphore::{self, RawSemaphore};

/// Permits that any thread may add and take.
///
/// 8 bytes. Not fair: whoever runs takes a permit first. [`acquire`](Self::acquire) gives a guard that
/// returns the permit; [`forget`](SemaphorePermit::forget) keeps it, and [`release`](Self::release) adds
/// one, so that it also counts what one thread makes and another uses.
///
/// ```
/// use std::thread;
/// use wakeful::Semaphore;
///
/// static SLOTS: Semaphore = Semaphore::new(2);
///
/// thread::scope(|scope| {
///     for _ in 0..8 {
///         scope.spawn(|| {
///             let _slot = SLOTS.acquire(); // two at a time
///         });
///     }
/// });
/// assert_eq!(SLOTS.available_permits(), 2);
/// ```
#[repr(transparent)]
pub struct Semaphore(semaphore::Wakeful<Linux>);

/// A permit of a [`Semaphore`], which has it back when this is dropped.
#[must_use = "if unused the permit is given back at once"]
pub struct SemaphorePermit<'a>(&'a Semaphore);

impl Semaphore {
    /// The most permits there can be: 2^30 - 1.
    pub const MAX_PERMITS: u32 = semaphore::MAX;

    /// A semaphore with so many permits.
    ///
    /// # Panics
    /// If they are more than [`MAX_PERMITS`](Self::MAX_PERMITS).
    #[must_use]
    pub const fn new(permits: u32) -> Self {
        assert!(permits <= Self::MAX_PERMITS, "more than Semaphore::MAX_PERMITS permits");
        let word = semaphore::Wakeful::<Linux>::word_of(permits);
        Self(semaphore::Wakeful::of_words(AtomicU32::new(word), AtomicU32::new(0)))
    }

    /// Takes a permit, waiting for one if there is none.
    #[inline]
    pub fn acquire(&self) -> SemaphorePermit<'_> {
        self.0.acquire(None);
        SemaphorePermit(self)
    }

    /// Takes a permit if there is one.
    #[inline]
    pub fn try_acquire(&self) -> Option<SemaphorePermit<'_>> {
        self.0.try_acquire().then(|| SemaphorePermit(self))
    }

    /// As [`acquire`](Self::acquire), but waits not longer than `timeout`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let none = wakeful::Semaphore::new(0);
    /// assert!(none.try_acquire_for(Duration::from_millis(1)).is_none());
    /// ```
    pub fn try_acquire_for(&self, timeout: Duration) -> Option<SemaphorePermit<'_>> {
        (self.0.try_acquire() || self.0.acquire(Some(crate::time::after(timeout))))
            .then(|| SemaphorePermit(self))
    }

    /// As [`acquire`](Self::acquire), but waits not longer than until `moment`.
    pub fn try_acquire_until(&self, moment: Instant) -> Option<SemaphorePermit<'_>> {
        (self.0.try_acquire() || self.0.acquire(Some(crate::time::at(moment)))).then(|| SemaphorePermit(self))
    }

    /// Adds a permit.
    ///
    /// # Panics
    /// If there are [`MAX_PERMITS`](Self::MAX_PERMITS).
    #[inline]
    pub fn release(&self) {
        assert!(self.0.release(), "more than Semaphore::MAX_PERMITS permits");
    }

    /// Permits that nobody has taken, at some moment during the call.
    #[must_use]
    pub fn available_permits(&self) -> u32 {
        self.0.available()
    }
}

impl SemaphorePermit<'_> {
    /// Keeps the permit for good.
    ///
    /// ```
    /// let semaphore = wakeful::Semaphore::new(1);
    /// semaphore.acquire().forget();
    /// assert!(semaphore.try_acquire().is_none());
    /// ```
    pub fn forget(self) {
        core::mem::forget(self);
    }
}

impl Drop for SemaphorePermit<'_> {
    #[inline]
    fn drop(&mut self) {
        // There was room for this one.
        self.0.0.release();
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("available_permits", &self.available_permits()).finish()
    }
}

impl fmt::Debug for SemaphorePermit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SemaphorePermit").finish_non_exhaustive()
    }
}
