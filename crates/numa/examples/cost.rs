// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a `malloc` and a `free` cost: the system's, the same with blocks listed, and those of a bound heap.
//! In turns; median, nanoseconds a pair, and times the system's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::thread;
use std::time::Instant;

use numa::{Heap, RclAware};

const ROUNDS: usize = 9;
const LIVE: usize = 256;
const PAIRS: usize = 100_000;

/// Keeps some hundred blocks of 16 to 1,000 bytes alive, and replaces one after the other.
fn pairs(memory: &impl GlobalAlloc) -> f64 {
    let layout =
        |turn: usize| Layout::from_size_align(16 + turn.wrapping_mul(2_654_435_761) % 985, 16).unwrap();
    let mut live: Vec<(*mut u8, Layout)> = Vec::with_capacity(LIVE);
    let start = Instant::now();
    // SAFETY: no size is 0, and each block is freed once.
    unsafe {
        for turn in 0..PAIRS {
            let layout = layout(turn);
            let block = memory.alloc(layout);
            block.write(1);
            let new = (black_box(block), layout);
            if live.len() < LIVE {
                live.push(new);
            } else {
                let (old, layout) = std::mem::replace(&mut live[turn % LIVE], new);
                memory.dealloc(old, layout);
            }
        }
        live.into_iter().for_each(|(block, layout)| memory.dealloc(block, layout));
    }
    start.elapsed().as_nanos() as f64 / PAIRS as f64
}

fn median(memory: &(impl GlobalAlloc + Sync), threads: usize) -> f64 {
    let mut each: Vec<f64> = thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(|| pairs(memory))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    each.sort_by(f64::total_cmp);
    each[each.len() / 2]
}

fn main() {
    static LISTED: RclAware = RclAware::new();
    static BOUND: RclAware = RclAware::new();
    BOUND.stay(0).expect("this kernel binds memory");
    let heap = Heap::on(0).expect("there are addresses");
    println!("threads   system   listed  through   heap");
    for threads in [1, 2, 8] {
        let mut found: [Vec<f64>; 4] = Default::default();
        for _ in 0..ROUNDS {
            found[0].push(median(&System, threads));
            found[1].push(median(&LISTED, threads));
            found[2].push(median(&BOUND, threads));
            found[3].push(median(&heap, threads));
        }
        let ns = found.map(|mut each| {
            each.sort_by(f64::total_cmp);
            each[ROUNDS / 2]
        });
        let times = |at: usize| ns[at] / ns[0];
        println!("{threads:7}   {:6.1}   {:6.2}   {:6.2}   {:6.2}", ns[0], times(1), times(2), times(3));
    }
}
