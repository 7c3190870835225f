// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs of Uemura and Kan, section 4, whose parallel parts are loops: a two-dimensional FFT and a
//! matrix product.
//!
//! A row is computed by one thread, so that the rounding is the same whatever their number. Each output row
//! has a lock that nobody waits for: it says that the row is one iteration's.

use std::f64::consts::TAU;
use std::sync::Mutex;

use crate::{Numbers, digest};

/// Runs loops of independent iterations.
pub trait Loops {
    /// Calls `body` with each number below `iterations`, once.
    fn run(&self, iterations: usize, body: &(impl Fn(usize) + Sync));
}

/// One after the other.
pub struct Sequential;

impl Loops for Sequential {
    fn run(&self, iterations: usize, body: &(impl Fn(usize) + Sync)) {
        (0..iterations).for_each(body);
    }
}

/// A program made of loops, and the size of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopApp {
    /// Transforms so many rows of so many complex numbers in both directions. In the paper 64 x 1024.
    Fft {
        /// Rows.
        rows: u32,
        /// Columns.
        columns: u32,
    },
    /// Multiplies two matrices of so many rows and columns. In the paper 300.
    Matrix {
        /// Rows.
        size: u32,
    },
}

/// A program with its input, to be run any number of times.
pub enum LoadedLoops {
    /// [`LoopApp::Fft`].
    Fft(Fft),
    /// [`LoopApp::Matrix`].
    Matrix(Matrix),
}

impl LoopApp {
    /// Loads it.
    pub fn load(self) -> LoadedLoops {
        match self {
            Self::Fft { rows, columns } => LoadedLoops::Fft(Fft::new(rows as usize, columns as usize)),
            Self::Matrix { size } => LoadedLoops::Matrix(Matrix::new(size as usize)),
        }
    }

    /// So many arithmetic operations are in an iteration of its loop of so many iterations. For hosts on
    /// which time does not pass by itself. (Of an FFT of n numbers 5 n log n.)
    pub fn operations(self, iterations: usize) -> f64 {
        let fft = |length: u32| 5.0 * f64::from(length) * f64::from(length).log2();
        match self {
            Self::Fft { rows, columns } => fft(if iterations == rows as usize { columns } else { rows }),
            Self::Matrix { size } => 2.0 * f64::from(size) * f64::from(size),
        }
    }
}

impl LoadedLoops {
    /// Computes the result from the input.
    pub fn run(&mut self, loops: &impl Loops) {
        match self {
            Self::Fft(app) => app.run(loops),
            Self::Matrix(app) => app.run(loops),
        }
    }

    /// A number that tells results apart.
    pub fn digest(&self) -> u32 {
        let words = |value: f64| [value.to_bits() as u32, (value.to_bits() >> 32) as u32];
        match self {
            Self::Fft(app) => digest(app.output.iter().flat_map(|row| {
                row.lock()
                    .expect("nobody panics")
                    .iter()
                    .flat_map(|&(re, im)| [words(re), words(im)].concat())
                    .collect::<Vec<_>>()
            })),
            Self::Matrix(app) => digest(app.output.iter().flat_map(|row| {
                row.lock().expect("nobody panics").iter().flat_map(|&it| words(it)).collect::<Vec<_>>()
            })),
        }
    }
}

type Complex = (f64, f64);

fn times(a: Complex, b: Complex) -> Complex {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

fn plus(a: Complex, b: Complex) -> Complex {
    (a.0 + b.0, a.1 + b.1)
}

/// What is needed to transform so many numbers.
struct Plan {
    /// The roots of unity.
    roots: Vec<Complex>,
    /// Prime factors of their number.
    factors: Vec<usize>,
}

impl Plan {
    fn new(length: usize) -> Self {
        let root = |k: usize| {
            let (sin, cos) = (-TAU * k as f64 / length as f64).sin_cos();
            (cos, sin)
        };
        let (mut factors, mut rest, mut factor) = (Vec::new(), length, 2);
        while rest > 1 {
            match rest.is_multiple_of(factor) {
                true => {
                    factors.push(factor);
                    rest /= factor;
                }
                false => factor += 1,
            }
        }
        Self { roots: (0..length).map(root).collect(), factors }
    }

    /// Transforms: decimation in time, by one prime factor after the other.
    fn transform(&self, input: &[Complex], output: &mut [Complex]) {
        self.step(input, 1, output, &self.factors);
    }

    fn step(&self, input: &[Complex], stride: usize, output: &mut [Complex], factors: &[usize]) {
        let Some((&factor, factors)) = factors.split_first() else {
            output.copy_from_slice(&input[..output.len()]);
            return;
        };
        let length = output.len() / factor;
        for (part, output) in output.chunks_exact_mut(length).enumerate() {
            self.step(&input[part * stride..], stride * factor, output, factors);
        }
        if factor == 2 {
            let (evens, odds) = output.split_at_mut(length);
            for (k, (even, odd)) in evens.iter_mut().zip(odds).enumerate() {
                let turned = times(*odd, self.roots[k * stride]);
                (*even, *odd) = (plus(*even, turned), (even.0 - turned.0, even.1 - turned.1));
            }
            return;
        }
        let mut terms = vec![(0.0, 0.0); factor];
        for k in 0..length {
            for (part, term) in terms.iter_mut().enumerate() {
                *term = times(output[part * length + k], self.roots[part * k * stride]);
            }
            for at in 0..factor {
                let root = |part: usize| self.roots[part * at * length * stride % self.roots.len()];
                output[at * length + k] = terms
                    .iter()
                    .enumerate()
                    .fold((0.0, 0.0), |sum, (part, &term)| plus(sum, times(term, root(part))));
            }
        }
    }
}

/// A matrix, each row one iteration's to write.
type Rows<T> = Vec<Mutex<Vec<T>>>;

fn zeros<T: Clone + Default>(rows: usize, columns: usize) -> Rows<T> {
    (0..rows).map(|_| Mutex::new(vec![T::default(); columns])).collect()
}

/// All rows, to read: no loop runs.
fn read<T>(rows: &mut Rows<T>) -> Vec<&[T]> {
    rows.iter_mut().map(|row| row.get_mut().expect("nobody panics").as_slice()).collect()
}

/// A two-dimensional Fourier transform.
pub struct Fft {
    input: Vec<Vec<Complex>>,
    along_rows: Plan,
    along_columns: Plan,
    middle: Rows<Complex>,
    /// Transposed: a row for each of the input's columns.
    output: Rows<Complex>,
}

impl Fft {
    fn new(rows: usize, columns: usize) -> Self {
        let mut numbers = Numbers(5);
        let mut number = || f64::from(numbers.next() % 2000) / 1000.0 - 1.0;
        Self {
            input: (0..rows).map(|_| (0..columns).map(|_| (number(), number())).collect()).collect(),
            along_rows: Plan::new(columns),
            along_columns: Plan::new(rows),
            middle: zeros(rows, columns),
            output: zeros(columns, rows),
        }
    }

    fn run(&mut self, loops: &impl Loops) {
        let Self { input, along_rows, along_columns, middle, output } = self;
        loops.run(input.len(), &|row| {
            along_rows.transform(&input[row], &mut middle[row].lock().expect("nobody panics"));
        });
        let middle = read(middle);
        loops.run(output.len(), &|column| {
            let values: Vec<Complex> = middle.iter().map(|row| row[column]).collect();
            along_columns.transform(&values, &mut output[column].lock().expect("nobody panics"));
        });
    }
}

/// A matrix product.
pub struct Matrix {
    left: Vec<Vec<f64>>,
    right: Vec<Vec<f64>>,
    output: Rows<f64>,
}

impl Matrix {
    fn new(size: usize) -> Self {
        let mut numbers = Numbers(7);
        let mut matrix = || -> Vec<Vec<f64>> {
            (0..size)
                .map(|_| (0..size).map(|_| f64::from(numbers.next() % 2000) / 1000.0 - 1.0).collect())
                .collect()
        };
        Self { left: matrix(), right: matrix(), output: zeros(size, size) }
    }

    fn run(&mut self, loops: &impl Loops) {
        let Self { left, right, output } = self;
        loops.run(left.len(), &|row| {
            let mut sums = output[row].lock().expect("nobody panics");
            sums.fill(0.0);
            for (&factor, others) in left[row].iter().zip(right.iter()) {
                for (sum, other) in sums.iter_mut().zip(others) {
                    *sum += factor * other;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition.
    fn slowly(input: &[Vec<Complex>], u: usize, v: usize) -> Complex {
        let (rows, columns) = (input.len(), input[0].len());
        let mut sum = (0.0, 0.0);
        for (r, row) in input.iter().enumerate() {
            for (c, &value) in row.iter().enumerate() {
                let turn =
                    -TAU * ((r * u % rows) as f64 / rows as f64 + (c * v % columns) as f64 / columns as f64);
                sum = plus(sum, times(value, (turn.cos(), turn.sin())));
            }
        }
        sum
    }

    #[test]
    fn transforms_of_any_size_are_those_of_the_definition() {
        for (rows, columns) in [(64, 1024), (1, 1), (1, 7), (12, 30), (9, 49), (64, 97)] {
            let mut app = Fft::new(rows, columns);
            app.run(&Sequential);
            // All of a small one, some of a large one.
            let step = (rows * columns / 200).max(1);
            for at in (0..rows * columns).step_by(step) {
                let (u, v) = (at / columns, at % columns);
                let (right, got) = (slowly(&app.input, u, v), app.output[v].lock().unwrap()[u]);
                let error = (right.0 - got.0).abs().max((right.1 - got.1).abs());
                assert!(
                    error < 1e-9 * (rows * columns) as f64,
                    "{rows} x {columns} at {u}, {v}: {got:?}, not {right:?}"
                );
            }
        }
    }

    #[test]
    fn the_product_is_that_of_the_definition() {
        for size in [0, 1, 2, 50, 300] {
            let mut app = Matrix::new(size);
            // Twice: what was there before does not matter.
            app.run(&Sequential);
            app.run(&Sequential);
            for row in 0..size {
                for column in (0..size).step_by(7) {
                    let right: f64 = (0..size).map(|k| app.left[row][k] * app.right[k][column]).sum();
                    let got = app.output[row].lock().unwrap()[column];
                    assert!((right - got).abs() < 1e-9, "{size}: {row}, {column}: {got}, not {right}");
                }
            }
        }
    }

    #[test]
    fn operations_of_all_loops() {
        let fft = LoopApp::Fft { rows: 64, columns: 1024 };
        assert_eq!(64.0 * fft.operations(64) + 1024.0 * fft.operations(1024), 5.0 * 65_536.0 * 16.0);
        assert_eq!(300.0 * LoopApp::Matrix { size: 300 }.operations(300), 2.0 * 300f64.powi(3));
    }

    #[test]
    fn another_input_is_another_digest() {
        let digest = |app: LoopApp| {
            let mut app = app.load();
            app.run(&Sequential);
            app.digest()
        };
        assert_ne!(digest(LoopApp::Matrix { size: 30 }), digest(LoopApp::Matrix { size: 31 }));
        assert_ne!(
            digest(LoopApp::Fft { rows: 8, columns: 16 }),
            digest(LoopApp::Fft { rows: 16, columns: 8 })
        );
    }
}
