// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `libwakeful_profile.so` needs to take and release a plain mutex as `mutex.rs` does it on its fast
//! path, without a call: profile/src/around.c has that path's twin. Elsewhere than on x86-64 it calls.

use core::ffi::c_int;
use core::sync::atomic::AtomicU8;

use crate::choice::CHOICE;

/// Where a thread has its words, from its thread pointer on, and the bits of the stamp that a free mutex does
/// not keep. The choice is 0 if the default algorithm is the mutexes'.
#[repr(C)]
#[derive(Debug)]
pub struct Words {
    stamp: isize,
    held: isize,
    yields: isize,
    choice: *const AtomicU8,
    owner: u32,
}

/// Fills them in, and returns 1; 0 where there are none.
///
/// # Safety
/// Points to such a structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_preload_words_1(words: *mut Words) -> c_int {
    #[cfg(target_arch = "x86_64")]
    {
        let (held, yields) = crate::held::at();
        let (choice, owner) = (&raw const CHOICE, platform::STAMP_ID);
        // SAFETY: as promised.
        unsafe { words.write(Words { stamp: linux::stamp_at(), held, yields, choice, owner }) };
        1
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        _ = (words, &CHOICE);
        0
    }
}
