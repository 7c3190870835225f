// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many processors may this program use?

/// Processors in the calling thread's affinity mask. At least 1.
pub fn available() -> u32 {
    // SAFETY: an all-zero cpu_set_t is valid, and the kernel writes at most its size.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return 1;
        }
        (libc::CPU_COUNT(&set) as u32).max(1)
    }
}
