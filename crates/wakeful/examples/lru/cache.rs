// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache of the values that were used last: a table of places, and a list of them, the newest first.

use std::collections::HashMap;

struct Place {
    key: u64,
    value: [u64; 8],
    newer: u32,
    older: u32,
}

/// See the head of this file.
pub struct Lru {
    table: HashMap<u64, u32>,
    places: Vec<Place>,
    newest: u32,
    oldest: u32,
    most: usize,
    pub hits: u64,
}

const NONE: u32 = u32::MAX;

impl Lru {
    /// For at most so many values.
    pub fn new(most: usize) -> Self {
        let (table, places) = (HashMap::with_capacity(most), Vec::with_capacity(most));
        Self { table, places, newest: NONE, oldest: NONE, most, hits: 0 }
    }

    fn unlink(&mut self, at: u32) {
        let Place { newer, older, .. } = self.places[at as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.places[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.places[older as usize].newer = newer,
        }
    }

    fn push(&mut self, at: u32) {
        let before = std::mem::replace(&mut self.newest, at);
        (self.places[at as usize].newer, self.places[at as usize].older) = (NONE, before);
        match before {
            NONE => self.oldest = at,
            before => self.places[before as usize].newer = at,
        }
    }

    /// The value of a key, which is the newest then; `make` makes one that is not there.
    pub fn get(&mut self, key: u64, make: impl FnOnce() -> [u64; 8]) -> [u64; 8] {
        if let Some(&at) = self.table.get(&key) {
            self.hits += 1;
            self.unlink(at);
            self.push(at);
            return self.places[at as usize].value;
        }
        let value = make();
        let place = Place { key, value, newer: NONE, older: NONE };
        let at = if self.places.len() < self.most {
            self.places.push(place);
            self.places.len() as u32 - 1
        } else {
            let at = self.oldest;
            self.unlink(at);
            self.table.remove(&self.places[at as usize].key);
            self.places[at as usize] = place;
            at
        };
        self.table.insert(key, at);
        self.push(at);
        value
    }

    /// The keys, the newest first.
    pub fn keys(&self) -> impl Iterator<Item = u64> {
        let at = |number: u32| self.places.get(number as usize);
        std::iter::successors(at(self.newest), move |place| at(place.older)).map(|place| place.key)
    }
}
