// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which pages take memory, in blocks that are new and in blocks that lie where others were. A program of its
//! own, and one processor for a test: a block is where others were only if it comes from the same part of the
//! heap, and a fork, or a move to another processor, leads to another one.

use std::alloc::{GlobalAlloc, Layout};

use numa::Heap;

/// A heap, and one processor for this thread.
fn heap() -> Heap {
    // SAFETY: an empty set is all zeros; it is the calling thread's, and of this size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(usize::try_from(libc::sched_getcpu()).unwrap(), &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
    Heap::on(0).unwrap()
}

/// Pages of a range that take memory.
fn resident(block: *mut u8, size: usize) -> usize {
    let mut resident = vec![0u8; size / 4096];
    let at = (block as usize).next_multiple_of(4096) as *mut _;
    // SAFETY: whole pages of the range, and a byte for each.
    assert_eq!(unsafe { libc::mincore(at, size - 4096, resident.as_mut_ptr()) }, 0);
    resident.iter().filter(|page| **page & 1 != 0).count()
}

/// What nobody has touched takes no memory: neither in new addresses nor where blocks were before.
#[test]
fn zeros_take_no_memory() {
    let heap = heap();
    let small = Layout::from_size_align(600_000, 16).unwrap();
    let layout = Layout::from_size_align(16 << 20, 16).unwrap();
    let pages = layout.size() / 4096;
    // SAFETY: sizes that are not 0, and so many bytes are there.
    unsafe {
        let new = heap.alloc_zeroed(layout);
        // Huge pages at its ends, at most.
        assert!(resident(new, layout.size()) < pages / 3, "new: {}", resident(new, layout.size()));
        // Small ones keep their pages when they are freed.
        let blocks = [(); 60].map(|()| heap.alloc(small));
        let above = heap.alloc(Layout::new::<u64>());
        for block in blocks {
            block.write_bytes(1, small.size());
        }
        blocks.into_iter().for_each(|block| heap.dealloc(block, small));
        let again = heap.alloc_zeroed(layout);
        assert!(blocks.contains(&again), "it is where those were");
        assert!(resident(again, layout.size()) < pages / 3, "again: {}", resident(again, layout.size()));
        assert!((0..layout.size()).all(|byte| *again.add(byte) == 0));
        heap.dealloc(above, Layout::new::<u64>());
    }
}

/// The kernel gives no new pages where some are locked: they are cleared. And `free` says nothing of it.
#[test]
fn locked_pages_are_cleared() {
    let heap = heap();
    let layout = Layout::from_size_align(2 << 20, 16).unwrap();
    // SAFETY: the size is not 0, and so many bytes are there; errno is this thread's.
    unsafe {
        let block = heap.alloc(layout);
        let above = heap.alloc(Layout::new::<u64>());
        block.write_bytes(1, layout.size());
        assert_eq!(libc::mlock(block.add(1 << 20).cast(), 1), 0);
        *libc::__errno_location() = 33;
        heap.dealloc(block, layout);
        assert_eq!(*libc::__errno_location(), 33);
        let again = heap.alloc_zeroed(layout);
        assert_eq!(again, block);
        assert!((0..layout.size()).all(|byte| *again.add(byte) == 0));
        heap.dealloc(above, Layout::new::<u64>());
    }
}

/// What was freed goes back to the kernel.
#[test]
fn freed_pages_go_back() {
    let heap = heap();
    let layout = Layout::from_size_align(16 << 20, 16).unwrap();
    // SAFETY: the size is not 0, and so many bytes are there.
    unsafe {
        let block = heap.alloc(layout);
        block.write_bytes(1, layout.size());
        // It keeps the end of the heap.
        let above = heap.alloc(Layout::new::<u64>());
        heap.dealloc(block, layout);
        let left = resident(block, layout.size());
        assert!(left <= 4, "{left} pages are still there");
        heap.dealloc(above, Layout::new::<u64>());
    }
}
