// SPDX-License-Identifier: MIT OR Apache-2.0
//! User-level threads on scheduler activations.

pub mod abode;
pub mod bell;
pub mod bolt;
mod cancel;
mod carrier;
mod debuggers;
pub mod deque;
pub mod done;
mod downcall;
pub mod fences;
mod forks;
pub mod futures;
pub mod guests;
mod list;
pub mod local;
mod look;
pub mod machine;
mod overdue;
mod overflow;
mod page;
pub mod policy;
pub mod posts;
mod queued;
mod record;
mod runtime;
pub mod seats;
mod sentinel;
mod stack;
mod start;
pub mod steer;
pub mod sync;
mod table;
pub mod thread;
mod timers;
pub mod token;
pub mod turns;
mod visits;
mod waits;

pub use machine::Fibers;
pub use runtime::{Activations, Config, Priority, Runtime};
