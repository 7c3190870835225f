// SPDX-License-Identifier: MIT OR Apache-2.0

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use wakeful::{Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{LONG, OnDrop, SHORT};

#[test]
fn locks_one_time_after_another() {
    let lock = RwLock::new(());
    drop(lock.read());
    drop(lock.write());
    drop((lock.read(), lock.read()));
    drop(lock.write());
}

/// Ten threads, each a writer one time in ten.
#[test]
fn readers_and_writers_by_chance() {
    const ROUNDS: u32 = 2_000;
    let lock = RwLock::new((0_u32, 0_u32));
    let wrote = AtomicUsize::new(0);
    thread::scope(|scope| {
        for seed in 1..=10_u32 {
            let (lock, wrote) = (&lock, &wrote);
            scope.spawn(move || {
                let mut random = seed;
                for _ in 0..ROUNDS {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    if random >> 16 < 65_536 / 10 {
                        let mut pair = lock.write();
                        pair.0 += 1;
                        pair.1 += 1;
                        wrote.fetch_add(1, Relaxed);
                    } else {
                        let pair = lock.read();
                        assert_eq!(pair.0, pair.1, "a writer is half way");
                    }
                }
            });
        }
    });
    assert_eq!(lock.into_inner().0 as usize, wrote.into_inner());
}

/// A writer that leaves a mark while it writes; readers beside it must not see the mark.
#[test]
fn nobody_reads_while_one_writes() {
    let lock = Arc::new(RwLock::new(0_i32));
    let theirs = lock.clone();
    let (done, all) = channel();
    let writer = thread::spawn(move || {
        for _ in 0..10 {
            let mut number = theirs.write();
            let before = *number;
            *number = -1;
            thread::yield_now();
            *number = before + 1;
        }
        done.send(()).unwrap();
    });
    let readers: Vec<_> = (0..5)
        .map(|_| {
            let lock = lock.clone();
            thread::spawn(move || {
                for _ in 0..100 {
                    assert!(*lock.read() >= 0);
                }
            })
        })
        .collect();
    readers.into_iter().for_each(|thread| thread.join().unwrap());
    all.recv_timeout(LONG).unwrap();
    writer.join().unwrap();
    assert_eq!(*lock.read(), 10);
}

#[test]
fn locked_by_a_destructor_during_a_panic() {
    let lock = Arc::new(RwLock::new(1));
    let theirs = lock.clone();
    let result = thread::spawn(move || {
        let _on_drop = OnDrop(|| *theirs.write() += 1);
        std::panic::resume_unwind(Box::new("on purpose"));
    })
    .join();
    assert!(result.is_err());
    assert_eq!(*lock.read(), 2);
}

#[test]
fn guards_are_released_by_a_panic_and_there_is_no_poison() {
    let lock = RwLock::new(1);
    for write in [false, true] {
        let result = catch_unwind(AssertUnwindSafe(|| {
            let _read = (!write).then(|| lock.read());
            let _write = write.then(|| lock.write());
            std::panic::resume_unwind(Box::new("on purpose"));
        }));
        assert!(result.is_err());
        assert!(lock.try_write().is_some());
    }
}

#[test]
fn data_without_a_size() {
    let lock: &RwLock<[i32]> = &RwLock::new([1, 2, 3]);
    {
        let numbers = &mut *lock.write();
        numbers[0] = 4;
        numbers[2] = 5;
    }
    let expected: &[i32] = &[4, 2, 5];
    assert_eq!(&*lock.read(), expected);
}

#[test]
fn trying() {
    let lock = RwLock::new(0);
    {
        let read = lock.read();
        assert!(lock.try_read().is_some(), "readers share");
        assert!(lock.try_write().is_none());
        drop(read);
    }
    {
        let write = lock.write();
        assert!(lock.try_read().is_none());
        assert!(lock.try_write().is_none());
        drop(write);
    }
    assert!(lock.try_write().is_some());
    assert!(lock.try_read().is_some());
}

#[test]
fn a_read_lock_says_that_it_is_read() {
    let lock = RwLock::new(0);
    assert!(!lock.is_locked() && !lock.is_locked_exclusive());
    let read = lock.read();
    assert!(lock.is_locked() && !lock.is_locked_exclusive());
    drop(read);
    let write = lock.write();
    assert!(lock.is_locked() && lock.is_locked_exclusive());
    drop(write);
    assert!(!lock.is_locked());
}

#[test]
fn get_mut_and_into_inner_take_no_lock_and_drop_once() {
    let drops = Arc::new(AtomicUsize::new(0));
    let mut lock = RwLock::new({
        let drops = drops.clone();
        OnDrop(move || {
            drops.fetch_add(1, Relaxed);
        })
    });
    std::mem::forget(lock.read());
    let _ = lock.get_mut();
    let inner = lock.into_inner();
    assert_eq!(drops.load(Relaxed), 0);
    drop(inner);
    assert_eq!(drops.load(Relaxed), 1);
}

#[test]
fn guards_of_parts() {
    let lock = RwLock::new((1, [2, 3]));
    {
        let mut second = RwLockWriteGuard::map(lock.write(), |pair| &mut pair.1[1]);
        *second = 4;
        assert!(lock.is_locked_exclusive());
    }
    let first = RwLockReadGuard::map(lock.read(), |pair| &pair.0);
    assert!(lock.try_read().is_some() && lock.try_write().is_none());
    assert_eq!(*first, 1);
    drop(first);
    assert!(RwLockReadGuard::try_map(lock.read(), |pair| pair.1.get(7)).is_err());
    assert_eq!(*lock.try_write().unwrap(), (1, [2, 4]));
}

#[test]
fn debug_does_not_wait() {
    let lock = RwLock::new(7);
    assert!(format!("{lock:?}").contains('7'));
    let write = lock.write();
    assert!(format!("{lock:?}").contains("<locked>"));
    assert_eq!(format!("{write:?}"), "7");
}

/// Waiters of both kinds with deadlines, behind a reader and behind a writer.
#[test]
fn timed_locks_give_up_not_before_their_time() {
    let lock = RwLock::new(());
    let try_both = |read: bool| {
        thread::scope(|scope| {
            scope.spawn(|| {
                let start = Instant::now();
                assert!(lock.try_write_for(SHORT).is_none());
                assert!(start.elapsed() >= SHORT);
                let start = Instant::now();
                assert_eq!(lock.try_read_until(start + SHORT).is_some(), read);
                assert!(read || start.elapsed() >= SHORT);
            });
        });
    };
    let read = lock.read();
    try_both(true);
    drop(read);
    let write = lock.write();
    try_both(false);
    drop(write);
    assert!(lock.try_write_for(LONG).is_some());
    assert!(lock.try_read_for(LONG).is_some());
}

/// A writer that gives up must not leave those behind it asleep.
#[test]
fn a_writer_that_gives_up_lets_readers_pass() {
    let lock = RwLock::new(());
    let read = lock.read();
    thread::scope(|scope| {
        let writer = scope.spawn(|| lock.try_write_for(SHORT).is_some());
        let readers: Vec<_> = (0..4).map(|_| scope.spawn(|| drop(lock.read()))).collect();
        assert!(!writer.join().unwrap());
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    drop(read);
    assert!(lock.try_write().is_some());
}

/// What the writer wrote is what it reads after the downgrade: no other writer comes between; and other
/// readers come in.
#[test]
fn a_downgrade_lets_readers_in_and_no_writer_between() {
    const THREADS: usize = 8;
    let rounds = if std::env::var_os("WAKEFUL_LONG").is_some() { 5_000 } else { 200 };
    let lock = RwLock::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..rounds {
                    let mut write = lock.write();
                    *write += 1;
                    let wrote = *write;
                    let read = RwLockWriteGuard::downgrade(write);
                    assert_eq!(*read, wrote);
                }
            });
        }
    });
    assert_eq!(*lock.read(), THREADS * rounds);
    let read = RwLockWriteGuard::downgrade(lock.write());
    assert!(lock.try_read().is_some() && lock.try_write().is_none());
    drop(read);
    assert!(lock.try_write().is_some());
}

/// Readers that were asleep behind the writer are woken by the downgrade, and not only by its end.
#[test]
fn a_downgrade_wakes_readers() {
    let lock = RwLock::new(false);
    let (seen, sees) = channel();
    let mut write = lock.write();
    thread::scope(|scope| {
        for _ in 0..4 {
            let (lock, seen) = (&lock, seen.clone());
            scope.spawn(move || seen.send(*lock.read()).unwrap());
        }
        thread::sleep(SHORT);
        *write = true;
        let read = RwLockWriteGuard::downgrade(write);
        for _ in 0..4 {
            assert!(sees.recv_timeout(LONG).expect("the readers come beside us"));
        }
        drop(read);
    });
}

/// A thread that reads may read again while a writer waits, if it asks for that.
#[test]
fn recursive_reading_passes_a_waiting_writer() {
    let lock = RwLock::new(2);
    let outer = lock.read();
    let wrote = Mutex::new(false);
    let changed = Condvar::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            *lock.write() = 3;
            *wrote.lock() = true;
            changed.notify_all();
        });
        for _ in 0..100 {
            let inner = lock.read_recursive();
            assert_eq!(*inner, 2);
            drop(inner);
            thread::sleep(Duration::from_micros(100));
        }
        assert!(!*wrote.lock());
        drop(outer);
        changed.wait_while(&mut wrote.lock(), |wrote| !*wrote);
        assert_eq!(*lock.read(), 3);
    });
}

/// Readers come all the time and overlap: the writer gets the lock all the same.
#[test]
fn readers_without_a_gap_do_not_shut_a_writer_out() {
    let lock = RwLock::new(false);
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !*lock.read() {
                    assert!(start.elapsed() < LONG, "the writer starves");
                }
            });
        }
        *lock.write() = true;
    });
}

/// The same the other way round.
#[test]
fn writers_without_a_gap_do_not_shut_a_reader_out() {
    let (lock, stop) = (RwLock::new(0_u64), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while stop.load(Relaxed) == 0 {
                    *lock.write() += 1;
                }
            });
        }
        let start = Instant::now();
        for _ in 0..20 {
            drop(lock.read());
        }
        stop.store(1, Relaxed);
        assert!(start.elapsed() < LONG);
    });
}
