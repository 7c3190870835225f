// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler, in a guest's kernel (`vm/test`). Counts and orderings, never times.

use std::collections::HashMap;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use abi::{Arena, Priority, RunState, Thread, Wish, state};
use bpf::scheduler::{self, Admission, Application, Config, Scheduler, State};
use bpf::{ARENA_SIZE, Enrolment};

/// One scheduler at a time, on the whole machine.
static ONE: Mutex<()> = Mutex::new(());

fn one() -> impl Drop {
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn long() -> bool {
    std::env::var_os("WAKEFUL_LONG").is_some()
}

fn kernel_state() -> String {
    std::fs::read_to_string("/sys/kernel/sched_ext/state").unwrap().trim().to_string()
}

/// Warnings in the kernel's log since the start.
fn warnings() -> Vec<String> {
    let log = Command::new("dmesg").output().unwrap();
    let text = String::from_utf8_lossy(&log.stdout).into_owned();
    let bad = ["WARNING:", "BUG:", "Oops", "Call Trace", "hung task", "soft lockup", "deprecated, use scx"];
    text.lines().filter(|line| bad.iter().any(|word| line.contains(word))).map(String::from).collect()
}

fn map(admission: &Admission) -> &'static Arena {
    use std::os::fd::AsRawFd;
    // SAFETY: a fresh mapping of a map that is as long.
    unsafe {
        let start = libc::mmap(
            std::ptr::null_mut(),
            ARENA_SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            admission.arena.as_raw_fd(),
            0,
        );
        assert_ne!(start, libc::MAP_FAILED);
        NonNull::new(start.cast()).unwrap().as_ref()
    }
}

fn block(arena: &'static Arena, index: u32) -> &'static Thread {
    // SAFETY: the blocks follow the header, and the arena is never unmapped.
    unsafe { &*std::ptr::from_ref(arena).add(1).cast::<Thread>().add(index as usize) }
}

/// The calling thread gets this block, and joins the scheduler, unless it is to be under the observer only.
fn enrolled(arena: &'static Arena, enrolment: Enrolment, index: u32, joins: bool) -> &'static Thread {
    let block = block(arena, index);
    block.lease.store(index, Relaxed);
    block.priority.store(Priority::Running as u32, Relaxed);
    if joins {
        scheduler::join().unwrap();
    }
    assert!(enrolment.attach(index, index), "thread {index} may not enrol");
    block
}

fn set_wish(block: &Thread, wish: Wish) {
    let _ = block.state.fetch_update(Relaxed, Relaxed, |word| Some(state::with_wish(word, wish)));
}

fn pin(processor: usize) {
    // SAFETY: an all-zero cpu_set_t is valid.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(120), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn processors() -> u32 {
    std::thread::available_parallelism().unwrap().get() as u32
}

fn work(turns: u32) {
    for turn in 0..turns {
        black_box(turn);
    }
}

fn yield_now() {
    std::thread::yield_now();
}

/// This process as an application: its threads from now on.
fn alone(scheduler: &Scheduler) -> (Admission, &'static Arena) {
    let admission = scheduler.prepare(1).unwrap();
    scheduler.admit(scheduler::pidfd(std::process::id()).unwrap().as_fd(), 1).unwrap();
    let arena = map(&admission);
    (admission, arena)
}

#[test]
#[ignore = "needs the guest: vm/test"]
fn guest_sched_comes_and_goes() {
    let _one = one();
    let scheduler = Scheduler::start(Config::default()).unwrap();
    assert_eq!(scheduler::in_charge().as_deref(), Some("wakeful"));
    assert_eq!(scheduler.state().unwrap(), State::Alive);
    assert!(matches!(Scheduler::start(Config::default()), Err(bpf::Error::Busy(name)) if name == "wakeful"));
    // COST: instructions that the verifier went through, a quarter more than Linux 7.2 did (12,073 for dispatch): growth is to be noticed, long before the limit of a million.
    const MOST: u32 = 15_000;
    for (name, instructions) in scheduler.verified().unwrap() {
        println!("{name}: {instructions} instructions verified");
        assert!(instructions > 0 && instructions < MOST, "{name}: {instructions}");
    }
    drop(scheduler);
    assert_eq!(kernel_state(), "disabled");
    assert_eq!(warnings(), [""; 0]);
}

#[test]
#[ignore = "needs the guest: vm/test"]
fn guest_sched_keeps_states_true() {
    let _one = one();
    let scheduler = Scheduler::start(Config::default()).unwrap();
    let (admission, arena) = alone(&scheduler);
    let enrolment = admission.enrolment();
    assert!(!enrolment.attach(1, 1), "this thread was there before");
    static STOP: AtomicBool = AtomicBool::new(false);
    static PARK: AtomicBool = AtomicBool::new(false);
    let busy: Vec<_> = [1u32, 2]
        .into_iter()
        .map(|index| {
            std::thread::spawn(move || {
                pin(0);
                let block = enrolled(arena, enrolment, index, true);
                block.priority.store(Priority::LockWaiter as u32, Relaxed);
                while !STOP.load(Relaxed) {
                    work(1000);
                    if PARK.load(Relaxed) && index == 1 {
                        std::thread::sleep(Duration::from_millis(50));
                    }
                }
                assert_eq!(block.run_state(), RunState::Running);
                assert_eq!(block.cpu.load(Relaxed), 0);
                enrolment.detach();
            })
        })
        .collect();
    let state = |index| block(arena, index).run_state();
    for index in [1, 2] {
        eventually("preempted", || state(index) == RunState::Preempted);
        eventually("running", || state(index) == RunState::Running);
    }
    let class = &arena.preempted[Priority::LockWaiter as usize];
    eventually("counted", || class.load(Relaxed) == 1);
    PARK.store(true, Relaxed);
    eventually("blocked", || state(1) == RunState::Blocked);
    assert_eq!(arena.scheduled.load(Relaxed), 1);
    eventually("the partition is all", || arena.partition.processors.load(Relaxed) == processors());
    assert_eq!(arena.partition.ids[0].load(Relaxed), (1 << processors()) - 1);
    assert!(arena.partition.threads_per_processor.load(Relaxed) > 0);
    eventually("not counted", || class.load(Relaxed) == 0);
    STOP.store(true, Relaxed);
    busy.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(arena.preempted.iter().all(|count| count.load(Relaxed) == 0), "a count is left over");
    drop(scheduler);
    assert_eq!(arena.scheduled.load(Relaxed), 0, "it says that it is gone");
    assert_eq!(arena.partition.processors.load(Relaxed), 0);
    assert!(block(arena, 2).preemptions.load(Relaxed) > 0);
}

/// Critical sections of 4 threads a processor, under the scheduler or not; preemptions in one, per million.
fn preempted_inside(arena: &'static Arena, enrolment: Enrolment, scheduled: bool, each: u64) -> f64 {
    let (lock, preempted) = (AtomicBool::new(false), AtomicU64::new(0));
    let threads = 4 * processors();
    std::thread::scope(|scope| {
        for index in 1..=threads {
            let (lock, preempted) = (&lock, &preempted);
            scope.spawn(move || {
                let block = enrolled(arena, enrolment, index, scheduled);
                let wish = |wish| set_wish(block, wish);
                for _ in 0..each {
                    loop {
                        wish(Wish::UnpreemptableSelf);
                        if !lock.swap(true, Acquire) {
                            break;
                        }
                        wish(Wish::Preemptable);
                        yield_now();
                    }
                    let before = block.preemptions.load(Relaxed);
                    work(300);
                    preempted.fetch_add(u64::from(block.preemptions.load(Relaxed) != before), Relaxed);
                    lock.store(false, Release);
                    wish(Wish::Preemptable);
                    if block.warning.load(Relaxed) != 0 {
                        yield_now();
                        assert_eq!(block.warning.load(Relaxed), 0, "yielding ends the warning");
                    }
                    work(300);
                }
            });
        }
    });
    preempted.load(Relaxed) as f64 * 1e6 / (each * threads as u64) as f64
}

#[test]
#[ignore = "needs the guest: vm/test --long"]
fn guest_exact_sched_does_not_preempt_holders() {
    let _one = one();
    let each = 100_000;
    let observer = bpf::Observer::load().unwrap();
    let without = preempted_inside(observer.arena().unwrap(), observer.enrolment(), false, each);
    drop(observer);
    let scheduler = Scheduler::start(Config::default()).unwrap();
    let (admission, arena) = alone(&scheduler);
    let with = preempted_inside(arena, admission.enrolment(), true, each);
    let application = scheduler.application(1).unwrap();
    println!(
        "holders preempted, per million sections: {without} without the scheduler, {with} with it; {application:?}"
    );
    assert!(application.extended > 0);
    assert!(without > 0.0 && without >= 50.0 * with, "{without} {with}");
}

/// A running application: a forked process with these threads, and its processor time when it is over.
struct Child(libc::pid_t);

impl Child {
    /// Forks; in the child `body` runs, once the parent has admitted it, and its process ends.
    fn start(scheduler: &Scheduler, slot: u32, body: impl FnOnce(Admission)) -> Self {
        let admission = scheduler.prepare(slot).unwrap();
        let mut ends = [0; 2];
        // SAFETY: the array has room for two.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        // SAFETY: the child uses the heap and threads, which glibc's fork keeps usable.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let mut byte = 0u8;
            // SAFETY: room for one.
            unsafe { libc::read(ends[0], (&raw mut byte).cast(), 1) };
            let ok = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(admission))).is_ok();
            // SAFETY: ends the process without running what belongs to the parent.
            unsafe { libc::_exit(if ok { 0 } else { 1 }) };
        }
        scheduler.admit(scheduler::pidfd(pid as u32).unwrap().as_fd(), slot).unwrap();
        // SAFETY: one byte, and descriptors of ours.
        unsafe {
            libc::write(ends[1], [0u8].as_ptr().cast(), 1);
            libc::close(ends[0]);
            libc::close(ends[1]);
        }
        Self(pid)
    }

    /// Its processor time in seconds; it must have ended well.
    fn wait(self) -> f64 {
        let mut status = 0;
        // SAFETY: zeros are a valid rusage; the pointers are valid.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            assert_eq!(libc::wait4(self.0, &mut status, 0, &mut usage), self.0);
            usage
        };
        assert_eq!(status, 0, "an application failed");
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        seconds(usage.ru_utime) + seconds(usage.ru_stime)
    }
}

/// When applications that are to be compared begin and end: by then they have all been started.
#[derive(Clone, Copy)]
struct Span(Instant, Instant);

impl Span {
    fn of(seconds: u64) -> Self {
        let begin = Instant::now() + Duration::from_secs(3);
        Self(begin, begin + Duration::from_secs(seconds))
    }

    fn await_begin(self) {
        std::thread::sleep(self.0.saturating_duration_since(Instant::now()));
    }

    fn is_over(self) -> bool {
        Instant::now() >= self.1
    }
}

/// Two busy threads a processor, greedy or not.
fn busy(admission: Admission, greedy: bool, span: Span) {
    let arena = map(&admission);
    let enrolment = admission.enrolment();
    let threads = 2 * processors();
    let workers: Vec<_> = (1..=threads)
        .map(|index| {
            std::thread::spawn(move || {
                let block = enrolled(arena, enrolment, index, true);
                if greedy {
                    set_wish(block, Wish::UnpreemptableSelf);
                    block.priority.store(Priority::LockHolder as u32, Relaxed);
                }
                span.await_begin();
                while !span.is_over() {
                    work(1000);
                }
                // KE-3. Of a greedy one's arena we know nothing.
                if !greedy {
                    assert_eq!(arena.partition.processors.load(Relaxed), processors() / 2);
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
}

#[test]
#[ignore = "needs the guest: vm/test"]
fn guest_sched_shares_are_equal_whoever_wishes() {
    let _one = one();
    let scheduler = Scheduler::start(Config::default()).unwrap();
    let span = Span::of(if long() { 10 } else { 5 });
    let greedy = Child::start(&scheduler, 1, |admission| busy(admission, true, span));
    let modest = Child::start(&scheduler, 2, |admission| busy(admission, false, span));
    let (greedy, modest) = (greedy.wait(), modest.wait());
    let application = scheduler.application(1).unwrap();
    println!(
        "greedy {greedy} s, {application:?}\nmodest {modest} s, {:?}",
        scheduler.application(2).unwrap()
    );
    assert!(application.extended > 10 && application.refused > 10, "{application:?}");
    let ratio = greedy / modest;
    assert!((0.98..1.02).contains(&ratio), "{ratio}");
    scheduler.release(1).unwrap();
    scheduler.release(2).unwrap();
}

/// A process that has run under the scheduler for a while, unadmitted, becomes an application while it runs.
/// It brings nothing along, and leaves no count behind.
#[test]
#[ignore = "needs the guest: vm/test"]
fn guest_sched_keeps_count_of_who_joins_late() {
    let _one = one();
    let scheduler = Scheduler::start(Config::default()).unwrap();
    let admission = scheduler.prepare(1).unwrap();
    let arena = map(&admission);
    let enrolment = admission.enrolment();
    // SAFETY: the child works alone, and ends without running what belongs to the parent.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let fine = scheduler::join().is_ok() && {
            while block(arena, 1).lease.load(Relaxed) == 0 {
                work(1000);
            }
            enrolment.attach(1, 1)
        };
        work(1_000_000);
        // SAFETY: as above.
        unsafe { libc::_exit(if fine { 0 } else { 1 }) };
    }
    let had = |slot| scheduler.application(slot).unwrap();
    eventually("it has run unadmitted", || had(0).cpu_ns > 1_000_000_000);
    scheduler.admit(scheduler::pidfd(pid as u32).unwrap().as_fd(), 1).unwrap();
    block(arena, 1).lease.store(1, Relaxed);
    Child(pid).wait();
    println!("{:?}\n{:?}", had(0), had(1));
    assert_eq!((had(0).runnable, had(1).runnable), (0, 0));
    assert!((1..500_000_000).contains(&had(1).cpu_ns), "it is charged for what it had before");
    scheduler.release(1).unwrap();
}

#[test]
#[ignore = "needs the guest: vm/test"]
fn guest_sched_chooses_the_highest() {
    const TRACING: &str = "/sys/kernel/tracing";
    let write = |name: &str, text: &str| std::fs::write(format!("{TRACING}/{name}"), text).unwrap();
    let _one = one();
    let scheduler = Scheduler::start(Config { quantum_ns: 2_000_000, ..Config::default() }).unwrap();
    let (admission, arena) = alone(&scheduler);
    let enrolment = admission.enrolment();
    let stop = AtomicBool::new(false);
    let ids: Mutex<HashMap<u32, u32>> = Mutex::default();
    let wanted = if long() { 10_000 } else { 3_000 };
    write("buffer_size_kb", "32768");
    // The scheduler's own clock. The usual one goes apart from it where the emulator pauses.
    write("trace_clock", "mono");
    write("events/sched/sched_switch/enable", "1");
    write("events/sched/sched_wakeup/enable", "1");
    write("trace", "");
    let trace = std::thread::scope(|scope| {
        for index in 1..=10u32 {
            let (stop, ids) = (&stop, &ids);
            scope.spawn(move || {
                pin(0);
                let block = enrolled(arena, enrolment, index, true);
                let class = index % 5;
                block.priority.store(class, Relaxed);
                // SAFETY: no arguments.
                ids.lock().unwrap().insert(unsafe { libc::gettid() } as u32, class);
                let mut turn = index;
                while !stop.load(Relaxed) {
                    turn = turn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    work(turn >> 14);
                    match turn >> 8 & 3 {
                        // No yields, which are another's turn whoever stands how high; but quanta that end.
                        0 => work(1 << 20),
                        // The higher, the more asleep, so that the lower have their turn.
                        _ => {
                            std::thread::sleep(Duration::from_micros(u64::from(class * 1000 + (turn >> 20))))
                        }
                    }
                }
            });
        }
        let switches = || (1..=10).map(|index| block(arena, index).blocks.load(Relaxed)).sum::<u64>();
        eventually("enrolled", || ids.lock().unwrap().len() == 10);
        write("trace_marker", "everybody is here");
        let start = switches();
        eventually("switches", || switches() - start > wanted);
        write("tracing_on", "0");
        let mut text = String::new();
        std::fs::File::open(format!("{TRACING}/trace")).unwrap().read_to_string(&mut text).unwrap();
        stop.store(true, Relaxed);
        text
    });
    write("events/enable", "0");
    write("tracing_on", "1");
    let ids = ids.into_inner().unwrap();
    assert!(!trace.contains("LOST"), "the trace is not whole");
    // Who is queued, since when, in seconds; the text of the trace alone.
    let field = |line: &str, name: &str| -> Option<u32> {
        let rest = &line[line.find(name)? + name.len()..];
        rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
    };
    let mut queued: HashMap<u32, f64> = HashMap::new();
    let (mut checked, mut contested, mut overdue, mut settled) = (0, 0, 0, false);
    let (mut last, mut chosen) = (0, 0.0);
    let begun = trace.lines().skip_while(|line| !line.contains("everybody is here"));
    for line in begun.filter(|line| line.contains(" [000] ") && line.contains(": sched_")) {
        let at: f64 = line
            .split(": sched_")
            .next()
            .and_then(|head| head.split_whitespace().last())
            .unwrap()
            .parse()
            .unwrap();
        if line.contains(": sched_wakeup: ") {
            let pid = field(line, " pid=").unwrap();
            if ids.contains_key(&pid) {
                queued.entry(pid).or_insert(at);
            }
            continue;
        }
        if !line.contains(": sched_switch: ") {
            continue;
        }
        let (prev, next) = (field(line, " prev_pid=").unwrap(), field(line, " next_pid=").unwrap());
        // Whoever leaves while it could go on is queued again; it was, when the next one was chosen. Else it is not, although it may have been woken:
        // while it ran, on its way to sleep, which it then did not, until now.
        if ids.contains_key(&prev) {
            if line.contains(" prev_state=R") {
                queued.insert(prev, at)
            } else {
                queued.remove(&prev)
            };
        }
        let Some(&class) = ids.get(&next) else { continue };
        let since = queued.remove(&next);
        // Whom a task of another class had interrupted goes on with its quantum: nobody was chosen.
        let goes_on = std::mem::replace(&mut last, next) == next && prev != next;
        if goes_on {
            continue;
        }
        // From when on everybody has been seen once.
        settled |= queued.len() >= 3;
        // Who was queued before we looked has waited for we know not how long.
        let (true, Some(since)) = (settled, since) else { continue };
        checked += 1;
        contested += usize::from(queued.keys().any(|pid| ids[pid] < class));
        if let Some((higher, _)) = queued.iter().find(|(pid, _)| ids[pid] > class) {
            let waited = at - since;
            // The bound is 200 ms, from a moment before the wake-up is in the trace.
            const OVERDUE: f64 = 0.199;
            if waited < OVERDUE {
                let before: Vec<_> = trace.lines().take_while(|other| *other != line).collect();
                println!("{ids:?}\n{queued:?}\n{}", before[before.len().saturating_sub(30)..].join("\n"));
            }
            assert!(
                waited >= OVERDUE,
                "{next} of class {class} before {higher} of {}, after {waited} s:\n{line}",
                ids[higher]
            );
            // One each 25 ms. Between a choice and its switch in the trace another class may have run for some.
            assert!(
                at - chosen >= 0.020,
                "{next} after {waited} s, {} s after another:\n{line}",
                at - chosen
            );
            chosen = at;
            overdue += 1;
        }
    }
    println!(
        "{checked} choices, {contested} of them over somebody lower, {overdue} of one who had waited for too long"
    );
    assert!(checked as u64 > wanted / 2 && contested > 100, "{checked} {contested}");
}

#[test]
#[ignore = "needs the guest: vm/test"]
fn guest_sched_hands_off() {
    let _one = one();
    let scheduler = Scheduler::start(Config { quantum_ns: 100_000_000, ..Config::default() }).unwrap();
    let (admission, arena) = alone(&scheduler);
    let enrolment = admission.enrolment();
    let (turn, stop) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // Two threads on one processor pass a token; who gives it away lowers its priority and hands off.
        for index in [1, 2] {
            let (turn, stop) = (&turn, &stop);
            scope.spawn(move || {
                pin(0);
                let me = enrolled(arena, enrolment, index, true);
                let other = block(arena, 3 - index);
                while !stop.load(Relaxed) {
                    if turn.load(Acquire) % 2 != index % 2 {
                        yield_now();
                        continue;
                    }
                    other.priority.store(Priority::LockHolder as u32, Relaxed);
                    me.priority.store(Priority::LockWaiter as u32, Relaxed);
                    turn.fetch_add(1, Release);
                    yield_now();
                }
            });
        }
        eventually("turns", || turn.load(Relaxed) > 2000);
        stop.store(true, Relaxed);
    });
    let application = scheduler.application(1).unwrap();
    println!("{application:?}");
    assert!(application.handed > 500, "{application:?}");
}

/// Not a test of its own: the loader that the next one kills.
#[test]
fn child_loads_and_waits() {
    if std::env::var_os("WAKEFUL_TEST_LOADER").is_none() {
        return;
    }
    // Ahead of those who keep all processors busy: emulated ones are slow.
    // SAFETY: plain numbers.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
    let scheduler = Scheduler::start(Config::default()).unwrap();
    println!("loaded");
    std::thread::sleep(Duration::from_secs(600));
    drop(scheduler);
}

#[test]
#[ignore = "needs the guest: vm/test"]
fn guest_sched_killed_loader_harms_nobody() {
    let _one = one();
    let stop = AtomicBool::new(false);
    let counts: Vec<AtomicU64> = (0..3 * processors()).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for count in &counts {
            let stop = &stop;
            scope.spawn(move || {
                scheduler::join().unwrap();
                while !stop.load(Relaxed) {
                    work(10_000);
                    count.fetch_add(1, Relaxed);
                }
            });
        }
        for kill in 0..if long() { 100 } else { 5 } {
            let mut loader = Command::new("/proc/self/exe")
                .args(["--exact", "child_loads_and_waits", "--nocapture"])
                .env("WAKEFUL_TEST_LOADER", "1")
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(loader.stdout.take().unwrap()).lines();
            assert!(lines.map_while(Result::ok).any(|line| line.contains("loaded")), "the loader failed");
            assert_eq!(scheduler::in_charge().as_deref(), Some("wakeful"));
            let before: Vec<_> = counts.iter().map(|count| count.load(Relaxed)).collect();
            eventually("everybody has its turn", || {
                counts.iter().zip(&before).all(|(now, then)| now.load(Relaxed) > *then)
            });
            loader.kill().unwrap();
            loader.wait().unwrap();
            eventually("the kernel takes over", || kernel_state() == "disabled");
            println!("kill {kill}: everybody goes on");
        }
        let before: Vec<_> = counts.iter().map(|count| count.load(Relaxed)).collect();
        eventually("everybody goes on", || {
            counts.iter().zip(&before).all(|(now, then)| now.load(Relaxed) > *then)
        });
        stop.store(true, Relaxed);
    });
    assert_eq!(warnings(), [""; 0]);
}

#[test]
#[ignore = "needs the guest: vm/test"]
fn guest_sched_watchdog_ends_what_neglects() {
    let _one = one();
    let scheduler = Scheduler::start(Config { neglected: 1, ..Config::default() }).unwrap();
    let (admission, arena) = alone(&scheduler);
    let enrolment = admission.enrolment();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for index in 1..=2 * processors() {
            let stop = &stop;
            scope.spawn(move || {
                scheduler::join().unwrap();
                enrolment.attach(index, index);
                let _ = arena;
                while !stop.load(Relaxed) {
                    work(10_000);
                }
            });
        }
        eventually("the watchdog acts", || matches!(scheduler.state().unwrap(), State::Ended(_)));
        stop.store(true, Relaxed);
    });
    println!("{:?}", scheduler.state());
    assert!(matches!(scheduler.state().unwrap(), State::Ended(why) if why.contains("stall")));
    assert!(!enrolment.attach(1, 1), "nobody enrols with a dead scheduler");
    assert_eq!(warnings(), [""; 0]);
}

#[test]
#[ignore = "needs the guest: vm/test"]
fn guest_sched_hostile_arena_harms_its_owner_only() {
    let _one = one();
    let scheduler = Scheduler::start(Config::default()).unwrap();
    let span = Span::of(if long() { 20 } else { 4 });
    let hostile = Child::start(&scheduler, 1, |admission| {
        let arena = map(&admission);
        std::thread::spawn(move || {
            scheduler::join().unwrap();
            let start = std::ptr::from_ref(arena).cast::<AtomicU32>();
            let mut noise = 1u32;
            span.await_begin();
            while !span.is_over() {
                for at in 0..ARENA_SIZE / 4 {
                    noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    // SAFETY: inside the arena, whose words are atomics.
                    unsafe { &*start.add(at) }.store(noise >> (noise & 31), Relaxed);
                }
            }
        });
        busy(admission, true, span);
    });
    let modest = Child::start(&scheduler, 2, |admission| busy(admission, false, span));
    let (hostile, modest) = (hostile.wait(), modest.wait());
    println!("hostile {hostile} s, modest {modest} s");
    assert_eq!(scheduler.state().unwrap(), State::Alive);
    assert!(hostile < 1.2 * modest, "{hostile} {modest}");
    assert_eq!(warnings(), [""; 0]);
    assert_eq!(scheduler.application(2).map(|Application { extended, .. }| extended).unwrap(), 0);
}

#[test]
#[ignore = "needs the guest: vm/test"]
fn guest_sched_threads_come_and_go() {
    let _one = one();
    let scheduler = Scheduler::start(Config::default()).unwrap();
    let (admission, arena) = alone(&scheduler);
    let enrolment = admission.enrolment();
    let rounds = if long() { 2000 } else { 100 };
    let start = Instant::now();
    for round in 0..rounds {
        let threads: Vec<_> = (1..=16u32)
            .map(|index| {
                std::thread::spawn(move || {
                    let block = block(arena, index);
                    block.lease.store(round * 16 + index, Relaxed);
                    scheduler::join().unwrap();
                    assert!(enrolment.attach(index, round * 16 + index));
                    yield_now();
                    if index % 2 == 0 {
                        enrolment.detach();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
    println!("{} threads created and ended a second", (rounds * 16) as f64 / start.elapsed().as_secs_f64());
    eventually("no count", || arena.preempted.iter().all(|count| count.load(Relaxed) == 0));
    assert_eq!(scheduler.state().unwrap(), State::Alive);
    assert_eq!(warnings(), [""; 0]);
}
