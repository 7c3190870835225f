// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use wakeful::{Condvar, Mutex};

use crate::{LONG, SHORT};

#[test]
fn notified_with_nobody_there() {
    let condvar = Condvar::new();
    condvar.notify_one();
    condvar.notify_all();
}

/// Ten threads wait; each notification lets one go, and no more than one goes on (but for wake-ups without
/// cause, which the count of permits catches).
#[test]
fn notify_one_lets_one_go_at_a_time() {
    const THREADS: u32 = 10;
    let shared = Arc::new((Mutex::new((0_u32, 0_u32)), Condvar::new()));
    let (done, gone) = channel();
    for _ in 0..THREADS {
        let (shared, done) = (shared.clone(), done.clone());
        thread::spawn(move || {
            let (mutex, condvar) = &*shared;
            let mut state = mutex.lock();
            state.0 += 1;
            while state.1 == 0 {
                condvar.wait(&mut state);
            }
            state.1 -= 1;
            done.send(()).unwrap();
        });
    }
    let (mutex, condvar) = &*shared;
    while mutex.lock().0 < THREADS {
        thread::yield_now();
    }
    for _ in 0..THREADS {
        assert!(gone.try_recv().is_err());
        mutex.lock().1 += 1;
        condvar.notify_one();
        gone.recv_timeout(LONG).expect("one goes on");
    }
}

#[test]
fn notify_all_lets_all_go() {
    const THREADS: usize = 10;
    let shared = Arc::new((Mutex::new(0), Condvar::new()));
    let (full, is_full) = channel();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (shared, full) = (shared.clone(), full.clone());
            thread::spawn(move || {
                let (mutex, condvar) = &*shared;
                let mut count = mutex.lock();
                *count += 1;
                if *count == THREADS {
                    full.send(()).unwrap();
                }
                while *count != 0 {
                    condvar.wait(&mut count);
                }
            })
        })
        .collect();
    is_full.recv().unwrap();
    let mut count = shared.0.lock();
    *count = 0;
    // All of them now wait for the mutex, and get it one after the other.
    shared.1.notify_all();
    thread::sleep(SHORT);
    drop(count);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_timed_wait_ends_by_the_clock_or_by_a_notification() {
    let shared = Arc::new((Mutex::new(false), Condvar::new()));
    let (mutex, condvar) = &*shared;
    let mut ready = mutex.lock();
    assert!(condvar.wait_while_for(&mut ready, |ready| !*ready, Duration::from_millis(2)).timed_out());
    let theirs = shared.clone();
    let notifier = thread::spawn(move || {
        *theirs.0.lock() = true;
        theirs.1.notify_one();
    });
    assert!(!condvar.wait_while_for(&mut ready, |ready| !*ready, LONG).timed_out());
    assert!(*ready);
    drop(ready);
    notifier.join().unwrap();
}

#[test]
fn deadlines_in_the_past_and_beyond_all_clocks() {
    let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    let mut guard = mutex.lock();
    assert!(condvar.wait_for(&mut guard, Duration::ZERO).timed_out());
    let now = Instant::now();
    assert!(condvar.wait_until(&mut guard, now).timed_out());
    assert!(condvar.wait_until(&mut guard, now.checked_sub(SHORT).unwrap_or(now)).timed_out());
    assert!(mutex.is_locked());
    let shared = (&mutex, &condvar);
    thread::scope(|scope| {
        scope.spawn(move || {
            drop(shared.0.lock());
            loop {
                shared.1.notify_all();
                thread::sleep(Duration::from_millis(1));
                if !shared.0.is_locked() {
                    break;
                }
            }
        });
        assert!(!condvar.wait_for(&mut guard, Duration::MAX).timed_out());
        drop(guard);
    });
}

/// The condition is looked at once more after the last moment, and then it counts and not the clock.
#[test]
fn the_condition_goes_before_the_clock() {
    let (mutex, condvar) = (Mutex::new(0), Condvar::new());
    let mut count = mutex.lock();
    assert!(!condvar.wait_while_for(&mut count, |_| false, Duration::ZERO).timed_out());
    let looked = |count: &mut i32| {
        *count += 1;
        *count < 2
    };
    let result = condvar.wait_while_for(&mut count, looked, Duration::from_millis(5));
    assert!(!result.timed_out(), "at the second look the condition does not hold any more");
    assert_eq!(*count, 2);
}

#[test]
fn wait_while_goes_on_at_once_or_when_told() {
    let shared = Arc::new((Mutex::new(3), Condvar::new()));
    let theirs = shared.clone();
    let counter = thread::spawn(move || {
        for _ in 0..3 {
            *theirs.0.lock() -= 1;
            theirs.1.notify_one();
        }
    });
    let mut left = shared.0.lock();
    shared.1.wait_while(&mut left, |left| *left > 0);
    assert_eq!(*left, 0);
    shared.1.wait_while(&mut left, |left| *left > 0);
    drop(left);
    counter.join().unwrap();
}

/// With one mutex, and when nobody waits any more, with another.
#[test]
fn two_mutexes_one_after_the_other() {
    let (first, second, condvar) = (Mutex::new(()), Mutex::new(()), Condvar::new());
    condvar.wait_for(&mut first.lock(), Duration::from_millis(1));
    condvar.wait_for(&mut second.lock(), Duration::from_millis(1));
}

/// A woken thread waits again with a deadline and then wakes the next: the chain does not break.
#[test]
fn a_chain_of_notifications_through_timeouts() {
    const THREADS: usize = 4;
    let shared = Arc::new((Mutex::new(0), Condvar::new()));
    let (done, gone) = channel();
    for _ in 0..THREADS {
        let (shared, done) = (shared.clone(), done.clone());
        thread::spawn(move || {
            let (mutex, condvar) = &*shared;
            let mut waiting = mutex.lock();
            *waiting += 1;
            condvar.wait(&mut waiting);
            // The wait with a deadline may take another's wake-up: then both go on, which is no less.
            condvar.wait_for(&mut waiting, Duration::from_millis(1));
            condvar.notify_one();
            done.send(()).unwrap();
        });
    }
    while *shared.0.lock() < THREADS {
        thread::yield_now();
    }
    shared.1.notify_one();
    for _ in 0..THREADS {
        gone.recv_timeout(LONG).expect("each is woken by the one before it");
    }
}

/// Who waits has released the mutex, also when it waits beside a thread that keeps taking it.
#[test]
fn waiters_are_moved_to_a_busy_mutex_and_get_it() {
    const THREADS: usize = 8;
    let shared = Arc::new((Mutex::new((0, false)), Condvar::new()));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let shared = shared.clone();
            thread::spawn(move || {
                let (mutex, condvar) = &*shared;
                let mut state = mutex.lock();
                state.0 += 1;
                condvar.wait_while(&mut state, |(_, go)| !*go);
                state.0 -= 1;
            })
        })
        .collect();
    let (mutex, condvar) = &*shared;
    while mutex.lock().0 < THREADS {
        thread::yield_now();
    }
    mutex.lock().1 = true;
    condvar.notify_all();
    let start = Instant::now();
    while mutex.lock().0 > 0 {
        assert!(start.elapsed() < LONG);
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_panic_between_two_waits_leaves_both_usable() {
    let (mutex, condvar) = (Mutex::new(0), Condvar::new());
    let result = catch_unwind(AssertUnwindSafe(|| {
        condvar.wait_while_for(
            &mut mutex.lock(),
            |count| {
                *count += 1;
                if *count == 2 {
                    std::panic::resume_unwind(Box::new("on purpose"));
                }
                true
            },
            Duration::from_millis(1),
        );
    }));
    assert!(result.is_err());
    let mut count = mutex.lock();
    assert!(condvar.wait_for(&mut count, Duration::from_millis(1)).timed_out());
}

#[test]
fn debug_says_what_it_is() {
    assert!(format!("{:?}", Condvar::new()).contains("Condvar"));
}

/// How a producer or consumer tells the others.
#[derive(Clone, Copy, Debug)]
enum Notify {
    One,
    All,
    /// One, and who waits looks again after this long.
    OneWithTimeouts(Duration),
}

/// A queue between producers and consumers, as WebKit's tests of WTF::Lock have it: numbers go in and the
/// same come out.
fn queue(
    producers: u32,
    consumers: u32,
    capacity: usize,
    each: u32,
    notify: Notify,
    delay: Option<Duration>,
) {
    struct Queue {
        items: VecDeque<u32>,
        open: bool,
    }
    let queue = Mutex::new(Queue { items: VecDeque::new(), open: true });
    let (filled, drained) = (Condvar::new(), Condvar::new());
    let received = Mutex::new(Vec::new());
    let wait =
        |condvar: &Condvar, queue: &mut wakeful::MutexGuard<'_, Queue>, until: fn(&Queue, usize) -> bool| {
            while !until(queue, capacity) {
                match notify {
                    Notify::OneWithTimeouts(patience) => drop(condvar.wait_for(queue, patience)),
                    Notify::One | Notify::All => condvar.wait(queue),
                }
            }
        };
    let tell = |condvar: &Condvar| match notify {
        Notify::All => condvar.notify_all(),
        Notify::One | Notify::OneWithTimeouts(_) => condvar.notify_one(),
    };
    thread::scope(|scope| {
        let consumers: Vec<_> = (0..consumers)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let mut guard = queue.lock();
                        wait(&filled, &mut guard, |queue, _| !queue.items.is_empty() || !queue.open);
                        let Some(item) = guard.items.pop_front() else { return };
                        drop(guard);
                        tell(&drained);
                        received.lock().push(item);
                    }
                })
            })
            .collect();
        if let Some(delay) = delay {
            thread::sleep(delay);
        }
        let producers: Vec<_> = (0..producers)
            .map(|_| {
                scope.spawn(|| {
                    for item in 0..each {
                        let mut guard = queue.lock();
                        wait(&drained, &mut guard, |queue, capacity| queue.items.len() < capacity);
                        guard.items.push_back(item);
                        drop(guard);
                        tell(&filled);
                    }
                })
            })
            .collect();
        producers.into_iter().for_each(|thread| thread.join().unwrap());
        queue.lock().open = false;
        filled.notify_all();
        consumers.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let mut received = received.into_inner();
    received.sort_unstable();
    let expected: Vec<_> = (0..each).flat_map(|item| (0..producers).map(move |_| item)).collect();
    assert_eq!(received, expected, "{producers} producers, {consumers} consumers, {capacity}, {notify:?}");
}

#[test]
fn queues_of_all_shapes() {
    let each = if std::env::var_os("WAKEFUL_LONG").is_some() { 50_000 } else { 500 };
    let without_end = usize::MAX;
    for (producers, consumers) in [(1, 1), (1, 5), (5, 1), (5, 5), (15, 15)] {
        for capacity in [1, 10, without_end] {
            for notify in [Notify::One, Notify::All, Notify::OneWithTimeouts(Duration::from_millis(1))] {
                queue(producers, consumers, capacity, each, notify, None);
            }
        }
    }
    // Consumers that went to sleep long ago.
    queue(5, 5, 1, each, Notify::One, Some(SHORT));
}
