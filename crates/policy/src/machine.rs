// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processors, and which are near to each other.

use std::collections::BTreeMap;

/// One processor, as the kernel numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processor {
    /// Processors of one core share its units and first caches.
    pub core: u32,
    /// Processors of one node share its memory.
    pub node: u32,
    /// Can it be given out?
    pub online: bool,
}

/// All processors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    processors: BTreeMap<u32, Processor>,
}

impl FromIterator<(u32, Processor)> for Machine {
    fn from_iter<T: IntoIterator<Item = (u32, Processor)>>(processors: T) -> Self {
        Self { processors: processors.into_iter().collect() }
    }
}

impl Machine {
    /// One of them.
    pub fn get(&self, processor: u32) -> Option<&Processor> {
        self.processors.get(&processor)
    }

    /// All, by number.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Processor)> {
        self.processors.iter().map(|(&number, processor)| (number, processor))
    }

    /// Those that can be given out.
    pub fn online(&self) -> impl Iterator<Item = u32> {
        self.iter().filter(|(_, processor)| processor.online).map(|(number, _)| number)
    }

    /// How many there are, online or not.
    pub fn count(&self) -> u32 {
        self.processors.len() as u32
    }

    /// False if it was so already.
    pub(crate) fn set_online(&mut self, processor: u32, online: bool) -> bool {
        match self.processors.get_mut(&processor) {
            Some(known) if known.online != online => {
                known.online = online;
                true
            }
            _ => false,
        }
    }
}
