// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks that know which of your threads are running.
//!
//! A spinning lock is fast until its holder loses its processor; then every waiter burns its time slice for nothing. A sleeping lock
//! is safe from that and pays two context switches for a critical section of a few nanoseconds. Which of the two is right
//! depends on one fact that only the kernel knows: does the holder run at this moment? [`Mutex`] and [`Condvar`] of
//! this crate look it up. Their interface is [`lock_api`]'s and so parking_lot's: no poisoning, guards that
//! map, timed acquires.
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
//! With more threads that want to run than processors (threads of yours, or other programs beside you, or a container's quota), and
//! locks that are fought for. It also helps where a condition variable is notified often.
//!
//! # When it does not
//!
//! Locks that nobody waits for cost what std's and parking_lot's cost. A program with a processor for each thread has no preempted
//! holders to avoid. Nor is there anything here for waiting in async code: a lock held across an `.await` is another matter.
//!
//! # Where the knowledge comes from
//!
//! A *view* of the kernel tells which threads run. Here it is `perf`: when a thread has to wait for a lock for the first time, it
//! opens a software perf event on itself that counts nothing and logs the thread's own context switches into a
//! page, which the other threads read. That needs no privilege where `/proc/sys/kernel/perf_event_paranoid` is at most 2.
//! Where it is refused the locks work all the same, by what they can see for themselves. The environment
//! variable `WAKEFUL_VIEW`, read once when the first thread waits, can be set to `none` to do without.
//!
//! What the kernel tells is a hint, late at times and at times missing. A wrong one costs time, never exclusion.
//!
//! # Cost
//!
//! A thread that never waits for a lock costs nothing. One that does has a block of 128 bytes and, in the `perf` view, two locked
//! pages (counted against `kernel.perf_event_mlock_kb`, then RLIMIT_MEMLOCK; beyond both it goes without), and its context switches
//! take a little longer. The process reserves address space for 4,095 threads once, without memory behind it; further threads
//! go without. Nothing is allocated, in no path.
//!
//! [`Mutex<T>`] is 4 bytes and the data, [`Condvar`] 8 bytes; both can stand in a `static`, and their bytes are zero when nobody
//! uses them. After a fork the child may use them as its parent could.

mod barrier;
mod condvar;
pub mod raw;
mod time;

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use lock_api;

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
/// It is not a [`lock_api::RawMutexFair`]: a fair release hands the lock to the next in line, and the next in line may be a thread that
/// does not run, which is what this lock exists to avoid. Whoever runs may take it; a thread that has waited too long
/// demands it and then gets it, so nobody starves. Locks in [`raw`] that serve in line are fair.
///
/// ```compile_fail
/// fn fair<R: wakeful::lock_api::RawMutexFair>() {}
/// fair::<wakeful::RawMutex>();
/// ```
pub type RawMutex = raw::wakeful::RawMutex;

/// Mutual exclusion: 4 bytes and the data.
///
/// [`lock_api::Mutex`] has the methods: `lock`, `try_lock`, `try_lock_for`, `try_lock_until`, `get_mut`, `into_inner`. A panic in
/// the critical section releases the lock and leaves no poison.
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

/// Holds a [`Mutex`] until dropped. Stays in its thread, because the lock word names the thread that holds it.
///
/// ```compile_fail
/// let mutex = wakeful::Mutex::new(0);
/// let guard = mutex.lock();
/// std::thread::scope(|scope| scope.spawn(move || drop(guard)));
/// ```
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

/// A guard of a part of the data, from `MutexGuard::map`.
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;
