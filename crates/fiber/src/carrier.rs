// SPDX-License-Identifier: MIT OR Apache-2.0
//! A carrier: a kernel thread that runs fibers while it has a seat.

use core::cell::Cell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use std::sync::OnceLock;

use corosensei::CoroutineResult;
use linux::steer::Steered;
use linux::upcall::Upcall;
use linux::{Kernel, Linux};
use platform::Platform;

use crate::abode::Residents;
use crate::deque::Deque;
use crate::list::{Inbox, List, Pile};
use crate::policy::{self, Own};
use crate::record::{Fiber, Why};
use crate::runtime::{Activations, Priority, Runtime};
use crate::seats::Awake;
use crate::steer::Steer;
use crate::turns::{Overdue, Turns};
use crate::{guests, overflow, sentinel};

/// Records that a carrier keeps for its next fibers.
const KEPT: u32 = 256;
/// Every so many turns a carrier looks at what it has left alone: timers, the oldest of its new fibers.
const ROUND: u32 = 256;
/// A carrier whose seat others want passes it on after so long.
const QUANTUM_NS: u64 = 1_000_000;
/// BOUND: of so many fibers that gave way one does not go first.
const FAVOURS: u32 = 16;
/// New fibers that a carrier keeps to itself, at most; further ones go to all.
const NEW: usize = 256;

/// See the module.
#[repr(align(128))]
pub struct Carrier {
    pub runtime: &'static Runtime,
    pub index: u32,
    /// New fibers, newest last.
    pub new: Deque<Kernel, Fiber, NEW>,
    /// Fibers of this carrier that others made ready.
    pub inbox: Inbox,
    /// Its fibers that are ready; with a policy, those that its queue has dropped.
    ready: List,
    /// And in the order of the policy.
    own: Option<Own>,
    /// What it took from a blocked carrier, as a sentinel, to run next; or null.
    pub handed: Cell<*mut Fiber>,
    /// Its fiber that gave way, to go on first; or null. Another one might block in the kernel, and keep it
    /// waiting for as long.
    first: Cell<*mut Fiber>,
    /// How many gave way. One that does so whenever it comes back from the kernel would be the only one to
    /// run.
    gave_way: Cell<u32>,
    /// A sentinel is at this carrier, whose seat it may have taken, and may disable its event.
    pub watched: AtomicBool,
    current: Cell<*mut Fiber>,
    /// Records of no fiber. The last one is in the processor's cache.
    free: Pile,
    kept: Cell<u32>,
    /// It is about to sleep, or stands sentinel: what it makes ready it is told as by others.
    pub sleeps: Cell<bool>,
    pub turns: Turns<Kernel, ROUND>,
    pub overdue: Overdue,
    since: Cell<u64>,
    /// A fiber that waits rarely blocks the others. So fibers that begin are spread by this count.
    pub residents: Residents<Kernel>,
    /// When it was last roused, or made with a seat. 0: not since it slept.
    pub roused: AtomicU64,
    /// The kernel's word of it, if it can be had.
    pub upcall: OnceLock<Upcall>,
    /// See [`sentinel::is_usual`].
    pub usual: Cell<bool>,
    /// It has short slices while it sleeps: see `sentinel.rs`.
    pub short: Cell<bool>,
    /// The kernel's name of it.
    pub thread: AtomicI32,
    /// Where the kernel says on which processor it is; or null.
    pub place: AtomicPtr<AtomicU32>,
    pub steer: Steer<Kernel>,
    /// The note of `steer.rs`: of whoever has the word BUSY, then the carrier's.
    pub steered: Cell<Option<Steered>>,
}

// SAFETY: the cells and the lists without a lock are the carrier's own thread's, but for `steered`.
unsafe impl Sync for Carrier {}
// SAFETY: as above.
unsafe impl Send for Carrier {}

#[cfg(target_arch = "x86_64")]
mod own {
    use linux::{own_asm, own_variable};

    own_variable!("wakeful_carrier", size 8, align 3);

    /// In assembly, so that no compiler keeps the place across a switch.
    #[inline(always)]
    pub fn get() -> usize {
        let value: usize;
        // SAFETY: reads this thread's own variable.
        unsafe {
            own_asm!("wakeful_carrier", "mov {v}, qword ptr fs:[{a}]",
                v = lateout(reg) value, options(nostack, preserves_flags, readonly));
        }
        value
    }

    pub fn set(value: usize) {
        // SAFETY: writes this thread's own variable.
        unsafe {
            own_asm!("wakeful_carrier", "mov qword ptr fs:[{a}], {v}",
                v = in(reg) value, options(nostack, preserves_flags));
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod own {
    use std::cell::Cell;

    std::thread_local! {
        static CARRIER: Cell<usize> = const { Cell::new(0) };
    }

    /// Not inlined, so that no compiler keeps the place across a switch.
    #[inline(never)]
    pub fn get() -> usize {
        CARRIER.get()
    }

    #[inline(never)]
    pub fn set(value: usize) {
        CARRIER.set(value);
    }
}

/// The calling thread's carrier, if it is one.
#[inline(always)]
pub fn here() -> Option<&'static Carrier> {
    // SAFETY: set by `Carrier::work` to one that is never freed.
    unsafe { core::ptr::with_exposed_provenance::<Carrier>(own::get()).as_ref() }
}

/// The calling thread is no carrier: what is left of a fiber in a forked child.
pub fn forget() {
    own::set(0);
}

/// The calling fiber; null outside.
#[inline(always)]
pub fn current() -> *mut Fiber {
    here().map_or(null_mut(), |carrier| carrier.current.get())
}

/// By a kernel thread that ends. A carrier does so only if a fiber ends it, or if it is cancelled, and what
/// is pinned there would wait for ever. In a forked child what is left of a fiber is a thread as any other,
/// and may end.
pub fn left() {
    const WHAT: &[u8] = b"has ended its kernel thread (pthread_exit, pthread_cancel): return instead";

    // SAFETY: the calling fiber has a record.
    match unsafe { current().as_ref() } {
        Some(fiber) => overflow::end(fiber, WHAT),
        None if here().is_some() => overflow::end_carrier(),
        None => {}
    }
}

/// Makes this the calling fiber, and returns who was.
pub fn set_current(fiber: *mut Fiber) -> *mut Fiber {
    here().map_or(null_mut(), |carrier| carrier.current.replace(fiber))
}

/// Runs this as no fiber. For what holds a lock of the runtime and may allocate: the allocator may wait at
/// locks where fibers park.
pub fn firmly<T>(body: impl FnOnce() -> T) -> T {
    policy::firmly(set_current, body)
}

/// Switches the calling fiber away, which may not unwind. It may return on another carrier if it is movable.
#[inline]
pub fn switch(fiber: *mut Fiber, why: Why) {
    // SAFETY: it runs, so its yielder is there.
    unsafe { (*(*fiber).yielder.get()).suspend(why) };
}

/// The calling fiber waits next, and may go on with another carrier then. [`fasten`] is called after that.
pub fn loosen(fiber: &Fiber) {
    if let Some(carrier) = here().filter(|_| !fiber.movable.get()) {
        fiber.abode.loosen(&carrier.residents);
    }
}

/// The calling fiber stays where it is.
pub fn fasten(fiber: &Fiber) {
    if let Some(carrier) = here() {
        fiber.abode.fasten(carrier.index);
    }
}

/// Ends the program when it is dropped.
struct Abort;

impl Drop for Abort {
    fn drop(&mut self) {
        std::process::abort();
    }
}

impl Carrier {
    /// Its number is set before it runs.
    pub fn new(runtime: &'static Runtime) -> Self {
        Self {
            runtime,
            index: u32::MAX,
            new: Deque::new(),
            inbox: Inbox::default(),
            ready: List::default(),
            handed: Cell::new(null_mut()),
            first: Cell::new(null_mut()),
            gave_way: Cell::new(0),
            watched: AtomicBool::new(false),
            own: runtime.policy.map(|policy| Own::new(policy, set_current)),
            current: Cell::new(null_mut()),
            free: Pile::default(),
            kept: Cell::new(0),
            sleeps: Cell::new(false),
            turns: Turns::default(),
            overdue: Overdue::default(),
            since: Cell::new(0),
            residents: Residents::default(),
            roused: AtomicU64::new(0),
            upcall: OnceLock::new(),
            usual: Cell::new(false),
            short: Cell::new(false),
            thread: AtomicI32::new(0),
            place: AtomicPtr::new(null_mut()),
            steer: Steer::default(),
            steered: Cell::new(None),
        }
    }

    /// What a carrier's thread does. Does not return but in a forked child.
    pub fn work(&'static self, seated: bool) {
        own::set(core::ptr::from_ref(self).expose_provenance());
        guests::here_is_a_carrier();
        // SAFETY: no arguments.
        self.thread.store(unsafe { libc::gettid() }, Relaxed);
        self.note_place();
        if self.runtime.priority == Priority::Low {
            sentinel::be_low();
        }
        self.usual.set(sentinel::is_usual());
        if self.runtime.activations == Activations::Told
            && let Ok(upcall) = Upcall::open()
            && self.runtime.sentinel.watch(upcall.descriptor(), u64::from(self.index)).is_ok()
        {
            let _ = self.upcall.set(upcall);
        } else {
            self.runtime.unheard.store(true, Relaxed);
        }
        if seated {
            self.runtime.steer_newcomer(self);
            self.is_seated();
            self.runtime.was_idle(self.roused.swap(0, Relaxed), Linux::now_ns());
        } else {
            self.rest();
        }
        while own::get() != 0 {
            if self.has_seat()
                && let Some(fiber) = self.next()
                && (self.residents.count() == 0 || !self.leave_to_newcomer(fiber))
            {
                self.run(fiber);
            }
        }
    }

    /// Sees to it that the carrier has a seat, if it has anything to do, or sleeps. False: look again.
    #[inline]
    fn has_seat(&'static self) -> bool {
        let seats = &self.runtime.seats;
        if !seats.holds(self.index) {
            return self.find_seat();
        }
        if seats.wanted() { self.pass_seat() } else { true }
    }

    #[cold]
    #[inline(never)]
    fn find_seat(&'static self) -> bool {
        self.receive();
        if !self.has_ready() {
            // What is not pinned here others can do.
            self.rest();
            return false;
        }
        self.forget_blocks();
        if self.runtime.seats.want(self.index) {
            self.is_seated();
        } else {
            self.sleep();
        }
        false
    }

    #[cold]
    #[inline(never)]
    fn pass_seat(&'static self) -> bool {
        let now = Linux::now_ns();
        if now - self.since.get() < QUANTUM_NS {
            return true;
        }
        self.since.set(now);
        match self.runtime.seats.pass(self.index) {
            None => return true,
            Some(woken) => self.runtime.rouse(woken),
        }
        self.sleep();
        false
    }

    /// Nothing to do: gives the seat up and sleeps until there is.
    #[cold]
    #[inline(never)]
    fn rest(&'static self) {
        let runtime = self.runtime;
        self.forget_blocks();
        runtime.rouse(runtime.seats.lie_down(self.index));
        let mine = !self.inbox.is_empty();
        if (mine || runtime.has_work()) && runtime.seats.get_up(self.index, mine) {
            // It may have been roused meanwhile, and has come.
            self.roused.store(0, Relaxed);
            return self.is_seated();
        }
        self.sleep();
    }

    /// Sleeps until the carrier has a seat, or must ask for one. Nobody is told that it does.
    fn sleep(&'static self) {
        if let Some(upcall) = self.upcall.get() {
            upcall.disable();
        }
        self.forget_blocks();
        self.sleeps.set(true);
        let mut begin = Linux::now_ns();
        let awake = loop {
            let stands = self.runtime.may_stand(self);
            self.short.set(self.runtime.outranks());
            let (usual, short) = (self.usual.get(), self.short.get());
            let awake = match stands && self.runtime.sentinel.begin(self.index, usual, short) {
                true => self.runtime.stand_sentinel(self),
                false => self.runtime.glance(self).unwrap_or_else(|| {
                    // As for a sentinel.
                    let short = usual && short;
                    if short {
                        Linux::hurry(true);
                    }
                    self.lie_down();
                    let awake = self.runtime.seats.sleep(self.index);
                    self.get_up();
                    if short {
                        Linux::hurry(false);
                    }
                    awake
                }),
            };
            if awake != Awake::Called {
                break awake;
            }
            // That was no seat.
            begin = Linux::now_ns();
        };
        self.sleeps.set(false);
        // Without a seat nobody listens. It asks for one next, or lies down again.
        if awake == Awake::Seated {
            self.runtime.steer_newcomer(self);
            self.is_seated();
        }
        let now = Linux::now_ns();
        self.since.set(now);
        // Who roused it for something before may have come late to say when.
        let roused = self.roused.swap(0, Relaxed);
        if awake == Awake::Seated && roused >= begin {
            self.runtime.was_idle(roused, now);
        }
    }

    /// The fiber to run next.
    #[inline]
    fn next(&'static self) -> Option<*mut Fiber> {
        let handed = self.handed.get();
        if !self.first.get().is_null() {
            // That other one may begin elsewhere.
            if !handed.is_null() {
                self.publish(self.handed.replace(null_mut()));
            }
            return Some(self.first.replace(null_mut()));
        }
        if !handed.is_null() {
            return Some(self.handed.replace(null_mut()));
        }
        let turn = self.turns.next();
        self.receive();
        if Turns::<Kernel, ROUND>::ends_round(turn)
            && let Some(fiber) = self.look_round(turn / ROUND)
        {
            return Some(fiber);
        }
        let found = if turn.is_multiple_of(2) {
            self.pop_new().or_else(|| self.pop_ready())
        } else {
            self.pop_ready().or_else(|| self.pop_new())
        };
        found.or_else(|| self.look_further())
    }

    #[inline]
    fn pop_new(&'static self) -> Option<*mut Fiber> {
        match self.own {
            // SAFETY: this is the owner's thread.
            None => unsafe { self.new.pop() },
            Some(_) => self.pop_common(),
        }
    }

    #[inline]
    fn pop_ready(&'static self) -> Option<*mut Fiber> {
        let found = self.ready.pop();
        match &self.own {
            Some(own) if found.is_none() => self.checked(|| own.pop()),
            _ => found,
        }
    }

    fn pop_common(&'static self) -> Option<*mut Fiber> {
        match self.own {
            None => self.runtime.common.pop(),
            Some(_) => self.checked(|| self.runtime.common.pop()),
        }
    }

    /// A policy may hand out fibers that others run.
    fn checked(&'static self, pop: impl Fn() -> Option<*mut Fiber>) -> Option<*mut Fiber> {
        loop {
            let fiber = pop()?;
            // SAFETY: it is ready and in no list.
            let record = unsafe { &*fiber };
            if self.is_home_of(record) && record.abode.home().is_none_or(|home| home == self.index) {
                return Some(fiber);
            }
            record.runtime.ready(fiber);
        }
    }

    /// A fiber of this carrier is ready.
    #[inline]
    fn push_ready(&self, fiber: *mut Fiber, yielded: bool) {
        match &self.own {
            None => self.ready.push(fiber),
            Some(own) => own.push(fiber, yielded, &self.ready),
        }
    }

    /// The queue of the policy has dropped it.
    pub fn ready_again(&self, fiber: *mut Fiber) {
        self.ready.push(fiber);
    }

    #[inline]
    fn receive(&self) {
        if self.own.is_none() {
            return self.inbox.receive(&self.ready);
        }
        let came = List::default();
        self.inbox.receive(&came);
        while let Some(fiber) = came.pop() {
            self.push_ready(fiber, false);
        }
    }

    /// What comes last in each turn, so that it comes at all. Each source is the first in one round of three.
    #[cold]
    #[inline(never)]
    fn look_round(&'static self, round: u32) -> Option<*mut Fiber> {
        self.runtime.fire_timers();
        (round..).take(3).find_map(|source| match source % 3 {
            0 => self.pop_common(),
            1 => self.new.steal(),
            // A carrier without a seat cannot begin its new fibers.
            _ => self.runtime.steal_in_round(self.index, round),
        })
    }

    /// May the calling fiber go on at once with another on top of it? Not if others want the seat or a round
    /// is over: then the carrier's loop has its turn.
    #[inline]
    pub fn may_nest(&self) -> bool {
        !self.runtime.seats.wanted() && self.turns.nest()
    }

    #[inline(never)]
    fn look_further(&'static self) -> Option<*mut Fiber> {
        self.runtime.fire_timers();
        // Those who were due may be ours.
        let found = self.pop_ready().or_else(|| self.pop_common());
        let found = found.or_else(|| self.runtime.steal_any(self.index));
        if found.is_none() {
            self.rest();
        }
        found
    }

    /// Runs a fiber until it switches away, and puts it where it belongs then.
    fn run(&'static self, fiber: *mut Fiber) {
        let why = self.enter(fiber);
        self.put_away(fiber, why);
    }

    /// Runs a fiber until it switches away; `None`: it has ended.
    #[inline]
    pub fn enter(&'static self, fiber: *mut Fiber) -> Option<Why> {
        // SAFETY: it is ready and in no list: nobody else runs it.
        let record = unsafe { &*fiber };
        let before = self.current.replace(fiber);
        if !record.started.get() {
            record.started.set(true);
            if !record.movable.get() {
                record.abode.settle(self.index);
            }
        }
        // A carrier that unwinds would leave its fibers and its seat behind.
        let unwinds = Abort;
        // SAFETY: as above; it was made by `spawn`.
        let result = unsafe { (*record.coroutine.get()).assume_init_mut().resume(()) };
        core::mem::forget(unwinds);
        self.current.set(before);
        match result {
            CoroutineResult::Yield(why) => Some(why),
            CoroutineResult::Return(()) => None,
        }
    }

    /// Is another carrier with fewer residents about to run? Then a pinned fiber that has not begun begins
    /// there. Where several are spawned together, the first carrier to come would else have all, and they
    /// would wait for each other.
    #[cold]
    #[inline(never)]
    fn leave_to_newcomer(&self, fiber: *mut Fiber) -> bool {
        // SAFETY: it is ready and in no list.
        let record = unsafe { &*fiber };
        if record.started.get() || record.movable.get() {
            return false;
        }
        let leaves = |other: &Self| record.abode.leave(&self.residents, &other.residents, other.index);
        let newcomer = self.runtime.newcomer(self.index);
        let fewer = newcomer.filter(|other| other.residents.count() < self.residents.count());
        let other = fewer.or_else(|| self.runtime.sleeper_for(self));
        let left = other.is_some_and(leaves);
        if left {
            record.runtime.ready(fiber);
        }
        left
    }

    /// A fiber has switched away.
    #[inline]
    pub fn put_away(&'static self, fiber: *mut Fiber, why: Option<Why>) {
        // SAFETY: it is ours until the token or a list has it.
        let record = unsafe { &*fiber };
        if !record.movable.get() && !record.abode.is_loose() {
            record.abode.reside(&self.residents, why.is_some());
        }
        match why {
            None => {
                if record.release() {
                    // SAFETY: that was the last reference.
                    unsafe { record.clear() };
                    self.recycle(fiber);
                }
            }
            Some(Why::Parks) if record.token.settle() => {}
            _ if record.movable.get() => {
                self.runtime.common.push(fiber, why == Some(Why::Yields));
                self.runtime.invite();
            }
            Some(Why::GivesWay) if self.favours() => self.first.set(fiber),
            _ => self.push_ready(fiber, why == Some(Why::Yields)),
        }
    }

    /// Does one that gives way go first?
    fn favours(&self) -> bool {
        let number = self.gave_way.get().wrapping_add(1);
        self.gave_way.set(number);
        self.first.get().is_null() && self.own.is_none() && !number.is_multiple_of(FAVOURS)
    }

    /// A fiber that can go on, found out on this carrier's thread.
    #[inline]
    pub fn ready(&'static self, fiber: *mut Fiber) {
        // SAFETY: it is in no list, and this is the owner's thread.
        let record = unsafe { &*fiber };
        if record.abode.home() == Some(self.index) {
            return self.push_ready(fiber, false);
        }
        self.publish(fiber);
    }

    /// A task of this carrier is ready, between two polls. Nobody is woken for it, as whoever made it ready
    /// mostly waits next. The first is where others find it if this carrier blocks. Further ones are run in
    /// the order in which they came.
    #[inline]
    pub fn ready_loose(&'static self, fiber: *mut Fiber) {
        if !self.ready.is_empty() || self.new.has_any() {
            return self.push_ready(fiber, false);
        }
        // SAFETY: it is in no list, and this is the owner's thread. There is room.
        unsafe {
            (*fiber).abode.release();
            self.new.push(fiber);
        }
    }

    /// A fiber that any carrier may run.
    #[inline]
    pub fn publish(&'static self, fiber: *mut Fiber) {
        debug_assert!(self.is_here());
        // SAFETY: this is the owner's thread.
        if self.own.is_some() || !unsafe { self.new.push(fiber) } {
            self.runtime.common.push(fiber, false);
        }
        self.runtime.invite();
    }

    /// A record for a new fiber, if this carrier has one.
    #[inline]
    pub fn record(&self) -> Option<*mut Fiber> {
        self.free.pop().inspect(|_| self.kept.set(self.kept.get() - 1))
    }

    pub fn has_ready(&self) -> bool {
        !self.handed.get().is_null()
            || !self.first.get().is_null()
            || !self.ready.is_empty()
            || self.own.as_ref().is_some_and(|own| !own.is_empty())
    }

    fn is_here(&self) -> bool {
        here().is_some_and(|carrier| core::ptr::eq(carrier, self))
    }

    /// Is the fiber of this carrier's runtime?
    pub fn is_home_of(&self, fiber: &Fiber) -> bool {
        core::ptr::addr_eq(core::ptr::from_ref(fiber.runtime), core::ptr::from_ref(self.runtime))
    }

    /// If the seat went to another while the calling fiber was blocked, asks for one: one too many run.
    /// Returns the carrier on which the caller goes on.
    #[inline]
    pub fn safe_point(&'static self) -> Option<&'static Self> {
        if self.runtime.seats.holds(self.index) {
            return Some(self);
        }
        self.give_way();
        here()
    }

    #[cold]
    #[inline(never)]
    fn give_way(&'static self) {
        let fiber = self.current.get();
        self.forget_blocks();
        if self.runtime.seats.regain(self.index) {
            self.is_seated();
        } else if !fiber.is_null() && !std::thread::panicking() {
            switch(fiber, Why::GivesWay);
        }
    }

    /// The carrier has a seat: if the kernel does not tell of it, the sentinel must look. And there must be
    /// one: the carrier may have been called to the post, or been about to lie down, when it got the seat.
    fn is_seated(&self) {
        if self.runtime.sentinel.is_vacant() {
            self.runtime.fill_post(self.index);
        }
        // U4 of `seats.rs`.
        if self.runtime.activates() && !self.listen() {
            self.runtime.sentinel.rouse();
        }
    }

    /// From now on the kernel tells of it. False: it does not, and the sentinel must look.
    fn listen(&self) -> bool {
        let heard = self.upcall.get().is_some_and(Upcall::enable);
        if !heard {
            self.runtime.unheard.store(true, Relaxed);
        }
        heard
    }

    /// HINT: does the kernel tell of it?
    pub fn is_heard(&self) -> bool {
        self.upcall.get().is_some_and(|upcall| !upcall.is_deaf())
    }

    /// HINT: since when is it blocked in the kernel, if the kernel tells?
    pub fn blocked_at(&self) -> Option<u64> {
        self.upcall.get().filter(|upcall| !upcall.is_deaf()).and_then(Upcall::blocked_at)
    }

    /// HINT: is it blocked in the kernel?
    pub fn is_blocked(&self) -> bool {
        match self.upcall.get() {
            Some(upcall) if !upcall.is_deaf() => upcall.has_blocked(),
            _ => sentinel::is_blocked(self.thread.load(Relaxed)),
        }
    }

    /// Its last block is over, and must not be taken for one with the next seat.
    fn forget_blocks(&self) {
        if let Some(upcall) = self.upcall.get() {
            upcall.forget();
        }
    }

    /// By a sentinel that watches: the oldest of the new fibers, without a heavy fence, which interrupts all
    /// processors that run this program: 16 us in a virtual machine. Null: there is none.
    #[cfg(target_arch = "x86_64")]
    pub fn new_if_blocked(&self) -> *mut Fiber {
        // The event is enabled since that record: a sentinel that disabled it would have forgotten that one.
        // And only who watches disables it. So before the carrier is back in its program there is a record
        // "in". After each record the kernel passes a full fence: an atomic of that kind raises the interrupt
        // that wakes us.
        let blocked = || self.upcall.get().is_some_and(Upcall::has_blocked);
        // SAFETY: so this tells that the owner is blocked, and what it passes on its way back.
        unsafe { self.new.steal_from_blocked(blocked) }.unwrap_or(null_mut())
    }

    /// The same with the heavy fence: see T3 of `deque.rs`.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn new_if_blocked(&self) -> *mut Fiber {
        self.new.steal().unwrap_or(null_mut())
    }

    /// U3 of `seats.rs`, by the sentinel that took this carrier's seat. True: it has one again, and may have
    /// blocked with that before it was listened to again: then U3 begins again.
    pub fn silence(&self) -> bool {
        let upcall = self.upcall.get();
        let disable = || {
            if let Some(upcall) = upcall {
                upcall.disable();
                // The carrier may come back without a record. This block must not be taken for one with its
                // next seat.
                upcall.forget();
            }
        };
        let enable = || _ = self.listen();
        self.runtime.seats.silence(self.index, disable, enable)
            && sentinel::is_blocked(self.thread.load(Relaxed))
    }

    /// The calling fiber is about to block and says so: its seat goes to others at once.
    pub fn leave_seat(&'static self) {
        if self.runtime.seats.take(self.index) {
            if let Some(upcall) = self.upcall.get() {
                upcall.disable();
            }
            self.runtime.rouse(self.runtime.seats.surrender());
            if self.runtime.has_work() {
                self.runtime.invite();
            }
        }
    }

    /// Nobody refers to this fiber any more, and it was cleared.
    #[inline]
    pub fn recycle(&self, fiber: *mut Fiber) {
        debug_assert!(self.is_here());
        // SAFETY: nobody else has it.
        let class = unsafe { (*fiber).class };
        if class != 0 {
            self.runtime.pool(class).push(fiber);
        } else if self.kept.get() < KEPT {
            self.kept.set(self.kept.get() + 1);
            self.free.push(fiber);
        } else {
            self.runtime.free.push(fiber);
        }
    }
}
