// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kernel with as many nodes as a test likes, or one that refuses.

// Not each test uses all of it.
#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard};

use numa::{Errno, Kernel};

pub const PAGE: usize = 4096;

/// What it knows and was asked.
#[derive(Default)]
pub struct State {
    /// Pages that exist, and their nodes.
    pub pages: BTreeMap<usize, c_int>,
    /// Ranges that are bound, by their beginnings.
    pub bound: BTreeMap<usize, (usize, u32)>,
    /// Pages that it was asked to move.
    pub asked: Vec<usize>,
    /// Pages that stay where they are for so many times that they are asked to move.
    pub busy: BTreeMap<usize, u32>,
    pub refuses_to_bind: Option<Errno>,
    pub refuses_to_move: Option<Errno>,
    pub refuses_to_tell: Option<Errno>,
}

pub struct Fake(Mutex<State>);

impl Fake {
    pub const fn new() -> Self {
        Self(Mutex::new(State {
            pages: BTreeMap::new(),
            bound: BTreeMap::new(),
            asked: Vec::new(),
            busy: BTreeMap::new(),
            refuses_to_bind: None,
            refuses_to_move: None,
            refuses_to_tell: None,
        }))
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

fn pages(at: *const u8, size: usize) -> impl Iterator<Item = usize> {
    let at = at as usize;
    (at / PAGE..(at + size).div_ceil(PAGE)).map(|page| page * PAGE)
}

impl State {
    /// A thread on `node` writes there.
    pub fn touch(&mut self, at: *const u8, size: usize, node: c_int) {
        for page in pages(at, size) {
            let bound = self.bound.range(..=page).next_back();
            let bound = bound.filter(|(begin, (size, _))| page < *begin + size);
            let node = bound.map_or(node, |(_, (_, node))| *node as c_int);
            self.pages.entry(page).or_insert(node);
        }
    }

    /// The nodes of the pages of a block.
    pub fn nodes(&self, at: *const u8, size: usize) -> BTreeSet<c_int> {
        pages(at, size).map(|page| self.pages.get(&page).copied().unwrap_or(-libc::ENOENT)).collect()
    }
}

impl Kernel for Fake {
    fn bind(&self, at: usize, size: usize, node: Option<u32>) -> Result<(), Errno> {
        assert!(at.is_multiple_of(PAGE) && size.is_multiple_of(PAGE) && size > 0);
        let mut state = self.state();
        if let Some(errno) = state.refuses_to_bind {
            return Err(errno);
        }
        match node {
            Some(node) => state.bound.insert(at, (size, node)),
            None => state.bound.remove(&at),
        };
        Ok(())
    }

    fn place(&self, pages: &[usize], to: Option<&[c_int]>, found: &mut [c_int]) -> Result<(), Errno> {
        let mut state = self.state();
        let refused = if to.is_some() { state.refuses_to_move } else { state.refuses_to_tell };
        if let Some(errno) = refused {
            return Err(errno);
        }
        for (number, page) in pages.iter().enumerate() {
            if let Some(to) = to {
                state.asked.push(*page);
                let busy = state.busy.get_mut(page).filter(|busy| **busy > 0);
                if let Some(busy) = busy {
                    *busy -= 1;
                } else if let Some(node) = state.pages.get_mut(page) {
                    *node = to[number];
                }
            }
            found[number] = state.pages.get(page).copied().unwrap_or(-libc::ENOENT);
        }
        Ok(())
    }

    fn nodes(&self) -> Result<u32, Errno> {
        Ok(4)
    }

    fn home(&self) -> Option<u32> {
        Some(0)
    }
}
