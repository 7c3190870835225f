// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs of the crate `apps` on the simulated machine.

use apps::{Host, Step};

use crate::engine::engine;
use crate::lost;
use crate::platform::{Sim, progressed, work_ns};
use crate::world::{Placed, World};

/// A world that is being loaded with a program.
pub(crate) struct Loading {
    world: World,
    app: usize,
}

impl Loading {
    /// A program of its own.
    pub fn new(world: &mut World) -> Self {
        let mut world = World(world.0);
        let app = world.add_app();
        Self { world, app }
    }
}

impl Host for Loading {
    type Platform = Sim;
    type Shared<T: Send + Sync + 'static> = Placed<[T]>;

    fn share<T: Send + Sync + 'static>(&mut self, values: Vec<T>) -> Placed<[T]> {
        self.world.place_all(values.into_iter())
    }

    fn spawn(&mut self, body: impl FnOnce() + Send + 'static) {
        self.world.spawn(self.app, body);
    }

    /// An operation takes as long as a word that is in the cache, or as the setting says.
    fn computed(operations: u32) {
        // SAFETY: a thread of the machine runs, which is the current one.
        let each_ns = unsafe { (*engine()).memory.hit_ns() * (*engine()).rules.setting.operation };
        work_ns(f64::from(operations) * each_ns);
    }

    fn done(parts: u32) {
        progressed(parts.into());
    }

    fn waits(step: Step, place: usize) {
        match step {
            Step::Wants => lost::wants(place),
            Step::Has => lost::has(place),
            Step::Frees => lost::frees(place),
            Step::Freed => lost::freed(place),
            Step::Comes => lost::comes(place),
            Step::Goes => lost::goes(place),
        }
    }
}
