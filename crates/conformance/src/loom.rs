// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine inside loom: every interleaving up to a bound on preemptions, with weak memory.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::distinct::distinct;
use crate::{further, long};

crate::model::model!(
    /// The machine inside loom.
    Loom, loom, |turn: u32| turn.is_multiple_of(2)
);

/// What loom can say at the end of an atomic's life.
pub trait Dies {
    /// Fails if somebody's access does not come before it: a node that is freed or used anew too early.
    fn dies(&mut self);
}

impl Dies for atomic::AtomicU32 {
    fn dies(&mut self) {
        self.with_mut(|_| ());
    }
}

impl Dies for atomic::AtomicU64 {
    fn dies(&mut self) {
        self.with_mut(|_| ());
    }
}

impl<T> Dies for atomic::AtomicPtr<T> {
    fn dies(&mut self) {
        self.with_mut(|_| ());
    }
}

/// Seen by loom: two threads in it at once is a failure.
pub struct Cell(::loom::cell::UnsafeCell<u32>);

// SAFETY: loom runs one thread at a time and stops the test if two use the cell without an order between
// them.
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

/// Fails unless the exploration of something broken, `what`, fails.
pub fn finds(settings: Settings, what: &str, body: impl Fn() + Send + Sync + 'static) {
    let bounds = Bounds { preemptions: 3, executions: 20_000 };
    let found = catch_unwind(AssertUnwindSafe(|| explore(what, settings, bounds, body))).is_err();
    assert!(found, "loom let {what} pass");
}

/// Explores a situation that is to be reached within these preemptions and executions.
pub fn reach(name: &str, hints: crate::Hints, (preemptions, executions): (usize, usize), body: fn()) {
    let settings = Settings { hints, clock_step_ns: 1_000_000, generation: 0 };
    let ran = explore(name, settings, Bounds { preemptions, executions }, body);
    eprintln!("loom: {name}: {ran} executions");
}

/// Explores `body` under each of these settings, and says how far. In the long exploration with one
/// preemption more, and [`further`].
pub fn explore_all(name: &str, settings: &[Settings], preemptions: usize, executions: usize, body: fn()) {
    let bounds = Bounds { preemptions: preemptions + long() as usize, executions: executions * further() };
    let ran: usize = distinct(settings).map(|settings| explore(name, settings, bounds, body)).sum();
    eprintln!("loom: {name}: {ran} executions");
}

/// Explores `body`; returns the number of executions. On failure says which execution failed: loom is
/// deterministic, the same test fails there again.
pub fn explore(
    name: &str,
    settings: Settings,
    bounds: Bounds,
    body: impl Fn() + Send + Sync + 'static,
) -> usize {
    explore_erased(name, settings, bounds, Box::new(body))
}

/// Not generic, so that loom's own part of it is compiled once.
fn explore_erased(
    name: &str,
    settings: Settings,
    bounds: Bounds,
    body: Box<dyn Fn() + Send + Sync>,
) -> usize {
    quieten();
    let mut builder = ::loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(bounds.preemptions);
    builder.max_permutations.get_or_insert(bounds.executions);
    // How often loom looks at the number of executions.
    builder.checkpoint_interval = builder.checkpoint_interval.min(100);
    builder.max_branches = builder.max_branches.max(20_000);
    let executions = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = executions.clone();
    let result = catch_unwind(AssertUnwindSafe(|| {
        builder.check(move || {
            let execution = counter.fetch_add(1, Relaxed) + 1;
            in_world(settings, execution, &*body);
        })
    }));
    let executions = executions.load(Relaxed);
    if let Err(failure) = result {
        eprintln!("loom: {name} fails in execution {executions} ({settings:?}, {bounds:?})");
        eprintln!("loom: the same test repeats it; WAKEFUL_TRACE={executions} shows the steps");
        resume_unwind(failure);
    }
    executions
}

/// loom's threads end by a panic, which the hook of its generators keeps quiet. shuttle's hook tells of
/// each panic, and so must come before that one and be called by it.
fn quieten() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| ::shuttle::check_random(|| (), 1));
}
