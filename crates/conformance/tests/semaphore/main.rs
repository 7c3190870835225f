// SPDX-License-Identifier: MIT OR Apache-2.0
//! The semaphore on this computer, in loom and in shuttle; and the checkers find what is broken.

#![cfg_attr(not(feature = "twins"), allow(unused, reason = "what only the twins use"))]

use conformance::loom::{Bounds, Loom};
use conformance::semaphore::{AddsInTwoSteps, ForgetsSleepers, exclusion, supply, timing, turns};
use conformance::shuttle::{Schedules, Shuttle};
use conformance::twist::{Deaf, Lying, NoAcquire, NoRelease, Twisted};
use conformance::{Hints, Settings, further, hinted, long};
use linux::Linux;
use platform::{Atomic, Platform, RunState};
use sync::semaphore::{RawSemaphore, Wakeful};

mod copied;
mod loom;
mod orderings;
mod shuttle;
mod threads;
#[cfg(feature = "twins")]
mod twins;

/// COST: ns a look of the models' clock: with the first a standby polls some times, with the second it goes
/// to sleep at once.
const STEPS: [u64; 2] = [15_000, 1_000_000];

fn loom(name: &str, preemptions: usize, executions: usize, body: fn()) {
    conformance::loom::explore_all(name, &hinted(&STEPS), preemptions, executions, body);
}

fn shuttle(name: &str, count: usize, body: fn()) {
    let schedules = &[Schedules::Random, Schedules::Pct(3)];
    conformance::shuttle::explore_all(name, &hinted(&STEPS), schedules, count, body);
}

const PREEMPTED: Settings =
    Settings { hints: Hints::Always(RunState::Preempted), clock_step_ns: 1_000_000, generation: 0 };

fn loom_finds(what: &str, body: impl Fn() + Send + Sync + 'static) {
    conformance::loom::finds(PREEMPTED, what, body);
}
