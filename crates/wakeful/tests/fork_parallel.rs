// SPDX-License-Identifier: MIT OR Apache-2.0
//! Teams in forked children, and in processes that are stopped, interrupted and killed. A program of its
//! own: fork copies one thread.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::thread;
use std::time::Duration;

use wakeful::parallel::{Schedule, Team, parallel_for, reduce};

static TEAM: Team = Team::free(4);

fn work(loops: usize) {
    for _ in 0..loops {
        let counts: [AtomicUsize; 32] = [const { AtomicUsize::new(0) }; 32];
        TEAM.for_each(0..32, Schedule::Static, |i| _ = counts[i].fetch_add(1, Relaxed));
        assert!(counts.iter().all(|count| count.load(Relaxed) == 1));
        parallel_for(0..32, |i| _ = counts[i].fetch_add(1, Relaxed));
        assert!(counts.iter().all(|count| count.load(Relaxed) == 2));
    }
}

/// Forks; the child runs `body` and leaves.
fn fork(body: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child uses what it inherited, then leaves by _exit. glibc makes malloc and pthread_create
    // usable in the child of a threaded program, which POSIX does not promise.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: as above; a child that hangs is ended by the alarm, and that counts as a failure.
            unsafe { libc::alarm(120) };
            let finished = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_ok();
            // SAFETY: ends this process, running nothing of the parent's.
            unsafe { libc::_exit(!finished as i32) }
        }
        child => {
            assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
            child
        }
    }
}

fn wait(child: libc::pid_t) -> libc::c_int {
    let mut status = 0;
    // SAFETY: our child, and a valid pointer.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status
}

fn fine(child: libc::pid_t) -> bool {
    wait(child) == 0
}

fn signal(child: libc::pid_t, signal: libc::c_int) {
    // SAFETY: our child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(child, signal) }, 0);
}

extern "C" fn nothing(_: libc::c_int) {}

#[test]
fn teams_and_processes() {
    // Before the first loop, and after it.
    assert!(fine(fork(|| work(20))));
    work(20);
    assert!(fine(fork(|| {
        work(20);
        // A grandchild of one that has helpers of its own.
        assert!(fine(fork(|| work(20))));
        work(20);
    })));
    // From a body, the caller's or a helper's, in the middle of a loop: the child's loops run inline.
    let forked = AtomicBool::new(false);
    TEAM.for_each(0..8, Schedule::Dynamic { chunk: 1 }, |_| {
        if !forked.swap(true, Relaxed) {
            assert!(fine(fork(|| {
                assert_eq!(reduce(0..10, || 0, |sum, i| sum + i, |a, b| a + b), 45);
                TEAM.for_each(0..10, Schedule::Static, |_| ());
            })));
        }
    });
    // By one thread while another runs loops, so that parts are taken, offered, asleep in the copy.
    for _ in 0..20 {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    work(1);
                }
            });
            thread::sleep(Duration::from_millis(1));
            let child = fork(|| work(5));
            let right = fine(child);
            stop.store(true, Relaxed);
            assert!(right);
        });
    }
    // Dropped in a child, where its helpers are not.
    let team = Team::free(3);
    team.for_each(0..3, Schedule::Static, |_| ());
    assert!(fine(fork(move || drop(team))));

    // Stopped, continued and interrupted in the middle, and done all the same.
    // SAFETY: a handler that does nothing; without SA_RESTART, so that system calls are interrupted.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
    let child = fork(|| {
        for _ in 0..50 {
            work(20);
            // Long enough for the helpers to fall asleep.
            thread::sleep(Duration::from_millis(1));
        }
    });
    for _ in 0..20 {
        for kind in [libc::SIGUSR1, libc::SIGSTOP, libc::SIGUSR1, libc::SIGCONT] {
            signal(child, kind);
            thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(fine(child));
    // Killed at any moment; nobody else notices.
    for round in 0..20 {
        let child = fork(|| work(usize::MAX));
        work(5);
        thread::sleep(Duration::from_micros(300 * round));
        signal(child, libc::SIGKILL);
        assert!(libc::WIFSIGNALED(wait(child)));
    }
    work(20);
}
