// SPDX-License-Identifier: MIT OR Apache-2.0
//! Teams: a thread that has a loop to run, and helpers that take parts of it (the microthreads of Uemura
//! and Kan).
//!
//! A [`Job`] has as many parts as the team has members, and each part is run exactly once. How a loop is
//! cut into parts is its [`Schedule`]'s business: a part is a block of its own, or the right to take chunks
//! until none are left.

mod wakeful;

pub use wakeful::{Place, Wakeful};

use core::marker::PhantomData;
use core::ops::Range;
use platform::{Atomic, AtomicInt, Ordering::*, Platform};

/// What a team runs: the first field of a larger struct, which `run` knows.
#[repr(C)]
pub struct Job {
    /// Runs a part; false if it failed, which the caller of [`RawTeam::run`] is told. Must not unwind.
    pub run: unsafe fn(*const Job, part: u32) -> bool,
}

/// Which helpers these are (Uemura and Kan, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// They run on processors that are the program's own, as many as these.
    Bound,
    /// They run where everybody runs.
    Free,
}

/// A team, without the memory for its places and without the threads.
pub trait RawTeam<P: Platform>: Send + Sync {
    /// Where one helper and the caller meet.
    type Place: Default + Send + Sync;

    /// A team that runs nothing.
    fn new() -> Self;

    /// Runs part 0 of the job, and part n + 1 or who serves at `places[n]` does. Returns when all parts
    /// have been run, or one has failed and none runs any more; false then. What the caller wrote before is
    /// seen by all parts, and what they wrote by the caller.
    ///
    /// # Safety
    /// One caller at a time. `job` is one that its `run` accepts, from any thread. The places stay where
    /// they are for as long as anybody serves there; nobody need serve at one.
    unsafe fn run(&self, places: &[Self::Place], job: *const Job) -> bool;

    /// Serves as a helper until dismissed. `part` is the number of the place and 1 more. `spare(true)` is
    /// called before a bound one sleeps because nothing came for long, and `spare(false)` when it has been
    /// woken.
    ///
    /// # Safety
    /// One thread a place.
    unsafe fn serve(&self, place: &Self::Place, part: u32, kind: Kind, spare: impl Fn(bool));

    /// Sends the helper home that serves at this place, or will. For good, and while no job runs.
    fn dismiss(&self, place: &Self::Place);
}

/// How a loop is shared out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// A block for each member, of equal size, the same for each loop over the same range: data stay in
    /// their caches.
    #[default]
    Static,
    /// Whoever has nothing to do takes the next so many iterations. For iterations of unequal length, or
    /// where a processor may be lost in the middle.
    Dynamic {
        /// Iterations; 0 counts as 1.
        chunk: usize,
    },
    /// The same, with chunks that begin large, half of a fair share of what is left, and become smaller.
    Guided {
        /// The least number of iterations; 0 counts as 1.
        least: usize,
    },
}

/// What of a loop has been taken.
pub struct Chunks<P: Platform> {
    /// In units; [`CANCELLED`] or more: none is left.
    next: P::AtomicU32,
    platform: PhantomData<P>,
}

/// Units into which a loop is cut at most, so that [`Chunks::next`] does not overflow when each member
/// takes one too many.
const MOST_UNITS: usize = 1 << 30;
const CANCELLED: u32 = 1 << 31;

impl<P: Platform> Default for Chunks<P> {
    fn default() -> Self {
        Self { next: Atomic::new(0), platform: PhantomData }
    }
}

impl<P: Platform> Chunks<P> {
    /// Calls `each` with all ranges of iterations of a loop of `length` that this part comes to, of so many
    /// parts.
    #[inline]
    pub fn share(
        &self,
        schedule: Schedule,
        part: u32,
        parts: u32,
        length: usize,
        mut each: impl FnMut(Range<usize>),
    ) {
        let (part, parts) = (part as usize, parts as usize);
        match schedule {
            Schedule::Static => {
                let (block, rest) = (length / parts, length % parts);
                let begin = block * part + part.min(rest);
                let end = begin + block + (part < rest) as usize;
                if begin < end {
                    each(begin..end);
                }
            }
            Schedule::Dynamic { chunk } => {
                let unit = chunk.max(length.div_ceil(MOST_UNITS)).max(1);
                loop {
                    // Orders nothing: what the iterations read and write goes by the fork and the join.
                    let begin = (self.next.fetch_add(1, Relaxed) as usize).saturating_mul(unit);
                    if begin >= length {
                        return;
                    }
                    each(begin..length.min(begin.saturating_add(unit)));
                }
            }
            Schedule::Guided { least } => {
                let unit = length.div_ceil(MOST_UNITS).max(1);
                let (units, least) = (length.div_ceil(unit), least.div_ceil(unit).max(1));
                let mut next = self.next.load(Relaxed);
                while (next as usize) < units {
                    let left = units - next as usize;
                    let count = (left / (2 * parts)).max(least).min(left);
                    match self.next.compare_exchange_weak(next, next + count as u32, Relaxed, Relaxed) {
                        Ok(_) => {
                            let begin = next as usize * unit;
                            each(begin..length.min(begin.saturating_add(count * unit)));
                            next = self.next.load(Relaxed);
                        }
                        Err(now) => next = now,
                    }
                }
            }
        }
    }

    /// Nobody takes any more.
    pub fn cancel(&self) {
        self.next.store(CANCELLED, Relaxed);
    }
}
