// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful`: initialisation that happens once, and whose waiters know whether the initialising thread
//! runs.
//!
//! One word like the C library's `pthread_once_t` and std's `Once`, whose waiters sleep at once. Ours look
//! at the thread that initialises: while it runs, and nobody else could use the processor, a short
//! initialisation is awaited by polling.
//!
//! ```text
//!   first:  NEW ── A1 ──> RUNNING ── initialises ── R1 ──> DONE ── R2 wakes all, if SLEEPERS
//!   others:                  │                               ^
//!                            ├── W1 poll while it runs ──────┤ A0
//!                            └── W2 SLEEPERS, sleep ─────────'
//! ```
//!
//! # State
//!
//! | bits | field      | means                                                                     |
//! |------|------------|---------------------------------------------------------------------------|
//! | 0-1  | phase      | 0 NEW; 1 RUNNING; 2 DONE (the C library's value); 3 POISONED              |
//! | 2    | SLEEPERS   | RUNNING, and somebody may sleep on the word                               |
//! | 3-5  | generation | RUNNING: [`Platform::generation`] of the process that initialises         |
//! | 8-19 | runner     | RUNNING: the initialising thread's id, 0 if it has none. HINT              |
//!
//! `NEW -> RUNNING` (A1), `RUNNING -> DONE` or `NEW` or `POISONED` (R1), `POISONED -> RUNNING` (A1, if
//! asked to), RUNNING of another generation `-> RUNNING` (A2). DONE is final.
//!
//! # Invariants
//!
//! I1. In one process at most one thread is between A1 or A2 and R1, and none after DONE. (In the child of
//! a thread that forked in the middle of its own initialisation whoever else comes begins it anew beside
//! that thread, and the later R1 stands; as with the C library.) I2. While a thread sleeps, SLEEPERS is
//! set, or R1 has been done and R2 is due.
//!
//! # Protocol
//!
//! | step | what happens |
//! |---|---|
//! | A0 | DONE: go on. |
//! | A1 | NEW: become the runner. |
//! | A2 | RUNNING, but in a process that this one is a copy of: the runner is not here; become it. |
//! | W1 | RUNNING: unless somebody wants the processor, poll while the runner runs, for as long as a sleep |
//! | | costs at most ([`platform::Costs::sleep`]). |
//! | W2 | Set SLEEPERS, sleep while the word stays so; A0. |
//! | R1 R2 | Swap in the outcome. If SLEEPERS was set, wake all; only the address is used. |
//!
//! # Memory order
//!
//! R1 release -> A0, A1 acquire publishes what the initialisation, done or undone, wrote.
//!
//! # Under the scheduler
//!
//! Runner preempted or blocked: waiters sleep. Runner not known: waiters poll as if it ran. Hint stale:
//! that much polling, or a sleep and a wake-up, too many. Killed while initialising: the process is gone.
//! Fork while another thread initialises: the child starts it again (A2), as with the C library; a thread
//! that forks in the middle of its own initialisation ends it in both. The initialisation asks for itself:
//! it waits for ever, as with the C library.
//!
//! # Fairness and space
//!
//! One thread works, all others wait for it. If it fails, whoever comes first tries next. 4 bytes.
//!
//! # Rejected
//!
//! `docs/design/once.md`.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; twins that begin twice or wake one of several sleepers are
//! caught; words copied by fork. `crates/preload/tests/c/once*`.

use core::marker::PhantomData;
use platform::{Atomic, Ordering::*, Platform, StaticPlatform, ThreadId};

use super::{Begin, End, RawOnce};
use crate::wait::look;

const PHASE: u32 = 3;
const NEW: u32 = 0;
const RUNNING: u32 = 1;
const DONE: u32 = 2;
const POISONED: u32 = 3;
const SLEEPERS: u32 = 4;
const GENERATION_SHIFT: u32 = 3;
const GENERATION: u32 = 7 << GENERATION_SHIFT;
const RUNNER_SHIFT: u32 = 8;

/// The default one.
#[repr(transparent)]
pub struct Wakeful<P: Platform> {
    word: P::AtomicU32,
    platform: PhantomData<P>,
}

impl<P: StaticPlatform> Wakeful<P> {
    /// Nothing has been done yet, for a `static`.
    pub const INIT: Self = Self { word: P::ZERO_U32, platform: PhantomData };
}

impl<P: Platform> RawOnce<P> for Wakeful<P> {
    fn new() -> Self {
        Self { word: P::AtomicU32::new(NEW), platform: PhantomData }
    }

    #[inline(always)]
    fn is_done(&self) -> bool {
        // A0. ORDER: Acquire, pairs with R1.
        self.word.load(Acquire) == DONE
    }

    #[cold]
    fn begin(&self, again: bool) -> Begin {
        let generation = P::generation() << GENERATION_SHIFT;
        loop {
            // A0. ORDER: Acquire, pairs with R1.
            let word = self.word.load(Acquire);
            let phase = word & PHASE;
            match phase {
                DONE => return Begin::Done,
                POISONED if !again => return Begin::Poisoned,
                RUNNING if word & GENERATION == generation => {
                    self.wait(word);
                    continue;
                }
                _ => {}
            }
            let new = P::current().0 << RUNNER_SHIFT | generation | RUNNING;
            // A1, A2. ORDER: Acquire, pairs with R1 of an attempt that failed.
            if self.word.compare_exchange(word, new, Acquire, Relaxed).is_ok() {
                return Begin::Run { poisoned: phase == POISONED };
            }
        }
    }

    fn end(&self, how: End) {
        let phase = match how {
            End::Done => DONE,
            End::Undone => NEW,
            End::Poisoned => POISONED,
        };
        // R1. ORDER: Release, pairs with A0 and A1.
        if self.word.swap(phase, Release) & SLEEPERS != 0 {
            // R2.
            P::wake(&raw const self.word, u32::MAX);
        }
    }
}

impl<P: Platform> Wakeful<P> {
    /// W1 and W2: until the word has changed, or has been slept on.
    fn wait(&self, word: u32) {
        let runner = ThreadId(word >> RUNNER_SHIFT);
        let costs = P::costs();
        let mut ended = || (self.word.load(Relaxed) & !SLEEPERS == word & !SLEEPERS).then_some(runner);
        // HINT: wrong, it polls for nothing or does not.
        if !look::is_wanted::<P>()
            && look::while_it_runs::<P>(costs.sleep, costs.line, costs.line, &mut ended)
        {
            return;
        }
        let sleeping = word | SLEEPERS;
        // SLEEPERS may have been set meanwhile, by another.
        match self.word.compare_exchange(word, sleeping, Relaxed, Relaxed) {
            Err(now) if now != sleeping => {}
            _ => drop(P::wait(&self.word, sleeping, None)),
        }
    }
}
