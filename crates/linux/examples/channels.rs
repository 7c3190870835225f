// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long after a thread's last instruction before it blocks does a *watcher* run that hears of it? By each
//! channel, taking turns in one run, without anything else:
//!
//! - `epoll`: the event of `upcall.rs`, in epoll;
//! - `poll`: the same, without epoll;
//! - `signal`: the same, as a signal to the watcher (F_SETOWN_EX, F_SETSIG, Linux 6.10), which waits for it;
//! - `observer`: an eBPF program at each switch (root), which tells of blocks only, by its ring buffer in
//!   epoll;
//! - `memory`: nobody is woken: the watcher reads the record of the event of `upcall.rs` in memory, again and
//!   again. Only from another processor, which it keeps awake itself.
//!
//! The watcher is on the same processor, on another one that idles, or on another one that is kept awake by a
//! thread of the lowest priority. It is SCHED_BATCH, as a sentinel of the fibers is.
//!
//! The thread computes before it blocks. The event of `upcall.rs` also tells that it came back from the block
//! before. Else that word, some us earlier, would have woken the watcher already (`at-once` shows it).
//!
//! ```sh
//! cargo run --release -p wakeful-linux --example channels -- 2000
//! cargo run --release -p wakeful-linux --example channels -- 2000 epoll signal  # two of them
//! cargo run --release -p wakeful-linux --example channels -- 2000 at-once
//! ```

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use linux::upcall::Upcall;

const CHANNELS: [&str; 5] = ["epoll", "poll", "signal", "observer", "memory"];
const PLACES: [&str; 3] = ["the same processor", "another, which idles", "another, kept awake"];
/// Blocks a turn.
const TURN: usize = 100;
/// So long the thread computes before it blocks: the watcher sleeps again by then.
const COMPUTES_NS: u64 = 200_000;

fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives across the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A thread with a name, by which a trace finds it.
fn start<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::thread::JoinHandle<T> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).expect("a thread starts")
}

/// The calling thread stays on the n-th of its processors.
fn pin(number: usize) {
    // SAFETY: zeros are a valid set; the set lives across the calls.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        let processor =
            (0..1024).filter(|&at| libc::CPU_ISSET(at, &set)).nth(number).expect("two processors");
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(processor, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

fn set_policy(policy: i32) {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure lives across the call.
    assert_eq!(unsafe { libc::sched_setscheduler(0, policy, &parameter) }, 0);
}

/// A program in the kernel that tells of one thread's blocks.
mod observer {
    use std::io;
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::sync::atomic::{AtomicU64, Ordering::*};

    const PAGE: usize = 4096;
    const RING_BUFFER: u32 = 27;
    const RAW_TRACEPOINT: u32 = 17;

    pub struct Observer {
        pub ring: i32,
        /// Two pages of the kernel's, how far was read and written, and the records.
        pages: [*mut u8; 2],
        _descriptors: [OwnedFd; 3],
    }

    fn bpf(command: i32, attributes: &mut [u64; 18]) -> io::Result<OwnedFd> {
        // SAFETY: the attributes live across the call; what they point to does, by the callers.
        let number = unsafe {
            libc::syscall(libc::SYS_bpf, command, attributes.as_mut_ptr(), size_of_val(attributes))
        };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fresh, and nobody else's.
        Ok(unsafe { OwnedFd::from_raw_fd(number as i32) })
    }

    /// One instruction.
    const fn word(code: u8, to: u8, from: u8, offset: i16, value: i32) -> u64 {
        code as u64
            | (to as u64 | (from as u64) << 4) << 8
            | (offset as u16 as u64) << 16
            | (value as u32 as u64) << 32
    }

    impl Observer {
        pub fn of(thread: i32) -> io::Result<Self> {
            use std::os::fd::AsRawFd;
            let mut map = [0; 18];
            (map[0], map[1]) = (u64::from(RING_BUFFER), (PAGE as u64) << 32);
            let map = bpf(0, &mut map)?;
            // `sched_switch`: preempted, the thread that leaves, the next one, the state of the first.
            let program = [
                word(0xbf, 6, 1, 0, 0),               // r6 = the arguments
                word(0x85, 0, 0, 0, 14),              // r0 = process and thread
                word(0x56, 0, 0, 14, thread),         // another thread: to the end
                word(0x79, 1, 6, 0, 0),               // r1 = preempted
                word(0x56, 1, 0, 12, 0),              // it is: to the end
                word(0x79, 1, 6, 24, 0),              // r1 = its state
                word(0x16, 1, 0, 10, 0),              // it is ready: to the end
                word(0x85, 0, 0, 0, 5),               // r0 = the time
                word(0x7b, 10, 0, -8, 0),             // on the stack
                word(0x18, 1, 1, 0, map.as_raw_fd()), // r1 = the ring
                0,
                word(0xbf, 2, 10, 0, 0), // r2 = the record
                word(0x07, 2, 0, 0, -8),
                word(0xb7, 3, 0, 0, 8),   // r3 = its size
                word(0xb7, 4, 0, 0, 2),   // r4 = wake
                word(0x85, 0, 0, 0, 130), // into the ring
                word(0xb7, 0, 0, 0, 0),
                word(0x95, 0, 0, 0, 0),
            ];
            let mut load = [0; 18];
            load[0] = u64::from(RAW_TRACEPOINT) | (program.len() as u64) << 32;
            load[1] = program.as_ptr().expose_provenance() as u64;
            load[2] = c"Dual MIT/GPL".as_ptr().expose_provenance() as u64;
            let program = bpf(5, &mut load)?;
            let mut attach = [0; 18];
            attach[0] = c"sched_switch".as_ptr().expose_provenance() as u64;
            attach[1] = program.as_raw_fd() as u64;
            let link = bpf(17, &mut attach)?;
            let page = |at: usize, pages: usize, access| {
                let (none, shared) = (std::ptr::null_mut(), libc::MAP_SHARED);
                // SAFETY: a fresh mapping of the ring.
                let page = unsafe {
                    libc::mmap(none, pages * PAGE, access, shared, map.as_raw_fd(), (at * PAGE) as i64)
                };
                if page == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(page.cast()) }
            };
            let pages = [page(0, 1, libc::PROT_READ | libc::PROT_WRITE)?, page(1, 2, libc::PROT_READ)?];
            Ok(Self { ring: map.as_raw_fd(), pages, _descriptors: [map, program, link] })
        }

        /// Reads all records: each has a header of 8 bytes and the time of a block. The newest one's time.
        pub fn newest(&self) -> u64 {
            // SAFETY: mapped until this is dropped; the offsets are within.
            unsafe {
                let written = (*self.pages[1].cast::<AtomicU64>()).load(Acquire);
                (*self.pages[0].cast::<AtomicU64>()).store(written, Release);
                let at = (written as usize).wrapping_sub(8) % PAGE;
                (*self.pages[1].add(PAGE + at).cast::<AtomicU64>()).load(Relaxed)
            }
        }
    }

    impl Drop for Observer {
        fn drop(&mut self) {
            // SAFETY: ours, and nobody uses them any more.
            unsafe {
                libc::munmap(self.pages[0].cast(), PAGE);
                libc::munmap(self.pages[1].cast(), 2 * PAGE);
            }
        }
    }
}

/// How a watcher waits.
enum Channel {
    Epoll(i32),
    Poll(i32),
    Signal(libc::sigset_t),
    Observer(i32, observer::Observer),
    Memory,
}

fn epoll(descriptor: i32, events: i32) -> i32 {
    let mut event = libc::epoll_event { events: events as u32, u64: 0 };
    // SAFETY: the event lives across the call.
    unsafe {
        let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        assert_eq!(libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, descriptor, &mut event), 0);
        epoll
    }
}

impl Channel {
    fn open(name: &str, upcall: &Upcall, thread: i32) -> Result<Self, std::io::Error> {
        Ok(match name {
            "poll" => Self::Poll(upcall.descriptor()),
            "memory" => Self::Memory,
            "signal" => Self::Signal(ask_for_signals(upcall.descriptor())),
            "observer" => {
                let observer = observer::Observer::of(thread)?;
                Self::Observer(epoll(observer.ring, libc::EPOLLIN), observer)
            }
            _ => Self::Epoll(epoll(upcall.descriptor(), libc::EPOLLIN | libc::EPOLLET)),
        })
    }

    /// Waits for a word, at most for 20 ms.
    fn wait(&self) -> bool {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: what the calls read and write lives across them.
        unsafe {
            match self {
                Self::Epoll(epoll) | Self::Observer(epoll, _) => {
                    libc::epoll_wait(*epoll, &mut event, 1, 20) > 0
                }
                Self::Poll(descriptor) => {
                    let mut polled = libc::pollfd { fd: *descriptor, events: libc::POLLIN, revents: 0 };
                    libc::poll(&mut polled, 1, 20) > 0
                }
                Self::Signal(set) => {
                    let limit = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };
                    libc::sigtimedwait(set, std::ptr::null_mut(), &limit) > 0
                }
                Self::Memory => true,
            }
        }
    }
}

/// Each record sends the calling thread a signal, which it does not handle.
fn ask_for_signals(descriptor: i32) -> libc::sigset_t {
    #[repr(C)]
    struct Owner(i32, i32);
    const F_SETSIG: i32 = 10;
    const F_SETOWN_EX: i32 = 15;
    // SAFETY: the set and the owner live across the calls.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGRTMIN() + 3);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        assert_eq!(libc::fcntl(descriptor, F_SETOWN_EX, &Owner(0, libc::gettid())), 0);
        assert_eq!(libc::fcntl(descriptor, F_SETSIG, libc::SIGRTMIN() + 3), 0);
        assert_eq!(libc::fcntl(descriptor, libc::F_SETFL, libc::O_ASYNC), 0);
        set
    }
}

/// What the thread that blocks and its watcher share.
#[derive(Default)]
struct Shared {
    upcall: OnceLock<Upcall>,
    thread: AtomicI32,
    ready: AtomicBool,
    /// The event of `upcall.rs` is not needed.
    observed: AtomicBool,
    /// It does not compute before it blocks.
    at_once: AtomicBool,
    /// When it was about to block; 0: it was heard of.
    since: AtomicU64,
    done: AtomicBool,
}

/// Blocks again and again, until a watcher lets it go on.
fn block(shared: &Shared, mut reader: std::io::PipeReader) {
    pin(0);
    let upcall = Upcall::open().expect("events of perf: see wakeful doctor");
    if !shared.observed.load(Relaxed) {
        assert!(upcall.enable());
    }
    // SAFETY: no arguments.
    shared.thread.store(unsafe { libc::gettid() }, Relaxed);
    shared.upcall.set(upcall).expect("set once");
    while !shared.ready.load(Acquire) {
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..TURN {
        std::thread::sleep(Duration::from_micros(200));
        let back = now_ns();
        while !shared.at_once.load(Relaxed) && now_ns() < back + COMPUTES_NS {
            std::hint::spin_loop();
        }
        shared.since.store(now_ns(), Release);
        reader.read_exact(&mut [0]).expect("it is written");
    }
    shared.done.store(true, Release);
}

/// One turn: latencies in us; `None` if there is no such channel.
fn turn(channel: &str, place: usize, at_once: bool) -> Option<Vec<f64>> {
    let shared = Arc::new(Shared::default());
    shared.at_once.store(at_once, Relaxed);
    shared.observed.store(channel == "observer", Relaxed);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let ours = shared.clone();
    let blocks = start("blocks", move || block(&ours, reader));
    let stop = Arc::new(AtomicBool::new(false));
    let its = stop.clone();
    let awake = (place == 2 && channel != "memory").then(|| {
        start("awake", move || {
            pin(1);
            set_policy(libc::SCHED_IDLE);
            while !its.load(Relaxed) {
                std::hint::spin_loop();
            }
        })
    });
    pin(usize::from(place != 0));
    set_policy(libc::SCHED_BATCH);
    let upcall = loop {
        match shared.upcall.get() {
            Some(upcall) => break upcall,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let opened = Channel::open(channel, upcall, shared.thread.load(Relaxed));
    if let Err(error) = &opened {
        eprintln!("{channel}: {error}");
    }
    let mut latencies = Vec::new();
    shared.ready.store(true, Release);
    while !shared.done.load(Acquire) {
        let heard = opened.as_ref().is_ok_and(Channel::wait);
        let mut now = now_ns();
        let since = shared.since.load(Acquire);
        // Or a record of a sleep before it.
        let blocked = match &opened {
            Ok(Channel::Observer(_, observer)) => observer.newest() >= since,
            _ => upcall.blocked_at().is_some_and(|at| at >= since),
        };
        if matches!(opened, Ok(Channel::Memory)) {
            now = now_ns();
        }
        if since == 0 || opened.is_ok() && !blocked {
            continue;
        }
        shared.since.store(0, Relaxed);
        if heard {
            latencies.push(now.saturating_sub(since) as f64 / 1000.0);
        }
        writer.write_all(b"x").expect("it is read");
    }
    stop.store(true, Relaxed);
    blocks.join().expect("it does not panic");
    awake.map(|awake| awake.join());
    opened.is_ok().then_some(latencies)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let blocks: usize = arguments.first().and_then(|text| text.parse().ok()).unwrap_or(1000);
    let has = |name: &&str| arguments.iter().any(|argument| argument == name);
    let at_once = has(&"at-once");
    let all = !CHANNELS.iter().any(&has);
    let channels: Vec<_> = CHANNELS.into_iter().filter(|name| all || has(name)).collect();
    let mut results = vec![[const { Vec::new() }; PLACES.len()]; channels.len()];
    for _ in 0..blocks.div_ceil(TURN) {
        for (channel, results) in channels.iter().zip(&mut results) {
            for (place, result) in results.iter_mut().enumerate() {
                if *channel == "memory" && place != 2 {
                    continue;
                }
                let name = (*channel).to_owned();
                // Its affinity and its policy are a thread's.
                let one = start("watcher", move || turn(&name, place, at_once));
                result.extend(one.join().expect("it does not panic").unwrap_or_default());
            }
        }
    }
    println!(
        "{:10} {:24} {:>7} {:>7} {:>7} {:>7} {:>7}  us",
        "", "", "blocks", "10 %", "median", "90 %", "99 %"
    );
    for (channel, results) in channels.iter().zip(&mut results) {
        for (place, result) in PLACES.iter().zip(results).filter(|(_, result)| !result.is_empty()) {
            result.sort_by(f64::total_cmp);
            let at = |part: f64| result[((result.len() - 1) as f64 * part) as usize];
            println!(
                "{channel:10} {place:24} {:7} {:7.1} {:7.1} {:7.1} {:7.1}",
                result.len(),
                at(0.1),
                at(0.5),
                at(0.9),
                at(0.99)
            );
        }
    }
}
