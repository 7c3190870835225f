// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that follows the delegated sections, and heaps that are bound to a node.
//!
//! A machine with several *nodes* has its memory in as many parts. A processor reaches its own node's memory
//! sooner than another's. Where a server runs all sections of a lock ([`sync::delegate::Rcl`]), only that
//! server touches what the lock protects. So these data should be on the server's node, whoever allocated
//! them. [`RclAware`] sees to that: RCLAwareMalloc, from Paznikov, "Optimization method of remote core
//! locking", Tomsk 2016.
//!
//! ```text
//!                       where do the servers run?
//!     no server yet     |   all on node n             |   on several, or nobody knows
//!    -------------------+-----------------------------+------------------------------
//!     new blocks: the   |   new blocks: a heap whose  |   new blocks: the default
//!     default allocator |   pages come from node n    |   allocator
//!         |             |                             |       |
//!         v             |   once: the pages of all    |       v
//!     AllocList --------+-> listed blocks move to n   |   AllocList
//! ```
//!
//! | part | holds |
//! |---|---|
//! | `policy` | where blocks come from, by where the servers run; no machine |
//! | `list` | AllocList: the live blocks of the default allocator |
//! | `moves` | moves pages, and looks afterwards where they are |
//! | `heap` | [`Heap`]: a heap whose pages come from one node |
//! | `aware` | [`RclAware`]: the steps, over the parts above |
//! | `c` | both as C calls them |
//! | `kernel` | all that is asked of the kernel, as a trait: tests have nodes, and refusals, without NUMA |
//! | `forks`, `locked` | what it takes to be called inside `malloc`, and to survive a fork |
//!
//! `docs/design/numa.md` has the paper's steps, its misprint, and what was measured.
//!
//! # A Rust program
//!
//! ```
//! use numa::RclAware;
//!
//! #[global_allocator]
//! static MEMORY: RclAware = RclAware::new();
//!
//! fn main() {
//!     MEMORY.follow_servers();
//!     // Threads that serve: pinned to processors of one node.
//!     let report = MEMORY.report();
//!     assert_eq!(report.moved.elsewhere, 0);
//! }
//! ```
//!
//! # What moves, and what does not
//!
//! - A block is *listed* from when the default allocator gave it out until it is freed or reallocated. So
//!   listed are the blocks which were allocated before the first server, while servers were spread, or while
//!   the kernel refused to bind memory.
//! - When all servers come to be on one node, listed blocks move there. The bound heap moves as well, if it
//!   was another node's. Blocks stay listed, so that they move again if the servers do.
//! - Pages move, not blocks. A block smaller than a page takes its neighbours along, whatever they are.
//! - A page that does not exist yet cannot move. In listed blocks of 128 KiB and more it comes from the
//!   node as soon as somebody touches it. In smaller ones it comes from where its first user runs, which in
//!   a section is the server.
//! - When servers spread, new blocks come from the default allocator, and nothing moves back.
//! - `realloc` takes a block along to where new blocks come from.
//! - A server counts as on a node if its thread may run on processors of that node only. One that may run
//!   on several is as if servers were spread: a block that follows a thread to and fro costs more than it
//!   gains.
//! - In a forked child there are no servers, so its new blocks come from the default allocator.
//! - Nodes are preferred: where one has no memory left, pages come from others. [`Report`] and [`Heap::look`]
//!   tell by `move_pages(2)` where pages are.

#![cfg(target_os = "linux")]

mod aware;
pub mod c;
mod forks;
mod heap;
mod kernel;
mod list;
mod locked;
mod moves;
pub mod policy;

pub use aware::{RclAware, Report};
pub use heap::{Heap, look};
pub use kernel::{Errno, Here, Kernel};
pub use moves::Moved;
pub use policy::Place;
