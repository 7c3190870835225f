// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fibers that are cancelled: where they end, and what is left of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

use fiber::sync::Channel;
use fiber::thread::{self, Cancelled, JoinHandle};

struct Counts(Arc<AtomicU32>);

impl Drop for Counts {
    fn drop(&mut self) {
        // A destructor may wait.
        thread::sleep(Duration::from_micros(10));
        self.0.fetch_add(1, SeqCst);
    }
}

fn is_cancelled<T>(fiber: JoinHandle<T>) -> bool {
    fiber.join().is_err_and(|payload| payload.is::<Cancelled>())
}

/// Cancelled before it begins, in the middle, and from a kernel thread.
#[test]
fn each_point_ends_a_fiber() {
    let points: [fn(); 5] = [
        thread::park,
        || thread::park_timeout(Duration::from_secs(1000)),
        || thread::sleep(Duration::from_secs(1000)),
        thread::yield_now,
        thread::cancellation_point,
    ];
    let begin = Instant::now();
    for (number, point) in points.into_iter().enumerate() {
        for delay in [0, 0, 1] {
            let (begun, dropped) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
            let (begins, counts) = (begun.clone(), Counts(dropped.clone()));
            let fiber = thread::spawn(move || {
                let _counts = counts;
                begins.store(1, SeqCst);
                loop {
                    point();
                }
            });
            while delay == 1 && begun.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            fiber.cancel();
            assert!(is_cancelled(fiber), "point {number}");
            assert_eq!(dropped.load(SeqCst), 1, "point {number}");
        }
    }
    assert!(begin.elapsed() < Duration::from_secs(500));
}

#[test]
fn a_lock_or_a_channel_is_no_point() {
    let items = Arc::new(Channel::new(1));
    let receives = items.clone();
    let fiber = thread::spawn(move || receives.receive());
    std::thread::sleep(Duration::from_millis(2));
    fiber.cancel();
    items.send(7).unwrap();
    assert_eq!(fiber.join().unwrap(), Some(7));
}

/// It is delivered once, so what comes after waits as ever.
#[test]
fn a_cancellation_is_delivered_once() {
    let (caught, catches) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (its, counts) = (caught.clone(), catches.clone());
    let fiber = thread::spawn(move || {
        for _ in 0..2 {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                loop {
                    thread::park();
                }
            }));
            let payload = ended.unwrap_err();
            assert!(payload.is::<Cancelled>());
            its.fetch_add(1, SeqCst);
            thread::sleep(Duration::from_micros(1));
            counts.fetch_add(1, SeqCst);
        }
        5
    });
    fiber.cancel();
    while catches.load(SeqCst) == 0 {
        std::thread::yield_now();
    }
    fiber.cancel();
    assert_eq!(fiber.join().unwrap(), 5);
    assert_eq!((caught.load(SeqCst), catches.load(SeqCst)), (2, 2));
}

/// A handle of a fiber that has ended does nothing to the next one in its place.
#[test]
fn the_next_fiber_is_not_cancelled() {
    let runtime = fiber::Runtime::start(fiber::Config { processors: Some(1), ..Default::default() }).unwrap();
    runtime.run(|| {
        for _ in 0..100 {
            let fiber = thread::spawn(|| ());
            let raw = thread::Builder::new().spawn_raw(|| ()).unwrap();
            while !fiber.is_finished() {
                thread::yield_now();
            }
            fiber.cancel();
            fiber.join().unwrap();
            // SAFETY: spawned with this type.
            unsafe { raw.claim::<()>() }.unwrap().join().unwrap();
            let next = thread::spawn(|| {
                thread::yield_now();
                thread::sleep(Duration::from_micros(5));
            });
            // SAFETY: one of here.
            unsafe { raw.cancel() };
            next.join().unwrap();
        }
    });
}

#[test]
fn a_scope_goes_on_without_the_cancelled() {
    let ended = AtomicU32::new(0);
    thread::scope(|scope| {
        let waits = || loop {
            thread::sleep(Duration::from_secs(1000));
        };
        scope.spawn::<_, ()>(waits).cancel();
        let joined = scope.spawn::<_, ()>(waits);
        joined.cancel();
        assert!(joined.join().unwrap_err().is::<Cancelled>());
        scope.spawn(|| ended.fetch_add(1, SeqCst));
    });
    assert_eq!(ended.load(SeqCst), 1);
}

/// Canceller and fiber meet at the point, again and again.
#[test]
fn many() {
    for round in 0..2_000_u64 {
        let fiber = thread::spawn(move || {
            (0..round % 5).for_each(|_| thread::cancellation_point());
            loop {
                thread::park();
            }
        });
        (0..round % 40).for_each(|_| std::hint::spin_loop());
        fiber.thread().unpark();
        fiber.cancel();
        assert!(is_cancelled::<()>(fiber));
    }
}
