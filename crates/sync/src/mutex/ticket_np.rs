// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ticket-np`: a ticket lock whose releaser takes a grant back that nobody answers.
//!
//! The TR's scheduler-conscious lock without a node: the releaser of a ticket lock does not know who is
//! next and so cannot ask the kernel about it, but it can see whether anybody answers. Kontothanassis,
//! Wisniewski, Scott, TR 1994, figure 4.
//!
//! Changed:
//! - The figure's releaser looks at the lock for as long as its timeout lasts, though the next one may have
//!   taken, released and freed it by then. Here who answers waits until the releaser has seen that (A4,
//!   R4), as in figure 2.
//! - The releaser looks for waiters before it serves. With none it leaves at once, and who comes later need
//!   not answer anybody.
//! - It passes over at most `SKIPS` tickets, see `queue-hs`.
//! - `rel_flag` is a ticket and a state where the figure subtracts MAX_PROCESSES from the ticket to say
//!   "taken".
//!
//! # State
//!
//! `next`: the next ticket. `serving`: the ticket being served. `grant`: a ticket (bits 2-31), and whether
//! it is still to be had:
//!
//! | state | meaning | next |
//! |---|---|---|
//! | OPEN | served to whoever has or will have the ticket | TAKEN (A3) |
//! | ATTENDED | served, and the releaser waits for an answer | ACKED (A3), TAKEN (R5) |
//! | ACKED | answered | TAKEN (R4) |
//! | TAKEN | its owner has the lock, or it was taken back | - |
//!
//! # Invariants
//!
//! I1. The lock is free exactly if `grant` is OPEN with the ticket `next`.
//! I2. Only who holds the lock changes `serving`, and sets `grant` to another ticket before it.
//! I3. Of A3's and R5's changes of ATTENDED one succeeds: the ticket is answered or taken back.
//! I4. After R2 with OPEN, or R4's TAKEN, the releaser does not touch the lock: it may be gone.
//!
//! # Protocol
//!
//! A1. Wish not to be preempted; take a ticket. A2. Wait until it is served, looking the less often the
//! more are before us, the wish withdrawn in between, and the processor yielded if the kernel had put a
//! preemption off. Passed over: again from A1. A3. OPEN to TAKEN: inside. ATTENDED to ACKED:
//! A4. wait for TAKEN, inside. Another ticket, or TAKEN: it was taken back; again from A1.
//! R1. Does anybody wait? R2. Set `grant` for the next ticket, OPEN if not, ATTENDED if so; then `serving`.
//! R3. OPEN: done. R4. ACKED within the timeout: set TAKEN, done.
//! R5. Else ATTENDED to TAKEN, again from R1 with the ticket after it. That failing, it is ACKED: R4.
//! R6. Last: withdraw the wish, yield if warned (KE-2).
//!
//! # Memory order
//!
//! R2's release of `serving` -> A2 acquire publishes the protected data and `grant`: who sees its ticket
//! served sees no older grant. R4 release -> A4 acquire: the releaser has done with the lock.
//!
//! # Under the scheduler
//!
//! Holder preempted: unlikely where KE-1 is honoured, for the length of KE-2's grace; else all wait for it.
//! Next waiter preempted: passed over after the timeout. More threads than processors: each release pays a
//! timeout for each that does not run. Preempted between ATTENDED and TAKEN, either of the two: the lock is
//! nobody's for that time. Who takes a ticket between R1 and R2 is not attended: preempted there, it is
//! waited for. No kernel view is used, so no hint is stale. Killed while holding: lost. A copy made by
//! `fork` while threads waited passes their tickets over, each after the timeout.
//!
//! # Fairness and space
//!
//! FIFO among those who run while they wait; a thread can starve if it is preempted each time that its turn
//! comes (section 4.1). 12 bytes, no node. Tickets wrap: a thread that is stopped in A2 while 2^32 others
//! are served, or between A2 and A3 while 2^30 are (`grant` has so many bits of a ticket), and goes on at
//! the very moment when its number is up again and the lock is free, takes it in another's place, and the
//! next to come waits for ever (the paper: "more than three minutes"; here 86 s and 21 s of sections of 20
//! ns). If its number is up for another waiter, the two only change places.
//!
//! # Rejected
//!
//! Polling a word of the releaser's own instead of the lock: the change of ATTENDED (R5) would still come
//! to a lock that may be gone.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; the twin that passes over without taking the grant back (R5)
//! is caught.

use core::marker::PhantomData;
use platform::{Atomic, AtomicInt, Ordering::*, Platform, StaticPlatform, ThreadId};

use super::RawMutex;
use super::ticket::{MOST_PAUSES, PROPORTION};
use crate::wait::{self, ANSWER_PAUSES, Unpreemptable};

const OPEN: u32 = 0;
const ATTENDED: u32 = 1;
const ACKED: u32 = 2;
const TAKEN: u32 = 3;

/// More waiters than there can be: who is further ahead than this was passed over.
const MAX_THREADS: u32 = 1 << 20;

/// Tickets passed over in one release at most: more than a program has waiting.
const SKIPS: u32 = 1000;

fn grant(ticket: u32, state: u32) -> u32 {
    ticket << 2 | state
}

/// Ticket lock with handshaking.
#[repr(C)]
pub struct TicketNp<P: Platform> {
    next: P::AtomicU32,
    serving: P::AtomicU32,
    grant: P::AtomicU32,
    platform: PhantomData<P>,
}

impl<P: StaticPlatform> TicketNp<P> {
    /// A free lock, for a `static`.
    pub const INIT: Self =
        Self { next: P::ZERO_U32, serving: P::ZERO_U32, grant: P::ZERO_U32, platform: PhantomData };
}

impl<P: Platform> TicketNp<P> {
    /// Takes a ticket and waits for its turn; false if it was passed over.
    fn turn(&self, me: ThreadId) -> bool {
        let ticket = self.next.fetch_add(1, Relaxed);
        loop {
            // ORDER: Acquire (A2), pairs with R2.
            let ahead = ticket.wrapping_sub(self.serving.load(Acquire));
            if ahead > MAX_THREADS {
                return false;
            }
            if ahead == 0 {
                return self.answer(ticket);
            }
            wait::unshield::<Unpreemptable, P>(me);
            wait::pause::<P>((ahead * PROPORTION).min(MOST_PAUSES));
            wait::shield::<Unpreemptable, P>();
        }
    }

    /// The ticket is served; false if that was taken back.
    fn answer(&self, ticket: u32) -> bool {
        // R2 set it before it served, and until we answer it changes at most to TAKEN.
        let offered = self.grant.load(Relaxed);
        let acked = grant(ticket, ACKED);
        let answer = match offered {
            it if it == grant(ticket, OPEN) => grant(ticket, TAKEN),
            it if it == grant(ticket, ATTENDED) => acked,
            _ => return false,
        };
        if self.grant.compare_exchange(offered, answer, Relaxed, Relaxed).is_err() {
            return false;
        }
        // ORDER: Acquire (A4), pairs with R4.
        while self.grant.load(Acquire) == acked {
            P::pause();
        }
        true
    }

    fn release(&self) {
        let mut ticket = self.serving.load(Relaxed);
        // Released by somebody who does not hold it: there is nobody to serve, ever.
        if self.next.load(Relaxed) == ticket {
            return;
        }
        let mut skipped = 0;
        loop {
            ticket = ticket.wrapping_add(1);
            let awaited = self.next.load(Relaxed) != ticket;
            let offered = grant(ticket, if awaited { ATTENDED } else { OPEN });
            self.grant.store(offered, Relaxed);
            // ORDER: Release (R2), pairs with A2; publishes the protected data and the grant.
            self.serving.store(ticket, Release);
            if !awaited {
                return;
            }
            let mut patience = ANSWER_PAUSES.min(P::PAUSES);
            while self.grant.load(Relaxed) == offered {
                if patience > 0 || skipped == SKIPS {
                    patience = patience.saturating_sub(1);
                    P::pause();
                } else if self.grant.compare_exchange(offered, grant(ticket, TAKEN), Relaxed, Relaxed).is_ok()
                {
                    break;
                }
            }
            if self.grant.load(Relaxed) == grant(ticket, ACKED) {
                // ORDER: Release (R4), pairs with A4; the last that we do with the lock.
                self.grant.store(grant(ticket, TAKEN), Release);
                return;
            }
            skipped += 1;
        }
    }
}

impl<P: Platform> RawMutex<P> for TicketNp<P> {
    type Node = ();

    fn new() -> Self {
        let zero = || Atomic::new(0);
        Self { next: zero(), serving: zero(), grant: zero(), platform: PhantomData }
    }

    unsafe fn lock(&self, _: &()) {
        let me = wait::shield::<Unpreemptable, P>();
        while !self.turn(me) {
            P::pause();
        }
        wait::inside::<Unpreemptable, P>(me);
    }

    unsafe fn try_lock(&self, _: &()) -> bool {
        let me = wait::shield::<Unpreemptable, P>();
        let next = self.next.load(Relaxed);
        // ORDER: Acquire (A2), pairs with R2. If nobody takes a ticket until we do, nobody else is served
        // either.
        let got = self.serving.load(Acquire) == next
            && self.grant.load(Relaxed) == grant(next, OPEN)
            && self.next.compare_exchange(next, next.wrapping_add(1), Relaxed, Relaxed).is_ok()
            && self.answer(next);
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
