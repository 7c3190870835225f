// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program of tokio's issue 4730 ("One bad task can halt all executor progress forever"): tasks that keep
//! their kernel thread for a second without an await, and requests beside them that take 20 ms.
//!
//! ```sh
//! cargo run --release -p wakeful-fiber --example bad_task -- compute 1
//! cargo run --release -p wakeful-fiber --example bad_task -- block 10
//! cargo run --release -p wakeful-fiber --example bad_task -- compute 4 low  # more than processors
//! ```

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fiber::futures::{block_on, spawn_async};
use fiber::{Priority, thread};

const REQUEST: Duration = Duration::from_millis(20);
const BAD: Duration = Duration::from_secs(1);

async fn handle_request() {
    // A fiber drives the future, so it may wait as one.
    thread::sleep(REQUEST);
}

/// What is wrong with it: it neither ends nor awaits.
async fn bad(computes: bool, stop: Arc<AtomicBool>) {
    while !stop.load(Relaxed) {
        thread::sleep(REQUEST);
        let begin = Instant::now();
        match computes {
            true => {
                while begin.elapsed() < BAD && !stop.load(Relaxed) {
                    spin_loop();
                }
            }
            false => std::thread::sleep(BAD),
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let computes = arguments.first().is_none_or(|kind| kind == "compute");
    let count: usize = arguments.get(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    let priority = match arguments.get(2).map(String::as_str) {
        Some("low") => Priority::Low,
        _ => Priority::Usual,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let start = |_| {
        let stop = stop.clone();
        let body = move || block_on(bad(computes, stop));
        thread::Builder::new().priority(priority).spawn(body).expect("a fiber starts")
    };
    let bad: Vec<_> = (0..count).map(start).collect();
    let requests = thread::spawn(|| {
        let (mut late, end) = (Vec::new(), Instant::now() + Duration::from_secs(5));
        while Instant::now() < end {
            let begin = Instant::now();
            spawn_async(handle_request()).join().expect("it does not panic");
            late.push(begin.elapsed().saturating_sub(REQUEST).as_secs_f64() * 1e3);
        }
        late
    });
    let mut late = requests.join().expect("it does not panic");
    stop.store(true, Relaxed);
    bad.into_iter().for_each(|task| task.join().expect("it does not panic"));
    late.sort_by(f64::total_cmp);
    let at = |part: f64| late[((late.len() - 1) as f64 * part) as usize];
    println!(
        "{} requests, late by ms: median {:.3}, 99 % {:.3}, most {:.3}",
        late.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
}
