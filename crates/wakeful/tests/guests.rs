// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fibers at the locks of kernel threads, all on one processor. Who holds waits meanwhile, so a wait that
//! stops the carrier stops it for good.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

use wakeful::thread::{self, Config, Runtime};
use wakeful::{Barrier, Condvar, Delegated, Mutex, Once, RwLock, Semaphore};

const FIBERS: u32 = 20;
const ROUNDS: u32 = 50;

fn on_one_processor(body: impl FnOnce() + Send) {
    let config = Config { processors: Some(1), ..Config::default() };
    Runtime::start(config).unwrap().run(body);
}

fn all(body: impl Fn(u32) + Send + Sync) {
    let body = &body;
    thread::scope(|scope| (0..FIBERS).for_each(|number| drop(scope.spawn(move || body(number)))));
}

/// The same by fibers, and by two kernel threads.
fn with_threads(body: impl Fn(u32) + Send + Sync) {
    std::thread::scope(|scope| {
        (0..2).for_each(|number| {
            drop(scope.spawn({
                let body = &body;
                move || body(FIBERS + number)
            }))
        });
        on_one_processor(|| all(&body));
    });
}

/// Other fibers run, sooner or later.
fn wait(round: u32) {
    if round.is_multiple_of(7) { thread::sleep(Duration::from_micros(50)) } else { thread::yield_now() }
}

#[test]
fn a_mutex_parks() {
    let counter = Mutex::new(0);
    with_threads(|number| {
        for round in 0..ROUNDS {
            let mut counter = counter.lock();
            let before = *counter;
            wait(number + round);
            *counter = before + 1;
        }
    });
    assert_eq!(*counter.lock(), (FIBERS + 2) * ROUNDS);
}

#[test]
fn a_mutex_with_a_limit_parks() {
    on_one_processor(|| {
        let mutex = Mutex::new(());
        thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let held = mutex.lock();
                thread::park();
                drop(held);
            });
            thread::yield_now();
            let begin = Instant::now();
            assert!(mutex.try_lock_for(Duration::from_millis(5)).is_none());
            assert!(begin.elapsed() >= Duration::from_millis(5));
            let waiter = scope.spawn(|| drop(mutex.try_lock_for(Duration::from_secs(60)).unwrap()));
            thread::yield_now();
            holder.thread().unpark();
            waiter.join().unwrap();
        });
    });
}

#[test]
fn a_reader_writer_lock_parks() {
    let pair = RwLock::new((0, 0));
    with_threads(|number| {
        for round in 0..ROUNDS {
            if (number + round).is_multiple_of(3) {
                let mut pair = pair.write();
                pair.0 += 1;
                wait(number + round);
                pair.1 += 1;
            } else {
                let pair = pair.read();
                let before = pair.0;
                wait(number + round);
                assert_eq!((before, before), *pair);
            }
        }
    });
    let pair = *pair.read();
    assert!(pair.0 > 0 && pair.0 == pair.1);
}

#[test]
fn a_condition_variable_parks() {
    let (turn, changed) = (Mutex::new(0), Condvar::new());
    with_threads(|number| {
        for round in 0..ROUNDS {
            let mut turn = turn.lock();
            changed.wait_while(&mut turn, |turn| *turn % (FIBERS + 2) != number);
            wait(round);
            *turn += 1;
            changed.notify_all();
        }
    });
    assert_eq!(*turn.lock(), (FIBERS + 2) * ROUNDS);
}

#[test]
fn a_notification_finds_a_fiber_or_a_thread() {
    let (items, changed) = (Mutex::new((0_u32, 0_u32)), Condvar::new());
    const ITEMS: u32 = 10 * (FIBERS + 2);
    std::thread::scope(|scope| {
        let takes = || {
            for _ in 0..10 {
                let mut items = items.lock();
                changed.wait_while(&mut items, |items| items.0 == 0);
                items.0 -= 1;
                items.1 += 1;
            }
        };
        (0..2).for_each(|_| drop(scope.spawn(takes)));
        scope.spawn(|| {
            for _ in 0..ITEMS {
                items.lock().0 += 1;
                changed.notify_one();
            }
        });
        on_one_processor(|| all(|_| takes()));
    });
    assert_eq!(*items.lock(), (0, ITEMS));
}

#[test]
fn a_wait_with_a_limit_ends() {
    on_one_processor(|| {
        let (mutex, never) = (Mutex::new(()), Condvar::new());
        all(|_| assert!(never.wait_for(&mut mutex.lock(), Duration::from_millis(3)).timed_out()));
        let none = Semaphore::new(0);
        all(|_| assert!(none.try_acquire_for(Duration::from_millis(3)).is_none()));
    });
}

#[test]
fn a_semaphore_parks() {
    let (slots, inside) = (Semaphore::new(2), AtomicU32::new(0));
    with_threads(|number| {
        for round in 0..ROUNDS {
            let _slot = slots.acquire();
            assert!(inside.fetch_add(1, SeqCst) < 2);
            wait(number + round);
            inside.fetch_sub(1, SeqCst);
        }
    });
    assert_eq!(slots.available_permits(), 2);
}

#[test]
fn a_barrier_parks() {
    let (barrier, passed) = (Barrier::new(FIBERS as usize + 2), AtomicU32::new(0));
    with_threads(|_| {
        for round in 0..10 {
            assert!(passed.load(SeqCst) >= round * (FIBERS + 2));
            passed.fetch_add(1, SeqCst);
            barrier.wait();
        }
    });
    assert_eq!(passed.load(SeqCst), 10 * (FIBERS + 2));
}

#[test]
fn once_parks() {
    let (once, runs) = (Once::new(), AtomicU32::new(0));
    with_threads(|_| {
        once.call_once(|| {
            thread::sleep(Duration::from_millis(3));
            runs.fetch_add(1, SeqCst);
        });
        assert_eq!(runs.load(SeqCst), 1);
    });
}

#[test]
fn a_delegated_section_parks() {
    let counter = Delegated::new(0);
    with_threads(|number| {
        for round in 0..ROUNDS {
            counter.run(|counter| {
                let before = *counter;
                wait(number + round);
                *counter = before + 1;
            });
        }
    });
    assert_eq!(counter.run(|counter| *counter), (FIBERS + 2) * ROUNDS);
}

/// Two fibers of one carrier have one thread-local word, and a signal that one of them owes is the other's.
#[test]
fn what_a_holder_owes_is_delivered() {
    std::thread_local! {
        static WORD: Cell<u32> = const { Cell::new(0) };
    }
    on_one_processor(|| {
        let state = Arc::new((Mutex::new(false), Condvar::new()));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| state.1.wait_while(&mut state.0.lock(), |ready| !*ready));
            thread::yield_now();
            let holder = scope.spawn(|| {
                let mut ready = state.0.lock();
                *ready = true;
                thread::park();
                WORD.set(7);
                drop(ready);
            });
            thread::yield_now();
            // By another fiber, while the first one holds the mutex.
            state.1.notify_one();
            holder.thread().unpark();
            waiter.join().unwrap();
            assert_eq!(WORD.get(), 7);
        });
    });
}
