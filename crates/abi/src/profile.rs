// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a profiled program says of its waiting: one file in memory, with a ring for each thread that waits.
//!
//! The recorder makes the file, and names it to the program by [`crate::environment::PROFILE`]. The library
//! that is preloaded maps it. A thread takes a free ring when it waits for the first time. From then on it
//! alone moves the ring's head, and the recorder the tail. When the thread is gone and its ring is empty,
//! the recorder frees the ring.
//!
//! **The last release.** A thread may take and release one lock thousands of times while another one waits
//! for it in vain. So a release waits in the ring's own words ([`Control::released`]). If the thread takes
//! the lock again, and nobody else has, both are dropped. If the recorder comes first, it takes the release
//! from there. If the thread has anything else to tell, it makes an event of it first. Each release has a
//! number. Whoever takes it puts 0 in the number's place, and only then has what he has read. The thread
//! writes the other words when the number is 0.
//!
//! **Sampling.** The recorder says how many waits there are for each that is told ([`Header::every`]). A
//! thread that has told one counts down to the next, by chance so that they are as many on average. A wait
//! that is not told leaves no mark at its lock either. So nobody who takes or releases the lock writes
//! anything for it. It is only counted, with its time, by what was waited at and from where ([`Untold`]).
//! Where those words are all for other places, it is an event of its own ([`Kind::Counted`]).
//!
//! Nothing here is trusted: the recorder checks what it reads, and the program needs nothing of it.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*, fence};

/// The first word ("WPRF").
pub const MAGIC: u32 = 0x4652_5057;
/// Version of the layout.
pub const VERSION: u32 = 7;
/// BOUND: threads that wait at the same time, and are told apart.
pub const RINGS: usize = 4096;
/// BOUND: events of one thread between two looks of the recorder. A power of two.
pub const EVENTS: usize = 2048;

/// The file's beginning.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU32,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Processes that have mapped the file.
    pub processes: AtomicU32,
    /// Threads that found no free ring.
    pub without_ring: AtomicU32,
    /// Where to look for a free ring first.
    pub next: AtomicU32,
    /// Processes whose threads have other numbers than the recorder knows, and which tell nothing therefore.
    pub elsewhere: AtomicU32,
    /// Processes that could not map the whole file.
    pub unmapped: AtomicU32,
    /// One wait of so many is told, as a power of two: 0 for all of them. At most [`MOST_EVERY`]. The second
    /// is for barriers, and the first for all else.
    pub every: [AtomicU32; 2],
    /// The recorder's PID namespace, as stat(2) numbers it; 0 if that is unknown.
    pub namespace: AtomicU64,
}

/// The words of one ring.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Control {
    /// [`FREE`], [`TAKEN`] or [`READY`].
    pub state: AtomicU32,
    /// The process.
    pub process: AtomicU32,
    /// The thread.
    pub thread: AtomicU32,
    /// Events that found no room.
    pub dropped: AtomicU32,
    /// Events that have been written.
    pub head: AtomicU64,
    /// The number of the last release, which is no event yet; 0 if there is none.
    pub released: AtomicU32,
    /// The number of the last release of all. The thread's alone.
    pub releases: AtomicU32,
    /// When the last release was.
    pub released_ns: AtomicU64,
    /// [`Event::what`] of it.
    pub released_what: AtomicU64,
    /// Its lock.
    pub released_object: AtomicU64,
    /// 1 while the thread writes here: a signal handler of its has to know. The thread's alone.
    pub busy: AtomicU32,
    /// 1: some of the thread's [`Untold`] are to be read.
    pub has_untold: AtomicU32,
    /// Events that have been read, in a cache line of its own.
    pub tail: Tail,
}

/// See [`Control::tail`].
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Tail(pub AtomicU64);

/// A release: when, [`Event::what`], and the lock.
pub type LastRelease = (u64, u64, u64);

impl Control {
    /// The thread tells a release. It has taken back the last one.
    pub fn put_release(&self, (time_ns, what, object): LastRelease) {
        let number = self.releases.load(Relaxed).wrapping_add(1).max(1);
        self.releases.store(number, Relaxed);
        // ORDER: Release, pairs with the Acquire in `take_release`: who reads these sees that the last number
        // is gone.
        self.released_ns.store(time_ns, Release);
        self.released_what.store(what, Release);
        self.released_object.store(object, Release);
        // ORDER: Release, pairs with the Acquire in `take_release`; publishes the words.
        self.released.store(number, Release);
    }

    /// The thread takes its last release back, if the recorder has not taken it.
    pub fn take_back(&self) -> Option<LastRelease> {
        if self.released.load(Relaxed) == 0 {
            return None;
        }
        let words = [&self.released_ns, &self.released_what, &self.released_object];
        let [time_ns, what, object] = words.map(|word| word.load(Relaxed));
        (self.released.swap(0, Relaxed) != 0).then_some((time_ns, what, object))
    }

    /// The recorder takes the last release, unless the thread is about to tell another one.
    pub fn take_release(&self) -> Option<LastRelease> {
        // ORDER: Acquire, pairs with the Release in `put_release`; the words are of this number, or later.
        let number = self.released.load(Acquire);
        if number == 0 {
            return None;
        }
        let words = [&self.released_ns, &self.released_what, &self.released_object];
        // ORDER: Acquire, pairs with the Release in `put_release`; later words come with the number's end.
        let [time_ns, what, object] = words.map(|word| word.load(Acquire));
        let is_ours = self.released.compare_exchange(number, 0, Relaxed, Relaxed).is_ok();
        is_ours.then_some((time_ns, what, object))
    }
}

/// [`Control::state`]: nobody's.
pub const FREE: u32 = 0;
/// A thread is about to write who it is.
pub const TAKEN: u32 = 1;
/// It has.
pub const READY: u32 = 2;

/// What happened.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Event {
    /// When, on the monotonic clock.
    pub time_ns: AtomicU64,
    /// The address of the lock, or of whatever it is.
    pub object: AtomicU64,
    /// Where the program called.
    pub caller: AtomicU64,
    /// A [`Kind`], from bit 8 on a [`Class`], bits 16 and 17 ([`SHARED`], [`WRITER`]), and from bit 32 on a
    /// number.
    pub what: AtomicU64,
}

/// Other processes may use the object, too. They tell nothing of it here.
pub const SHARED: u64 = 1 << 16;
/// Of a reader-writer lock: nobody else has it with this thread.
pub const WRITER: u64 = 1 << 17;

/// BOUND: one of 1,024 waits is told at least.
pub const MOST_EVERY: u32 = 10;

/// Waits of one thread that were not told, at one object from one place. The thread writes all but what was
/// read. It gives the words to another object when all has been read.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Untold {
    /// Odd while the thread writes.
    pub version: AtomicU64,
    /// As [`Event::object`], [`Event::caller`] and [`Event::what`], without a kind.
    pub object: AtomicU64,
    /// See `object`.
    pub caller: AtomicU64,
    /// See `object`.
    pub what: AtomicU64,
    /// How many, and how long together.
    pub count: AtomicU64,
    /// See `count`.
    pub ns: AtomicU64,
    /// What the recorder has read of both.
    pub read: [AtomicU64; 2],
}

/// BOUND: what each thread has of these. A power of two.
pub const UNTOLD: usize = 32;

impl Untold {
    /// The thread waited once more, if these words are for that or can be.
    pub fn add(&self, object: u64, caller: u64, what: u64, ns: u64) -> bool {
        let key = [(&self.object, object), (&self.caller, caller), (&self.what, what)];
        let is_its = key.iter().all(|(word, value)| word.load(Relaxed) == *value);
        let count = self.count.load(Relaxed);
        if !is_its && count != self.read[0].load(Relaxed) {
            return false;
        }
        // Odd, if the last thread was killed here.
        let version = self.version.load(Relaxed) & !1;
        self.version.store(version.wrapping_add(1), Relaxed);
        // ORDER: Release, pairs with the Acquire in `take`: who sees a word of these sees the odd version.
        fence(Release);
        key.iter().for_each(|(word, value)| word.store(*value, Relaxed));
        self.count.store(count.wrapping_add(1), Relaxed);
        self.ns.store(self.ns.load(Relaxed).wrapping_add(ns), Relaxed);
        // ORDER: Release, pairs with the Acquire in `take`; publishes the words.
        self.version.store(version.wrapping_add(2), Release);
        true
    }

    /// The thread waited once more, and all these words are for other objects. Those for one that it waits
    /// for from the same place do: the report tells places.
    pub fn add_at_place(&self, caller: u64, what: u64, ns: u64) -> bool {
        let is_its = self.caller.load(Relaxed) == caller && self.what.load(Relaxed) == what;
        is_its && self.add(self.object.load(Relaxed), caller, what, ns)
    }

    /// The recorder takes what came since the last time, if anything did: object, caller, what, how many and
    /// how long.
    ///
    /// # Errors
    /// The thread writes just now.
    #[allow(clippy::result_unit_err, reason = "there is one, and it says nothing more")]
    pub fn take(&self) -> Result<Option<[u64; 5]>, ()> {
        // ORDER: Acquire, pairs with the last Release in `add`.
        let version = self.version.load(Acquire);
        let words = [&self.object, &self.caller, &self.what, &self.count, &self.ns];
        let [object, caller, what, count, ns] = words.map(|word| word.load(Relaxed));
        // ORDER: Acquire, pairs with the first Release in `add`.
        fence(Acquire);
        if !version.is_multiple_of(2) || self.version.load(Relaxed) != version {
            return Err(());
        }
        let [count_read, ns_read] = [0, 1].map(|at| self.read[at].load(Relaxed));
        self.read[1].store(ns, Relaxed);
        self.read[0].store(count, Relaxed);
        let (came, came_ns) = (count.wrapping_sub(count_read), ns.wrapping_sub(ns_read));
        Ok((came > 0).then_some([object, caller, what, came, came_ns]))
    }
}

/// What a thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// It begins to wait. The number is the holder's, as far as the lock says.
    Wait = 1,
    /// It has what it waited for. The number, here and at the next two: how often the lock was taken so far;
    /// 0 if nobody counts it.
    Got = 2,
    /// It waits no more, and has nothing.
    GaveUp = 3,
    /// It has taken a lock without waiting, while others waited.
    Took = 4,
    /// It is about to release a lock for which others wait, or to post a semaphore.
    Released = 5,
    /// It begins to wait on a condition variable. The number is 1 if it was woken there in the same section.
    CondWait = 6,
    /// It is back. The number is 1 if it was not woken.
    CondBack = 7,
    /// It comes to a barrier.
    Arrived = 8,
    /// It leaves it. The number is 1 if the barrier is one of an OpenMP region that has made tasks.
    Left = 9,
    /// It begins an OpenMP region. The number is how often it began this one since the last event of that,
    /// without a word.
    Fork = 10,
    /// A thread of the region's team begins its part.
    Begin = 11,
    /// It has done its part, and waits for the others.
    End = 12,
    /// The thread that began the region goes on: all have done their parts. The number is 1 if the region has
    /// made tasks.
    Join = 13,
    /// It has waited once, which is only counted: the number says for how many us.
    Counted = 14,
}

impl Kind {
    /// Of a number.
    pub fn of(number: u8) -> Option<Self> {
        use Kind::*;
        let locks = [Wait, Got, GaveUp, Took, Released, CondWait, CondBack, Arrived, Left, Counted];
        locks.into_iter().chain([Fork, Begin, End, Join]).find(|kind| *kind as u8 == number)
    }
}

/// What a thread waits at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// pthread_mutex_t
    Mutex = 1,
    /// pthread_spinlock_t
    Spin = 2,
    /// pthread_rwlock_t
    Rwlock = 3,
    /// sem_t
    Semaphore = 4,
    /// pthread_cond_t
    Cond = 5,
    /// pthread_barrier_t
    Barrier = 6,
    /// An OpenMP region, and its end
    Region = 7,
    /// A barrier inside an OpenMP region
    Team = 8,
    /// An OpenMP critical section
    Critical = 9,
}

impl Class {
    /// Of a number.
    pub fn of(number: u8) -> Option<Self> {
        use Class::*;
        let all = [Mutex, Spin, Rwlock, Semaphore, Cond, Barrier, Region, Team, Critical];
        all.into_iter().find(|class| *class as u8 == number)
    }

    /// Does it wait for the last of all?
    #[must_use]
    pub fn is_barrier(self) -> bool {
        matches!(self, Self::Barrier | Self::Region | Self::Team)
    }

    /// Are some of many such waits only counted?
    #[must_use]
    pub fn can_be_sampled(self) -> bool {
        matches!(self, Self::Mutex | Self::Spin | Self::Rwlock | Self::Semaphore | Self::Barrier)
    }

    /// Has one thread what others wait for?
    #[must_use]
    pub fn is_lock(self) -> bool {
        matches!(self, Self::Mutex | Self::Spin | Self::Rwlock | Self::Critical)
    }
}

/// Where the rings' words begin.
pub const CONTROLS_AT: usize = 4096;
/// Where the counts of what is not told begin.
pub const UNTOLD_AT: usize = CONTROLS_AT + RINGS * size_of::<Control>();
/// Where their events begin.
pub const EVENTS_AT: usize = UNTOLD_AT + RINGS * UNTOLD * size_of::<Untold>();
/// Bytes of the file. Only what is written takes memory.
pub const SIZE: usize = EVENTS_AT + RINGS * EVENTS * size_of::<Event>();

const _: () = assert!(size_of::<Header>() <= CONTROLS_AT && size_of::<Event>() == 32);
const _: () = assert!(size_of::<Control>() == 128 && size_of::<Untold>() == 64);
const _: () = assert!(EVENTS.is_power_of_two() && EVENTS_AT.is_multiple_of(4096));
