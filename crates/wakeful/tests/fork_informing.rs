// SPDX-License-Identifier: MIT OR Apache-2.0
//! In a forked child the thread that forked has its id from the parent, and the child's first own thread
//! may have the same. Whoever waits long for an informing lock gets an id of its own. A program of its own:
//! the ids must begin at 1.

use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread;
use std::time::Duration;

use linux::Linux;
use platform::{Platform, ThreadId};
use sync::mutex::RawMutex;

/// True if the calling thread, which has an id of the parent's, got one of its own.
fn waits<L: RawMutex<Linux> + Send + Sync>() -> bool
where
    L::Node: Default,
{
    let lock = L::new();
    let stale = Linux::current();
    let mut other = ThreadId::NONE;
    // Whether the wait is long is the scheduler's choice: again until it was.
    for _ in 0..100 {
        let (held, done) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let id = Linux::register();
                let node = L::Node::default();
                // SAFETY: unlocked below, with the same node.
                unsafe { lock.lock(&node) };
                held.store(true, Release);
                thread::sleep(Duration::from_millis(20));
                // SAFETY: locked above.
                unsafe { lock.unlock(&node) };
                // Its id stays taken so long.
                while !done.load(Acquire) {
                    thread::yield_now();
                }
                id
            });
            while !held.load(Acquire) {
                thread::yield_now();
            }
            let node = L::Node::default();
            // SAFETY: as above.
            unsafe {
                lock.lock(&node);
                lock.unlock(&node);
            }
            done.store(true, Release);
            other = holder.join().unwrap();
        });
        if Linux::current() != stale {
            break;
        }
    }
    assert_eq!(other, stale, "the ids of a child do not begin anew: the test is void");
    Linux::current() != stale
}

macro_rules! in_children {
    ($({ $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*], $citation:literal, $summary:literal })*) => {
        #[test]
        fn a_long_wait_brings_an_id_of_its_own() {
            type P = Linux;
            assert_eq!(Linux::register(), ThreadId(1));
            $(if $name.ends_with("-informing") {
                in_child($name, waits::<$type>);
            })*
        }
    };
}
catalog::mutexes!(in_children);

fn in_child(name: &str, body: fn() -> bool) {
    // SAFETY: the child uses what it inherited, then leaves by _exit.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: a child that hangs is ended by the alarm, and that counts as a failure.
            unsafe { libc::alarm(60) };
            let right = std::panic::catch_unwind(body).unwrap_or(false);
            // SAFETY: ends this process, running nothing of the parent's.
            unsafe { libc::_exit(!right as i32) }
        }
        child => {
            let mut status = 0;
            // SAFETY: our child, and a valid pointer.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert!(
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
                "{name}: the child ended with {status:#x}"
            );
        }
    }
}
