// SPDX-License-Identifier: MIT OR Apache-2.0
//! Teams, on this computer, in loom, in shuttle and in the simulator; and the checkers find what is broken.

#![cfg_attr(not(feature = "twins"), allow(unused, reason = "what only the twins use"))]

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use conformance::loom::{Bounds, Loom};
use conformance::shuttle::{Schedules, Shuttle};
use conformance::team::*;
use conformance::twist::{Deaf, Fickle, Lying, NoAcquire, NoRelease, Twisted};
use conformance::{Hints, Settings, distinct, further, hinted};
use linux::Linux;
use platform::RunState;
use sync::team::{Chunks, Job, Kind, RawTeam, Schedule, Wakeful};

mod loom;
mod shuttle;
mod simulated;
mod threads;
#[cfg(feature = "twins")]
mod twins;

/// COST: ns a look of the models' clock: with the first a helper spins for some looks, with the second it
/// goes to sleep at once.
const STEPS: [u64; 2] = [60_000, 20_000_000];

const KINDS: [Kind; 2] = [Kind::Bound, Kind::Free];

fn loom(name: &str, preemptions: usize, body: fn()) {
    let bounds = Bounds { preemptions, executions: 400 * further() };
    let ran: usize = distinct(&hinted(&STEPS))
        .map(|settings| conformance::loom::explore(name, settings, bounds, body))
        .sum();
    eprintln!("loom: {name}: {ran} executions");
}

fn shuttle(body: fn()) {
    for settings in distinct(&hinted(&STEPS)) {
        for schedules in [Schedules::Random, Schedules::Pct(3)] {
            conformance::shuttle::explore(settings, schedules, 50 * further(), body);
        }
    }
}
