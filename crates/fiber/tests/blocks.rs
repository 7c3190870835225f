// SPDX-License-Identifier: MIT OR Apache-2.0
//! So many seats that a new sentinel does not look at each carrier (`look.rs`): of many fibers that block in
//! the kernel none keeps its seat.

use std::time::{Duration, Instant};

use fiber::{Activations, Config, Runtime, thread};

const BLOCK: Duration = Duration::from_millis(20);
const BLOCKS: u32 = 3;
const FIBERS: u32 = 200;

fn all_block(activations: Activations) {
    let config = Config { processors: Some(20), activations, ..Config::default() };
    let runtime = Runtime::start(config).unwrap();
    let begin = Instant::now();
    runtime.run(|| {
        let block = || (0..BLOCKS).for_each(|_| std::thread::sleep(BLOCK));
        let all: Vec<_> = (0..FIBERS).map(|_| thread::spawn(block)).collect();
        all.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
    // Each would keep its seat for as long as all its blocks.
    let (took, taken) = (begin.elapsed(), runtime.seats_taken());
    assert!(taken >= u64::from(FIBERS) / 2, "{took:?}; {taken} seats went over");
}

#[test]
fn of_many_none_keeps_its_seat() {
    all_block(Activations::Told);
}

#[test]
fn nor_where_nothing_is_told() {
    all_block(Activations::Polled);
}
