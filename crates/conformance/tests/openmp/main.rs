// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of OpenMP, on this computer, in loom and in shuttle; and the checkers find what is broken.

#![cfg_attr(not(feature = "twins"), allow(unused, reason = "what only the twins use"))]

use conformance::loom::{Bounds, Loom};
use conformance::openmp::*;
use conformance::shuttle::{Schedules, Shuttle};
use conformance::twist::{Deaf, Fickle, Lying, NoAcquire, NoRelease, Twisted};
use conformance::{Hints, Machine, Settings, distinct, further, hinted};
use linux::Linux;
use platform::{RunState, Wide};
use sync::openmp::{Deque, Iterations};

mod loom;
mod shuttle;
mod threads;
#[cfg(feature = "twins")]
mod twins;

/// ns a look of the models' clock.
const STEP: [u64; 1] = [1_000_000];

fn loom(name: &str, preemptions: usize, body: fn()) {
    let bounds = Bounds { preemptions, executions: 2_000 * further() };
    let ran = conformance::loom::explore(name, Settings::default(), bounds, body);
    eprintln!("loom: {name}: {ran} executions");
}

/// Where a barrier is involved, which goes by hints.
fn loom_by_hints(name: &str, preemptions: usize, body: fn()) {
    let bounds = Bounds { preemptions, executions: 400 * further() };
    let explore = |settings| conformance::loom::explore(name, settings, bounds, body);
    let ran: usize = distinct(&hinted(&STEP)).map(explore).sum();
    eprintln!("loom: {name}: {ran} executions");
}

fn shuttle(body: fn()) {
    for settings in distinct(&hinted(&STEP)) {
        for schedules in [Schedules::Random, Schedules::Pct(3)] {
            conformance::shuttle::explore(settings, schedules, 40 * further(), body);
        }
    }
}

type Sound<M> = Deque<M, Job<<M as Machine>::Cell>>;

/// Each body by itself, since a model has few threads.
fn each<M: Machine + Wide>() -> [fn(); 31] {
    [
        || event::<M, Sleepy<M>, NONE>(3),
        || event::<M, Sleepless<M>, NONE>(3),
        || awaited::<M>(3),
        || holders::<M, NONE>(3),
        alone::<M>,
        || (kin::<M>(3, true), kin::<M>(3, false)).0,
        flag::<M>,
        dependent::<M, NONE>,
        followed::<M>,
        || queue::<M, Sound<M>>(3),
        || tasks::<M, Sleepy<M>, NONE>(3, 5),
        || tasks::<M, Sleepless<M>, NONE>(3, 3),
        || descendants::<M, Sleepy<M>>(3),
        || from_outside::<M, Sleepy<M>, NONE>(3),
        || from_outside::<M, Sleepless<M>, NONE>(3),
        || finish::<M, Sleepy<M>>(),
        sees_region::<M>,
        leaves::<M>,
        done::<M>,
        last::<M>,
        || fork_join::<M, Sleepy<M>, NONE>(3, 3, 1),
        || region::<M, Sleepy<M>, NONE>(2, 0, 2, true),
        || region::<M, Sleepless<M>, NONE>(2, 1, 2, true),
        || region::<M, Sleepy<M>, NONE>(2, 1, 1, false),
        || region::<M, Sleepy<M>, NONE>(0, 0, 0, true),
        || fork_join::<M, Sleepless<M>, NONE>(3, 3, 1),
        || turns::<M, Sleepy<M>, NONE>(3, 5, 2),
        || (iterations::<M>(3, 7, false, 2), iterations::<M>(3, 9, true, 1)).0,
        || first::<M>(3),
        || order::<M, Sleepy<M>, NONE>(3, 3),
        || progress::<M, Sleepy<M>>(),
    ]
}
