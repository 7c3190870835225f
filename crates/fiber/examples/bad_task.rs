// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program of tokio's issue 4730 ("One bad task can halt all executor progress forever"): tasks that keep
//! their kernel thread for a second without an await, and requests beside them that take 20 ms.
//!
//! ```sh
//! cargo run --release -p wakeful-fiber --example bad_task -- compute 1
//! cargo run --release -p wakeful-fiber --example bad_task -- block 10
//! cargo run --release -p wakeful-fiber --example bad_task -- block 10 movable  # the requests may move
//! cargo run --release -p wakeful-fiber --example bad_task -- block 10 tasks  # they are tasks
//! cargo run --release -p wakeful-fiber --example bad_task -- compute 4 low  # more than processors
//! ```

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use fiber::futures::{block_on, sleep, spawn_async};
use fiber::{Priority, thread};

const REQUEST: Duration = Duration::from_millis(20);
const BAD: Duration = Duration::from_secs(1);

async fn handle_request() {
    // A fiber drives the future, so it may wait as one.
    thread::sleep(REQUEST);
}

/// What is wrong with it: it neither ends nor awaits.
async fn bad(computes: bool) {
    loop {
        thread::sleep(REQUEST);
        let begin = Instant::now();
        match computes {
            true => {
                while begin.elapsed() < BAD {
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
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let priority = if has("low") { Priority::Low } else { Priority::Usual };
    let (movable, tasks) = (has("movable"), has("tasks"));
    for _ in 0..count {
        let body = move || block_on(bad(computes));
        // It goes on by itself, until the process ends.
        drop(thread::Builder::new().priority(priority).spawn(body).expect("a fiber starts"));
    }
    // As in that program, the first thread sends them.
    let request = || {
        if tasks {
            return spawn_async(sleep(REQUEST)).join().expect("it does not panic");
        }
        let body = || block_on(handle_request());
        let fiber = match movable {
            // SAFETY: it holds no reference to thread-local data where it waits.
            true => unsafe { thread::Builder::new().spawn_movable(body) },
            false => thread::Builder::new().spawn(body),
        };
        fiber.expect("a fiber starts").join().expect("it does not panic");
    };
    let (mut late, end) = (Vec::new(), Instant::now() + Duration::from_secs(5));
    while Instant::now() < end {
        let begin = Instant::now();
        request();
        late.push(begin.elapsed().saturating_sub(REQUEST).as_secs_f64() * 1e3);
    }
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
