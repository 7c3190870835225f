// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two nodes, in a guest: processors 0 and 1 on node 0, 2 and 3 on node 1 (`vm/test`).

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::LazyLock;
use std::thread;

use linux::Linux;
use numa::{Errno, Heap, Here, Kernel, Moved, Place, RclAware, look};
use sync::delegate::{RawDelegate, Rcl};

const PAGE: usize = 4096;
const ARRAY: Layout = Layout::new::<[u8; 4 << 20]>();
const SMALL: Layout = Layout::new::<[u8; 200]>();

fn pin(processor: usize) {
    // SAFETY: a set that lives.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// Writes a block from here, whatever node that is.
fn touch(block: *mut u8, size: usize) {
    // SAFETY: the callers pass blocks of theirs.
    unsafe { block.write_bytes(1, size) };
}

/// All pages of a block that was touched are on a node.
#[track_caller]
fn is_on(node: u32, block: *mut u8, size: usize) {
    let found = look(block, size, node);
    assert_eq!(found, Moved { there: found.there, ..Moved::default() }, "node {node}");
    assert!(found.there as usize >= size / PAGE);
}

/// The same for a block of the default allocator. Its first and last page may be older than it is.
#[track_caller]
fn inside_is_on(node: u32, block: *mut u8, size: usize) {
    is_on(node, block.wrapping_add(PAGE), size - 2 * PAGE);
}

/// A server on a processor, until it is dropped.
struct Server {
    lock: &'static Rcl<Linux>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    fn on(processor: usize, lock: &'static Rcl<Linux>) -> Self {
        let thread = thread::spawn(move || {
            pin(processor);
            assert!(lock.serve());
        });
        let server = Self { lock, thread: Some(thread) };
        // It answers, so it has said where it is.
        let mut ran = 0;
        assert_eq!(server.run(|| ran = processor + 1), ());
        assert_eq!(ran, processor + 1);
        server
    }

    fn run(&self, mut section: impl FnMut() + Send) {
        unsafe fn call<F: FnMut()>(context: *mut ()) {
            // SAFETY: the closure below, which nobody else uses meanwhile.
            unsafe { (*context.cast::<F>())() };
        }
        fn of<F: FnMut()>(_: &F) -> unsafe fn(*mut ()) {
            call::<F>
        }
        // SAFETY: it waits for nothing and lives until it has run.
        unsafe { self.lock.run(of(&section), (&raw mut section).cast()) };
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.lock.close();
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
#[ignore = "needs two nodes: vm/test"]
fn guest_numa_memory_follows_an_rcl_server() {
    static MEMORY: RclAware = RclAware::new();
    static ONE: LazyLock<Rcl<Linux>> = LazyLock::new(Rcl::new);
    static OTHER: LazyLock<Rcl<Linux>> = LazyLock::new(Rcl::new);
    assert_eq!(Here.nodes(), Ok(2));
    assert!(MEMORY.follow_servers());
    pin(0);
    // SAFETY: no size is 0.
    let take = |layout| unsafe { MEMORY.alloc(layout) };
    let before = take(ARRAY);
    let half = take(ARRAY);
    let small: Vec<_> = (0..1_000).map(|_| take(SMALL)).collect();
    touch(before, ARRAY.size());
    touch(half, ARRAY.size() / 2);
    small.iter().for_each(|block| touch(*block, SMALL.size()));
    inside_is_on(0, before, ARRAY.size());
    let freed = take(ARRAY);
    // SAFETY: taken just now.
    unsafe { MEMORY.dealloc(freed, ARRAY) };

    // The first lock.
    let server = Server::on(2, &ONE);
    let report = MEMORY.report();
    assert_eq!((report.place, report.servers, report.nodes), (Place::Node(1), 1, 2));
    assert_eq!((report.refused, report.unlisted), (None, 0));
    assert_eq!((report.moved.elsewhere, report.moved.unknown, report.moved.refused), (0, 0, None));
    is_on(1, before, ARRAY.size());
    small.iter().for_each(|block| is_on(1, *block, 1));
    // What nobody had touched yet, and blocks from after it: first touched by a client of node 0.
    touch(half, ARRAY.size());
    is_on(1, half, ARRAY.size());
    let after = take(ARRAY);
    touch(after, ARRAY.size());
    is_on(1, after, ARRAY.size());
    // The working set stays where it is while sections work on it.
    let sets = [before as usize, half as usize, after as usize];
    server.run(|| sets.iter().for_each(|set| touch(*set as *mut u8, ARRAY.size())));
    sets.iter().for_each(|set| is_on(1, *set as *mut u8, ARRAY.size()));

    // Spread servers restore the default.
    let spread = {
        let _other = Server::on(1, &OTHER);
        assert_eq!((MEMORY.report().place, MEMORY.report().servers), (Place::Default, 2));
        let spread = take(ARRAY);
        assert!(!MEMORY.holds(spread));
        touch(spread, ARRAY.size());
        inside_is_on(0, spread, ARRAY.size());
        is_on(1, before, ARRAY.size());
        spread
    };
    // All on one again: what was allocated meanwhile moves.
    assert_eq!(MEMORY.report().place, Place::Node(1));
    is_on(1, spread, ARRAY.size());
    drop(server);
    assert_eq!((MEMORY.report().place, MEMORY.report().servers), (Place::Default, 0));
    let default = take(ARRAY);
    touch(default, ARRAY.size());
    inside_is_on(0, default, ARRAY.size());
    // SAFETY: taken above, each once.
    unsafe {
        [before, half, after, spread, default].iter().for_each(|block| MEMORY.dealloc(*block, ARRAY));
        small.into_iter().for_each(|block| MEMORY.dealloc(block, SMALL));
    }
}

/// The heap moves as a whole when the servers are on another node; a server that may run on both is on none.
#[test]
#[ignore = "needs two nodes: vm/test"]
fn guest_numa_servers_change_their_node() {
    static MEMORY: RclAware = RclAware::new();
    pin(1);
    // SAFETY: the size is not 0.
    let take = || unsafe { MEMORY.alloc(ARRAY) };
    MEMORY.serves(1, Some(1));
    let block = take();
    touch(block, ARRAY.size());
    is_on(1, block, ARRAY.size());
    MEMORY.serves(1, Some(0));
    is_on(0, block, ARRAY.size());
    MEMORY.serves(1, None);
    assert_eq!(MEMORY.report().place, Place::Default);
    MEMORY.ends(1);
    // A node that there is not.
    MEMORY.serves(1, Some(9));
    assert_eq!((MEMORY.report().place, MEMORY.report().refused), (Place::Default, Some(Errno(libc::EINVAL))));
    // SAFETY: taken above.
    unsafe { MEMORY.dealloc(block, ARRAY) };
    assert_eq!(Here.home(), Some(0));
    pin(3);
    assert_eq!(Here.home(), Some(1));
    // SAFETY: a set that lives.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(1, &mut set);
        libc::CPU_SET(3, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
    assert_eq!(Here.home(), None);
}

#[test]
#[ignore = "needs two nodes: vm/test"]
fn guest_numa_a_heap_is_on_its_node() {
    for (processor, node) in [(0, 1), (2, 0), (3, 1)] {
        pin(processor);
        let heap = Heap::on(node).unwrap();
        assert_eq!(heap.bound(), Ok(()));
        // SAFETY: the size is not 0, and it is freed.
        unsafe {
            let block = heap.alloc(ARRAY);
            touch(block, ARRAY.size());
            is_on(node, block, ARRAY.size());
            heap.dealloc(block, ARRAY);
        }
    }
}

/// Pages that another process has as well stay where they are, and that is told.
#[test]
#[ignore = "needs two nodes: vm/test"]
fn guest_numa_shared_pages_are_told() {
    static MEMORY: RclAware = RclAware::new();
    pin(0);
    // SAFETY: the size is not 0; a child that only waits for its parent to close a pipe, or to end.
    unsafe {
        let mut pipe: [c_int; 2] = [0; 2];
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let block = MEMORY.alloc(ARRAY);
        touch(block, ARRAY.size());
        // Wherever its pages have been before.
        MEMORY.serves(1, Some(0));
        is_on(0, block, ARRAY.size());
        let child = libc::fork();
        if child == 0 {
            libc::close(pipe[1]);
            libc::read(pipe[0], pipe.as_mut_ptr().cast(), 1);
            libc::_exit(0);
        }
        MEMORY.serves(1, Some(1));
        let moved = MEMORY.report().moved;
        assert!(moved.elsewhere as usize >= ARRAY.size() / PAGE, "{moved:?}");
        libc::close(pipe[1]);
        assert_eq!(libc::waitpid(child, null_mut::<c_int>(), 0), child);
        MEMORY.ends(1);
        MEMORY.serves(1, Some(1));
        assert_eq!(MEMORY.report().moved.elsewhere, 0, "{:?}", MEMORY.report().moved);
        is_on(1, block, ARRAY.size());
        MEMORY.dealloc(block, ARRAY);
    }
}
