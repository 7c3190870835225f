// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks that know which of your threads are running.

pub mod raw;
mod time;

pub use lock_api;

/// The default lock without data: 4 bytes.
pub type RawMutex = raw::wakeful::RawMutex;
/// Mutual exclusion.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// Holds the lock until dropped.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
/// A guard of a part of the data.
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;
