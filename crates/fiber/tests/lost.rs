// SPDX-License-Identifier: MIT OR Apache-2.0
//! What got lost once: tokens, turns, carriers, and what a forked child waits for.

use std::cell::RefCell;
use std::os::unix::process::ExitStatusExt;
use std::panic::{panic_any, resume_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::*};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use fiber::local::LocalKey;
use fiber::sync::{Mutex, Semaphore};
use fiber::{Activations, Config, Runtime, thread};

/// Runs this as a fiber of a runtime with one seat. It fails if that takes too long.
fn in_time(activations: Activations, body: impl FnOnce() + Send + 'static) {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let config = Config { processors: Some(1), activations, ..Config::default() };
        Runtime::start(config).unwrap().run(body);
        tell.send(()).unwrap();
    });
    told.recv_timeout(Duration::from_secs(20)).expect("it hangs, or has panicked");
}

/// Waits of other kinds take no token that was given by `unpark`.
#[test]
fn an_unpark_outlives_other_waits() {
    in_time(Activations::Told, || {
        let me = thread::current().unwrap();
        let lock = Arc::new(Mutex::new(()));
        let (ours, held) = (lock.clone(), Arc::new(AtomicBool::new(false)));
        let theirs = held.clone();
        let holder = thread::spawn(move || {
            let _guard = ours.lock();
            theirs.store(true, Release);
            (0..100).for_each(|_| thread::yield_now());
        });
        while !held.load(Acquire) {
            thread::yield_now();
        }
        me.unpark();
        drop(lock.lock());
        thread::park();

        me.unpark();
        holder.join().unwrap();
        thread::spawn(thread::yield_now).join().unwrap();
        thread::park();

        let semaphore = Arc::new(Semaphore::new(0));
        let ours = semaphore.clone();
        drop(thread::spawn(move || {
            // Both before the other one goes on.
            ours.release();
            me.unpark();
        }));
        semaphore.acquire();
        thread::park();
    });
}

/// The same for one that comes together with the end of a sleep.
#[test]
fn an_unpark_outlives_a_sleep() {
    in_time(Activations::Told, || {
        for _ in 0..20 {
            let me = thread::current().unwrap();
            let end = Instant::now() + Duration::from_millis(10);
            drop(thread::spawn(move || {
                while Instant::now() < end {
                    std::hint::spin_loop();
                }
                me.unpark();
            }));
            thread::sleep(Duration::from_millis(3));
            thread::park();
        }
    });
}

/// A fiber of this carrier that has begun, and gives way once. It says when it has ended.
fn neighbour() -> Arc<AtomicBool> {
    let (begun, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (its_begin, its_end) = (begun.clone(), ended.clone());
    drop(thread::spawn(move || {
        its_begin.store(true, Relaxed);
        thread::yield_now();
        its_end.store(true, Relaxed);
    }));
    while !begun.load(Relaxed) {
        thread::yield_now();
    }
    ended
}

/// Whoever spawns and joins without end lets the others of its carrier go on.
#[test]
fn a_joiner_lets_its_neighbours_run() {
    in_time(Activations::None, || {
        let ended = neighbour();
        while !ended.load(Relaxed) {
            thread::spawn(|| ()).join().unwrap();
        }
    });
}

/// And it passes its seat to another carrier that wants it.
#[test]
fn a_joiner_passes_its_seat() {
    in_time(Activations::None, || {
        let ended = Arc::new(AtomicBool::new(false));
        let ours = ended.clone();
        let (reader, writer) = std::io::pipe().unwrap();
        drop(thread::spawn(move || {
            std::io::Write::write_all(&mut &writer, b"x").unwrap();
            while !ours.load(Relaxed) {
                thread::spawn(|| ()).join().unwrap();
            }
        }));
        thread::blocking(|| std::io::Read::read_exact(&mut &reader, &mut [0]).unwrap());
        thread::yield_now();
        ended.store(true, Relaxed);
    });
}

/// A fiber that gives way again and again, because it comes back from the kernel without a seat, does not go
/// first each time.
#[test]
fn whoever_gives_way_lets_its_neighbours_run() {
    in_time(Activations::Told, || {
        let ended = neighbour();
        let seen = ended.clone();
        // It begins on another carrier when this one blocks, and has the seat whenever this one comes back.
        drop(thread::spawn(move || {
            while !seen.load(Relaxed) {
                thread::yield_now();
            }
        }));
        while !ended.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(2));
            drop(thread::spawn(|| ()));
        }
    });
}

/// Panics when it is dropped, with another such payload, so many times.
struct Bomb(u32);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 {
            panic_any(Bomb(self.0 - 1));
        }
    }
}

#[test]
fn payloads_that_panic_end_no_carrier() {
    static LOCAL: LocalKey<RefCell<Option<Bomb>>> = LocalKey::new(|| RefCell::new(None));
    in_time(Activations::Told, || {
        for depth in 1..4 {
            // Its end drops the payload.
            drop(thread::spawn(move || resume_unwind(Box::new(Bomb(depth)))));
            thread::yield_now();
            // The end of its handle does.
            let handle = thread::spawn(move || resume_unwind(Box::new(Bomb(depth))));
            while !handle.is_finished() {
                thread::yield_now();
            }
            drop(handle);
            let local = thread::spawn(move || LOCAL.with(|local| *local.borrow_mut() = Some(Bomb(depth))));
            local.join().unwrap();
        }
        thread::spawn(|| ()).join().unwrap();
    });
}

/// Does this kernel thread of the process sleep?
fn sleeps(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
}

/// A kernel thread that acquires, when it sleeps for that.
fn acquires(semaphore: &Arc<Semaphore>) -> std::thread::JoinHandle<()> {
    let (ours, number) = (semaphore.clone(), Arc::new(AtomicI32::new(0)));
    let its_number = number.clone();
    let waits = std::thread::spawn(move || {
        // SAFETY: no arguments.
        its_number.store(unsafe { libc::gettid() }, Release);
        ours.acquire();
    });
    while !sleeps(number.load(Acquire)) {
        std::thread::yield_now();
    }
    waits
}

/// In a forked child nobody waits any more who waited in the parent.
#[test]
fn a_forked_child_has_no_ghosts() {
    let semaphore = Arc::new(Semaphore::new(0));
    let waits = acquires(&semaphore);
    // SAFETY: the child ends itself.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: no pointers.
            unsafe { libc::alarm(20) };
            let waits = acquires(&semaphore);
            semaphore.release();
            let good = waits.join().is_ok();
            // SAFETY: no pointers.
            unsafe { libc::_exit(if good { 3 } else { 4 }) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the place lives across the call.
            while unsafe { libc::waitpid(child, &mut status, 0) } < 0 {}
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 3, "{status:x}");
        }
    }
    semaphore.release();
    waits.join().unwrap();
}

/// A forked child starts carriers, whatever a thread of the parent held that was about to begin or end.
#[test]
fn a_forked_child_starts_carriers_while_threads_begin() {
    let stop = Arc::new(AtomicBool::new(false));
    let threads = [(); 4].map(|()| {
        let stop = stop.clone();
        std::thread::spawn(move || {
            while !stop.load(Relaxed) {
                std::thread::spawn(|| ()).join().unwrap();
            }
        })
    });
    for _ in 0..150 {
        // SAFETY: the child uses what is its own only, and ends itself.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: no pointers.
                unsafe { libc::alarm(10) };
                let good = thread::spawn(|| 7).join().unwrap() == 7;
                // SAFETY: no pointers.
                unsafe { libc::_exit(if good { 3 } else { 4 }) }
            }
            child => {
                let mut status = 0;
                // SAFETY: the place lives across the call.
                while unsafe { libc::waitpid(child, &mut status, 0) } < 0 {}
                assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 3, "{status:x}");
            }
        }
    }
    stop.store(true, Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// This test in a process of its own, where `FIBER_CHILD` says so.
fn child(test: &str) -> Option<std::process::Output> {
    if std::env::var_os("FIBER_CHILD").is_some() {
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    Some(command.args([test, "--exact", "--nocapture"]).env("FIBER_CHILD", "1").output().unwrap())
}

/// In a child: before any fiber SIGSEGV is dealt with like this; then it is sent, with no fault behind.
fn send_faults(action: libc::sighandler_t, times: u32) {
    // SAFETY: no pointers; nothing of this process relies on the handler before.
    unsafe { libc::signal(libc::SIGSEGV, action) };
    thread::spawn(|| ()).join().unwrap();
    for _ in 0..times {
        // SAFETY: no pointers.
        unsafe { libc::raise(libc::SIGSEGV) };
    }
}

#[test]
fn a_fault_that_was_sent_stays_ignored() {
    if let Some(output) = child("a_fault_that_was_sent_stays_ignored") {
        assert_eq!(output.status.signal(), None);
        assert!(output.status.success());
    } else {
        send_faults(libc::SIG_IGN, 2);
    }
}

#[test]
fn a_fault_that_was_sent_ends_the_program() {
    if let Some(output) = child("a_fault_that_was_sent_ends_the_program") {
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV));
    } else {
        send_faults(libc::SIG_DFL, 1);
        // SAFETY: no pointers.
        unsafe { libc::_exit(0) };
    }
}
