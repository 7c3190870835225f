// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks that know which of your threads are running.
//!
//! A spinning lock is fast until its holder loses its processor; then every waiter burns its time slice for
//! nothing. A sleeping lock is safe from that and pays two context switches for a critical section of a few
//! nanoseconds. Which of the two is right depends on one fact that only the kernel knows: does the holder
//! run at this moment? [`Mutex`] and [`Condvar`] of this crate look it up. Their interface is
//! [`lock_api`]'s and so parking_lot's: no poisoning, guards that map, timed acquires.
//!
//! ```
//! use std::thread;
//! use wakeful::Mutex;
//!
//! static HITS: Mutex<Vec<usize>> = Mutex::new(Vec::new());
//!
//! thread::scope(|scope| {
//!     for thread in 0..4 {
//!         scope.spawn(move || HITS.lock().push(thread));
//!     }
//! });
//! assert_eq!(HITS.lock().len(), 4);
//! ```
//!
//! # When it helps
//!
//! With more threads that want to run than processors (threads of yours, or other programs beside you, or a
//! container's quota), and locks that are fought for. It also helps where a condition variable is notified
//! often.
//!
//! # When it does not
//!
//! Locks that nobody waits for cost what std's and parking_lot's cost. A program with a processor for each
//! thread has no preempted holders to avoid. Nor is there anything here for waiting in async code: a lock
//! held across an `.await` is another matter.
//!
//! # Where the knowledge comes from
//!
//! A *view* of the kernel tells which threads run. Here it is `perf`: when a thread has to wait for a lock
//! for the first time, it opens a software perf event on itself that counts nothing and logs the thread's
//! own context switches into a page, which the other threads read. That needs no privilege where
//! `/proc/sys/kernel/perf_event_paranoid` is at most 2. Where it is refused the locks work all the same, by
//! what they can see for themselves. The environment variable `WAKEFUL_VIEW`, read once when the first
//! thread waits, can be set to `none` to do without.
//!
//! Where a processor server runs (`wakefuld`), a program that calls [`init`] gets the view `bpf` from it,
//! with no privilege either: an eBPF program in the kernel then says more, for less at each context switch.
//!
//! What the kernel tells is a hint, late at times and at times missing. A wrong one costs time, never
//! exclusion.
//!
//! # Cost
//!
//! A thread that never waits for a lock costs nothing. One that does has a block of 128 bytes and, in the
//! `perf` view, two locked pages (counted against `kernel.perf_event_mlock_kb`, then RLIMIT_MEMLOCK; beyond
//! both it goes without), and its context switches take a little longer. The process reserves address space
//! for 4,095 threads once, without memory behind it; further threads go without. Locks and their waits
//! allocate nothing, except that [`Delegated::run_async`] allocates its request.
//!
//! [`Mutex<T>`] is 4 bytes and the data, [`RwLock<T>`] 20 bytes and the data, [`Condvar`] 16 bytes,
//! [`Semaphore`] 8, [`Once`] 4, [`Delegated<T>`] of [`ByHolder`] 192 and the data in lines of 64; all can
//! stand in a `static`, and their bytes are zero when nobody uses them. After a fork the child may use them
//! as its parent could. What another thread held then stays held.
//!
//! A [`Delegated<T>`] of [`ByServer`] is none of these: it is made at run time, allocates, and cannot be
//! used in a forked child.

#![warn(missing_docs)]

// Tests of programs are run here as well.
#[cfg(test)]
extern crate self as wakeful;

/// The example of the crate's page is tested as the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

mod barrier;
mod condvar;
mod delegated;
mod held;
pub mod importance;
mod once;
pub mod parallel;
pub mod partition;
pub mod raw;
mod rwlock;
mod semaphore;
pub mod thread;
mod time;

/// Asks the processor server for its view of this program's threads, if there is one, waiting for it for no
/// longer than a twentieth of a second. For the beginning of `main`: once a thread has waited for a lock it
/// changes nothing. If the server ends, the program goes over to the view that it would have had without,
/// and comes back when there is another server.
///
/// Programs that `wakeful run` starts need not call it.
pub fn init() {
    linux::init();
}

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use delegated::{ByHolder, ByServer, Delegated, DelegatedGuard, RclServer, SectionHandle};
pub use lock_api;
/// Memory on the node where delegated sections run, and heaps bound to a node.
pub use numa;
pub use once::{Once, OnceLock, OnceState};
pub use semaphore::{Semaphore, SemaphorePermit};

/// The default lock without data: 4 bytes, `sync::mutex::Wakeful` underneath.
///
/// Implements [`lock_api::RawMutex`] and [`lock_api::RawMutexTimed`], for use in types of your own:
///
/// ```
/// use wakeful::RawMutex;
/// use wakeful::lock_api::{RawMutex as _, RawMutexTimed as _};
///
/// static LOCK: RawMutex = RawMutex::INIT;
/// LOCK.lock();
/// assert!(!LOCK.try_lock_for(std::time::Duration::from_millis(1)));
/// // SAFETY: this thread acquired it above.
/// unsafe { LOCK.unlock() };
/// ```
///
/// It is not a [`lock_api::RawMutexFair`]: a fair release hands the lock to the next in line, and the next
/// in line may be a thread that does not run, which is what this lock exists to avoid. Whoever runs may
/// take it; a thread that has waited too long demands it and then gets it, so nobody starves. Locks in
/// [`raw`] that serve in line are fair.
///
/// ```compile_fail
/// fn fair<R: wakeful::lock_api::RawMutexFair>() {}
/// fair::<wakeful::RawMutex>();
/// ```
pub type RawMutex = raw::wakeful::RawMutex;

/// Mutual exclusion: 4 bytes and the data.
///
/// [`lock_api::Mutex`] has the methods: `lock`, `try_lock`, `try_lock_for`, `try_lock_until`, `get_mut`,
/// `into_inner`. A panic in the critical section releases the lock and leaves no poison.
///
/// ```
/// use std::time::Duration;
/// use wakeful::Mutex;
///
/// let mutex = Mutex::new(String::from("wake"));
/// mutex.lock().push_str("ful");
/// if let Some(text) = mutex.try_lock_for(Duration::from_millis(10)) {
///     assert_eq!(*text, "wakeful");
/// }
/// assert_eq!(mutex.into_inner(), "wakeful");
/// ```
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;

/// Holds a [`Mutex`] until dropped. Stays in its thread, because the lock word names the thread that holds
/// it.
///
/// ```compile_fail
/// let mutex = wakeful::Mutex::new(0);
/// let guard = mutex.lock();
/// std::thread::scope(|scope| scope.spawn(move || drop(guard)));
/// ```
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

/// A guard of a part of the data, from `MutexGuard::map`.
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;

/// The default reader-writer lock without data: 20 bytes, `sync::rwlock::Wakeful` underneath.
///
/// Implements [`lock_api::RawRwLock`] and its timed, recursive, upgrading and downgrading companions. Not
/// [`lock_api::RawRwLockFair`], for the reason that [`RawMutex`] gives.
///
/// ```compile_fail
/// fn fair<R: wakeful::lock_api::RawRwLockFair>() {}
/// fair::<wakeful::RawRwLock>();
/// ```
pub type RawRwLock = raw::rw_wakeful::RawRwLock;

/// Many readers or one writer: 20 bytes and the data.
///
/// [`lock_api::RwLock`] has the methods: `read`, `write`, `try_read`, `try_write_for`, `upgradable_read`,
/// `read_recursive`, `get_mut`, `into_inner` and so on. A panic in the critical section releases the lock
/// and leaves no poison.
///
/// ```
/// use std::collections::HashMap;
/// use wakeful::{RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard};
///
/// static AGES: RwLock<Option<HashMap<&str, u32>>> = RwLock::new(None);
///
/// AGES.write().get_or_insert_default().insert("Ada", 36);
/// assert_eq!(AGES.read().as_ref().and_then(|ages| ages.get("Ada").copied()), Some(36));
///
/// // Look first, and write only if need be: nobody else writes in between.
/// let ages = AGES.upgradable_read();
/// if ages.as_ref().is_some_and(|ages| !ages.contains_key("Alan")) {
///     let mut ages = RwLockUpgradableReadGuard::upgrade(ages);
///     ages.get_or_insert_default().insert("Alan", 41);
///     // And let others read while we look at what we wrote.
///     let ages = RwLockWriteGuard::downgrade(ages);
///     assert_eq!(ages.as_ref().unwrap().len(), 2);
/// }
/// ```
///
/// Neither readers nor writers starve: a thread that has waited for its turn demands the lock, and those
/// who come later wait for it. So a thread that holds the lock for reading must not `read` it again,
/// because a writer may be waiting in between for the first to be released; `read_recursive` is for that.
///
/// ```
/// use std::time::Duration;
/// use wakeful::RwLock;
///
/// let lock = RwLock::new(1);
/// let one = lock.read();
/// let two = lock.read_recursive();
/// assert_eq!(*one + *two, 2);
/// assert!(lock.try_write_for(Duration::from_millis(1)).is_none());
/// ```
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;

/// Holds an [`RwLock`] for reading until dropped. Stays in its thread.
///
/// ```compile_fail
/// let lock = wakeful::RwLock::new(0);
/// let guard = lock.read();
/// std::thread::scope(|scope| scope.spawn(move || drop(guard)));
/// ```
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;

/// Holds an [`RwLock`] for writing until dropped.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

/// Holds an [`RwLock`] for reading until dropped, and may be turned into a [`RwLockWriteGuard`]. One thread
/// at a time has one.
pub type RwLockUpgradableReadGuard<'a, T> = lock_api::RwLockUpgradableReadGuard<'a, RawRwLock, T>;

/// A guard of a part of the data, from `RwLockReadGuard::map`.
pub type MappedRwLockReadGuard<'a, T> = lock_api::MappedRwLockReadGuard<'a, RawRwLock, T>;

/// A guard of a part of the data, from `RwLockWriteGuard::map`.
pub type MappedRwLockWriteGuard<'a, T> = lock_api::MappedRwLockWriteGuard<'a, RawRwLock, T>;

/// The Rust code of the pages, which the tests of the documentation run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/threads.md")]
#[doc = include_str!("../../../docs/use.md")]
mod pages {}
