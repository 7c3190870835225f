// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings under which a checker explores what it has explored already are left out.
//!
//! The checkers repeat themselves: loom by its order, shuttle by its seed. So two explorations of one body
//! differ only if the model once gave another answer. A model notes here what it was asked. Settings whose
//! answers to all that are those of earlier settings lead to the same executions, step by step.

use std::cell::Cell;

use platform::RunState;

use crate::{Hints, Settings};

/// What depends on the settings. Whether the hint is this one is asked by `1 << state`.
pub(crate) const STATE: u32 = 1 << 8;
/// What is other than fixed where hints are mixed.
pub(crate) const MIXED: u32 = 1 << 9;
/// The time.
pub(crate) const CLOCK: u32 = 1 << 10;
/// [`platform::Platform::generation`].
pub(crate) const GENERATION: u32 = 1 << 11;

const STATES: [RunState; 4] = [RunState::Running, RunState::Preempted, RunState::Blocked, RunState::Unknown];

thread_local! {
    /// A model runs all its threads on one thread of the system.
    static ASKED: Cell<u32> = const { Cell::new(0) };
}

/// The model is asked this.
pub(crate) fn asked(what: u32) {
    ASKED.set(ASKED.get() | what);
}

/// Those settings whose exploration is not that of earlier ones, which must have been explored, on this
/// thread, when the next one is asked for.
pub fn distinct(settings: &[Settings]) -> impl Iterator<Item = Settings> {
    let mut explored: Vec<(Settings, u32)> = Vec::new();
    let mut open = None;
    let mut rest = settings.iter();
    std::iter::from_fn(move || {
        let asked = ASKED.take();
        explored.extend(open.take().map(|settings| (settings, asked)));
        open = rest
            .find(|next| !explored.iter().any(|&(as_before, asked)| same(as_before, **next, asked)))
            .copied();
        open
    })
}

/// Whether these settings give the same answers.
fn same(one: Settings, other: Settings, asked: u32) -> bool {
    let unasked = |what| asked & what == 0;
    let hints = match (one.hints, other.hints) {
        (Hints::Always(one), Hints::Always(other)) => {
            let agree = |state: RunState| (one == state) == (other == state);
            one == other
                || unasked(STATE) && STATES.iter().all(|&state| unasked(1 << state as u32) || agree(state))
        }
        (Hints::Mixed, Hints::Mixed) => true,
        _ => unasked(!(CLOCK | GENERATION)),
    };
    hints
        && (unasked(CLOCK) || one.clock_step_ns == other.clock_step_ns)
        && (unasked(GENERATION) || one.generation == other.generation)
}
