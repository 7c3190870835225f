// SPDX-License-Identifier: MIT OR Apache-2.0
//! The OpenMP runtime, on the project's default barrier and mutex: teams, tasks, loops, reductions, control
//! variables, places and routines. It exports nothing. The crates `gomp` and `kmp` are its faces: what gcc's
//! programs call, and what clang's call.
//!
//! **Why.** OpenMP runtimes spin at barriers, since that is best while each thread has a processor, and find
//! out badly that it has not: libgomp counts its own threads only, LLVM's waits until a time has passed.
//! Beside other programs a barrier then takes milliseconds. Here who waits decides by the processors really
//! to be had ([`sync::barrier::BWakeful`]).
//!
//! Where threads meet without a lock, the algorithm is in [`sync::openmp`], and under the checkers there.
//!
//! There are no devices; target regions run here, which is said once.
//!
//! **Rules.** A panic aborts. Nothing is printed but what OpenMP's environment variables ask for, mistakes
//! in these, what ends the program, and, once, what would have ended it on the compiler's own runtime.
//! Regions allocate when a team grows, loops that wait for each other and tasks always, all else never. What
//! there is no memory for is done without, or ends the program with a line ([`memory`]).

#![cfg(target_os = "linux")]
#![allow(clippy::too_many_arguments)] // the compilers' functions have as many

mod affinity;
pub mod alloc;
mod blocks;
mod current;
mod depend;
mod dependences;
pub mod device;
mod dialect;
pub mod display;
pub mod doacross;
pub mod fork;
pub mod groups;
pub mod icv;
pub mod lock;
pub mod loops;
pub mod memory;
mod named;
pub mod nest_lock;
mod places;
mod pool;
pub mod reductions;
pub mod region;
pub mod routines;
mod share;
mod task;
pub mod tasks;
pub mod team;
pub mod text;
pub mod thread;
mod tool;
pub mod wait;
