// SPDX-License-Identifier: MIT OR Apache-2.0
//! This machine's kernel, on its own nodes. What needs two is in `guest.rs`, which `vm/test` runs.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::mpsc;
use std::thread;

use linux::Linux;
use numa::{Heap, Here, Kernel, Moved, Place, RclAware};
use sync::delegate::{RawDelegate, Rcl};

const LAYOUT: Layout = Layout::new::<[u8; 1 << 20]>();

/// Where this kernel may be asked at all; says what is not tested where not.
fn nodes() -> u32 {
    match Here.nodes() {
        Ok(1) => {
            println!("one node: that pages come to another one is left to guest.rs");
            1
        }
        Ok(nodes) => nodes,
        Err(errno) => {
            println!("this kernel does not tell of nodes ({errno}): only that the default goes on is tested");
            0
        }
    }
}

#[test]
fn a_heap_is_on_its_node() {
    let heap = Heap::on(0).unwrap();
    // SAFETY: so many bytes are the block's.
    let block = unsafe {
        let block = heap.alloc(LAYOUT);
        block.write_bytes(1, LAYOUT.size());
        block
    };
    let found = heap.look(block, LAYOUT.size());
    if nodes() > 0 && heap.bound().is_ok() {
        assert!(found.there >= 256 && found == Moved { there: found.there, ..Moved::default() }, "{found:?}");
        // SAFETY: this thread's own, and it stays.
        let outside = unsafe { libc::mmap(std::ptr::null_mut(), 8192, 3, 0x22, -1, 0) };
        assert_eq!(heap.look(outside.cast(), 8192), Moved { absent: 2, ..Moved::default() });
    } else {
        assert!(heap.bound().is_err() || found.unknown > 0, "{:?} {found:?}", heap.bound());
    }
    // SAFETY: taken above.
    unsafe { heap.dealloc(block, LAYOUT) };
}

#[test]
fn a_node_that_there_is_not_is_told() {
    let heap = Heap::on(1_000).unwrap();
    assert!(heap.bound().is_err());
    assert!(Heap::on(u32::MAX).unwrap().bound().is_err());
    // SAFETY: as above: the heap works all the same.
    unsafe {
        let block = heap.alloc(LAYOUT);
        block.write_bytes(1, LAYOUT.size());
        heap.dealloc(block, LAYOUT);
    }
}

/// An `rcl` server says where it is, and the allocator follows: here, to the node where everything is.
#[test]
fn an_rcl_server_is_followed() {
    static MEMORY: RclAware = RclAware::new();
    static LOCK: std::sync::LazyLock<Rcl<Linux>> = std::sync::LazyLock::new(Rcl::new);
    assert!(MEMORY.follow_servers());
    // SAFETY: the size is not 0, and so many bytes are there.
    let before = unsafe { MEMORY.alloc_zeroed(LAYOUT) };
    // SAFETY: the same.
    unsafe { before.write_bytes(1, LAYOUT.size()) };
    assert_eq!(MEMORY.report().servers, 0);
    let server = thread::spawn(|| {
        pin_to_here();
        assert!(LOCK.serve());
    });
    // Answered by the server when it is there.
    let (sender, receiver) = mpsc::channel::<()>();
    let mut sender = Some(sender);
    unsafe fn end(context: *mut ()) {
        // SAFETY: `sender`, below, which nobody else uses meanwhile.
        drop(unsafe { (*context.cast::<Option<mpsc::Sender<()>>>()).take() });
    }
    // SAFETY: the section waits for nothing, and its context lives.
    unsafe { LOCK.run(end, (&raw mut sender).cast()) };
    assert!(receiver.recv().is_err());
    let report = MEMORY.report();
    assert_eq!(report.servers, 1);
    if Here.home().is_none() && nodes() > 1 {
        println!("this thread may run on several nodes");
    }
    if report.nodes > 0 && report.refused.is_none() {
        assert!(matches!(report.place, Place::Node(_)), "{report:?}");
        assert!(report.moved.there >= 256 && report.moved.elsewhere == 0, "{report:?}");
        // SAFETY: taken and freed.
        unsafe {
            let after = MEMORY.alloc(LAYOUT);
            assert!(MEMORY.holds(after));
            MEMORY.dealloc(after, LAYOUT);
        }
    }
    LOCK.close();
    server.join().unwrap();
    assert_eq!((MEMORY.report().servers, MEMORY.report().place), (0, Place::Default));
    // SAFETY: taken above.
    unsafe { MEMORY.dealloc(before, LAYOUT) };
}

/// To the processor that it runs on.
fn pin_to_here() {
    // SAFETY: a set that lives.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}
