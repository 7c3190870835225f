// SPDX-License-Identifier: MIT OR Apache-2.0
//! One registry for two libraries of a process: the interposer's, lent to the OpenMP runtime.
//!
//! Each of the two has this code and its variables for itself. A scheduler fills one arena, and the library
//! that inherited that has it. So the *borrower* has no space of its own. It uses the owner's, has each
//! thread registered by the owner, and remembers the id.
//!
//! - B1. The borrower asks once, at program start, and only where an observer was inherited (`lend.rs`). The
//!   owner takes that over, if its constructor has not run yet.
//! - B2. What the borrower needs of the space it asks of the owner: at first, and in a forked child.
//! - B3. A thread's id is the owner's. The epoch tells the borrower that it has to ask again.
//! - B4. Before an id ends, on the thread that has it, the owner has the borrower forget it ([`ends`]). From
//!   then on the thread is nobody in either.
//!
//! Both have the same layout, or nothing is lent.

use core::sync::atomic::{AtomicPtr, Ordering::*};

/// What the owner hands over.
#[derive(Debug)]
#[repr(C)]
pub struct Owner {
    pub(super) layout: u64,
    /// B1. The space, if an observer fills its arena.
    pub(super) observed: extern "C" fn() -> *mut u8,
    /// B2.
    pub(super) space: extern "C" fn() -> *mut u8,
    /// B3.
    pub(super) register: extern "C" fn(always: u32) -> u32,
    /// B4.
    pub(super) borrowed: extern "C" fn(forget: extern "C" fn()),
}

/// B4. What makes the borrower forget; null: nobody borrows.
static BORROWER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

pub(super) extern "C" fn borrowed(forget: extern "C" fn()) {
    BORROWER.store(forget as *mut (), Relaxed);
}

/// B4. The calling thread's id is about to end.
pub(super) fn ends() {
    let borrower = BORROWER.load(Relaxed);
    if !borrower.is_null() {
        // SAFETY: `borrowed` has put it there, and libraries with this code are not unloaded.
        let forget = unsafe { core::mem::transmute::<*mut (), extern "C" fn()>(borrower) };
        forget();
    }
}

/// The borrower's side: whose space it uses; null: its own.
static LENDER: AtomicPtr<Owner> = AtomicPtr::new(core::ptr::null_mut());

#[inline(always)]
pub(super) fn lender() -> Option<&'static Owner> {
    // SAFETY: null, or the owner's static, which is there for good.
    unsafe { LENDER.load(Relaxed).as_ref() }
}

pub(super) fn borrow_from(owner: &'static Owner) {
    LENDER.store(core::ptr::from_ref(owner).cast_mut(), Relaxed);
}
