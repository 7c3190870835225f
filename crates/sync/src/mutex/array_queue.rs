// SPDX-License-Identifier: MIT OR Apache-2.0
//! `array-queue-spin`, `array-queue-block`, `array-queue-informing`: a queue in an array, each waiter at a
//! slot of its own, and three ways to wait.
//!
//! First come, first served, with local spinning and without the link that `mcs` waits for; it costs an
//! array a lock. Anderson, TPDS 1990; ICPP 2001, section 4, "Queue Lock" (the paper leaves its code to a
//! technical report; the four steps of figure 1 are applied here).
//!
//! Changed: a slot holds the ticket served there last, where Anderson's holds a flag that the next owner of
//! the slot resets. So more threads than slots share slots instead of overrunning them, and the array is as
//! long as machines have processors, not as programs have threads: 16 lines.
//!
//! # State
//!
//! `next`: the next ticket (31 bits). Slot `n mod SLOTS` for ticket n: `turn`, bits 1-31 the ticket served
//! there last, bit 0 SLEEPERS; `who`, a thread that is next there, in `informing`. The node keeps the
//! ticket from acquire to release.
//!
//! | turn | change | by |
//! |---|---|---|
//! | n - SLOTS, any | n, no SLEEPERS | who holds n - 1 (R2) |
//! | n, - | n, SLEEPERS | a waiter of a later ticket, going to sleep (A4) |
//! | n, SLEEPERS | n, - | who holds an earlier ticket, waking early (R1) |
//!
//! # Invariants
//!
//! I1. The greatest ticket in any slot is the one that is served; its owner holds the lock, or the lock is
//! free if that is `next`.
//! I2. A slot's ticket only grows, by SLOTS. (Modulo 2^31: a thread would have to be stopped between two
//! looks while as many are served.)
//! I3. A thread that sleeps on a slot has set SLEEPERS there, and whoever clears it wakes all who sleep
//! there; those whose turn it is not look, and sleep again.
//! I4. After R2 the releaser uses the address of the slot only: the lock may be freed by then.
//!
//! # Protocol
//!
//! A1. Take a ticket. A2. In `informing`, once the ticket before in one's slot is served: publish oneself
//! (`who`); if the predecessor owns the lock become IMMEDIATE_WAITER (figure 1, line 11), else LOCK_WAITER
//! by compare-and-swap (line 16), because the predecessor may become the owner meanwhile and raise us (A5).
//! The two may miss each other (see `mcs`, A3); here both A2 and the policy are asked again at each look.
//! A3. Spin until the slot has one's ticket. A4. Sleep if the policy says so.
//! A5. Become LOCK_HOLDER (line 22) and make the successor, if it has published itself, IMMEDIATE_WAITER
//! (lines 23-25).
//! R1. In `informing`, if we are crowded, wake who sleeps at the slot after next. R2. Serve the next ticket
//! (line 40). There is always a slot for it, so lines 28 to 36, where `mcs` waits for a successor that is
//! about to link, have nothing to correspond to. R3. Wake who sleeps there. R4. Restore the priority (line
//! 41). R5. Hand off (line 42), as `mcs`.
//!
//! # Memory order
//!
//! R2 release -> A3 acquire publishes the protected data. Nothing else is published: `who` is a hint.
//!
//! # Under the scheduler
//!
//! As `mcs`. Hint stale: `who` may name a thread that has long gone on; then that one's priority is raised,
//! if it waits for a lock, until it acquires it. A successor that was preempted before it published itself
//! is nobody that we know: its releaser does not make room for it. Killed while holding: lost. A copy made
//! by `fork` while threads waited serves tickets that are never used: lost in the child.
//!
//! # Fairness and space
//!
//! FIFO. 17 cache lines a lock, a word a waiter. With more waiters than slots, each SLOTS-th spins on the
//! same line.
//!
//! # Rejected
//!
//! Slots in the thread blocks: tickets of two locks would meet in one. Slots for as many threads as there
//! are blocks: 16 KiB a lock at one word each, which then share lines. Allocating the array on first
//! contention: acquire does not allocate.
//!
//! # Checked by
//!
//! `conformance`: real threads (more than slots), loom and shuttle, also with two slots, which threads then
//! share; the twins whose slots overrun, and that wake one of those at a slot, are caught. Nobody sees
//! tickets go round (2^31).

use core::array;
use core::marker::PhantomData;
use core::ptr;
use platform::{Atomic, AtomicInt, Ordering::*, Platform, Priority, RunState, ThreadId};

use super::RawMutex;
use crate::wait::{self, Waiting};

const SLEEPERS: u32 = 1;
const TICKETS: u32 = u32::MAX >> 1;

/// A place in the line.
#[repr(align(64))]
struct Slot<P: Platform> {
    turn: P::AtomicU32,
    who: P::AtomicU32,
}

/// What an acquisition remembers until its release.
pub struct ArrayQueueNode<P: Platform> {
    ticket: P::AtomicU32,
    /// Its owner slept for this acquisition.
    crowded: P::AtomicU32,
}

impl<P: Platform> Default for ArrayQueueNode<P> {
    fn default() -> Self {
        Self { ticket: Atomic::new(0), crowded: Atomic::new(0) }
    }
}

/// Array-based queue lock, waiting as `W` says. `SLOTS` is a power of two, and at least 2.
#[repr(C)]
pub struct ArrayQueue<P: Platform, W, const SLOTS: usize = 16> {
    slots: [Slot<P>; SLOTS],
    next: P::AtomicU32,
    platform: PhantomData<W>,
}

impl<P: Platform, W: Waiting, const SLOTS: usize> ArrayQueue<P, W, SLOTS> {
    /// Of this ticket, or one far from it.
    fn slot(&self, ticket: u32) -> &Slot<P> {
        &self.slots[ticket as usize % SLOTS]
    }

    fn is_served(&self, ticket: u32) -> bool {
        // ORDER: Acquire (A3), pairs with R2.
        self.slot(ticket).turn.load(Acquire) >> 1 == ticket & TICKETS
    }

    /// Returns whether it slept, and who the thread is from now on.
    #[inline(never)]
    fn wait_in_line(&self, ticket: u32, me: ThreadId) -> (bool, ThreadId) {
        let slot = self.slot(ticket);
        let mut slept = false;
        let mut looked = false;
        let mut turns = 0u32;
        let mut looks = 0;
        if W::INFORMS {
            let previous = P::priority(me);
            self.publish(slot, ticket, me, previous);
        }
        loop {
            // ORDER: Acquire (A3), pairs with R2.
            let turn = slot.turn.load(Acquire);
            if turn >> 1 == ticket & TICKETS {
                break;
            }
            turns = turns.wrapping_add(1);
            if !wait::look::<W, P>(turns) {
                P::pause();
                continue;
            }
            looks = u32::saturating_add(looks, 1);
            looked = true;
            if W::INFORMS {
                self.publish(slot, ticket, me, Priority::LockWaiter);
            }
            if wait::stays::<W, P>(P::priority(me), looks) {
                P::pause();
                continue;
            }
            looks = 0;
            slept = true;
            let asleep = turn | SLEEPERS;
            if turn == asleep || slot.turn.compare_exchange(turn, asleep, Relaxed, Relaxed).is_ok() {
                P::wait(&slot.turn, asleep, None);
            }
        }
        if W::INFORMS {
            // Unless somebody has come after us.
            let _ = slot.who.compare_exchange(me.0, ThreadId::NONE.0, Relaxed, Relaxed);
        }
        (slept, wait::informed_after::<W, P>(looked, me))
    }

    /// A2.
    fn publish(&self, slot: &Slot<P>, ticket: u32, me: ThreadId, previous: Priority) {
        let last = slot.turn.load(Relaxed) >> 1;
        if last != ticket.wrapping_sub(SLOTS as u32) & TICKETS {
            P::change_priority(me, previous, Priority::LockWaiter);
            return;
        }
        if slot.who.load(Relaxed) != me.0 {
            slot.who.store(me.0, Relaxed);
        }
        let before = ticket.wrapping_sub(1);
        let next = self.slot(before).turn.load(Relaxed) >> 1 == before & TICKETS;
        let priority = if next { Priority::LockImmediateWaiter } else { Priority::LockWaiter };
        P::change_priority(me, previous, priority);
    }

    /// Has the lock (A5).
    fn acquired(&self, ticket: u32, me: ThreadId) {
        if W::INFORMS {
            wait::entered::<W, P>(me);
            let next = ThreadId(self.slot(ticket.wrapping_add(1)).who.load(Relaxed));
            if next != ThreadId::NONE {
                // HINT: if it is another than our successor, that one is taken more seriously than it should.
                P::change_priority(next, Priority::LockWaiter, Priority::LockImmediateWaiter);
            }
        }
    }

    /// Wakes those asleep at the ticket's slot without serving anybody (R1). Returns what to pass to `wake`.
    fn rouse(&self, ticket: u32) -> Option<*const P::AtomicU32> {
        let turn = &self.slot(ticket).turn;
        let now = turn.load(Relaxed);
        (now & SLEEPERS != 0 && turn.compare_exchange(now, now & !SLEEPERS, Relaxed, Relaxed).is_ok())
            .then_some(ptr::from_ref(turn))
    }

    /// Sees to it that the successor runs, on our processor if need be (R3, R5).
    #[cold]
    #[inline(never)]
    fn give_way(lock: *const (), next: ThreadId, asleep: [Option<*const P::AtomicU32>; 2]) {
        if next != ThreadId::NONE {
            // Not if it has changed: then it runs.
            P::change_priority(next, Priority::LockImmediateWaiter, Priority::LockHolder);
        }
        for word in asleep.into_iter().flatten() {
            P::wake(word, u32::MAX);
        }
        // HINT: a thread that holds another lock keeps its processor: somebody may be waiting for that.
        if P::priority(P::current()) <= Priority::Running {
            wait::hand_off::<P>(lock);
        }
    }
}

impl<P: Platform, W: Waiting, const SLOTS: usize> RawMutex<P> for ArrayQueue<P, W, SLOTS> {
    type Node = ArrayQueueNode<P>;

    fn new() -> Self {
        debug_assert!(SLOTS.is_power_of_two() && SLOTS >= 2);
        Self {
            // Ticket 0 is served, the others in the round before.
            slots: array::from_fn(|index| Slot {
                turn: Atomic::new(if index == 0 {
                    0
                } else {
                    (index.wrapping_sub(SLOTS) as u32 & TICKETS) << 1
                }),
                who: Atomic::new(ThreadId::NONE.0),
            }),
            next: Atomic::new(0),
            platform: PhantomData,
        }
    }

    #[inline]
    unsafe fn lock(&self, node: &ArrayQueueNode<P>) {
        let me = if W::INFORMS { wait::informed_thread::<W, P>() } else { ThreadId::NONE };
        let ticket = self.next.fetch_add(1, Relaxed);
        let (slept, me) = if self.is_served(ticket) { (false, me) } else { self.wait_in_line(ticket, me) };
        node.ticket.store(ticket, Relaxed);
        node.crowded.store(slept as u32, Relaxed);
        self.acquired(ticket, me);
    }

    #[inline]
    unsafe fn try_lock(&self, node: &ArrayQueueNode<P>) -> bool {
        let ticket = self.next.load(Relaxed);
        // If nobody takes a ticket until we do, nobody else is served either.
        let got = self.is_served(ticket)
            && self.next.compare_exchange(ticket, ticket.wrapping_add(1), Relaxed, Relaxed).is_ok();
        if got {
            node.ticket.store(ticket, Relaxed);
            node.crowded.store(0, Relaxed);
            self.acquired(ticket, if W::INFORMS { wait::informed_thread::<W, P>() } else { ThreadId::NONE });
        }
        got
    }

    #[inline]
    unsafe fn unlock(&self, node: &ArrayQueueNode<P>) {
        let next = node.ticket.load(Relaxed).wrapping_add(1);
        let slot = self.slot(next);
        let serve = (next & TICKETS) << 1;
        if !W::SLEEPS {
            // ORDER: Release (R2), pairs with A3; publishes the protected data.
            slot.turn.store(serve, Release);
            return;
        }
        let behind = if W::INFORMS && node.crowded.load(Relaxed) != 0 {
            self.rouse(next.wrapping_add(1))
        } else {
            None
        };
        let who = if W::INFORMS { ThreadId(slot.who.load(Relaxed)) } else { ThreadId::NONE };
        let (lock, word) = (ptr::from_ref(self).cast(), ptr::from_ref(&slot.turn));
        // ORDER: Release (R2), as above. From here on the lock may be gone (I4).
        let slept = slot.turn.swap(serve, Release) & SLEEPERS != 0;
        if !W::INFORMS {
            if slept {
                P::wake(word, u32::MAX);
            }
            return;
        }
        wait::left::<W, P>(P::current());
        // HINT: naps in vain, or spares a nap and leaves the successor to the scheduler.
        if slept || behind.is_some() || P::run_state(who) == RunState::Preempted {
            Self::give_way(lock, who, [slept.then_some(word), behind]);
        }
    }
}
