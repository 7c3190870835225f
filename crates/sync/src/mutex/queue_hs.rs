// SPDX-License-Identifier: MIT OR Apache-2.0
//! `queue-hs`: a queue lock that shakes hands with its successor, and passes over one that does not answer.
//!
//! The TR's answer where the kernel tells nothing of other threads: who answers within the timeout, runs.
//! Choose it to compare with `smart-q`, which asks the kernel instead. Kontothanassis, Wisniewski, Scott,
//! TR 1994, figure 2 (kernel extensions KE-1, Symunix's part, and KE-2).
//!
//! Changed:
//! - Both sides change `status` by compare-and-swap from CAN_GO, where the figure swaps and then looks what
//!   it has overwritten. The outcomes are the same.
//! - The releaser passes over at most `SKIPS` threads, then waits for the next one however long it takes.
//!   Where nobody honours the wish, the releaser itself is preempted between a grant and its timeout; the
//!   figure's could chase for ever those whom it passed over and who queue again.
//!
//! # State
//!
//! The lock is the tail of the queue, null when free. A node has `next`, `prev`, `next_done` (its successor
//! has taken over) and `status`:
//!
//! | from | to | by |
//! |---|---|---|
//! | NOT_YET | CAN_GO | the releaser before it (R3): the lock is yours, if you answer |
//! | CAN_GO | GOT_IT | the waiter (A5): it answers |
//! | CAN_GO | LOST_IT | the releaser, out of patience (R5) |
//! | GOT_IT | ACK | the releaser (R4): all is well, go on |
//! | LOST_IT | NACK | the releaser (R6): you were passed over; queue again |
//!
//! # Invariants
//!
//! I1. One thread at a time is between acquiring (A2 on an empty queue, or ACK) and releasing (R2's null,
//! or R3 to one that is given ACK).
//! I2. Of A5's and R5's changes of CAN_GO one succeeds: the waiter takes over exactly if its own does.
//! I3. A node is in use until ACK or NACK; NACK is given only when nobody can come to the node any more:
//! its `next` is known, or it is off the tail.
//! I4. The last that a releaser touches of others is `status`, with ACK or NACK, for which the node's
//! thread waits; after R2's null not the lock, and of nodes only that of the last one passed over, with
//! NACK. All else may be gone then.
//!
//! # Protocol
//!
//! A1. Wish not to be preempted. A2. Swap the node into the tail; done if it was null. A3. Link it behind
//! its predecessor. A4. While NOT_YET, withdraw the wish, yield if the kernel had put a preemption off, and
//! wish again. A5. CAN_GO to GOT_IT. A6. Done: tell the predecessor (`next_done`), wait for ACK, enter. A7.
//! It is LOST_IT or NACK: wait for NACK, again from A1.
//! R1. A successor? R2. If not: tail to null, and the lock is free; else wait for A3. R3. Tell it CAN_GO.
//! R4. It answers (A6) within the timeout: ACK.
//! R5. It does not: CAN_GO to LOST_IT. That failing, it answers after all: wait for A6, ACK. R6. Else go to
//! the one behind it, which R2's rule finds, make ourselves its predecessor, give NACK to the one that we
//! leave, again from R3.
//! R7. Last: withdraw the wish, yield if warned (KE-2).
//!
//! # Memory order
//!
//! A3 release -> R1, R6 acquire publishes the node. R3 release -> A5 acquire publishes the protected data
//! and `prev`; R2 release -> A2 acquire the data. A6 release -> R4 acquire, R4 and R6 release -> A6, A7
//! acquire: the one has done with the other's node before its owner uses it again.
//!
//! # Under the scheduler
//!
//! Holder preempted: unlikely where KE-1 is honoured, for the length of KE-2's grace; else everybody spins
//! through its slice. Next waiter preempted: passed over after the timeout, 2 to 8 us. More threads than
//! processors: those who run are served, each release paying a timeout for each that does not. Preempted
//! between CAN_GO and ACK, the releaser, or the waiter after A5: the lock is nobody's for that time, even
//! here (the figure relies on the kernel not to). No kernel view is used, so no hint is stale. Killed while
//! holding: lost. A copy made by `fork` while threads waited: see `mcs`.
//!
//! # Fairness and space
//!
//! FIFO among those who run while they wait. A thread can starve if it is preempted each time that its turn
//! comes (section 4.1). A pointer, and a node of a cache line a waiter.
//!
//! # Rejected
//!
//! Napping while the predecessor is off its processor, as our `smart-q` does: it needs the kernel's word,
//! and this lock is the one that does without.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; the twin that passes over without taking the grant back (R5)
//! is caught.

use core::marker::PhantomData;
use core::ptr;
use platform::{Atomic, Ordering::*, Platform};

use super::RawMutex;
use crate::wait::{self, ANSWER_PAUSES, Unpreemptable};

const NOT_YET: u32 = 0;
const CAN_GO: u32 = 1;
const GOT_IT: u32 = 2;
const LOST_IT: u32 = 3;
const ACK: u32 = 4;
const NACK: u32 = 5;

/// Threads passed over in one release at most: more than a program has waiting.
const SKIPS: u32 = 1000;

/// A thread's place in the queue.
#[repr(align(64))]
pub struct QueueHsNode<P: Platform> {
    next: P::AtomicPtr<QueueHsNode<P>>,
    prev: P::AtomicPtr<QueueHsNode<P>>,
    next_done: P::AtomicU32,
    status: P::AtomicU32,
}

impl<P: Platform> Default for QueueHsNode<P> {
    fn default() -> Self {
        Self {
            next: Atomic::new(ptr::null_mut()),
            prev: Atomic::new(ptr::null_mut()),
            next_done: Atomic::new(0),
            status: Atomic::new(NOT_YET),
        }
    }
}

/// Queued handshake lock.
pub struct QueueHs<P: Platform> {
    tail: P::AtomicPtr<QueueHsNode<P>>,
    platform: PhantomData<P>,
}

impl<P: Platform> QueueHs<P> {
    fn release(&self, node: &QueueHsNode<P>) {
        let Some(mut candidate) = self.successor(node) else { return };
        node.next_done.store(0, Relaxed);
        let mut skipped = 0;
        loop {
            // ORDER: Release (R3), pairs with A5; publishes the protected data and the candidate's `prev`.
            candidate.status.store(CAN_GO, Release);
            let mut patience = ANSWER_PAUSES.min(P::PAUSES);
            let mut answered = node.next_done.load(Relaxed) != 0;
            while !answered && patience > 0 {
                patience -= 1;
                P::pause();
                answered = node.next_done.load(Relaxed) != 0;
            }
            let lost = !answered
                && skipped < SKIPS
                && candidate.status.compare_exchange(CAN_GO, LOST_IT, Relaxed, Relaxed).is_ok();
            if !lost {
                // ORDER: Acquire (R4), pairs with A6.
                while node.next_done.load(Acquire) == 0 {
                    P::pause();
                }
                // ORDER: Release (R4), pairs with A6; the last that we do with its node.
                candidate.status.store(ACK, Release);
                return;
            }
            let next = self.successor(candidate);
            if let Some(next) = next {
                next.prev.store(ptr::from_ref(node).cast_mut(), Relaxed);
            }
            // ORDER: Release (R6), pairs with A7; the last that we do with its node.
            candidate.status.store(NACK, Release);
            match next {
                Some(next) => candidate = next,
                None => return,
            }
            skipped += 1;
        }
    }

    /// The node behind `last`, or none and the lock is free (R1, R2).
    fn successor<'a>(&self, last: &'a QueueHsNode<P>) -> Option<&'a QueueHsNode<P>> {
        // ORDER: Acquire (R1), pairs with A3.
        let mut next = last.next.load(Acquire);
        if next.is_null() {
            // ORDER: Release (R2), pairs with A2; publishes the protected data.
            if self
                .tail
                .compare_exchange(ptr::from_ref(last).cast_mut(), ptr::null_mut(), Release, Relaxed)
                .is_ok()
            {
                return None;
            }
            while next.is_null() {
                P::pause();
                // ORDER: Acquire (R1), as above.
                next = last.next.load(Acquire);
            }
        }
        // SAFETY: linked, so in the queue, where by I3 it stays until we give it ACK or NACK.
        Some(unsafe { &*next })
    }
}

impl<P: Platform> RawMutex<P> for QueueHs<P> {
    type Node = QueueHsNode<P>;

    fn new() -> Self {
        Self { tail: Atomic::new(ptr::null_mut()), platform: PhantomData }
    }

    unsafe fn lock(&self, node: &QueueHsNode<P>) {
        let mine = ptr::from_ref(node).cast_mut();
        let me = wait::shield::<Unpreemptable, P>();
        loop {
            node.next.store(ptr::null_mut(), Relaxed);
            node.status.store(NOT_YET, Relaxed);
            // ORDER: AcqRel (A2): Acquire pairs with R2; Release publishes the node's fields to who comes
            // next.
            let before = self.tail.swap(mine, AcqRel);
            if before.is_null() {
                break;
            }
            node.prev.store(before, Relaxed);
            // ORDER: Release (A3), pairs with R1; publishes the node.
            // SAFETY: by I3 the predecessor's node stays until somebody has seen our link.
            unsafe { &*before }.next.store(mine, Release);
            while node.status.load(Relaxed) == NOT_YET {
                wait::unshield::<Unpreemptable, P>(me);
                P::pause();
                wait::shield::<Unpreemptable, P>();
            }
            // ORDER: Acquire (A5), pairs with R3.
            if node.status.compare_exchange(CAN_GO, GOT_IT, Acquire, Relaxed).is_ok() {
                // ORDER: Release (A6), pairs with R4; the last that we do with its node.
                // SAFETY: the releaser waits for this (I2).
                unsafe { &*node.prev.load(Relaxed) }.next_done.store(1, Release);
                // ORDER: Acquire (A6), pairs with R4.
                while node.status.load(Acquire) != ACK {
                    P::pause();
                }
                break;
            }
            // ORDER: Acquire (A7), pairs with R6.
            while node.status.load(Acquire) != NACK {
                P::pause();
            }
        }
        wait::inside::<Unpreemptable, P>(me);
    }

    unsafe fn try_lock(&self, node: &QueueHsNode<P>) -> bool {
        node.next.store(ptr::null_mut(), Relaxed);
        let me = wait::shield::<Unpreemptable, P>();
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

    unsafe fn unlock(&self, node: &QueueHsNode<P>) {
        self.release(node);
        wait::outside::<Unpreemptable, P>();
    }
}
