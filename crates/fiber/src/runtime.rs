// SPDX-License-Identifier: MIT OR Apache-2.0
//! A runtime: its carriers, their seats, and what they share.

use core::cell::UnsafeCell;
use core::fmt;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use std::io;
use std::sync::Mutex;

use linux::{Kernel, Linux};
use platform::Platform;
use sync::mutex::{Native, RawMutex};

use crate::carrier::{self, Carrier};
use crate::downcall;
use crate::forks::Forget;
use crate::list::SharedList;
use crate::page::{Counts, Told};
use crate::policy::{Common, Policy};
use crate::record::{Fiber, Home};
use crate::seats::{Awake, Called, Invited, Seats};
use crate::sentinel::{self, Event, LOOK_NS, Sentinel};
use crate::timers::{Timer, Timers};
use crate::turns::Patience;
use crate::{debuggers, fences, overflow, stack, start};

/// Lengths of stacks that a runtime can make, each twice the one before.
const CLASSES: usize = 16;
/// Carriers at most: fibers that are blocked in the kernel have one each.
pub const CARRIERS: usize = 1024;
/// How long the sentinel sleeps at most while every carrier can be heard; and how often it looks at the
/// processors.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// BOUND: with so many seats at most, a new sentinel looks at each carrier: see `look.rs`.
const FEW: u32 = 16;
/// BOUND: a carrier that was roused so long ago is not taken for one that is about to run.
const COMES_NS: u64 = 200_000;
/// BOUND: the same where there is a runtime of low fibers. It gets one of their processors at last, and to be
/// made takes a new carrier longer.
const COMES_FIRST_NS: u64 = 10 * COMES_NS;

/// What becomes of the seat of a carrier that blocks in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activations {
    /// It keeps it. No carrier is kept spare. Where a thread that is [`Priority::Low`] spawns into such a
    /// runtime of the usual priority, the new fiber may wait until a carrier has nothing to do. So may a
    /// movable fiber that another one lets in at a lock of the C library's.
    None,
    /// The sentinel looks every 2 ms, as it does where the kernel does not tell.
    Polled,
    /// The kernel tells the sentinel. A carrier of which it does not is looked at, as above.
    Told,
}

/// Whose fibers go first. Each priority has carriers of its own, and the kernel preempts those of `Low`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// As other threads.
    Usual,
    /// Only where the processor would idle, also beside other programs, or nearly so (SCHED_IDLE). Kernel
    /// threads and processes that such a fiber starts are as it is, and stay so.
    Low,
}

/// How a runtime is to be.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Processors at most; `None`: as many as the program may use, looked at once a second.
    pub processors: Option<u32>,
    /// Of all its fibers.
    pub priority: Priority,
    /// The order of its fibers. `None`: first in first out, and a carrier begins its newest ones first.
    pub policy: Option<&'static dyn Policy>,
    /// Give the seat of a carrier that blocks to another.
    pub activations: Activations,
    /// Bytes of stack a fiber.
    pub stack_size: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            processors: None,
            priority: Priority::Usual,
            policy: None,
            activations: Activations::Told,
            stack_size: 256 << 10,
        }
    }
}

/// See the module. Never freed.
pub struct Runtime {
    pub(crate) seats: Seats<Kernel>,
    pub(crate) sentinel: Sentinel,
    pub(crate) activations: Activations,
    pub(crate) priority: Priority,
    pub(crate) policy: Option<&'static dyn Policy>,
    /// New fibers that no carrier made, and movable ones.
    pub(crate) common: Common,
    /// Records that no carrier keeps.
    pub(crate) free: SharedList,
    /// The same with longer stacks.
    large: [SharedList; CLASSES - 1],
    /// Its carriers may be low: so it was asked for, or who started it is so.
    low: bool,
    /// See `queued.rs`.
    pub(crate) steered: AtomicU64,
    pub(crate) older_low: AtomicPtr<Self>,
    /// See [`FORKS`].
    forks: u32,
    stride: usize,
    /// Held to make stacks, and to start carriers: the sentinel does not wait for a mapping.
    growing: Mutex<()>,
    starting: Mutex<()>,
    timers: Timers,
    carriers: Box<[AtomicPtr<Carrier>]>,
    count: AtomicU32,
    /// There may be carriers that the kernel does not tell of.
    pub(crate) unheard: AtomicBool,
    /// Seats that went over because their carrier had blocked.
    pub(crate) taken: AtomicU64,
    /// See [`Runtime::idle_while_ready_ns`].
    idle: AtomicU64,
    /// Words of the kernel that a carrier left its processor or came back.
    told: AtomicU64,
    /// HINT: 1 + the indices of the carriers that were roused last, and before that one.
    roused: [AtomicU32; 2],
    /// See `look.rs`.
    pub(crate) many_seats: AtomicBool,
    /// HINT: from this carrier the last new fiber was taken by one that had none.
    pub(crate) rich: AtomicU32,
    /// When a sentinel looked at all carriers last.
    pub(crate) looked: AtomicU64,
    /// When the sentinel looks at the processors next; never where their number was asked for.
    look_next: AtomicU64,
    /// When a sentinel looks at the turns of carriers next.
    pub(crate) turns_next: AtomicU64,
    /// And when it may replace one.
    pub(crate) patience: Patience,
    /// What `wakeful top` reads.
    pub(crate) told_page: Told,
}

/// The runtimes of those who name none, by priority. Null: not started, or a forked child.
static DEFAULT: [AtomicPtr<Runtime>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];

/// Who holds it starts the default runtime.
struct Starting(UnsafeCell<Native<Kernel>>);

// SAFETY: it is replaced in a forked child only, where there is one thread.
unsafe impl Sync for Starting {}

static STARTING: Starting = Starting(UnsafeCell::new(Native::INIT));

static FORGET: Forget = Forget::by(after_fork);

/// How many forks lie between the first process and this one. A runtime of before has no carriers here.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// In a forked child there are no carriers: the caller is what it was before it became one.
extern "C" fn after_fork() {
    Runtime::forget_low();
    carrier::forget();
    FORKS.fetch_add(1, Relaxed);
    DEFAULT.iter().for_each(|runtime| runtime.store(null_mut(), Relaxed));
    // SAFETY: the child's one thread, which is not starting a runtime.
    unsafe { *STARTING.0.get() = Native::INIT };
}

impl Runtime {
    /// The default one, started on first use.
    ///
    /// # Errors
    /// As for [`Runtime::start`].
    #[allow(clippy::should_implement_trait)] // it may fail
    pub fn default() -> io::Result<&'static Self> {
        Self::of(Priority::Usual)
    }

    /// The default one of this priority. That of the usual one is started first: who is low can start none.
    ///
    /// # Errors
    /// As for [`Runtime::start`].
    pub fn of(priority: Priority) -> io::Result<&'static Self> {
        if priority == Priority::Low {
            Self::default()?;
        }
        let place = &DEFAULT[priority as usize];
        // SAFETY: null, or one that is never freed.
        // ORDER: Acquire, pairs with the store below.
        let started = || unsafe { place.load(Acquire).as_ref() };
        if let Some(runtime) = started() {
            return Ok(runtime);
        }
        // Before the lock: a child that is forked now frees it.
        FORGET.prepare();
        // SAFETY: shared, but in a forked child's handler.
        let starting = unsafe { &*STARTING.0.get() };
        // SAFETY: released below, once.
        unsafe { starting.lock(&()) };
        let runtime = match started() {
            Some(runtime) => Ok(runtime),
            None => Self::start(Config { priority, ..Config::default() })
                .inspect(|&runtime| place.store(core::ptr::from_ref(runtime).cast_mut(), Release)),
        };
        // SAFETY: the caller holds it.
        unsafe { starting.unlock(&()) };
        runtime
    }

    /// [`Runtime::start`], where fibers know how to wait for kernel threads.
    pub(crate) fn begin(config: Config) -> io::Result<&'static Self> {
        FORGET.prepare();
        fences::prepare();
        overflow::prepare();
        linux::server::inherit();
        let granted = config.processors.unwrap_or_else(Linux::processors).max(1);
        let runtime = Box::leak(Box::new(Self {
            seats: Seats::new(granted, CARRIERS),
            sentinel: Sentinel::new()?,
            activations: config.activations,
            priority: config.priority,
            policy: config.policy,
            common: Common::new(config.policy, carrier::set_current),
            free: SharedList::default(),
            large: Default::default(),
            low: config.priority == Priority::Low || sentinel::is_low(),
            steered: AtomicU64::new(0),
            older_low: AtomicPtr::new(null_mut()),
            forks: FORKS.load(Relaxed),
            stride: stack::stride(config.stack_size + size_of::<Fiber>()),
            growing: Mutex::new(()),
            starting: Mutex::new(()),
            timers: Timers::default(),
            carriers: (0..CARRIERS).map(|_| AtomicPtr::new(null_mut())).collect(),
            count: AtomicU32::new(0),
            unheard: AtomicBool::new(false),
            taken: AtomicU64::new(0),
            idle: AtomicU64::new(0),
            told: AtomicU64::new(0),
            roused: Default::default(),
            many_seats: AtomicBool::new(granted > FEW),
            rich: AtomicU32::new(0),
            looked: AtomicU64::new(0),
            look_next: AtomicU64::new(if config.processors.is_some() { u64::MAX } else { 0 }),
            turns_next: AtomicU64::new(0),
            patience: Patience::default(),
            told_page: Told::new(),
        }));
        runtime.add_carrier(false)?;
        if runtime.low {
            runtime.add_low();
        }
        Ok(runtime)
    }

    /// How often a carrier's seat went to another because it had blocked, or its fiber had computed for long.
    pub fn seats_taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// HINT: for how many ns, of all seats together, a seat was idle while a fiber was ready: from a block of
    /// its carrier until another carrier has it, and from the wake-up or the making of a carrier until it
    /// runs. After a block a fiber may have become ready in between. Blocks of which the kernel does not tell
    /// are not in it.
    pub fn idle_while_ready_ns(&self) -> u64 {
        self.idle.load(Relaxed)
    }

    pub(crate) fn was_idle(&self, since: u64, now: u64) {
        self.idle.fetch_add(now.saturating_sub(since), Relaxed);
    }

    /// How often a sentinel, or a carrier that lay down, heard that a carrier had left its processor or come
    /// back.
    pub fn upcalls(&self) -> u64 {
        self.told.load(Relaxed)
    }

    /// Starts a carrier.
    ///
    /// # Errors
    /// That of starting a thread; `OutOfMemory` where there are as many as there can be; `PermissionDenied`
    /// where it would be low and may not.
    pub(crate) fn add_carrier(&'static self, seated: bool) -> io::Result<&'static Carrier> {
        carrier::firmly(|| self.add_carrier_firmly(seated))
    }

    fn add_carrier_firmly(&'static self, seated: bool) -> io::Result<&'static Carrier> {
        if !self.low && sentinel::is_low() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let is_full = |count| count as usize == CARRIERS;
        if is_full(self.count.load(Relaxed)) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        // The policy makes its queue here, and may wait: nobody else waits for that.
        let mut new = Box::new(Carrier::new(self));
        let _starting = self.starting.lock().unwrap_or_else(|poison| poison.into_inner());
        let index = self.count.load(Relaxed);
        if is_full(index) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        new.index = index;
        let new: &'static Carrier = Box::leak(new);
        if seated {
            self.seats.seat_newcomer(index);
            new.roused.store(sentinel::now_ns(), Relaxed);
            self.note_roused(index);
        }
        // Before it runs: the first fiber that it begins may park, and be unparked by others, at once.
        // ORDER: Release, pairs with the Acquire in `all` and `carrier`; publishes the carrier.
        self.carriers[index as usize].store(core::ptr::from_ref(new).cast_mut(), Release);
        self.count.store(index + 1, Release);
        // A new thread inherits the policy, and the sentinel's own is not for who runs fibers.
        let usual = carrier::here().filter(|carrier| carrier.usual.get()).map(|carrier| carrier.short.get());
        let started = start::start(format!("carrier {index}"), carrier::left, move || {
            if let Some(short) = usual {
                sentinel::be_usual(short);
            }
            overflow::on_own_stack();
            new.work(seated);
        });
        if let Err(error) = started {
            // Others may have seen it: it stays, without a thread. The next one takes its place.
            if seated {
                self.seats.take(index);
            }
            self.count.store(index, Release);
            return Err(error);
        }
        Ok(new)
    }

    /// The carrier of this number.
    pub(crate) fn carrier(&self, index: u32) -> Option<&'static Carrier> {
        // SAFETY: null, or one that is never freed.
        unsafe { self.carriers.get(index as usize)?.load(Acquire).as_ref() }
    }

    /// All carriers.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static Carrier> + '_ {
        (0..self.count.load(Acquire)).filter_map(|index| self.carrier(index))
    }

    /// HINT: what there is, for people.
    fn counts(&self) -> Counts {
        let (mut fibers, mut waiting) = (0, 0);
        stack::all(|fiber| {
            let is_ours = core::ptr::addr_eq(core::ptr::from_ref(fiber.runtime), core::ptr::from_ref(self));
            if is_ours && fiber.refs.load(Relaxed) > 0 && !fiber.done.has_ended() {
                fibers += 1;
                waiting += u64::from(fiber.token.waits());
            }
        });
        // ORDER: Acquire, as in `all`.
        let carriers = self.count.load(Acquire);
        let (held, blocked) = self.seats.awake(carriers);
        Counts { seats: self.seats.granted(), held, carriers, blocked, fibers, waiting }
    }

    /// HINT: is there a fiber that any carrier may run?
    pub(crate) fn has_work(&self) -> bool {
        let has_any = |carrier: &Carrier| carrier.new.has_any();
        !self.common.is_empty() || self.rich().is_some_and(has_any) || self.all().any(has_any)
    }

    /// Takes a new fiber from another carrier, beginning with the one that `from` counts to.
    pub(crate) fn steal(&self, me: u32, from: u32) -> Option<(u32, *mut Fiber)> {
        let count = self.count.load(Acquire);
        let mut others = (0..count).map(|step| (from + step) % count).filter(|&other| other != me);
        others.find_map(|other| Some((other, self.carrier(other)?.new.steal()?)))
    }

    /// Wakes a carrier whose word was changed.
    #[inline]
    pub(crate) fn rouse(&'static self, carrier: Option<u32>) {
        if let Some(carrier) = carrier {
            if let Some(carrier) = self.carrier(carrier) {
                carrier.roused.store(sentinel::now_ns(), Relaxed);
                self.note_roused(carrier.index);
                self.steer_roused(carrier);
            }
            self.sentinel.call(carrier);
            self.seats.wake(carrier);
        }
    }

    /// HINT: a carrier but this one that has got a seat and is about to run. At worst it runs already.
    pub(crate) fn newcomer(&self, me: u32) -> Option<&'static Carrier> {
        let long = if self.outranks() { COMES_FIRST_NS } else { COMES_NS };
        let mut roused =
            self.roused.iter().filter_map(|word| self.carrier(word.load(Relaxed).checked_sub(1)?));
        roused.find(|carrier| {
            let since = carrier.roused.load(Relaxed);
            let comes = since != 0 && self.seats.holds(carrier.index);
            comes && carrier.index != me && sentinel::now_ns().saturating_sub(since) < long
        })
    }

    fn note_roused(&self, carrier: u32) {
        let [last, before] = &self.roused;
        let old = last.swap(carrier + 1, Relaxed);
        if old != carrier + 1 {
            before.store(old, Relaxed);
        }
    }

    /// Work was published: somebody who sleeps gets a free seat, if there is one.
    #[inline]
    pub(crate) fn invite(&'static self) {
        match self.invite_least(self.may_grow()) {
            Invited::Nobody => {}
            Invited::Carrier(carrier) => self.rouse(Some(carrier)),
            Invited::Newcomer => self.invite_newcomer(),
        }
    }

    /// Of those who sleep, one with few residents.
    #[inline]
    fn invite_least(&'static self, newcomers: bool) -> Invited {
        self.seats.invite_least(newcomers, |index| self.load(index))
    }

    /// HINT: a carrier that a low one starts would be low. Those of a runtime that activates always leave a
    /// spare.
    #[inline]
    pub(crate) fn may_grow(&self) -> bool {
        self.low || carrier::here().is_none_or(|carrier| !carrier.runtime.low)
    }

    #[cold]
    fn invite_newcomer(&'static self) {
        if self.add_carrier(true).is_err() {
            // Those that there are will do it.
            self.rouse(self.seats.surrender());
            if self.has_work()
                && let Invited::Carrier(carrier) = self.seats.invite(false)
            {
                self.rouse(Some(carrier));
            }
        }
    }

    /// The class of stacks of at least this size, if there is one.
    pub(crate) fn class(&self, stack_size: usize) -> Option<u8> {
        let size = stack_size.checked_add(size_of::<Fiber>()).filter(|&size| size < usize::MAX / 4)?;
        (0..CLASSES as u8).find(|class| self.stride << class >= stack::stride(size))
    }

    /// Records of this class that no carrier keeps.
    pub(crate) fn pool(&self, class: u8) -> &SharedList {
        class.checked_sub(1).map_or(&self.free, |class| &self.large[usize::from(class)])
    }

    /// A record, from the pool or a new slab.
    ///
    /// # Errors
    /// That of `mmap`.
    #[cold]
    pub(crate) fn record(&'static self, class: u8) -> io::Result<*mut Fiber> {
        let pool = self.pool(class);
        loop {
            if let Some(fiber) = pool.pop() {
                return Ok(fiber);
            }
            carrier::firmly(|| self.grow(class))?;
        }
    }

    /// Makes records of this class, unless there are some.
    fn grow(&'static self, class: u8) -> io::Result<()> {
        let (pool, stride) = (self.pool(class), self.stride << class);
        let _growing = self.growing.lock().unwrap_or_else(|poison| poison.into_inner());
        if pool.is_empty() {
            // SAFETY: fresh stacks of this stride.
            let make = |stack| unsafe { Fiber::make(stack, stride, class, self) };
            stack::grow(stride, class == 0, make, |fiber| pool.push(fiber))?;
            debuggers::keep();
        }
        Ok(())
    }

    /// Has the fiber nudged at this moment.
    pub(crate) fn set_timer(&self, ns: u64, fiber: *const Fiber) -> Timer {
        carrier::firmly(|| self.timers.set(ns, fiber, |first| self.sentinel.set_timer(first)))
    }

    /// Takes a timer back.
    pub(crate) fn cancel_timer(&self, timer: Timer) {
        carrier::firmly(|| self.timers.cancel(timer));
    }

    /// Nudges who is due.
    #[inline]
    pub(crate) fn fire_timers(&self) {
        if self.timers.any() {
            let now = sentinel::now_ns();
            if self.timers.due(now) {
                self.timers.fire(now, |next| self.sentinel.set_timer(next));
            }
        }
    }

    /// The calling carrier, which lies down or wants a seat, is a sentinel until it has other things to do.
    pub(crate) fn stand_sentinel(&'static self, me: &Carrier) -> Awake {
        // The last one may have left with events unheard.
        self.fire_timers();
        let mut awake = self.look_first(me);
        let mut looked = self.looked.load(Relaxed);
        while awake.is_none() {
            // It is there already: a call is only cleared.
            awake = self.seats.look(me.index).filter(|awake| *awake != Awake::Called);
            if awake.is_some() {
                break;
            }
            self.keep_a_spare(me.index);
            self.sentinel.doze(true);
            let every = self.look_every_ns();
            let look_next = self.look_next.load(Relaxed).saturating_sub(sentinel::now_ns());
            // From the moment of the last look: events that come often do not put the next one off.
            let wait = (looked + every).saturating_sub(sentinel::now_ns()).min(look_next.max(LOOK_NS));
            let wait = wait.min(self.look_again_ns());
            me.lie_down();
            let awoken = || me.get_up();
            awake = self.sentinel.sleep(wait, self.heard_together(), awoken, |event| {
                if event == Event::Deaf {
                    looked = 0;
                }
                self.hear(me, event)
            });
            let now = sentinel::now_ns();
            self.look_at_processors(now);
            self.told_page.tell(now, || self.counts());
            if awake.is_none() && now >= looked + every {
                looked = now;
                self.end_rounds();
                awake = self.look_at_all(me);
            }
            awake = awake.or_else(|| self.look_at_turns(me, now));
        }
        self.sentinel.end(me.index, me.usual.get(), me.short.get());
        if self.sentinel.is_vacant() {
            self.fill_post(me.index);
        } else if self.has_unheard() || self.activates() && self.seats.sleepers(me.index) < 2 {
            // The other one looks at what we looked at, and makes a spare.
            self.sentinel.ring();
        }
        awake.unwrap_or(Awake::Lost)
    }

    /// By a sentinel, or by who lies down.
    pub(crate) fn hear(&'static self, me: &Carrier, event: Event) -> Option<Awake> {
        match event {
            Event::Switched(carrier) => {
                self.told.fetch_add(1, Relaxed);
                return self.has_switched(me, carrier);
            }
            Event::Called => self.call_again(me.index),
            // Due or not: the timer for which it was armed may have been taken back.
            Event::Timer | Event::Deaf => {
                self.timers.fire(sentinel::now_ns(), |next| self.sentinel.set_timer(next));
            }
        }
        None
    }

    /// Where fibers compute for long, a round of 256 turns takes minutes. A carrier that always has one
    /// of its own looks only then for those that all may run. So each carrier does so once a second.
    fn end_rounds(&self) {
        if self.seats.is_full() && self.has_work() {
            self.all().for_each(|carrier| carrier.turns.end_round());
        }
    }

    /// A call wakes one sentinel, which may not be the one that is meant.
    fn call_again(&'static self, me: u32) {
        let meant = |who: &u32| *who != me && self.seats.is_told(*who);
        if self.sentinel.all().any(|who| meant(&who)) {
            // It is asleep, and we are not: so it is woken. Or it is on its way.
            self.sentinel.ring();
            Kernel::yield_now();
        }
    }

    /// Calls somebody to the post, which is empty.
    pub(crate) fn fill_post(&'static self, me: u32) {
        match self.seats.call(me) {
            Called::Carrier(carrier) => self.rouse(Some(carrier)),
            Called::Before => {}
            // All others run fibers, and may do so for long.
            Called::Nobody if self.activates() => _ = self.add_carrier(false),
            Called::Nobody => {}
        }
    }

    /// Who leaves the post for a fiber leaves it to somebody who is there already.
    fn keep_a_spare(&'static self, me: u32) {
        if self.activates() && self.seats.sleepers(me) == 0 {
            // Without one, the next to lie down stands sentinel.
            let _ = self.add_carrier(false);
        }
    }

    /// May its carriers be low?
    pub(crate) fn is_low(&self) -> bool {
        self.low
    }

    pub(crate) fn activates(&self) -> bool {
        self.activations != Activations::None
    }

    /// Once a second, whoever is the sentinel; more often while processors are offered to others.
    fn look_at_processors(&'static self, now: u64) {
        if now >= self.look_next.load(Relaxed) {
            Linux::refresh_processors(None);
            let waits = self.has_work() && self.seats.is_full();
            let next = downcall::look(now, waits).unwrap_or(now + SECOND_NS);
            self.look_next.store(next, Relaxed);
            let granted = Linux::processors().max(1);
            if self.seats.granted() != granted {
                self.many_seats.store(granted > FEW, Relaxed);
                self.seats.grant(granted, |carrier| self.rouse(Some(carrier)));
                if self.has_work() {
                    self.invite();
                }
            }
        }
    }
}

impl fmt::Debug for Runtime {
    /// What it is doing, as far as any thread may read that: words, and what a lock protects.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = |carrier: &&Carrier| !carrier.inbox.is_empty() || carrier.new.has_any();
        let mut alive = Vec::new();
        stack::all(|fiber| {
            if core::ptr::addr_eq(core::ptr::from_ref(fiber.runtime), self) && fiber.refs.load(Relaxed) > 0 {
                alive.push(format!("{fiber:?}"));
            }
        });
        f.debug_struct("Runtime")
            .field("fibers", &alive)
            .field("seats", &self.seats.describe(self.count.load(Acquire)))
            .field("timers", &self.timers.describe())
            .field("now", &sentinel::now_ns())
            .field("common", &!self.common.is_empty())
            .field("with_work", &self.all().filter(waiting).map(|carrier| carrier.index).collect::<Vec<_>>())
            .field("sentinel_is_vacant", &self.sentinel.is_vacant())
            .finish_non_exhaustive()
    }
}

impl Home for Runtime {
    #[inline]
    fn ready(&self, fiber: *mut Fiber) {
        // SAFETY: runtimes are leaked.
        let runtime: &'static Self = unsafe { &*core::ptr::from_ref(self) };
        if let Some(carrier) = carrier::here()
            && core::ptr::eq(carrier.runtime, self)
            && !carrier.sleeps.get()
        {
            // SAFETY: it is in no list.
            let record = unsafe { &*fiber };
            let home = record.abode.home();
            if record.abode.is_loose() && home == Some(carrier.index) && self.policy.is_none() {
                return carrier.ready_loose(fiber);
            }
            if home.is_none_or(|home| home == carrier.index) {
                return carrier.ready(fiber);
            }
        }
        runtime.send(fiber, true);
    }

    fn post(&self, fiber: *mut Fiber) {
        // SAFETY: runtimes are leaked.
        let runtime: &'static Self = unsafe { &*core::ptr::from_ref(self) };
        runtime.send(fiber, false);
    }

    fn again(&self, fiber: *mut Fiber) {
        // SAFETY: runtimes are leaked.
        let runtime: &'static Self = unsafe { &*core::ptr::from_ref(self) };
        // SAFETY: it is in no list.
        let home = unsafe { (*fiber).abode.home() };
        match carrier::here().filter(|carrier| core::ptr::eq(carrier.runtime, self)) {
            Some(carrier) if home == Some(carrier.index) && !carrier.sleeps.get() => {
                carrier.ready_again(fiber)
            }
            _ if home.is_none() => {
                runtime.common.push_dropped(fiber);
                runtime.invite();
            }
            _ => runtime.send(fiber, true),
        }
    }

    fn can_run(&self, fiber: &Fiber) -> bool {
        fiber.abode.home().is_none_or(|home| !self.seats.is_away(home))
    }

    fn free(&self, fiber: *mut Fiber) {
        // In a forked child the lock may be held for ever, and nobody takes a record from there.
        if self.forks == FORKS.load(Relaxed) {
            // SAFETY: nobody else has it.
            self.pool(unsafe { (*fiber).class }).push(fiber);
        }
    }
}

impl Runtime {
    /// A fiber that can go on, found out elsewhere. `starts`: a carrier may be started for it.
    #[inline(never)]
    fn send(&'static self, fiber: *mut Fiber, starts: bool) {
        // SAFETY: it is in no list.
        let record = unsafe { &*fiber };
        let home = match self.policy {
            None => record.abode.destination(&self.seats),
            Some(_) => record.abode.home(),
        };
        match home {
            Some(home) => {
                if let Some(carrier) = self.carrier(home) {
                    carrier.inbox.send(fiber);
                }
                if self.seats.kick(home) {
                    self.rouse(Some(home));
                }
            }
            None => {
                self.common.push(fiber, false);
                match self.invite_least(starts && self.may_grow()) {
                    Invited::Nobody => {}
                    Invited::Carrier(carrier) => self.rouse(Some(carrier)),
                    Invited::Newcomer => self.invite_newcomer(),
                }
            }
        }
    }
}
