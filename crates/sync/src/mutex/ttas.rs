// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ttas-spin`, `ttas-block`, `ttas-competitive`, `ttas-informing`: test-and-test_and_set with local
//! spinning, and four ways to wait.
//!
//! The best simple lock of ICPP 2001 on a multiprogrammed machine, because it imposes no order that the
//! scheduler could contradict. Antonopoulos, Nikolopoulos, Papatheodorou, ICPP 2001, section 4, "TTAS
//! Lock". The paper leaves the code to a technical report; ours follows its rules for priorities. Blocking
//! needs a mark that somebody sleeps: Drepper's ("Futexes Are Tricky", mutex2).
//!
//! # State
//!
//! | bit | meaning |
//! |---|---|
//! | 0 LOCKED | held |
//! | 1 SLEEPERS | somebody may sleep on the word; only with LOCKED, never in `ttas-spin` |
//!
//! `0 -> 1` or `0 -> 3` acquire; `1 -> 3` before sleeping; `1 -> 0`, `3 -> 0` release.
//!
//! # Invariants
//!
//! I1. LOCKED exactly while one thread is between A1 or A3 and R1.
//! I2. While a thread sleeps, SLEEPERS is set, or a thread is about to be woken (R2), or one that has been
//! is awake in the slow path: it sets SLEEPERS whether it acquires (A3) or sleeps again (A2).
//!
//! # Protocol
//!
//! A1. `0 -> LOCKED`. Else spin while the policy lets us; A2. else set SLEEPERS and sleep while the word
//! stays so.
//! A3. After having slept, `0 -> LOCKED | SLEEPERS`: others may sleep still.
//! R1. Swap 0. R2. If SLEEPERS was set, wake one. Between R1 and the wake-up of its sleeper anybody may
//! take the lock; I2 holds because the sleeper comes back through A2 or A3.
//!
//! # Memory order
//!
//! R1 release -> A1, A3 acquire publishes the protected data. SLEEPERS needs none: sleeping compares the
//! word again.
//!
//! # Under the scheduler
//!
//! Holder preempted: `spin` burns its slice; `block` sleeps; `informing` sees a preempted thread of higher
//! priority and sleeps. It does not hand off as the paper's MCS lock does: it would stay in the ready queue
//! as a LOCK_WAITER, and nobody would raise it when the lock is free (S8 of [`publish`]). Next waiter
//! preempted: there is no next, somebody else takes the lock. More threads than processors: as a rule some
//! thread of priority Running is preempted, so that `informing` waiters sleep. Hint stale: a waiter spins or
//! sleeps in vain; I2 wakes it. No view: `informing` waits as `competitive` does, for as long as a switch
//! costs before it sleeps. A waiter of real-time priority keeps its processor from a holder without until it
//! sleeps, at once if the view says "preempted". A holder that slept inside and was woken, but has not run
//! since, still counts as blocked: then the waiter spins until the kernel throttles it, 0.95 s by default. A
//! holder that waits for a second lock counts as a waiter meanwhile, as in the paper (figure 1, line 16):
//! others give way to it no longer. Killed while holding: lost.
//!
//! # Fairness and space
//!
//! None: who was woken may find the lock taken each time. 4 bytes, no node; `informing` counts held locks
//! in the thread's block.
//!
//! # Rejected
//!
//! A bit that says "one has been woken": clearing SLEEPERS at release says the same (no second wake-up
//! until the first one has looked), and a bit of its own would have to be cleared by exactly the right
//! thread.
//!
//! Releasing by a plain store, as `spin` does, and looking for sleepers afterwards: it needs a fence that
//! costs what the swap costs. That cost is what `informing` loses to `spin` where two threads alternate in
//! very short sections (5 lines: 0.75 to 0.79 x; 20 lines: 0.94 to 0.97 x; 2 processors, virtual machine,
//! November 2026).
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; the twin that falls asleep without leaving its mark (A2) is
//! caught, and so are those that sleep when nobody is woken.

use core::marker::PhantomData;
use platform::{Atomic, Ordering::*, Platform, Priority, StaticPlatform};

use super::RawMutex;
use crate::wait::{self, Waiting, publish};

const LOCKED: u32 = 1;
const SLEEPERS: u32 = 2;

/// Test-and-test_and_set, waiting as `W` says.
#[repr(transparent)]
pub struct Ttas<P: Platform, W> {
    word: P::AtomicU32,
    platform: PhantomData<(P, W)>,
}

impl<P: StaticPlatform, W> Ttas<P, W> {
    /// A free lock, for a `static`.
    pub const INIT: Self = Self { word: P::ZERO_U32, platform: PhantomData };
}

impl<P: Platform, W: Waiting> Ttas<P, W> {
    #[cold]
    #[inline(never)]
    fn lock_slow(&self) {
        let mut me = wait::informed_thread::<W, P>();
        let mut mine = LOCKED;
        let mut turns = 0;
        let mut looks = 0;
        loop {
            let word = self.word.load(Relaxed);
            if word == 0 {
                // ORDER: Acquire (A1, A3), pairs with R1.
                if self.word.compare_exchange_weak(0, mine, Acquire, Relaxed).is_ok() {
                    break;
                }
                continue;
            }
            turns = u32::wrapping_add(turns, 1);
            let look = wait::look::<W, P>(turns);
            looks = u32::saturating_add(looks, look as u32);
            if W::INFORMS && look {
                me = wait::informed_after::<W, P>(looks == 1, me);
                // HINT: who is preempted in the first microsecond is taken more seriously than a waiter
                // should be. `entered` ends it.
                P::set_priority(me, publish::waits_as::<P>(me, Priority::LockWaiter));
            }
            if look && !W::may_spin::<P>(Priority::LockWaiter, looks) {
                looks = 0;
                let asleep = LOCKED | SLEEPERS;
                if word == asleep || self.word.compare_exchange(word, asleep, Relaxed, Relaxed).is_ok() {
                    P::wait(&self.word, asleep, None);
                    mine = asleep;
                }
            } else {
                P::pause();
            }
        }
    }
}

impl<P: Platform, W: Waiting> RawMutex<P> for Ttas<P, W> {
    type Node = ();

    fn new() -> Self {
        Self { word: P::AtomicU32::new(0), platform: PhantomData }
    }

    #[inline]
    unsafe fn lock(&self, _: &()) {
        // ORDER: Acquire (A1), pairs with R1.
        if self.word.load(Relaxed) != 0 || self.word.compare_exchange(0, LOCKED, Acquire, Relaxed).is_err() {
            self.lock_slow();
        }
        wait::entered::<W, P>(wait::informed_thread::<W, P>());
    }

    #[inline]
    unsafe fn try_lock(&self, _: &()) -> bool {
        // ORDER: Acquire (A1), pairs with R1.
        let got =
            self.word.load(Relaxed) == 0 && self.word.compare_exchange(0, LOCKED, Acquire, Relaxed).is_ok();
        if got {
            wait::entered::<W, P>(wait::informed_thread::<W, P>());
        }
        got
    }

    #[inline]
    unsafe fn unlock(&self, _: &()) {
        if W::SLEEPS {
            // ORDER: Release (R1), pairs with A1 and A3; publishes the protected data.
            if self.word.swap(0, Release) & SLEEPERS != 0 {
                P::wake(&self.word, 1);
            }
        } else {
            // ORDER: Release (R1), as above.
            self.word.store(0, Release);
        }
        wait::left::<W, P>(P::current());
    }
}
