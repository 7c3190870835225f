// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a kernel view costs: two threads on one processor hand a futex to and fro, so that every operation
//! is a context switch.

use std::sync::atomic::{AtomicU32, Ordering};

use linux::Linux;
use platform::Platform;

use crate::error::JobError;
use crate::harness::{self, Plan, Sample};
use crate::process;

/// Threads that it takes.
pub const THREADS: usize = 2;

/// Measures switches, in this process, under the view of the environment, which must be `view`.
pub fn run(view: &str, plan: Plan) -> Result<Sample, JobError> {
    linux::init();
    process::restrict(0, &process::processors()[..1])?;
    let turn = AtomicU32::new(0);
    let unseen = AtomicU32::new(0);
    let (sample, _) = harness::measure(
        plan,
        |worker| {
            // Each asks for itself: of the other one it would have to know whether it has registered yet.
            if linux::view::name(linux::view()) != view {
                unseen.fetch_add(1, Ordering::Relaxed);
            }
            let (me, other) = (worker.index as u32, 1 - worker.index as u32);
            while worker.goes_on() {
                while turn.load(Ordering::Relaxed) != me && worker.goes_on() {
                    Linux::wait(&turn, other, None);
                }
                worker.count();
                turn.store(other, Ordering::Relaxed);
                Linux::wake(&turn, 1);
            }
            // It may be our turn again already; the other must not wait for us.
            turn.store(other, Ordering::Relaxed);
            Linux::wake(&turn, 1);
        },
        || (),
    )?;
    match unseen.into_inner() {
        0 => Ok(sample),
        _ => Err(JobError::NoView(view.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const PLAN: Plan = Plan {
        threads: THREADS,
        counted: THREADS,
        warm_up: Duration::from_millis(5),
        interval: Duration::from_millis(30),
    };

    /// In threads of their own: they are tied to one processor. Many short ones, because the end is where
    /// it could hang.
    #[test]
    fn switches_end_and_a_view_that_is_not_there_is_told() {
        let run = |view| std::thread::spawn(move || run(view, PLAN)).join().unwrap();
        assert!(matches!(run("no such view"), Err(JobError::NoView(view)) if view == "no such view"));
        let name = linux::view::name(linux::view());
        let mut samples = Vec::new();
        for _ in 0..20 {
            match run(name) {
                Ok(sample) => samples.push(sample),
                // Other tests of this process have threads too, and some may be unseen.
                Err(error) => assert!(matches!(error, JobError::NoView(_)), "{error}"),
            }
        }
        // Where others have the processor, it may have had none in one of them.
        let is_seen = |sample: &Sample| sample.operations > 0 && sample.context_switches > 0;
        assert!(samples.is_empty() || samples.iter().any(is_seen), "{samples:?}");
    }
}
