// SPDX-License-Identifier: MIT OR Apache-2.0
//! `b-wakeful`: the default barrier; yields to its own threads, and sleeps where others would take what it yields.
//!
//! A thread at a barrier waits for threads of its own program. Some of those may have no processor. Then the best is to let them have ours, and
//! `sched_yield` does that for one context switch a thread and round, without waking anybody. Beside other programs it is the worst: Linux
//! charges a thread that yields for a whole slice, and the processor is gone for milliseconds. A thread that sleeps loses nothing, and
//! Linux preempts the other program as soon as it is woken. But to sleep and to be woken costs several switches. So:
//! - Before a thread yields, it asks how crowded the machine is ([`Platform::crowd`], a look a millisecond). More threads that can run than
//!   our parties and than processors: foreign load. Then all sleep at once, from the first episode on, as at the C library's barrier.
//!   [`BWakefulDrained`] asks first when it is made. Once its parties are on their way, nobody knows how many of them the count has.
//! - Where nobody can tell, the effect does. A thread that was away long asks how much processor time its process has got. While
//!   its threads only run or yield, they want all processors. If they got less, somebody else did.
//! - No foreign load: the last `processors()` to arrive may find all others running. They spin briefly, and yield when that was in vain (C-sched
//!   of TR 1994, figure 10, with a yield for its semaphore). Everybody else yields at once. With a processor for each, the spin is longer.
//! - A yield that nobody took, while more threads are missing than the other processors can run: some of those wait there for a
//!   processor. After [`LONELY_NS`] the waiter sleeps, and Linux moves one of them to its processor.
//! - Asleep, the first to arrive measures the work between two rounds. If it is little, rounds decide: for a while nobody sleeps (a
//!   trial), and what made more rounds is kept. If it is real work, sleeping is best, and nothing is tried.
//! - In a trial with a processor for each, our sleep does not help the others: they would come to our processor, and stay there. So the waiter
//!   spins, unless a quota makes its time dear, and yields rarely: if it yields while the others do not run, it gets its slices at the same time as these.
//! - More threads than processors, asleep, and little work: all go to one processor, their home. A wake-up there costs a switch; on
//!   another it costs an interrupt, and the wait for whoever runs there. Linux brings them together by itself now and then, and apart again.
//! - In a trial with a processor for each, who finds another of us on his processor leaves it. (An idle one is found by sleeping.)
//! - Who has waited very long sleeps in any case, and so does, once, who finds that he shares his processor with another party where there are
//!   processors for all: to be woken is how Linux lets a thread find an idle one; yielding keeps it where it is.
//!
//! `processors()` follows affinity and quota within a second: who waits long or judges has it looked at again.
//!
//! Choose it unless you know better. It lives in place (24 bytes), any thread may come, any may be the serial one, parties join and leave.
//! Who frees it may not do so before all waits have returned, which in Rust is the borrow checker's business; [`BWakefulDrained`] is for others.
//!
//! # State
//!
//! `state`: bits 0-15 the episode's number, bit 16 SLEEPERS, bits 17-31, signed, the arrivals that the episode still needs.
//!
//! | from | to | by |
//! |---|---|---|
//! | e, s, n > 1 | e, s, n - 1 | A1, arrival (with leaves: n - k, k arrivals at once) |
//! | e, s, 1 | e, s, 0 | A1, the last arrival |
//! | e, s, n <= 0 | e, s, n - 1 | A1, of one too many, who waits for A2 and arrives anew |
//! | e, s, n <= 0 | e + 1, 0, parties (EMPTY where there is none) | A2, by the last to arrive |
//! | e, s, n > 0 | e, s, n + 1 | J1, join |
//! | e, s, EMPTY | e, s, 1 | J1, where all parties had left |
//! | e, 0, n | e, 1, n | W3, about to sleep |
//!
//! `calls`: how often sleepers were woken. `parties`: arrivals that the next episode will need; bits 16-31 a note: the home, and 1 more, or, with a
//! processor for each, MET, who came to the slow path last (6 bits of its stack's address) and on which processor (8 bits). `mood`, `mood_since`, `mood_cpu`: what was
//! learned, see [`BWakeful::judge`]. Hints: races between writers lose a lesson, no more. `inside` (drained): bits 1-31 threads between
//! their arrival and their return; bit 0 DRAINING, somebody sleeps until there are none.
//!
//! `mood`, where more threads than processors (and fewer):
//!
//! | phase | waiters | ends when | then |
//! |---|---|---|---|
//! | 0 | spin, yield | the crowd tells of foreign load; or, untold, the processor time of [`FIRST_MS`] was less than all | asleep |
//! | asleep | sleep, at home if there is one | the crowd tells of none | 0 |
//! | | | the work is little, or nobody can tell of the crowd, for [`REST_MS`], longer after each failure | trial |
//! | trial | yield (spin) | [`TRIAL_MS`] have passed | as many rounds as asleep: kept; else asleep |
//! | kept | as in a trial | after [`FIRST_MS`], longer after each trial that did not fail: foreign load, as in phase 0; or, soon after the trial, fewer rounds than asleep | asleep, else 0 |
//!
//! In phase 0 and kept, `mood_since` and `mood_cpu` are those of a sample of processor time; asleep, `mood_cpu` is when the last episode
//! ended, in ns.
//!
//! # Invariants
//!
//! I1. `state` changes from one episode to the next in one step, A2. From the last arrival (A1) to it no other arrives, joins or leaves. Each arrival
//! learns its episode in the step in which it arrives.
//! I2. An arrival that finds none needed is not counted: A2 writes what the next episode needs, whatever was subtracted.
//! I3. Who sleeps has set SLEEPERS, or seen it set, in its own episode, and A2 of that episode sees it, because both change `state`.
//! I4. The number in `parties` changes only between the arrivals of a thread that answers for the change, so it stands still from the last arrival
//! that an episode needs to A2.
//! I5. Drained: who is inside has been counted before its arrival, and so before anybody is released. (With leaves this would not do: a carrier
//!     looks at its leaf again after A2. Only what borrows the barrier, as in Rust, may have leaves.)
//!
//! # Protocol
//!
//! A1. Subtract one from the arrivals needed. A2. Where one was needed, begin the next episode. If A2 saw SLEEPERS: A3. add one to
//! `calls`, A4. wake all.
//! W1. Spin or yield while the episode is ours. W2. Take `calls`. W3. Set SLEEPERS, if the episode is still
//! ours. W4. Sleep while `calls` is what W2 saw. W5. Drained: leave `inside`; the last one
//! out who finds DRAINING wakes whoever sleeps there, by the address alone.
//! J1. Add one to the arrivals needed, then one to `parties`; D1 at once if those are too many. D1. Take one from `parties`, then arrive without waiting.
//! F1. `drain` waits until nobody is inside: spins briefly, then sets DRAINING and sleeps on `inside`. Each change of it ends the sleep or keeps it
//! from beginning, and W5 has one change for both the count and the look at DRAINING, so none is missed.
//! C1. Who calls ([`BWakeful::summon`]) has written what the waiters are to see, and changes `state` without changing it; saw SLEEPERS: A3, A4.
//! W3 comes before the last look at it: either C1 sees SLEEPERS or W3 sees what C1's caller wrote.
//! L1. With leaves: add one to the own cluster's leaf. L2. Who finds the leaf without a carrier becomes it: takes what has
//! accumulated, arrives for all of it (A1, A2), and looks again before it stops (L3). A carrier that is preempted stops nobody who
//! would not wait for it anyway.
//!
//! # Memory order
//!
//! A1 (AcqRel; a chain of read-modify-writes of `state`, which A2 continues) -> W1 acquire publish what members wrote before.
//! C1 release -> W3 acquire publishes what a summons is about. A3 release -> W2 acquire: who has seen the call of its own episode finds that over, instead of sleeping on it.
//! L1 release -> L2 acquire carries it through a leaf. W5 release -> F1 acquire: the memory may be freed. J1 and D1 need none: who
//! changes `parties` arrives later, or has published the change to who does, and A1's acquire reads it.
//!
//! # Under the scheduler
//!
//! A party preempted before its arrival: the others yield to it, or sleep. A released thread preempted before it looks: nobody waits for
//! it before its next arrival. More threads than processors: one switch a thread and round. Other programs: a futex barrier like
//! glibc's, within a millisecond. Where the work is little, it is interrupted by trials of some 8 ms: after
//! 16, 64, 256 and then every 1024 ms. Where nobody can tell of the crowd, a few slices are lost until it is noticed, and trials are made whatever the work.
//! Home is left at the first look after rounds have become long. If the mood is wrong, threads lose slices or sleep needlessly; W4 ends by A4 in
//! either case. Who goes home, or leaves another's processor, changes its affinity mask for as long as it waits for that processor, and then puts it back,
//! unless somebody else has changed it meanwhile: what is set between that look and the next system call is lost. If a real-time thread
//! takes that processor for good (RT throttling off), who is on its way waits for it, and the others for him: the one hint that can make a barrier
//! wait for what is not a party. Only where the mood says that others compete. A1 to A2 preempted: those who wait spin, yield or sleep as if the last had not come yet; those too many nap.
//! Killed: the process dies with it.
//!
//! # Fairness and space
//!
//! A barrier is fair by nature. 24 bytes (drained 28); with leaves 128 bytes for each cluster. 12,287 parties, and as many threads too many at one moment. The
//! episode's number has 16 bits: where more threads come than it has parties, one that sleeps through exactly 65,536 episodes sleeps
//! through one more.
//!
//! # Rejected
//!
//! The kernel view's run states. `perf` costs 1.4 us a switch, and here every round of every thread is a switch; what they tell (do my threads
//! get my processor?) is in the processor time as well, which costs a system call every few milliseconds, and only after a suspicion.
//! Waking one sleeper, which wakes the next: as many wake-ups as a broadcast, each with a system call of its own.
//! `sched_yield` after a spin by everybody: with more threads than processors the spin is lost (48 against 11 us a
//! round with 16 threads on 2 processors; a round of 1 us of work; the machine of the README).
//! To learn by the effect alone, also where the crowd is told: runs of 40 to 50 ms were over before that, at 0.3 to 0.9 of glibc's speed with phases
//! of 20 us to 2 ms of work (2 and 4 threads, one or two foreign busy processes).
//! To look while the parties come, only (as a barrier in a constant does): 0.65 to 0.93 of glibc's speed in LU and a stencil of 30 to 50 ms (8 and 32 threads,
//! one foreign busy process), because a foreign thread passed for a party that was not there yet. To begin asleep until a look has told of none: idle, half of what
//! the yields gain is lost. Who sleeps is counted as running for as long as his processor runs another of ours (delayed dequeue, Linux 6.12), and who has
//! just been woken on another processor is not counted yet: no look between two rounds is exact.
//! To sleep beside foreign load whatever the work: with 0.9 us it made 0.5 to 0.7 of the rounds.
//! Under a quota, polls that are shorter or left out in mutex, condition variable and semaphore: two threads that meet each 10 us lose up to three
//! quarters of their rounds, and phases of 200 us gain nothing. Those polls are short, and in vain they become rare by themselves.
//! To sleep, as above, with a processor for each and little work: 50 us a round on two processors, 1.7 on one, against 0.6 of two that spin at the same time (two threads,
//! two foreign busy processes on 2 processors); what they lose while they run at different times ends with the first yield.
//! To look for another home where this one is shared with another program: 13 us a round instead of 9 (8 threads, one foreign busy process).
//! To arrive by compare-and-swap, which can begin the next episode in the same step: 0.93 of the rounds of `c-spin` with two threads instead of
//! 0.99, because the line changes hands between the load and the swap. To count those who leave, always: a change of hands more, on
//! the way of the thread that is behind.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle, with and without leaves, joining and leaving, more threads than parties, one of them away for most of the
//! episode's numbers; beside foreign load, from the first episode on until it has gone; twins without a check of the episode (I1), that release early, that forget sleepers (I3), and whose last one out does not wake (F1).

use core::marker::PhantomData;
use platform::{Atomic, AtomicInt, Ordering::*, Platform};

use super::{RawBarrier, RawBarrierDrained, RawBarrierDynamic};

/// One arrival; above it, signed, how many an episode still needs.
const ARRIVAL: u32 = 1 << 17;
const SLEEPERS: u32 = 1 << 16;
/// Most parties.
const MOST: u32 = 12_287;
/// The number in `parties`, and the bit above it where the note begins.
const PARTIES: u32 = (1 << NOTE) - 1;
const NOTE: u32 = 16;
/// In the note, above the home: it has not been looked at how it does.
const NEW: u32 = 1 << 15;
/// In the note: it is no home, but a thread and its processor.
const MET: u32 = 1 << 14;
/// So many arrivals are needed where all parties have left.
const EMPTY: u32 = (1 << 14) - 1;

/// Arrivals that the episode still needs; none, or less: it is about to end.
#[inline(always)]
fn remaining(state: u32) -> i32 {
    state as i32 >> ARRIVAL.trailing_zeros()
}

/// The episode.
#[inline(always)]
fn episode(state: u32) -> u16 {
    state as u16
}

/// Phase in `mood`: sleep at once. Where it has neither this nor the next, all is well.
const ASLEEP: u32 = 1 << 31;
/// Phase in `mood`: awake in spite of foreign load, to see how many rounds that makes.
const TRIAL: u32 = 1 << 30;
/// Bit of `mood`: two of us share a processor, though there are enough; the next to wait sleeps once, and wakes on another.
const TOGETHER: u32 = 1 << 29;
/// Field of `mood`: trials in a row that failed; above it, those that did not.
const FAILURE: u32 = 1;
const SUCCESS: u32 = 1 << 2;
/// The fields' greatest numbers.
const MOST_FAILURES: u32 = 3;
const MOST_SUCCESSES: u32 = 2;
/// Field of `mood`: asleep, the work between two rounds took little time: so often more than not.
const SHORT: u32 = 1 << 4;
const MOST_SHORT: u32 = 15;
/// Field of `mood`: rounds in [`RATE_MS`], asleep.
const RATE: u32 = 1 << 8;
const MOST_RATE: u32 = (1 << 16) - 1;
/// Field of `mood`: looks since it is asleep.
const LOOK: u32 = 1 << 24;
const MOST_LOOKS: u32 = 31;

/// COST: pauses for which one of the last to arrive waits for the others; 2 us, the time of a context switch.
const SPIN_PAUSES: u32 = 50;
/// COST: who was away so long after yielding suspects that others have his processor. 64 threads of one processor yield to each other in
/// that time; a slice of Linux's scheduler takes 3 ms.
const LONG_NS: u64 = 200_000;
/// COST: a yield that takes longer has let somebody else run. 300 to 550 ns are the system call alone (800 in one of 100); two
/// switches take 2,000 to 2,800.
const SWITCH_NS: u64 = 1_300;
/// COST: who has waited so long sleeps: waking an idle processor takes 50 us.
const PATIENCE_NS: u64 = 1_000_000;
/// The same with a processor for each, where others seem to use them too: two slices.
const MOST_PATIENCE_NS: u64 = 8_000_000;
/// COST: pauses for which such a one spins before it yields: 200 us, much less than a slice and more than the processors' ticks are apart.
const PERSIST_PAUSES: u32 = 5_000;
/// COST: who finds its processor otherwise idle, while more are missing than the others can run, has waited so long before it sleeps, which is what
/// sleeping and waking cost. An idle processor takes threads over from others.
const LONELY_NS: u64 = 50_000;
/// COST: ms of processor time that are looked at before a judgement: what lasts for a slice or two is no load. Four times as many
/// after each trial that did not fail.
const FIRST_MS: u32 = 8;
/// COST: ms, beyond twice those, for which a sample of processor time is good.
const SAMPLE_MS: u32 = 8;
/// COST: rounds asleep below which a trial that makes fewer proves nothing: what takes more than a ms is not the barrier.
const SLOW_RATE: u32 = RATE_MS;
/// COST: ms of sleeping at once before a trial: enough for a rate. Four times as many after each that failed.
const REST_MS: u32 = 16;
/// COST: ms of sleeping between looks at the rate, after a trial that failed: in less than 65,536 rounds.
const LOOK_MS: u32 = 32;
/// COST: ms of a trial, two slices; half of that where it makes less than a quarter of the rounds. What it has shown is looked at for four times
/// as long.
const TRIAL_MS: u32 = 8;
/// The unit of [`RATE`].
const RATE_MS: u32 = 16;
/// COST: ns of work in a round with which it may pay not to sleep, or to sleep on one processor.
const SHORT_NS: u32 = 8_000;
/// COST: us a thread and round, asleep, beyond which it does not: somebody has more work than who came first.
const NEAR_US: u32 = 30;
/// One thread inside, and the bit below: see the theory.
const INSIDE: u32 = 2;
const DRAINING: u32 = 1;
/// COST: ns between looks where somebody is about to be done.
const NAP_NS: u64 = 50_000;

/// A cluster's arrivals on their way to the barrier.
#[repr(align(128))]
pub struct BWakefulLeaf<P: Platform> {
    /// Not yet carried; the greatest bit: somebody is carrying.
    arrivals: P::AtomicU32,
}

const CARRIED: u32 = 1 << 31;

impl<P: Platform> Default for BWakefulLeaf<P> {
    fn default() -> Self {
        Self { arrivals: P::AtomicU32::new(0) }
    }
}

/// The default barrier.
#[repr(C)]
pub struct BWakeful<P: Platform> {
    state: P::AtomicU32,
    calls: P::AtomicU32,
    parties: P::AtomicU32,
    mood: P::AtomicU32,
    /// When the phase, or the sample, began: the episode, and above it milliseconds.
    mood_since: P::AtomicU32,
    /// Microseconds of processor time at that moment.
    mood_cpu: P::AtomicU32,
    platform: PhantomData<P>,
}

/// What came of an arrival.
enum Arrival {
    /// It was the last one.
    Last,
    /// Others are to come, so many.
    Waits { episode: u16, others: u32 },
}

/// An episode that somebody has entered.
#[derive(Clone, Copy)]
pub struct Episode {
    episode: u16,
    others: u32,
}

impl Episode {
    /// Those who were still missing after this one.
    #[inline]
    pub fn others(&self) -> u32 {
        self.others
    }
}

/// What a judgement was.
#[derive(PartialEq)]
enum Verdict {
    /// There is nothing to judge by, yet.
    Unknown,
    /// See `mood`.
    Known,
}

impl<P: Platform> BWakeful<P> {
    /// Parties at most; more do not fit.
    pub const MOST_PARTIES: u32 = MOST;

    /// The words, in their order, of a new barrier: for those who make one in a constant.
    pub const fn words(parties: u32) -> [u32; 6] {
        let parties = if parties == 0 {
            1
        } else if parties > MOST {
            MOST
        } else {
            parties
        };
        [parties * ARRIVAL, 0, parties, 0, 0, 0]
    }

    /// Nobody waits yet, and most often the caller is the only one of ours who runs: so others than these are told from the parties for once.
    fn look_around(&self) {
        let now = P::now_ns();
        if self.is_crowded(now, 1) == Some(true) {
            self.begin(ASLEEP, now);
        }
    }

    #[inline(always)]
    fn parties(&self) -> u32 {
        self.parties.load(Relaxed) & PARTIES
    }

    /// Writes a note beside the number of parties, and returns what was there.
    fn note(&self, note: u32) -> u32 {
        let parties = self.parties.load(Relaxed);
        let next = parties & PARTIES | note << NOTE;
        if next != parties {
            // HINT: whoever joins or leaves meanwhile is more important.
            let _ = self.parties.compare_exchange(parties, next, Relaxed, Relaxed);
        }
        parties >> NOTE
    }

    /// More threads than processors: the processor where they sleep.
    fn home(&self) -> Option<u32> {
        let note = self.parties.load(Relaxed) >> NOTE;
        if note & MET != 0 { None } else { (note & !NEW).checked_sub(1) }
    }

    fn home_is_new(&self) -> bool {
        (self.parties.load(Relaxed) >> NOTE) & NEW != 0
    }

    fn set_home(&self, home: Option<u32>, new: u32) {
        self.note(home.map_or(0, |home| (home + 1) & (MET - 1) | new));
    }

    /// Goes home.
    #[inline]
    fn gather(&self) {
        if let Some(home) = self.home()
            && P::running_on().is_some_and(|here| here != home)
            && !P::migrate(Some(home))
        {
            self.set_home(None, 0);
        }
    }

    /// A processor for each: was the last who came here another thread, and on this processor?
    fn meets_another(&self) -> bool {
        let Some(here) = P::running_on() else { return false };
        // HINT: taken for another, we move in vain; two taken for one stay together until a yield tells.
        let stack = (&raw const here).addr() >> 12;
        let me = (stack as u32).wrapping_mul(0x9E37_79B9) >> 26;
        let here = MET | here & 0xff;
        let last = self.note(me << 8 | here);
        last & (MET | 0xff) == here && last != me << 8 | here
    }

    /// Arrives for so many threads.
    #[inline]
    fn arrive(&self, count: u32) -> Arrival {
        loop {
            // ORDER: AcqRel (A1), a chain that ends at the last one.
            let before = self.state.fetch_sub(count * ARRIVAL, AcqRel);
            let (needed, episode) = (remaining(before), episode(before));
            if needed > MOST as i32 {
                return self.alone(before);
            }
            if needed > count as i32 {
                return Arrival::Waits { episode, others: needed as u32 - count };
            }
            if needed > 0 {
                self.end(before.wrapping_sub(count * ARRIVAL));
                return Arrival::Last;
            }
            self.await_end(episode);
        }
    }

    /// A2 to A4.
    #[inline]
    fn end(&self, mut state: u32) {
        loop {
            let parties = match self.parties() {
                0 => EMPTY,
                parties => parties.min(MOST),
            };
            let next = (parties * ARRIVAL) | episode(state).wrapping_add(1) as u32;
            // A2. Continues the release sequence of our A1, which W1 acquires.
            match self.state.compare_exchange_weak(state, next, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        if state & SLEEPERS != 0 {
            self.call();
            if self.mood.load(Relaxed) & ASLEEP != 0 {
                self.mood_cpu.store(P::now_ns() as u32, Relaxed);
            }
        } else if self.mood.load(Relaxed) & TRIAL != 0 && episode(state).is_multiple_of(64) {
            self.judge(P::now_ns(), self.parties());
        }
    }

    /// All parties have left: who comes need not wait, and has not been.
    #[cold]
    fn alone(&self, before: u32) -> Arrival {
        // If it fails, others have been here; the last of them takes all back, or J1 did.
        let _ = self.state.compare_exchange(
            before.wrapping_sub(ARRIVAL),
            before & (ARRIVAL - 1) | (EMPTY * ARRIVAL),
            Relaxed,
            Relaxed,
        );
        Arrival::Last
    }

    /// Somebody is between A1 and A2.
    #[cold]
    #[inline(never)]
    fn await_end(&self, episode: u16) {
        while !self.spin(0, &|| self.is_over(episode)) {
            P::nap(NAP_NS);
        }
    }

    /// A3 and A4.
    #[cold]
    #[inline(never)]
    fn call(&self) {
        if self.mood.load(Relaxed) & ASLEEP != 0 {
            let now = P::now_ns();
            self.mood_cpu.store(now as u32, Relaxed);
            self.judge(now, 1);
        }
        self.wake(u32::MAX);
    }

    fn wake(&self, count: u32) {
        // ORDER: Release (A3), pairs with W2.
        self.calls.fetch_add(1, Release);
        P::wake(&self.calls, count);
    }

    /// L1 to L3. The caller is one of exactly as many threads as there are parties.
    fn arrive_by(&self, leaf: &BWakefulLeaf<P>) -> Arrival {
        // Cannot be over before we have arrived.
        let episode = episode(self.state.load(Relaxed));
        // ORDER: Release (L1), pairs with L2.
        if leaf.arrivals.fetch_add(1, Release) & CARRIED != 0 {
            return Arrival::Waits { episode, others: MOST };
        }
        let mut arrivals = leaf.arrivals.fetch_or(CARRIED, Relaxed);
        if arrivals & CARRIED != 0 {
            return Arrival::Waits { episode, others: MOST };
        }
        loop {
            // ORDER: Acquire (L2), pairs with L1.
            let carry = match leaf.arrivals.compare_exchange_weak(arrivals | CARRIED, CARRIED, Acquire, Relaxed) {
                Ok(_) => arrivals & !CARRIED,
                Err(now) => {
                    arrivals = now;
                    continue;
                }
            };
            // Ours, or later ones; of the next episode even, which cannot be over without us.
            if carry > 0 && matches!(self.arrive(carry), Arrival::Last) {
                return self.carried_last(leaf);
            }
            // L3.
            match leaf.arrivals.compare_exchange(CARRIED, 0, Relaxed, Relaxed) {
                Ok(_) => return Arrival::Waits { episode, others: MOST },
                Err(now) => arrivals = now,
            }
        }
    }

    /// We have completed the episode: the leaf is empty, unless members of the next episode are here already, and somebody has to
    /// carry them.
    fn carried_last(&self, leaf: &BWakefulLeaf<P>) -> Arrival {
        loop {
            // L3.
            if leaf.arrivals.compare_exchange(CARRIED, 0, Relaxed, Relaxed).is_ok() {
                return Arrival::Last;
            }
            // ORDER: Acquire (L2), pairs with L1.
            let carry = leaf.arrivals.swap(CARRIED, Acquire) & !CARRIED;
            if carry > 0 {
                // Not the last of its episode: that one needs us.
                self.arrive(carry);
            }
        }
    }

    /// Has the episode ended, in this state?
    #[inline(always)]
    fn over(state: u32, mine: u16) -> bool {
        episode(state) != mine
    }

    #[inline(always)]
    fn is_over(&self, episode: u16) -> bool {
        // ORDER: Acquire (W1), pairs with the A1 before A2.
        Self::over(self.state.load(Acquire), episode)
    }

    /// W1 to W4: until `done`, or what `sleep` waits for.
    #[inline]
    fn await_release(&self, others: u32, done: &impl Fn() -> bool, sleep: &impl Fn()) {
        let processors = P::processors();
        let mood = self.mood.load(Relaxed);
        if mood & (ASLEEP | TOGETHER) == 0 && others < processors && self.spin(processors, done) {
            return;
        }
        self.await_release_slow(others, processors, done, sleep);
    }

    /// Everybody else may be running. Where there is a processor for each, the line of `state` goes to each of them once, and the spin is for
    /// that, too.
    #[inline]
    fn spin(&self, processors: u32, done: &impl Fn() -> bool) -> bool {
        let parties = self.parties();
        let pauses = if parties <= processors { SPIN_PAUSES / 2 * parties.max(2) } else { SPIN_PAUSES };
        self.spin_for(pauses, done)
    }

    #[inline]
    fn spin_for(&self, pauses: u32, done: &impl Fn() -> bool) -> bool {
        for _ in 0..pauses.min(P::PAUSES) {
            if done() {
                return true;
            }
            P::pause();
        }
        done()
    }

    #[inline(never)]
    fn await_release_slow(&self, others: u32, processors: u32, done: &impl Fn() -> bool, sleep: &impl Fn()) {
        let mood = self.mood.load(Relaxed);
        let parties = self.parties();
        let enough = parties <= processors;
        if mood & ASLEEP != 0 {
            if others + 1 == parties {
                self.measure(mood);
            }
            self.gather();
            return sleep();
        }
        if enough && mood & !TOGETHER != 0 && Self::may_persist() {
            return self.persist(done, sleep);
        }
        if mood & TOGETHER != 0 {
            self.mood.fetch_and(!TOGETHER, Relaxed);
            return sleep();
        }
        let began = P::now_ns();
        P::refresh_processors(Some(began));
        let mut now = began;
        loop {
            if done() {
                return;
            }
            if mood == 0 && self.is_crowded(now, parties) == Some(true) {
                self.begin(ASLEEP, now);
                return sleep();
            }
            let before = P::now_ns();
            P::yield_now();
            now = P::now_ns();
            let alone = now - before < SWITCH_NS;
            if now - before > LONG_NS {
                self.judge(now, parties);
            } else if enough && !alone {
                // Before the look whether it is over: most often the other has ended it in that time.
                // HINT: if it was something else, somebody sleeps once.
                self.mood.fetch_or(TOGETHER, Relaxed);
                self.judge(now, parties);
            }
            if done() {
                return;
            }
            let missing = remaining(self.state.load(Relaxed));
            let patience = match !enough && alone && missing >= processors as i32 {
                true => LONELY_NS,
                false => PATIENCE_NS,
            };
            if now - began > patience || self.mood.load(Relaxed) & ASLEEP != 0 {
                return sleep();
            }
            // Long only where nobody took the yield: else one of ours may wait for this processor.
            if enough && alone && Self::may_persist() {
                if self.spin_for(PERSIST_PAUSES, done) {
                    return;
                }
            } else if missing < processors as i32 && self.spin(processors, done) {
                return;
            }
        }
    }

    /// Are there threads of other programs that want our processors? Of ours `awake` run or could.
    fn is_crowded(&self, now: u64, awake: u32) -> Option<bool> {
        let crowd = P::crowd(now, awake)?;
        Some(crowd.others > 0 && crowd.others + self.parties() > crowd.processors)
    }

    /// Asleep, and the first of the episode: does a round take little work? It tells best, because most often it was last before, and has not been
    /// woken.
    fn measure(&self, mood: u32) {
        let took = (P::now_ns() as u32).wrapping_sub(self.mood_cpu.load(Relaxed));
        let short = (mood / SHORT) & MOST_SHORT;
        let next = if took < SHORT_NS { (short + 2).min(MOST_SHORT) } else { short.saturating_sub(1) };
        if next != short {
            // HINT: who changes it meanwhile is more important.
            let _ = self.mood.compare_exchange(mood, mood - short * SHORT + next * SHORT, Relaxed, Relaxed);
        }
    }

    /// HINT: may a thread spend a processor's time for as long as it takes? Under a quota others of ours lack what it spends.
    fn may_persist() -> bool {
        !P::metered()
    }

    /// There is a processor for each of us, and somebody else seems to use some of them too. The others run again when his slice
    /// is over, where they are; asleep we would let them come to our processor, and both stay there. Who yields while they do not run
    /// has his own slice when they have theirs.
    #[cold]
    fn persist(&self, done: &impl Fn() -> bool, sleep: &impl Fn()) {
        let began = P::now_ns();
        loop {
            let moved = self.meets_another() && P::migrate(None);
            if moved {
                // Where we are now, or the other would leave as well.
                self.meets_another();
            }
            let together = self.mood.load(Relaxed) & TOGETHER != 0;
            if (moved || !together) && self.spin_for(PERSIST_PAUSES, done) {
                return;
            }
            let before = P::now_ns();
            P::yield_now();
            let now = P::now_ns();
            // HINT: if it was something else, somebody yields too early, or spins in vain.
            match (SWITCH_NS..LONG_NS).contains(&(now - before)) {
                true => self.mood.fetch_or(TOGETHER, Relaxed),
                false => self.mood.fetch_and(!TOGETHER, Relaxed),
            };
            if done() {
                return;
            }
            self.judge(now, self.parties());
            if self.mood.load(Relaxed) & ASLEEP != 0 || now - began > MOST_PATIENCE_NS {
                return sleep();
            }
        }
    }

    /// Somebody was away for long, or asleep: is the phase over, and what comes next?
    ///
    /// HINT: two who judge at once may lose a lesson; wrong in one direction, slices are lost until the next sample; in the
    /// other, threads sleep that need not.
    #[cold]
    #[inline(never)]
    fn judge(&self, now: u64, awake: u32) -> Verdict {
        P::refresh_processors(Some(now));
        let (mood, since) = (self.mood.load(Relaxed), self.mood_since.load(Relaxed));
        let (mood, together) = (mood & !TOGETHER, mood & TOGETHER);
        let now_ms = (now / 1_000_000) as u16;
        let elapsed = now_ms.wrapping_sub((since >> 16) as u16) as u32;
        let episode = episode(self.state.load(Relaxed));
        let rounds = episode.wrapping_sub(since as u16) as u32;
        let rate = (rounds * RATE_MS / elapsed.max(1)).min(MOST_RATE);
        let field = |unit: u32, most: u32| (mood / unit) & most;
        let (failures, successes) = (field(FAILURE, 15), field(SUCCESS, 15));
        let asleep = field(RATE, MOST_RATE);
        let processors = P::processors();
        let parties = self.parties();
        let enough = parties <= processors;
        let begin = |mood: u32| self.begin(mood, now);
        let more = |trials: u32, most: u32| (trials + 1).min(most);
        let failure = if asleep < SLOW_RATE { 0 } else { FAILURE };
        let crowded = self.is_crowded(now, awake);
        let short =
            field(SHORT, MOST_SHORT) > MOST_SHORT / 2 && elapsed * 1_000 < rounds.saturating_mul(parties * NEAR_US);
        let settle = |may_begin: bool| match self.home() {
            Some(_) if !short || self.home_is_new() && rate < asleep => self.set_home(None, 0),
            Some(_) => self.set_home(P::running_on(), 0),
            None if short && may_begin => self.set_home(P::running_on(), NEW),
            None => {}
        };
        if mood & (ASLEEP | TRIAL) != 0 && crowded == Some(false) {
            begin(0);
        } else if mood & ASLEEP != 0 {
            let look = if failures == 0 { REST_MS } else { LOOK_MS };
            if elapsed >= look {
                let looks = field(LOOK, MOST_LOOKS) + 1;
                let kept = (failures * FAILURE) | (successes * SUCCESS) | (mood & (MOST_SHORT * SHORT));
                let rest_is_over = looks * look >= REST_MS << (2 * failures);
                let next = match rest_is_over && (short || crowded.is_none()) {
                    true => TRIAL,
                    false => ASLEEP | (looks.min(MOST_LOOKS) * LOOK),
                };
                begin((rate * RATE) | kept | next);
                if !enough {
                    // What was left would be left again: not soon.
                    settle(rest_is_over && (failures == 0 || failures == MOST_FAILURES));
                }
            }
        } else if mood & TRIAL != 0 {
            if elapsed >= TRIAL_MS || elapsed >= TRIAL_MS / 2 && rate * 4 < asleep {
                begin(match rate >= asleep {
                    true => (asleep * RATE) | (more(successes, MOST_SUCCESSES) * SUCCESS),
                    false => ASLEEP | (asleep * RATE) | (more(failures, MOST_FAILURES) * failure),
                });
            }
        } else {
            let least = FIRST_MS << (2 * successes);
            if elapsed > 2 * least + SAMPLE_MS {
                begin(mood | together);
                return Verdict::Unknown;
            }
            if (TRIAL_MS..=4 * TRIAL_MS).contains(&elapsed) && rate < asleep {
                // The trial was luck, or it has changed.
                begin(ASLEEP | (asleep * RATE) | failure);
                return Verdict::Known;
            }
            if elapsed < least {
                return Verdict::Unknown;
            }
            let used = self.sample(now);
            // COST: less than 7/8 of what the processors have is less than all of it.
            let foreign = crowded.unwrap_or((used as u64) < elapsed as u64 * 1_000 * processors as u64 * 7 / 8);
            self.mood.store(if foreign { ASLEEP | (successes * SUCCESS) } else { 0 }, Relaxed);
            if foreign && !enough {
                self.set_home(None, 0);
            }
        }
        Verdict::Known
    }

    /// A phase begins.
    fn begin(&self, mood: u32, now: u64) {
        self.mood.store(mood, Relaxed);
        self.sample(now);
    }

    /// Processor time since the last sample, in us.
    fn sample(&self, now: u64) -> u32 {
        let cpu = (P::cpu_ns() / 1_000) as u32;
        let episode = episode(self.state.load(Relaxed));
        self.mood_since.store(((now / 1_000_000) as u32) << 16 | episode as u32, Relaxed);
        cpu.wrapping_sub(self.mood_cpu.swap(cpu, Relaxed))
    }

    #[cold]
    #[inline(never)]
    fn sleep(&self, episode: u16, called: &impl Fn() -> bool) {
        loop {
            // ORDER: Acquire (W2), pairs with A3: who finds the call of its own episode here finds that over below.
            let calls = self.calls.load(Acquire);
            // ORDER: Acquire (W1), pairs with the A1 before A2.
            let state = self.state.load(Acquire);
            if Self::over(state, episode) {
                return;
            }
            // W3. W2 has not seen the call of our own episode, or that would be over.
            // ORDER: Acquire (W3), pairs with C1.
            if state & SLEEPERS != 0 || self.state.compare_exchange(state, state | SLEEPERS, Acquire, Relaxed).is_ok() {
                if called() {
                    return;
                }
                P::wait(&self.calls, calls, None);
            }
        }
    }

    #[inline]
    fn waited(&self, arrival: Arrival) -> bool {
        match arrival {
            Arrival::Last => true,
            Arrival::Waits { episode, others } => {
                self.await_release(others, &|| self.is_over(episode), &|| self.sleep(episode, &|| false));
                false
            }
        }
    }

    /// Arrives, for those who have something else to do while they wait: until [`BWakeful::await_or`] has told them that the episode is over, they may
    /// not come again. `None`: it was the last one.
    #[inline]
    pub fn enter(&self) -> Option<Episode> {
        match self.arrive(1) {
            Arrival::Last => None,
            Arrival::Waits { episode, others } => Some(Episode { episode, others }),
        }
    }

    /// Waits until the episode of [`BWakeful::enter`] is over, true then, or `called` says that there is something else to do, which it is asked again
    /// and again. Who makes it say so has to [`BWakeful::summon`].
    #[inline]
    pub fn await_or(&self, entered: &Episode, called: impl Fn() -> bool) -> bool {
        let done = || self.is_over(entered.episode) || called();
        self.await_release(entered.others, &done, &|| self.sleep(entered.episode, &called));
        self.is_over(entered.episode)
    }

    /// As [`BWakeful::await_or`], asleep at once.
    pub fn sleep_or(&self, entered: &Episode, called: impl Fn() -> bool) -> bool {
        self.sleep(entered.episode, &called);
        self.is_over(entered.episode)
    }

    /// Is the episode over that somebody has entered? What the members wrote before is seen then.
    #[inline]
    pub fn has_passed(&self, entered: &Episode) -> bool {
        self.is_over(entered.episode)
    }

    /// Has everybody come but one? What they wrote before is seen then. To be asked by that one, who does not enter while it waits for this.
    #[inline]
    pub fn lacks_one(&self) -> bool {
        // ORDER: Acquire (W1), pairs with A1.
        remaining(self.state.load(Acquire)) == 1
    }

    /// Waits as parties do, but until `done`, and asleep as `sleep` does, which returns when it is done.
    #[inline]
    pub fn await_as_party(&self, done: impl Fn() -> bool, sleep: impl Fn()) {
        self.await_release(0, &done, &sleep);
    }

    /// Those who wait look at what calls them, if the caller has changed that before; of those who sleep, so many.
    pub fn summon(&self, count: u32) {
        // ORDER: Release (C1), pairs with W3.
        if self.state.fetch_or(0, Release) & SLEEPERS != 0 {
            self.wake(count);
        }
    }

    /// Waits until all have arrived; true for the serial thread. Any thread may come; where more come than there are parties, those that are
    /// too many are the first of the next episode.
    #[inline]
    pub fn wait(&self) -> bool {
        self.waited(self.arrive(1))
    }

    /// Arrives, and does not wait: for a party that cannot come again before the others have passed.
    #[inline]
    pub fn arrive_only(&self) {
        self.arrive(1);
    }
}

impl<P: Platform> RawBarrier<P> for BWakeful<P> {
    type Place = BWakefulLeaf<P>;
    type Member = ();

    fn new(parties: u32) -> Self {
        let [state, calls, parties, mood, mood_since, mood_cpu] = Self::words(parties).map(Atomic::new);
        Self { state, calls, parties, mood, mood_since, mood_cpu, platform: PhantomData }
    }

    fn places(parties: u32) -> usize {
        // COST: fewer processors than two clusters have need no tree; not measured.
        let clusters = P::processors().min(parties) / 16;
        if clusters < 2 { 0 } else { clusters as usize }
    }

    unsafe fn wait(&self, leaves: &[BWakefulLeaf<P>], _: u32, _: &mut ()) -> bool {
        if leaves.is_empty() {
            return self.wait();
        }
        self.waited(self.arrive_by(&leaves[P::cluster() as usize % leaves.len()]))
    }
}

impl<P: Platform> RawBarrierDynamic<P> for BWakeful<P> {
    fn join(&self) -> bool {
        let mut state = self.state.load(Relaxed);
        loop {
            let more = match remaining(state) {
                ..=0 => {
                    self.await_end(episode(state));
                    state = self.state.load(Relaxed);
                    continue;
                }
                needed if needed > MOST as i32 => state & (ARRIVAL - 1) | ARRIVAL,
                needed if needed == MOST as i32 => return false,
                _ => state + ARRIVAL,
            };
            // J1.
            match self.state.compare_exchange_weak(state, more, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        if self.parties.fetch_add(1, Relaxed) & PARTIES >= MOST {
            // Some of them have arrived, or there would have been no room.
            self.arrive_and_drop();
            return false;
        }
        true
    }

    fn arrive_and_drop(&self) {
        // D1. Where nobody is left, nobody can leave.
        let mut parties = self.parties.load(Relaxed);
        while parties & PARTIES > 0 {
            match self.parties.compare_exchange_weak(parties, parties - 1, Relaxed, Relaxed) {
                Ok(_) => {
                    self.arrive(1);
                    return;
                }
                Err(now) => parties = now,
            }
        }
    }
}

/// [`BWakeful`] for those who may free it as soon as their own wait has returned, as POSIX allows: counts who is inside. 28 bytes.
///
/// In Rust nobody can: who waits borrows it until he has come out.
#[repr(C)]
pub struct BWakefulDrained<P: Platform> {
    barrier: BWakeful<P>,
    inside: P::AtomicU32,
}

impl<P: Platform> BWakefulDrained<P> {
    /// As [`BWakeful::wait`].
    #[inline]
    pub fn wait(&self) -> bool {
        // Before our arrival, without which nobody can be in F1.
        self.inside.fetch_add(INSIDE, Relaxed);
        let serial = self.barrier.wait();
        let inside = &raw const self.inside;
        // ORDER: Release (W5), pairs with F1.
        if self.inside.fetch_sub(INSIDE, Release) == INSIDE | DRAINING {
            // The barrier may be gone by now; only the address is used.
            P::wake(inside, 1);
        }
        serial
    }
}

impl<P: Platform> RawBarrier<P> for BWakefulDrained<P> {
    type Place = ();
    type Member = ();

    fn new(parties: u32) -> Self {
        let barrier = BWakeful::new(parties);
        barrier.look_around();
        Self { barrier, inside: Atomic::new(0) }
    }

    fn places(_: u32) -> usize {
        0
    }

    unsafe fn wait(&self, _: &[()], _: u32, _: &mut ()) -> bool {
        self.wait()
    }
}

impl<P: Platform> RawBarrierDrained<P> for BWakefulDrained<P> {
    fn drain(&self) {
        // Those who come out may be running, or run when we yield, as they did at the barrier.
        for _ in 0..SPIN_PAUSES.min(P::PAUSES) {
            if self.inside.load(Relaxed) == 0 {
                break;
            }
            P::pause();
        }
        if self.inside.load(Relaxed) != 0 {
            let mut inside = self.inside.fetch_or(DRAINING, Relaxed) | DRAINING;
            while inside != DRAINING {
                P::wait(&self.inside, inside, None);
                inside = self.inside.load(Relaxed);
            }
        }
        // ORDER: Acquire (F1), pairs with W5.
        self.inside.swap(0, Acquire);
    }
}
