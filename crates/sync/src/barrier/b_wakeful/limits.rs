// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limits of the default barrier: times are multiples of what a move costs ([`platform::Costs`]), in ns.

use platform::Platform;

/// For so long one of the last to arrive waits for the others.
pub use crate::wait::SWITCH_PAUSES as SPIN_PAUSES;
/// A thread that was away so long after yielding suspects that others have its processor: 64 threads of
/// one processor yield to each other in that time, and a slice is far longer.
pub fn long<P: Platform>() -> u64 {
    4 * P::costs().idle
}
/// A yield that takes longer has let somebody else run. COST: 300 to 550 ns are the system call alone (800 in
/// one of 100), two switches take 2,000 to 2,800 where a switch costs 1,000. It is a time of the machine; no
/// cell known.
pub fn switch<P: Platform>() -> u64 {
    P::costs().switch * 13 / 10
}
/// A thread that has waited so long sleeps: a third of a slice, to which waking an idle processor adds
/// little.
pub fn patience<P: Platform>() -> u64 {
    P::costs().slice / 3
}
/// A thread that finds its processor otherwise idle, while more are missing than the others can run, sleeps
/// after what sleeping and waking cost. An idle processor takes threads over from others.
pub fn lonely<P: Platform>() -> u64 {
    P::costs().idle
}
/// COST: ms, by trial. Two slices and more of a machine of two processors: what lasts for less may be one
/// thread's turn. The unit of all that the mood looks at, whose clock has milliseconds. No cell known for
/// each alone.
const SLICES_MS: u32 = 8;
/// Of processor time are looked at before a judgement: what lasts for a slice or two is no load.
pub const FIRST_MS: u32 = SLICES_MS;
/// Beyond twice those, for which a sample of processor time is good.
pub const SAMPLE_MS: u32 = SLICES_MS;
/// Asleep before a trial, enough for a rate of rounds. Four times as many after each trial that failed.
pub const REST_MS: u32 = 2 * SLICES_MS;
/// COST: us a thread and round, asleep, below which the work is little. Beside two busy processes a round of
/// 1 us takes 5 to 8 a thread, of 20 us 20 to 45 (2 to 32 threads). Those are the cells.
pub const LITTLE_US: u32 = 16;
/// us a round, asleep, below which threads with a processor for each may gain by a trial, however few they
/// are. A region of two threads that do nothing takes 8 to 62 us, on one processor or on two.
pub const SHORT_US: u32 = 4 * LITTLE_US;
/// COST: us, by trial: the same where others have all processors. Rounds of 200 us asleep took 100 in trials,
/// there. With one processor without others they took 66 instead of 62. Cells: heat 400 by 400, two threads
/// and two busy processes (`docs/openmp-speed.md`).
pub const FULL_SHORT_US: u32 = 4 * SHORT_US;
/// Of a trial; half of that where it makes less than a quarter of the rounds.
pub const TRIAL_MS: u32 = SLICES_MS;
/// COST: the same with a processor for each, by trial. From one processor it takes the system's balance and
/// two slices until all run at the same time. Cell: two threads and two busy processes, rounds in a trial
/// (`docs/design/barrier.md`, "Trials under load").
pub const FIT_TRIAL_MS: u32 = 4 * TRIAL_MS;
/// COST: pauses for which a waiter spins between two yields, with a processor for each: 200 us, much less
/// than a slice and more than the processors' ticks are apart. Cell: the same as of [`FIT_TRIAL_MS`].
pub const PERSIST_PAUSES: u32 = 5_000;
/// After so long, two slices and more, such a waiter sleeps.
pub fn most_patience<P: Platform>() -> u64 {
    P::costs().slice * 8 / 3
}
/// The unit of a rate of rounds.
pub const RATE_MS: u32 = 16;
/// Between looks where somebody is about to be done.
pub fn nap<P: Platform>() -> u64 {
    P::costs().idle
}
