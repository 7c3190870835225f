// SPDX-License-Identifier: MIT OR Apache-2.0
//! Situations that the other loom tests do not come to at their bounds and that some ordering is for. `cargo xtask mutate` says which.

use conformance::loom::{Bounds, Loom};
use conformance::{Hints, Machine, Settings, bodies, rwlock};
use platform::{Platform, RunState, Wait};
use std::sync::Arc;
use sync::mutex::{Mcs, Wakeful};
use sync::rwlock::{Fifo, Queue};
use sync::semaphore::{self, RawSemaphore};
use sync::wait::Informing;

fn explore(name: &str, hints: Hints, bounds: (usize, usize), body: fn()) {
    let settings = Settings { hints, clock_step_ns: 1_000_000, generation: 0 };
    let (preemptions, executions) = bounds;
    let ran = conformance::loom::explore(name, settings, Bounds { preemptions, executions }, body);
    eprintln!("loom: {name}: {ran} executions");
}

const PREEMPTED: Hints = Hints::Always(RunState::Preempted);

/// A thread that has slept for the lock releases it while one sleeps in line behind its successor (R4).
#[test]
fn loom_mcs_informing_sleepers_in_line() {
    explore("mcs-informing, convoy", PREEMPTED, (1, 5_000), || bodies::convoy::<Loom, Mcs<Loom, Informing>>(4, 0));
}

/// Sleepers come while the standby takes the lock and promotes the oldest.
#[test]
fn loom_wakeful_sleepers_come() {
    explore("wakeful, convoy", PREEMPTED, (1, 5_000), || bodies::convoy::<Loom, Wakeful<Loom>>(3, 2));
    explore("wakeful, convoy of four", PREEMPTED, (1, 5_000), || bodies::convoy::<Loom, Wakeful<Loom>>(4, 0));
}

/// The standby, promoted from the line, takes the lock while another thread, the relay, is to promote the next (A3, Q4).
#[test]
fn loom_wakeful_relay() {
    explore("wakeful, relay", PREEMPTED, (2, 15_000), || bodies::convoy::<Loom, Wakeful<Loom>>(4, 1));
}

const RUNNING: Hints = Hints::Always(RunState::Running);

/// Readers who come in beside an active one, and one in the middle who leaves (A3, R4).
#[test]
fn loom_rw_queue_entering_beside() {
    explore("rw-queue, beside, two", RUNNING, (2, 5_000), || rwlock::entering_beside::<Loom, Queue<Loom, Fifo>>(2));
    explore("rw-queue, beside, three", RUNNING, (1, 5_000), || rwlock::entering_beside::<Loom, Queue<Loom, Fifo>>(3));
}

/// The last sleeper of a semaphore leaves while a standby goes to sleep (L2, W4).
#[test]
fn loom_semaphore_standby_goes_to_sleep() {
    explore("semaphore, standby", RUNNING, (2, 5_000), || {
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
        Loom::pause();
        semaphore.release();
        Loom::join(standby);
        Loom::join(sleeper);
        assert_eq!(semaphore.available(), 0);
    });
}
