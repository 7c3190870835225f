// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of the fibers that threads share, on this computer, in loom and in shuttle; and the checkers
//! find what is
//! broken.

#![cfg_attr(not(feature = "twins"), allow(unused, reason = "what only the twins use"))]

use conformance::fiber::*;
use conformance::loom::{Bounds, Loom};
use conformance::shuttle::{Schedules, Shuttle};
use conformance::{Machine, Settings, further, long};
use fiber::bolt::Bolt;
use fiber::deque::Deque;
use fiber::guests::Guests;
use fiber::steer::Steer;
use fiber::token::Token;
use linux::Linux;

mod loom;
mod shuttle;
mod threads;
#[cfg(feature = "twins")]
mod twins;

type Of<M> = Deque<M, <M as Machine>::Cell, 4>;

fn loom(name: &str, preemptions: usize, body: fn()) {
    let bounds = Bounds { preemptions: preemptions + long() as usize, executions: 10_000 * further() };
    let ran = conformance::loom::explore(name, Settings::default(), bounds, body);
    eprintln!("loom: {name}: {ran} executions");
}

fn shuttle(body: fn()) {
    for schedules in [Schedules::Random, Schedules::Pct(3)] {
        conformance::shuttle::explore(Settings::default(), schedules, 2_000 * further(), body);
    }
}
