// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which of the tables of costs is this machine's.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use platform::Costs;

const UNKNOWN: u8 = 0;
const VIRTUAL: u8 = 1;
const BARE: u8 = 2;

static KIND: AtomicU8 = AtomicU8::new(UNKNOWN);

/// The costs of this machine, as [`platform::Platform::costs`].
#[inline]
pub fn costs() -> Costs {
    match KIND.load(Relaxed) {
        VIRTUAL => Costs::VIRTUAL,
        BARE => Costs::BARE,
        _ => find(),
    }
}

/// Asked once: in a virtual machine the question leaves the guest, which takes some microseconds.
#[cold]
fn find() -> Costs {
    KIND.store(if is_virtual() { VIRTUAL } else { BARE }, Relaxed);
    costs()
}

/// Bit 31 of leaf 1's ECX, which processors keep at 0 and hypervisors set for their guests.
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe)] // safe from Rust 1.94 on
fn is_virtual() -> bool {
    // SAFETY: every processor of this architecture has the instruction and the leaf.
    unsafe { core::arch::x86_64::__cpuid(1) }.ecx >> 31 != 0
}

/// Where nobody can tell, the table that was measured stands.
#[cfg(not(target_arch = "x86_64"))]
fn is_virtual() -> bool {
    true
}
