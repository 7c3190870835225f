// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rcl`: a thread of its own, the server, runs the sections of one lock or of several.
//!
//! Choose it where a processor can be spared for the data of hot locks. Lozi, David, Thomas, Lawall, Muller,
//! "Remote core locking", USENIX ATC 2012; Paznikov 2016, figures 1 and 3: a slot of 64 bytes a client with
//! lock, function and context. Changed: a client has a slot for one request and not for life, so that there
//! may be more clients than slots. Clients sleep when the server does not run, and a server without requests
//! sleeps. There is one servicing thread: a section that blocks stops the server's other sections.
//!
//! # State
//!
//! A slot has a seat's lock, a request, the request's lock, and an `answer`:
//!
//! | answer | means |
//! |---|---|
//! | waiting, asleep | a request that has not been run |
//! | DONE | no request |
//! | RING | no request, and the next client is to ring: the server may sleep |
//!
//! `bell`: 1, somebody has rung since the server last looked. `used`: slots that were ever used. `server`:
//! the thread that serves, 0 if there is none. A lock's `busy`, which only the server uses: one of its
//! sections runs.
//!
//! # Invariants
//!
//! - I1. Only the thread in `serve` runs sections, one inside the other at most. There is one such thread.
//! - I2. A slot's client touches the request until it asks, the server until it answers.
//! - I3. While the server sleeps, each slot without a request has RING, and `bell` is 0. Slots that were
//!   never used have RING.
//!
//! # Protocol
//!
//! C1. Sit, write the request, ask. C2. If the answer was RING, set `bell`; if that was 0, wake the server.
//! C3. Wait for the answer. C4. A client that has rung on the server's own processor moves to another one,
//! now and then. S1. For each used slot: if it is asked, run the section, and answer DONE. S2. If
//! none was, look on for a while. S3. Then clear `bell`, and change DONE to RING in each used slot. If one is
//! asked, go to S1. If the server is closed, end. S4. Sleep while `bell` is 0; S1. N1. A section that comes
//! to another lock of its own server is on the server's thread: it runs the inner section in place. N2. At
//! another server it is a client, and its own server waits.
//!
//! # Memory order
//!
//! C1 release -> S1 acquire publishes the request. The answer's release -> C3 acquire publishes what the
//! section wrote. C2 release -> S3 acquire (`bell`) publishes the request, and `used`. Seats are mutexes.
//!
//! # Under the scheduler
//!
//! Server preempted or asleep in a section: clients see it and sleep, so their processors are free for it.
//! Client preempted: nobody waits for it. More threads than processors: most requests cost a sleep and a
//! wake-up of the client. Hint stale: a client spins for as long as a sleep costs at most, or sleeps and is
//! woken. Killed while serving: lost. A forked child has no server, and its clients wait for ever.
//!
//! # Fairness and space
//!
//! Each round runs all requests that it finds, so a client waits for one request of each other slot. A line
//! a slot, and two more; a lock is 4 bytes. With more clients than slots, those who find none wait for one.
//!
//! # Rejected
//!
//! A look by each client at a word that says whether the server sleeps: its ask and that look are two words,
//! which takes a fence at each request. A second servicing thread for sections that block: not built.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; with fewer slots than clients, two locks, sections in
//! sections. Twins are caught whose server answers too early, runs a request twice, or sleeps over one.

use core::array;
use platform::{Atomic, Ordering::*, Platform, ThreadId};

use super::{RawDelegate, Request, Seat, Section, sit, stand};
use crate::mutex::{Native, RawMutex};
use crate::wait::answer::{self, Answer, DONE};

/// No request, and the server may sleep.
const RING: u32 = DONE + 1;

/// BOUND: a move costs some microseconds, so it is one in so many waits.
const STAYS: u32 = 64;

#[repr(align(64))]
struct Slot<P: Platform> {
    seat: Native<P>,
    answer: Answer<P>,
    request: Request<P>,
    lock: P::AtomicPtr<RclLock<P>>,
    /// Waits at the server's processor until the client leaves it (C4).
    stays: P::AtomicU32,
}

impl<P: Platform> Seat<P> for Slot<P> {
    fn lock(&self) -> &Native<P> {
        &self.seat
    }
}

/// A lock whose sections an [`RclServer`] runs. A lock has one server.
pub struct RclLock<P: Platform> {
    busy: P::AtomicU32,
}

impl<P: Platform> Default for RclLock<P> {
    fn default() -> Self {
        Self { busy: P::AtomicU32::new(0) }
    }
}

#[repr(align(64))]
struct Line<A>(A);

/// See the head of this file.
pub struct RclServer<P: Platform, const SLOTS: usize = 32> {
    bell: Line<P::AtomicU32>,
    /// Of the thread that serves, while it does.
    place: Line<Native<P>>,
    server: P::AtomicU32,
    /// The processor where the server went to sleep last, plus 1; 0: nobody knows. HINT.
    processor: P::AtomicU32,
    used: P::AtomicU32,
    closed: P::AtomicU32,
    /// See [`crate::wait::vain`].
    vain: P::AtomicU32,
    slots: [Slot<P>; SLOTS],
}

impl<P: Platform, const SLOTS: usize> Default for RclServer<P, SLOTS> {
    fn default() -> Self {
        Self {
            bell: Line(P::AtomicU32::new(0)),
            place: Line(Native::new()),
            server: P::AtomicU32::new(0),
            processor: P::AtomicU32::new(0),
            used: P::AtomicU32::new(0),
            closed: P::AtomicU32::new(0),
            vain: P::AtomicU32::new(0),
            slots: array::from_fn(|_| Slot {
                seat: Native::new(),
                answer: Answer::given(RING),
                request: Request::none(),
                lock: Atomic::new(core::ptr::null_mut()),
                stays: P::AtomicU32::new(0),
            }),
        }
    }
}

impl<P: Platform, const SLOTS: usize> RclServer<P, SLOTS> {
    fn server(&self) -> ThreadId {
        ThreadId(self.server.load(Relaxed))
    }

    /// As [`RawDelegate::run`], under this lock. A section may come to another lock of its own server, or to
    /// one of another server if none of that one's sections comes to this one.
    ///
    /// # Safety
    /// As for [`RawDelegate::run`]. All that come to this lock name this server.
    pub unsafe fn run(&self, lock: &RclLock<P>, section: Section, context: *mut ()) {
        let server = self.server();
        if server != ThreadId::NONE && server == P::current() && lock.busy.load(Relaxed) == 0 {
            // N1. SAFETY: the section that comes here runs on this thread, and is another lock's.
            return unsafe { self.run_in_place(lock, || section(context)) };
        }
        let number = sit(&self.slots);
        self.use_up_to(number as u32 + 1);
        let slot = &self.slots[number];
        slot.request.set(section, context);
        slot.lock.store(core::ptr::from_ref(lock).cast_mut(), Relaxed);
        // C1.
        if slot.answer.ask() == RING {
            self.ring();
            self.make_room(slot);
            // HINT: the server may look blocked, and is on its way.
            let answered = || slot.answer.get().is_none().then_some(ThreadId::NONE);
            answer::watch_for::<P>(P::costs().idle, answered);
        }
        // C3.
        slot.answer.wait(&self.vain, || self.server());
        stand(slot);
    }

    /// # Safety
    /// The calling thread serves, and no section of this lock runs.
    unsafe fn run_in_place(&self, lock: &RclLock<P>, section: impl FnOnce()) {
        lock.busy.store(1, Relaxed);
        section();
        lock.busy.store(0, Relaxed);
    }

    fn use_up_to(&self, count: u32) {
        let mut used = self.used.load(Relaxed);
        while used < count {
            match self.used.compare_exchange(used, count, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => used = now,
            }
        }
    }

    /// C2.
    #[cold]
    fn ring(&self) {
        // ORDER: Release, pairs with S3; publishes our request, and `used`.
        if self.bell.0.swap(1, Release) == 0 {
            P::wake(&raw const self.bell.0, 1);
        }
    }

    /// C4. The server slept on the processor where the client is: as long as both are there, each request
    /// costs two switches.
    fn make_room(&self, slot: &Slot<P>) {
        // HINT: stale, the client moves in vain, once in so many requests.
        let here = P::running_on().map_or(0, |processor| processor + 1);
        if here == 0 || here != self.processor.load(Relaxed) || P::processors() < 2 {
            return;
        }
        match slot.stays.load(Relaxed) {
            0 => {
                P::migrate(None);
                slot.stays.store(STAYS, Relaxed);
            }
            stays => slot.stays.store(stays - 1, Relaxed),
        }
    }

    /// See [`RawDelegate::serve`].
    pub fn serve(&self) -> bool {
        let me = P::register();
        if me == ThreadId::NONE {
            return false;
        }
        // SAFETY: there is no node, and it is unlocked once, below.
        unsafe { self.place.0.lock(&()) };
        self.server.store(me.0, Relaxed);
        while self.serve_once() || self.wait_for_requests() || self.sleep() {}
        self.server.store(0, Relaxed);
        // SAFETY: locked above.
        unsafe { self.place.0.unlock(&()) };
        true
    }

    fn slots(&self) -> impl Iterator<Item = &Slot<P>> {
        self.slots.iter().take(self.used.load(Relaxed) as usize)
    }

    /// S1. True if there was a request.
    fn serve_once(&self) -> bool {
        let mut any = false;
        for slot in self.slots().filter(|slot| slot.answer.is_asked()) {
            // SAFETY: its client wrote it before it asked, and waits. This thread runs no section.
            unsafe {
                let lock = &*slot.lock.load(Relaxed);
                self.run_in_place(lock, || slot.request.run());
                Answer::give(&raw const slot.answer, DONE);
            }
            any = true;
        }
        any
    }

    /// S2. True if there is a request.
    fn wait_for_requests(&self) -> bool {
        let asked = || self.slots().any(|slot| slot.answer.is_asked());
        // Longer than a client takes that was woken on an idle processor: else each sleeps because the other
        // one does.
        answer::watch_for::<P>(2 * P::costs().idle, || (!asked()).then_some(ThreadId::NONE))
    }

    /// S3 and S4. False if the server is closed.
    #[cold]
    fn sleep(&self) -> bool {
        // ORDER: Acquire (S3), pairs with C2.
        self.bell.0.swap(0, Acquire);
        let mark = |slot: &Slot<P>| match slot.answer.get() {
            None => false,
            Some(RING) => true,
            Some(_) => slot.answer.word().compare_exchange(DONE, RING, Relaxed, Relaxed).is_ok(),
        };
        if !self.slots().all(mark) {
            return true;
        }
        if self.closed.load(Relaxed) != 0 {
            return false;
        }
        self.processor.store(P::running_on().map_or(0, |processor| processor + 1), Relaxed);
        P::wait(&self.bell.0, 0, None);
        true
    }

    /// See [`RawDelegate::close`].
    pub fn close(&self) {
        self.closed.store(1, Relaxed);
        self.ring();
    }
}

/// A server with one lock.
pub struct Rcl<P: Platform, const SLOTS: usize = 32> {
    server: RclServer<P, SLOTS>,
    lock: RclLock<P>,
}

impl<P: Platform, const SLOTS: usize> RawDelegate<P> for Rcl<P, SLOTS> {
    const SERVED: bool = true;

    fn new() -> Self {
        Self { server: RclServer::default(), lock: RclLock::default() }
    }

    unsafe fn run(&self, section: Section, context: *mut ()) {
        // SAFETY: as the caller promises.
        unsafe { self.server.run(&self.lock, section, context) };
    }

    fn serve(&self) -> bool {
        self.server.serve()
    }

    fn close(&self) {
        self.server.close();
    }
}
