// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a fiber, and who wakes it, find as it was after a wait at a lock of kernel threads.

use std::ffi::{c_uint, c_void};
use std::process::Command;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

use fiber::{Config, Runtime, thread};
use linux::Linux;
use platform::Platform;

/// This test in a process of its own, where `FIBER_CHILD` says so.
fn child(test: &str) -> Option<std::process::Output> {
    if std::env::var_os("FIBER_CHILD").is_some() {
        return None;
    }
    let mut command = Command::new("timeout");
    command.arg("60").arg(std::env::current_exe().unwrap());
    Some(command.args([test, "--exact", "--nocapture"]).env("FIBER_CHILD", "1").output().unwrap())
}

fn runs(test: &str) -> bool {
    child(test).is_none_or(|output| {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        false
    })
}

fn start(processors: u32) -> &'static Runtime {
    Runtime::start(Config { processors: Some(processors), ..Config::default() }).unwrap()
}

fn spin_until(what: impl Fn() -> bool) {
    let begin = Instant::now();
    while !what() {
        assert!(begin.elapsed() < Duration::from_secs(20));
        std::hint::spin_loop();
    }
}

/// Also where the runtime must do more than it did, as the program has closed its descriptors.
#[test]
fn who_wakes_keeps_errno() {
    if !runs("who_wakes_keeps_errno") {
        return;
    }
    let word = Arc::new(AtomicU32::new(0));
    let its = word.clone();
    let waits = move || {
        while its.load(Acquire) == 0 {
            Linux::wait(&its, 0, None);
        }
    };
    let fiber = thread::Builder::new().runtime(start(1)).spawn(waits).unwrap();
    spin_until(|| Linux::wake(&raw const *word, 1) == 1);
    std::thread::sleep(Duration::from_millis(100));
    // SAFETY: nothing of this process uses them any more, but for the runtime.
    unsafe { libc::close_range(3, c_uint::MAX, 0) };
    word.store(1, Release);
    // SAFETY: this thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let after = unsafe {
        errno.write(77);
        Linux::wake(&raw const *word, 1);
        errno.read()
    };
    assert_eq!(after, 77);
    fiber.join().unwrap();
}

static POSTED: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];

/// Posts what fibers wait for, or nobody does.
extern "C" fn on_signal(_: libc::c_int) {
    for word in &POSTED {
        word.fetch_add(1, AcqRel);
        Linux::wake(word, 1);
    }
}

/// Whatever the thread does that it interrupts.
#[test]
fn a_signal_handler_wakes_fibers() {
    if !runs("a_signal_handler_wakes_fibers") {
        return;
    }
    // SAFETY: the handler does what a handler may.
    unsafe { libc::signal(libc::SIGUSR1, on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    let done = Arc::new(AtomicBool::new(false));
    let runtime = start(2);
    // A kernel thread, and the carriers, whose fibers wait and wake all the time.
    let numbers = Arc::new([const { AtomicI32::new(0) }; 5]);
    let (its_number, its_done) = (numbers.clone(), done.clone());
    let wakes = std::thread::spawn(move || {
        its_number[4].store(number(), Release);
        while !its_done.load(Relaxed) {
            Linux::wake(&raw const POSTED[0], 1);
        }
    });
    let fibers: Vec<_> = (0..4)
        .map(|index: usize| {
            let (numbers, done) = (numbers.clone(), done.clone());
            let body = move || {
                numbers[index].store(number(), Release);
                let word = &POSTED[index % 2];
                while !done.load(Relaxed) {
                    let now = word.load(Acquire);
                    if index < 2 {
                        Linux::wait(word, now, None);
                    } else {
                        Linux::wake(word, 1);
                        thread::yield_now();
                    }
                }
            };
            thread::Builder::new().runtime(runtime).spawn(body).unwrap()
        })
        .collect();
    spin_until(|| numbers.iter().all(|number| number.load(Acquire) != 0));
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        for number in numbers.iter() {
            // SAFETY: no pointers.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), number.load(Relaxed), libc::SIGUSR1) };
        }
    }
    done.store(true, Relaxed);
    wakes.join().unwrap();
    while !fibers.iter().all(fiber::thread::JoinHandle::is_finished) {
        POSTED.iter().for_each(|word| {
            word.fetch_add(1, AcqRel);
            Linux::wake(word, u32::MAX);
        });
        std::thread::yield_now();
    }
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}

/// What the C++ runtime has for each thread.
#[repr(C)]
struct Exceptions {
    caught: *mut c_void,
    uncaught: c_uint,
}

/// A movable fiber that goes on elsewhere leaves the exceptions of a fiber alone that has stayed.
#[test]
fn a_fiber_that_moves_takes_its_exceptions_along() {
    if !runs("a_fiber_that_moves_takes_its_exceptions_along") {
        return;
    }
    // SAFETY: C strings, and the function of this name.
    let exceptions = unsafe {
        let library = libc::dlopen(c"libstdc++.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL);
        assert!(!library.is_null(), "this test needs libstdc++");
        let function = libc::dlsym(library, c"__cxa_get_globals".as_ptr());
        std::mem::transmute::<*mut c_void, extern "C" fn() -> *mut Exceptions>(function)
    };
    start(2).run(move || {
        // It is to begin on the caller's thread, which the other carrier may prevent.
        let moved = (0..100).any(|_| {
            let shared: &Shared = Box::leak(Box::default());
            // SAFETY: it keeps no reference to thread-local data.
            let moves = unsafe { thread::Builder::new().spawn_movable(|| shared.wait()) }.unwrap();
            while shared.thread.load(Acquire) == 0 {
                thread::yield_now();
            }
            let here = shared.thread.load(Acquire) == number();
            let mut mark = 0_u8;
            let stays = exceptions();
            // SAFETY: this thread's own, and set back below.
            unsafe { (*stays).caught = (&raw mut mark).cast() };
            shared.word.store(1, Release);
            spin_until(|| Linux::wake(&raw const shared.word, 1) == 1 || shared.ended.load(Acquire));
            // The caller does not wait, so the other one goes on elsewhere.
            spin_until(|| shared.ended.load(Acquire));
            // SAFETY: as above.
            let after = unsafe { std::mem::replace(&mut (*stays).caught, null_mut()) };
            assert_eq!(after, (&raw mut mark).cast::<c_void>());
            moves.join().unwrap();
            here
        });
        assert!(moved);
    });
}

#[derive(Default)]
struct Shared {
    word: AtomicU32,
    thread: AtomicI32,
    ended: AtomicBool,
}

impl Shared {
    fn wait(&self) {
        self.thread.store(number(), Release);
        while self.word.load(Acquire) == 0 {
            Linux::wait(&self.word, 0, None);
        }
        self.ended.store(true, Release);
    }
}

/// Of the calling kernel thread.
fn number() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::gettid() }
}
