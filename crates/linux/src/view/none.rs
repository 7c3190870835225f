// SPDX-License-Identifier: MIT OR Apache-2.0
//! No view: nobody looks, every thread reads as [`RunState::Unknown`], and algorithms rely on handshakes and heuristics.

use platform::RunState;

use super::{Attached, Slot, Source};

/// The view: see the module.
pub struct None;

impl Source for None {
    fn attach(_: Slot) -> Attached {
        Attached::NotThis
    }

    fn detach(_: Slot) {}

    fn switches(_: Slot) -> u32 {
        0
    }

    #[inline(always)]
    fn run_state(_: Slot) -> RunState {
        RunState::Unknown
    }
}
