// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocked LU factorization, as in SPLASH-2: two barriers a step.
//!
//! A block is changed by its owner only, and by the steps in their order, so that the rounding is the same
//! whatever the number of threads. Each step factors the block on the diagonal, a barrier, then divides the
//! blocks of its row and column by it, a barrier, and subtracts their products from the rest.
//!
//! A block stands for one of 16 x 16 numbers, as in ICPP 2001, section 5: it counts the operations of that.
//! It has a number for 16 of those, so that a simulation touches a sixteenth of the words.

use platform::{Atomic, Ordering::*};
use sync::barrier::RawBarrier;

use crate::{Digest, Host, Meeting, Numbers, Word, digest, digest_of, words};

/// Rows of a block.
const SIDE: usize = 4;
/// Numbers of a block.
const SIZE: usize = SIDE * SIDE;
/// A product of two blocks of 16 x 16: an index, a product and a sum for each of its terms.
const PRODUCT: u32 = 6 * 16 * 16 * 16;

type Block = [f32; SIZE];

/// Diagonally dominant, so that it needs no pivoting; block by block.
fn input(blocks: usize) -> Vec<f32> {
    let mut numbers = Numbers(4);
    let count = blocks * blocks * SIZE;
    let mut all: Vec<f32> = (0..count).map(|_| (numbers.next() % 1000) as f32 / 1000.0).collect();
    for diagonal in 0..blocks {
        let begin = (diagonal * blocks + diagonal) * SIZE;
        (0..SIDE).for_each(|row| all[begin + row * SIDE + row] += (blocks * SIDE) as f32);
    }
    all
}

/// Into a lower part, with ones on the diagonal, and an upper one.
fn factor(block: &mut Block) {
    for k in 0..SIDE {
        for row in k + 1..SIDE {
            block[row * SIDE + k] /= block[k * SIDE + k];
            for column in k + 1..SIDE {
                block[row * SIDE + column] -= block[row * SIDE + k] * block[k * SIDE + column];
            }
        }
    }
}

/// Divides a block of the step's row by the lower part, from the left.
fn by_lower(block: &mut Block, diagonal: &Block) {
    for k in 0..SIDE {
        for row in k + 1..SIDE {
            for column in 0..SIDE {
                block[row * SIDE + column] -= diagonal[row * SIDE + k] * block[k * SIDE + column];
            }
        }
    }
}

/// Divides a block of the step's column by the upper part, from the right.
fn by_upper(block: &mut Block, diagonal: &Block) {
    for k in 0..SIDE {
        for row in 0..SIDE {
            block[row * SIDE + k] /= diagonal[k * SIDE + k];
            for column in k + 1..SIDE {
                block[row * SIDE + column] -= block[row * SIDE + k] * diagonal[k * SIDE + column];
            }
        }
    }
}

fn subtract(block: &mut Block, left: &Block, right: &Block) {
    for row in 0..SIDE {
        for k in 0..SIDE {
            for column in 0..SIDE {
                block[row * SIDE + column] -= left[row * SIDE + k] * right[k * SIDE + column];
            }
        }
    }
}

/// A matrix of so many blocks a side, and how to read and write one.
struct Matrix<G, P> {
    blocks: usize,
    get: G,
    put: P,
}

impl<G: Fn(usize) -> Block, P: FnMut(usize, Block)> Matrix<G, P> {
    fn at(&self, row: usize, column: usize) -> Block {
        (self.get)(row * self.blocks + column)
    }

    fn change(&mut self, row: usize, column: usize, change: impl FnOnce(&mut Block)) {
        let mut block = self.at(row, column);
        change(&mut block);
        (self.put)(row * self.blocks + column, block);
    }

    /// Those of the step's row and column that `own` says.
    fn divide(&mut self, step: usize, own: impl Fn(usize, usize) -> bool) -> u32 {
        let diagonal = self.at(step, step);
        let mut done = 0;
        for other in step + 1..self.blocks {
            if own(step, other) {
                self.change(step, other, |block| by_lower(block, &diagonal));
                done += 1;
            }
            if own(other, step) {
                self.change(other, step, |block| by_upper(block, &diagonal));
                done += 1;
            }
        }
        done
    }
}

pub(crate) fn expected(blocks: u32) -> u32 {
    digest(factored(blocks as usize).into_iter().map(f32::to_bits))
}

fn factored(blocks: usize) -> Vec<f32> {
    let all = std::cell::RefCell::new(input(blocks));
    let get = |at: usize| -> Block { all.borrow()[at * SIZE..][..SIZE].try_into().expect("a block") };
    let put = |at: usize, block: Block| all.borrow_mut()[at * SIZE..][..SIZE].copy_from_slice(&block);
    let mut matrix = Matrix { blocks, get, put };
    for step in 0..blocks {
        matrix.change(step, step, factor);
        matrix.divide(step, |_, _| true);
        for row in step + 1..blocks {
            let left = matrix.at(row, step);
            for column in step + 1..blocks {
                let right = matrix.at(step, column);
                matrix.change(row, column, |block| subtract(block, &left, &right));
            }
        }
    }
    all.into_inner()
}

/// Rows of the threads' grid: blocks are dealt to it by turns in both directions, as in SPLASH-2.
fn grid(threads: usize) -> usize {
    (1..=threads)
        .take_while(|rows| rows * rows <= threads)
        .filter(|rows| threads.is_multiple_of(*rows))
        .max()
        .unwrap_or(1)
}

pub(crate) fn load<H: Host, B: RawBarrier<H::Platform> + 'static>(
    host: &mut H,
    threads: u32,
    blocks: u32,
) -> Digest
where
    B::Place: 'static,
    B::Member: 'static,
{
    let meeting = Meeting::<H, B>::share(host, threads);
    let all = host.share(words::<H>(input(blocks as usize).into_iter().map(f32::to_bits)));
    let shared = all.clone();
    meeting.spawn(host, move |index, wait| {
        work::<H>(&shared, blocks as usize, index as usize, threads as usize, wait);
    });
    digest_of::<H>(all)
}

fn work<H: Host>(all: &[Word<H>], blocks: usize, index: usize, threads: usize, mut wait: impl FnMut()) {
    let get = |at: usize| std::array::from_fn(|it| f32::from_bits(all[at * SIZE + it].load(Relaxed)));
    let put = |at: usize, block: Block| {
        block.iter().enumerate().for_each(|(it, value)| all[at * SIZE + it].store(value.to_bits(), Relaxed));
    };
    let mut matrix = Matrix { blocks, get, put };
    let rows = grid(threads);
    let columns = threads / rows;
    let own = |row: usize, column: usize| row % rows * columns + column % columns == index;
    for step in 0..blocks {
        if own(step, step) {
            matrix.change(step, step, factor);
            H::computed(PRODUCT / 3);
        }
        wait();
        for _ in 0..matrix.divide(step, own) {
            H::computed(PRODUCT / 2);
        }
        wait();
        for row in (step + 1..blocks).filter(|row| row % rows == index / columns) {
            let left = matrix.at(row, step);
            for column in (step + 1..blocks).filter(|column| column % columns == index % columns) {
                let right = matrix.at(step, column);
                matrix.change(row, column, |block| subtract(block, &left, &right));
                H::computed(PRODUCT);
            }
        }
        H::done(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a number of a row and column is.
    fn place(blocks: usize, row: usize, column: usize) -> usize {
        (row / SIDE * blocks + column / SIDE) * SIZE + row % SIDE * SIDE + column % SIDE
    }

    #[test]
    fn the_product_of_the_factors_is_the_matrix() {
        for blocks in [1, 2, 7] {
            let (matrix, factors) = (input(blocks), factored(blocks));
            let at = |row, column| f64::from(factors[place(blocks, row, column)]);
            for row in 0..blocks * SIDE {
                for column in 0..blocks * SIDE {
                    let lower = |k| if k == row { 1.0 } else { at(row, k) };
                    let product: f64 = (0..=row.min(column)).map(|k| lower(k) * at(k, column)).sum();
                    let is = f64::from(matrix[place(blocks, row, column)]);
                    assert!((product - is).abs() < 1e-4, "{blocks}: {row}, {column}: {product} for {is}");
                }
            }
        }
    }

    #[test]
    fn a_grid_is_as_square_as_it_can_be() {
        assert_eq!([1, 2, 3, 4, 6, 12, 16].map(grid), [1, 1, 1, 2, 2, 3, 4]);
    }
}
