// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long the default mutex waits for what: each limit is a multiple of what a move costs on this machine
//! ([`platform::Costs`]).
//!
//! On a virtual machine, in us: [`relay`] 0.5, [`grace`] 2, [`arrival`] 3, [`nap`] from 30, [`spin`] 50,
//! [`patience`] 100, [`turn`] 500. Who *naps* sleeps for a time; who *sleeps*, until it is woken.
//!
//! The multiples were found on two virtual processors with the grid of `wakeful bench mutex`; those of W8
//! on simulated machines of 64 to 1,024 processors (`wakeful sim defaults`). Times in ns.

use platform::Platform;

/// W3. Between two looks of a sample: a line's way there and back.
pub fn sample<P: Platform>() -> u64 {
    P::costs().line
}

/// W3. COST: looks in a sample. A lock that is held a fifth of the time passes for shareable in 3 % of the
/// samples. No cell known.
pub const SAMPLES: u32 = 24;

/// W1, W5. Between two looks of a waiter, at first: two hand-overs of the line, so that the holder's
/// releases come through.
pub fn poll<P: Platform>() -> u64 {
    2 * P::costs().line
}

/// The same of one that shares, which wants the lock as soon as it is free: the line's way here.
pub fn poll_sharing<P: Platform>() -> u64 {
    P::costs().line / 2
}

/// And at most: half of what a sleep costs, so that a long wait is noticed to end in time.
pub fn poll_most<P: Platform>() -> u64 {
    P::costs().sleep / 2
}

/// W1. An arrival looks for so long before it joins the line: a few context switches (Karlin et al. 1991).
pub fn arrival<P: Platform>() -> u64 {
    3 * P::costs().switch
}

/// W5. A standby stays awake for so long beside a holder that runs.
pub fn spin<P: Platform>() -> u64 {
    P::costs().idle
}

/// W3. A standby's first nap beside a hot lock. COST: three sleeps, by trial; the next naps double, up to
/// [`patience`]. No cell known.
pub fn nap<P: Platform>() -> u64 {
    3 * P::costs().sleep
}

/// W2. Who cannot join the line naps for this part of its wait so far, from [`patience`] ...
pub const NAP_PART: u64 = 16;

/// ... to a third of a slice.
pub fn nap_most<P: Platform>() -> u64 {
    P::costs().slice / 3
}

/// W6. A lone standby leaves a hot lock alone for so long. To take over the lock and its data costs up to
/// half a sleep, so it loses a twentieth at most.
pub fn patience<P: Platform>() -> u64 {
    10 * P::costs().sleep
}

/// W6. A standby with others behind it, which pays a promotion besides: two switches and perhaps a wake-up
/// from idle, a tenth of this. It stays awake for so long after a demand.
pub fn turn<P: Platform>() -> u64 {
    10 * P::costs().idle
}

/// W7. A standby that demanded leaves the thread that steps aside so long to set RELAY: a few of the line's
/// ways.
pub fn relay<P: Platform>() -> u64 {
    P::costs().switch / 2
}

/// W7. A free lock is left to a standby that demanded it for so long. One that runs needs a tenth, and
/// [`relay`] more if nobody steps aside.
pub fn grace<P: Platform>() -> u64 {
    2 * P::costs().switch
}

/// W4. What one wait counts in a thread's memory at most: a longer one is not contention but a preempted
/// holder.
pub fn wait_most<P: Platform>() -> u64 {
    P::costs().switch
}

/// W8. COST: a thread in line looks so often before it sleeps, with so many pauses between: 15 to 70 ms,
/// which outlasts the turns of 1,024 threads. Cell: `sim defaults`, 1,024 processors.
pub const LINE_LOOKS: u32 = 100_000;
/// See [`LINE_LOOKS`].
pub const LINE_PAUSES: u32 = 16;
/// BOUND: W9. And asks at each so many of these looks, 2 to 11 us, whether somebody wants its processor.
pub const LINE_ASKS: u32 = 16;
/// W8. COST: pauses before it tries again to get into line: at first, in `-np` the same of each processor if
/// others are in line, and at most. Of 1,024 threads that come at once, one gets in after the other. Cell:
/// `sim defaults`, 1,024 processors; on 64 other pauses are as good.
pub const AGAIN_PAUSES: u32 = 32;
/// COST: see [`AGAIN_PAUSES`]. The turns of the others come before, so the lock loses nothing, and its word
/// moves less. 16 processors and fewer make no difference. Cell: `sim defaults`, 1,024 processors, levels 1
/// and 2.
pub const AGAIN_PAUSES_OF_EACH: u32 = 2;
/// See [`AGAIN_PAUSES`].
pub const AGAIN_MOST_PAUSES: u32 = 32_768;
/// P1. COST: threads that are passed at most, by trial: whoever is the oldest then may well run. The cells
/// are those of 256 processors at levels 2 and 4 in `sim defaults`.
pub const PASSES: u32 = 64;
