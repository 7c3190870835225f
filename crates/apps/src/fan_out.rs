// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sparse Cholesky factorization as SPLASH-2 does it: each column has an owner, which alone changes it.
//!
//! A finished column goes to each thread that owns a column which it concerns: into that thread's queue,
//! under the queue's lock. Columns have no locks. A thread whose queue is empty looks at it without the lock,
//! as SPLASH-2's do. The matrix and its factor are those of `cholesky`.

use platform::{Atomic, Ordering::*, Platform};
use sync::mutex::RawMutex;

use crate::cholesky::{Matrix, Shape};
use crate::{Digest, Host, Locked, Word, words};

struct FanOut<H: Host> {
    matrix: Matrix<H>,
    threads: usize,
    /// How many columns must still be subtracted from each. Its owner alone looks.
    pending: H::Shared<Word<H>>,
    /// One a thread: how many columns were put there, and those.
    queues: Vec<H::Shared<Word<H>>>,
}

impl<H: Host> Clone for FanOut<H> {
    fn clone(&self) -> Self {
        Self {
            matrix: self.matrix.clone(),
            threads: self.threads,
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
        matrix: Matrix::share(host, shape, block),
        threads: threads as usize,
        pending: host.share(words::<H>(pending.into_iter())),
        queues: (0..threads).map(|_| queue(host)).collect(),
    };
    for (index, locked) in Locked::<H, L>::share(host, threads as usize, threads).into_iter().enumerate() {
        let shared = shared.clone();
        host.spawn(move || shared.work(&locked, index));
    }
    shared.matrix.digest()
}

impl<H: Host> FanOut<H> {
    fn work<L: RawMutex<H::Platform>>(&self, locked: &Locked<H, L>, index: usize) {
        let own = || (index..self.matrix.columns()).step_by(self.threads);
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

    /// Nothing must be subtracted from it any more: finishes it, and sends it.
    fn factor<L: RawMutex<H::Platform>>(&self, locked: &Locked<H, L>, column: usize) {
        self.matrix.finish(column);
        H::done(1);
        for to in 0..self.threads {
            if self.matrix.below(column).any(|place| self.matrix.row(place) % self.threads == to) {
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
        let mut finished = 0;
        let own = |&place: &usize| self.matrix.row(place) % self.threads == index;
        for place in self.matrix.below(column).filter(own) {
            let target = self.matrix.row(place);
            self.matrix.subtract(column, place);
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
