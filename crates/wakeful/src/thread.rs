// SPDX-License-Identifier: MIT OR Apache-2.0
//! User-level threads: `std::thread`'s interface at some procedure calls' cost.
//!
//! A *fiber* is a stack of its own on a kernel thread, its *carrier*. As many carriers run as there
//! are processors. If one blocks in the kernel (a system call, a page fault), the kernel wakes another,
//! which runs the fibers that have not begun yet.
//!
//! ```
//! use std::time::Duration;
//! use wakeful::thread;
//!
//! let fibers: Vec<_> = (0..1000)
//!     .map(|number| {
//!         thread::spawn(move || {
//!             thread::sleep(Duration::from_millis(1));
//!             number
//!         })
//!     })
//!     .collect();
//! let sum: u32 = fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum();
//! assert_eq!(sum, 499_500);
//! ```
//!
//! # What a fiber may do
//!
//! Everything that a thread may. A fiber stays with the kernel thread on which it begins, so thread-local
//! data are safe in it, and so is `spawn`. Three things differ from a kernel thread:
//!
//! - Fibers of one carrier share its thread-local data. [`local`] has storage of the fiber's own.
//! - A fiber waits parked at [`sync`]'s locks and at those of this crate's root. Std's block the carrier. Do
//!   not hold one of those across a wait: the holder and who wants the lock may share a carrier. So it is
//!   with the locks of [`crate::raw`] that only spin.
//! - A fiber that unwinds does not switch: a wait then stops its carrier. In a destructor that runs during a
//!   panic, do not wait for a fiber that may share the carrier: no join, no lock that it holds.
//!
//! # Where it differs from `std::thread`
//!
//! - [`current`] returns `None` outside of fibers. A [`Thread`] has a name and can be unparked. It has no id.
//! - [`Builder`] also sets a runtime, a priority and a rank, and has [`Builder::spawn_movable`], which is
//!   unsafe. It has no `spawn_scoped`: scoped fibers have no names.
//! - [`JoinHandle::cancel`] is new. [`park`], [`sleep`] and [`yield_now`] unwind a fiber that is cancelled.
//!   In a kernel thread they are std's.
//! - `available_parallelism` and `panicking` are not here. Std's are right in a fiber.
//! - A [`Priority`] is one of two, as the kernel lets an ordinary user choose one policy below the usual one.
//!   Finer orders are a [`policy`]'s.
//!
//! # Cancellation
//!
//! [`JoinHandle::cancel`] ends a fiber where it parks, sleeps, yields or comes to a [`cancellation_point`].
//!
//! # Futures
//!
//! [`block_on`] polls a future and lets other fibers run between. [`spawn_async`] starts a fiber that does.
//! So tasks and fibers share the processors, and a task that blocks in the kernel keeps none.
//!
//! # Other models
//!
//! A [`policy`] orders the fibers of a runtime. The examples `workers`, `actors` and `futures` of this crate
//! build three models of concurrency on it.
//!
//! # Stacks
//!
//! A stack has 256 KiB, or what [`Config`] and [`Builder::stack_size`] say, with a guard below it. An
//! overflow ends the program and names the fiber.

pub use fiber::futures::{block_on, spawn_async};
pub use fiber::thread::*;
pub use fiber::{Activations, Config, Priority, Runtime, futures, local, policy, sync};
