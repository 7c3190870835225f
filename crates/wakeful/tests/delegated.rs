// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Delegated` as a program uses it.

use std::ops::DerefMut;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use wakeful::{Condvar, Delegated, SectionHandle};

static_assertions::assert_impl_all!(Delegated<u64>: Send, Sync, std::fmt::Debug, Default);
static_assertions::const_assert_eq!(size_of::<Delegated<()>>(), 192);
static_assertions::assert_not_impl_any!(Delegated<std::rc::Rc<u64>>: Send, Sync);
static_assertions::assert_impl_all!(SectionHandle<u64>: Send, Sync, std::fmt::Debug);
static_assertions::assert_not_impl_any!(SectionHandle<std::rc::Rc<u64>>: Send);
static_assertions::assert_not_impl_any!(wakeful::DelegatedGuard<'static, u64>: Send);

/// Each section once, one at a time, with what the caller has lent it; half of them hold the lock instead.
#[test]
fn sections_and_guards_exclude() {
    const ROUNDS: usize = 2_000;
    for threads in [1, 2, 8, 32] {
        let sum = Delegated::new((0_usize, 0_usize));
        thread::scope(|scope| {
            for index in 0..threads {
                let sum = &sum;
                scope.spawn(move || {
                    let own = [index; 3];
                    for round in 0..ROUNDS {
                        if round % 4 == 3 {
                            let mut sum = sum.lock();
                            sum.0 += 1;
                            sum.1 += index;
                            continue;
                        }
                        let seen = sum.run(|sum| {
                            sum.0 += 1;
                            sum.1 += own[round % 3];
                            sum.0
                        });
                        assert!((1..=threads * ROUNDS).contains(&seen));
                    }
                });
            }
        });
        let expected = (threads * ROUNDS, (0..threads).sum::<usize>() * ROUNDS);
        assert_eq!(sum.into_inner(), expected);
    }
}

/// A panic reaches the one whose section it is, with its payload, and nobody else.
#[test]
fn panics_reach_their_callers() {
    let count = Delegated::new(0_u32);
    thread::scope(|scope| {
        for index in 0..8_u32 {
            let count = &count;
            scope.spawn(move || {
                for round in 0..500_u32 {
                    let result = catch_unwind(AssertUnwindSafe(|| {
                        count.run(|count| {
                            *count += 1;
                            if round % 10 == index {
                                std::panic::resume_unwind(Box::new((index, round)));
                            }
                        })
                    }));
                    let panic =
                        result.err().map(|panic| *panic.downcast::<(u32, u32)>().expect("it is ours"));
                    assert_eq!(panic, (round % 10 == index).then_some((index, round)));
                }
            });
        }
    });
    assert_eq!(count.into_inner(), 8 * 500);
}

/// Who gives up has its section back, and it has not run.
#[test]
fn deadlines() {
    let data = Delegated::new(0_u32);
    let guard = data.lock();
    thread::scope(|scope| {
        scope.spawn(|| {
            let until = Instant::now() + Duration::from_millis(2);
            let section = |data: &mut u32| *data += 1;
            let back = data.try_run_until(until, section).expect_err("the lock is held");
            assert!(Instant::now() >= until, "gave up before the deadline");
            assert!(data.try_run_for(Duration::ZERO, back).is_err(), "the lock is held still");
            let (changed, late) = (Condvar::new(), Duration::from_millis(1));
            let held = data.run_when_for(&changed, late, |_| true, |_| ()).is_err();
            assert!(held, "the lock is held still");
        });
    });
    drop(guard);
    assert_eq!(data.run(|data| *data), 0, "a section ran though its caller gave up");
    assert_eq!(data.try_run_for(Duration::ZERO, |data| *data + 1).ok(), Some(1));
}

/// What a section owns and returns is dropped once, also if it does not run.
#[test]
fn nothing_is_lost_or_dropped_twice() {
    let token = std::sync::Arc::new(());
    let data = Delegated::new(token.clone());
    let theirs = token.clone();
    let returned = data.run(move |data| (theirs, data.clone()));
    assert_eq!(std::sync::Arc::strong_count(&token), 4);
    drop(returned);
    let guard = data.lock();
    thread::scope(|scope| {
        scope.spawn(|| {
            let theirs = token.clone();
            drop(data.try_run_for(Duration::from_millis(1), move |_| drop(theirs)));
        });
    });
    drop(guard);
    drop(data);
    assert_eq!(std::sync::Arc::strong_count(&token), 1);
}

/// What is left to others runs once, whatever becomes of the handle; beside sections that are waited for.
#[test]
fn handles() {
    const ROUNDS: usize = 2_000;
    let sum = Arc::new(Delegated::new(0_usize));
    let dropped = Arc::new(());
    thread::scope(|scope| {
        for index in 0..8 {
            let (sum, dropped) = (&sum, &dropped);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let theirs = dropped.clone();
                    let handle = sum.run_async(move |sum| {
                        *sum += 1;
                        if round % 7 == 3 {
                            resume_unwind(Box::new((index, round)));
                        }
                        (index, round, theirs)
                    });
                    sum.run(|sum| *sum += 1);
                    if round % 3 == 0 {
                        continue;
                    }
                    let result = catch_unwind(AssertUnwindSafe(|| match handle.try_wait() {
                        Ok(result) => result,
                        Err(handle) => handle.wait(),
                    }));
                    let back = result.map_or_else(
                        |panic| *panic.downcast::<(usize, usize)>().expect("it is ours"),
                        |(index, round, _)| (index, round),
                    );
                    assert_eq!(back, (index, round));
                }
            });
        }
    });
    assert_eq!(sum.run(|sum| *sum), 2 * 8 * ROUNDS);
    assert_eq!((Arc::strong_count(&sum), Arc::strong_count(&dropped)), (1, 1));
}

/// A free lock runs it at once; a handle that nobody waits for is no matter.
#[test]
fn a_handle_of_a_free_lock_is_done() {
    let data = Arc::new(Delegated::new(1));
    let handle = data.run_async(|data| std::mem::replace(data, 2));
    assert!(handle.is_done());
    assert_eq!(data.run(|data| *data), 2);
    assert_eq!(handle.try_wait().ok(), Some(1));
    std::mem::forget(data.run_async(|data| *data = 3));
    assert_eq!(*data.lock(), 3);
}

/// Each waits for the other's turn: a notification that is lost ends it all.
#[test]
fn conditions() {
    const ROUNDS: usize = 2_000;
    const THREADS: usize = 4;
    let (turn, changed) = (Delegated::new(0_usize), Condvar::new());
    thread::scope(|scope| {
        for index in 0..THREADS {
            let (turn, changed) = (&turn, &changed);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let ours = round * THREADS + index;
                    let next = |turn: &mut usize| {
                        *turn += 1;
                        changed.notify_all();
                        *turn
                    };
                    let is_ours = |turn: &mut usize| *turn == ours;
                    let now = if round % 2 == 0 {
                        turn.run_when(changed, is_ours, next)
                    } else {
                        let late = Duration::from_secs(60);
                        turn.run_when_for(changed, late, is_ours, next).ok().expect("its turn comes")
                    };
                    assert_eq!(now, ours + 1);
                }
            });
        }
    });
    assert_eq!(turn.into_inner(), ROUNDS * THREADS);
}

/// The deadline of a condition: not before, and then the section has not run. What holds needs no time.
#[test]
fn conditions_that_do_not_come() {
    let (data, changed) = (Delegated::new(0_u32), Condvar::new());
    for timeout in [Duration::ZERO, Duration::from_millis(3)] {
        let until = Instant::now() + timeout;
        let back = data
            .run_when_until(&changed, until, |data| *data == 1, |data| *data += 1)
            .expect_err("nobody changes it");
        assert!(Instant::now() >= until, "gave up before the deadline");
        data.run(back);
        assert_eq!(std::mem::take(data.lock().deref_mut()), 1, "the section ran, and then again");
    }
    assert_eq!(data.run_when_for(&changed, Duration::ZERO, |data| *data == 0, |_| 5).ok(), Some(5));
}
