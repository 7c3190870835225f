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

#[cfg(target_arch = "x86_64")]
mod words {
    use core::arch::{asm, global_asm};

    global_asm!(
        ".pushsection .tbss.wakeful_thread,\"awT\",@nobits",
        ".hidden wakeful_thread",
        ".globl wakeful_thread",
        ".type wakeful_thread, @object",
        ".size wakeful_thread, 12",
        ".p2align 3",
        "wakeful_thread: .zero 12",
        ".popsection",
    );

    #[inline(always)]
    pub fn get<const OFFSET: usize>() -> u32 {
        let value: u32;
        // SAFETY: reads this thread's own variable, which nobody else writes; clobbers nothing but its outputs.
        unsafe {
            asm!(
                "mov {a}, qword ptr [rip + wakeful_thread@GOTTPOFF]",
                "mov {v:e}, dword ptr fs:[{a} + {offset}]",
                a = out(reg) _,
                v = lateout(reg) value,
                offset = const OFFSET,
                options(nostack, preserves_flags, readonly, pure),
            );
        }
        value
    }

    #[inline(always)]
    pub fn set<const OFFSET: usize>(value: u32) {
        // SAFETY: writes this thread's own variable.
        unsafe {
            asm!(
                "mov {a}, qword ptr [rip + wakeful_thread@GOTTPOFF]",
                "mov dword ptr fs:[{a} + {offset}], {v:e}",
                a = out(reg) _,
                v = in(reg) value,
                offset = const OFFSET,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod words {
    use core::cell::Cell;

    std::thread_local! {
        static WORDS: [Cell<u32>; 3] = const { [const { Cell::new(0) }; 3] };
    }

    #[inline(always)]
    pub fn get<const OFFSET: usize>() -> u32 {
        WORDS.with(|words| words[OFFSET / 4].get())
    }

    #[inline(always)]
    pub fn set<const OFFSET: usize>(value: u32) {
        WORDS.with(|words| words[OFFSET / 4].set(value));
    }
}

/// See [`platform::Platform::stamp`].
#[inline(always)]
pub fn stamp() -> u32 {
    words::get::<STAMP>()
}

/// Sets the stamp.
#[inline(always)]
pub fn set_stamp(stamp: u32) {
    words::set::<STAMP>(stamp);
}

/// The index of the thread's block, 0 if it has none.
#[inline(always)]
pub fn id() -> u32 {
    (stamp() & STAMP_ID) >> STAMP_SHIFT
}

/// Sets the index.
pub fn set_id(id: u32) {
    set_stamp(id << STAMP_SHIFT);
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
