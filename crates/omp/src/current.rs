// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calling thread's own variable: where its [`crate::thread::Thread`] is, which begins with its
//! [`Blocks`].

use crate::blocks::Blocks;

pub use own::{get, set};

/// The calling thread's memory for tasks, if it is known here.
pub fn blocks<'a>() -> Option<&'a Blocks> {
    // SAFETY: null, or a `Thread`, which begins with its blocks and lives until the thread ends.
    unsafe { get().cast::<Blocks>().as_ref() }
}

#[cfg(target_arch = "x86_64")]
mod own {
    use linux::{own_asm, own_variable};

    own_variable!("wakeful_omp_thread", size 8, align 3);

    #[inline(always)]
    pub fn get() -> *const () {
        let value: *const ();
        // SAFETY: reads this thread's own variable.
        unsafe {
            own_asm!("wakeful_omp_thread", "mov {v}, qword ptr fs:[{a}]",
                v = lateout(reg) value, options(nostack, preserves_flags, readonly));
        }
        value
    }

    pub fn set(value: *const ()) {
        // SAFETY: writes this thread's own variable.
        unsafe {
            own_asm!("wakeful_omp_thread", "mov qword ptr fs:[{a}], {v}",
                v = in(reg) value, options(nostack, preserves_flags));
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod own {
    use std::cell::Cell;
    use std::ptr;

    std::thread_local! {
        static THREAD: Cell<*const ()> = const { Cell::new(ptr::null()) };
    }

    pub fn get() -> *const () {
        THREAD.with(Cell::get)
    }

    pub fn set(value: *const ()) {
        THREAD.with(|thread| thread.set(value));
    }
}
