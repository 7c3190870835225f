// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine that differs from another in one way: [`Twisted`].

use std::marker::PhantomData;

use platform::{
    Atomic, AtomicInt, Costs, Crowd, Deadline, Ordering, Platform, Priority, Readers, Room, RunState,
    STAMP_ID, ThreadId, Wait, Wide, Wish,
};

use crate::Machine;

/// What is different. The defaults change nothing.
pub trait Twist: Copy + Default + Send + Sync + 'static {
    /// The ordering used instead of this one.
    fn order(order: Ordering) -> Ordering {
        order
    }
    /// What the view tells instead of this.
    fn run_state(state: RunState) -> RunState {
        state
    }
    /// A yes-or-no hint is given the other way round.
    fn lies() -> bool {
        false
    }
    /// What the machine tells of its room instead of this.
    fn room(room: bool) -> bool {
        room != Self::lies()
    }
    /// Whether somebody honours wishes, instead of this.
    fn honours(honours: bool) -> bool {
        honours
    }
    /// What the machine tells of whether it acts on priorities instead of this.
    fn hands_off(hands_off: bool) -> bool {
        hands_off
    }
    /// It is counted how many locks a thread holds that raised it.
    fn counts() -> bool {
        true
    }
    /// A swap writes.
    fn swaps() -> bool {
        true
    }
    /// The number of processors that the machine tells instead of this.
    fn processors(count: u32) -> u32 {
        count
    }
    /// What a compare-and-swap of a word of 32 bits writes instead of `new`.
    fn stored(_old: u32, new: u32) -> u32 {
        new
    }
    /// What `retain` returns instead of this.
    fn retained(top: bool) -> bool {
        top
    }
    /// So many are woken where this many should be.
    fn wakes(count: u32) -> u32 {
        count
    }
    /// What the machine tells of its crowd instead of this, to one who says that so many of ours are awake.
    /// A lie: others where there are none, and none where there are.
    fn crowd(_awake: u32, crowd: Option<Crowd>) -> Option<Crowd> {
        match Self::lies() {
            true => crowd.map(|it| Crowd { others: if it.others == 0 { it.processors } else { 0 }, ..it }),
            false => crowd,
        }
    }
    /// Whether other programs share the processors, instead of this.
    fn is_beside_others(beside: bool) -> bool {
        beside != Self::lies()
    }
    /// The processor time that the process has used instead of this.
    fn cpu_ns(ns: u64) -> u64 {
        ns
    }
    /// Meanwhile, at a pause.
    fn pauses() {}
    /// Meanwhile, at a yield.
    fn yields() {}
    /// Meanwhile, before a thread sleeps.
    fn sleeps() {}
    /// A nap ends.
    fn naps() -> bool {
        true
    }
    /// Meanwhile, before a thread moves to another processor.
    fn moves() {}
    /// The thread whose id this is has one.
    fn knows(_: ThreadId) -> bool {
        true
    }
    /// Run state and wish are one word.
    fn one_word() -> bool {
        true
    }
    /// Meanwhile, when a thread asks for an id.
    fn registers(_: ThreadId) {}
}

/// No thread has an id.
#[derive(Clone, Copy, Debug, Default)]
pub struct Strangers;

impl Twist for Strangers {
    fn knows(_: ThreadId) -> bool {
        false
    }
}

/// Every second thread has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct SomeStrangers;

impl Twist for SomeStrangers {
    fn knows(thread: ThreadId) -> bool {
        thread.0 % 2 == 1
    }
}

/// Run state and wish are two words: who changes the wish has looked at the run state before.
#[derive(Clone, Copy, Debug, Default)]
pub struct TwoWords;

impl Twist for TwoWords {
    fn one_word() -> bool {
        false
    }
}

/// No thread has an id, and nobody is ever woken.
#[derive(Clone, Copy, Debug, Default)]
pub struct SleepingStrangers;

impl Twist for SleepingStrangers {
    fn knows(_: ThreadId) -> bool {
        false
    }
    fn wakes(_: u32) -> u32 {
        0
    }
}

/// Nothing is different.
#[derive(Clone, Copy, Debug, Default)]
pub struct Straight;

impl Twist for Straight {}

/// Every hint is the opposite of what the machine knows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lying;

impl Twist for Lying {
    fn run_state(state: RunState) -> RunState {
        match state {
            RunState::Running | RunState::Unknown => RunState::Preempted,
            RunState::Preempted | RunState::Blocked => RunState::Running,
        }
    }

    fn lies() -> bool {
        true
    }
}

/// Every hint is right or wrong by chance.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fickle;

impl Twist for Fickle {
    fn run_state(state: RunState) -> RunState {
        if chance() { Lying::run_state(state) } else { state }
    }

    fn lies() -> bool {
        chance()
    }
}

/// For real threads: no checker could repeat it.
fn chance() -> bool {
    std::thread_local! {
        static SEED: std::cell::Cell<u32> = {
            static THREADS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
            std::cell::Cell::new(THREADS.fetch_add(1, Ordering::Relaxed))
        };
    }
    SEED.with(|seed| {
        seed.set(seed.get().wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        seed.get() >> 31 != 0
    })
}

/// Acquire orders nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAcquire;

impl Twist for NoAcquire {
    fn order(order: Ordering) -> Ordering {
        match order {
            Ordering::Acquire => Ordering::Relaxed,
            Ordering::AcqRel => Ordering::Release,
            order => order,
        }
    }
}

/// Release orders nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRelease;

impl Twist for NoRelease {
    fn order(order: Ordering) -> Ordering {
        match order {
            Ordering::Release => Ordering::Relaxed,
            Ordering::AcqRel => Ordering::Acquire,
            order => order,
        }
    }
}

/// Nobody is ever woken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deaf;

impl Twist for Deaf {
    fn wakes(_: u32) -> u32 {
        0
    }
}

/// Who should wake several wakes one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stingy;

impl Twist for Stingy {
    fn wakes(count: u32) -> u32 {
        count.min(1)
    }
}

/// There is room for all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Roomy;

impl Twist for Roomy {
    fn room(_: bool) -> bool {
        true
    }
}

/// There is room for all, and somebody honours wishes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Honoured;

impl Twist for Honoured {
    fn room(_: bool) -> bool {
        true
    }
    fn honours(_: bool) -> bool {
        true
    }
}

/// There is room for all, and other programs take most of it; nobody honours wishes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crowded;

impl Twist for Crowded {
    fn room(_: bool) -> bool {
        true
    }
    fn honours(_: bool) -> bool {
        false
    }
    fn processors(_: u32) -> u32 {
        3
    }
    fn crowd(_: u32, _: Option<Crowd>) -> Option<Crowd> {
        Some(Crowd { others: 9, processors: 3, lasts: true })
    }
}

/// There is room for all, and a swap does not write.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mute;

impl Twist for Mute {
    fn room(_: bool) -> bool {
        true
    }
    fn swaps() -> bool {
        false
    }
}

/// A scheduler listens to what threads say of their priorities and wishes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Listening;

impl Twist for Listening {
    fn hands_off(_: bool) -> bool {
        true
    }
}

thread_local! {
    /// Does somebody listen to the threads of this checker? See [`Ending`].
    pub static LISTENS: std::cell::Cell<bool> = const { std::cell::Cell::new(true) };
}

/// The same, while [`LISTENS`] says so.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ending;

impl Twist for Ending {
    fn hands_off(_: bool) -> bool {
        LISTENS.get()
    }
}

/// The same, and nobody counts the locks that a thread holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uncounted;

impl Twist for Uncounted {
    fn hands_off(_: bool) -> bool {
        true
    }
    fn counts() -> bool {
        false
    }
}

/// There is one processor.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneProcessor;

impl Twist for OneProcessor {
    fn processors(_: u32) -> u32 {
        1
    }
}

/// An atomic with the orderings that the twist makes of those asked for.
#[repr(transparent)]
pub struct Bent<A, W>(A, PhantomData<W>);

impl<T: Copy, A: Atomic<T>, W: Twist> Atomic<T> for Bent<A, W> {
    fn new(value: T) -> Self {
        Self(A::new(value), PhantomData)
    }
    fn load(&self, order: Ordering) -> T {
        self.0.load(W::order(order))
    }
    fn store(&self, value: T, order: Ordering) {
        self.0.store(value, W::order(order));
    }
    fn swap(&self, value: T, order: Ordering) -> T {
        if W::swaps() { self.0.swap(value, W::order(order)) } else { self.0.load(Ordering::Relaxed) }
    }
    fn compare_exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T> {
        let new = stored::<T, W>(current, new);
        self.0.compare_exchange(current, new, W::order(success), W::order(failure))
    }
    fn compare_exchange_weak(
        &self,
        current: T,
        new: T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<T, T> {
        let new = stored::<T, W>(current, new);
        self.0.compare_exchange_weak(current, new, W::order(success), W::order(failure))
    }
}

/// [`Twist::stored`], of what has 32 bits.
fn stored<T: Copy, W: Twist>(old: T, new: T) -> T {
    if size_of::<T>() != size_of::<u32>() {
        return new;
    }
    // SAFETY: an integer of this size is a `u32`, and there is no pointer of it here.
    unsafe {
        let bits = |value: &T| std::mem::transmute_copy::<T, u32>(value);
        std::mem::transmute_copy::<u32, T>(&W::stored(bits(&old), bits(&new)))
    }
}

impl<T: Copy, A: AtomicInt<T>, W: Twist> AtomicInt<T> for Bent<A, W> {
    fn fetch_add(&self, value: T, order: Ordering) -> T {
        self.0.fetch_add(value, W::order(order))
    }
    fn fetch_sub(&self, value: T, order: Ordering) -> T {
        self.0.fetch_sub(value, W::order(order))
    }
    fn fetch_or(&self, value: T, order: Ordering) -> T {
        self.0.fetch_or(value, W::order(order))
    }
    fn fetch_and(&self, value: T, order: Ordering) -> T {
        self.0.fetch_and(value, W::order(order))
    }
    fn retain(&self, mask: T, order: Ordering) -> bool {
        W::retained(self.0.retain(mask, W::order(order)))
    }
}

fn bent<A, W>(word: &'static A) -> &'static Bent<A, W> {
    // SAFETY: `Bent` is transparent.
    unsafe { &*std::ptr::from_ref(word).cast() }
}

/// The machine `P`, twisted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Twisted<P, W>(PhantomData<(P, W)>);

impl<P: Platform, W: Twist> Platform for Twisted<P, W> {
    type AtomicU32 = Bent<P::AtomicU32, W>;
    type AtomicPtr<T: 'static> = Bent<P::AtomicPtr<T>, W>;
    const PAUSES: u32 = P::PAUSES;
    const ROOMS: u32 = P::ROOMS;

    fn room(number: u32) -> Option<Room<Self>> {
        let Room { lock, users, turn, guest } = P::room(number)?;
        Some(Room { lock: bent(lock), users: bent(users), turn: bent(turn), guest })
    }
    fn stamp() -> u32 {
        if W::knows(P::current()) { P::stamp() } else { P::stamp() & !STAMP_ID }
    }
    fn set_stamp(rest: u32) {
        P::set_stamp(rest);
    }
    fn register() -> ThreadId {
        let id = P::register();
        W::registers(id);
        if W::knows(id) { id } else { ThreadId::NONE }
    }
    fn run_state(thread: ThreadId) -> RunState {
        W::run_state(P::run_state(thread))
    }
    fn higher_preempted(than: Priority) -> bool {
        P::higher_preempted(than) != W::lies()
    }
    fn hand_off() {
        P::hand_off();
    }
    fn hands_off() -> bool {
        W::hands_off(P::hands_off())
    }
    fn priority(thread: ThreadId) -> Priority {
        P::priority(thread)
    }
    fn set_priority(thread: ThreadId, priority: Priority) {
        P::set_priority(thread, priority);
    }
    fn change_priority(thread: ThreadId, from: Priority, to: Priority) -> bool {
        P::change_priority(thread, from, to) != W::lies()
    }
    fn holds(thread: ThreadId) -> Option<&'static Self::AtomicU32> {
        P::holds(thread).filter(|_| W::counts()).map(bent)
    }
    fn away(lock: *const ()) -> &'static Self::AtomicU32 {
        bent(P::away(lock))
    }
    fn spare_processors() -> bool {
        P::spare_processors() != W::lies()
    }
    fn roomy() -> bool {
        W::room(P::roomy())
    }
    fn set_wish(thread: ThreadId, wish: Wish) {
        P::set_wish(thread, wish);
    }
    fn wish(thread: ThreadId) -> Wish {
        P::wish(thread)
    }
    fn honours_wishes() -> bool {
        W::honours(P::honours_wishes())
    }
    fn change_wish(thread: ThreadId, from: Wish, to: Wish) -> bool {
        if W::one_word() {
            return P::change_wish(thread, from, to) != W::lies();
        }
        let changes = P::run_state(thread) != RunState::Preempted && P::wish(thread) == from;
        if changes {
            P::set_wish(thread, to);
        }
        changes
    }
    fn warning(thread: ThreadId) -> bool {
        P::warning(thread) != W::lies()
    }
    fn word(thread: ThreadId, index: usize) -> &'static Self::AtomicU32 {
        bent(P::word(thread, index))
    }
    fn generation() -> u32 {
        P::generation()
    }
    fn processors() -> u32 {
        W::processors(P::processors())
    }
    fn metered() -> bool {
        P::metered() != W::lies()
    }
    fn costs() -> Costs {
        P::costs()
    }
    fn refresh_processors(now_ns: Option<u64>) {
        P::refresh_processors(now_ns);
    }
    fn partition_generation() -> u32 {
        P::partition_generation()
    }
    fn cluster() -> u32 {
        P::cluster()
    }
    fn running_on() -> Option<u32> {
        P::running_on()
    }
    fn migrate(to: Option<u32>) -> bool {
        W::moves();
        P::migrate(to)
    }
    fn cpu_ns() -> u64 {
        W::cpu_ns(P::cpu_ns())
    }
    fn crowd(now_ns: u64, awake: u32) -> Option<Crowd> {
        W::crowd(awake, P::crowd(now_ns, awake))
    }
    fn is_beside_others(now_ns: u64) -> bool {
        W::is_beside_others(P::is_beside_others(now_ns))
    }
    fn wait(word: &Self::AtomicU32, expected: u32, deadline: Option<Deadline>) -> Wait {
        W::sleeps();
        P::wait(&word.0, expected, deadline)
    }
    fn wake(word: *const Self::AtomicU32, count: u32) -> u32 {
        match W::wakes(count) {
            0 => 0,
            count => P::wake(word.cast(), count),
        }
    }
    fn now_ns() -> u64 {
        P::now_ns()
    }
    fn past(deadline: Deadline) -> bool {
        P::past(deadline)
    }
    fn pause() {
        W::pauses();
        P::pause();
    }
    fn nap(ns: u64) {
        if W::naps() {
            P::nap(ns);
        } else {
            P::wait(&Atomic::new(0), 0, None);
        }
    }
    fn yield_now() {
        W::yields();
        P::yield_now();
    }
}

impl<P: Machine, W: Twist> Machine for Twisted<P, W> {
    type Handle = P::Handle;
    type Cell = P::Cell;

    fn spawn(body: impl FnOnce() + Send + 'static) -> Self::Handle {
        P::spawn(body)
    }
    fn join(handle: Self::Handle) {
        P::join(handle);
    }
}

impl<P: Readers, W: Twist> Readers for Twisted<P, W> {
    fn reading(thread: ThreadId) -> &'static Self::AtomicPtr<()> {
        bent(P::reading(thread))
    }
    fn most_threads() -> u32 {
        P::most_threads()
    }
    fn turn(lock: *const ()) -> &'static Self::AtomicU32 {
        bent(P::turn(lock))
    }
}

impl<P: Wide, W: Twist> Wide for Twisted<P, W> {
    type AtomicU64 = Bent<P::AtomicU64, W>;

    fn fence(order: Ordering) {
        P::fence(order);
    }
}
