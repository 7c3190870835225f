// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lock of the table of those who wait, and a condition variable over it.

use std::sync::Arc;

use ::fiber::bolt::Bolt;
use ::fiber::fences::Fences;
use platform::{Atomic, AtomicInt, Ordering::*, Platform};
use sync::mutex::{Native, RawMutex};

use crate::bodies::together;
use crate::{Cell, Machine};

/// It joins the list after it has released the mutex.
pub const JOINS_LATE: u32 = 1;
/// It is counted after it has released the mutex.
pub const COUNTS_LATE: u32 = 2;

/// What [`bolting`] asks of a lock.
pub trait RawBolt<P: Platform>: Send + Sync + 'static {
    /// Free.
    fn new() -> Self;
    /// Runs this as the holder.
    fn locked<T>(&self, section: impl FnOnce() -> T) -> T;
}

impl<P: Fences> RawBolt<P> for Bolt<P> {
    fn new() -> Self {
        Self::new()
    }
    fn locked<T>(&self, section: impl FnOnce() -> T) -> T {
        Self::locked(self, section)
    }
}

/// Without the fence at R1 (1) or A3 (2); counted after the sleep (3); R2 wakes only once (4); without
/// release at R1 (5).
pub struct BrokenBolt<P: Platform, const MISTAKE: u32> {
    word: P::AtomicU32,
    waiters: P::AtomicU32,
    woke: P::AtomicU32,
}

impl<P: Fences, const MISTAKE: u32> RawBolt<P> for BrokenBolt<P, MISTAKE> {
    fn new() -> Self {
        Self { word: Atomic::new(0), waiters: Atomic::new(0), woke: Atomic::new(0) }
    }
    fn locked<T>(&self, section: impl FnOnce() -> T) -> T {
        let try_lock = || self.word.compare_exchange(0, 1, Acquire, Relaxed).is_ok();
        if !try_lock() {
            let count = || {
                self.waiters.fetch_add(1, Relaxed);
                if MISTAKE != 2 {
                    P::heavy();
                }
            };
            if MISTAKE != 3 {
                count();
            }
            while !try_lock() {
                P::wait(&self.word, 1, None);
            }
            if MISTAKE == 3 {
                count();
            }
            self.waiters.fetch_sub(1, Relaxed);
        }
        let result = section();
        self.word.store(0, if MISTAKE == 5 { Relaxed } else { Release });
        if MISTAKE != 1 {
            P::light();
        }
        if self.waiters.load(Relaxed) != 0 && (MISTAKE != 4 || self.woke.swap(1, Relaxed) == 0) {
            P::wake(&raw const self.word, 1);
        }
        result
    }
}

/// Threads take the lock so often each; nobody is in it with another, and nobody sleeps for ever.
pub fn bolting<M: Machine + Fences, L: RawBolt<M>>(threads: u32, times: u32) {
    let shared = Arc::new((L::new(), M::Cell::new()));
    let ours = shared.clone();
    together::<M>(threads, move |_| {
        for _ in 0..times {
            ours.0.locked(|| ours.1.bump());
        }
    });
    assert_eq!(shared.1.get(), threads * times, "two held the lock at once");
}

struct Condition<M: Machine + Fences> {
    mutex: Native<M>,
    /// Under the mutex.
    tokens: M::Cell,
    given: M::AtomicU32,
    bucket: Bolt<M>,
    count: M::AtomicU32,
    listed: Vec<M::AtomicU32>,
    woken: Vec<M::AtomicU32>,
}

impl<M: Machine + Fences> Condition<M> {
    fn lock(&self) {
        // SAFETY: no node.
        unsafe { self.mutex.lock(&()) };
    }

    fn unlock(&self) {
        // SAFETY: the caller holds it.
        unsafe { self.mutex.unlock(&()) };
    }

    fn count(&self) {
        self.count.store(self.count.load(Relaxed) + 1, Relaxed);
    }

    /// C1, C2. The caller holds the mutex.
    fn wait<const MISTAKE: u32>(&self, me: usize) {
        if MISTAKE == JOINS_LATE {
            self.unlock();
        }
        self.bucket.locked(|| {
            self.woken[me].store(0, Relaxed);
            self.listed[me].store(1, Relaxed);
            if MISTAKE != COUNTS_LATE {
                self.count();
            }
        });
        if MISTAKE != JOINS_LATE {
            self.unlock();
        }
        if MISTAKE == COUNTS_LATE {
            self.bucket.locked(|| self.count());
        }
        while self.woken[me].load(Acquire) == 0 {
            M::wait(&self.woken[me], 0, None);
        }
        self.lock();
    }

    /// False: nobody was there.
    fn wake_one(&self) -> bool {
        let Some(found) = self.listed.iter().position(|listed| listed.load(Relaxed) == 1) else {
            return false;
        };
        self.count.store(self.count.load(Relaxed).saturating_sub(1), Relaxed);
        self.listed[found].store(0, Relaxed);
        self.woken[found].store(1, Release);
        M::wake(&self.woken[found], 1);
        true
    }

    /// C4.
    fn signal(&self) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        self.bucket.locked(|| {
            if !self.wake_one() {
                self.count.store(0, Relaxed);
            }
        });
    }

    /// C5.
    fn broadcast(&self) {
        for _ in 0..self.count.load(Relaxed) {
            if !self.bucket.locked(|| self.wake_one()) {
                break;
            }
        }
    }
}

/// Each of some waiters takes a token that the first thread gives. It signals each, or all at once (`all`),
/// while it holds the mutex or (`after`) when it has released it. No waiter misses its signal.
pub fn notifying<M: Machine + Fences, const MISTAKE: u32>(waiters: u32, all: bool, after: bool) {
    let words = || (0..waiters).map(|_| Atomic::new(0)).collect();
    let condition = Arc::new(Condition::<M> {
        mutex: RawMutex::new(),
        tokens: M::Cell::new(),
        given: Atomic::new(0),
        bucket: Bolt::new(),
        count: Atomic::new(0),
        listed: words(),
        woken: words(),
    });
    let ours = condition.clone();
    together::<M>(waiters + 1, move |index| {
        if index != 0 {
            ours.lock();
            while ours.given.load(Relaxed) == 0 {
                ours.wait::<MISTAKE>(index as usize - 1);
            }
            ours.given.store(ours.given.load(Relaxed) - 1, Relaxed);
            ours.tokens.bump();
            return ours.unlock();
        }
        let tell = || {
            if all {
                ours.broadcast();
            } else {
                ours.signal();
            }
        };
        let each = if all { waiters } else { 1 };
        for _ in 0..waiters / each {
            ours.lock();
            ours.given.store(ours.given.load(Relaxed) + each, Relaxed);
            if !after {
                tell();
            }
            ours.unlock();
            if after {
                tell();
            }
        }
    });
    assert_eq!(condition.tokens.get(), waiters, "a token was taken twice");
}
