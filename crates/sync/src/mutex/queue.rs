// SPDX-License-Identifier: MIT OR Apache-2.0
//! `queue`, `queue-np`: the TR's list-based queue lock, and the same with a wish not to be preempted
//! inside.
//!
//! To compare: `queue-np` shows that protecting the holder is not enough for a lock that knows its next in
//! line. Kontothanassis, Wisniewski, Scott, TR 1994, section 5.2, "Queue" and "Queue-np". Changed: nothing;
//! both are `mcs`, whose file has the protocol: `queue` is `mcs-spin` under the TR's name, `queue-np` asks
//! the kernel in addition.
//!
//! # State
//!
//! As `mcs`. In `queue-np` the thread's block has its wish, and how many such locks it holds.
//!
//! # Invariants
//!
//! Those of `mcs`, and I5. A thread that is between A1 and A2 or holds a lock of this kind wishes not to be
//! preempted; one that holds none and is in no acquire or release does not.
//!
//! # Protocol
//!
//! As `mcs`. W1. The wish comes before A1 (figure 2, `cb->state := unpreemptable_self`). W2. At each look
//! of A4 it is withdrawn, and the processor yielded if the kernel had put a preemption off (KE-2), and made
//! again before the next look: who waits may be preempted.
//! W3. After R1 or R3 it is withdrawn, if this was the last such lock of the thread, and repaid in the same
//! way.
//!
//! # Memory order
//!
//! As `mcs`. Wishes publish nothing.
//!
//! # Under the scheduler
//!
//! Holder preempted: not for as long as the kernel's grace lasts, where it honours wishes; elsewhere
//! `queue-np` is `queue`, dearer by W1 to W3. Next waiter preempted: it is handed the lock all the same
//! ("This algorithm does *not* avoid passing the lock to a process that has been preempted", section 5.2),
//! and everybody waits for it. More threads than processors: as that, at nearly each hand-over. Hint stale:
//! a warning missed costs the next section its grace. Killed while holding: lost.
//!
//! # Fairness and space
//!
//! FIFO. A pointer, and a node of a cache line a waiter.
//!
//! # Rejected
//!
//! A copy of `mcs` without its informing half: two texts of one protocol.
//!
//! # Checked by
//!
//! `conformance`: real threads, loom, shuttle; for W3 a twin of `tas-b-np` that forgets its wish, for the
//! rest those of `mcs`.

use super::Mcs;
use crate::wait::{Spin, Unpreemptable};

/// The TR's list-based queue lock.
pub type Queue<P> = Mcs<P, Spin>;

/// The same, its holder unpreemptable.
pub type QueueNp<P> = Mcs<P, Spin, Unpreemptable>;
