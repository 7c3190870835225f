// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gaussian elimination, LU and a stencil, each thread with rows or blocks of its own and a barrier between
//! steps. `programs.c` has the same, operation by operation, so that the results are equal to the last bit.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wakeful::Barrier;

/// A square of numbers that threads share; the barrier orders what they write.
pub struct Square {
    side: usize,
    cells: Vec<AtomicU64>,
}

impl Square {
    /// The same numbers each time, from 0 to 1, and a heavy diagonal.
    pub fn new(side: usize) -> Self {
        let mut seed = 12345u64;
        let cells = (0..side * side).map(|place| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let number = (seed >> 11) as f64 / (1u64 << 53) as f64;
            let heavy = if place % (side + 1) == 0 { side as f64 } else { 0.0 };
            AtomicU64::new((number + heavy).to_bits())
        });
        Self { side, cells: cells.collect() }
    }

    fn get(&self, row: usize, column: usize) -> f64 {
        f64::from_bits(self.cells[row * self.side + column].load(Relaxed))
    }

    fn set(&self, row: usize, column: usize, number: f64) {
        self.cells[row * self.side + column].store(number.to_bits(), Relaxed);
    }

    /// All bits of all numbers, mixed.
    fn checksum(&self) -> u64 {
        self.cells.iter().fold(0, |sum, cell| sum.rotate_left(1) ^ cell.load(Relaxed))
    }
}

/// The kernels, by name.
pub const KERNELS: [&str; 3] = ["gauss", "lu", "stencil"];

/// Rows or columns of a block of `lu`.
const BLOCK: usize = 16;
/// Turns of `stencil`.
const TURNS: usize = 200;

fn gauss(a: &Square, me: usize, threads: usize, barrier: &Barrier) {
    for k in 0..a.side {
        for i in (k + 1..a.side).filter(|i| i % threads == me) {
            let factor = a.get(i, k) / a.get(k, k);
            a.set(i, k, factor);
            for j in k + 1..a.side {
                a.set(i, j, a.get(i, j) - factor * a.get(k, j));
            }
        }
        barrier.wait();
    }
}

/// Right-looking, in blocks, as in SPLASH-2: diagonal block, its row and column, the rest.
fn lu(a: &Square, me: usize, threads: usize, barrier: &Barrier) {
    let blocks = a.side / BLOCK;
    let mine = |i: usize, j: usize| (i * blocks + j) % threads == me;
    for k in 0..blocks {
        let at = k * BLOCK;
        if mine(k, k) {
            for p in at..at + BLOCK {
                for i in p + 1..at + BLOCK {
                    let factor = a.get(i, p) / a.get(p, p);
                    a.set(i, p, factor);
                    for j in p + 1..at + BLOCK {
                        a.set(i, j, a.get(i, j) - factor * a.get(p, j));
                    }
                }
            }
        }
        barrier.wait();
        for other in k + 1..blocks {
            let from = other * BLOCK;
            if mine(k, other) {
                for p in at..at + BLOCK {
                    for i in p + 1..at + BLOCK {
                        for j in from..from + BLOCK {
                            a.set(i, j, a.get(i, j) - a.get(i, p) * a.get(p, j));
                        }
                    }
                }
            }
            if mine(other, k) {
                for p in at..at + BLOCK {
                    for i in from..from + BLOCK {
                        let factor = a.get(i, p) / a.get(p, p);
                        a.set(i, p, factor);
                        for j in p + 1..at + BLOCK {
                            a.set(i, j, a.get(i, j) - factor * a.get(p, j));
                        }
                    }
                }
            }
        }
        barrier.wait();
        for row in k + 1..blocks {
            for column in (k + 1..blocks).filter(|&column| mine(row, column)) {
                for i in row * BLOCK..(row + 1) * BLOCK {
                    for p in at..at + BLOCK {
                        let factor = a.get(i, p);
                        for j in column * BLOCK..(column + 1) * BLOCK {
                            a.set(i, j, a.get(i, j) - factor * a.get(p, j));
                        }
                    }
                }
            }
        }
        barrier.wait();
    }
}

/// Each number becomes the mean of its neighbours and itself, from one square into the other and back.
fn stencil(a: &Square, b: &Square, me: usize, threads: usize, barrier: &Barrier) {
    let n = a.side;
    for turn in 0..TURNS {
        let (from, to) = if turn % 2 == 0 { (a, b) } else { (b, a) };
        for i in (1..n - 1).filter(|i| i * threads / n == me) {
            for j in 1..n - 1 {
                let around =
                    from.get(i - 1, j) + from.get(i + 1, j) + from.get(i, j - 1) + from.get(i, j + 1);
                to.set(i, j, 0.2 * (around + from.get(i, j)));
            }
        }
        barrier.wait();
    }
}

/// Runs a kernel on a square of so many numbers a side (a multiple of 16); the checksum of the result,
/// `None` for an unknown name.
pub fn run(kernel: &str, side: usize, threads: usize) -> Option<u64> {
    if !KERNELS.contains(&kernel) {
        return None;
    }
    let (a, b, barrier) = (Square::new(side), Square::new(side), Barrier::new(threads));
    std::thread::scope(|scope| {
        for me in 0..threads {
            let (a, b, barrier) = (&a, &b, &barrier);
            scope.spawn(move || match kernel {
                "gauss" => gauss(a, me, threads, barrier),
                "lu" => lu(a, me, threads, barrier),
                _ => stencil(a, b, me, threads, barrier),
            });
        }
    });
    Some(a.checksum())
}
