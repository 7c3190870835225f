// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every algorithm must do, whichever machine it runs on.
//!
//! [`bodies`] holds the tests, generic over algorithm and machine. The machines: [`threads`] (this
//! computer, with more threads than processors), [`mod@loom`] (all interleavings and all weak-memory
//! outcomes of a small program, up to a bound on preemptions) and [`mod@shuttle`] (many random schedules of
//! a larger one, sequentially consistent). [`twist`] makes a machine whose hints lie, whose orderings are
//! weaker than written or whose wake-ups get lost. [`twins`] are locks with one mistake each, which the
//! checkers must find.
//!
//! What they cannot see: loom does not explore load buffering, treats `SeqCst` accesses as `AcqRel` and, in
//! our futex, orders whoever wakes before whoever is woken, which a kernel merely happens to do; shuttle
//! knows no weak memory, and cannot run another thread while one unwinds. Both model time as a clock of
//! one's own that jumps at each look, and a sleep with a deadline as one that ends after others had a turn.

pub mod barrier_bodies;
pub mod barrier_twins;
pub mod bodies;
pub mod condvar;
pub mod delegate;
pub mod delegate_twins;
mod distinct;
pub mod fiber;
pub mod ke1;
pub mod loom;
mod model;
pub mod once;
pub mod openmp;
pub mod rwlock;
pub mod rwlock_twins;
pub mod semaphore;
pub mod shuttle;
pub mod team;
pub mod threads;
pub mod twins;
pub mod twist;

pub use distinct::distinct;
use platform::{Platform, RunState};

/// A machine that tests can run on.
pub trait Machine: Platform {
    /// A started thread.
    type Handle;
    /// A number that is not atomic.
    type Cell: Cell;

    /// Starts a thread.
    fn spawn(body: impl FnOnce() + Send + 'static) -> Self::Handle;
    /// Waits for its end; panics if it did.
    fn join(handle: Self::Handle);
}

/// A number that two threads may not use at once; the machine sees if they do, as well as it can.
pub trait Cell: Send + Sync + 'static {
    /// 0.
    fn new() -> Self;
    /// Adds one, in two steps.
    fn bump(&self);
    /// The number.
    fn get(&self) -> u32;
}

/// What a model tells about threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hints {
    /// Always this; a thread of higher priority is preempted if this is [`RunState::Preempted`].
    Always(RunState),
    /// Now this, now that.
    Mixed,
}

/// All there are.
pub const HINTS: [Hints; 5] = [
    Hints::Always(RunState::Running),
    Hints::Always(RunState::Preempted),
    Hints::Always(RunState::Blocked),
    Hints::Always(RunState::Unknown),
    Hints::Mixed,
];

/// How a model behaves.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What it tells about threads.
    pub hints: Hints,
    /// By how many ns a thread's clock jumps at each look.
    pub clock_step_ns: u64,
    /// See [`Platform::generation`].
    pub generation: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { hints: Hints::Always(RunState::Unknown), clock_step_ns: 1_000_000, generation: 0 }
    }
}

/// True if the environment asks for the long exploration (`WAKEFUL_LONG=1`).
pub fn long() -> bool {
    std::env::var_os("WAKEFUL_LONG").is_some_and(|value| value == "1")
}

/// Every hint, at each of these numbers of ns a look at the clock.
pub fn hinted(steps: &[u64]) -> Vec<Settings> {
    let settings =
        |hints| steps.iter().map(move |&step| Settings { hints, clock_step_ns: step, ..Settings::default() });
    HINTS.into_iter().flat_map(settings).collect()
}

/// How many times as many executions as usual a checker explores: [`LONGER`] in the long exploration, else 1.
pub fn further() -> usize {
    if long() { LONGER } else { 1 }
}

/// BOUND: all that `WAKEFUL_LONG=1` makes longer then takes about as long as a meal (2 processors).
const LONGER: usize = 20;
