// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful`: the default mutex, one word that knows who is awake.
//!
//! A lock that wakes a sleeper at each release pays two context switches a section. One that lets everybody
//! spin starves its holder of a processor. This one does neither. A few running threads contend for it, one
//! *standby* watches, and all others sleep in a *line*. While the holder runs and comes back at once, the
//! lock stays with it: to move the lock and its data costs more than the section. The standby takes the
//! lock over by the clock. When the holder does not run, nobody spins. Beside others' load it is a futex.
//! ```text
//!              barges, if it comes at the right moment (A2)
//!   arrival -------------------------------------------------> holder <---- takes it (A3) ---- standby
//!      | looks in vain (W1)                                       | demands by HANDOFF (W6)       ^
//!      '---------> newest -> ... -> oldest (each sleeps on its STATE) --- promoted (Q3) ----------'
//! ```
//!
//! Choose `native` where no timer may wake an idle processor. Its parts: [`waiter`] (W, G), [`line`] (Q, P),
//! [`queue`] (processors for all, W8), [`futex`] (other programs, F), [`share`] (W3's memory, W4), [`limits`]
//! (all times), [`published`] (where a scheduler listens).
//! # State
//! | bits | name | meaning |
//! |---|---|---|
//! | 0 | LOCKED | a thread holds the lock |
//! | 1 | STANDBY | a thread has the standby role, or it is on its way to one (I3) |
//! | 2 | RELAY | a thread stepped aside, set this, and will promote the next standby |
//! | 3 | HANDOFF | the standby demands the lock: others should leave it |
//! | 4-6 | GENERATION | [`Platform::generation`] of the process that set STANDBY |
//! | 7-18 | OWNER | the holder's thread id, 0 if it has none. HINT |
//! | 19-30 | NEWEST | thread id of the last in line, 0 if the line is empty |
//! | 31 | KICK | the standby sleeps on this word, or others by F1; a release wakes one |
//!
//! The fast path is a compare-and-swap to lock and an `and` to unlock: `f -> f|L -> f`, where `L` is LOCKED
//! and OWNER. `f` is a guess at the free word: the value that the thread last found free (A2), of any lock;
//! at first 0. The thread's *stamp* ([`Platform::stamp`]) keeps `f`, without HANDOFF and KICK, and its id. If
//! the guess is wrong, A2 follows. So a lock with sleepers costs no more. A stamp with HANDOFF equals no
//! word that occurs: it marks a thread that publishes ([`published`]).
//!
//! The release does not look at the word before, and may not after: the lock may be gone. So it takes one
//! move of the line. KICK is the highest bit, which the processor tells of an `and`.
//! # Invariants
//! - I1. LOCKED is set exactly while one thread is between A1, A2 or A3 and R1.
//! - I2. NEWEST is not 0 only while STANDBY is set.
//! - I3. While STANDBY is set, exactly one thread has the *role*. It is the standby, or the one that A3 or G2
//!   leaves the role to: until its Q3 the relay if RELAY was set, else the thread of that step; then the
//!   thread whose STATE is PROMOTED, unless P1 ends the role. Only the role takes threads out of the line.
//! - I4. Only the standby sets HANDOFF. RELAY is set only beside it, by an awake thread that remembers it.
//! - I5. Who sets KICK is about to sleep on the held word, or has slept there (F2). If a free word has KICK,
//!   R2 is about to wake one, or has; or it was, in the process that forked this one.
//! - I6. The role is awake, naps for a bounded time, sleeps on the word with KICK set, or R2 woke it or F3's.
//! # Protocol
//! | step | by | what |
//! |---|---|---|
//! | A1 | anybody | compare-and-swap the stamp's free value to held |
//! | A2 | anybody | the same with any free value; if that has HANDOFF, by `try_lock` or as W7 says |
//! | | | without HANDOFF, it clears KICK |
//! | A3 | standby | free to held; clears KICK, HANDOFF, RELAY; then Q3, unless RELAY was set (Q4) |
//! | | | if nobody is in line, it clears all but LOCKED and OWNER, and that is all |
//! | R1 | holder | clears LOCKED and OWNER, whatever the word is |
//! | R2 | holder | wakes one who sleeps on the word, if KICK was set |
//! | R3 | anybody | about to wait elsewhere: ends the standby's nap at a free lock ([`RawMutex::leaving`]) |
//! | N1 | all, in `-np` | asks not to be preempted ([`wait::shield`]), from before A1, A2 or A3 until R1 |
//! # Memory order
//! R1 release -> A1, A2, A3 acquire publishes the protected data. All other changes of the word are
//! read-modify-writes, which continue the release sequence. The line's orderings stand in [`line`].
//! # Under the scheduler
//! - *Holder preempted or blocked*: arrivals queue at once, the standby sleeps, and processors are free.
//! - *Standby preempted*: the lock is left to it for a grace, and then others take it (W7).
//! - *More threads than processors*: all but a few sleep in line, and the line advances once a turn.
//! - *Hint stale*: costs a spin, a sleep or one's place in line; touches neither I1 to I6 nor W6.
//! - *Killed while holding*: lost, as any lock that is not robust. *Fork*: the first waiter of a child finds
//!   another GENERATION, clears all but LOCKED and OWNER, and takes the role. What another thread of the
//!   parent held stays held in the child, as with the C library's.
//! - *Signal handler*: if its thread is in a line, it waits in a room (W2); for that same lock, for ever.
//! # Fairness and space
//! 4 bytes. The line is served oldest first, one a *turn*: [`limits::turn`], twice that if the holder does
//! not run, and what the kernel adds. So a thread in line waits for one turn for each thread before it, the
//! standby among them, if each standby runs, at one of its demands, before the others' grace is over, and
//! nobody uses `try_lock`. P2 passes a waiter once at most, P1 if it is next and preempted. F1 has no bound.
//! # Rejected: see `docs/design/mutex.md`, which has the sources and the measurements, too
//! # Checked by
//! `conformance`: real threads, loom, shuttle, with all hints, deadlines, rooms and forks. It catches twins
//! without acquire, without release, with lost wake-ups, and that promote or pass without telling.

mod futex;
mod limits;
mod line;
mod published;
mod queue;
mod share;
mod waiter;

pub use published::publishes_from_now;

use core::marker::PhantomData;
use platform::{
    Atomic, AtomicInt, Deadline, Ordering::*, Platform, STAMP_ID, STAMP_SHIFT, StaticPlatform, ThreadId,
};

use super::{RawMutex, RawMutexTimed};
use crate::wait::{self, Preemptable, Preemption, publish};

const LOCKED: u32 = 1;
const STANDBY: u32 = 1 << 1;
const RELAY: u32 = 1 << 2;
const HANDOFF: u32 = 1 << 3;
const GENERATION_SHIFT: u32 = 4;
const GENERATION: u32 = 7 << GENERATION_SHIFT;
const OWNER: u32 = STAMP_ID;
const NEWEST_SHIFT: u32 = 19;
const NEWEST: u32 = 0xfff << NEWEST_SHIFT;
const KICK: u32 = 1 << 31;

/// The default mutex: see the head of this file. With `N` its holder wishes not to be preempted.
#[repr(transparent)]
pub struct Wakeful<P: Platform, N = Preemptable> {
    word: P::AtomicU32,
    platform: PhantomData<(P, N)>,
}

#[inline(always)]
fn owner(word: u32) -> ThreadId {
    ThreadId((word & OWNER) >> STAMP_SHIFT)
}

#[inline(always)]
fn newest(word: u32) -> ThreadId {
    ThreadId((word & NEWEST) >> NEWEST_SHIFT)
}

impl<P: StaticPlatform, N> Wakeful<P, N> {
    /// A free lock, for a `static`.
    pub const INIT: Self = Self { word: P::ZERO_U32, platform: PhantomData };
}

impl<P: Platform, N: Preemption> Wakeful<P, N> {
    /// Can it be that the calling thread holds the lock? False: it does not, or took it under another id
    /// (before a fork, or before it unregistered). True: it does, or a thread without an id does.
    pub fn may_be_mine(&self) -> bool {
        let word = self.word.load(Relaxed);
        word & LOCKED != 0 && (owner(word) == ThreadId::NONE || owner(word) == P::current())
    }

    /// Acquires the lock if it is free and no standby demands it (A1, A2).
    #[inline]
    pub fn lock_at_once(&self) -> bool {
        let me = wait::shield::<N, P>();
        // A1. ORDER: Acquire, pairs with R1.
        let stamp = P::stamp();
        let locked = match self.word.compare_exchange(stamp & !OWNER, stamp | LOCKED, Acquire, Relaxed) {
            Ok(_) => true,
            Err(word) => self.take_at_once(word),
        };
        if locked {
            wait::inside::<N, P>(me);
        } else {
            wait::unshield::<N, P>(me);
        }
        locked
    }

    /// A2: the word afterwards. Whoever is woken by the last release sets KICK again. But a standby that
    /// demanded finds it still, and so do those who leave it the lock: it is on its way (W7).
    fn taken(word: u32) -> u32 {
        let over = if word & HANDOFF == 0 { KICK } else { 0 };
        word & !over | LOCKED | P::stamp() & OWNER
    }

    /// A2, of an arrival that has not met anybody.
    fn take_free(&self, word: u32) -> bool {
        // ORDER: Acquire, pairs with R1.
        let free = word & (LOCKED | HANDOFF) == 0
            && self.word.compare_exchange(word, Self::taken(word), Acquire, Relaxed).is_ok();
        if free && !published::publishes::<P>() {
            P::set_stamp(word & !KICK);
        }
        free
    }

    /// HINT: who holds the lock, [`ThreadId::NONE`] for a thread without an id; `None` if it is free.
    pub fn holder(&self) -> Option<ThreadId> {
        let word = self.word.load(Relaxed);
        (word & LOCKED != 0).then(|| owner(word))
    }
}

impl<P: Platform, N: Preemption> RawMutex<P> for Wakeful<P, N> {
    type Node = ();

    fn new() -> Self {
        Self { word: P::AtomicU32::new(0), platform: PhantomData }
    }

    #[inline]
    unsafe fn lock(&self, _: &()) {
        let me = wait::shield::<N, P>();
        // A1. ORDER: Acquire, pairs with R1.
        let stamp = P::stamp();
        if let Err(word) = self.word.compare_exchange(stamp & !OWNER, stamp | LOCKED, Acquire, Relaxed) {
            self.lock_slow(word, None);
            return wait::inside_after_wait::<N, P>();
        }
        wait::inside::<N, P>(me);
    }

    #[inline]
    unsafe fn try_lock(&self, _: &()) -> bool {
        let me = wait::shield::<N, P>();
        // A2, at first as A1. ORDER: Acquire, pairs with R1.
        let stamp = P::stamp();
        let word = self.word.load(Relaxed);
        if word == stamp & !OWNER
            && self.word.compare_exchange(stamp & !OWNER, stamp | LOCKED, Acquire, Relaxed).is_ok()
        {
            wait::inside::<N, P>(me);
            return true;
        }
        self.try_slow(word, me)
    }

    fn leaving(&self) {
        if self.word.load(Relaxed) & (STANDBY | LOCKED) == STANDBY {
            P::rouse(&self.word);
        }
    }

    #[inline]
    unsafe fn unlock(&self, _: &()) {
        let publishes = N::PUBLISHES && published::publishes::<P>();
        // R1. ORDER: Release, pairs with A1, A2 and A3.
        if self.word.retain(!(LOCKED | OWNER), Release) {
            return self.unlock_slow(true, publishes);
        }
        if publishes {
            return self.unlock_slow(false, true);
        }
        wait::outside::<N, P>();
    }
}

impl<P: Platform, N: Preemption> RawMutexTimed<P> for Wakeful<P, N> {
    #[inline]
    unsafe fn lock_until(&self, _: &(), deadline: Deadline) -> bool {
        wait::shield::<N, P>();
        // A1. ORDER: Acquire, pairs with R1.
        let stamp = P::stamp();
        let locked = match self.word.compare_exchange(stamp & !OWNER, stamp | LOCKED, Acquire, Relaxed) {
            Ok(_) => true,
            Err(word) => self.lock_slow(word, Some(deadline)),
        };
        if locked {
            wait::inside_after_wait::<N, P>();
        }
        locked
    }
}

impl<P: Platform, N: Preemption> Wakeful<P, N> {
    #[cold]
    #[inline(never)]
    fn lock_slow(&self, word: u32, deadline: Option<Deadline>) -> bool {
        if N::PUBLISHES && (published::publishes::<P>() || P::hands_off()) {
            return self.lock_publishing(word, deadline);
        }
        self.take_free(word) || self.lock_contended(word, deadline)
    }

    #[inline(never)]
    fn try_slow(&self, mut word: u32, me: ThreadId) -> bool {
        let publishes = N::PUBLISHES && word & LOCKED == 0 && published::publishes::<P>();
        if publishes {
            publish::claim::<P>();
        }
        let mut locked = false;
        // A2, HANDOFF or not: somebody who tries will not wait. ORDER: Acquire, pairs with R1.
        while word & LOCKED == 0 && !locked {
            match self.word.compare_exchange_weak(word, Self::taken(word), Acquire, Relaxed) {
                Ok(_) => locked = true,
                Err(now) => word = now,
            }
        }
        if publishes {
            return self.published(locked);
        }
        if locked {
            wait::inside::<N, P>(me);
        } else {
            wait::unshield::<N, P>(me);
        }
        locked
    }

    #[cold]
    #[inline(never)]
    fn unlock_slow(&self, kick: bool, publishes: bool) {
        let me = if publishes { published::left::<P>() } else { wait::withdraw::<N, P>() };
        if N::PUBLISHES && !publishes {
            publish::let_go::<P>(P::current());
        }
        if kick {
            // R2. The word may be gone by now; only its address is used.
            P::wake(&self.word, 1);
        }
        if publishes {
            publish::repay::<P>(me);
        } else {
            wait::repay::<N, P>(me);
        }
    }

    /// A word copied by fork, with threads on it that are not here.
    fn purge(&self, word: u32) -> bool {
        if word & (STANDBY | NEWEST) == 0 || (word & GENERATION) >> GENERATION_SHIFT == P::generation() {
            return false;
        }
        let _ = self.word.compare_exchange(word, word & (LOCKED | OWNER), Relaxed, Relaxed);
        true
    }
}
