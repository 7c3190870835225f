// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one list of algorithms. Command, interposer, benchmark and tests all expand it: adding an algorithm
//! is one file in `sync` and one line in [`mutexes!`].
#![no_std]

#[macro_use]
mod expand;
mod barriers;
mod delegates;
mod named;
mod rwlocks;

pub use barriers::*;
pub use delegates::*;
pub use named::*;
pub use rwlocks::*;
#[doc(hidden)]
pub use sync;

use platform::Platform;
use sync::mutex::{RawMutex, RawMutexTimed};

/// What there is to say about an algorithm without running it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Catalogue name = file name (with `-` for `_`) = CLI value = environment value = test name.
    pub name: &'static str,
    /// One line for a person who chooses.
    pub summary: &'static str,
    /// Where it comes from.
    pub citation: &'static str,
    /// Lives entirely in its own word or words: fits into `pthread_mutex_t` and can be chosen with
    /// `WAKEFUL_LOCK`.
    pub in_place: bool,
    /// Has a timed acquire.
    pub timed: bool,
    /// Serves waiters in the order of their arrival (where it says so: those that run).
    pub fair: bool,
    /// Uses what a kernel view tells.
    pub informed: bool,
    /// Asks the kernel not to preempt those inside ([`Platform::honours_wishes`] says whether anybody acts
    /// on it).
    pub wishes: bool,
}

/// Expands `$callback! { rows }` with one row per mutual-exclusion lock: `{ name, ident, Type<P>, kind,
/// flags, citation, summary }`. `ident` is the name as an identifier, for tests; `kind` is `timed` (in
/// place, with a timed acquire), `in_place` or `queue` (needs a node).
#[macro_export]
macro_rules! mutexes {
    ($callback:ident) => {
        $callback! {
            { "wakeful", wakeful, [P] $crate::sync::mutex::Wakeful<P>, timed, [informed],
              "this project",
              "the default: barging, one standby, sleepers in line; knows who runs" }
            { "wakeful-np", wakeful_np, [P] $crate::sync::mutex::Wakeful<P, $crate::sync::wait::Unpreemptable>, timed, [informed wishes],
              "this project",
              "as wakeful, asking the kernel not to preempt the holder" }
            { "tas-b", tas_b, [P] $crate::sync::mutex::TasB<P>, in_place, [],
              "TR 1994, section 5.2",
              "test-and-test_and_set with bounded exponential backoff" }
            { "tas-b-np", tas_b_np, [P] $crate::sync::mutex::TasB<P, $crate::sync::wait::Unpreemptable>, in_place, [wishes],
              "TR 1994, section 5.2",
              "as tas-b, asking the kernel not to preempt the holder" }
            { "ttas-spin", ttas_spin, [P] $crate::sync::mutex::Ttas<P, $crate::sync::wait::Spin>, in_place, [],
              "ICPP 2001, section 4",
              "test-and-test_and_set; spins, whoever runs" }
            { "ttas-block", ttas_block, [P] $crate::sync::mutex::Ttas<P, $crate::sync::wait::Block>, in_place, [],
              "ICPP 2001, section 4",
              "test-and-test_and_set; sleeps at once" }
            { "ttas-competitive", ttas_competitive, [P] $crate::sync::mutex::Ttas<P, $crate::sync::wait::Competitive>, in_place, [],
              "Karlin, Li, Manasse, Owicki, SOSP 1991",
              "test-and-test_and_set; spins as long as a switch costs, then sleeps" }
            { "ttas-informing", ttas_informing, [P] $crate::sync::mutex::Ttas<P, $crate::sync::wait::Informing>, in_place, [informed],
              "ICPP 2001, section 4",
              "test-and-test_and_set; sleeps while a thread that matters more is preempted" }
            { "mcs-spin", mcs_spin, [P] $crate::sync::mutex::Mcs<P, $crate::sync::wait::Spin>, queue, [fair],
              "Mellor-Crummey, Scott, TOCS 1991",
              "list-based queue; spins on its own line, whoever runs" }
            { "mcs-block", mcs_block, [P] $crate::sync::mutex::Mcs<P, $crate::sync::wait::Block>, queue, [fair],
              "ICPP 2001, section 4",
              "list-based queue; sleeps at once" }
            { "mcs-competitive", mcs_competitive, [P] $crate::sync::mutex::Mcs<P, $crate::sync::wait::Competitive>, queue, [fair],
              "Karlin, Li, Manasse, Owicki, SOSP 1991",
              "list-based queue; spins as long as a switch costs, then sleeps" }
            { "mcs-informing", mcs_informing, [P] $crate::sync::mutex::Mcs<P, $crate::sync::wait::Informing>, queue, [fair informed],
              "ICPP 2001, figure 1",
              "list-based queue; gives way to threads that matter more, keeps them in line" }
            { "ticket-spin", ticket_spin, [P] $crate::sync::mutex::Ticket<P, $crate::sync::wait::Spin>, in_place, [fair],
              "TR 1994, section 4.1",
              "take a number; proportional backoff" }
            { "ticket-block", ticket_block, [P] $crate::sync::mutex::Ticket<P, $crate::sync::wait::Block>, in_place, [fair],
              "ICPP 2001, section 4",
              "take a number; sleeps at once" }
            { "ticket-informing", ticket_informing, [P] $crate::sync::mutex::Ticket<P, $crate::sync::wait::Informing>, in_place, [fair informed],
              "ICPP 2001, section 4",
              "take a number; gives way to threads that matter more" }
            { "array-queue-spin", array_queue_spin, [P] $crate::sync::mutex::ArrayQueue<P, $crate::sync::wait::Spin>, queue, [fair],
              "Anderson, TPDS 1990",
              "queue in an array; spins on its own line, whoever runs" }
            { "array-queue-block", array_queue_block, [P] $crate::sync::mutex::ArrayQueue<P, $crate::sync::wait::Block>, queue, [fair],
              "ICPP 2001, section 4",
              "queue in an array; sleeps at once" }
            { "array-queue-informing", array_queue_informing, [P] $crate::sync::mutex::ArrayQueue<P, $crate::sync::wait::Informing>, queue, [fair informed],
              "ICPP 2001, section 4",
              "queue in an array; gives way to threads that matter more" }
            { "queue", queue, [P] $crate::sync::mutex::Queue<P>, queue, [fair],
              "TR 1994, section 5.2",
              "mcs-spin under the name that the TR has for it" }
            { "queue-np", queue_np, [P] $crate::sync::mutex::QueueNp<P>, queue, [fair wishes],
              "TR 1994, section 5.2",
              "as queue, asking the kernel not to preempt the holder" }
            { "queue-hs", queue_hs, [P] $crate::sync::mutex::QueueHs<P>, queue, [wishes],
              "TR 1994, figure 2",
              "list-based queue that passes over waiters who do not answer" }
            { "smart-q", smart_q, [P] $crate::sync::mutex::SmartQ<P>, queue, [informed wishes],
              "TR 1994, figure 3",
              "list-based queue that passes over preempted waiters" }
            { "ticket-np", ticket_np, [P] $crate::sync::mutex::TicketNp<P>, in_place, [wishes],
              "TR 1994, figure 4",
              "take a number; a number whose owner does not answer is passed over" }
            { "native", native, [P] $crate::sync::mutex::Native<P>, timed, [],
              "Drepper, Futexes Are Tricky",
              "a futex with three states, like glibc's low-level lock" }
            { "native-np", native_np, [P] $crate::sync::mutex::Native<P, $crate::sync::wait::Unpreemptable>, timed, [wishes],
              "TR 1994, section 5.2",
              "as native, asking the kernel not to preempt the holder" }
            { "hardware", hardware, [P] $crate::sync::mutex::Hardware<P>, queue, [],
              "TR 1994, section 5.2, Native",
              "the machine's own lock: a locked line, or test-and-test_and_set without backoff" }
            { "hardware-np", hardware_np, [P] $crate::sync::mutex::HardwareNp<P>, queue, [wishes],
              "TR 1994, section 5.2, Native-np",
              "as hardware, asking the kernel not to preempt the holder" }
        }
    };
}

/// What to do with one lock of the catalogue, whichever it is.
pub trait MutexVisitor<P: Platform> {
    /// What comes out.
    type Output;
    /// Called with the lock's type.
    fn visit<L: RawMutex<P> + 'static>(self, entry: &'static Entry) -> Self::Output;
}

/// What to do with one lock of the catalogue that lives in place and can give up waiting.
pub trait TimedMutexVisitor<P: Platform> {
    /// What comes out.
    type Output;
    /// Called with the lock's type.
    fn visit<L: RawMutexTimed<P, Node = ()> + 'static>(self, entry: &'static Entry) -> Self::Output;
}

/// What to do with one lock of the catalogue that lives in place.
pub trait InPlaceMutexVisitor<P: Platform> {
    /// What comes out.
    type Output;
    /// Called with the lock's type.
    fn visit<L: RawMutex<P, Node = ()> + 'static>(self, entry: &'static Entry) -> Self::Output;
}

macro_rules! list {
    ($($row:tt)*) => {
        expand! {
            /// Every mutual-exclusion lock, in the order in which they are listed to a person.
            MUTEXES: Entry { kinds: in_place timed; flags: [fair informed wishes] } by entry;
            /// Calls the visitor with the lock of this name; `None` if there is none.
            visit_mutex: MutexVisitor of any on Platform;
            /// Calls the visitor with the lock of this name; `None` if there is none that lives in place.
            visit_in_place_mutex: InPlaceMutexVisitor of in_place on Platform;
            /// Calls the visitor with the lock of this name; `None` if there is none with a timed acquire.
            visit_timed_mutex: TimedMutexVisitor of timed on Platform;
            => [$($row)*]
        }
    };
}

mutexes!(list);
