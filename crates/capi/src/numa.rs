// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory by node for C: the crate `numa`.

use std::ffi::{c_int, c_void};

use ::numa::c::{Default, Functions, Malloc};
use ::numa::{Errno, Here, Place, RclAware};
use libc::EINVAL;

/// A heap whose memory comes from one node.
pub struct Heap(::numa::Heap);

/// What became of pages that were to be on a node.
#[repr(C)]
pub struct Pages {
    /// On the node.
    there: u64,
    /// On others: they could not be moved.
    elsewhere: u64,
    /// Not there yet: nobody has touched them.
    absent: u64,
    /// Of these nobody can tell.
    unknown: u64,
    /// 0, or why the kernel refused to move them, or to tell: an errno value.
    refused: c_int,
}

/// What `wakeful_malloc` does, and why.
#[repr(C)]
pub struct Report {
    /// The node that new blocks come from; negative: the default allocator.
    node: c_int,
    /// Nodes on which the program may have memory; 0: nobody can tell.
    nodes: u32,
    /// Servers that run.
    servers: usize,
    /// 0, or why blocks come from the default allocator though all servers are on one node: an errno value.
    refused: c_int,
    /// When blocks were moved last.
    moved: Pages,
    /// Blocks that could not be listed, and so do not move.
    unlisted: u64,
}

impl From<::numa::Moved> for Pages {
    fn from(moved: ::numa::Moved) -> Self {
        let ::numa::Moved { there, elsewhere, absent, unknown, refused } = moved;
        Self { there, elsewhere, absent, unknown, refused: refused.map_or(0, |errno| errno.0) }
    }
}

struct CLibrary;

// SAFETY: its own.
unsafe impl Functions for CLibrary {
    unsafe fn malloc(&self, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises, here and below.
        unsafe { libc::malloc(size).cast() }
    }

    unsafe fn calloc(&self, count: usize, size: usize) -> *mut u8 {
        // SAFETY: the same.
        unsafe { libc::calloc(count, size).cast() }
    }

    unsafe fn realloc(&self, block: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: the same.
        unsafe { libc::realloc(block.cast(), size).cast() }
    }

    unsafe fn memalign(&self, align: usize, size: usize) -> *mut u8 {
        // SAFETY: the same.
        unsafe { libc::memalign(align, size).cast() }
    }

    unsafe fn free(&self, block: *mut u8) {
        // SAFETY: the same.
        unsafe { libc::free(block.cast()) };
    }

    unsafe fn usable(&self, block: *mut u8) -> usize {
        // SAFETY: the same.
        unsafe { libc::malloc_usable_size(block.cast()) }
    }
}

static MEMORY: RclAware<Default<CLibrary>> = RclAware::with(Default(CLibrary), Here);

fn number(result: Result<(), Errno>) -> c_int {
    result.map_or_else(|errno| errno.0, |()| 0)
}

/// Memory that follows the servers of delegated sections (RCLAwareMalloc). Before the first server runs it
/// is `malloc`'s. When all servers run on one node, what is allocated moves there, and new blocks come from
/// there. When they are on several, new blocks are `malloc`'s again.
///
/// The functions of this name are as those of the C library, errno included. A block goes back by
/// `wakeful_free` or `wakeful_realloc`, from any thread. `wakeful_follow_servers` is to be called before.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_malloc(size: usize) -> *mut c_void {
    // SAFETY: as the caller promised, here and below.
    unsafe { Malloc::malloc(&MEMORY, size).cast() }
}

/// As `calloc`.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_calloc(count: usize, size: usize) -> *mut c_void {
    // SAFETY: as above.
    unsafe { Malloc::calloc(&MEMORY, count, size).cast() }
}

/// As `realloc`. The block goes over to where new blocks come from.
///
/// # Safety
/// NULL, or a block from here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_realloc(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: as above.
    unsafe { Malloc::realloc(&MEMORY, block.cast(), size).cast() }
}

/// As `aligned_alloc`; the size may be any.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    // SAFETY: as above.
    unsafe { Malloc::memalign(&MEMORY, alignment, size).cast() }
}

/// As `free`.
///
/// # Safety
/// NULL, or a block from here, not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_free(block: *mut c_void) {
    // SAFETY: as above.
    unsafe { Malloc::free(&MEMORY, block.cast()) };
}

/// Hears from now on where the servers of this library's locks run. None of its locks has a server today:
/// programs with servers of their own call `wakeful_server_is_on`. A server counts as on a node if its
/// thread may run on that node's processors only. For the beginning of `main`. Returns 0.
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_follow_servers() -> c_int {
    use std::sync::Once;
    static ONCE: Once = Once::new();
    // It is the only one in this library.
    ONCE.call_once(|| _ = MEMORY.follow_servers());
    0
}

/// For a program that has servers of its own: the one of this address runs on this node now. Negative:
/// nobody knows on which, or on several. Returns when the blocks have moved. A preloaded `malloc` does not
/// hear of it.
///
/// # Safety
/// None: only the address is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_server_is_on(server: *const c_void, node: c_int) {
    MEMORY.serves(server as usize, u32::try_from(node).ok());
}

/// That server has ended.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_server_ends(server: *const c_void) {
    MEMORY.ends(server as usize);
}

/// Says what `wakeful_malloc` does.
///
/// # Safety
/// Room for a report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_memory_report(report: *mut Report) {
    let found = MEMORY.report();
    let node = match found.place {
        Place::Node(node) => node as c_int,
        Place::Default => -1,
    };
    let refused = found.refused.map_or(0, |errno| errno.0);
    let (nodes, servers, unlisted) = (found.nodes, found.servers, found.unlisted);
    // SAFETY: as the caller promised.
    unsafe { report.write(Report { node, nodes, servers, refused, moved: found.moved.into(), unlisted }) };
}

/// Looks where the pages of a range of memory are.
///
/// # Safety
/// Room for an answer. The range may be any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_memory_look(at: *const c_void, size: usize, node: u32, pages: *mut Pages) {
    // SAFETY: as the caller promised.
    unsafe { pages.write(::numa::look(at.cast(), size, node).into()) };
}

/// A heap of a node. NULL if there is no memory for one, or if there are 64 already. Where the kernel
/// refuses to bind memory, the heap has none of the node's: see `wakeful_heap_bound`.
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_heap_create(node: u32) -> *mut Heap {
    ::numa::Heap::on(node).map_or(std::ptr::null_mut(), |heap| Box::into_raw(Box::new(Heap(heap))))
}

/// Returns 0, or why the heap is not bound to its node: EPERM in many containers, ENOSYS if the kernel knows
/// no nodes, EINVAL if there is no such node or the program may not have its memory.
///
/// # Safety
/// A heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_heap_bound(heap: *const Heap) -> c_int {
    // SAFETY: as the caller promised.
    unsafe { heap.as_ref() }.map_or(EINVAL, |heap| number(heap.0.bound()))
}

/// Ends a heap and all its blocks. NULL: does nothing.
///
/// # Safety
/// A heap, not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_heap_destroy(heap: *mut Heap) {
    if !heap.is_null() {
        // SAFETY: from `Box::into_raw` above.
        drop(unsafe { Box::from_raw(heap) });
    }
}

/// As `aligned_alloc`; the size may be any. 1: as `malloc`.
///
/// # Safety
/// A heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_heap_alloc(heap: *const Heap, alignment: usize, size: usize) -> *mut c_void {
    // SAFETY: as the caller promised.
    unsafe { Malloc::memalign(&(*heap).0, alignment, size).cast() }
}

/// As `calloc`.
///
/// # Safety
/// A heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_heap_calloc(heap: *const Heap, count: usize, size: usize) -> *mut c_void {
    // SAFETY: as the caller promised.
    unsafe { Malloc::calloc(&(*heap).0, count, size).cast() }
}

/// As `realloc`.
///
/// # Safety
/// A heap; NULL, or a block of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_heap_realloc(
    heap: *const Heap,
    block: *mut c_void,
    size: usize,
) -> *mut c_void {
    // SAFETY: as the caller promised.
    unsafe { Malloc::realloc(&(*heap).0, block.cast(), size).cast() }
}

/// As `free`.
///
/// # Safety
/// A heap; NULL, or a block of it, not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wakeful_heap_free(heap: *const Heap, block: *mut c_void) {
    // SAFETY: as the caller promised.
    unsafe { Malloc::free(&(*heap).0, block.cast()) };
}
