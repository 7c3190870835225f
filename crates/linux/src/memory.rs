// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mapping memory, past the C library.
//!
//! Some libraries put functions of their own in place of `mmap`, `munmap` (tcmalloc), and of `madvise` and
//! `mremap` too (UCX, and so most MPI programs). Those take locks, and would come back here in the middle of it.

use core::ffi::c_void;

/// `mmap`.
///
/// # Safety
/// As for `mmap`.
pub unsafe fn map(at: *mut c_void, size: usize, protection: i32, flags: i32, fd: i32) -> *mut c_void {
    // SAFETY: as the caller promised; errors come as -1, which is MAP_FAILED, with errno.
    unsafe { libc::syscall(libc::SYS_mmap, at, size, protection, flags, fd, 0usize) as *mut c_void }
}

/// `munmap`; it does not fail where it is used.
///
/// # Safety
/// As for `munmap`.
pub unsafe fn unmap(at: *mut c_void, size: usize) {
    // SAFETY: as the caller promised.
    unsafe { libc::syscall(libc::SYS_munmap, at, size) };
}

/// `mprotect`; with errno.
///
/// # Safety
/// As for `mprotect`.
pub unsafe fn protect(at: *mut c_void, size: usize, protection: i32) -> bool {
    // SAFETY: as the caller promised.
    unsafe { libc::syscall(libc::SYS_mprotect, at, size, protection) == 0 }
}

/// `madvise`; with errno.
///
/// # Safety
/// As for `madvise`.
pub unsafe fn advise(at: *mut c_void, size: usize, advice: i32) -> bool {
    // SAFETY: as the caller promised.
    unsafe { libc::syscall(libc::SYS_madvise, at, size, advice) == 0 }
}

/// Puts the mapping at `from` in the place of what is at `at`, in one step for who reads there. False if it
/// stays where it is. The kernel may have unmapped what was at `at` all the same. Then zeros take its place,
/// of which a forked child inherits nothing; who reads in between ends.
///
/// # Safety
/// `size` bytes at both are the caller's, page aligned; nobody else knows `from`.
pub unsafe fn replace(at: *mut c_void, from: *mut c_void, size: usize) -> bool {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: as the caller promised.
    if unsafe { libc::syscall(libc::SYS_mremap, from, size, size, flags, at) as *mut c_void } == at {
        return true;
    }
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: it replaces nothing. A kernel that does not know the flag (before 4.17) maps elsewhere.
    unsafe {
        let zeros = map(at, size, libc::PROT_READ | libc::PROT_WRITE, kind, -1);
        if zeros == at {
            advise(at, size, libc::MADV_DONTFORK);
        } else if zeros != libc::MAP_FAILED {
            unmap(zeros, size);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use core::ptr::null_mut;

    use super::*;

    /// Older kernels than 6.17 unmap what is at the new place before they look at the old one.
    #[test]
    fn a_move_that_fails_leaves_no_hole() {
        const PAGE: usize = 4096;
        // SAFETY: a mapping of our own. The page at `PAGE` is never mapped, so nothing is moved.
        unsafe {
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = map(null_mut(), PAGE, libc::PROT_READ | libc::PROT_WRITE, kind, -1);
            assert_ne!(at, libc::MAP_FAILED);
            assert!(!replace(at, core::ptr::without_provenance_mut(PAGE), PAGE));
            let mut resident = 0u8;
            // It fails where nothing is mapped.
            assert_eq!(libc::syscall(libc::SYS_mincore, at, PAGE, &raw mut resident), 0);
            unmap(at, PAGE);
        }
    }
}
