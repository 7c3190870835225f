// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets of processors.

use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

use crate::{MAX_PROCESSORS, Partition};

const BITS: u32 = u64::BITS;
const WORDS: usize = MAX_PROCESSORS / BITS as usize;

/// A set of processors; bit n of its words is processor n. It is shown as the kernel shows one: `0-2,5`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Processors([u64; WORDS]);

impl Processors {
    /// From its words.
    pub const fn from_words(words: [u64; WORDS]) -> Self {
        Self(words)
    }

    /// Its words.
    pub const fn words(&self) -> &[u64; WORDS] {
        &self.0
    }

    /// Adds a processor. False if it is there already, or if no set can name it.
    pub fn insert(&mut self, processor: u32) -> bool {
        let Some(word) = self.0.get_mut((processor / BITS) as usize) else { return false };
        let bit = 1 << (processor % BITS);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Is this one among them?
    pub fn contains(&self, processor: u32) -> bool {
        self.0.get((processor / BITS) as usize).is_some_and(|word| word >> (processor % BITS) & 1 == 1)
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// Their numbers, the lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0..MAX_PROCESSORS as u32).filter(|&processor| self.contains(processor))
    }
}

impl FromIterator<u32> for Processors {
    fn from_iter<T: IntoIterator<Item = u32>>(numbers: T) -> Self {
        let mut all = Self::default();
        numbers.into_iter().for_each(|number| _ = all.insert(number));
        all
    }
}

impl fmt::Display for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if_eq(&(last + 1)) {
                last = next;
            }
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Processors({self})")
    }
}

impl Partition {
    /// The processors that are ours. Word by word: while somebody writes, some of both sets.
    pub fn load_ids(&self) -> Processors {
        let mut words = [0; WORDS];
        words.iter_mut().zip(&self.ids).for_each(|(to, from)| *to = from.load(Relaxed));
        Processors(words)
    }

    /// Writes the processors that are ours, and how many they are.
    pub fn store_ids(&self, ids: &Processors) {
        self.ids.iter().zip(ids.words()).for_each(|(to, &from)| to.store(from, Relaxed));
        self.processors.store(ids.count(), Relaxed);
    }
}
