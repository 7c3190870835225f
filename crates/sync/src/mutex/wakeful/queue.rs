// SPDX-License-Identifier: MIT OR Apache-2.0
//! W8: the default mutex where each thread of ours has a processor, and other programs do not take those
//! that matter ([`look::has_room`](crate::wait::look::has_room)). There it is a queue lock.
//!
//! Nobody of our own lacks the processor of a waiter there, so sleep gains nothing. What costs is the word,
//! which moves between many caches. So each waiter looks at a word of its own:
//!
//! - An arrival joins the line at once (Q1), with growing pauses between attempts. In `-np` they are longer
//!   if others are in line. It does not look at the lock, so it never steps aside (W7). Those who may not
//!   join the line do (W2).
//! - In line it looks at its STATE (AWAKE) `LINE_LOOKS` times before it sleeps.
//! - As the standby it takes what it finds free, without W3. But if the thread that had the lock before has
//!   just taken it again, the standby is choosy, and may find the lock hot. It shares again when another one
//!   takes it, or when a thread joined the line in the moment of its own attempt.
//! - In `-np`, where the holder runs, the lock moves at nearly each release. So the standby's look is a
//!   compare-and-swap that fails: it fetches the word's line for A3, not a copy of it.
//! - It stays awake until `turn` after its demand, whatever the holder does, unless the lock is hot.
//! - Until its demand, and again before Q3, it looks whether the oldest in line, whom it promotes, is
//!   preempted, and passes it then (P1). Not between: a relay may look for the thread that the demand named
//!   (W6 in [`super::line`]).
//! - N1, in `-np`. The standby asks not to be preempted, and asks so for whom it will promote. If that one is
//!   preempted before it has the wish, it is passed as by P1. If the kernel warns the standby that a
//!   preemption was put off, it gives up (G2), yields, and goes to Q1.

use platform::{Atomic, Ordering::*, Platform, RunState};

use super::waiter::Waiter;
use super::{HANDOFF, LOCKED, Wakeful, owner};
use crate::wait::{self, Preemption};

impl<P: Platform, N: Preemption> Wakeful<P, N> {
    /// Waits in line, then as the standby, and takes the lock.
    pub(super) fn wait_awake(&self, mut word: u32, waiter: &mut Waiter<P>) {
        loop {
            while !waiter.is_standby() {
                if self.purge(word) {
                    word = self.word.load(Relaxed);
                } else {
                    self.enlist(word, waiter);
                }
            }
            let me = wait::shield::<N, P>();
            loop {
                word = if N::WISHES { self.look_to_take() } else { self.word.load(Relaxed) };
                self.end_futex(waiter);
                if word & LOCKED == 0 {
                    if self.take(word, waiter) {
                        return;
                    }
                } else if wait::is_warned::<N, P>(me) {
                    break;
                } else if N::PUBLISHES && P::hands_off() && waiter.hands_off(P::run_state(owner(word))) {
                    // W9.
                } else {
                    waiter.rival = Some(owner(word));
                    waiter.look_behind(|lead, next| self.pass(lead, next));
                    self.stand_by(word, waiter, RunState::Running, P::now_ns());
                }
            }
            // N1.
            self.resign(waiter);
            wait::unshield::<N, P>(me);
            P::pause();
        }
    }

    /// A look at the word by a thread that will write it. No word is HANDOFF alone (I2, I4): nothing changes.
    fn look_to_take(&self) -> u32 {
        match self.word.compare_exchange(HANDOFF, HANDOFF, Relaxed, Relaxed) {
            Ok(word) | Err(word) => word,
        }
    }
}
