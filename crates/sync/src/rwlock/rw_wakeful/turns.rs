// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns: readers that wait behind a writer are let in as a group, by that writer's one release.
//!
//! Only where there is a processor for each thread, and somebody honours wishes ([`are_taken`]). There all
//! waiting readers would look at `state`, whose line each arrival and each leaver wants alone. So a reader
//! counts itself while the writer is inside. From then on no other writer can come in. Instead of `state` it
//! looks at the lock's *turn word* ([`Readers::turn`]), which lies on another line.
//!
//! ```text
//!   arrival ── a writer is inside (A7) ──> member: counted, looks at the turn word ── T2 ──> inside
//!      ^ └── free, and demanded: T4, T6            │ the kernel warns it (T5)
//!      └────────────────── takes back <────────────┘
//! ```
//!
//! | step | what happens |
//! |---|---|
//! | A7 | A reader that finds a writer inside stays counted (A1), or adds READER. It is a *member* now. |
//! | T1 | A member looks at the turn word. When that has changed, or after `spin`, it looks at `state`. |
//! | T2 | It is in as soon as WRITER is gone (A6). After `roomy` it sleeps on `state`, as in W3. |
//! | T3 | R2 and D1 then add 1 to the turn word, if somebody was counted. |
//! | T4 | A reader that may not be a member looks at both, at `state` with growing gaps. |
//! | T5 | A member wishes not to be preempted. Warned (KE-2), it takes back (A4), yields, arrives anew. |
//! | T6 | It leaves a demanded lock to the front for `nap_most` instead of `grace`, then passes it (A3). |
//!
//! While a reader is a member, WRITER is cleared once and not set again, because READERS keeps writers out
//! (I1). So T2 waits for the writer that is inside, and for nobody else.
//!
//! The turn word is a hint. A missed change costs `spin`, one too many costs a look. A member is in by what
//! it sees in `state`, never by the turn word: its change may be the late one of the writer before.
//!
//! # Fairness
//!
//! A writer in front is passed by one group for each writer before it, because nobody becomes a member while
//! readers are inside. Other readers pass it as T6 says, until URGENT.
//!
//! # Rejected
//!
//! Members without the wish: on 64 processors at level 2 a preempted member cost up to half of the rate. A
//! turn word in the lock: it shares the line of `state`. More in `docs/design/rwlock.md`.

use platform::{Atomic, AtomicInt, Ordering::*, Readers};

use super::Wakeful;
use super::limits;
use super::word::*;
use crate::wait::look::pause_until;
use crate::wait::{self, Preemption};

/// Do readers wait for their turn here? HINT: wrongly yes, a writer may wait for a member's slice.
pub fn are_taken<P: Readers, N: Preemption>() -> bool {
    N::WISHES && P::roomy() && P::honours_wishes()
}

/// May a reader wait counted beside this state? Not beside a writer that waits for readers itself (B3).
#[inline]
pub fn joins(word: u32) -> bool {
    word & (DRAINING | MANY) == WRITER
}

/// What a waiter has last seen in the turn word.
pub struct Turn(u32);

impl Turn {
    /// As it is now.
    pub fn of<P: Readers, N: Preemption>(lock: &Wakeful<P, N>) -> Self {
        Self(lock.turn().load(Relaxed))
    }

    /// Until the turn word changes, or this moment, or a warning (T1, T4, T5).
    pub fn watch<P: Readers, N: Preemption>(&mut self, lock: &Wakeful<P, N>, until: u64) {
        loop {
            let seen = lock.turn().load(Relaxed);
            if seen != self.0 {
                self.0 = seen;
                return;
            }
            let now = P::now_ns();
            if now >= until || wait::is_warned::<N, P>(P::current()) {
                return;
            }
            pause_until::<P>((now + limits::poll::<P>()).min(until));
        }
    }
}

impl<P: Readers, N: Preemption> Wakeful<P, N> {
    fn turn(&self) -> &'static P::AtomicU32 {
        P::turn(core::ptr::from_ref(self).cast())
    }

    /// T3. The lock may be gone by now; only its address is used.
    #[cold]
    #[inline(never)]
    pub(super) fn tell(&self) {
        self.turn().fetch_add(1, Relaxed);
    }
}
