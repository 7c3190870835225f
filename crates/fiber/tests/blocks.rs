// SPDX-License-Identifier: MIT OR Apache-2.0
//! So many seats that a new sentinel does not look at each carrier (`look.rs`): carriers that block in the
//! kernel lose their seats all the same.

use std::fs;
use std::time::{Duration, Instant};

use fiber::{Activations, Config, Runtime, thread};

const SEATS: u32 = 20;
const BLOCK: Duration = Duration::from_millis(20);
const BLOCKS: u32 = 3;
const FIBERS: u32 = 200;

/// The carriers of all runtimes.
fn carriers() -> usize {
    let names = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path().join("comm"));
    names.filter(|name| fs::read_to_string(name).is_ok_and(|name| name.starts_with("carrier"))).count()
}

#[test]
fn of_many_those_that_block_lose_their_seats() {
    for activations in [Activations::Told, Activations::Polled] {
        let before = carriers();
        let runtime = Runtime::start(Config { processors: Some(SEATS), activations, ..Config::default() });
        let runtime = runtime.unwrap();
        let begin = Instant::now();
        let block = || {
            for _ in 0..BLOCKS {
                std::thread::sleep(BLOCK);
                // Back at a safe point, where it asks for a seat, to lose it in the next block.
                thread::yield_now();
            }
        };
        runtime.run(|| {
            let all: Vec<_> = (0..FIBERS).map(|_| thread::spawn(block)).collect();
            all.into_iter().for_each(|fiber| fiber.join().unwrap());
        });
        // Where all kept their seats, there would be as many carriers as seats, and a spare.
        let (took, taken, made) = (begin.elapsed(), runtime.seats_taken(), carriers() - before);
        let all = format!("{activations:?}: {took:?}, {taken} seats went over, {made} carriers");
        assert!(taken >= u64::from(FIBERS), "{all}");
        assert!(made > 2 * SEATS as usize, "{all}");
        eprintln!("{all}");
    }
}
