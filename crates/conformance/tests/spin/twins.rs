// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checkers find what is broken.

use conformance::twins::{ReleasesTwice, TestThenSet};
use conformance::twist::{NoAcquire, NoRelease};
use conformance::{Hints, Settings};
use platform::RunState;

use super::*;

/// With clocks that leap, waiters nap.
const NAPPING: Settings =
    Settings { hints: Hints::Always(RunState::Preempted), clock_step_ns: STEPS[1], generation: 0 };

#[test]
fn the_checkers_find_twins() {
    let finds = |what, body: fn()| conformance::loom::finds(NAPPING, what, body);
    finds("a spin lock that tests, then sets", || bodies::exclusion::<Loom, TestThenSet<Loom>>(2, 1));
    finds("a spin lock released twice", || bodies::exclusion::<Loom, ReleasesTwice<Spin<Loom>>>(2, 2));
    type A = Twisted<Loom, NoAcquire>;
    finds("a spin lock without acquire", || bodies::exclusion::<A, Spin<A>>(2, 1));
    type R = Twisted<Loom, NoRelease>;
    finds("a spin lock without release", || bodies::exclusion::<R, Spin<R>>(2, 1));
}

#[test]
fn random_schedules_find_twins() {
    let finds = |what, body: fn()| conformance::shuttle::finds(NAPPING, what, body);
    finds("a spin lock that tests, then sets", || bodies::exclusion::<Shuttle, TestThenSet<Shuttle>>(2, 1));
    finds("a spin lock released twice", || bodies::exclusion::<Shuttle, ReleasesTwice<Spin<Shuttle>>>(2, 2));
}
