// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many readers or one writer.

mod rw_hardware;
mod rw_native;
mod rw_queue;
mod rw_smart_q;
mod rw_tas_b;
mod rw_wakeful;

pub use rw_hardware::{Hardware, HardwareNp};
pub use rw_native::Native;
pub use rw_queue::{Fifo, Queue, QueueNode, Succession};
pub use rw_smart_q::{Smart, SmartQ};
pub use rw_tas_b::TasB;
pub use rw_wakeful::Wakeful;

use platform::{Deadline, Platform};

/// A reader-writer lock: the word and its protocol, no data and no guard.
///
/// The signatures are the papers': `reader_lock (L, I)`, `writer_unlock (L, I)`. The node `I` is the
/// thread's place in line; a lock that lives entirely in its own words has `Node = ()`.
pub trait RawRwLock<P: Platform>: Send + Sync {
    /// What a thread brings to the lock and leaves there until it has released it.
    type Node: Default;

    /// A free lock.
    fn new() -> Self;

    /// Acquires the lock together with other readers. A thread that holds it already, in whatever way, may
    /// wait for itself.
    ///
    /// # Safety
    /// `node` is not in use by another acquisition and stays where it is until `unlock_read` has returned.
    unsafe fn read(&self, node: &Self::Node);

    /// As [`RawRwLock::read`], if that is possible without waiting.
    ///
    /// # Safety
    /// As for [`RawRwLock::read`], if it returns true.
    unsafe fn try_read(&self, node: &Self::Node) -> bool;

    /// Releases what [`RawRwLock::read`] acquired.
    ///
    /// # Safety
    /// The caller acquired the lock by `read` with this `node` and has not released it since.
    unsafe fn unlock_read(&self, node: &Self::Node);

    /// Acquires the lock alone.
    ///
    /// # Safety
    /// `node` is not in use by another acquisition and stays where it is until `unlock_write` has returned.
    unsafe fn write(&self, node: &Self::Node);

    /// As [`RawRwLock::write`], if that is possible without waiting.
    ///
    /// # Safety
    /// As for [`RawRwLock::write`], if it returns true.
    unsafe fn try_write(&self, node: &Self::Node) -> bool;

    /// Releases what [`RawRwLock::write`] acquired.
    ///
    /// # Safety
    /// The caller acquired the lock by `write` with this `node` and has not released it since.
    unsafe fn unlock_write(&self, node: &Self::Node);
}

/// A lock that can give up waiting.
pub trait RawRwLockTimed<P: Platform>: RawRwLock<P> {
    /// As [`RawRwLock::read`] unless the deadline passes first; false if it did.
    ///
    /// # Safety
    /// As for [`RawRwLock::read`], if it returns true.
    unsafe fn read_until(&self, node: &Self::Node, deadline: Deadline) -> bool;

    /// As [`RawRwLock::write`] unless the deadline passes first; false if it did.
    ///
    /// # Safety
    /// As for [`RawRwLock::write`], if it returns true.
    unsafe fn write_until(&self, node: &Self::Node, deadline: Deadline) -> bool;
}

/// A lock that a reader may acquire once more, whoever waits for it. Such an acquisition is released by
/// [`RawRwLock::unlock_read`], too.
pub trait RawRwLockRecursive<P: Platform>: RawRwLockTimed<P, Node = ()> {
    /// As [`RawRwLock::read`], and waits for nobody but a writer that holds the lock: other readers may
    /// wait for this one.
    fn read_recursive(&self);

    /// As [`RawRwLockRecursive::read_recursive`], if that is possible without waiting.
    fn try_read_recursive(&self) -> bool;

    /// As [`RawRwLockRecursive::read_recursive`] unless the deadline passes first; false if it did.
    fn read_recursive_until(&self, deadline: Deadline) -> bool;
}

/// A lock that one of its readers may turn into its writer without letting another writer in between, and
/// back.
pub trait RawRwLockUpgrade<P: Platform>: RawRwLockTimed<P, Node = ()> {
    /// Acquires the lock together with readers, alone among those who may upgrade and among writers.
    fn upgradable(&self);

    /// As [`RawRwLockUpgrade::upgradable`], if that is possible without waiting.
    fn try_upgradable(&self) -> bool;

    /// As [`RawRwLockUpgrade::upgradable`] unless the deadline passes first; false if it did.
    fn upgradable_until(&self, deadline: Deadline) -> bool;

    /// Releases what [`RawRwLockUpgrade::upgradable`] acquired.
    ///
    /// # Safety
    /// The caller acquired it and has neither released nor changed it since.
    unsafe fn unlock_upgradable(&self);

    /// From upgradable to writer: waits for the readers to leave.
    ///
    /// # Safety
    /// As for [`RawRwLockUpgrade::unlock_upgradable`].
    unsafe fn upgrade(&self);

    /// As [`RawRwLockUpgrade::upgrade`], if no reader is there; false: still upgradable.
    ///
    /// # Safety
    /// As for [`RawRwLockUpgrade::unlock_upgradable`].
    unsafe fn try_upgrade(&self) -> bool;

    /// As [`RawRwLockUpgrade::upgrade`] unless the deadline passes first; false: still upgradable.
    ///
    /// # Safety
    /// As for [`RawRwLockUpgrade::unlock_upgradable`].
    unsafe fn upgrade_until(&self, deadline: Deadline) -> bool;

    /// From writer to reader. Never waits.
    ///
    /// # Safety
    /// The caller is the writer.
    unsafe fn downgrade(&self);

    /// From writer to upgradable. Never waits.
    ///
    /// # Safety
    /// The caller is the writer.
    unsafe fn downgrade_to_upgradable(&self);

    /// From upgradable to reader. Never waits.
    ///
    /// # Safety
    /// As for [`RawRwLockUpgrade::unlock_upgradable`].
    unsafe fn downgrade_upgradable(&self);
}
