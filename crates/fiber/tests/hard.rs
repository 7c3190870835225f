// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fibers in trouble: more seats than processors, signals, blocking calls, panics, full stacks, forks,
//! careless policies; and the locks.

use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::time::Duration;

use fiber::local::LocalKey;
use fiber::policy::{Policy, Queue, Ready};
use fiber::sync::{Barrier, Channel, Condvar, Mutex, RwLock, Semaphore};
use fiber::thread::RawHandle;
use fiber::{Activations, Config, Runtime, thread};

fn runtime(processors: u32) -> &'static Runtime {
    let runtime = Runtime::start(Config { processors: Some(processors), ..Config::default() }).unwrap();
    tell(runtime);
    runtime
}

/// A test that hangs says how it stands before it is ended.
fn tell(runtime: &'static Runtime) {
    std::thread::spawn(move || {
        for seconds in [4, 30] {
            std::thread::sleep(Duration::from_secs(seconds));
            eprintln!("{:?}: {runtime:?}", std::thread::current().id());
        }
    });
}

#[test]
fn locks() {
    for processors in [1, 4] {
        runtime(processors).run(|| {
            let (count, both, semaphore) = (Mutex::new(0), RwLock::new((0, 0)), Semaphore::new(2));
            let (inside, barrier) = (AtomicU32::new(0), Barrier::new(20));
            thread::scope(|scope| {
                for _ in 0..20 {
                    scope.spawn(|| {
                        for round in 0..200 {
                            let mut guard = count.lock();
                            let before = *guard;
                            if round % 16 == 0 {
                                thread::yield_now();
                            }
                            *guard = before + 1;
                            drop(guard);
                            if round % 4 == 0 {
                                let mut both = both.write();
                                both.0 += 1;
                                thread::yield_now();
                                both.1 += 1;
                            } else {
                                let both = both.read();
                                assert_eq!(both.0, both.1);
                            }
                            semaphore.acquire();
                            assert!(inside.fetch_add(1, Relaxed) < 2);
                            thread::yield_now();
                            inside.fetch_sub(1, Relaxed);
                            semaphore.release();
                        }
                        for _ in 0..20 {
                            barrier.wait();
                        }
                    });
                }
            });
            assert_eq!(*count.lock(), 4_000);
        });
    }
}

#[test]
fn waits_with_a_deadline() {
    runtime(2).run(|| {
        let (mutex, condvar, semaphore) = (Mutex::new(()), Condvar::new(), Semaphore::new(0));
        assert!(!semaphore.try_acquire_for(Duration::from_millis(2)));
        assert!(!condvar.wait_for(&mut mutex.lock(), Duration::from_millis(2)));
        thread::scope(|scope| {
            let guard = mutex.lock();
            let tries = scope.spawn(|| mutex.try_lock_for(Duration::from_millis(2)).is_none());
            assert!(tries.join().unwrap(), "a held lock was acquired");
            drop(guard);
            let tries = scope.spawn(|| semaphore.try_acquire_for(Duration::from_secs(60)));
            thread::yield_now();
            semaphore.release();
            assert!(tries.join().unwrap(), "a permit that is there was not taken");
        });
    });
}

#[test]
fn channels() {
    for processors in [1, 4] {
        runtime(processors).run(|| {
            let (channel, sum) = (Channel::new(4), AtomicU64::new(0));
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        while let Some(number) = channel.receive() {
                            sum.fetch_add(number, Relaxed);
                        }
                    });
                }
                let senders: Vec<_> = (0..3)
                    .map(|_| scope.spawn(|| (1..=1_000).for_each(|number| channel.send(number).unwrap())))
                    .collect();
                senders.into_iter().for_each(|sender| sender.join().unwrap());
                channel.close();
            });
            assert_eq!(sum.load(Relaxed), 3 * 500_500);
            assert_eq!(channel.send(1), Err(1));
        });
    }
}

/// A kernel thread that is no carrier waits beside fibers.
#[test]
fn kernel_threads_wait_too() {
    let semaphore = Arc::new(Semaphore::new(0));
    let ours = semaphore.clone();
    let fiber = thread::spawn(move || {
        thread::sleep(Duration::from_millis(1));
        ours.release();
        ours.release();
    });
    let ours = semaphore.clone();
    let other = std::thread::spawn(move || ours.acquire());
    semaphore.acquire();
    other.join().unwrap();
    fiber.join().unwrap();
}

#[test]
fn locals_are_the_fibers_own() {
    static DROPPED: AtomicU32 = AtomicU32::new(0);
    struct Counts(Cell<u32>);
    impl Drop for Counts {
        fn drop(&mut self) {
            DROPPED.fetch_add(self.0.get(), Relaxed);
        }
    }
    static LOCAL: LocalKey<Counts> = LocalKey::new(|| Counts(Cell::new(0)));
    runtime(2).run(|| {
        let fibers: Vec<_> = (1..=100)
            .map(|number| {
                thread::spawn(move || {
                    for _ in 0..10 {
                        LOCAL.with(|local| local.0.set(local.0.get() + number));
                        thread::yield_now();
                    }
                    LOCAL.with(|local| assert_eq!(local.0.get(), number * 10));
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
    assert_eq!(DROPPED.load(Relaxed), 50_500);
}

/// A raw handle is its fiber's, also if that has detached itself and ended before its spawner goes on.
#[test]
fn a_raw_handle_is_its_fibers() {
    let runtime = runtime(2);
    let (sender, receiver) = std::sync::mpsc::channel();
    for _ in 0..2_000 {
        let sender = sender.clone();
        let detaches_itself = move || {
            let me = RawHandle::current().unwrap();
            // SAFETY: it returns ().
            drop(unsafe { me.claim::<()>() });
            // Begun when this one has ended: one of these has its place.
            drop(thread::spawn(|| (0..4).for_each(|_| drop(thread::spawn(|| ())))));
            sender.send(me).unwrap();
        };
        let raw = thread::Builder::new().runtime(runtime).spawn_raw(detaches_itself).unwrap();
        assert_eq!(raw, receiver.recv().unwrap());
        // So that the next one wakes a carrier, which may go first.
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Fibers that wait in all ways, and look whether they are where they began.
fn all_keep_their_kernel_threads(runtime: &'static Runtime) {
    std::thread_local!(static PLACE: u32 = const { 0 });
    runtime.run(|| {
        let fibers: Vec<_> = (0..200)
            .map(|number| {
                thread::spawn(move || {
                    PLACE.with(|place| {
                        let before = std::ptr::from_ref(place);
                        for _ in 0..20 {
                            match number % 3 {
                                0 => thread::yield_now(),
                                1 => thread::sleep(Duration::from_micros(20)),
                                _ => std::thread::sleep(Duration::from_micros(20)),
                            }
                            PLACE.with(|now| assert!(std::ptr::eq(before, now), "it has moved"));
                        }
                    });
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
}

/// A fiber stays with its kernel thread: what it has there is there after each wait.
#[test]
fn a_fiber_keeps_its_kernel_thread() {
    all_keep_their_kernel_threads(runtime(4));
}

/// One queue for all carriers, which drops every third fiber and waits now and then.
#[derive(Debug, Default)]
struct Careless {
    all: Arc<std::sync::Mutex<Vec<Ready>>>,
    count: Arc<AtomicU32>,
}

struct Shared(Careless);

impl Policy for Careless {
    fn queue(&self) -> Box<dyn Queue> {
        Box::new(Shared(Careless { all: self.all.clone(), count: self.count.clone() }))
    }
}

impl Queue for Shared {
    fn push(&mut self, fiber: Ready) {
        match self.0.count.fetch_add(1, Relaxed) {
            count if count % 3 == 0 => drop(fiber),
            count => {
                if count % 64 == 0 {
                    thread::sleep(Duration::from_micros(10));
                    thread::yield_now();
                }
                self.0.all.lock().unwrap().push(fiber);
            }
        }
    }
    fn pop(&mut self) -> Option<Ready> {
        self.0.all.lock().unwrap().pop()
    }
}

/// A careless queue loses no fiber, and lets none go on with another kernel thread.
#[test]
fn a_careless_policy_is_harmless() {
    let policy: &'static Careless = Box::leak(Box::default());
    let config = Config { processors: Some(3), policy: Some(policy), ..Config::default() };
    all_keep_their_kernel_threads(Runtime::start(config).unwrap());
}

/// What one fiber of [`a_storm`] does; returns how often it counted.
fn weather(seed: u64, channel: &Channel<u64>, count: &Mutex<u64>) -> u64 {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut counted = 0;
    for _ in 0..60 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        match random % 9 {
            0 => thread::yield_now(),
            1 => thread::sleep(Duration::from_micros(random % 300)),
            2 => assert_eq!(thread::spawn(move || random).join().unwrap(), random),
            3 => std::thread::sleep(Duration::from_micros(random % 200)),
            4 => {
                *count.lock() += 1;
                counted += 1;
            }
            5 => {
                let mut guard = count.lock();
                thread::yield_now();
                *guard += 1;
                counted += 1;
            }
            6 => {
                channel.send(1).unwrap();
                counted += channel.receive().unwrap();
                *count.lock() += 1;
            }
            7 => {
                let main = thread::current().unwrap();
                let told = Arc::new(AtomicBool::new(false));
                let ours = told.clone();
                let other = thread::spawn(move || {
                    ours.store(true, Release);
                    main.unpark();
                });
                while !told.load(Acquire) {
                    thread::park();
                }
                drop(other);
            }
            _ => assert!(thread::spawn(|| std::panic::resume_unwind(Box::new(1))).join().is_err()),
        }
    }
    counted
}

extern "C" fn hear(_: i32) {}

/// Everything at once, with twice as many seats as processors, and signals that end system calls early.
#[test]
fn a_storm() {
    // SAFETY: the structures live across the calls; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = hear as extern "C" fn(i32) as usize;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
    for activations in [Activations::Told, Activations::Polled, Activations::None] {
        let runtime =
            Runtime::start(Config { processors: Some(4), activations, ..Config::default() }).unwrap();
        tell(runtime);
        let stop = Arc::new(AtomicBool::new(false));
        let ours = stop.clone();
        let signals = std::thread::spawn(move || {
            while !ours.load(Relaxed) {
                // SAFETY: no pointers.
                unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) };
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        runtime.run(|| {
            let (channel, count) = (Arc::new(Channel::new(400)), Arc::new(Mutex::new(0)));
            let fibers: Vec<_> = (0..200u64)
                .map(|seed| {
                    let (channel, count) = (channel.clone(), count.clone());
                    let body = move || weather(seed, &channel, &count);
                    if seed % 2 == 0 {
                        thread::spawn(body)
                    } else {
                        // SAFETY: `weather` keeps no reference to thread-local data.
                        unsafe { thread::Builder::new().spawn_movable(body) }.unwrap()
                    }
                })
                .collect();
            let counted: u64 = fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum();
            assert_eq!(counted, *count.lock());
        });
        stop.store(true, Relaxed);
        signals.join().unwrap();
    }
}

/// This test in a process of its own, where `FIBER_CHILD` says so.
fn child(test: &str) -> Option<std::process::Output> {
    if std::env::var_os("FIBER_CHILD").is_some() {
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    Some(command.args([test, "--exact", "--nocapture"]).env("FIBER_CHILD", "1").output().unwrap())
}

#[inline(never)]
fn deeper(depth: u64) -> u64 {
    let place = [depth; 64];
    std::hint::black_box(&place);
    if depth == u64::MAX { 0 } else { deeper(depth + 1) + place[(depth % 64) as usize] }
}

#[test]
fn an_overflow_names_the_fiber() {
    let Some(output) = child("an_overflow_names_the_fiber") else {
        let fiber = thread::Builder::new().name("the deep one").spawn(|| deeper(0)).unwrap();
        fiber.join().unwrap();
        return;
    };
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("fiber 'the deep one' has overflowed its stack"), "{told}");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT));
}

/// A fault that is nobody's guard page ends the program as before.
#[test]
fn another_fault_stays_one() {
    let Some(output) = child("another_fault_stays_one") else {
        // SAFETY: it is not; that is what is tested.
        thread::spawn(|| unsafe { std::ptr::with_exposed_provenance::<u8>(4096).read_volatile() })
            .join()
            .unwrap();
        return;
    };
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV));
}

/// In a forked child the fiber that forked is a kernel thread like others, and a runtime of its own works.
#[test]
fn a_forked_child() {
    let status = thread::spawn(|| {
        // SAFETY: the child uses what is its own only, and ends itself.
        match unsafe { libc::fork() } {
            0 => {
                thread::yield_now();
                thread::sleep(Duration::from_millis(1));
                let good = thread::current().is_none() && thread::spawn(|| 7).join().unwrap() == 7;
                // SAFETY: no pointers.
                unsafe { libc::_exit(if good { 3 } else { 4 }) }
            }
            child => {
                let mut status = 0;
                // SAFETY: the place lives across the call.
                while unsafe { libc::waitpid(child, &mut status, 0) } < 0 {}
                status
            }
        }
    })
    .join()
    .unwrap();
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 3, "{status:x}");
}
