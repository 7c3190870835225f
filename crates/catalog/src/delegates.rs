// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one list of delegating locks: [`delegates!`](crate::delegates!).

use platform::Platform;
use sync::delegate::RawDelegate;

/// What there is to say about a delegating lock without running it.
#[derive(Clone, Copy, Debug)]
pub struct DelegateEntry {
    /// Catalogue name = file name (with `-` for `_`) = CLI value = test name.
    pub name: &'static str,
    /// One line for a person who chooses.
    pub summary: &'static str,
    /// Where it comes from.
    pub citation: &'static str,
    /// Can give up waiting, and be held as a mutex is.
    pub timed: bool,
    /// Needs a thread that serves.
    pub served: bool,
    /// Serves clients in the order of their arrival, as far as it has places for them.
    pub fair: bool,
    /// Uses what a kernel view tells.
    pub informed: bool,
}

/// Expands `$callback! { rows }` with one row per delegating lock: `{ name, ident, Type<P>, kind, flags,
/// citation, summary }`. `kind` is `timed` (and can be held), `plain`, or `served` (needs a thread of its
/// own).
#[macro_export]
macro_rules! delegates {
    ($callback:ident) => {
        $callback! {
            { "d-wakeful", d_wakeful, [P] $crate::sync::delegate::DWakeful<P>, timed, [informed],
              "this project",
              "the default: the default mutex, whose holder serves others while that pays" }
            { "d-wakeful-on", d_wakeful_on, [P] $crate::sync::delegate::DWakeful<P, true>, timed, [informed],
              "this project",
              "d-wakeful that always delegates; to compare with" }
            { "cc-synch", cc_synch, [P] $crate::sync::delegate::CcSynch<P>, plain, [fair informed],
              "Fatourou, Kallimanis, PPoPP 2012, algorithm 1",
              "a queue of requests whose first client runs the others' as well" }
            { "dsm-synch", dsm_synch, [P] $crate::sync::delegate::DsmSynch<P>, plain, [fair informed],
              "Fatourou, Kallimanis, PPoPP 2012, algorithm 2",
              "a queue of requests as in cc-synch, on their clients' stacks" }
            { "oyama", oyama, [P] $crate::sync::delegate::Oyama<P>, plain, [informed],
              "Oyama, Taura, Yonezawa, PDSIA 1999",
              "a lock word that is a list of requests, which the holder runs before it releases" }
            { "flat-combining", flat_combining, [P] $crate::sync::delegate::FlatCombining<P>,
              plain, [informed],
              "Hendler, Incze, Shavit, Tzafrir, SPAA 2010",
              "requests in an array; whoever gets the lock runs all that it finds" }
            { "rcl", rcl, [P] $crate::sync::delegate::Rcl<P>, served, [informed],
              "Lozi and others, USENIX ATC 2012; Paznikov 2016",
              "a thread of its own runs all sections; a slot of 64 bytes a client" }
        }
    };
}

/// What to do with one delegating lock of the catalogue, whichever it is.
pub trait DelegateVisitor<P: Platform> {
    /// What comes out.
    type Output;
    /// Called with the lock's type.
    fn visit<L: RawDelegate<P> + 'static>(self, entry: &'static DelegateEntry) -> Self::Output;
}

macro_rules! list {
    ($($row:tt)*) => {
        expand! {
            /// Every delegating lock, in the order in which they are listed to a person.
            DELEGATES: DelegateEntry { kinds: timed served; flags: [fair informed] } by delegate;
            /// Calls the visitor with the lock of this name; `None` if there is none.
            visit_delegate: DelegateVisitor of any on Platform;
            => [$($row)*]
        }
    };
}

delegates!(list);
