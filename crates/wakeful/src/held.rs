// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lock of this crate that the calling thread has locked last, if it has not unlocked any since; what it
//! is to do at a release; and whether it has waited at a condition variable of late.
//!
//! A thread that is woken under the mutex that it waits for next runs for nothing. So a notification by the
//! holder of the waiters' mutex is delivered when that mutex is released. The wake-up that is owed stands
//! here, not in the mutex, which has no room for it.
//!
//! The address says nothing of a lock whose guard was forgotten and whose memory has a new lock now. Then a
//! notification may wait for a release that does not come. No data are at risk.

use core::sync::atomic::AtomicU32;

use linux::Linux;
use sync::condvar::Wakeful;

/// What a thread is to do when it releases a lock.
pub struct Owed {
    /// Wake those who sleep on this word; null: nobody.
    pub word: *const AtomicU32,
    /// As many as this.
    pub count: u32,
    /// Tell the lock that the thread waits next.
    pub leaves: bool,
}

#[cfg(target_arch = "x86_64")]
mod words {
    use linux::{own_asm, own_variable};

    own_variable!("wakeful_owed", size 40, align 3);

    pub const HELD: usize = 0;
    pub const LOCK: usize = 8;
    pub const WORD: usize = 16;
    pub const REST: usize = 24;
    pub const WAITED: usize = 32;

    #[inline(always)]
    pub fn get<const OFFSET: usize>() -> usize {
        let value: usize;
        // SAFETY: reads this thread's own variable.
        unsafe {
            own_asm!("wakeful_owed", "mov {v}, qword ptr fs:[{a} + {offset}]",
                v = lateout(reg) value, offset = const OFFSET, options(nostack, preserves_flags, readonly));
        }
        value
    }

    #[inline(always)]
    pub fn set<const OFFSET: usize>(value: usize) {
        // SAFETY: writes this thread's own variable.
        unsafe {
            own_asm!("wakeful_owed", "mov qword ptr fs:[{a} + {offset}], {v}",
                v = in(reg) value, offset = const OFFSET, options(nostack, preserves_flags));
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod words {
    // A thread-local variable may be a call here, at each lock operation: not worth it.
    pub const HELD: usize = 0;
    pub const LOCK: usize = 8;
    pub const WORD: usize = 16;
    pub const REST: usize = 24;
    pub const WAITED: usize = 32;

    #[inline(always)]
    pub fn get<const OFFSET: usize>() -> usize {
        0
    }

    #[inline(always)]
    pub fn set<const OFFSET: usize>(_: usize) {}
}

use words::{HELD, LOCK, REST, WAITED, WORD, get, set};

/// The calling thread has locked this one, or (0) unlocked one.
#[inline(always)]
pub fn hold(lock: usize) {
    set::<HELD>(lock);
}

/// Is anything to be done when this lock is released?
#[inline(always)]
pub fn owes(lock: usize) -> bool {
    get::<LOCK>() == lock
}

/// Puts this off until the calling thread releases this lock. False, and nothing done, if it does not hold
/// it or owes something else, or `commit`, asked for it at the last moment, says no.
pub fn owe(lock: usize, commit: impl FnOnce() -> Option<Owed>) -> bool {
    if lock == 0 || get::<HELD>() != lock || get::<LOCK>() != 0 {
        return false;
    }
    let Some(owed) = commit() else { return false };
    set::<WORD>(owed.word.expose_provenance());
    set::<REST>((owed.count as usize) << 1 | usize::from(owed.leaves));
    set::<LOCK>(lock);
    true
}

/// What is to be done now; nothing is owed after that.
pub fn take() -> Owed {
    set::<LOCK>(0);
    let rest = get::<REST>();
    Owed {
        word: core::ptr::with_exposed_provenance(get::<WORD>()),
        count: (rest >> 1) as u32,
        leaves: rest & 1 != 0,
    }
}

/// The thread that releases this lock, if it owes already something at that, waits next.
pub fn leaves(lock: usize) {
    if get::<LOCK>() == lock {
        set::<REST>(get::<REST>() | 1);
    }
}

/// BOUND: for so many broadcasts a thread counts as one that waits. The last at a barrier may be the last
/// again.
const REMEMBERED: usize = 8;

/// The calling thread is about to wait at a condition variable.
pub fn waits() {
    set::<WAITED>(REMEMBERED);
}

/// The calling thread broadcasts: how many is it to wake itself?
///
/// Who waits between its broadcasts waits for those whom it wakes: all in one call is the least work. Who
/// does not has work of its own, for which it would be late.
pub fn first() -> u32 {
    let waited = get::<WAITED>();
    set::<WAITED>(waited.saturating_sub(1));
    if waited == 0 { Wakeful::<Linux>::enough() } else { u32::MAX }
}
