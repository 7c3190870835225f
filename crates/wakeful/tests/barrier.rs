// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Barrier`, beyond what std's can do, for which see `published`.

use std::collections::HashSet;
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use static_assertions::{assert_eq_size, assert_impl_all};
use wakeful::Barrier;

assert_impl_all!(Barrier: Send, Sync, std::fmt::Debug, std::panic::UnwindSafe, std::panic::RefUnwindSafe);
assert_eq_size!(Barrier, [u32; 32]);

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
