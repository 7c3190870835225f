// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the parts of the fibers must do that threads share: the deque, the token, the end, the seats. And
//! some
//! that do not.

use std::cell::Cell as StdCell;
use std::sync::Arc;

use ::fiber::deque::Deque;
use ::fiber::done::Done;
use ::fiber::fences::Fences;
use ::fiber::seats::{Invited, Seats};
use ::fiber::token::Token;
use platform::{Atomic, AtomicInt, Ordering::*, Platform, Wide};

use crate::bodies::together;
use crate::loom::Loom;
use crate::shuttle::Shuttle;
use crate::{Cell, Machine};

mod abodes;
mod bolting;
mod guests;
mod hearing;
mod posting;
mod steering;
pub use abodes::*;
pub use bolting::*;
pub use guests::*;
pub use hearing::*;
pub use posting::*;
pub use steering::*;

std::thread_local! {
    /// Makes the fences of the models do nothing. A model runs all its threads on one thread of the system.
    static UNFENCED: StdCell<bool> = const { StdCell::new(false) };
}

/// Runs this without the fences.
pub fn unfenced(body: impl FnOnce()) {
    UNFENCED.set(true);
    body();
    UNFENCED.set(false);
}

macro_rules! fences {
    ($($machine:ty)*) => {
        $(impl Fences for $machine {
            fn light() {
                if !UNFENCED.get() {
                    Self::fence(SeqCst);
                }
            }
            fn heavy() {
                Self::light();
            }
        })*
    };
}

fences!(Loom Shuttle);

/// What [`stealing`] asks of a deque.
pub trait RawDeque<T>: Send + Sync + 'static {
    /// Empty.
    fn new() -> Self;
    /// By the owner; false if it is full.
    fn push(&self, entry: *mut T) -> bool;
    /// By the owner.
    fn pop(&self) -> Option<*mut T>;
    /// By anybody.
    fn steal(&self) -> Option<*mut T>;
}

#[allow(clippy::not_unsafe_ptr_arg_deref)] // the deque only stores it
impl<P: Fences, T: Send + 'static> RawDeque<T> for Deque<P, T, 4> {
    fn new() -> Self {
        Deque::new()
    }
    fn push(&self, entry: *mut T) -> bool {
        // SAFETY: the body pushes and pops by one thread.
        unsafe { Deque::push(self, entry) }
    }
    fn pop(&self) -> Option<*mut T> {
        // SAFETY: as above.
        unsafe { Deque::pop(self) }
    }
    fn steal(&self) -> Option<*mut T> {
        Deque::steal(self)
    }
}

/// A thief that looks before it counts: T1 in the wrong order.
pub struct LooksFirst<P: Platform, T: 'static> {
    top: P::AtomicU32,
    bottom: P::AtomicU32,
    slots: [P::AtomicPtr<T>; 4],
}

impl<P: Platform, T: Send + 'static> RawDeque<T> for LooksFirst<P, T> {
    fn new() -> Self {
        let slots = std::array::from_fn(|_| Atomic::new(std::ptr::null_mut()));
        Self { top: Atomic::new(0), bottom: Atomic::new(0), slots }
    }
    fn push(&self, entry: *mut T) -> bool {
        let bottom = self.bottom.load(Relaxed);
        if bottom - self.top.load(Acquire) == 3 {
            return false;
        }
        self.slots[bottom as usize % 4].store(entry, Relaxed);
        self.bottom.store(bottom + 1, Release);
        true
    }
    fn pop(&self) -> Option<*mut T> {
        let (bottom, top) = (self.bottom.load(Relaxed), self.top.load(SeqCst));
        if bottom == top {
            return None;
        }
        self.bottom.store(bottom - 1, SeqCst);
        Some(self.slots[(bottom - 1) as usize % 4].load(Relaxed))
    }
    fn steal(&self) -> Option<*mut T> {
        let top = self.top.load(SeqCst);
        if self.bottom.load(SeqCst) <= top {
            return None;
        }
        let entry = self.slots[top as usize % 4].load(Relaxed);
        self.top.compare_exchange(top, top + 1, SeqCst, Relaxed).ok().map(|_| entry)
    }
}

struct Place<T>(*mut T);

// SAFETY: the deque hands entries from one thread to another; the cells watch that.
unsafe impl<T> Send for Place<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Place<T> {}

/// An owner pushes entries and pops some, thieves steal. Each entry goes to one taker, who sees what was
/// written.
pub fn stealing<M: Machine, D: RawDeque<M::Cell>>(thieves: u32, entries: u32) {
    let cells: Vec<_> = (0..entries).map(|_| Box::into_raw(Box::new(M::Cell::new()))).map(Place).collect();
    let shared = Arc::new((D::new(), cells));
    let ours = shared.clone();
    let take = |entry: *mut M::Cell| {
        // SAFETY: freed when all threads have been joined.
        let cell = unsafe { &*entry };
        assert_eq!(cell.get(), 1, "an entry was taken twice, or before it was there");
        cell.bump();
    };
    together::<M>(thieves + 1, move |index| {
        let (deque, cells) = &*ours;
        if index != 0 {
            for _ in 0..entries {
                if let Some(entry) = deque.steal() {
                    take(entry);
                }
            }
            return;
        }
        for Place(cell) in cells {
            // SAFETY: as above.
            unsafe { (**cell).bump() };
            while !deque.push(*cell) {
                if let Some(entry) = deque.pop() {
                    take(entry);
                }
            }
        }
        if let Some(entry) = deque.pop() {
            take(entry);
        }
    });
    while let Some(entry) = shared.0.pop() {
        take(entry);
    }
    assert!(shared.0.steal().is_none(), "an empty deque has an entry");
    for Place(cell) in &shared.1 {
        // SAFETY: made above by Box; all threads have ended.
        assert_eq!(unsafe { Box::from_raw(*cell) }.get(), 2, "an entry got lost");
    }
}

/// An owner pushes, blocks in the kernel, comes back, and pops, with light fences that are none. A thief
/// steals while it is blocked. `MISTAKE` 1: the owner comes back without a fence; 2: the thief looks before
/// it counts.
pub fn stealing_from_the_blocked<M: Machine + Fences, const MISTAKE: u32>() {
    struct Blocked<M: Machine + Fences> {
        deque: Deque<M, M::Cell, 4>,
        blocked: M::AtomicU32,
        taken: M::AtomicU32,
    }
    let entry = Place(Box::into_raw(Box::new(M::Cell::new())));
    let it = Arc::new((
        Blocked::<M> { deque: Deque::new(), blocked: Atomic::new(0), taken: Atomic::new(0) },
        entry,
    ));
    let ours = it.clone();
    together::<M>(2, move |index| {
        let (it, Place(entry)) = &*ours;
        let found = if index == 0 {
            // SAFETY: freed when both have ended.
            unsafe { (**entry).bump() };
            // SAFETY: this thread is the owner.
            assert!(unsafe { it.deque.push(*entry) });
            M::fence(SeqCst);
            it.blocked.store(1, Release);
            it.blocked.store(0, Release);
            if MISTAKE != 1 {
                M::fence(SeqCst);
            }
            // SAFETY: as above.
            unsafe { it.deque.pop() }
        } else {
            let blocked = || it.blocked.load(Acquire) == 1;
            let before = blocked();
            let blocked = || if MISTAKE == 2 { before } else { blocked() };
            // SAFETY: what it asks for is what the body checks; the cells are freed when both have ended.
            unsafe { it.deque.steal_from_blocked(blocked) }
        };
        if found.is_some() {
            assert_eq!(it.taken.fetch_add(1, Relaxed), 0, "an entry was taken twice");
        }
    });
    // SAFETY: made above by Box; both threads have ended.
    drop(unsafe { Box::from_raw(it.1.0) });
}

/// What [`parking`] asks of a token.
pub trait RawToken<P: Platform>: Send + Sync + 'static {
    /// Not given.
    fn new() -> Self;
    /// K1.
    fn take(&self) -> bool;
    /// K2.
    fn settle(&self) -> bool;
    /// G1.
    fn give(&self) -> bool;
    /// N1.
    fn unpark(&self) -> bool;
    /// N2.
    fn take_unpark(&self) -> bool;
}

impl<P: Platform> RawToken<P> for Token<P> {
    fn new() -> Self {
        Token::new()
    }
    fn take(&self) -> bool {
        Token::take(self)
    }
    fn settle(&self) -> bool {
        Token::settle(self)
    }
    fn give(&self) -> bool {
        Token::give(self)
    }
    fn unpark(&self) -> bool {
        Token::unpark(self)
    }
    fn take_unpark(&self) -> bool {
        Token::take_unpark(self)
    }
}

/// A token with a mistake: K1 by a store (1), K2 without release (2), K2 by a store (3), one word for all
/// waits (4), N1 in the wrong order (5), N2 by a store (6), G1 by a look and a store (7).
pub struct BrokenToken<P: Platform, const MISTAKE: u32>(P::AtomicU32, P::AtomicU32);

impl<P: Platform, const MISTAKE: u32> RawToken<P> for BrokenToken<P, MISTAKE> {
    fn new() -> Self {
        Self(Atomic::new(0), Atomic::new(0))
    }
    fn take(&self) -> bool {
        if self.0.load(Relaxed) != 1 {
            return false;
        }
        if MISTAKE == 1 {
            self.0.store(0, Relaxed);
            return true;
        }
        self.0.swap(0, Acquire) == 1
    }
    fn settle(&self) -> bool {
        match MISTAKE {
            3 => {
                let given = self.0.load(Relaxed) == 1;
                if !given {
                    self.0.store(2, Release);
                }
                !given
            }
            2 => self.0.compare_exchange(0, 2, Relaxed, Relaxed).is_ok(),
            _ => self.0.compare_exchange(0, 2, Release, Relaxed).is_ok(),
        }
    }
    fn give(&self) -> bool {
        if MISTAKE == 7 && self.0.load(Acquire) == 2 {
            self.0.store(0, Relaxed);
            return true;
        }
        self.0.compare_exchange(2, 0, Acquire, Relaxed).is_ok() || self.0.swap(1, AcqRel) == 2
    }
    fn unpark(&self) -> bool {
        match MISTAKE {
            4 => self.give(),
            5 => {
                let parked = self.give();
                self.1.swap(1, Release);
                parked
            }
            _ => {
                self.1.swap(1, Release);
                self.give()
            }
        }
    }
    fn take_unpark(&self) -> bool {
        match MISTAKE {
            4 => self.take(),
            6 => {
                let unparked = self.1.load(Acquire) == 1;
                if unparked {
                    self.1.store(0, Relaxed);
                }
                unparked
            }
            _ => self.1.load(Relaxed) == 1 && self.1.swap(0, Acquire) == 1,
        }
    }
}

struct Parked<M: Machine, T> {
    token: T,
    /// The saved context: written before the token is parked, read by who makes its owner ready.
    context: M::Cell,
    /// 1: the owner is ready again.
    ready: M::AtomicU32,
    given: Vec<M::AtomicU32>,
}

impl<M: Machine, T: RawToken<M>> Parked<M, T> {
    fn new(givers: u32) -> Arc<Self> {
        Arc::new(Self {
            token: T::new(),
            context: M::Cell::new(),
            ready: Atomic::new(0),
            given: (0..givers).map(|_| Atomic::new(0)).collect(),
        })
    }

    /// By a giver, who was told that the owner is parked.
    fn make_ready(&self, parked: bool) {
        if parked {
            self.context.bump();
            // What a queue of ready fibers does.
            self.ready.store(1, Release);
            M::wake(&self.ready, 1);
        }
    }

    /// By the owner: K1 or K2.
    fn doze(&self) {
        if self.token.take() {
            return;
        }
        self.context.bump();
        if self.token.settle() {
            while self.ready.load(Acquire) == 0 {
                M::wait(&self.ready, 0, None);
            }
            self.ready.store(0, Relaxed);
            self.context.bump();
        }
        self.token.take();
    }
}

/// An owner parks until all givers have come; nobody's word gets lost, and nobody resumes a context that
/// is not
/// saved yet.
pub fn parking<M: Machine, T: RawToken<M>>(givers: u32) {
    let it = Parked::<M, T>::new(givers);
    together::<M>(givers + 1, move |index| {
        if index != 0 {
            it.given[index as usize - 1].store(1, Relaxed);
            return it.make_ready(it.token.give());
        }
        while it.given.iter().any(|given| given.load(Relaxed) == 0) {
            it.doze();
        }
    });
}

/// An owner waits for a lock's waker and parks until all unparkers have come. What the waker gives is not the
/// unparkers', and the other way round.
pub fn parking_and_waiting<M: Machine, T: RawToken<M>>(unparkers: u32) {
    let it = Parked::<M, T>::new(unparkers + 1);
    together::<M>(unparkers + 2, move |index| match index {
        0 => {
            let (woken, unparked) = it.given.split_first().expect("the waker's is the first");
            while woken.load(Acquire) == 0 {
                it.doze();
            }
            while unparked.iter().any(|unparked| unparked.load(Relaxed) == 0) {
                while !it.token.take_unpark() {
                    it.doze();
                }
            }
        }
        1 => {
            it.given[0].store(1, Release);
            it.make_ready(it.token.give());
        }
        _ => {
            it.given[index as usize - 1].store(1, Relaxed);
            it.make_ready(it.token.unpark());
        }
    });
}

/// A fiber ends, its joiner waits or drops the handle: the result is there, and has one owner.
pub fn ending<M: Machine, const MISTAKE: u32>(joins: bool) {
    struct End<M: Machine> {
        done: Done<M>,
        result: M::Cell,
        dropped: M::AtomicU32,
    }
    let end = Arc::new(End::<M> { done: Done::default(), result: M::Cell::new(), dropped: Atomic::new(0) });
    let ours = end.clone();
    together::<M>(2, move |index| match index {
        0 => {
            ours.result.bump();
            let mine = match MISTAKE {
                // It ends without telling.
                1 => {
                    ours.done.end_nested();
                    false
                }
                _ => ours.done.end::<M>(),
            };
            if mine {
                ours.result.bump();
                ours.dropped.fetch_add(1, Relaxed);
            }
        }
        _ if joins => {
            // Who sees the end needs not wait for it.
            if !ours.done.has_ended() {
                ours.done.wait::<M>();
            }
            assert_eq!(ours.result.get(), 1, "the result is not there");
        }
        _ => {
            // A look, then the step: the fiber may end in between.
            let mine = if MISTAKE == 2 {
                let ended = ours.done.has_ended();
                let _ = ours.done.drop_handle();
                ended
            } else {
                ours.done.drop_handle()
            };
            if mine {
                ours.result.bump();
                ours.dropped.fetch_add(1, Relaxed);
            }
        }
    });
    assert_eq!(end.dropped.load(Relaxed), u32::from(!joins), "the result was dropped so often");
}

/// None: what the others differ from.
pub const NONE: u32 = 0;
/// The sentinel hands on a seat that it has not taken: an upcall delivered twice.
pub const TWICE: u32 = 1;
/// A carrier that lies down does not look for work again.
pub const BLIND: u32 = 2;
/// The sentinel takes a seat and forgets it: an upcall lost.
pub const FORGOTTEN: u32 = 3;

/// A carrier that finds pinned work and no seat sleeps as if there were none.
pub const HOSTAGE: u32 = 4;

struct Program<M: Machine + Fences> {
    seats: Seats<M>,
    /// Pieces of work that nobody has taken.
    work: M::AtomicU32,
    done: M::AtomicU32,
    stop: M::AtomicU32,
    /// Pieces that only the first carrier can do.
    pinned: M::AtomicU32,
}

impl<M: Machine + Fences> Program<M> {
    fn rouse(&self, carrier: Option<u32>) {
        if let Some(carrier) = carrier {
            self.seats.wake(carrier);
        }
    }

    fn invite(&self) {
        let mut newcomers = true;
        loop {
            match self.seats.invite(newcomers) {
                Invited::Nobody => return,
                Invited::Carrier(carrier) => return self.rouse(Some(carrier)),
                // Nobody new can come.
                Invited::Newcomer => self.rouse(self.seats.surrender()),
            }
            if self.work.load(Relaxed) == 0 && self.stop.load(Relaxed) == 0 {
                return;
            }
            newcomers = false;
        }
    }

    fn take(&self) -> bool {
        let mut work = self.work.load(Relaxed);
        while work > 0 {
            match self.work.compare_exchange(work, work - 1, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => work = now,
            }
        }
        false
    }

    /// What a carrier does, until it is told to stop.
    fn carry(&self, me: u32, mistake: u32) {
        loop {
            if self.seats.holds(me) {
                while me == 0 && self.pinned.load(Relaxed) > 0 {
                    self.pinned.fetch_sub(1, Acquire);
                    self.done.fetch_add(1, Relaxed);
                }
                while self.take() {
                    self.done.fetch_add(1, Relaxed);
                }
            }
            if self.stop.load(Relaxed) != 0 {
                break;
            }
            // It gives its seat up, if it still has it, and looks again.
            let woken = self.seats.lie_down(me);
            self.rouse(woken);
            let mine = me == 0 && self.pinned.load(Relaxed) > 0;
            let more = mine || self.work.load(Relaxed) > 0 || self.stop.load(Relaxed) != 0;
            if more && mistake != BLIND && self.seats.get_up(me, mine && mistake != HOSTAGE) {
                continue;
            }
            self.seats.sleep(me);
        }
    }
}

/// Carriers do published work while a sentinel takes the seat of the first. No work is left, and no seat
/// is lost
/// or made.
pub fn seats<M: Machine + Fences, const MISTAKE: u32>(carriers: u32, granted: u32, pieces: u32) {
    let program = Arc::new(Program::<M> {
        seats: Seats::new(granted, carriers as usize + 1),
        work: Atomic::new(0),
        done: Atomic::new(0),
        stop: Atomic::new(0),
        pinned: Atomic::new(0),
    });
    let ours = program.clone();
    together::<M>(carriers + 1, move |index| {
        let it = &*ours;
        if index != 0 {
            return it.carry(index - 1, MISTAKE);
        }
        for piece in 0..pieces {
            if piece % 2 == 0 && carriers > 1 {
                it.pinned.fetch_add(1, Release);
                if it.seats.kick(0) {
                    it.rouse(Some(0));
                }
            } else {
                it.work.fetch_add(1, Release);
                it.invite();
            }
            if piece == 0 {
                // The upcall: the first carrier has blocked, says the kernel, right or wrong.
                let taken = match MISTAKE {
                    TWICE => it.seats.holds(0),
                    _ => it.seats.take(0),
                };
                if taken && MISTAKE != FORGOTTEN {
                    it.rouse(it.seats.surrender());
                    if it.work.load(Relaxed) > 0 {
                        it.invite();
                    }
                }
            }
        }
        while it.done.load(Relaxed) < pieces {
            M::pause();
        }
        it.stop.store(1, Relaxed);
        // Seats for all, so that all hear of it.
        it.seats.grant(granted + carriers, |carrier| it.seats.wake(carrier));
        for _ in 0..carriers {
            it.invite();
        }
    });
    let (free, held) = program.seats.count();
    assert_eq!(free + held, granted + carriers, "a seat was lost or made");
}
