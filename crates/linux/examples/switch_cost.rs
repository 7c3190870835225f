// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a view costs a context switch: two threads on processor 0 pass a token through two eventfds, so that each pass is a
//! switch. Every measurement is a process of its own, since a process has one view; the views take turns in each round, and
//! each is compared with `none` of the same round.
//!
//!     cargo run --release -p wakeful-linux --features bpf --example switch_cost -- [ROUNDS] [MILLISECONDS]
//!
//! `foreign`: the threads have no view, but another process, idle, has the bpf one loaded. `shared-N`: the observer is a server's, and N
//! applications, of which all but the measured one sleep, are enrolled with it. `own-50`: 50 applications, each with an observer of its own. `none-50`:
//! 49 programs sleep beside, and nobody observes: what they cost by being there.
//! Root, for bpf. Data on stdout as CSV.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linux::Linux;
use platform::Platform;

#[derive(Clone, Copy, PartialEq)]
enum Observer {
    Absent,
    Own,
    Shared,
}
use Observer::*;

/// (name, value of WAKEFUL_VIEW, other applications, whose these have)
const CASES: [(&str, &str, u32, Observer); 8] = [
    ("none", "none", 0, Absent),
    ("none-50", "none", 49, Absent),
    ("perf", "perf", 0, Absent),
    ("bpf", "bpf", 0, Own),
    ("foreign", "none", 1, Own),
    ("shared-1", "bpf", 0, Shared),
    ("shared-50", "bpf", 49, Shared),
    ("own-50", "bpf", 49, Own),
];

fn pin() {
    // SAFETY: an all-zero cpu_set_t is valid.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

fn pass(event: i32) {
    let one = 1u64;
    // SAFETY: eight bytes.
    assert_eq!(unsafe { libc::write(event, (&raw const one).cast(), 8) }, 8);
}

fn take(event: i32) {
    let mut token = 0u64;
    // SAFETY: eight bytes.
    assert_eq!(unsafe { libc::read(event, (&raw mut token).cast(), 8) }, 8);
}

/// Nanoseconds a switch.
fn measure(view: &str, time: Duration) -> f64 {
    linux::init();
    let chosen = linux::report();
    // SAFETY: plain numbers.
    let (ping, pong) = unsafe { (libc::eventfd(0, libc::EFD_CLOEXEC), libc::eventfd(0, libc::EFD_CLOEXEC)) };
    let other = std::thread::spawn(move || {
        pin();
        Linux::register();
        loop {
            take(ping);
            pass(pong);
        }
    });
    pin();
    Linux::register();
    let round = |n: u32| {
        for _ in 0..n {
            pass(ping);
            take(pong);
        }
    };
    round(2000);
    let report = linux::report();
    let used = report.chosen.and_then(|used| report.views.iter().find(|status| status.view == used));
    let used = used.map_or("?", |status| status.name);
    assert_eq!(used, view, "this machine does not offer the view; {:?} {chosen:?}", report.init_error);
    let (start, mut passes) = (Instant::now(), 0);
    while start.elapsed() < time {
        round(1000);
        passes += 2000;
    }
    let ns = start.elapsed().as_nanos() as f64 / passes as f64;
    drop(other);
    ns
}

/// A process of this program, which begins when it gets a line.
fn child(view: &str, shared: &Option<bpf::shared::Observer>, slot: u32, arguments: &[&str]) -> Child {
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments).env("WAKEFUL_VIEW", view).stdin(Stdio::piped()).stdout(Stdio::piped());
    // Its descriptors are ours to close once it has inherited them.
    let admission =
        shared.as_ref().map(|observer| observer.slots().expect("slots").prepare(slot).expect("a slot"));
    if let Some(admission) = &admission {
        command
            .env(linux::environment::OBSERVER.name(), admission.hand_over().expect("a handle").to_string());
    }
    let mut child = command.spawn().expect("starting itself");
    if let Some(observer) = shared {
        let process = bpf::pidfd(child.id()).expect("a pidfd");
        observer.admit(process.as_fd(), slot).expect("admission");
    }
    child.stdin.as_mut().expect("piped").write_all(b"\n").expect("a line");
    child
}

fn line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
    line
}

fn quantile(sorted: &[f64], q: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(what) = arguments.first().filter(|argument| argument.starts_with("--")) {
        let _ = std::io::stdin().read(&mut [0]);
        if what == "--measure" {
            let time = Duration::from_millis(arguments[2].parse().expect("milliseconds"));
            println!("{}", measure(&arguments[1], time));
        } else {
            linux::init();
            Linux::register();
            println!("ready");
        }
        // Until the parent closes our stdin.
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    let number = |index: usize, default: u64| {
        arguments
            .get(index)
            .map_or(default, |text| text.parse().expect("usage: switch_cost [ROUNDS] [MILLISECONDS]"))
    };
    let (rounds, time) = (number(0, 15), number(1, 200));
    let mut ns = [const { Vec::new() }; CASES.len()];
    for round in 0..rounds as usize {
        for turn in 0..CASES.len() {
            let case = (round + turn) % CASES.len();
            let (name, view, others, observer) = CASES[case];
            let shared = (observer == Shared).then(|| bpf::shared::Observer::load().expect("an observer"));
            let theirs = if observer == Absent { "none" } else { "bpf" };
            let mut idle: Vec<_> =
                (0..others).map(|other| child(theirs, &shared, 2 + other, &["--idle"])).collect();
            assert!(idle.iter_mut().all(|idle| line(idle) == "ready\n"));
            let mut measured = child(view, &shared, 1, &["--measure", view, &time.to_string()]);
            let text = line(&mut measured);
            for mut process in idle.into_iter().chain([measured]) {
                drop(process.stdin.take());
                process.wait().expect("a process");
            }
            match text.trim().parse::<f64>() {
                Ok(value) => ns[case].push(value),
                Err(_) => {
                    eprintln!("{name}: not measured; it says above why");
                    std::process::exit(1);
                }
            }
        }
    }
    println!(
        "case,rounds,switch_ns_median,more_ns_median,ratio_median,ratio_q25,ratio_q75,ratio_min,ratio_max"
    );
    for (case, (name, ..)) in CASES.iter().enumerate() {
        let sorted = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values
        };
        let ratios = sorted(ns[case].iter().zip(&ns[0]).map(|(a, b)| a / b).collect());
        let more = sorted(ns[case].iter().zip(&ns[0]).map(|(a, b)| a - b).collect());
        let own = sorted(ns[case].clone());
        let q = |at| quantile(&ratios, at);
        println!(
            "{name},{rounds},{:.0},{:.0},{:.3},{:.3},{:.3},{:.3},{:.3}",
            quantile(&own, 0.5),
            quantile(&more, 0.5),
            q(0.5),
            q(0.25),
            q(0.75),
            q(0.0),
            q(1.0)
        );
    }
}
