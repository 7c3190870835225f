// SPDX-License-Identifier: MIT OR Apache-2.0
//! `RwLock` through lock_api: what std's and parking_lot's users expect of theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

use static_assertions::{assert_impl_all, assert_not_impl_any};
use wakeful::{RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard};

assert_impl_all!(RwLock<u32>: Send, Sync);
assert_impl_all!(RwLockReadGuard<'static, u32>: Sync);
assert_not_impl_any!(RwLockReadGuard<'static, u32>: Send);
assert_not_impl_any!(RwLockWriteGuard<'static, u32>: Send);
assert_not_impl_any!(RwLock<std::cell::Cell<u32>>: Sync);
const _: () = assert!(size_of::<RwLock<()>>() == 20);

/// Long enough that a thread which was to arrive has arrived.
const SHORT: Duration = Duration::from_millis(50);
/// Longer than any correct wait here.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn readers_share_and_writers_do_not() {
    let lock = RwLock::new(1);
    {
        let (one, two) = (lock.read(), lock.read());
        assert_eq!(*one + *two, 2);
        assert!(lock.try_write().is_none());
        assert!(lock.try_read().is_some());
        assert!(lock.is_locked() && !lock.is_locked_exclusive());
    }
    {
        let mut guard = lock.write();
        *guard += 1;
        assert!(
            lock.try_read().is_none() && lock.try_write().is_none() && lock.try_upgradable_read().is_none()
        );
        assert!(lock.try_read_recursive().is_none());
        assert!(lock.is_locked_exclusive());
    }
    assert!(!lock.is_locked());
    assert_eq!(lock.into_inner(), 2);
}

/// From std's own tests: readers and writers at random from many threads, and a count that comes out right.
#[test]
fn many_threads_at_random() {
    const THREADS: usize = 10;
    const ROUNDS: usize = 1_000;
    let lock = RwLock::new((0usize, 0usize));
    let writes = AtomicUsize::new(0);
    thread::scope(|scope| {
        for index in 0..THREADS {
            let (lock, writes) = (&lock, &writes);
            scope.spawn(move || {
                let mut state = index as u32 * 7919 + 1;
                for _ in 0..ROUNDS {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    if (state >> 16).is_multiple_of(THREADS as u32) {
                        let mut pair = lock.write();
                        pair.0 += 1;
                        writes.fetch_add(1, Relaxed);
                        pair.1 += 1;
                    } else {
                        let pair = lock.read();
                        assert_eq!(pair.0, pair.1, "a reader beside a writer");
                    }
                }
            });
        }
    });
    let writes = writes.into_inner();
    assert_eq!(lock.into_inner(), (writes, writes));
}

#[test]
fn a_panic_releases_and_leaves_no_poison() {
    let lock = Arc::new(RwLock::new(1));
    for write in [true, false] {
        let ours = lock.clone();
        let result = thread::spawn(move || {
            let guards = if write { (Some(ours.write()), None) } else { (None, Some(ours.read())) };
            std::panic::resume_unwind(Box::new(guards.0.is_some()));
        });
        assert!(result.join().is_err());
        assert_eq!(*lock.write(), 1);
    }
}

#[test]
fn a_writer_stops_new_readers_but_not_recursive_ones() {
    let lock = RwLock::new(());
    let wrote = AtomicBool::new(false);
    thread::scope(|scope| {
        let outer = lock.read();
        scope.spawn(|| {
            let _guard = lock.write();
            wrote.store(true, Relaxed);
        });
        // The writer demands the lock sooner or later; from then on it is its turn.
        let patience = Instant::now();
        while lock.try_read().is_some() {
            assert!(patience.elapsed() < LONG, "the writer never demanded the lock");
            thread::yield_now();
        }
        assert!(!wrote.load(Relaxed));
        drop((lock.read_recursive(), lock.try_read_recursive().expect("beside a reader")));
        assert!(!wrote.load(Relaxed));
        drop(outer);
    });
    assert!(wrote.into_inner() && lock.try_write().is_some());
}

#[test]
fn upgrading_waits_for_readers_and_lets_no_writer_in_between() {
    let lock = RwLock::new(0);
    let upgraded = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = lock.read();
        let (there, wait) = std::sync::mpsc::channel();
        scope.spawn({
            let (lock, upgraded) = (&lock, &upgraded);
            move || {
                let guard = lock.upgradable_read();
                assert!(lock.try_upgradable_read().is_none());
                there.send(()).unwrap();
                let mut guard = RwLockUpgradableReadGuard::upgrade(guard);
                upgraded.store(true, Relaxed);
                *guard += 1;
                let guard = RwLockWriteGuard::downgrade_to_upgradable(guard);
                assert_eq!(*guard, 1);
                let guard = RwLockUpgradableReadGuard::downgrade(guard);
                assert!(lock.try_read_recursive().is_some());
                assert_eq!(*guard, 1);
            }
        });
        wait.recv().unwrap();
        // Comes before the upgrade in time, and yet after it.
        scope.spawn(|| {
            let mut guard = lock.write();
            assert_eq!(*guard, 1);
            *guard += 1;
        });
        thread::sleep(SHORT);
        assert!(!upgraded.load(Relaxed), "upgraded beside a reader");
        assert_eq!(*reader, 0);
        drop(reader);
    });
    assert_eq!(lock.into_inner(), 2);
}

#[test]
fn who_cannot_upgrade_keeps_what_it_has() {
    let lock = RwLock::new(0);
    let reader = lock.read();
    let guard = lock.upgradable_read();
    let guard = RwLockUpgradableReadGuard::try_upgrade(guard).expect_err("beside a reader");
    let start = Instant::now();
    let guard = RwLockUpgradableReadGuard::try_upgrade_for(guard, SHORT).expect_err("beside a reader");
    assert!(start.elapsed() >= SHORT);
    // New readers get in again.
    drop(lock.read());
    drop(reader);
    assert_eq!(*RwLockUpgradableReadGuard::try_upgrade(guard).expect("nobody else is there"), 0);
}

#[test]
fn timeouts_end() {
    let lock = RwLock::new(());
    thread::scope(|scope| {
        let guard = lock.write();
        let tries = scope.spawn(|| {
            let start = Instant::now();
            assert!(lock.try_read_for(SHORT).is_none() && start.elapsed() >= SHORT);
            assert!(lock.try_write_until(Instant::now() + SHORT).is_none() && start.elapsed() >= 2 * SHORT);
            assert!(lock.try_upgradable_read_for(SHORT).is_none() && start.elapsed() >= 3 * SHORT);
            assert!(start.elapsed() < LONG);
        });
        tries.join().expect("no panic");
        drop(guard);
    });
    assert!(lock.try_write_for(Duration::ZERO).is_some());
    assert!(lock.try_read_until(Instant::now()).is_some());
    let reader = lock.read();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(lock.try_write_for(SHORT).is_none());
            // Who gave up keeps nobody out.
            assert!(lock.try_read().is_some());
        });
    });
    drop(reader);
}

/// A thread forks while it holds the lock and others wait for it. The child has the lock, and nobody waits
/// there.
#[test]
fn a_child_has_the_lock_for_itself() {
    static LOCK: RwLock<u32> = RwLock::new(0);
    let guard = LOCK.write();
    let waiters: Vec<_> = (0..4u32)
        .map(|index| {
            thread::spawn(move || if index % 2 == 0 { *LOCK.write() += 1 } else { drop(LOCK.read()) })
        })
        .collect();
    thread::sleep(SHORT);
    // SAFETY: the child calls only what may be called in one: the lock, and _exit.
    match unsafe { libc::fork() } {
        -1 => panic!("cannot fork"),
        0 => {
            // SAFETY: limits how long the child may hang.
            unsafe { libc::alarm(20) };
            drop(guard);
            for _ in 0..3 {
                *LOCK.write() += 1;
                drop(LOCK.read());
            }
            // A thread of the child's own contends.
            let guard = LOCK.read();
            let other = thread::spawn(|| LOCK.try_write_for(Duration::from_millis(1)).is_none());
            let kept_out = other.join().unwrap_or(false);
            drop(guard);
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(if kept_out { 42 } else { 1 }) };
        }
        child => {
            let mut status = 0;
            // SAFETY: our own child.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert!(
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 42,
                "the child ended with {status:#x}"
            );
        }
    }
    drop(guard);
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    assert_eq!(*LOCK.read(), 2);
}

macro_rules! each {
    ($({ $name:literal, $ident:ident, [P] $type:ty, $kind:ident, $($rest:tt)* })*) => {
        /// Every lock of the catalogue that lives in place.
        mod each {
            $(each!(@test $kind $ident);)*
        }
    };
    (@test queue $ident:ident) => {};
    (@test $kind:ident $ident:ident) => {
        #[test]
        fn $ident() {
            use wakeful::raw::$ident as lock;
            static TOTAL: lock::RwLock<usize> = lock::RwLock::new(0);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..200 {
                            *TOTAL.write() += 1;
                            let seen = *TOTAL.read();
                            assert!((1..=800).contains(&seen));
                        }
                    });
                }
            });
            assert_eq!(*TOTAL.read(), 800);
        }
    };
}
catalog::rwlocks!(each);

/// Guards that are forgotten are counted for ever. So many that the count is full keep the next reader out;
/// they do not come to look like nobody.
#[test]
fn forgotten_readers_keep_a_writer_out() {
    static LOCK: RwLock<u32> = RwLock::new(1);
    let kept = LOCK.read();
    for _ in 0..1 << 19 {
        if let Some(guard) = LOCK.try_read() {
            std::mem::forget(guard);
        }
        assert!(LOCK.try_write().is_none(), "a writer beside readers");
    }
    assert_eq!(*kept, 1);
}
