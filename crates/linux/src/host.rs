// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fibers that wait for locks of kernel threads.
//!
//! A *host* is a runtime of fibers in this process. It tells how a fiber waits: parked, while its carrier
//! runs others. Where the calling thread runs a fiber, the slow paths of [`crate::Linux`] ask the host
//! instead of the kernel. So every algorithm parks fibers, and no fast path knows of it.
//!
//! A carrier has no thread id ([`here_is_a_carrier`]): its fibers would share that in a line. A thread
//! without one waits in a room, where each waiter has a place of its own.
//!
//! The interposer has its own copy of this crate. So a host is passed as plain functions of C.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use platform::{Clock, Deadline, Wait};

use crate::futex;

/// What a runtime of fibers offers. Its functions allocate no thread ids and leave errno alone.
#[repr(C)]
#[derive(Debug)]
pub struct Host {
    /// The calling fiber's number, also while it unwinds: no thread id of the kernel, and no other living
    /// fiber's. 0: no fiber of this host.
    pub number: extern "C" fn() -> u32,
    /// Is the caller a fiber of this host that may be parked here? One that unwinds may not.
    pub parks: extern "C" fn() -> bool,
    /// As the futex call, by absolute time; `clock` below 0: for ever. Returns 0 if woken, else EAGAIN or
    /// ETIMEDOUT. For a fiber that [`Host::parks`].
    pub wait: unsafe extern "C" fn(word: *const AtomicU32, expected: u32, clock: i32, ns: u64) -> i32,
    /// Wakes at most so many fibers of [`Host::wait`]; returns how many it woke. For anybody.
    pub wake: extern "C" fn(word: *const AtomicU32, count: u32) -> u32,
    /// Sleeps for so long; for a fiber that parks, as what follows.
    pub nap: extern "C" fn(ns: u64),
    /// Lets other fibers go first.
    pub yield_now: extern "C" fn(),
}

/// BOUND: runtimes in one process: the program's own, and those of its libraries. Fibers of others block
/// their carriers.
const MOST: usize = 4;

static HOSTS: [AtomicPtr<Host>; MOST] = [const { AtomicPtr::new(core::ptr::null_mut()) }; MOST];

/// There is a host from now on. The same one may be told again.
pub fn add(host: &'static Host) {
    let host = core::ptr::from_ref(host).cast_mut();
    for place in &HOSTS {
        // ORDER: Release, pairs with `hosts`; the host is there.
        match place.compare_exchange(core::ptr::null_mut(), host, Release, Relaxed) {
            Ok(_) => return,
            Err(other) if other == host => return,
            Err(_) => {}
        }
    }
}

/// The calling thread runs fibers from now on.
pub fn here_is_a_carrier() {
    crate::thread_exit();
}

/// Is there any?
#[inline]
pub fn any() -> bool {
    !HOSTS[0].load(Relaxed).is_null()
}

fn hosts() -> impl Iterator<Item = &'static Host> {
    // SAFETY: null, or one that lives for ever.
    // ORDER: Acquire, pairs with `add`.
    HOSTS.iter().map_while(|place| unsafe { place.load(Acquire).as_ref() })
}

/// The host of the calling fiber; `None` for kernel threads, and for a fiber that must not be parked.
#[inline]
pub fn here() -> Option<&'static Host> {
    if any() { find() } else { None }
}

#[cold]
#[inline(never)]
fn find() -> Option<&'static Host> {
    hosts().find(|host| (host.parks)())
}

/// The calling fiber's [`Host::number`]; `None` for kernel threads.
#[inline]
pub fn number() -> Option<u32> {
    if any() { find_number() } else { None }
}

#[cold]
#[inline(never)]
fn find_number() -> Option<u32> {
    hosts().map(|host| (host.number)()).find(|number| *number != 0)
}

/// As [`futex::wait`].
#[inline]
pub fn wait(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> Wait {
    let Some(host) = here() else { return futex::wait(word, expected, deadline) };
    let (clock, ns) = match deadline {
        None => (-1, 0),
        Some(Deadline { clock: Clock::Monotonic, ns }) => (libc::CLOCK_MONOTONIC, ns),
        Some(Deadline { clock: Clock::Realtime, ns }) => (libc::CLOCK_REALTIME, ns),
    };
    // SAFETY: the calling fiber, and the word is there as long as somebody waits.
    match unsafe { (host.wait)(word, expected, clock, ns) } {
        0 => Wait::Woken,
        libc::ETIMEDOUT => Wait::TimedOut,
        _ => Wait::Changed,
    }
}

/// As [`futex::wake`].
#[inline]
pub fn wake(word: *const AtomicU32, count: u32) -> u32 {
    if any() { wake_both(word, count) } else { futex::wake(word, count) }
}

/// Fibers and kernel threads, in turns, so that neither are served last each time.
#[cold]
#[inline(never)]
fn wake_both(word: *const AtomicU32, count: u32) -> u32 {
    static FIBERS_LAST: AtomicU32 = AtomicU32::new(0);
    let mut left = count;
    let fibers = |left: &mut u32| {
        for host in hosts() {
            if *left != 0 {
                *left -= (host.wake)(word, *left);
            }
        }
    };
    let last = FIBERS_LAST.fetch_xor(1, Relaxed) != 0;
    if !last {
        fibers(&mut left);
    }
    if left != 0 {
        left -= futex::wake(word, left).min(left);
    }
    if last {
        fibers(&mut left);
    }
    count - left
}
