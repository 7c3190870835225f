// SPDX-License-Identifier: MIT OR Apache-2.0
//! The default mutex beside other programs: its waiters sleep on the word, as on a C library's mutex. The
//! steps F1 to F3.
//!
//! A line keeps all but two threads asleep. Where other programs share the processors, that is too few awake:
//! while one waits for its processor, the other one's goes to others whenever that sleeps. A program that
//! wakes a thread at each release gets up to twice the processor time (`docs/design/mutex.md` has the
//! numbers). So no new line begins. The lock is as unfair as a futex then.
//!
//! ```text
//!   arrival - KICK -> asleep on the word - R2 -> takes the lock, with KICK -> holder - R1, R2 -> the next
//!                             ^              |
//!                             '- it is held -'
//! ```
//!
//! - F1. An arrival beside a held lock without STANDBY sets KICK and sleeps on the word, if other programs
//!   share few processors (`look::is_beside_others`), or KICK is set already.
//! - F2. Whom R2 has woken takes the lock with KICK, or does F1 again: others may sleep, and A2 clears KICK.
//!   So while somebody sleeps by F1, KICK is set, R2 is about to wake one, or a woken thread is on its way.
//! - F3. Whom R2 has woken wakes all sleepers if it finds STANDBY, or leaves at its deadline. Then they are
//!   waiters as others. Who takes the role of a word with KICK wakes all, too, as a standby that leaves (G2).
//!   So the role may be taken at any time: R2 wakes its standby, or a thread that does F3.
//!
//! A lock whose line is never empty keeps it. The mode ends when somebody takes the role between R1 and F2.

use platform::{Platform, Wait};

use super::waiter::{Stance, Waiter};
use super::{KICK, STANDBY, Wakeful};
use crate::wait::Preemption;

impl<P: Platform> Waiter<P> {
    /// F1. Does it sleep on the word, which is held?
    pub fn is_futex(&self, word: u32) -> bool {
        word & STANDBY == 0 && (self.is_beside() || self.roused || word & KICK != 0)
    }
}

impl<P: Platform, N: Preemption> Wakeful<P, N> {
    /// F1.
    pub(super) fn sleep_as_futex(&self, word: u32, waiter: &mut Waiter<P>) {
        waiter.stance = Stance::Sharing;
        if let Some(end) = self.sleep_on_word(word, waiter.deadline) {
            waiter.roused = end == Wait::Woken;
        }
    }

    /// F3.
    pub(super) fn end_futex(&self, waiter: &mut Waiter<P>) {
        if core::mem::replace(&mut waiter.roused, false) {
            P::wake(&self.word, u32::MAX);
        }
    }
}
