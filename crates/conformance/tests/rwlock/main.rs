// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every reader-writer lock of the catalogue: on this computer with many more threads than processors, in
//! loom, in shuttle.

#![cfg_attr(not(feature = "twins"), allow(unused, reason = "what only the twins use"))]

use conformance::loom::{Bounds, Loom};
use conformance::shuttle::{Schedules, Shuttle};
use conformance::twist::{Fickle, Lying, Twisted};
use conformance::{HINTS, Hints, Settings, further, long, rwlock as bodies};
use linux::Linux;
use platform::RunState;

const MANY: u32 = 32;

fn wishes(name: &str) -> bool {
    catalog::rwlock(name).expect("it is in the catalogue").wishes
}

fn settings(name: &str) -> Vec<Settings> {
    let informed = catalog::rwlock(name).expect("it is in the catalogue").informed;
    let hints = if informed { &HINTS[..] } else { &HINTS[..1] };
    hints.iter().map(|&hints| Settings { hints, ..Settings::default() }).collect()
}

fn loom(name: &'static str, what: &str, preemptions: usize, executions: usize, body: fn()) {
    let mut ran = 0;
    for settings in settings(name) {
        let bounds =
            Bounds { preemptions: preemptions + long() as usize, executions: executions * further() };
        ran += conformance::loom::explore(&format!("{name}, {what}"), settings, bounds, body);
    }
    eprintln!("loom: {name}, {what}: {ran} executions");
}

fn shuttle(name: &'static str, what: &str, count: usize, body: fn()) {
    let mut ran = 0;
    for settings in settings(name) {
        for schedules in [Schedules::Random, Schedules::Pct(3)] {
            ran += conformance::shuttle::explore(settings, schedules, count * further(), body);
        }
    }
    eprintln!("shuttle: {name}, {what}: {ran} executions");
}

macro_rules! timed_only {
    (timed $($item:item)*) => { $($item)* };
    ($kind:ident $($item:item)*) => {};
}

mod crowd;
mod loom;
mod orderings;
mod shuttle;
mod threads;
#[cfg(feature = "twins")]
mod twins;
mod wakeful;
