// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Barrier`, as std's is used, and beyond.

use std::collections::HashSet;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use static_assertions::{assert_eq_size, assert_impl_all};
use wakeful::Barrier;

assert_impl_all!(Barrier: Send, Sync, std::fmt::Debug, std::panic::UnwindSafe, std::panic::RefUnwindSafe);
assert_eq_size!(Barrier, [u32; 6]);

/// What std demands of its own: nobody passes before the last one comes, and then all do, with one leader.
#[test]
fn all_wait_for_the_last_and_one_leads() {
    const OTHERS: usize = 9;
    let barrier = Arc::new(Barrier::new(OTHERS + 1));
    let (passed, who) = channel();
    let handles: Vec<_> = (0..OTHERS)
        .map(|_| {
            let (barrier, passed) = (barrier.clone(), passed.clone());
            thread::spawn(move || passed.send(barrier.wait().is_leader()).unwrap())
        })
        .collect();
    assert_eq!(who.try_recv(), Err(TryRecvError::Empty));
    let mut leaders = usize::from(barrier.wait().is_leader());
    for handle in handles {
        handle.join().unwrap();
    }
    leaders += who.try_iter().filter(|leader| *leader).count();
    assert_eq!(leaders, 1);
}

#[test]
fn none_and_one_never_wait() {
    for parties in [0, 1] {
        let barrier = Barrier::new(parties);
        assert!((0..1000).all(|_| barrier.wait().is_leader()));
    }
}

#[test]
fn as_many_as_fit_and_no_more() {
    let barrier = Barrier::new(Barrier::MOST_PARTIES);
    assert!(catch_unwind(|| barrier.join()).is_err());
    assert!(catch_unwind(|| Barrier::new(Barrier::MOST_PARTIES + 1)).is_err());
    for _ in 1..Barrier::MOST_PARTIES {
        barrier.arrive_and_drop();
    }
    assert!(barrier.wait().is_leader());
}

#[test]
fn the_last_party_may_leave_and_another_join() {
    let barrier = Barrier::new(1);
    barrier.arrive_and_drop();
    barrier.arrive_and_drop();
    assert!(barrier.wait().is_leader());
    barrier.join();
    assert!(barrier.wait().is_leader());
    barrier.join();
    thread::scope(|scope| {
        let other = scope.spawn(|| barrier.wait().is_leader());
        let mine = barrier.wait().is_leader();
        assert_ne!(mine, other.join().unwrap());
    });
}

/// More rounds than the episode's number has values.
#[test]
fn many_rounds() {
    const ROUNDS: usize = 70_000;
    let barrier = Barrier::new(2);
    let turns = [AtomicUsize::new(0), AtomicUsize::new(0)];
    thread::scope(|scope| {
        for me in 0..2 {
            let (barrier, turns) = (&barrier, &turns);
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    turns[me].store(round, SeqCst);
                    barrier.wait();
                    assert!(turns[1 - me].load(SeqCst) >= round);
                }
            });
        }
    });
}

/// Waits long enough to sleep, again and again.
#[test]
fn a_late_party() {
    let barrier = Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..20 {
                    barrier.wait();
                }
            });
        }
        for _ in 0..20 {
            thread::sleep(std::time::Duration::from_millis(3));
            barrier.wait();
        }
    });
}

#[test]
fn more_threads_than_parties_pass_in_groups() {
    let barrier = Barrier::new(3);
    let leaders = Mutex::new(HashSet::new());
    thread::scope(|scope| {
        for thread in 0..12 {
            let (barrier, leaders) = (&barrier, &leaders);
            scope.spawn(move || {
                if barrier.wait().is_leader() {
                    leaders.lock().unwrap().insert(thread);
                }
            });
        }
    });
    assert_eq!(leaders.into_inner().unwrap().len(), 4);
}
