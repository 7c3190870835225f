// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks: the runtime's own, `critical`, `atomic`, and nested ones. All are the default mutex, whose zeros
//! are a free lock.

use linux::Linux;
use sync::mutex::Wakeful;

pub type Raw = Wakeful<Linux>;

/// Data behind a lock.
pub type Guarded<T> = sync::openmp::Guarded<Linux, T>;

/// Of all `critical` sections without a name.
pub static CRITICAL: Guarded<()> = Guarded::INIT;
/// Of what is atomic and has no instruction.
pub static ATOMIC: Guarded<()> = Guarded::INIT;

/// A lock's place in the program's memory.
///
/// # Safety
/// It is there, aligned for a `u32`, and was zeros before it was a lock.
#[inline(always)]
pub unsafe fn raw<'a, T>(lock: *mut T) -> &'a Raw {
    const { assert!(size_of::<Raw>() == 4 && align_of::<Raw>() == 4) };
    // SAFETY: as promised.
    unsafe { &*lock.cast::<Raw>() }
}
