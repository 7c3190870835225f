// SPDX-License-Identifier: MIT OR Apache-2.0
//! Barriers: nobody goes on before everybody has come.
//!
//! One round is an *episode*: it begins when the one before is complete and is complete when as many threads
//! have arrived as the barrier has *parties*. Of those who waited, exactly one is told that it was the serial
//! one.

mod b_mcs;
mod b_wakeful;
mod c_avg3;
mod c_block;
mod c_coarse;
mod c_last1;
mod c_sched;
mod c_sp_blk;
mod c_spin;
mod com_tree;
mod incremental;
mod scal_sc;
mod tree;

pub use b_mcs::{BMcs, BMcsMember, BMcsPlace};
pub use b_wakeful::long as long_ns;
pub use b_wakeful::{
    BSleep, BWakeful, BWakefulDrained, BWakefulNode, BYield, Combined, Episode, Learn, Mood,
};
pub use c_avg3::CAvg3;
pub use c_block::CBlock;
pub use c_coarse::CCoarse;
pub use c_last1::CLast1;
pub use c_sched::CSched;
pub use c_sp_blk::CSpBlk;
pub use c_spin::CSpin;
pub use com_tree::ComTree;
pub use incremental::{Incremental, IncrementalPlace};
pub use scal_sc::{ScalSc, ScalScMember, ScalScPlace};
pub use tree::{Tree, TreePlace};

use core::marker::PhantomData;
use platform::{Atomic, AtomicInt, Ordering::*, Platform, Priority, ThreadId};

use crate::mutex::{Native, RawMutex};
use crate::wait::{SWITCH_PAUSES, Waiting, informed_after, informed_thread};

/// A barrier, without the memory for its members.
///
/// The papers' barriers have shared variables, variables that each member has for itself, and, those shaped
/// like a tree, a place for each member that others know. They come here as `self`, [`RawBarrier::Member`]
/// and [`RawBarrier::Place`]. A barrier that lives entirely in its own words has `()` for both.
pub trait RawBarrier<P: Platform>: Send + Sync + Sized {
    /// A member's place, known to others.
    type Place: Default + Send + Sync;
    /// A member's private variables.
    type Member: Default + Send;

    /// A barrier for so many threads. 0 counts as 1.
    fn new(parties: u32) -> Self;

    /// Places that so many parties need.
    fn places(parties: u32) -> usize;

    /// Waits until all have arrived; true for exactly one of those who waited in this episode. What a member
    /// wrote before is seen by every member after.
    ///
    /// # Safety
    /// The barrier stays where it is. `places` are the same each time, and at least as many as
    /// [`RawBarrier::places`] says. `index` is below the number of parties, and each member's own; `member`
    /// is the one that this member has brought each time since the barrier was new.
    unsafe fn wait(&self, places: &[Self::Place], index: u32, member: &mut Self::Member) -> bool;
}

/// A barrier that lives in place, knows nobody, and whose parties may come and go.
pub trait RawBarrierDynamic<P: Platform>: RawBarrier<P, Member = ()> {
    /// One party more, from the present episode on, for which the caller answers: it is waited for. False if
    /// there is no room for more.
    fn join(&self) -> bool;

    /// Arrives without waiting, as one party less from the next episode on.
    fn arrive_and_drop(&self);
}

/// A barrier that any thread may free whose own wait has returned.
pub trait RawBarrierDrained<P: Platform>: RawBarrier<P, Member = ()> {
    /// Returns when everybody has left whom complete episodes have released: then the memory may be freed.
    /// Nobody must be waiting.
    fn drain(&self);
}

/// A wait that took less has not waited for a context switch: twice that, for the pauses take up to so long.
fn switch_ns<P: Platform>() -> u64 {
    2 * P::costs().switch
}
/// COST: how often a waiter hands its processor off before it sleeps: 300 ns each where there is nobody to
/// take it, so that all are less than falling asleep and being woken (5 to 15 us). Cell: `icppmb`.
const HAND_OFFS: u32 = 16;
/// COST: looks, of about 3 us, after which a waiter that informs hands its processor off though the view says
/// that nobody wants it: a thread that was woken and has not run yet is blocked there. No cell known.
const SPIN_LOOKS: u32 = 4;
/// COST: pauses by which what was learned changes at once: from all to nothing in 9 rounds. No cell known.
const ADJUST: u32 = SWITCH_PAUSES / 8;

/// The papers' private local_sense, with the papers' initial value.
#[derive(Debug, Default)]
pub struct Sense(u32);

impl Sense {
    #[inline]
    fn flip(&mut self) -> u32 {
        self.0 = 1 - self.0;
        self.0
    }
}

/// Spins until `done` says so; false if it has not after so many pauses. Each failure may mean anything that
/// `pause` can do.
#[inline]
fn spin<P: Platform>(pauses: u32, done: impl Fn() -> bool) -> bool {
    for _ in 0..pauses.min(P::PAUSES) {
        if done() {
            return true;
        }
        P::pause();
    }
    done()
}

/// A semaphore; the papers' P and V.
struct Semaphore<P: Platform>(P::AtomicU32);

impl<P: Platform> Semaphore<P> {
    fn new() -> Self {
        Self(P::AtomicU32::new(0))
    }

    /// P.
    fn acquire(&self) {
        let mut value = self.0.load(Relaxed);
        loop {
            if value == 0 {
                P::wait(&self.0, 0, None);
                value = self.0.load(Relaxed);
                continue;
            }
            // ORDER: Acquire, pairs with `release`; what came before the V is seen after the P.
            match self.0.compare_exchange_weak(value, value - 1, Acquire, Relaxed) {
                Ok(_) => return,
                Err(now) => value = now,
            }
        }
    }

    /// So many V, in one step: the papers' loop would pay a system call for each.
    fn release(&self, count: u32) {
        if count > 0 {
            // ORDER: Release, pairs with `acquire`.
            self.0.fetch_add(count, Release);
            P::wake(&self.0, count);
        }
    }
}

/// For how long a member of a competitive barrier spins before it blocks, and what it learns from that.
pub trait Patience: Default + Send {
    /// Does it learn? If not, no clock is read.
    const LEARNS: bool = true;

    /// Pauses to spin.
    fn pauses(&self) -> u32;

    /// The member has waited so long. What took less than `switch_ns` has not waited for a context switch.
    fn learn(&mut self, waited_ns: u64, switch_ns: u64) {
        let _ = (waited_ns, switch_ns);
    }
}

/// A member of a competitive barrier.
#[derive(Debug, Default)]
pub struct CompetitiveMember<W> {
    sense: Sense,
    patience: W,
}

/// The competitive barriers of TR 1994, figures 8 and 9: a counter, a sense, and a semaphore for each sense
/// with the number of those who are blocked on it, under a lock. They differ by their [`Patience`].
pub struct Competitive<P: Platform, W> {
    parties: u32,
    count: P::AtomicU32,
    sense: P::AtomicU32,
    /// Guarded by the mutex.
    blocked: P::AtomicU32,
    mutex: Native<P>,
    wakeup: [Semaphore<P>; 2],
    patience: PhantomData<fn() -> W>,
}

impl<P: Platform, W: Patience> RawBarrier<P> for Competitive<P, W> {
    type Place = ();
    type Member = CompetitiveMember<W>;

    fn new(parties: u32) -> Self {
        Self {
            parties: parties.max(1),
            count: P::AtomicU32::new(0),
            sense: P::AtomicU32::new(0),
            blocked: P::AtomicU32::new(0),
            mutex: Native::new(),
            wakeup: [Semaphore::new(), Semaphore::new()],
            patience: PhantomData,
        }
    }

    fn places(_: u32) -> usize {
        0
    }

    #[inline]
    unsafe fn wait(&self, _: &[()], _: u32, member: &mut Self::Member) -> bool {
        let CompetitiveMember { sense, patience } = member;
        let sense = sense.flip();
        if self.arrive() {
            self.complete(sense);
            return true;
        }
        let asked = if W::LEARNS { P::now_ns() } else { 0 };
        if !spin::<P>(patience.pauses(), || self.is_over(sense)) {
            self.block(sense);
        }
        if W::LEARNS {
            patience.learn(P::now_ns().saturating_sub(asked), switch_ns::<P>());
        }
        false
    }
}

impl<P: Platform, W> Competitive<P, W> {
    #[inline(always)]
    fn is_over(&self, sense: u32) -> bool {
        // ORDER: Acquire, pairs with `complete`; publishes what the members wrote.
        self.sense.load(Acquire) == sense
    }

    /// True for the last to arrive.
    #[inline]
    fn arrive(&self) -> bool {
        // ORDER: AcqRel: Release publishes what this member wrote, Acquire takes, for the last, what all did.
        self.count.fetch_add(1, AcqRel) == self.parties - 1
    }

    /// The waiter's second half: blocks unless the barrier has been achieved meanwhile.
    fn block(&self, sense: u32) {
        // SAFETY: released below, on each way out; the node is ().
        unsafe { self.mutex.lock(&()) };
        let over = self.is_over(sense);
        if !over {
            self.blocked.store(self.blocked.load(Relaxed) + 1, Relaxed);
        }
        // SAFETY: acquired above.
        unsafe { self.mutex.unlock(&()) };
        if !over {
            self.wakeup[sense as usize].acquire();
        }
    }

    /// The last one's part.
    fn complete(&self, sense: u32) {
        self.count.store(0, Relaxed);
        // SAFETY: released below; the node is ().
        unsafe { self.mutex.lock(&()) };
        // ORDER: Release, pairs with `is_over`; publishes what the members wrote, and the counter's zero.
        self.sense.store(sense, Release);
        let blocked = self.blocked.load(Relaxed);
        self.blocked.store(0, Relaxed);
        // SAFETY: acquired above.
        unsafe { self.mutex.unlock(&()) };
        self.wakeup[sense as usize].release(blocked);
    }
}

/// A word that one thread sets to the number of an episode, and for which others wait in the way that a
/// policy says.
///
/// Bit 0: somebody sleeps. The rest: the episode. Who sleeps has set bit 0 in a compare-and-swap that found
/// the old episode, so whoever swaps the new one in sees it and wakes.
struct Flag<P: Platform>(P::AtomicU32);

impl<P: Platform> Default for Flag<P> {
    fn default() -> Self {
        Self(P::AtomicU32::new(0))
    }
}

impl<P: Platform> Flag<P> {
    #[inline(always)]
    fn is(&self, episode: u32) -> bool {
        // ORDER: Acquire, pairs with `set`.
        self.0.load(Acquire) >> 1 == episode & (u32::MAX >> 1)
    }

    /// Sets the episode, for waiters that never sleep.
    fn set_awake(&self, episode: u32) {
        // ORDER: Release, pairs with `is`; publishes what came before the arrival or the release.
        self.0.store(episode << 1, Release);
    }

    /// Sets the episode and wakes whoever sleeps.
    fn set(&self, episode: u32) {
        // ORDER: Release, as above.
        if self.0.swap(episode << 1, Release) & 1 != 0 {
            P::wake(&self.0, u32::MAX);
        }
    }

    #[inline]
    fn set_by<W: Waiting>(&self, episode: u32) {
        if W::SLEEPS { self.set(episode) } else { self.set_awake(episode) }
    }

    /// Sleeps unless the episode has come; may return early.
    fn sleep(&self, episode: u32) {
        let word = self.0.load(Relaxed);
        if word >> 1 != episode & (u32::MAX >> 1)
            && (word & 1 != 0 || self.0.compare_exchange(word, word | 1, Relaxed, Relaxed).is_ok())
        {
            P::wait(&self.0, word | 1, None);
        }
    }

    /// Waits for the episode.
    fn wait<W: Waiting>(&self, episode: u32) {
        self.wait_as::<W>(episode, None, false);
    }

    /// Waits for the episode; `me` and its priority, if the policy informs; `crowded`: there are more members
    /// than processors.
    ///
    /// Who informs hands its processor off, as ICPP 2001 has it: `sched_yield` is that among the threads of a
    /// processor, and nobody need be woken when the barrier opens. Where that does not help, because the one
    /// that matters more is elsewhere, it sleeps.
    fn wait_as<W: Waiting>(&self, episode: u32, me: Option<(ThreadId, Priority)>, crowded: bool) {
        let (mut turns, mut looks, mut hand_offs) = (0u32, 0u32, 0u32);
        while !self.is(episode) {
            turns = turns.wrapping_add(1);
            if W::SLEEPS && (turns == 1 && crowded || turns.is_multiple_of(W::LOOK_PAUSES.min(P::PAUSES))) {
                looks = looks.saturating_add(1);
                if looks == 1
                    && let Some((me, _)) = me
                {
                    // Not before: most waits are over by then, and whoever ends them would have to look what
                    // we did here.
                    P::set_priority(me, Priority::BarrierWaiter);
                }
                // HINT: wrong either way, somebody gives way that could spin, and comes back, or spins until
                // it is over.
                let may_spin = W::may_spin::<P>(Priority::BarrierWaiter, looks);
                if W::INFORMS
                    && hand_offs < HAND_OFFS.min(P::PAUSES)
                    && (!may_spin || looks > SPIN_LOOKS.min(P::PAUSES))
                {
                    hand_offs += !may_spin as u32;
                    // Not to a thread that stands higher alone: one that the barrier has let go, and that has
                    // not run since, stands no higher than we do.
                    P::yield_now();
                    turns = 0;
                    continue;
                }
                if !may_spin {
                    self.sleep(episode);
                    turns = 0;
                    continue;
                }
            }
            P::pause();
        }
        if looks > 0
            && let Some((me, before)) = me
        {
            P::set_priority(me, before);
            informed_after::<W, P>(true, me);
        }
    }

    /// Waits for the episode: awake for so many pauses, then asleep.
    fn wait_pauses(&self, episode: u32, pauses: u32) {
        if !spin::<P>(pauses, || self.is(episode)) {
            while !self.is(episode) {
                self.sleep(episode);
            }
        }
    }
}

/// Who a member is, for those that raise its priority when they let it go on: thread id, and above it the
/// priority that it had.
struct Waiter<P: Platform>(P::AtomicU32);

const PRIORITY_SHIFT: u32 = 16;

impl<P: Platform> Default for Waiter<P> {
    fn default() -> Self {
        Self(P::AtomicU32::new(0))
    }
}

impl<P: Platform> Waiter<P> {
    /// The calling thread is this member. Returns it and its priority.
    fn enter<W: Waiting>(&self) -> (ThreadId, Priority) {
        let me = informed_thread::<W, P>();
        let before = P::priority(me);
        let word = me.0 | (before as u32) << PRIORITY_SHIFT;
        // Others read it; it changes hardly ever.
        if self.0.load(Relaxed) != word {
            self.0.store(word, Relaxed);
        }
        (me, before)
    }

    /// If the member has the priority of one that waits at a barrier (ICPP 2001, section 4): it waits no
    /// longer, whether it runs or not: from now on others make room for it.
    fn raise(&self) {
        let word = self.0.load(Relaxed);
        let (member, before) =
            (ThreadId(word & ((1 << PRIORITY_SHIFT) - 1)), Priority::from_u32(word >> PRIORITY_SHIFT));
        // HINT: lowered after we have looked, it counts as a waiter until it has the processor again.
        if P::priority(member) == Priority::BarrierWaiter {
            P::change_priority(member, Priority::BarrierWaiter, before);
        }
    }
}

/// Children of a node in the trees of arrivals: TR 1994, figure 11.
const FAN_IN: u32 = 4;

/// The members whose arrival this one waits for, with the number of the flag that each sets.
fn children(index: u32, parties: u32) -> impl Iterator<Item = usize> {
    (0..FAN_IN).filter(move |child| index * FAN_IN + child + 1 < parties).map(|child| child as usize)
}

/// The member that waits for this one's arrival, and the number of the flag; the root has none.
fn parent(index: u32) -> (usize, usize) {
    (((index - 1) / FAN_IN) as usize, ((index - 1) % FAN_IN) as usize)
}
