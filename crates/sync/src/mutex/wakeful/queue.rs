// SPDX-License-Identifier: MIT OR Apache-2.0
//! W8: the default mutex where there is a processor for each thread ([`Platform::roomy`]). There it is a
//! queue lock.
//!
//! Sleep helps nobody of our own there, and beside other programs it costs slices. What costs is the line
//! between many caches. So those who wait look at a word of their own:
//!
//! - A thread that comes joins the line at once (Q1), with growing pauses between attempts.
//! - In line it looks at its STATE (AWAKE) `LINE_LOOKS` times before it sleeps.
//! - As the standby it takes what it finds free, without W3, unless it has just lost the lock to the thread
//!   that had it before.
//! - It stays awake until it has demanded the lock for a turn, whatever the holder does, unless the lock is
//!   hot.
//! - Meanwhile it looks whether the oldest in line, whom it will promote, is preempted, and passes it then
//!   (P1). Not after W6, when a relay may look for that one.
//! - N1: the standby wishes, too, and makes the wish for the thread that it will promote. One that is
//!   warned gives up (G2), repays, and goes to Q1.

use platform::{Atomic, Ordering::*, Platform, RunState};

use super::waiter::{Role, Standby, Waiter};
use super::{LOCKED, Wakeful, owner};
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
                word = self.word.load(Relaxed);
                if word & LOCKED == 0 {
                    if self.take(word, waiter) {
                        return;
                    }
                } else if N::WISHES && P::warning(me) && !wait::is_inside::<P>(me) {
                    break;
                } else {
                    waiter.rival = Some(owner(word));
                    if let Role::Standby(standby @ Standby { demanded: None, .. }) = &mut waiter.role {
                        standby.next = self.pass(standby.next);
                    }
                    self.stand_by(word, waiter, RunState::Running, P::now_ns());
                }
            }
            // N1.
            self.resign(waiter);
            wait::unshield::<N, P>(me);
            P::pause();
        }
    }
}
