// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fibers: spawn, join, park, borrow, sleep, panic; on one seat and on more than there are processors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use fiber::{Activations, Config, Runtime, thread};

fn runtimes() -> impl Iterator<Item = &'static Runtime> {
    [
        (1, Activations::Told),
        (1, Activations::None),
        (2, Activations::Polled),
        (4, Activations::Told),
        (4, Activations::None),
    ]
    .into_iter()
    .map(|(processors, activations)| {
        let config = Config { processors: Some(processors), activations, ..Config::default() };
        Runtime::start(config).unwrap()
    })
}

#[test]
fn results_and_panics() {
    for runtime in runtimes() {
        runtime.run(|| {
            assert_eq!(thread::spawn(|| 7).join().unwrap(), 7);
            let text = String::from("moved in and out");
            assert_eq!(thread::spawn(move || text).join().unwrap(), "moved in and out");
            let payload =
                thread::spawn(|| -> u32 { std::panic::resume_unwind(Box::new(3u32)) }).join().unwrap_err();
            assert_eq!(*payload.downcast::<u32>().unwrap(), 3);
            let big = [5u8; 100_000];
            assert_eq!(thread::spawn(move || big).join().unwrap()[99_999], 5);
        });
    }
}

#[test]
fn many_at_once() {
    for runtime in runtimes() {
        runtime.run(|| {
            let sum = Arc::new(AtomicU64::new(0));
            let fibers: Vec<_> = (0..10_000u64)
                .map(|number| {
                    let sum = sum.clone();
                    thread::spawn(move || {
                        thread::yield_now();
                        sum.fetch_add(number, Relaxed);
                        number
                    })
                })
                .collect();
            for (number, fiber) in fibers.into_iter().enumerate() {
                assert_eq!(fiber.join().unwrap(), number as u64);
            }
            assert_eq!(sum.load(Relaxed), 10_000 * 9_999 / 2);
        });
    }
}

#[test]
fn nobody_asks() {
    for runtime in runtimes() {
        let ended = Arc::new(AtomicU32::new(0));
        struct Counts(Arc<AtomicU32>);
        impl Drop for Counts {
            fn drop(&mut self) {
                self.0.fetch_add(1, Relaxed);
            }
        }
        runtime.run(|| {
            for round in 0..1000 {
                let counts = Counts(ended.clone());
                let handle = thread::spawn(move || counts);
                if round % 2 == 0 {
                    thread::yield_now();
                }
                drop(handle);
            }
            while ended.load(Relaxed) < 1000 {
                thread::yield_now();
            }
        });
        assert_eq!(ended.load(Relaxed), 1000);
    }
}

#[test]
fn park_and_unpark() {
    for runtime in runtimes() {
        runtime.run(|| {
            let turn = Arc::new(AtomicU32::new(0));
            let ours = turn.clone();
            let main = thread::current().unwrap();
            let other = thread::spawn(move || {
                for round in 0..10_000 {
                    while ours.load(Acquire) != 2 * round + 1 {
                        thread::park();
                    }
                    ours.store(2 * round + 2, Release);
                    main.unpark();
                }
            });
            for round in 0..10_000 {
                turn.store(2 * round + 1, Release);
                other.thread().unpark();
                while turn.load(Acquire) != 2 * round + 2 {
                    thread::park();
                }
            }
            other.join().unwrap();
        });
    }
}

#[test]
fn borrows() {
    for runtime in runtimes() {
        let numbers = [1, 2, 3, 4];
        let mut sums = [0; 4];
        runtime.run(|| {
            thread::scope(|scope| {
                for (sum, number) in sums.iter_mut().zip(&numbers) {
                    scope.spawn(move || {
                        thread::yield_now();
                        *sum = number * 10;
                    });
                }
                let joined = scope.spawn(|| numbers.iter().sum::<i32>());
                assert_eq!(joined.join().unwrap(), 10);
            });
            let caught = std::panic::catch_unwind(|| {
                thread::scope(|scope| {
                    scope.spawn(|| std::panic::resume_unwind(Box::new(0)));
                })
            });
            assert!(caught.is_err(), "a panic got lost");
            thread::scope(|scope| {
                assert!(scope.spawn(|| std::panic::resume_unwind(Box::new(0))).join().is_err());
            });
        });
        assert_eq!(sums, [10, 20, 30, 40]);
    }
}

#[test]
fn sleeps() {
    for runtime in runtimes() {
        let begin = Instant::now();
        runtime.run(|| {
            thread::scope(|scope| {
                for number in 0..100 {
                    scope.spawn(move || {
                        let begin = Instant::now();
                        thread::sleep(Duration::from_millis(number % 5));
                        assert!(begin.elapsed() >= Duration::from_millis(number % 5));
                    });
                }
            });
            let begin = Instant::now();
            thread::park_timeout(Duration::from_millis(5));
            assert!(begin.elapsed() >= Duration::from_millis(5));
        });
        assert!(begin.elapsed() < Duration::from_secs(20));
    }
}

/// One seat: a fiber that blocks in the kernel keeps it, unless the sentinel finds out.
#[test]
fn a_blocked_carrier_loses_its_seat() {
    for activations in [Activations::Told, Activations::Polled] {
        let runtime =
            Runtime::start(Config { processors: Some(1), activations, ..Config::default() }).unwrap();
        runtime.run(|| {
            for _ in 0..20 {
                let (reader, writer) = std::io::pipe().unwrap();
                let writes = thread::spawn(move || {
                    use std::io::Write;
                    (&writer).write_all(b"x").unwrap();
                });
                // Blocks this kernel thread: the writer runs only on another.
                std::io::Read::read_exact(&mut &reader, &mut [0]).unwrap();
                writes.join().unwrap();
            }
        });
        assert!(runtime.seats_taken() >= 1);
    }
}

/// From a block until another has the seat a fiber was ready.
#[test]
fn a_seat_that_is_idle_is_counted() {
    let runtime = Runtime::start(Config { processors: Some(1), ..Config::default() }).unwrap();
    let (begin, before) = (Instant::now(), runtime.idle_while_ready_ns());
    runtime.run(|| {
        for _ in 0..20 {
            let (reader, writer) = std::io::pipe().unwrap();
            let writes = thread::spawn(move || std::io::Write::write_all(&mut &writer, b"x").unwrap());
            std::io::Read::read_exact(&mut &reader, &mut [0]).unwrap();
            writes.join().unwrap();
        }
    });
    let idle = u128::from(runtime.idle_while_ready_ns() - before);
    assert!(idle <= begin.elapsed().as_nanos(), "{idle} ns");
    // Where the kernel tells nothing, nothing is known.
    assert!(idle > 0 || runtime.upcalls() == 0);
}

/// From the making of a carrier for a seat until it runs a fiber was ready.
#[test]
fn a_seat_that_waits_for_its_carrier_is_counted() {
    let config = Config { processors: Some(2), activations: Activations::None, ..Config::default() };
    let runtime = Runtime::start(config).unwrap();
    let phase = Arc::new(AtomicU32::new(0));
    let its = phase.clone();
    let busy = move || {
        its.store(1, Release);
        while its.load(Acquire) == 1 {
            std::thread::yield_now();
        }
    };
    let busy = thread::Builder::new().runtime(runtime).spawn(busy).unwrap();
    while phase.load(Acquire) == 0 {
        std::thread::yield_now();
    }
    let before = runtime.idle_while_ready_ns();
    runtime.run(|| ());
    let idle = runtime.idle_while_ready_ns() - before;
    phase.store(2, Release);
    busy.join().unwrap();
    assert!(idle > 0);
}

/// It says itself that it blocks.
#[test]
fn a_region_that_blocks_leaves_its_seat() {
    let config = Config { processors: Some(1), activations: Activations::None, ..Config::default() };
    Runtime::start(config).unwrap().run(|| {
        let (reader, writer) = std::io::pipe().unwrap();
        let writes = thread::spawn(move || std::io::Write::write_all(&mut &writer, b"x").unwrap());
        thread::blocking(|| std::io::Read::read_exact(&mut &reader, &mut [0]).unwrap());
        writes.join().unwrap();
    });
}

/// Two seats, one of a fiber that never waits: there is always somebody who hears that the other has blocked.
#[test]
fn a_busy_seat_leaves_nobody_deaf() {
    for _ in 0..5 {
        let runtime = Runtime::start(Config { processors: Some(2), ..Config::default() }).unwrap();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(4));
            eprintln!("{runtime:?}");
        });
        runtime.run(|| {
            let stop = Arc::new(AtomicU32::new(0));
            let ours = stop.clone();
            let busy = thread::spawn(move || {
                while ours.load(Relaxed) == 0 {
                    std::hint::spin_loop();
                }
            });
            for _ in 0..30 {
                let (reader, writer) = std::io::pipe().unwrap();
                let writes = thread::spawn(move || std::io::Write::write_all(&mut &writer, b"x").unwrap());
                std::io::Read::read_exact(&mut &reader, &mut [0]).unwrap();
                writes.join().unwrap();
            }
            stop.store(1, Relaxed);
            busy.join().unwrap();
        });
    }
}
