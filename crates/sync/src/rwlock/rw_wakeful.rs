// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rw-wakeful`: the default reader-writer lock, which knows who is awake.
//!
//! Readers enter and leave by one addition each. Where readers meet and nobody writes, the lock becomes
//! *biased*: a reader then says in a place of its own that it reads, and readers share no line at all. Any
//! running thread may take a free lock. Of the waiters one, the *front*, watches the state. All others wait
//! for the front, in a line that is our default mutex. A front that has waited its time *demands* the lock,
//! and arrivals then wait for it.
//! ```text
//!   arrival ── looks ──> line (a mutex) ──> front ── looks, demands, sleeps on `state` ──> inside
//!      └──── the lock is free, and nobody demands it ──────────────────────────────────────> ^
//! ```
//! Choose it unless you know better. From TR 1994, section 4.2 (run states), Krieger, Stumm and Unrau 1993
//! (overtaking), and Dice and Kogan's BRAVO 2019 (bias). `word.rs` has the bits, `wait.rs` the loop of all
//! waiters, `aside.rs` the bias, `share.rs` whether it pays to share, `turns.rs` groups of readers on many
//! processors, `published.rs` what a scheduler is told, `limits.rs` the numbers. Why it is so:
//! `docs/design/rwlock.md`.
//!
//! # State
//! | bits of `state` | name | meaning |
//! |---|---|---|
//! | 0 | WRITER | held by a writer |
//! | 1 | UPGRADABLE | held by the reader that may upgrade. Beside WRITER: that is not inside yet (B3, B5) |
//! | 2, 5 | DEMAND, URGENT | the front has waited: leave it the lock; URGENT: only members (A7) pass it |
//! | 3 | SLEEPER | the front, an upgrader or a recursive reader may sleep on this word |
//! | 4 | UPGRADING | the upgradable reader waits for the readers to leave |
//! | 6 | BIASED | there may be readers that are not counted |
//! | 7 | TOLD | the writer inside has told a scheduler what it is, or the last one did: `published.rs` |
//! | 8-25 | READERS | readers; recursive ones and members that wait; arrivals about to take theirs back |
//! | 26-31 | VERSION | counts releases, a writer's twice, modulo 64 |
//!
//! `owner`, hints: the last writer's id, quiet rounds. `front`: its id, generation. It and `last`:
//! `share.rs`. `line`: a mutex.
//!
//! # Invariants
//! I1. WRITER is set exactly while one thread is between A1, A2 or U1 and R2 or D1. Alone: nobody else is
//! inside.
//! I2. The front alone sets DEMAND and URGENT. It clears them, or a thread that passes it does (A3).
//! I3. While a thread sleeps on `state`, SLEEPER is set, or the thread that cleared it is about to wake
//! all.
//! I4. Only a step that wakes clears SLEEPER, or a front beside which nobody can be asleep. It is set in a
//! state that excludes.
//! I5. After its releasing step a thread uses only the address of `state`.
//! I6. An uncounted reader has the lock in its place. Meanwhile BIASED is set, or the writer is still in
//! B3.
//! I7. A recursive reader waits for nobody but the writer inside (A5, A6), and never in line.
//!
//! # Protocol
//! | step | what happens |
//! |---|---|
//! | A1 | Reader: add READER; in vain beside a writer, an upgrader or a demand. Others: compare and swap. |
//! | A2 A3 | A waiter takes a free lock. A demanded one: after a grace or if its front is off, unless URGENT. |
//! | A4 A5 A6 | In vain: take back. Recursive: beside a draining writer go in, else wait counted. |
//! | A7 | A reader waits counted, too: T1 to T6, `turns.rs`. |
//! | B0 to B5 | Bias: `aside.rs`. W1 to W4, F1 to F7: waiting, `wait.rs`. |
//! | R1 R2 D1 | Reader: subtract; the last one wakes. Writer, downgrade: clear the bit and SLEEPER, wake. |
//! | U1 N1 | UPGRADABLE -> WRITER without readers, else UPGRADING. `N`: wish before A1, waiting only as T5. |
//!
//! # Memory order
//! R1, R2, D1 release -> A1, A2, A6, A7, U1 acquire. B1 against B3: both are read-modify-writes of the place,
//! so B2 sees the bias gone or B3 sees the reader. B4 release -> B3 acquire; R1 release -> B5 acquire; R2
//! release -> B2 acquire. The rest is hints.
//!
//! # Under the scheduler
//! Writer preempted: arrivals queue, the front sleeps. Reader preempted: the front demands and sleeps.
//! Front preempted: passed until URGENT. Hint wrong: a look, a sleep or a pass too many. Killed inside:
//! lost. Fork: a front left in the parent is purged; whoever waits counted there stays counted.
//!
//! # Fairness and space
//! Bounded overtaking, in the order of `mutex::Wakeful`; by groups: `turns.rs`. 2^17 read locks. 20 bytes,
//! and a line for each thread of the process.
//!
//! # Rejected
//! See `docs/design/rwlock.md`.
//!
//! # Checked by
//! `conformance`: threads, loom, shuttle; deadlines, upgrades, recursion; twins. Fork:
//! `crates/wakeful/tests/rwlock.rs`.

mod aside;
mod elsewhere;
mod limits;
mod published;
mod share;
mod turns;
mod wait;
mod word;

use core::marker::PhantomData;
use platform::{Atomic, AtomicInt, Deadline, Ordering::*, Platform, Readers, StaticPlatform, ThreadId};

use super::{RawRwLock, RawRwLockRecursive, RawRwLockTimed, RawRwLockUpgrade};
use crate::mutex::{self, RawMutex};
use crate::wait::{self as policy, Inner, Preemptable, Preemption, publish};
use word::*;

/// The default reader-writer lock: see the head of this file. With `N` its holders wish not to be preempted.
#[repr(C)]
pub struct Wakeful<P: Platform, N = Preemptable> {
    state: P::AtomicU32,
    /// HINT: the thread that was writer last.
    owner: P::AtomicU32,
    front: P::AtomicU32,
    line: mutex::Wakeful<P, Inner>,
    last: P::AtomicU32,
    platform: PhantomData<(P, N)>,
}

impl<P: StaticPlatform, N> Wakeful<P, N> {
    /// A free lock, for a `static`.
    pub const INIT: Self = Self {
        state: P::ZERO_U32,
        owner: P::ZERO_U32,
        front: P::ZERO_U32,
        line: mutex::Wakeful::INIT,
        last: P::ZERO_U32,
        platform: PhantomData,
    };
}

/// How long a writer may wait for the last readers.
#[derive(Clone, Copy)]
enum Until {
    Ever,
    Deadline(Deadline),
    Now,
}

impl From<Option<Deadline>> for Until {
    fn from(deadline: Option<Deadline>) -> Self {
        deadline.map_or(Self::Ever, Self::Deadline)
    }
}

impl<P: Readers, N: Preemption> Wakeful<P, N> {
    /// The calling thread has added itself to `was`, which keeps it out.
    #[cold]
    #[inline(never)]
    fn read_slow(&self, want: Want, was: u32, deadline: Option<Deadline>) -> bool {
        if want == Want::ReadRecursive {
            return Self::without_wish(|| self.wait_counted(was, deadline));
        }
        if turns::joins(was) && turns::are_taken::<P, N>() {
            if let Some(taken) = self.wait_as_member(deadline) {
                return taken;
            }
        } else {
            self.after_read(self.state.fetch_sub(READER, Relaxed));
        }
        self.wait(want, deadline)
    }

    /// N1. With `N`, wishes not to be preempted from the attempt on.
    #[inline(always)]
    fn inside(attempt: impl FnOnce() -> bool) -> bool {
        let me = policy::shield::<N, P>();
        let taken = attempt();
        if taken {
            policy::inside_after_wait::<N, P>();
        } else {
            policy::unshield::<N, P>(me);
        }
        taken
    }

    /// N1. Waits without the wish. L4.
    fn without_wish(wait: impl FnOnce() -> bool) -> bool {
        let me = P::register_lazily();
        if N::PUBLISHES && P::hands_off() {
            return Self::wait_told(me, wait);
        }
        policy::unshield::<N, P>(me);
        let taken = wait();
        if taken {
            policy::shield::<N, P>();
        }
        taken
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, want: Want, deadline: Option<Deadline>) -> bool {
        if N::PUBLISHES && want == Want::Write && (P::hands_off() || self.state.load(Relaxed) & TOLD != 0) {
            return self.write_telling(deadline);
        }
        Self::without_wish(|| self.wait_as_it_is(want, deadline))
    }

    #[cold]
    #[inline(never)]
    fn wake_after_read(&self, was: u32) {
        if was & (UPGRADABLE | UPGRADING) != UPGRADABLE {
            // The lock may be gone by now; only its address is used.
            P::wake(&self.state, u32::MAX);
        }
    }

    /// The holder gives up `from` and keeps `to`.
    #[cold]
    #[inline(never)]
    fn release(&self, from: u32, to: u32) {
        let mut word = self.state.load(Relaxed);
        loop {
            // ORDER: Release (R2), pairs with A1 and A2; publishes the protected data.
            let new = ((word & !SLEEPER) - from + to).wrapping_add(version(from));
            match self.state.compare_exchange_weak(word, new, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        if N::WISHES && from & WRITER != 0 && word & READERS != 0 {
            self.tell();
        }
        let me = Self::left(from, word);
        if word & SLEEPER != 0 {
            P::wake(&self.state, u32::MAX);
        }
        if let Some(me) = me {
            publish::repay::<P>(me);
        }
    }

    #[inline(always)]
    fn after_read(&self, was: u32) {
        if was & (READERS | SLEEPER | WRITER) == READER | SLEEPER {
            self.wake_after_read(was);
        } else if was & READERS == 0 {
            self.unlock_elsewhere();
        }
    }

    /// A1 alone: as [`RawRwLock::try_write`], but it may fail where a scheduler listens. For a caller that
    /// tries again in its slow path.
    ///
    /// # Safety
    /// As [`RawRwLock::try_write`].
    #[inline]
    pub unsafe fn try_write_untold(&self) -> bool {
        Self::inside(|| self.try_take(Want::Write, if N::PUBLISHES { TOLD } else { 0 }))
    }

    fn try_take(&self, want: Want, also: u32) -> bool {
        let mut word = self.state.load(Relaxed);
        while !want.kept_out(word) && word & also == 0 {
            // ORDER: Acquire (A1), pairs with R1 and R2.
            match self.state.compare_exchange_weak(word, want.added_to(word), Acquire, Relaxed) {
                Ok(_) => return want != Want::Write || self.alone(word, Until::Now, BIASED),
                Err(now) => word = now,
            }
        }
        false
    }

    #[inline]
    fn read_by(&self, want: Want, deadline: Option<Deadline>) -> bool {
        let seen = self.state.load(Relaxed);
        if seen & BIASED != 0 && self.read_aside() {
            return true;
        }
        let heeded = if want == Want::Read { want.excluded() | DEMAND } else { want.excluded() };
        if want == Want::Read && seen & heeded != 0 && self.seems_shared() {
            // W0. To add and to take back would keep the line of the state from whoever is inside.
            return self.wait(want, deadline);
        }
        // ORDER: Acquire (A1), pairs with R1 and R2.
        let was = self.state.fetch_add(READER, Acquire);
        if was & heeded != 0 {
            return want == Want::ReadRecursive && !want.kept_out(was) || self.read_slow(want, was, deadline);
        }
        if was & READERS != 0 && (was >> VERSION_SHIFT).is_multiple_of(P::PAUSES.min(VERSIONS)) {
            self.readers_meet();
        }
        true
    }

    /// R1.
    #[inline(always)]
    fn leave_count(&self) {
        // ORDER: Release (R1), pairs with A1 and A2: the next writer's changes come after our reads.
        self.after_read(self.state.fetch_add(VERSION - READER, Release));
    }

    /// U1. The state with the one that may upgrade as writer.
    #[inline]
    fn upgraded(word: u32) -> u32 {
        Want::Write.added_to(word & !(UPGRADABLE | UPGRADING | TOLD))
    }

    #[inline]
    fn write_by(&self, deadline: Option<Deadline>) -> bool {
        let word = self.state.load(Relaxed);
        if word & (VERSION - 1) == 0
            // ORDER: Acquire (A1), pairs with R1 and R2.
            && self.state.compare_exchange(word, word | WRITER, Acquire, Relaxed).is_ok()
        {
            self.owner.store(P::current().0, Relaxed);
            return true;
        }
        self.wait(Want::Write, deadline)
    }
}

impl<P: Readers, N: Preemption> RawRwLock<P> for Wakeful<P, N> {
    type Node = ();

    fn new() -> Self {
        Self {
            state: P::AtomicU32::new(0),
            owner: P::AtomicU32::new(0),
            front: P::AtomicU32::new(0),
            line: mutex::Wakeful::new(),
            last: P::AtomicU32::new(0),
            platform: PhantomData,
        }
    }

    #[inline]
    unsafe fn read(&self, _: &()) {
        Self::inside(|| self.read_by(Want::Read, None));
    }

    #[inline]
    unsafe fn try_read(&self, _: &()) -> bool {
        Self::inside(|| self.try_take(Want::Read, DEMAND))
    }

    #[inline]
    unsafe fn unlock_read(&self, _: &()) {
        let me = P::current();
        if me == ThreadId::NONE || !self.leave_place(P::reading(me)) {
            self.leave_count();
        }
        policy::outside::<N, P>();
    }

    #[inline]
    unsafe fn write(&self, _: &()) {
        Self::inside(|| self.write_by(None));
    }

    #[inline]
    unsafe fn try_write(&self, _: &()) -> bool {
        let told = if N::PUBLISHES { TOLD } else { 0 };
        Self::inside(|| self.try_take(Want::Write, told) || N::PUBLISHES && self.try_telling())
    }

    #[inline]
    unsafe fn unlock_write(&self, _: &()) {
        let word = self.state.load(Relaxed);
        let new = (word & !WRITER).wrapping_add(version(WRITER));
        let told = match () {
            () if N::WISHES => SLEEPER | READERS,
            () if N::PUBLISHES => SLEEPER | TOLD,
            () => SLEEPER,
        };
        // ORDER: Release (R2), pairs with A1 and A2; publishes the protected data.
        if word & told != 0 || self.state.compare_exchange(word, new, Release, Relaxed).is_err() {
            self.release(WRITER, 0);
        }
        policy::outside::<N, P>();
    }
}

impl<P: Readers, N: Preemption> RawRwLockTimed<P> for Wakeful<P, N> {
    #[inline]
    unsafe fn read_until(&self, _: &(), deadline: Deadline) -> bool {
        Self::inside(|| self.read_by(Want::Read, Some(deadline)))
    }

    #[inline]
    unsafe fn write_until(&self, _: &(), deadline: Deadline) -> bool {
        Self::inside(|| self.write_by(Some(deadline)))
    }
}

impl<P: Readers, N: Preemption> RawRwLockRecursive<P> for Wakeful<P, N> {
    #[inline]
    fn read_recursive(&self) {
        Self::inside(|| self.read_by(Want::ReadRecursive, None));
    }

    #[inline]
    fn try_read_recursive(&self) -> bool {
        Self::inside(|| self.try_take(Want::ReadRecursive, 0))
    }

    #[inline]
    fn read_recursive_until(&self, deadline: Deadline) -> bool {
        Self::inside(|| self.read_by(Want::ReadRecursive, Some(deadline)))
    }
}

impl<P: Readers, N: Preemption> RawRwLockUpgrade<P> for Wakeful<P, N> {
    #[inline]
    fn upgradable(&self) {
        Self::inside(|| self.try_take(Want::Upgradable, DEMAND) || self.wait(Want::Upgradable, None));
    }

    #[inline]
    fn try_upgradable(&self) -> bool {
        Self::inside(|| self.try_take(Want::Upgradable, DEMAND))
    }

    #[inline]
    fn upgradable_until(&self, deadline: Deadline) -> bool {
        let want = Want::Upgradable;
        Self::inside(|| self.try_take(want, DEMAND) || self.wait(want, Some(deadline)))
    }

    #[inline]
    unsafe fn unlock_upgradable(&self) {
        self.release(UPGRADABLE, 0);
        policy::outside::<N, P>();
    }

    #[inline]
    unsafe fn upgrade(&self) {
        self.upgrade_by(None);
    }

    #[inline]
    unsafe fn try_upgrade(&self) -> bool {
        let mut word = self.state.load(Relaxed);
        while word & READERS == 0 {
            // ORDER: Acquire (U1), pairs with R1.
            match self.state.compare_exchange_weak(word, Self::upgraded(word), Acquire, Relaxed) {
                Ok(_) => return self.alone(word, Until::Now, UPGRADABLE | BIASED),
                Err(now) => word = now,
            }
        }
        false
    }

    #[inline]
    unsafe fn upgrade_until(&self, deadline: Deadline) -> bool {
        self.upgrade_by(Some(deadline))
    }

    #[inline]
    unsafe fn downgrade(&self) {
        self.release(WRITER, READER);
    }

    #[inline]
    unsafe fn downgrade_to_upgradable(&self) {
        self.release(WRITER, UPGRADABLE);
    }

    #[inline]
    unsafe fn downgrade_upgradable(&self) {
        self.release(UPGRADABLE, READER);
    }
}
