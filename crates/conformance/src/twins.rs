// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks with one mistake each. A checker that lets one of them pass is itself broken.

use std::marker::PhantomData;
use std::ptr;

use platform::{Atomic, AtomicInt, Ordering::*, Platform, ThreadId, Wish};
use sync::mutex::RawMutex;

/// Another lock, released twice each time.
pub struct ReleasesTwice<L>(L);

impl<P: Platform, L: RawMutex<P>> RawMutex<P> for ReleasesTwice<L> {
    type Node = L::Node;

    fn new() -> Self {
        Self(L::new())
    }
    unsafe fn lock(&self, node: &L::Node) {
        // SAFETY: as the caller promised.
        unsafe { self.0.lock(node) };
    }
    unsafe fn try_lock(&self, node: &L::Node) -> bool {
        // SAFETY: as the caller promised.
        unsafe { self.0.try_lock(node) }
    }
    unsafe fn unlock(&self, node: &L::Node) {
        // SAFETY: the second is the mistake.
        unsafe {
            self.0.unlock(node);
            self.0.unlock(node);
        }
    }
}

macro_rules! word_twin {
    ($(#[$doc:meta])* $name:ident, [$($field:ident)*], lock($lock:ident) $body:block, unlock($unlock:ident) $unbody:block) => {
        $(#[$doc])*
        pub struct $name<P: Platform> {
            $($field: P::AtomicU32,)*
            platform: PhantomData<P>,
        }

        impl<P: Platform> RawMutex<P> for $name<P> {
            type Node = ();

            fn new() -> Self {
                Self { $($field: Atomic::new(0),)* platform: PhantomData }
            }
            unsafe fn lock(&self, _: &()) {
                let $lock = self;
                $body
            }
            unsafe fn try_lock(&self, node: &()) -> bool {
                // SAFETY: nobody else is there when the tests try this one.
                unsafe { self.lock(node) };
                true
            }
            unsafe fn unlock(&self, _: &()) {
                let $unlock = self;
                $unbody
            }
        }
    };
}

word_twin! {
    /// Tests, and then sets: `tas-b` without the atomic instruction.
    TestThenSet, [word],
    lock(this) {
        while this.word.load(Acquire) != 0 {
            P::pause();
        }
        this.word.store(1, Relaxed);
    },
    unlock(this) { this.word.store(0, Release) }
}

word_twin! {
    /// `hardware` without locked lines, which does not look at what its test_and_set has found.
    TakesWhatItFinds, [word],
    lock(this) {
        while this.word.load(Relaxed) != 0 {
            P::pause();
        }
        this.word.swap(1, Acquire);
    },
    unlock(this) { this.word.store(0, Release) }
}

word_twin! {
    /// `ticket` that serves the next before it is done.
    ServesEarly, [next serving],
    lock(this) {
        let ticket = this.next.fetch_add(1, Relaxed);
        while this.serving.load(Acquire) != ticket {
            P::pause();
        }
        this.serving.store(ticket + 1, Release);
    },
    unlock(_this) {}
}

word_twin! {
    /// `ttas-competitive` that falls asleep, its patience at an end, without leaving a mark.
    SleepsUnmarked, [word],
    lock(this) {
        let mut looks = 0;
        while this.word.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            looks += 1;
            if looks > 1 {
                P::wait(&this.word, 1, None);
            }
        }
    },
    unlock(this) {
        if this.word.swap(0, Release) == 2 {
            P::wake(&this.word, 1);
        }
    }
}

word_twin! {
    /// `array-queue` with a flag for each slot, and a slot less than there are threads.
    Overruns, [next serving first second],
    lock(this) {
        let ticket = this.next.fetch_add(1, Relaxed);
        // The first slot is free at the start.
        if ticket == 0 {
            return;
        }
        let slot = [&this.first, &this.second][ticket as usize % 2];
        while slot.load(Acquire) == 0 {
            P::pause();
        }
        slot.store(0, Relaxed);
    },
    unlock(this) {
        let next = this.serving.fetch_add(1, Relaxed) + 1;
        [&this.first, &this.second][next as usize % 2].store(1, Release);
    }
}

word_twin! {
    /// `ticket-np` that serves the next, out of patience, without taking the grant back.
    ServesOnWithoutTakingBack, [next serving],
    lock(this) {
        let ticket = this.next.fetch_add(1, Relaxed);
        while this.serving.load(Acquire) < ticket {
            P::pause();
        }
    },
    unlock(this) {
        let ticket = this.serving.load(Relaxed) + 1;
        this.serving.store(ticket, Release);
        P::pause();
        if this.next.load(Relaxed) > ticket + 1 {
            this.serving.store(ticket + 1, Release);
        }
    }
}

word_twin! {
    /// `tas-b-np` that forgets to withdraw its wish.
    ForgetsItsWish, [word],
    lock(this) {
        let me = P::register();
        P::set_wish(me, Wish::UnpreemptableSelf);
        while this.word.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            P::pause();
        }
    },
    unlock(this) { this.word.store(0, Release) }
}

word_twin! {
    /// `native` whose woken sleeper forgets that others may sleep still.
    ForgetsSleepers, [word],
    lock(this) {
        while this.word.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            if this.word.load(Relaxed) == 2 || this.word.compare_exchange(1, 2, Relaxed, Relaxed).is_ok() {
                P::wait(&this.word, 2, None);
            }
        }
    },
    unlock(this) {
        if this.word.swap(0, Release) == 2 {
            P::wake(&this.word, 1);
        }
    }
}

/// The node of the queue locks below. It is never freed: a mistake in the order of threads shall not become
/// one of memory.
pub struct Node<P: Platform>(&'static Place<P>);

struct Place<P: Platform> {
    next: P::AtomicPtr<Place<P>>,
    status: P::AtomicU32,
    thread: P::AtomicU32,
}

impl<P: Platform> Default for Node<P> {
    fn default() -> Self {
        Self(Box::leak(Box::new(Place {
            next: Atomic::new(ptr::null_mut()),
            status: Atomic::new(0),
            thread: Atomic::new(0),
        })))
    }
}

impl<P: Platform> Place<P> {
    fn enter(&self, tail: &P::AtomicPtr<Self>) -> *mut Self {
        self.next.store(ptr::null_mut(), Relaxed);
        self.thread.store(P::register().0, Relaxed);
        self.status.store(0, Relaxed);
        tail.swap(ptr::from_ref(self).cast_mut(), AcqRel)
    }
}

/// `mcs` whose release does not wait for a successor that is about to link itself.
pub struct LeavesNext<P: Platform>(P::AtomicPtr<Place<P>>);

impl<P: Platform> RawMutex<P> for LeavesNext<P> {
    type Node = Node<P>;

    fn new() -> Self {
        Self(Atomic::new(ptr::null_mut()))
    }
    unsafe fn lock(&self, Node(node): &Node<P>) {
        let before = node.enter(&self.0);
        if !before.is_null() {
            // SAFETY: nodes are never freed.
            unsafe { (*before).next.store(ptr::from_ref(*node).cast_mut(), Release) };
            while node.status.load(Acquire) == 0 {
                P::pause();
            }
        }
    }
    unsafe fn try_lock(&self, node: &Node<P>) -> bool {
        // SAFETY: nobody else is there when the tests try this one.
        unsafe { self.lock(node) };
        true
    }
    unsafe fn unlock(&self, Node(node): &Node<P>) {
        let next = node.next.load(Acquire);
        if !next.is_null() {
            // SAFETY: it waits for us.
            unsafe { (*next).status.store(1, Release) };
        } else {
            let _ =
                self.0.compare_exchange(ptr::from_ref(*node).cast_mut(), ptr::null_mut(), Release, Relaxed);
        }
    }
}

/// `smart-q` as figure 3 of the TR prints it: a passed-over thread may use its node again while it is still
/// the tail.
pub struct SmartQAsPrinted<P: Platform>(P::AtomicPtr<Place<P>>);

impl<P: Platform> RawMutex<P> for SmartQAsPrinted<P> {
    type Node = Node<P>;

    fn new() -> Self {
        Self(Atomic::new(ptr::null_mut()))
    }
    unsafe fn lock(&self, Node(node): &Node<P>) {
        loop {
            let before = node.enter(&self.0);
            if before.is_null() {
                return;
            }
            // SAFETY: nodes are never freed.
            unsafe { (*before).next.store(ptr::from_ref(*node).cast_mut(), Release) };
            loop {
                match node.status.load(Acquire) {
                    0 => P::pause(),
                    1 => return,
                    _ => break,
                }
            }
        }
    }
    unsafe fn try_lock(&self, node: &Node<P>) -> bool {
        // SAFETY: nobody else is there when the tests try this one.
        unsafe { self.lock(node) };
        true
    }
    unsafe fn unlock(&self, Node(node): &Node<P>) {
        let mut shadow = *node;
        let mut candidate = shadow.next.load(Acquire);
        loop {
            if candidate.is_null() {
                let tail = ptr::from_ref(shadow).cast_mut();
                if self.0.compare_exchange(tail, ptr::null_mut(), Release, Relaxed).is_ok() {
                    return;
                }
                while candidate.is_null() {
                    P::pause();
                    candidate = shadow.next.load(Acquire);
                }
            }
            // SAFETY: it waits for us.
            let waiter = unsafe { &*candidate };
            let thread = ThreadId(waiter.thread.load(Relaxed));
            if P::run_state(thread) != platform::RunState::Preempted {
                waiter.status.store(1, Release);
                return;
            }
            shadow = waiter;
            candidate = shadow.next.load(Acquire);
            shadow.status.store(2, Release);
        }
    }
}

/// `queue-hs` whose releaser goes on to the next in line, out of patience, without taking the grant back:
/// two swaps too few.
pub struct QueueHsWithoutRescind<P: Platform>(P::AtomicPtr<Place<P>>);

impl<P: Platform> RawMutex<P> for QueueHsWithoutRescind<P> {
    type Node = Node<P>;

    fn new() -> Self {
        Self(Atomic::new(ptr::null_mut()))
    }
    unsafe fn lock(&self, Node(node): &Node<P>) {
        loop {
            let before = node.enter(&self.0);
            if before.is_null() {
                return;
            }
            // SAFETY: nodes are never freed.
            unsafe { (*before).next.store(ptr::from_ref(*node).cast_mut(), Release) };
            loop {
                match node.status.load(Acquire) {
                    0 => P::pause(),
                    1 => {
                        node.status.store(3, Relaxed);
                        return;
                    }
                    _ => break,
                }
            }
        }
    }
    unsafe fn try_lock(&self, node: &Node<P>) -> bool {
        // SAFETY: nobody else is there when the tests try this one.
        unsafe { self.lock(node) };
        true
    }
    unsafe fn unlock(&self, Node(node): &Node<P>) {
        let mut last = *node;
        loop {
            let tail = ptr::from_ref(last).cast_mut();
            let mut next = last.next.load(Acquire);
            if next.is_null() && self.0.compare_exchange(tail, ptr::null_mut(), Release, Relaxed).is_ok() {
                return;
            }
            while next.is_null() {
                P::pause();
                next = last.next.load(Acquire);
            }
            // SAFETY: nodes are never freed.
            let candidate = unsafe { &*next };
            candidate.status.store(1, Release);
            P::pause();
            if candidate.status.load(Relaxed) == 3 {
                return;
            }
            candidate.status.store(2, Release);
            last = candidate;
        }
    }
}
