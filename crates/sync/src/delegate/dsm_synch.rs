// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dsm-synch`: a queue of requests, as in `cc-synch`, whose nodes lie on their clients' stacks.
//!
//! Choose it as `cc-synch`, for any number of clients, or where the lock is to be small. Fatourou and
//! Kallimanis, "Revisiting the combining synchronization technique", PPoPP 2012, algorithm 2 (DSM-Synch).
//! Changed: clients sleep ([`crate::wait::answer`]). A request is answered after the combiner has seen who
//! comes next, so a client has one node, which ends with its call; the paper's has two, in turns.
//!
//! # State
//!
//! `tail` is the node of the client that came last, null if the lock is free. A node has `next`, a request,
//! and an `answer`: waiting, asleep, DONE (the request has been run), LEAD (its client is the combiner).
//!
//! # Invariants
//!
//! - I1. While `tail` is not null one client is the combiner, and only it runs sections: the one that found
//!   null, or the one that has LEAD.
//! - I2. The nodes from the combiner's present one to `tail` are linked, but for clients between D1 and D2.
//! - I3. A node is there until its client has an answer, or its combiner has left.
//!
//! # Protocol
//!
//! D1. Swap oneself in as the tail. If that was null, combine (C1). D2. Else make oneself the next of the
//! old tail, and wait. At LEAD, combine. C1. From one's own node on: run the request. C2. Look who comes
//! next; if nobody does, change the tail back to null. If that fails, wait until D2. C3. Answer DONE. C4.
//! Without a next, leave. After so many requests, answer LEAD there. Else go there.
//!
//! # Memory order
//!
//! D2 release -> C2 acquire publishes the request. The answer's release -> D2 acquire, and C2 release (the
//! tail) -> D1 acquire, publish what sections wrote. D1 release -> D1 acquire publishes the node's `next`.
//!
//! # Under the scheduler
//!
//! Combiner preempted: clients see it and sleep. Next combiner preempted: all wait for it. Client preempted
//! between D1 and D2: the combiner yields until it goes on. More threads than processors: nearly each
//! request costs a sleep and a wake-up. Hint stale: a client spins for as long as a sleep costs at most, or
//! sleeps and is woken. Killed while combining: lost. A copy made by fork while the lock was held is lost in
//! the child. A signal handler that comes to the lock between D1 and D2 waits for ever.
//!
//! # Fairness and space
//!
//! FIFO. 16 bytes, and a node of 32 on each client's stack.
//!
//! # Rejected
//!
//! The paper's end, which leaves the last request but one to its client if that one has no next: it saves a
//! wait in C2, and costs a hand-over.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle. Without its acquires, without its releases, and where nobody
//! is woken, loom finds it out. `cc-synch`'s twins are its own as well.

use core::ptr;
use platform::{Atomic, Ordering::*, Platform, ThreadId};

use super::{RawDelegate, Request, Section, lead, most_requests};
use crate::wait::ANSWER_PAUSES;
use crate::wait::answer::{Answer, DONE};

/// The client is the combiner.
const LEAD: u32 = DONE + 1;

struct Node<P: Platform> {
    answer: Answer<P>,
    next: P::AtomicPtr<Node<P>>,
    request: Request<P>,
}

/// See the head of this file.
pub struct DsmSynch<P: Platform> {
    tail: P::AtomicPtr<Node<P>>,
    /// The combiner's thread. HINT.
    combiner: P::AtomicU32,
    /// See [`crate::wait::vain`].
    vain: P::AtomicU32,
}

impl<P: Platform> RawDelegate<P> for DsmSynch<P> {
    fn new() -> Self {
        let zero = || P::AtomicU32::new(0);
        Self { tail: Atomic::new(ptr::null_mut()), combiner: zero(), vain: zero() }
    }

    unsafe fn run(&self, section: Section, context: *mut ()) {
        let node =
            Node { answer: Answer::waiting(), next: Atomic::new(ptr::null_mut()), request: Request::none() };
        node.request.set(section, context);
        let mine = (&raw const node).cast_mut();
        // ORDER: AcqRel (D1): Acquire pairs with C2; Release publishes the node to who comes next.
        let before = self.tail.swap(mine, AcqRel);
        // SAFETY: by I3 that one is there until it has been followed.
        if let Some(before) = unsafe { before.as_ref() } {
            // ORDER: Release (D2), pairs with C2; publishes the request.
            before.next.store(mine, Release);
            if node.answer.wait(&self.vain, || ThreadId(self.combiner.load(Relaxed))) == DONE {
                return;
            }
        }
        self.combine(mine);
    }
}

impl<P: Platform> DsmSynch<P> {
    /// C1 to C4.
    fn combine(&self, first: *mut Node<P>) {
        lead::<P>(&self.combiner);
        let (mut node, mut left) = (first, most_requests::<P>());
        loop {
            // SAFETY: by I3 it is there, and its client wrote the request before it linked the node.
            unsafe { (*node).request.run() };
            // SAFETY: the same.
            let next = self.follower(unsafe { &*node });
            if node != first {
                // C3. SAFETY: it is there until the answer.
                unsafe { Answer::give(&raw const (*node).answer, DONE) };
            }
            if next.is_null() {
                return;
            }
            left -= 1;
            if left == 0 {
                // C4. SAFETY: as above.
                return unsafe { Answer::give(&raw const (*next).answer, LEAD) };
            }
            node = next;
        }
    }

    /// C2. Null: the lock is free.
    fn follower(&self, node: &Node<P>) -> *mut Node<P> {
        // ORDER: Acquire (C2), pairs with D2.
        let mut next = node.next.load(Acquire);
        let mine = ptr::from_ref(node).cast_mut();
        // ORDER: Release (C2), pairs with D1; publishes what sections wrote.
        if next.is_null() && self.tail.compare_exchange(mine, ptr::null_mut(), Release, Relaxed).is_err() {
            let mut pauses = 0;
            loop {
                // ORDER: as above.
                next = node.next.load(Acquire);
                if !next.is_null() {
                    break;
                }
                // It is between two instructions. To yield at once takes the processor from the combiner.
                if pauses < ANSWER_PAUSES {
                    pauses += 1;
                    P::pause();
                } else {
                    P::yield_now();
                }
            }
        }
        next
    }
}
