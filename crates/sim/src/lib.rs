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
//! - **Atomic operations** cost more than stores, succeed or not.
//! - **A kernel**: run queues (one, or one a processor), quanta, the costs of a switch, a migration, a
//!   system call and a wake-up; sleeping on a word; who wakes up comes last, or next, or at once, if it has
//!   used less than others; foreign processes; a partition that changes; and the arena: run states, counts
//!   of preempted threads by priority, the wish not to be preempted, honoured once and repaid from the next
//!   quantum (KE-1, KE-2 of TR 1994), the partition and its generation (KE-3), the choice by user-level
//!   priority among the threads of a program (ICPP 2001, section 3). It may also lie ([`Hints`]).
//!
//! # What is not
//!
//! - **Weak memory**: accesses happen one after the other, in the order of virtual time. `loom` is for
//!   that.
//! - **Capacity**: a cache never loses a line to another, and a thread that comes back to its processor
//!   finds what it left. What a switch or a migration costs beyond itself stands in the description as a
//!   lump.
//! - **Instructions** between shared accesses take no time, but for [`work_ns`] and pauses.
//! - **Places in a ring** and routing: what is on one level is equally far.
//!
//! Two runs with one seed give the same results, byte for byte, on any host: nothing depends on addresses,
//! on the host's clock or on the order of a hash table, and time is an integer number of picoseconds.
//! (Words on threads' stacks are the exception that algorithms of the catalogue do not make: their number
//! depends on the order of first use only, but a place that is used anew counts as the old word.)

mod app;
pub mod defaults;
mod engine;
pub mod explore;
pub mod figure;
mod kernel;
mod machine;
mod memory;
mod partition;
mod platform;
mod results;
mod spin;
mod tree;
mod workload;

pub use machine::{
    Figure, Kernel, Level, MACHINES, Machine, MachineError, Memory, Processors, Queue, Sourced, Woken,
};
pub use platform::{Explored, Sim, Simulated, Word, clock_ns, fail, passed, random, vary, work_ns};
pub use results::{Results, ThreadResults, Waits};
pub use workload::{Hints, Program, Repartition, Setting, Workload};

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;

use engine::Engine;

/// Why a simulation did not begin.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// Nothing in the catalogue is called so.
    #[error("no {kind} is called \"{name}\"")]
    Unknown {
        /// mutex, reader-writer lock or barrier.
        kind: &'static str,
        /// What was asked for.
        name: String,
    },
    /// More threads than a machine can tell apart.
    #[error("{threads} threads; at most {most} can be simulated")]
    Threads {
        /// Wanted.
        threads: u64,
        /// Possible.
        most: u64,
    },
}

/// An object in the machine's memory: a copyable reference, for the threads of one simulation.
pub struct Placed<T: ?Sized>(*mut T);

// SAFETY: as for `Word`: the threads of a machine run on one thread of the host, one at a time, and what is
// placed belongs to one machine.
unsafe impl<T: ?Sized + Sync> Send for Placed<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for Placed<T> {}

impl<T: ?Sized> Clone for Placed<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Placed<T> {}

impl<T: ?Sized> Placed<T> {
    /// The object.
    pub fn get(&self) -> &T {
        // SAFETY: placed objects live as long as the machine, and only its threads, which end with it, have
        // them.
        unsafe { &*self.0 }
    }
}

impl<T: ?Sized> std::ops::Deref for Placed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.get()
    }
}

/// A machine that is being loaded with a program.
pub struct World(*mut Engine);

impl World {
    /// A program of its own: an arena that its threads share.
    pub fn add_app(&mut self) -> usize {
        // SAFETY: the engine outlives the world, and no thread runs yet.
        unsafe { (*self.0).add_app() }
    }

    /// Moves an object into the machine's memory, onto lines of its own.
    pub fn place<T: 'static>(&mut self, value: T) -> Placed<T> {
        // SAFETY: as above.
        Placed(unsafe { (*self.0).memory.place(value) })
    }

    /// As [`World::place`], one after the other.
    pub fn place_all<T: 'static>(&mut self, values: impl ExactSizeIterator<Item = T>) -> Placed<[T]> {
        // SAFETY: as above.
        Placed(unsafe { (*self.0).memory.place_all(values) })
    }

    /// A thread of a program. What it shares with others must be placed, or cost nothing.
    pub fn spawn(&mut self, app: usize, body: impl FnOnce() + 'static) {
        // SAFETY: as above.
        unsafe { (*self.0).spawn(app, body) };
    }
}

/// Runs what `build` loads, in this setting.
pub fn simulate_with(
    machine: &Machine,
    setting: &Setting,
    seed: u64,
    wanted: u64,
    build: impl FnOnce(&mut World),
) -> Results {
    simulate_then(machine, setting, seed, wanted, build, |()| ()).0
}

/// As [`simulate_with`]; when all is done, `look` makes something of what `build` has left and of what is
/// in the machine's memory.
fn simulate_then<T, R>(
    machine: &Machine,
    setting: &Setting,
    seed: u64,
    wanted: u64,
    build: impl FnOnce(&mut World) -> T,
    look: impl FnOnce(T) -> R,
) -> (Results, R) {
    let mut engine = Engine::new(machine, setting, seed);
    let this: *mut Engine = &mut *engine;
    engine::with(this, || {
        let built = build(&mut World(this));
        // SAFETY: `build` has ended, and nobody else knows the machine.
        unsafe {
            let count = (*this).processors.len();
            let foreign = (setting.foreign.max(0.0) * count as f64).round() as usize;
            for number in 0..foreign {
                (*this).spawn_foreign(number % count);
            }
            engine::run(this);
            (Results::of(&*this, &machine.name, seed, wanted), look(built))
        }
    })
}

/// Threads of a simulation: more could not be told apart in the arena. Foreign processes have no ids.
pub const MOST_THREADS: u64 = abi::MAX_THREADS as u64 - 2;

/// Runs a workload.
pub fn simulate(machine: &Machine, workload: &Workload, seed: u64) -> Result<Results, SimError> {
    let threads = u64::from(workload.threads) * u64::from(workload.instances);
    if threads > MOST_THREADS {
        return Err(SimError::Threads { threads, most: MOST_THREADS });
    }
    let (mut results, digest) = simulate_then(
        machine,
        &workload.setting,
        seed,
        workload.wanted(),
        |world| workload.build(world),
        |digests| digests.map(|all| all.into_iter().map(|digest| digest()).next()),
    );
    if let Some(digest) = digest {
        results.digest = digest.filter(|_| !results.limited && results.failure.is_none());
        return Ok(results);
    }
    let (kind, name) = match &workload.program {
        Program::Mutex { lock, .. } | Program::Quicksort { lock, .. } | Program::Cholesky { lock, .. } => {
            ("mutex", lock)
        }
        Program::RwLock { lock, .. } => ("reader-writer lock", lock),
        Program::Barrier { barrier, .. } | Program::Gauss { barrier, .. } => ("barrier", barrier),
    };
    Err(SimError::Unknown { kind, name: name.clone() })
}

/// What `run` makes of each job, in their order, on so many threads of the host, which changes nothing but
/// the time that it takes. `done` is called after each.
pub fn in_parallel<T: Sync, R: Send>(
    jobs: &[T],
    cores: usize,
    run: impl Fn(&T) -> R + Sync,
    mut done: impl FnMut(),
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    let mut results = BTreeMap::new();
    std::thread::scope(|scope| {
        for _ in 0..cores.clamp(1, jobs.len().max(1)) {
            let (send, next, run) = (send.clone(), &next, &run);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Relaxed);
                    let Some(job) = jobs.get(index) else { break };
                    if send.send((index, run(job))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        for (index, result) in receive {
            results.insert(index, result);
            done();
        }
    });
    results.into_values().collect()
}
