// SPDX-License-Identifier: MIT OR Apache-2.0
//! *Scheduler Activations* (Anderson, Bershad, Lazowska, Levy, 1992): table I.
//!
//! Of table I the rows of kernel threads and processes are not found out here: the machine's description is
//! solved from them. What is found out are the fibers.

use super::Bound::{AtLeast, AtMost};
use super::{Axis, Claim, Data, Figure, largest};
use crate::activations::{Job, Kind};
use crate::{Machine, Program, Setting, Workload};

const TOCS: &str = "Scheduler Activations, section 2.1";

/// As many as the fibers' runtime has.
const POSTS: u32 = 2;
const NULL_FORK: f64 = 1.0;
const SIGNAL_WAIT: f64 = 2.0;
const BOTH: &[f64] = &[NULL_FORK, SIGNAL_WAIT];
const FASTTHREADS: [f64; 2] = [34.0, 37.0];
/// A procedure call on the Firefly, in us.
const CALL: f64 = 7.0;

fn table(machine: Machine, series: &str, operation: f64, rounds: u64) -> (Machine, Workload) {
    let mut machine = machine.with_processors(1);
    if let ("processes", Some(costs)) = (series, &mut machine.operations) {
        machine.kernel.switch_us.value += costs.process_switch_us.value;
        costs.thread_us.value = costs.process_us.value;
    }
    let kind = if series == "fibers" { Kind::Fibers { posts: POSTS } } else { Kind::Kernel { each: 2 } };
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

/// The paper's figures.
pub(super) const FIGURES: &[Figure] = &[TABLE];
