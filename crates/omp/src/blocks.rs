// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for tasks: each thread keeps some, and full magazines go from threads that free to threads that
//! make.
//!
//! Where one member makes all tasks and others run them, each block is freed by another thread than the one
//! that asks for the next. By malloc that is two contended calls a task. So blocks travel as Bonwick and
//! Adams have it (Magazines and Vmem, USENIX 2001, section 3): a thread has two *magazines* of blocks, and
//! exchanges a full or an empty one with the *depot*. Its lock is taken once in a magazine's length, by
//! `try_lock`: who does not get it uses malloc. So a child of fork, in which nobody may release it, goes on.
//!
//! ```text
//!   runner: put .. put -> both magazines full --> depot --> both magazines empty <- get: maker
//! ```

use std::alloc::Layout;
use std::cell::Cell;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::lock::Guarded;
use crate::memory::{self, Need};

/// BOUND: bytes for a task and a few arguments.
#[repr(align(64))]
struct Block(#[allow(dead_code)] [u8; 448]);

/// What stands in a block that nobody uses.
struct Links {
    /// The next of its magazine.
    next: *mut Links,
    /// In a magazine's first one: the next magazine of the depot.
    below: *mut Links,
}

/// Blocks in a list.
#[derive(Clone, Copy)]
struct Magazine {
    first: *mut Links,
    count: u32,
}

impl Default for Magazine {
    fn default() -> Self {
        Self { first: ptr::null_mut(), count: 0 }
    }
}

impl Magazine {
    /// BOUND: blocks; with both of its magazines a thread keeps as many as it may have open tasks.
    const MOST: u32 = 32;

    /// Nobody uses them any more.
    fn free(self) {
        let mut block = self.first;
        while !block.is_null() {
            // SAFETY: a magazine's blocks are linked so, and from `memory::get`.
            unsafe {
                let next = (*block).next;
                memory::put(block.cast(), Blocks::LAYOUT);
                block = next;
            }
        }
    }
}

/// Full magazines.
struct Depot {
    first: *mut Links,
    count: u32,
}

// SAFETY: the blocks are the depot's alone.
unsafe impl Send for Depot {}

impl Depot {
    /// BOUND: magazines; 224 KiB.
    const MOST: u32 = 16;

    /// False if there are enough.
    fn put(&mut self, full: Magazine) -> bool {
        let fits = self.count < Self::MOST;
        if fits {
            // SAFETY: a full magazine has a first block.
            unsafe { (*full.first).below = mem::replace(&mut self.first, full.first) };
            self.count += 1;
            FULL.store(self.count, Relaxed);
        }
        fits
    }

    fn take(&mut self) -> Option<Magazine> {
        let first = self.first;
        // SAFETY: null, or a full magazine's.
        self.first = unsafe { first.as_ref() }?.below;
        self.count -= 1;
        FULL.store(self.count, Relaxed);
        Some(Magazine { first, count: Magazine::MOST })
    }
}

/// HINT: how many the depot has. Wrong, one call of malloc more, or one `try_lock`.
static FULL: AtomicU32 = AtomicU32::new(0);
static DEPOT: Guarded<Depot> = Guarded::holding(Depot { first: ptr::null_mut(), count: 0 });

/// Memory for tasks that a thread keeps.
#[derive(Default)]
pub struct Blocks {
    loaded: Cell<Magazine>,
    /// Full or empty.
    previous: Cell<Magazine>,
}

impl Blocks {
    pub const LAYOUT: Layout = Layout::new::<Block>();

    #[inline]
    fn fits(layout: Layout) -> bool {
        layout.size() <= Self::LAYOUT.size() && layout.align() <= Self::LAYOUT.align()
    }

    /// Memory for a task.
    #[inline]
    pub fn get(&self, layout: Layout, need: Need) -> Option<*mut u8> {
        let fits = Self::fits(layout);
        if fits && (self.loaded.get().count > 0 || self.reload()) {
            let Magazine { first, count } = self.loaded.get();
            // SAFETY: it has a block.
            self.loaded.set(Magazine { first: unsafe { (*first).next }, count: count - 1 });
            return Some(first.cast());
        }
        let memory = memory::get(if fits { Self::LAYOUT } else { layout }, need);
        (!memory.is_null()).then_some(memory)
    }

    /// Loads a magazine that is not empty, if there is one.
    #[cold]
    fn reload(&self) -> bool {
        let previous = self.previous.take();
        let full = match previous.count {
            0 if FULL.load(Relaxed) == 0 => None,
            0 => DEPOT.try_with(Depot::take).flatten(),
            _ => Some(previous),
        };
        full.inspect(|&full| self.loaded.set(full)).is_some()
    }

    /// # Safety
    /// From `get`, of this or another thread, with this layout; not used any more.
    #[inline]
    pub(crate) unsafe fn put(&self, memory: *mut u8, layout: Layout) {
        if !Self::fits(layout) {
            // SAFETY: as promised.
            return unsafe { memory::put(memory, layout) };
        }
        if self.loaded.get().count == Magazine::MOST {
            self.unload();
        }
        let (block, Magazine { first, count }) = (memory.cast::<Links>(), self.loaded.get());
        // SAFETY: ours, and large enough.
        unsafe { block.write(Links { next: first, below: ptr::null_mut() }) };
        self.loaded.set(Magazine { first: block, count: count + 1 });
    }

    /// Loads an empty magazine.
    #[cold]
    fn unload(&self) {
        let full = self.previous.replace(self.loaded.take());
        if full.count > 0 && DEPOT.try_with(|depot| depot.put(full)) != Some(true) {
            full.free();
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.loaded.take().free();
        self.previous.take().free();
    }
}
