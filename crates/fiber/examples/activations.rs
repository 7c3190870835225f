// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures what the paper measures: `table` its table I, `latency` from a block to the replacement, `faults`
//! threads that touch random pages of a file, `priority` from the unpark of a usual fiber to its first
//! instruction while low ones have all processors. Contenders take turns in one run.
//!
//! ```sh
//! cargo run --release -p wakeful-fiber --example activations -- table
//! cargo run --release -p wakeful-fiber --example activations -- latency 2000
//! cargo run --release -p wakeful-fiber --example activations -- faults a-big-file 256
//! cargo run --release -p wakeful-fiber --example activations -- priority 1000
//! ```

use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use fiber::{Activations, Config, Priority, Runtime, sync, thread};

const ROUNDS: usize = 15;

fn runtime(processors: u32, activations: Activations) -> &'static Runtime {
    let config = Config { processors: Some(processors), activations, ..Config::default() };
    Runtime::start(config).expect("a runtime starts")
}

/// ns a turn.
fn time(turns: u32, body: impl FnOnce(u32)) -> f64 {
    let begin = Instant::now();
    body(turns);
    begin.elapsed().as_nanos() as f64 / f64::from(turns)
}

#[inline(never)]
fn procedure(number: u32) -> u32 {
    black_box(number)
}

fn calls(turns: u32) {
    for turn in 0..turns {
        black_box(procedure(turn));
    }
}

fn fork_fibers(turns: u32) {
    for _ in 0..turns {
        thread::spawn(|| ()).join().expect("it does not panic");
    }
}

fn fork_threads(turns: u32) {
    for _ in 0..turns {
        std::thread::spawn(|| ()).join().expect("it does not panic");
    }
}

fn fork_processes(turns: u32) {
    for _ in 0..turns {
        // SAFETY: the child ends at once; the parent waits for it.
        unsafe {
            match libc::fork() {
                0 => libc::_exit(0),
                child => _ = libc::waitpid(child, std::ptr::null_mut(), 0),
            }
        }
    }
}

/// Two fibers, a mutex, a condition variable each.
fn signal_fibers(turns: u32) {
    let shared = Arc::new((sync::Mutex::new(0), [sync::Condvar::new(), sync::Condvar::new()]));
    let turn_of = move |me: u32, shared: &(sync::Mutex<u32>, [sync::Condvar; 2])| {
        let mut whose = shared.0.lock();
        for _ in 0..turns / 2 {
            shared.1[me as usize].wait_while(&mut whose, |whose| *whose != me);
            *whose = 1 - me;
            shared.1[1 - me as usize].notify_one();
        }
    };
    let others = shared.clone();
    let other = thread::spawn(move || turn_of(1, &others));
    turn_of(0, &shared);
    other.join().expect("it does not panic");
}

fn signal_semaphores(turns: u32) {
    let shared = Arc::new([sync::Semaphore::new(1), sync::Semaphore::new(0)]);
    let turn_of = move |me: usize, shared: &[sync::Semaphore; 2]| {
        for _ in 0..turns / 2 {
            shared[me].acquire();
            shared[1 - me].release();
        }
    };
    let others = shared.clone();
    let other = thread::spawn(move || turn_of(1, &others));
    turn_of(0, &shared);
    other.join().expect("it does not panic");
}

fn signal_park(turns: u32) {
    let whose = Arc::new(AtomicU32::new(0));
    let main = thread::current().expect("a fiber");
    let others = whose.clone();
    let turn_of = move |me: u32, whose: &AtomicU32, other: &thread::Thread| {
        for _ in 0..turns / 2 {
            while whose.load(Acquire) != me {
                thread::park();
            }
            whose.store(1 - me, Release);
            other.unpark();
        }
    };
    let other = thread::spawn(move || turn_of(1, &others, &main));
    let them = other.thread();
    turn_of(0, &whose, &them);
    other.join().expect("it does not panic");
}

fn signal_threads(turns: u32) {
    let shared = Arc::new((Mutex::new(0), [Condvar::new(), Condvar::new()]));
    let turn_of = move |me: u32, shared: &(Mutex<u32>, [Condvar; 2])| {
        let mut whose = shared.0.lock().expect("no panics");
        for _ in 0..turns / 2 {
            while *whose != me {
                whose = shared.1[me as usize].wait(whose).expect("no panics");
            }
            *whose = 1 - me;
            shared.1[1 - me as usize].notify_one();
        }
    };
    let others = shared.clone();
    let other = std::thread::spawn(move || turn_of(1, &others));
    turn_of(0, &shared);
    other.join().expect("it does not panic");
}

/// A mutex and two condition variables of glibc's, by their C names.
struct Pair(libc::pthread_mutex_t, [libc::pthread_cond_t; 2], u32);

struct Place(*mut Pair);

// SAFETY: the pair is used under its mutex and outlives both.
unsafe impl Send for Place {}

impl Place {
    fn take_turns(&self, me: u32, turns: u32) {
        // SAFETY: as above.
        unsafe {
            let pair = self.0;
            libc::pthread_mutex_lock(&raw mut (*pair).0);
            for _ in 0..turns / 2 {
                while (*pair).2 != me {
                    libc::pthread_cond_wait(&raw mut (*pair).1[me as usize], &raw mut (*pair).0);
                }
                (*pair).2 = 1 - me;
                libc::pthread_cond_signal(&raw mut (*pair).1[1 - me as usize]);
            }
            libc::pthread_mutex_unlock(&raw mut (*pair).0);
        }
    }
}

fn signal_pthreads(turns: u32) {
    let mut pair = Pair(libc::PTHREAD_MUTEX_INITIALIZER, [libc::PTHREAD_COND_INITIALIZER; 2], 0);
    let (ours, others) = (Place(&raw mut pair), Place(&raw mut pair));
    let other = std::thread::spawn(move || others.take_turns(1, turns));
    ours.take_turns(0, turns);
    other.join().expect("it does not panic");
}

/// The same between two processes.
fn signal_processes(turns: u32) {
    // SAFETY: a fresh mapping, which both share and which has room for a pair; zeros and the attributes make
    // one. The child does nothing else, and ends at once.
    unsafe {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        let at = libc::mmap(std::ptr::null_mut(), size_of::<Pair>(), access, kind, -1, 0);
        assert!(at != libc::MAP_FAILED);
        let pair = at.cast::<Pair>();
        let mut of_mutex = std::mem::zeroed();
        libc::pthread_mutexattr_init(&raw mut of_mutex);
        libc::pthread_mutexattr_setpshared(&raw mut of_mutex, libc::PTHREAD_PROCESS_SHARED);
        libc::pthread_mutex_init(&raw mut (*pair).0, &raw const of_mutex);
        let mut of_condition = std::mem::zeroed();
        libc::pthread_condattr_init(&raw mut of_condition);
        libc::pthread_condattr_setpshared(&raw mut of_condition, libc::PTHREAD_PROCESS_SHARED);
        for at in 0..2 {
            libc::pthread_cond_init(&raw mut (*pair).1[at], &raw const of_condition);
        }
        match libc::fork() {
            0 => {
                Place(pair).take_turns(1, turns);
                libc::_exit(0)
            }
            child => {
                Place(pair).take_turns(0, turns);
                libc::waitpid(child, std::ptr::null_mut(), 0);
            }
        }
        libc::munmap(at, size_of::<Pair>());
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

type Contender = (&'static str, u32, Box<dyn Fn(u32) -> f64>);

fn on(runtime: &'static Runtime, body: fn(u32)) -> Box<dyn Fn(u32) -> f64> {
    Box::new(move |turns| runtime.run(move || time(turns, body)))
}

fn plain(body: fn(u32)) -> Box<dyn Fn(u32) -> f64> {
    Box::new(move |turns| time(turns, body))
}

fn table() {
    // SAFETY: the set lives across the call. All that is started later inherits it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
    let (active, passive) = (runtime(1, Activations::Told), runtime(1, Activations::None));
    let contenders: Vec<Contender> = vec![
        ("procedure call", 1_000_000, plain(calls)),
        ("null fork, fibers", 200_000, on(active, fork_fibers)),
        ("null fork, fibers, no activations", 200_000, on(passive, fork_fibers)),
        ("null fork, std threads", 300, plain(fork_threads)),
        ("null fork, processes", 30, plain(fork_processes)),
        ("signal-wait, fibers", 200_000, on(active, signal_fibers)),
        ("signal-wait, fibers, no activations", 200_000, on(passive, signal_fibers)),
        ("signal-wait, fibers, semaphores", 200_000, on(active, signal_semaphores)),
        ("signal-wait, fibers, park", 200_000, on(active, signal_park)),
        ("signal-wait, std threads", 4_000, plain(signal_threads)),
        ("signal-wait, pthreads", 4_000, plain(signal_pthreads)),
        ("signal-wait, processes", 4_000, plain(signal_processes)),
    ];
    let mut times: Vec<Vec<f64>> = contenders.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for ((_, turns, body), times) in contenders.iter().zip(&mut times) {
            times.push(body(*turns));
        }
    }
    for ((name, ..), times) in contenders.iter().zip(&mut times) {
        let middle = median(times);
        println!("{name:38} {middle:12.1} ns  ({:.1} to {:.1})", times[0], times[ROUNDS - 1]);
    }
}

fn latency(blocks: usize) {
    for processors in [1, 2] {
        let runtime = runtime(processors, Activations::Told);
        let mut latencies: Vec<f64> = runtime.run(move || {
            let mut latencies = Vec::new();
            // The second seat, if there is one, is busy.
            let stop = Arc::new(AtomicU32::new(0));
            let others = stop.clone();
            let busy = (processors == 2).then(|| {
                thread::spawn(move || {
                    while others.load(Relaxed) == 0 {
                        std::hint::spin_loop()
                    }
                })
            });
            for _ in 0..blocks {
                let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
                let blocked = Arc::new(AtomicU64::new(0));
                let ours = blocked.clone();
                let replacement = thread::spawn(move || {
                    let now = monotonic_ns();
                    let then = ours.load(Relaxed);
                    writer.write_all(b"x").expect("it is read");
                    if then == 0 { None } else { Some((now - then) as f64 / 1000.0) }
                });
                blocked.store(monotonic_ns(), Relaxed);
                reader.read_exact(&mut [0]).expect("it was written");
                latencies.extend(replacement.join().expect("it does not panic"));
            }
            stop.store(1, Relaxed);
            busy.map(|busy| busy.join());
            latencies
        });
        latencies.sort_by(f64::total_cmp);
        let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
        println!(
            "{processors} seats, {} of {blocks} blocks, us: least {:.1}, 10 % {:.1}, median {:.1}, \
             90 % {:.1}, 99 % {:.1}; seats taken {}",
            latencies.len(),
            at(0.0),
            at(0.1),
            at(0.5),
            at(0.9),
            at(0.99),
            runtime.seats_taken()
        );
    }
}

fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives across the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

struct Mapped(*const u8, usize);

// SAFETY: read-only.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

/// Pages a second of `threads` threads that touch 40 pages each, of a file that is not in memory.
fn touch(file: &File, threads: usize, run: impl FnOnce(usize, Arc<dyn Fn(u64) + Send + Sync>)) -> f64 {
    let size = file.metadata().expect("a file").len() as usize;
    // SAFETY: a fresh mapping, unmapped when all threads have ended.
    unsafe {
        libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED);
        let at =
            libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert!(at != libc::MAP_FAILED);
        libc::madvise(at, size, libc::MADV_RANDOM);
        let mapped = Mapped(at.cast(), size / 4096);
        let work: Arc<dyn Fn(u64) + Send + Sync> = Arc::new(move |seed: u64| {
            let mapped = &mapped;
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            for _ in 0..40 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let page = (random % mapped.1 as u64) as usize * 4096;
                black_box(mapped.0.add(page).read_volatile());
                // A few microseconds of work with it.
                for _ in 0..2_000 {
                    black_box(page);
                }
            }
        });
        let begin = Instant::now();
        run(threads, work);
        let rate = (threads * 40) as f64 / begin.elapsed().as_secs_f64();
        libc::munmap(at, size);
        rate
    }
}

fn faults(path: &str, threads: usize) {
    let file = File::open(path).expect("a big file");
    let (active, passive) = (runtime(2, Activations::Told), runtime(2, Activations::None));
    let fibers = |runtime: &'static Runtime| {
        move |threads: usize, work: Arc<dyn Fn(u64) + Send + Sync>| {
            runtime.run(move || {
                let all: Vec<_> = (0..threads as u64)
                    .map(|seed| {
                        let work = work.clone();
                        thread::spawn(move || work(seed))
                    })
                    .collect();
                all.into_iter().for_each(|fiber| fiber.join().expect("it does not panic"));
            })
        }
    };
    let kernel = |threads: usize, work: Arc<dyn Fn(u64) + Send + Sync>| {
        let all: Vec<_> = (0..threads as u64)
            .map(|seed| {
                let work = work.clone();
                std::thread::spawn(move || work(seed))
            })
            .collect();
        all.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    };
    let mut rates = [const { Vec::new() }; 3];
    for _ in 0..5 {
        rates[0].push(touch(&file, threads, fibers(active)));
        rates[1].push(touch(&file, threads, fibers(passive)));
        rates[2].push(touch(&file, threads, kernel));
    }
    for (name, rates) in ["activations", "no activations", "std threads"].iter().zip(&mut rates) {
        println!("{name:16} {:9.0} pages/s  {rates:.0?}", median(rates));
    }
    println!("seats taken: {}", active.seats_taken());
}

/// Two processors' worth of fibers of `others` never wait. How long is a fiber of the default runtime on its
/// way that a kernel thread unparks?
fn priority(times: usize) {
    for (name, priority) in [("low others", Priority::Low), ("usual others", Priority::Usual)] {
        let others = Runtime::start(Config { priority, ..Config::default() }).expect("a runtime starts");
        let stop = Arc::new(AtomicU32::new(0));
        let spinners: Vec<_> = (0..2)
            .map(|_| {
                let stop = stop.clone();
                let spins = move || {
                    while stop.load(Relaxed) == 0 {
                        std::hint::spin_loop()
                    }
                };
                thread::Builder::new().runtime(others).spawn(spins).expect("a fiber starts")
            })
            .collect();
        let sent = Arc::new(AtomicU64::new(0));
        let then = sent.clone();
        let woken = thread::spawn(move || {
            let mut latencies = Vec::new();
            while latencies.len() < times {
                thread::park();
                match then.swap(0, Acquire) {
                    0 => {}
                    then => latencies.push((monotonic_ns() - then) as f64 / 1000.0),
                }
            }
            latencies
        });
        while !woken.is_finished() {
            std::thread::sleep(std::time::Duration::from_micros(500));
            if sent.load(Acquire) == 0 {
                sent.store(monotonic_ns(), Release);
                woken.thread().unpark();
            }
        }
        let mut latencies = woken.join().expect("it does not panic");
        stop.store(1, Relaxed);
        spinners.into_iter().for_each(|spinner| spinner.join().expect("it does not panic"));
        latencies.sort_by(f64::total_cmp);
        let at = |part: f64| latencies[((times - 1) as f64 * part) as usize];
        println!(
            "{name}: {times} times, us: least {:.1}, median {:.1}, 90 % {:.1}, 99 % {:.1}, most {:.1}",
            at(0.0),
            at(0.5),
            at(0.9),
            at(0.99),
            at(1.0)
        );
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    match arguments.first().map(String::as_str) {
        Some("table") => table(),
        Some("latency") => latency(number(1, 2000)),
        Some("priority") => priority(number(1, 1000)),
        Some("faults") if arguments.len() > 1 => faults(&arguments[1], number(2, 256)),
        _ => eprintln!(
            "usage: activations table | latency [blocks] | faults FILE [threads] | priority [times]"
        ),
    }
}
