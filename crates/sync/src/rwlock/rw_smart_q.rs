// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rw-smart-q`: the fair queue lock that asks the kernel whether a waiter runs, and passes over one that
//! does not.
//!
//! For short sections with a kernel that honours the wish not to be preempted; elsewhere it still lets
//! nobody in who is known to be off its processor. Kontothanassis, Wisniewski, Scott, TR 1994, figures 5 to
//! 7 (KE-1, KE-2). The list and its protocol are those of `rw-queue` (`rw_queue.rs`), the figures' own
//! base; this file says whom it lets in.
//!
//! Changed, beyond what `rw-queue` changes:
//! - Figure 5's writer, like figure 3's mutex, tells a passed-over thread so and only then takes its node
//!   off the tail: in between the thread can use the node again, and waits behind itself. We settle what is
//!   behind the node first, as figures 6 and 7 do.
//! - Figure 7's first reader passes over its successor when that is preempted, also one that is a reader
//!   and *is in already* (it came in beside an active reader, or was let in by figure 6). Such a reader
//!   loses its place in the list while it reads, and a writer gets in beside it. We make it the first.
//! - In figure 6 a reader that finds its predecessor active goes on although that one, at the same moment,
//!   may be passing over it. Here the newcomer says that it is in before it links itself (A3, A4 of
//!   `rw-queue`).
//! - At most `SKIPS` threads are passed over at once: with a hint that is always wrong the figures chase
//!   for ever those who queue again.
//! - Where KE-1 is not honoured, as on Linux without the slice extension, a waiter that sees its
//!   predecessor off its processor naps, because that is often the holder. Where it is honoured it spins,
//!   as in the figure: see `smart-q`.
//!
//! # State
//!
//! As `rw-queue`; `status` may also become FAILURE: you were passed over; queue again. The wish (KE-1) of a
//! thread in line: unpreemptable while it changes the list and while it holds the lock, preemptable while
//! it waits.
//!
//! # Invariants
//!
//! Those of `rw-queue`, and: I5. FAILURE is given only to a waiter, by the thread that could let it in,
//! when no other thread can come to its node: its `next` is known, or it is off the tail.
//!
//! # Protocol
//!
//! As `rw-queue`, with, before A1, the wish not to be preempted; before A5 its withdrawal, by
//! compare-and-swap, unless it has been replaced or the thread holds another lock of a kind that wishes;
//! and at R2 and A6:
//! S1. If the waiter's wish can be changed to "another wants you unpreemptable", which fails for one known
//! to be off its processor: SUCCESS.
//! S2. Else its successor is the next candidate; take it off the list; FAILURE. S3. Last, after leaving:
//! withdraw the own wish, unless another such lock is held, and yield if the kernel had put a preemption
//! off (KE-2). FAILURE: again from the start.
//!
//! # Memory order
//!
//! As `rw-queue`. S2 release -> A5 acquire: the last look at the node comes before its next use.
//!
//! # Under the scheduler
//!
//! Holder preempted: unlikely where KE-1 is honoured, and then waited for; else who is behind it sees it
//! and naps. Next waiter preempted: passed over. More threads than processors: those who run are served.
//! Hint stale: a running thread is passed over and queues again, or a preempted one gets in and the line
//! waits for it. Killed while holding or waiting: lost.
//!
//! # Fairness and space
//!
//! First come, first served among those who run while they wait. A thread can starve if it is preempted
//! each time that its turn comes, as the authors say of their mutex (section 4.1). A pointer, and a node of
//! a cache line for each thread.
//!
//! # Rejected
//!
//! Holding the own small lock through the whole of figure 6: nobody else changes the links of a node whose
//! reader is on its way in.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle, with the wish always and never to be had; figure 7 as
//! printed, which passes over an active reader, is a twin that is caught.

use platform::{Platform, ThreadId, Wish};

use super::rw_queue::{Queue, Succession};
use crate::wait::Unpreemptable;

/// Threads passed over at once at most: see `mutex::SmartQ`.
const SKIPS: u32 = 1000;

/// Those first who run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Smart;

impl Succession for Smart {
    const PASSES: bool = true;
    type Wish = Unpreemptable;

    fn fit<P: Platform>(waiter: ThreadId, skipped: u32) -> bool {
        // S1. The order of the two attempts is important: the thread goes from the first to the second by
        // itself. HINT: see "hint stale" above.
        skipped == SKIPS
            || P::change_wish(waiter, Wish::UnpreemptableSelf, Wish::UnpreemptableOther)
            || P::change_wish(waiter, Wish::Preemptable, Wish::UnpreemptableOther)
    }
}

/// Smart queue reader-writer lock.
pub type SmartQ<P> = Queue<P, Smart>;
