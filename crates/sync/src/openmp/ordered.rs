// SPDX-License-Identifier: MIT OR Apache-2.0
//! Order: iterations that wait for earlier ones, in `ordered` loops and in `doacross` loops.
//!
//! The problem: iterations run on different threads, and a part of each must come after the same part of the
//! one before. Members are many, one is next: who passes the turn on must not wake all the others.
//!
//! The idea: a word says which iteration's turn it is. Waiters stand at one of a few events, by the
//! iteration that they wait for, so that a notice finds the next one only. A `doacross` loop has such a word
//! for each chunk of iterations: who runs the chunk writes how far it has come, and who depends on it waits
//! for that.
//!
//! ```text
//! Order:     O1 turn == mine?  ... ordered region ...  O2 turn = end of mine, notify its event
//! Progress:  P1 place >= wanted?                       P2 place = mine, notify
//! ```
//!
//! # State
//!
//! `turn`: the first iteration whose ordered region is not over. `Progress`: 1 more than the last place that
//! is over, 0 before. `Over`: a bit for each iteration that is over, for loops whose order the compiler does
//! not tell.
//!
//! # Invariants
//!
//! I1. Only the member whose iterations begin at `turn` writes it: ordered regions come one after another.
//! I2. Only the thread that runs a chunk writes its `Progress`, which rises. A bit of `Over` is set once.
//!
//! # Protocol
//!
//! O1. Wait for the turn. O2. Pass it on, also for iterations that had no ordered region. P1, P2 as above.
//!
//! # Memory order
//!
//! O2 release -> O1 acquire, and P2 release -> P1 acquire, publish what came before in that order.
//!
//! # Under the scheduler
//!
//! Whoever has the turn and no processor keeps all others waiting. With more members than processors waiters
//! yield for a while, since the turn goes round. Then they sleep at their event. Killed: the process dies
//! with it.
//!
//! # Fairness and space
//!
//! The order is the program's. 8 bytes and an event of 8 for each of [`TURNS`]; 8 bytes a chunk.
//!
//! # Rejected
//!
//! One event for all: each turn would wake everybody.
//!
//! # Checked by
//!
//! `conformance`, `openmp`: real threads, loom, shuttle; a twin that passes the turn on before its region is
//! caught.

use platform::{Atomic, AtomicInt, Ordering::*, Wide};

use super::{Event, Patience};

/// BOUND: turns that have an event of their own; with more waiters than that some are woken for nothing.
const TURNS: usize = 8;

/// Whose turn it is.
#[repr(C)]
pub struct Order<P: Wide> {
    turn: P::AtomicU64,
    /// Of those who wait for their turn, by it: who passes it on wakes nobody else.
    events: [Event<P>; TURNS],
}

impl<P: Wide> Default for Order<P> {
    fn default() -> Self {
        Self { turn: Atomic::new(0), events: Default::default() }
    }
}

impl<P: Wide> Order<P> {
    /// From the first iteration on, before others come.
    pub fn restart(&self) {
        self.turn.store(0, Relaxed);
    }

    fn event(&self, first: u64, chunk: u64) -> &Event<P> {
        &self.events[(first / chunk.max(1)) as usize % TURNS]
    }

    /// Waits for the turn of this iteration; first as `yielding` does, which may give up. O1.
    pub fn wait<W: Patience>(
        &self,
        first: u64,
        chunk: u64,
        yielding: impl FnOnce(&dyn Fn() -> bool) -> bool,
    ) {
        // ORDER: Acquire (O1), pairs with O2: ordered regions come one after another.
        let is_ours = || self.turn.load(Acquire) == first;
        if !yielding(&is_ours) {
            self.event(first, chunk).wait_until::<W>(is_ours);
        }
    }

    /// The turn is that of the iterations from here on. O2.
    pub fn pass(&self, next: u64, chunk: u64) {
        // ORDER: Release (O2), pairs with O1.
        self.turn.store(next, Release);
        self.event(next, chunk).notify();
    }
}

/// How far a chunk has come. On a line of its own, for who writes often.
#[repr(align(64))]
pub struct Progress<P: Wide>(P::AtomicU64);

impl<P: Wide> Default for Progress<P> {
    fn default() -> Self {
        Self(Atomic::new(0))
    }
}

impl<P: Wide> Progress<P> {
    /// Waits until it has come to this place. P1.
    pub fn wait<W: Patience>(&self, place: u64, changed: &Event<P>) {
        // ORDER: Acquire (P1), pairs with P2.
        changed.wait_until::<W>(|| self.0.load(Acquire) >= place);
    }

    /// It has come to this place. By the thread that runs the chunk. P2.
    pub fn post(&self, place: u64, changed: &Event<P>) {
        if self.0.load(Relaxed) < place {
            // ORDER: Release (P2), pairs with P1.
            self.0.store(place, Release);
            changed.notify();
        }
    }
}

/// Which of some iterations are over. Zeros: none.
#[repr(transparent)]
pub struct Over<P: Wide>(P::AtomicU32);

impl<P: Wide> Default for Over<P> {
    fn default() -> Self {
        Self(Atomic::new(0))
    }
}

impl<P: Wide> Over<P> {
    /// Iterations of one.
    pub const COUNT: u64 = u32::BITS as u64;

    /// Waits until this one is over, below [`Over::COUNT`]. P1.
    pub fn wait<W: Patience>(&self, iteration: u32, changed: &Event<P>) {
        // ORDER: Acquire (P1), pairs with P2.
        changed.wait_until::<W>(|| self.0.load(Acquire) >> iteration & 1 != 0);
    }

    /// It is over. P2.
    pub fn post(&self, iteration: u32, changed: &Event<P>) {
        // ORDER: Release (P2), pairs with P1.
        self.0.fetch_or(1 << iteration, Release);
        changed.notify();
    }
}
