// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Delegated` as a program uses it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use wakeful::Delegated;

static_assertions::assert_impl_all!(Delegated<u64>: Send, Sync, std::fmt::Debug, Default);
static_assertions::const_assert_eq!(size_of::<Delegated<()>>(), 192);
static_assertions::assert_not_impl_any!(Delegated<std::rc::Rc<u64>>: Send, Sync);
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
