// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine inside loom: every interleaving up to a bound on preemptions, with weak memory.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

crate::model::model!(
    /// The machine inside loom.
    Loom, loom, |turn: u32| turn % 2 == 0
);

/// Seen by loom: two threads in it at once is a failure.
pub struct Cell(::loom::cell::UnsafeCell<u32>);

// SAFETY: loom runs one thread at a time and stops the test if two use the cell without an order between them.
unsafe impl Sync for Cell {}

impl crate::Cell for Cell {
    fn new() -> Self {
        Self(::loom::cell::UnsafeCell::new(0))
    }

    fn bump(&self) {
        // SAFETY: loom checks it.
        self.0.with_mut(|number| unsafe { *number += 1 });
    }

    fn get(&self) -> u32 {
        // SAFETY: loom checks it.
        self.0.with(|number| unsafe { *number })
    }
}

/// How far to look.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Times that a thread is interrupted where it could go on, in one execution.
    pub preemptions: usize,
    /// Executions at most.
    pub executions: usize,
}

/// Explores `body`; returns the number of executions. On failure says which execution failed: loom is deterministic, the
/// same test fails there again.
pub fn explore(name: &str, settings: Settings, bounds: Bounds, body: impl Fn() + Send + Sync + 'static) -> usize {
    let mut builder = ::loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(bounds.preemptions);
    builder.max_permutations.get_or_insert(bounds.executions);
    builder.max_branches = builder.max_branches.max(20_000);
    let executions = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = executions.clone();
    let result = catch_unwind(AssertUnwindSafe(|| {
        builder.check(move || {
            counter.fetch_add(1, Relaxed);
            in_world(settings, &body);
        })
    }));
    let executions = executions.load(Relaxed);
    if let Err(failure) = result {
        eprintln!("loom: {name} fails in execution {executions} ({settings:?}, {bounds:?})");
        eprintln!("loom: the same test repeats it; LOOM_LOG=1 shows the steps");
        resume_unwind(failure);
    }
    executions
}
