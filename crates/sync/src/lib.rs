// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every algorithm once, generic over [`platform::Platform`]: no system calls, no clocks, no std atomics.
//!
//! One file per algorithm; its theory statement opens it. File name = catalogue name.
#![no_std]

pub mod barrier;
pub mod condvar;
pub mod delegate;
pub mod mutex;
pub mod once;
pub mod openmp;
pub mod rwlock;
pub mod seated;
pub mod semaphore;
pub mod spin;
pub mod team;
pub mod wait;
