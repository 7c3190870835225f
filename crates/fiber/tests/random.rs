// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fibers that are spawned, blocked, signalled and cancelled at random. Each ends once, nothing of theirs is
//! left, and nobody waits for ever. Signals come from within, and to any thread of the process at any moment.
//! A fiber starts programs that do all this as well, and kills each (SIGKILL) in the midst of it: none
//! has ended or failed before, and none keeps this one from going on.
//!
//! Takes some seconds, with `WAKEFUL_LONG=1` an hour, with `WAKEFUL_MINUTES` so many minutes. `WAKEFUL_SEED`
//! says where the schedule begins.

use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use fiber::sync::{Channel, Mutex};
use fiber::thread::{self, Builder, Cancelled, JoinHandle};
use linux::Linux;
use platform::{Clock, Deadline, Platform, Wait};
use sync::mutex::{RawMutex, Wakeful};

const DRIVERS: u64 = 6;
/// Fibers that a driver has at a time.
const MOST: usize = 40;

/// A linear congruential generator; its upper bits are good enough.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn micros(&mut self, limit: u64) -> Duration {
        Duration::from_micros(self.below(limit))
    }
}

/// What all share.
struct World {
    begun: AtomicU64,
    ended: AtomicU64,
    steps: AtomicU64,
    cancelled: AtomicU64,
    /// Of fibers, and of kernel threads: what they protect is equal.
    pair: Mutex<(u64, u64)>,
    lock: Wakeful<Linux>,
    killed: AtomicU64,
    /// Have all ended, those that kill as well?
    over: AtomicBool,
    word: AtomicU32,
    guarded: [AtomicU64; 2],
}

impl World {
    fn new() -> Self {
        Self {
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            pair: Mutex::default(),
            lock: RawMutex::new(),
            killed: AtomicU64::new(0),
            over: AtomicBool::new(false),
            word: AtomicU32::new(0),
            guarded: Default::default(),
        }
    }
}

/// A fiber, and whether it was told to go on to its end.
struct Child {
    fiber: JoinHandle<u64>,
    told: Arc<AtomicU32>,
}

impl Child {
    fn tell(&self) {
        self.told.store(1, SeqCst);
        self.fiber.thread().unpark();
    }

    fn end(self, world: &World) {
        self.tell();
        if let Err(payload) = self.fiber.join() {
            assert!(payload.is::<Cancelled>(), "it panicked");
            world.cancelled.fetch_add(1, Relaxed);
        }
    }
}

/// Its end is counted however it comes.
struct Life(Arc<World>);

impl Drop for Life {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Relaxed);
    }
}

struct Locked<'a>(&'a Wakeful<Linux>);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // SAFETY: made by the holder.
        unsafe { self.0.unlock(&()) };
    }
}

fn block(random: &mut Random) {
    match random.below(3) {
        0 => std::thread::sleep(random.micros(300)),
        1 => {
            // A page fault or several.
            let mut memory = vec![0_u8; 256 << 10];
            (0..memory.len()).step_by(4096).for_each(|at| memory[at] = 1);
            std::hint::black_box(&memory);
        }
        // SAFETY: no arguments. Handled on the fiber's stack.
        _ => unsafe { _ = libc::raise(libc::SIGUSR1) },
    }
}

fn step(world: &Arc<World>, random: &mut Random, depth: u32) {
    world.steps.fetch_add(1, Relaxed);
    match random.below(10) {
        0 => thread::yield_now(),
        1 => thread::sleep(random.micros(50)),
        2 => thread::park_timeout(random.micros(50)),
        3 => block(random),
        4 => {
            let mut pair = world.pair.lock();
            assert_eq!(pair.0, pair.1);
            pair.0 += 1;
            // Where it may be cancelled, nothing is half done but this.
            if random.below(2) == 0 {
                thread::uncancelled::yield_now();
            } else {
                std::thread::sleep(random.micros(30));
            }
            pair.1 += 1;
        }
        5 => {
            // SAFETY: released by `Locked`.
            unsafe { world.lock.lock(&()) };
            let _locked = Locked(&world.lock);
            let [first, second] = &world.guarded;
            assert_eq!(first.load(Relaxed), second.load(Relaxed));
            first.fetch_add(1, Relaxed);
            thread::uncancelled::yield_now();
            second.fetch_add(1, Relaxed);
        }
        6 if depth < 3 => {
            let child = spawn(world, random.below(u64::MAX >> 34), depth + 1);
            if random.below(2) == 0 {
                child.fiber.cancel();
            }
            child.end(world);
        }
        7 => {
            // A word of kernel threads, where nobody wakes but now and then.
            let deadline = Deadline { ns: Linux::now_ns() + random.below(50_000), clock: Clock::Monotonic };
            let seen = world.word.load(Relaxed);
            let outcome = Linux::wait(&world.word, seen, Some(deadline));
            assert_ne!(outcome, Wait::Interrupted);
        }
        8 => {
            world.word.fetch_add(1, Relaxed);
            Linux::wake(&world.word, 2);
        }
        _ => thread::cancellation_point(),
    }
}

/// One that does some steps, and perhaps waits then until it is told.
fn spawn(world: &Arc<World>, seed: u64, depth: u32) -> Child {
    world.begun.fetch_add(1, Relaxed);
    let (life, told) = (Life(world.clone()), Arc::new(AtomicU32::new(0)));
    let its = told.clone();
    let body = move || {
        let (world, mut random) = (&life.0, Random(seed));
        (0..random.below(12)).for_each(|_| step(world, &mut random, depth));
        while random.below(4) == 0 && its.load(SeqCst) == 0 {
            thread::park();
        }
        seed
    };
    Child { fiber: Builder::new().spawn(body).expect("a fiber starts"), told }
}

fn drive(world: &Arc<World>, seed: u64, until: Instant) {
    let (mut random, mut fibers) = (Random(seed), Vec::<Child>::new());
    while Instant::now() < until {
        let which = random.below(fibers.len().max(1) as u64) as usize;
        match random.below(9) {
            0..3 if fibers.len() < MOST => fibers.push(spawn(world, random.below(u64::MAX >> 34), 0)),
            3 => block(&mut random),
            4 => thread::sleep(random.micros(100)),
            5 if which < fibers.len() => fibers[which].fiber.cancel(),
            6 if which < fibers.len() => fibers[which].fiber.thread().unpark(),
            7 if which < fibers.len() => fibers.swap_remove(which).end(world),
            // It goes on by itself.
            8 if which < fibers.len() && random.below(4) == 0 => fibers.swap_remove(which).tell(),
            _ => thread::yield_now(),
        }
    }
    fibers.into_iter().for_each(|child| child.end(world));
}

/// In the environment of a program that is to be killed.
const DOOMED: &str = "WAKEFUL_DOOMED";
/// Steps after which such a program says that it is in the midst of it.
const BEGUN: u64 = 200;

/// A program of this test that nobody lets end. Returns where it says something, and it.
fn start_doomed(seed: u64) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "whatever_happens_they_end", "--nocapture"]);
    command.env(DOOMED, seed.to_string()).stdin(Stdio::null()).stdout(Stdio::piped());
    // SAFETY: one call of the kernel, between fork and exec. No child stays if this test is ended.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        })
    };
    command.spawn().expect("this program again")
}

/// Starts programs, and kills each in the midst of its fibers; one at least.
fn kill(world: &World, seed: u64, until: Instant) {
    let mut random = Random(seed);
    loop {
        let mut child = start_doomed(random.below(u64::MAX >> 34));
        let mut out = child.stdout.take().expect("it is piped");
        // The harness has its say first.
        let (mut said, mut byte) = (false, [0]);
        while !said && out.read(&mut byte).expect("it is read") == 1 {
            said = byte == [0];
        }
        assert!(said, "it ended before anybody killed it");
        std::thread::sleep(random.micros(20_000));
        child.kill().expect("it is ours");
        assert_eq!(child.wait().expect("it is ours").signal(), Some(libc::SIGKILL));
        world.killed.fetch_add(1, Relaxed);
        if Instant::now() >= until {
            return;
        }
        thread::sleep(random.micros(100_000));
    }
}

/// The program that is to be killed. What fails in one of its fibers ends it at once, by another signal.
fn be_killed(seed: u64) -> ! {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
    let (world, until) = (Arc::new(World::new()), Instant::now() + Duration::from_secs(7200));
    std::thread::spawn(move || signal_threads(seed, until));
    let watched = world.clone();
    std::thread::spawn(move || {
        while watched.steps.load(Relaxed) < BEGUN {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut out = std::io::stdout();
        out.write_all(&[0]).and_then(|()| out.flush()).expect("somebody reads");
    });
    thread::scope(|scope| {
        for driver in 0..DRIVERS {
            let world = &world;
            scope.spawn(move || drive(world, seed.wrapping_add(driver), until));
        }
    });
    unreachable!("nobody has killed it");
}

/// A signal to this or that thread of the process, whatever it does.
fn signal_threads(seed: u64, until: Instant) {
    let mut random = Random(seed);
    while Instant::now() < until {
        let threads = std::fs::read_dir("/proc/self/task").expect("the threads");
        let names = threads.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let all: Vec<libc::pid_t> = names.collect();
        let thread = all[random.below(all.len() as u64) as usize];
        // SAFETY: no pointers. One that has ended meanwhile is an error, and nothing else.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR1) };
        std::thread::sleep(random.micros(2_000));
    }
}

static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Relaxed);
}

/// As `crates/daemon/tests/together.rs` has it.
fn how_long() -> Duration {
    let long = std::env::var("WAKEFUL_LONG").is_ok_and(|long| long == "1");
    match std::env::var("WAKEFUL_MINUTES") {
        Ok(text) => Duration::from_secs_f64(text.parse::<f64>().expect("minutes") * 60.0),
        Err(_) => Duration::from_secs(if long { 3600 } else { 3 }),
    }
}

#[test]
fn whatever_happens_they_end() {
    // SAFETY: the handler adds to a word.
    unsafe { libc::signal(libc::SIGUSR1, on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    if let Ok(seed) = std::env::var(DOOMED) {
        be_killed(seed.parse().expect("a number"));
    }
    let by_chance = || std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let seed =
        std::env::var("WAKEFUL_SEED").map_or_else(|_| by_chance(), |text| text.parse().expect("a number"));
    eprintln!("WAKEFUL_SEED={seed}");
    let (world, until) = (Arc::new(World::new()), Instant::now() + how_long());
    let done = Arc::new(Channel::new(1));
    let (watched, ends) = (world.clone(), done.clone());
    // Who finds that nothing has moved for a minute ends the test.
    let watch = std::thread::spawn(move || {
        let (mut steps, mut still) = (0, 0);
        while still < 60 {
            std::thread::sleep(Duration::from_secs(1));
            let counts = [&watched.steps, &watched.ended, &watched.killed];
            let now = counts.iter().map(|count| count.load(Relaxed)).sum::<u64>();
            still = if now == steps { still + 1 } else { 0 };
            steps = now;
            if watched.begun.load(Relaxed) == watched.ended.load(Relaxed) && watched.over.load(Acquire) {
                ends.close();
                return;
            }
        }
        eprintln!("{:?}\nnothing moves", fiber::Runtime::default().unwrap());
        std::process::abort();
    });
    let signaller = std::thread::spawn(move || signal_threads(seed ^ 1 << 41, until));
    thread::scope(|scope| {
        for driver in 0..DRIVERS {
            let world = &world;
            scope.spawn(move || drive(world, seed.wrapping_add(driver), until));
        }
        let world = &world;
        scope.spawn(move || kill(world, seed ^ 1 << 40, until));
    });
    // ORDER: Release, pairs with the watcher's look.
    world.over.store(true, Release);
    signaller.join().expect("it does not panic");
    // Those that were dropped are on their way.
    let _: Option<()> = done.receive();
    watch.join().unwrap();
    let counts =
        [&world.begun, &world.ended, &world.steps, &world.cancelled].map(|count| count.load(Relaxed));
    let (signals, killed) = (SIGNALS.load(Relaxed), world.killed.load(Relaxed));
    eprintln!("begun, ended, steps, cancelled: {counts:?}; signals: {signals}; killed programs: {killed}");
    assert_eq!(counts[0], counts[1]);
    assert!(counts[3] > 0 && signals > 0 && killed > 0, "the schedule has cancelled or killed nobody");
    assert_eq!(Arc::strong_count(&world), 1, "a fiber's closure is left");
}
