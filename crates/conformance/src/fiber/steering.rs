// SPDX-License-Identifier: MIT OR Apache-2.0
//! A carrier that was woken is steered elsewhere: once it runs, its affinity is the program's.

use std::sync::Arc;

use ::fiber::steer::Steer;
use platform::{Atomic, AtomicInt, Ordering::*, Wide};

use crate::bodies::together;
use crate::{Cell, Machine};

/// What [`steering`] asks.
pub trait RawSteer: Default + Send + Sync + 'static {
    /// L1, by the carrier.
    fn lie_down(&self);
    /// G1 to G3, by the carrier.
    fn get_up(&self, widen: impl FnOnce());
    /// T1 to T3, by another thread.
    fn steer(&self, narrow: impl FnOnce() -> bool) -> bool;
}

impl<P: Wide> RawSteer for Steer<P> {
    fn lie_down(&self) {
        Steer::lie_down(self);
    }
    fn get_up(&self, widen: impl FnOnce()) {
        Steer::get_up(self, widen);
    }
    fn steer(&self, narrow: impl FnOnce() -> bool) -> bool {
        Steer::steer(self, narrow)
    }
}

/// A carrier that does not wait for who steers.
pub const IMPATIENT: u32 = 1;
/// One that does not look.
pub const UNAWARE: u32 = 2;
/// One that waits and is not woken.
pub const UNWOKEN: u32 = 3;
/// Who steers says so before it has.
pub const RASH: u32 = 4;
/// Who steers looks, and claims nothing.
pub const UNCLAIMED: u32 = 5;

const UP: u32 = 0;
const DOWN: u32 = 1;
const BUSY: u32 = 2;
const AWAITED: u32 = 3;
const NARROW: u32 = 4;

/// As `steer.rs`, with a mistake.
pub struct BrokenSteer<P: Wide, const MISTAKE: u32> {
    word: P::AtomicU32,
}

impl<P: Wide, const MISTAKE: u32> Default for BrokenSteer<P, MISTAKE> {
    fn default() -> Self {
        Self { word: Atomic::new(UP) }
    }
}

impl<P: Wide, const MISTAKE: u32> RawSteer for BrokenSteer<P, MISTAKE> {
    fn lie_down(&self) {
        self.word.store(DOWN, Release);
    }

    fn get_up(&self, widen: impl FnOnce()) {
        if MISTAKE == UNAWARE {
            return self.word.store(UP, Release);
        }
        loop {
            match self.word.load(Acquire) {
                UP => return,
                NARROW => break,
                BUSY if MISTAKE == IMPATIENT => return,
                BUSY => _ = self.word.compare_exchange(BUSY, AWAITED, Relaxed, Relaxed),
                AWAITED => _ = P::wait(&self.word, AWAITED, None),
                _ => {
                    if self.word.compare_exchange(DOWN, UP, Relaxed, Relaxed).is_ok() {
                        return;
                    }
                }
            }
        }
        widen();
        self.word.store(UP, Relaxed);
    }

    fn steer(&self, narrow: impl FnOnce() -> bool) -> bool {
        let claimed = match MISTAKE {
            UNCLAIMED => self.word.load(Acquire) == DOWN,
            RASH => self.word.compare_exchange(DOWN, NARROW, AcqRel, Relaxed).is_ok(),
            _ => self.word.compare_exchange(DOWN, BUSY, Acquire, Relaxed).is_ok(),
        };
        if !claimed {
            return false;
        }
        let narrowed = narrow();
        if MISTAKE == RASH {
            return narrowed;
        }
        if self.word.swap(if narrowed { NARROW } else { DOWN }, Release) == AWAITED && MISTAKE != UNWOKEN {
            P::wake(&self.word, 1);
        }
        narrowed
    }
}

/// The affinity that who steers makes. The program's are the numbers of the rounds.
const SMALLER: u32 = 1000;

/// A carrier sleeps again and again, and others steer it, or find that they need not. In each round the
/// program gives it another affinity.
pub fn steering<M: Machine, S: RawSteer>(others: u32, rounds: u32) {
    struct World<M: Machine, S> {
        steer: S,
        /// The kernel's: here it publishes nothing.
        affinity: M::AtomicU32,
        note: M::AtomicU32,
        /// Who reads or writes the note.
        cell: M::Cell,
    }
    let world = World::<M, S> {
        steer: S::default(),
        affinity: Atomic::new(0),
        note: Atomic::new(0),
        cell: M::Cell::new(),
    };
    let world = Arc::new(world);
    let ours = world.clone();
    together::<M>(others + 1, move |index| {
        let World { steer, affinity, note, cell } = &*world;
        let look = || affinity.fetch_or(0, Relaxed);
        if index != 0 {
            steer.steer(|| {
                cell.bump();
                note.store(look(), Relaxed);
                index == 1 && affinity.swap(SMALLER, Relaxed) != SMALLER
            });
            return;
        }
        for round in 1..=rounds {
            affinity.swap(round, Relaxed);
            steer.lie_down();
            steer.get_up(|| {
                let _ = cell.get();
                if look() == SMALLER {
                    affinity.swap(note.load(Relaxed), Relaxed);
                }
            });
            assert_eq!(look(), round, "a carrier runs fibers with another affinity than the program's");
        }
    });
    let affinity = ours.affinity.fetch_or(0, Relaxed);
    assert_eq!(affinity, rounds, "who steers came late");
}
