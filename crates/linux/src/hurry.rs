// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread that runs at once when it wakes, and then not for long: shorter slices (Linux 6.12 and newer).
//!
//! An ordinary thread that wakes takes the processor only from one whose deadline is later than its own
//! (EEVDF). A deadline is as far away as a slice is long. Share and nice value stay as they are.

use core::mem::{size_of, zeroed};

use crate::futex::Errno;

/// BOUND: ns; the shortest slice that Linux grants.
const SLICE_NS: u64 = 100_000;

/// See [`platform::Platform::hurry`]. Nothing happens where the kernel refuses, or where the thread is no
/// ordinary one.
#[cold]
pub(crate) fn hurry(on: bool) {
    let _errno = Errno::save();
    // Somebody may have made it SCHED_BATCH meanwhile, which keeps the slice.
    let ordinary = |policy| policy == libc::SCHED_OTHER as u32 || !on && policy == libc::SCHED_BATCH as u32;
    change(on, |policy| ordinary(policy).then_some(policy));
}

/// Gives the calling thread this policy, which is SCHED_OTHER or SCHED_BATCH, with short slices or the
/// kernel's. False: the kernel refuses.
pub fn be(policy: i32, short: bool) -> bool {
    change(short, |_| Some(policy as u32))
}

fn change(short: bool, policy: impl FnOnce(u32) -> Option<u32>) -> bool {
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: numbers, of which all may be 0.
    let mut attributes: libc::sched_attr = unsafe { zeroed() };
    // SAFETY: it is as long as we say.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    let Some(policy) = policy(attributes.sched_policy).filter(|_| read == 0) else {
        return false;
    };
    attributes.sched_policy = policy;
    // 0: the kernel's.
    attributes.sched_runtime = if short { SLICE_NS } else { 0 };
    // SAFETY: the kernel has written how long it is.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}
