// SPDX-License-Identifier: MIT OR Apache-2.0
//! A word in which one thread waits for the answer of another, which it knows by a hint.
//!
//! `WAITING -> ASLEEP -> answer`, or `WAITING -> answer`. Only the thread that waits writes ASLEEP, and only
//! the other one writes an answer, while it waits. Before and after, the algorithm may use the word
//! otherwise: a thread answers itself in `flat-combining`, and a server marks what it has answered in `rcl`.
//!
//! - W1. The thread looks while the other one runs, nobody else wants the processor, and the limit has not
//!   passed. The limit is what a sleep costs, and [`vain`](super::vain) halves it. Where each thread has a
//!   processor ([`look::has_room`]), the thread then calls `tell`, and looks on for a slice. Each look may
//!   take a line from who runs sections, so the gaps begin at [`beside_combiner`], or [`beside_server`].
//! - W2. It marks itself ASLEEP and sleeps.
//! - G1. The other thread swaps the answer in, and wakes the sleeper. From then on the word may be gone, so
//!   G1 uses its address only.
//!
//! G1 release -> W1 acquire publishes what the other thread did before.

use platform::{Atomic, Deadline, Ordering::*, Platform, ThreadId};

use super::Preemptable;
use super::look::{self, is_wanted, while_it_runs};
use super::vain;

const WAITING: u32 = 0;
const ASLEEP: u32 = 1;
/// The least answer; its meaning is the algorithm's.
pub const DONE: u32 = 2;

/// See the head of this file.
#[repr(transparent)]
pub struct Answer<P: Platform>(P::AtomicU32);

impl<P: Platform> Answer<P> {
    /// A word for a new wait.
    pub fn waiting() -> Self {
        Self::given(WAITING)
    }

    /// A word that holds this answer already.
    pub fn given(answer: u32) -> Self {
        Self(P::AtomicU32::new(answer))
    }

    /// The word itself, for algorithms that do more with it.
    pub fn word(&self) -> &P::AtomicU32 {
        &self.0
    }

    /// Begins a new wait. Whoever is to see the word has not been told of it.
    pub fn begin(&self) {
        self.0.store(WAITING, Relaxed);
    }

    /// Begins a new wait and publishes what the caller did before. Returns the last answer.
    pub fn ask(&self) -> u32 {
        // ORDER: Release, pairs with the Acquire in `is_asked`.
        self.0.swap(WAITING, Release)
    }

    /// Does a thread wait for an answer? If so, what it published can be read.
    pub fn is_asked(&self) -> bool {
        // ORDER: Acquire, pairs with the Release in `ask`.
        self.0.load(Acquire) < DONE
    }

    /// The answer, if it has been given.
    pub fn get(&self) -> Option<u32> {
        // W1. ORDER: Acquire, pairs with G1.
        let word = self.0.load(Acquire);
        (word >= DONE).then_some(word)
    }

    /// W2. The thread is about to sleep. False if there is an answer.
    pub fn fall_asleep(&self) -> bool {
        matches!(self.0.compare_exchange(WAITING, ASLEEP, Relaxed, Relaxed), Ok(_) | Err(ASLEEP))
    }

    /// W2. Sleeps until there may be an answer.
    pub fn sleep(&self) {
        P::wait(&self.0, ASLEEP, None);
    }

    /// Waits for the answer. `runner`: who gives it, as far as anybody knows. `vain` remembers how often of
    /// late W1 was in vain.
    #[inline]
    pub fn wait(&self, vain: &P::AtomicU32, runner: impl Fn() -> ThreadId) -> u32 {
        match self.get() {
            Some(answer) => answer,
            None => self.wait_long(vain, beside_combiner::<P>(), runner, || (), None).unwrap_or(DONE),
        }
    }

    /// The same beside a server; calls `tell` before each sleep, and before it looks for longer than a sleep
    /// costs.
    #[inline]
    pub fn wait_telling(&self, vain: &P::AtomicU32, runner: impl Fn() -> ThreadId, tell: impl Fn()) -> u32 {
        match self.get() {
            Some(answer) => answer,
            None => self.wait_long(vain, beside_server::<P>(), runner, tell, None).unwrap_or(DONE),
        }
    }

    /// The same, until the deadline: then `None`, if there is no answer.
    pub fn wait_until(
        &self,
        vain: &P::AtomicU32,
        runner: impl Fn() -> ThreadId,
        tell: impl Fn(),
        deadline: Deadline,
    ) -> Option<u32> {
        self.wait_long(vain, beside_server::<P>(), runner, tell, Some(deadline))
    }

    #[cold]
    #[inline(never)]
    fn wait_long(
        &self,
        vain: &P::AtomicU32,
        gap: u64,
        runner: impl Fn() -> ThreadId,
        tell: impl Fn(),
        deadline: Option<Deadline>,
    ) -> Option<u32> {
        look::begin::<P>();
        let late = || deadline.is_some_and(P::past);
        loop {
            let over = || self.get().is_some() || late();
            watch_telling::<P>(vain, gap, || if over() { None } else { Some(runner()) }, &tell);
            match self.get() {
                Some(answer) => return Some(answer),
                None if late() => return None,
                None if self.fall_asleep() => {
                    tell();
                    P::wait(&self.0, ASLEEP, deadline);
                }
                None => {}
            }
        }
    }

    /// G1.
    ///
    /// # Safety
    /// The word is there until the answer is.
    pub unsafe fn give(this: *const Self, answer: u32) {
        // SAFETY: as promised; the reference is not used after the swap.
        let word = unsafe { &raw const (*this).0 };
        // SAFETY: as above. ORDER: Release (G1), pairs with W1.
        if unsafe { (*word).swap(answer, Release) } == ASLEEP {
            P::wake(word, 1);
        }
    }
}

/// W1. The first gap beside a combiner, which has sections of its own to run. Twice as long it is slower
/// where threads do something outside, and half as long where they do not.
fn beside_combiner<P: Platform>() -> u64 {
    P::costs().line
}

/// W1. The first gap beside a server, which does nothing but answer.
pub fn beside_server<P: Platform>() -> u64 {
    P::costs().line / 4
}

/// W1. Looks until there is nothing to wait for; false if there is better to do. Each look returns the thread
/// that is waited for, or `None` if the wait is over.
pub fn watch<P: Platform>(vain: &P::AtomicU32, look: impl FnMut() -> Option<ThreadId>) -> bool {
    watch_telling::<P>(vain, beside_combiner::<P>(), look, || ())
}

/// The same; calls `tell` before it looks for longer than a sleep costs.
fn watch_telling<P: Platform>(
    vain: &P::AtomicU32,
    gap: u64,
    mut look: impl FnMut() -> Option<ThreadId>,
    tell: impl Fn(),
) -> bool {
    let times = vain.load(Relaxed);
    let mut seen = watch_for::<P>(vain::limit(times, P::costs().sleep), gap, &mut look);
    // Where each thread has a processor, sleep gains nothing, and costs whoever answers a wake-up.
    if !seen && look::has_room::<Preemptable, P>(P::now_ns()) {
        tell();
        seen = watch_for::<P>(P::costs().slice, gap, look);
    }
    let learned = vain::learned(times, !seen);
    if learned != times {
        vain.store(learned, Relaxed);
    }
    seen
}

/// The same, for so many ns at most, with gaps from `gap` to four times that.
pub fn watch_for<P: Platform>(limit: u64, gap: u64, look: impl FnMut() -> Option<ThreadId>) -> bool {
    // HINT: wrong either way, it looks in vain for a while, or sleeps and is woken.
    !is_wanted::<P>() && while_it_runs::<P>(limit, gap, 4 * gap, look)
}
