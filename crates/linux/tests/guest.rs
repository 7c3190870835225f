// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program hears from the scheduler, in a guest's kernel (`vm/test --long`).
#![cfg(feature = "bpf")]

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bpf::scheduler::{self, Config, Scheduler};
use linux::Linux;
use platform::{Platform, RunState};

fn processors() -> u32 {
    std::thread::available_parallelism().unwrap().get() as u32
}

/// This test again, as a process of its own that a scheduler has taken in: what the locks of an unmodified
/// program do must be enough for the scheduler to hear of its threads.
struct Lazy;

impl Lazy {
    const NAME: &str = "guest_sched_threads_are_heard_that_wait_once";

    /// In the child: a thread that waits registers lazily, once.
    fn body() {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        linux::prepare();
        scheduler::join().unwrap();
        assert!(!Linux::hands_off(), "nobody has enrolled");
        for _ in 0..2 {
            let thread = std::thread::spawn(|| {
                let me = Linux::register_lazily();
                assert_eq!(Linux::run_state(me), RunState::Running);
                assert!(Linux::hands_off(), "the scheduler acts on what the threads say");
            });
            thread.join().unwrap();
        }
    }
}

#[test]
#[ignore = "needs the guest: vm/test --long"]
fn guest_sched_threads_are_heard_that_wait_once() {
    if std::env::var_os(Busy::INSIDE).is_some() {
        return Lazy::body();
    }
    let scheduler = Scheduler::start(Config::default()).unwrap();
    let mut child = start(&scheduler, 1, Lazy::NAME);
    writeln!(child.stdin.as_mut().unwrap()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// A test of this program in a process of its own, which is the application of a slot.
fn start(scheduler: &Scheduler, slot: u32, name: &str) -> Child {
    let admission = scheduler.prepare(slot).unwrap();
    let child = Command::new("/proc/self/exe")
        .args(["--exact", name, "--nocapture", "--include-ignored"])
        .env(Busy::INSIDE, "1")
        .env(linux::environment::OBSERVER.name(), admission.hand_over().unwrap().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    scheduler.admit(scheduler::pidfd(child.id()).unwrap().as_fd(), slot).unwrap();
    child
}

/// An application of the next test, busy on all processors: told a number, it answers when it has so many.
struct Busy(Child);

impl Busy {
    const NAME: &str = "guest_sched_programs_know_their_processors";
    const INSIDE: &str = "WAKEFUL_TEST_INSIDE";

    fn start(scheduler: &Scheduler, slot: u32) -> Self {
        Self(start(scheduler, slot, Self::NAME))
    }

    fn comes_to_have(&mut self, count: u32) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{count}").unwrap();
        let mut lines = BufReader::new(self.0.stdout.as_mut().unwrap()).lines();
        let answer = format!("has {count}");
        assert!(lines.any(|line| line.unwrap().ends_with(&answer)), "it never had {count}");
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }

    /// In the child.
    fn body() {
        let mut lines = std::io::stdin().lines();
        let mut next = || lines.next().map(|line| line.unwrap().parse::<u32>().unwrap());
        let mut wanted = next();
        // Admitted by now.
        linux::prepare();
        scheduler::join().unwrap();
        for _ in 0..2 * processors() {
            std::thread::spawn(|| {
                Linux::register();
                loop {
                    black_box(());
                }
            });
        }
        while let Some(count) = wanted {
            let start = Instant::now();
            while Linux::processors() != count {
                assert!(start.elapsed() < Duration::from_secs(120), "{} processors", Linux::processors());
                std::thread::sleep(Duration::from_millis(20));
            }
            println!("has {count}");
            wanted = next();
        }
    }
}

#[test]
#[ignore = "needs the guest: vm/test --long"]
fn guest_sched_programs_know_their_processors() {
    if std::env::var_os(Busy::INSIDE).is_some() {
        return Busy::body();
    }
    let (all, scheduler) = (processors(), Scheduler::start(Config::default()).unwrap());
    assert!(all >= 2);
    let mut one = Busy::start(&scheduler, 1);
    one.comes_to_have(all);
    let mut two = Busy::start(&scheduler, 2);
    two.comes_to_have(all / 2);
    one.comes_to_have(all / 2);
    two.end();
    one.comes_to_have(all);
    one.end();
}
