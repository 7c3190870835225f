// SPDX-License-Identifier: MIT OR Apache-2.0
//! `mcs-spin`, `mcs-block`, `mcs-competitive`, `mcs-informing`: the list-based queue lock, and four ways to
//! wait.
//!
//! First come, first served; each waiter spins on its own cache line. Choose it where fairness counts, or
//! on many processors; `mcs-spin` only on a machine of one's own. Mellor-Crummey and Scott, TOCS 1991;
//! informing: Antonopoulos, Nikolopoulos, Papatheodorou, ICPP 2001, figure 1, whose lines are cited below.
//!
//! Changed in `mcs-informing`, where no second-level scheduler acts on our priorities (Linux's own has none):
//! - "Hand off the processor" in a waiter (lines 18-20) is to sleep on its own node: the processor goes to
//!   whoever is runnable. In a releaser (line 42) it is a nap outside the queue, so that threads without a
//!   processor come to be without a place in line too, and those in line run.
//! - Under such a scheduler ([`Platform::hands_off`]) both are its call, and nobody sleeps or naps for it.
//! - Who hands over to a sleeper wakes the sleeper behind it as well (R4): an immediate waiter is one that
//!   spins by the time it is served.
//! - Line 42 looks at the successor, not at all threads: it is the only one whose priority this release has
//!   raised. Lines 32 and 33, with no successor, look at nobody.
//! - Line 39 comes after line 40, and only for a successor that is off its processor; a running one raises
//!   itself (line 22). It is a write to a line of another processor, between two who hand over. The
//!   releaser is LOCK_HOLDER until it has granted, so that the race for which the paper has line 38
//!   (preempted between 39 and 40 by the successor it has just raised) cannot be.
//! - The previous priority is not saved but counted ([`crate::wait::entered`] says why).
//! # State
//! The lock is the tail of the queue, null when free. The word `state` of a node: bits 0-1 WAITING, ASLEEP,
//! GRANTED; the rest is the waiter's thread.
//!
//! | from | to | by |
//! |---|---|---|
//! | WAITING | ASLEEP | the waiter (A5) |
//! | ASLEEP | WAITING | the predecessor's predecessor, waking it early (R4) |
//! | WAITING, ASLEEP | GRANTED | the predecessor (R3) |
//! # Invariants
//! I1. One node of the queue is granted (or was put into an empty queue), and its thread holds the lock.
//! I2. A node stays where it is from A1 until its thread's unlock has returned. Its predecessors come to it
//! only before they grant it; its successor until it has linked itself (A3), for which unlock waits (R2).
//! I3. A node that is ASLEEP is woken by whoever changes that: every such change is a swap or
//! compare-and-swap that sees it. (A waiter that woke for nothing leaves it ASLEEP, whether it sleeps again
//! or spins, and is woken once more, perhaps in vain.)
//! I4. After R1's null or R3 the releaser touches neither the lock nor another's node: they may be freed by
//! then. Wake-ups, and the count of those who nap, use addresses only.
//! # Protocol
//! A1. Swap the node into the tail (line 7); A2. done if it was null. A3. Link behind the predecessor
//! (lines 12, 15), after taking the priority IMMEDIATE_WAITER if the predecessor owns the lock (line 11),
//! else before changing it to LOCK_WAITER by compare-and-swap (line 16): the predecessor may become the
//! owner meanwhile and raise us (A6), and that must stand. The other race the figure leaves open, and so do
//! we: a predecessor that becomes the owner after our look at it, and looks for us before our link, raises
//! nobody, and the next in line is a LOCK_WAITER until it is served. (To look again would be to look at a
//! node that may be gone.)
//! A4. Spin while WAITING. A5. Sleep if the policy says so (lines 18-20). A6. Granted: become LOCK_HOLDER
//! (line 22), make the successor IMMEDIATE_WAITER (lines 23-25).
//! R1. No successor: tail to null (line 29). R2. That failing, one is about to link; wait for it as an
//! IMMEDIATE_WAITER, giving way to it (lines 34-36). R3. Grant (line 40). R4. Wake the successor if it
//! slept, and before R3, if we are crowded, the one behind it. R5. Restore the priority (line 41). R6. Hand
//! off (line 42).
//! # Memory order
//! A1 release (in AcqRel) -> A1 acquire of the next, and A3 release -> R1, R2 acquire publish the node. R3
//! release -> A4 acquire and R1 release -> A1 acquire publish the protected data. R4 publishes nothing.
//! # Under the scheduler
//! Holder preempted: waiters of `informing` see a preempted thread of higher priority and sleep; the
//! processor is free for the holder. Next waiter preempted: it is served all the same (first come, first
//! served), and the releaser, who sees it, leaves its processor to it. More threads than processors: after
//! a few such hand-overs the threads in line are those that run, the others nap or were preempted outside;
//! a napper's return costs the line a few switches. Hint stale or inverted: a waiter sleeps, and is woken
//! (I3), or spins, and is granted the lock; a releaser naps in vain, a slice (3 ms) for each that does so
//! beside the same lock. Line 39 may raise a thread that is already in another line: until it has that
//! lock. Releaser preempted between R3 and its wake-ups: who sleeps is late by that, the one behind the
//! successor too. Killed while holding: lost. A copy made by `fork` while threads waited is lost in the
//! child: its release hands over to a node on a stack that is nobody's there. No view: `informing` cannot
//! ask, and waits as `competitive` does; those who served a sleeper stay away all the same, so that the
//! line stays short. `spin`, `block` and `competitive` are oblivious: in `spin` everybody waits for whoever
//! is first in line and preempted; in `block` every hand-over is a context switch, in `competitive` every
//! one that takes longer than that.
//! # Fairness and space
//! FIFO. A pointer, and a node of a cache line a waiter.
//! # Rejected
//! `sched_yield` as hand-off: it chooses among the threads of one processor by their past, so that the
//! first in line, on the other, went on waiting. Waking the second in line from inside the section (line
//! 24): the system call would be paid by everybody in line. Skipping preempted waiters: `smart-q`.
//! # Checked by
//! `conformance`: real threads, loom, shuttle; the twin that does not wait for a linking successor (R2) is
//! caught, and so are those that sleep when nobody is woken (I3). R4 has a test in `orderings.rs`.

use core::marker::PhantomData;
use core::ptr;
use platform::{Atomic, AtomicInt, Ordering::*, Platform, Priority, RunState, ThreadId};

use super::RawMutex;
use crate::wait::{self, LOOK_PAUSES, Preemptable, Preemption, Waiting};

const WAITING: u32 = 0;
const ASLEEP: u32 = 1;
const GRANTED: u32 = 2;
const STATE: u32 = 3;
const THREAD_SHIFT: u32 = 2;

/// A thread's place in the queue.
#[repr(align(64))]
pub struct McsNode<P: Platform> {
    next: P::AtomicPtr<McsNode<P>>,
    state: P::AtomicU32,
    /// Its owner slept for this acquisition, so there is more to run than there are processors. Only the
    /// owner's.
    crowded: P::AtomicU32,
}

impl<P: Platform> Default for McsNode<P> {
    fn default() -> Self {
        Self {
            next: Atomic::new(ptr::null_mut()),
            state: P::AtomicU32::new(WAITING),
            crowded: P::AtomicU32::new(0),
        }
    }
}

/// List-based queue lock, waiting as `W` says; with `N` its holder wishes not to be preempted.
pub struct Mcs<P: Platform, W, N = Preemptable> {
    tail: P::AtomicPtr<McsNode<P>>,
    platform: PhantomData<(P, W, N)>,
}

fn thread(state: u32) -> ThreadId {
    ThreadId(state >> THREAD_SHIFT)
}

impl<P: Platform, W: Waiting, N: Preemption> Mcs<P, W, N> {
    fn prepare(node: &McsNode<P>, me: ThreadId) {
        node.next.store(ptr::null_mut(), Relaxed);
        node.state.store(WAITING | me.0 << THREAD_SHIFT, Relaxed);
        if W::INFORMS {
            node.crowded.store(0, Relaxed);
        }
    }

    /// Returns whether it took long.
    ///
    /// # Safety
    /// `before` is the node that ours replaced as the tail.
    #[inline(never)]
    unsafe fn wait_in_line(&self, node: &McsNode<P>, me: ThreadId, before: *mut McsNode<P>) -> bool {
        // SAFETY: by I2 the predecessor's node stays until somebody has seen our link.
        let before = unsafe { &*before };
        let mine = ptr::from_ref(node).cast_mut();
        if W::INFORMS {
            let previous = P::priority(me);
            if before.state.load(Relaxed) & STATE == GRANTED {
                P::set_priority(me, Priority::LockImmediateWaiter);
                // ORDER: Release (A3), pairs with R1 and R2; publishes the node.
                before.next.store(mine, Release);
            } else {
                // ORDER: Release (A3), as above.
                before.next.store(mine, Release);
                P::change_priority(me, previous, Priority::LockWaiter);
            }
        } else {
            // ORDER: Release (A3), as above.
            before.next.store(mine, Release);
        }
        let mut turns = 0u32;
        let mut looks = 0;
        let mut looked = false;
        loop {
            // ORDER: Acquire (A4), pairs with R3.
            let state = node.state.load(Acquire);
            if state & STATE == GRANTED {
                return looked;
            }
            turns = turns.wrapping_add(1);
            let look = wait::look::<W, P>(turns);
            looks = u32::saturating_add(looks, look as u32);
            looked |= look;
            if look && !wait::stays::<W, P>(P::priority(me), looks) {
                looks = 0;
                self.sleep(node, state);
            } else {
                // Not while we wait: only who is inside may delay the others (TR 1994, figure 2).
                wait::unshield::<N, P>(me);
                P::pause();
                wait::shield::<N, P>();
            }
        }
    }

    #[cold]
    fn sleep(&self, node: &McsNode<P>, state: u32) {
        if W::INFORMS {
            node.crowded.store(1, Relaxed);
        }
        let asleep = state | ASLEEP;
        if state == asleep || node.state.compare_exchange(state, asleep, Relaxed, Relaxed).is_ok() {
            // Woken for nothing we come here again and find ASLEEP, which is true again.
            P::wait(&node.state, asleep, None);
        }
    }

    /// Has the lock: lines 22-25.
    fn acquired(&self, node: &McsNode<P>, me: ThreadId) {
        if W::INFORMS {
            wait::entered::<W, P>(me);
            // ORDER: Acquire, pairs with A3.
            let next = node.next.load(Acquire);
            if !next.is_null() {
                // SAFETY: by I2, since only we grant it the lock.
                let next = thread(unsafe { &*next }.state.load(Relaxed));
                P::set_priority(next, Priority::LockImmediateWaiter);
            }
        }
    }

    /// Lines 34-36.
    #[cold]
    #[inline(never)]
    fn await_link(&self, node: &McsNode<P>) -> *mut McsNode<P> {
        let me = P::current();
        if W::INFORMS {
            P::set_priority(me, Priority::LockImmediateWaiter);
        }
        let mut turns = 0u32;
        let next = loop {
            // ORDER: Acquire (R2), pairs with A3.
            let next = node.next.load(Acquire);
            if !next.is_null() {
                break next;
            }
            turns = turns.wrapping_add(1);
            // One that was preempted before linking has at most our priority (line 34): no hint tells us of
            // it.
            if W::SLEEPS && turns.is_multiple_of(LOOK_PAUSES.min(P::PAUSES)) {
                P::hand_off();
            } else {
                P::pause();
            }
        };
        if W::INFORMS {
            P::set_priority(me, Priority::LockHolder);
        }
        next
    }

    /// Wakes the node's thread without granting it anything, if it sleeps (R4). Returns what to pass to
    /// `wake`.
    fn rouse(&self, node: *mut McsNode<P>) -> Option<*const P::AtomicU32> {
        if node.is_null() {
            return None;
        }
        // SAFETY: by I2; the caller has not yet granted the lock to the one before it.
        let word = unsafe { &(*node).state };
        let state = word.load(Relaxed);
        (state & STATE == ASLEEP && word.compare_exchange(state, state & !STATE, Relaxed, Relaxed).is_ok())
            .then_some(ptr::from_ref(word))
    }
}

impl<P: Platform, W: Waiting, N: Preemption> RawMutex<P> for Mcs<P, W, N> {
    type Node = McsNode<P>;

    fn new() -> Self {
        Self { tail: Atomic::new(ptr::null_mut()), platform: PhantomData }
    }

    #[inline]
    unsafe fn lock(&self, node: &McsNode<P>) {
        let shielded = wait::shield::<N, P>();
        let mut me = if W::INFORMS { wait::informed_thread::<W, P>() } else { shielded };
        Self::prepare(node, me);
        // ORDER: AcqRel (A1): Acquire pairs with R1; Release publishes the node to who comes next.
        let before = self.tail.swap(ptr::from_ref(node).cast_mut(), AcqRel);
        if before.is_null() {
            if W::INFORMS {
                node.state.fetch_or(GRANTED, Relaxed);
            }
        } else {
            // SAFETY: it is what our node replaced.
            let looked = unsafe { self.wait_in_line(node, me, before) };
            me = wait::informed_after::<W, P>(looked, me);
        }
        wait::inside::<N, P>(me);
        self.acquired(node, me);
    }

    #[inline]
    unsafe fn try_lock(&self, node: &McsNode<P>) -> bool {
        let shielded = wait::shield::<N, P>();
        let me = if W::INFORMS { wait::informed_thread::<W, P>() } else { shielded };
        Self::prepare(node, me);
        node.state.store(GRANTED | me.0 << THREAD_SHIFT, Relaxed);
        // ORDER: AcqRel, as A1.
        let got = self
            .tail
            .compare_exchange(ptr::null_mut(), ptr::from_ref(node).cast_mut(), AcqRel, Relaxed)
            .is_ok();
        if got {
            wait::inside::<N, P>(me);
            self.acquired(node, me);
        } else {
            wait::unshield::<N, P>(me);
        }
        got
    }

    #[inline]
    unsafe fn unlock(&self, node: &McsNode<P>) {
        // SAFETY: as the caller promises.
        unsafe { self.release(node) };
        wait::outside::<N, P>();
    }
}

impl<P: Platform, W: Waiting, N: Preemption> Mcs<P, W, N> {
    /// # Safety
    /// As for `unlock`.
    #[inline]
    unsafe fn release(&self, node: &McsNode<P>) {
        // ORDER: Acquire (R1), pairs with A3.
        let mut next = node.next.load(Acquire);
        if next.is_null() {
            // ORDER: Release (R1), pairs with A1; publishes the protected data.
            if self
                .tail
                .compare_exchange(ptr::from_ref(node).cast_mut(), ptr::null_mut(), Release, Relaxed)
                .is_ok()
            {
                wait::left::<W, P>(if W::INFORMS { P::current() } else { ThreadId::NONE });
                return;
            }
            next = self.await_link(node);
        }
        // SAFETY: by I2, since only we grant it the lock.
        let word = unsafe { &(*next).state };
        if !W::SLEEPS {
            // ORDER: Release (R3), pairs with A4; publishes the protected data.
            word.store(GRANTED, Release);
            return;
        }
        let behind = if W::INFORMS && node.crowded.load(Relaxed) != 0 {
            // ORDER: Acquire, pairs with A3.
            // SAFETY: as for `next`.
            self.rouse(unsafe { (*next).next.load(Acquire) })
        } else {
            None
        };
        let word_at = ptr::from_ref(word);
        let me = if W::INFORMS { P::current() } else { ThreadId::NONE };
        // ORDER: Release (R3), as above. From here on `next` may be gone, and the lock too (I4).
        let was = word.swap(GRANTED, Release);
        wait::left::<W, P>(me);
        let slept = was & STATE == ASLEEP;
        if W::INFORMS {
            // HINT: naps in vain, or spares a nap and leaves the successor to the scheduler.
            if slept || behind.is_some() || P::run_state(thread(was)) == RunState::Preempted {
                Self::give_way(ptr::from_ref(self).cast(), thread(was), slept.then_some(word_at), behind);
            }
        } else if slept {
            P::wake(word_at, 1);
        }
    }

    /// Sees to it that the successor runs, on our processor if need be: lines 39 and 42.
    #[cold]
    #[inline(never)]
    fn give_way(
        lock: *const (),
        next: ThreadId,
        next_word: Option<*const P::AtomicU32>,
        behind: Option<*const P::AtomicU32>,
    ) {
        // Not if it has changed: then it runs.
        P::change_priority(next, Priority::LockImmediateWaiter, Priority::LockHolder);
        if let Some(word) = next_word {
            P::wake(word, 1);
        }
        if let Some(word) = behind {
            P::wake(word, 1);
        }
        // HINT: a thread that holds another lock keeps its processor: somebody may be waiting for that.
        if P::priority(P::current()) <= Priority::Running {
            wait::hand_off::<P>(lock);
        }
    }
}
