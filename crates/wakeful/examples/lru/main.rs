// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache with one lock, moved from a mutex to delegation: `cargo run --release -p wakeful --example lru
//! [THREADS] [VALUES]`.
//!
//! The move is one line where the cache is made and one where it is used:
//!
//! ```diff
//! -let cache = Mutex::new(Lru::new(values));
//! +let cache = Delegated::on(&server, Lru::new(values));
//!
//! -let value = cache.lock().get(key, || make(key));
//! +let value = cache.run(|cache| cache.get(key, || make(key)));
//! ```
//!
//! Prints look-ups a second, in turns: std's mutex, ours, and the cache delegated to a thread that holds the
//! lock and to a server. Then how many of them found their value.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use wakeful::{Delegated, RclServer};

mod cache;

use cache::Lru;

fn make(key: u64) -> [u64; 8] {
    std::array::from_fn(|word| key.wrapping_mul(word as u64 + 1))
}

/// Keys as a program asks for them: a few often, most seldom.
fn next_key(random: &mut u64, values: u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    let (part, whole) = (*random >> 32, 1 << 32);
    // The square makes small keys frequent.
    (part * part / whole * 2 * values) / whole
}

/// What each thread does besides, some 150 ns.
fn outside(value: [u64; 8]) -> u64 {
    (0..100).fold(value[7], |sum, word| sum.rotate_left(5) ^ word)
}

/// Look-ups a second by so many threads.
fn rate(threads: usize, values: u64, get: impl Fn(u64) -> [u64; 8] + Sync) -> f64 {
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let begin = Instant::now();
    thread::scope(|scope| {
        for thread in 0..threads as u64 {
            let (stop, count, get) = (&stop, &count, &get);
            scope.spawn(move || {
                let (mut random, mut ours, mut sum) = (0x9E37_79B9_7F4A_7C15 ^ thread, 0, 0);
                while !stop.load(Relaxed) {
                    let key = next_key(&mut random, values);
                    let value = get(key);
                    assert_eq!(value[1], key.wrapping_mul(2));
                    sum ^= outside(value);
                    ours += 1;
                }
                std::hint::black_box(sum);
                count.fetch_add(ours, Relaxed);
            });
        }
        thread::sleep(Duration::from_millis(200));
        stop.store(true, Relaxed);
    });
    count.into_inner() as f64 / begin.elapsed().as_secs_f64()
}

fn main() -> std::io::Result<()> {
    let argument = |number, default| match std::env::args().nth(number).map(|text| text.parse()) {
        None => default,
        Some(Ok(given @ 1..=1_000_000)) => given,
        Some(_) => {
            eprintln!("usage: lru [THREADS] [VALUES]   (8 threads and 4,096 values without)");
            std::process::exit(2);
        }
    };
    let (threads, values) = (argument(1, 8), argument(2, 4_096));
    let new = || Lru::new(values);
    let keys = values as u64;

    let std = std::sync::Mutex::new(new());
    let mutex = wakeful::Mutex::new(new());
    let by_holder = Delegated::new(new());
    let server = RclServer::start()?;
    let by_server = Delegated::on(&server, new());
    let contenders: [(&str, &dyn Fn() -> f64); 4] = [
        ("std::sync::Mutex", &|| rate(threads, keys, |key| std.lock().unwrap().get(key, || make(key)))),
        ("wakeful::Mutex", &|| rate(threads, keys, |key| mutex.lock().get(key, || make(key)))),
        ("Delegated", &|| rate(threads, keys, |key| by_holder.run(|cache| cache.get(key, || make(key))))),
        ("Delegated::on", &|| rate(threads, keys, |key| by_server.run(|cache| cache.get(key, || make(key))))),
    ];
    let mut rates = [const { Vec::new() }; 4];
    for _ in 0..5 {
        for ((_, run), rates) in contenders.iter().zip(&mut rates) {
            rates.push(run());
        }
    }
    println!("{threads} threads, {values} values; look-ups a second, median and extremes of 5 rounds");
    for ((name, _), mut rates) in contenders.iter().zip(rates) {
        rates.sort_by(f64::total_cmp);
        println!("{name:18}{:12.0}{:12.0}{:12.0}", rates[2], rates[0], rates[4]);
    }
    let names = contenders.map(|(name, _)| name);
    let caches =
        [std.into_inner().unwrap(), mutex.into_inner(), by_holder.into_inner(), by_server.into_inner()];
    for (name, cache) in names.iter().zip(&caches) {
        println!("{name:18}{:12} hits, {} values", cache.hits, cache.keys().count());
    }
    Ok(())
}
