// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use wakeful::{Condvar, Mutex, MutexGuard};

use crate::{LONG, OnDrop};

#[test]
fn locks_one_time_after_another() {
    let mutex = Mutex::new(());
    drop(mutex.lock());
    drop(mutex.lock());
    drop(mutex.try_lock().unwrap());
    drop(mutex.lock());
}

#[test]
fn lots_of_increments_by_two_groups() {
    static COUNT: Mutex<u32> = Mutex::new(0);
    const EACH: u32 = 2_000;
    let add = || {
        for _ in 0..EACH {
            *COUNT.lock() += 1;
        }
    };
    let (done, all) = channel();
    for group in 0..2 {
        for _ in 0..3 {
            let done = done.clone();
            thread::spawn(move || {
                add();
                done.send(group).unwrap();
            });
        }
    }
    drop(done);
    assert_eq!(all.iter().sum::<i32>(), 3);
    assert_eq!(*COUNT.lock(), 6 * EACH);
}

#[test]
fn a_held_mutex_is_not_had_by_trying() {
    let mutex = Mutex::new("held");
    let guard = mutex.lock();
    assert!(mutex.try_lock().is_none());
    thread::scope(|scope| assert!(scope.spawn(|| mutex.try_lock().is_none()).join().unwrap()));
    drop(guard);
    assert_eq!(*mutex.try_lock().unwrap(), "held");
}

/// A flag, a mutex and a condition variable in one Arc, and the notifier waits until the waiter waits.
#[test]
fn shared_with_a_condition_variable() {
    let pair = Arc::new((Mutex::new(false), Condvar::new()));
    let theirs = pair.clone();
    let (here, comes) = channel();
    let mut ready = pair.0.lock();
    let notifier = thread::spawn(move || {
        here.send(()).unwrap();
        // Only when the other waits.
        *theirs.0.lock() = true;
        theirs.1.notify_one();
    });
    comes.recv().unwrap();
    assert!(!*ready);
    while !*ready {
        pair.1.wait(&mut ready);
    }
    drop(ready);
    notifier.join().unwrap();
}

#[test]
fn a_mutex_in_a_mutex() {
    let inner = Arc::new(Mutex::new(1));
    let outer = Arc::new(Mutex::new(inner.clone()));
    thread::spawn(move || {
        let guard = outer.lock();
        *guard.lock() += 1;
    })
    .join()
    .unwrap();
    assert_eq!(*inner.lock(), 2);
}

#[test]
fn locked_by_a_destructor_during_a_panic() {
    let mutex = Arc::new(Mutex::new(1));
    let theirs = mutex.clone();
    let result = thread::spawn(move || {
        let _on_drop = OnDrop(|| *theirs.lock() += 1);
        std::panic::resume_unwind(Box::new("on purpose"));
    })
    .join();
    assert!(result.is_err());
    assert_eq!(*mutex.lock(), 2);
}

#[test]
fn a_guard_is_released_by_a_panic_and_there_is_no_poison() {
    let mutex = Mutex::new(1);
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut guard = mutex.lock();
        *guard = 2;
        std::panic::resume_unwind(Box::new("on purpose"));
    }));
    assert!(result.is_err());
    assert_eq!(mutex.try_lock().map(|guard| *guard), Some(2));
}

#[test]
fn data_without_a_size() {
    let mutex: &Mutex<[i32]> = &Mutex::new([1, 2, 3]);
    let numbers = &mut *mutex.lock();
    numbers[0] = 4;
    numbers[2] = 5;
    let expected: &[i32] = &[4, 2, 5];
    assert_eq!(numbers, expected);
}

#[test]
fn get_mut_and_into_inner_take_no_lock() {
    let mut mutex = Mutex::new(Box::new(10));
    // A guard that is forgotten leaves the mutex locked for ever.
    std::mem::forget(mutex.lock());
    assert!(mutex.is_locked());
    **mutex.get_mut() = 20;
    assert_eq!(*mutex.into_inner(), 20);
}

#[test]
fn guards_of_parts() {
    let mutex = Mutex::new(HashMap::from([("a", [1, 2]), ("b", [3, 4])]));
    {
        let b = MutexGuard::map(mutex.lock(), |map| map.get_mut("b").unwrap());
        let mut second = wakeful::MappedMutexGuard::map(b, |array| &mut array[1]);
        *second = 5;
        assert!(mutex.is_locked());
    }
    let missing = MutexGuard::try_map(mutex.lock(), |map| map.get_mut("c")).map(|_| ());
    let whole = missing.expect_err("there is no c");
    assert_eq!(whole["b"], [3, 5]);
    drop(whole);
    assert!(!mutex.is_locked());
}

#[test]
fn debug_does_not_wait() {
    let mutex = Mutex::new(7);
    assert!(format!("{mutex:?}").contains('7'));
    let guard = mutex.lock();
    assert!(format!("{mutex:?}").contains("<locked>"));
    assert_eq!(format!("{guard:?}"), "7");
}

/// Two threads pass a token back and forth, each with the mutex alone: neither is shut out.
#[test]
fn nobody_is_shut_out() {
    let turn = Mutex::new(0_u32);
    let start = std::time::Instant::now();
    thread::scope(|scope| {
        for me in 0..2 {
            let turn = &turn;
            scope.spawn(move || {
                while *turn.lock() < 200 {
                    let mut turn = turn.lock();
                    if *turn % 2 == me {
                        *turn += 1;
                    }
                }
            });
        }
    });
    assert!(start.elapsed() < LONG);
}
