// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful`: the default semaphore. One waiter stays awake while nobody else could use its processor, the
//! others sleep.
//!
//! Dijkstra's P and V ("Cooperating Sequential Processes", 1965), barging: a token belongs to nobody until
//! it is taken. Nobody can know which thread will add the next token. So the waiting policy is that of our
//! condition variable. A *standby* polls and takes a token without a system call on either side. A sleeper
//! is woken only for a token that the standby will not take.
//!
//! ```text
//!                 standby: polls ------------- takes a token (A1) ---.
//!   no token: <   | in vain (W2)                                      > goes on
//!                 sleepers: counted (W3) ------ woken by R2 ----- A1 -'
//! ```
//!
//! # State
//! `state` is what sleepers sleep on:
//!
//! | bits | field | means |
//! |---|---|---|
//! | 0 | STANDBY | a thread polls this word |
//! | 1 | SLEEPERS | somebody may sleep on this word |
//! | 2-31 | tokens | 0 to 2^30 - 1 |
//!
//! `crowd`, which only waiters write:
//!
//! | bits | field | means |
//! |---|---|---|
//! | 0-15 | sleepers | threads between W3 and L1; 65535 is "many", and stays |
//! | 16-18 | generation | [`Platform::generation`] of the process that wrote the rest |
//! | 19-21 | skip | how long nobody stands by: see [`crate::wait::standby`] |
//! | 22-27 | turns | tokens that standbys took while others slept, since the last rest on that account |
//!
//! # Invariants
//! - I1. `tokens` is the number added less the number taken.
//! - I2. Only a thread that polls sets STANDBY. It leaves by taking a token or, at 0 tokens, by clearing
//!   the flag. The flag may be clear though a thread polls. One that a fork copied is cleared before
//!   anybody here sleeps.
//! - I3. While a thread sleeps, SLEEPERS is set, or a thread between the two steps of L2 sets it again and
//!   wakes whom it should.
//! - I4. While somebody sleeps whom nobody wakes, there are no more tokens than waiters awake: the standby,
//!   and those on their way from their sleep. A token added wakes one, but for the first if a standby takes
//!   it. A token taken is one less, of waiters at most one. Who goes to sleep finds none.
//!
//! # Protocol
//! | step | what happens |
//! |---|---|
//! | A1 | Take: if there are tokens, subtract one. |
//! | W1 | Wait: become the standby, if there is none and `skip` allows it, and poll. |
//! | W2 W3 | In vain, or when the processor is wanted: count oneself into `sleepers`. |
//! | W4 | At 0 tokens set SLEEPERS, clear one's own STANDBY, and sleep while the word stays so. |
//! | L1 | A thread that leaves counts itself out. |
//! | L2 | The last one clears SLEEPERS. If somebody has counted itself meanwhile, it sets it again and |
//! | | wakes as many as there are tokens. |
//! | R1 | Add a token and learn the flags, in one step. |
//! | R2 | If SLEEPERS, and it is not the first token for a standby, wake one. R2 uses the address only: the |
//! | | semaphore may be gone. |
//! | G1 | Give up (deadline, signal, cancellation): a standby does W4 without sleeping; L1; L2. A sleeper |
//! | | looks for a token once more. One cancelled in its sleep may have been woken: it wakes another. |
//!
//! # Memory order
//! R1 release -> A1 acquire publishes what the adding thread did before. Every change of `state` is a
//! read-modify-write, which continues the release sequence. W4 release -> L2 acquire: L2's look at
//! `sleepers` sees who was counted before the flag that it clears was set. W4 against R2 is the futex's.
//!
//! # Under the scheduler
//! - *Adding thread preempted* between R1 and R2: the wake-up is late by that, as with any futex.
//! - *Standby, or woken thread, preempted*: its token waits for it, or for whoever comes by.
//! - *Hint wrong*: the standby polls for its time on a processor that somebody wanted, or sleeps in vain.
//! - *Killed while waiting*: nothing is held. *Fork*: the child's first waiter counts afresh.
//!
//! # Fairness and space
//! 8 bytes. Arrivals and the standby go before sleepers, which are woken in the order in which they fell
//! asleep. After [`TURNS`] tokens to standbys nobody stands by for a while, so no two threads keep the
//! others out. There is no bound, as little as with the C library's.
//!
//! # Rejected
//! `docs/design/semaphore.md`.
//! # Checked by
//! `conformance`: real threads, loom, shuttle; twins that lose a token, or a sleeper, are caught.
//! `crates/preload/tests/c/sem*.c`, with and without the library.

use core::marker::PhantomData;
use platform::{Atomic, AtomicInt, Deadline, Ordering::*, Platform, Wait};

use super::RawSemaphore;
use crate::wait::look::{self, is_wanted};
use crate::wait::publish;
use crate::wait::standby::{MAY_STAND_BY, MOST_SKIPS, Next, REST, Vigil, after_wait};

const STANDBY: u32 = 1;
const SLEEPERS: u32 = 2;
const ONE: u32 = 4;

/// Tokens at most.
pub const MAX: u32 = u32::MAX / ONE;

const COUNT: u32 = 0xffff;
const GENERATION_SHIFT: u32 = 16;
const GENERATION: u32 = 7 << GENERATION_SHIFT;
const SKIP_ONE: u32 = 1 << 19;
const SKIP: u32 = MOST_SKIPS * SKIP_ONE;
const TURN_ONE: u32 = 1 << 22;
/// COST: tokens to standbys in a row: with fewer, the cost of waking a sleeper shows (2 us to 40 us, against
/// 0.3 us a turn). No cell known.
const TURNS: u32 = 63;

/// The default semaphore.
pub struct Wakeful<P: Platform> {
    state: P::AtomicU32,
    crowd: P::AtomicU32,
    platform: PhantomData<P>,
}

/// One wait, from its first [`Wakeful::step`] to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiter {
    standby: bool,
    /// Counted in `sleepers`.
    counted: bool,
    /// Has been woken since it last stood by.
    woken: bool,
}

/// What a waiter has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sleep on [`Wakeful::word`] while it holds this value, then report to [`Wakeful::slept`].
    Sleep(u32),
    /// Has a token.
    Taken,
    /// The deadline passed.
    TimedOut,
    /// A signal was handled while it slept. The wait is over, as POSIX wants it.
    Interrupted,
}

impl<P: Platform> Wakeful<P> {
    /// For a `static`: of a word that holds [`Wakeful::word_of`] its tokens, and one that holds 0.
    pub const fn of_words(word: P::AtomicU32, zero: P::AtomicU32) -> Self {
        Self { state: word, crowd: zero, platform: PhantomData }
    }

    /// See [`Wakeful::of_words`]. `tokens` is at most [`MAX`].
    pub const fn word_of(tokens: u32) -> u32 {
        tokens * ONE
    }
}

impl<P: Platform> RawSemaphore<P> for Wakeful<P> {
    /// `tokens` is at most [`MAX`].
    fn new(tokens: u32) -> Self {
        debug_assert!(tokens <= MAX);
        Self {
            state: P::AtomicU32::new(Self::word_of(tokens)),
            crowd: P::AtomicU32::new(0),
            platform: PhantomData,
        }
    }

    #[inline]
    fn acquire(&self, deadline: Option<Deadline>) -> bool {
        self.try_acquire() || self.acquire_slow(deadline)
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        let mut state = self.state.load(Relaxed);
        while state >= ONE {
            match self.take(state, false) {
                Ok(()) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    #[inline]
    fn release(&self) -> bool {
        let mut state = self.state.load(Relaxed);
        while state / ONE != MAX {
            let standby_takes = state & !SLEEPERS == STANDBY;
            let wake = state & SLEEPERS != 0 && !standby_takes;
            // R1. ORDER: Release, pairs with A1.
            match self.state.compare_exchange_weak(state, state + ONE, Release, Relaxed) {
                Ok(_) => {
                    if wake {
                        // R2.
                        P::wake(&raw const self.state, 1);
                    }
                    return true;
                }
                Err(now) => state = now,
            }
        }
        false
    }

    fn available(&self) -> u32 {
        self.state.load(Relaxed) / ONE
    }
}

impl<P: Platform> Wakeful<P> {
    /// The word to sleep on.
    pub fn word(&self) -> &P::AtomicU32 {
        &self.state
    }

    /// A1; `state` has a token. A standby clears its flag as it takes.
    #[inline]
    fn take(&self, state: u32, standby: bool) -> Result<(), u32> {
        let new = (if standby { state & !STANDBY } else { state }) - ONE;
        // ORDER: Acquire (A1), pairs with R1.
        self.state.compare_exchange_weak(state, new, Acquire, Relaxed).map(|_| ())
    }

    /// Changes `crowd` and returns it as it is then. A crowd of another generation is not here: it is
    /// forgotten, and so is its standby.
    fn change_crowd(&self, change: impl Fn(u32) -> u32) -> u32 {
        let generation = generation::<P>();
        let mut crowd = self.crowd.load(Relaxed);
        loop {
            let ours = crowd & GENERATION == generation;
            if !ours {
                // If the flag is that of a thread which was quicker than us, it is missed, which costs a
                // wake-up in vain (I2).
                self.state.fetch_and(!STANDBY, Relaxed);
            }
            let new = change(if ours { crowd } else { generation });
            // ORDER: AcqRel, pairs with itself: who is counted comes after STANDBY was cleared, and so does
            // its W4.
            match self.crowd.compare_exchange_weak(crowd, new, AcqRel, Relaxed) {
                Ok(_) => return new,
                Err(now) => crowd = now,
            }
        }
    }

    /// W3. `in_vain`: it was the standby. `instead`: it would be if it did not have to skip; now and then
    /// that is one skip less.
    fn count_in(&self, in_vain: bool, instead: bool) {
        let rested =
            instead && (P::now_ns() / P::costs().line).is_multiple_of(u64::from(REST.min(P::PAUSES)));
        self.change_crowd(|crowd| {
            let crowd = if crowd & COUNT == COUNT { crowd } else { crowd + 1 };
            let skip = (crowd & SKIP) / SKIP_ONE;
            let skip = if in_vain { MOST_SKIPS } else { after_wait::<P>(skip, rested) };
            crowd & !SKIP | (skip * SKIP_ONE)
        });
    }

    /// A standby has taken a token while others slept.
    fn count_turn(&self) {
        self.change_crowd(|crowd| match crowd / TURN_ONE {
            TURNS.. => (crowd % TURN_ONE) | SKIP,
            _ => crowd + TURN_ONE,
        });
    }

    /// L1 and L2.
    fn count_out(&self) {
        let crowd =
            self.change_crowd(|crowd| if matches!(crowd & COUNT, 0 | COUNT) { crowd } else { crowd - 1 });
        let last = crowd & COUNT == 0;
        // ORDER: Acquire, pairs with W4: who set the flag that this clears is seen below.
        if last
            && self.state.fetch_and(!SLEEPERS, Acquire) & SLEEPERS != 0
            && self.crowd.load(Relaxed) & COUNT != 0
        {
            let tokens = self.state.fetch_or(SLEEPERS, Relaxed) / ONE;
            if tokens != 0 {
                P::wake(&raw const self.state, tokens);
            }
        }
    }

    fn end(&self, waiter: &mut Waiter, step: Step) -> Step {
        if waiter.counted {
            self.count_out();
        }
        *waiter = Waiter::default();
        step
    }

    /// What the waiter has to do next.
    pub fn step(&self, waiter: &mut Waiter, deadline: Option<Deadline>) -> Step {
        loop {
            let state = self.state.load(Relaxed);
            if state >= ONE {
                if self.take(state, waiter.standby).is_ok() {
                    if waiter.standby && state & SLEEPERS != 0 {
                        self.count_turn();
                    }
                    return self.end(waiter, Step::Taken);
                }
                continue;
            }
            if waiter.standby {
                if let Some(step) = self.poll(waiter, deadline) {
                    return step;
                }
                continue;
            }
            if !waiter.counted || waiter.woken {
                let free = state & STANDBY == 0 && !is_wanted::<P>();
                if free && (self.change_crowd(|crowd| crowd) & SKIP) / SKIP_ONE == MAY_STAND_BY {
                    // W1.
                    waiter.standby =
                        self.state.compare_exchange(state, state | STANDBY, Relaxed, Relaxed).is_ok();
                    waiter.woken &= !waiter.standby;
                    continue;
                }
                if !waiter.counted {
                    self.count_in(false, free);
                    waiter.counted = true;
                }
            }
            // W4. ORDER: Release, pairs with the Acquire in L2; publishes that this thread is counted.
            if self.state.compare_exchange(state, state | SLEEPERS, Release, Relaxed).is_ok() {
                return Step::Sleep(state | SLEEPERS);
            }
        }
    }

    /// The standby's part of W1, W2 and W4: until there are tokens, or it sleeps, or gives up.
    #[inline(never)]
    fn poll(&self, waiter: &mut Waiter, deadline: Option<Deadline>) -> Option<Step> {
        publish::waiting::<P, _>(|| self.poll_awake(waiter, deadline))
    }

    #[inline]
    fn poll_awake(&self, waiter: &mut Waiter, deadline: Option<Deadline>) -> Option<Step> {
        let mut vigil = Vigil::begin::<P>();
        loop {
            let state = self.state.load(Relaxed);
            if state >= ONE {
                return None;
            }
            match vigil.next::<P>(deadline) {
                Next::Stay => vigil.rest::<P>(),
                Next::Late => {
                    if self.state.compare_exchange(state, state & !STANDBY, Relaxed, Relaxed).is_ok() {
                        return Some(self.end(waiter, Step::TimedOut));
                    }
                }
                Next::Leave => {
                    if !waiter.counted {
                        self.count_in(true, false);
                        waiter.counted = true;
                    }
                    // W4. ORDER: Release, as above.
                    let new = state & !STANDBY | SLEEPERS;
                    if self.state.compare_exchange(state, new, Release, Relaxed).is_ok() {
                        waiter.standby = false;
                        return Some(Step::Sleep(new));
                    }
                }
            }
        }
    }

    /// The waiter has slept, with this outcome; what next?
    pub fn slept(&self, waiter: &mut Waiter, outcome: Wait, deadline: Option<Deadline>) -> Step {
        match outcome {
            Wait::Woken => {
                waiter.woken = true;
                self.step(waiter, deadline)
            }
            Wait::Changed => self.step(waiter, deadline),
            // Nobody woke it, so it owes nobody anything.
            Wait::TimedOut | Wait::Interrupted if self.try_acquire() => self.end(waiter, Step::Taken),
            Wait::TimedOut => self.end(waiter, Step::TimedOut),
            Wait::Interrupted => self.end(waiter, Step::Interrupted),
        }
    }

    /// The waiter's thread is being cancelled in its sleep. It may have been woken: lets somebody else have
    /// the token.
    pub fn cancelled(&self, waiter: &mut Waiter) {
        self.end(waiter, Step::Interrupted);
        if self.state.load(Relaxed) >= ONE {
            P::wake(&raw const self.state, 1);
        }
    }

    #[cold]
    #[inline(never)]
    fn acquire_slow(&self, deadline: Option<Deadline>) -> bool {
        look::begin::<P>();
        let mut waiter = Waiter::default();
        let mut step = self.step(&mut waiter, deadline);
        loop {
            step = match step {
                Step::Sleep(expected) => {
                    let outcome = match P::wait(&self.state, expected, deadline) {
                        Wait::Interrupted => Wait::Woken,
                        outcome => outcome,
                    };
                    self.slept(&mut waiter, outcome, deadline)
                }
                Step::Taken => return true,
                Step::TimedOut => return false,
                Step::Interrupted => self.step(&mut waiter, deadline),
            };
        }
    }
}

/// This process's, as it stands in `crowd`.
fn generation<P: Platform>() -> u32 {
    P::generation() << GENERATION_SHIFT
}
