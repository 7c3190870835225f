// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of clients that found no slot free. Each lies on its client's stack.
//!
//! Such a client must not wait for a slot: all slots may have requests of one lock, whose section waits for
//! another lock's.
//!
//! - L1. The client counts itself, pushes its request onto `pushed`, and rings.
//! - L2. The thread in charge takes all that were pushed, and puts them behind those in `kept`, which is its
//!   own.
//! - L3. It runs each whose lock is not busy, after it has unlinked it: the answer ends the request.
//! - L4. A client that has taken its request back (K3) rings, and waits until it is unlinked and answered.
//!
//! A request that its client leaves with the server (`RclAsk`) is late as well: so no slot is taken while its
//! client does something else.
//!
//! L1 release -> L2 acquire publishes the request. `kept` goes over with the charge. While the server
//! sleeps, `pushed` is empty, and each request in `kept` waits for a busy lock: L1 rings, and so does E3.

use core::ptr;
use platform::{Atomic, AtomicInt, Ordering::*, Platform};

use super::ask::{Ask, Found};
use crate::wait::answer::{Answer, DONE};

pub struct Node<P: Platform> {
    pub ask: Ask<P>,
    next: P::AtomicPtr<Node<P>>,
}

impl<P: Platform> Node<P> {
    pub fn new() -> Self {
        Self { ask: Ask::new(DONE), next: Atomic::new(ptr::null_mut()) }
    }
}

/// See the head of this file.
pub struct Late<P: Platform> {
    pushed: P::AtomicPtr<Node<P>>,
    kept: P::AtomicPtr<Node<P>>,
    /// Requests that wait here. HINT.
    count: P::AtomicU32,
}

impl<P: Platform> Late<P> {
    pub fn new() -> Self {
        let null = || Atomic::new(ptr::null_mut());
        Self { pushed: null(), kept: null(), count: P::AtomicU32::new(0) }
    }

    pub fn is_used(&self) -> bool {
        self.count.load(Relaxed) != 0
    }

    /// L1, but for the bell. The request has been set, and is there until the answer.
    #[cold]
    #[inline(never)]
    pub fn push(&self, node: *mut Node<P>) {
        let Late { pushed, count, .. } = self;
        // SAFETY: as promised; nobody else knows of it before it is pushed.
        let Node { ask, next } = unsafe { &*node };
        ask.answer.begin();
        count.fetch_add(1, Relaxed);
        let mut head = pushed.load(Relaxed);
        loop {
            next.store(head, Relaxed);
            // ORDER: Release (L1), pairs with L2; publishes the request.
            match pushed.compare_exchange_weak(head, node, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
    }

    /// L2.
    #[cold]
    fn keep_pushed(&self) {
        let Late { pushed, kept, .. } = self;
        // ORDER: Acquire (L2), pairs with L1.
        let mut node = pushed.swap(ptr::null_mut(), Acquire);
        // The one that was pushed last is the first of them.
        let mut first = ptr::null_mut();
        // SAFETY: here and below: its client waits for the answer, which is given after it was unlinked.
        while let Some(late) = unsafe { node.as_ref() } {
            let next = late.next.load(Relaxed);
            late.next.store(first, Relaxed);
            first = node;
            node = next;
        }
        let mut end = kept;
        // SAFETY: as above.
        while let Some(late) = unsafe { end.load(Relaxed).as_ref() } {
            end = &late.next;
        }
        end.store(first, Relaxed);
    }

    /// L2 and L3. Whether there was a request, or `None` if `run_one` says that another thread is in charge.
    #[inline(always)]
    pub fn serve(&self, run_one: impl FnMut(*const Ask<P>, Found<'_, P>) -> Option<()>) -> Option<bool> {
        let Late { pushed, kept, .. } = self;
        if pushed.load(Relaxed).is_null() && kept.load(Relaxed).is_null() {
            return Some(false);
        }
        self.serve_kept(run_one)
    }

    #[cold]
    fn serve_kept(&self, mut run_one: impl FnMut(*const Ask<P>, Found<'_, P>) -> Option<()>) -> Option<bool> {
        self.keep_pushed();
        let (mut link, mut any) = (&self.kept, false);
        // SAFETY: as above.
        while let Some(late) = unsafe { link.load(Relaxed).as_ref() } {
            let found = late.ask.to_run().filter(|found| late.ask.claim(found));
            if found.is_none() && !late.ask.is_taken_back() {
                link = &late.next;
                continue;
            }
            link.store(late.next.load(Relaxed), Relaxed);
            self.count.fetch_sub(1, Relaxed);
            any = true;
            match found {
                Some(found) => run_one(&raw const late.ask, found)?,
                // L4. SAFETY: as above; from here on it may be gone.
                None => unsafe { Answer::give(&raw const late.ask.answer, DONE) },
            }
        }
        Some(any)
    }

    /// Is there one that can be run, or unlinked?
    pub fn has_request(&self) -> bool {
        let Late { pushed, kept, .. } = self;
        let mut link = kept;
        // SAFETY: as above; only the thread in charge asks.
        while let Some(late) = unsafe { link.load(Relaxed).as_ref() } {
            if late.ask.to_run().is_some() || late.ask.is_taken_back() {
                return true;
            }
            link = &late.next;
        }
        !pushed.load(Relaxed).is_null()
    }
}
