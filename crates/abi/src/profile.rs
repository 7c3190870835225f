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
//! from there. If the thread has anything else to tell, it makes an event of it first.
//!
//! Nothing here is trusted: the recorder checks what it reads, and the program needs nothing of it.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The first word ("WPRF").
pub const MAGIC: u32 = 0x4652_5057;
/// Version of the layout.
pub const VERSION: u32 = 1;
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
    /// The lock of the last release, which is no event yet; 0 if there is none.
    pub released: AtomicU64,
    /// When that was.
    pub released_ns: AtomicU64,
    /// [`Event::what`] of it.
    pub released_what: AtomicU64,
    /// Events that have been read, in a cache line of its own.
    pub tail: Tail,
}

/// See [`Control::tail`].
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Tail(pub AtomicU64);

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
    /// A [`Kind`], from bit 8 on a [`Class`], and from bit 32 on a number.
    pub what: AtomicU64,
}

/// What a thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// It begins to wait. The number is the holder's, as far as the lock says.
    Wait = 1,
    /// It has what it waited for.
    Got = 2,
    /// It waits no more, and has nothing.
    GaveUp = 3,
    /// It has taken a lock without waiting, while others waited.
    Took = 4,
    /// It is about to release a lock for which others wait.
    Released = 5,
    /// It begins to wait on a condition variable. The number is 1 if it was woken there in the same section.
    CondWait = 6,
    /// It is back. The number is 1 if it was not woken.
    CondBack = 7,
    /// It comes to a barrier.
    Arrived = 8,
    /// It leaves it.
    Left = 9,
}

impl Kind {
    /// Of a number.
    pub fn of(number: u8) -> Option<Self> {
        use Kind::*;
        let all = [Wait, Got, GaveUp, Took, Released, CondWait, CondBack, Arrived, Left];
        all.into_iter().find(|kind| *kind as u8 == number)
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
}

impl Class {
    /// Of a number.
    pub fn of(number: u8) -> Option<Self> {
        use Class::*;
        [Mutex, Spin, Rwlock, Semaphore, Cond, Barrier].into_iter().find(|class| *class as u8 == number)
    }
}

/// Where the rings' words begin.
pub const CONTROLS_AT: usize = 4096;
/// Where their events begin.
pub const EVENTS_AT: usize = CONTROLS_AT + RINGS * size_of::<Control>();
/// Bytes of the file. Only what is written takes memory.
pub const SIZE: usize = EVENTS_AT + RINGS * EVENTS * size_of::<Event>();

const _: () = assert!(size_of::<Header>() <= CONTROLS_AT && size_of::<Event>() == 32);
const _: () = assert!(EVENTS.is_power_of_two() && EVENTS_AT.is_multiple_of(4096));
