// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signal handlers that wake fibers: whatever their thread does just then, they wait for no lock of its own,
//! and no wake-up is lost.

use std::cell::Cell as StdCell;
use std::sync::Arc;

use ::fiber::posts::{Posts, PutOff, Words};
use platform::{Atomic, AtomicInt, Ordering::*};
use sync::mutex::{Native, RawMutex};

use crate::Machine;
use crate::bodies::together;

/// A handler that does not ask whether its thread is busy.
pub const LOUD: u32 = 11;
/// A section that makes up for nothing.
pub const FORGETFUL: u32 = 12;
/// It looks what was put off, and is busy no longer then.
pub const PREMATURE: u32 = 13;
/// It is busy only once it has the lock.
pub const BUSY_LATE: u32 = 14;
/// Of two words that were put off the first is kept.
pub const ONE_WORD: u32 = 15;

/// BOUND: handlers that interrupt each other.
const DEPTH: u32 = 2;

/// Two words, and a fiber that waits for each, in one bucket of the table.
struct World<M: Machine> {
    posted: [M::AtomicU32; 2],
    bucket: Native<M>,
    listed: [M::AtomicU32; 2],
    woken: [M::AtomicU32; 2],
    /// What a waiter sleeps on, and what a signal changes.
    bells: [M::AtomicU32; 2],
    /// How many signals were sent to the second waiter's thread.
    sent: M::AtomicU32,
}

/// A thread, as it sees itself.
struct Here<'a, M: Machine, const MISTAKE: u32> {
    world: &'a World<M>,
    busy: StdCell<u32>,
    count: StdCell<u32>,
    word: StdCell<usize>,
    /// Signals handled, if it gets any, and how many handlers run.
    handled: StdCell<u32>,
    signals: bool,
    depth: StdCell<u32>,
}

fn address(which: usize) -> usize {
    64 * (which + 1)
}

impl<M: Machine, const MISTAKE: u32> Words for Here<'_, M, MISTAKE> {
    fn add(&self) {
        self.interrupt();
        self.busy.set(self.busy.get() + 1);
    }
    fn subtract(&self) {
        self.interrupt();
        self.busy.set(self.busy.get() - 1);
    }
    fn state(&self) -> u64 {
        self.interrupt();
        u64::from(self.busy.get()) | u64::from(self.count.get()) << 32
    }
    fn word(&self) -> usize {
        self.interrupt();
        self.word.get()
    }
    fn set_word(&self, word: usize) {
        self.interrupt();
        self.word.set(word);
    }
    fn claim(&self, word: usize) -> usize {
        self.interrupt();
        let was = self.word.get();
        if was == 0 {
            self.word.set(word);
        }
        was
    }
    fn clear_count(&self) {
        self.interrupt();
        self.count.set(0);
    }
    fn count(&self, more: u32) {
        self.interrupt();
        self.count.set(self.count.get() + more);
    }
}

impl<'a, M: Machine, const MISTAKE: u32> Here<'a, M, MISTAKE> {
    fn new(world: &'a World<M>, signals: bool) -> Self {
        Self {
            world,
            busy: StdCell::new(0),
            count: StdCell::new(0),
            word: StdCell::new(0),
            handled: StdCell::new(0),
            signals,
            depth: StdCell::new(0),
        }
    }

    /// Before each of its steps: a signal that was sent is handled now, or later.
    fn interrupt(&self) {
        let number = self.handled.get();
        if self.signals && self.depth.get() < DEPTH && self.world.sent.load(Relaxed) > number {
            self.handled.set(number + 1);
            self.depth.set(self.depth.get() + 1);
            self.post(number as usize);
            self.depth.set(self.depth.get() - 1);
        }
    }

    /// What a handler does.
    fn post(&self, which: usize) {
        self.world.posted[which].store(1, Relaxed);
        let put_off = match MISTAKE {
            LOUD => false,
            ONE_WORD => {
                self.state() as u32 != 0 && {
                    self.claim(address(which));
                    self.count(1);
                    true
                }
            }
            _ => self.put_off(address(which), 1),
        };
        if !put_off {
            self.wake(which);
        }
    }

    /// F3 of `table.rs`.
    fn wake(&self, which: usize) {
        let World { listed, woken, bells, .. } = self.world;
        self.locked(|| {
            if listed[which].load(Relaxed) == 1 {
                listed[which].store(0, Relaxed);
                woken[which].store(1, Release);
                // ORDER: Release, pairs with `sleep_until`.
                bells[which].fetch_add(1, Release);
                M::wake(&raw const bells[which], 1);
            }
        });
    }

    fn make_up(&self, put_off: PutOff) {
        match put_off {
            PutOff::All => (0..2).for_each(|which| self.wake(which)),
            PutOff::Some(word, _) => {
                (0..2).filter(|&it| address(it) == word.addr()).for_each(|it| self.wake(it))
            }
        }
    }

    /// A section of the table, interrupted anywhere.
    fn locked<T>(&self, body: impl FnOnce() -> T) -> T {
        let bucket = &self.world.bucket;
        let section = || {
            // SAFETY: released below, once.
            unsafe {
                bucket.lock(&());
                if MISTAKE == BUSY_LATE {
                    self.add();
                }
                self.interrupt();
                let result = body();
                self.interrupt();
                bucket.unlock(&());
                result
            }
        };
        let make_up = |put_off| self.make_up(put_off);
        match MISTAKE {
            FORGETFUL => self.busy(section, drop),
            BUSY_LATE => {
                let result = section();
                self.busy(|| self.subtract(), make_up);
                result
            }
            PREMATURE => {
                self.add();
                let result = section();
                let busy = self.state() as u32 != 1;
                let was_put_off = self.count.get() != 0;
                self.subtract();
                if was_put_off && !busy {
                    Posts::make_up(self, make_up);
                }
                result
            }
            _ => self.busy(section, make_up),
        }
    }

    /// F1 of `table.rs`, until the word was posted.
    fn wait(&self, which: usize) {
        let World { posted, listed, woken, .. } = self.world;
        let waits = self.locked(|| {
            let waits = posted[which].load(Relaxed) == 0;
            if waits {
                listed[which].store(1, Relaxed);
            }
            waits
        });
        self.sleep_until(which, || !waits || woken[which].load(Acquire) == 1);
    }

    fn sleep_until(&self, which: usize, is_so: impl Fn() -> bool) {
        let bell = &self.world.bells[which];
        loop {
            let seen = bell.load(Acquire);
            self.interrupt();
            if is_so() {
                return;
            }
            M::wait(bell, seen, None);
        }
    }
}

/// Two fibers wait, each for a word that a handler posts in the second one's thread. `at_once`: both signals
/// come together.
pub fn posting<M: Machine, const MISTAKE: u32>(at_once: bool) {
    let zero = || [Atomic::new(0), Atomic::new(0)];
    let world = Arc::new(World::<M> {
        posted: zero(),
        bucket: RawMutex::new(),
        listed: zero(),
        woken: zero(),
        bells: zero(),
        sent: Atomic::new(0),
    });
    together::<M>(3, move |index| {
        if index == 2 {
            for number in 1 + u32::from(at_once)..=2 {
                world.sent.store(number, Release);
                world.bells[1].fetch_add(1, AcqRel);
                M::wake(&raw const world.bells[1], 1);
            }
            return;
        }
        let here = Here::<M, MISTAKE>::new(&world, index == 1);
        here.wait(index as usize);
        if index == 1 {
            here.sleep_until(1, || here.handled.get() == 2);
        }
    });
}
