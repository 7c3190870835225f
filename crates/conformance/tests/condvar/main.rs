// SPDX-License-Identifier: MIT OR Apache-2.0
//! The default condition variable in loom and shuttle, on this computer, and twins of it with one mistake
//! each.

#![cfg_attr(not(feature = "twins"), allow(unused, reason = "what only the twins use"))]

use std::panic::{AssertUnwindSafe, catch_unwind};

use conformance::condvar::{self as bodies, Condvar};
use conformance::loom::{Bounds, Loom};
use conformance::shuttle::{Schedules, Shuttle};
use conformance::{Hints, Machine, Settings, hinted, long};
use linux::Linux;
use platform::{Atomic, Deadline, Ordering::*, Platform, RunState, Wait};
use sync::condvar::{Step, Waiter, Wakeful};
use sync::mutex::{Native, Wakeful as WakefulMutex};

mod at_release;
mod chain;
mod copied;
mod deferred;
mod loom;
mod shuttle;
mod threads;
#[cfg(feature = "twins")]
mod twins;

/// COST: ns a look; a standby stays for 40 us, looks every 150 ns and asks every 2 us.
const STEPS: [u64; 3] = [1_000, 15_000, 1_000_000];

fn loom(name: &str, preemptions: usize, executions: usize, body: fn()) {
    conformance::loom::explore_all(name, &hinted(&STEPS), preemptions, executions, body);
}

fn shuttle(name: &str, count: usize, body: fn()) {
    let schedules = &[Schedules::Random, Schedules::Pct(2), Schedules::Pct(5)];
    conformance::shuttle::explore_all(name, &hinted(&STEPS), schedules, count, body);
}

/// Deadlines of the models: some looks away.
const PATIENCE_NS: u64 = 2_000_000;

/// A condition variable in this state, see its table.
fn in_state<P: Platform>(state: u32) -> Wakeful<P> {
    const { assert!(size_of::<Wakeful<P>>() == 2 * size_of::<P::AtomicU32>()) };
    let words = [7, state].map(|word| std::mem::ManuallyDrop::new(<P::AtomicU32 as Atomic<u32>>::new(word)));
    // SAFETY: `Wakeful` has two words, `sequence` and `state`.
    unsafe { std::ptr::from_ref(&words).cast::<Wakeful<P>>().read() }
}
