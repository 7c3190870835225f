// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rcl`: a thread of its own, the server, runs the sections of one lock or of several.
//!
//! Choose it where a processor can be spared for the data of hot locks. Lozi, David, Thomas, Lawall, Muller,
//! "Remote core locking", USENIX ATC 2012; Paznikov 2016, figures 1 and 3: a slot of 64 bytes a client with
//! lock, function and context. Changed: a client has a slot for one request and not for life, so that there
//! may be more clients than slots (`rcl/late.rs`). Clients sleep when the server does not run, and a server
//! without requests sleeps. Any number of threads may serve: one is *in charge*, the others are *spare*.
//! Where a section keeps the one in charge from the others' sections, a spare takes over (`rcl/spare.rs`).
//!
//! # State
//! A slot has a seat, a request, the request's lock, and an `answer`:
//!
//! | answer | means |
//! |---|---|
//! | waiting, asleep | a request that has not been run |
//! | DONE | no request |
//! | RING | no request, and the next client is to ring: the server may sleep |
//!
//! A request with a deadline has a number, by which client or server claims it (K1 to K3, `rcl/ask.rs`). A
//! client without a slot has its request on its stack, and one that leaves it (`run_async`) where it likes.
//! `charge`: who is in charge, and whether that thread is IN a section: `0 -> me` (V3), `me <-> me IN` (S1),
//! `me IN -> other` (V3). `bell`: 1, somebody has rung since the server last looked. `used`: slots that were
//! ever used. A lock's `busy`: one of its sections runs, or a client holds it. `server`: who is in charge,
//! for clients.
//!
//! # Invariants
//! - I1. Only threads in `serve` run sections. Of a lock one runs at most, and none while it is held.
//! - I2. A slot's client touches the request until it asks, who runs it until the answer. What its client has
//!   taken back nobody runs.
//! - I3. Only the thread in charge begins a section, or sets `busy`. A thread that loses the charge is IN a
//!   section. It ends that one, and is spare then.
//! - I4. While the server sleeps, each slot without a request has RING, and `bell` is 0. Each slot with one
//!   waits for a busy lock. Slots that were never used have RING.
//!
//! # Protocol
//! C1. Sit, write the request, ask; L1 without a seat, or to leave it. C2. If the answer was RING, set
//! `bell`; if that was 0, wake the server. C3. Wait for the answer; before sleep, V1. At a deadline, K3. C4.
//! A client that has rung on the server's own processor moves to another one, now and then. S1. For each used
//! slot that is asked, and whose lock is not busy: K2, set `busy`, be IN, run the section; L3. E1. Answer
//! DONE. E2. Clear `busy`. E3. Be IN no more. If another thread is in charge, ring. S2. If there was no
//! request, look on for a while. S3. Then clear `bell`, and change DONE to RING in each used slot. If there
//! is a request to run, go to S1. If the server is closed, end. S4. Sleep while `bell` is 0; S1. N1. A
//! section of the thread in charge that comes to another lock of its server runs the inner section in place,
//! IN as well. N2. Elsewhere, or without the charge, it is a client. H1. A request without a section holds
//! the lock: E2 is its client's. H2. It clears `busy`, and rings. T1. The first thread in charge tells the
//! platform so when it begins. The thread in charge tells it when it finds itself on another processor than
//! was told last, before and after a sleep, and when the server ends ([`Platform::serves`]). A spare that
//! takes over tells nothing: memory may move then, and requests wait. T2. After a second of sleep it says
//! that it is idle, and when it is not any more, if anybody wants to know ([`Serving`]). T3. What was not
//! heard of that, it says again, asleep or between two rounds.
//!
//! # Memory order
//! C1 release -> S1 acquire publishes the request. The answer's release -> C3 acquire publishes what the
//! section wrote. C2 release -> S3 acquire (`bell`) publishes the request, and `used`. S1 release -> V3
//! acquire publishes `busy`, and what earlier sections wrote. E2 release -> S1 acquire publishes what the
//! section wrote and its answer. C1 release -> S1 acquire (the slot's lock): who sees the new lock sees the
//! last answer.
//!
//! # Under the scheduler
//! Server preempted or asleep in a section: clients see it and sleep, and a spare runs the other locks'
//! sections. Preempted between two: clients sleep until it runs. Client preempted: nobody waits for it. More
//! threads than processors: most requests cost a sleep and a wake-up of the client. Hint stale: a client
//! spins for as long as a sleep costs at most, or sleeps and is woken. Killed while serving: lost. A forked
//! child has no server, and its clients wait for ever; `generation` keeps its threads from taking themselves
//! for the server. A section that forks ends in the child, and then its thread leaves `serve` there.
//! # Fairness and space
//! Each round runs all requests that it finds, so a client waits for one request of each other slot. A line
//! a slot, and five more; a lock is 4 bytes.
//! # Rejected
//! A compare-and-swap at each request, so that all can be taken back: one more for a section, in the client's
//! line. A look by each client at a word that says whether the server sleeps: its ask and that look are two
//! words, which takes a fence at each request. To wait for a slot: sections of one lock would wait for those
//! of another one, against the locks' order. A claim of slot and lock by each servicing thread: two
//! read-modify-writes a section, one of them in the client's line.
//! # Checked by
//! `conformance`: real threads, loom, shuttle; with fewer slots than clients, two locks, sections in
//! sections, sections that wait for others'. Twins are caught whose server answers too early, runs a request
//! twice, or sleeps over one; whose spare takes over between two sections; which looks at a request once
//! (S1), or does not ring where it has lost the charge (E3); whose client takes a request back blindly (K3);
//! which claims one blindly, or reads its number last (K2).

mod ask;
mod late;
mod spare;

use core::array;
use platform::{Atomic, Clock, Deadline, Ordering::*, Platform, ThreadId};

pub use self::ask::RclLock;

use self::ask::Ask;
use self::late::{Late, Node};
use self::spare::Watch;
use super::{Left, RawDelegate, RawDelegateTimed, Seat, Seated, Section, sit_at_once, stand};
use crate::wait::answer::{self, Answer, DONE};

/// No request, and the server may sleep.
const RING: u32 = DONE + 1;

/// In `charge`: the thread.
const ID: u32 = ThreadId::LIMIT.next_power_of_two() - 1;
/// In `charge`: it is in a section. Above it, sections are counted.
const IN: u32 = ID + 1;

/// BOUND: so long nobody asks before a server's processor is offered to others. What that costs, two messages
/// to another process, is little beside it.
const IDLE_NS: u64 = 1_000_000_000;

/// BOUND: a move costs some microseconds, so it is one in so many waits.
const STAYS: u32 = 64;

#[repr(align(64))]
struct Slot<P: Platform> {
    seat: Seat<P>,
    ask: Ask<P>,
    /// Waits at the server's processor until the client leaves it (C4).
    stays: P::AtomicU32,
}

impl<P: Platform> Seated<P> for Slot<P> {
    fn seat(&self) -> &Seat<P> {
        &self.seat
    }
}

#[repr(align(64))]
struct Line<A>(A);

/// See the head of this file.
pub struct RclServer<P: Platform, const SLOTS: usize = 32> {
    bell: Line<P::AtomicU32>,
    charge: Line<P::AtomicU32>,
    watch: Line<Watch<P>>,
    late: Line<Late<P>>,
    /// The thread in charge, in a line that it does not write at each section. Exact if it is the caller.
    server: P::AtomicU32,
    /// Of its process: in a copy the same id is another thread's.
    generation: P::AtomicU32,
    /// The processor where the server went to sleep last, plus 1; 0: nobody knows. HINT.
    processor: P::AtomicU32,
    /// The processor that was told last (T1), plus 1. Of the thread in charge.
    told: P::AtomicU32,
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
            charge: Line(P::AtomicU32::new(0)),
            watch: Line(Watch::new()),
            late: Line(Late::new()),
            server: P::AtomicU32::new(0),
            generation: P::AtomicU32::new(0),
            processor: P::AtomicU32::new(0),
            told: P::AtomicU32::new(0),
            used: P::AtomicU32::new(0),
            closed: P::AtomicU32::new(0),
            vain: P::AtomicU32::new(0),
            slots: array::from_fn(|_| Slot {
                seat: Seat::new(),
                ask: Ask::new(RING),
                stays: P::AtomicU32::new(0),
            }),
        }
    }
}

impl<P: Platform, const SLOTS: usize> RclServer<P, SLOTS> {
    fn server(&self) -> ThreadId {
        ThreadId(self.server.load(Relaxed))
    }

    /// As [`RawDelegate::run`], under this lock. A section may come to another lock of this server, or of
    /// another one, in an order of the locks that all sections keep.
    ///
    /// # Safety
    /// As for [`RawDelegate::run`]. All that come to this lock name this server, whose threads have left
    /// [`RclServer::serve`] before the lock ends. But a section may wait for what other locks' sections do,
    /// as long as one more thread serves than there are such sections at a time.
    pub unsafe fn run(&self, lock: &RclLock<P>, section: Section, context: *mut ()) {
        // SAFETY: as the caller promises.
        unsafe { self.ask(lock, Some(section), context, None) };
    }

    /// The same, unless the deadline passes before the section begins: then it returns false, and the section
    /// has not run and will not. A section that has begun is waited for. A client that has found no slot free
    /// returns when a thread in charge has looked: its request lies in a list. So it returns late while all
    /// that serve are in stuck sections, and not at all where none of them gets on, or nobody serves.
    ///
    /// # Safety
    /// As for [`RclServer::run`].
    pub unsafe fn run_until(
        &self,
        lock: &RclLock<P>,
        section: Section,
        context: *mut (),
        deadline: Deadline,
    ) -> bool {
        // SAFETY: as the caller promises.
        unsafe { self.ask(lock, Some(section), context, Some(deadline)) }
    }

    /// H1. Waits until no section of this lock runs. None runs from then on until [`RclServer::release`].
    ///
    /// # Safety
    /// As for [`RclServer::run`]; the caller is in no section of this lock. A section that comes to a lock
    /// while it is held waits for what others do.
    pub unsafe fn hold(&self, lock: &RclLock<P>) {
        // SAFETY: as the caller promises.
        unsafe { self.ask(lock, None, core::ptr::null_mut(), None) };
    }

    /// H2. Ends what [`RclServer::hold`] began.
    ///
    /// # Safety
    /// The lock is held, by the caller.
    pub unsafe fn release(&self, lock: &RclLock<P>) {
        lock.end();
        // Requests of this lock may wait, and the one in charge sleep.
        self.ring();
    }

    /// False at the deadline.
    ///
    /// # Safety
    /// As for [`RclServer::run`], or without a section [`RclServer::hold`].
    #[inline(always)]
    unsafe fn ask(
        &self,
        lock: &RclLock<P>,
        section: Option<Section>,
        context: *mut (),
        deadline: Option<Deadline>,
    ) -> bool {
        // SAFETY: as the caller promises.
        if self.is_server() && unsafe { self.run_inside(lock, section, context) } {
            return true;
        }
        let Some(number) = sit_at_once(&self.slots) else {
            return self.ask_late(lock, section, context, deadline);
        };
        self.use_up_to(number as u32 + 1);
        let slot = &self.slots[number];
        set(&slot.ask, lock, section, context, deadline);
        // C1.
        if slot.ask.answer.ask() == RING {
            self.ring();
            self.make_room(slot);
            if Self::may_look() {
                let over = || slot.ask.answer.get().is_some() || deadline.is_some_and(P::past);
                // HINT: the server may look blocked, and is on its way.
                let answered = || (!over()).then_some(ThreadId::NONE);
                answer::watch_for::<P>(P::costs().idle, answer::beside_server::<P>(), answered);
            }
        }
        let ran = match deadline {
            None => self.wait_for(&slot.ask.answer, lock),
            Some(deadline) => self.wait_until(&slot.ask, lock, deadline),
        };
        if !ran {
            // K3.
            slot.ask.answer.word().store(RING, Relaxed);
        }
        stand(&self.slots, number);
        ran
    }

    /// L1 and L4.
    #[cold]
    #[inline(never)]
    fn ask_late(
        &self,
        lock: &RclLock<P>,
        section: Option<Section>,
        context: *mut (),
        deadline: Option<Deadline>,
    ) -> bool {
        let node = Node::new();
        set(&node.ask, lock, section, context, deadline);
        self.late.0.push((&raw const node).cast_mut());
        self.ring();
        let ran = deadline.is_none_or(|deadline| self.wait_until(&node.ask, lock, deadline));
        if !ran {
            self.ring();
        }
        self.wait_for(&node.ask.answer, lock);
        ran
    }

    /// C3.
    #[inline(always)]
    fn wait_for(&self, answer: &Answer<P>, lock: &RclLock<P>) -> bool {
        answer.wait_telling(&self.vain, || self.server(), || self.call(lock));
        true
    }

    /// C3 and K3. False if the request has been taken back.
    #[cold]
    fn wait_until(&self, ask: &Ask<P>, lock: &RclLock<P>, deadline: Deadline) -> bool {
        let (server, tell) = (|| self.server(), || self.call(lock));
        ask.answer.wait_until(&self.vain, server, tell, deadline).is_some()
            || !ask.take_back() && self.wait_for(&ask.answer, lock)
    }

    /// Leaves a request with the server, and returns.
    ///
    /// # Safety
    /// As for [`RclServer::run`]. The request stays until [`RclServer::fetch`] has said that it has been run.
    /// It is left once.
    pub unsafe fn leave_request(&self, lock: &RclLock<P>, left: *mut RclAsk<P>) {
        // SAFETY: as the caller promises.
        let RclAsk { node, section, context } = unsafe { &*left };
        node.ask.set(lock, Some(*section), *context);
        // SAFETY: as the caller promises.
        self.late.0.push(unsafe { &raw mut (*left).node });
        self.ring();
        // V1: its client may never be about to sleep here.
        self.call(lock);
    }

    /// Waits for a request that was left. `generation`: of the process when it was.
    ///
    /// # Safety
    /// It was left here, under this lock, and is there.
    pub unsafe fn fetch(&self, lock: &RclLock<P>, left: *mut RclAsk<P>, generation: u32) -> Left {
        // SAFETY: as the caller promises.
        let left = unsafe { &*left };
        if !left.is_answered() {
            if generation != P::generation() {
                return Left::Lost;
            }
            self.wait_for(&left.node.ask.answer, lock);
        }
        Left::Ran
    }

    /// HINT: may a thread look for what another one does that has just been woken? Not where that one needs
    /// this processor, or each moment awake is paid for.
    fn may_look() -> bool {
        P::processors() >= 2 && !P::metered()
    }

    /// Does the calling thread serve?
    fn is_server(&self) -> bool {
        let server = self.server();
        server != ThreadId::NONE && server == P::current() && self.generation.load(Relaxed) == P::generation()
    }

    /// N1. False if that is not for the calling thread to do: it has lost the charge, or another thread runs
    /// a section of this lock.
    ///
    /// # Safety
    /// As for [`RclServer::run`]. The calling thread serves.
    unsafe fn run_inside(&self, lock: &RclLock<P>, section: Option<Section>, context: *mut ()) -> bool {
        let me = P::current();
        // Not IN: so nobody takes over between the look at `busy` and the mark.
        if !self.leave(me) {
            return false;
        }
        let free = lock.is_free();
        if free {
            lock.busy.store(1, Relaxed);
        }
        self.enter();
        if let Some(section) = section.filter(|_| free) {
            // SAFETY: as the caller promises.
            unsafe { section(context) };
            lock.end();
            match self.leave(me) {
                true => self.enter(),
                false => self.ring(),
            }
        }
        free
    }

    /// S1. The thread in charge begins a section.
    #[inline(always)]
    fn enter(&self) {
        let word = self.charge.0.load(Relaxed).wrapping_add(2 * IN) | IN;
        // ORDER: Release (S1), pairs with V3; publishes `busy`, and what earlier sections wrote.
        self.charge.0.store(word, Release);
    }

    /// E3. False if another thread is in charge.
    #[inline(always)]
    fn leave(&self, me: ThreadId) -> bool {
        let word = self.charge.0.load(Relaxed);
        // Nobody takes over from here, so nobody reads this one to go on.
        word & (ID | IN) == me.0 | IN
            && self.charge.0.compare_exchange(word, word & !IN, Relaxed, Relaxed).is_ok()
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
        let here = Self::here();
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

    /// See [`RawDelegate::serve`]. Further threads that call it are spare.
    pub fn serve(&self) -> bool {
        self.serve_with(&())
    }

    /// The same, telling what it comes to.
    pub fn serve_with(&self, serving: &impl Serving) -> bool {
        let me = P::register();
        if me == ThreadId::NONE {
            return false;
        }
        while let Some(before) = self.stand_by(me) {
            if before == ThreadId::NONE {
                self.tell(Self::here());
            } else if self.watch.0.spares.load(Relaxed) == 0 {
                serving.alone();
            }
            if !self.work(me, serving) {
                P::serves(core::ptr::from_ref(self).cast(), false);
                self.server.store(0, Relaxed);
                return !self.is_copy();
            }
        }
        true
    }

    /// The thread in charge asks, or one that was: has a section forked, and is this the child?
    fn is_copy(&self) -> bool {
        self.generation.load(Relaxed) != P::generation()
    }

    /// The processor of the calling thread, plus 1; 0: nobody knows.
    fn here() -> u32 {
        P::running_on().map_or(0, |processor| processor + 1)
    }

    /// T1.
    fn tell(&self, here: u32) {
        self.told.store(here, Relaxed);
        P::serves(core::ptr::from_ref(self).cast(), true);
    }

    /// T1.
    fn tell_if_moved(&self, here: u32) {
        if here != self.told.load(Relaxed) {
            self.tell(here);
        }
    }

    /// S1 to S4. False if the server is closed, or this is a forked child; true if another thread is in
    /// charge.
    fn work(&self, me: ThreadId, serving: &impl Serving) -> bool {
        loop {
            match self.serve_once(me) {
                None => return !self.is_copy(),
                Some(true) if serving.is_unheard() => serving.repeat(),
                Some(true) => {}
                Some(false) if self.wait_for_requests() || self.sleep(serving) => {}
                Some(false) => return false,
            }
        }
    }

    fn slots(&self) -> impl Iterator<Item = &Slot<P>> {
        self.slots.iter().take(self.used.load(Relaxed) as usize)
    }

    /// S1. Whether there was a request, or `None` if another thread is in charge.
    fn serve_once(&self, me: ThreadId) -> Option<bool> {
        let mut any = false;
        for ask in self.slots().map(|slot| &slot.ask) {
            if let Some(found) = ask.to_run().filter(|found| ask.claim(found)) {
                self.run_one(me, ask, found.lock)?;
                any = true;
            }
        }
        Some(self.late.0.serve(|ask, found| self.run_one(me, ask, found.lock))? || any)
    }

    /// S1 to E3. `None` if another thread is in charge, or in a forked child nobody. `ask` is there until the
    /// answer only.
    #[inline(always)]
    fn run_one(&self, me: ThreadId, ask: *const Ask<P>, lock: &RclLock<P>) -> Option<()> {
        lock.busy.store(1, Relaxed);
        self.enter();
        // SAFETY: its client wrote it before it asked, and waits. No section of this lock runs.
        let has_section = unsafe { (*ask).request.run() };
        if self.is_copy() {
            // The section has forked. Neither its client is here nor those of other requests.
            return None;
        }
        // E1. SAFETY: as above.
        unsafe { Answer::give(&raw const (*ask).answer, DONE) };
        if has_section {
            lock.end();
        }
        if self.leave(me) {
            return Some(());
        }
        // The one in charge may sleep, and a request of this lock wait.
        self.ring();
        None
    }

    /// Is there a request that can be run?
    fn has_request(&self) -> bool {
        self.slots().any(|slot| slot.ask.to_run().is_some()) || self.late.0.has_request()
    }

    /// S2. True if there is a request.
    fn wait_for_requests(&self) -> bool {
        // Longer than a client takes that was woken on an idle processor: else each sleeps because the other
        // one does.
        let asked = || (!self.has_request()).then_some(ThreadId::NONE);
        Self::may_look() && answer::watch_for::<P>(2 * P::costs().idle, answer::beside_server::<P>(), asked)
    }

    /// S3 and S4. False if the server is closed.
    #[cold]
    fn sleep(&self, serving: &impl Serving) -> bool {
        // ORDER: Acquire (S3), pairs with C2.
        self.bell.0.swap(0, Acquire);
        let mark = |Slot { ask, .. }: &Slot<P>| match ask.answer.get() {
            // The thread that has the lock busy will ring.
            None => ask.to_run().is_none() && ask.answer.is_asked(),
            Some(RING) => true,
            Some(_) => ask.answer.word().compare_exchange(DONE, RING, Relaxed, Relaxed).is_ok(),
        };
        if !self.slots().all(mark) || self.late.0.has_request() {
            return true;
        }
        if self.closed.load(Relaxed) != 0 {
            return false;
        }
        let here = Self::here();
        self.processor.store(here, Relaxed);
        self.tell_if_moved(here);
        self.wait_for_bell(serving);
        self.tell_if_moved(Self::here());
        true
    }

    /// S4.
    fn wait_for_bell(&self, serving: &impl Serving) {
        let bell = &self.bell.0;
        let mut idle = false;
        loop {
            let lends = if idle { serving.is_unheard() } else { serving.lends() };
            let late = lends.then(|| Deadline { ns: P::now_ns() + IDLE_NS, clock: Clock::Monotonic });
            P::wait(bell, 0, late);
            if !late.is_some_and(P::past) || bell.load(Relaxed) != 0 {
                break;
            }
            if idle {
                serving.repeat()
            } else {
                serving.idle(true)
            }
            idle = true;
        }
        if idle {
            serving.idle(false);
        }
    }

    /// See [`RawDelegate::close`].
    pub fn close(&self) {
        self.closed.store(1, Relaxed);
        self.ring();
        self.dismiss();
    }
}

/// What the threads of a server come to, for those who have started them.
pub trait Serving {
    /// A spare has taken over, and no further one is left.
    fn alone(&self) {}

    /// Is [`Serving::idle`] of use?
    fn lends(&self) -> bool {
        false
    }

    /// Nobody has asked for a second; or again somebody has, and waits.
    fn idle(&self, _is: bool) {}

    /// Is there something that was told and not heard? Asked after each round of requests.
    fn is_unheard(&self) -> bool {
        false
    }

    /// Tells it again, if it is time to. Requests may wait.
    fn repeat(&self) {}
}

impl Serving for () {}

/// C1, K1.
#[inline(always)]
fn set<P: Platform>(
    ask: &Ask<P>,
    lock: &RclLock<P>,
    section: Option<Section>,
    context: *mut (),
    deadline: Option<Deadline>,
) {
    match section {
        Some(section) if deadline.is_some() => ask.set_for_now(lock, section, context),
        _ => ask.set(lock, section, context),
    }
}

/// A request that its client leaves with the server ([`RclServer::leave`]).
pub struct RclAsk<P: Platform> {
    node: Node<P>,
    section: Section,
    context: *mut (),
}

impl<P: Platform> RclAsk<P> {
    /// A request that nobody knows of.
    pub fn new(section: Section, context: *mut ()) -> Self {
        Self { node: Node::new(), section, context }
    }

    /// Has its section run? What that did, the caller sees then. Before it is left: true.
    pub fn is_answered(&self) -> bool {
        self.node.ask.answer.get().is_some()
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

impl<P: Platform, const SLOTS: usize> RawDelegateTimed<P> for Rcl<P, SLOTS> {
    unsafe fn run_until(&self, section: Section, context: *mut (), deadline: Deadline) -> bool {
        // SAFETY: here and below: as the caller promises.
        unsafe { self.server.run_until(&self.lock, section, context, deadline) }
    }

    unsafe fn lock(&self) {
        // SAFETY: as above.
        unsafe { self.server.hold(&self.lock) };
    }

    unsafe fn unlock(&self) {
        // SAFETY: as above.
        unsafe { self.server.release(&self.lock) };
    }
}
