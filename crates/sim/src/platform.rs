// SPDX-License-Identifier: MIT OR Apache-2.0
//! [`Platform`] on the simulated machine.

use fiber::fences::Fences;
use platform::{
    Atomic, AtomicInt, Costs, Crowd, Deadline, Ordering, Platform, Priority, Readers, RunState, STAMP_ID,
    STAMP_SHIFT, ThreadId, Wait, Wide, Wish,
};

use crate::chance::{below, unit};
use crate::domains::Domains;
use crate::engine::{Engine, engine, suspend, sync};
use crate::hardware;
use crate::machine::{Blocking, Queue};
use crate::memory::{Kind, NS, Time, from_ns};
use crate::run::{access, note, touch};
use crate::setting::Hints;
use crate::spin;
use crate::thread::{FOREIGN, NOBODY, Reason};
use crate::word::Word;

/// The machine that the calling thread of the host simulates.
///
/// Its functions must be called by simulated threads, while they run; words may be made and read by the
/// host as well, at no cost.
///
/// `PAUSES` is [`Platform::PAUSES`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulated<const PAUSES: u32>;

/// The simulated machine, for measuring.
pub type Sim = Simulated<{ u32::MAX }>;

/// The simulated machine under [`crate::explore`], where each pause is a choice of who goes on.
pub type Explored = Simulated<1>;

/// What fits into a word, as bits for the spinners' trace.
#[doc(hidden)]
pub trait Bits: Copy + PartialEq {
    fn bits(self) -> u64;
}

impl Bits for u32 {
    fn bits(self) -> u64 {
        self.into()
    }
}

impl Bits for u64 {
    fn bits(self) -> u64 {
        self
    }
}

impl<T> Bits for *mut T {
    fn bits(self) -> u64 {
        self.addr() as u64
    }
}

impl<T: Bits> Word<T> {
    #[inline(always)]
    fn read(&self) -> T {
        let this = engine();
        if !this.is_null() {
            // SAFETY: the current machine.
            unsafe { access(this, self.at().addr(), Kind::Load) };
        }
        // SAFETY: one simulated thread at a time, and it does nothing else meanwhile.
        let value = unsafe { *self.at() };
        self.noted(value, 0)
    }

    #[inline(always)]
    fn write(&self, value: T) {
        let this = engine();
        if !this.is_null() {
            // SAFETY: the current machine.
            unsafe { access(this, self.at().addr(), Kind::Store) };
        }
        // SAFETY: as for `read`.
        unsafe { *self.at() = value };
        self.noted(value, 1);
    }

    /// Changes the value to what `change` makes of it, if anything. Returns the value before.
    #[inline(always)]
    fn update(&self, change: impl FnOnce(T) -> Option<T>) -> T {
        let this = engine();
        if !this.is_null() {
            // SAFETY: the current machine.
            unsafe { access(this, self.at().addr(), Kind::Update) };
        }
        // SAFETY: as for `read`.
        let before = unsafe { *self.at() };
        if let Some(after) = change(before) {
            // SAFETY: as for `read`.
            unsafe { *self.at() = after };
            self.noted(after, 2);
        }
        self.noted(before, 3)
    }

    #[inline(always)]
    fn noted(&self, value: T, what: u64) -> T {
        let this = engine();
        if !this.is_null() {
            // SAFETY: the current machine.
            unsafe { note(this, self.at().addr(), value.bits() ^ what << 60) };
        }
        value
    }
}

macro_rules! atomic {
    ([$($t:ident)?] $value:ty) => {
        impl$(<$t>)? Atomic<$value> for Word<$value> {
            #[inline(always)]
            fn new(value: $value) -> Self {
                Self::holding(value)
            }
            #[inline(always)]
            fn load(&self, _: Ordering) -> $value {
                self.read()
            }
            #[inline(always)]
            fn store(&self, value: $value, _: Ordering) {
                self.write(value);
            }
            #[inline(always)]
            fn swap(&self, value: $value, _: Ordering) -> $value {
                self.update(|_| Some(value))
            }
            #[inline(always)]
            fn compare_exchange(&self, current: $value, new: $value, _: Ordering, _: Ordering) -> Result<$value, $value> {
                let before = self.update(|value| (value == current).then_some(new));
                if before == current { Ok(before) } else { Err(before) }
            }
            #[inline(always)]
            fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
        }
    };
}

atomic!([] u32);
atomic!([] u64);
atomic!([T] *mut T);

macro_rules! integer {
    ($value:ident) => {
        impl AtomicInt<$value> for Word<$value> {
            #[inline(always)]
            fn fetch_add(&self, value: $value, _: Ordering) -> $value {
                self.update(|before| Some(before.wrapping_add(value)))
            }
            #[inline(always)]
            fn fetch_sub(&self, value: $value, _: Ordering) -> $value {
                self.update(|before| Some(before.wrapping_sub(value)))
            }
            #[inline(always)]
            fn fetch_or(&self, value: $value, _: Ordering) -> $value {
                self.update(|before| Some(before | value))
            }
            #[inline(always)]
            fn fetch_and(&self, value: $value, _: Ordering) -> $value {
                self.update(|before| Some(before & value))
            }
            #[inline(always)]
            fn retain(&self, mask: $value, _: Ordering) -> bool {
                (self.update(|before| Some(before & mask)) & mask).leading_zeros() == 0
            }
        }
    };
}

integer!(u32);
integer!(u64);

/// The machine, seen by its running thread.
#[inline(always)]
pub(crate) fn machine() -> *mut Engine {
    let this = engine();
    assert!(!this.is_null(), "outside a simulated machine: use sim::World");
    this
}

/// With the machine, between two steps of its threads.
#[inline(always)]
pub(crate) fn look<R>(body: impl FnOnce(&mut Engine) -> R) -> R {
    // SAFETY: the current machine; `body` neither suspends nor accesses words.
    body(unsafe { &mut *machine() })
}

/// A shared access to one of the two lines of a thread's block: a kernel's or a program's.
fn block(thread: ThreadId, kernel: bool, kind: Kind) {
    let this = machine();
    // SAFETY: the current machine, and its running thread.
    unsafe {
        if (*this).current == NOBODY {
            return;
        }
        let it = &*this;
        touch(this, it.arena.line(index(thread), kernel), kind);
    }
}

/// Part of what a spinner does in a turn.
fn noted(what: u64, thread: ThreadId, value: u64) {
    let this = machine();
    // SAFETY: the current machine.
    unsafe { note(this, (what << 32) as usize | thread.0 as usize, value) };
}

/// Its next turn may be another, whatever it reads.
fn disturb() {
    look(|it| {
        if it.current != NOBODY {
            let current = it.current;
            it.threads[current].spinner.disturb();
        }
    });
}

/// Nobody is earlier than the running thread: what it sees now is how things are at its moment.
pub(crate) fn moment() {
    let this = machine();
    disturb();
    // SAFETY: the current machine, and its running thread if there is one.
    unsafe {
        if (*this).current != NOBODY {
            sync(this);
        }
    }
}

fn index(thread: ThreadId) -> usize {
    thread.0 as usize - 1
}

/// In the kernel: the time of a system call passes, and nobody is earlier.
pub(crate) fn system_call() {
    let this = machine();
    disturb();
    // SAFETY: the current machine, and its running thread.
    unsafe {
        let it = &mut *this;
        it.now += it.rules.costs.syscall;
        sync(this);
    }
}

pub(crate) fn sleep(key: usize, until: Option<Time>) -> Wait {
    let this = machine();
    // SAFETY: as for `system_call`.
    unsafe {
        (&mut *this).fall_asleep(key, until);
        suspend(this, Reason::Asleep);
        let it = &*this;
        it.threads[it.current].woken
    }
}

/// What a nap beside a lock sleeps on: no word lies there.
fn beside(lock: usize) -> usize {
    lock | 1
}

impl<const PAUSES: u32> Platform for Simulated<PAUSES> {
    type AtomicU32 = Word<u32>;
    type AtomicPtr<T: 'static> = Word<*mut T>;
    const PAUSES: u32 = PAUSES;

    fn costs() -> Costs {
        look(|it| it.rules.told)
    }

    fn stamp() -> u32 {
        look(|it| if it.current == NOBODY { 0 } else { it.stamp() })
    }

    fn set_stamp(rest: u32) {
        look(|it| {
            let current = it.current;
            it.threads[current].stamp = rest & !STAMP_ID;
        });
    }

    fn register() -> ThreadId {
        look(|it| {
            let current = it.current;
            if current == NOBODY {
                return ThreadId::NONE;
            }
            it.threads[current].registered = true;
            ThreadId((it.stamp() & STAMP_ID) >> STAMP_SHIFT)
        })
    }

    fn run_state(thread: ThreadId) -> RunState {
        if thread == ThreadId::NONE {
            return RunState::Unknown;
        }
        disturb();
        block(thread, true, Kind::Load);
        look(|it| it.run_state(index(thread)))
    }

    fn higher_preempted(than: Priority) -> bool {
        disturb();
        let this = machine();
        // SAFETY: as for `system_call`.
        unsafe {
            let it = &*this;
            if it.current == NOBODY {
                return false;
            }
            let app = it.threads[it.current].app;
            touch(this, it.apps[app].line, Kind::Load);
            (*this).higher_preempted(app, than)
        }
    }

    fn hand_off() {
        if !Self::hands_off() {
            return Self::yield_now();
        }
        system_call();
        let this = machine();
        // SAFETY: as for `system_call`.
        unsafe {
            let it = &mut *this;
            if it.explorer.is_some() {
                suspend(this, Reason::Yields);
            } else if it.has_heir() {
                suspend(this, Reason::HandsOff);
            }
        }
    }

    fn hands_off() -> bool {
        // With a queue for each processor the heir is looked for in one of them only.
        look(|it| it.rules.second_level && it.rules.queue == Queue::Global)
    }

    fn priority(thread: ThreadId) -> Priority {
        if thread == ThreadId::NONE {
            return Priority::Running;
        }
        block(thread, false, Kind::Load);
        let priority = look(|it| it.threads[index(thread)].priority);
        noted(1, thread, priority as u64);
        priority
    }

    fn set_priority(thread: ThreadId, priority: Priority) {
        if thread != ThreadId::NONE {
            block(thread, false, Kind::Store);
            look(|it| it.set_priority(index(thread), priority));
            noted(2, thread, priority as u64);
        }
    }

    fn change_priority(thread: ThreadId, from: Priority, to: Priority) -> bool {
        if thread == ThreadId::NONE {
            return true;
        }
        disturb();
        block(thread, false, Kind::Update);
        look(|it| {
            let same = it.threads[index(thread)].priority == from;
            if same {
                it.set_priority(index(thread), to);
            }
            same
        })
    }

    fn holds(thread: ThreadId) -> Option<&'static Word<u32>> {
        // SAFETY: blocks live as long as the machine, in which alone the reference is used.
        (thread != ThreadId::NONE).then(|| look(|it| unsafe { &(*it.arena.block(index(thread))).holds }))
    }

    fn locks_lines() -> bool {
        // The explorer has no time in which to stall.
        look(|it| it.lines.is_some() && it.explorer.is_none() && it.current != NOBODY)
    }

    fn lock_line(word: &Word<u32>, waits: bool) -> bool {
        // SAFETY: the current machine and its running thread, as `locks_lines` has seen.
        unsafe { hardware::lock_line(machine(), word.at().addr(), waits) }
    }

    fn unlock_line(word: &Word<u32>) {
        // SAFETY: as for `lock_line`.
        unsafe { hardware::unlock_line(machine(), word.at().addr()) }
    }

    fn away(lock: *const ()) -> &'static Word<u32> {
        // One count for all: the address must not choose, because it differs from host to host.
        let _ = lock;
        // SAFETY: as for `holds`.
        look(|it| unsafe { &(&*it.arena.away())[0] })
    }

    fn spare_processors() -> bool {
        moment();
        look(|it| {
            it.rules.setting.hints != Hints::None
                && it.current != NOBODY
                && (it.apps[it.threads[it.current].app].runnable as usize) < it.own_processors()
        })
    }

    fn roomy() -> bool {
        moment();
        look(|it| {
            it.own_processors() > 2
                && it.rules.setting.hints != Hints::None
                && it.current != NOBODY
                && it.apps[it.threads[it.current].app].threads <= it.own_processors()
        })
    }

    fn set_wish(thread: ThreadId, wish: Wish) {
        if thread != ThreadId::NONE {
            block(thread, true, Kind::Store);
            look(|it| it.set_wish(index(thread), wish));
            noted(3, thread, wish as u64);
        }
    }

    fn wish(thread: ThreadId) -> Wish {
        if thread == ThreadId::NONE {
            return Wish::Preemptable;
        }
        block(thread, true, Kind::Load);
        let wish = look(|it| it.threads[index(thread)].wish);
        noted(4, thread, wish as u64);
        wish
    }

    fn honours_wishes() -> bool {
        look(|it| it.rules.honours)
    }

    fn change_wish(thread: ThreadId, from: Wish, to: Wish) -> bool {
        if thread == ThreadId::NONE {
            return true;
        }
        disturb();
        // KE-1 is one word, in the line that the kernel writes.
        block(thread, true, Kind::Update);
        look(|it| {
            let change =
                it.run_state(index(thread)) != RunState::Preempted && it.threads[index(thread)].wish == from;
            if change {
                it.threads[index(thread)].wish = to;
            }
            change
        })
    }

    fn warning(thread: ThreadId) -> bool {
        if thread == ThreadId::NONE {
            return false;
        }
        block(thread, true, Kind::Load);
        let warning = look(|it| it.threads[index(thread)].warning);
        noted(5, thread, warning.into());
        warning
    }

    fn word(thread: ThreadId, index: usize) -> &'static Word<u32> {
        assert_ne!(thread, ThreadId::NONE, "nobody has no queue words");
        // SAFETY: as for `holds`.
        look(|it| unsafe { &(&*it.arena.block(thread.0 as usize - 1)).words[index] })
    }

    fn generation() -> u32 {
        0
    }

    fn processors() -> u32 {
        moment();
        look(|it| it.own_processors() as u32)
    }

    fn partition_generation() -> u32 {
        moment();
        look(|it| it.domains.as_ref().map_or(it.partition.generation, Domains::generation))
    }

    fn cluster() -> u32 {
        moment();
        look(|it| it.memory.cluster(it.processor) as u32)
    }

    fn cpu_ns() -> u64 {
        system_call();
        look(|it| it.cpu_ns(it.threads[it.current].app))
    }

    fn crowd(now_ns: u64, awake: u32) -> Option<Crowd> {
        // As on Linux.
        let millisecond = now_ns >> 20;
        if look(|it| it.runnable.0 != millisecond) {
            system_call();
            look(|it| it.runnable = (millisecond, it.runnable()));
        }
        let (runnable, processors) = look(|it| (it.runnable.1, it.processors.len() as u32));
        // Nobody simulated is as brief as the kernel's own threads.
        runnable.map(|all| Crowd { others: all.saturating_sub(awake), processors, lasts: true })
    }

    fn wait(word: &Word<u32>, expected: u32, deadline: Option<Deadline>) -> Wait {
        system_call();
        // SAFETY: one simulated thread at a time.
        if unsafe { *word.at() } != expected {
            return Wait::Changed;
        }
        let until = deadline.map(|deadline| deadline.ns.saturating_mul(NS));
        if look(|it| until.is_some_and(|until| until <= it.now)) {
            return Wait::TimedOut;
        }
        let woken = sleep(word.at().addr(), until);
        if look(|it| it.rules.blocking == Blocking::Signals) {
            // Out of the handler.
            system_call();
        }
        woken
    }

    fn wake(word: *const Word<u32>, count: u32) -> u32 {
        match look(|it| it.rules.blocking) {
            Blocking::Futex => system_call(),
            Blocking::Signals => moment(),
        }
        look(|it| {
            let woken = it.wake(word.addr(), count, it.now);
            it.now += Time::from(woken) * it.rules.wakes();
            it.set_limit();
            woken
        })
    }

    fn now_ns() -> u64 {
        moment();
        look(|it| {
            if it.current != NOBODY {
                it.now += it.rules.costs.clock;
            }
            it.now / NS
        })
    }

    fn past(deadline: Deadline) -> bool {
        Self::now_ns() >= deadline.ns
    }

    fn pause() {
        let this = machine();
        // SAFETY: the current machine, and its running thread.
        unsafe {
            if (*this).explorer.is_some() {
                (*this).now += (*this).rules.costs.pause;
                suspend(this, Reason::Yields);
            } else {
                spin::pause(this);
            }
        }
    }

    fn nap(ns: u64) {
        system_call();
        let until = look(|it| it.now + ns.max(1).saturating_mul(NS));
        sleep(0, Some(until));
    }

    fn nap_beside(lock: *const Word<u32>, ns: u64) {
        system_call();
        let until = look(|it| it.now + ns.max(1).saturating_mul(NS));
        sleep(beside(lock.addr()), Some(until));
    }

    fn rouse(lock: *const Word<u32>) {
        Self::wake(std::ptr::without_provenance(beside(lock.addr())), 1);
    }

    fn yield_now() {
        system_call();
        let this = machine();
        // SAFETY: as for `system_call`.
        unsafe {
            let it = &mut *this;
            if it.explorer.is_some() || it.others_wait() {
                suspend(this, Reason::Yields);
            } else {
                it.settle_debit();
            }
        }
    }
}

impl<const PAUSES: u32> Wide for Simulated<PAUSES> {
    type AtomicU64 = Word<u64>;

    /// Accesses are in order.
    fn fence(_: Ordering) {}
}

impl<const PAUSES: u32> Fences for Simulated<PAUSES> {
    fn light() {}

    /// A system call that interrupts the others; what they lose is not counted.
    fn heavy() {
        if look(|it| it.current != NOBODY) {
            system_call();
        }
    }
}

impl<const PAUSES: u32> Readers for Simulated<PAUSES> {
    fn reading(thread: ThreadId) -> &'static Word<*mut ()> {
        assert_ne!(thread, ThreadId::NONE, "nobody reads nothing");
        // SAFETY: as for `holds`.
        look(|it| unsafe { &(*it.arena.block(index(thread))).reading })
    }

    fn most_threads() -> u32 {
        disturb();
        // Foreign processes have no places; they come after all threads.
        look(|it| {
            it.threads.iter().rposition(|thread| thread.app != FOREIGN).map_or(1, |last| last as u32 + 2)
        })
    }

    fn turn(_: *const ()) -> &'static Word<u32> {
        // SAFETY: as for `holds`. One for all locks, as in `away`.
        look(|it| unsafe { &*it.arena.turn() })
    }
}

/// The running thread computes for so long, without touching anything shared.
pub fn work_ns(ns: f64) {
    look(|it| {
        let time = from_ns(ns);
        it.now += time;
        let current = it.current;
        it.threads[current].work += time;
    });
}

/// A number below `bound`, from the running thread's own random numbers.
pub fn random(bound: u64) -> u64 {
    disturb();
    look(|it| {
        let current = it.current;
        below(&mut it.threads[current].random, bound)
    })
}

/// A number from `1 - by` to `1 + by`, from the same.
pub fn vary(by: f64) -> f64 {
    disturb();
    look(|it| {
        let current = it.current;
        1.0 + by * (2.0 * unit(&mut it.threads[current].random) - 1.0)
    })
}

/// The running thread's clock, in ns; costs nothing, for measuring.
pub fn clock_ns() -> f64 {
    moment();
    look(|it| it.now as f64 / NS as f64)
}

/// The running thread has passed a section for which it waited so long.
pub fn passed(waited_ns: f64) {
    look(|it| {
        let waited = from_ns(waited_ns);
        let current = it.current;
        let thread = &mut it.threads[current];
        thread.sections += 1;
        thread.waited += waited;
        thread.longest_wait = thread.longest_wait.max(waited);
        it.tally.waits.saturating_record(waited_ns.round() as u64);
    });
}

/// The running thread has done so many parts of what it has to do, without waiting for one.
pub(crate) fn progressed(parts: u64) {
    look(|it| {
        let current = it.current;
        it.threads[current].sections += parts;
    });
}

/// The running thread begins a critical section of the program, its own or another's; costs nothing. See
/// [`crate::Path`].
pub fn entered() {
    disturb();
    look(|it| it.tally.path.enter(it.now, it.processor, it.memory.fetches(it.processor)));
}

/// It ends it.
pub fn left() {
    look(|it| it.tally.path.leave(it.now, it.processor, it.memory.fetches(it.processor)));
}

/// The simulation ends here, whoever still runs: what was to be done is done.
pub(crate) fn over() {
    look(|it| it.tally.over = Some(it.now));
    leave();
}

/// Back to who drives the machine.
fn leave() {
    let this = machine();
    // SAFETY: as for `system_call`.
    unsafe {
        (*this).limit = 0;
        suspend(this, Reason::Late);
    }
}

/// The simulation ends here, and its results say why.
pub fn fail(what: String) {
    look(|it| it.fail(what));
    leave();
}
