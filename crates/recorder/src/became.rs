// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the program's processes have become: the names of what they executed last.

use crate::fast::HashMap;
use crate::record::{Record, What};

/// BOUND: processes whose names are kept.
const MOST: usize = 10_000;

/// By process.
#[derive(Default)]
pub(crate) struct Became(HashMap<u32, String>);

impl Became {
    /// Takes a record, in the order of their times.
    pub fn apply(&mut self, record: &Record) {
        match &record.what {
            What::Named { by_exec: true, name } => self.is_now(record.process, name.clone()),
            What::Forked { parent, .. } if record.process != *parent => {
                if let Some(name) = self.0.get(parent).cloned() {
                    self.is_now(record.process, name);
                }
            }
            _ => {}
        }
    }

    fn is_now(&mut self, process: u32, name: String) {
        if self.0.len() < MOST || self.0.contains_key(&process) {
            self.0.insert(process, name);
        }
    }

    /// All of them.
    pub fn names(self) -> HashMap<u32, String> {
        self.0
    }
}
