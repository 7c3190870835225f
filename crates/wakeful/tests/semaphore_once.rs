// SPDX-License-Identifier: MIT OR Apache-2.0
//! Semaphore, Once and OnceLock: what a user of std's or another crate's expects of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

use wakeful::{Once, OnceLock, Semaphore};

static_assertions::assert_impl_all!(Semaphore: Send, Sync, std::panic::RefUnwindSafe);
static_assertions::assert_impl_all!(Once: Send, Sync, std::panic::RefUnwindSafe);
static_assertions::assert_impl_all!(OnceLock<String>: Send, Sync);
static_assertions::assert_not_impl_any!(OnceLock<std::cell::Cell<u32>>: Sync);
static_assertions::assert_not_impl_any!(OnceLock<std::rc::Rc<u32>>: Send, Sync);

#[test]
fn sizes() {
    assert_eq!((size_of::<Semaphore>(), size_of::<Once>(), size_of::<OnceLock<u32>>()), (8, 4, 8));
}

#[test]
fn at_most_three_inside() {
    let semaphore = Semaphore::new(3);
    let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for index in 0..32 {
            let (semaphore, inside, most) = (&semaphore, &inside, &most);
            scope.spawn(move || {
                for round in 0..200 {
                    let permit = match (index + round) % 3 {
                        0 => semaphore.acquire(),
                        1 => loop {
                            if let Some(permit) = semaphore.try_acquire_for(Duration::from_micros(100)) {
                                break permit;
                            }
                        },
                        _ => loop {
                            let moment = Instant::now() + Duration::from_micros(100);
                            if let Some(permit) = semaphore.try_acquire_until(moment) {
                                break permit;
                            }
                        },
                    };
                    most.fetch_max(inside.fetch_add(1, AcqRel) + 1, AcqRel);
                    if round % 16 == 0 {
                        thread::yield_now();
                    }
                    inside.fetch_sub(1, AcqRel);
                    drop(permit);
                }
            });
        }
    });
    assert_eq!(semaphore.available_permits(), 3);
    assert!((1..=3).contains(&most.load(Acquire)), "{most:?} inside");
}

#[test]
fn counts_what_is_made() {
    let made = Semaphore::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..1_000).for_each(|_| made.acquire().forget()));
        }
        (0..8_000).for_each(|_| made.release());
    });
    assert!(made.try_acquire().is_none());
    assert!(format!("{made:?}").contains("available_permits: 0"));
}

#[test]
fn a_timeout_takes_its_time() {
    let none = Semaphore::new(0);
    let start = Instant::now();
    assert!(none.try_acquire_for(Duration::from_millis(20)).is_none());
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert!(none.try_acquire_until(start).is_none());
    none.release();
    assert!(none.try_acquire_until(start).is_some());
}

#[test]
fn too_many_permits() {
    let full = Semaphore::new(Semaphore::MAX_PERMITS);
    assert!(catch_unwind(|| full.release()).is_err());
    assert_eq!(full.available_permits(), Semaphore::MAX_PERMITS);
    drop(full.acquire());
    assert_eq!(full.available_permits(), Semaphore::MAX_PERMITS);
    assert!(catch_unwind(|| Semaphore::new(Semaphore::MAX_PERMITS + 1)).is_err());
}

#[test]
fn once_runs_once() {
    static ONCE: Once = Once::new();
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                ONCE.call_once(|| {
                    thread::sleep(Duration::from_millis(2));
                    RUNS.fetch_add(1, Relaxed);
                });
                assert_eq!(RUNS.load(Relaxed), 1);
            });
        }
    });
    assert!(ONCE.is_completed());
    ONCE.call_once(|| panic!("again"));
}

#[test]
fn once_poisons() {
    let once = Once::new();
    assert!(catch_unwind(|| once.call_once(|| panic!("on purpose"))).is_err());
    assert!(!once.is_completed());
    assert!(catch_unwind(|| once.call_once(|| ())).is_err());
    let mut seen = None;
    once.call_once_force(|state| seen = Some(state.is_poisoned()));
    assert_eq!(seen, Some(true));
    once.call_once_force(|_| panic!("again"));
    once.call_once(|| panic!("again"));
    let fresh = Once::new();
    fresh.call_once_force(|state| assert!(!state.is_poisoned()));
}

/// Those who wait for one that panics are poisoned, too.
#[test]
fn poison_reaches_waiters() {
    let once = Once::new();
    thread::scope(|scope| {
        let (inside, enter) = std::sync::mpsc::channel();
        let once = &once;
        let runner = scope.spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(|| {
                once.call_once(|| {
                    inside.send(()).unwrap();
                    thread::sleep(Duration::from_millis(20));
                    panic!("on purpose");
                });
            }));
            assert!(result.is_err());
        });
        enter.recv().unwrap();
        let waiters: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| catch_unwind(AssertUnwindSafe(|| once.call_once(|| ())))))
            .collect();
        for waiter in waiters {
            assert!(waiter.join().unwrap().is_err());
        }
        runner.join().unwrap();
    });
}

#[test]
fn once_lock() {
    struct Counted<'a>(&'a AtomicUsize);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    let dropped = AtomicUsize::new(0);
    let made = AtomicUsize::new(0);
    let lock = OnceLock::new();
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                lock.get_or_init(|| {
                    made.fetch_add(1, Relaxed);
                    Counted(&dropped)
                })
            });
        }
    });
    assert_eq!((made.load(Relaxed), dropped.load(Relaxed)), (1, 0));
    drop(lock);
    assert_eq!(dropped.load(Relaxed), 1);
    drop(OnceLock::<Counted>::new());
    assert_eq!(dropped.load(Relaxed), 1);

    let mut lock = OnceLock::from(String::from("a"));
    lock.get_mut().unwrap().push('b');
    assert_eq!(format!("{lock:?}"), "OnceLock(Some(\"ab\"))");
    assert_eq!(lock.take().as_deref(), Some("ab"));
    assert_eq!(lock.get(), None);
    assert_eq!(lock.get_or_try_init(|| Err(3)), Err(3));
    assert!(catch_unwind(AssertUnwindSafe(|| lock.get_or_init(|| panic!("on purpose")))).is_err());
    assert_eq!(lock.get_or_try_init(|| Ok::<_, ()>("c".into())), Ok(&"c".into()));
    assert_eq!(lock.set("d".into()), Err("d".into()));
    assert_eq!(lock.into_inner().as_deref(), Some("c"));
}
