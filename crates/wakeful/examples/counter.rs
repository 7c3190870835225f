// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that share a counter: `cargo run --release -p wakeful --example counter [THREADS]`.
//!
//! Prints, for one second each and in turns, how often the threads got std's mutex and ours, and how even
//! the shares were. Not a benchmark (`wakeful bench mutex` is): it shows that both get on and roughly how.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Runs the threads for 200 ms; acquisitions of each.
fn compete(threads: usize, acquire: impl Fn() + Sync) -> Vec<u64> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut count = 0;
                    while !stop.load(Relaxed) {
                        acquire();
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(200));
        stop.store(true, Relaxed);
        handles.into_iter().map(|handle| handle.join().expect("a counting thread does not panic")).collect()
    })
}

fn main() {
    let threads = match std::env::args().nth(1).map(|text| text.parse()) {
        None => 8,
        Some(Ok(threads @ 1..=4000)) => threads,
        Some(_) => {
            eprintln!("usage: counter [THREADS]   (1 to 4000; 8 without)");
            std::process::exit(2);
        }
    };
    let theirs = std::sync::Mutex::new([0_u64; 8]);
    let ours = wakeful::Mutex::new([0_u64; 8]);
    let mut totals = [vec![0; threads], vec![0; threads]];
    for _ in 0..5 {
        let std =
            compete(threads, || theirs.lock().expect("nobody panics").iter_mut().for_each(|line| *line += 1));
        let wakeful = compete(threads, || ours.lock().iter_mut().for_each(|line| *line += 1));
        for (total, counts) in totals.iter_mut().zip([std, wakeful]) {
            total.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
        }
    }
    println!("{:10} {:>14} {:>14} {:>14}", "mutex", "acquisitions", "least/thread", "most/thread");
    for (name, counts) in ["std", "wakeful"].iter().zip(&totals) {
        let (least, most) = (counts.iter().min().unwrap_or(&0), counts.iter().max().unwrap_or(&0));
        println!("{name:10} {:>14} {least:>14} {most:>14}", counts.iter().sum::<u64>());
    }
    assert_eq!(ours.lock()[0], totals[1].iter().sum::<u64>(), "the lock let two in");
}
