// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens only where another thread runs a section. In these tests each lock always delegates.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

use super::Delegated;
use crate::Mutex;

/// Long enough for any test, and short enough to fail.
const LONG: Duration = Duration::from_secs(20);

/// What each kind of call promises holds where another thread runs its section, which each kind sees.
#[test]
fn each_kind_of_call_is_run_elsewhere() {
    const KINDS: usize = 3;
    let data = Delegated::new(0_u64);
    let elsewhere: [AtomicU32; KINDS] = Default::default();
    let end = Instant::now() + LONG;
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
