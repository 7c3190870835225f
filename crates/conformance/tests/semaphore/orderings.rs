// SPDX-License-Identifier: MIT OR Apache-2.0
//! Situations that the other loom tests do not come to at their bounds and that some ordering is for.
//! `cargo xtask mutate` says which.

use conformance::loom::{Loom, reach};
use conformance::{Hints, Machine};
use platform::{Platform, RunState, Wait};
use std::sync::Arc;
use sync::semaphore::{self, RawSemaphore};

const RUNNING: Hints = Hints::Always(RunState::Running);

/// The last sleeper of a semaphore leaves while a standby goes to sleep (L2, W4).
#[test]
fn loom_semaphore_standby_goes_to_sleep() {
    reach("semaphore, standby", RUNNING, (2, 20_000), || {
        let semaphore = Arc::new(semaphore::Wakeful::<Loom>::new(0));
        let mut waiter = semaphore::Waiter::default();
        assert!(matches!(semaphore.step(&mut waiter, None), semaphore::Step::Sleep(_)));
        // It was the standby in vain, so that the next seven are none.
        for _ in 0..7 {
            let mut other = semaphore::Waiter::default();
            semaphore.step(&mut other, None);
            semaphore.slept(&mut other, Wait::TimedOut, None);
        }
        let ours = semaphore.clone();
        let standby = Loom::spawn(move || assert!(ours.acquire(None)));
        let ours = semaphore.clone();
        let sleeper = Loom::spawn(move || {
            let mut step = ours.slept(&mut waiter, Wait::Woken, None);
            while let semaphore::Step::Sleep(expected) = step {
                let outcome = Loom::wait(ours.word(), expected, None);
                step = ours.slept(&mut waiter, outcome, None);
            }
            assert_eq!(step, semaphore::Step::Taken);
        });
        semaphore.release();
        (0..6).for_each(|_| Loom::pause());
        semaphore.release();
        Loom::join(standby);
        Loom::join(sleeper);
        assert_eq!(semaphore.available(), 0);
    });
}
