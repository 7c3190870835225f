// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simulation from its description to its results.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;

use crate::engine::{self, Engine};
use crate::machine::Machine;
use crate::results::Results;
use crate::run;
use crate::setting::Setting;
use crate::workload::Workload;
use crate::world::World;

/// Why a simulation did not begin.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// Nothing in the catalogue is called so.
    #[error("no {kind} is called \"{name}\"")]
    Unknown {
        /// mutex, reader-writer lock, delegating lock or barrier.
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
            run::run(this);
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
    let (kind, name) = workload.program.lock();
    Err(SimError::Unknown { kind, name: name.into() })
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
