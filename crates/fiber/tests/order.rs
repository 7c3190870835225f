// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who runs first: priorities and policies.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

use fiber::policy::{Fifo, Lifo, Policy, Queue, Ranked};
use fiber::{Activations, Config, Priority, Runtime, thread};

fn policy() -> i32 {
    // SAFETY: no pointers.
    unsafe { libc::sched_getscheduler(0) }
}

fn spawn<T: Send + 'static>(
    priority: Priority,
    body: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    thread::Builder::new().priority(priority).spawn(body).unwrap()
}

/// Low ones that never wait have all seats and all processors. A usual one is woken, and its kin begin.
#[test]
fn a_usual_fiber_runs_beside_low_ones_that_never_wait() {
    let stop = Arc::new(AtomicBool::new(false));
    let spinning = Arc::new(AtomicU32::new(0));
    let low: Vec<_> = (0..4)
        .map(|_| {
            let (stop, spinning) = (stop.clone(), spinning.clone());
            spawn(Priority::Low, move || {
                spinning.fetch_add(1, Relaxed);
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
                policy()
            })
        })
        .collect();
    while spinning.load(Relaxed) == 0 {
        std::thread::yield_now();
    }
    let usual = spawn(Priority::Usual, || {
        for _ in 0..50 {
            thread::sleep(Duration::from_micros(200));
            assert_eq!(thread::spawn(policy).join().unwrap(), libc::SCHED_OTHER);
        }
        policy()
    });
    assert_eq!(usual.join().unwrap(), libc::SCHED_OTHER);
    stop.store(true, Relaxed);
    for low in low {
        assert_eq!(low.join().unwrap(), libc::SCHED_IDLE);
    }
}

/// What a low fiber spawns is low, unless it says otherwise; and carriers that come for it are usual.
#[test]
fn a_low_fiber_spawns_usual_ones() {
    let policies = spawn(Priority::Low, || {
        let kin = thread::spawn(policy).join().unwrap();
        let usual: Vec<_> = (0..20)
            .map(|_| {
                spawn(Priority::Usual, || {
                    // Its carrier is blocked, and another takes the next.
                    std::thread::sleep(Duration::from_millis(3));
                    policy()
                })
            })
            .collect();
        (kin, usual.into_iter().map(|fiber| fiber.join().unwrap()).collect::<Vec<_>>())
    });
    let (kin, usual) = policies.join().unwrap();
    assert_eq!(kin, libc::SCHED_IDLE);
    assert_eq!(usual, [libc::SCHED_OTHER; 20]);
}

/// A runtime of one's own may be low as well, and fibers of both wake each other.
#[test]
fn priorities_wake_each_other() {
    let config = Config { priority: Priority::Low, processors: Some(1), ..Config::default() };
    let low = Runtime::start(config).unwrap();
    let turn = Arc::new(AtomicU32::new(0));
    let ours = turn.clone();
    let usual = thread::spawn(move || {
        let me = thread::current().unwrap();
        let other = thread::Builder::new().runtime(low).spawn(move || {
            for round in 0..500 {
                while ours.load(Acquire) != 2 * round + 1 {
                    thread::park();
                }
                ours.store(2 * round + 2, Release);
                me.unpark();
            }
        });
        let other = other.unwrap();
        for round in 0..500 {
            turn.store(2 * round + 1, Release);
            other.thread().unpark();
            while turn.load(Acquire) != 2 * round + 2 {
                thread::park();
            }
        }
        other.join().unwrap();
    });
    usual.join().unwrap();
}

/// Names of fibers in the order in which they ran.
type Log = Arc<std::sync::Mutex<Vec<u32>>>;

/// Five fibers with these ranks, begun and woken at once on one seat: the orders in which they do both.
fn orders(policy: &'static dyn Policy) -> [Vec<u32>; 2] {
    let config = Config { processors: Some(1), policy: Some(policy), ..Config::default() };
    Runtime::start(config).unwrap().run(|| {
        let logs = [Log::default(), Log::default()];
        let fibers: Vec<_> = [3, 9, 1, 9, 4]
            .into_iter()
            .enumerate()
            .map(|(number, rank)| {
                let logs = logs.clone();
                let body = move || {
                    logs[0].lock().unwrap().push(number as u32);
                    thread::park();
                    logs[1].lock().unwrap().push(number as u32);
                };
                thread::Builder::new().rank(rank).spawn(body).unwrap()
            })
            .collect();
        while logs[0].lock().unwrap().len() < 5 {
            thread::yield_now();
        }
        fibers.iter().for_each(|fiber| fiber.thread().unpark());
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        logs.map(|log| log.lock().unwrap().clone())
    })
}

#[test]
fn policies_order_fibers() {
    assert_eq!(orders(&Fifo), [[0, 1, 2, 3, 4]; 2]);
    assert_eq!(orders(&Lifo), [[4, 3, 2, 1, 0]; 2]);
    assert_eq!(orders(&Ranked), [[1, 3, 4, 0, 2]; 2]);
}

/// A policy whose third queue panics: that of the second carrier.
#[derive(Debug, Default)]
struct Faulty(AtomicU32);

impl Policy for Faulty {
    fn queue(&self) -> Box<dyn Queue> {
        assert!(self.0.fetch_add(1, Relaxed) < 2, "no third one");
        Fifo.queue()
    }
}

/// It ends the program, and does not unwind out of a spawn that called for a carrier.
#[test]
fn a_policy_that_panics_ends_the_program() {
    if std::env::var_os("FIBER_CHILD").is_none() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let test = ["a_policy_that_panics_ends_the_program", "--exact"];
        let output = command.args(test).env("FIBER_CHILD", "1").output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGABRT));
        return;
    }
    let policy: &'static Faulty = Box::leak(Box::default());
    let activations = Activations::None;
    let config = Config { processors: Some(2), policy: Some(policy), activations, ..Config::default() };
    Runtime::start(config).unwrap().run(|| {
        // Nobody sleeps, and a seat is free.
        let spawned = std::panic::catch_unwind(|| thread::spawn(|| {}));
        assert!(spawned.is_err());
    });
}

/// A low kernel thread that is no carrier starts no carrier for usual fibers.
#[test]
fn a_low_thread_spawns_usual_fibers() {
    let activations = Activations::None;
    let config = Config { processors: Some(8), activations, ..Config::default() };
    let runtime = Runtime::start(config).unwrap();
    let begun = Arc::new(AtomicU32::new(0));
    let until = Instant::now() + Duration::from_millis(300);
    let found = runtime.run(|| {
        // A carrier keeps its seat while it waits, until all have begun, or could have.
        let wait = move |begun: &AtomicU32| {
            while begun.load(Relaxed) < 4 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let spawn = || {
            let ours = begun.clone();
            let body = move || {
                ours.fetch_add(1, Relaxed);
                wait(&ours);
                policy()
            };
            thread::Builder::new().runtime(runtime).spawn(body).unwrap()
        };
        let low = || {
            let none = libc::sched_param { sched_priority: 0 };
            // SAFETY: the structure lives across the call.
            assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &none) }, 0);
            [(); 4].map(|()| spawn())
        };
        let fibers = std::thread::scope(|threads| threads.spawn(low).join().unwrap());
        wait(&begun);
        fibers.map(|fiber| fiber.join().unwrap())
    });
    assert_eq!(found, [libc::SCHED_OTHER; 4]);
}

/// Where there is a runtime of low fibers, pinned ones that the program starts have a carrier each. Else one
/// would wait for another one there, while a low one has the next processor.
#[test]
fn pinned_fibers_beside_low_ones_have_carriers_of_their_own() {
    Runtime::of(Priority::Low).unwrap();
    let runtime = Runtime::start(Config { processors: Some(2), ..Config::default() }).unwrap();
    // SAFETY: no arguments.
    let tell = || unsafe { (thread::park(), libc::gettid()).1 };
    let start = |_| thread::Builder::new().runtime(runtime).spawn(tell).unwrap();
    let fibers: Vec<_> = (0..5).map(start).collect();
    fibers.iter().for_each(|fiber| fiber.thread().unpark());
    let carriers: std::collections::HashSet<i32> =
        fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect();
    assert_eq!(carriers.len(), 5);
}

/// ns of the calling thread's slice; 0 before Linux 6.12.
fn slice() -> u64 {
    // SAFETY: numbers, of which all may be 0; the kernel writes as much as we say.
    unsafe {
        let mut attributes: libc::sched_attr = std::mem::zeroed();
        let size = size_of_val(&attributes) as u32;
        assert_eq!(libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0), 0);
        attributes.sched_runtime
    }
}

/// Sentinels have short slices beside low fibers. No fiber has, and nothing that one starts.
#[test]
fn fibers_beside_low_ones_have_the_usual_slice() {
    let plain = slice();
    let stop = Arc::new(AtomicU32::new(0));
    let low: Vec<_> = (0..2)
        .map(|_| {
            let stop = stop.clone();
            let spins = move || {
                while stop.load(Relaxed) == 0 {
                    std::hint::spin_loop();
                }
            };
            thread::Builder::new().priority(Priority::Low).spawn(spins).unwrap()
        })
        .collect();
    let usual: Vec<_> = (0..6)
        .map(|_| {
            thread::spawn(move || {
                for _ in 0..10 {
                    assert_eq!(slice(), plain);
                    assert_eq!(std::thread::spawn(slice).join().unwrap(), plain);
                    thread::sleep(Duration::from_millis(1));
                }
            })
        })
        .collect();
    usual.into_iter().for_each(|fiber| fiber.join().unwrap());
    stop.store(1, Relaxed);
    low.into_iter().for_each(|fiber| fiber.join().unwrap());
}
