// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a thread waits, and what it asks of the kernel meanwhile: the policies that the algorithms take as
//! type parameters.
//!
//! ICPP 2001 compares each lock in three versions, and so do we: [`Spin`] never gives the processor up,
//! [`Block`] gives it up at once, [`Informing`] tells the kernel how much each thread matters and gives the
//! processor up exactly when a thread that matters more is without one (section 4 of that paper).
//! [`Competitive`], which that paper leaves out, spins for as long as a switch costs and then gives up. The
//! TR's locks come in two versions: [`Preemptable`] and [`Unpreemptable`], its `-np`.
//!
//! What is counted in pauses is a matter of the processor: a pause took 43 ns on one and 10 ns on
//! another virtual Xeon (November 2026). Times given for such numbers, here and in the algorithms, lie
//! between; none of them decides anything that a factor of 4 would turn around.

pub mod answer;
pub mod look;
pub mod publish;
pub mod room;
pub mod standby;
pub mod vain;

use platform::{Atomic, AtomicInt, Ordering::*, Platform, Priority, RunState, ThreadId, Wish};

/// What a thread does while it cannot go on.
pub trait Waiting: Send + Sync + 'static {
    /// Waiters may sleep, so that whoever lets them go on must see to it that they wake.
    const SLEEPS: bool;
    /// The lock keeps the user-level priorities of its threads up to date.
    const INFORMS: bool;
    /// Pauses between two questions whether to go on spinning.
    const LOOK_PAUSES: u32 = LOOK_PAUSES;

    /// May a waiter of this priority go on spinning, after so many looks in a row?
    fn may_spin<P: Platform>(priority: Priority, looks: u32) -> bool;
}

/// Spins, whatever happens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spin;

/// Sleeps at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block;

/// Spins unless a thread of higher user-level priority is preempted.
///
/// Where no view looks, nobody knows that; then as [`Competitive`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Informing;

/// Spins for as long as a switch costs, then sleeps: never more than twice what the better of the two would
/// have cost.
///
/// Karlin, Li, Manasse, Owicki, SOSP 1991, "fixed spin". Their adaptive versions remember how long the last
/// waits took, for which a lock of one word has no room.
#[derive(Clone, Copy, Debug, Default)]
pub struct Competitive;

impl Waiting for Spin {
    const SLEEPS: bool = false;
    const INFORMS: bool = false;

    #[inline(always)]
    fn may_spin<P: Platform>(_: Priority, _: u32) -> bool {
        true
    }
}

impl Waiting for Block {
    const SLEEPS: bool = true;
    const INFORMS: bool = false;
    const LOOK_PAUSES: u32 = 1;

    #[inline(always)]
    fn may_spin<P: Platform>(_: Priority, _: u32) -> bool {
        false
    }
}

impl Waiting for Informing {
    const SLEEPS: bool = true;
    const INFORMS: bool = true;

    fn may_spin<P: Platform>(priority: Priority, looks: u32) -> bool {
        // HINT: stale either way costs time only: who sleeps is woken by whoever lets it go on, who spins
        // goes on by itself.
        !P::higher_preempted(priority)
            && (Competitive::may_spin::<P>(priority, looks)
                || P::run_state(P::current()) != RunState::Unknown)
    }
}

impl Waiting for Competitive {
    const SLEEPS: bool = true;
    const INFORMS: bool = false;

    #[inline]
    fn may_spin<P: Platform>(_: Priority, looks: u32) -> bool {
        looks <= SWITCH_LOOKS.min(P::PAUSES)
    }
}

/// COST: looks, of 0.6 to 3 us, for as long as falling asleep and being woken takes (2 processors, virtual
/// machine: 5 to 15 us). No cell known.
pub(crate) const SWITCH_LOOKS: u32 = 10;

/// Is it time to ask [`Waiting::may_spin`]?
#[inline(always)]
pub fn look<W: Waiting, P: Platform>(turns: u32) -> bool {
    W::SLEEPS && turns.is_multiple_of(W::LOOK_PAUSES.min(P::PAUSES))
}

/// May a waiter stay awake? ICPP 2001, figure 1, lines 18 to 20: one that informs gives its processor to the
/// preempted thread that stands higher, and then looks on, where the machine has that call
/// ([`Platform::hands_off`]). It has slept through nothing, and nobody need wake it.
#[inline]
pub fn stays<W: Waiting, P: Platform>(priority: Priority, looks: u32) -> bool {
    if W::may_spin::<P>(priority, looks) {
        return true;
    }
    // HINT: wrong, a thread of its own priority comes before it.
    let hands_off = W::INFORMS && P::hands_off();
    if hands_off {
        P::hand_off();
    }
    hands_off
}

/// Does a lock ask the kernel not to preempt those inside? (TR 1994, section 3, KE-1 and KE-2)
pub trait Preemption: Send + Sync + 'static {
    /// It does.
    const WISHES: bool;
    /// It asks by [`publish`], where a scheduler acts on priorities.
    const PUBLISHES: bool = false;
}

/// Does not ask but by [`publish`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Preemptable;

/// Never asks: a part of another lock, whose holder does not matter for that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inner;

/// Asks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unpreemptable;

impl Preemption for Preemptable {
    const WISHES: bool = false;
    const PUBLISHES: bool = true;
}

impl Preemption for Inner {
    const WISHES: bool = false;
}

impl Preemption for Unpreemptable {
    const WISHES: bool = true;
}

/// In [`Platform::holds`]: one lock that made its holder unpreemptable. Below it they count those that
/// raised its priority, and between is the priority that the thread has without: see [`publish`].
const SHIELD: u32 = 1 << 16;
const RAISED: u32 = (1 << publish::OWN_SHIFT) - 1;

/// From here on the calling thread, which it returns, wishes not to be preempted. Before the attempt to
/// acquire, so that no moment inside is without (TR 1994, figures 2 to 4: `cb->state :=
/// unpreemptable_self`).
#[inline]
pub fn shield<N: Preemption, P: Platform>() -> ThreadId {
    if !N::WISHES {
        return ThreadId::NONE;
    }
    let me = match P::current() {
        ThreadId::NONE => P::register(),
        me => me,
    };
    P::set_wish(me, Wish::UnpreemptableSelf);
    me
}

/// Does the thread hold a lock for which it wishes not to be preempted?
#[inline]
pub fn is_inside<P: Platform>(me: ThreadId) -> bool {
    P::holds(me).is_some_and(|holds| holds.load(Relaxed) >= SHIELD)
}

/// Has the kernel put off to preempt the calling thread (KE-2), though it is inside of nothing that wishes?
#[inline]
pub fn is_warned<N: Preemption, P: Platform>(me: ThreadId) -> bool {
    N::WISHES && !is_inside::<P>(me) && P::warning(me)
}

/// The attempt failed, or the lock is released: the wish is withdrawn, and repaid if it was granted (KE-2),
/// unless the thread holds another lock that wishes, mutex or reader-writer lock. The figures have one word
/// a thread and no count: there the first of two nested locks to be released takes the wish of both.
#[inline]
pub fn unshield<N: Preemption, P: Platform>(me: ThreadId) {
    if N::WISHES && !is_inside::<P>(me) {
        P::set_wish(me, Wish::Preemptable);
        repay::<N, P>(me);
    }
}

/// The attempt succeeded.
#[inline]
pub fn inside<N: Preemption, P: Platform>(me: ThreadId) {
    if N::WISHES
        && let Some(holds) = P::holds(me)
    {
        holds.store(holds.load(Relaxed) + SHIELD, Relaxed);
    }
}

/// The same after a wait that may have given the thread another id, as in a forked child.
#[inline]
pub fn inside_after_wait<N: Preemption, P: Platform>() {
    if N::WISHES {
        inside::<N, P>(P::current());
    }
}

/// The calling thread has released a lock that it was [`inside`].
#[inline]
pub fn outside<N: Preemption, P: Platform>() {
    repay::<N, P>(withdraw::<N, P>());
}

/// The first half of [`outside`]: the wish ends. Whoever wakes sleepers does so after this and before
/// [`repay`]: what the kernel grants for the section is not spent on the wake-up, and the yield does not
/// keep the sleepers waiting.
#[inline]
pub fn withdraw<N: Preemption, P: Platform>() -> ThreadId {
    if !N::WISHES {
        return ThreadId::NONE;
    }
    let me = P::current();
    if let Some(holds) = P::holds(me) {
        let now = holds.load(Relaxed);
        // Not there, if the thread got its block while it was inside. What is below is of other locks.
        if now >= SHIELD {
            holds.store(now - SHIELD, Relaxed);
        }
    }
    if !is_inside::<P>(me) {
        P::set_wish(me, Wish::Preemptable);
    }
    me
}

/// The second half of [`outside`]: the processor is given up, if the kernel has put that off (KE-2).
#[inline]
pub fn repay<N: Preemption, P: Platform>(me: ThreadId) {
    // HINT: a warning missed costs the grace of the next section; one too many costs a yield.
    if is_warned::<N, P>(me) {
        P::yield_now();
    }
}

/// Pauses between two looks at the kernel's hints, which cost a look at each thread where the view keeps no
/// count. COST: 0.6 to 3 us; a hand-over between two running threads takes less, so that it never looks. No
/// cell known.
pub const LOOK_PAUSES: u32 = 64;
/// COST: pauses that take about as long as a context switch, the papers' SWITCH_TIME: 0.5 to 2 us. No cell
/// known.
pub const SWITCH_PAUSES: u32 = 50;
/// Pauses after which a thread that was asked counts as preempted. One that runs answers after two moves of
/// a line, when it looks at its word the next time: three times what waiters leave between two looks.
pub const ANSWER_PAUSES: u32 = 3 * LOOK_PAUSES;

/// How long a thread that gives its processor up stays away from it, for each thread that does so beside
/// the same lock.
///
/// The papers' second-level scheduler runs it again when no thread of higher priority wants the processor.
/// Linux has no such call: `sched_yield` picks among the threads of one processor by their past, and the
/// thread that the lock waits for is often on the other. (The scheduler of ours has: then that is all.)
/// Asleep, we are out of its way wherever it is. Whoever comes back takes a processor from somebody at
/// work, in line perhaps; so one comes back each slice, however many there are, as if the scheduler had
/// gone round. COST: the slice of Linux's scheduler on 2 processors (3 ms). With 1 ms, those who came back
/// kept the line asleep: a hand-over each 3 ms, for ever. Cell: 32 threads, two busy processes. Not the
/// machine's slice: the papers' machines have 20 to 200 ms, and the figures are of 3.
const AWAY_NS: u64 = 3_000_000;

/// Threads away that count: with more, one of hundreds would be away for longer than a person waits.
const MOST_AWAY: u32 = 31;

/// COST: naps in a row, of [`AWAY_NS`], while the return would be at the expense of a thread that matters
/// more. Bounded, because that thread may be kept from its processor by another program, which our absence
/// does not help. No cell known.
const RETURNS: u32 = 4;

/// Pauses `turns` times, or as often as tells this platform apart from pausing once.
#[inline]
pub fn pause<P: Platform>(turns: u32) {
    for _ in 0..turns.clamp(1, P::PAUSES) {
        P::pause();
    }
}

/// Gives the processor up for threads that matter more (ICPP 2001, figure 1, line 42). Of the lock it uses
/// the address: after a release the lock may be gone.
#[cold]
#[inline(never)]
pub fn hand_off<P: Platform>(lock: *const ()) {
    // Threads with a block only: of another we do not know whether it holds a lock that somebody waits for.
    if P::current() == ThreadId::NONE {
        return;
    }
    if P::hands_off() {
        return P::hand_off();
    }
    let away = P::away(lock);
    let others = away.fetch_add(1, Relaxed);
    P::refresh_processors(None);
    // In naps that double, so that nobody is away for more than twice as long as there was somebody to make
    // room for.
    let (mut rest, mut nap) = (others.min(MOST_AWAY).min(P::PAUSES) + 1, 1);
    while rest > 0 {
        nap = rest.min(nap);
        P::nap(AWAY_NS * nap as u64);
        // HINT: comes back too early, as if it had not been many who were away; or too late, by as long as
        // it has been away.
        if P::spare_processors() {
            break;
        }
        rest -= nap;
        nap *= 2;
    }
    for _ in 0..RETURNS.min(P::PAUSES) {
        // HINT: comes back too early, and stands in the way for a slice, or too late, by a few naps.
        if !P::higher_preempted(Priority::Running) {
            break;
        }
        P::nap(AWAY_NS);
    }
    away.fetch_sub(1, Relaxed);
}

/// The calling thread, known to the kernel view if the policy informs.
///
/// In a forked child the thread that forked has its id from the parent, which may be another thread's here,
/// until it has waited for so long that it looked: then the lock calls [`Platform::register`], which gives
/// it one of its own.
#[inline]
pub fn informed_thread<W: Waiting, P: Platform>() -> ThreadId {
    match P::current() {
        ThreadId::NONE if W::INFORMS => P::register(),
        thread => thread,
    }
}

/// The same after a wait, in which the thread looked at the hints, or not.
#[inline]
pub fn informed_after<W: Waiting, P: Platform>(looked: bool, me: ThreadId) -> ThreadId {
    if W::INFORMS && looked { P::register() } else { me }
}

/// The calling thread has got a lock: its priority says so until [`left`].
///
/// The paper saves the priority on the way in and restores it on the way out, which is right for locks that
/// nest like brackets. Released in another order, the first release would take the priority of a thread
/// that still holds a lock, and the last would leave it to one that holds none, for ever. So we count.
#[inline]
pub fn entered<W: Waiting, P: Platform>(me: ThreadId) {
    if W::INFORMS {
        if let Some(holds) = P::holds(me) {
            let now = holds.load(Relaxed);
            // BOUND: 4,095 locks. With more, the priority ends before the last release.
            if now & RAISED != RAISED {
                holds.store(now + 1, Relaxed);
            }
        }
        P::set_priority(me, Priority::LockHolder);
    }
}

/// Does the thread hold a lock that raised its priority?
pub fn raised<P: Platform>(me: ThreadId) -> bool {
    P::holds(me).is_some_and(|holds| holds.load(Relaxed) & RAISED != 0)
}

/// The calling thread has released a lock that it [`entered`].
#[inline]
pub fn left<W: Waiting, P: Platform>(me: ThreadId) {
    if W::INFORMS {
        let rest = P::holds(me).map_or(0, |holds| {
            let now = holds.load(Relaxed);
            let rest = now & !RAISED | (now & RAISED).saturating_sub(1);
            holds.store(rest, Relaxed);
            rest
        });
        if rest & RAISED == 0 {
            P::set_priority(me, publish::own_of(rest));
        }
    }
}
