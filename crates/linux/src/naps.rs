// SPDX-License-Identifier: MIT OR Apache-2.0
//! Naps beside a lock, which its release may end.

use core::sync::atomic::{AtomicU32, Ordering};

use platform::{Clock, Deadline};

use crate::futex::{hash, now_ns};
use crate::host::{wait, wake};

/// Where threads nap, by the address of the lock beside which they do. Locks may share a place: a nap may end
/// early.
static NAPS: [Place; 256] = [const { Place { rouses: AtomicU32::new(0), nappers: AtomicU32::new(0) } }; 256];

struct Place {
    rouses: AtomicU32,
    /// HINT: who rouses while somebody lies down misses him, and his nap ends by the clock. In a child, those
    /// of the parent stay counted.
    nappers: AtomicU32,
}

fn napping_place(lock: *const AtomicU32) -> &'static Place {
    &NAPS[hash(lock.addr()) as usize]
}

/// Sleeps for about so long; [`rouse`] may end it.
pub fn nap_beside(lock: *const AtomicU32, ns: u64) {
    let place = napping_place(lock);
    let deadline = Deadline { ns: now_ns() + ns, clock: Clock::Monotonic };
    place.nappers.fetch_add(1, Ordering::Relaxed);
    wait(&place.rouses, place.rouses.load(Ordering::Relaxed), Some(deadline));
    place.nappers.fetch_sub(1, Ordering::Relaxed);
}

/// Ends a nap beside this lock, if there is one.
pub fn rouse(lock: *const AtomicU32) {
    let place = napping_place(lock);
    if place.nappers.load(Ordering::Relaxed) > 0 {
        place.rouses.fetch_add(1, Ordering::Relaxed);
        wake(&place.rouses, 1);
    }
}
