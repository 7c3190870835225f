// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a thread waits: the policies that the algorithms take as a type parameter.
//!
//! ICPP 2001 compares each lock in three versions, and so do we: [`Spin`] never gives the processor up, [`Block`] gives it up at
//! once, [`Informing`] tells the kernel how much each thread matters and gives the processor up exactly when
//! a thread that matters more is without one (section 4 of that paper).

use platform::{Atomic, AtomicInt, Ordering::*, Platform, Priority, ThreadId};

/// What a thread does while it cannot go on.
pub trait Waiting: Send + Sync + 'static {
    /// Waiters may sleep, so that whoever lets them go on must see to it that they wake.
    const SLEEPS: bool;
    /// The lock keeps the user-level priorities of its threads up to date.
    const INFORMS: bool;

    /// May a waiter of this priority go on spinning? Asked again and again.
    fn may_spin<P: Platform>(priority: Priority) -> bool;
}

/// Spins, whatever happens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spin;

/// Sleeps at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block;

/// Spins unless a thread of higher user-level priority is preempted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Informing;

impl Waiting for Spin {
    const SLEEPS: bool = false;
    const INFORMS: bool = false;

    #[inline(always)]
    fn may_spin<P: Platform>(_: Priority) -> bool {
        true
    }
}

impl Waiting for Block {
    const SLEEPS: bool = true;
    const INFORMS: bool = false;

    #[inline(always)]
    fn may_spin<P: Platform>(_: Priority) -> bool {
        false
    }
}

impl Waiting for Informing {
    const SLEEPS: bool = true;
    const INFORMS: bool = true;

    fn may_spin<P: Platform>(priority: Priority) -> bool {
        // HINT: stale either way costs time only: who sleeps is woken by whoever lets it go on, who spins goes on by itself.
        !P::higher_preempted(priority)
    }
}

/// Pauses between two looks at the kernel's hints, which cost a look at each thread where the view keeps no count.
/// COST: about 1 us; a hand-over between two running threads takes less, so that it never looks.
pub const LOOK_PAUSES: u32 = 64;

/// How long a thread that gives its processor up stays away from it, for each thread of the process that does so.
///
/// The papers' second-level scheduler runs it again when no thread of higher priority wants the processor. Linux has no such
/// call: `sched_yield` picks among the threads of one processor by their past, and the thread that the lock waits for is
/// often on the other. Asleep, we are out of its way wherever it is. Whoever comes back costs those at work a few switches, so
/// the time grows with the number away: one comes back each millisecond, however many there are.
/// COST: a third of the slice of Linux's scheduler (3 ms on 2 processors), after which it would have run somebody else anyway.
const AWAY_NS: u64 = 1_000_000;

/// Threads away that count: with more, those at other locks would keep a thread from its own.
const MOST_AWAY: u32 = 3;

/// Pauses `turns` times, or as often as tells this platform apart from pausing once.
#[inline]
pub fn pause<P: Platform>(turns: u32) {
    for _ in 0..turns.clamp(1, P::PAUSES) {
        P::pause();
    }
}

/// Gives the processor up for threads that matter more (ICPP 2001, figure 1, lines 33 and 42). Knows no lock: after a
/// release it may be gone.
#[cold]
#[inline(never)]
pub fn hand_off<P: Platform>() {
    // Threads with a block only: of another we do not know whether it holds a lock that somebody waits for.
    if P::current() != ThreadId::NONE {
        let away = P::away();
        let others = away.fetch_add(1, Relaxed);
        P::nap(AWAY_NS * (others.min(MOST_AWAY) as u64 + 1));
        away.fetch_sub(1, Relaxed);
    }
}

/// The calling thread, known to the kernel view if the policy informs.
#[inline]
pub fn informed_thread<W: Waiting, P: Platform>() -> ThreadId {
    match P::current() {
        ThreadId::NONE if W::INFORMS => P::register(),
        thread => thread,
    }
}

/// The calling thread has got a lock: its priority says so until [`left`].
///
/// The paper saves the priority on the way in and restores it on the way out, which is right for locks that nest like
/// brackets. Released in another order, the first release would take the priority of a thread that still holds a lock,
/// and the last would leave it to one that holds none, for ever. So we count.
#[inline]
pub fn entered<W: Waiting, P: Platform>(me: ThreadId) {
    if W::INFORMS {
        if let Some(holds) = P::holds(me) {
            holds.store(holds.load(Relaxed) + 1, Relaxed);
        }
        P::set_priority(me, Priority::LockHolder);
    }
}

/// The calling thread has released a lock that it [`entered`].
#[inline]
pub fn left<W: Waiting, P: Platform>(me: ThreadId) {
    if W::INFORMS {
        let rest = P::holds(me).map_or(0, |holds| {
            let rest = holds.load(Relaxed).saturating_sub(1);
            holds.store(rest, Relaxed);
            rest
        });
        if rest == 0 {
            P::set_priority(me, Priority::Running);
        }
    }
}
