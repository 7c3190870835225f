// SPDX-License-Identifier: MIT OR Apache-2.0
//! The locks of an `rcl` server, and what is asked for under one: steps C1, S1 and E2 of `rcl.rs`.
//!
//! A request with a deadline can be taken back. It has an odd number, which no other request of this place
//! has, and its lock's address has a mark.
//!
//! - K1. The client writes the request, its lock, and the number. Then it asks.
//! - K2. The thread in charge reads the number, and then that there is a request of that lock. Before it
//!   runs the section it changes the number to the next one. If that fails, it goes on.
//! - K3. At the deadline the client changes the number to the next one. If that fails, it waits for the
//!   answer. Else the section has not run and will not. A slot's client answers itself: RING, as it does not
//!   know whether the server sleeps (I4). A late client waits until it is unlinked (`late.rs`).
//!
//! K1 release -> K2 acquire publishes the lock, and the last answer. So what K2 reads then is of the request
//! of that number, or of a later one, and then the number has changed. Requests without a deadline have no
//! part in it but the look at the mark.

use platform::{Atomic, Ordering::*, Platform};

use crate::delegate::{Request, Section};
use crate::wait::answer::Answer;

/// A request and its lock.
pub struct Ask<P: Platform> {
    pub answer: Answer<P>,
    pub request: Request<P>,
    lock: P::AtomicPtr<RclLock<P>>,
    /// Odd: the request can be taken back, or run.
    number: P::AtomicU32,
}

/// In a lock's address: the request has a number (K1).
const MARK: usize = 1;

/// A request that can be run, and its lock.
pub struct Found<'a, P: Platform> {
    pub lock: &'a RclLock<P>,
    /// 0: it cannot be taken back.
    number: u32,
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
        let lock = Atomic::new(core::ptr::null_mut());
        Self { answer, request: Request::none(), lock, number: P::AtomicU32::new(0) }
    }

    /// C1, before it asks. Without a section it wants to hold the lock (H1).
    #[inline(always)]
    pub fn set(&self, lock: &RclLock<P>, section: Option<Section>, context: *mut ()) {
        match section {
            Some(section) => self.request.set(section, context),
            None => self.request.clear(),
        }
        // ORDER: Release (C1), pairs with S1; publishes the last answer.
        self.lock.store(core::ptr::from_ref(lock).cast_mut(), Release);
    }

    /// The same, for a request that can be taken back (K1).
    pub fn set_for_now(&self, lock: &RclLock<P>, section: Section, context: *mut ()) {
        self.request.set(section, context);
        let marked = core::ptr::from_ref(lock).cast_mut().map_addr(|address| address | MARK);
        // The number publishes it: whoever reads it with an older number cannot claim that.
        self.lock.store(marked, Relaxed);
        // ORDER: Release (K1), pairs with K2; publishes the lock, and the last answer.
        self.number.store(self.number.load(Relaxed).wrapping_add(1), Release);
    }

    /// K3. The client of a request that it set so. True: it has not been run and will not be.
    pub fn take_back(&self) -> bool {
        let number = self.number.load(Relaxed);
        number & 1 != 0 && self.change(number)
    }

    /// Has the client of this one, which nobody has run, taken it back?
    pub fn is_taken_back(&self) -> bool {
        self.lock.load(Relaxed).addr() & MARK != 0 && self.number.load(Relaxed) & 1 == 0
    }

    fn change(&self, number: u32) -> bool {
        self.number.compare_exchange(number, number.wrapping_add(1), Relaxed, Relaxed).is_ok()
    }

    /// K2. The calling thread is to run it: false if it has been taken back.
    #[inline(always)]
    pub fn claim(&self, found: &Found<'_, P>) -> bool {
        found.number == 0 || self.change(found.number)
    }

    /// S1. The request's lock, if there is a request that can be run.
    #[inline(always)]
    pub fn to_run(&self) -> Option<Found<'_, P>> {
        if !self.answer.is_asked() {
            return None;
        }
        // ORDER: Acquire (S1), pairs with C1: if this is the next request's, so is the answer below.
        let word = self.lock.load(Acquire);
        let number = match word.addr() & MARK {
            0 => 0,
            // ORDER: Acquire (K2), pairs with K1.
            _ => Some(self.number.load(Acquire)).filter(|number| number & 1 != 0)?,
        };
        // SAFETY: a client wrote it before it asked. It is there as long as somebody serves.
        let lock = unsafe { &*word.map_addr(|address| address & !MARK) };
        // A thread that has lost the charge may have answered in between, and the client have come again.
        let same = || self.answer.is_asked() && self.lock.load(Relaxed) == word;
        (lock.is_free() && same()).then_some(Found { lock, number })
    }
}
