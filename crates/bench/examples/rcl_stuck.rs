// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a section that does not get on costs other locks' sections of its `rcl` server.
//!
//! A client's every 100th section blocks for 10 ms, or faults on a page that comes after 10 ms, or waits,
//! awake, until another lock's section has set a flag. Another client's sections are measured: for each time
//! that a section was stuck, the longest of them. `rcl_stuck [times] [threads that serve]`; `WAKEFUL_VIEW`
//! as everywhere.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

use linux::Linux;
use platform::Platform;
use sync::delegate::{RclLock, RclServer};

const STUCK: Duration = Duration::from_millis(10);
const EVERY: usize = 100;

struct Bench {
    server: RclServer<Linux>,
    locks: [RclLock<Linux>; 2],
    /// A section of the first lock is stuck, so many times by now.
    stuck: AtomicUsize,
    flag: AtomicU32,
    stop: AtomicBool,
}

unsafe fn call<F: FnMut()>(context: *mut ()) {
    // SAFETY: `run` passes its closure, and waits.
    unsafe { (*context.cast::<F>())() };
}

impl Bench {
    fn run<F: FnMut()>(&self, lock: usize, mut section: F) {
        // SAFETY: no section here unwinds, or comes to its own lock.
        unsafe { self.server.run(&self.locks[lock], call::<F>, (&raw mut section).cast()) };
    }

    /// A client of the first lock: each [`EVERY`]th section is stuck.
    fn stick(&self, times: usize, how: &(dyn Fn(&Self) + Sync)) {
        for section in 0..times * EVERY {
            let sticks = section % EVERY == 0;
            self.run(0, || {
                if sticks {
                    self.stuck.fetch_add(1, Release);
                    how(self);
                }
            });
        }
        self.stop.store(true, Relaxed);
    }

    /// A client of the second: the longest section, in us, for each time that the first lock was stuck.
    fn measure(&self) -> Vec<f64> {
        let (mut longest, mut of) = (Vec::new(), 0);
        while !self.stop.load(Relaxed) {
            let begin = Instant::now();
            self.run(1, || self.flag.store(1, Release));
            let us = begin.elapsed().as_secs_f64() * 1e6;
            let now = self.stuck.load(Acquire);
            if now != of {
                of = now;
                longest.push(us);
            } else if let Some(last) = longest.last_mut().filter(|last| **last < us) {
                *last = us;
            }
        }
        longest
    }
}

/// Waits, awake, for a section of the second lock.
fn spin(bench: &Bench) {
    bench.flag.store(0, Relaxed);
    while bench.flag.load(Acquire) == 0 {
        std::hint::spin_loop();
    }
}

/// A page whose first touch takes 10 ms: a userfaultfd, served by a thread.
struct Slow {
    page: *mut u8,
    descriptor: i32,
}

// SAFETY: the page is touched in sections only.
unsafe impl Sync for Slow {}

const PAGE: usize = 4096;
const UFFD_USER_MODE_ONLY: i32 = 1;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_ZEROPAGE: u64 = 0xc020_aa04;

impl Slow {
    fn new() -> Option<Self> {
        // SAFETY: a fresh mapping and a fresh descriptor; the structures are those of linux/userfaultfd.h.
        unsafe {
            let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let page = libc::mmap(ptr::null_mut(), PAGE, libc::PROT_READ | libc::PROT_WRITE, private, -1, 0);
            let descriptor =
                libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | UFFD_USER_MODE_ONLY) as i32;
            let mut api = [0xaa_u64, 0, 0];
            let mut register = [page as u64, PAGE as u64, 1, 0];
            let fine = page != libc::MAP_FAILED
                && descriptor >= 0
                && libc::ioctl(descriptor, UFFDIO_API, &mut api) == 0
                && libc::ioctl(descriptor, UFFDIO_REGISTER, &mut register) == 0;
            fine.then_some(Self { page: page.cast(), descriptor })
        }
    }

    /// Serves one fault, late.
    fn serve(&self) {
        let mut message = [0_u64; 4];
        // SAFETY: 32 bytes are a message; the page is registered.
        unsafe {
            libc::read(self.descriptor, message.as_mut_ptr().cast(), 32);
            std::thread::sleep(STUCK);
            let mut zero = [self.page as u64, PAGE as u64, 0, 0];
            libc::ioctl(self.descriptor, UFFDIO_ZEROPAGE, &mut zero);
        }
    }

    fn touch(&self) {
        // SAFETY: our page; given back, it faults anew.
        unsafe {
            libc::madvise(self.page.cast(), PAGE, libc::MADV_DONTNEED);
            self.page.write_volatile(1);
        }
    }
}

fn bench(name: &str, times: usize, servers: usize, how: &(dyn Fn(&Bench) + Sync)) {
    let bench = Bench {
        server: RclServer::default(),
        locks: Default::default(),
        stuck: AtomicUsize::new(0),
        flag: AtomicU32::new(0),
        stop: AtomicBool::new(false),
    };
    let mut us = std::thread::scope(|scope| {
        for _ in 0..servers {
            scope.spawn(|| bench.server.serve());
        }
        let sticks = scope.spawn(|| bench.stick(times, how));
        let longest = bench.measure();
        sticks.join().expect("it does not panic");
        bench.server.close();
        longest
    });
    us.sort_by(f64::total_cmp);
    let at = |part: f64| us[((us.len() - 1) as f64 * part) as usize];
    println!(
        "{name}: stuck {} times; longest section of the other lock, us: median {:.0}, p90 {:.0}, max {:.0}",
        us.len(),
        at(0.5),
        at(0.9),
        at(1.0)
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|number| number.parse::<usize>().expect("a number"));
    let (times, servers) = (arguments.next().unwrap_or(100), arguments.next().unwrap_or(2));
    linux::init();
    Linux::register();
    println!("view {:?}, {servers} threads serve", linux::report().chosen);
    bench("blocks", times, servers, &|_| std::thread::sleep(STUCK));
    if servers > 1 {
        bench("spins", times, servers, &spin);
    }
    match Slow::new() {
        None => eprintln!("no userfaultfd here: nothing that faults is measured"),
        Some(slow) => std::thread::scope(|scope| {
            scope.spawn(|| (0..times).for_each(|_| slow.serve()));
            bench("faults", times, servers, &|_| slow.touch());
        }),
    }
}
