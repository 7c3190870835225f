// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paznikov 2016: figure 1, measured, and figure 5.
//!
//! Figure 5 is the paper's test: clients add 1 to elements of an array, each by a section that an RCL server
//! runs. The memory of the array is on the node of the thread that allocated it (`default`: node 0), or on
//! the server's (`aware`: node 1). The array and the second-level caches are a 64th of the paper's, so that
//! misses are as many: the array is 333 times as large as the cache, and the lines that hold each thousandth
//! element are 5.2 times as large. The paper does not give an element's size; it is 4 bytes here.
//!
//! The paper draws figure 1 without numbers: a hand-over, a section, a hand-over. Here they are those of
//! three locks. What a section touches is not told; it is five lines that all sections share.

use super::Bound::{AtLeast, AtMost};
use super::{Axis, Claim, Data, Figure};
use crate::{Machine, Order, Path, Program, Results, Setting, Touches, Workload};

const THREADS: Axis = Axis { label: "client threads", unit: "", log: false };
const PLACES: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];

/// The second-level cache and the array are smaller by this.
const SCALE: u32 = 64;
/// 5 x 10^8 by that; as there, a multiple of the stride.
const ELEMENTS: u32 = 7_812_000;
const STRIDE: u32 = 1000;

/// The server is at node 1, core 0; threads 0 to 3 are at node 0, threads 4 to 6 at cores 1 to 3 of node 1.
const SERVER: u32 = 4;
const SERVERS_NODE: u32 = 1;
const ALLOCATORS_NODE: u32 = 0;

const ARRAY: &[&str] = &[
    "default random",
    "default sequential",
    "default stride",
    "aware random",
    "aware sequential",
    "aware stride",
];

/// A thread of the paper's test a client. Where the work varies, by a tenth.
fn clients(lock: &str, touches: Touches, outside_ns: f64, threads: f64, sections: u64) -> Workload {
    let program = Program::Delegated { lock: lock.into(), touches, outside_ns, server: SERVER };
    let setting = Setting { bound: true, ..Setting::default() };
    let rounds = (sections / threads as u64).max(1);
    Workload { program, threads: threads as u32, rounds, vary: 0.1, instances: 1, setting }
}

fn array(mut machine: Machine, series: &str, threads: f64, sections: u64) -> (Machine, Workload) {
    if let Some(shared) = &mut machine.memory.shared_cache {
        shared.sets.value /= SCALE;
    }
    let node = if series.starts_with("aware") { SERVERS_NODE } else { ALLOCATORS_NODE };
    let order = match series.split(' ').next_back() {
        Some("random") => Order::Random,
        Some("sequential") => Order::Stride(1),
        _ => Order::Stride(STRIDE),
    };
    let touches = Touches::Element { elements: ELEMENTS, order, node };
    // The next index, and the loop: 100 cycles, or any number up to twice as many. With one client or two the
    // rate depends on how it falls in with the server's looks; where the work varies, no rhythm lasts.
    (machine, Workload { vary: 1.0, ..clients("rcl", touches, 40.0, threads, sections) })
}

fn shared_lines(machine: Machine, lock: &str, threads: f64, sections: u64) -> (Machine, Workload) {
    (machine, clients(lock, Touches::Lines(5), 100.0, threads, sections))
}

fn throughput(results: &Results, _: u64) -> f64 {
    results.rate() / 1e6
}

fn of(results: &Results, what: fn(&Path) -> f64) -> f64 {
    results.path.as_ref().map_or(f64::NAN, what)
}

/// So many times the throughput with DefaultMalloc has RCLAwareMalloc.
fn gain(data: &Data, order: &str, threads: f64) -> f64 {
    data.at(&format!("aware {order}"), threads) / data.at(&format!("default {order}"), threads)
}

/// The smallest of these.
fn least(numbers: impl Iterator<Item = f64>) -> f64 {
    -super::largest(numbers.map(|number| -number))
}

const FAR: &[&str] = &["random", "stride"];
const LOCKS: &[&str] = &["native", "mcs-spin", "rcl"];
const PLAIN: &[&str] = &["native", "mcs-spin"];
/// Where somebody waits.
const CONTENDED: &[f64] = &[4.0, 7.0];

const PAZNIKOV1: &str = "Paznikov 2016, section 1";
const PAZNIKOV3: &str = "Paznikov 2016, section 3";

/// Why RCL's hand-over is longer than that of MCS.
const TWO_WAYS: &str = "The server answers on the client's line and fetches the line of the next \
     request: two ways, where MCS has one. It gains in the section more than it loses here";

const HANDOVER: Figure = Figure {
    name: "paz1a",
    title: "The critical path: hand-over, by lock, two Xeon E5420",
    machine: "xeon-e5420-2x4",
    x: THREADS,
    y: Axis { label: "hand-over", unit: "ns", log: true },
    series: LOCKS,
    at: &[1.0, 2.0, 4.0, 7.0],
    rounds: 20_000,
    limit_ms: 1_000.0,
    build: shared_lines,
    scale: |results, _| of(results, |path| path.handover_ns),
    claims: &[
        Claim {
            words: "RCL saves the overhead of handing pthread's mutex over",
            source: PAZNIKOV1,
            measure: "RCL's hand-over by that of pthread's mutex, 4 and 7 threads, the larger",
            number: |data| data.worst(&["rcl"], &["native"], CONTENDED),
            note: "",
            bound: AtMost(0.8),
        },
        Claim {
            words: "RCL has no overhead for handing the lock over",
            source: PAZNIKOV1,
            measure: "RCL's hand-over by that of MCS, 4 and 7 threads, the larger",
            number: |data| data.worst(&["rcl"], &["mcs-spin"], CONTENDED),
            note: TWO_WAYS,
            bound: AtMost(1.0),
        },
    ],
};

const THROUGHPUT: Figure = Figure {
    name: "paz5a",
    title: "RCL by place of memory and order of access, two Xeon E5420: throughput",
    machine: "xeon-e5420-2x4",
    x: THREADS,
    y: Axis { label: "throughput", unit: "million sections a second", log: false },
    series: ARRAY,
    at: PLACES,
    rounds: 20_000,
    limit_ms: 1_000.0,
    build: array,
    scale: throughput,
    claims: &[
        Claim {
            words: "RCLAwareMalloc raises the throughput with random access and with a stride",
            source: PAZNIKOV3,
            measure: "RCLAwareMalloc by DefaultMalloc, 1 to 7 threads, the smallest",
            number: |data| {
                least(FAR.iter().flat_map(|order| PLACES.iter().map(|&threads| gain(data, order, threads))))
            },
            note: "",
            bound: AtLeast(1.02),
        },
        Claim {
            words: "It is most effective with random access and with a stride",
            source: PAZNIKOV3,
            measure: "sequential access's gain by the lesser one of the others, 1 to 7 threads, the largest",
            number: |data| {
                let far = |threads| least(FAR.iter().map(|order| gain(data, order, threads) - 1.0));
                let each = |&threads: &f64| (gain(data, "sequential", threads) - 1.0) / far(threads);
                super::largest(PLACES.iter().map(each))
            },
            note: "",
            bound: AtMost(0.5),
        },
        Claim {
            words: "Its effectiveness grows with the number of threads",
            source: PAZNIKOV3,
            measure: "its gain with 7 threads by that with 1, random access and stride, the smaller",
            number: |data| {
                let grows = |order: &&str| (gain(data, order, 7.0) - 1.0) / (gain(data, order, 1.0) - 1.0);
                least(FAR.iter().map(grows))
            },
            note: "",
            bound: AtLeast(1.1),
        },
    ],
};

/// All of them.
pub const FIGURES: &[Figure] = &[
    HANDOVER,
    Figure {
        name: "paz1b",
        title: "The critical path: the section, by lock, two Xeon E5420",
        y: Axis { label: "section", unit: "ns", log: true },
        scale: |results, _| of(results, |path| path.section_ns),
        claims: &[Claim {
            words: "RCL makes sections shorter, whose data stay in the cache of the server's core",
            source: PAZNIKOV1,
            measure: "RCL's section by the shorter of pthread's mutex and MCS, 4 and 7 threads, the larger",
            number: |data| data.worst(&["rcl"], PLAIN, CONTENDED),
            note: "",
            bound: AtMost(0.8),
        }],
        ..HANDOVER
    },
    Figure {
        name: "paz1c",
        title: "The critical path: misses in a section, by lock, two Xeon E5420",
        y: Axis { label: "cache misses in a section", unit: "", log: false },
        scale: |results, _| of(results, |path| path.misses),
        claims: &[Claim {
            words: "RCL lowers the number of cache misses in sections",
            source: PAZNIKOV1,
            measure: "RCL's misses by the fewer of pthread's mutex and MCS, 4 and 7 threads, the larger",
            number: |data| data.worst(&["rcl"], PLAIN, CONTENDED),
            note: "",
            bound: AtMost(0.8),
        }],
        ..HANDOVER
    },
    THROUGHPUT,
    Figure {
        name: "paz5b",
        title: "RCL by place of memory and order of access, two Xeon E5420: cache misses",
        y: Axis { label: "cache misses", unit: "% of the accesses to the array", log: false },
        scale: |results, _| 100.0 * of(results, |path| path.memory),
        claims: &[
            Claim {
                words: "The server's accesses to memory take less time; they are not fewer",
                source: PAZNIKOV3,
                measure: "misses with the one by those with the other, 1 to 7 threads, the largest",
                number: |data| {
                    let both = |order: &str, threads| {
                        let gain = gain(data, order, threads);
                        super::largest([gain, 1.0 / gain].into_iter())
                    };
                    let orders = ["random", "sequential", "stride"];
                    let each = orders.iter().flat_map(|order| PLACES.iter().map(move |&it| both(order, it)));
                    super::largest(each)
                },
                note: "",
                bound: AtMost(1.05),
            },
            Claim {
                words: "With random access and with a stride each access to the array goes to memory",
                source: "Paznikov 2016, section 3: the array is far larger than the caches",
                measure: "the least misses in per cent, 1 to 7 threads",
                number: |data| {
                    let far = ["default random", "default stride", "aware random", "aware stride"];
                    least(
                        far.iter().flat_map(|series| PLACES.iter().map(|&threads| data.at(series, threads))),
                    )
                },
                note: "",
                bound: AtLeast(95.0),
            },
        ],
        ..THROUGHPUT
    },
];
