// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fiber that waits for a word of kernel threads: no wake-up passes it.

use std::sync::Arc;

use ::fiber::guests::Guests;
use platform::{Atomic, AtomicInt, Ordering::*, Platform, Wide};
use sync::mutex::{Native, RawMutex};

use crate::bodies::together;
use crate::{Cell, Machine};

/// It is counted after it has looked at the word.
pub const LATE: u32 = 1;
/// It is counted no longer while it sleeps.
pub const EARLY_LEAVE: u32 = 2;

/// What [`visiting`] asks of the count.
pub trait RawGuests<P: Platform>: Send + Sync + 'static {
    /// Nobody.
    fn new() -> Self;
    /// G1.
    fn enter(&self);
    /// G2.
    fn leave(&self);
    /// R1.
    fn any(&self) -> bool;
}

impl<P: Wide> RawGuests<P> for Guests<P> {
    fn new() -> Self {
        Guests::of_word(Atomic::new(0))
    }
    fn enter(&self) {
        Guests::enter(self);
    }
    fn leave(&self) {
        Guests::leave(self);
    }
    fn any(&self) -> bool {
        Guests::any(self)
    }
}

/// Without a fence at G1 (1) or R1 (2).
pub struct BrokenGuests<P: Platform, const MISTAKE: u32>(P::AtomicU32);

impl<P: Wide, const MISTAKE: u32> RawGuests<P> for BrokenGuests<P, MISTAKE> {
    fn new() -> Self {
        Self(Atomic::new(0))
    }
    fn enter(&self) {
        self.0.fetch_add(1, Relaxed);
        if MISTAKE != 1 {
            P::fence(SeqCst);
        }
    }
    fn leave(&self) {
        self.0.fetch_sub(1, Relaxed);
    }
    fn any(&self) -> bool {
        if MISTAKE != 2 {
            P::fence(SeqCst);
        }
        self.0.load(Relaxed) != 0
    }
}

struct Lock<M: Machine + Wide, G> {
    /// What guests wait for: 0, held.
    word: M::AtomicU32,
    guests: G,
    /// The table of fibers: a lock, and whether each guest is in the list.
    bucket: Native<M>,
    listed: Vec<M::AtomicU32>,
    woken: Vec<M::AtomicU32>,
    data: M::Cell,
}

impl<M: Machine + Wide, G: RawGuests<M>> Lock<M, G> {
    fn locked<T>(&self, body: impl FnOnce() -> T) -> T {
        // SAFETY: released below, once.
        unsafe {
            self.bucket.lock(&());
            let result = body();
            self.bucket.unlock(&());
            result
        }
    }

    /// G1, F1, G2.
    fn wait<const MISTAKE: u32>(&self, guest: usize) {
        let looked = MISTAKE == LATE && self.word.load(Relaxed) == 0;
        self.guests.enter();
        let sleeps = self.locked(|| {
            let sleeps = looked || self.word.load(Relaxed) == 0;
            if sleeps {
                self.woken[guest].store(0, Relaxed);
                self.listed[guest].store(1, Relaxed);
            }
            sleeps
        });
        if MISTAKE == EARLY_LEAVE {
            self.guests.leave();
        }
        while sleeps && self.woken[guest].load(Acquire) == 0 {
            M::wait(&self.woken[guest], 0, None);
        }
        if MISTAKE != EARLY_LEAVE {
            self.guests.leave();
        }
    }

    /// R1, R2, F3: one guest.
    fn wake(&self) {
        if !self.guests.any() {
            return;
        }
        self.locked(|| {
            if let Some(guest) = self.listed.iter().position(|listed| listed.load(Relaxed) == 1) {
                self.listed[guest].store(0, Relaxed);
                self.woken[guest].store(1, Release);
                M::wake(&self.woken[guest], 1);
            }
        });
    }
}

/// Guests wait for a lock that a kernel thread holds first. Each takes it, and lets the next one in.
pub fn visiting<M: Machine + Wide, G: RawGuests<M>, const MISTAKE: u32>(guests: u32) {
    let words = || (0..guests).map(|_| Atomic::new(0)).collect();
    let lock = Arc::new(Lock::<M, G> {
        word: Atomic::new(0),
        guests: G::new(),
        bucket: RawMutex::new(),
        listed: words(),
        woken: words(),
        data: Cell::new(),
    });
    let ours = lock.clone();
    together::<M>(guests + 1, move |index| {
        if index != 0 {
            // ORDER: Acquire, pairs with the releases.
            while ours.word.compare_exchange(1, 0, Acquire, Relaxed).is_err() {
                ours.wait::<MISTAKE>(index as usize - 1);
            }
        }
        ours.data.bump();
        ours.word.store(1, Release);
        ours.wake();
    });
    assert_eq!(lock.data.get(), guests + 1);
}
