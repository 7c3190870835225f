// SPDX-License-Identifier: MIT OR Apache-2.0
//! std's; parking_lot has no barrier. What tokio's tests do to theirs fits one that blocks threads as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{TryRecvError, channel};
use std::thread;

use wakeful::Barrier;

use crate::LONG;

/// Nobody passes before the last one comes, and then all do, with one leader.
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

/// The example of std's manual: whatever is done before the barrier is done before whatever comes after it.
#[test]
fn all_befores_come_before_all_afters() {
    const THREADS: usize = 10;
    let barrier = Barrier::new(THREADS);
    let before = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                before.fetch_add(1, SeqCst);
                barrier.wait();
                assert_eq!(before.load(SeqCst), THREADS);
            });
        }
    });
}

#[test]
fn none_and_one_never_wait() {
    for parties in [0, 1] {
        let barrier = Barrier::new(parties);
        assert!((0..1000).all(|_| barrier.wait().is_leader()));
    }
}

/// Two meet again and again; each time one of them leads.
#[test]
fn one_of_two_leads() {
    let barrier = Arc::new(Barrier::new(2));
    for _ in 0..20 {
        let theirs = barrier.clone();
        let (leads, first) = channel();
        let other = thread::spawn(move || leads.send(theirs.wait().is_leader()).unwrap());
        assert_eq!(first.try_recv(), Err(TryRecvError::Empty));
        let ours = barrier.wait().is_leader();
        assert_ne!(first.recv_timeout(LONG).unwrap(), ours);
        other.join().unwrap();
    }
}

/// A hundred, of whom each comes when the one before has not passed; then once more.
#[test]
fn a_hundred_pass_together_twice() {
    const OTHERS: usize = 99;
    let barrier = Arc::new(Barrier::new(OTHERS + 1));
    for _ in 0..2 {
        let (passed, who) = channel();
        let handles: Vec<_> = (0..OTHERS)
            .map(|_| {
                assert_eq!(who.try_recv(), Err(TryRecvError::Empty));
                let (barrier, passed) = (barrier.clone(), passed.clone());
                thread::spawn(move || passed.send(barrier.wait().is_leader()).unwrap())
            })
            .collect();
        let mut leaders = usize::from(barrier.wait().is_leader());
        leaders += (0..OTHERS).filter(|_| who.recv_timeout(LONG).unwrap()).count();
        assert_eq!(leaders, 1);
        handles.into_iter().for_each(|handle| handle.join().unwrap());
    }
}
