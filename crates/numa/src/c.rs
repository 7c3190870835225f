// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same for C: sizes of 0, blocks that come back without their size, and errno.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_int;
use core::ptr::null_mut;

use crate::aware::RclAware;
use crate::heap::Heap;
use crate::kernel::Kernel;

/// The functions of a C library.
///
/// # Safety
/// They keep its contract.
#[allow(missing_docs, clippy::missing_safety_doc)] // those of the same name
pub unsafe trait Functions: Sync {
    unsafe fn malloc(&self, size: usize) -> *mut u8;
    unsafe fn calloc(&self, count: usize, size: usize) -> *mut u8;
    unsafe fn realloc(&self, block: *mut u8, size: usize) -> *mut u8;
    unsafe fn memalign(&self, align: usize, size: usize) -> *mut u8;
    unsafe fn free(&self, block: *mut u8);
    unsafe fn usable(&self, block: *mut u8) -> usize;
}

/// The alignment of each block of `malloc`.
const NATURAL: usize = 16;

/// DefaultMalloc is a C library's: a block comes back without its layout. No C program has `realloc` keep an
/// alignment beyond `malloc`'s, and this does not.
#[derive(Debug)]
pub struct Default<F>(pub F);

// SAFETY: as the functions' contract says; `c::Malloc` passes the alignment of `malloc` to `realloc`.
unsafe impl<F: Functions> GlobalAlloc for Default<F> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size, and a power of two.
        unsafe {
            match layout.align() {
                ..=NATURAL => self.0.malloc(layout.size()),
                align => self.0.memalign(align, layout.size()),
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the same; so many bytes are there.
        unsafe {
            if layout.align() <= NATURAL {
                return self.0.calloc(1, layout.size());
            }
            let block = self.0.memalign(layout.align(), layout.size());
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: as the caller promises.
        unsafe { self.0.free(block) };
    }

    unsafe fn realloc(&self, block: *mut u8, _: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { self.0.realloc(block, size) }
    }
}

/// `size` bytes; `None` if no object can be so large.
fn layout(size: usize, align: usize) -> Option<Layout> {
    Layout::from_size_align(size, align.max(NATURAL)).ok()
}

/// Null says why.
fn or_no_memory(block: *mut u8) -> *mut u8 {
    if block.is_null() {
        // SAFETY: this thread's own.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
    }
    block
}

/// What C calls. Blocks come back by the same object's functions, or are of its default.
#[allow(clippy::missing_safety_doc)] // those of the same name
pub trait Malloc {
    /// `malloc`.
    unsafe fn malloc(&self, size: usize) -> *mut u8;
    /// `calloc`.
    unsafe fn calloc(&self, count: usize, size: usize) -> *mut u8;
    /// `realloc`; as glibc's with size 0, it frees the block and returns null.
    unsafe fn realloc(&self, block: *mut u8, size: usize) -> *mut u8;
    /// `memalign`; null with EINVAL if the alignment is no power of two.
    unsafe fn memalign(&self, align: usize, size: usize) -> *mut u8;
    /// `free`; errno stays.
    unsafe fn free(&self, block: *mut u8);
    /// `malloc_usable_size`.
    unsafe fn usable(&self, block: *mut u8) -> usize;
    /// `posix_memalign`.
    unsafe fn posix_memalign(&self, at: *mut *mut u8, align: usize, size: usize) -> c_int {
        if !align.is_power_of_two() || !align.is_multiple_of(size_of::<usize>()) {
            return libc::EINVAL;
        }
        // SAFETY: this thread's own, which this function leaves as it was.
        let errno = unsafe { *libc::__errno_location() };
        // SAFETY: as the caller promises.
        unsafe {
            let block = self.memalign(align, size);
            if block.is_null() {
                *libc::__errno_location() = errno;
                return libc::ENOMEM;
            }
            *at = block;
        }
        0
    }
}

/// What has blocks, and knows their sizes.
trait Blocks: GlobalAlloc {
    unsafe fn size(&self, block: *mut u8) -> usize;
}

impl<F: Functions, K: Kernel> Blocks for RclAware<Default<F>, K> {
    unsafe fn size(&self, block: *mut u8) -> usize {
        // SAFETY: as the caller promises.
        unsafe { if self.holds(block) { self.usable(block) } else { self.default().0.usable(block) } }
    }
}

impl Blocks for Heap {
    unsafe fn size(&self, block: *mut u8) -> usize {
        // SAFETY: as the caller promises.
        unsafe { self.usable(block) }
    }
}

impl<B: Blocks> Malloc for B {
    #[inline]
    unsafe fn malloc(&self, size: usize) -> *mut u8 {
        // SAFETY: both allocators take any size.
        or_no_memory(layout(size, 1).map_or(null_mut(), |layout| unsafe { self.alloc(layout) }))
    }

    unsafe fn calloc(&self, count: usize, size: usize) -> *mut u8 {
        let layout = count.checked_mul(size).and_then(|size| layout(size, 1));
        // SAFETY: as above.
        or_no_memory(layout.map_or(null_mut(), |layout| unsafe { self.alloc_zeroed(layout) }))
    }

    unsafe fn realloc(&self, block: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises; the block has so many bytes.
        unsafe {
            if block.is_null() {
                return self.malloc(size);
            }
            if size == 0 {
                self.free(block);
                return null_mut();
            }
            let Some(old) = layout(self.size(block), 1).filter(|_| layout(size, 1).is_some()) else {
                return or_no_memory(null_mut());
            };
            or_no_memory(GlobalAlloc::realloc(self, block, old, size))
        }
    }

    unsafe fn memalign(&self, align: usize, size: usize) -> *mut u8 {
        if !align.is_power_of_two() {
            // SAFETY: this thread's own.
            unsafe { *libc::__errno_location() = libc::EINVAL };
            return null_mut();
        }
        // SAFETY: as above.
        or_no_memory(layout(size, align).map_or(null_mut(), |layout| unsafe { self.alloc(layout) }))
    }

    #[inline]
    unsafe fn free(&self, block: *mut u8) {
        if !block.is_null() {
            // SAFETY: as the caller promises; nobody reads the layout.
            unsafe { self.dealloc(block, Layout::new::<u8>()) };
        }
    }

    unsafe fn usable(&self, block: *mut u8) -> usize {
        // SAFETY: as the caller promises.
        if block.is_null() { 0 } else { unsafe { self.size(block) } }
    }
}
