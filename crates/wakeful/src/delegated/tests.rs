// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens only where another thread runs a section. In these tests each lock always delegates.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

use super::Delegated;
use crate::{Condvar, Mutex};

/// Long enough for any test, and short enough to fail.
const LONG: Duration = Duration::from_secs(20);

/// What each kind of call promises holds where another thread runs its section, which each kind sees.
#[test]
fn each_kind_of_call_is_run_elsewhere() {
    const KINDS: usize = 5;
    let data = Arc::new(Delegated::new(0_u64));
    let changed = Condvar::new();
    let elsewhere: Arc<[AtomicU32; KINDS]> = Arc::default();
    // It takes some seconds beside busy programs.
    let end = Instant::now() + 6 * LONG;
    let missing = || elsewhere.iter().any(|count| count.load(Relaxed) == 0) && Instant::now() < end;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let me = thread::current().id();
                for kind in (0..KINDS).cycle() {
                    if !missing() {
                        return;
                    }
                    let lent = String::from("lent");
                    if kind == 4 {
                        // What it uses it owns.
                        let (theirs, elsewhere) = (lent.clone(), elsewhere.clone());
                        let handle = data.run_async(move |data| {
                            *data += 1;
                            elsewhere[kind].fetch_add((thread::current().id() != me) as u32, Relaxed);
                            theirs
                        });
                        // Others have some time for it.
                        (0..100).take_while(|_| !handle.is_done()).for_each(|_| thread::yield_now());
                        assert_eq!(handle.wait(), lent);
                        continue;
                    }
                    let mut ran = 0;
                    let section = |data: &mut u64| {
                        ran += 1;
                        *data += 1;
                        elsewhere[kind].fetch_add((thread::current().id() != me) as u32, Relaxed);
                        if kind == 1 {
                            resume_unwind(Box::new(lent.clone()));
                        }
                        lent.clone()
                    };
                    let result = match kind {
                        2 => Ok(data.try_run_for(LONG, section).ok().expect("the deadline is far")),
                        3 => Ok(data.run_when(&changed, |_| true, section)),
                        _ => catch_unwind(AssertUnwindSafe(|| data.run(section))),
                    };
                    let back = result.unwrap_or_else(|panic| {
                        assert_eq!(kind, 1, "a panic went to the wrong caller");
                        *panic.downcast().expect("it is ours")
                    });
                    assert_eq!((back, ran), (lent, 1));
                }
            });
        }
    });
    assert!(elsewhere.iter().all(|count| count.load(Relaxed) > 0), "not run elsewhere: {elsewhere:?}");
}

/// Who lets a lock go and keeps the next one runs nobody's section: that may want the next one.
#[test]
fn a_guard_serves_nobody() {
    let (first, second) = (Delegated::new(()), Mutex::new(()));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                let locked = first.run(|()| second.try_lock_for(LONG / 4).is_some());
                assert!(locked, "a section waited for the thread that ran it");
            }
        });
        for round in 0..20_000 {
            let one = first.lock();
            let until = Instant::now() + Duration::from_nanos(round % 16 * 500);
            while Instant::now() < until {}
            let two = second.lock();
            drop(one);
            drop(two);
        }
        stop.store(true, Relaxed);
    });
}

/// A section that forks: in the child the thread that ran it goes on, and runs nobody else's.
#[test]
fn a_section_forks() {
    let home = std::process::id();
    let in_child = || std::process::id() != home;
    let (wanted, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let sum = Delegated::new(0_usize);
    let section = |sum: &mut usize, caller| {
        if in_child() {
            // SAFETY: ends the child, which runs a request of a thread that it has not.
            unsafe { libc::_exit(2) };
        }
        *sum += 1;
        // SAFETY: the child uses what it inherited, then leaves by _exit.
        (thread::current().id() != caller && wanted.swap(0, Relaxed) == 1).then(|| unsafe { libc::fork() })
    };
    let client = || {
        let caller = thread::current().id();
        while done.load(Relaxed) < 30 {
            let child = sum.run(|sum| section(sum, caller));
            if in_child() {
                // SAFETY: a child that hangs is ended by the alarm, and that counts as a failure.
                unsafe { libc::alarm(10) };
                (0..100).for_each(|_| sum.run(|sum| *sum += 1));
                // SAFETY: ends the child, running nothing of the parent's.
                unsafe { libc::_exit(0) };
            }
            if let Some(child) = child {
                let mut status = 0;
                // SAFETY: our child, and a valid pointer.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                done.fetch_add(1, Relaxed);
                assert_eq!(status, 0, "a child ran a request of its parent's, or came to no end");
            }
        }
    };
    thread::scope(|scope| {
        (0..64).for_each(|_| drop(scope.spawn(client)));
        while done.load(Relaxed) < 30 {
            let before = done.load(Relaxed);
            wanted.store(1, Relaxed);
            while done.load(Relaxed) == before {
                thread::sleep(std::time::Duration::from_micros(200));
            }
        }
    });
}

/// Polling comes to an end, also where nobody else comes to the lock.
#[test]
fn a_handle_that_is_polled_runs_its_section() {
    let data = Arc::new(Delegated::new(0));
    // From its first section on it takes what is left.
    data.run(|_| ());
    let leave = || {
        data.run_async(|data| {
            *data += 1;
            *data
        })
    };
    let guard = data.lock();
    let handle = thread::scope(|scope| scope.spawn(leave).join().expect("it does not panic"));
    assert!(!handle.is_done(), "somebody ran it while the lock was held");
    let handle = handle.try_wait().expect_err("the lock is held");
    drop(guard);
    assert_eq!(handle.try_wait().ok(), Some(1));
    assert_eq!(*data.lock(), 1);
}

/// In a child the section that another thread had begun is the parent's, with all that it uses.
#[test]
fn a_section_is_begun_before_a_fork() {
    let data = Arc::new(Delegated::new(0));
    // From its first section on it takes what is left.
    data.run(|_| ());
    let flag = || Arc::new(AtomicBool::new(false));
    let (held, left, begun, go_on) = (flag(), flag(), flag(), flag());
    let until = |flag: &AtomicBool| {
        while !flag.load(Acquire) {
            thread::sleep(Duration::from_micros(100));
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            // Its own section ends when there is another one, which it then runs.
            data.run(|_| {
                held.store(true, Release);
                until(&left);
            });
        });
        until(&held);
        let (theirs, goes_on) = (begun.clone(), go_on.clone());
        let handle = data.run_async(move |data| {
            theirs.store(true, Release);
            until(&goes_on);
            *data += 1;
        });
        left.store(true, Release);
        until(&begun);
        let users = Arc::strong_count(&data);
        // SAFETY: the child uses what it inherited, then leaves by _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: a child that hangs is ended by the alarm, and that counts as a failure.
            unsafe { libc::alarm(10) };
            std::panic::set_hook(Box::new(|_| ()));
            let panics = catch_unwind(AssertUnwindSafe(|| handle.wait())).is_err();
            let kept = Arc::strong_count(&data) == users;
            // SAFETY: ends the child, running nothing of the parent's.
            unsafe { libc::_exit(if panics && kept { 0 } else { 2 }) };
        }
        go_on.store(true, Release);
        let mut status = 0;
        // SAFETY: our child, and a valid pointer.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "a child took what its parent uses, or came to no end");
        handle.wait();
    });
    assert_eq!(*data.lock(), 1);
}
