// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one list of barriers: [`barriers!`](crate::barriers).

use platform::Platform;
use sync::barrier::RawBarrier;

/// What there is to say about a barrier without running it.
#[derive(Clone, Copy, Debug)]
pub struct BarrierEntry {
    /// Catalogue name = file name (with `-` for `_`) = CLI value = test name.
    pub name: &'static str,
    /// One line for a person who chooses.
    pub summary: &'static str,
    /// Where it comes from.
    pub citation: &'static str,
    /// Lives entirely in its own words, takes any thread, and its parties may join and leave.
    pub dynamic: bool,
    /// Uses what the kernel tells: about threads, processors or processor time.
    pub informed: bool,
}

/// Expands `$callback! { rows }` with one row per barrier: `{ name, ident, Type<P>, kind, flags, citation,
/// summary }`. `kind` is `dynamic` (in place, parties join and leave) or `fixed`.
#[macro_export]
macro_rules! barriers {
    ($callback:ident) => {
        $callback! {
            { "b-wakeful", b_wakeful, [P] $crate::sync::barrier::BWakeful<P>, dynamic, [informed],
              "this project",
              "the default: yields to its own threads, sleeps where others take what it yields" }
            { "b-wakeful-sleep", b_wakeful_sleep, [P] $crate::sync::barrier::BSleep<P>, dynamic, [],
              "this project",
              "b-wakeful that sleeps at once; to compare with" }
            { "b-wakeful-yield", b_wakeful_yield, [P] $crate::sync::barrier::BYield<P>, dynamic, [informed],
              "this project",
              "b-wakeful that yields, whoever takes it; to compare with" }
            { "c-spin", c_spin, [P] $crate::sync::barrier::CSpin<P>, fixed, [],
              "TR 1994, section 5.4",
              "a counter and a sense; spins, whoever runs" }
            { "c-block", c_block, [P] $crate::sync::barrier::CBlock<P>, fixed, [],
              "TR 1994, section 5.4",
              "a counter and a semaphore; sleeps at once" }
            { "c-sp-blk", c_sp_blk, [P] $crate::sync::barrier::CSpBlk<P>, fixed, [],
              "TR 1994, figure 8",
              "spins for as long as a context switch takes, then sleeps" }
            { "c-last1", c_last1, [P] $crate::sync::barrier::CLast1<P>, fixed, [],
              "TR 1994, section 5.4",
              "spins for a time that follows the last wait, then sleeps" }
            { "c-avg3", c_avg3, [P] $crate::sync::barrier::CAvg3<P>, fixed, [],
              "TR 1994, figure 9",
              "spins for a time that follows the last three waits, then sleeps" }
            { "c-coarse", c_coarse, [P] $crate::sync::barrier::CCoarse<P>, fixed, [],
              "TR 1994, section 5.4",
              "spins or sleeps, as would have been right the last time" }
            { "c-sched", c_sched, [P] $crate::sync::barrier::CSched<P>, fixed, [informed],
              "TR 1994, figure 10",
              "the first N - P sleep, the last P spin; for P processors of one's own" }
            { "tree", tree, [P] $crate::sync::barrier::Tree<P>, fixed, [],
              "Mellor-Crummey, Scott, TOCS 1991",
              "arrival by a tree, one wake-up flag; spins, whoever runs" }
            { "com-tree", com_tree, [P] $crate::sync::barrier::ComTree<P>, fixed, [],
              "TR 1994, section 5.4",
              "tree that spins for as long as a context switch takes, then sleeps" }
            { "scal-sc", scal_sc, [P] $crate::sync::barrier::ScalSc<P>, fixed, [informed],
              "TR 1994, figures 11 and 12",
              "members of a processor sleep, a tree between processors" }
            { "scal-sc-yield", scal_sc_yield, [P] $crate::sync::barrier::ScalSc<P, true>, fixed, [informed],
              "TR 1994, section 5.4",
              "as scal-sc, but its members yield: the code that ran on the paper's KSR" }
            { "incremental-spin", incremental_spin, [P] $crate::sync::barrier::Incremental<P, $crate::sync::wait::Spin>, fixed, [],
              "ICPP 2001, section 4",
              "a counter and a flag; spins, whoever runs" }
            { "incremental-block", incremental_block, [P] $crate::sync::barrier::Incremental<P, $crate::sync::wait::Block>, fixed, [],
              "ICPP 2001, section 4",
              "a counter and a flag; sleeps at once" }
            { "incremental-informing", incremental_informing, [P] $crate::sync::barrier::Incremental<P, $crate::sync::wait::Informing>, fixed, [informed],
              "ICPP 2001, section 4",
              "a counter and a flag; gives way to threads that matter more" }
            { "b-mcs-spin", b_mcs_spin, [P] $crate::sync::barrier::BMcs<P, $crate::sync::wait::Spin>, fixed, [],
              "ICPP 2001, section 4",
              "two trees; spins, whoever runs" }
            { "b-mcs-block", b_mcs_block, [P] $crate::sync::barrier::BMcs<P, $crate::sync::wait::Block>, fixed, [],
              "ICPP 2001, section 4",
              "two trees; sleeps at once" }
            { "b-mcs-informing", b_mcs_informing, [P] $crate::sync::barrier::BMcs<P, $crate::sync::wait::Informing>, fixed, [informed],
              "ICPP 2001, section 4",
              "two trees; gives way to threads that matter more" }
        }
    };
}

/// What to do with one barrier of the catalogue, whichever it is.
pub trait BarrierVisitor<P: Platform> {
    /// What comes out.
    type Output;
    /// Called with the barrier's type.
    fn visit<B: RawBarrier<P> + 'static>(self, entry: &'static BarrierEntry) -> Self::Output
    where
        B::Place: 'static,
        B::Member: 'static;
}

macro_rules! list {
    ($($row:tt)*) => {
        expand! {
            /// Every barrier, in the order in which they are listed to a person.
            BARRIERS: BarrierEntry { kinds: dynamic; flags: [informed] } by barrier;
            /// Calls the visitor with the barrier of this name; `None` if there is none.
            visit_barrier: BarrierVisitor of any on Platform;
            => [$($row)*]
        }
    };
}

barriers!(list);
