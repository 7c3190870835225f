// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mutex that the calling thread has locked last, if it has not unlocked any since; whether it has asked
//! to yield under it; and whether it has waited at a condition variable of late.
//!
//! So a signal knows that it is given under the waiter's own mutex. Null says nothing. An address that is not null is that of a mutex of ours which
//! the thread holds, unless the mutex was unlocked by another thread, which POSIX forbids, or began a new life while locked. Then the signal would
//! wait for a release that may not come, so whoever relies on it asks the mutex too; what that cannot tell is a thread without an id holding it now.

use linux::Linux;
use sync::condvar::Wakeful;

#[cfg(target_arch = "x86_64")]
mod word {
    use linux::{own_asm, own_variable};

    own_variable!("wakeful_held", size 24, align 3);

    #[inline(always)]
    pub fn get<const OFFSET: usize>() -> usize {
        let value: usize;
        // SAFETY: reads this thread's own variable.
        unsafe {
            own_asm!("wakeful_held", "mov {v}, qword ptr fs:[{a} + {offset}]",
                v = lateout(reg) value, offset = const OFFSET, options(nostack, preserves_flags, readonly));
        }
        value
    }

    /// From the thread pointer on.
    pub fn at() -> isize {
        let offset: isize;
        // SAFETY: reads an offset that the linker has written.
        unsafe {
            own_asm!("wakeful_held", "mov {v}, {a}",
                v = lateout(reg) offset, options(nostack, preserves_flags, readonly));
        }
        offset
    }

    #[inline(always)]
    pub fn set<const OFFSET: usize>(value: usize) {
        // SAFETY: writes this thread's own variable.
        unsafe {
            own_asm!("wakeful_held", "mov qword ptr fs:[{a} + {offset}], {v}",
                v = in(reg) value, offset = const OFFSET, options(nostack, preserves_flags));
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod word {
    // A thread-local variable is a call here, at each lock operation: not worth it.
    pub fn get<const OFFSET: usize>() -> usize {
        0
    }

    pub fn set<const OFFSET: usize>(_: usize) {}
}

const HELD: usize = 0;
const WAITED: usize = 8;
const YIELDS: usize = 16;

/// Where the mutex is, and the one at whose release the thread yields, from the thread pointer on.
#[cfg(target_arch = "x86_64")]
pub fn at() -> (isize, isize) {
    let at = word::at();
    (at + HELD as isize, at + YIELDS as isize)
}

/// The mutex, or 0.
#[inline(always)]
pub fn get() -> usize {
    word::get::<HELD>()
}

/// The calling thread has locked this mutex, or (0) unlocked one.
#[inline(always)]
pub fn set(mutex: usize) {
    word::set::<HELD>(mutex);
}

/// The mutex at whose release the calling thread yields, or 0.
#[inline(always)]
pub fn yields_at() -> usize {
    word::get::<YIELDS>()
}

/// The calling thread yields when it releases this mutex. Another yield that was put off is forgotten.
pub fn yield_at(mutex: usize) {
    word::set::<YIELDS>(mutex);
}

/// Is it to yield at the release of this mutex? Not again, then.
pub fn take_yield(mutex: usize) -> bool {
    let yields = yields_at() == mutex;
    if yields {
        word::set::<YIELDS>(0);
    }
    yields
}

/// BOUND: for so many broadcasts a thread counts as one that waits. The last at a barrier may be the last
/// again.
const REMEMBERED: usize = 8;

/// The calling thread is about to wait at a condition variable.
pub fn waits() {
    word::set::<WAITED>(REMEMBERED);
}

/// The calling thread broadcasts: how many is it to wake itself?
///
/// Who waits between its broadcasts waits for those whom it wakes: all in one call is the least work. Who
/// does not has work of its own, for which it would be late.
pub fn first() -> u32 {
    let waited = word::get::<WAITED>();
    word::set::<WAITED>(waited.saturating_sub(1));
    if waited == 0 { Wakeful::<Linux>::enough() } else { u32::MAX }
}
