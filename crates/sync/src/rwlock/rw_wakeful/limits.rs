// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limits of the default reader-writer lock: multiples of what a move costs ([`platform::Costs`]), in ns.
//!
//! The multiples were found on two virtual processors with the grid of `wakeful bench rwlock`.

use platform::Platform;

/// COST: rounds of 64 releases, about 2,000 reads: a writer that ends the bias pays as much as some tens of
/// them. No cell known.
pub const QUIET_ENOUGH: u32 = 32;

/// Between two looks of a waiter, at first: a line's way there and back.
pub fn poll<P: Platform>() -> u64 {
    P::costs().line
}

/// And at most, for the wait grows the gaps.
pub fn poll_most<P: Platform>() -> u64 {
    2 * P::costs().switch
}

/// An arrival looks for so long before it queues: a few context switches (Karlin et al. 1991).
pub fn arrival<P: Platform>() -> u64 {
    3 * P::costs().switch
}

/// The front stays awake for so long after its demand. COST: two sleeps, by trial. No cell known.
pub fn spin<P: Platform>() -> u64 {
    2 * P::costs().sleep
}

/// It demands the lock after this.
pub fn patience<P: Platform>() -> u64 {
    P::costs().sleep
}

/// And lets nobody pass any more after this.
pub fn urgent<P: Platform>() -> u64 {
    P::costs().slice / 3
}

/// A front beside a lock for one alone naps: first for so long, then longer ...
pub fn nap<P: Platform>() -> u64 {
    3 * P::costs().sleep
}

/// ... up to this (and T6: so long a reader leaves the lock to a front that demands it) ...
pub fn nap_most<P: Platform>() -> u64 {
    10 * P::costs().sleep
}

/// ... and demands it after this: a hand-over of lock and data costs a twentieth at most.
pub fn turn<P: Platform>() -> u64 {
    30 * P::costs().sleep
}

/// F1. The front counts twice in a row for so long how often the lock is used.
pub fn sample<P: Platform>() -> u64 {
    P::costs().switch
}

/// BOUND: on more processors than these the others may make more uses in a sample than VERSION can count. One
/// thread that writes every 31 ns does, too: then the pace is too low, and it may not be compared.
pub const FEW: u32 = 4;

/// COST: a lock is hot if it is used so often in both samples together, a writer's use counting twice. A use
/// every 170 ns: two moves of a cache line. Cell: that of [`DEBT_MOST`].
pub const HOT: u32 = 12;

/// W0. As many looks, each after a pause, as take two turns of a lock that is [`HOT`]: about 0.4 us.
pub const CLOSE_LOOKS: u32 = 24;

/// H2. BOUND: so many uses after the last count, at least, is the next one made: counting takes time in which
/// the lock may be held. Twice as many and more can be told from each other ([`TOLD`]).
pub const COUNTED: u32 = 12;

/// H2. BOUND: so many uses of one alone can be told from others by the version: a third of them is COUNTED.
pub const TOLD: u32 = 36;

/// H3. COST: uses that are lost before sharing is given up, by trial: what ten bits hold. With 255 the costs
/// of a few hand-overs by the line in a row passed for those of sharing. The cell is `bench rwlock` with 20
/// lines, 400 outside and 50 % writers.
pub const DEBT_MOST: u32 = 1_000;

/// H3. For so long, in units of 2^20 ns: some ten times what a trial that fails takes, about 1 ms.
pub fn alone_ms<P: Platform>() -> u32 {
    (((5 * P::costs().slice) >> 20) as u32).min(16)
}

/// Where there are processors to spare a reader looks, and the front stays awake, for so long (W8 of
/// `mutex::Wakeful`).
pub fn roomy<P: Platform>() -> u64 {
    P::costs().slice / 3
}

/// Such a reader lets so long pass between two looks at most: a line's way for each processor, so that the
/// looks of all do not keep the line from those who leave. ASSUMED: 64 are enough.
pub fn poll_roomy<P: Platform>() -> u64 {
    P::costs().line * u64::from(P::processors().min(64))
}

/// H1. COST: units of 2^20 ns, about 1 ms: for so long after the moment in `front`, which is rounded down to
/// a unit, threads share without another look. 8 instead made no difference in the cell of [`DEBT_MOST`].
pub const SHARED_MS: u32 = 1;

/// A free lock is left to a front that demands it for so long ...
pub fn grace<P: Platform>() -> u64 {
    2 * P::costs().switch
}

/// ... or for so long if it has to be woken.
pub fn waking<P: Platform>() -> u64 {
    P::costs().idle
}

/// BOUND: how often a reader that left by another's place is looked for: it moves only while yet another
/// leaves so.
pub const LOOKS_ELSEWHERE: u32 = 100;
