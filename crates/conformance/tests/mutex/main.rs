// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every mutex of the catalogue: on this computer, in loom, in shuttle; and the checkers find what is broken.

#![cfg_attr(not(feature = "twins"), allow(unused, reason = "what only the twins use"))]

use conformance::{HINTS, Settings};

/// Each hint for those that look at hints, one for those that do not.
fn settings(entry: &catalog::Entry) -> Vec<Settings> {
    let hints = if entry.informed { &HINTS[..] } else { &HINTS[..1] };
    hints.iter().map(|&hints| Settings { hints, ..Settings::default() }).collect()
}

macro_rules! timed_only {
    (timed $($item:item)*) => { $($item)* };
    ($kind:ident $($item:item)*) => {};
}

mod array_queue;
mod loom;
mod orderings;
mod shuttle;
mod threads;
#[cfg(feature = "twins")]
mod twins;
mod wakeful;
