// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which lines are locked, and who asks for them: what `hardware.rs` goes by.

use std::collections::HashMap;

use crate::machine::{LockOrder, Machine};
use crate::memory::{LineId, Time, from_ns};

/// Of a thread that asks for a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Asks {
    /// It does not.
    #[default]
    Nothing,
    /// It stalls.
    For(LineId),
    /// It has been given the line.
    Given,
}

/// A line that is locked.
pub(crate) struct Locked {
    /// Where it is.
    pub processor: usize,
    /// The processors that stall, in the order in which they asked.
    pub stalled: Vec<usize>,
}

pub(crate) struct Lines {
    pub order: LockOrder,
    pub get: Time,
    pub free: Time,
    pub locked: HashMap<LineId, Locked>,
}

impl Lines {
    /// `None`: the machine has no such locks.
    pub fn new(machine: &Machine) -> Option<Self> {
        let lock = machine.hardware_lock.as_ref()?.line.as_ref()?;
        Some(Self {
            order: lock.order.value,
            get: from_ns(lock.get_ns.value),
            free: from_ns(lock.free_ns.value),
            locked: HashMap::new(),
        })
    }
}
