// SPDX-License-Identifier: MIT OR Apache-2.0
//! The standby: of those who wait for nobody knows whom, one stays awake.
//!
//! A condition variable's or a semaphore's waiter cannot look at a holder: whoever comes next will let it
//! go on. If that one runs on another processor just then, a waiter that is awake saves a sleep and a
//! wake-up on either side, and a waiter that polls in vain has wasted as much. So one of the waiters stands
//! by, the others sleep.
//!
//! - It polls for as long as an idle processor takes to go to sleep and back
//!   ([`Costs::idle`](platform::Costs::idle)), and leaves before that if a thread that does not wait has
//!   lost its processor. If that one stands above all that compute, and the machine has that call, it gives
//!   it its own, and looks once more ([`Platform::hands_off`]; ICPP 2001, figure 1, lines 18 to 20).
//! - In vain, it tells the next ones to rest: [`after_wait`] counts the waits until somebody may stand by
//!   again.
//!
//! Resting is what makes it cheap. The partner often needs this very processor, and no view shows that of a
//! thread that was woken and has not run. With six rests of [`REST`] waits each, a partner that never comes
//! costs 0.1 us a wait on average.

use platform::{Deadline, Platform, Priority};

use super::look::{is_wanted, pause_until};

/// A wait is counted as rest at one in so many.
///
/// COST: with 1, two threads that share a processor lose a factor of ten to glibc's condition variable,
/// which just switches between them (0.3 us). With 64 they lose nothing, and two that do not share one find
/// out after some hundred waits. Cells: two threads in turns, bound to one processor and to two.
pub const REST: u32 = 64;

/// How many questions whether somebody wants the processor a switch is worth: each looks at every thread.
/// COST: 2 us between them, by trial. No cell known.
const ASKS: u64 = 2;

/// What a standby does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Look again after [`Vigil::rest`].
    Stay,
    /// The deadline has passed.
    Late,
    /// It stood by in vain, or its processor is wanted.
    Leave,
}

/// The time of one standby, from its first look on.
#[derive(Clone, Copy, Debug)]
pub struct Vigil {
    until: u64,
    asked: u64,
    now: u64,
}

impl Vigil {
    /// From now on.
    pub fn begin<P: Platform>() -> Self {
        let now = P::now_ns();
        Self { until: now + P::costs().idle, asked: now, now }
    }

    /// After a look that found nothing.
    pub fn next<P: Platform>(&mut self, deadline: Option<Deadline>) -> Next {
        if deadline.is_some_and(P::past) {
            return Next::Late;
        }
        let ask = self.now >= self.asked + ASKS * P::costs().switch;
        if ask {
            self.asked = self.now;
        }
        // HINT: wrong, it leaves too early or polls on a processor that somebody wants, to the end of its
        // time.
        let wanted = ask && is_wanted::<P>();
        let heir = || P::hands_off() && P::higher_preempted(Priority::Running);
        if wanted && self.now < self.until && heir() {
            P::hand_off();
            return Next::Stay;
        }
        if self.now >= self.until || wanted { Next::Leave } else { Next::Stay }
    }

    /// Pauses for a transfer of the line.
    pub fn rest<P: Platform>(&mut self) {
        self.now = pause_until::<P>(self.now + P::costs().line);
    }
}

/// The greatest value of a `skip`. It takes three bits.
pub const MOST_SKIPS: u32 = 7;
/// The `skip` with which a waiter may stand by.
pub const MAY_STAND_BY: u32 = 1;

/// `skip`, which says how long nobody stands by, after a waiter that went to sleep at once. 0: nobody has
/// waited yet. `rested`: this is the one wait in [`REST`] that counts.
///
/// A new word begins with all rests. Many programs make one for a wait or two (RocksDB for each write,
/// CPython for each `Condition`), and those would all poll in vain.
#[inline]
pub fn after_wait<P: Platform>(skip: u32, rested: bool) -> u32 {
    match skip {
        // A model has no time for rests.
        0 => MOST_SKIPS.min(P::PAUSES),
        MAY_STAND_BY => MAY_STAND_BY,
        _ if rested => skip - 1,
        _ => skip,
    }
}
