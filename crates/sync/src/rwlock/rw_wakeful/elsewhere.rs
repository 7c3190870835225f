// SPDX-License-Identifier: MIT OR Apache-2.0
//! A read lock that its own thread does not release: the releaser has neither the lock in its place nor a
//! count to take back.
//!
//! Two programs come here. A C program releases what another thread has locked. A program of any language
//! forks while it reads: in the child its thread gets another id, and so another place.
//!
//! The releaser takes back its R1, wakes whoever slept because of it, and empties whichever place has the
//! lock in it, which is as good. A counted reader may leave between these two steps and take that place for
//! its own: then R1 again, for the count that it left. Two threads of a forked child may have one id, and so
//! one place, until the older one registers anew. The thread that finds the place empty has it, and the other
//! one is counted. The first to leave empties it.

use platform::{AtomicInt, Ordering::*, Readers, ThreadId};

use super::Wakeful;
use super::limits::LOOKS_ELSEWHERE;
use super::word::*;
use crate::wait::Preemption;

impl<P: Readers, N: Preemption> Wakeful<P, N> {
    /// A reader that neither its own place nor READERS knows: it came in on another thread, or under another
    /// id before a fork.
    #[cold]
    #[inline(never)]
    pub(super) fn unlock_elsewhere(&self) {
        // A release too many, which is the program's mistake, finds nothing however often it looks.
        for _ in 0..LOOKS_ELSEWHERE {
            // Takes back what took READERS below zero, before the place is empty: B5 must count the others.
            // Who has seen too many readers may sleep.
            // ORDER: Acquire, pairs with R1: whoever left by our count knows of the place.
            if self.state.fetch_add(READER.wrapping_sub(VERSION), Acquire) & SLEEPER != 0 {
                P::wake(&self.state, u32::MAX);
            }
            for thread in (1..P::most_threads()).map(ThreadId) {
                if self.leave_place(P::reading(thread)) {
                    return;
                }
            }
            // Meanwhile a counted reader, whose count our step had hidden, has left by our place, and left us
            // its count. We have released already.
            let was = self.state.fetch_add(VERSION - READER, Relaxed);
            if was & READERS != 0 {
                return self.after_read(was);
            }
        }
        self.state.fetch_add(READER.wrapping_sub(VERSION), Relaxed);
    }
}
