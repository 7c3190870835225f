// SPDX-License-Identifier: MIT OR Apache-2.0
//! Workloads, statistics and result records. Nothing here prints.
//!
//! [`suite`] measures every contender in every cell, interleaved, each sample in a process of its own (a
//! [`job`]), so that contenders can differ in environment and preloaded library and none inherits the
//! threads, heap or arena of another. [`compare`] runs a whole program with and without the interposer.
//! Results are ratios of interleaved pairs ([`stats`]).

pub mod busy;
pub mod compare;
pub mod contender;
pub mod error;
pub mod grant;
pub mod harness;
pub mod job;
pub mod machine;
pub mod partition;
pub mod process;
pub mod stats;
pub mod suite;
pub mod workload;

/// Version of every record that this crate serialises.
pub const SCHEMA: u32 = 1;
