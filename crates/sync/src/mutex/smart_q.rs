// SPDX-License-Identifier: MIT OR Apache-2.0
//! `smart-q`: a queue lock that asks the kernel whether its successor runs, and passes over one that does
//! not.
//!
//! For short sections with a kernel that honours the wish not to be preempted; elsewhere it still never
//! hands itself to a thread known to be off its processor. Kontothanassis, Wisniewski, Scott, TR 1994,
//! figure 3 (kernel extensions KE-1, KE-2).
//!
//! Changed:
//! - The figure tells a passed-over thread so (`shadow->status := failure`) and only then tries to take
//!   that thread's node off the tail of an otherwise empty queue. In between the thread can enter the same
//!   node again, find it at the tail, and wait behind itself for ever while the releaser frees the lock. We
//!   settle what is behind the node first (R3, R5).
//! - The releaser passes over at most `SKIPS` threads. With a hint that is always wrong, the figure's
//!   releaser chases for ever those whom it passed over and who queue again.
//! - Where KE-1 is not honoured, as on Linux without the slice extension, a waiter that sees its
//!   predecessor off its processor naps, because that is often the holder. The releaser passes over who
//!   naps as over who is preempted, and it queues again. Where KE-1 is honoured it spins, as in the figure:
//!   the predecessor is a waiter who will be passed over, and a nap would give a quantum away for that.
//! - The figure's node has a field `next_done` that it never uses; it belongs to figure 2.
//!
//! # State
//!
//! The lock is the tail of the queue, null when free. A node has its thread, `next`, and `status`: WAITING
//! -> SUCCESS (the lock is yours) or FAILURE (you were passed over; queue again). The nodes from the
//! holder's to the tail are linked, each link appearing a moment after the tail has moved.
//!
//! # Invariants
//!
//! I1. One thread at a time is between acquiring (A2 on an empty queue, or SUCCESS) and releasing (R2's
//! null, or SUCCESS given).
//! I2. A node is in the queue until its thread has SUCCESS and has released, or has FAILURE. FAILURE is
//! given only when no other thread can come to the node: its `next` is known, or it is off the tail (R3).
//! I3. Only the thread that releases writes a status other than WAITING.
//! I4. After R2's null or R4 the releaser does not touch the lock, nor a node but to give FAILURE, whose
//! thread waits for that.
//!
//! # Protocol
//!
//! A1. Wish not to be preempted. A2. Swap the node into the tail; done if it was null. A3. Link it behind
//! its predecessor. A4. Withdraw the wish, by compare-and-swap, unless the releaser has already replaced it
//! by its own, or the thread holds another lock of a kind that wishes. A5. Spin on `status`, napping while
//! the predecessor is off its processor, unless KE-1 is honoured; FAILURE: again from A1.
//! R1. The shadow (first our own node, then the last one passed over) has a successor? R2. If not: tail
//! from the shadow to null, and the lock is free; R3. else wait until A3 has linked it. R4. If the
//! candidate's wish can be changed to "another wants you unpreemptable", which fails for one known to be
//! off its processor: SUCCESS. R5. Else it becomes the shadow; the shadow before it gets FAILURE.
//! R6. Last: withdraw the own wish, unless another such lock is held; yield if the kernel had put a
//! preemption off (KE-2).
//!
//! # Memory order
//!
//! A3 release -> R1, R3 acquire publishes the node. R4 release -> A5 acquire and R2 release -> A2 acquire
//! publish the protected data. R5 release -> A5 acquire: the releaser's last look at the node comes before
//! its next use.
//!
//! # Under the scheduler
//!
//! Holder preempted: unlikely where KE-1 is honoured, for the length of KE-2's grace, and then waited for;
//! else who is behind it sees it and naps. Next waiter preempted: passed over (R5). More threads than
//! processors: those who run are served. Hint stale: a running thread is passed over and queues again, or a
//! preempted one gets the lock and the queue waits for it. Each hint wrong for ever: the release passes
//! over everybody once, frees the lock, and who looks first has it; or serves the one after SKIPS. Killed
//! while holding: lost. A copy made by `fork` while threads waited is lost in the child: see `mcs`.
//!
//! # Fairness and space
//!
//! FIFO among those who run while they wait: who naps behind a blocked holder goes to the end. A thread can
//! starve if it is preempted each time that its turn comes, as the authors say (section 4.1). A pointer,
//! and a node of a cache line a waiter.
//!
//! # Rejected
//!
//! Leaving the passed-over in the queue: every release would pass over them again (section 4.1).
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle, with the wish always and never to be had; the figure as
//! printed is a twin that is caught.

use core::marker::PhantomData;
use core::ptr;
use platform::{Atomic, Ordering::*, Platform, RunState, ThreadId, Wish};

use super::RawMutex;
use crate::wait::{self, LOOK_PAUSES, Unpreemptable};

const WAITING: u32 = 0;
const SUCCESS: u32 = 1;
const FAILURE: u32 = 2;

/// Threads passed over in one release at most, each at two cache misses: more than a program has waiting,
/// because the one that is served after so many may well be off its processor too.
const SKIPS: u32 = 1000;

/// A thread's place in the queue.
#[repr(align(64))]
pub struct SmartQNode<P: Platform> {
    next: P::AtomicPtr<SmartQNode<P>>,
    status: P::AtomicU32,
    thread: P::AtomicU32,
}

impl<P: Platform> Default for SmartQNode<P> {
    fn default() -> Self {
        Self {
            next: Atomic::new(ptr::null_mut()),
            status: P::AtomicU32::new(WAITING),
            thread: P::AtomicU32::new(0),
        }
    }
}

/// Smart queue lock.
pub struct SmartQ<P: Platform> {
    tail: P::AtomicPtr<SmartQNode<P>>,
    platform: PhantomData<P>,
}

impl<P: Platform> RawMutex<P> for SmartQ<P> {
    type Node = SmartQNode<P>;

    fn new() -> Self {
        Self { tail: Atomic::new(ptr::null_mut()), platform: PhantomData }
    }

    unsafe fn lock(&self, node: &SmartQNode<P>) {
        let me = wait::shield::<Unpreemptable, P>();
        let nested = wait::is_inside::<P>(me);
        let naps = !P::honours_wishes();
        loop {
            node.next.store(ptr::null_mut(), Relaxed);
            node.thread.store(me.0, Relaxed);
            node.status.store(WAITING, Relaxed);
            wait::shield::<Unpreemptable, P>();
            // ORDER: AcqRel (A2): Acquire pairs with R2; Release publishes the node's fields to who comes
            // next.
            let before = self.tail.swap(ptr::from_ref(node).cast_mut(), AcqRel);
            if before.is_null() {
                break;
            }
            // SAFETY: by I2 the predecessor's node stays until somebody has seen our link.
            let before = unsafe { &*before };
            let predecessor = ThreadId(before.thread.load(Relaxed));
            // ORDER: Release (A3), pairs with R1 and R3; publishes the node.
            before.next.store(ptr::from_ref(node).cast_mut(), Release);
            if !nested {
                P::change_wish(me, Wish::UnpreemptableSelf, Wish::Preemptable);
            }
            let mut turns = 0u32;
            let status = loop {
                // ORDER: Acquire (A5), pairs with R4 and R5.
                match node.status.load(Acquire) {
                    // Not counted in vain, so that a simulator sees that the turns are alike.
                    WAITING => turns = turns.wrapping_add(naps.into()),
                    status => break status,
                }
                // HINT: naps in vain, or spins through a slice.
                if naps
                    && turns.is_multiple_of(LOOK_PAUSES.min(P::PAUSES))
                    && matches!(P::run_state(predecessor), RunState::Preempted | RunState::Blocked)
                {
                    wait::hand_off::<P>(ptr::from_ref(self).cast());
                    turns = 1;
                } else {
                    P::pause();
                }
            };
            if status == SUCCESS {
                // R4 has made the wish, unless it was out of SKIPS.
                wait::shield::<Unpreemptable, P>();
                break;
            }
        }
        wait::inside::<Unpreemptable, P>(me);
    }

    unsafe fn try_lock(&self, node: &SmartQNode<P>) -> bool {
        let me = wait::shield::<Unpreemptable, P>();
        node.next.store(ptr::null_mut(), Relaxed);
        node.thread.store(me.0, Relaxed);
        // ORDER: AcqRel, as A2.
        let got = self
            .tail
            .compare_exchange(ptr::null_mut(), ptr::from_ref(node).cast_mut(), AcqRel, Relaxed)
            .is_ok();
        if got {
            wait::inside::<Unpreemptable, P>(me);
        } else {
            wait::unshield::<Unpreemptable, P>(me);
        }
        got
    }

    unsafe fn unlock(&self, node: &SmartQNode<P>) {
        let mut shadow = node;
        let mut skipped = 0;
        loop {
            // ORDER: Acquire (R1), pairs with A3.
            let mut next = shadow.next.load(Acquire);
            if next.is_null() {
                let tail = ptr::from_ref(shadow).cast_mut();
                // ORDER: Release (R2), pairs with A2; publishes the protected data.
                if self.tail.compare_exchange(tail, ptr::null_mut(), Release, Relaxed).is_ok() {
                    if skipped > 0 {
                        // ORDER: Release (R5), pairs with A5.
                        shadow.status.store(FAILURE, Release);
                    }
                    break;
                }
                loop {
                    wait::pause::<P>(1);
                    // ORDER: Acquire (R3), pairs with A3.
                    next = shadow.next.load(Acquire);
                    if !next.is_null() {
                        break;
                    }
                }
            }
            // SAFETY: linked, so in the queue, where by I2 and I3 it stays until we give it a status.
            let candidate = unsafe { &*next };
            if skipped > 0 {
                // ORDER: Release (R5), pairs with A5; our last look at the shadow comes first.
                shadow.status.store(FAILURE, Release);
            }
            let thread = ThreadId(candidate.thread.load(Relaxed));
            // The order of the two attempts is important: the thread goes from the first to the second by
            // itself (A4). HINT: see "hint stale" above.
            if skipped == SKIPS
                || P::change_wish(thread, Wish::UnpreemptableSelf, Wish::UnpreemptableOther)
                || P::change_wish(thread, Wish::Preemptable, Wish::UnpreemptableOther)
            {
                // ORDER: Release (R4), pairs with A5; publishes the protected data.
                candidate.status.store(SUCCESS, Release);
                break;
            }
            shadow = candidate;
            skipped += 1;
        }
        wait::outside::<Unpreemptable, P>();
    }
}
