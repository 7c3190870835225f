// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reduction: each member of a team has a part, and one variable gets the sum of all.
//!
//! The problem: members come at different times, or not at all where a region is cancelled. One after the
//! other in a critical section, the last waits for all. A tree whose places are fixed has members wait for
//! partners that are not running.
//!
//! The idea: the tree grows as members come. A section guards the variable. Who finds it free enters. Who
//! finds it held leaves its part in a slot, and waits. Who finds a part there takes it, adds it to its own,
//! and goes on with both. So members that wait anyway add up two by two, and nobody waits for one that has
//! not come. (Yew, Tzeng and Lawrie, IEEE ToC 1987, have the tree; Goodman, Vernon and Woest, ASPLOS 1989,
//! combine whoever meets on the way.)
//!
//! ```text
//! enter:  E1 free -> held: in     E2 held -> held and mine: wait for E5 or L2
//!         E3 held and yours -> held: yours is mine   E4 combine   E5 tell it "taken", begin again
//! leave:  L1 held -> free         L2 held and yours -> held: tell it "in"
//! ```
//!
//! # State
//!
//! One word: bit 0 HELD, 31 bits of who waits in the slot (0 nobody), 32 bits of the reduction's number.
//!
//! | from | to | by |
//! |---|---|---|
//! | free | held | E1 |
//! | held | held, A of number n | E2 by A |
//! | held, A of n | held | E3 by another member of n, or L2 by whoever is in |
//! | held | free | L1 |
//!
//! A member's state: WAITS, then TAKEN or IN, once in each reduction.
//!
//! # Invariants
//!
//! I1. One member is in the section while the word is HELD. A part in the slot implies HELD.
//! I2. A part is taken out of the slot by one step of one member, E3 or L2. So it is added once.
//! I3. Parts of different reductions never meet: E3 compares numbers. Members count alike.
//! I4. Whoever is in does not wait for another member. So each member that waits goes on.
//!
//! # Protocol
//!
//! As above. Where the slot has a part of another reduction (they come without barriers between), the member
//! waits until the word changes. A member waits in one reduction once: no word comes back while it is
//! looked at (32 bits of numbers).
//!
//! # Memory order
//!
//! L1 and all later steps are read-modify-writes: L1 release -> E1 acquire publishes the variable. E2 release
//! -> E3 acquire publishes the part. The member's state, release -> acquire: after E5 its memory is its own
//! again, after L2 it sees the variable.
//!
//! # Under the scheduler
//!
//! Who is in and has no processor keeps those waiting who come meanwhile, as in a critical section. Whoever
//! took a part and has no processor keeps one member waiting. Killed: the process dies with it.
//!
//! # Fairness and space
//!
//! Who comes late may enter first: sums have no order. 8 bytes a team, 24 a member.
//!
//! # Rejected
//!
//! A critical section alone: 5 times as long with 2 threads and 1,024 numbers (`docs/openmp.md`). A tree
//! with fixed places has all wait for all, which costs a slice for each thread that does not run.
//!
//! # Checked by
//!
//! `conformance`, `openmp`: real threads, loom, shuttle; a twin that leaves before it has added is caught.

use platform::{Atomic, Ordering::*, Wide};

use super::{Event, Patience};

/// Somebody is in the section.
const HELD: u64 = 1;
/// Who waits, and 1 more; above it the reduction's number.
const WHO: u32 = 1;
const NUMBER: u32 = 32;

/// A member's state: its part is in the slot, in another's, or it is in the section.
const WAITS: u32 = 0;
const TAKEN: u32 = 1;
const IN: u32 = 2;

/// Where the members of a team add up their parts.
pub struct Reduction<P: Wide>(P::AtomicU64);

/// What a member has for that, and others may see.
pub struct Part<P: Wide, T: 'static> {
    data: P::AtomicPtr<T>,
    state: P::AtomicU32,
    changed: Event<P>,
}

impl<P: Wide, T> Default for Part<P, T> {
    fn default() -> Self {
        Self {
            data: Atomic::new(core::ptr::null_mut()),
            state: Atomic::new(WAITS),
            changed: Event::default(),
        }
    }
}

impl<P: Wide, T> Part<P, T> {
    fn tell(&self, state: u32) {
        // ORDER: Release (E5, L2), pairs with the wait in `enter`.
        self.state.store(state, Release);
        self.changed.notify();
    }
}

impl<P: Wide> Default for Reduction<P> {
    fn default() -> Self {
        Self(Atomic::new(0))
    }
}

impl<P: Wide> Reduction<P> {
    /// True: the caller is in the section, has to add its data, to which those of others may have been added,
    /// and leaves by [`Self::leave`]. False: its data have been added to another member's.
    ///
    /// `own` is the member's number, `number` that of the reduction: all members count alike. `combine` adds
    /// the second's data to the first's. The data are used by other members until this returns.
    pub fn enter<'a, W: Patience, T: 'static>(
        &self,
        own: u32,
        number: u32,
        data: *mut T,
        part: impl Fn(u32) -> &'a Part<P, T>,
        combine: impl Fn(*mut T, *mut T),
    ) -> bool {
        // WHO leaves 31 bits, as many as members have numbers.
        let ours = (number as u64) << NUMBER | ((own + 1) as u64) << WHO | HELD;
        let mine = part(own);
        mine.data.store(data, Relaxed);
        mine.state.store(WAITS, Relaxed);
        let mut now = self.0.load(Relaxed);
        loop {
            let waiter = (now as u32) >> WHO;
            let same = (now >> NUMBER) as u32 == number;
            if waiter != 0 && !same {
                W::briefly(|| self.0.load(Relaxed) != now);
                now = self.0.load(Relaxed);
                continue;
            }
            let next = if now == HELD { ours } else { HELD };
            // ORDER: AcqRel. Release (E2) pairs with Acquire (E3), and Acquire (E1) with L1.
            if let Err(seen) = self.0.compare_exchange(now, next, AcqRel, Relaxed) {
                now = seen;
                continue;
            }
            if now == 0 {
                return true;
            }
            if waiter == 0 {
                // ORDER: Acquire, pairs with `tell`.
                mine.changed.wait_until::<W>(|| mine.state.load(Acquire) != WAITS);
                return mine.state.load(Relaxed) == IN;
            }
            let other = part(waiter - 1);
            combine(data, other.data.load(Relaxed));
            other.tell(TAKEN);
            now = self.0.load(Relaxed);
        }
    }

    /// Leaves the section, by the member that is in.
    pub fn leave<'a, T: 'static>(&self, part: impl Fn(u32) -> &'a Part<P, T>) {
        let mut now = self.0.load(Relaxed);
        loop {
            let waiter = (now as u32) >> WHO;
            let next = if waiter == 0 { 0 } else { HELD };
            // ORDER: Release (L1), pairs with E1.
            match self.0.compare_exchange(now, next, Release, Relaxed) {
                Ok(_) if waiter == 0 => return,
                Ok(_) => return part(waiter - 1).tell(IN),
                Err(seen) => now = seen,
            }
        }
    }
}
