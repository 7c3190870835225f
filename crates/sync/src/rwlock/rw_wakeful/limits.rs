// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers of the default reader-writer lock.

/// COST: rounds of 64 releases, about 2,000 reads: a writer that ends the bias pays as much as some tens of
/// them.
pub const QUIET_ENOUGH: u32 = 32;

// COST: all in ns; see `mutex::Wakeful`, whose machine this was tuned on.
/// Between two looks of a waiter: from this ...
pub const POLL_NS: u64 = 100;
/// ... to this, growing with the wait.
pub const POLL_MAX_NS: u64 = 2_000;
/// An arrival looks this long before it queues.
pub const ARRIVAL_NS: u64 = 3_000;
/// The front stays awake this long.
pub const SPIN_NS: u64 = 20_000;
/// It demands the lock after this.
pub const PATIENCE_NS: u64 = 10_000;
/// And lets nobody pass any more after this.
pub const URGENT_NS: u64 = 1_000_000;
/// A front beside a hot lock naps: first this long, then longer ...
pub const NAP_NS: u64 = 30_000;
pub const NAP_MAX_NS: u64 = 100_000;
/// ... and demands it after this.
pub const TURN_NS: u64 = 300_000;
/// The front counts twice in a row for this long how often the lock is used: it is hot ...
pub const SAMPLE_NS: u64 = 1_000;
/// ... if that is so often, for each other processor, in both together, a writer's use counting twice. A use
/// every 170 ns: two moves of a cache line.
pub const HOT: u32 = 12;
/// Where there are processors to spare a reader looks, and the front stays awake, this long (see W8 of
/// `mutex::Wakeful`).
pub const ROOMY_NS: u64 = 1_000_000;
/// Such a reader lets so long pass between two looks for each processor, so that the looks of all do not keep
/// the line from those who leave.
pub const POLL_ROOMY_NS: u64 = 100;
/// For so long (in units of 2^20 ns, about 1 ms) after the moment in `front`, which is rounded down to a
/// unit, a lock that was found not to be hot passes for such.
pub const SHARED_MS: u32 = 1;
/// A free lock is left to a front that demands it this long ...
pub const GRACE_NS: u64 = 2_000;
/// ... or this long if it has to be woken.
pub const WAKING_NS: u64 = 50_000;

/// How often a reader that left by another's place is looked for: it moves only while yet another leaves so.
pub const LOOKS_ELSEWHERE: u32 = 100;
