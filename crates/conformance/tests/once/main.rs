// SPDX-License-Identifier: MIT OR Apache-2.0
//! Initialisation that happens once, on this computer, in loom and in shuttle; and the checkers find what
//! is broken.

#![cfg_attr(not(feature = "twins"), allow(unused, reason = "what only the twins use"))]

use conformance::loom::{Bounds, Loom};
use conformance::once::{BeginsTwice, WakesOne, once, once_of, poison};
use conformance::shuttle::{Schedules, Shuttle};
use conformance::twist::{Deaf, Lying, NoAcquire, NoRelease, Twisted};
use conformance::{Hints, Settings, distinct, further, hinted};
use linux::Linux;
use platform::{Atomic, Platform, RunState};
use sync::once::Wakeful;

mod copied;
mod loom;
mod shuttle;
mod threads;
#[cfg(feature = "twins")]
mod twins;

/// COST: ns a look of the models' clock: with the first a waiter polls some times, with the second it goes
/// to sleep at once.
const STEPS: [u64; 2] = [4_000, 1_000_000];

fn loom(name: &str, body: fn()) {
    let bounds = Bounds { preemptions: 3, executions: 1_000 * further() };
    let ran: usize = distinct(&hinted(&STEPS))
        .map(|settings| conformance::loom::explore(name, settings, bounds, body))
        .sum();
    eprintln!("loom: {name}: {ran} executions");
}

fn shuttle(body: fn()) {
    for settings in distinct(&hinted(&STEPS)) {
        for schedules in [Schedules::Random, Schedules::Pct(3)] {
            conformance::shuttle::explore(settings, schedules, 100 * further(), body);
        }
    }
}
