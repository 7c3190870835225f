// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for tasks, which a thread keeps.

use std::alloc::Layout;
use std::cell::Cell;

use crate::memory::{self, Need};

/// BOUND: bytes for a task and a few arguments.
#[repr(align(64))]
struct Block(#[allow(dead_code)] [u8; 448]);

/// Memory for tasks that a thread keeps.
#[derive(Default)]
pub struct Blocks {
    /// Each begins with the next one's address.
    first: Cell<*mut u8>,
    count: Cell<u32>,
}

impl Blocks {
    pub const LAYOUT: Layout = Layout::new::<Block>();
    /// BOUND: blocks that a thread keeps; as many as it may have open tasks.
    pub const MOST: u32 = 64;

    #[inline]
    fn fits(layout: Layout) -> bool {
        layout.size() <= Self::LAYOUT.size() && layout.align() <= Self::LAYOUT.align()
    }

    /// Memory for a task.
    #[inline]
    pub fn get(&self, layout: Layout, need: Need) -> Option<*mut u8> {
        let (first, fits) = (self.first.get(), Self::fits(layout));
        if fits && !first.is_null() {
            // SAFETY: one that is kept begins so.
            self.first.set(unsafe { first.cast::<*mut u8>().read() });
            self.count.set(self.count.get() - 1);
            return Some(first);
        }
        let memory = memory::get(if fits { Self::LAYOUT } else { layout }, need);
        (!memory.is_null()).then_some(memory)
    }

    /// # Safety
    /// From `get`, of this or another thread, with this layout; not used any more.
    #[inline]
    pub(crate) unsafe fn put(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as promised.
        unsafe {
            if !Self::fits(layout) {
                memory::put(memory, layout);
            } else if self.count.get() >= Self::MOST {
                memory::put(memory, Self::LAYOUT);
            } else {
                memory.cast::<*mut u8>().write(self.first.get());
                self.first.set(memory);
                self.count.set(self.count.get() + 1);
            }
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        let mut block = self.first.get();
        while !block.is_null() {
            // SAFETY: kept, and so from `get`.
            unsafe {
                let next = block.cast::<*mut u8>().read();
                memory::put(block, Self::LAYOUT);
                block = next;
            }
        }
    }
}
