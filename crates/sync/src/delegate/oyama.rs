// SPDX-License-Identifier: MIT OR Apache-2.0
//! `oyama`: a lock word that is also a list of requests, which the holder runs before it releases.
//!
//! Choose it to compare with: it is the oldest of its kind, and one word. Oyama, Taura, Yonezawa, "Executing
//! parallel programs with synchronization bottlenecks efficiently", PDSIA 1999, section 3. Changed: clients
//! wait for their sections, and sleep ([`crate::wait::answer`]); the paper's go on. So a request lies on its
//! client's stack. The list is run in the order of arrival. A holder that has done its share hands the lock
//! to a client; the paper's goes on as long as there are requests.
//!
//! # State
//!
//! `word`: FREE (null), HELD, or the request that came last to the held lock. A request has `next`, the one
//! that came before it, and an `answer`: waiting, asleep, DONE (it has been run), LEAD (its client has the
//! lock, and what follows `next` is for it to run).
//!
//! # Invariants
//!
//! - I1. While `word` is not FREE one thread has the lock, and only it runs sections.
//! - I2. A request is in the word's list, in the holder's, or answered.
//!
//! # Protocol
//!
//! O1. FREE to HELD, and run one's own section. O2. Else become the word's first request, and wait. At LEAD,
//! run one's own section; the holder's list begins at `next`. H1. Run the holder's list, and answer DONE,
//! each after a look at its `next`. H2. After so many, answer LEAD to the next one. H3. HELD to FREE. H4. If
//! there are requests, swap HELD in, turn the list around, H1.
//!
//! # Memory order
//!
//! O2 release -> H4 acquire publishes the request. H3 release -> O1 acquire, and the answer's release ->
//! acquire, publish what sections wrote, and `next` to the one who has LEAD.
//!
//! # Under the scheduler
//!
//! Holder preempted: clients see it and sleep. Next holder preempted (H2): all wait for it, once in so many
//! requests. More threads than processors: nearly each request that is not run at once costs a sleep and a
//! wake-up. Hint stale: a client spins for as long as a sleep costs at most, or sleeps and is woken. Killed
//! while holding: lost. A copy made by fork while the lock was held is lost in the child.
//!
//! # Fairness and space
//!
//! Whoever finds the lock FREE takes it. The others are run in rounds, in the order of arrival. 16 bytes, and
//! 32 on each client's stack.
//!
//! # Rejected
//!
//! To run the list as it lies: who came last would be first.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle. Without its acquires, without its releases, and where nobody
//! is woken, loom finds it out. The twins of `flat-combining` that answer early, run a request twice, or hand
//! over to nobody make its mistakes as well.

use core::ptr;
use platform::{Atomic, Ordering::*, Platform, ThreadId};

use super::{RawDelegate, Request, Section, lead, most_requests};
use crate::wait::answer::{Answer, DONE};

/// The client has the lock.
const LEAD: u32 = DONE + 1;

struct Node<P: Platform> {
    answer: Answer<P>,
    next: P::AtomicPtr<Node<P>>,
    request: Request<P>,
}

/// HELD: not a node's address.
fn held<P: Platform>() -> *mut Node<P> {
    ptr::without_provenance_mut(1)
}

/// See the head of this file.
pub struct Oyama<P: Platform> {
    word: P::AtomicPtr<Node<P>>,
    /// The holder's thread. HINT.
    holder: P::AtomicU32,
    /// See [`crate::wait::vain`].
    vain: P::AtomicU32,
}

impl<P: Platform> RawDelegate<P> for Oyama<P> {
    fn new() -> Self {
        let zero = || P::AtomicU32::new(0);
        Self { word: Atomic::new(ptr::null_mut()), holder: zero(), vain: zero() }
    }

    unsafe fn run(&self, section: Section, context: *mut ()) {
        // ORDER: Acquire (O1), pairs with H3.
        if self.word.compare_exchange(ptr::null_mut(), held::<P>(), Acquire, Relaxed).is_ok() {
            lead::<P>(&self.holder);
            // SAFETY: as the caller promises.
            unsafe { section(context) };
            return self.release(ptr::null_mut());
        }
        let node =
            Node { answer: Answer::waiting(), next: Atomic::new(ptr::null_mut()), request: Request::none() };
        node.request.set(section, context);
        let waits = self.push(&node);
        if waits && node.answer.wait(&self.vain, || ThreadId(self.holder.load(Relaxed))) == DONE {
            return;
        }
        lead::<P>(&self.holder);
        // SAFETY: our own request, which nobody has run.
        unsafe { node.request.run() };
        self.release(node.next.load(Relaxed));
    }
}

impl<P: Platform> Oyama<P> {
    /// O1 and O2. False if the caller has the lock.
    fn push(&self, node: &Node<P>) -> bool {
        let mut word = self.word.load(Relaxed);
        loop {
            let pushed = if word.is_null() {
                // ORDER: Acquire (O1), pairs with H3.
                self.word.compare_exchange(word, held::<P>(), Acquire, Relaxed)
            } else {
                node.next.store(if word == held::<P>() { ptr::null_mut() } else { word }, Relaxed);
                // ORDER: Release (O2), pairs with H4; publishes the request.
                self.word.compare_exchange(word, ptr::from_ref(node).cast_mut(), Release, Relaxed)
            };
            match pushed {
                Ok(before) if before.is_null() => {
                    node.next.store(ptr::null_mut(), Relaxed);
                    return false;
                }
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// H1 to H4, from a list of the holder's.
    fn release(&self, mut list: *mut Node<P>) {
        let mut left = most_requests::<P>();
        loop {
            // SAFETY: here and below: its client waits for the answer.
            while let Some(node) = unsafe { list.as_ref() } {
                if left == 0 {
                    // H2. SAFETY: as above.
                    return unsafe { Answer::give(&raw const (*list).answer, LEAD) };
                }
                let next = node.next.load(Relaxed);
                // SAFETY: its client wrote it before O2.
                unsafe { node.request.run() };
                // SAFETY: as above; from here on it may be gone.
                unsafe { Answer::give(&raw const (*list).answer, DONE) };
                list = next;
                left -= 1;
            }
            // ORDER: Release (H3), pairs with O1; publishes what sections wrote.
            if self.word.compare_exchange(held::<P>(), ptr::null_mut(), Release, Relaxed).is_ok() {
                return;
            }
            // ORDER: Acquire (H4), pairs with O2.
            let mut last = self.word.swap(held::<P>(), Acquire);
            // SAFETY: as above.
            while let Some(node) = unsafe { last.as_ref() } {
                let before = node.next.load(Relaxed);
                node.next.store(list, Relaxed);
                list = last;
                last = before;
            }
        }
    }
}
