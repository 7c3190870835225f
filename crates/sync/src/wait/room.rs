// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting rooms: where threads sleep that cannot stand in a lock's line.
//!
//! A line links thread ids. A thread without an id has no place in it, and one with a deadline could not
//! leave it. Such threads used to nap and look again, each for itself: with thousands of them the
//! processors did nothing else. Now those who wait for one lock share a few rooms. In each room one thread
//! has the *turn*, and the others sleep. Who has the turn waits for the lock: in the lock's line, under an
//! id that belongs to the room (the *guest*), or by naps, if it has a deadline. Then the next one has the
//! turn.
//!
//! Of each room there are three words ([`Room`]). `users`: 0, the room is free; else the number of threads
//! in it, or OPENING. `lock`: for which lock, valid while `users` is a number above 0. `turn`: 0 free, 1
//! taken, 2 taken and others sleep.
//!
//! - E1. A newcomer opens a free room: `users` from 0 to OPENING, write `lock`, `users` to 1.
//! - E2. Or it enters one that is open for its lock: `users` + 1, and then `lock` again, because the room
//!   may have been closed and opened for another lock in between. If so, it leaves (L2).
//! - E3. Take the turn, or sleep until it is free.
//! - L1. Give the turn back, and wake one if others sleep. L2. `users` - 1.
//!
//! A room serves one lock only. So nobody waits for a thread that waits for another lock, and rooms add no
//! deadlock. Without a free room among those that a lock may use, threads nap as before.
//!
//! A thread that was woken takes the turn before it looks at its deadline, or finds that another one has
//! it. That one then finds 2, and wakes the next: no wake-up is lost by a thread that gives up.
//!
//! A signal handler must not wait for the lock for which its own thread waits in a room: it would wait
//! for its own thread. POSIX has no such handlers. A forked child finds all rooms free, because the platform
//! wipes them.

use core::marker::PhantomData;
use platform::{Atomic, AtomicInt, Deadline, Ordering::*, Platform, Room, ThreadId};

const OPENING: u32 = 1 << 31;

/// BOUND: a lock uses so many rooms at most, which is how many of its guests stand in line at a time.
const WAYS: u32 = 8;

const TAKEN: u32 = 1;
const OTHERS_SLEEP: u32 = 2;

/// The turn in a room. To be ended by [`Stay::end`].
pub struct Stay<P: Platform> {
    room: Room<P>,
    platform: PhantomData<P>,
}

impl<P: Platform> Stay<P> {
    /// E1 to E3. `None` if the deadline has passed, or there is no room.
    pub fn begin(lock: *const (), deadline: Option<Deadline>) -> Option<Self> {
        let stay = Self { room: find::<P>(lock.cast_mut())?, platform: PhantomData };
        if stay.take_turn(deadline) {
            return Some(stay);
        }
        leave(&stay.room);
        None
    }

    /// The id that who has the turn may use in the lock's line, from now until the end.
    pub fn guest(&self) -> ThreadId {
        self.room.guest
    }

    /// L1, L2.
    pub fn end(self) {
        let turn = self.room.turn;
        // L1. ORDER: Release, pairs with E3; publishes the guest's words.
        if turn.swap(0, Release) == OTHERS_SLEEP {
            P::wake(turn, 1);
        }
        leave(&self.room);
    }

    /// E3.
    fn take_turn(&self, deadline: Option<Deadline>) -> bool {
        let turn = self.room.turn;
        // ORDER: Acquire, pairs with L1; the guest's words are as the last guest left them.
        if turn.compare_exchange(0, TAKEN, Acquire, Relaxed).is_ok() {
            return true;
        }
        loop {
            // ORDER: Acquire, as above.
            if turn.swap(OTHERS_SLEEP, Acquire) == 0 {
                return true;
            }
            if deadline.is_some_and(P::past) {
                return false;
            }
            P::wait(turn, OTHERS_SLEEP, deadline);
        }
    }
}

/// E1, E2.
fn find<P: Platform>(lock: *mut ()) -> Option<Room<P>> {
    let ways = WAYS.min(P::ROOMS);
    // Fibonacci hashing; the low bits of an address are zero.
    let first = (lock.addr() as u32 >> 2).wrapping_mul(0x9e37_79b9) >> 8;
    let room = |way: u32| P::room(first.wrapping_add(way) % P::ROOMS);
    for way in 0..ways {
        let room = room(way)?;
        if open(&room, lock) {
            return Some(room);
        }
    }
    // Each thread has its stack elsewhere.
    let own = core::ptr::from_ref(&ways).addr() as u32 >> 12;
    for way in 0..ways {
        let room = room(own.wrapping_add(way) % ways)?;
        if enter(&room, lock) {
            return Some(room);
        }
    }
    None
}

/// E1.
fn open<P: Platform>(room: &Room<P>, lock: *mut ()) -> bool {
    // ORDER: Acquire, pairs with L2; the last user is done with the room.
    if room.users.load(Relaxed) != 0 || room.users.compare_exchange(0, OPENING, Acquire, Relaxed).is_err() {
        return false;
    }
    room.lock.store(lock, Relaxed);
    // ORDER: Release, pairs with E2; publishes `lock`.
    room.users.store(1, Release);
    true
}

/// E2.
fn enter<P: Platform>(room: &Room<P>, lock: *mut ()) -> bool {
    let mut users = room.users.load(Relaxed);
    while users != 0 && users != OPENING && room.lock.load(Relaxed) == lock {
        // ORDER: Acquire, pairs with E1; `lock` is that of this opening.
        match room.users.compare_exchange_weak(users, users + 1, Acquire, Relaxed) {
            Ok(_) if room.lock.load(Relaxed) == lock => return true,
            Ok(_) => {
                leave(room);
                return false;
            }
            Err(now) => users = now,
        }
    }
    false
}

/// L2.
fn leave<P: Platform>(room: &Room<P>) {
    // ORDER: Release, pairs with E1; who opens the room anew comes after us.
    room.users.fetch_sub(1, Release);
}
