// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fibers that only compute, more than there are processors: do they take as long as a kernel thread a
//! processor with the same work? Each fiber has turns of so many milliseconds, over 128 KiB of its own.
//! `whole`: it ends after one turn. `yield`: it yields after each. `barrier`: all meet after each.
//!
//! Fibers, fibers without activations, and a kernel thread a processor take turns. The ratio is the time of
//! fibers without activations (of the threads) by that of fibers, in each round. Busy processes beside them
//! are copies of this program.
//!
//! ```sh
//! # ms, fibers, turns, busy processes, rounds
//! cargo run --release -p wakeful-fiber --example compute -- yield 20 8 5 2 9
//! ```

use std::hint::black_box;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::Instant;

use fiber::sync::Barrier;
use fiber::{Activations, Config, Runtime, thread};

const LENGTH: usize = 16 << 10;

#[derive(Clone, Copy)]
struct Work {
    kind: &'static str,
    fibers: usize,
    turns: usize,
    passes: usize,
}

fn pass(data: &mut [f64]) {
    data.iter_mut().for_each(|x| *x = (*x * 1.000_1 + 0.5).sqrt());
}

fn turn(data: &mut [f64], passes: usize) {
    (0..passes).for_each(|_| pass(black_box(data)));
}

/// How many passes take a millisecond, where nobody disturbs them.
fn passes_a_ms() -> f64 {
    let mut data = vec![1.0; LENGTH];
    let seconds = (0..500).map(|_| {
        let begin = Instant::now();
        pass(black_box(&mut data));
        begin.elapsed().as_secs_f64()
    });
    1e-3 / seconds.fold(f64::INFINITY, f64::min)
}

fn by_fibers(runtime: &'static Runtime, work: Work) {
    let barrier = Arc::new(Barrier::new(work.fibers as u32));
    let start = |_| {
        let barrier = barrier.clone();
        let body = move || {
            let mut data = vec![1.0; LENGTH];
            for _ in 0..work.turns {
                turn(&mut data, work.passes);
                match work.kind {
                    "barrier" => _ = barrier.wait(),
                    "yield" => thread::yield_now(),
                    _ => {}
                }
            }
        };
        thread::Builder::new().runtime(runtime).spawn(body).expect("a fiber starts")
    };
    let all: Vec<_> = (0..work.fibers).map(start).collect();
    all.into_iter().for_each(|fiber| fiber.join().expect("it does not panic"));
}

/// Without the barrier: each takes the next piece of work.
fn by_threads(work: Work) {
    let (next, count) = (AtomicUsize::new(0), std::thread::available_parallelism().map_or(1, usize::from));
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                let mut data = vec![1.0; LENGTH];
                while next.fetch_add(1, Relaxed) < work.fibers * work.turns {
                    turn(&mut data, work.passes);
                }
            });
        }
    });
}

fn seconds(body: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    body();
    begin.elapsed().as_secs_f64()
}

fn spread(what: &str, mut values: Vec<f64>) {
    values.sort_by(f64::total_cmp);
    let (middle, last) = (values[values.len() / 2], values[values.len() - 1]);
    println!("{what:34} {middle:.3} ({:.3} to {last:.3})", values[0]);
}

fn busy(count: usize) -> Vec<Child> {
    let program = std::env::current_exe().expect("a program");
    (0..count).map(|_| Command::new(&program).arg("burn").spawn().expect("it starts")).collect()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let kind = match arguments.first().map(String::as_str) {
        Some("burn") => {
            let mut data = vec![1.0; LENGTH];
            // SAFETY: no pointers. It ends with its parent.
            while unsafe { libc::getppid() } != 1 {
                turn(&mut data, 100);
            }
            return;
        }
        Some("whole") => "whole",
        Some("barrier") => "barrier",
        _ => "yield",
    };
    let turns = if kind == "whole" { 1 } else { number(3, 5) };
    let passes = (number(1, 20) as f64 * passes_a_ms()) as usize;
    let work = Work { kind, fibers: number(2, 8), turns, passes };
    let start = |activations| Runtime::start(Config { activations, ..Config::default() }).expect("it starts");
    let (told, none) = (start(Activations::Told), start(Activations::None));
    let others = busy(number(4, 0));
    let (mut ours, mut without, mut threads) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..number(5, 9) {
        let mut times = [0.0; 3];
        for step in 0..3 {
            let who = (round + step) % 3;
            times[who] = seconds(|| match who {
                0 => by_fibers(told, work),
                1 => by_fibers(none, work),
                _ => by_threads(work),
            });
        }
        ours.push(times[0]);
        without.push(times[1] / times[0]);
        threads.push(times[2] / times[0]);
    }
    others.into_iter().for_each(|mut other| {
        other.kill().expect("it runs");
        other.wait().expect("it ends");
    });
    spread("fibers, s", ours);
    spread("without activations / fibers", without);
    spread("threads / fibers", threads);
    println!("{} seats went over", told.seats_taken());
}
