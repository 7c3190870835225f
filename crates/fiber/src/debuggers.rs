// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a debugger finds the fibers of a program that is stopped, or of its dump: one table, by its name.
//!
//! `crates/capi/gdb/libwakeful.so-gdb.py` reads it. The table says where everything lies. So the script needs
//! no debug information, and fits any build. Nothing here runs but [`keep`].
//!
//! A suspended fiber's stack pointer is the lower one of two words of its coroutine that point into the
//! stack below its yielder; the other one is where it began. A fiber that runs has that one alone. At the
//! pointer lie the program counter, rbx and rbp (corosensei, x86-64).

use core::mem::offset_of;
use core::sync::atomic::AtomicPtr;

use linux::Kernel;

use crate::record::Fiber;
use crate::stack::{SLABS, Slab};
use crate::token::Token;

/// The table: 32-bit numbers, and a pointer at the end.
#[repr(C)]
pub struct Layout {
    version: u32,
    /// Where the words of a slab lie.
    slab: [u32; 4],
    /// Bytes and alignment of a record, which ends at the end of its stack.
    record: [u32; 2],
    /// Where in a record: references, token, whether it has begun, its name, its yielder, the coroutine and
    /// its bytes, the stack's lowest address, its end.
    fiber: [u32; 9],
    /// Where the text of a name begins, behind the counts of references.
    text: u32,
    /// Never changes. It can be written, as dumps need not have memory that cannot.
    slabs: AtomicPtr<AtomicPtr<Slab>>,
}

/// The one table.
#[unsafe(no_mangle)]
pub static WAKEFUL_FIBERS: Layout = Layout {
    version: 1,
    slab: [
        offset_of!(Slab, start) as u32,
        offset_of!(Slab, stride) as u32,
        offset_of!(Slab, stacks) as u32,
        offset_of!(Slab, older) as u32,
    ],
    record: [size_of::<Fiber>() as u32, align_of::<Fiber>() as u32],
    fiber: [
        offset_of!(Fiber, refs) as u32,
        (offset_of!(Fiber, token) + Token::<Kernel>::WORD) as u32,
        offset_of!(Fiber, started) as u32,
        offset_of!(Fiber, name) as u32,
        offset_of!(Fiber, yielder) as u32,
        offset_of!(Fiber, coroutine) as u32,
        size_of::<corosensei::Coroutine<(), crate::record::Why, (), crate::stack::Part>>() as u32,
        offset_of!(Fiber, stack) as u32,
        offset_of!(Fiber, top) as u32,
    ],
    text: 2 * size_of::<usize>() as u32,
    slabs: AtomicPtr::new((&raw const SLABS).cast_mut()),
};

/// Has the linker keep the table in every program that makes a stack.
pub fn keep() {
    core::hint::black_box(&raw const WAKEFUL_FIBERS);
}
