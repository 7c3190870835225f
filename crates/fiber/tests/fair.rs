// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nobody waits for ever while others run: for a turn, a seat, a look of the sentinel's.

use std::io::{Read, Write, pipe};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

use fiber::sync::{Condvar, Mutex};
use fiber::{Activations, Config, Runtime, thread};

/// With one seat. A test that hangs is ended.
fn runtime(activations: Activations) -> &'static Runtime {
    // SAFETY: no pointers.
    unsafe { libc::alarm(40) };
    Runtime::start(Config { processors: Some(1), activations, ..Config::default() }).unwrap()
}

/// A carrier that has a fiber ready at each turn takes new fibers of one that is blocked as well.
#[test]
fn new_fibers_of_a_blocked_carrier_begin() {
    for movable in [false, true] {
        runtime(Activations::None).run(|| {
            let (reader, writer) = pipe().unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let ours = stop.clone();
            let yields = move || {
                while !ours.load(Relaxed) {
                    thread::yield_now();
                }
            };
            // The oldest is taken first, and then its carrier never lacks something to do.
            let yields = match movable {
                false => thread::spawn(yields),
                // SAFETY: it keeps no reference to thread-local data.
                true => unsafe { thread::Builder::new().spawn_movable(yields) }.unwrap(),
            };
            let writes = thread::spawn(move || (&writer).write_all(b"x").unwrap());
            thread::blocking(|| (&reader).read_exact(&mut [0]).unwrap());
            stop.store(true, Relaxed);
            yields.join().unwrap();
            writes.join().unwrap();
        });
    }
}

/// Fibers that compute for long and always have each other take so long for 256 turns that a new one of a
/// kernel thread would begin after a quarter of a minute. The sentinel sees to it once a second.
#[test]
fn a_new_fiber_begins_beside_those_that_compute_for_long() {
    let runtime = runtime(Activations::Told);
    let stop = Arc::new(AtomicBool::new(false));
    let compute = || {
        let stop = stop.clone();
        move || {
            while !stop.load(Relaxed) {
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_millis(50) {
                    std::hint::spin_loop();
                }
                thread::yield_now();
            }
        }
    };
    let (one, two) = (compute(), compute());
    let fibers = runtime.run(|| [thread::spawn(one), thread::spawn(two)]);
    // Both have begun, unless the machine is very slow.
    std::thread::sleep(Duration::from_millis(300));
    let begin = Instant::now();
    std::thread::scope(|threads| {
        threads.spawn(|| runtime.run(|| ()));
    });
    let took = begin.elapsed();
    stop.store(true, Relaxed);
    runtime.run(|| fibers.into_iter().for_each(|fiber| fiber.join().unwrap()));
    assert!(took < Duration::from_secs(8), "it began after {took:?}");
}

/// A carrier whose fiber computes for long is treated as one that is blocked.
#[test]
fn a_new_fiber_begins_though_all_compute() {
    let runtime = runtime(Activations::Told);
    let stop = Arc::new(AtomicBool::new(false));
    let ours = stop.clone();
    let computes = move || {
        while !ours.load(Relaxed) {
            std::hint::spin_loop();
        }
    };
    let computes = thread::Builder::new().runtime(runtime).spawn(computes).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    // It ends nothing: each of them would wait for ever.
    for _ in 0..3 {
        let waits = || thread::sleep(Duration::from_millis(5));
        thread::Builder::new().runtime(runtime).spawn(waits).unwrap().join().unwrap();
    }
    stop.store(true, Relaxed);
    computes.join().unwrap();
}

/// One that spawns and joins without end passes its seat to who wants it.
#[test]
fn fork_and_join_passes_the_seat() {
    runtime(Activations::None).run(|| {
        let (reader, writer) = pipe().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let ours = stop.clone();
        let forks = thread::spawn(move || {
            (&writer).write_all(b"x").unwrap();
            while !ours.load(Relaxed) {
                thread::spawn(|| {}).join().unwrap();
            }
        });
        thread::blocking(|| (&reader).read_exact(&mut [0]).unwrap());
        // The seat is the other carrier's now.
        thread::yield_now();
        stop.store(true, Relaxed);
        forks.join().unwrap();
    });
}

/// Nor does it keep its carrier from the fibers that are ready there.
#[test]
fn fork_and_join_lets_others_run() {
    runtime(Activations::None).run(|| {
        let (begun, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let ours = (begun.clone(), stop.clone());
        let other = thread::spawn(move || {
            ours.0.store(true, Relaxed);
            thread::yield_now();
            ours.1.store(true, Relaxed);
        });
        while !begun.load(Relaxed) {
            thread::yield_now();
        }
        while !stop.load(Relaxed) {
            thread::spawn(|| {}).join().unwrap();
        }
        other.join().unwrap();
    });
}

/// A mutex that is released goes to who can run, not to a fiber of a blocked carrier that came before.
#[test]
fn a_blocked_carrier_keeps_no_lock_from_others() {
    let mutex = Mutex::new(());
    let [held, begun, waited] = [const { AtomicBool::new(false) }; 3];
    let (reader, writer) = pipe().unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let guard = mutex.lock();
            held.store(true, Relaxed);
            while !waited.load(Relaxed) {
                std::thread::yield_now();
            }
            drop(guard);
        });
        while !held.load(Relaxed) {
            std::thread::yield_now();
        }
        runtime(Activations::None).run(|| {
            thread::scope(|scope| {
                scope.spawn(|| {
                    begun.store(true, Relaxed);
                    drop(mutex.lock());
                });
                // There is one seat, so it waits before this fiber runs again.
                while !begun.load(Relaxed) {
                    thread::yield_now();
                }
                scope.spawn(|| {
                    drop(mutex.lock());
                    (&writer).write_all(b"x").unwrap();
                });
                // Begins when the one before it waits.
                scope.spawn(|| waited.store(true, Relaxed));
                thread::blocking(|| (&reader).read_exact(&mut [0]).unwrap());
            });
        });
    });
}

/// Signals that are on their way to fibers of a blocked carrier hold no further one back.
#[test]
fn a_blocked_carrier_keeps_no_signal_from_others() {
    let (waiting, condvar) = (Mutex::new(0), Condvar::new());
    let (reader, writer) = pipe().unwrap();
    let waits = || {
        let mut waiting = waiting.lock();
        *waiting += 1;
        condvar.wait(&mut waiting);
    };
    runtime(Activations::None).run(|| {
        thread::scope(|scope| {
            for _ in 0..30 {
                scope.spawn(waits);
            }
            while *waiting.lock() < 30 {
                thread::yield_now();
            }
            (0..30).for_each(|_| condvar.notify_one());
            scope.spawn(|| {
                waits();
                (&writer).write_all(b"x").unwrap();
            });
            // Begins when the one before it waits.
            scope.spawn(|| condvar.notify_one());
            thread::blocking(|| (&reader).read_exact(&mut [0]).unwrap());
        });
    });
}

const SLEEPERS: u32 = 6_000;

/// For six seconds a timer is due each millisecond, if this fiber's carrier fires none. Since when?
fn ring() -> Instant {
    let begun = Arc::new(AtomicU32::new(0));
    let begin = Instant::now();
    for number in 1..=SLEEPERS {
        let begun = begun.clone();
        drop(thread::spawn(move || {
            begun.fetch_add(1, Relaxed);
            let until = Duration::from_millis(u64::from(number));
            thread::sleep(until.saturating_sub(begin.elapsed()));
        }));
    }
    while begun.load(Relaxed) < SLEEPERS {
        thread::yield_now();
    }
    begin
}

/// Events that come faster than the sentinel looks do not keep it from looking.
#[test]
fn the_sentinel_looks_while_timers_ring() {
    runtime(Activations::Polled).run(|| {
        let begin = ring();
        let (reader, writer) = pipe().unwrap();
        let writes = thread::spawn(move || (&writer).write_all(b"x").unwrap());
        // Only another carrier can run the writer, and only if the sentinel sees that this one has blocked.
        (&reader).read_exact(&mut [0]).unwrap();
        let elapsed = begin.elapsed();
        writes.join().unwrap();
        assert!(elapsed < Duration::from_millis(u64::from(SLEEPERS) / 2), "it did not look: {elapsed:?}");
    });
}

/// Blocks of a carrier that has lost its seat wake no sentinel.
#[test]
fn nobody_listens_to_a_carrier_without_a_seat() {
    let runtime = runtime(Activations::Told);
    runtime.run(|| {
        while runtime.seats_taken() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let before = runtime.upcalls();
        for _ in 0..200 {
            std::thread::sleep(Duration::from_micros(100));
        }
        let told = runtime.upcalls() - before;
        assert!(told < 100, "it was told {told} times");
    });
}

/// And those of a carrier that has one again are heard again.
#[test]
fn a_carrier_with_a_seat_again_is_listened_to() {
    let runtime = runtime(Activations::Told);
    runtime.run(|| {
        for round in 1..=20 {
            let (reader, writer) = pipe().unwrap();
            let writes = thread::spawn(move || (&writer).write_all(b"x").unwrap());
            (&reader).read_exact(&mut [0]).unwrap();
            std::thread::sleep(Duration::from_micros(100));
            writes.join().unwrap();
            assert!(runtime.seats_taken() >= round);
        }
    });
}

/// The processors of this thread, or of all of the process.
fn processors(all: bool, set: Option<&libc::cpu_set_t>) -> libc::cpu_set_t {
    // SAFETY: the sets live across the calls.
    unsafe {
        let mut now: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&now), &mut now), 0);
        let Some(set) = set else { return now };
        let mut threads = vec![0];
        if all {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap();
            threads =
                tasks.map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
        }
        threads.into_iter().for_each(|thread| _ = libc::sched_setaffinity(thread, size_of_val(set), set));
        now
    }
}

/// Nor from looking at the processors: two fibers that run at once need two.
#[test]
fn processors_are_granted_while_timers_ring() {
    if std::env::var_os("FIBER_CHILD").is_none() {
        return alone("processors_are_granted_while_timers_ring");
    }
    // SAFETY: no pointers.
    unsafe { libc::alarm(40) };
    let all = processors(false, None);
    // SAFETY: the sets are whole, and the numbers within.
    let one = unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        let first = (0..libc::CPU_SETSIZE as usize).find(|&cpu| libc::CPU_ISSET(cpu, &all)).unwrap();
        libc::CPU_SET(first, &mut one);
        if libc::CPU_EQUAL(&one, &all) {
            return;
        }
        one
    };
    processors(false, Some(&one));
    Runtime::start(Config::default()).unwrap().run(|| {
        let begin = ring();
        let met = Arc::new(AtomicBool::new(false));
        let ours = met.clone();
        let other = thread::spawn(move || ours.store(true, Relaxed));
        processors(true, Some(&all));
        while !met.load(Relaxed) {
            std::hint::spin_loop();
        }
        let elapsed = begin.elapsed();
        other.join().unwrap();
        assert!(elapsed < Duration::from_millis(u64::from(SLEEPERS) / 2), "it did not look: {elapsed:?}");
    });
}

/// This test in a process of its own.
fn alone(test: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let status = command.args([test, "--exact", "--nocapture"]).env("FIBER_CHILD", "1").status().unwrap();
    assert!(status.success(), "{status}");
}

/// Who was made by the sentinel, which is SCHED_BATCH, is not.
#[test]
fn carriers_have_the_usual_policy() {
    for activations in [Activations::Told, Activations::Polled] {
        runtime(activations).run(|| {
            let fibers: Vec<_> = (0..8)
                .map(|_| {
                    thread::spawn(|| {
                        // The carrier keeps blocking, so the next fiber begins on another.
                        std::thread::sleep(Duration::from_millis(20));
                        // SAFETY: no pointers.
                        unsafe { libc::sched_getscheduler(0) }
                    })
                })
                .collect();
            for fiber in fibers {
                assert_eq!(fiber.join().unwrap(), libc::SCHED_OTHER);
            }
        });
    }
}

/// A program that closes all descriptors, as daemons do, has its timers and its upcalls still.
#[test]
fn descriptors_are_closed() {
    if std::env::var_os("FIBER_CHILD").is_none() {
        return alone("descriptors_are_closed");
    }
    for activations in [Activations::Told, Activations::Polled] {
        runtime(activations).run(|| {
            // SAFETY: no pointers; the descriptors are the runtime's, which expects it.
            unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
            for _ in 0..10 {
                thread::sleep(Duration::from_millis(3));
            }
            let (reader, writer) = pipe().unwrap();
            let writes = thread::spawn(move || (&writer).write_all(b"x").unwrap());
            (&reader).read_exact(&mut [0]).unwrap();
            writes.join().unwrap();
        });
    }
}

/// A program that closed all descriptors finds nothing in its own ones: no events, and its timer is due as it
/// says.
#[test]
fn descriptors_after_the_close_are_let_alone() {
    if std::env::var_os("FIBER_CHILD").is_none() {
        return alone("descriptors_after_the_close_are_let_alone");
    }
    const ITS: u64 = 77;
    let runtime = runtime(Activations::Told);
    runtime.run(|| thread::sleep(Duration::from_millis(3)));
    // In the order in which the runtime opened its own.
    let kinds: [fn() -> i32; 3] = [
        // SAFETY: no pointers.
        || unsafe { libc::epoll_create1(0) },
        // SAFETY: no pointers.
        || unsafe { libc::eventfd(1, libc::EFD_NONBLOCK) },
        // SAFETY: no pointers.
        || unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK) },
    ];
    // SAFETY: no pointers; the descriptors are the runtime's, which expects it.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    let sets: Vec<_> = (0..16).map(|_| kinds.map(|open| open())).collect();
    let control = |epoll, operation, descriptor| {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: ITS };
        // SAFETY: the event lives across the call.
        unsafe { libc::epoll_ctl(epoll, operation, descriptor, &mut event) }
    };
    let armed = libc::timespec { tv_sec: 1000, tv_nsec: 0 };
    for &[epoll, counter, timer] in &sets {
        let time =
            libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: armed };
        // SAFETY: the structure lives across the call.
        assert_eq!(unsafe { libc::timerfd_settime(timer, 0, &time, std::ptr::null_mut()) }, 0);
        assert_eq!(control(epoll, libc::EPOLL_CTL_ADD, counter), 0);
        assert_eq!(control(epoll, libc::EPOLL_CTL_ADD, timer), 0);
    }
    for _ in 0..3 {
        let sleeps = || {
            thread::sleep(Duration::from_millis(3));
            thread::park();
        };
        let parks = thread::Builder::new().runtime(runtime).spawn(sleeps).unwrap();
        // More likely it parks before, and all carriers are asleep.
        std::thread::sleep(Duration::from_millis(20));
        parks.thread().unpark();
        parks.join().unwrap();
    }
    for &[epoll, counter, timer] in &sets {
        let (mut count, mut event) = (0u64, libc::epoll_event { events: 0, u64: 0 });
        let mut time = libc::itimerspec { it_interval: armed, it_value: armed };
        // SAFETY: all live across the calls; eight bytes, as an eventfd wants.
        unsafe {
            assert_eq!((libc::epoll_wait(epoll, &mut event, 1, 0), { event.u64 }), (1, ITS));
            assert_eq!(libc::read(counter, (&raw mut count).cast(), 8), 8);
            assert_eq!(libc::timerfd_gettime(timer, &mut time), 0);
        }
        assert_eq!(count, 1, "somebody wrote to {counter}");
        assert!(time.it_value.tv_sec > 900, "somebody set {timer}: {} s", time.it_value.tv_sec);
    }
}

/// So it has on carriers that nobody listened to at that moment: they cannot be listened to any more.
#[test]
fn descriptors_are_closed_while_carriers_sleep() {
    /// Each level blocks a carrier until a fiber that only another one can begin has done the same.
    fn descend(levels: u32) {
        let (reader, writer) = pipe().unwrap();
        let next = thread::spawn(move || {
            if levels > 0 {
                descend(levels - 1);
            }
            (&writer).write_all(b"x").unwrap();
        });
        (&reader).read_exact(&mut [0]).unwrap();
        next.join().unwrap();
    }
    if std::env::var_os("FIBER_CHILD").is_none() {
        return alone("descriptors_are_closed_while_carriers_sleep");
    }
    runtime(Activations::Told).run(|| {
        // There are carriers that sleep after this.
        descend(4);
        // SAFETY: no pointers; the descriptors are the runtime's, which expects it.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
        // So that no pipe has a number that the runtime knows.
        (0..64).for_each(|_| std::mem::forget(std::fs::File::open("/dev/null").unwrap()));
        descend(6);
    });
}
