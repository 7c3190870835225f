// SPDX-License-Identifier: MIT OR Apache-2.0
//! Does a fiber wait for a processor while one of a lower priority has one? By a trace: the kernel's records
//! of who had which processor, and the fibers' own of when they became ready and ran.
//!
//! Low fibers that never wait have all processors. Some usual ones are made ready together, compute, and
//! park. A wait is *wrong* if low ones ran during it for longer than `LIMIT`: so long a switch may take. For
//! those it says what the waiting fiber's carrier did while a low one ran. A wait may be right at first, as
//! usual ones have all processors. So it also counts those in which a low one ran later than `LIMIT` after
//! their begin, but for less time. The status is 1 if at least half of the waits were wrong, 2 if the kernel
//! lets us have no records. One in a hundred is usual, and other programs make it more.
//!
//! ```sh
//! cargo run --release -p wakeful-fiber --example priority_trace -- low 1 500
//! cargo run --release -p wakeful-fiber --example priority_trace -- low 3 500 movable
//! cargo run --release -p wakeful-fiber --example priority_trace -- low 1 20 pinned all  # each decision
//! cargo run --release -p wakeful-fiber --example priority_trace -- one 1 100  # no priorities: it is found
//! # Equal ones with carriers of their own, and usual ones that compute for 2 ms.
//! cargo run --release -p wakeful-fiber --example priority_trace -- equal 2 100 movable long
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fiber::{Config, Priority, Runtime, thread};

const LIMIT_NS: u64 = 100_000;
/// How long a usual fiber computes each time, unless told otherwise.
const BUSY_NS: u64 = 100_000;
const PAGE: usize = 4096;
/// Of each ring, without its control page: room for 16,000 switches.
const PAGES: usize = 128;

fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives across the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn number() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::gettid() }
}

/// One thing that happened.
#[derive(Clone, Copy, Debug)]
enum What {
    /// This thread got the processor, or lost it; true: though it was ready.
    In(u32, i32),
    Out(u32, i32, bool),
    /// This usual fiber became ready; who made it so has done its part.
    Ready(usize),
    Told(usize),
    /// This usual fiber ran, on this thread, and has computed.
    Ran(usize, i32),
    Done(i32),
}

/// In the order of time.
type Trace = Vec<(u64, What)>;

/// The records of one processor, of the threads that the caller will start.
struct Ring(*mut u8);

impl Ring {
    /// `None`: the kernel does not let us.
    fn open(processor: u32) -> Option<Self> {
        // The first 96 bytes of `struct perf_event_attr`: an event that counts nothing, of threads that
        // are yet to begin, and that logs their switches (inherit, exclude_kernel, exclude_hv, sample_id_all,
        // use_clockid, context_switch), with the thread, the time by CLOCK_MONOTONIC, and the processor.
        const FLAGS: u64 = 1 << 1 | 1 << 5 | 1 << 6 | 1 << 18 | 1 << 25 | 1 << 26;
        const TID_TIME_CPU: u64 = 1 << 1 | 1 << 2 | 1 << 7;
        let attr: [u64; 12] = [1 | 96 << 32, 9, 0, TID_TIME_CPU, 0, FLAGS, 0, 0, 0, 0, 0, 1 << 32];
        // SAFETY: of the size that it states; a fresh mapping of a descriptor of ours.
        unsafe {
            let event = libc::syscall(libc::SYS_perf_event_open, &attr, 0, processor, -1, 8) as i32;
            let (size, access) = (PAGE * (PAGES + 1), libc::PROT_READ | libc::PROT_WRITE);
            let base = libc::mmap(std::ptr::null_mut(), size, access, libc::MAP_SHARED, event, 0);
            (event >= 0 && base != libc::MAP_FAILED).then_some(Self(base.cast()))
        }
    }

    /// All records, once nobody writes any more.
    fn read(&self, events: &mut Vec<(u64, What)>) {
        // SAFETY: inside the mapping; records lie at multiples of eight.
        let (head, word) = unsafe {
            let head = (*self.0.add(1024).cast::<AtomicU64>()).load(Acquire);
            (head, |at: u64| self.0.add(PAGE + at as usize % (PAGES * PAGE)).cast::<u64>().read())
        };
        assert!(head as usize <= PAGES * PAGE, "more records than there is room for: ask for fewer");
        let mut at = 0;
        while at < head {
            let header = word(at);
            let (kind, misc, size) = (header as u32, (header >> 32) as u16, header >> 48);
            if kind == 14 {
                let (thread, time, processor) =
                    ((word(at + 8) >> 32) as i32, word(at + 16), word(at + 24) as u32);
                let what = match misc & 0x2000 {
                    0 => What::In(processor, thread),
                    _ => What::Out(processor, thread, misc & 0x4000 != 0),
                };
                events.push((time, what));
            }
            at += size;
        }
    }
}

/// What the fibers say.
#[derive(Default)]
struct Said {
    events: Mutex<Vec<(u64, What)>>,
    /// The kernel threads of those that never wait.
    others: Mutex<HashSet<i32>>,
    stop: AtomicBool,
}

impl Said {
    fn note(&self, what: What) {
        let now = now_ns();
        self.events.lock().unwrap().push((now, what));
    }
}

/// They never wait, and have all processors. `one`: they are as the usual fibers, and yield each millisecond.
/// `equal`: they have carriers of their own, as usual as the others.
fn start_others(said: &Arc<Said>, kind: &str, count: u32) -> Vec<thread::JoinHandle<()>> {
    let one = kind == "one";
    let runtime = match kind {
        "one" => Runtime::default(),
        "equal" => Runtime::start(Config::default()),
        _ => Runtime::start(Config { priority: Priority::Low, ..Config::default() }),
    };
    let runtime = runtime.expect("a runtime starts");
    let spin = move |said: Arc<Said>| {
        said.others.lock().unwrap().insert(number());
        let mut since = now_ns();
        while !said.stop.load(Relaxed) {
            std::hint::spin_loop();
            if one && now_ns() > since + 1_000_000 {
                thread::yield_now();
                since = now_ns();
            }
        }
    };
    let start = |_| {
        let said = said.clone();
        thread::Builder::new().runtime(runtime).spawn(move || spin(said)).expect("a fiber starts")
    };
    let others = (0..count).map(start).collect();
    while said.others.lock().unwrap().len() < count as usize {
        std::thread::sleep(Duration::from_millis(1));
    }
    others
}

const PARKS: u32 = 0;
const TOLD: u32 = 1;
const COMPUTES: u32 = 2;

/// One of those that are made ready: told by this word, which says what it does.
fn usual(me: usize, said: &Said, word: &AtomicU32, busy_ns: u64) {
    loop {
        while word.compare_exchange(TOLD, COMPUTES, AcqRel, Relaxed).is_err() {
            if said.stop.load(Relaxed) {
                return;
            }
            thread::park();
        }
        said.note(What::Ran(me, number()));
        let until = now_ns() + busy_ns;
        while now_ns() < until {
            std::hint::spin_loop();
        }
        said.note(What::Done(number()));
        word.store(PARKS, Release);
    }
}

fn record(
    kind: &str,
    fibers: usize,
    times: usize,
    movable: bool,
    busy_ns: u64,
) -> Option<(Trace, HashSet<i32>)> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let rings: Vec<Ring> = (0..processors).map(Ring::open).collect::<Option<_>>()?;
    let said = Arc::new(Said::default());
    let others = start_others(&said, kind, processors);
    let usual: Vec<_> = (0..fibers)
        .map(|me| {
            let (said, told) = (said.clone(), Arc::new(AtomicU32::new(0)));
            let its = told.clone();
            let body = move || usual(me, &said, &its, busy_ns);
            let builder = thread::Builder::new();
            // SAFETY: it holds no reference to thread-local data where it parks.
            let fiber = if movable { unsafe { builder.spawn_movable(body) } } else { builder.spawn(body) };
            (fiber.expect("a fiber starts"), told)
        })
        .collect();
    let mut random = 1_u64;
    for _ in 0..times {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_micros(500 + (random >> 33) % 1000));
        for (me, (fiber, told)) in usual.iter().enumerate() {
            // One that has not come since, or not done, is told no second time.
            if told.load(Acquire) == PARKS {
                said.note(What::Ready(me));
                told.store(TOLD, Release);
                fiber.thread().unpark();
                said.note(What::Told(me));
            }
        }
    }
    std::thread::sleep(Duration::from_millis(20));
    said.stop.store(true, Relaxed);
    usual.iter().for_each(|(fiber, _)| fiber.thread().unpark());
    usual.into_iter().for_each(|(fiber, _)| fiber.join().expect("it does not panic"));
    others.into_iter().for_each(|other| other.join().expect("it does not panic"));
    let mut events = std::mem::take(&mut *said.events.lock().unwrap());
    rings.iter().for_each(|ring| ring.read(&mut events));
    events.sort_by_key(|&(time, _)| time);
    let others = said.others.lock().unwrap().clone();
    Some((events, others))
}

/// What the trace says of one wait.
#[derive(Clone, Copy, Debug)]
struct Waited {
    fiber: usize,
    since: u64,
    ns: u64,
    /// For how long a low one ran during it.
    low_ns: u64,
    /// When one did so last, from its begin. 0: none did.
    last_ns: u64,
    /// The carrier that ran it then.
    thread: i32,
}

fn waits(events: &[(u64, What)], others: &HashSet<i32>, all: bool) -> Vec<Waited> {
    let (mut low, mut waiting) = (HashMap::<u32, i32>::new(), BTreeMap::<usize, Waited>::new());
    let (mut done, mut before) = (Vec::new(), 0);
    for &(time, what) in events {
        // Until now each low one that had a processor ran.
        if !low.is_empty() {
            for wait in waiting.values_mut() {
                wait.last_ns = time - wait.since;
                wait.low_ns += time - before.max(wait.since);
            }
        }
        before = time;
        match what {
            What::In(processor, thread) if others.contains(&thread) => _ = low.insert(processor, thread),
            What::In(processor, _) | What::Out(processor, ..) => _ = low.remove(&processor),
            What::Ready(fiber) => {
                let wait = Waited { fiber, since: time, ns: 0, low_ns: 0, last_ns: 0, thread: 0 };
                waiting.insert(fiber, wait);
            }
            What::Ran(fiber, thread) => {
                if let Some(wait) = waiting.remove(&fiber) {
                    done.push(Waited { ns: time - wait.since, thread, ..wait });
                }
            }
            What::Told(_) | What::Done(_) => {}
        }
        if all && (!waiting.is_empty() || matches!(what, What::Ran(..))) {
            let since = |(fiber, wait): (&usize, &Waited)| format!("{fiber} for {} ns", time - wait.since);
            let waiting: Vec<_> = waiting.iter().map(since).collect();
            println!("{time} {what:?}: low ones run: {low:?}, usual ones wait: {waiting:?}");
        }
    }
    done
}

/// What the carrier did, that then ran the fiber, while a low one ran.
const CAUSES: [&str; 5] = [
    "was not told yet",
    "slept, or was in the kernel's queue",
    "was preempted",
    "ran another usual fiber",
    "ran, and had not come to it",
];

/// How long each cause held during this wait, while a low one ran.
fn causes(events: &[(u64, What)], others: &HashSet<i32>, wait: &Waited) -> [u64; CAUSES.len()] {
    let (mut low, mut ns) = (HashSet::new(), [0; CAUSES.len()]);
    let (mut told, mut before) = (false, wait.since);
    // Of its carrier: the processor that it has, was it preempted, does it run a usual fiber?
    let (mut here, mut preempted, mut busy) = (None, false, false);
    for &(time, what) in events.iter().take_while(|(time, _)| *time <= wait.since + wait.ns) {
        if time > wait.since && !low.is_empty() {
            let cause = match (told, here) {
                (false, _) => 0,
                (_, None) => 1 + usize::from(preempted),
                (_, Some(_)) => {
                    if busy {
                        3
                    } else {
                        4
                    }
                }
            };
            ns[cause] += time - before;
        }
        before = time.max(wait.since);
        match what {
            What::In(processor, thread) => {
                if others.contains(&thread) {
                    low.insert(processor);
                } else {
                    low.remove(&processor);
                }
                if thread == wait.thread {
                    here = Some(processor);
                }
            }
            What::Out(processor, thread, was_ready) => {
                low.remove(&processor);
                if thread == wait.thread {
                    (here, preempted) = (None, was_ready);
                }
            }
            What::Ready(fiber) if fiber == wait.fiber => told = false,
            What::Told(fiber) if fiber == wait.fiber => told = true,
            What::Ran(_, thread) if thread == wait.thread => busy = true,
            What::Done(thread) if thread == wait.thread => busy = false,
            _ => {}
        }
    }
    ns
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(or);
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let kind = arguments.first().map_or("low", String::as_str);
    let busy_ns = if has("long") { 20 * BUSY_NS } else { BUSY_NS };
    let Some((events, others)) = record(kind, number(1, 1), number(2, 500), has("movable"), busy_ns) else {
        eprintln!("the kernel lets us have no records: see wakeful doctor");
        return ExitCode::from(2);
    };
    let waits = waits(&events, &others, has("all"));
    let wrong: Vec<_> = waits.iter().filter(|wait| wait.low_ns > LIMIT_NS).collect();
    let us = |mut values: Vec<u64>, part: f64| {
        values.sort_unstable();
        values[((values.len() - 1) as f64 * part) as usize] as f64 / 1000.0
    };
    for (what, values) in [
        ("a usual fiber waited", waits.iter().map(|wait| wait.ns).collect::<Vec<_>>()),
        ("a low one ran for", waits.iter().map(|wait| wait.low_ns).collect()),
    ] {
        let at = |part| us(values.clone(), part);
        println!("{what:22} us: median {:.1}, 99 % {:.1}, most {:.1}", at(0.5), at(0.99), at(1.0));
    }
    let steered = Runtime::default().map_or(0, |runtime| runtime.carriers_steered());
    let carriers: HashSet<i32> = waits.iter().map(|wait| wait.thread).collect();
    let late = waits.iter().filter(|wait| wait.last_ns > LIMIT_NS && wait.low_ns <= LIMIT_NS).count();
    println!(
        "{} records, {} waits, {} of them wrong, and in {late} a low one ran late; {} carriers ran them, \
         {steered} times one was steered",
        events.len(),
        waits.len(),
        wrong.len(),
        carriers.len()
    );
    let mut counts = [(0, 0); CAUSES.len()];
    for wait in &wrong {
        let ns = causes(&events, &others, wait);
        let most = (0..ns.len()).max_by_key(|&cause| ns[cause]).unwrap_or(0);
        counts[most].0 += 1;
        counts[most].1 += ns[most];
    }
    for (cause, (count, ns)) in CAUSES.iter().zip(counts).filter(|(_, (count, _))| *count > 0) {
        println!(
            "  {count} times its carrier {cause}, for {:.1} us in the mean",
            ns as f64 / 1e3 / count as f64
        );
    }
    ExitCode::from(u8::from(wrong.len() * 2 >= waits.len()))
}
