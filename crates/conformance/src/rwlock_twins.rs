// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reader-writer locks with one mistake each. A checker that lets one of them pass is itself broken.

use std::marker::PhantomData;
use std::ptr;

use platform::{Atomic, AtomicInt, Deadline, Ordering::*, Platform, Readers, RunState, ThreadId};
use sync::mutex::{self, RawMutex};
use sync::rwlock::{RawRwLock, RawRwLockTimed, RawRwLockUpgrade, Wakeful};

/// A mutex in place of a reader-writer lock: readers keep one another out.
pub struct Mutual<P: Platform>(mutex::Native<P>);

impl<P: Platform> RawRwLock<P> for Mutual<P> {
    type Node = ();

    fn new() -> Self {
        Self(mutex::Native::new())
    }
    unsafe fn read(&self, node: &()) {
        // SAFETY: as the caller promised, here and below.
        unsafe { self.0.lock(node) };
    }
    unsafe fn try_read(&self, node: &()) -> bool {
        // SAFETY: see above.
        unsafe { self.0.try_lock(node) }
    }
    unsafe fn unlock_read(&self, node: &()) {
        // SAFETY: see above.
        unsafe { self.0.unlock(node) };
    }
    unsafe fn write(&self, node: &()) {
        // SAFETY: see above.
        unsafe { self.0.lock(node) };
    }
    unsafe fn try_write(&self, node: &()) -> bool {
        // SAFETY: see above.
        unsafe { self.0.try_lock(node) }
    }
    unsafe fn unlock_write(&self, node: &()) {
        // SAFETY: see above.
        unsafe { self.0.unlock(node) };
    }
}

/// `rw-hardware` whose readers unlock the gate before they count themselves.
pub struct CountsLate<P: Platform> {
    gate: mutex::Hardware<P>,
    readers: P::AtomicU32,
}

impl<P: Platform> CountsLate<P> {
    fn is_empty(&self) -> bool {
        self.readers.load(Acquire) == 0
    }
}

impl<P: Platform> RawRwLock<P> for CountsLate<P> {
    type Node = ();

    fn new() -> Self {
        Self { gate: mutex::Hardware::new(), readers: Atomic::new(0) }
    }
    unsafe fn read(&self, node: &()) {
        // SAFETY: as the caller promised, here and below.
        unsafe { self.gate.lock(node) };
        // SAFETY: just locked.
        unsafe { self.gate.unlock(node) };
        self.readers.fetch_add(1, Relaxed);
    }
    unsafe fn try_read(&self, node: &()) -> bool {
        // SAFETY: nobody else is there when the tests try this one.
        unsafe { self.read(node) };
        true
    }
    unsafe fn unlock_read(&self, _: &()) {
        self.readers.fetch_sub(1, Release);
    }
    unsafe fn write(&self, node: &()) {
        // SAFETY: see above.
        unsafe { self.gate.lock(node) };
        while !self.is_empty() {
            P::pause();
        }
    }
    unsafe fn try_write(&self, node: &()) -> bool {
        // SAFETY: see above.
        unsafe { self.write(node) };
        true
    }
    unsafe fn unlock_write(&self, node: &()) {
        // SAFETY: see above.
        unsafe { self.gate.unlock(node) };
    }
}

const WRITER: u32 = 1;
const SLEEPERS: u32 = 2;
const READER: u32 = 4;

macro_rules! word_twin {
    ($(#[$doc:meta])* $name:ident, read($read:ident) $body:block, unlock_read($unread:ident) $unbody:block,
     write($write:ident) $wbody:block, unlock_write($unwrite:ident) $unwbody:block) => {
        $(#[$doc])*
        pub struct $name<P: Platform> {
            word: P::AtomicU32,
            platform: PhantomData<P>,
        }

        impl<P: Platform> RawRwLock<P> for $name<P> {
            type Node = ();

            fn new() -> Self {
                Self { word: Atomic::new(0), platform: PhantomData }
            }
            unsafe fn read(&self, _: &()) {
                let $read = self;
                $body
            }
            unsafe fn try_read(&self, node: &()) -> bool {
                // SAFETY: nobody else is there when the tests try this one.
                unsafe { self.read(node) };
                true
            }
            unsafe fn unlock_read(&self, _: &()) {
                let $unread = self;
                $unbody
            }
            unsafe fn write(&self, _: &()) {
                let $write = self;
                $wbody
            }
            unsafe fn try_write(&self, node: &()) -> bool {
                // SAFETY: nobody else is there when the tests try this one.
                unsafe { self.write(node) };
                true
            }
            unsafe fn unlock_write(&self, _: &()) {
                let $unwrite = self;
                $unwbody
            }
        }
    };
}

word_twin! {
    /// `rw-tas-b` that loses a reader when two come at once.
    LosesReader,
    read(this) {
        loop {
            let word = this.word.load(Acquire);
            if word & WRITER == 0 {
                // The mistake: a load and a store where one step is needed; a writer that came in between
                // stays.
                if this.word.compare_exchange(word, word, Acquire, Relaxed).is_ok() {
                    this.word.store(word + READER, Relaxed);
                    return;
                }
            }
            P::pause();
        }
    },
    unlock_read(this) { this.word.fetch_sub(READER, Release); },
    write(this) {
        while this.word.compare_exchange(0, WRITER, Acquire, Relaxed).is_err() {
            P::pause();
        }
    },
    unlock_write(this) { this.word.fetch_sub(WRITER, Release); }
}

word_twin! {
    /// `rw-tas-b` whose writer looks for writers only.
    LetsWriterIn,
    read(this) {
        loop {
            let word = this.word.load(Relaxed);
            if word & WRITER == 0 && this.word.compare_exchange(word, word + READER, Acquire, Relaxed).is_ok() {
                return;
            }
            P::pause();
        }
    },
    unlock_read(this) { this.word.fetch_sub(READER, Release); },
    write(this) {
        loop {
            let word = this.word.load(Relaxed);
            if word & WRITER == 0 && this.word.compare_exchange(word, word | WRITER, Acquire, Relaxed).is_ok() {
                return;
            }
            P::pause();
        }
    },
    unlock_write(this) { this.word.fetch_sub(WRITER, Release); }
}

word_twin! {
    /// `rw-native` whose last reader forgets the sleepers.
    ForgetsSleepers,
    read(this) {
        loop {
            let word = this.word.load(Relaxed);
            if word & WRITER == 0 {
                if this.word.compare_exchange(word, word + READER, Acquire, Relaxed).is_ok() {
                    return;
                }
            } else if this.word.compare_exchange(word, word | SLEEPERS, Relaxed, Relaxed).is_ok() {
                P::wait(&this.word, word | SLEEPERS, None);
            }
        }
    },
    unlock_read(this) { this.word.fetch_sub(READER, Release); },
    write(this) {
        loop {
            let word = this.word.load(Relaxed);
            if word & !SLEEPERS == 0 {
                if this.word.compare_exchange(word, word | WRITER, Acquire, Relaxed).is_ok() {
                    return;
                }
            } else if this.word.compare_exchange(word, word | SLEEPERS, Relaxed, Relaxed).is_ok() {
                P::wait(&this.word, word | SLEEPERS, None);
            }
        }
    },
    unlock_write(this) {
        if this.word.fetch_and(!(WRITER | SLEEPERS), Release) & SLEEPERS != 0 {
            P::wake(&this.word, u32::MAX);
        }
    }
}

/// Readers who wait are counted, as the members of `rw-wakeful` (A7), and go in when the turn word changes.
pub struct GoesByTurn<P: Platform> {
    word: P::AtomicU32,
    turn: P::AtomicU32,
}

impl<P: Platform> RawRwLock<P> for GoesByTurn<P> {
    type Node = ();

    fn new() -> Self {
        Self { word: Atomic::new(0), turn: Atomic::new(0) }
    }
    unsafe fn read(&self, _: &()) {
        if self.word.fetch_add(READER, Acquire) & WRITER == 0 {
            return;
        }
        let turn = self.turn.load(Relaxed);
        while self.word.load(Acquire) & WRITER != 0 {
            // The mistake: the change may be the late one of the writer before.
            if self.turn.load(Acquire) != turn {
                return;
            }
            P::pause();
        }
    }
    unsafe fn try_read(&self, node: &()) -> bool {
        // SAFETY: nobody else is there when the tests try this one.
        unsafe { self.read(node) };
        true
    }
    unsafe fn unlock_read(&self, _: &()) {
        self.word.fetch_sub(READER, Release);
    }
    unsafe fn write(&self, _: &()) {
        while self.word.compare_exchange(0, WRITER, Acquire, Relaxed).is_err() {
            P::pause();
        }
    }
    unsafe fn try_write(&self, node: &()) -> bool {
        // SAFETY: nobody else is there when the tests try this one.
        unsafe { self.write(node) };
        true
    }
    unsafe fn unlock_write(&self, _: &()) {
        self.word.fetch_sub(WRITER, Release);
        self.turn.fetch_add(1, Release);
    }
}

/// The default, with an upgrade that lets go in between; or with writers that tell for ever.
pub struct Altered<P: Platform, const TELLS: bool>(Wakeful<P>);

/// The default, with an upgrade that lets go in between.
pub type LetsGo<P> = Altered<P, false>;
/// The default, with writers that tell, and never untell.
pub type TellsForEver<P> = Altered<P, true>;

impl<P: Readers, const TELLS: bool> RawRwLock<P> for Altered<P, TELLS> {
    type Node = ();

    fn new() -> Self {
        Self(Wakeful::new())
    }
    unsafe fn read(&self, node: &()) {
        // SAFETY: as the caller promised, here and below.
        unsafe { self.0.read(node) };
    }
    unsafe fn try_read(&self, node: &()) -> bool {
        // SAFETY: see above.
        unsafe { self.0.try_read(node) }
    }
    unsafe fn unlock_read(&self, node: &()) {
        // SAFETY: see above.
        unsafe { self.0.unlock_read(node) };
    }
    unsafe fn write(&self, node: &()) {
        // SAFETY: see above.
        unsafe { self.0.write(node) };
    }
    unsafe fn try_write(&self, node: &()) -> bool {
        // SAFETY: see above.
        unsafe { self.0.try_write(node) }
    }
    unsafe fn unlock_write(&self, node: &()) {
        if TELLS {
            sync::wait::publish::entered::<P>();
        }
        // SAFETY: see above.
        unsafe { self.0.unlock_write(node) };
    }
}

impl<P: Readers> RawRwLockTimed<P> for LetsGo<P> {
    unsafe fn read_until(&self, node: &(), deadline: Deadline) -> bool {
        // SAFETY: as the caller promised.
        unsafe { self.0.read_until(node, deadline) }
    }
    unsafe fn write_until(&self, node: &(), deadline: Deadline) -> bool {
        // SAFETY: as the caller promised.
        unsafe { self.0.write_until(node, deadline) }
    }
}

impl<P: Readers> RawRwLockUpgrade<P> for LetsGo<P> {
    fn upgradable(&self) {
        self.0.upgradable();
    }
    fn try_upgradable(&self) -> bool {
        self.0.try_upgradable()
    }
    fn upgradable_until(&self, deadline: Deadline) -> bool {
        self.0.upgradable_until(deadline)
    }
    unsafe fn unlock_upgradable(&self) {
        // SAFETY: as the caller promised, here and below.
        unsafe { self.0.unlock_upgradable() };
    }
    unsafe fn upgrade(&self) {
        // SAFETY: the mistake.
        unsafe {
            self.0.unlock_upgradable();
            self.0.write(&());
        }
    }
    unsafe fn try_upgrade(&self) -> bool {
        // SAFETY: see above.
        unsafe { self.0.try_upgrade() }
    }
    unsafe fn upgrade_until(&self, deadline: Deadline) -> bool {
        // SAFETY: see above.
        unsafe { self.0.upgrade_until(deadline) }
    }
    unsafe fn downgrade(&self) {
        // SAFETY: see above.
        unsafe { self.0.downgrade() };
    }
    unsafe fn downgrade_to_upgradable(&self) {
        // SAFETY: see above.
        unsafe { self.0.downgrade_to_upgradable() };
    }
    unsafe fn downgrade_upgradable(&self) {
        // SAFETY: see above.
        unsafe { self.0.downgrade_upgradable() };
    }
}

/// The node of [`SmartQAsPrinted`]. It is never freed: a mistake in the order of threads shall not become
/// one of memory.
pub struct Node<P: Platform>(&'static Place<P>);

struct Place<P: Platform> {
    next: P::AtomicPtr<Place<P>>,
    prev: P::AtomicPtr<Place<P>>,
    state: P::AtomicU32,
    spin_flag: P::AtomicU32,
    exc_lock: P::AtomicU32,
    thread: P::AtomicU32,
}

impl<P: Platform> Default for Node<P> {
    fn default() -> Self {
        Self(Box::leak(Box::new(Place {
            next: Atomic::new(ptr::null_mut()),
            prev: Atomic::new(ptr::null_mut()),
            state: Atomic::new(0),
            spin_flag: Atomic::new(0),
            exc_lock: Atomic::new(0),
            thread: Atomic::new(0),
        })))
    }
}

impl<P: Platform> Place<P> {
    fn address(&self) -> *mut Self {
        ptr::from_ref(self).cast_mut()
    }
    fn try_exc(&self) -> bool {
        self.exc_lock.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }
    fn exc(&self) {
        while !self.try_exc() {
            P::pause();
        }
    }
    fn unexc(&self) {
        self.exc_lock.store(0, Release);
    }
    /// `compare_and_store` on the thread's context block.
    fn fit(&self) -> bool {
        P::run_state(ThreadId(self.thread.load(Relaxed))) != RunState::Preempted
    }
    fn next(&self) -> &'static Self {
        loop {
            let next = self.next.load(Acquire);
            if !next.is_null() {
                // SAFETY: nodes are never freed.
                return unsafe { &*next };
            }
            P::pause();
        }
    }
}

/// `rw-smart-q` as figures 5 to 7 of the TR print it.
pub struct SmartQAsPrinted<P: Platform>(P::AtomicPtr<Place<P>>);

const READS: u32 = 0;
const ACTIVE: u32 = 1;
const WRITES: u32 = 2;

impl<P: Platform> SmartQAsPrinted<P> {
    fn cas(&self, from: &Place<P>, to: *mut Place<P>) -> bool {
        self.0.compare_exchange(from.address(), to, AcqRel, Relaxed).is_ok()
    }
}

impl<P: Platform> RawRwLock<P> for SmartQAsPrinted<P> {
    type Node = Node<P>;

    fn new() -> Self {
        Self(Atomic::new(ptr::null_mut()))
    }

    /// Figure 5, `writer_lock`.
    unsafe fn write(&self, Node(node): &Node<P>) {
        node.thread.store(P::register().0, Relaxed);
        loop {
            node.state.store(WRITES, Relaxed);
            node.spin_flag.store(0, Relaxed);
            node.next.store(ptr::null_mut(), Relaxed);
            let before = self.0.swap(node.address(), AcqRel);
            if before.is_null() {
                return;
            }
            // SAFETY: nodes are never freed.
            unsafe { (*before).next.store(node.address(), Release) };
            loop {
                match node.spin_flag.load(Acquire) {
                    0 => P::pause(),
                    1 => return,
                    _ => break,
                }
            }
        }
    }

    /// Figure 5, `writer_unlock`.
    unsafe fn unlock_write(&self, Node(node): &Node<P>) {
        let mut shadow: &Place<P> = node;
        let mut candidate = shadow.next.load(Acquire);
        loop {
            if candidate.is_null() {
                if self.cas(shadow, ptr::null_mut()) {
                    return;
                }
                candidate = shadow.next().address();
            }
            // SAFETY: nodes are never freed.
            let waiter = unsafe { &*candidate };
            if waiter.fit() {
                waiter.prev.store(ptr::null_mut(), Relaxed);
                waiter.spin_flag.store(1, Release);
                return;
            }
            shadow = waiter;
            candidate = shadow.next.load(Acquire);
            shadow.spin_flag.store(2, Release);
        }
    }

    /// Figure 6.
    unsafe fn read(&self, Node(node): &Node<P>) {
        node.thread.store(P::register().0, Relaxed);
        node.exc();
        'queue: loop {
            node.next.store(ptr::null_mut(), Relaxed);
            node.prev.store(ptr::null_mut(), Relaxed);
            node.state.store(READS, Relaxed);
            node.spin_flag.store(0, Relaxed);
            let before = self.0.swap(node.address(), AcqRel);
            if before.is_null() {
                break;
            }
            node.prev.store(before, Relaxed);
            // SAFETY: nodes are never freed.
            let before = unsafe { &*before };
            before.next.store(node.address(), Release);
            if before.state.load(Acquire) == ACTIVE {
                break;
            }
            loop {
                match node.spin_flag.load(Acquire) {
                    0 => P::pause(),
                    1 => break 'queue,
                    _ => break,
                }
            }
        }
        node.state.store(ACTIVE, Release);
        let mut candidate = node.next.load(Acquire);
        // SAFETY: nodes are never freed.
        while let Some(waiter) = unsafe { candidate.as_ref() } {
            if waiter.state.load(Relaxed) != READS {
                break;
            }
            if waiter.fit() {
                waiter.spin_flag.store(1, Release);
                break;
            }
            if waiter.next.load(Acquire).is_null() {
                node.next.store(ptr::null_mut(), Relaxed);
                if self.cas(waiter, node.address()) {
                    waiter.spin_flag.store(2, Release);
                    break;
                }
            }
            let next = waiter.next();
            node.next.store(next.address(), Relaxed);
            next.prev.store(node.address(), Relaxed);
            waiter.spin_flag.store(2, Release);
            candidate = next.address();
        }
        node.unexc();
    }

    /// Figure 7.
    unsafe fn unlock_read(&self, Node(node): &Node<P>) {
        loop {
            let before = node.prev.load(Acquire);
            // SAFETY: nodes are never freed.
            let Some(before) = (unsafe { before.as_ref() }) else { break };
            if !before.try_exc() {
                P::pause();
                continue;
            }
            if before.address() != node.prev.load(Acquire) {
                before.unexc();
                continue;
            }
            node.exc();
            before.next.store(ptr::null_mut(), Relaxed);
            if !node.next.load(Acquire).is_null() || !self.cas(node, before.address()) {
                let next = node.next();
                next.prev.store(before.address(), Release);
                before.next.store(next.address(), Release);
            }
            before.unexc();
            node.unexc();
            return;
        }
        node.exc();
        loop {
            let candidate = node.next.load(Acquire);
            if candidate.is_null() {
                if self.cas(node, ptr::null_mut()) {
                    break;
                }
                node.next();
                continue;
            }
            // SAFETY: nodes are never freed.
            let waiter = unsafe { &*candidate };
            if waiter.fit() {
                waiter.prev.store(ptr::null_mut(), Release);
                waiter.spin_flag.store(1, Release);
                break;
            }
            if waiter.next.load(Acquire).is_null() && self.cas(waiter, ptr::null_mut()) {
                waiter.spin_flag.store(2, Release);
                break;
            }
            let next = waiter.next();
            node.next.store(next.address(), Relaxed);
            next.prev.store(node.address(), Relaxed);
            waiter.spin_flag.store(2, Release);
        }
        node.unexc();
    }

    unsafe fn try_read(&self, node: &Node<P>) -> bool {
        // SAFETY: nobody else is there when the tests try this one.
        unsafe { self.read(node) };
        true
    }

    unsafe fn try_write(&self, node: &Node<P>) -> bool {
        // SAFETY: nobody else is there when the tests try this one.
        unsafe { self.write(node) };
        true
    }
}
