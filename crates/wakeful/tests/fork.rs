// SPDX-License-Identifier: MIT OR Apache-2.0
//! A forked child uses the locks of its parent, whose waiters did not come along. A program of its own:
//! fork copies one thread.

use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread;

use wakeful::{Delegated, Mutex};

static COUNT: Mutex<usize> = Mutex::new(0);

fn contend(threads: usize, each: usize) {
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..each {
                    *COUNT.lock() += 1;
                }
            });
        }
    });
}

/// Runs `body` in a forked child; true if it returned.
fn forked(body: impl FnOnce()) -> bool {
    // SAFETY: the child uses what it inherited, then leaves by _exit. glibc makes malloc and pthread_create
    // usable in the child of a threaded program, which POSIX does not promise.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: as above; a child that hangs is ended by the alarm, and that counts as a failure.
            unsafe { libc::alarm(60) };
            let finished = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_ok();
            // SAFETY: ends this process, running nothing of the parent's.
            unsafe { libc::_exit(!finished as i32) }
        }
        child => {
            assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
            let mut status = 0;
            // SAFETY: our child, and a valid pointer.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}

#[test]
fn a_child_uses_the_locks_of_its_parent() {
    // Registered before the fork, and forked while held, contended and waited for.
    contend(8, 1000);
    assert!(forked(|| contend(8, 1000)), "after a quiet fork");
    for _ in 0..20 {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        *COUNT.lock() += 1;
                    }
                });
            }
            thread::sleep(std::time::Duration::from_millis(2));
            let guard = COUNT.lock();
            let before = *guard;
            // The child's only thread holds the lock; the waiters exist in the parent alone.
            let fine = forked(move || {
                drop(guard);
                contend(4, 200);
                assert_eq!(*COUNT.lock(), before + 800);
            });
            // Here the guard went with the closure, after the child's end.
            stop.store(true, Relaxed);
            assert!(fine, "after a fork with waiters");
        });
    }
    contend(8, 1000);
    // A grandchild, from a child that has used the locks itself.
    assert!(forked(|| {
        contend(4, 200);
        assert!(forked(|| contend(4, 200)));
        contend(4, 200);
    }));
    // Not a test of its own, which could run beside this one.
    a_child_delegates_as_its_parent_did();
}

static SUM: Delegated<usize> = Delegated::new(0);

fn delegate(threads: usize, each: usize) {
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..each).for_each(|_| SUM.run(|sum| *sum += 1)));
        }
    });
}

/// A child has none of the requests of its parent's threads.
fn a_child_delegates_as_its_parent_did() {
    delegate(8, 1000);
    assert!(forked(|| delegate(8, 1000)), "after a quiet fork");
    for _ in 0..20 {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        SUM.run(|sum| *sum += 1);
                    }
                });
            }
            thread::sleep(std::time::Duration::from_millis(1));
            let guard = SUM.lock();
            let before = *guard;
            let fine = forked(move || {
                drop(guard);
                delegate(4, 200);
                assert_eq!(*SUM.lock(), before + 800);
            });
            stop.store(true, Relaxed);
            assert!(fine, "after a fork with clients");
        });
    }
}
