// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every reader-writer lock of the catalogue: on this computer with many more threads than processors, in
//! loom, in shuttle.

#![cfg_attr(not(feature = "twins"), allow(unused, reason = "what only the twins use"))]

use conformance::loom::{Bounds, Loom};
use conformance::shuttle::{Schedules, Shuttle};
use conformance::twist::{Fickle, Lying, Twisted};
use conformance::{HINTS, Hints, Settings, further, hinted, long, rwlock as bodies};
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
    let settings = settings(name);
    conformance::loom::explore_all(&format!("{name}, {what}"), &settings, preemptions, executions, body);
}

fn shuttle(name: &'static str, what: &str, count: usize, body: fn()) {
    let schedules = &[Schedules::Random, Schedules::Pct(3)];
    conformance::shuttle::explore_all(&format!("{name}, {what}"), &settings(name), schedules, count, body);
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
