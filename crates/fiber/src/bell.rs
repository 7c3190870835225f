// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a waker rings, and the driver of a future waits for: N1, N2 of `token.rs` with a word of its own, as
//! an unpark may be meant for a wait of the future's own.
//!
//! # State
//! `SILENT`, `RUNG` until the driver is about to poll, `ASLEEP`: SILENT, and a kernel thread sleeps on it.
//!
//! # Protocol
//! - R1. Ring: swap RUNG. Who found SILENT gives the driver's token, who found ASLEEP wakes the word.
//! - R2. The driver: poll; wait until RUNG; swap SILENT; poll again. So a ring during a poll is for the next.
//!
//! # Memory order
//! R1 release -> R2 acquire: the next poll sees what came before the ring, also of those who found RUNG, as
//! all swap.
//!
//! # Checked by
//! `conformance`, loom and shuttle. Caught twins: a bell that is silenced after the poll.

use platform::{Atomic, Ordering::*, Platform};

const SILENT: u32 = 0;
const RUNG: u32 = 1;
const ASLEEP: u32 = 2;

/// See the head of this file.
pub struct Bell<P: Platform>(P::AtomicU32);

impl<P: Platform> Default for Bell<P> {
    fn default() -> Self {
        Self(Atomic::new(SILENT))
    }
}

impl<P: Platform> Bell<P> {
    /// R1. True: the caller gives the token of the fiber that drives, if it is one.
    pub fn ring(&self) -> bool {
        // ORDER: Release (R1), pairs with `silence`.
        match self.0.swap(RUNG, Release) {
            RUNG => false,
            ASLEEP => {
                P::wake(&raw const self.0, 1);
                false
            }
            _ => true,
        }
    }

    /// Does the driver poll next?
    pub fn is_rung(&self) -> bool {
        self.0.load(Relaxed) == RUNG
    }

    /// R2. The driver is about to poll. Who rings from here on is for the poll after the next one.
    pub fn silence(&self) {
        // ORDER: Acquire (R2), pairs with R1.
        self.0.swap(SILENT, Acquire);
    }

    /// The driver, a kernel thread, waits until it is rung.
    pub fn sleep(&self) {
        while !self.is_rung() {
            let _ = self.0.compare_exchange(SILENT, ASLEEP, Relaxed, Relaxed);
            P::wait(&self.0, ASLEEP, None);
        }
    }
}
