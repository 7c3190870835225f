// SPDX-License-Identifier: MIT OR Apache-2.0
//! What holds throughout a simulation: what the machine's description and the setting say.

use crate::machine::{Blocking, Machine, Queue, Woken};
use crate::memory::{Time, from_ns};
use crate::setting::Setting;

pub(crate) struct Costs {
    pub pause: Time,
    pub clock: Time,
    pub quantum: Time,
    pub jitter: f64,
    pub switch: Time,
    pub migration: Time,
    pub syscall: Time,
    pub wake: Time,
    pub grace: Time,
    pub margin: Time,
    pub credit: Time,
    pub call: Time,
    pub thread: Time,
}

impl Costs {
    fn of(machine: &Machine) -> Self {
        let kernel = &machine.kernel;
        let us = |us: f64| from_ns(us * 1e3);
        Self {
            pause: from_ns(machine.processors.pause_ns.value).max(1),
            clock: from_ns(machine.processors.clock_ns.value).max(1),
            quantum: us(kernel.quantum_ms.value * 1e3).max(1),
            jitter: kernel.quantum_jitter.value,
            switch: us(kernel.switch_us.value),
            migration: us(kernel.migration_us.value),
            syscall: us(kernel.syscall_us.value).max(1),
            wake: us(kernel.wake_us.value),
            grace: us(kernel.grace_us.value),
            margin: us(kernel.woken_margin_ms.value * 1e3),
            credit: us(kernel.woken_credit_ms.value * 1e3),
            call: machine.operations.as_ref().map_or(0, |it| us(it.call_us.value)),
            thread: machine.operations.as_ref().map_or(0, |it| us(it.thread_us.value)),
        }
    }
}

pub(crate) struct Rules {
    pub costs: Costs,
    /// What the algorithms are told of them.
    pub told: platform::Costs,
    pub queue: Queue,
    pub woken: Woken,
    pub blocking: Blocking,
    pub honours: bool,
    pub second_level: bool,
    /// When the simulation ends at the latest.
    pub cap: Time,
    pub setting: Setting,
}

impl Rules {
    /// What each thread that is woken costs its waker, beyond the one system call of a futex.
    pub fn wakes(&self) -> Time {
        self.costs.wake + if self.blocking == Blocking::Signals { self.costs.syscall } else { 0 }
    }

    pub fn new(machine: &Machine, setting: &Setting) -> Self {
        let kernel = &machine.kernel;
        // A bound thread waits where it belongs; a partition has one queue.
        let queue = match setting {
            Setting { server: Some(_), .. } => Queue::Global,
            Setting { bound: true, .. } => Queue::Processor,
            _ => setting.queue.unwrap_or(kernel.queue.value),
        };
        Self {
            costs: Costs::of(machine),
            told: machine.costs(),
            queue,
            woken: kernel.woken.value,
            blocking: kernel.blocking.value,
            honours: setting.honours_wishes.unwrap_or(kernel.honours_wishes.value),
            second_level: setting.second_level.unwrap_or(kernel.second_level.value),
            cap: from_ns(setting.limit_ms * 1e6),
            setting: setting.clone(),
        }
    }
}
