// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simulated multiprocessor: the algorithms of the catalogue, from the same source, on machines of any
//! size.
//!
//! ```
//! let machine = sim::Machine::named("sgi-challenge-11").unwrap();
//! let workload = sim::Workload::tr_lock("smart-q", 11, 2.0, 14.0, 100);
//! let results = sim::simulate(&machine, &workload, 1).unwrap();
//! assert_eq!(results.sections, 1100);
//! assert_eq!(results, sim::simulate(&machine, &workload, 1).unwrap());
//! ```
//!
//! [`Machine`] describes the machine, [`Workload`] the program and its surroundings; [`simulate`] returns
//! [`Results`]. Other programs are closures over a [`World`] ([`simulate_with`]). [`mod@explore`] tries
//! schedules instead of computing one.
//!
//! # What is modelled
//!
//! - **Processors**, each with a clock. A thread's computation takes the time that the program says
//!   ([`work_ns`]); a turn of a spin loop and a look at the clock take what the machine's description says.
//! - **Caches**, private and coherent: each line is owned by one or shared by some. An access that the own
//!   cache does not answer costs by state and distance (the levels of the description: a cache shared by
//!   some, a bus, a ring, a socket, a link), and waits for a hot line and for a busy connection. Which
//!   words share a line is decided by their place in the machine's memory ([`World::place`]), where each
//!   object begins on a line of its own, so false sharing inside an object is the real one. A word
//!   elsewhere has a line for itself.
//! - **Finite caches**, where the description names them: one a processor and, behind it, one that a group
//!   shares; sets, ways, the least recently used line goes, and is written back if it is newer than memory.
//! - **Pages** with a home node, where the description names nodes: that of the first processor that touches
//!   a line of the page, or the one that [`World::bind`] says. Memory is nearer to its own node.
//! - **Atomic operations** cost more than stores, succeed or not.
//! - **Locks of the hardware**, where the description names them: a processor locks a line, and those that
//!   ask for it stall.
//! - **A kernel**: run queues (one, or one a processor), quanta, the costs of a switch, a migration, a
//!   system call and a wake-up; sleeping on a word; who wakes up comes last, or next, or at once, if it has
//!   used less than others; foreign processes; a partition that changes; and the arena: run states, counts
//!   of preempted threads by priority, the wish not to be preempted, honoured once and repaid from the next
//!   quantum (KE-1, KE-2 of TR 1994), the partition and its generation (KE-3), the choice by user-level
//!   priority among the threads of a program (ICPP 2001, section 3). It may also lie ([`Hints`]).
//! - **A processor server**: programs with partitions of their own, divided by the crate `policy`
//!   ([`Server`]).
//!
//! # What is not
//!
//! - **Weak memory**: accesses happen one after the other, in the order of virtual time. `loom` is for
//!   that.
//! - **Capacity**, where the description names no caches: then a cache never loses a line to another, and a
//!   thread that comes back to its processor finds what it left. Foreign processes use no cache anywhere.
//!   What a switch or a migration costs beyond itself stands in the description as a lump.
//! - **Prefetching**, and more than one access of a processor at a time; address translation.
//! - **Instructions** between shared accesses take no time, but for [`work_ns`] and pauses.
//! - **Places in a ring** and routing: what is on one level is equally far.
//!
//! Two runs with one seed give the same results, byte for byte, on any host: nothing depends on addresses,
//! on the host's clock or on the order of a hash table, and time is an integer number of picoseconds.
//! (Words on threads' stacks are the exception that algorithms of the catalogue do not make: their number
//! depends on the order of first use only, but a place that is used anew counts as the old word.)

// Descriptions: `machine`. Programs: `workload`, `beside`, `delegated`, `world`, `app`. State: `engine`,
// `thread`, `word`, `memory`, `cache`, `lines`, `arena`. Who decides: `kernel`, `hardware`, `partition`,
// `domains`, `rules`. In what order: `run`, `timers`, `spinner`. What comes out: `tally`, `path`, `lost`,
// `results`, `figure`. Experiments: `choice`, `defaults`, `delegation`, `knowledge`.
// A lock as a paper prints it: `printed`.
pub mod activations;
mod app;
mod arena;
mod beside;
mod cache;
mod chance;
pub mod choice;
pub mod defaults;
mod delegated;
pub mod delegation;
mod domains;
mod engine;
mod event;
pub mod explore;
mod explorer;
pub mod figure;
mod hardware;
mod kernel;
pub mod knowledge;
mod lines;
mod lost;
mod machine;
mod memory;
mod partition;
mod path;
mod platform;
mod printed;
mod results;
mod rules;
mod run;
mod setting;
mod simulate;
mod spin;
mod spinner;
mod tally;
mod thread;
mod timers;
mod tree;
mod upcall;
mod word;
mod workload;
mod world;

pub use apps::SMALL;
pub use beside::{Load, Measured};
pub use delegated::{Order, Touches};
pub use event::Event;
pub use lost::{Bar, Lost, Waited, bars};
pub use machine::{
    Blocking, Cache, Figure, HardwareLock, Kernel, Level, LineLock, LockKind, LockOrder, MACHINES, Machine,
    MachineError, Memory, Operations, Pages, Processors, Queue, SharedCache, Sourced, Woken,
};
pub use path::Path;
pub use platform::{Explored, Sim, Simulated, clock_ns, entered, fail, left, passed, random, vary, work_ns};
pub use printed::{PRINTED, TicketNpPrinted};
pub use results::{Results, ThreadResults, Waits};
pub use setting::{Asks, Hints, Repartition, Server, Setting};
pub use simulate::{MOST_THREADS, SimError, in_parallel, simulate, simulate_with};
pub use upcall::block_ns;
pub use word::Word;
pub use workload::{Program, Workload};
pub use world::{Placed, World};
