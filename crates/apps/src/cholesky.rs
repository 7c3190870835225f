// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sparse Cholesky factorization: a lock a column.
//!
//! The factor is chosen first, of small integers, and the matrix is its square. So every number on the way
//! is an integer below 2^24, each operation is exact, and the result is the chosen factor whoever comes
//! first: an error of a single update would show.

use std::ops::Range;

use platform::{Atomic, Ordering::*, Platform};
use sync::mutex::RawMutex;

use crate::{Digest, Host, Locked, Numbers, Word, digest, digest_of, words};

/// Columns of a node of the tree.
const WIDTH: usize = 4;

pub(crate) fn columns(levels: u32) -> usize {
    ((1 << levels.clamp(1, 10)) - 1) * WIDTH
}

/// Columns, each with its rows: itself, the rest of its node, and the nodes above it up to the root, which
/// comes last.
pub(crate) struct Shape {
    /// Where each column begins among the values.
    pub begins: Vec<usize>,
    pub rows: Vec<u32>,
}

impl Shape {
    pub fn new(levels: u32) -> Self {
        let levels = levels.clamp(1, 10);
        let nodes = (1usize << levels) - 1;
        let mut shape = Self { begins: vec![0], rows: Vec::new() };
        // Node 1 is the root, and 2n and 2n + 1 are below n; numbered from the leaves on, so that rows
        // ascend.
        for node in (1..=nodes).rev() {
            for column in 0..WIDTH {
                let mut at = node;
                let mut first = column;
                while at > 0 {
                    shape.rows.extend((first..WIDTH).map(|row| ((nodes - at) * WIDTH + row) as u32));
                    (at, first) = (at / 2, 0);
                }
                shape.begins.push(shape.rows.len());
            }
        }
        shape
    }

    fn columns(&self) -> usize {
        self.begins.len() - 1
    }

    fn rows(&self, column: usize) -> &[u32] {
        &self.rows[self.begins[column]..self.begins[column + 1]]
    }

    /// How many columns must be subtracted from each.
    pub fn pending(&self) -> Vec<u32> {
        let mut pending = vec![0; self.columns()];
        for column in 0..self.columns() {
            self.rows(column)[1..].iter().for_each(|&row| pending[row as usize] += 1);
        }
        pending
    }

    /// The chosen factor.
    pub fn factor(&self) -> Vec<f32> {
        let mut numbers = Numbers(2);
        let mut values = Vec::with_capacity(self.rows.len());
        for column in 0..self.columns() {
            for (place, _) in self.rows(column).iter().enumerate() {
                let number = numbers.next() % 3;
                values.push(if place == 0 { f32::from(1u8 << number) } else { number as f32 - 1.0 });
            }
        }
        values
    }

    /// Adds `sign` times the product of a factor's column with itself to the columns that it concerns.
    pub fn square(&self, factor: &[f32]) -> Vec<f32> {
        let mut values = vec![0.0; factor.len()];
        for column in 0..self.columns() {
            let (rows, own) = (self.rows(column), &factor[self.begins[column]..self.begins[column + 1]]);
            for (place, &target) in rows.iter().enumerate() {
                let mut at = self.begins[target as usize];
                for (&row, &value) in rows[place..].iter().zip(&own[place..]) {
                    while self.rows[at] != row {
                        at += 1;
                    }
                    values[at] += own[place] * value;
                }
            }
        }
        values
    }
}

pub(crate) fn expected(levels: u32) -> u32 {
    digest(Shape::new(levels).factor().into_iter().map(f32::to_bits))
}

/// The matrix, which becomes its factor.
pub(crate) struct Matrix<H: Host> {
    /// Rows of the block that a number stands for.
    block: u32,
    begins: H::Shared<u32>,
    rows: H::Shared<u32>,
    values: H::Shared<Word<H>>,
}

impl<H: Host> Clone for Matrix<H> {
    fn clone(&self) -> Self {
        let Self { block, begins, rows, values } = self;
        Self { block: *block, begins: begins.clone(), rows: rows.clone(), values: values.clone() }
    }
}

impl<H: Host> Matrix<H> {
    pub fn share(host: &mut H, shape: Shape, block: u32) -> Self {
        Self {
            block,
            values: host.share(words::<H>(shape.square(&shape.factor()).into_iter().map(f32::to_bits))),
            begins: host.share(shape.begins.iter().map(|&begin| begin as u32).collect()),
            rows: host.share(shape.rows),
        }
    }

    pub fn digest(&self) -> Digest {
        digest_of::<H>(self.values.clone())
    }

    pub fn columns(&self) -> usize {
        self.begins.len() - 1
    }

    /// Where its numbers are below the first one, which is its own row.
    pub fn below(&self, column: usize) -> Range<usize> {
        self.begins[column] as usize + 1..self.begins[column + 1] as usize
    }

    /// The row of a number, which is the column that it concerns.
    pub fn row(&self, place: usize) -> usize {
        self.rows[place] as usize
    }

    fn get(&self, at: usize) -> f32 {
        f32::from_bits(self.values[at].load(Relaxed))
    }

    fn put(&self, at: usize, value: f32) {
        self.values[at].store(value.to_bits(), Relaxed);
    }

    /// Nothing must be subtracted from it any more.
    pub fn finish(&self, column: usize) {
        let below = self.below(column);
        let pivot = self.get(below.start - 1).sqrt();
        self.put(below.start - 1, pivot);
        // A division is about as long as 16 additions. Of a block it is half a product.
        H::computed(16.max(2 * self.block.pow(3)) * (below.len() + 1) as u32);
        below.for_each(|at| self.put(at, self.get(at) / pivot));
    }

    /// Subtracts a finished column from the one that its number at this place concerns.
    pub fn subtract(&self, column: usize, place: usize) {
        let (factor, end) = (self.get(place), self.below(column).end);
        let mut to = self.begins[self.row(place)] as usize;
        for from in place..end {
            while self.rows[to] != self.rows[from] {
                to += 1;
            }
            self.put(to, self.get(to) - factor * self.get(from));
        }
        // An index, a product and a sum.
        H::computed(4 * self.block.pow(3) * (end - place) as u32);
    }
}

struct Factor<H: Host> {
    matrix: Matrix<H>,
    /// How many columns must still be subtracted from each; under its lock.
    pending: H::Shared<Word<H>>,
    /// Columns that wait for nothing; under the queue's lock.
    ready: H::Shared<Word<H>>,
    /// Where they are taken and put; also for a look without the lock.
    heads: H::Shared<Word<H>>,
}

impl<H: Host> Clone for Factor<H> {
    fn clone(&self) -> Self {
        Self {
            matrix: self.matrix.clone(),
            pending: self.pending.clone(),
            ready: self.ready.clone(),
            heads: self.heads.clone(),
        }
    }
}

/// The queue's lock comes behind those of the columns.
pub(crate) fn load<H: Host, L: RawMutex<H::Platform> + 'static>(
    host: &mut H,
    threads: u32,
    levels: u32,
    block: u32,
) -> Digest {
    let shape = Shape::new(levels);
    let columns = shape.columns();
    let pending = shape.pending();
    let first: Vec<u32> = (0..columns as u32).filter(|&column| pending[column as usize] == 0).collect();
    let count = first.len() as u32;
    let rest = columns - first.len();
    let shared = Factor::<H> {
        matrix: Matrix::share(host, shape, block),
        pending: host.share(words::<H>(pending.into_iter())),
        ready: host.share(words::<H>(first.into_iter().chain(std::iter::repeat_n(0, rest)))),
        heads: host.share(words::<H>([0, count].into_iter())),
    };
    for locked in Locked::<H, L>::share(host, columns + 1, threads) {
        let shared = shared.clone();
        host.spawn(move || shared.work(&locked));
    }
    shared.matrix.digest()
}

impl<H: Host> Factor<H> {
    fn work<L: RawMutex<H::Platform>>(&self, locked: &Locked<H, L>) {
        let columns = self.matrix.columns();
        loop {
            let (taken, put) = (self.heads[0].load(Relaxed), self.heads[1].load(Relaxed));
            if taken as usize == columns {
                return;
            }
            if taken == put {
                H::Platform::pause();
                continue;
            }
            let column = locked.with(columns, || {
                let taken = self.heads[0].load(Relaxed);
                if taken == self.heads[1].load(Relaxed) {
                    return None;
                }
                self.heads[0].store(taken + 1, Relaxed);
                Some(self.ready[taken as usize].load(Relaxed))
            });
            if let Some(column) = column {
                self.factor(locked, column as usize);
            }
        }
    }

    fn factor<L: RawMutex<H::Platform>>(&self, locked: &Locked<H, L>, column: usize) {
        self.matrix.finish(column);
        for place in self.matrix.below(column) {
            let target = self.matrix.row(place);
            let last = locked.with(target, || {
                self.matrix.subtract(column, place);
                let pending = self.pending[target].load(Relaxed) - 1;
                self.pending[target].store(pending, Relaxed);
                pending == 0
            });
            if last {
                locked.with(self.matrix.columns(), || {
                    let put = self.heads[1].load(Relaxed);
                    self.ready[put as usize].store(target as u32, Relaxed);
                    self.heads[1].store(put + 1, Relaxed);
                });
            }
        }
        H::done(1);
    }
}
