// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data with a lock that may be taken inside `malloc`, and across a fork.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering::*};

use linux::Linux;
use sync::mutex::{Native, RawMutex};

/// Data with a lock: [`Native`], which knows no threads. The default lock would register each thread that
/// waits, a second time where the interposer's own copy has, and have it watched.
pub struct Locked<T> {
    lock: Native<Linux>,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time has the value.
unsafe impl<T: Send> Sync for Locked<T> {}

/// The thread that forks and holds all locks for that. Handlers of others may have it allocate meanwhile.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// A number of the calling thread, and of what becomes of it in a child.
fn me() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::__errno_location() as usize }
}

/// The calling thread holds all locks, or does not any more.
pub fn forks(whether: bool) {
    FORKS.store(if whether { me() } else { 0 }, Relaxed);
}

struct Unlock<'a>(Option<&'a Native<Linux>>);

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        if let Some(lock) = self.0 {
            // SAFETY: made by who holds it.
            unsafe { lock.unlock(&()) };
        }
    }
}

impl<T> Locked<T> {
    pub const fn new(value: T) -> Self {
        Self { lock: Native::INIT, value: UnsafeCell::new(value) }
    }

    /// Works on the value. `work` does not come here again.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: unlocked by `Unlock`.
        let unlock = if unsafe { self.lock.try_lock(&()) } {
            Some(&self.lock)
        } else if FORKS.load(Relaxed) == me() {
            None
        } else {
            // SAFETY: the same.
            unsafe { self.lock.lock(&()) };
            Some(&self.lock)
        };
        let _unlock = Unlock(unlock);
        // SAFETY: this thread has locked it, now or before it forks.
        work(unsafe { &mut *self.value.get() })
    }

    /// The same, if it is free.
    pub fn try_with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        // SAFETY: unlocked by `Unlock`.
        if !unsafe { self.lock.try_lock(&()) } {
            return None;
        }
        let _unlock = Unlock(Some(&self.lock));
        // SAFETY: it is locked.
        Some(work(unsafe { &mut *self.value.get() }))
    }

    /// Locks it, until [`Self::after_fork`].
    pub fn before_fork(&self) {
        // SAFETY: unlocked by `after_fork`.
        unsafe { self.lock.lock(&()) };
    }

    /// # Safety
    /// This thread, or in a child the one that it was, has locked it by [`Self::before_fork`].
    pub unsafe fn after_fork(&self) {
        // SAFETY: as promised. The lock knows no threads. If others sleep on it in the parent, the child
        // wakes nobody: the futex is the process's own.
        unsafe { self.lock.unlock(&()) };
    }
}
