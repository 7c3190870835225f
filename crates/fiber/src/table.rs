// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where fibers sleep on words: a futex of their own.
//!
//! A fiber that waits parks; its carrier takes another one. A kernel thread that is no carrier, and a fiber
//! that unwinds, may wait here as well: those sleep in the kernel. Guests (`guests.rs`) have a table of their
//! own, as signal handlers may wake them (`posts.rs`).
//!
//! # State
//! Buckets by address. Each has a lock (`bolt.rs`) and a list of places, oldest first. A place lies on its
//! waiter's stack. The word of a condition variable counts its waiters who are in the list, or more in a
//! forked child. It is changed under the bucket's lock only.
//!
//! # Protocol
//! - F1. Wait: take the lock; if the word is not as expected leave; join the list; drop the lock; park until
//!   the place is woken. F2. On a deadline: take the lock; who is still in the list leaves it.
//! - F3. Wake: take the lock; move the oldest with this address out; mark it woken; drop the lock; nudge.
//!   Those whose carrier is not blocked come first: who gets a lock's wake-up must run to pass it on.
//! - C1. Wait for a condition, with the user's mutex: take the lock; join the list; count; drop the lock. C2.
//!   Release the mutex; park until the place is woken, F2. C3. Who leaves the list by F2 counts itself out.
//! - C4. Signal: if somebody is counted, F3, and count it out. If nobody is in the list the count is 0. C5.
//!   Broadcast: as often as the count said at first, the oldest first. After a wake-up the variable may be
//!   gone. So it writes the count only where it finds a waiter.
//!
//! # Memory order
//! Who wakes changed the word before F3; who waits reads it under the lock. So it sees the change, or F3 sees
//! it in the list. `woken` is stored with release and read with acquire. The next holder of the mutex sees
//! the count of C1. Those that C5 must wake are the oldest, and counted at first.
//!
//! # Under the scheduler
//! A holder of a bucket's lock that loses its processor keeps others of this bucket waiting, also those of
//! unrelated words. A fiber of `Priority::Low` may lose it to any usual thread, and for long. Usual carriers
//! that meet it there block in the kernel meanwhile.
//!
//! # Rejected
//! `sync::condvar::Wakeful` for fibers: it counts by a locked instruction for each wait and two for each
//! signal. That bounds wake-ups, which need no bound here.
//!
//! # Checked by
//! `conformance`: C1, C2, C4 and C5 by a model without deadlines, loom and shuttle; twins that join, or
//! count, after the mutex' release are caught.

use core::cell::{Cell, UnsafeCell};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering::*};

use linux::{Kernel, Linux};
use platform::{Clock, Deadline, Platform, Wait};

use crate::bolt::Bolt;
use crate::cancel::is_due;
use crate::carrier::{self, switch};
use crate::forks::Forget;
use crate::guests::GUESTS;
use crate::posts;
use crate::record::{Fiber, Why};

const BUCKETS: usize = 1024;
/// Who wakes passes over so many that cannot run, at most: the others of the bucket wait meanwhile.
const PASSED: u32 = 64;

struct Place {
    key: usize,
    /// Null: a kernel thread.
    fiber: *mut Fiber,
    woken: AtomicU32,
    listed: Cell<bool>,
    older: Cell<*const Place>,
    newer: Cell<*const Place>,
}

struct Ends {
    oldest: *const Place,
    newest: *const Place,
}

#[repr(align(64))]
struct Bucket {
    /// In a cell: a forked child replaces it.
    lock: UnsafeCell<Bolt<Kernel>>,
    ends: UnsafeCell<Ends>,
}

// SAFETY: the list is used under the lock, which is replaced where there is one thread.
unsafe impl Sync for Bucket {}

type Table = [Bucket; BUCKETS];

/// Nobody waits.
const fn empty() -> Bucket {
    Bucket { lock: UnsafeCell::new(Bolt::INIT), ends: UnsafeCell::new(Ends::EMPTY) }
}

static TABLE: Table = [const { empty() }; BUCKETS];
static OF_GUESTS: Table = [const { empty() }; BUCKETS];

/// There may be no runtime.
static FORGET: Forget = Forget::by(after_fork);

/// The one thread of a forked child does not wait: nobody holds a lock, and nobody is in a list.
extern "C" fn after_fork() {
    GUESTS.forget();
    for bucket in TABLE.iter().chain(&OF_GUESTS) {
        // SAFETY: nobody else is there. What is as it was stays shared with the parent.
        unsafe {
            let lock = bucket.lock.get();
            let ends = &mut *bucket.ends.get();
            if !(*lock).is_free() || !ends.oldest.is_null() || !ends.newest.is_null() {
                *ends = Ends::EMPTY;
                *lock = Bolt::INIT;
            }
        }
    }
}

#[inline]
fn bucket<const GUEST: bool>(key: usize) -> &'static Bucket {
    FORGET.prepare();
    let hash = (key as u64 >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let table = if GUEST { &OF_GUESTS } else { &TABLE };
    &table[hash as usize % BUCKETS]
}

impl Bucket {
    #[inline]
    fn locked<T, const GUEST: bool>(&self, body: impl FnOnce(&mut Ends) -> T) -> T {
        if GUEST { posts::busy(|| self.alone(body)) } else { self.alone(body) }
    }

    #[inline]
    fn alone<T>(&self, body: impl FnOnce(&mut Ends) -> T) -> T {
        // SAFETY: the list is ours under the lock, and `body` does not come back here.
        unsafe { (*self.lock.get()).locked(|| body(&mut *self.ends.get())) }
    }
}

impl Ends {
    const EMPTY: Self = Self { oldest: core::ptr::null(), newest: core::ptr::null() };

    fn join(&mut self, place: &Place) {
        place.older.set(self.newest);
        place.listed.set(true);
        // SAFETY: what is in the list lives until it has left it.
        match unsafe { self.newest.as_ref() } {
            Some(newest) => newest.newer.set(place),
            None => self.oldest = place,
        }
        self.newest = place;
    }

    fn leave(&mut self, place: &Place) {
        let (older, newer) = (place.older.get(), place.newer.get());
        place.listed.set(false);
        // SAFETY: as in `join`.
        unsafe {
            match older.as_ref() {
                Some(older) => older.newer.set(newer),
                None => self.oldest = newer,
            }
            match newer.as_ref() {
                Some(newer) => newer.older.set(older),
                None => self.newest = older,
            }
        }
    }
}

impl Ends {
    /// The oldest with this address.
    fn first(&self, key: usize) -> Option<&Place> {
        // SAFETY: what is in the list lives until it has left it.
        let at = |place: *const Place| unsafe { place.as_ref() };
        core::iter::successors(at(self.oldest), |place| at(place.newer.get())).find(|place| place.key == key)
    }

    /// F3. Who is to be woken with this address: the oldest who can run, if one of the first few can.
    fn find(&self, key: usize) -> Option<&Place> {
        let (mut oldest, mut passed) = (None, 0);
        // SAFETY: what is in the list lives until it has left it.
        let mut next = unsafe { self.oldest.as_ref() };
        while let Some(place) = next {
            if place.key == key {
                if place.can_run() {
                    return Some(place);
                }
                oldest = oldest.or(Some(place));
                passed += 1;
                if passed == PASSED {
                    break;
                }
            }
            // SAFETY: as above.
            next = unsafe { place.newer.get().as_ref() };
        }
        oldest
    }
}

/// The calling fiber, if it may switch. One that unwinds may not: std counts panics by kernel thread.
pub fn switching() -> *mut Fiber {
    let fiber = carrier::current();
    if fiber.is_null() || std::thread::panicking() { null_mut() } else { fiber }
}

/// F1, F2: [`Platform::wait`]. `GUEST`: at a lock of kernel threads.
pub fn wait<const GUEST: bool>(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> Wait {
    let place = Place::new(word);
    let bucket = bucket::<GUEST>(place.key);
    if !bucket.locked::<_, GUEST>(|ends| {
        word.load(Relaxed) == expected && {
            ends.join(&place);
            true
        }
    }) {
        return Wait::Changed;
    }
    let woken = place.rest(deadline);
    // F2. Who took it out of the list has not marked it yet, perhaps: the lock waits for that.
    if !woken
        && bucket.locked::<_, GUEST>(|ends| {
            place.listed.get() && {
                ends.leave(&place);
                true
            }
        })
    {
        return Wait::TimedOut;
    }
    Wait::Woken
}

/// Between C1 and the end of a wait for a condition.
pub struct Counted<'a> {
    place: &'a Place,
    count: &'a AtomicU32,
    waits: bool,
}

/// C1. `body` releases the mutex and calls [`Counted::rest`], which is C2.
#[inline]
pub fn counted<T>(count: &AtomicU32, body: impl FnOnce(Counted<'_>) -> T) -> T {
    let place = Place::new(count);
    bucket::<false>(place.key).alone(|ends| {
        ends.join(&place);
        count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    });
    body(Counted { place: &place, count, waits: true })
}

impl Counted<'_> {
    /// C2. False: the deadline passed.
    #[inline]
    pub fn rest(mut self, deadline: Option<Deadline>) -> bool {
        let woken = self.place.rest(deadline) || !self.leave();
        self.waits = false;
        woken
    }

    /// C3. False: it was woken before.
    fn leave(&self) -> bool {
        bucket::<false>(self.place.key).alone(|ends| {
            self.place.listed.get() && {
                ends.leave(self.place);
                count_out(self.count);
                true
            }
        })
    }
}

impl Drop for Counted<'_> {
    /// The mutex could not be released.
    fn drop(&mut self) {
        if self.waits {
            self.leave();
        }
    }
}

fn count_out(count: &AtomicU32) {
    count.store(count.load(Relaxed).saturating_sub(1), Relaxed);
}

/// C4.
#[inline]
pub fn signal(count: &AtomicU32) {
    if count.load(Relaxed) == 0 {
        return;
    }
    let key = core::ptr::from_ref(count).addr();
    wake_one::<false>(bucket::<false>(key), |ends| {
        let found = ends.find(key);
        match found {
            Some(_) => count_out(count),
            None => count.store(0, Relaxed),
        }
        found
    });
}

/// C5. If nobody is in the list any more, the waits may all have returned, and the variable be gone.
pub fn broadcast(count: &AtomicU32) {
    let key = core::ptr::from_ref(count).addr();
    let wake =
        || wake_one::<false>(bucket::<false>(key), |ends| ends.first(key).inspect(|_| count_out(count)));
    for _ in 0..count.load(Relaxed) {
        if !wake() {
            break;
        }
    }
}

impl Place {
    fn new(word: &AtomicU32) -> Self {
        Self {
            key: core::ptr::from_ref(word).addr(),
            fiber: switching(),
            woken: AtomicU32::new(0),
            listed: Cell::new(false),
            older: Cell::new(core::ptr::null()),
            newer: Cell::new(core::ptr::null()),
        }
    }

    /// Until it is woken. False: the deadline passed.
    #[inline]
    fn rest(&self, deadline: Option<Deadline>) -> bool {
        if self.fiber.is_null() { self.sleep(deadline) } else { self.park(deadline) }
    }

    /// HINT: a fiber of a blocked carrier cannot.
    fn can_run(&self) -> bool {
        // SAFETY: null, or a record, which it stays.
        unsafe { self.fiber.as_ref() }.is_none_or(|fiber| fiber.runtime.can_run(fiber))
    }

    fn is_woken(&self) -> bool {
        // ORDER: Acquire, pairs with F3.
        self.woken.load(Acquire) != 0
    }

    /// As a kernel thread. False: the deadline passed.
    fn sleep(&self, deadline: Option<Deadline>) -> bool {
        leave_seat();
        while !self.is_woken() {
            if Kernel::wait(&self.woken, 0, deadline) == Wait::TimedOut {
                return self.is_woken();
            }
        }
        true
    }

    /// As a fiber.
    fn park(&self, deadline: Option<Deadline>) -> bool {
        // SAFETY: the calling fiber.
        let fiber = unsafe { &*self.fiber };
        let Some(deadline) = deadline else {
            while !self.is_woken() {
                doze(fiber);
            }
            return true;
        };
        while !self.is_woken() && !Linux::past(deadline) {
            doze_until(fiber, monotonic(deadline));
        }
        self.is_woken()
    }
}

/// A fiber that waits as a kernel thread says so: others run meanwhile.
fn leave_seat() {
    if let Some(carrier) = carrier::here() {
        carrier.leave_seat();
    }
}

/// When it is on the monotonic clock. The other one may be set meanwhile: the caller looks again.
fn monotonic(deadline: Deadline) -> u64 {
    match deadline.clock {
        Clock::Monotonic => deadline.ns,
        Clock::Realtime => {
            let elapsed = std::time::UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_nanos() as u64);
            Linux::now_ns() + deadline.ns.saturating_sub(elapsed).min(1_000_000_000)
        }
    }
}

/// The calling fiber, which does not unwind, waits for its token.
#[inline]
fn doze(fiber: &Fiber) {
    if !fiber.token.take() {
        switch(core::ptr::from_ref(fiber).cast_mut(), Why::Parks);
        fiber.token.take();
    }
}

/// The same until this moment at most.
pub fn doze_until(fiber: &Fiber, ns: u64) {
    if fiber.token.take() {
        return;
    }
    let carrier = carrier::here().expect("a fiber runs on a carrier");
    let runtime = carrier.runtime;
    let timer = runtime.set_timer(ns, fiber);
    doze(fiber);
    runtime.cancel_timer(timer);
}

/// The calling fiber waits until it is unparked, or cancelled.
pub fn park(fiber: &Fiber) {
    wait_for(fiber, || fiber.token.take_unpark());
}

/// The calling fiber waits until this is so, or it is cancelled. Who makes it so nudges the fiber then.
#[inline]
pub fn wait_for(fiber: &Fiber, is_so: impl Fn() -> bool) {
    while !is_so() {
        if std::thread::panicking() {
            leave_seat();
            fiber.token.sleep();
        } else if is_due(fiber) {
            return;
        } else {
            doze(fiber);
        }
    }
}

/// The calling fiber, which does not unwind, waits until it is unparked, or cancelled, or this moment.
pub fn park_until(fiber: &Fiber, ns: u64) {
    while !fiber.token.take_unpark() && !is_due(fiber) && Linux::now_ns() < ns {
        doze_until(fiber, ns);
    }
}

/// The calling fiber, which does not unwind, waits until this moment, or until `ends` says so.
pub fn sleep_until(fiber: &Fiber, ns: u64, ends: impl Fn(&Fiber) -> bool) {
    while !ends(fiber) && Linux::now_ns() < ns {
        doze_until(fiber, ns);
    }
}

/// F3: [`Platform::wake`]. Guests may be woken by a signal handler.
pub fn wake<const GUEST: bool>(word: *const AtomicU32, count: u32) -> u32 {
    let key = word.addr();
    let bucket = bucket::<GUEST>(key);
    let mut woken = 0;
    while woken < count && wake_one::<GUEST>(bucket, |ends| ends.find(key)) {
        woken += 1;
    }
    woken
}

/// All guests, for no reason that they know.
pub fn wake_guests() {
    for bucket in &OF_GUESTS {
        // SAFETY: what is in the list lives until it has left it.
        while wake_one::<true>(bucket, |ends| unsafe { ends.oldest.as_ref() }) {}
    }
}

/// Wakes whom this finds; false: nobody.
#[inline]
fn wake_one<const GUEST: bool>(bucket: &Bucket, find: impl FnOnce(&Ends) -> Option<&Place>) -> bool {
    let found = bucket.locked::<_, GUEST>(|ends| {
        let place = find(ends)?;
        // SAFETY: it lives until it has left the list and is woken.
        let place = unsafe { &*core::ptr::from_ref(place) };
        ends.leave(place);
        let (fiber, word) = (place.fiber, &raw const place.woken);
        // ORDER: Release (F3), pairs with `is_woken`. The place may be gone after this.
        place.woken.store(1, Release);
        if fiber.is_null() {
            // By its address.
            Kernel::wake(word, 1);
        }
        Some(fiber)
    });
    // SAFETY: null, or a record, which it stays.
    if let Some(fiber) = found.and_then(|fiber| unsafe { fiber.as_ref() }) {
        if GUEST { fiber.post() } else { fiber.nudge() }
    }
    found.is_some()
}
