// SPDX-License-Identifier: MIT OR Apache-2.0
//! The default condition variable: one waiter stays awake while nobody else could use its processor, the others
//! sleep, and a sleeper is woken only when it could run.
//!
//! The sleeping is the sequence-count futex that many libraries share. Ours are the standby, which takes a signal without
//! a system call on either side, and the bound on wake-ups under way: all waiters need the same mutex, so waking more of them
//! than there are processors only makes them queue elsewhere (the signaller pays a system call for each, inside
//! its critical section). Signals beyond the bound are noted, and each woken thread passes one on before it asks for the mutex.
//!
//! # State
//!
//! Two words. `sequence` is what sleepers sleep on; it changes before each wake-up. `state`:
//!
//! | bits  | field      | means                                                                                 |
//! |-------|------------|---------------------------------------------------------------------------------------|
//! | 0-1   | standby    | 0 none; 1 waits, awake; 2 signalled                                                    |
//! | 2-4   | generation | [`Platform::generation`] of the process that wrote the rest                            |
//! | 5-9   | in flight  | sleepers woken that have not run yet; never too high, see I3                           |
//! | 10-12 | skip       | 1: a waiter may stand by; n: n - 1 times `REST` waits sleep, about, before one may; 0: nobody waited yet, the first makes it 7 |
//! | 13-21 | pending    | signals given to sleepers whose wake-up is left to those in flight                     |
//! | 22-31 | sleepers   | sleepers that no signal was given to; never too low, see I2; 1023 is "many"            |
//!
//! # Invariants
//!
//! I1. One standby at most, and nobody takes its place between its signal and its leaving: a newcomer cannot
//! steal the signal.
//! I2. Who is about to sleep on the present sequence, or sleeps, is counted in `sleepers`, or a wake-up for it is owed: counted in
//! `pending`, or being made by a thread in S3 or L1, by a broadcast, by who is cancelled, or by who called S5 or S6. `sleepers` may count too many (who leaves by itself does not count itself out): that costs
//! a useless system call, after which S4 corrects it. It never counts too few.
//! I3. Each thread counted in `in flight` was woken by the kernel and will do L1. The count may be too low
//! (broadcast and cancellation zero it, and a late wake-up of S6 may meet newcomers): that costs an earlier wake-up. It is never too high, or `pending` could be stuck.
//!
//! # Protocol
//!
//! Wait, with the mutex held: W1 read `sequence`; W2 become standby, if there is none and spinning is worth while, else count
//! into `sleepers`. Release the mutex. Standby: W3 poll until signalled; W4 after a while, or when a thread that could use the processor is
//! preempted, change `sequence` (see `REST`) and go back to W1 as a sleeper. Sleeper: W5 sleep while `sequence` is what W1 read. Woken: L1 if `pending`, take one, change `sequence`, wake one;
//! else count out of `in flight`. Acquire the mutex.
//!
//! Signal: S1 if a standby waits, mark it signalled. S2 else if a sleeper is counted and as many as there are processors are in flight (or 31), move one from `sleepers` to
//! `pending` and change `sequence`; not if either is full. S3 else if a sleeper is counted, move one from `sleepers` to `in flight`, change `sequence`, wake one. S4 if nobody was asleep: whoever was counted
//! before S3 finds the sequence changed and leaves by itself, so the count was too high; zero it and `pending`, and count out of `in flight`; if somebody changed `state`, L1 instead. But where `sleepers` is
//! many, who counts itself in between does not change it: then broadcast, which zeroes it before it changes `sequence`.
//!
//! A signal, or broadcast, to be delivered later: S5 if one sleeper is counted and nothing else, count it out, change `sequence`; whoever called wakes one.
//! It is not counted in flight: nobody could correct that if it was not asleep, because the condition variable may be gone by then.
//!
//! Broadcast: mark the standby, zero the counts, change `sequence`, wake all.
//!
//! A broadcast to be delivered later: S6 the same without the wake-up of all, which the caller owes. A broadcaster that holds the waiters' mutex
//! should use S6 and wake after the release. Otherwise each woken thread finds the mutex held, queues there, and is woken again.
//! Those second wake-ups come one after the other: 0.3 to 0.6 of the C library's rate where all threads wait for all (2 processors, 2026).
//!
//! Who sleeps longest is woken first, because the kernel's queue is in that order, and who has not gone to sleep when the signal comes does not
//! (W5: also a deferred one changes `sequence`): so no later waiter keeps an earlier one from a signal that came between the two. (The kernel orders real-time threads first: among waiters of different real-time priority a deferred wake-up
//! can go to a later waiter of higher priority.) A waiter that misses exactly 2^32 changes of `sequence` between W1 and W5 sleeps on; each
//! change is a system call, so that takes an hour between two instructions.
//!
//! # Memory order
//!
//! W2 release -> S2, S3 acquire: the change of `sequence` after S3 comes after W1, so that W5 sees it. S1 needs none: what
//! the waiter reads next is protected by the mutex. W5 against S3 is the futex system call's own guarantee.
//!
//! # Under the scheduler
//!
//! Signaller preempted between count and wake-up: the wake-up is late by that, as with any futex. Woken thread not run soon: what is pending waits
//! for it, up to a scheduling delay; with fewer than `processors` in flight nothing does. Standby preempted: its signal waits likewise. The hint wrong, "none preempted": the standby
//! polls for its time on a processor that somebody wanted, at one wait in some hundred (`REST`). Wrong the other way: a sleep and a wake-up that could have been saved. Fork: a child's
//! first waiter finds another generation and starts afresh.
//!
//! # Fairness and space
//!
//! The standby goes before sleepers, which POSIX allows (any waiter); sleepers are served in order. 8 bytes.
//!
//! # Rejected
//!
//! Standing by at the first waits: condition variables made for a wait or two (RocksDB makes one for each write) have no history to go by, and all poll in vain:
//! 0.4 to 0.6 times the C library's throughput with 32 threads, and beside foreign busy processes. Spinning on `sequence`: every spinner leaves at every signal. A count of signals that waiters take from: a newcomer steals. Changing `sequence`
//! before counting: a waiter that comes between is counted out, is not asleep yet, and then sleeps on the new sequence
//! uncounted. Polling for so long again after a poll in vain, without `skip`: beside foreign busy processes, where the partner waits for this
//! processor, a fifth of the C library's throughput. Passing on after the mutex is acquired, which would batch more: a broadcast and destroy under the mutex would wait for a waiter that waits for it.
//!
//! # Checked by
//!
//! `conformance`: loom (2 waiters and a signaller), shuttle (up to 6, also over the default mutex) and real threads: each signal finds a waiter, a broadcast
//! all, also at the release (S6); deadlines; waits abandoned and cancelled; no signal goes to a later waiter; words copied by fork. Twins that lose or steal a signal are caught.
//! `crates/preload/tests/c/cond*.c`, with and without the library. No checker sees the orderings: `crates/xtask/explained.toml` says why.

use core::marker::PhantomData;
use platform::{Atomic, AtomicInt, Deadline, Ordering::*, Platform, StaticPlatform, Wait};

use crate::wait::look::is_wanted;
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

    /// Starts a wait (W1, W2). The caller holds the mutex and releases it next. The waiter must be carried to its end.
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
                // A standby that leaves in vain changes `sequence` (W4): waits that only time out would else stay at one multiple.
                let rested = sequence.is_multiple_of(REST.min(P::PAUSES));
                more_sleepers(base & !SKIP | after_wait(skip, rested) * SKIP_ONE)
            };
            let standby = new & STANDBY != base & STANDBY;
            // ORDER: Release, pairs with the Acquire in S2 and S3: our read of the sequence comes before their change of it.
            match self.state.compare_exchange_weak(state, new, Release, Relaxed) {
                Ok(_) => return Waiter { sequence, standby },
                Err(now) => state = now,
            }
        }
    }

    /// What the waiter has to do next. The caller has released the mutex.
    pub fn step(&self, waiter: &mut Waiter, deadline: Option<Deadline>) -> Step {
        if waiter.standby {
            return self.stand_by(waiter, deadline);
        }
        if self.sequence.load(Relaxed) != waiter.sequence { Step::Signalled } else { Step::Sleep(waiter.sequence) }
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
                    if self.state.compare_exchange(state, more_sleepers(alone | SKIP), Release, Relaxed).is_ok() {
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

    /// Ends a wait before its first step: the mutex could not be released. What this waiter may have been given goes to another.
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

    /// The waiter's thread is being cancelled in its sleep. It may have been woken by a signal: lets somebody else have it.
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

    /// Waits to the end; false if the deadline passed. The caller released the mutex after [`Wakeful::enter`].
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

    /// Changes the sequence and wakes one; was anybody asleep?
    fn wake_one(&self) -> bool {
        self.sequence.fetch_add(1, Relaxed);
        P::wake(&self.sequence, 1) != 0
    }

    /// L1.
    fn pass_on(&self) {
        let mut state = self.state.load(Relaxed);
        loop {
            let pending = state & PENDING != 0;
            let new = match (pending, state & IN_FLIGHT != 0) {
                (true, true) => state - PENDING_ONE,
                (true, false) => state - PENDING_ONE + IN_FLIGHT_ONE,
                (false, true) => state - IN_FLIGHT_ONE,
                (false, false) => return,
            };
            // ORDER: Acquire, as in `signal`.
            match self.state.compare_exchange_weak(state, new, Acquire, Relaxed) {
                Ok(_) if !pending || self.wake_one() => return,
                Ok(_) => state = self.state.load(Relaxed),
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
                && (in_flight == IN_FLIGHT || in_flight / IN_FLIGHT_ONE >= P::processors());
            let new = fewer_sleepers(state);
            let new = match (defer, in_flight == IN_FLIGHT) {
                (true, _) => new + PENDING_ONE,
                (false, false) => new + IN_FLIGHT_ONE,
                (false, true) => new,
            };
            // ORDER: Acquire, pairs with the Release in W2: the change of the sequence comes after the waiter has read it.
            if let Err(now) = self.state.compare_exchange_weak(state, new, Acquire, Relaxed) {
                state = now;
                continue;
            }
            if defer {
                // Who has counted itself but does not sleep yet goes on at once, so that no later waiter takes this signal from it.
                self.sequence.fetch_add(1, Relaxed);
            } else if !self.wake_one() {
                // S4.
                if new & SLEEPERS == SLEEPERS {
                    return self.broadcast_slow();
                }
                let right = new & !(SLEEPERS | PENDING);
                let right = if right & IN_FLIGHT != 0 { right - IN_FLIGHT_ONE } else { right };
                if self.state.compare_exchange(new, right, Relaxed, Relaxed).is_err() {
                    self.pass_on();
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

    /// S5. Signals the lone sleeper, but leaves it asleep: the caller owes a wake-up of one on [`Wakeful::word`]. False if it is not alone, or gone.
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

    /// S6. Signals all waiters, but leaves the sleepers asleep: if there are any (true), the caller owes a wake-up of all on [`Wakeful::word`].
    #[inline(never)]
    pub fn take_all(&self) -> bool {
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
        let sleepers = state & (SLEEPERS | PENDING) != 0;
        if sleepers {
            self.sequence.fetch_add(1, Relaxed);
        }
        sleepers
    }

    /// Wakes all waiters.
    #[inline]
    pub fn broadcast(&self) {
        if self.state.load(Relaxed) & (STANDBY | SLEEPERS | PENDING) != 0 {
            self.broadcast_slow();
        }
    }

    #[inline(never)]
    fn broadcast_slow(&self) {
        if self.take_all() {
            P::wake(&self.sequence, u32::MAX);
        }
    }
}
