// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calling thread's stamp, in two instructions.
//!
//! A `thread_local!` in a shared library goes through `__tls_get_addr`, a call per lock operation. The interposer is
//! loaded at program start, so the initial-exec model is open to it; stable Rust cannot ask for that model, so
//! the variable is declared and read in assembly. In an executable the linker turns the GOT load into an immediate.

use platform::{STAMP_ID, STAMP_SHIFT};

/// Offsets in the thread's words.
const STAMP: usize = 0;
const EPOCH: usize = 4;
const CLOSED: usize = 8;

/// Declares a variable that each thread has for itself: zeros, hidden, found by the initial-exec model.
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
#[macro_export]
macro_rules! own_variable {
    ($name:literal, size $size:literal, align $shift:literal) => {
        core::arch::global_asm!(
            concat!(".pushsection .tbss.", $name, ",\"awT\",@nobits"),
            concat!(".hidden ", $name),
            concat!(".globl ", $name),
            concat!(".type ", $name, ", @object"),
            concat!(".size ", $name, ", ", $size),
            concat!(".p2align ", $shift),
            concat!($name, ": .zero ", $size),
            ".popsection",
        );
    };
}

/// `asm!` of one instruction, in which `{a}` is the offset of such a variable from the thread pointer, in a register.
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
#[macro_export]
macro_rules! own_asm {
    ($name:literal, $instruction:literal, $($operands:tt)*) => {
        core::arch::asm!(
            concat!("mov {a}, qword ptr [rip + ", $name, "@GOTTPOFF]"),
            $instruction,
            a = out(reg) _,
            $($operands)*
        )
    };
}

#[cfg(target_arch = "x86_64")]
mod words {
    own_variable!("wakeful_thread", size 12, align 3);

    #[inline(always)]
    pub fn get<const OFFSET: usize>() -> u32 {
        let value: u32;
        // SAFETY: reads this thread's own variable, which nobody else writes; clobbers nothing but its outputs.
        unsafe {
            own_asm!(
                "wakeful_thread",
                "mov {v:e}, dword ptr fs:[{a} + {offset}]",
                v = lateout(reg) value,
                offset = const OFFSET,
                options(nostack, preserves_flags, readonly, pure),
            );
        }
        value
    }

    /// From the thread pointer on.
    pub fn at() -> isize {
        let offset: isize;
        // SAFETY: reads an offset that the linker has written.
        unsafe {
            own_asm!(
                "wakeful_thread",
                "mov {v}, {a}",
                v = lateout(reg) offset,
                options(nostack, preserves_flags, readonly),
            );
        }
        offset
    }

    #[inline(always)]
    pub fn set<const OFFSET: usize>(value: u32) {
        // SAFETY: writes this thread's own variable.
        unsafe {
            own_asm!(
                "wakeful_thread",
                "mov dword ptr fs:[{a} + {offset}], {v:e}",
                v = in(reg) value,
                offset = const OFFSET,
                options(nostack, preserves_flags),
            );
        }
    }

    /// One instruction, so that no signal handler runs in the midst of it; not locked, because no other thread is concerned.
    #[inline(always)]
    pub fn compare_exchange<const OFFSET: usize>(current: u32, new: u32) -> Result<u32, u32> {
        let was: u32;
        // SAFETY: reads and writes this thread's own variable.
        unsafe {
            own_asm!(
                "wakeful_thread",
                "cmpxchg dword ptr fs:[{a} + {offset}], {v:e}",
                v = in(reg) new,
                offset = const OFFSET,
                inout("eax") current => was,
                options(nostack),
            );
        }
        if was == current { Ok(was) } else { Err(was) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod words {
    use core::sync::atomic::{AtomicU32, Ordering::*};

    std::thread_local! {
        static WORDS: [AtomicU32; 3] = const { [const { AtomicU32::new(0) }; 3] };
    }

    #[inline(always)]
    pub fn get<const OFFSET: usize>() -> u32 {
        WORDS.with(|words| words[OFFSET / 4].load(Relaxed))
    }

    #[inline(always)]
    pub fn set<const OFFSET: usize>(value: u32) {
        WORDS.with(|words| words[OFFSET / 4].store(value, Relaxed));
    }

    /// Whole, as a signal handler sees it.
    #[inline(always)]
    pub fn compare_exchange<const OFFSET: usize>(current: u32, new: u32) -> Result<u32, u32> {
        WORDS.with(|words| words[OFFSET / 4].compare_exchange(current, new, Relaxed, Relaxed))
    }
}

/// See [`platform::Platform::stamp`].
#[inline(always)]
pub fn stamp() -> u32 {
    words::get::<STAMP>()
}

/// Where a thread has its stamp, from its thread pointer on.
#[cfg(target_arch = "x86_64")]
pub fn stamp_at() -> isize {
    words::at() + STAMP as isize
}

/// Sets the stamp to `new` if it still is `current`, else returns what it is: a signal handler may have changed it.
#[inline(always)]
pub fn change_stamp(current: u32, new: u32) -> Result<u32, u32> {
    words::compare_exchange::<STAMP>(current, new)
}

/// The index of the thread's block, 0 if it has none.
#[inline(always)]
pub fn id() -> u32 {
    (stamp() & STAMP_ID) >> STAMP_SHIFT
}

/// Sets the index, and clears the rest of the stamp.
pub fn set_id(id: u32) {
    words::set::<STAMP>(id << STAMP_SHIFT);
}

/// The epoch of the registry in which the thread has its id; 0 if it never registered.
#[inline(always)]
pub fn epoch() -> u32 {
    words::get::<EPOCH>()
}

/// Sets the epoch.
pub fn set_epoch(epoch: u32) {
    words::set::<EPOCH>(epoch);
}

/// True once the thread has unregistered: it must not register again.
pub fn closed() -> bool {
    words::get::<CLOSED>() != 0
}

/// Forbids registering.
pub fn close() {
    words::set::<CLOSED>(1);
}
