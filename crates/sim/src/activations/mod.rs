// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads as *Scheduler Activations* (Anderson, Bershad, Lazowska, Levy, 1992) compares them.
//!
//! Fibers are those of the crate `fiber`: its seats, which say who may run when a thread blocks, its deques
//! and its tokens, from the same source. Only the loops around them are this module's
//! (`package`), because the crate's own speak to Linux. A fiber is a procedure here, which
//! runs to its next wait.

mod package;
mod table;
mod task;

use platform::{Atomic, AtomicInt, Ordering::*, Platform};

use crate::platform::Sim;
use crate::world::World;
use package::Package;
use task::Task;
pub use task::{Job, Kind};

/// Puts the program into the world: so many processors, tasks or turns, and by which fraction lengths vary.
pub(crate) fn load(world: &mut World, kind: Kind, job: Job, processors: u32, rounds: u64, by: f64) {
    let Job::Tasks { compute_ns, kept_ns, faults } = job else {
        return match kind {
            Kind::Fibers { posts, .. } => table::fibers(world, posts, rounds, job == Job::NullFork),
            Kind::Kernel { .. } if job == Job::NullFork => table::fork(world, rounds),
            Kind::Kernel { .. } => table::signal_wait(world, rounds),
        };
    };
    let tasks: Vec<Task> = (0..rounds).map(|_| Task::new(compute_ns, kept_ns, faults)).collect();
    world.ready(tasks.len() as u64);
    let tasks = world.keep(tasks);
    match kind {
        Kind::Fibers { posts, looks } => {
            let package = Package::new(world, processors, posts, looks, by);
            package.get().deal(tasks);
        }
        Kind::Kernel { each } => {
            let app = world.add_app();
            let next = world.place(<Sim as Platform>::AtomicU32::new(0));
            for _ in 0..processors * each {
                world.spawn(app, move || {
                    while let Some(task) = tasks.get().get(next.fetch_add(1, Relaxed) as usize) {
                        task.run(by);
                    }
                });
            }
        }
    }
}
