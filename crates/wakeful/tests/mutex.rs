// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a user of std's or parking_lot's mutex expects of this one.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use static_assertions::{assert_impl_all, assert_not_impl_any, const_assert_eq};
use wakeful::{MappedMutexGuard, Mutex, MutexGuard, RawMutex};

const_assert_eq!(size_of::<RawMutex>(), 4);
const_assert_eq!(size_of::<Mutex<u32>>(), 8);
const_assert_eq!(size_of::<Mutex<()>>(), 4);
assert_impl_all!(Mutex<Cell<u32>>: Send, Sync);
assert_impl_all!(MutexGuard<'static, u32>: Sync);
// The word names its holder; and a shared guard of a Cell would be a shared Cell.
assert_not_impl_any!(MutexGuard<'static, u32>: Send);
assert_not_impl_any!(MutexGuard<'static, Cell<u32>>: Sync);
assert_not_impl_any!(Mutex<*const u32>: Send, Sync);
assert_not_impl_any!(Mutex<std::rc::Rc<u32>>: Send, Sync);

/// Long enough that a thread which was to arrive has arrived.
const SHORT: Duration = Duration::from_millis(50);
/// Longer than any correct wait here.
const LONG: Duration = Duration::from_secs(60);

fn rounds(count: usize) -> usize {
    if std::env::var_os("WAKEFUL_LONG").is_some() { count * 20 } else { count }
}

#[test]
fn lock_try_lock_get_mut_into_inner() {
    let mut mutex = Mutex::new(1);
    *mutex.lock() += 1;
    {
        let guard = mutex.try_lock().expect("it is free");
        assert!(mutex.is_locked());
        assert!(mutex.try_lock().is_none());
        assert_eq!(*guard, 2);
    }
    assert!(!mutex.is_locked());
    *mutex.get_mut() += 1;
    assert_eq!(mutex.into_inner(), 3);
}

#[test]
fn into_inner_drops_once() {
    struct Counts<'a>(&'a AtomicUsize);
    impl Drop for Counts<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    let drops = AtomicUsize::new(0);
    let mutex = Mutex::new(Counts(&drops));
    let inner = mutex.into_inner();
    assert_eq!(drops.load(Relaxed), 0);
    drop(inner);
    assert_eq!(drops.load(Relaxed), 1);
    drop(Mutex::new(Counts(&drops)));
    assert_eq!(drops.load(Relaxed), 2);
}

#[test]
fn unsized_data_and_default_and_debug() {
    let mutex: &Mutex<[i32]> = &Mutex::new([1, 2, 3]);
    mutex.lock()[0] = 4;
    assert_eq!(*mutex.lock(), [4, 2, 3]);
    let mutex = Mutex::<u32>::default();
    assert!(format!("{mutex:?}").contains('0'));
    let _guard = mutex.lock();
    assert!(format!("{mutex:?}").contains("locked"));
}

#[test]
fn a_mapped_guard_holds_the_lock() {
    let mutex = Mutex::new((1, 2));
    let mut second: MappedMutexGuard<'_, i32> = MutexGuard::map(mutex.lock(), |pair| &mut pair.1);
    *second += 1;
    assert!(mutex.try_lock().is_none());
    drop(second);
    assert_eq!(*mutex.lock(), (1, 3));
}

#[test]
fn unlocked_lets_another_in() {
    let mutex = Mutex::new(0);
    let mut guard = mutex.lock();
    MutexGuard::unlocked(&mut guard, || *mutex.lock() = 7);
    assert_eq!(*guard, 7);
}

#[test]
fn contention_of_32_threads_loses_nothing() {
    static TOTAL: Mutex<usize> = Mutex::new(0);
    let each = rounds(10_000);
    let together = Barrier::new(32);
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                together.wait();
                for _ in 0..each {
                    *TOTAL.lock() += 1;
                }
            });
        }
    });
    assert_eq!(*TOTAL.lock(), 32 * each);
}

/// Every way in and out at once, with holders that lose their processor in the middle.
#[test]
fn at_most_one_is_inside() {
    let mutex = Mutex::new(());
    let inside = AtomicUsize::new(0);
    let entered = AtomicUsize::new(0);
    let each = rounds(500);
    let section = |spin: usize| {
        assert_eq!(inside.fetch_add(1, Relaxed), 0, "two threads inside");
        for _ in 0..spin * 20 {
            std::hint::spin_loop();
        }
        if spin.is_multiple_of(7) {
            thread::yield_now();
        }
        entered.fetch_add(1, Relaxed);
        assert_eq!(inside.fetch_sub(1, Relaxed), 1, "two threads inside");
    };
    thread::scope(|scope| {
        for thread in 0..12 {
            let (mutex, section) = (&mutex, &section);
            scope.spawn(move || {
                for round in 0..each {
                    match thread % 4 {
                        0 | 1 => drop((mutex.lock(), section(round % 40))),
                        2 => {
                            let guard = loop {
                                match mutex.try_lock() {
                                    Some(guard) => break guard,
                                    None => thread::yield_now(),
                                }
                            };
                            section(round % 40);
                            drop(guard);
                        }
                        _ => {
                            let guard = loop {
                                match mutex.try_lock_for(Duration::from_micros(50)) {
                                    Some(guard) => break guard,
                                    None => thread::yield_now(),
                                }
                            };
                            section(round % 40);
                            drop(guard);
                        }
                    }
                }
            });
        }
    });
    assert_eq!(entered.into_inner(), 12 * each);
    assert!(!mutex.is_locked());
}

#[test]
fn a_timed_lock_gives_up_not_before_its_time() {
    let mutex = Mutex::new(());
    let guard = mutex.lock();
    thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            assert!(mutex.try_lock_for(SHORT).is_none());
            assert!(start.elapsed() >= SHORT);
            let start = Instant::now();
            assert!(mutex.try_lock_until(start + SHORT).is_none());
            assert!(start.elapsed() >= SHORT);
            assert!(mutex.try_lock_for(Duration::ZERO).is_none());
            assert!(mutex.try_lock_until(start).is_none(), "a moment that is past");
        });
    });
    drop(guard);
    assert!(mutex.try_lock_for(Duration::ZERO).is_some(), "free: no time is needed");
    assert!(mutex.try_lock_for(Duration::MAX).is_some(), "a timeout beyond the clock's range");
}

#[test]
fn a_timed_lock_gets_what_is_released_in_time() {
    let mutex = Mutex::new(0);
    for _ in 0..10 {
        let guard = mutex.lock();
        thread::scope(|scope| {
            let timed = scope.spawn(|| mutex.try_lock_for(LONG).map(|mut value| *value += 1).is_some());
            let endless =
                scope.spawn(|| mutex.try_lock_for(Duration::MAX).map(|mut value| *value += 1).is_some());
            thread::sleep(Duration::from_millis(5));
            drop(guard);
            assert!(timed.join().expect("no panic") && endless.join().expect("no panic"));
        });
    }
    assert_eq!(mutex.into_inner(), 20);
}

/// Waiters that give up in the midst of others leave the rest in working order.
#[test]
fn many_give_up_and_nobody_is_forgotten() {
    let mutex = Mutex::new(0);
    let got = AtomicUsize::new(0);
    for _ in 0..rounds(10) {
        let guard = mutex.lock();
        thread::scope(|scope| {
            for thread in 0..16 {
                let (mutex, got) = (&mutex, &got);
                scope.spawn(move || {
                    if thread % 2 == 0 {
                        let mut value = mutex.lock();
                        *value += 1;
                        got.fetch_add(1, Relaxed);
                    } else if let Some(mut value) = mutex.try_lock_for(Duration::from_micros(thread * 700)) {
                        *value += 1;
                        got.fetch_add(1, Relaxed);
                    }
                });
            }
            thread::sleep(Duration::from_millis(8));
            drop(guard);
        });
    }
    assert!(got.load(Relaxed) >= rounds(10) * 8);
    assert_eq!(mutex.into_inner(), got.into_inner());
}

#[test]
fn a_waiter_sleeps_until_the_lock_is_free() {
    let mutex = Mutex::new(());
    let guard = mutex.lock();
    let entered = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let _guard = mutex.lock();
            entered.store(true, Relaxed);
        });
        thread::sleep(SHORT);
        assert!(!entered.load(Relaxed));
        drop(guard);
        waiter.join().expect("no panic");
        assert!(entered.load(Relaxed));
    });
}

#[test]
fn a_panic_inside_unlocks_and_does_not_poison() {
    let mutex = Mutex::new(1);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut value = mutex.lock();
        *value = 2;
        std::panic::resume_unwind(Box::new("in the critical section"));
    }));
    assert!(panicked.is_err());
    assert!(!mutex.is_locked());
    assert_eq!(*mutex.lock(), 2);
    let locks_while_unwinding = thread::scope(|scope| {
        scope
            .spawn(|| {
                struct Locks<'a>(&'a Mutex<i32>);
                impl Drop for Locks<'_> {
                    fn drop(&mut self) {
                        *self.0.lock() += 1;
                    }
                }
                let _locks = Locks(&mutex);
                std::panic::resume_unwind(Box::new("before the lock"));
            })
            .join()
    });
    assert!(locks_while_unwinding.is_err());
    assert_eq!(*mutex.lock(), 3);
}

#[test]
fn locks_nest_and_release_in_any_order() {
    let (a, b, c) = (Mutex::new(1), Mutex::new(2), Mutex::new(3));
    let (first, second, third) = (a.lock(), b.lock(), c.lock());
    drop(first);
    drop(third);
    assert!(a.try_lock().is_some() && b.try_lock().is_none() && c.try_lock().is_some());
    drop(second);
    assert!(b.try_lock().is_some());
    let outer = Mutex::new(Mutex::new(4));
    assert_eq!(*outer.lock().lock(), 4);
}

#[test]
fn a_static_mutex_needs_no_set_up_and_publishes_its_data() {
    static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for name in ["a", "b", "c"] {
            scope.spawn(move || NAMES.lock().push(name.to_owned()));
        }
    });
    let mut names = std::mem::take(&mut *NAMES.lock());
    names.sort();
    assert_eq!(names, ["a", "b", "c"]);
}

/// A lock may be freed by whoever takes it last, while its former holder is still inside unlock.
#[test]
fn the_lock_may_go_as_soon_as_it_is_taken() {
    for _ in 0..rounds(300) {
        let shared = std::sync::Arc::new(Mutex::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || *shared.lock() += 1)
            })
            .collect();
        drop(shared);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}

/// Threads that come and go while the lock is contended: each registers, waits, exits.
#[test]
fn short_lived_threads() {
    let mutex = Mutex::new(0);
    for _ in 0..rounds(40) {
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        *mutex.lock() += 1;
                    }
                });
            }
        });
    }
    assert_eq!(mutex.into_inner(), rounds(40) * 16 * 20);
}

#[test]
fn usable_from_thread_local_destructors() {
    static AT_EXIT: Mutex<usize> = Mutex::new(0);
    struct Last;
    impl Drop for Last {
        fn drop(&mut self) {
            *AT_EXIT.lock() += 1;
        }
    }
    thread_local!(static LAST: Last = const { Last });
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                LAST.with(|_| ());
                for _ in 0..1000 {
                    drop(AT_EXIT.lock());
                }
            });
        }
    });
    // A scope ends when its closures have returned, which may be before the destructors have run.
    let deadline = Instant::now() + LONG;
    while *AT_EXIT.lock() < 16 {
        assert!(Instant::now() < deadline, "a destructor hangs");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn moves_between_threads_with_its_data() {
    let (send, receive) = channel();
    let mutex = Mutex::new(vec![1]);
    mutex.lock().push(2);
    send.send(mutex).expect("the receiver lives");
    let sum = thread::spawn(move || receive.recv().expect("it was sent").lock().iter().sum::<i32>());
    assert_eq!(sum.join().expect("no panic"), 3);
}
