// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reductions in which tasks take part. The compiler describes them in words: how many variables, bytes a
//! thread, alignment; from the eighth on three for each variable, of which the first are its address and its
//! offset in a thread's bytes. It expects the address of the memory, zeros for all threads, in the third.
//! The fifth and sixth are for us: the next description of the same group, and the alignment.

use std::alloc::Layout;
use std::ffi::c_void;
use std::ptr;

use crate::memory::{self, Need};
use crate::thread::me;

const COUNT: usize = 0;
const BYTES: usize = 1;
const MEMORY: usize = 2;
const NEXT: usize = 4;
const ALIGN: usize = 5;
const END: usize = 6;
const VARIABLES: usize = 7;
const WORDS: usize = 3;

/// Makes the memory for so many threads.
///
/// # Safety
/// `list` is the compiler's; likewise below.
pub unsafe fn register(list: *mut usize, next: *mut usize, threads: u32) {
    // SAFETY: as promised.
    unsafe {
        let size = list.add(BYTES).read() * threads as usize;
        let align = list.add(MEMORY).read().max(size_of::<*mut c_void>()).next_power_of_two();
        let layout = Layout::from_size_align(size, align);
        let place = layout.map_or(ptr::null_mut(), |layout| memory::get(layout, Need::Must));
        if place.is_null() {
            memory::end(format_args!("a reduction of {size} bytes"));
        }
        place.write_bytes(0, size);
        list.add(MEMORY).write(place.expose_provenance());
        list.add(END).write(place.addr() + size);
        list.add(NEXT).write(next.addr());
        list.add(ALIGN).write(align);
    }
}

/// Tells the compiled code that there is nothing to be combined, and no memory to be given back.
///
/// # Safety
/// The list is the compiler's.
pub unsafe fn decline(list: *mut usize) {
    // SAFETY: as promised.
    unsafe { list.add(MEMORY).write(0) };
}

/// Uses the memory that another member has made.
///
/// # Safety
/// Both are the compiler's.
pub unsafe fn join(list: *mut usize, first: *const usize) {
    // SAFETY: as promised.
    unsafe {
        list.add(MEMORY).write(first.add(MEMORY).read());
        list.add(END).write(first.add(END).read());
        list.add(ALIGN).write(first.add(ALIGN).read());
        list.add(NEXT).write(0);
    }
}

/// Gives the memory back.
///
/// # Safety
/// Registered.
pub unsafe fn free(list: *mut usize) {
    // SAFETY: from `register`, unless it was declined.
    unsafe {
        let start = list.add(MEMORY).read();
        if start != 0 {
            let layout =
                Layout::from_size_align_unchecked(list.add(END).read() - start, list.add(ALIGN).read());
            memory::put(ptr::with_exposed_provenance_mut(start), layout);
        }
    }
}

/// The variable's address, and its offset in each thread's bytes, if the list has it; `address` may be any
/// thread's copy.
///
/// # Safety
/// Registered.
unsafe fn find(list: *const usize, address: usize) -> Option<(usize, usize)> {
    // SAFETY: as promised.
    unsafe {
        let mut variables = (0..list.add(COUNT).read()).map(|index| {
            let variable = list.add(VARIABLES + WORDS * index);
            (variable.read(), variable.add(1).read())
        });
        if (list.add(MEMORY).read()..list.add(END).read()).contains(&address) {
            let offset = (address - list.add(MEMORY).read()) % list.add(BYTES).read();
            // The last that begins there or before.
            return variables.filter(|variable| variable.1 <= offset).max_by_key(|variable| variable.1);
        }
        variables.find(|variable| variable.0 == address)
    }
}

/// The innermost group of the current task reduces this, too.
///
/// # Safety
/// The list is the compiler's.
pub unsafe fn register_group(list: *mut usize) {
    let thread = me();
    // SAFETY: the group is the current task's; the list the compiler's; likewise below.
    unsafe {
        let Some(group) = thread.task().group.get().as_ref() else { return };
        register(list, group.reductions.get(), thread.team().size());
        group.reductions.set(list);
    }
}

/// Writes for each of `count` addresses where the calling thread's copy is, and for some of them where the
/// variable is.
///
/// # Safety
/// The compiler's addresses.
pub unsafe fn remap(count: usize, originals: usize, addresses: *mut usize) {
    let thread = me();
    let number = thread.number() as usize;
    for index in 0..count {
        // SAFETY: groups and lists stay while there are tasks in them.
        unsafe {
            let address = addresses.add(index).read();
            let mut group = thread.task().group.get();
            'found: while let Some(this) = group.as_ref() {
                let mut list = this.reductions.get();
                while !list.is_null() {
                    if let Some((original, offset)) = find(list, address) {
                        addresses
                            .add(index)
                            .write(list.add(MEMORY).read() + number * list.add(BYTES).read() + offset);
                        if index < originals {
                            addresses.add(count + index).write(original);
                        }
                        break 'found;
                    }
                    list = list.add(NEXT).read() as *mut usize;
                }
                group = this.outer();
            }
        }
    }
}
