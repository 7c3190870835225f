// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gaussian elimination: a barrier a column.
//!
//! A row is changed by its own thread only, and by the rows above it in their order, so that the rounding
//! is the same whatever the number of threads.

use platform::{Atomic, Ordering::*};
use sync::barrier::RawBarrier;

use crate::{Digest, Host, Meeting, Numbers, Word, digest, digest_of, words};

/// Diagonally dominant, so that it needs no pivoting.
fn input(rows: usize) -> Vec<f32> {
    let mut numbers = Numbers(3);
    let mut all: Vec<f32> = (0..rows * rows).map(|_| (numbers.next() % 1000) as f32 / 1000.0).collect();
    (0..rows).for_each(|row| all[row * rows + row] += rows as f32);
    all
}

pub(crate) fn expected(rows: u32) -> u32 {
    let rows = rows as usize;
    let mut all = input(rows);
    for column in 0..rows.saturating_sub(1) {
        for row in column + 1..rows {
            let factor = all[row * rows + column] / all[column * rows + column];
            for at in column..rows {
                all[row * rows + at] -= factor * all[column * rows + at];
            }
        }
    }
    digest(all.into_iter().map(f32::to_bits))
}

pub(crate) fn load<H: Host, B: RawBarrier<H::Platform> + 'static>(
    host: &mut H,
    threads: u32,
    rows: u32,
) -> Digest
where
    B::Place: 'static,
    B::Member: 'static,
{
    let meeting = Meeting::<H, B>::share(host, threads);
    let all = host.share(words::<H>(input(rows as usize).into_iter().map(f32::to_bits)));
    let shared = all.clone();
    meeting.spawn(host, move |index, wait| {
        for column in 0..rows.saturating_sub(1) {
            let first = column + 1;
            // The first row from there on that is ours.
            let own = first + (index + threads - first % threads) % threads;
            for row in (own..rows).step_by(threads as usize) {
                eliminate::<H>(&shared, rows as usize, column as usize, row as usize);
            }
            H::done(1);
            wait();
        }
    });
    digest_of::<H>(all)
}

fn eliminate<H: Host>(all: &[Word<H>], rows: usize, column: usize, row: usize) {
    let get = |row: usize, at: usize| f32::from_bits(all[row * rows + at].load(Relaxed));
    let factor = get(row, column) / get(column, column);
    for at in column..rows {
        let value = get(row, at) - factor * get(column, at);
        all[row * rows + at].store(value.to_bits(), Relaxed);
    }
    // An index, a product and a sum for each, and the division.
    H::computed(16 + 6 * (rows - column) as u32);
}
