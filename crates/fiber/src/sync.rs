// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks for fibers: the algorithms of the crate `sync` on [`Fibers`], and a condition variable of the
//! table's own. Kernel threads may use them as well.
//!
//! A fiber that holds one of these may wait, and whoever waits for it parks. So it is with the locks of
//! kernel threads on `Linux`. A lock of std held across a wait can stop its carrier for good: the holder
//! needs the very kernel thread that sleeps for the lock.
//!
//! A fiber that unwinds waits as a kernel thread. So a destructor must not wait, during a panic, for a fiber
//! that may share its carrier.

use core::fmt;
use core::sync::atomic::AtomicU32;
use core::time::Duration;
use std::collections::VecDeque;
use std::time::Instant;

use linux::Linux;
use lock_api::{GuardNoSend, MutexGuard as Guard};
use platform::{Clock, Deadline, Platform};
use sync::mutex::{Native, RawMutex as _, RawMutexTimed as _};
use sync::rwlock::{self, RawRwLock as _};
use sync::semaphore::{self, RawSemaphore as _};

use crate::machine::Fibers;
use crate::table;

fn after(timeout: Duration) -> Deadline {
    let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    Deadline { ns: Linux::now_ns().saturating_add(timeout), clock: Clock::Monotonic }
}

fn at(moment: Instant) -> Deadline {
    after(moment.saturating_duration_since(Instant::now()))
}

/// `sync::mutex::Native` on fibers: 4 bytes.
pub struct RawMutex(Native<Fibers>);

// SAFETY: `Native` excludes.
unsafe impl lock_api::RawMutex for RawMutex {
    #[allow(clippy::declare_interior_mutable_const)] // an initialiser
    const INIT: Self = Self(Native::INIT);
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        // SAFETY: no node.
        unsafe { self.0.lock(&()) };
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // SAFETY: no node.
        unsafe { self.0.try_lock(&()) }
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: as the caller promises.
        unsafe { self.0.unlock(&()) };
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawMutexTimed for RawMutex {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> bool {
        // SAFETY: no node.
        unsafe { self.0.lock_until(&(), after(timeout)) }
    }

    fn try_lock_until(&self, timeout: Instant) -> bool {
        // SAFETY: no node.
        unsafe { self.0.lock_until(&(), at(timeout)) }
    }
}

/// Mutual exclusion among fibers.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// Holds a [`Mutex`].
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

/// `sync::rwlock::Native` on fibers.
pub struct RawRwLock(rwlock::Native<Fibers>);

// SAFETY: `Native` lets many readers in, or one writer.
unsafe impl lock_api::RawRwLock for RawRwLock {
    #[allow(clippy::declare_interior_mutable_const)] // an initialiser
    const INIT: Self = Self(rwlock::Native::INIT);
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        // SAFETY: no node.
        unsafe { self.0.read(&()) };
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        // SAFETY: no node.
        unsafe { self.0.try_read(&()) }
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller is a reader.
        unsafe { self.0.unlock_read(&()) };
    }

    #[inline]
    fn lock_exclusive(&self) {
        // SAFETY: no node.
        unsafe { self.0.write(&()) };
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        // SAFETY: no node.
        unsafe { self.0.try_write(&()) }
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller is the writer.
        unsafe { self.0.unlock_write(&()) };
    }
}

/// Many reading fibers or one that writes.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;

/// A condition variable for fibers: C1 to C5 of `table.rs`.
#[derive(Default)]
pub struct Condvar {
    waiting: AtomicU32,
    /// C programs were compiled with 8 bytes.
    _spare: AtomicU32,
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}

impl Condvar {
    /// Nobody waits for it.
    #[must_use]
    pub const fn new() -> Self {
        Self { waiting: AtomicU32::new(0), _spare: AtomicU32::new(0) }
    }

    /// Releases the mutex, waits for a notification, acquires the mutex again.
    #[inline]
    pub fn wait<R: lock_api::RawMutex, T: ?Sized>(&self, guard: &mut Guard<'_, R, T>) {
        table::counted(&self.waiting, |counted| Guard::unlocked(guard, || counted.rest(None)));
    }

    /// As [`wait`](Self::wait), for no longer than this. False: the time was over.
    pub fn wait_for<R: lock_api::RawMutex, T: ?Sized>(
        &self,
        guard: &mut Guard<'_, R, T>,
        timeout: Duration,
    ) -> bool {
        let deadline = Some(after(timeout));
        table::counted(&self.waiting, |counted| Guard::unlocked(guard, || counted.rest(deadline)))
    }

    /// Waits as long as `condition` holds.
    #[inline]
    pub fn wait_while<R: lock_api::RawMutex, T: ?Sized>(
        &self,
        guard: &mut Guard<'_, R, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// Wakes one.
    #[inline]
    pub fn notify_one(&self) {
        table::signal(&self.waiting);
    }

    /// Wakes all.
    #[inline]
    pub fn notify_all(&self) {
        table::broadcast(&self.waiting);
    }
}

/// Permits that any fiber may add and take: `sync::semaphore::Wakeful`.
pub struct Semaphore(semaphore::Wakeful<Fibers>);

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("available_permits", &self.0.available()).finish()
    }
}

impl Semaphore {
    /// With so many permits.
    ///
    /// # Panics
    /// If they are more than 2^30 - 1.
    #[must_use]
    pub const fn new(permits: u32) -> Self {
        assert!(permits <= semaphore::MAX, "more than 2^30 - 1 permits");
        let word = semaphore::Wakeful::<Fibers>::word_of(permits);
        Self(semaphore::Wakeful::of_words(AtomicU32::new(word), AtomicU32::new(0)))
    }

    /// Takes a permit, waiting for one if there is none.
    #[inline]
    pub fn acquire(&self) {
        self.0.acquire(None);
    }

    /// Takes a permit if there is one.
    #[inline]
    pub fn try_acquire(&self) -> bool {
        self.0.try_acquire()
    }

    /// Takes a permit unless the time is over first.
    pub fn try_acquire_for(&self, timeout: Duration) -> bool {
        self.0.try_acquire() || self.0.acquire(Some(after(timeout)))
    }

    /// Adds a permit.
    ///
    /// # Panics
    /// If there are 2^30 - 1.
    #[inline]
    pub fn release(&self) {
        assert!(self.try_release(), "more than 2^30 - 1 permits");
    }

    /// Adds a permit unless there are 2^30 - 1.
    #[inline]
    pub fn try_release(&self) -> bool {
        self.0.release()
    }
}

/// A point that fibers pass together.
#[derive(Debug)]
pub struct Barrier {
    parties: u32,
    /// Who has come, and which round it is.
    state: Mutex<(u32, u64)>,
    passed: Condvar,
}

impl Barrier {
    /// For so many; 0 counts as 1.
    #[must_use]
    pub const fn new(parties: u32) -> Self {
        let parties = if parties == 0 { 1 } else { parties };
        Self { parties, state: Mutex::const_new(lock_api::RawMutex::INIT, (0, 0)), passed: Condvar::new() }
    }

    /// Waits for the others. True for one of those who pass together.
    pub fn wait(&self) -> bool {
        let mut state = self.state.lock();
        state.0 += 1;
        if state.0 == self.parties {
            *state = (0, state.1 + 1);
            self.passed.notify_all();
            return true;
        }
        let round = state.1;
        self.passed.wait_while(&mut state, |state| state.1 == round);
        false
    }
}

struct Queue<T> {
    items: VecDeque<T>,
    closed: bool,
}

/// A bounded channel: any fiber sends, any receives.
pub struct Channel<T> {
    room: usize,
    queue: Mutex<Queue<T>>,
    filled: Condvar,
    emptied: Condvar,
}

impl<T> fmt::Debug for Channel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("room", &self.room).finish_non_exhaustive()
    }
}

impl<T> Channel<T> {
    /// With room for so many, at least one.
    #[must_use]
    pub const fn new(room: usize) -> Self {
        Self {
            room: if room == 0 { 1 } else { room },
            queue: Mutex::const_new(
                lock_api::RawMutex::INIT,
                Queue { items: VecDeque::new(), closed: false },
            ),
            filled: Condvar::new(),
            emptied: Condvar::new(),
        }
    }

    /// Sends, waiting for room if there is none.
    ///
    /// # Errors
    /// Gives the item back if the channel is closed.
    pub fn send(&self, item: T) -> Result<(), T> {
        let mut queue = self.queue.lock();
        self.emptied.wait_while(&mut queue, |queue| queue.items.len() >= self.room && !queue.closed);
        if queue.closed {
            return Err(item);
        }
        queue.items.push_back(item);
        drop(queue);
        self.filled.notify_one();
        Ok(())
    }

    /// Receives, waiting for an item if there is none; `None`: closed, and empty.
    pub fn receive(&self) -> Option<T> {
        let mut queue = self.queue.lock();
        self.filled.wait_while(&mut queue, |queue| queue.items.is_empty() && !queue.closed);
        let item = queue.items.pop_front();
        drop(queue);
        if item.is_some() {
            self.emptied.notify_one();
        }
        item
    }

    /// No more is sent. What is in it can be received.
    pub fn close(&self) {
        self.queue.lock().closed = true;
        self.filled.notify_all();
        self.emptied.notify_all();
    }
}
