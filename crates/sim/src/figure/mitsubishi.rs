// SPDX-License-Identifier: MIT OR Apache-2.0
//! Uemura and Kan, *A Two-level Processor Scheduling Scheme for Shared-memory Multiprocessors* (Mitsubishi
//! Electric): figure 3, and what section 6 leaves to be studied.
//!
//! Three microthreads compute a two-dimensional FFT or a matrix product, beside 0 to 6 compilations or
//! computing threads. *Free* they run in the default partition, with the load. *Bound* they have three of the
//! four processors, from the policy of the server. `uk3` is the program's time. `uk4` and `uk5` are the same
//! runs: what all programs get done while the program runs, and what the load does.
//!
//! What a compilation does is ours: it computes for 40 ms and waits for a disk for 20 ms. The loads' lengths
//! vary by a half.

use super::Bound::{AtLeast, AtMost};
use super::table::whole;
use super::{Axis, Claim, Data, Figure, largest};
use crate::{Asks, Load, Machine, Measured, Program, Results, Server, Setting, Workload};

const FREE_COMPILING: &str = "free, compilations";
const FREE_COMPUTING: &str = "free, computing threads";
const BOUND_COMPILING: &str = "bound, compilations";
const BOUND_COMPUTING: &str = "bound, computing threads";
const SERIES: &[&str] = &[FREE_COMPILING, BOUND_COMPILING, FREE_COMPUTING, BOUND_COMPUTING];
const FREE: [&str; 2] = [FREE_COMPILING, FREE_COMPUTING];
const BOUND: [&str; 2] = [BOUND_COMPILING, BOUND_COMPUTING];

const ALL: &[f64] = &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
/// More than there are processors, with the three microthreads.
const SATURATED: &[f64] = &[2.0, 3.0, 4.0, 5.0, 6.0];
const MOST: f64 = 6.0;
const MICROTHREADS: u32 = 3;

const COUNT: Axis = Axis { label: "processes or threads beside it", unit: "", log: false };
const TIME: Axis = Axis { label: "execution time", unit: "ms", log: false };
const WORK: Axis = Axis { label: "useful work, waiting excluded", unit: "processors", log: false };

const UK1: &str = "Uemura and Kan, abstract";
const UK2: &str = "Uemura and Kan, section 2.1";
const UK4: &str = "Uemura and Kan, section 4";

fn beside(
    machine: Machine,
    measured: Measured,
    series: &str,
    count: f64,
    rounds: u64,
) -> (Machine, Workload) {
    let load = if series.ends_with("compilations") {
        Load::Compiling { compute_ms: 40.0, wait_ms: 20.0 }
    } else {
        Load::Computing { compute_ms: 20.0 }
    };
    let all = MICROTHREADS;
    let asks = vec![Asks::Numbers { least: all, wanted: all, most: all }];
    let server = series.starts_with("bound").then_some(Server { asks, look_ms: 0.0 });
    let program = Program::Beside { measured, barrier: "c-spin".into(), load, count: count as u32 };
    let setting = Setting { server, ..Setting::default() };
    (machine, Workload { program, threads: all, rounds, vary: 0.5, instances: 1, setting })
}

fn fft(machine: Machine, series: &str, count: f64, rounds: u64) -> (Machine, Workload) {
    beside(machine, Measured::Fft, series, count, rounds)
}

fn matrix(machine: Machine, series: &str, count: f64, rounds: u64) -> (Machine, Workload) {
    beside(machine, Measured::Matrix, series, count, rounds)
}

/// Work of the programs that `of` takes, the first one's number being 0, by the time.
fn work(results: &Results, of: impl Fn(usize) -> bool) -> f64 {
    let those = results.threads.iter().filter(|thread| of(thread.instance));
    those.map(|thread| thread.work_ms).sum::<f64>() / results.elapsed_ms
}

fn all(results: &Results, _: u64) -> f64 {
    work(results, |_| true)
}

fn loads(results: &Results, _: u64) -> f64 {
    work(results, |program| program != 0)
}

fn smallest(numbers: impl Iterator<Item = f64>) -> f64 {
    -largest(numbers.map(|number| -number))
}

/// The smallest of bound by free, of the same load.
fn bound_by_free(data: &Data, at: &[f64]) -> f64 {
    smallest(BOUND.iter().zip(FREE).map(|(&bound, free)| data.least(&[bound], &[free], at)))
}

const WAKES: &str = "Beside 5 and 6, compilations that wake up take processors from microthreads that \
     others wait for. Where who wakes up comes last it is 1.66 (example what_if, kernel.woken=last)";

const TIMES: &[Claim] = &[
    Claim {
        words: "Execution times with free microthreads increase by a factor of two or more beside six",
        source: UK4,
        measure: "free microthreads beside 6 by beside none, the smaller of the two loads",
        number: |data| smallest(FREE.iter().map(|series| data.grows(series, 0.0, MOST))),
        bound: AtLeast(2.0),
        note: "",
    },
    Claim {
        words: "The program with bound microthreads is not affected by the load: little degradation",
        source: UK4,
        measure: "bound microthreads beside 1 to 6 by beside none, the largest",
        number: |data| largest(BOUND.iter().flat_map(|it| ALL.iter().map(move |&x| data.grows(it, 0.0, x)))),
        bound: AtMost(1.02),
        note: "",
    },
    Claim {
        words: "A computing load has a more severe impact than compilations on free microthreads",
        source: UK4,
        measure: "free microthreads beside computing threads by beside compilations, 2 to 6, the smallest",
        number: |data| data.least(&[FREE_COMPUTING], &[FREE_COMPILING], SATURATED),
        bound: AtLeast(1.0),
        note: WAKES,
    },
];

const TOTALS: &[Claim] = &[Claim {
    words: "The effect on the system's throughput is kept small",
    source: UK1,
    measure: "useful work of all with bound microthreads by that with free ones, the smallest",
    number: |data| bound_by_free(data, ALL),
    bound: AtLeast(0.9),
    note: "",
}];

const LOADS: &[Claim] = &[Claim {
    words: "The default partition has a processor at all times, so that the others do not starve",
    source: UK2,
    measure: "useful work of the compilations beside bound microthreads, 2 to 6, the smallest",
    number: |data| smallest(SATURATED.iter().map(|&x| data.at(BOUND_COMPILING, x))),
    bound: AtLeast(0.9),
    note: "",
}];

const fn figure(
    (name, title): (&'static str, &'static str),
    y: Axis,
    rounds: u64,
    build: fn(Machine, &str, f64, u64) -> (Machine, Workload),
    scale: fn(&Results, u64) -> f64,
    claims: &'static [Claim],
) -> Figure {
    let (machine, limit_ms) = ("mach-4", 60_000.0);
    Figure {
        name,
        title,
        machine,
        x: COUNT,
        y,
        series: SERIES,
        at: ALL,
        rounds,
        limit_ms,
        build,
        scale,
        claims,
    }
}

/// Times that the FFT is executed: four seconds of three processors, some tens of quanta.
const FFTS: u64 = 60;
const PRODUCTS: u64 = 9;

/// The paper's figure, and ours.
pub(super) const FIGURES: &[Figure] = &[
    figure(
        ("uk3f", "2D FFT on three microthreads beside a load, four processors"),
        TIME,
        FFTS,
        fft,
        whole,
        TIMES,
    ),
    figure(
        ("uk3m", "Matrix product on three microthreads beside a load, four processors"),
        TIME,
        PRODUCTS,
        matrix,
        whole,
        TIMES,
    ),
    figure(("uk4f", "What all get done while the 2D FFT runs"), WORK, FFTS, fft, all, TOTALS),
    figure(("uk4m", "What all get done while the matrix product runs"), WORK, PRODUCTS, matrix, all, TOTALS),
    figure(("uk5f", "What the load gets done while the 2D FFT runs"), WORK, FFTS, fft, loads, LOADS),
    figure(
        ("uk5m", "What the load gets done while the matrix product runs"),
        WORK,
        PRODUCTS,
        matrix,
        loads,
        LOADS,
    ),
];
