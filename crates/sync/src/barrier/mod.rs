// SPDX-License-Identifier: MIT OR Apache-2.0
//! Barriers: nobody goes on before everybody has come.
//!
//! One round is an *episode*: it begins when the one before is complete and is complete when as many threads have arrived as
//! the barrier has *parties*. Of those who waited, exactly one is told that it was the serial one.

mod b_wakeful;

pub use b_wakeful::{BWakeful, BWakefulLeaf};

use platform::Platform;

/// A barrier, without the memory for its members.
///
/// The papers' barriers have shared variables, variables that each member has for itself, and, those shaped like a tree, a
/// place for each member that others know. They come here as `self`, [`RawBarrier::Member`] and [`RawBarrier::Place`]. A barrier that
/// lives entirely in its own words has `()` for both.
pub trait RawBarrier<P: Platform>: Send + Sync + Sized {
    /// A member's place, known to others.
    type Place: Default + Send + Sync;
    /// A member's private variables.
    type Member: Default + Send;

    /// A barrier for so many threads. 0 counts as 1.
    fn new(parties: u32) -> Self;

    /// Waits until all have arrived; true for exactly one of those who waited in this episode. What a member wrote before is seen by
    /// every member after.
    ///
    /// # Safety
    /// The barrier stays where it is. `places` are the same each time, and at least as many as parties (none where a place
    /// has size 0). `index` is below the number of parties, and each member's own; `member` is the one that this member has brought
    /// each time since the barrier was new.
    unsafe fn wait(&self, places: &[Self::Place], index: u32, member: &mut Self::Member) -> bool;
}

/// A barrier that lives in place, knows nobody, and whose parties may come and go.
pub trait RawBarrierDynamic<P: Platform>: RawBarrier<P, Member = ()> {
    /// One party more, from the present episode on, for which the caller answers: it is waited for.
    fn join(&self);

    /// Arrives without waiting, as one party less from the next episode on.
    fn arrive_and_drop(&self);

    /// Returns when everybody has left whom complete episodes have released: then the memory may be freed. Nobody must be waiting.
    fn drain(&self);
}
