// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ticket-spin`, `ticket-block`, `ticket-informing`: take a number, wait until it is served; three ways to
//! wait.
//!
//! First come, first served without a node: `ticket-spin` on a machine of one's own with little contention,
//! the others to compare. TR 1994, section 4.1 (the standard ticket lock with proportional backoff) and
//! ICPP 2001, section 4 (its three versions; the paper leaves the code to a technical report).
//!
//! Changed: "The releaser of a lock does not know who the successor is" (TR, section 4.1). Here those who
//! sleep say so: they push themselves on a stack of thread ids that starts in the lock and goes through the
//! thread blocks, each with its ticket. So the releaser wakes the one thread it serves, and in `informing`
//! the one behind it, early (see `mcs`, which has the rules).
//!
//! # State
//!
//! `next`: the next ticket (bits above 19 say nothing). `serving`: bits 0-19 the ticket being served, bits
//! 20-31 the thread that slept last, 0 if none. In a sleeper's block: BELOW, the thread that slept before
//! it; TICKET; STATE, ASLEEP or AWAKE.
//!
//! | serving | change | by |
//! |---|---|---|
//! | s, top | s, me | a waiter going to sleep (A3), only while s is not its ticket |
//! | s, top | s, below | the holder, taking the top off (R1) |
//! | s, top | s+1, top | the holder (R2), only if s+1 does not sleep |
//!
//! # Invariants
//!
//! I1. The thread with ticket s holds the lock, if next is not s.
//! I2. A thread is on the stack exactly while its STATE is ASLEEP, seen from the holder (but in A3, while
//! it tries to push itself); only the holder takes threads off.
//! I3. No thread with ticket s is on the stack: A3 does not push it and R2 does not serve one that is
//! there.
//! I4. After R2 the releaser does not touch the lock, which may be freed by then: who waits (R4) it looks
//! up before.
//!
//! # Protocol
//!
//! A1. Take a ticket. A2. Spin until it is served, looking the less often the more are before us. A3. If
//! the policy says so, push oneself and sleep until STATE is AWAKE; again from A2. (`informing` asks its
//! policy as a waiter of the lowest priority once the line has not moved for [`STANDSTILL_LOOKS`].) A
//! thread without a block, or whose words are in use, does not sleep but yields.
//! R1. Take s+1 (and in `informing` s+2) off the stack, making it AWAKE. R2. Serve s+1, if the word has not
//! changed since R1 looked; else again from R1, because A3 may have pushed it. R3. Wake those taken off.
//! R4. Hand off, as in `mcs`.
//!
//! # Memory order
//!
//! R2 release -> A2 acquire publishes the protected data. A3 release -> R1 acquire publishes BELOW, TICKET
//! and STATE; what the holder wrote into blocks (R1) is published by R2 to the next holder.
//!
//! # Under the scheduler
//!
//! As `mcs`. But only who sleeps has a name here, so that a releaser of `informing` looks at all threads,
//! as the paper does, for a preempted one of higher priority; it does so after the hand-over, and only if
//! somebody waited before it. A thread without a block spins, giving way at each look, and so does a signal
//! handler whose thread is asleep in a line itself: its words are taken. A copy made by `fork` while
//! threads waited in line stays taken in the child: their tickets are never used. Hint stale, no view: as
//! `mcs`. A waiter of real-time priority keeps its processor from a holder without until it sleeps: in
//! `informing` as in `ttas`, in `spin` until the kernel throttles it (0.95 s by default). Killed while
//! holding: lost. A release too many, a mistake that POSIX leaves open, does nothing to a free lock; to a
//! held one it lets the next in, as in any lock.
//!
//! # Fairness and space
//!
//! FIFO. 8 bytes, no node, at most 2^20 waiters. The holder walks the stack of sleepers at each release.
//!
//! # Rejected
//!
//! Publishing every spinner as an immediate waiter, so that a preempted successor is always seen: with 8
//! threads and more, somebody deep in line was always preempted, and everybody napped and slept. Sleeping
//! on `serving` and waking all: n wake-ups a hand-over. A bitset of futex channels: not in the seam, and
//! collisions wake in vain.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; the twin that serves before it is done is caught, and so are
//! those that sleep when nobody is woken; words in use by another line (real threads).

use core::marker::PhantomData;
use core::ptr;
use platform::{Atomic, AtomicInt, Ordering::*, Platform, Priority, StaticPlatform, ThreadId};

use super::RawMutex;
use crate::wait::{self, SWITCH_LOOKS, Waiting};

const TICKETS: u32 = (1 << TOP_SHIFT) - 1;
const TOP_SHIFT: u32 = 20;

/// Words of a thread's block, see [`Platform::word`].
const BELOW: usize = 0;
const TICKET: usize = 1;
const STATE: usize = 3;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// COST: pauses for each thread before us, about the length of a short section (40 to 170 ns). No cell known.
pub(super) const PROPORTION: u32 = 4;
/// COST: pauses between two looks at most, 2 to 11 us. No cell known.
pub(super) const MOST_PAUSES: u32 = 256;

/// Looks at a line that does not move before a waiter makes room for any preempted thread of its own program:
/// twice as long as falling asleep and being woken takes.
const STANDSTILL_LOOKS: u32 = 2 * SWITCH_LOOKS;

/// Ticket lock, waiting as `W` says.
#[repr(C, align(8))]
pub struct Ticket<P: Platform, W> {
    next: P::AtomicU32,
    serving: P::AtomicU32,
    platform: PhantomData<(P, W)>,
}

impl<P: StaticPlatform, W> Ticket<P, W> {
    /// A free lock, for a `static`.
    pub const INIT: Self = Self { next: P::ZERO_U32, serving: P::ZERO_U32, platform: PhantomData };
}

fn top(serving: u32) -> ThreadId {
    ThreadId(serving >> TOP_SHIFT)
}

fn ahead(ticket: u32, serving: u32) -> u32 {
    ticket.wrapping_sub(serving) & TICKETS
}

impl<P: Platform, W: Waiting> Ticket<P, W> {
    #[cold]
    #[inline(never)]
    fn wait_in_line(&self, ticket: u32) {
        let me = if W::SLEEPS { P::register() } else { ThreadId::NONE };
        let mut turns = 0u32;
        let mut seen = u32::MAX;
        let mut looks = 0;
        loop {
            // ORDER: Acquire (A2), pairs with R2.
            let serving = self.serving.load(Acquire);
            let ahead = ahead(ticket, serving);
            if ahead == 0 {
                return;
            }
            if W::INFORMS && ahead != seen {
                let priority = if ahead == 1 { Priority::LockImmediateWaiter } else { Priority::LockWaiter };
                P::set_priority(me, priority);
                seen = ahead;
                looks = 0;
            }
            let pauses = (ahead * PROPORTION).min(MOST_PAUSES);
            turns = turns.wrapping_add(pauses);
            if W::SLEEPS && turns >= W::LOOK_PAUSES.min(P::PAUSES) {
                turns = 0;
                looks = u32::saturating_add(looks, 1);
                // The line stands still: the thread it waits for may be one that spins, of our own
                // priority, preempted. No call hands a processor to that one.
                let stands = looks > STANDSTILL_LOOKS && !W::may_spin::<P>(Priority::BarrierWaiter, looks);
                if stands || !wait::stays::<W, P>(P::priority(me), looks) {
                    self.sleep(serving, ticket, me);
                    looks = 0;
                    continue;
                }
            }
            wait::pause::<P>(pauses);
        }
    }

    #[cold]
    fn sleep(&self, serving: u32, ticket: u32, me: ThreadId) {
        // A signal handler that waits while its thread is asleep in a line (this kind's or another's) finds
        // the thread's words taken.
        if me == ThreadId::NONE || P::word(me, STATE).load(Relaxed) != AWAKE {
            P::yield_now();
            return;
        }
        let state = P::word(me, STATE);
        // First, so that a handler which comes here now leaves the other two alone.
        state.store(ASLEEP, Relaxed);
        P::word(me, BELOW).store(top(serving).0, Relaxed);
        P::word(me, TICKET).store(ticket & TICKETS, Relaxed);
        // ORDER: Release (A3), pairs with R1; publishes the three words.
        if self
            .serving
            .compare_exchange(serving, serving & TICKETS | me.0 << TOP_SHIFT, Release, Relaxed)
            .is_ok()
        {
            // ORDER: Acquire, pairs with R1: the holder has done with our words.
            while state.load(Acquire) == ASLEEP {
                P::wait(state, ASLEEP, None);
            }
        } else {
            state.store(AWAKE, Relaxed);
        }
    }

    /// Takes the sleeper with this ticket off the stack that starts in `serving` (R1). `Err`: the stack has
    /// changed.
    fn take(&self, serving: &mut u32, ticket: u32) -> Result<ThreadId, ()> {
        let mut above = ThreadId::NONE;
        let mut thread = top(*serving);
        while thread != ThreadId::NONE {
            let below = P::word(thread, BELOW).load(Relaxed);
            if P::word(thread, TICKET).load(Relaxed) == ticket & TICKETS {
                if above == ThreadId::NONE {
                    let rest = *serving & TICKETS | below << TOP_SHIFT;
                    if self.serving.compare_exchange(*serving, rest, Relaxed, Relaxed).is_err() {
                        return Err(());
                    }
                    *serving = rest;
                } else {
                    P::word(above, BELOW).store(below, Relaxed);
                }
                // ORDER: Release, pairs with A3's loop; we are done with its words.
                P::word(thread, STATE).store(AWAKE, Release);
                return Ok(thread);
            }
            above = thread;
            thread = ThreadId(below);
        }
        Ok(ThreadId::NONE)
    }

    #[cold]
    #[inline(never)]
    fn unlock_to_sleeper(&self) {
        let mut roused = [ThreadId::NONE; 2];
        loop {
            // ORDER: Acquire (R1), pairs with A3.
            let mut serving = self.serving.load(Acquire);
            let ticket = serving.wrapping_add(1);
            let result = self.take(&mut serving, ticket).and_then(|first| {
                if first != ThreadId::NONE {
                    roused[0] = first;
                }
                if W::INFORMS {
                    let second = self.take(&mut serving, ticket.wrapping_add(1))?;
                    if second != ThreadId::NONE {
                        roused[1] = second;
                    }
                }
                Ok(())
            });
            let after = serving & !TICKETS | ticket & TICKETS;
            // ORDER: Release (R2), pairs with A2; publishes the protected data and what we wrote into blocks.
            if result.is_ok() && self.serving.compare_exchange(serving, after, Release, Relaxed).is_ok() {
                break;
            }
        }
        let me = P::current();
        wait::left::<W, P>(me);
        let mut gave = false;
        for thread in roused {
            if thread != ThreadId::NONE {
                if W::INFORMS {
                    P::change_priority(thread, Priority::LockWaiter, Priority::LockImmediateWaiter);
                }
                P::wake(P::word(thread, STATE), 1);
                gave = true;
            }
        }
        // HINT: a thread that holds another lock keeps its processor: somebody may be waiting for that.
        if W::INFORMS && gave && P::priority(me) <= Priority::Running {
            wait::hand_off::<P>(ptr::from_ref(self).cast());
        }
    }
}

impl<P: Platform, W: Waiting> RawMutex<P> for Ticket<P, W> {
    type Node = ();

    fn new() -> Self {
        Self { next: P::AtomicU32::new(0), serving: P::AtomicU32::new(0), platform: PhantomData }
    }

    #[inline]
    unsafe fn lock(&self, _: &()) {
        let ticket = self.next.fetch_add(1, Relaxed);
        // ORDER: Acquire (A2), pairs with R2.
        if ahead(ticket, self.serving.load(Acquire)) != 0 {
            self.wait_in_line(ticket);
        }
        wait::entered::<W, P>(if W::INFORMS { wait::informed_thread::<W, P>() } else { ThreadId::NONE });
    }

    #[inline]
    unsafe fn try_lock(&self, _: &()) -> bool {
        let next = self.next.load(Relaxed);
        // ORDER: Acquire (A2), pairs with R2. If nobody takes a ticket until we do, nobody else is served
        // either.
        let got = ahead(next, self.serving.load(Acquire)) == 0
            && self.next.compare_exchange(next, next.wrapping_add(1), Relaxed, Relaxed).is_ok();
        if got {
            wait::entered::<W, P>(if W::INFORMS { wait::informed_thread::<W, P>() } else { ThreadId::NONE });
        }
        got
    }

    #[inline]
    unsafe fn unlock(&self, _: &()) {
        let serving = self.serving.load(Relaxed);
        let next = self.next.load(Relaxed);
        // Released by somebody who does not hold it: the next ticket would never be served.
        if ahead(next, serving) == 0 {
            return;
        }
        if !W::SLEEPS {
            // ORDER: Release (R2), pairs with A2; publishes the protected data.
            self.serving.store(serving.wrapping_add(1) & TICKETS, Release);
            return;
        }
        let awaited = W::INFORMS && ahead(next, serving) > 1;
        // ORDER: Release (R2), as above. From here on the lock may be gone (I4).
        if top(serving) != ThreadId::NONE
            || self
                .serving
                .compare_exchange(serving, serving.wrapping_add(1) & TICKETS, Release, Relaxed)
                .is_err()
        {
            self.unlock_to_sleeper();
        } else if W::INFORMS {
            let me = P::current();
            wait::left::<W, P>(me);
            // HINT: naps in vain, or spares a nap and leaves the successor to the scheduler.
            if awaited && P::priority(me) <= Priority::Running && P::higher_preempted(Priority::Running) {
                wait::hand_off::<P>(ptr::from_ref(self).cast());
            }
        }
    }
}
