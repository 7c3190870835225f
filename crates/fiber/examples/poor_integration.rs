// SPDX-License-Identifier: MIT OR Apache-2.0
//! The five failures of section 2.2 of the paper, first of plain pools of kernel threads, then what fibers
//! make of the same tasks. The reference is the same work, without what disturbs it, on a kernel thread a
//! processor. All take turns in one run. `speed` is the reference's time divided by the contender's, `useful`
//! the same of processor time: what was not burnt by waiting. `use` is the processor time a second by the
//! reference's, round by round. `idle` is for how long a seat was idle while a fiber was ready; the processor
//! may have run a fiber without a seat meanwhile.
//!
//! ```sh
//! cargo run --release -p wakeful-fiber --example poor_integration -- 9      # rounds
//! cargo run --release -p wakeful-fiber --example poor_integration -- 9 34   # of the third and the fourth
//! ```

use std::collections::VecDeque;
use std::hint::{black_box, spin_loop};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use fiber::{Config, Runtime, sync, thread};

/// How long the kernel keeps a task, by a sleep or by a fault.
const KEPT: Duration = Duration::from_millis(10);
const PAGE: usize = 4096;

type Task = Arc<dyn Fn(usize) + Send + Sync>;

/// Turns of `compute` a microsecond.
static PACE: AtomicU64 = AtomicU64::new(0);

fn turns(count: u64) {
    (0..count).for_each(|turn| _ = black_box(turn));
}

/// As much work as takes so long undisturbed.
fn compute(us: u64) {
    turns(us * PACE.load(Relaxed));
}

fn find_pace() {
    let paces = (0..20).map(|_| {
        let begin = Instant::now();
        turns(2_000_000);
        2_000_000_000 / begin.elapsed().as_nanos() as u64
    });
    PACE.store(paces.max().expect("some"), Relaxed);
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Kernel threads that take tasks. `eager`: who finds none looks again, as long as others have some.
fn pool(threads: usize, eager: bool, tasks: usize, task: &Task) {
    let (next, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    match next.fetch_add(1, Relaxed) {
                        number if number < tasks => {
                            task(number);
                            ended.fetch_add(1, Relaxed);
                        }
                        _ if eager && ended.load(Relaxed) < tasks => spin_loop(),
                        _ => return,
                    }
                }
            });
        }
    });
}

/// A fiber a task. `movable`: each may go on with any carrier after a wait.
fn fibers(movable: bool, tasks: usize, task: &Task) {
    ours().run(|| {
        let all: Vec<_> = (0..tasks)
            .map(|number| {
                let task = task.clone();
                let body = move || task(number);
                let builder = thread::Builder::new();
                let fiber = match movable {
                    // SAFETY: no task holds a reference to thread-local data where it waits.
                    true => unsafe { builder.spawn_movable(body) },
                    false => builder.spawn(body),
                };
                fiber.expect("it starts")
            })
            .collect();
        all.into_iter().for_each(|fiber| fiber.join().expect("it does not panic"));
    });
}

fn processor_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives across the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn ours() -> &'static Runtime {
    static OURS: OnceLock<&Runtime> = OnceLock::new();
    OURS.get_or_init(|| Runtime::start(Config::default()).expect("a runtime starts"))
}

/// Seconds on the wall, of processors, and during which a processor was idle and a fiber ready.
fn time(body: &dyn Fn()) -> [f64; 3] {
    let (begin, used, idle) = (Instant::now(), processor_time(), ours().idle_while_ready_ns());
    body();
    let wall = begin.elapsed().as_secs_f64();
    [wall, (processor_time() - used).as_secs_f64(), (ours().idle_while_ready_ns() - idle) as f64 / 1e9]
}

fn median(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    [values[values.len() / 2], values[0], values[values.len() - 1]]
}

/// The first contender is the reference.
fn compare(what: &str, rounds: usize, contenders: &[(&str, &dyn Fn())]) {
    if std::env::args().nth(2).is_some_and(|only| !only.contains(&what[..1])) {
        return;
    }
    let mut times = vec![Vec::new(); contenders.len()];
    for _ in 0..rounds {
        for ((_, body), times) in contenders.iter().zip(&mut times) {
            times.push(time(body));
        }
    }
    println!("{what}");
    for ((name, _), mine) in contenders.iter().zip(&times) {
        let ratio = |of: fn(&[f64; 3]) -> f64| median(times[0].iter().zip(mine).map(|(a, b)| of(a) / of(b)));
        let (speed, useful) = (ratio(|time| time[0]), ratio(|time| time[1]));
        let each_use = ratio(|time| time[0] / time[1]);
        println!(
            "  {name:41} {:6.1} ms  idle {:5.1} ms  \
             speed {:.3} ({:.3} to {:.3})  useful {:.3} ({:.3} to {:.3})  use {:.3} ({:.3} to {:.3})",
            median(mine.iter().map(|time| time[0] * 1e3))[0],
            median(mine.iter().map(|time| time[2] * 1e3))[0],
            speed[0],
            speed[1],
            speed[2],
            useful[0],
            useful[1],
            useful[2],
            each_use[0],
            each_use[1],
            each_use[2]
        );
    }
}

/// Pages that the kernel asks us for, which we give after `KEPT`: a slow disk.
struct Pager {
    start: usize,
    next: AtomicUsize,
}

const PAGES: usize = 1 << 20;

impl Pager {
    /// `None`: the kernel has no userfaultfd for us.
    fn start() -> Option<Self> {
        const USER_MODE_ONLY: libc::c_int = 1;
        const API: libc::c_ulong = 0xc018_aa3f;
        const REGISTER: libc::c_ulong = 0xc020_aa00;
        // SAFETY: fresh memory and a fresh descriptor; the structures live across the calls.
        let (descriptor, start) = unsafe {
            let descriptor =
                libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY)
                    as i32;
            let (flags, none) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let start = libc::mmap(std::ptr::null_mut(), PAGES * PAGE, protection, flags, none, 0);
            let mut api = [0xaa_u64, 0, 0];
            let mut register = [start as u64, (PAGES * PAGE) as u64, 1, 0];
            if start == libc::MAP_FAILED
                || libc::madvise(start, PAGES * PAGE, libc::MADV_NOHUGEPAGE) != 0
                || libc::ioctl(descriptor, API, api.as_mut_ptr()) != 0
                || libc::ioctl(descriptor, REGISTER, register.as_mut_ptr()) != 0
            {
                return None;
            }
            (descriptor, start as usize)
        };
        std::thread::spawn(move || serve(descriptor));
        Some(Self { start, next: AtomicUsize::new(0) })
    }

    /// Touches a page that nobody has touched.
    fn touch(&self) {
        let page = self.next.fetch_add(1, Relaxed);
        assert!(page < PAGES);
        // SAFETY: inside the mapping.
        unsafe { black_box((self.start as *const u8).add(page * PAGE).read_volatile()) };
    }
}

/// The pager's thread.
fn serve(descriptor: i32) {
    const ZEROPAGE: libc::c_ulong = 0xc020_aa04;
    let mut asked: VecDeque<(Instant, u64)> = VecDeque::new();
    loop {
        let wait = asked.front().map(|(due, _)| due.saturating_duration_since(Instant::now()));
        let wait = wait.unwrap_or(Duration::from_secs(3600));
        let wait =
            libc::timespec { tv_sec: wait.as_secs() as _, tv_nsec: libc::c_long::from(wait.subsec_nanos()) };
        let mut poll = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        // SAFETY: the structures live across the calls; a message has 32 bytes.
        unsafe {
            if libc::ppoll(&mut poll, 1, &wait, std::ptr::null()) > 0 {
                let mut message = [0u64; 4];
                if libc::read(descriptor, message.as_mut_ptr().cast(), 32) == 32 {
                    asked.push_back((Instant::now() + KEPT, message[2] & !(PAGE as u64 - 1)));
                }
            }
            while let Some(&(_, page)) = asked.front().filter(|(due, _)| *due <= Instant::now()) {
                asked.pop_front();
                let mut zero = [page, PAGE as u64, 0, 0];
                libc::ioctl(descriptor, ZEROPAGE, zero.as_mut_ptr());
            }
        }
    }
}

/// Test, test and set.
#[derive(Default)]
struct Spin(AtomicBool);

impl Spin {
    fn with(&self, body: impl FnOnce()) {
        while self.0.load(Relaxed) || self.0.swap(true, Acquire) {
            spin_loop();
        }
        body();
        self.0.store(false, Release);
    }
}

/// Ends with its handle.
struct Busy(Child);

impl Busy {
    fn start() -> Self {
        let this = std::env::current_exe().expect("a path");
        Self(Command::new(this).arg("busy").spawn().expect("it starts"))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

fn task(body: impl Fn() + Send + Sync + 'static) -> Task {
    Arc::new(move |_| body())
}

/// 1 ms, in pieces of which each has one part under the lock.
fn locking(with: impl Fn(&dyn Fn()) + Send + Sync + 'static) -> Task {
    task(move || {
        for _ in 0..25 {
            compute(30);
            with(&|| compute(10));
        }
    })
}

fn kept(rounds: usize) {
    const TASKS: usize = 900;
    let each = processors();
    let disturbed = |disturbs: fn(&Pager), pager: &Arc<Pager>| {
        let pager = pager.clone();
        task(move || {
            compute(1000);
            disturbs(&pager);
            compute(1000);
        })
    };
    let calm = task(|| compute(2000));
    let nothing = Arc::new(Pager { start: 0, next: AtomicUsize::new(0) });
    let mut kinds =
        vec![("1. A task blocks in the kernel for 10 ms", disturbed(|_| std::thread::sleep(KEPT), &nothing))];
    match Pager::start() {
        Some(pager) => {
            kinds.push(("2. A task takes a page fault of 10 ms", disturbed(Pager::touch, &Arc::new(pager))));
        }
        None => println!("2. is left out: no userfaultfd here"),
    }
    for (what, task) in kinds {
        compare(
            what,
            rounds,
            &[
                ("reference", &|| pool(each, false, TASKS, &calm)),
                ("pool, a thread a processor", &|| pool(each, false, TASKS, &task)),
                ("fibers", &|| fibers(false, TASKS, &task)),
                ("movable fibers", &|| fibers(true, TASKS, &task)),
            ],
        );
    }
}

fn locked(rounds: usize) {
    const TASKS: usize = 200;
    let each = processors();
    let [spin, again, many] = [(); 3].map(|()| Spin::default());
    let (std, fiber) = (Mutex::new(()), sync::Mutex::new(()));
    let calm = locking(|body| body());
    let spin = locking(move |body| spin.with(body));
    let spins = locking(move |body| again.with(body));
    let crowd = locking(move |body| many.with(body));
    let std = locking(move |body| {
        let _guard = std.lock().expect("no panics");
        body();
    });
    let fiber = locking(move |body| {
        let _guard = fiber.lock();
        body();
    });
    compare(
        "3. More kernel threads than processors, and a lock",
        rounds,
        &[
            ("reference", &|| pool(each, false, TASKS, &calm)),
            ("pool, 8 threads a processor, spin lock", &|| pool(8 * each, false, TASKS, &spin)),
            ("pool, 8 threads a processor, std's mutex", &|| pool(8 * each, false, TASKS, &std)),
            ("fibers, the same spin lock", &|| fibers(false, TASKS, &spins)),
            ("fibers, their mutex", &|| fibers(false, TASKS, &fiber)),
            ("movable fibers, their mutex", &|| fibers(true, TASKS, &fiber)),
        ],
    );
    let _busy: Vec<_> = (0..each).map(|_| Busy::start()).collect();
    compare(
        "4. The holder of a lock is preempted: a busy process a processor beside",
        rounds,
        &[
            ("reference, beside the same", &|| pool(each, false, TASKS, &calm)),
            ("pool, 8 threads a processor, spin lock", &|| pool(8 * each, false, TASKS, &crowd)),
            ("pool, a thread a processor, spin lock", &|| pool(each, false, TASKS, &spin)),
            ("pool, a thread a processor, std's mutex", &|| pool(each, false, TASKS, &std)),
            ("fibers, their mutex", &|| fibers(false, TASKS, &fiber)),
            ("movable fibers, their mutex", &|| fibers(true, TASKS, &fiber)),
        ],
    );
}

fn idle(rounds: usize) {
    let each = processors();
    let long = task(|| compute(50_000));
    compare(
        "5. The wrong thread keeps the processor: who has no task looks for one",
        rounds,
        &[
            ("reference", &|| pool(each, false, each, &long)),
            ("pool, 2 threads a processor", &|| pool(2 * each, true, each, &long)),
            ("fibers", &|| fibers(false, each, &long)),
        ],
    );
}

fn main() {
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some("busy") {
        // Its parent may die.
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(120) {
            turns(1_000_000);
        }
        return;
    }
    let rounds = argument.and_then(|text| text.parse().ok()).unwrap_or(9);
    find_pace();
    kept(rounds);
    locked(rounds);
    idle(rounds);
    println!("seats taken: {}, upcalls: {}", ours().seats_taken(), ours().upcalls());
}
