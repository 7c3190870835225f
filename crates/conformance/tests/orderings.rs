// SPDX-License-Identifier: MIT OR Apache-2.0
//! Situations that the other loom tests do not come to at their bounds and that some ordering is for.
//! `cargo xtask mutate` says which.

use conformance::loom::{Bounds, Loom};
use conformance::{Cell as _, Hints, Machine, Settings, bodies, rwlock};
use platform::{Platform, RunState, Wait};
use std::sync::Arc;
use sync::mutex::{Mcs, Wakeful};
use sync::rwlock::{Fifo, Queue, RawRwLock, RawRwLockRecursive, RawRwLockUpgrade, Wakeful as RwWakeful};
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
    explore("mcs-informing, convoy", PREEMPTED, (1, 15_000), || {
        bodies::convoy::<Loom, Mcs<Loom, Informing>>(4, 0)
    });
}

/// Sleepers come while the standby takes the lock and promotes the oldest.
#[test]
fn loom_wakeful_sleepers_come() {
    explore("wakeful, convoy", PREEMPTED, (1, 5_000), || bodies::convoy::<Loom, Wakeful<Loom>>(3, 2));
    explore("wakeful, convoy of four", PREEMPTED, (2, 15_000), || {
        bodies::convoy::<Loom, Wakeful<Loom>>(4, 0)
    });
}

/// The standby, promoted from the line, takes the lock while another thread, the relay, is to promote the
/// next (A3, Q4).
#[test]
fn loom_wakeful_relay() {
    explore("wakeful, relay", PREEMPTED, (2, 15_000), || bodies::convoy::<Loom, Wakeful<Loom>>(4, 1));
}

const RUNNING: Hints = Hints::Always(RunState::Running);

/// Readers who come in beside an active one, and one in the middle who leaves (A3, R4).
#[test]
fn loom_rw_queue_entering_beside() {
    explore("rw-queue, beside, two", RUNNING, (2, 5_000), || {
        rwlock::entering_beside::<Loom, Queue<Loom, Fifo>>(2)
    });
    explore("rw-queue, beside, three", RUNNING, (1, 5_000), || {
        rwlock::entering_beside::<Loom, Queue<Loom, Fifo>>(3)
    });
}

/// A reader that may upgrade becomes the writer as soon as the other has left.
#[test]
fn loom_rw_wakeful_try_upgrade() {
    explore("rw-wakeful, try upgrade", RUNNING, (2, 5_000), || {
        let shared = Arc::new((RwWakeful::<Loom>::new(), <Loom as Machine>::Cell::new()));
        let ours = shared.clone();
        let reader = Loom::spawn(move || {
            // SAFETY: released once, in the way it was acquired.
            unsafe {
                ours.0.read(&());
                ours.1.get();
                ours.0.unlock_read(&());
            }
        });
        shared.0.upgradable();
        // SAFETY: acquired above.
        while !unsafe { shared.0.try_upgrade() } {
            Loom::pause();
        }
        shared.1.bump();
        // SAFETY: upgraded above.
        unsafe { shared.0.unlock_write(&()) };
        Loom::join(reader);
        assert_eq!(shared.1.get(), 1);
    });
}

/// A reader that is not counted acquires the lock once more while the upgrader waits for it, and so is
/// counted at last (A5, B5).
#[test]
fn loom_rw_wakeful_upgrade_beside_recursion() {
    explore("rw-wakeful, upgrade beside recursion", RUNNING, (2, 5_000), || {
        Loom::register();
        let shared = Arc::new((RwWakeful::<Loom>::new(), <Loom as Machine>::Cell::new()));
        let (lock, cell) = &*shared;
        // SAFETY: as many releases as acquisitions; readers who meet are no longer counted.
        unsafe {
            lock.read(&());
            lock.read(&());
            lock.unlock_read(&());
            lock.unlock_read(&());
        }
        lock.upgradable();
        let ours = shared.clone();
        let reader = Loom::spawn(move || {
            let (lock, cell) = &*ours;
            Loom::register();
            // SAFETY: acquired twice, released twice.
            unsafe {
                lock.read(&());
                Loom::pause();
                lock.read_recursive();
                lock.unlock_read(&());
                Loom::pause();
                cell.get();
                lock.unlock_read(&());
            }
        });
        // SAFETY: acquired above.
        unsafe { lock.upgrade() };
        cell.bump();
        // SAFETY: upgraded above.
        unsafe { lock.unlock_write(&()) };
        Loom::join(reader);
        assert_eq!(cell.get(), 1);
    });
}

/// The last sleeper of a semaphore leaves while a standby goes to sleep (L2, W4).
#[test]
fn loom_semaphore_standby_goes_to_sleep() {
    explore("semaphore, standby", RUNNING, (2, 20_000), || {
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
