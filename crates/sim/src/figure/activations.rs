// SPDX-License-Identifier: MIT OR Apache-2.0
//! *Scheduler Activations* (Anderson, Bershad, Lazowska, Levy, 1992): table I, and what section 1.2 wants of
//! processors, on machines larger than the paper's.
//!
//! Of table I the rows of kernel threads and processes are not found out here: the machine's description is
//! solved from them. What is found out are the fibers.

use super::Bound::{AtLeast, AtMost};
use super::{Axis, Claim, Data, Figure, largest};
use crate::activations::{Job, Kind};
use crate::{Hints, Machine, Program, Results, Setting, Workload};

const TOCS: &str = "Scheduler Activations, section 2.1";
const GOALS: &str = "Scheduler Activations, section 1.2";
const SECTION_2: &str = "Scheduler Activations, section 2.2";

/// As many as the fibers' runtime has.
const POSTS: u32 = 2;
const NULL_FORK: f64 = 1.0;
const SIGNAL_WAIT: f64 = 2.0;
const BOTH: &[f64] = &[NULL_FORK, SIGNAL_WAIT];
const FASTTHREADS: [f64; 2] = [34.0, 37.0];
/// A procedure call on the Firefly, in us.
const CALL: f64 = 7.0;

const SIZES: &[f64] = &[6.0, 16.0, 64.0, 256.0];
/// On fewer a sentinel without upcalls is as good: it gets the processor of whoever blocks.
const LARGE: f64 = 256.0;
const PROCESSORS: Axis = Axis { label: "processors", unit: "", log: true };

fn table(machine: Machine, series: &str, operation: f64, rounds: u64) -> (Machine, Workload) {
    let mut machine = machine.with_processors(1);
    if let ("processes", Some(costs)) = (series, &mut machine.operations) {
        machine.kernel.switch_us.value += costs.process_switch_us.value;
        costs.thread_us.value = costs.process_us.value;
    }
    let kind = if series == "fibers" {
        Kind::Fibers { posts: POSTS, looks: true }
    } else {
        Kind::Kernel { each: 2 }
    };
    let job = if operation == NULL_FORK { Job::NullFork } else { Job::SignalWait };
    let program = Program::Threads { kind, job };
    (machine, Workload { program, threads: 2, rounds, vary: 0.0, instances: 1, setting: Setting::default() })
}

/// By how much the fibers' times differ from the paper's, at most.
fn from_the_paper(data: &Data) -> f64 {
    largest(BOTH.iter().zip(FASTTHREADS).map(|(&x, paper)| (data.at("fibers", x) / paper - 1.0).abs()))
}

const TABLE: Figure = Figure {
    name: "sa1",
    title: "Table I of Scheduler Activations: Null Fork and Signal-Wait, one processor of a Firefly",
    machine: "firefly-6",
    x: Axis { label: "1 Null Fork, 2 Signal-Wait", unit: "", log: false },
    y: Axis { label: "latency", unit: "us", log: true },
    series: &["fibers", "kernel threads", "processes"],
    at: BOTH,
    rounds: 1_000,
    limit_ms: 60_000.0,
    build: table,
    scale: |results, rounds| 1e3 * results.elapsed_ms / rounds as f64,
    claims: &[
        Claim {
            words: "User-level threads take 34 and 37 us",
            source: TOCS,
            measure: "fibers' latency by the paper's: largest difference",
            number: from_the_paper,
            bound: AtMost(0.25),
            note: "",
        },
        Claim {
            words: "Their cost is within an order of magnitude of a procedure call",
            source: TOCS,
            measure: "fibers' latency by a call of 7 us: largest",
            number: |data| largest(BOTH.iter().map(|&x| data.at("fibers", x) / CALL)),
            bound: AtMost(10.0),
            note: "",
        },
        Claim {
            words: "There is an order of magnitude between kernel threads and user-level threads",
            source: TOCS,
            measure: "kernel threads' latency by the fibers': smallest",
            number: |data| data.least(&["kernel threads"], &["fibers"], BOTH),
            bound: AtLeast(10.0),
            note: "",
        },
        Claim {
            words: "There is an order of magnitude between processes and kernel threads, in Null Fork",
            source: TOCS,
            measure: "processes' Null Fork by kernel threads'; both are solved for",
            number: |data| data.least(&["processes"], &["kernel threads"], &[NULL_FORK]),
            bound: AtLeast(10.0),
            note: "",
        },
    ],
};

const CONTENDERS: &[&str] = &[
    "kernel threads",
    "8 kernel threads",
    "activations",
    "no look at all",
    "16 sentinels",
    "told 1 ms late",
    "not told",
];
const NO_LOOK: &[&str] = &["no look at all", "16 sentinels"];
const BURSTS: &str = "on 256 processors, where many block at once, both sentinels are busy for some 100 us";

/// Tasks of 2 ms, each of which the kernel then keeps for 10 ms.
fn tasks(machine: Machine, series: &str, processors: f64, rounds: u64) -> (Machine, Workload) {
    let kind = match series {
        "kernel threads" => Kind::Kernel { each: 1 },
        "8 kernel threads" => Kind::Kernel { each: 8 },
        "16 sentinels" => Kind::Fibers { posts: 16, looks: false },
        _ => Kind::Fibers { posts: POSTS, looks: series == "activations" },
    };
    let hints = match series {
        "told 1 ms late" => Hints::Delayed { us: 1_000.0 },
        "not told" => Hints::None,
        _ => Hints::True,
    };
    let job = Job::Tasks { compute_ns: 2e6, kept_ns: 10e6, faults: false };
    let setting = Setting { hints, ..Setting::default() };
    let threads = processors as u32;
    let program = Program::Threads { kind, job };
    let rounds = rounds * u64::from(threads);
    (
        machine.with_processors(threads),
        Workload { program, threads, rounds, vary: 0.2, instances: 1, setting },
    )
}

fn used(results: &Results, _: u64) -> f64 {
    results.activity.as_ref().map_or(f64::NAN, |it| it.used)
}

fn idle(results: &Results, _: u64) -> f64 {
    results.activity.as_ref().map_or(f64::NAN, |it| it.idle_while_ready)
}

const USE: Figure = Figure {
    name: "sa2",
    title: "Use of processors while half of the tasks begin that are left, each kept by the kernel for 10 ms",
    machine: "cxl-1024",
    x: PROCESSORS,
    y: Axis { label: "processor use", unit: "of 1", log: false },
    series: CONTENDERS,
    at: SIZES,
    rounds: 60,
    limit_ms: 60_000.0,
    build: tasks,
    scale: used,
    claims: &[
        Claim {
            words: "The processor is lost to the program while one of a kernel thread a processor is blocked",
            source: SECTION_2,
            measure: "processor use of a kernel thread a processor: largest",
            number: |data| largest(SIZES.iter().map(|&x| data.at("kernel threads", x))),
            bound: AtMost(0.6),
            note: "",
        },
        Claim {
            words: "With activations the processor runs another thread",
            source: GOALS,
            measure: "processor use with true upcalls: smallest",
            number: |data| -largest(SIZES.iter().map(|&x| -data.at("activations", x))),
            bound: AtLeast(0.95),
            note: "",
        },
        Claim {
            words: "It does so on any number, if no sentinel looks at all carriers",
            source: GOALS,
            measure: "the same without that look: smallest",
            number: |data| {
                -largest(SIZES.iter().flat_map(|&x| NO_LOOK.iter().map(move |it| -data.at(it, x))))
            },
            bound: AtLeast(0.95),
            note: "",
        },
    ],
};

const IDLE: Figure = Figure {
    name: "sa3",
    title: "Processors without a thread while fibers are ready, in the same runs",
    machine: "cxl-1024",
    x: PROCESSORS,
    y: Axis { label: "idle while ready", unit: "of 1", log: false },
    series: CONTENDERS,
    at: SIZES,
    rounds: 60,
    limit_ms: 60_000.0,
    build: tasks,
    scale: idle,
    claims: &[
        Claim {
            words: "No processor idles in the presence of ready threads",
            source: GOALS,
            measure: "idle processors while fibers are ready, by all, with true upcalls: largest",
            number: |data| largest(SIZES.iter().map(|&x| data.at("activations", x))),
            bound: AtMost(0.0),
            note: BURSTS,
        },
        Claim {
            words: "The upcalls do it: told 1 ms late, processors idle for 1 ms of 3, whatever their number",
            source: GOALS,
            measure: "idle processors, told 1 ms late, less those with true ones and no look: smallest",
            number: |data| {
                -largest(SIZES.iter().map(|&x| data.at("no look at all", x) - data.at("told 1 ms late", x)))
            },
            bound: AtLeast(0.25),
            note: "",
        },
        Claim {
            words: "Without upcalls processors idle longer, on 256 processors",
            source: GOALS,
            measure: "idle processors, where nothing is told, less those with true ones and no look",
            number: |data| data.at("not told", LARGE) - data.at("no look at all", LARGE),
            bound: AtLeast(0.1),
            note: "",
        },
    ],
};

/// The paper's figures.
pub(super) const FIGURES: &[Figure] = &[TABLE, USE, IDLE];
