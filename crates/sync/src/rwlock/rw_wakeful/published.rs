// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a scheduler listens ([`platform::Platform::hands_off`]): a writer tells that it holds the lock, by
//! the steps S1 to S5 of [`publish`], and whoever waits gives its processor to a writer that has none.
//!
//! | step | what happens |
//! |---|---|
//! | L1 | A writer that gets the lock by a slow path sets TOLD with it if somebody listens, or clears it. |
//! | L2 | With TOLD it tells. Then the fast path of its release fails, and of the next writer's A1. |
//! | L3 | The release untells (S4), and leaves TOLD. R2 wakes, and S5 follows. |
//! | L4 | While a thread waits, it is a contender, and it has no wish (S2, S8). |
//! | L5 | A waiter beside a preempted writer hands its processor off, once for each time that it is. Beside |
//! |    | readers it does so if a thread that does not wait is preempted. That one may stand no higher: |
//! |    | then a waiter that may sleep does (F6), and one that has just come goes into line (W1). |
//!
//! Who writes and never meets another thread never comes to a slow path, and tells nothing. The fast paths
//! have no instruction for it: they look whether bits of the state are zero anyway, and TOLD is one of them.
//!
//! I8. While a writer is inside, TOLD says whether it has told. Only L1 changes TOLD; an upgrade clears it.
//!
//! A reader inside tells nothing. Its release would have to look for it, by two instructions in each. It has
//! its own priority, which is not below that of those who wait for it; they fall asleep. Nor does a waiter
//! speak for a writer that did not (S7): the state does not name it, and the hint that does may be stale.
//!
//! HINT: all of it. A lock that another thread releases leaves the priority with the one that took it, until
//! that one releases another lock.

use platform::{Atomic, Deadline, Ordering::*, Readers, RunState, ThreadId};

use super::word::*;
use super::{Until, Wakeful};
use crate::wait::look::is_wanted;
use crate::wait::{Preemption, publish};

impl<P: Readers, N: Preemption> Wakeful<P, N> {
    /// L1. The state that this thread leaves by taking the lock.
    pub(super) fn telling(want: Want, state: u32) -> u32 {
        match want {
            Want::Write if N::PUBLISHES && P::hands_off() => state | TOLD,
            Want::Write => state & !TOLD,
            _ => state,
        }
    }

    /// A1 with L1, where the fast path has failed, or would.
    fn take_telling(&self) -> bool {
        let mut word = self.state.load(Relaxed);
        while !Want::Write.kept_out(word) {
            let new = Self::telling(Want::Write, Want::Write.added_to(word));
            // ORDER: Acquire (A1), pairs with R1 and R2.
            match self.state.compare_exchange_weak(word, new, Acquire, Relaxed) {
                Ok(_) => return self.alone(word, Until::Now, BIASED),
                Err(now) => word = now,
            }
        }
        false
    }

    /// L2, or nothing came of it.
    fn told(&self, taken: bool) -> bool {
        if taken && self.state.load(Relaxed) & TOLD != 0 {
            publish::entered::<P>();
        } else {
            publish::gave_up::<P>();
        }
        taken
    }

    /// A writer that does not wait, and has found TOLD, or the lock taken.
    #[cold]
    #[inline(never)]
    pub(super) fn try_telling(&self) -> bool {
        if self.state.load(Relaxed) & TOLD == 0 {
            return false;
        }
        publish::claim::<P>();
        self.told(self.take_telling())
    }

    /// A writer that waits if it has to.
    pub(super) fn write_telling(&self, deadline: Option<Deadline>) -> bool {
        let me = publish::claim::<P>();
        let taken = self.state.load(Relaxed) & (DEMAND | URGENT) == 0 && self.take_telling() || {
            publish::wait::<P>(me);
            self.wait_as_it_is(Want::Write, deadline)
        };
        self.told(taken)
    }

    /// L4. Waits, and is as before.
    pub(super) fn wait_told(me: ThreadId, wait: impl FnOnce() -> bool) -> bool {
        publish::wait::<P>(me);
        let taken = wait();
        publish::gave_up::<P>();
        taken
    }

    /// L3. The calling thread has released `from` in this state.
    pub(super) fn left(from: u32, word: u32) -> Option<ThreadId> {
        let told = N::PUBLISHES && from & DRAINING == WRITER && word & TOLD != 0;
        told.then(publish::left::<P>)
    }

    /// L5. True if it handed its processor off. HINT: wrong, a thread of its own priority comes before it.
    pub(super) fn hands_off(&self, word: u32, handed: &mut bool) -> bool {
        let writer = || ThreadId(self.owner.load(Relaxed) % ThreadId::LIMIT);
        let wanted = P::hands_off()
            && match word & WRITER {
                0 => is_wanted::<P>(),
                _ => P::run_state(writer()) == RunState::Preempted,
            };
        let first = wanted && !*handed;
        *handed = wanted;
        if first {
            P::hand_off();
        }
        first
    }
}
