// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every delegating lock of the catalogue: on this computer, in loom, in shuttle; and the checkers find what
//! is broken.

mod loom;
mod shuttle;
mod threads;
#[cfg(feature = "twins")]
mod twins;

use conformance::{HINTS, Settings};

/// COST: ns a look of the models' clock: with the first a client looks some times before it gives up, with
/// the second it sleeps or withdraws at once.
const STEPS: [u64; 2] = [1_000, 1_000_000];

/// The settings of the models: each kind of hint, each clock.
fn all() -> impl Iterator<Item = Settings> {
    let settings = |hints, clock_step_ns| Settings { hints, clock_step_ns, ..Settings::default() };
    HINTS.into_iter().flat_map(move |hints| STEPS.into_iter().map(move |step| settings(hints, step)))
}
