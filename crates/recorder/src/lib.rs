// SPDX-License-Identifier: MIT OR Apache-2.0
//! When the threads of an unmodified program run, are ready and block, and in which stacks: without root.
//!
//! **Times.** One software event on each processor counts nothing. It follows the program's processes and
//! threads, and logs each context switch of theirs into a ring ([`rings`]). A record says who left its
//! processor when, and if it was preempted. So the times are complete, and cost the program 24 bytes a
//! switch. The same rings say which files were mapped where, and how threads are named ([`record`]).
//!
//! **Stacks.** An ordinary user gets no stack from the kernel at a switch: `exclude_kernel` excludes
//! the event itself, as a switch happens in the kernel. So we *look* at a thread that is blocked ([`look`]).
//! `/proc/PID/task/TID/syscall` has its system call, its stack pointer and its program counter, and
//! process_vm_readv(2) its stack. It sleeps on meanwhile: a look wakes nobody. The stack is unwound by the
//! call frame information that each file has ([`unwind`]).
//!
//! **What a look misses.** A block that ends before the next turn of the recorder is seen by chance only. It
//! counts in its thread's times, and under no site. Looks tell no register but two. Where a function
//! keeps its frame by the frame pointer and nobody below has saved it, the frame's end is searched for on the
//! stack, and what follows is marked as a guess.
//!
//! [`Recording`] has the loop, [`account`] the times, [`symbols`] the names. [`profile`] adds what a program
//! that is not quite unmodified says of its own waits. Nothing here prints.

pub mod account;
mod away;
mod became;
pub mod calls;
pub mod fast;
mod frozen;
mod halted;
mod image;
pub mod look;
mod made;
pub mod maps;
pub mod outside;
pub mod profile;
mod program;
pub mod record;
mod recording;
pub mod rings;
mod stops;
pub mod symbols;
mod unwind;

pub use halted::Halt;
pub use program::{Program, StartError};
pub use recording::{Blocks, Options, Outcome, Recording, Site};
pub use rings::OpenError;
pub use stops::Stop;
pub use unwind::Stack;

/// Nanoseconds on the monotonic clock, which the records have too.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives across the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
