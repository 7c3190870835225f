// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rw-wakeful`: the default reader-writer lock, which knows who is awake.
//!
//! Readers enter and leave by one addition each and never fail but for a writer; where readers meet and nobody writes, they only say aside that they read, and share no line at all. Whoever runs may take a free lock; of those who wait one, the *front*, watches
//! the state, and all others wait for the front in a line that is our default mutex. A front that has waited its time demands the lock, and then all who come
//! wait for it. A lock that one thread uses all the time is left to that thread, by turns of the clock, because every other user would only take its cache lines
//! away. Choose it unless you know better.
//!
//! From TR 1994, section 4.2: what the kernel says of a thread decides whether it is waited for, and a preempted waiter is passed over. From Krieger, Stumm and Unrau (ICPP
//! 1993): nobody overtakes for ever. From `mutex::Wakeful`: barging, turns by the clock, no wake-up at each contended release. From Dice and Kogan ("BRAVO", USENIX ATC 2019): a lock
//! that is biased to readers lets them in by a place of their own in a table of the process, which a writer then has to search; here the place is the thread's, and bias is earned by
//! rounds without a writer instead of timed. The version bits, by which a waiter learns in two looks how
//! fast a lock is used, are ours.
//!
//! # State
//!
//! | bits of `state` | name | meaning |
//! |---|---|---|
//! | 0 | WRITER | held by a writer |
//! | 1 | UPGRADABLE | held by the one reader that may upgrade; not counted in READERS. Beside WRITER: that is not inside yet (B3, B5) |
//! | 2 | DEMAND | the front has waited its time: others should leave the lock to it |
//! | 3 | SLEEPER | the front, or an upgrader, may sleep on this word |
//! | 4 | UPGRADING | the upgradable reader waits for the readers to leave |
//! | 5 | URGENT | beside DEMAND: nobody passes the front any more |
//! | 6 | BIASED | there may be readers that are not counted, each with this lock's address in its place ([`Platform::reading`]) |
//! | 7-25 | READERS | number of other readers, of recursive readers that wait for a writer to leave, and of those who have added themselves in vain and are about to take that back |
//! | 26-31 | VERSION | counts releases, a writer's twice, modulo 64 |
//!
//! `owner`: thread id of the last writer (0-11), and how often the versions have gone round since while readers met (12-31); HINTS. `line`: a `mutex::Wakeful`, held by the front. `front`: written by the front only: its thread id (0-11), the generation of its process (12-14,
//! see [`Platform::generation`]), that there is one (15), and when sharing was last found to pay (16-31, in ms; 0: never). Free is: READERS and bits 0 to 5 zero;
//! an uncounted reader keeps only writers out, and they find it in B3.
//!
//! # Invariants
//!
//! I1. WRITER is set exactly while one thread is between A1, A2 or U1 and R2 or D1. UPGRADABLE is set beside it exactly until that thread has completed B5, if it has to. When WRITER is set
//!     alone, nobody else is inside, and READERS counts only threads between A1 and A4 or A6.
//! I2. DEMAND and URGENT are set by the front only. They are cleared by who takes the lock in spite of them (A3), by the front when it gets the lock or gives up.
//! I3. While a thread sleeps on `state`, SLEEPER is set, or who cleared it is about to wake all, or it has been woken. There sleep at most the front, an upgrader and, beside
//!     a writer, recursive readers.
//! I4. SLEEPER is set only in a state that keeps the sleeper out. Only these clear it: a release that changes the state by compare-and-swap (it wakes), who takes the lock in
//!     spite of a demand (it wakes), the front itself if neither an upgrader nor a recursive reader can be asleep.
//! I5. After its releasing step a thread uses nothing of the lock but the address of `state`.
//! I6. A reader that is in without being counted has the lock in its place. While there is one, BIASED is set, or the thread with WRITER has not completed B3.
//! I7. A recursive reader waits for nobody but the writer that is inside: A5, A6. It is never in line, because a reader that is inside may wait for it.
//!
//! # Protocol
//!
//! A1. Reader: add READER; done unless WRITER, UPGRADING or DEMAND was set (recursive reader: WRITER without UPGRADABLE), or 2^18 readers are there. Writer: free (whatever the VERSION) -> WRITER. Upgradable: set it, unless WRITER, UPGRADABLE or DEMAND is, or 2^18 readers are.
//! A4. A reader that added itself in vain takes that back, waking as R1 does. A5. Recursive reader, if
//! WRITER and UPGRADABLE are set: not in vain, because it may have the lock in its place, or have had it there: a release empties the place and leaves the count, whichever of the two acquisitions it is for.
//! A6. Recursive reader, if WRITER is set alone: it stays counted, so that no other writer gets in, and has the lock once WRITER is gone. At its deadline: A4.
//! B0. A counted reader that finds another one inside, once in 64 releases: counts that in `owner`, where each writer's store begins anew; after QUIET_ENOUGH times sets BIASED. B1. Reader, if BIASED is set, instead of A1: compare-and-swap the lock into the
//! own place, if that is empty. B2. Done if the state is still BIASED and nobody demands or upgrades; else empty the place, and A1.
//! B3. Who takes WRITER (A1, A2, U1) from a biased state clears BIASED and sets UPGRADABLE in the same step; it goes through all places, waiting while one has the lock in it. B5. Then, when READERS is 0, in one
//! step with seeing that, it clears UPGRADABLE. If it may not wait (`try`, deadline) it goes back, setting BIASED again. B4. A reader with the lock in its place leaves by emptying that. One that is neither there nor counted came in under another id (fork, another thread): it takes back
//! its R1, waking who slept because of it, and empties whichever place has the lock in it, which is as good. A counted reader that leaves between these two may take that place for its own: then R1 again, for the count that it left. Two threads of a forked child may have one id, and so
//! one place, until the older registers anew: whoever finds the place empty has it, the other is counted, and whoever leaves first empties it.
//! Wait. W1. If sharing was found to pay lately (F2), look at the state with growing gaps, for ARRIVAL_NS at most, while the holder runs and nobody demands. A2. Take it when it is free.
//! A3. If it is free and demanded: take it nevertheless after GRACE_NS (WAKING_NS if the front is being woken), or at once if the front is known to be preempted, but not if URGENT.
//! W2. Else, and in particular after a demand has been met, get into line: lock `line`; now we are the front. W3. But not a recursive
//! reader: it waits as A6 says, looks for ARRIVAL_NS while the writer runs (W4: for ROOMY_NS), then sets SLEEPER and sleeps on `state`. If there is no room for it, it naps.
//! W4. Where there are processors to spare ([`Platform::roomy`]) a reader does not get into line for ROOMY_NS: it would let the others in one after the other. The front, too, stays awake for ROOMY_NS.
//! N1. With `N`: wish before A1 and B1, withdraw the wish while waiting and after R1, R2 and B4; as `rw-tas-b-np` does.
//! Front. F1. Count by VERSION how often others use the lock within two samples. F2. Seldom, but at all: remember that sharing pays. F3. More often than HOT for one thread: nap for a turn; then set DEMAND.
//! F4. Look with growing gaps; take the lock when it is free (A2), clearing DEMAND. F5. After PATIENCE_NS set DEMAND, whatever the hints say, after URGENT_NS also URGENT. F6. If the writer does not run, or SPIN_NS after the demand, set SLEEPER
//! (and DEMAND, if readers are what we wait for) and sleep on `state`. F7. With the lock, or at the deadline, unlock `line`.
//! Release. R1. Reader: subtract READER, add VERSION; if it was the last, SLEEPER is set and nobody holds WRITER (or UPGRADABLE without UPGRADING): wake all. It does not clear SLEEPER (I5), so F6
//! sets DEMAND, by which few readers come to be the last before the sleeper runs.
//! R2. Writer, upgradable: take the own bit and SLEEPER away, add VERSION; if SLEEPER was set, wake all.
//! Upgrade. U1. UPGRADABLE -> WRITER if there are no readers; else set UPGRADING, look for SPIN_NS, then set SLEEPER and sleep. At the deadline clear UPGRADING as R2 does.
//! D1. Downgrade: as R2, adding READER or UPGRADABLE in the same step.
//!
//! # Memory order
//!
//! R1, R2, D1 release -> A1, A2, A3, U1 acquire publishes the protected data, and orders a writer after the readers' last look. All changes of `state` are read-modify-writes and continue the release
//! sequences. B1 against B3 is store, then look, on both sides: both are read-modify-writes of the place, B3 writing each place even where it finds nothing. So either B3 comes
//! before B1 in the place's order, and B2 sees the bias gone (B3 release -> B1 acquire), or B3 sees the reader. B4 release -> B3 acquire: the writer's changes come after that reader's look, and B5 sees A5. R2, D1 release -> A6 acquire, as for A1.
//! Places, too, are only changed by read-modify-writes. R2 release -> B2 acquire: the bias came after that writer. Everything else is hints, and relaxed; `front` is ordered by `line`.
//!
//! # Under the scheduler
//!
//! *Writer preempted or blocked*: arrivals queue at once, the front sleeps. *Reader preempted inside*: nobody knows which; the front demands after PATIENCE_NS and sleeps after SPIN_NS, so that the
//! processors are free for that reader. *Uncounted reader preempted*: B3 knows which, and naps. *Front preempted*: passed over (A3) until it has waited URGENT_NS; it demands again when it runs. *More threads than processors*: all but those who run
//! at all sleep in line. *Hint stale*: "runs" costs at most ARRIVAL_NS or SPIN_NS of looking; "does not run" costs a sleep and a wake-up; a front wrongly thought preempted is passed at most until URGENT.
//! Neither touches I1 to I5. *Killed while holding*: lost. *Fork*: a `line` held by a front of another generation is unlocked by the first who comes (only in the few instructions between locking
//! `line` and writing `front`, and between clearing that and unlocking, would a fork find it held by nobody). A copy counts the readers of its parent, those in A6 too, for ever, as glibc's.
//!
//! # Fairness and space
//!
//! In a line each has its turn in the order of `mutex::Wakeful`; a front waits for one turn, PATIENCE_NS or TURN_NS, and URGENT_NS at most before nobody passes it. After that it waits for those inside. So neither readers nor
//! writers starve, as long as holders release. Recursive readers and `try_write` ignore demands, and the former a writer that is not inside yet: if they overlap, writers wait. Readers who wait for a writer get in one after the other, each unlocking `line` for the next.
//! A guard that is forgotten, of a lock that ends: the next lock at its address may find itself read for ever.
//! Read locks held at one time, nested ones counted: 2^18; one more waits as if for a writer, and `try` fails. So guards that are forgotten, which are counted for ever, never make room for a writer. 16 bytes, and a cache line for each thread
//! of the process, used once it reads a biased lock. A writer that ends the bias pays a look at each thread's line, once in 2,000 reads at most.
//!
//! # Rejected
//!
//! Comparing and swapping readers in: fails when two come at once. Waking at each release that leaves sleepers: see `mutex::Wakeful`. Waking all waiting readers at once: on few processors they only
//! queue there. Letting go of SLEEPER in R1 by a second step: the lock may be gone (I5). A hot lock told by how often it is found busy: does not tell short sections from a slow user's, and the looks
//! themselves slow the user down. A table of places found by hashing, as BRAVO's: two threads may meet in one. Letting a recursive reader in beside a writer in B3 because its own place has the lock: it has released
//! that, and not the count, when it comes again. A recursive reader in line, even behind readers only: the front may be a writer, which waits for the reader that waits for this one. One that sleeps on `state` uncounted: each
//! writer that passes would keep it out. Waking the writer of B3: the reader would have to look at the lock after leaving it (I5); so that writer naps. Letting arrivals take a hot lock: on two processors two users of one word reach half the rate of one alone, or less (20 lines, half of them writers: a quarter).
//!
//! # Checked by
//!
//! `conformance`: real threads, loom (all hints, three speeds of the clock), shuttle, with deadlines, upgrades and recursion; the twins that lose a reader, let a writer in, forget the sleepers, keep readers apart,
//! starve a writer and let go while they upgrade are caught, and so is each ordering weakened (`cargo xtask mutate`), and a `try` that does not go back. Words copied by a fork: there, and `crates/wakeful/tests/rwlock.rs`. The checkers know no time: what the turns are worth is measured.

use core::marker::PhantomData;
use core::ptr;
use platform::{Atomic, AtomicInt, Deadline, Ordering::*, Platform, RunState, StaticPlatform, ThreadId};

use super::{RawRwLock, RawRwLockRecursive, RawRwLockTimed, RawRwLockUpgrade};
use crate::mutex::{self, RawMutex, RawMutexTimed};
use crate::wait::{self, Preemptable, Preemption};

const WRITER: u32 = 1;
const UPGRADABLE: u32 = 1 << 1;
const DEMAND: u32 = 1 << 2;
const SLEEPER: u32 = 1 << 3;
const UPGRADING: u32 = 1 << 4;
const URGENT: u32 = 1 << 5;
const BIASED: u32 = 1 << 6;
/// Both: held by a writer that is not inside yet, but in B3 or B5.
const DRAINING: u32 = WRITER | UPGRADABLE;
const READER: u32 = 1 << 7;
const READERS: u32 = 0x7_ffff << 7;
/// So many readers keep the next one out: the upper half of READERS is for those who have added themselves in vain.
const MANY: u32 = 1 << 25;
const VERSION: u32 = 1 << 26;
const VERSION_SHIFT: u32 = 26;
const VERSIONS: u32 = 64;

/// In `owner`, above the thread's id: how often the versions went round while readers met and nobody wrote.
const QUIET: u32 = 1 << 12;
/// COST: rounds of 64 releases, about 2,000 reads: a writer that ends the bias pays as much as some tens of them.
const QUIET_ENOUGH: u32 = 32;

// In `front`: the thread, the generation of its process, that there is one, and when sharing was found to pay.
const GENERATION_SHIFT: u32 = 12;
const GENERATION: u32 = 7 << GENERATION_SHIFT;
const FRONT: u32 = 1 << 15;
const SHARED_SHIFT: u32 = 16;
const SHARED: u32 = u32::MAX << SHARED_SHIFT;

// COST: all in ns; see `mutex::Wakeful`, whose machine this was tuned on.
/// Between two looks of a waiter: from this ...
const POLL_NS: u64 = 100;
/// ... to this, growing with the wait.
const POLL_MAX_NS: u64 = 2_000;
/// An arrival looks this long before it queues.
const ARRIVAL_NS: u64 = 3_000;
/// The front stays awake this long.
const SPIN_NS: u64 = 20_000;
/// It demands the lock after this.
const PATIENCE_NS: u64 = 10_000;
/// And lets nobody pass any more after this.
const URGENT_NS: u64 = 1_000_000;
/// A front beside a hot lock naps: first this long, then longer ...
const NAP_NS: u64 = 30_000;
const NAP_MAX_NS: u64 = 100_000;
/// ... and demands it after this.
const TURN_NS: u64 = 300_000;
/// The front counts twice in a row for this long how often the lock is used: it is hot ...
const SAMPLE_NS: u64 = 1_000;
/// ... if that is so often, for each other processor, in both together, a writer's use counting twice. A use every 170 ns: two moves of a cache line.
const HOT: u32 = 12;
/// Where there are processors to spare a reader looks, and the front stays awake, this long (see W8 of `mutex::Wakeful`).
const ROOMY_NS: u64 = 1_000_000;
/// Such a reader lets so long pass between two looks for each processor, so that the looks of all do not keep the line from those who leave.
const POLL_ROOMY_NS: u64 = 100;
/// For so long (in units of 2^20 ns, about 1 ms) after the moment in `front`, which is rounded down to a unit, a lock that was found not to be hot passes for such.
const SHARED_MS: u32 = 1;
/// A free lock is left to a front that demands it this long ...
const GRACE_NS: u64 = 2_000;
/// ... or this long if it has to be woken.
const WAKING_NS: u64 = 50_000;

/// How often a reader that left by another's place is looked for: it moves only while yet another leaves so.
const LOOKS_ELSEWHERE: u32 = 100;

/// The default reader-writer lock: see the head of this file. With `N` who holds it wishes not to be preempted.
#[repr(C)]
pub struct Wakeful<P: Platform, N = Preemptable> {
    state: P::AtomicU32,
    /// HINT: the thread that was writer last.
    owner: P::AtomicU32,
    front: P::AtomicU32,
    line: mutex::Wakeful<P>,
    platform: PhantomData<(P, N)>,
}

impl<P: StaticPlatform, N> Wakeful<P, N> {
    /// A free lock, for a `static`.
    pub const INIT: Self = Self {
        state: P::ZERO_U32,
        owner: P::ZERO_U32,
        front: P::ZERO_U32,
        line: mutex::Wakeful::INIT,
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

/// What a waiter wants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    Read,
    ReadRecursive,
    Upgradable,
    Write,
}

impl Want {
    /// Bits that keep it out.
    #[inline]
    fn excluded(self) -> u32 {
        match self {
            Self::Read => WRITER | UPGRADING | MANY,
            Self::ReadRecursive => WRITER | MANY,
            Self::Upgradable => WRITER | UPGRADABLE | MANY,
            Self::Write => WRITER | UPGRADABLE | READERS,
        }
    }

    /// Does this state keep it out?
    #[inline]
    fn kept_out(self, word: u32) -> bool {
        // A5. It may be one of the readers for whom the writer waits.
        let goes_before = self == Self::ReadRecursive && word & (DRAINING | MANY) == DRAINING;
        word & self.excluded() != 0 && !goes_before
    }

    /// The state with it, after one in which it may have the lock.
    #[inline]
    fn added_to(self, word: u32) -> u32 {
        match self {
            Self::Write if word & BIASED != 0 => word & !BIASED | DRAINING,
            _ => word + self.unit(),
        }
    }

    /// What it adds to the state, where that is not biased.
    #[inline]
    fn unit(self) -> u32 {
        match self {
            Self::Read | Self::ReadRecursive => READER,
            Self::Upgradable => UPGRADABLE,
            Self::Write => WRITER,
        }
    }
}

/// What the release of this counts (see HOT).
#[inline(always)]
fn version(from: u32) -> u32 {
    if from & WRITER != 0 { 2 * VERSION } else { VERSION }
}

fn runs<P: Platform>(thread: ThreadId) -> bool {
    !matches!(P::run_state(thread), RunState::Preempted | RunState::Blocked)
}

fn spin_until<P: Platform>(ns: u64) {
    loop {
        P::pause();
        if P::now_ns() >= ns {
            return;
        }
    }
}

impl<P: Platform, N: Preemption> Wakeful<P, N> {
    /// The calling thread has added itself to `was`, which keeps it out.
    #[cold]
    #[inline(never)]
    fn read_slow(&self, want: Want, was: u32, deadline: Option<Deadline>) -> bool {
        if want == Want::ReadRecursive {
            return Self::without_wish(|| self.wait_counted(was, deadline));
        }
        self.after_read(self.state.fetch_sub(READER, Relaxed));
        self.wait(want, deadline)
    }

    /// N1. With `N`, wishes not to be preempted from the attempt on.
    #[inline(always)]
    fn inside(attempt: impl FnOnce() -> bool) -> bool {
        let me = wait::shield::<N, P>();
        let taken = attempt();
        if taken {
            wait::inside_after_wait::<N, P>();
        } else {
            wait::unshield::<N, P>(me);
        }
        taken
    }

    /// N1. Waits without the wish.
    fn without_wish(wait: impl FnOnce() -> bool) -> bool {
        wait::unshield::<N, P>(P::register_lazily());
        let taken = wait();
        if taken {
            wait::shield::<N, P>();
        }
        taken
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, want: Want, deadline: Option<Deadline>) -> bool {
        Self::without_wish(|| self.wait_as_it_is(want, deadline))
    }

    /// W3. A recursive reader, which has added itself to `was`. While it is counted no other writer gets in.
    fn wait_counted(&self, mut was: u32, deadline: Option<Deadline>) -> bool {
        while was & MANY != 0 {
            // A4. There is no room.
            self.after_read(self.state.fetch_sub(READER, Relaxed));
            if deadline.is_some_and(P::past) {
                return false;
            }
            P::nap(NAP_NS);
            was = self.state.fetch_add(READER, Relaxed);
        }
        let arrived = P::now_ns();
        let roomy = P::roomy();
        loop {
            // ORDER: Acquire (A6), pairs with R2 and D1.
            let word = self.state.load(Acquire);
            if word & DRAINING != WRITER {
                return true;
            }
            if deadline.is_some_and(P::past) {
                // A4. Nobody is woken: whoever sleeps waits for the writer, too.
                if self.state.compare_exchange(word, word - READER, Relaxed, Relaxed).is_ok() {
                    return false;
                }
                continue;
            }
            let now = P::now_ns();
            if now < arrived + if roomy { ROOMY_NS } else { ARRIVAL_NS } && self.holder_runs(word) {
                Self::look_again_later(now, arrived, roomy);
            } else {
                self.sleep(word, 0, deadline);
            }
        }
    }

    /// A waiter lets some time pass between two looks, more and more of it.
    fn look_again_later(now: u64, arrived: u64, stays: bool) {
        let most = if stays { POLL_ROOMY_NS * u64::from(P::processors()) } else { POLL_MAX_NS };
        spin_until::<P>(now + ((now - arrived) / 4).clamp(POLL_NS, most));
    }

    fn wait_as_it_is(&self, want: Want, deadline: Option<Deadline>) -> bool {
        let arrived = P::now_ns();
        let roomy = P::roomy();
        // W4.
        let stays = roomy && want == Want::Read;
        let mut grace = None;
        let mut displaced = false;
        loop {
            let word = self.state.load(Relaxed);
            // W2. A thread that has met a demand leaves the lock to the one that demanded it.
            displaced |= word & DEMAND != 0;
            if !stays && (displaced && word & DEMAND == 0 || !self.shared(arrived)) {
                break;
            }
            if !want.kept_out(word) && word & URGENT == 0 {
                if word & DEMAND == 0 || self.may_pass(word, &mut grace) {
                    if self.take(word, want, false, deadline) {
                        return true;
                    }
                    if word & BIASED != 0 && deadline.is_some_and(P::past) {
                        return false;
                    }
                } else {
                    P::pause();
                }
                continue;
            }
            if deadline.is_some_and(P::past) {
                return false;
            }
            let now = P::now_ns();
            if stays && now < arrived + ROOMY_NS {
                // In place, until it is free.
            } else if word & DEMAND != 0 || now >= arrived + ARRIVAL_NS || !self.holder_runs(word) {
                break;
            }
            Self::look_again_later(now, arrived, stays);
        }
        self.purge();
        match deadline {
            // SAFETY: unlocked below.
            None => unsafe { self.line.lock(&()) },
            // SAFETY: unlocked below, if it was locked.
            Some(deadline) if !unsafe { self.line.lock_until(&(), deadline) } => return false,
            Some(_) => {}
        }
        let shared = self.front.load(Relaxed) & SHARED;
        self.front.store(shared | FRONT | P::generation() << GENERATION_SHIFT | P::current().0, Relaxed);
        let taken = self.wait_in_front(want, roomy, deadline);
        self.front.store(self.front.load(Relaxed) & SHARED, Relaxed);
        // SAFETY: locked above.
        unsafe { self.line.unlock(&()) };
        taken
    }

    /// Sharing was found to pay, lately.
    fn shared(&self, now: u64) -> bool {
        let at = self.front.load(Relaxed) >> SHARED_SHIFT;
        at != 0 && ((now >> 20) as u32).wrapping_sub(at) & (SHARED >> SHARED_SHIFT) <= SHARED_MS
    }

    /// The only waiter that watches the state.
    fn wait_in_front(&self, want: Want, roomy: bool, deadline: Option<Deadline>) -> bool {
        let since = P::now_ns();
        P::refresh_processors(Some(since));
        if !self.shared(since) {
            let uses = self.uses();
            // More processors may do the same together without any of them being that fast.
            if uses >= HOT * (P::processors() - 1).max(1) {
                if !self.nap(since + TURN_NS, deadline) {
                    return false;
                }
            } else if uses > 0 {
                // Never 0: rather a unit too late.
                let at = ((since >> 20) as u16).max(1) as u32;
                let front = self.front.load(Relaxed);
                self.front.store(front & !SHARED | at << SHARED_SHIFT, Relaxed);
            }
        }
        let mut demanded = P::now_ns();
        loop {
            let word = self.state.load(Relaxed);
            if !want.kept_out(word) {
                if self.take(word, want, true, deadline) {
                    return true;
                }
                if word & BIASED != 0 && deadline.is_some_and(P::past) {
                    self.withdraw();
                    return false;
                }
                continue;
            }
            if deadline.is_some_and(P::past) {
                self.withdraw();
                return false;
            }
            let now = P::now_ns();
            if word & DEMAND == 0 && now >= demanded + PATIENCE_NS {
                self.state.fetch_or(DEMAND, Relaxed);
                demanded = now;
            } else if word & URGENT == 0 && now >= since + URGENT_NS {
                self.state.fetch_or(DEMAND | URGENT, Relaxed);
            } else if !self.holder_runs(word) || now >= demanded + if roomy { ROOMY_NS } else { SPIN_NS } {
                self.sleep(word, if word & READERS != 0 { DEMAND } else { 0 }, deadline);
            } else {
                spin_until::<P>(now + (now.saturating_sub(demanded) / 4).clamp(POLL_NS, POLL_MAX_NS));
            }
        }
    }

    /// How often others use the lock while we look (see HOT).
    fn uses(&self) -> u32 {
        let mut uses = 0;
        let mut now = P::now_ns();
        let mut version = self.state.load(Relaxed) >> VERSION_SHIFT;
        for _ in 0..2 {
            now += SAMPLE_NS;
            spin_until::<P>(now);
            let later = self.state.load(Relaxed) >> VERSION_SHIFT;
            uses += later.wrapping_sub(version) % VERSIONS;
            version = later;
        }
        uses
    }

    /// The front leaves a hot lock to the thread that uses it, for a turn; then demands it. False at the deadline.
    fn nap(&self, until: u64, deadline: Option<Deadline>) -> bool {
        let mut nap = NAP_NS;
        while P::now_ns() < until {
            if deadline.is_some_and(P::past) {
                return false;
            }
            P::nap(nap);
            nap = (nap * 2).min(NAP_MAX_NS);
        }
        self.state.fetch_or(DEMAND, Relaxed);
        true
    }

    /// HINT: wrong either way, it costs a spin or a sleep.
    fn holder_runs(&self, word: u32) -> bool {
        word & WRITER == 0 || runs::<P>(ThreadId(self.owner.load(Relaxed) % ThreadId::LIMIT))
    }

    /// The lock is free and the front demands it: may another thread take it?
    fn may_pass(&self, word: u32, grace: &mut Option<u64>) -> bool {
        let front = self.front.load(Relaxed);
        // HINT: a front that does run demands again.
        if P::run_state(ThreadId(front % ThreadId::LIMIT)) == RunState::Preempted {
            return true;
        }
        let now = P::now_ns();
        let ns = if word & SLEEPER == 0 { GRACE_NS } else { WAKING_NS };
        now >= *grace.get_or_insert(now + ns)
    }

    /// Takes the lock from a state in which `want` may have it. Ends the demand, which a front that is not here would leave standing.
    fn take(&self, word: u32, want: Want, in_front: bool, deadline: Option<Deadline>) -> bool {
        // Who sleeps because of UPGRADABLE, or to upgrade, is woken by others.
        let sleeper = if word & UPGRADABLE == 0 { SLEEPER } else { 0 };
        let new = want.added_to(word & !(DEMAND | URGENT | sleeper));
        // ORDER: Acquire (A2), pairs with R1 and R2.
        if self.state.compare_exchange(word, new, Acquire, Relaxed).is_err() {
            return false;
        }
        if word & sleeper != 0 && !in_front {
            P::wake(&self.state, u32::MAX);
        }
        want != Want::Write || self.alone(word, deadline.into(), BIASED)
    }

    /// Sleeps until a release, unless the state changes first.
    fn sleep(&self, word: u32, with: u32, deadline: Option<Deadline>) {
        let new = word | SLEEPER | with;
        if new != word && self.state.compare_exchange(word, new, Relaxed, Relaxed).is_err() {
            return;
        }
        P::wait(&self.state, new, deadline);
    }

    /// The front gives up, or is not here.
    fn withdraw(&self) {
        let mut word = self.state.load(Relaxed);
        loop {
            // W3: beside a writer, its readers may sleep.
            let sleeper = if word & (UPGRADING | WRITER) == 0 { SLEEPER } else { 0 };
            match self.state.compare_exchange_weak(word, word & !(DEMAND | URGENT | sleeper), Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// A front that a fork left in the parent.
    fn purge(&self) {
        let front = self.front.load(Relaxed);
        if front & FRONT != 0
            && (front & GENERATION) >> GENERATION_SHIFT != P::generation()
            && self.front.compare_exchange(front, front & SHARED, Relaxed, Relaxed).is_ok()
        {
            self.withdraw();
            // SAFETY: the thread that locked it is not here, and only one thread gets here.
            unsafe { self.line.unlock(&()) };
        }
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
        if word & SLEEPER != 0 {
            P::wake(&self.state, u32::MAX);
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
        if self.state.load(Relaxed) & BIASED != 0 && self.read_aside() {
            return true;
        }
        let heeded = if want == Want::Read { want.excluded() | DEMAND } else { want.excluded() };
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

    /// B1. Reads without a write to the lock.
    #[inline]
    fn read_aside(&self) -> bool {
        let me = P::current();
        if me == ThreadId::NONE {
            P::register_lazily();
            return false;
        }
        let place = P::reading(me);
        if !place.load(Relaxed).is_null() {
            return false;
        }
        // ORDER: Acquire (B1), pairs with B3: if a writer was here before us, we see what it did to the state before it looked.
        // Compared, because in a forked child another thread may have our id until it registers anew: its place must not be lost.
        if place.compare_exchange(ptr::null_mut(), self.address(), Acquire, Relaxed).is_err() {
            return false;
        }
        // ORDER: Acquire (B2), pairs with R2.
        if self.state.load(Acquire) & (BIASED | DEMAND | UPGRADING | WRITER) == BIASED {
            return true;
        }
        // A read-modify-write, which continues what B4 has released here before.
        if place.compare_exchange(self.address(), ptr::null_mut(), Relaxed, Relaxed).is_err() {
            // Another thread of our id, which is counted, has left by our place: we leave by its count.
            self.leave_count();
        }
        false
    }

    /// B4; false if the lock is not there.
    #[inline(always)]
    fn leave_place(&self, place: &P::AtomicPtr<()>) -> bool {
        // ORDER: Release (B4), pairs with B3: the writer's changes come after our reads.
        place.load(Relaxed) == self.address()
            && place.compare_exchange(self.address(), ptr::null_mut(), Release, Relaxed).is_ok()
    }

    /// R1.
    #[inline(always)]
    fn leave_count(&self) {
        // ORDER: Release (R1), pairs with A1 and A2: the next writer's changes come after our reads.
        self.after_read(self.state.fetch_add(VERSION - READER, Release));
    }

    /// This lock in the places of the readers that it does not count.
    #[inline(always)]
    fn address(&self) -> *mut () {
        ptr::from_ref(self).cast::<()>().cast_mut()
    }

    /// B0. A reader, inside, has met another reader, and it is time to see whether anybody writes at all.
    #[cold]
    #[inline(never)]
    fn readers_meet(&self) {
        // HINT: a writer's store may get lost, or ours: then the bias comes too early, or late.
        let owner = self.owner.load(Relaxed);
        if owner / QUIET + 1 < QUIET_ENOUGH.min(P::PAUSES) {
            self.owner.store(owner + QUIET, Relaxed);
        } else {
            let state = self.state.load(Relaxed);
            // A writer beside a reader: another thread has released that reader's lock. A change meanwhile: some other time.
            if state & (BIASED | DEMAND | UPGRADABLE | WRITER) == 0 {
                let _ = self.state.compare_exchange(state, state | BIASED, Relaxed, Relaxed);
            }
        }
    }

    /// B3. The calling thread has taken WRITER from a biased state, and waits for the readers who are not counted. False if it may not wait so long.
    #[cold]
    #[inline(never)]
    fn drain(&self, until: Until) -> bool {
        for thread in (1..P::most_threads()).map(ThreadId) {
            let place = P::reading(thread);
            let since = P::now_ns();
            loop {
                let seen = place.load(Relaxed);
                if seen != self.address() {
                    // ORDER: AcqRel (B3): Acquire pairs with B4; Release pairs with B1: who comes after this sees that the bias is gone.
                    if place.compare_exchange(seen, seen, AcqRel, Relaxed).is_ok() {
                        break;
                    }
                    continue;
                }
                match until {
                    Until::Now => return false,
                    Until::Deadline(deadline) if P::past(deadline) => return false,
                    _ => {}
                }
                // HINT: wrong either way, it costs a spin or a nap.
                if P::now_ns() < since + SPIN_NS && runs::<P>(thread) {
                    P::pause();
                } else {
                    P::nap(NAP_NS);
                }
            }
        }
        // A recursive reader may have counted itself meanwhile (A5).
        loop {
            let word = self.state.load(Relaxed);
            if word & READERS == 0 {
                // ORDER: Acquire (B5), pairs with R1.
                if self.state.compare_exchange(word, word & !UPGRADABLE, Acquire, Relaxed).is_ok() {
                    return true;
                }
                continue;
            }
            match until {
                Until::Now => return false,
                Until::Deadline(deadline) if P::past(deadline) => return false,
                _ => P::nap(NAP_NS),
            }
        }
    }

    /// U1. The state with the one that may upgrade as writer.
    #[inline]
    fn upgraded(word: u32) -> u32 {
        Want::Write.added_to(word & !(UPGRADABLE | UPGRADING))
    }

    /// The calling thread has taken WRITER from this state: is it alone? If not, and it may not wait, it keeps `instead`.
    #[inline]
    fn alone(&self, word: u32, until: Until, instead: u32) -> bool {
        self.owner.store(P::current().0, Relaxed);
        if word & BIASED == 0 || self.drain(until) {
            return true;
        }
        self.release(DRAINING, instead);
        false
    }

    /// A reader that neither its own place nor READERS knows: it came in on another thread, or under another id before a fork.
    #[cold]
    #[inline(never)]
    fn unlock_elsewhere(&self) {
        // A release too many, which is the program's mistake, finds nothing however often it looks.
        for _ in 0..LOOKS_ELSEWHERE {
            // Takes back what took READERS below zero, before the place is empty: B5 must count the others. Who has seen too many readers may sleep.
            // ORDER: Acquire, pairs with R1: whoever left by our count knows of the place.
            if self.state.fetch_add(READER.wrapping_sub(VERSION), Acquire) & SLEEPER != 0 {
                P::wake(&self.state, u32::MAX);
            }
            for thread in (1..P::most_threads()).map(ThreadId) {
                if self.leave_place(P::reading(thread)) {
                    return;
                }
            }
            // Meanwhile a counted reader, whose count our step had hidden, has left by our place, and left us its count. We have released already.
            let was = self.state.fetch_add(VERSION - READER, Relaxed);
            if was & READERS != 0 {
                return self.after_read(was);
            }
        }
        self.state.fetch_add(READER.wrapping_sub(VERSION), Relaxed);
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

    #[cold]
    #[inline(never)]
    fn upgrade_by(&self, deadline: Option<Deadline>) -> bool {
        P::register_lazily();
        let since = P::now_ns();
        loop {
            let word = self.state.load(Relaxed);
            if word & READERS == 0 {
                // ORDER: Acquire (U1), pairs with R1.
                if self.state.compare_exchange(word, Self::upgraded(word), Acquire, Relaxed).is_ok() {
                    // UPGRADING is gone in either case.
                    return self.alone(word, deadline.into(), UPGRADABLE | BIASED);
                }
                continue;
            }
            if deadline.is_some_and(P::past) {
                if word & UPGRADING != 0 {
                    self.release(UPGRADING, 0);
                }
                return false;
            }
            let now = P::now_ns();
            if word & UPGRADING == 0 {
                self.state.fetch_or(UPGRADING, Relaxed);
            } else if now >= since + SPIN_NS {
                self.sleep(word, 0, deadline);
            } else {
                spin_until::<P>(now + ((now - since) / 4).clamp(POLL_NS, POLL_MAX_NS));
            }
        }
    }
}

impl<P: Platform, N: Preemption> RawRwLock<P> for Wakeful<P, N> {
    type Node = ();

    fn new() -> Self {
        Self {
            state: P::AtomicU32::new(0),
            owner: P::AtomicU32::new(0),
            front: P::AtomicU32::new(0),
            line: mutex::Wakeful::new(),
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
        wait::outside::<N, P>();
    }

    #[inline]
    unsafe fn write(&self, _: &()) {
        Self::inside(|| self.write_by(None));
    }

    #[inline]
    unsafe fn try_write(&self, _: &()) -> bool {
        Self::inside(|| self.try_take(Want::Write, 0))
    }

    #[inline]
    unsafe fn unlock_write(&self, _: &()) {
        let word = self.state.load(Relaxed);
        let new = (word & !WRITER).wrapping_add(version(WRITER));
        // ORDER: Release (R2), pairs with A1 and A2; publishes the protected data.
        if word & SLEEPER != 0 || self.state.compare_exchange(word, new, Release, Relaxed).is_err() {
            self.release(WRITER, 0);
        }
        wait::outside::<N, P>();
    }
}

impl<P: Platform, N: Preemption> RawRwLockTimed<P> for Wakeful<P, N> {
    #[inline]
    unsafe fn read_until(&self, _: &(), deadline: Deadline) -> bool {
        Self::inside(|| self.read_by(Want::Read, Some(deadline)))
    }

    #[inline]
    unsafe fn write_until(&self, _: &(), deadline: Deadline) -> bool {
        Self::inside(|| self.write_by(Some(deadline)))
    }
}

impl<P: Platform, N: Preemption> RawRwLockRecursive<P> for Wakeful<P, N> {
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

impl<P: Platform, N: Preemption> RawRwLockUpgrade<P> for Wakeful<P, N> {
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
        Self::inside(|| self.try_take(Want::Upgradable, DEMAND) || self.wait(Want::Upgradable, Some(deadline)))
    }

    #[inline]
    unsafe fn unlock_upgradable(&self) {
        self.release(UPGRADABLE, 0);
        wait::outside::<N, P>();
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
