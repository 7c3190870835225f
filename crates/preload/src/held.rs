// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mutex that the calling thread has locked last, if it has not unlocked any since.
//!
//! So a signal knows that it is given under the waiter's own mutex. Null says nothing. An address that is not null is that of a mutex of ours which
//! the thread holds, unless the mutex was unlocked by another thread, which POSIX forbids, or began a new life while locked. Then the signal would
//! wait for a release that may not come, so whoever relies on it asks the mutex too; what that cannot tell is a thread without an id holding it now.

#[cfg(target_arch = "x86_64")]
mod word {
    use linux::{own_asm, own_variable};

    own_variable!("wakeful_held", size 8, align 3);

    #[inline(always)]
    pub fn get() -> usize {
        let value: usize;
        // SAFETY: reads this thread's own variable.
        unsafe {
            own_asm!("wakeful_held", "mov {v}, qword ptr fs:[{a}]",
                v = lateout(reg) value, options(nostack, preserves_flags, readonly));
        }
        value
    }

    #[inline(always)]
    pub fn set(value: usize) {
        // SAFETY: writes this thread's own variable.
        unsafe {
            own_asm!("wakeful_held", "mov qword ptr fs:[{a}], {v}",
                v = in(reg) value, options(nostack, preserves_flags));
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod word {
    // A thread-local variable is a call here, at each lock operation: not worth it.
    pub fn get() -> usize {
        0
    }

    pub fn set(_: usize) {}
}

pub use word::{get, set};
