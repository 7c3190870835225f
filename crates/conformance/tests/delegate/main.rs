// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every delegating lock of the catalogue: on this computer, in loom, in shuttle; and the checkers find what
//! is broken.

use conformance::{Hints, Settings, hinted};
use platform::RunState;

macro_rules! timed_only {
    (timed $($item:item)*) => { $($item)* };
    ($kind:ident $($item:item)*) => {};
}

mod loom;
mod shuttle;
mod threads;
mod trouble;
#[cfg(feature = "twins")]
mod twins;

/// COST: ns a look of the models' clock: with the first a client looks some times before it gives up, with
/// the second it sleeps or withdraws at once.
const STEPS: [u64; 2] = [1_000, 1_000_000];

/// The settings of the models: each kind of hint, each clock; and a process that is a forked copy, for which
/// a lock is made ready by its first holder.
fn all() -> Vec<Settings> {
    let hints = Hints::Always(RunState::Running);
    let copy = Settings { hints, clock_step_ns: STEPS[0], generation: 1 };
    [hinted(&STEPS), vec![copy]].concat()
}
