// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful`: the default condition variable. One waiter stays awake while nobody else could use its
//! processor, the others sleep, and a sleeper is woken only when it could run.
//!
//! Sleepers use a sequence count and a futex, as in many libraries. Two things are ours. The *standby*
//! takes a signal without a system call on either side. And the number of wake-ups under way has a bound:
//! all waiters need the same mutex, so many of them awake only queue there. Signals beyond the bound are
//! noted, and each woken thread passes one on before it asks for the mutex.
//!
//! ```text
//!             standby: polls, signalled by S1 ------------------------------.
//!   enter <   | in vain (W4)                                                 > takes the mutex
//!             sleepers: counted -- woken by S3 --> in flight -- passes a pending one on (L1) --'
//! ```
//! # State
//! Two words. `sequence` is what sleepers sleep on; it changes before each wake-up. `state`:
//!
//! | bits | field | means |
//! |---|---|---|
//! | 0-1 | standby | 0 none; 1 waits, awake; 2 signalled |
//! | 2-4 | generation | [`Platform::generation`] of the process that wrote the rest |
//! | 5-9 | in flight | sleepers woken that have not run yet; never too high (I3) |
//! | 10-12 | skip | how long nobody stands by: see [`crate::wait::standby`] |
//! | 13-21 | pending | signals given to sleepers whose wake-up is left to those in flight |
//! | 22-31 | sleepers | sleepers that no signal was given to; never too low (I2); 1023 is "many" |
//! # Invariants
//! - I1. There is one standby at most. Nobody takes its place between its signal and its leaving, so a
//!   newcomer cannot steal the signal.
//! - I2. A thread that sleeps on the present sequence, or is about to, is counted in `sleepers` or in
//!   `pending`, or its wake-up is being made: by S3, L1, L2, a broadcast, a cancellation, or the caller of
//!   S5 or S6. `sleepers` may be too high, which costs a useless system call (S4). It is never too low.
//! - I3. Each thread counted in `in flight` was woken by the kernel and will do L1. The count may be too
//!   low, which costs an earlier wake-up. Were it too high, `pending` could be stuck.
//! - I4. While `in flight` is 0, `pending` counts only waiters of broadcasts past B2. S2 adds to it while
//!   somebody is in flight, and the last of those leaves nothing pending.
//! # Protocol
//! | step | what happens |
//! |---|---|
//! | W1 W2 | With the mutex held, read `sequence`. Become the standby, or count into `sleepers`. Release. |
//! | W3 | The standby polls until it is signalled, as a contender (S6 of [`publish`]). |
//! | W4 | In vain: it changes `sequence` and is a sleeper. |
//! | W5 | A sleeper sleeps while `sequence` is what W1 read. |
//! | L1 | Woken: take one from `pending`, change `sequence`, wake one; else count out of `in flight`. |
//! | | If that finds nobody asleep, the same with all that are pending. |
//! | L2 | Woken, and `in flight` is 0 but `pending` is not: take one from it and wake one. |
//! | | `sequence` stays, so that nobody comes back early who waits again already. |
//! | S1 | Signal: a standby that waits is marked as signalled. |
//! | S2 | Else, if two for each processor, or 31, are in flight: move one from `sleepers` to `pending`, |
//! | | change `sequence`. Not if `in flight` is 0, or `sleepers` or `pending` is full. |
//! | S3 | Else move one from `sleepers` to `in flight`, change `sequence`, wake one. |
//! | S4 | Nobody was asleep: all counted before S3 leave by themselves, for `sequence` changed. So zero |
//! | | `sleepers` and `pending`, count out of `in flight`. If `state` changed meanwhile, L1. It may be |
//! | | equal again, and count others: so if it counted any, change `sequence` and wake all. |
//! | S5 | A signal for later: count the only sleeper out, change `sequence`. The caller owes one wake-up. |
//! | | It is not in flight: if it was not asleep, nobody could correct that. |
//! | S6 | A broadcast for later: the caller owes the wake-up. A broadcaster that holds the waiters' mutex |
//! | | uses it and wakes after the release. |
//! | B1 to B3 | Broadcast: mark the standby, zero the counts. Change `sequence`. Wake all. Or as a chain: |
//! | B4 | Count all but the first into `pending` and wake the first. Each wakes one more (L2), and so on. |
//! | | A thread counted after B1 is counted here too, and stays in `sleepers`: it may sleep before one of |
//! | | those, and take its link. No chain if `first` is more than half of them, if `sleepers` is "many", or |
//! | | if `pending` has no room. |
//! # Memory order
//! W2 release -> S2, S3, S4 acquire: the change of `sequence` after S3 comes after W1, so W5 sees it. S1
//! needs none: the mutex protects what the waiter reads next. W5 against S3 is the futex's.
//! B4 release -> L2 acquire: B2 comes before L2's wake-up, so whom that does not find does not sleep (W5).
//! # Under the scheduler
//! - *Signaller preempted* between count and wake-up: the wake-up is late by that, as with any futex.
//! - *Woken thread not run soon*: what is pending waits for it. Fewer than the bound in flight: nothing. A
//!   chain has as many ends as it began with.
//! - *Hint wrong*: the standby polls for its time on a processor that somebody wanted, or sleeps in vain.
//! - *Fork*: a child's first waiter finds another generation and starts afresh.
//! # Fairness and space
//! 8 bytes. The standby goes before sleepers, which POSIX allows. Sleepers are served in the kernel's order,
//! longest first. A signal never goes to a later waiter instead of an earlier one that is about to sleep,
//! because also S2 changes `sequence`. A waiter that misses exactly 2^32 changes sleeps on.
//! # Rejected: see `docs/design/condvar.md`
//! # Checked by
//! `conformance`: loom, shuttle (also over the default mutex), real threads: each signal finds a waiter, a
//! broadcast all; deadlines, waits abandoned and cancelled, words copied by fork. Twins that lose or steal
//! a signal are caught. `crates/preload/tests/c`. `crates/xtask/explained.toml` has the orderings.

use core::marker::PhantomData;
use platform::{Atomic, AtomicInt, Deadline, Ordering::*, Platform, StaticPlatform, Wait};

use crate::wait::look::is_wanted;
use crate::wait::publish;
use crate::wait::standby::{MAY_STAND_BY, MOST_SKIPS, Next, REST, Vigil, after_wait};

const STANDBY: u32 = 3;
const WAITING: u32 = 1;
const SIGNALLED: u32 = 2;
const GENERATION_SHIFT: u32 = 2;
const GENERATION: u32 = 7 << GENERATION_SHIFT;
const IN_FLIGHT_ONE: u32 = 1 << 5;
const IN_FLIGHT: u32 = 31 * IN_FLIGHT_ONE;
const SKIP_ONE: u32 = 1 << 10;
const SKIP: u32 = MOST_SKIPS * SKIP_ONE;
const PENDING_ONE: u32 = 1 << 13;
const PENDING: u32 = 511 * PENDING_ONE;
const SLEEPERS_ONE: u32 = 1 << 22;
const SLEEPERS: u32 = 1023 * SLEEPERS_ONE;

/// COST: wake-ups under way for each processor. With one, both woken threads may stand in the queue of a busy
/// processor while the other idles: a pool of 8 threads with tasks of 20 us ran at 0.8 of its rate. That is
/// the cell.
const EACH: u32 = 2;

/// The default condition variable.
pub struct Wakeful<P: Platform> {
    sequence: P::AtomicU32,
    state: P::AtomicU32,
    platform: PhantomData<P>,
}

/// One wait, from [`Wakeful::enter`] to its end.
#[derive(Debug)]
pub struct Waiter {
    /// What W1 read.
    sequence: u32,
    standby: bool,
}

/// What a waiter has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sleep on [`Wakeful::word`] while it holds this value, then report to [`Wakeful::slept`].
    Sleep(u32),
    /// Signalled (or woken without cause, as a condition variable may).
    Signalled,
    /// The deadline passed.
    TimedOut,
}

impl<P: Platform> Default for Wakeful<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: StaticPlatform> Wakeful<P> {
    /// A condition variable that nobody waits for, for a `static`.
    pub const INIT: Self = Self { sequence: P::ZERO_U32, state: P::ZERO_U32, platform: PhantomData };
}

#[inline]
fn more_sleepers(state: u32) -> u32 {
    if state & SLEEPERS == SLEEPERS { state } else { state + SLEEPERS_ONE }
}

#[inline]
fn fewer_sleepers(state: u32) -> u32 {
    if state & SLEEPERS == SLEEPERS { state } else { state - SLEEPERS_ONE }
}

impl<P: Platform> Wakeful<P> {
    /// A condition variable that nobody waits for. All bits are zero.
    pub fn new() -> Self {
        Self { sequence: P::AtomicU32::new(0), state: P::AtomicU32::new(0), platform: PhantomData }
    }

    /// The word to sleep on.
    pub fn word(&self) -> &P::AtomicU32 {
        &self.sequence
    }

    /// Starts a wait (W1, W2). The caller holds the mutex and releases it next. The waiter must be carried
    /// to its end.
    pub fn enter(&self) -> Waiter {
        let generation = P::generation() << GENERATION_SHIFT;
        let sequence = self.sequence.load(Relaxed);
        let mut state = self.state.load(Relaxed);
        loop {
            let base = if state & GENERATION == generation { state } else { generation };
            let skip = (base & SKIP) / SKIP_ONE;
            let new = if skip == MAY_STAND_BY && base & STANDBY == 0 && !is_wanted::<P>() {
                base | WAITING
            } else {
                // A standby that leaves in vain changes `sequence` (W4): waits that only time out would
                // else stay at one multiple.
                let rested = sequence.is_multiple_of(REST.min(P::PAUSES));
                more_sleepers(base & !SKIP | (after_wait::<P>(skip, rested) * SKIP_ONE))
            };
            let standby = new & STANDBY != base & STANDBY;
            // ORDER: Release, pairs with the Acquire in S2 and S3: our read of the sequence comes before
            // their change of it.
            match self.state.compare_exchange_weak(state, new, Release, Relaxed) {
                Ok(_) => return Waiter { sequence, standby },
                Err(now) => state = now,
            }
        }
    }

    /// What the waiter has to do next. The caller has released the mutex.
    pub fn step(&self, waiter: &mut Waiter, deadline: Option<Deadline>) -> Step {
        if waiter.standby {
            return publish::waiting::<P, _>(|| self.stand_by(waiter, deadline));
        }
        if self.sequence.load(Relaxed) != waiter.sequence {
            Step::Signalled
        } else {
            Step::Sleep(waiter.sequence)
        }
    }

    /// W3, W4.
    fn stand_by(&self, waiter: &mut Waiter, deadline: Option<Deadline>) -> Step {
        let mut vigil = Vigil::begin::<P>();
        loop {
            let state = self.state.load(Relaxed);
            if state & STANDBY != WAITING {
                self.state.fetch_and(!STANDBY, Relaxed);
                return Step::Signalled;
            }
            let alone = state & !STANDBY;
            match vigil.next::<P>(deadline) {
                Next::Stay => vigil.rest::<P>(),
                Next::Late => {
                    if self.state.compare_exchange(state, alone, Relaxed, Relaxed).is_ok() {
                        return Step::TimedOut;
                    }
                }
                Next::Leave => {
                    // W4. Where nobody signals, nothing else would end a multiple of `REST`.
                    let sequence = self.sequence.fetch_add(1, Relaxed).wrapping_add(1);
                    // ORDER: Release, as in `enter`.
                    if self
                        .state
                        .compare_exchange(state, more_sleepers(alone | SKIP), Release, Relaxed)
                        .is_ok()
                    {
                        *waiter = Waiter { sequence, standby: false };
                        return Step::Sleep(sequence);
                    }
                }
            }
        }
    }

    /// The waiter has slept, with this outcome; what next?
    pub fn slept(&self, waiter: &mut Waiter, outcome: Wait) -> Step {
        if outcome == Wait::Woken {
            self.pass_on();
            return Step::Signalled;
        }
        match self.step(waiter, None) {
            Step::Sleep(_) if outcome == Wait::TimedOut => Step::TimedOut,
            step => step,
        }
    }

    /// Ends a wait before its first step: the mutex could not be released. What this waiter may have been
    /// given goes to another.
    pub fn abandon(&self, waiter: Waiter) {
        let mut state = self.state.load(Relaxed);
        while waiter.standby && state & STANDBY == WAITING {
            match self.state.compare_exchange_weak(state, state & !STANDBY, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
        if waiter.standby {
            self.state.fetch_and(!STANDBY, Relaxed);
            self.signal();
        }
        // A sleeper stays counted, which is harmless (I2); a signal meanwhile found others or nobody.
    }

    /// The waiter's thread is being cancelled in its sleep. It may have been woken by a signal: lets
    /// somebody else have it.
    pub fn cancelled(&self) {
        let mut state = self.state.load(Relaxed);
        let pending = loop {
            // ORDER: Acquire, as in `signal`.
            match self.state.compare_exchange_weak(state, state & !(PENDING | IN_FLIGHT), Acquire, Relaxed) {
                Ok(_) => break (state & PENDING) / PENDING_ONE,
                Err(now) => state = now,
            }
        };
        self.sequence.fetch_add(1, Relaxed);
        P::wake(&self.sequence, pending + 1);
    }

    /// Waits to the end; false if the deadline passed. The caller released the mutex after
    /// [`Wakeful::enter`].
    pub fn wait(&self, mut waiter: Waiter, deadline: Option<Deadline>) -> bool {
        let mut step = self.step(&mut waiter, deadline);
        loop {
            match step {
                Step::Sleep(expected) => {
                    let outcome = P::wait(&self.sequence, expected, deadline);
                    step = self.slept(&mut waiter, outcome);
                }
                Step::Signalled => return true,
                Step::TimedOut => return false,
            }
        }
    }

    /// L1, L2.
    fn pass_on(&self) {
        let mut state = self.state.load(Relaxed);
        let mut most = PENDING_ONE;
        loop {
            let (pending, in_flight) = ((state & PENDING).min(most), state & IN_FLIGHT != 0);
            let new = match (pending, in_flight) {
                (1.., _) => state - pending,
                (0, true) => state - IN_FLIGHT_ONE,
                (0, false) => return,
            };
            // ORDER: Acquire, as in `signal`; and pairs with the Release in B4.
            match self.state.compare_exchange_weak(state, new, Acquire, Relaxed) {
                Ok(_) if pending == 0 => return,
                Ok(_) => {
                    if in_flight {
                        self.sequence.fetch_add(1, Relaxed);
                    }
                    if P::wake(&self.sequence, pending / PENDING_ONE) != 0 {
                        return;
                    }
                    // What is pending was for some who left by themselves: not a call for each.
                    most = PENDING;
                    state = self.state.load(Relaxed);
                }
                Err(now) => state = now,
            }
        }
    }

    /// Wakes one waiter, if there is any.
    #[inline]
    pub fn signal(&self) {
        if self.state.load(Relaxed) & (STANDBY | SLEEPERS) != 0 {
            self.signal_slow();
        }
    }

    #[inline(never)]
    fn signal_slow(&self) {
        let mut state = self.state.load(Relaxed);
        loop {
            if state & STANDBY == WAITING {
                match self.state.compare_exchange_weak(state, state ^ WAITING ^ SIGNALLED, Relaxed, Relaxed) {
                    Ok(_) => return,
                    Err(now) => state = now,
                }
                continue;
            }
            if state & SLEEPERS == 0 {
                return;
            }
            let in_flight = state & IN_FLIGHT;
            let defer = in_flight != 0
                && state & SLEEPERS != SLEEPERS
                && state & PENDING != PENDING
                && (in_flight == IN_FLIGHT || in_flight / (EACH * IN_FLIGHT_ONE) >= P::processors());
            let new = fewer_sleepers(state);
            let new = match (defer, in_flight != IN_FLIGHT) {
                (true, _) => new + PENDING_ONE,
                (false, true) => new + IN_FLIGHT_ONE,
                (false, false) => new,
            };
            // ORDER: Acquire, pairs with the Release in W2: the change of the sequence comes after the
            // waiter has read it.
            if let Err(now) = self.state.compare_exchange_weak(state, new, Acquire, Relaxed) {
                state = now;
                continue;
            }
            // Who has counted itself but does not sleep yet goes on at once, so that no later waiter takes
            // this signal from it.
            self.sequence.fetch_add(1, Relaxed);
            if !defer && P::wake(&self.sequence, 1) == 0 {
                // S4.
                let right = new & !(SLEEPERS | PENDING);
                let right = if right & IN_FLIGHT != 0 { right - IN_FLIGHT_ONE } else { right };
                // ORDER: Acquire, as above, for who is counted here and came after S3.
                if self.state.compare_exchange(new, right, Acquire, Relaxed).is_err() {
                    self.pass_on();
                } else if new & (SLEEPERS | PENDING) != 0 {
                    self.sequence.fetch_add(1, Relaxed);
                    P::wake(&self.sequence, u32::MAX);
                }
            }
            return;
        }
    }

    /// Is there nothing but one sleeper to whom nothing was given?
    #[inline]
    pub fn has_lone_sleeper(&self) -> bool {
        self.state.load(Relaxed) & !(GENERATION | SKIP) == SLEEPERS_ONE
    }

    /// S5. Signals the lone sleeper, but leaves it asleep: the caller owes a wake-up of one on
    /// [`Wakeful::word`]. False if it is not alone, or gone.
    pub fn take_lone_sleeper(&self) -> bool {
        let state = self.state.load(Relaxed);
        // ORDER: Acquire, as in `signal`.
        let taken = state & !(GENERATION | SKIP) == SLEEPERS_ONE
            && self.state.compare_exchange(state, state - SLEEPERS_ONE, Acquire, Relaxed).is_ok();
        if taken {
            self.sequence.fetch_add(1, Relaxed);
        }
        taken
    }

    /// Is there a sleeper?
    #[inline]
    pub fn has_sleepers(&self) -> bool {
        self.state.load(Relaxed) & (SLEEPERS | PENDING) != 0
    }

    /// S6. Signals all waiters, but leaves the sleepers asleep: the caller owes a wake-up of so many of them
    /// on [`Wakeful::word`]. 0: there are none. It is `first`, and these wake the others, or all.
    #[inline(never)]
    pub fn take_all(&self, first: u32) -> u32 {
        let mut state = self.state.load(Relaxed);
        loop {
            let new = state & (STANDBY | GENERATION | SKIP);
            let new = if new & STANDBY == WAITING { new ^ WAITING ^ SIGNALLED } else { new };
            // ORDER: Acquire, as in `signal`.
            match self.state.compare_exchange_weak(state, new, Acquire, Relaxed) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        let sleepers = (state & SLEEPERS) / SLEEPERS_ONE + (state & PENDING) / PENDING_ONE;
        if sleepers == 0 {
            return 0;
        }
        self.sequence.fetch_add(1, Relaxed);
        if state & SLEEPERS != SLEEPERS && sleepers / 2 >= first && self.chain(sleepers - first) {
            return first;
        }
        u32::MAX
    }

    /// B4. So many are to be woken by others. False if there is no room for them.
    fn chain(&self, more: u32) -> bool {
        let mut state = self.state.load(Relaxed);
        loop {
            let pending = (state & PENDING) / PENDING_ONE + (state & SLEEPERS) / SLEEPERS_ONE + more;
            if pending > PENDING / PENDING_ONE {
                return false;
            }
            let new = state & !PENDING | (pending * PENDING_ONE);
            // ORDER: Release, pairs with the Acquire in `pass_on`: B2 comes before.
            match self.state.compare_exchange_weak(state, new, Release, Relaxed) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
    }

    /// How many to wake at first, so that all processors have something to do.
    pub fn enough() -> u32 {
        EACH.saturating_mul(P::processors())
    }

    /// Wakes all waiters: `first` of them, at least one, and these wake the others.
    #[inline]
    pub fn broadcast(&self, first: u32) {
        if self.state.load(Relaxed) & (STANDBY | SLEEPERS | PENDING) != 0 {
            self.broadcast_slow(first);
        }
    }

    #[inline(never)]
    fn broadcast_slow(&self, first: u32) {
        let count = self.take_all(first);
        if count != 0 && P::wake(&self.sequence, count) == 0 && count != u32::MAX {
            // All whom the chain is for left by themselves.
            self.pass_on();
        }
    }
}
