// SPDX-License-Identifier: MIT OR Apache-2.0
//! The default mutex where a scheduler listens: its holders tell that they are, by the steps S1 to S5 of
//! [`publish`].
//!
//! A thread that publishes has PUBLISHES in its stamp. That is HANDOFF without STANDBY, which no word ever
//! has (I4). So the compare-and-swap of A1 fails, and the slow path tells. R1 succeeds on any word, so a
//! release looks at the stamp for it.
//!
//! - P0. A thread begins to publish on its first slow path of `lock` while [`Platform::hands_off`] is true,
//!   or when it is told to ([`publishes_from_now`]). It has an id from then on.
//! - P9. It ends when it has released its last lock and nobody listens any more.

use platform::{Deadline, Platform, ThreadId};

use super::{HANDOFF, Wakeful};
use crate::wait::{self, Preemption, publish};

const PUBLISHES: u32 = HANDOFF;

/// Does the calling thread publish?
#[inline(always)]
pub fn publishes<P: Platform>() -> bool {
    P::stamp() & PUBLISHES != 0
}

/// P0. After a wait, too: a thread that has got another id has lost the rest of its stamp.
fn begin<P: Platform>() {
    if !publishes::<P>() {
        P::set_stamp(PUBLISHES);
    }
}

/// P0, if somebody listens: a thread that never meets another one at a lock publishes, too.
pub fn publishes_from_now<P: Platform>() {
    if P::hands_off() && P::register() != ThreadId::NONE {
        begin::<P>();
    }
}

/// S4 and P9.
pub fn left<P: Platform>() -> ThreadId {
    let me = publish::left::<P>();
    if !P::hands_off() && !wait::raised::<P>(me) {
        P::set_stamp(0);
    }
    me
}

impl<P: Platform, N: Preemption> Wakeful<P, N> {
    pub(super) fn lock_publishing(&self, word: u32, deadline: Option<Deadline>) -> bool {
        let me = publish::claim::<P>();
        begin::<P>();
        let locked = self.take_free(word) || {
            publish::wait::<P>(me);
            self.lock_contended(word, deadline)
        };
        self.published(locked)
    }

    /// A2, of an arrival that will not wait, and has failed once.
    #[inline(never)]
    pub(super) fn take_at_once(&self, word: u32) -> bool {
        if !N::PUBLISHES || !publishes::<P>() {
            return self.take_free(word);
        }
        publish::claim::<P>();
        self.published(self.take_free(word))
    }

    /// S3, or nothing came of it.
    pub(super) fn published(&self, locked: bool) -> bool {
        if locked {
            begin::<P>();
            publish::entered::<P>();
        } else {
            publish::gave_up::<P>();
        }
        locked
    }
}
