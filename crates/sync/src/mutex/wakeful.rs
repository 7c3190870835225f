// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakeful`: the default mutex, one word that knows who is awake.
//!
//! A barging lock in which at most a few running threads contend, one *standby* watches, and everybody else sleeps in line. While the
//! holder runs and comes back at once, the lock stays with it, because moving the lock and the data behind it to another
//! processor costs more than the critical section; the standby takes it over by the clock. When the holder does not run, nobody spins.
//! Choose it unless you know better; `native` where an idle processor must never be woken by a timer.
//!
//! The shape is Linux's `qspinlock` (locked bit, pending waiter, tail of a queue of processor numbers in one word) with thread ids
//! for processor numbers, sleeping for spinning in the queue, and barging. From TR 1994: what the kernel says of a
//! thread decides (section 4.1, Smart Queue; here of the holder), and the hand-over is offered and rescinded rather than awaited (section 4.1, figures 2
//! and 4). From ICPP 2001, section 4, its rule to block rather than spin, in the one case that a lock can tell: the preempted thread of higher priority is
//! the holder. From Dice ("Malthusian Locks", EuroSys 2017): surplus contenders are kept asleep. The relay (Q4) and sharing (W4) are ours.
//!
//! # State
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | 0 | LOCKED | held |
//! | 1 | STANDBY | the standby role is taken, or on its way to a thread (I3) |
//! | 2 | KICK | the standby sleeps on this word: the release must wake it; kept beside HANDOFF: it has been woken |
//! | 3 | HANDOFF | the standby has waited its turn: others should leave the lock to it |
//! | 4-6 | GENERATION | of the process that set STANDBY; see [`Platform::generation`] |
//! | 7 | RELAY | the thread that stepped aside will promote the next standby |
//! | 8-19 | OWNER | thread id of the holder, 0 if it has none; HINT: 0 says nothing |
//! | 20-31 | NEWEST | thread id of the sleeper who came last, 0 if nobody sleeps in line |
//!
//! In a thread's block ([`Platform::word`]): OLDER, the sleeper who came before it; NEWER, who came after it, filled in by whoever walks
//! the line; OLDEST, itself if nobody slept when it came, or whom the standby shows to a relay (W6); STATE,
//! `IDLE -> ASLEEP or AWAKE -> PROMOTED or PASSED -> IDLE`, and `AWAKE -> ASLEEP`, both with KEPT if it has been passed since it came; and its
//! memory of how it fared (W4), hints all.
//!
//! `0 -> L` and `L -> 0` are the fast path, and `f -> f|L -> f` for any free value `f` that the thread saw last: its
//! *stamp* ([`Platform::stamp`]) remembers `f`, so that a lock with sleepers still takes one compare-and-swap.
//!
//! # Invariants
//!
//! I1. LOCKED is set exactly while one thread is between A1, A2 or A3 and R1.
//! I2. NEWEST is not 0 only while STANDBY is set. Sleepers never leave by themselves.
//! I3. While STANDBY is set, exactly one of these holds the *role*: the standby; a thread with STATE = PROMOTED; the holder
//!     between A3 and Q3; a standby that gives up, between G2 and its Q3; the thread whose RELAY was set when HANDOFF was cleared by A3 or
//!     G2, until its Q3. Only the role takes sleepers off the line.
//! I4. HANDOFF is set only by the standby. RELAY is set only beside HANDOFF, by a thread that is awake and remembers it.
//! I5. KICK is set only while LOCKED, by the standby, before it sleeps on the word. A free word has it only beside HANDOFF.
//! I6. Whoever holds the role is awake, or naps for a bounded time, or is asleep on the word with KICK set, or has been woken.
//!
//! # Protocol
//!
//! Acquire. A1. Compare-and-swap the stamp's free value to held. A2. Or, in `lock_slow`, any free value without HANDOFF.
//! A3. The standby: free -> held, clearing KICK, HANDOFF and RELAY; clearing STANDBY and the rest if nobody sleeps in line. If
//!     somebody does and RELAY was not set, it promotes (Q3) before it returns.
//! Release. R1. Clear LOCKED, OWNER and (without HANDOFF) KICK. R2. If KICK was set, wake the word: only the standby sleeps there.
//! R3. A thread that releases in order to wait for something else ends the standby's nap, if it naps ([`RawMutex::leaving`]).
//! Wait. W1. An arrival looks at the word with growing gaps for ARRIVAL_NS at most, while the holder runs, is not known to come back at
//!     once (W3), and HANDOFF is not set; of a holder of whom nobody knows whether it runs, for the less, the oftener it did so in vain (halved each
//!     time, 5 times).
//! W2. Then Q1. A waiter with a deadline never joins the line, and one without an id cannot. If the role is taken, they go to a waiting room
//!     ([`crate::wait::room`]) and sleep until they have its turn. Then a waiter without a deadline joins the line under the room's id, and leaves the
//!     room as the standby. One with a deadline naps between looks. Without a room both do.
//! W3. A waiter that finds free a lock for which somebody else runs too (it saw it held by a thread that runs, or was in line) looks
//!     SAMPLES times more. If one owner has it again, the lock is *hot*: it leaves it and naps (standby) or goes to Q1 (arrival).
//! W4. If the owner hardly ever has it, or shares itself, the lock is not what the threads wait for: the thread *shares*, that is, it
//!     takes locks when it finds them free, until it waits for more than a quarter of its time.
//! W5. The standby sleeps on the word (I5) if the holder does not run, or when it has been the standby for SPIN_NS, or has demanded the lock for
//!     TURN_NS; of a holder of whom nobody knows whether it runs, for less, as in W1.
//! W6. After its patience (PATIENCE_NS; TURN_NS if others sleep in line), and again whenever that was
//!     rescinded, it stores the oldest sleeper in OLDEST of the newest and sets HANDOFF; after twice that, if the holder does not run and it is not W8: a demand from a sleeper leaves the lock idle until it is awake.
//! W7. Who finds the lock free with HANDOFF leaves it for GRACE_NS (SPIN_NS if KICK says that the standby is being woken), setting RELAY if somebody sleeps in line, and after that takes it and clears
//!     both: the standby is not awake. (Not if the RELAY is another's: that thread tells from HANDOFF whether the standby came.)
//!     The standby sets HANDOFF again when it runs. It leaves the thread that steps aside RELAY_NS to see HANDOFF, and to set RELAY.
//! W8. Where there is room for all ([`Platform::roomy`]) sleep helps nobody of our own, and beside other programs costs slices: there this is a queue lock. Who comes goes to Q1 at once, with growing
//!     pauses between attempts; in line it looks at its STATE (AWAKE) LINE_LOOKS times before it sleeps; as the standby it takes what it finds free without W3, unless it has just lost the
//!     lock to the thread that had it before, and stays awake until it has demanded the lock for TURN_NS, whatever the holder does, unless the lock is hot.
//! P1. Meanwhile it looks whether the oldest in line, whom it will promote, is preempted: then it takes that one out (PASSED), which goes to Q1 again when it runs, and looks at the next, but not at the last; not after W6, when a relay may look for it.
//! P2. A standby (not of W8) that has not demanded the lock, and whose look of W3 finds it free throughout, takes the oldest out of the line (PASSED), one for each processor, but not the last: the
//!     line moves by a wake-up a turn, and is not worth that where nobody holds the lock. They come back as arrivals
//!     do, without W3 until they see it held; those of W8 to Q1. It stops at one that has been passed before (KEPT): that one waits for its turn.
//! N1. With `N`: wish before A1 to A3, withdraw when that fails and between R1 and R2, repay after R2, as `tas-b-np` does. In W8 the standby wishes, too, and makes the wish for the one that it will promote; one that is warned gives up (G2),
//!     repays, and goes to Q1.
//! Queue. Q1. In one compare-and-swap take the role, if it is free, or push oneself (OLDER = the old NEWEST).
//! Q2. Sleep until STATE = PROMOTED; unlink oneself, the oldest, whose NEWER is the oldest then: if it is not filled in, clear NEWEST if that is oneself, else walk from there; be the standby. Q3. Promote: STATE of the oldest = PROMOTED, wake it if it was
//!     ASLEEP. The standby knows the oldest since Q2; from an empty line on, and a relay, finds the first OLDEST from the newest on.
//! Q4. The thread with RELAY, once HANDOFF is gone: Q3. It takes the lock for hot, now the former standby's, and goes to sleep next (Q1), so that the
//!     new standby finds its processor, and not the new holder's, free.
//! Give up. G1. At its deadline a waiter without a duty just leaves. G2. With RELAY: clear it, or, if HANDOFF is gone, Q3. The standby: clear
//!     the role if nobody sleeps in line; else clear HANDOFF and RELAY, and Q3 unless RELAY was set.
//!
//! # Memory order
//!
//! R1 release -> A1, A2, A3 acquire publishes the protected data; all other changes of the word are read-modify-writes, which
//! continue the release sequence. Q1 release -> acquire load in Q2 (unlink), W6 and Q3 publishes OLDER, NEWER and OLDEST. Q3, P1 and P2 release -> Q2 acquire
//! (STATE) publishes what the former role wrote in the blocks, and lets one that was passed (P1, P2) use its own anew; where the role passes by RELAY, A3 or G2 release -> Q4 acquire does. Hints are relaxed.
//!
//! # Under the scheduler
//!
//! *Holder preempted or blocked*: arrivals queue at once, the standby sleeps on the word (in W8 after its demand); its processor goes to somebody else, perhaps the holder.
//! *Next waiter preempted*: nothing is handed to it; others take the free lock (W7; in W8 those who come, the line stands until it runs). *More threads than processors*: all but the few
//! that run at all sleep in line, and the line advances once a turn. *Hint stale*: "runs" costs at most SPIN_NS of spinning, TURN_NS after a demand, and then
//! sleep; "does not run" costs a sleep and a wake-up a section, and in P1 a place in line; room for all where there is none, LINE_LOOKS of spinning for each in line. Neither touches I1 to I6 or W6. *Killed while holding*: lost, as with any lock that is not robust.
//! *Fork*: a copied word with another GENERATION is purged of everything but LOCKED and OWNER; one that comes through exactly eight forks, one in
//! the other, without being touched, is not told from the process's own. *Signal handler* that waits for another lock
//! while its thread is in line: STATE is not IDLE, so it does not join a line under that id (W2). While the handler runs its thread keeps its place, and the role when that comes; if
//! the handler waits for a thread that is in line behind it, both wait for ever (POSIX has no such handlers). One that forks by `_Fork` there and
//! goes on waiting in the child is not provided for.
//!
//! # Fairness and space
//!
//! Sleepers are served oldest first, one a turn. A turn is TURN_NS, or twice that beside a holder that does not run, and what the kernel adds until it runs the
//! standby, up to a tick if it queues the new standby behind the new holder. Arrivals may barge; while HANDOFF stands, only after GRACE_NS (but
//! `try_lock` at any time). So a waiter in line waits for as many turns as threads came before it, as long as the kernel runs each standby within the grace at some time:
//! starvation-free under that, not FIFO. Who is passed begins anew. P2 passes a waiter
//! once at most, so it waits in line twice at most. P1 passes it as often as it is preempted when its turn comes. Threads without an id have eight places in line together, which they
//! take in turns. Waiters with a deadline have no place in line; after TURN_NS they take a free lock without W3, and leave the
//! grace of W7 once, at the first demand that they meet. 4 bytes.
//!
//! # Rejected
//!
//! Each sleeper's NEWER filled in by the next as it comes: who leaves would have to wait for that. A shortcut to the oldest in the newest, kept at each unlinking: four moves of cache lines a section in W8.
//! Waking a sleeper at each contended release (glibc, std): on few processors the woken thread only displaces a running one. Spinning before sleeping
//! with no regard to who comes back: moves the data at every hand-over. A count of sleepers and a futex on the lock word: a hot word never holds
//! still for the kernel's comparison. Promoting at release instead of acquire: the waker then loses the free lock to the thread
//! it displaced. Rescinding the promotion of a thread that does not run, and keeping the role: two threads then swap turns at the others' cost. Keeping
//! the role when the oldest sleeper last ran on the new holder's processor, where Linux may queue it: made no difference.
//! A test of the word before the compare-and-swap on the fast path: 3 ns of 15.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom (2 and 3 threads, all hints, three speeds of the clock), shuttle (also with deadlines), three threads and shuttle also with room for all (W8), threads without ids (W2), words copied by fork; the twins without
//! acquire, without release, with lost wake-ups, and that promote or pass without telling are caught. shuttle found the double promotion that G2 now excludes.

use core::marker::PhantomData;
use platform::{
    Atomic, AtomicInt, Deadline, Ordering::*, Platform, RunState, STAMP_ID, STAMP_SHIFT, StaticPlatform, ThreadId, Wish,
};

use super::{RawMutex, RawMutexTimed};
use crate::wait::room::Stay;
use crate::wait::{self, Preemptable, Preemption};

const LOCKED: u32 = 1;
const STANDBY: u32 = 1 << 1;
const KICK: u32 = 1 << 2;
const HANDOFF: u32 = 1 << 3;
const GENERATION_SHIFT: u32 = 4;
const GENERATION: u32 = 7 << GENERATION_SHIFT;
const RELAY: u32 = 1 << 7;
const OWNER: u32 = STAMP_ID;
const NEWEST_SHIFT: u32 = 20;
const NEWEST: u32 = 0xfff << NEWEST_SHIFT;

// Words of a thread's block, see `Platform::word`: its place in line ...
const OLDER: usize = 0;
const NEWER: usize = 1;
const OLDEST: usize = 2;
const STATE: usize = 3;
// ... and its memory (W4): ns waited and ns between waits, both decaying; when it last had to wait; SHARING, or for how many waits not to try.
const WAITED: usize = 4;
const BETWEEN: usize = 5;
const LAST: usize = 6;
const MODE: usize = 7;

/// Values of STATE.
const IDLE: u32 = 0;
const ASLEEP: u32 = 1;
const PROMOTED: u32 = 2;
const AWAKE: u32 = 3;
const PASSED: u32 = 4;
/// Beside ASLEEP and AWAKE: it has been passed since it came (P2).
const KEPT: u32 = 8;

/// Values of MODE ...
const SHARING: u32 = 1 << 31;
const BAN: u32 = 60;
/// ... and in it, how often of late the thread spun in vain in the dark, as a standby (W5) and as an arrival (W1).
const STANDBY_VAIN: u32 = 8;
const ARRIVAL_VAIN: u32 = 11;
const VAIN_MOST: u32 = 5;
const VAIN: u32 = 7 << STANDBY_VAIN | 7 << ARRIVAL_VAIN;

// COST: all in ns, tuned on two virtual processors (Xeon, 2.6 GHz, Linux 6.18, November 2026) where a cache line changes its processor in 60 to 150 ns, a
// context switch takes 1 us, and an idle processor wakes up in 15 to 40 us.
/// Between two looks of a sample: a cache line's way there and back.
const SAMPLE_NS: u64 = 130;
/// Looks in a sample: a lock that is held a fifth of the time passes for shareable in 3 % of the samples.
const SAMPLES: u32 = 24;
/// What one wait counts in the memory at most: more is not contention but a preempted holder.
const WAIT_MOST_NS: u64 = 1_000;
/// Between two looks of a waiter: from this ...
const POLL_NS: u64 = 300;
/// ... or this, if it shares ...
const POLL_SHARING_NS: u64 = 50;
/// ... to this, growing with the wait.
const POLL_MAX_NS: u64 = 5_000;
/// An arrival looks this long before it queues: a few context switches (Karlin et al. 1991).
const ARRIVAL_NS: u64 = 3_000;
/// A standby stays awake this long for a holder that runs: an idle processor's way to sleep and back.
const SPIN_NS: u64 = 50_000;
/// A standby's first nap beside a hot lock; the next are longer.
const NAP_NS: u64 = 30_000;
/// Who cannot join the line naps longer when it has waited for long: it loses so small a part of its wait, and this at most.
const NAP_PART: u64 = 16;
const NAP_MOST_NS: u64 = 1_000_000;
/// A lone standby lets a hot lock alone this long. One hand-over of data costs up to 5 us, so this loses a twentieth at most.
const PATIENCE_NS: u64 = 100_000;
/// A standby with others behind it: a promotion costs two context switches and two system calls besides. And so long it stays awake after a demand: a wake-up
/// while the lock is kept for it costs as much as a fiftieth of a section that is longer.
const TURN_NS: u64 = 500_000;
/// A standby that demanded leaves the thread that steps aside this long to set RELAY.
const RELAY_NS: u64 = 500;
/// A free lock is left to a standby that demanded it this long; one that runs needs a tenth, or RELAY_NS more where nobody steps aside.
const GRACE_NS: u64 = 2_000;

// COST: of W8, found on simulated machines of 64 to 1,024 processors (`wakeful sim defaults`): nobody had a real one.
/// Who is in line looks so often before it sleeps, with so many pauses between: 15 to 70 ms.
const LINE_LOOKS: u32 = 100_000;
const LINE_PAUSES: u32 = 16;
/// Pauses before it tries again to get into line, at first and at most: 1,024 threads that come at once get in one after the other.
const AGAIN_PAUSES: u32 = 32;
const AGAIN_MOST_PAUSES: u32 = 32_768;
/// So many are passed over in a row (P1): whoever it is then may well run.
const PASSES: u32 = 64;

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
    ThreadId(word >> NEWEST_SHIFT)
}

impl<P: StaticPlatform, N> Wakeful<P, N> {
    /// A free lock, for a `static`.
    pub const INIT: Self = Self { word: P::ZERO_U32, platform: PhantomData };
}

impl<P: Platform, N: Preemption> Wakeful<P, N> {
    /// Can it be that the calling thread holds the lock? False: it does not, or took it under another id (before a fork, or before it unregistered). True: it
    /// does, or a thread without an id does.
    pub fn may_be_mine(&self) -> bool {
        let word = self.word.load(Relaxed);
        word & LOCKED != 0 && (owner(word) == ThreadId::NONE || owner(word) == P::current())
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
        // A2, HANDOFF or not: somebody who tries will not wait. ORDER: Acquire, pairs with R1.
        let mut word = self.word.load(Relaxed);
        while word & LOCKED == 0 {
            match self.word.compare_exchange_weak(word, word | LOCKED | P::stamp() & OWNER, Acquire, Relaxed) {
                Ok(_) => {
                    wait::inside::<N, P>(me);
                    return true;
                }
                Err(now) => word = now,
            }
        }
        wait::unshield::<N, P>(me);
        false
    }

    fn leaving(&self) {
        if self.word.load(Relaxed) & (STANDBY | LOCKED) == STANDBY {
            P::rouse(&self.word);
        }
    }

    #[inline]
    unsafe fn unlock(&self, _: &()) {
        // R1. ORDER: Release, pairs with A1, A2 and A3.
        let stamp = P::stamp();
        if let Err(word) = self.word.compare_exchange(stamp | LOCKED, stamp & !OWNER, Release, Relaxed) {
            return self.unlock_slow(word);
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

fn spin_until<P: Platform>(ns: u64) {
    loop {
        P::pause();
        if P::now_ns() >= ns {
            return;
        }
    }
}

/// What a waiting thread knows of its wait. Times in ns.
struct Waiter<P: Platform> {
    me: ThreadId,
    deadline: Option<Deadline>,
    /// Under this id it may join the line; NONE: it may not (W2).
    place: ThreadId,
    /// It has the turn in a waiting room (W2).
    stay: Option<Stay<P>>,
    arrived: u64,
    /// It is the standby, since then.
    standby: bool,
    since: u64,
    /// It set HANDOFF then (W6).
    demanded: Option<u64>,
    /// Until then it leaves a free lock to the standby, or as the standby to a relay (W7).
    grace: Option<u64>,
    /// RELAY is its own (Q4).
    relay: bool,
    /// How long it naps next.
    nap: u64,
    /// It has met somebody who runs and wants the lock too, this thread if it saw it: it looks closely before it takes the lock (W3).
    wary: bool,
    seen: ThreadId,
    /// As an arrival it spins for a holder of whom nobody knows whether it runs (W1); as the standby it did so in vain (W5).
    dark: bool,
    vain: bool,
    /// The holder comes back at once (W3).
    hot: bool,
    /// It takes what it finds free (W4).
    share: bool,
    /// It waits awake (W8). As the standby it promotes this thread next, if there is one.
    awake: bool,
    next: ThreadId,
    /// KEPT once it has been passed, before that 0.
    kept: u32,
}

impl<P: Platform> Waiter<P> {
    fn leave_room(&mut self) {
        if let Some(stay) = self.stay.take() {
            self.place = ThreadId::NONE;
            stay.end();
        }
    }
}

impl<P: Platform, N: Preemption> Wakeful<P, N> {
    #[cold]
    #[inline(never)]
    fn lock_slow(&self, word: u32, deadline: Option<Deadline>) -> bool {
        // A2. ORDER: Acquire, pairs with R1.
        if word & (LOCKED | HANDOFF) == 0
            && self.word.compare_exchange(word, word | LOCKED | P::stamp() & OWNER, Acquire, Relaxed).is_ok()
        {
            P::set_stamp(word);
            return true;
        }
        self.lock_contended(word, deadline)
    }

    #[cold]
    #[inline(never)]
    fn lock_contended(&self, word: u32, deadline: Option<Deadline>) -> bool {
        let me = P::register_lazily();
        wait::unshield::<N, P>(me);
        let now = P::now_ns();
        P::refresh_processors(Some(now));
        // A signal handler that waits while its thread is in a queue finds the thread's words taken.
        let queues = me != ThreadId::NONE && deadline.is_none() && P::word(me, STATE).load(Relaxed) == IDLE;
        let awake = queues && P::roomy();
        let mut waiter = Waiter {
            me,
            deadline,
            arrived: now,
            standby: false,
            since: now,
            demanded: None,
            grace: None,
            relay: false,
            nap: NAP_NS,
            wary: awake,
            seen: ThreadId::NONE,
            dark: false,
            vain: false,
            hot: false,
            share: awake || shares::<P>(me, now),
            place: if queues { me } else { ThreadId::NONE },
            stay: None,
            awake,
            next: ThreadId::NONE,
            kept: 0,
        };
        if awake {
            self.wait_awake(word, &mut waiter);
            return true;
        }
        let locked = self.wait(&mut waiter);
        waiter.leave_room();
        remember::<P>(me, waiter.arrived);
        locked
    }

    /// W8. Waits in line, then as the standby, and takes the lock.
    fn wait_awake(&self, mut word: u32, waiter: &mut Waiter<P>) {
        loop {
            while !waiter.standby {
                if self.purge(word) {
                    word = self.word.load(Relaxed);
                } else {
                    self.enlist(word, waiter);
                }
            }
            let me = wait::shield::<N, P>();
            loop {
                word = self.word.load(Relaxed);
                if word & LOCKED == 0 {
                    if self.take(word, waiter) {
                        return;
                    }
                } else if N::WISHES && P::warning(me) && !wait::is_inside::<P>(me) {
                    break;
                } else {
                    waiter.seen = owner(word);
                    if waiter.demanded.is_none() {
                        waiter.next = self.pass(waiter.next);
                    }
                    self.stand_by(word, waiter, RunState::Running, P::now_ns());
                }
            }
            // N1.
            self.resign(waiter);
            wait::unshield::<N, P>(me);
            P::pause();
            waiter.standby = false;
        }
    }

    /// Waits for the lock and takes it; false at the deadline.
    fn wait(&self, waiter: &mut Waiter<P>) -> bool {
        loop {
            let word = self.word.load(Relaxed);
            if !waiter.standby && self.purge(word) {
                continue;
            }
            if waiter.relay && word & HANDOFF == 0 {
                // Q4.
                waiter.relay = false;
                self.promote(ThreadId::NONE);
                // It is the other's turn.
                waiter.hot = true;
                waiter.grace = None;
                continue;
            }
            if word & LOCKED == 0 {
                if self.take(word, waiter) {
                    return true;
                }
                if waiter.deadline.is_some_and(P::past) {
                    // No time to be choosy: takes it at the next look, or leaves.
                    waiter.share = true;
                    waiter.hot = false;
                }
                continue;
            }
            let seen = owner(word);
            if !waiter.share && is_sharing::<P>(seen) && try_share::<P>(waiter.me) {
                waiter.share = true;
                waiter.hot = false;
            }
            if let Some(deadline) = waiter.deadline
                && P::past(deadline)
            {
                self.resign(waiter);
                return false;
            }
            let now = P::now_ns();
            // HINT: wrong either way, it costs a spin or a sleep: see the head of this file.
            let state = P::run_state(seen);
            let running = !matches!(state, RunState::Preempted | RunState::Blocked);
            let arrival = if state == RunState::Unknown {
                in_the_dark::<P>(waiter.me, ARRIVAL_VAIN, ARRIVAL_NS)
            } else {
                ARRIVAL_NS
            };
            // A holder without a processor is no contention.
            waiter.wary = running;
            waiter.seen = seen;
            if waiter.standby {
                self.stand_by(word, waiter, state, now);
            } else if running && !waiter.hot && word & HANDOFF == 0 && now < waiter.arrived + arrival {
                waiter.dark = state == RunState::Unknown;
                let gap = ((now - waiter.arrived) / 4)
                    .clamp(if waiter.share { POLL_SHARING_NS } else { POLL_NS }, POLL_MAX_NS);
                spin_until::<P>(now + gap);
            } else if waiter.relay {
                // Somebody else has barged in.
                waiter.relay = self.word.compare_exchange(word, word & !RELAY, Relaxed, Relaxed).is_err();
            } else {
                if waiter.dark && !waiter.hot && word & HANDOFF == 0 {
                    waiter.dark = false;
                    learn::<P>(waiter.me, ARRIVAL_VAIN, true);
                }
                self.enlist(word, waiter);
            }
        }
    }

    /// The lock is free; takes it, unless it should not.
    fn take(&self, word: u32, waiter: &mut Waiter<P>) -> bool {
        if word & HANDOFF != 0 && !waiter.standby {
            // W7.
            waiter.share = false;
            keep::<P>(waiter.me);
            if word & RELAY == 0 && word & NEWEST != 0 {
                waiter.relay = self.word.compare_exchange(word, word | RELAY, Relaxed, Relaxed).is_ok();
                return false;
            }
            let now = P::now_ns();
            let grace = if word & KICK == 0 { GRACE_NS } else { SPIN_NS };
            if now < *waiter.grace.get_or_insert(now + grace) {
                P::pause();
                return false;
            }
        } else if waiter.wary && !waiter.share && !waiter.hot && waiter.demanded.is_none() {
            // W3.
            let mut seen = waiter.seen;
            let mut locked = 0;
            let mut sample = P::now_ns();
            for _ in 0..SAMPLES {
                sample += SAMPLE_NS;
                spin_until::<P>(sample);
                let word = self.word.load(Relaxed);
                if word & LOCKED != 0 {
                    if seen != ThreadId::NONE && owner(word) != seen {
                        waiter.share = waiter.awake;
                        return false;
                    }
                    seen = owner(word);
                    locked += 1;
                }
            }
            if locked == 0 && waiter.standby && !waiter.awake {
                waiter.next = self.thin(waiter.next);
                // Until it is held again: those of W8 come back to the line, and our next attempt fails when they do.
                waiter.wary = false;
            }
            waiter.share = locked == 1 && (waiter.awake || try_share::<P>(waiter.me));
            if locked > 0 && !waiter.share {
                waiter.hot = true;
                return false;
            }
        } else if waiter.hot && waiter.grace.is_none() && waiter.demanded.is_none() {
            if waiter.standby {
                let now = P::now_ns();
                self.stand_by(word, waiter, RunState::Running, now);
            } else {
                self.enlist(word, waiter);
            }
            return false;
        }
        if waiter.standby && word & HANDOFF != 0 && word & RELAY == 0 {
            // W7, the standby's side.
            let now = P::now_ns();
            if now < *waiter.grace.get_or_insert(now + RELAY_NS) {
                P::pause();
                return false;
            }
        }
        let mine = LOCKED | P::stamp() & OWNER;
        let new = if !waiter.standby {
            // The standby did not come within the grace: it is not awake. It will ask again. Another thread's
            // relay tells from HANDOFF whether the standby has the lock, so that only its owner may clear it.
            let rescinded = if waiter.relay || word & RELAY == 0 { HANDOFF | RELAY | KICK } else { 0 };
            word & !rescinded | mine
        } else if word & NEWEST == 0 {
            mine
        } else {
            word & !(KICK | HANDOFF | RELAY) | mine
        };
        wait::shield::<N, P>();
        // A2, A3. ORDER: Acquire, pairs with R1; Release, pairs with the Acquire in `head`: the role may pass to a relay.
        if let Err(now) = self.word.compare_exchange(word, new, AcqRel, Relaxed) {
            if waiter.awake {
                // W8.
                waiter.share = owner(now) != waiter.seen;
            } else {
                wait::unshield::<N, P>(waiter.me);
            }
            return false;
        }
        if waiter.standby && new & NEWEST != 0 && word & RELAY == 0 {
            self.promote(waiter.next);
        }
        if waiter.standby && !waiter.vain {
            learn::<P>(waiter.me, STANDBY_VAIN, false);
        } else if waiter.dark {
            learn::<P>(waiter.me, ARRIVAL_VAIN, false);
        }
        true
    }

    /// One step of the standby beside a lock that is held, or hot.
    fn stand_by(&self, word: u32, waiter: &mut Waiter<P>, state: RunState, now: u64) {
        let running = !matches!(state, RunState::Preempted | RunState::Blocked);
        let dark = state == RunState::Unknown;
        let limit = match state {
            RunState::Unknown => in_the_dark::<P>(waiter.me, STANDBY_VAIN, SPIN_NS),
            // It demands the lock before.
            _ if waiter.awake => TURN_NS,
            _ => SPIN_NS,
        };
        let waited = now.saturating_sub(waiter.since);
        let patience = if word & NEWEST == 0 { PATIENCE_NS } else { TURN_NS };
        let due = waited >= if running { patience } else { 2 * patience };
        if word & HANDOFF == 0 && (waiter.demanded.is_some() || due) {
            // W6. HINT: in time whatever it says.
            waiter.next = self.show(waiter.next);
            self.word.fetch_or(HANDOFF, Relaxed);
            waiter.demanded = Some(now);
            waiter.grace = None;
        } else if !running {
            self.sleep_on_word(word, waiter);
        } else if let Some(demanded) = waiter.demanded {
            if now < demanded + if dark { limit } else { TURN_NS } {
                P::pause();
            } else {
                self.sleep_on_word(word, waiter);
            }
        } else if waiter.hot {
            P::nap_beside(&self.word, waiter.nap);
            waiter.nap = (waiter.nap * 2).min(PATIENCE_NS);
            waiter.hot = false;
        } else if waited < limit && waiter.awake {
            P::pause();
        } else if waited < limit {
            spin_until::<P>(now + (waited / 4).clamp(POLL_NS, POLL_MAX_NS));
        } else {
            if dark && !waiter.vain {
                waiter.vain = true;
                learn::<P>(waiter.me, STANDBY_VAIN, true);
            }
            self.sleep_on_word(word, waiter);
        }
    }

    /// W5. Sleeps until the release, unless the word changes first.
    fn sleep_on_word(&self, word: u32, waiter: &Waiter<P>) {
        if word & KICK == 0 && self.word.compare_exchange(word, word | KICK, Relaxed, Relaxed).is_err() {
            return;
        }
        P::wait(&self.word, word | KICK, waiter.deadline);
    }

    /// Q1 and Q2: returns as the standby. (W2: or after a nap.)
    fn enlist(&self, mut word: u32, waiter: &mut Waiter<P>) {
        let me = waiter.place;
        if me != ThreadId::NONE {
            P::word(me, STATE).store(waiter.kept | if waiter.awake { AWAKE } else { ASLEEP }, Relaxed);
        }
        waiter.next = ThreadId::NONE;
        let mut pauses = AGAIN_PAUSES;
        loop {
            let new = if word & STANDBY == 0 {
                word | STANDBY | P::generation() << GENERATION_SHIFT
            } else if me != ThreadId::NONE {
                let older = newest(word);
                P::word(me, OLDER).store(older.0, Relaxed);
                P::word(me, NEWER).store(0, Relaxed);
                P::word(me, OLDEST).store(if older == ThreadId::NONE { me.0 } else { 0 }, Relaxed);
                word & !NEWEST | me.0 << NEWEST_SHIFT
            } else if waiter.stay.is_none() && self.enter_room(waiter) {
                return;
            } else {
                P::nap_beside(&self.word, waiter.nap);
                let waited = P::now_ns().saturating_sub(waiter.arrived);
                waiter.nap = (waiter.nap * 2).min((waited / NAP_PART).clamp(PATIENCE_NS, NAP_MOST_NS));
                waiter.hot = false;
                waiter.grace = None;
                // It has no place in line, so it is not to be choosy for longer than a turn.
                waiter.share = waited >= TURN_NS;
                return;
            };
            // ORDER: Release, pairs with the Acquire in `head` and `unlink`; publishes our links.
            match self.word.compare_exchange_weak(word, new, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => word = now,
            }
            if waiter.awake {
                wait::pause::<P>(pauses);
                pauses = (pauses * 2).min(AGAIN_MOST_PAUSES);
                word = self.word.load(Relaxed);
            }
        }
        if word & STANDBY != 0 {
            if self.sleep_in_line(me) == PASSED {
                wait::unshield::<N, P>(waiter.me);
                waiter.wary = waiter.awake;
                waiter.hot = false;
                waiter.dark = false;
                waiter.grace = None;
                waiter.arrived = P::now_ns();
                waiter.kept = KEPT;
                // HINT: that it was preempted (P1); if that is not so and stays so, it would be passed each time.
                P::register_lazily();
                return P::word(me, STATE).store(IDLE, Relaxed);
            }
            waiter.next = self.unlink(me, true);
            waiter.hot = false;
            waiter.share = waiter.awake;
            waiter.wary = true;
            waiter.seen = ThreadId::NONE;
        }
        if me != ThreadId::NONE {
            P::word(me, STATE).store(IDLE, Relaxed);
        }
        // The next one may use the room's id from here on.
        waiter.leave_room();
        waiter.standby = true;
        waiter.since = P::now_ns();
        waiter.demanded = None;
        waiter.grace = None;
        waiter.nap = NAP_NS;
    }

    /// W2. Sleeps in a waiting room until it has the turn there. False if there is no room, or the deadline has passed.
    fn enter_room(&self, waiter: &mut Waiter<P>) -> bool {
        let Some(stay) = Stay::begin(core::ptr::from_ref(self).cast(), waiter.deadline) else { return false };
        if waiter.deadline.is_none() {
            waiter.place = stay.guest();
        }
        waiter.stay = Some(stay);
        waiter.hot = false;
        waiter.grace = None;
        true
    }

    /// Q2, W8: until STATE is PROMOTED, or PASSED.
    fn sleep_in_line(&self, me: ThreadId) -> u32 {
        let state = P::word(me, STATE);
        let mut looks = 0;
        loop {
            // ORDER: Acquire, pairs with Q3; publishes the links that others wrote.
            let now = state.load(Acquire);
            match now & !KEPT {
                ASLEEP => _ = P::wait(state, now, None),
                AWAKE if looks < LINE_LOOKS.min(P::PAUSES) => {
                    wait::pause::<P>(LINE_PAUSES);
                    looks += 1;
                }
                AWAKE => _ = state.compare_exchange(now, ASLEEP | now & KEPT, Relaxed, Relaxed),
                news => return news,
            }
        }
    }

    /// The deadline has passed: gives back every duty (G2).
    fn resign(&self, waiter: &Waiter<P>) {
        let mut word = self.word.load(Relaxed);
        if waiter.relay {
            loop {
                if word & HANDOFF == 0 {
                    return self.promote(ThreadId::NONE);
                }
                match self.word.compare_exchange_weak(word, word & !RELAY, Relaxed, Relaxed) {
                    Ok(_) => return,
                    Err(now) => word = now,
                }
            }
        } else if waiter.standby {
            loop {
                let alone = word & NEWEST == 0;
                let new = if alone { word & (LOCKED | OWNER) } else { word & !(HANDOFF | RELAY | KICK) };
                // ORDER: Release, pairs with the Acquire in `head`: the role may pass to a relay.
                match self.word.compare_exchange_weak(word, new, Release, Relaxed) {
                    Ok(_) if alone || word & RELAY != 0 => return,
                    Ok(_) => return self.promote(waiter.next),
                    Err(now) => word = now,
                }
            }
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

    #[cold]
    #[inline(never)]
    fn unlock_slow(&self, mut word: u32) {
        loop {
            // A standby that demanded the lock finds KICK still set, and so do those who leave it the lock: it is on its way (W7).
            let kick = if word & HANDOFF == 0 { KICK } else { 0 };
            // R1. ORDER: Release, pairs with A1, A2 and A3.
            match self.word.compare_exchange_weak(word, word & !(LOCKED | OWNER | kick), Release, Relaxed) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        let me = wait::withdraw::<N, P>();
        if word & KICK != 0 {
            // R2. The word may be gone by now; only its address is used.
            P::wake(&self.word, 1);
        }
        wait::repay::<N, P>(me);
    }

    /// Finds the thread that has slept longest, behind one that shows it (OLDEST). The caller has the role (I3).
    fn oldest(&self, newest: ThreadId) -> ThreadId {
        let mut thread = newest;
        loop {
            let oldest = P::word(thread, OLDEST).load(Relaxed);
            if oldest != 0 {
                return ThreadId(oldest);
            }
            thread = self.link(thread);
        }
    }

    /// Tells the sleeper that came before this one of it. Returns that.
    fn link(&self, thread: ThreadId) -> ThreadId {
        let older = ThreadId(P::word(thread, OLDER).load(Relaxed));
        P::word(older, NEWER).store(thread.0, Relaxed);
        older
    }

    /// The oldest sleeper: `next`, if that is known. NONE if nobody sleeps. The caller has the role (I3).
    fn head(&self, next: ThreadId) -> ThreadId {
        if next != ThreadId::NONE {
            return next;
        }
        // ORDER: Acquire, pairs with Q1.
        match newest(self.word.load(Acquire)) {
            ThreadId::NONE => ThreadId::NONE,
            newest => self.oldest(newest),
        }
    }

    /// W6. Shows the oldest sleeper, which it returns, to a relay.
    fn show(&self, next: ThreadId) -> ThreadId {
        let head = self.head(next);
        // ORDER: Acquire, pairs with Q1.
        let newest = newest(self.word.load(Acquire));
        if head != ThreadId::NONE {
            P::word(newest, OLDEST).store(head.0, Relaxed);
        }
        head
    }

    /// Q3. Gives the standby role to the oldest sleeper, `next` if that is known. The caller has the role (I3), and somebody sleeps.
    fn promote(&self, next: ThreadId) {
        self.tell(self.head(next), PROMOTED);
    }

    /// Ends a sleeper's wait.
    fn tell(&self, thread: ThreadId, news: u32) {
        let state = P::word(thread, STATE);
        // Q3, P1, P2. ORDER: Release, pairs with Q2.
        if state.swap(news, Release) & !KEPT == ASLEEP {
            P::wake(state, 1);
        }
    }

    /// P1. Takes those of the oldest who are preempted out of the line. Returns the oldest that is left.
    fn pass(&self, next: ThreadId) -> ThreadId {
        // HINT: wrong either way, somebody loses his place, or the lock its standby, for a slice.
        let preempted = |thread| P::run_state(thread) == RunState::Preempted;
        let oldest = self.pass_while(self.head(next), PASSES, preempted);
        if N::WISHES && oldest != ThreadId::NONE && P::wish(oldest) == Wish::Preemptable {
            // N1.
            P::change_wish(oldest, Wish::Preemptable, Wish::UnpreemptableOther);
        }
        oldest
    }

    /// P2. Returns the oldest that is left.
    fn thin(&self, next: ThreadId) -> ThreadId {
        let not_passed_yet = |thread| P::word(thread, STATE).load(Relaxed) & KEPT == 0;
        self.pass_while(self.head(next), P::processors(), not_passed_yet)
    }

    /// Takes the oldest out of the line, so many at most, but not the last. Returns the oldest that is left.
    fn pass_while(&self, mut oldest: ThreadId, most: u32, goes: impl Fn(ThreadId) -> bool) -> ThreadId {
        for _ in 0..most {
            if oldest == ThreadId::NONE || !goes(oldest) {
                break;
            }
            match self.unlink(oldest, false) {
                ThreadId::NONE => break,
                second => {
                    self.tell(oldest, PASSED);
                    oldest = second;
                }
            }
        }
        oldest
    }

    /// Takes the oldest out of the line, if it is not the last or `last` may go, too. Returns the one that is the oldest then.
    fn unlink(&self, oldest: ThreadId, last: bool) -> ThreadId {
        loop {
            let newer = P::word(oldest, NEWER).load(Relaxed);
            if newer != 0 {
                return ThreadId(newer);
            }
            // ORDER: Acquire, pairs with Q1.
            let word = self.word.load(Acquire);
            let mut thread = newest(word);
            if thread == oldest {
                if !last || self.word.compare_exchange(word, word & !NEWEST, Relaxed, Relaxed).is_ok() {
                    return ThreadId::NONE;
                }
                continue;
            }
            while thread != oldest {
                thread = self.link(thread);
            }
        }
    }
}

/// W4. Does this thread share locks now? It stops when it waits for more than a quarter of its time: with an eighth, one of
/// several threads was often found not to share, which cost up to a third of the rate (8 threads, 5 lines, 2000 units outside).
fn shares<P: Platform>(me: ThreadId, now: u64) -> bool {
    if me == ThreadId::NONE {
        return false;
    }
    let (waited, between) = (P::word(me, WAITED), P::word(me, BETWEEN));
    let since = (now as u32).wrapping_sub(P::word(me, LAST).load(Relaxed)).min(100_000);
    let sum = between.load(Relaxed) / 8 * 7 + since;
    between.store(sum, Relaxed);
    match mode::<P>(me) {
        SHARING if waited.load(Relaxed) < sum / 4 => true,
        SHARING => {
            set_mode::<P>(me, BAN);
            false
        }
        ban => {
            set_mode::<P>(me, ban.saturating_sub(1));
            false
        }
    }
}

fn mode<P: Platform>(thread: ThreadId) -> u32 {
    P::word(thread, MODE).load(Relaxed) & !VAIN
}

fn set_mode<P: Platform>(me: ThreadId, mode: u32) {
    let word = P::word(me, MODE);
    word.store(word.load(Relaxed) & VAIN | mode, Relaxed);
}

/// W1, W5. How long the thread spins for a holder of whom nobody knows whether it runs: this long at most.
fn in_the_dark<P: Platform>(me: ThreadId, shift: u32, most: u64) -> u64 {
    let vain = if me == ThreadId::NONE { 0 } else { P::word(me, MODE).load(Relaxed) >> shift & 7 };
    most >> vain
}

/// Remembers how that went.
fn learn<P: Platform>(me: ThreadId, shift: u32, vain: bool) {
    if me != ThreadId::NONE {
        let word = P::word(me, MODE);
        let old = word.load(Relaxed);
        let times = old >> shift & 7;
        let times = if vain { (times + 1).min(VAIN_MOST) } else { times.saturating_sub(1) };
        word.store(old & !(7 << shift) | times << shift, Relaxed);
    }
}

/// HINT: of another thread.
fn is_sharing<P: Platform>(thread: ThreadId) -> bool {
    thread != ThreadId::NONE && mode::<P>(thread) == SHARING
}

/// Adds a wait to the thread's memory.
fn remember<P: Platform>(me: ThreadId, arrived: u64) {
    if me == ThreadId::NONE {
        return;
    }
    let now = P::now_ns();
    let word = P::word(me, WAITED);
    word.store(word.load(Relaxed) / 8 * 7 + now.saturating_sub(arrived).min(WAIT_MOST_NS) as u32, Relaxed);
    P::word(me, LAST).store(now as u32, Relaxed);
}

/// W4. The thread stood in another's way: it shares no more, until it finds out anew.
fn keep<P: Platform>(me: ThreadId) {
    if is_sharing::<P>(me) {
        set_mode::<P>(me, 0);
    }
}

/// The thread met a lock that is nearly always free: it may share, if it does not already. False while it is banned.
fn try_share<P: Platform>(me: ThreadId) -> bool {
    if me == ThreadId::NONE || mode::<P>(me) != 0 {
        return is_sharing::<P>(me);
    }
    set_mode::<P>(me, SHARING);
    P::word(me, WAITED).store(0, Relaxed);
    P::word(me, BETWEEN).store(100_000, Relaxed);
    true
}
