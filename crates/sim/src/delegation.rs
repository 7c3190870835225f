// SPDX-License-Identifier: MIT OR Apache-2.0
//! An experiment: delegating locks beside mutexes, by the number of clients and by what sections touch.
//!
//! Each client comes to the lock, has a section run that reads and writes so many lines, and works outside.
//! It is bound to a processor. The last one is left to the server of a lock that needs one, and to nobody
//! with another lock, so that all have the same clients.

use crate::{Machine, Program, Setting, Touches, Workload};

/// The mutex that others are compared with: the default one.
pub const DEFAULT: &str = "wakeful";

/// What is compared, if the caller does not say.
pub const LOCKS: &[&str] =
    &[DEFAULT, "mcs-spin", "smart-q", "d-wakeful", "d-wakeful-on", "cc-synch", "flat-combining", "rcl"];

/// What a lock runs in a cell of the experiment, to end at this virtual time.
pub fn workload(
    machine: &Machine,
    lock: &str,
    clients: u32,
    lines: u32,
    outside_ns: f64,
    limit_ms: f64,
) -> Workload {
    let server = machine.processors.count.value - 1;
    let program =
        Program::Delegated { lock: lock.into(), touches: Touches::Lines(lines), outside_ns, server };
    let setting = Setting { bound: true, limit_ms, ..Setting::default() };
    // More turns than the limit leaves time for.
    Workload { program, threads: clients, rounds: 1 << 40, vary: 0.2, instances: 1, setting }
}
