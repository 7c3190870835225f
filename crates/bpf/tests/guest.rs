// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler of all tasks beside the kernel's own, in a guest's kernel (`vm/test --long`): the share of a
//! program among ordinary processes, and how late they wake. Ratios within one guest, with generous bounds.

use std::os::fd::AsFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bpf::scheduler::{self, Config, Scheduler, Scope, State};

/// One at a time, on the whole machine.
static ONE: Mutex<()> = Mutex::new(());

fn one() -> impl Drop {
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn processors() -> usize {
    std::thread::available_parallelism().unwrap().get()
}

fn start() -> Scheduler {
    Scheduler::start(Config { scope: Scope::All, quantum_ns: 3_000_000, ..Config::default() }).unwrap()
}

/// When those that are to be compared begin and end.
#[derive(Clone, Copy)]
struct Span(Instant, Instant);

impl Span {
    fn of(seconds: u64) -> Self {
        let begin = Instant::now() + Duration::from_secs(1);
        Self(begin, begin + Duration::from_secs(seconds))
    }

    fn work(self) {
        std::thread::sleep(self.0.saturating_duration_since(Instant::now()));
        while Instant::now() < self.1 {
            (0..1000).for_each(|turn| {
                std::hint::black_box(turn);
            });
        }
    }
}

/// A forked process.
struct Child(libc::pid_t);

impl Child {
    /// In the child `body` runs, once `admit` has been called with the child.
    fn start(admit: impl FnOnce(u32), body: impl FnOnce()) -> Self {
        let mut ends = [0; 2];
        // SAFETY: the array has room for two.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        // SAFETY: the child uses the heap and threads, which glibc's fork keeps usable.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let mut byte = 0u8;
            // SAFETY: room for one.
            unsafe { libc::read(ends[0], (&raw mut byte).cast(), 1) };
            let ok = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_ok();
            // SAFETY: ends the process without running what belongs to the parent.
            unsafe { libc::_exit(i32::from(!ok)) };
        }
        admit(pid as u32);
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
        assert_eq!(status, 0, "a process failed");
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        seconds(usage.ru_utime) + seconds(usage.ru_stime)
    }
}

/// A program of so many busy threads; taken in, if there is a scheduler.
fn program(scheduler: Option<&Scheduler>, threads: usize, span: Span) -> Child {
    let admit = |pid| {
        if let Some(scheduler) = scheduler {
            scheduler.prepare(1).unwrap();
            scheduler.admit(scheduler::pidfd(pid).unwrap().as_fd(), 1).unwrap();
        }
    };
    let scheduled = scheduler.is_some();
    Child::start(admit, move || {
        if scheduled {
            scheduler::join().unwrap();
        }
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(move || span.work()))));
    })
}

/// The program's part of the processor time, beside so many busy processes.
fn share(scheduler: Option<&Scheduler>, threads: usize, others: usize, seconds: u64) -> f64 {
    let span = Span::of(seconds);
    let program = program(scheduler, threads, span);
    let others: Vec<_> = (0..others).map(|_| Child::start(|_| (), move || span.work())).collect();
    let had = program.wait();
    let rest: f64 = others.into_iter().map(Child::wait).sum();
    if let Some(scheduler) = scheduler {
        scheduler.release(1).unwrap();
    }
    had / (had + rest)
}

#[test]
#[ignore = "needs the guest: vm/test --long"]
fn guest_sched_of_all_leaves_the_share_as_it_was() {
    let _one = one();
    for (threads, busy) in [(1, 1), (1, 2), (2, 1), (2, 2), (4, 1), (4, 2)] {
        let (threads, others) = (threads * processors(), busy * processors());
        let kernels = share(None, threads, others, 6);
        let scheduler = start();
        let ours = share(Some(&scheduler), threads, others, 6);
        assert_eq!(scheduler.state().unwrap(), State::Alive);
        let ratio = ours / kernels;
        println!("{threads} threads beside {others} processes: {kernels:.4} and {ours:.4}, {ratio:.3} of it");
        assert!((0.95..1.05).contains(&ratio), "{ratio}");
    }
}

/// The calling thread's processor time, seconds.
fn own_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// How late who sleeps for 5 ms wakes beside a program and so many busy processes, ms: sorted.
fn late(scheduler: Option<&Scheduler>, others: usize, bound: bool) -> Vec<f64> {
    const TIMES: usize = 800;
    let span = Span::of(TIMES as u64 / 100);
    let program = program(scheduler, 2 * processors(), span);
    let others: Vec<_> = (0..others).map(|_| Child::start(|_| (), move || span.work())).collect();
    std::thread::sleep(span.0.saturating_duration_since(Instant::now()));
    let sleeper = std::thread::spawn(move || {
        if bound {
            // SAFETY: zeros are the empty set; the set is valid.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(0, &mut set);
                assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
            }
        }
        let mut all = Vec::with_capacity(TIMES);
        while Instant::now() < span.1 && all.len() < TIMES {
            let (before, used) = (Instant::now(), own_time());
            std::thread::sleep(Duration::from_millis(5));
            let late = before.elapsed().as_secs_f64() * 1e3 - 5.0;
            // Else it has waited for the emulator's other processor, as by a read of the clock.
            if own_time() - used < 0.5e-3 {
                all.push(late);
            }
        }
        all
    });
    let mut all = sleeper.join().unwrap();
    program.wait();
    others.into_iter().map(Child::wait).for_each(|_| ());
    if let Some(scheduler) = scheduler {
        scheduler.release(1).unwrap();
    }
    all.sort_by(f64::total_cmp);
    all
}

#[test]
#[ignore = "needs the guest: vm/test --long"]
fn guest_sched_of_all_wakes_sleepers_as_soon() {
    let _one = one();
    for (busy, bound) in [(1, false), (2, false), (1, true), (2, true)] {
        let kernels = late(None, busy * processors(), bound);
        let scheduler = start();
        let ours = late(Some(&scheduler), busy * processors(), bound);
        assert_eq!(scheduler.state().unwrap(), State::Alive);
        let told = |all: &[f64]| (all[all.len() / 2], all[all.len() * 99 / 100], all[all.len() - 1]);
        println!(
            "{busy} busy, bound {bound}: median, 99 %, worst ms {:?} and {:?}",
            told(&kernels),
            told(&ours)
        );
        let ((median, most, worst), (our_median, our_most, our_worst)) = (told(&kernels), told(&ours));
        assert!(kernels.len() > 400 && ours.len() > 400, "{} {}", kernels.len(), ours.len());
        // What is less than a tick tells of the emulator.
        assert!(our_median <= 2.0 * median.max(0.5) && our_most <= 2.0 * most.max(1.0));
        assert!(our_worst <= 2.0 * worst.max(5.0));
    }
}
