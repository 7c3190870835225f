// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every lock of the catalogue that lives in place, by its name.
//!
//! Each module is a lock: `ttas_spin::Mutex<T>`, `ttas_spin::RawMutex`, `rw_native::RwLock<T>`, and so on.
//! They are the evidence for the default and the choice of those who know better; [`crate::Mutex`] is what
//! to use otherwise. Queue locks whose waiters bring a node (MCS) have no place to keep it in this
//! interface and are not here.
//!
//! ```
//! use wakeful::raw::wakeful as chosen;
//!
//! static TOTAL: chosen::Mutex<u64> = chosen::Mutex::new(0);
//! *TOTAL.lock() += 1;
//! assert_eq!(*TOTAL.lock(), 1);
//! ```

pub use crate::rwlock::each::*;

use core::fmt;
use core::time::Duration;
use std::time::Instant;

use linux::Linux;
use lock_api::{GuardNoSend, RawMutex, RawMutexFair, RawMutexTimed};
use platform::Platform;
use sync::mutex::{self, RawMutex as _, RawMutexTimed as _};

use crate::held;
use kind::{Fair, Kind};

/// A lock of the catalogue as [`lock_api`] wants it.
#[repr(transparent)]
pub struct RawLock<K: Kind>(K::Algorithm);

/// Which lock it is. The module is private: an algorithm is no part of this crate's interface.
mod kind {
    use super::{Linux, mutex};

    /// A lock that lives entirely in its own words, which are zero when it is free.
    ///
    /// # Safety
    /// The algorithm is made of plain words, and one whose bytes are all zero is a free lock.
    pub unsafe trait Kind {
        type Algorithm: mutex::RawMutex<Linux, Node = ()>;
    }

    /// A lock whose release always serves the thread that waits longest (where the catalogue says so: of
    /// those that run).
    pub trait Fair: Kind {}
}

impl<K: Kind> fmt::Debug for RawLock<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawLock").finish_non_exhaustive()
    }
}

// SAFETY: the algorithms of the catalogue exclude.
unsafe impl<K: Kind> RawMutex for RawLock<K> {
    #[allow(clippy::declare_interior_mutable_const)] // an initialiser, used once per lock
    // SAFETY: as Kind promises.
    const INIT: Self = Self(unsafe { core::mem::zeroed() });

    // The lock word names the thread that holds it, so another thread must not release it.
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        // SAFETY: there is no node.
        unsafe { self.0.lock(&()) }
        held::hold(self.address());
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // SAFETY: there is no node.
        let locked = unsafe { self.0.try_lock(&()) };
        if locked {
            held::hold(self.address());
        }
        locked
    }

    #[inline]
    unsafe fn unlock(&self) {
        held::hold(0);
        if held::owes(self.address()) {
            // SAFETY: as below.
            return unsafe { self.unlock_owing() };
        }
        // SAFETY: the caller holds the lock.
        unsafe { self.0.unlock(&()) }
    }
}

// SAFETY: as above; a false return acquired nothing.
unsafe impl<K: Kind> RawMutexTimed for RawLock<K>
where
    K::Algorithm: mutex::RawMutexTimed<Linux>,
{
    type Duration = Duration;
    type Instant = Instant;

    #[inline]
    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.try_lock() || self.try_lock_before(crate::time::after(timeout))
    }

    #[inline]
    fn try_lock_until(&self, timeout: Instant) -> bool {
        self.try_lock() || self.try_lock_before(crate::time::at(timeout))
    }
}

impl<K: Kind> RawLock<K>
where
    K::Algorithm: mutex::RawMutexTimed<Linux>,
{
    fn try_lock_before(&self, deadline: platform::Deadline) -> bool {
        // SAFETY: there is no node.
        let locked = unsafe { self.0.lock_until(&(), deadline) };
        if locked {
            held::hold(self.address());
        }
        locked
    }
}

impl<K: Kind> RawLock<K> {
    #[inline(always)]
    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// # Safety
    /// The caller holds the lock.
    #[cold]
    #[inline(never)]
    unsafe fn unlock_owing(&self) {
        let owed = held::take();
        // SAFETY: as promised.
        unsafe { self.0.unlock(&()) };
        if owed.leaves {
            // The wait that releases the lock takes it again, so it exists.
            self.0.leaving();
        }
        if !owed.word.is_null() {
            // The condition variable may be gone by now; only the address is used.
            Linux::wake(owed.word, owed.count);
        }
    }
}

// SAFETY: every release of these locks is a fair one.
unsafe impl<K: Fair> RawMutexFair for RawLock<K> {
    #[inline]
    unsafe fn unlock_fair(&self) {
        // SAFETY: the caller holds the lock.
        unsafe { self.unlock() }
    }
}

macro_rules! modules {
    ($({ $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*], $citation:literal, $summary:literal })*) => {
        $(modules!(@module $kind $name, $ident, $type, [$($flag)*], $citation, $summary);)*
    };
    (@module queue $($rest:tt)*) => {};
    (@module $kind:ident $name:literal, $ident:ident, $type:ty, [$($flag:ident)*], $citation:literal, $summary:literal) => {
        #[doc = concat!("`", $name, "`: ", $summary, " (", $citation, ").")]
        pub mod $ident {
            #[allow(unused_imports)]
            use ::catalog::sync;

            type Algorithm<P> = $type;

            /// This lock, as a type.
            #[derive(Debug)]
            pub enum Kind {}

            // SAFETY: a test compares a new lock with zeros.
            unsafe impl super::Kind for Kind {
                type Algorithm = Algorithm<linux::Linux>;
            }
            $(modules!(@flag $flag);)*

            /// The lock without data.
            pub type RawMutex = super::RawLock<Kind>;
            /// The lock with its data.
            pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
            /// What [`Mutex::lock`](lock_api::Mutex::lock) returns.
            pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

            #[cfg(test)]
            mod tests {
                #[test]
                fn a_free_lock_is_zeros() {
                    type Lock = super::Algorithm<linux::Linux>;
                    let free = <Lock as sync::mutex::RawMutex<linux::Linux>>::new();
                    // SAFETY: Kind: plain words; nobody else has the lock.
                    let bytes = unsafe {
                        core::slice::from_raw_parts(core::ptr::from_ref(&free).cast::<u8>(), size_of::<Lock>())
                    };
                    assert!(!bytes.is_empty() && bytes.iter().all(|&byte| byte == 0), "{bytes:?}");
                }
            }
        }
    };
    (@flag fair) => { impl super::Fair for Kind {} };
    (@flag $flag:ident) => {};
}

catalog::mutexes!(modules);
