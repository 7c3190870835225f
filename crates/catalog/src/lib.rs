// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one list of algorithms. Command, interposer, benchmark and tests all expand it: adding an algorithm is one file in
//! `sync` and one line in [`mutexes!`].
#![no_std]

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
    /// Lives entirely in its own word or words: fits into `pthread_mutex_t` and can be chosen with `WAKEFUL_LOCK`.
    pub in_place: bool,
    /// Has a timed acquire.
    pub timed: bool,
    /// Serves waiters in the order of their arrival (where it says so: those that run).
    pub fair: bool,
    /// Uses what a kernel view tells.
    pub informed: bool,
}

/// Expands `$callback! { rows }` with one row per mutual-exclusion lock:
/// `{ name, ident, Type<P>, kind, flags, citation, summary }`. `ident` is the name as an identifier, for tests; `kind` is
/// `timed` (in place, with a timed acquire), `in_place` or `queue` (needs a node).
#[macro_export]
macro_rules! mutexes {
    ($callback:ident) => {
        $callback! {
            { "wakeful", wakeful, [P] $crate::sync::mutex::Wakeful<P>, timed, [informed],
              "this project",
              "the default: barging, one standby, sleepers in line; knows who runs" }
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

macro_rules! flag {
    ($want:ident in [$($flag:ident)*]) => { false $(|| flag!(@same $want $flag))* };
    (@same fair fair) => { true };
    (@same informed informed) => { true };
    (@same $a:ident $b:ident) => { false };
}

macro_rules! kind {
    (@in_place queue) => {
        false
    };
    (@in_place $kind:ident) => {
        true
    };
    (@timed timed) => {
        true
    };
    (@timed $kind:ident) => {
        false
    };
    (@if timed: timed $then:block) => {
        $then
    };
    (@if timed: $kind:ident $then:block) => {};
    (@if in_place: queue $then:block) => {};
    (@if in_place: $kind:ident $then:block) => {
        $then
    };
}

macro_rules! expand {
    ($({ $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*], $citation:literal, $summary:literal })*) => {
        /// Every mutual-exclusion lock, in the order in which they are listed to a person.
        pub static MUTEXES: &[Entry] = &[$(Entry {
            name: $name,
            summary: $summary,
            citation: $citation,
            in_place: kind!(@in_place $kind),
            timed: kind!(@timed $kind),
            fair: flag!(fair in [$($flag)*]),
            informed: flag!(informed in [$($flag)*]),
        }),*];

        /// Calls the visitor with the lock of this name; `None` if there is none.
        pub fn visit_mutex<P: Platform, V: MutexVisitor<P>>(name: &str, visitor: V) -> Option<V::Output> {
            let entry = entry(name)?;
            $(if name == $name {
                return Some(visitor.visit::<$type>(entry));
            })*
            None
        }

        /// Calls the visitor with the lock of this name; `None` if there is none that lives in place.
        pub fn visit_in_place_mutex<P: Platform, V: InPlaceMutexVisitor<P>>(name: &str, visitor: V) -> Option<V::Output> {
            let entry = entry(name)?;
            $(kind!(@if in_place: $kind {
                if name == $name {
                    return Some(visitor.visit::<$type>(entry));
                }
            });)*
            None
        }

        /// Calls the visitor with the lock of this name; `None` if there is none with a timed acquire.
        pub fn visit_timed_mutex<P: Platform, V: TimedMutexVisitor<P>>(name: &str, visitor: V) -> Option<V::Output> {
            let entry = entry(name)?;
            $(kind!(@if timed: $kind {
                if name == $name {
                    return Some(visitor.visit::<$type>(entry));
                }
            });)*
            None
        }
    };
}

mutexes!(expand);

/// The entry of this name.
pub fn entry(name: &str) -> Option<&'static Entry> {
    MUTEXES.iter().find(|entry| entry.name == name)
}
