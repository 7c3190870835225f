// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a user of std's or parking_lot's condition variable expects of this one.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use static_assertions::{assert_impl_all, const_assert_eq};
use wakeful::{Condvar, Mutex};

assert_impl_all!(Condvar: Send, Sync, std::panic::UnwindSafe);
const_assert_eq!(size_of::<Condvar>(), 16);

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(60);

fn rounds(count: usize) -> usize {
    if std::env::var_os("WAKEFUL_LONG").is_some() { count * 20 } else { count }
}

#[test]
fn a_notification_without_waiters_is_not_remembered() {
    let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    condvar.notify_one();
    condvar.notify_all();
    let mut guard = mutex.lock();
    let start = Instant::now();
    while !condvar.wait_until(&mut guard, start + SHORT).timed_out() {}
    assert!(start.elapsed() >= SHORT);
}

/// A notification under the waiters' mutex is delivered when that is released, whatever the notifier does
/// until then.
#[test]
fn a_notification_under_the_mutex_arrives_whatever_comes_between() {
    type Between = fn(&Mutex<u32>, &mut wakeful::MutexGuard<u32>);
    let between: [Between; 3] = [
        |_, _| (),
        |other, _| *other.lock() += 1,
        |_, guard| _ = Condvar::new().wait_for(guard, Duration::from_millis(1)),
    ];
    for waiters in [1, 3] {
        for between in between {
            let shared = Arc::new((Mutex::new(0), Condvar::new()));
            let threads: Vec<_> = (0..waiters)
                .map(|_| {
                    let shared = shared.clone();
                    thread::spawn(move || {
                        let mut ready = shared.0.lock();
                        *ready += 1;
                        shared.1.wait_while(&mut ready, |ready| *ready != 100);
                    })
                })
                .collect();
            while *shared.0.lock() < waiters {
                thread::yield_now();
            }
            // Likely asleep by then.
            thread::sleep(Duration::from_millis(2));
            let mut ready = shared.0.lock();
            *ready = 100;
            shared.1.notify_all();
            between(&Mutex::new(0), &mut ready);
            drop(ready);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
    }
}

/// Who is woken by `notify_all` under the mutex finds the mutex free: it sleeps once a round, and not again
/// for the mutex. (Other load on the machine can only add to that, so the least of some runs counts.)
#[test]
fn a_notification_under_the_mutex_wakes_no_crowd() {
    const THREADS: u32 = 16;
    const ROUNDS: u32 = 100;
    let sleeps = || {
        let (arrived, all) = (Mutex::new((0, 0)), Condvar::new());
        let round = || {
            let mut now = arrived.lock();
            now.0 += 1;
            if now.0 == THREADS {
                *now = (0, now.1 + 1);
                all.notify_all();
                return;
            }
            let mine = now.1;
            all.wait_while(&mut now, |now| now.1 == mine);
        };
        let body = || {
            (0..ROUNDS).for_each(|_| round());
            // SAFETY: zeros are a valid usage, and the call fills it in.
            unsafe {
                let mut usage: libc::rusage = std::mem::zeroed();
                libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
                usage.ru_nvcsw as u32
            }
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(body)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u32>() * 100 / (THREADS * ROUNDS)
        })
    };
    let least = (0..5).map(|_| sleeps()).min().unwrap();
    assert!(least < 150, "{least} sleeps in 100 waits");
}

#[test]
fn notify_one_wakes_one() {
    static MUTEX: Mutex<bool> = Mutex::new(false);
    static CONDVAR: Condvar = Condvar::new();
    let mut ready = MUTEX.lock();
    let notifier = thread::spawn(|| {
        *MUTEX.lock() = true;
        CONDVAR.notify_one();
    });
    CONDVAR.wait_while(&mut ready, |ready| !*ready);
    assert!(*ready);
    notifier.join().expect("no panic");
}

/// As many tokens as notifications: each has to reach a thread that waits.
#[test]
fn each_of_many_notifications_arrives() {
    let (tokens, condvar) = (Mutex::new(0_usize), Condvar::new());
    for _ in 0..rounds(20) {
        let waiting = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut tokens = tokens.lock();
                    waiting.fetch_add(1, Relaxed);
                    condvar.wait_while(&mut tokens, |tokens| *tokens == 0);
                    *tokens -= 1;
                });
            }
            while waiting.load(Relaxed) < 8 {
                thread::yield_now();
            }
            for _ in 0..8 {
                *tokens.lock() += 1;
                condvar.notify_one();
            }
        });
        assert_eq!(*tokens.lock(), 0);
    }
}

#[test]
fn notify_all_wakes_all() {
    let (go, condvar) = (Mutex::new(0_usize), Condvar::new());
    for round in 1..=rounds(50) {
        thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    let mut go = go.lock();
                    condvar.wait_while(&mut go, |go| *go < round);
                });
            }
            *go.lock() = round;
            condvar.notify_all();
        });
    }
}

#[test]
fn ping_pong() {
    let (turn, condvar) = (Mutex::new(0_usize), Condvar::new());
    let total = rounds(20_000);
    thread::scope(|scope| {
        for player in 0..2 {
            let (turn, condvar) = (&turn, &condvar);
            scope.spawn(move || {
                let mut turn = turn.lock();
                while *turn < total {
                    if *turn % 2 == player {
                        *turn += 1;
                        condvar.notify_one();
                    } else {
                        condvar.wait(&mut turn);
                    }
                }
            });
        }
    });
    assert_eq!(turn.into_inner(), total);
}

/// Producers and consumers, more threads than processors; nothing is lost, nothing comes twice.
#[test]
fn a_bounded_buffer_of_16_threads() {
    const CAPACITY: usize = 4;
    let (buffer, filled, drained) = (Mutex::new(VecDeque::new()), Condvar::new(), Condvar::new());
    let each = rounds(1_000);
    let sum = AtomicUsize::new(0);
    thread::scope(|scope| {
        for producer in 0..8 {
            let (buffer, filled, drained) = (&buffer, &filled, &drained);
            scope.spawn(move || {
                for item in 0..each {
                    let mut buffer = buffer.lock();
                    drained.wait_while(&mut buffer, |buffer| buffer.len() == CAPACITY);
                    buffer.push_back(producer * each + item);
                    filled.notify_one();
                }
            });
        }
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..each {
                    let mut buffer = buffer.lock();
                    filled.wait_while(&mut buffer, |buffer| buffer.is_empty());
                    sum.fetch_add(buffer.pop_front().expect("waited until it was not empty"), Relaxed);
                    drained.notify_one();
                }
            });
        }
    });
    let items = 8 * each;
    assert_eq!(sum.into_inner(), items * (items - 1) / 2);
    assert!(buffer.lock().is_empty());
}

/// Waiters that give up take no notification along.
#[test]
fn timeouts_among_notifications_lose_none() {
    let (tokens, condvar) = (Mutex::new(0_usize), Condvar::new());
    let taken = AtomicUsize::new(0);
    let total = rounds(2_000);
    thread::scope(|scope| {
        for thread in 0..6 {
            let (tokens, condvar, taken) = (&tokens, &condvar, &taken);
            scope.spawn(move || {
                while taken.load(Relaxed) < total {
                    let mut tokens = tokens.lock();
                    let timeout = Duration::from_micros(20 * thread + 20);
                    let result = condvar.wait_while_for(&mut tokens, |tokens| *tokens == 0, timeout);
                    assert_eq!(result.timed_out(), *tokens == 0);
                    if *tokens > 0 {
                        *tokens -= 1;
                        taken.fetch_add(1, Relaxed);
                    }
                }
            });
        }
        // Two without a timeout, for whom the notifications are meant.
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let mut tokens = tokens.lock();
                    condvar.wait_while(&mut tokens, |tokens| *tokens == 0 && taken.load(Relaxed) < total);
                    if *tokens == 0 {
                        return;
                    }
                    *tokens -= 1;
                    taken.fetch_add(1, Relaxed);
                }
            });
        }
        for _ in 0..total {
            *tokens.lock() += 1;
            condvar.notify_one();
        }
        while taken.load(Relaxed) < total {
            thread::yield_now();
        }
        let _guard = tokens.lock();
        condvar.notify_all();
    });
    assert_eq!((taken.into_inner(), tokens.into_inner()), (total, 0));
}

#[test]
fn timed_waits_end_not_before_their_time() {
    let (mutex, condvar) = (Mutex::new(1), Condvar::new());
    let mut guard = mutex.lock();
    let start = Instant::now();
    assert!(condvar.wait_while_for(&mut guard, |_| true, SHORT).timed_out());
    assert!(start.elapsed() >= SHORT);
    let start = Instant::now();
    assert!(condvar.wait_while_until(&mut guard, |_| true, start + SHORT).timed_out());
    assert!(start.elapsed() >= SHORT);
    assert!(condvar.wait_until(&mut guard, start).timed_out(), "a moment that is past");
    assert!(condvar.wait_for(&mut guard, Duration::ZERO).timed_out());
    assert!(
        !condvar.wait_while_for(&mut guard, |value| *value == 0, Duration::ZERO).timed_out(),
        "nothing to wait for"
    );
    *guard += 1;
    assert_eq!(*guard, 2, "the guard holds the lock again");
    assert!(mutex.try_lock().is_none());
}

#[test]
fn a_notification_in_time_is_no_timeout() {
    let (go, condvar) = (Mutex::new(false), Condvar::new());
    for timeout in [LONG, Duration::MAX] {
        *go.lock() = false;
        thread::scope(|scope| {
            let mut ready = go.lock();
            scope.spawn(|| {
                *go.lock() = true;
                condvar.notify_all();
            });
            assert!(!condvar.wait_while_for(&mut ready, |ready| !*ready, timeout).timed_out());
        });
    }
}

#[test]
fn a_wait_releases_the_mutex() {
    static MUTEX: Mutex<u32> = Mutex::new(0);
    static CONDVAR: Condvar = Condvar::new();
    let (send, receive) = channel();
    let waiter = thread::spawn(move || {
        let mut value = MUTEX.lock();
        send.send(()).expect("the receiver lives");
        CONDVAR.wait_while(&mut value, |value| *value == 0);
        *value += 1;
    });
    receive.recv().expect("the waiter sends");
    *MUTEX.lock() = 1;
    CONDVAR.notify_one();
    waiter.join().expect("no panic");
    assert_eq!(*MUTEX.lock(), 2);
}

#[test]
fn one_condvar_after_the_other_mutex_and_any_lock_of_the_crate() {
    let condvar = Condvar::new();
    let (first, second) = (Mutex::new(()), wakeful::raw::wakeful::Mutex::new([1_u8; 3]));
    assert!(condvar.wait_for(&mut first.lock(), Duration::from_millis(1)).timed_out());
    let unsized_data: &wakeful::raw::wakeful::Mutex<[u8]> = &second;
    assert!(condvar.wait_for(&mut unsized_data.lock(), Duration::from_millis(1)).timed_out());
}

#[test]
fn a_panic_in_the_condition_releases_the_mutex() {
    let (mutex, condvar) = (Mutex::new(1), Condvar::new());
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        condvar.wait_while(&mut mutex.lock(), |_| std::panic::resume_unwind(Box::new("in the condition")));
    }));
    assert!(panicked.is_err());
    assert!(mutex.try_lock().is_some());
}

#[test]
fn the_condvar_may_go_when_the_last_waiter_has_left() {
    for _ in 0..rounds(200) {
        let shared = std::sync::Arc::new((Mutex::new(false), Condvar::new()));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || shared.1.wait_while(&mut shared.0.lock(), |ready| !*ready))
            })
            .collect();
        *shared.0.lock() = true;
        shared.1.notify_all();
        drop(shared);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}

/// Who never waits itself wakes a few, and these the others.
#[test]
fn a_broadcaster_that_never_waits_wakes_all() {
    const WAITERS: usize = 40;
    for inside in [false, true] {
        let (state, condvar) = (Mutex::new((0usize, 0usize)), Condvar::new());
        thread::scope(|scope| {
            for _ in 0..WAITERS {
                scope.spawn(|| {
                    for round in 1..=rounds(50) {
                        let mut state = state.lock();
                        condvar.wait_while(&mut state, |state| state.0 < round);
                        state.1 += 1;
                    }
                });
            }
            for round in 1..=rounds(50) {
                let mut now = state.lock();
                now.0 = round;
                if inside {
                    condvar.notify_all();
                    drop(now);
                } else {
                    drop(now);
                    condvar.notify_all();
                }
                while state.lock().1 < round * WAITERS {
                    thread::yield_now();
                }
            }
        });
    }
}
