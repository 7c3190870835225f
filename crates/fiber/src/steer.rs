// SPDX-License-Identifier: MIT OR Apache-2.0
//! A carrier that was woken, and waits in the kernel's queue, is steered to another processor: others make
//! its affinity smaller for a moment. `queued.rs` says when and where to.
//!
//! # State
//! A word of each carrier. `UP`: it runs fibers, or is about to. `DOWN`: it sleeps, or has been woken and has
//! not run yet. `BUSY`: somebody makes its affinity smaller. `AWAITED`: and it waits for that to be done.
//! `NARROW`: that was done.
//!
//! ```text
//!   UP -- L1 --> DOWN -- T1 --> BUSY -- T3 --> NARROW -- G3 --> UP
//!                 |  <-- T3: no --'\-- G2 --> AWAITED -- T3 --> NARROW or DOWN
//!                 '-- G1 --> UP
//! ```
//!
//! # Invariants
//! - I1. While a carrier is UP its affinity is what the program, or somebody outside, made it. So what its
//!   fibers start, by fork, exec or as a thread, inherits that.
//! - I2. One at a time changes the affinity: who took DOWN to BUSY, then the carrier.
//!
//! # Protocol
//! - L1. Before it sleeps the carrier lies down.
//! - T1. Who steers takes DOWN to BUSY. T2. It notes the affinity and changes it. T3. It says so, or that it
//!   changed nothing, and wakes a carrier that waits.
//! - G1. A carrier that got up takes DOWN to UP. G2. If somebody is BUSY it waits for T3. G3. If it is NARROW
//!   it gives itself back what T2 noted, and is UP.
//!
//! # Memory order
//! T3 release -> G3 acquire publishes the note, T3 release -> G1 acquire says that there is none. L1 release
//! -> T1 acquire says that the carrier has read the one before. The affinity itself is under the kernel's
//! lock.
//!
//! # Under the scheduler
//! - *Who steers is preempted in T2*: a carrier that got up waits for it, without a fiber yet. So no low
//!   carrier steers.
//! - *A fork, of another thread, meanwhile*: the child has no carriers. *Of a signal handler on the carrier*:
//!   the child does G3 if it is NARROW.
//! - *Somebody outside changes the affinity meanwhile*: G3 sees another one than T2 made, and lets it be.
//!   What it cannot see stands in `linux/src/steer.rs`.
//!
//! # Fairness and space
//! 4 bytes and the note.
//!
//! # Rejected
//! Who steers gives the affinity back: it may be preempted before, and the carrier may fork meanwhile.
//!
//! # Checked by
//! `conformance`: loom, shuttle. Caught twins: a carrier that does not wait for BUSY, one that does not look,
//! one that is not woken; who says NARROW before T2, and who does not claim.

use platform::{Atomic, Ordering::*, Wide};

const UP: u32 = 0;
const DOWN: u32 = 1;
const BUSY: u32 = 2;
const AWAITED: u32 = 3;
const NARROW: u32 = 4;

/// BOUND: pauses, some 20 us: T2 takes 4 to 10. Who sleeps meanwhile lets a low carrier and its sentinels in.
const PAUSES: u32 = 1000;

/// See the head of this file.
pub struct Steer<P: Wide> {
    word: P::AtomicU32,
}

impl<P: Wide> Default for Steer<P> {
    fn default() -> Self {
        Self { word: Atomic::new(UP) }
    }
}

impl<P: Wide> Steer<P> {
    /// L1, by the carrier.
    #[inline]
    pub fn lie_down(&self) {
        // ORDER: Release (L1), pairs with T1: the note was read.
        self.word.store(DOWN, Release);
    }

    /// G1; or what it is.
    #[inline]
    fn up(&self) -> Result<u32, u32> {
        // ORDER: Acquire, pairs with a T3 that changed nothing, and L1 with the next T1 (G1); on failure with
        // T3, and publishes the note (G3).
        self.word.compare_exchange(DOWN, UP, Acquire, Acquire)
    }

    /// By the carrier, before it runs fibers or starts threads; `widen` is G3.
    #[inline]
    pub fn get_up(&self, widen: impl FnOnce()) {
        if self.up().is_err() && self.is_touched() {
            widen();
            self.word.store(UP, Relaxed);
        }
    }

    /// G1, G2. True: the caller does G3.
    #[cold]
    #[inline(never)]
    fn is_touched(&self) -> bool {
        let mut pauses = P::PAUSES.min(PAUSES);
        loop {
            match self.up() {
                Ok(_) | Err(UP) => return false,
                Err(NARROW) => return true,
                Err(BUSY) if pauses > 0 => {
                    pauses -= 1;
                    P::pause();
                }
                Err(BUSY) => _ = self.word.compare_exchange(BUSY, AWAITED, Relaxed, Relaxed),
                Err(_) => _ = P::wait(&self.word, AWAITED, None),
            }
        }
    }

    /// HINT: does the carrier run, or has it been woken and waits for no processor?
    pub fn is_up(&self) -> bool {
        self.word.load(Relaxed) == UP
    }

    /// In a forked child, by what was the carrier: must it do G3?
    pub fn is_narrow(&self) -> bool {
        self.word.load(Relaxed) == NARROW
    }

    /// By another thread; `narrow` is T2, and says whether it changed anything.
    pub fn steer(&self, narrow: impl FnOnce() -> bool) -> bool {
        // ORDER: Acquire (T1), pairs with L1.
        if self.word.compare_exchange(DOWN, BUSY, Acquire, Relaxed).is_err() {
            return false;
        }
        let narrowed = narrow();
        // ORDER: Release (T3), pairs with G3.
        if self.word.swap(if narrowed { NARROW } else { DOWN }, Release) == AWAITED {
            P::wake(&self.word, 1);
        }
        narrowed
    }
}
