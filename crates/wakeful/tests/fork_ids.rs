// SPDX-License-Identifier: MIT OR Apache-2.0
//! In a forked child a thread still has its id from the parent until it registers anew, and a new thread
//! may have got the same. A program of its own: the ids must begin at 1.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

use linux::Linux;
use platform::Platform;
use wakeful::RwLock;

static LOCK: RwLock<u32> = RwLock::new(0);

/// Waits until `count` is at least this.
fn until(count: &AtomicU32, least: u32) {
    let mut turns = 0u32;
    while count.load(SeqCst) < least {
        turns += 1;
        if turns.is_multiple_of(1000) {
            thread::yield_now();
        }
        std::hint::spin_loop();
    }
}

/// Reads until readers need not count themselves.
fn meet() {
    for _ in 0..100_000 {
        let guard = LOCK.read();
        std::hint::spin_loop();
        drop(guard);
    }
}

/// So many rounds, or as many as there are in ten seconds: where the two share a processor with others, each
/// costs some slices.
fn child() {
    let (rounds, begin, over) = (20_000, Instant::now(), AtomicBool::new(false));
    let start = Barrier::new(2);
    let (here, inside, left) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            // The first to register in this process; it is one of the two from here on.
            Linux::register();
            start.wait();
            meet();
            for round in 1..=rounds {
                here.fetch_add(1, SeqCst);
                until(&here, 2 * round);
                let guard = LOCK.read();
                inside.fetch_add(1, SeqCst);
                until(&left, round);
                if LOCK.try_write().is_some() {
                    eprintln!("round {round}: a writer beside a reader");
                    std::process::abort();
                }
                drop(guard);
                let is_over = over.load(SeqCst);
                inside.fetch_add(1, SeqCst);
                if is_over {
                    break;
                }
            }
        });
        start.wait();
        meet();
        for round in 1..=rounds {
            here.fetch_add(1, SeqCst);
            until(&here, 2 * round);
            let guard = LOCK.read();
            until(&inside, 2 * round - 1);
            drop(guard);
            let is_over = begin.elapsed() > Duration::from_secs(10);
            over.store(is_over, SeqCst);
            left.fetch_add(1, SeqCst);
            until(&inside, 2 * round);
            if is_over {
                break;
            }
        }
        other.join().unwrap();
    });
    drop(LOCK.try_write().expect("nobody reads any more"));
}

#[test]
fn two_threads_of_one_id_both_read() {
    Linux::register();
    // SAFETY: the child uses what it inherited, then leaves by _exit.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: a child that hangs is ended by the alarm, and that counts as a failure.
            unsafe { libc::alarm(30) };
            let finished = std::panic::catch_unwind(child).is_ok();
            // SAFETY: ends this process, running nothing of the parent's.
            unsafe { libc::_exit(!finished as i32) }
        }
        child => {
            let mut status = 0;
            // SAFETY: our child, and a valid pointer.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert!(
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
                "the child ended with {status:#x}"
            );
        }
    }
}
