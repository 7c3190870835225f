// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ticket-np-printed`: the scheduler-conscious ticket lock as TR 1994, figure 4, prints it. For the
//! simulator alone.
//!
//! The releaser looks at the lock until somebody has taken the grant, or its timeout is over. The next one
//! may have taken, released and freed the lock by then. So the releaser reads memory that is not the lock's
//! any more, and if it holds the number of the grant there, changes it. Rust's locks may be freed by
//! whoever held them last, so that this one cannot be offered. `ticket-np` has three steps instead: who is
//! granted the lock waits until the releaser has seen the answer. `crates/sim/tests/printed.rs` finds a
//! schedule that shows what is wrong here, and none that shows it of `ticket-np`.
//!
//! Not in the figure, and so chosen: TIMEOUT (that of `queue-hs`), SPIN_FACTOR (that of `ticket-spin`),
//! MAX_PROCESSES, and [`RawMutex::try_lock`].

use core::marker::PhantomData;

use catalog::{Entry, MutexVisitor};
use platform::{Atomic, AtomicInt, Ordering::*, Platform, ThreadId};
use sync::mutex::RawMutex;
use sync::wait::{self, ANSWER_PAUSES, Unpreemptable};

/// More than there can be.
const MAX_PROCESSES: u32 = 1 << 20;

/// Pauses for each thread before us.
const SPIN_FACTOR: u32 = 4;

/// As the locks of the catalogue.
pub static PRINTED: Entry = Entry {
    name: "ticket-np-printed",
    summary: "ticket-np as the paper prints it, for `wakeful sim` alone: its releaser looks at freed memory",
    citation: "TR 1994, figure 4",
    in_place: false,
    timed: false,
    fair: false,
    informed: false,
    wishes: true,
};

/// See [`PRINTED`].
#[repr(C)]
pub struct TicketNpPrinted<P: Platform> {
    next_ticket: P::AtomicU32,
    now_serving: P::AtomicU32,
    rel_flag: P::AtomicU32,
    platform: PhantomData<P>,
}

fn taken(ticket: u32) -> u32 {
    ticket.wrapping_sub(MAX_PROCESSES)
}

impl<P: Platform> TicketNpPrinted<P> {
    /// False if it was passed up.
    fn turn(&self, me: ThreadId) -> bool {
        let ticket = self.next_ticket.fetch_add(1, Relaxed);
        loop {
            wait::unshield::<Unpreemptable, P>(me);
            wait::shield::<Unpreemptable, P>();
            // ORDER: Acquire, pairs with `release`.
            let ahead = ticket.wrapping_sub(self.now_serving.load(Acquire));
            if ahead > MAX_PROCESSES {
                return false;
            }
            for _ in 0..(ahead * SPIN_FACTOR).min(P::PAUSES) {
                P::pause();
            }
            // ORDER: Acquire, as above.
            if self.now_serving.load(Acquire) == ticket {
                return self.rel_flag.compare_exchange(ticket, taken(ticket), Acquire, Relaxed).is_ok();
            }
        }
    }

    fn release(&self) {
        loop {
            let ticket = self.now_serving.load(Relaxed).wrapping_add(1);
            self.rel_flag.store(ticket, Relaxed);
            // ORDER: Release, pairs with `turn`.
            self.now_serving.store(ticket, Release);
            if self.next_ticket.load(Relaxed) == self.now_serving.load(Relaxed) {
                return;
            }
            for _ in 0..ANSWER_PAUSES.min(P::PAUSES) {
                if self.rel_flag.load(Relaxed) == taken(ticket) {
                    return;
                }
                P::pause();
            }
            if self.rel_flag.compare_exchange(ticket, taken(ticket), Relaxed, Relaxed).is_err() {
                return;
            }
        }
    }
}

impl<P: Platform> RawMutex<P> for TicketNpPrinted<P> {
    type Node = ();

    fn new() -> Self {
        let zero = || Atomic::new(0);
        Self { next_ticket: zero(), now_serving: zero(), rel_flag: zero(), platform: PhantomData }
    }

    unsafe fn lock(&self, _: &()) {
        let mut me = wait::shield::<Unpreemptable, P>();
        while !self.turn(me) {
            me = wait::shield::<Unpreemptable, P>();
        }
        wait::inside::<Unpreemptable, P>(me);
    }

    unsafe fn try_lock(&self, _: &()) -> bool {
        let me = wait::shield::<Unpreemptable, P>();
        let next = self.next_ticket.load(Relaxed);
        // ORDER: Acquire, pairs with `release`.
        let got = self.now_serving.load(Acquire) == next
            && self.rel_flag.load(Relaxed) == next
            && self.next_ticket.compare_exchange(next, next.wrapping_add(1), Relaxed, Relaxed).is_ok()
            && self.rel_flag.compare_exchange(next, taken(next), Relaxed, Relaxed).is_ok();
        if got {
            wait::inside::<Unpreemptable, P>(me);
        } else {
            wait::unshield::<Unpreemptable, P>(me);
        }
        got
    }

    unsafe fn unlock(&self, _: &()) {
        self.release();
        wait::outside::<Unpreemptable, P>();
    }
}

/// Calls the visitor with the mutex of this name, of the catalogue or [`PRINTED`].
pub(crate) fn visit_mutex<P: Platform, V: MutexVisitor<P>>(name: &str, visitor: V) -> Option<V::Output> {
    if name == PRINTED.name {
        return Some(visitor.visit::<TicketNpPrinted<P>>(&PRINTED));
    }
    catalog::visit_mutex::<P, V>(name, visitor)
}
