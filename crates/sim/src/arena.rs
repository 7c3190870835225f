// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arena: the blocks that threads share with the kernel, and what an application's counts say.

use std::ptr;

use platform::Atomic;

use crate::event::Channel;
use crate::memory::{LineId, Memory};
use crate::word::Word;

/// What an application's arena says.
#[derive(Debug, Default)]
pub(crate) struct App {
    pub threads: usize,
    pub runnable: u32,
    /// Preempted threads by priority.
    pub preempted: [u32; abi::PRIORITIES],
    /// The line with these counts.
    pub line: LineId,
    /// Where its upcalls come.
    pub channel: Channel,
}

impl App {
    pub fn new(memory: &mut Memory) -> Self {
        let line = memory.place([0u32; 4]).addr();
        Self { line: memory.line(line), ..Self::default() }
    }
}

/// The thread's part of the arena that is real memory, because algorithms have references into it:
/// `abi::Thread`'s second line.
#[repr(C, align(64))]
pub(crate) struct Block {
    head: [u32; 3],
    pub holds: Word<u32>,
    pub words: [Word<u32>; 8],
    pub reading: Word<*mut ()>,
}

/// The blocks of all threads, by the threads' numbers.
pub(crate) struct Arena {
    blocks: Vec<*mut Block>,
    /// The lines of the thread blocks: the kernel's and the program's.
    kernel_lines: Vec<LineId>,
    block_lines: Vec<LineId>,
    away: *mut [Word<u32>],
    turn: *mut Word<u32>,
}

impl Arena {
    pub fn new(memory: &mut Memory) -> Self {
        let away = memory.place_all((0..1).map(|_| Atomic::new(0)));
        let turn = memory.place(Atomic::new(0));
        Self { blocks: Vec::new(), kernel_lines: Vec::new(), block_lines: Vec::new(), away, turn }
    }

    /// A block for the next thread.
    pub fn add(&mut self, memory: &mut Memory) {
        let block = memory.place(Block {
            head: [0; 3],
            holds: Atomic::new(0),
            words: std::array::from_fn(|_| Atomic::new(0)),
            reading: Atomic::new(ptr::null_mut()),
        });
        self.blocks.push(block);
        self.block_lines.push(memory.line(block.addr()));
        let kernel = memory.place([0u32; 8]).addr();
        self.kernel_lines.push(memory.line(kernel));
    }

    /// The place of a foreign process in the tables; never used.
    pub fn add_foreign(&mut self) {
        self.blocks.push(ptr::null_mut());
        self.block_lines.push(0);
        self.kernel_lines.push(0);
    }

    /// A thread's block, in the machine's memory.
    pub fn block(&self, thread: usize) -> *mut Block {
        self.blocks[thread]
    }

    /// The line that the kernel writes of a thread's block, or that which the program writes.
    pub fn line(&self, thread: usize, kernel: bool) -> LineId {
        if kernel { self.kernel_lines[thread] } else { self.block_lines[thread] }
    }

    /// The counts of those who are away from a lock, in the machine's memory.
    pub fn away(&self) -> *mut [Word<u32>] {
        self.away
    }

    /// The word by which readers who wait are told to look at their lock, in the machine's memory.
    pub fn turn(&self) -> *mut Word<u32> {
        self.turn
    }
}
