// SPDX-License-Identifier: MIT OR Apache-2.0
//! A number of the calling thread's own, for fast paths.

/// How many read locks the calling thread holds, as far as we know.
pub struct Reads;

/// See [`Reads`].
pub const READS: Reads = Reads;

impl Reads {
    #[inline(always)]
    pub fn get(self) -> u32 {
        word::get()
    }

    /// One more, or one less. A thread may release what another acquired: below 0 it does not get.
    #[inline(always)]
    pub fn change(self, more: bool) {
        let reads = word::get();
        word::set(if more { reads.saturating_add(1) } else { reads.saturating_sub(1) });
    }
}

#[cfg(target_arch = "x86_64")]
mod word {
    use linux::{own_asm, own_variable};

    own_variable!("wakeful_reads", size 4, align 2);

    #[inline(always)]
    pub fn get() -> u32 {
        let value: u32;
        // SAFETY: reads this thread's own variable.
        unsafe {
            own_asm!("wakeful_reads", "mov {v:e}, dword ptr fs:[{a}]",
                v = lateout(reg) value, options(nostack, preserves_flags, readonly));
        }
        value
    }

    #[inline(always)]
    pub fn set(value: u32) {
        // SAFETY: writes this thread's own variable.
        unsafe {
            own_asm!("wakeful_reads", "mov dword ptr fs:[{a}], {v:e}",
                v = in(reg) value, options(nostack, preserves_flags));
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod word {
    use core::cell::Cell;

    std::thread_local! {
        static READS: Cell<u32> = const { Cell::new(0) };
    }

    pub fn get() -> u32 {
        READS.with(Cell::get)
    }

    pub fn set(value: u32) {
        READS.with(|reads| reads.set(value));
    }
}
