// SPDX-License-Identifier: MIT OR Apache-2.0
//! In loom.

use super::*;

#[test]
fn loom_exclusion() {
    loom("semaphore, two", 3, 1_000, || exclusion::<Loom, Wakeful<Loom>>(2, 2));
    loom("semaphore, three", 2, 1_000, || exclusion::<Loom, Wakeful<Loom>>(3, 1));
}

#[test]
fn loom_supply() {
    loom("semaphore, supply", 2, 1_000, || supply::<Loom, Wakeful<Loom>>(2, 2));
    loom("semaphore, turns", 3, 500, || turns::<Loom, Wakeful<Loom>>(2));
}

/// Far enough to see a token added between the two steps of L2, in which the flag is clear though a thread
/// sleeps.
#[test]
fn loom_window() {
    let bounds = Bounds { preemptions: 3, executions: 10_000 * further() };
    conformance::loom::explore("semaphore, window", PREEMPTED, bounds, || {
        supply::<Loom, Wakeful<Loom>>(2, 1)
    });
}

#[test]
fn loom_timing() {
    loom("semaphore, timing", 2, 1_000, || timing::<Loom, Wakeful<Loom>>(3, 1, 3_000_000));
}
