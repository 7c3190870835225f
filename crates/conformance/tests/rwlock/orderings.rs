// SPDX-License-Identifier: MIT OR Apache-2.0
//! Situations that the other loom tests do not come to at their bounds and that some ordering is for.
//! `cargo xtask mutate` says which.

use conformance::loom::{Loom, reach};
use conformance::twist::{Honoured, Twisted};
use conformance::{Cell as _, Hints, Machine, rwlock};
use platform::{Platform, RunState};
use std::sync::Arc;
use sync::rwlock::{Fifo, Queue, RawRwLock, RawRwLockRecursive, RawRwLockUpgrade, Wakeful as RwWakeful};
use sync::wait::Unpreemptable;

const RUNNING: Hints = Hints::Always(RunState::Running);

/// Readers who come in beside an active one, and one in the middle who leaves (A3, R4).
#[test]
fn loom_rw_queue_entering_beside() {
    reach("rw-queue, beside, two", RUNNING, (2, 5_000), || {
        rwlock::entering_beside::<Loom, Queue<Loom, Fifo>>(2)
    });
    reach("rw-queue, beside, three", RUNNING, (1, 5_000), || {
        rwlock::entering_beside::<Loom, Queue<Loom, Fifo>>(3)
    });
}

/// A reader that may upgrade becomes the writer as soon as the other has left.
#[test]
fn loom_rw_wakeful_try_upgrade() {
    reach("rw-wakeful, try upgrade", RUNNING, (2, 5_000), || {
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
    reach("rw-wakeful, upgrade beside recursion", RUNNING, (2, 5_000), || {
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

/// A reader that comes while a writer waits for another one becomes a member when that writer has just gone,
/// and so is inside (A7).
#[test]
fn loom_rw_wakeful_joining() {
    type L = Twisted<Loom, Honoured>;
    reach("rw-wakeful-np, joining", RUNNING, (3, 100_000), || {
        let shared = Arc::new((RwWakeful::<L, Unpreemptable>::new(), <L as Machine>::Cell::new()));
        // SAFETY: here and below, released once, in the way it was acquired.
        unsafe { shared.0.read(&()) };
        let ours = shared.clone();
        let writer = L::spawn(move || {
            // SAFETY: see above.
            unsafe {
                ours.0.write(&());
                ours.1.bump();
                ours.0.unlock_write(&());
            }
        });
        let ours = shared.clone();
        let reader = L::spawn(move || {
            // SAFETY: see above.
            unsafe {
                ours.0.read(&());
                ours.1.get();
                ours.0.unlock_read(&());
            }
        });
        L::yield_now();
        // SAFETY: see above.
        unsafe { shared.0.unlock_read(&()) };
        L::join(writer);
        L::join(reader);
    });
}
