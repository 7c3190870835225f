// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reader-writer locks as [`lock_api`] wants them.

use core::fmt;
use core::time::Duration;
use std::time::Instant;

use linux::Linux;
use lock_api::GuardNoSend;
use sync::rwlock::{self, RawRwLock as _, RawRwLockRecursive, RawRwLockTimed, RawRwLockUpgrade};

use crate::time::{after, at};
use kind::Kind;

/// A reader-writer lock of the catalogue as [`lock_api`] wants it.
#[repr(transparent)]
pub struct RawLock<K: Kind>(K::Algorithm);

/// Which lock it is. The module is private: an algorithm is no part of this crate's interface.
mod kind {
    use super::{Linux, rwlock};

    /// A lock that lives entirely in its own words, which are zero when it is free.
    ///
    /// # Safety
    /// The algorithm is made of plain words, and one whose bytes are all zero is a free lock.
    pub unsafe trait Kind {
        type Algorithm: rwlock::RawRwLock<Linux, Node = ()>;
    }
}

impl<K: Kind> fmt::Debug for RawLock<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawLock").finish_non_exhaustive()
    }
}

// SAFETY: the algorithms of the catalogue let many readers in, or one writer.
unsafe impl<K: Kind> lock_api::RawRwLock for RawLock<K> {
    #[allow(clippy::declare_interior_mutable_const)] // an initialiser, used once per lock
    // SAFETY: as Kind promises.
    const INIT: Self = Self(unsafe { core::mem::zeroed() });

    // Some name the thread that holds them, so another thread must not release them.
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        // SAFETY: there is no node.
        unsafe { self.0.read(&()) }
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        // SAFETY: there is no node.
        unsafe { self.0.try_read(&()) }
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller is a reader.
        unsafe { self.0.unlock_read(&()) }
    }

    #[inline]
    fn lock_exclusive(&self) {
        // SAFETY: there is no node.
        unsafe { self.0.write(&()) }
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        // SAFETY: there is no node.
        unsafe { self.0.try_write(&()) }
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller is the writer.
        unsafe { self.0.unlock_write(&()) }
    }
}

// SAFETY: as above; a false return acquired nothing.
unsafe impl<K: Kind> lock_api::RawRwLockTimed for RawLock<K>
where
    K::Algorithm: RawRwLockTimed<Linux>,
{
    type Duration = Duration;
    type Instant = Instant;

    #[inline]
    fn try_lock_shared_for(&self, timeout: Duration) -> bool {
        // SAFETY: there is no node.
        unsafe { self.0.try_read(&()) || self.0.read_until(&(), after(timeout)) }
    }

    #[inline]
    fn try_lock_shared_until(&self, timeout: Instant) -> bool {
        // SAFETY: there is no node.
        unsafe { self.0.try_read(&()) || self.0.read_until(&(), at(timeout)) }
    }

    #[inline]
    fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
        // SAFETY: there is no node.
        unsafe { self.0.try_write(&()) || self.0.write_until(&(), after(timeout)) }
    }

    #[inline]
    fn try_lock_exclusive_until(&self, timeout: Instant) -> bool {
        // SAFETY: there is no node.
        unsafe { self.0.try_write(&()) || self.0.write_until(&(), at(timeout)) }
    }
}

// SAFETY: as above; an acquisition beside readers never waits.
unsafe impl<K: Kind> lock_api::RawRwLockRecursive for RawLock<K>
where
    K::Algorithm: RawRwLockRecursive<Linux>,
{
    #[inline]
    fn lock_shared_recursive(&self) {
        self.0.read_recursive();
    }

    #[inline]
    fn try_lock_shared_recursive(&self) -> bool {
        self.0.try_read_recursive()
    }
}

// SAFETY: as above.
unsafe impl<K: Kind> lock_api::RawRwLockRecursiveTimed for RawLock<K>
where
    K::Algorithm: RawRwLockRecursive<Linux>,
{
    #[inline]
    fn try_lock_shared_recursive_for(&self, timeout: Duration) -> bool {
        self.0.try_read_recursive() || self.0.read_recursive_until(after(timeout))
    }

    #[inline]
    fn try_lock_shared_recursive_until(&self, timeout: Instant) -> bool {
        self.0.try_read_recursive() || self.0.read_recursive_until(at(timeout))
    }
}

// SAFETY: as above; one at a time may upgrade.
unsafe impl<K: Kind> lock_api::RawRwLockUpgrade for RawLock<K>
where
    K::Algorithm: RawRwLockUpgrade<Linux>,
{
    #[inline]
    fn lock_upgradable(&self) {
        self.0.upgradable();
    }

    #[inline]
    fn try_lock_upgradable(&self) -> bool {
        self.0.try_upgradable()
    }

    #[inline]
    unsafe fn unlock_upgradable(&self) {
        // SAFETY: as the caller promised.
        unsafe { self.0.unlock_upgradable() }
    }

    #[inline]
    unsafe fn upgrade(&self) {
        // SAFETY: as the caller promised.
        unsafe { self.0.upgrade() }
    }

    #[inline]
    unsafe fn try_upgrade(&self) -> bool {
        // SAFETY: as the caller promised.
        unsafe { self.0.try_upgrade() }
    }
}

// SAFETY: as above.
unsafe impl<K: Kind> lock_api::RawRwLockUpgradeTimed for RawLock<K>
where
    K::Algorithm: RawRwLockUpgrade<Linux>,
{
    #[inline]
    fn try_lock_upgradable_for(&self, timeout: Duration) -> bool {
        self.0.try_upgradable() || self.0.upgradable_until(after(timeout))
    }

    #[inline]
    fn try_lock_upgradable_until(&self, timeout: Instant) -> bool {
        self.0.try_upgradable() || self.0.upgradable_until(at(timeout))
    }

    #[inline]
    unsafe fn try_upgrade_for(&self, timeout: Duration) -> bool {
        // SAFETY: as the caller promised.
        unsafe { self.0.try_upgrade() || self.0.upgrade_until(after(timeout)) }
    }

    #[inline]
    unsafe fn try_upgrade_until(&self, timeout: Instant) -> bool {
        // SAFETY: as the caller promised.
        unsafe { self.0.try_upgrade() || self.0.upgrade_until(at(timeout)) }
    }
}

// SAFETY: as above; nobody else writes in between.
unsafe impl<K: Kind> lock_api::RawRwLockDowngrade for RawLock<K>
where
    K::Algorithm: RawRwLockUpgrade<Linux>,
{
    #[inline]
    unsafe fn downgrade(&self) {
        // SAFETY: as the caller promised.
        unsafe { self.0.downgrade() }
    }
}

// SAFETY: as above.
unsafe impl<K: Kind> lock_api::RawRwLockUpgradeDowngrade for RawLock<K>
where
    K::Algorithm: RawRwLockUpgrade<Linux>,
{
    #[inline]
    unsafe fn downgrade_upgradable(&self) {
        // SAFETY: as the caller promised.
        unsafe { self.0.downgrade_upgradable() }
    }

    #[inline]
    unsafe fn downgrade_to_upgradable(&self) {
        // SAFETY: as the caller promised.
        unsafe { self.0.downgrade_to_upgradable() }
    }
}

macro_rules! modules {
    ($({ $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*], $citation:literal, $summary:literal })*) => {
        /// One module for each lock.
        pub mod each {
            $(modules!(@module $kind $name, $ident, $type, $citation, $summary);)*
        }
    };
    (@module queue $($rest:tt)*) => {};
    (@module $kind:ident $name:literal, $ident:ident, $type:ty, $citation:literal, $summary:literal) => {
        #[doc = concat!("`", $name, "`: ", $summary, " (", $citation, ").")]
        pub mod $ident {
            #[allow(unused_imports)]
            use ::catalog::sync;

            type Algorithm<P> = $type;

            /// This lock, as a type.
            #[derive(Debug)]
            pub enum Kind {}

            // SAFETY: a test compares a new lock with zeros.
            unsafe impl crate::rwlock::Kind for Kind {
                type Algorithm = Algorithm<linux::Linux>;
            }

            /// The lock without data.
            pub type RawRwLock = crate::rwlock::RawLock<Kind>;
            /// The lock with its data.
            pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
            /// What [`RwLock::read`](lock_api::RwLock::read) returns.
            pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
            /// What [`RwLock::write`](lock_api::RwLock::write) returns.
            pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

            #[cfg(test)]
            mod tests {
                #[test]
                fn a_free_lock_is_zeros() {
                    type Lock = super::Algorithm<linux::Linux>;
                    let free = <Lock as sync::rwlock::RawRwLock<linux::Linux>>::new();
                    // SAFETY: Kind: plain words; nobody else has the lock.
                    let bytes = unsafe {
                        core::slice::from_raw_parts(core::ptr::from_ref(&free).cast::<u8>(), size_of::<Lock>())
                    };
                    assert!(!bytes.is_empty() && bytes.iter().all(|&byte| byte == 0), "{bytes:?}");
                }
            }
        }
    };
}

catalog::rwlocks!(modules);
