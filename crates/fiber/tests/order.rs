// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who runs first: priorities.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::time::Duration;

use fiber::{Config, Priority, Runtime, thread};

fn policy() -> i32 {
    // SAFETY: no pointers.
    unsafe { libc::sched_getscheduler(0) }
}

fn spawn<T: Send + 'static>(
    priority: Priority,
    body: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    thread::Builder::new().priority(priority).spawn(body).unwrap()
}

/// Low ones that never wait have all seats and all processors. A usual one is woken, and its kin begin.
#[test]
fn a_usual_fiber_runs_beside_low_ones_that_never_wait() {
    let stop = Arc::new(AtomicBool::new(false));
    let spinning = Arc::new(AtomicU32::new(0));
    let low: Vec<_> = (0..4)
        .map(|_| {
            let (stop, spinning) = (stop.clone(), spinning.clone());
            spawn(Priority::Low, move || {
                spinning.fetch_add(1, Relaxed);
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
                policy()
            })
        })
        .collect();
    while spinning.load(Relaxed) == 0 {
        std::thread::yield_now();
    }
    let usual = spawn(Priority::Usual, || {
        for _ in 0..50 {
            thread::sleep(Duration::from_micros(200));
            assert_eq!(thread::spawn(policy).join().unwrap(), libc::SCHED_OTHER);
        }
        policy()
    });
    assert_eq!(usual.join().unwrap(), libc::SCHED_OTHER);
    stop.store(true, Relaxed);
    for low in low {
        assert_eq!(low.join().unwrap(), libc::SCHED_IDLE);
    }
}

/// What a low fiber spawns is low, unless it says otherwise; and carriers that come for it are usual.
#[test]
fn a_low_fiber_spawns_usual_ones() {
    let policies = spawn(Priority::Low, || {
        let kin = thread::spawn(policy).join().unwrap();
        let usual: Vec<_> = (0..20)
            .map(|_| {
                spawn(Priority::Usual, || {
                    // Its carrier is blocked, and another takes the next.
                    std::thread::sleep(Duration::from_millis(3));
                    policy()
                })
            })
            .collect();
        (kin, usual.into_iter().map(|fiber| fiber.join().unwrap()).collect::<Vec<_>>())
    });
    let (kin, usual) = policies.join().unwrap();
    assert_eq!(kin, libc::SCHED_IDLE);
    assert_eq!(usual, [libc::SCHED_OTHER; 20]);
}

/// A runtime of one's own may be low as well, and fibers of both wake each other.
#[test]
fn priorities_wake_each_other() {
    let config = Config { priority: Priority::Low, processors: Some(1), ..Config::default() };
    let low = Runtime::start(config).unwrap();
    let turn = Arc::new(AtomicU32::new(0));
    let ours = turn.clone();
    let usual = thread::spawn(move || {
        let me = thread::current().unwrap();
        let other = thread::Builder::new().runtime(low).spawn(move || {
            for round in 0..500 {
                while ours.load(Acquire) != 2 * round + 1 {
                    thread::park();
                }
                ours.store(2 * round + 2, Release);
                me.unpark();
            }
        });
        let other = other.unwrap();
        for round in 0..500 {
            turn.store(2 * round + 1, Release);
            other.thread().unpark();
            while turn.load(Acquire) != 2 * round + 2 {
                thread::park();
            }
        }
        other.join().unwrap();
    });
    usual.join().unwrap();
}
