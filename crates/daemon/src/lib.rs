// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wakefuld`, the processor server: it gives programs that ask partitions of their own, and keeps everybody else off them.
//!
//! Mechanism only. Who gets what is `policy`'s to decide; how a partition is kept is in `partitions`; what is asked of the system
//! goes through one trait in `kernel`; what takes more rights than the others need is in a process of its own, `loader`; `arenas` are what programs learn from the server's observer; `server` is what happens in which order. The messages are those of [`abi::server`].

pub mod arenas;
pub mod args;
pub mod config;
pub mod kernel;
pub mod loader;
pub mod partitions;
pub mod server;
mod stat;

pub use config::Config;
pub use server::Server;
