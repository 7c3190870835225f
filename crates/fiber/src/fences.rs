// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fence with a cheap side and a dear side.
//!
//! Two threads each write one word and read the other's. At least one of them must see what the other wrote.
//! Usually both need a full fence between the two steps. Here the frequent side has a light one and the rare
//! side a heavy one: the heavy one makes each running thread of the process pass a full fence
//! (`membarrier(2)`, PRIVATE_EXPEDITED, Linux 4.14).

use core::sync::atomic::{AtomicBool, Ordering::*, compiler_fence, fence};

use linux::{Kernel, Linux};
use platform::Wide;

/// The two sides of the fence.
pub trait Fences: Wide {
    /// Between the write and the read of the frequent side.
    fn light();
    /// Between the write and the read of the rare side.
    fn heavy();
}

/// True once the kernel fences for the light side. It changes before any carrier runs, and never back.
static EXPEDITED: AtomicBool = AtomicBool::new(false);

const CMD_PRIVATE_EXPEDITED: i32 = 1 << 3;
const CMD_REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

fn membarrier(command: i32) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Asks the kernel for the heavy side. To be called before the first carrier of each runtime runs. Asked
/// before, the kernel does nothing. But a child that was forked while its parent asked may have our word and
/// not the kernel's.
pub fn prepare() {
    if membarrier(CMD_REGISTER_PRIVATE_EXPEDITED) {
        EXPEDITED.store(true, SeqCst);
    }
}

impl Fences for Linux {
    #[inline(always)]
    fn light() {
        if EXPEDITED.load(Relaxed) {
            compiler_fence(SeqCst);
        } else {
            fence(SeqCst);
        }
    }

    fn heavy() {
        // ORDER: SeqCst, pairs with `light`: the kernel's barrier runs on every processor that runs us.
        fence(SeqCst);
        // The light side relies on it. Such a child asks for it now.
        let fences = || membarrier(CMD_PRIVATE_EXPEDITED);
        if EXPEDITED.load(Relaxed) && !fences() && !(membarrier(CMD_REGISTER_PRIVATE_EXPEDITED) && fences()) {
            std::process::abort();
        }
    }
}

impl Fences for Kernel {
    #[inline(always)]
    fn light() {
        Linux::light();
    }

    fn heavy() {
        Linux::heavy();
    }
}
