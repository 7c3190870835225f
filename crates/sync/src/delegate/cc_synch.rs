// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cc-synch`: a queue of requests whose first client runs the others' as well.
//!
//! Choose it where there is a processor for each thread, and sections are short: it takes one swap a
//! request. Fatourou and Kallimanis, "Revisiting the combining synchronization technique", PPoPP 2012,
//! algorithm 1. Changed: clients sleep ([`crate::wait::answer`]). A client has no node of its own but a
//! *seat*, which has one, so that nothing is allocated and any thread may come.
//!
//! # State
//!
//! `tail` is the number of the last node, which has no request yet. A node has `next` (a node's number plus
//! 1, or 0), a request, and an `answer`:
//!
//! | answer | means |
//! |---|---|
//! | waiting, asleep | its client waits, or nobody has come to it yet |
//! | DONE | its request has been run |
//! | LEAD | its client, or whoever comes to it, is the combiner, or was |
//!
//! A seat has the number of the node that the next client there brings.
//!
//! # Invariants
//!
//! - I1. The tail or a node whose client waits has LEAD, or one thread is between C4 and H1. That thread is
//!   the combiner, and only it runs sections.
//! - I2. Each node belongs to one seat, or is the tail.
//! - I3. A node's client touches it from C1 until its answer; the combiner touches it until it gives the
//!   answer.
//!
//! # Protocol
//!
//! C1. Sit. Make the seat's node the new tail, waiting and without a next; the old tail is the client's, and
//! the seat's from now on. If its answer is LEAD already, C4. C2. Write the request there, then `next`. C3.
//! Wait for the answer. C4. LEAD: combine. Run one's own request. For each node from the one behind on: if it
//! has a `next`, run its request, answer DONE, and go there. H1. At a node without a next, or after so many
//! requests, answer LEAD there. C5. Stand.
//!
//! # Memory order
//!
//! C1 release -> C1 acquire of the next client publishes the new tail. C2 release -> C4 acquire publishes
//! the request. The answer's release -> C3 acquire publishes what sections wrote, to the client and from one
//! combiner to the next.
//!
//! # Under the scheduler
//!
//! Combiner preempted: clients see it and sleep. Next combiner preempted: all wait for it, as in `mcs`;
//! the combiner does not know who it is. More threads than processors: nearly each request costs a sleep and
//! a wake-up. Hint stale: a client spins for as long as a sleep costs at most, or sleeps and is woken. Killed
//! while combining: lost. A copy made by fork while clients waited is lost in the child. All who come later
//! wait for a client between C1 and C2: a signal handler that comes to the lock there waits for ever.
//!
//! # Fairness and space
//!
//! FIFO for at most as many clients as there are seats, 32, of which 24 are for one thread each. Those who
//! find none wait for one, in no order that this lock decides. Two lines a seat, and four more.
//!
//! # Rejected
//!
//! Nodes on the clients' stacks, as `mcs` has them: that is `dsm-synch`, with a compare-and-swap more where
//! nobody comes next.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; also with fewer seats than clients. Without its acquires,
//! without its releases, and where nobody is woken, loom finds it out. Twins are caught that answer before
//! they have run the section, look for the next node after the answer (C4), or hand over to nobody (H1).

use core::array;
use platform::{Atomic, Ordering::*, Platform, ThreadId};

use super::{RawDelegate, Request, Seat, Seated, Section, lead, most_requests, sit, stand};
use crate::wait::answer::{Answer, DONE};

/// The client is the combiner.
const LEAD: u32 = DONE + 1;

#[repr(align(64))]
struct Node<P: Platform> {
    answer: Answer<P>,
    /// 0: nobody has come behind this one.
    next: P::AtomicU32,
    request: Request<P>,
}

impl<P: Platform> Node<P> {
    fn new(answer: u32) -> Self {
        Self { answer: Answer::given(answer), next: P::AtomicU32::new(0), request: Request::none() }
    }
}

#[repr(align(64))]
struct Place<P: Platform> {
    seat: Seat<P>,
    node: P::AtomicU32,
}

impl<P: Platform> Seated<P> for Place<P> {
    fn seat(&self) -> &Seat<P> {
        &self.seat
    }
}

#[repr(align(64))]
struct Line<A>(A);

/// See the head of this file.
pub struct CcSynch<P: Platform, const SEATS: usize = 32> {
    tail: Line<P::AtomicU32>,
    /// The combiner's thread. HINT.
    combiner: Line<P::AtomicU32>,
    /// See [`crate::wait::vain`].
    vain: P::AtomicU32,
    first: Node<P>,
    nodes: [Node<P>; SEATS],
    seats: [Place<P>; SEATS],
}

impl<P: Platform, const SEATS: usize> RawDelegate<P> for CcSynch<P, SEATS> {
    fn new() -> Self {
        Self {
            tail: Line(P::AtomicU32::new(0)),
            combiner: Line(P::AtomicU32::new(0)),
            vain: P::AtomicU32::new(0),
            first: Node::new(LEAD),
            nodes: array::from_fn(|_| Node::new(DONE)),
            seats: array::from_fn(|seat| Place {
                seat: Seat::new(),
                node: P::AtomicU32::new(seat as u32 + 1),
            }),
        }
    }

    unsafe fn run(&self, section: Section, context: *mut ()) {
        let number = sit(&self.seats);
        let place = &self.seats[number];
        let brought = place.node.load(Relaxed);
        let end = self.node(brought);
        end.next.store(0, Relaxed);
        end.answer.begin();
        // ORDER: AcqRel (C1): Release publishes the new tail; Acquire pairs with that, for the old one.
        let got = self.tail.0.swap(brought, AcqRel);
        place.node.store(got, Relaxed);
        let node = self.node(got);
        if node.answer.get() == Some(LEAD) || self.ask(node, brought, section, context) {
            lead::<P>(&self.combiner.0);
            // C4. SAFETY: as the caller promises; nobody else runs sections.
            unsafe { section(context) };
            self.combine(brought);
        }
        stand(&self.seats, number);
    }
}

impl<P: Platform, const SEATS: usize> CcSynch<P, SEATS> {
    fn node(&self, number: u32) -> &Node<P> {
        match number {
            0 => &self.first,
            number => &self.nodes[number as usize - 1],
        }
    }

    /// C2 and C3. True if it is the combiner, and its request has not been run.
    #[cold]
    #[inline(never)]
    fn ask(&self, node: &Node<P>, brought: u32, section: Section, context: *mut ()) -> bool {
        node.request.set(section, context);
        // ORDER: Release (C2), pairs with C4; publishes the request.
        node.next.store(brought + 1, Release);
        node.answer.wait(&self.vain, || ThreadId(self.combiner.0.load(Relaxed))) == LEAD
    }

    /// C4 and H1, from the node behind its own on.
    #[inline(always)]
    fn combine(&self, mut number: u32) {
        for _ in 1..most_requests::<P>() {
            let node = self.node(number);
            // ORDER: Acquire (C4), pairs with C2.
            let next = node.next.load(Acquire);
            if next == 0 {
                break;
            }
            // SAFETY: its client wrote it before `next`, and waits.
            unsafe { node.request.run() };
            // SAFETY: nodes live as long as the lock.
            unsafe { Answer::give(&raw const node.answer, DONE) };
            number = next - 1;
        }
        // H1. SAFETY: as above.
        unsafe { Answer::give(&raw const self.node(number).answer, LEAD) };
    }
}
