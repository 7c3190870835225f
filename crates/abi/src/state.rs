// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread's run state and its wish, in one word (KE-1). What changes it, and why by compare-and-swap:
//! `platform::ke1`.

use crate::{RUN_STATE_MASK, RunState, WISH_SHIFT, Wish};

const WISH_MASK: u32 = 0xff << WISH_SHIFT;

/// The word.
pub const fn new(state: RunState, wish: Wish) -> u32 {
    state as u32 | (wish as u32) << WISH_SHIFT
}

/// Its run state.
#[inline]
pub const fn run_state(word: u32) -> RunState {
    RunState::from_u32(word & RUN_STATE_MASK)
}

/// Its wish.
#[inline]
pub const fn wish(word: u32) -> Wish {
    Wish::from_u32((word & WISH_MASK) >> WISH_SHIFT)
}

/// The word with another run state.
#[inline]
pub const fn with_run_state(word: u32, state: RunState) -> u32 {
    word & !RUN_STATE_MASK | state as u32
}

/// The word with another wish.
#[inline]
pub const fn with_wish(word: u32, wish: Wish) -> u32 {
    word & !WISH_MASK | (wish as u32) << WISH_SHIFT
}
