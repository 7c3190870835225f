// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one list of reader-writer locks: [`rwlocks!`](crate::rwlocks!).

use platform::{Platform, Readers};
use sync::rwlock::{RawRwLock, RawRwLockRecursive};

use crate::Entry;

/// Expands `$callback! { rows }` with one row per reader-writer lock, in the form of
/// [`mutexes!`](crate::mutexes!).
#[macro_export]
macro_rules! rwlocks {
    ($callback:ident) => {
        $callback! {
            { "rw-wakeful", rw_wakeful, [P] $crate::sync::rwlock::Wakeful<P>, timed, [informed],
              "this project",
              "the default: one waiter watches, the others sleep in line; knows who runs" }
            { "rw-wakeful-np", rw_wakeful_np, [P] $crate::sync::rwlock::Wakeful<P, $crate::sync::wait::Unpreemptable>, timed, [informed wishes],
              "this project",
              "as rw-wakeful, asking the kernel not to preempt the holder" }
            { "rw-tas-b", rw_tas_b, [P] $crate::sync::rwlock::TasB<P>, in_place, [],
              "TR 1994, section 5.3",
              "one word, test-and-test_and_set with bounded exponential backoff" }
            { "rw-tas-b-np", rw_tas_b_np, [P] $crate::sync::rwlock::TasB<P, $crate::sync::wait::Unpreemptable>, in_place, [wishes],
              "TR 1994, section 5.3",
              "the same; wishes not to be preempted while holding" }
            { "rw-queue", rw_queue, [P] $crate::sync::rwlock::Queue<P, $crate::sync::rwlock::Fifo>, queue, [fair],
              "Krieger, Stumm, Unrau, ICPP 1993",
              "doubly linked queue; spins on its own line, whoever runs" }
            { "rw-smart-q", rw_smart_q, [P] $crate::sync::rwlock::SmartQ<P>, queue, [informed wishes],
              "TR 1994, figures 5 to 7",
              "doubly linked queue that passes over preempted waiters" }
            { "rw-native", rw_native, [P] $crate::sync::rwlock::Native<P>, timed, [],
              "TR 1994, section 5.3",
              "a futex that counts readers, who come first" }
            { "rw-native-np", rw_native_np, [P] $crate::sync::rwlock::Native<P, $crate::sync::wait::Unpreemptable>, timed, [wishes],
              "TR 1994, section 5.3",
              "the same; wishes not to be preempted while holding" }
            { "rw-hardware", rw_hardware, [P] $crate::sync::rwlock::Hardware<P>, queue, [],
              "TR 1994, section 5.3, RW-Native",
              "a count of readers behind the machine's own lock" }
            { "rw-hardware-np", rw_hardware_np, [P] $crate::sync::rwlock::HardwareNp<P>, queue, [wishes],
              "TR 1994, section 5.3, RW-Native-np",
              "the same; wishes not to be preempted while holding" }
        }
    };
}

/// What to do with one reader-writer lock of the catalogue, whichever it is.
pub trait RwLockVisitor<P: Platform> {
    /// What comes out.
    type Output;
    /// Called with the lock's type.
    fn visit<L: RawRwLock<P> + 'static>(self, entry: &'static Entry) -> Self::Output;
}

/// What to do with one reader-writer lock of the catalogue that lives in place, can give up waiting, and
/// lets a reader read once more.
pub trait TimedRwLockVisitor<P: Platform> {
    /// What comes out.
    type Output;
    /// Called with the lock's type.
    fn visit<L: RawRwLockRecursive<P> + 'static>(self, entry: &'static Entry) -> Self::Output;
}

macro_rules! list {
    ($($row:tt)*) => {
        expand! {
            /// Every reader-writer lock, in the order in which they are listed to a person.
            RWLOCKS: Entry { kinds: in_place timed; flags: [fair informed wishes] } by rwlock;
            /// Calls the visitor with the lock of this name; `None` if there is none.
            visit_rwlock: RwLockVisitor of any on Readers;
            /// Calls the visitor with the lock of this name; `None` if there is none with a timed acquire.
            visit_timed_rwlock: TimedRwLockVisitor of timed on Readers;
            => [$($row)*]
        }
    };
}

rwlocks!(list);
