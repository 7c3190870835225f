// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sparse Cholesky factorization: a lock a column.
//!
//! The factor is chosen first, of small integers, and the matrix is its square. So every number on the way
//! is an integer below 2^24, each operation is exact, and the result is the chosen factor whoever comes
//! first: an error of a single update would show.

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

struct Factor<H: Host> {
    /// Rows of the block that a number stands for.
    block: u32,
    begins: H::Shared<u32>,
    rows: H::Shared<u32>,
    values: H::Shared<Word<H>>,
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
            block: self.block,
            begins: self.begins.clone(),
            rows: self.rows.clone(),
            values: self.values.clone(),
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
        block,
        values: host.share(words::<H>(shape.square(&shape.factor()).into_iter().map(f32::to_bits))),
        pending: host.share(words::<H>(pending.into_iter())),
        ready: host.share(words::<H>(first.into_iter().chain(std::iter::repeat_n(0, rest)))),
        heads: host.share(words::<H>([0, count].into_iter())),
        begins: host.share(shape.begins.iter().map(|&begin| begin as u32).collect()),
        rows: host.share(shape.rows),
    };
    for locked in Locked::<H, L>::share(host, columns + 1, threads) {
        let shared = shared.clone();
        host.spawn(move || shared.work(&locked));
    }
    digest_of::<H>(shared.values)
}

impl<H: Host> Factor<H> {
    fn work<L: RawMutex<H::Platform>>(&self, locked: &Locked<H, L>) {
        let columns = self.begins.len() - 1;
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

    fn get(&self, at: usize) -> f32 {
        f32::from_bits(self.values[at].load(Relaxed))
    }

    fn put(&self, at: usize, value: f32) {
        self.values[at].store(value.to_bits(), Relaxed);
    }

    fn factor<L: RawMutex<H::Platform>>(&self, locked: &Locked<H, L>, column: usize) {
        let (begin, end) = (self.begins[column] as usize, self.begins[column + 1] as usize);
        let pivot = self.get(begin).sqrt();
        self.put(begin, pivot);
        let terms = self.block.pow(3);
        // A division is about as long as 16 additions. Of a block it is half a product.
        H::computed(16.max(2 * terms) * (end - begin) as u32);
        (begin + 1..end).for_each(|at| self.put(at, self.get(at) / pivot));
        for place in begin + 1..end {
            let target = self.rows[place] as usize;
            let last = locked.with(target, || {
                let factor = self.get(place);
                let mut to = self.begins[target] as usize;
                for from in place..end {
                    while self.rows[to] != self.rows[from] {
                        to += 1;
                    }
                    self.put(to, self.get(to) - factor * self.get(from));
                }
                // An index, a product and a sum.
                H::computed(4 * terms * (end - place) as u32);
                let pending = self.pending[target].load(Relaxed) - 1;
                self.pending[target].store(pending, Relaxed);
                pending == 0
            });
            if last {
                locked.with(self.begins.len() - 1, || {
                    let put = self.heads[1].load(Relaxed);
                    self.ready[put as usize].store(target as u32, Relaxed);
                    self.heads[1].store(put + 1, Relaxed);
                });
            }
        }
        H::done(1);
    }
}
