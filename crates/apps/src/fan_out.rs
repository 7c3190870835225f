// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sparse Cholesky factorization as SPLASH-2 does it: each column has an owner, which alone changes it.
//!
//! A finished column goes to each thread that owns a column which it concerns: into that thread's queue,
//! under the queue's lock. Columns have no locks. A thread whose queue is empty looks at it without the lock,
//! as SPLASH-2's do. The matrix and its factor are those of `cholesky`.

use platform::{Atomic, Ordering::*, Platform};
use sync::mutex::RawMutex;

use crate::cholesky::Shape;
use crate::{Digest, Host, Locked, Word, digest_of, words};

struct FanOut<H: Host> {
    block: u32,
    threads: usize,
    begins: H::Shared<u32>,
    rows: H::Shared<u32>,
    values: H::Shared<Word<H>>,
    /// How many columns must still be subtracted from each. Its owner alone looks.
    pending: H::Shared<Word<H>>,
    /// One a thread: how many columns were put there, and those.
    queues: Vec<H::Shared<Word<H>>>,
}

impl<H: Host> Clone for FanOut<H> {
    fn clone(&self) -> Self {
        Self {
            block: self.block,
            threads: self.threads,
            begins: self.begins.clone(),
            rows: self.rows.clone(),
            values: self.values.clone(),
            pending: self.pending.clone(),
            queues: self.queues.clone(),
        }
    }
}

pub(crate) fn load<H: Host, L: RawMutex<H::Platform> + 'static>(
    host: &mut H,
    threads: u32,
    levels: u32,
    block: u32,
) -> Digest {
    let shape = Shape::new(levels);
    let pending = shape.pending();
    let columns = pending.len();
    let queue = |host: &mut H| host.share(words::<H>(std::iter::repeat_n(0, columns + 1)));
    let shared = FanOut::<H> {
        block,
        threads: threads as usize,
        values: host.share(words::<H>(shape.square(&shape.factor()).into_iter().map(f32::to_bits))),
        pending: host.share(words::<H>(pending.into_iter())),
        queues: (0..threads).map(|_| queue(host)).collect(),
        begins: host.share(shape.begins.iter().map(|&begin| begin as u32).collect()),
        rows: host.share(shape.rows),
    };
    for (index, locked) in Locked::<H, L>::share(host, threads as usize, threads).into_iter().enumerate() {
        let shared = shared.clone();
        host.spawn(move || shared.work(&locked, index));
    }
    digest_of::<H>(shared.values)
}

impl<H: Host> FanOut<H> {
    fn work<L: RawMutex<H::Platform>>(&self, locked: &Locked<H, L>, index: usize) {
        let own = || (index..self.begins.len() - 1).step_by(self.threads);
        let mut left = own().count();
        for column in own() {
            if self.pending[column].load(Relaxed) == 0 {
                self.factor(locked, column);
                left -= 1;
            }
        }
        let queue = &self.queues[index];
        let mut taken = 0;
        while left > 0 {
            if queue[0].load(Relaxed) as usize == taken {
                H::Platform::pause();
                continue;
            }
            taken += 1;
            let column = locked.with(index, || queue[taken].load(Relaxed));
            left -= self.subtract(locked, column as usize, index);
        }
    }

    fn get(&self, at: usize) -> f32 {
        f32::from_bits(self.values[at].load(Relaxed))
    }

    fn put(&self, at: usize, value: f32) {
        self.values[at].store(value.to_bits(), Relaxed);
    }

    fn range(&self, column: usize) -> (usize, usize) {
        (self.begins[column] as usize, self.begins[column + 1] as usize)
    }

    /// Nothing must be subtracted from it any more: finishes it, and sends it.
    fn factor<L: RawMutex<H::Platform>>(&self, locked: &Locked<H, L>, column: usize) {
        let (begin, end) = self.range(column);
        let pivot = self.get(begin).sqrt();
        self.put(begin, pivot);
        // As in `cholesky`.
        H::computed(16.max(2 * self.block.pow(3)) * (end - begin) as u32);
        (begin + 1..end).for_each(|at| self.put(at, self.get(at) / pivot));
        H::done(1);
        for to in 0..self.threads {
            if (begin + 1..end).any(|place| self.rows[place] as usize % self.threads == to) {
                locked.with(to, || {
                    let put = self.queues[to][0].load(Relaxed) + 1;
                    self.queues[to][put as usize].store(column as u32, Relaxed);
                    self.queues[to][0].store(put, Relaxed);
                });
            }
        }
    }

    /// Subtracts a column that came from those of this thread; how many of these are finished by it.
    fn subtract<L: RawMutex<H::Platform>>(
        &self,
        locked: &Locked<H, L>,
        column: usize,
        index: usize,
    ) -> usize {
        let (begin, end) = self.range(column);
        let mut finished = 0;
        for place in (begin + 1..end).filter(|&place| self.rows[place] as usize % self.threads == index) {
            let target = self.rows[place] as usize;
            let factor = self.get(place);
            let mut to = self.begins[target] as usize;
            for from in place..end {
                while self.rows[to] != self.rows[from] {
                    to += 1;
                }
                self.put(to, self.get(to) - factor * self.get(from));
            }
            H::computed(4 * self.block.pow(3) * (end - place) as u32);
            let pending = self.pending[target].load(Relaxed) - 1;
            self.pending[target].store(pending, Relaxed);
            if pending == 0 {
                self.factor(locked, target);
                finished += 1;
            }
        }
        finished
    }
}
