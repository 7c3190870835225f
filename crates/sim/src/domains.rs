// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that have processors of their own, as the crate `policy` decides: the partitions of Uemura and
//! Kan, each with a run queue. The default partition is number 0, that of program n is n + 1.
//!
//! As the server does, it looks at what programs use for whom it chooses, once in a while.

use policy::{Count, Demand, Event, Id, Owner, SemiDynamic, System};

use crate::engine::Engine;
use crate::machine::Machine;
use crate::memory::{NS, Time, from_ns};
use crate::partition::processors;
use crate::setting::{Asks, Server};
use crate::thread::{FOREIGN, NOBODY, State};
use crate::timers::Timer;

/// When a program was looked at last, and how things were.
#[derive(Clone, Copy, PartialEq)]
struct Look {
    at: Time,
    used: Time,
    holds: u32,
    since: u64,
}

pub(crate) struct Domains {
    system: System<SemiDynamic>,
    /// Each processor's partition.
    of: Vec<usize>,
    /// How often they have changed.
    generation: u32,
    every: Time,
    /// By program.
    looks: Vec<Option<Look>>,
}

impl Domains {
    pub fn new(machine: &Machine, server: &Server) -> Self {
        let mut system = System::new(processors(machine), 1, SemiDynamic);
        for (id, asks) in (0..).zip(&server.asks) {
            let count = match *asks {
                Asks::Nothing => continue,
                Asks::Numbers { least, wanted, most } => Count::Numbers { least, wanted, most },
                Asks::Auto => Count::Choose { most: u32::MAX },
            };
            // A program that is refused runs in the default partition.
            let _ = system.apply(Event::Request(id, Demand { priority: 1, count }), 0);
        }
        let every = from_ns(server.look_ms * 1e6);
        let looks = vec![None; server.asks.len()];
        let mut it = Self { system, of: Vec::new(), generation: 0, every, looks };
        it.settle();
        it
    }

    /// Partitions that there may be.
    pub fn most(&self) -> usize {
        self.looks.len() + 1
    }

    /// When it looks first, if it does.
    pub fn look(&self) -> Option<Time> {
        (self.every > 0).then_some(self.every)
    }

    /// The partition of a processor.
    pub fn of(&self, processor: usize) -> usize {
        self.of[processor]
    }

    /// The partition that a program runs in.
    pub fn home(&self, app: usize) -> usize {
        if app == FOREIGN || self.holds(app) == 0 { 0 } else { app + 1 }
    }

    pub fn generation(&self) -> u32 {
        self.generation
    }

    fn holds(&self, app: usize) -> u32 {
        self.system.application(app as Id).map_or(0, |it| it.holds())
    }

    /// True if a processor is in another partition now.
    fn settle(&mut self) -> bool {
        let of = |number: u32| match self.system.owner(number) {
            Owner::Application(id) => id as usize + 1,
            _ => 0,
        };
        let of: Vec<usize> = (0..self.system.machine().count()).map(of).collect();
        let changes = of != self.of;
        self.generation += u32::from(changes);
        self.of = of;
        changes
    }

    /// Tells the policy what was used. `used` is the processor time of each program.
    fn note(&mut self, used: &[Time], now: Time) {
        let mut all = Vec::new();
        for (app, look) in self.looks.iter_mut().enumerate() {
            let Some(it) = self.system.application(app as Id) else { continue };
            if !matches!(it.demand.count, Count::Choose { .. }) || it.holds() == 0 {
                *look = None;
                continue;
            }
            let is = Look { at: now, used: used[app], holds: it.holds(), since: it.since };
            if let Some(was) = look.replace(is)
                && (was.holds, was.since) == (is.holds, is.since)
            {
                let hundredths = 100 * (is.used - was.used) / (is.at - was.at).max(1);
                all.push((app as Id, (hundredths as u32).min(100 * is.holds)));
            }
        }
        let _ = self.system.apply(Event::Used(all), now / NS);
    }
}

impl Engine {
    /// How many processors the running thread's program may use.
    pub(crate) fn own_processors(&self) -> usize {
        let Some(domains) = &self.domains else { return self.partition.ours.len() };
        let home = if self.current == NOBODY { 0 } else { domains.home(self.threads[self.current].app) };
        domains.of.iter().filter(|&&of| of == home).count()
    }

    /// Is the thread that runs there one of another partition?
    pub(crate) fn is_elsewhere(&self, processor: usize) -> bool {
        let thread = self.processors[processor].thread;
        self.domains
            .as_ref()
            .is_some_and(|it| thread != NOBODY && it.home(self.threads[thread].app) != it.of[processor])
    }

    /// The first processor of a partition that has one.
    pub(crate) fn first_of(&self, partition: usize) -> usize {
        let of = self.domains.as_ref().map_or(&[][..], |it| &it.of);
        of.iter().position(|&it| it == partition).unwrap_or(0)
    }

    /// The server looks, and moves processors.
    pub(crate) fn look_at_use(&mut self, now: Time) {
        let mut used = vec![0; self.apps.len()];
        for thread in self.threads.iter().filter(|thread| thread.app != FOREIGN) {
            let runs = thread.state == State::Running;
            used[thread.app] += thread.cpu + if runs { now.saturating_sub(thread.on_since) } else { 0 };
        }
        let Some(domains) = &mut self.domains else { return };
        domains.note(&used, now);
        let again = now + domains.every;
        if domains.settle() {
            self.tally.repartitions += 1;
            self.move_threads(now);
        }
        self.timers.set(again, Timer::Repartition);
    }

    /// Threads leave processors that are not their program's any more, and come to those that are.
    fn move_threads(&mut self, now: Time) {
        let mut ready: Vec<usize> =
            self.waiting.queues.iter_mut().flat_map(|queue| queue.drain(..)).collect();
        for processor in 0..self.processors.len() {
            if self.is_elsewhere(processor) {
                ready.push(self.take_off(processor, now));
                self.dispatch(processor, now);
            }
        }
        for thread in ready {
            let queue = self.queue_of(thread);
            self.waiting.queues[queue].push_back(thread);
        }
        for processor in 0..self.processors.len() {
            if self.processors[processor].thread == NOBODY {
                self.dispatch(processor, now);
            }
        }
    }
}
