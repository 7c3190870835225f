// SPDX-License-Identifier: MIT OR Apache-2.0
//! The locks of an `rcl` server, and what is asked for under one: steps C1, S1 and E2 of `rcl.rs`.

use platform::{Atomic, Ordering::*, Platform};

use crate::delegate::{Request, Section};
use crate::wait::answer::Answer;

/// A request and its lock.
pub struct Ask<P: Platform> {
    pub answer: Answer<P>,
    pub request: Request<P>,
    lock: P::AtomicPtr<RclLock<P>>,
}

/// A lock whose sections an [`super::RclServer`] runs. A lock has one server.
pub struct RclLock<P: Platform> {
    pub(super) busy: P::AtomicU32,
}

impl<P: Platform> Default for RclLock<P> {
    fn default() -> Self {
        Self { busy: P::AtomicU32::new(0) }
    }
}

impl<P: Platform> RclLock<P> {
    pub(super) fn is_free(&self) -> bool {
        // ORDER: Acquire (S1), pairs with E2.
        self.busy.load(Acquire) == 0
    }

    /// E2.
    pub(super) fn end(&self) {
        // ORDER: Release (E2), pairs with S1; publishes what the section wrote, and its answer.
        self.busy.store(0, Release);
    }
}

impl<P: Platform> Ask<P> {
    pub fn new(answer: u32) -> Self {
        let answer = Answer::given(answer);
        Self { answer, request: Request::none(), lock: Atomic::new(core::ptr::null_mut()) }
    }

    /// C1, before it asks. Without a section it wants to hold the lock (H1).
    pub fn set(&self, lock: &RclLock<P>, section: Option<Section>, context: *mut ()) {
        match section {
            Some(section) => self.request.set(section, context),
            None => self.request.clear(),
        }
        // ORDER: Release (C1), pairs with S1; publishes the last answer.
        self.lock.store(core::ptr::from_ref(lock).cast_mut(), Release);
    }

    /// S1. The request's lock, if there is a request that can be run.
    #[inline(always)]
    pub fn to_run(&self) -> Option<&RclLock<P>> {
        if !self.answer.is_asked() {
            return None;
        }
        // ORDER: Acquire (S1), pairs with C1: if this is the next request's, so is the answer below.
        let lock = self.lock.load(Acquire);
        // SAFETY: a client wrote it before it asked. It is there as long as somebody serves.
        let lock = unsafe { &*lock };
        // A thread that has lost the charge may have answered in between, and the client have come again.
        let same = || self.answer.is_asked() && core::ptr::eq(self.lock.load(Relaxed), lock);
        (lock.is_free() && same()).then_some(lock)
    }
}
