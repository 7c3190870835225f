// SPDX-License-Identifier: MIT OR Apache-2.0
//! A heap whose pages come from one node.
//!
//! One range of addresses is reserved and bound as a whole, before anything in it is touched. So it does not
//! matter which thread touches a page first, and one comparison tells whether a block is of this heap. The
//! range has eight parts, each with a lock and an allocator of its own (the crate dlmalloc), which grows from
//! the part's beginning. A thread takes the part of its processor if that is free, else the next one.
//! What the allocator has no use for any more goes back to the kernel: the end of a part, and at once the
//! pages of blocks of a MiB or more.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicUsize, Ordering::*};

use dlmalloc::{Allocator, Dlmalloc};
use linux::{Linux, memory};
use platform::Platform;

use crate::forks::{self, Forks};
use crate::kernel::{Errno, Here, Kernel, Quiet};
use crate::locked::Locked;
use crate::moves::{Batch, Moved, Mover, inside, page};

/// BOUND: more threads than these that allocate at the same moment wait for each other.
const PARTS: usize = 8;
/// Bytes of addresses to reserve, at best; half of that, and so on, where the program may not have so many.
const MOST: usize = if usize::BITS < 48 { 1 << 28 } else { 1 << 40 };
const LEAST: usize = 1 << 24;
/// BOUND: bytes. What is made accessible at a time.
const STEP: usize = 1 << 20;
/// BOUND: bytes. A block of this size gives its pages back when it is freed, or is to be of zeros: a system
/// call is little beside what it takes to fill it.
const LARGE: usize = 1 << 20;

/// Bytes of addresses to begin with: under a limit a quarter of what the program may have.
fn most() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: room for a limit.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } == 0;
    let quarter = usize::try_from(limit.rlim_cur / 4).unwrap_or(MOST);
    if !known || limit.rlim_cur == libc::RLIM_INFINITY || quarter >= MOST {
        return MOST;
    }
    quarter.checked_ilog2().map_or(0, |bits| 1 << bits)
}

/// Makes whole pages as new, of zeros. False if the kernel refuses, as it does where they are locked.
///
/// # Safety
/// Nobody needs what they hold.
unsafe fn renew(at: usize, size: usize) -> bool {
    // `free` leaves errno as it was.
    let _quiet = Quiet::new();
    // SAFETY: as promised.
    unsafe { memory::advise(at as *mut _, size, libc::MADV_DONTNEED) }
}

/// The addresses of a part: allocated up to `used`, accessible up to `open`.
struct Part {
    base: Cell<usize>,
    size: Cell<usize>,
    used: Cell<usize>,
    open: Cell<usize>,
}

impl Part {
    #[allow(clippy::declare_interior_mutable_const)] // an initialiser, used once per part
    const NONE: Self =
        Self { base: Cell::new(0), size: Cell::new(0), used: Cell::new(0), open: Cell::new(0) };
}

// SAFETY: what is given out is accessible, and given out once. One thread at a time has the part.
unsafe impl Allocator for Part {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        const NONE: (*mut u8, usize, u32) = (null_mut(), 0, 0);
        let (base, used) = (self.base.get(), self.used.get());
        let Some(wanted) = size.checked_next_multiple_of(page()).and_then(|size| used.checked_add(size))
        else {
            return NONE;
        };
        if wanted > self.size.get() {
            return NONE;
        }
        if wanted > self.open.get() {
            let open = wanted.next_multiple_of(STEP).min(self.size.get());
            let (from, more) = (base + self.open.get(), open - self.open.get());
            // SAFETY: addresses of this part, which nobody uses yet.
            if !unsafe { memory::protect(from as *mut _, more, libc::PROT_READ | libc::PROT_WRITE) } {
                return NONE;
            }
            self.open.set(open);
        }
        self.used.set(wanted);
        ((base + used) as *mut u8, wanted - used, 0)
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        null_mut()
    }

    fn free_part(&self, from: *mut u8, old: usize, new: usize) -> bool {
        let (from, base) = (from as usize, self.base.get());
        if from + old != base + self.used.get() {
            return false;
        }
        // SAFETY: the end of what was given out, which comes back.
        unsafe { renew(from + new, old - new) };
        self.used.set(from + new - base);
        true
    }

    fn free(&self, _: *mut u8, _: usize) -> bool {
        false
    }

    fn can_release_part(&self, _: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        page()
    }
}

/// A heap; without addresses until [`Space::reserve`].
pub struct Space {
    base: AtomicUsize,
    /// Bytes of a part.
    each: AtomicUsize,
    parts: [Own; PARTS],
}

/// A part with its lock, apart from its neighbours' lines.
#[repr(align(128))]
struct Own(Locked<Dlmalloc<Part>>);

impl Space {
    pub const fn new() -> Self {
        Self {
            base: AtomicUsize::new(0),
            each: AtomicUsize::new(0),
            parts: [const { Own(Locked::new(Dlmalloc::new_with_allocator(Part::NONE))) }; PARTS],
        }
    }

    /// Gets it addresses, if it has none. One thread at a time.
    pub fn reserve(&self) -> Result<(), Errno> {
        if self.base.load(Relaxed) != 0 {
            return Ok(());
        }
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let mut size = most();
        let base = loop {
            if size < LEAST {
                return Err(Errno(libc::ENOMEM));
            }
            // SAFETY: a new mapping.
            let at = unsafe { memory::map(null_mut(), size, libc::PROT_NONE, kind, -1) };
            if at != libc::MAP_FAILED {
                break at as usize;
            }
            size /= 2;
        };
        let each = size / PARTS;
        for (number, part) in self.parts.iter().enumerate() {
            part.0.with(|part| {
                part.allocator().base.set(base + number * each);
                part.allocator().size.set(each);
            });
        }
        self.each.store(each, Relaxed);
        // ORDER: Release, pairs with the Acquire in `holds`; publishes `each`.
        self.base.store(base, Release);
        Ok(())
    }

    /// Has pages that do not exist yet come from a node from now on.
    pub fn bind(&self, kernel: &impl Kernel, node: Option<u32>) -> Result<(), Errno> {
        kernel.bind(self.base.load(Relaxed), self.each.load(Relaxed) * PARTS, node)
    }

    /// Moves the pages that exist, or only looks where they are.
    pub fn follow<K: Kernel>(&self, mover: &mut Mover<'_, '_, K>) {
        for part in &self.parts {
            let (base, used) = part.0.with(|part| (part.allocator().base.get(), part.allocator().used.get()));
            mover.range(base, used);
        }
    }

    /// Is it a block of this heap?
    #[inline]
    pub fn holds(&self, block: *mut u8) -> bool {
        // ORDER: Acquire, pairs with the Release in `reserve`.
        let base = self.base.load(Acquire);
        base != 0 && (block as usize).wrapping_sub(base) < self.each.load(Relaxed) * PARTS
    }

    fn part_of(&self, block: *mut u8) -> &Locked<Dlmalloc<Part>> {
        &self.parts[(block as usize - self.base.load(Relaxed)) / self.each.load(Relaxed)].0
    }

    /// Null if there is no room. Any size, and any power of two as the alignment.
    pub fn allocate(&self, size: usize, align: usize, zeroed: bool) -> *mut u8 {
        let each = self.each.load(Relaxed);
        if size >= each || align >= each {
            return null_mut();
        }
        let first = Linux::running_on().unwrap_or(0) as usize;
        let part = |number: usize| &self.parts[(first + number) % PARTS].0;
        let mut block = null_mut();
        let mut take = |part: &mut Dlmalloc<Part>| {
            // SAFETY: both are small enough not to overflow.
            block = unsafe { part.malloc(size, align) };
            !block.is_null()
        };
        let taken = (0..PARTS).any(|number| part(number).try_with(&mut take) == Some(true))
            || (0..PARTS).any(|number| part(number).with(&mut take));
        if taken && zeroed {
            // SAFETY: so many bytes are the block's, and nobody else's.
            unsafe { Self::clear(block, size) };
        }
        block
    }

    /// Writes zeros. The whole pages of a large block become new ones instead, and take no memory yet.
    ///
    /// # Safety
    /// So many bytes are the block's.
    unsafe fn clear(block: *mut u8, size: usize) {
        let (at, new) = inside(block as usize, size);
        // SAFETY: as promised: `at` to `at + new` lies in the block.
        unsafe {
            if size < LARGE || !renew(at, new) {
                return block.write_bytes(0, size);
            }
            let before = at - block as usize;
            block.write_bytes(0, before);
            block.add(before + new).write_bytes(0, size - before - new);
        }
    }

    /// # Safety
    /// A block of this heap, not used afterwards.
    pub unsafe fn free(&self, block: *mut u8) {
        // SAFETY: as promised.
        let size = unsafe { self.usable(block) };
        if size >= LARGE {
            let (at, size) = inside(block as usize, size);
            // SAFETY: whole pages of the block; what they held nobody reads again.
            unsafe { renew(at, size) };
        }
        // SAFETY: as promised.
        self.part_of(block).with(|part| unsafe { part.c_free(block) });
    }

    /// In place or elsewhere in the same part. Null if there is no room there, or if its alignment asks for
    /// more.
    ///
    /// # Safety
    /// A block of this heap, and its size and alignment.
    pub unsafe fn reallocate(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        const NATURAL: usize = 2 * size_of::<usize>();
        if size >= self.each.load(Relaxed) || layout.align() > NATURAL {
            return null_mut();
        }
        // SAFETY: as promised. The size is small enough not to overflow.
        self.part_of(block).with(|part| unsafe { part.c_realloc(block, size) })
    }

    /// Bytes that the block has.
    ///
    /// # Safety
    /// A block of this heap.
    pub unsafe fn usable(&self, block: *mut u8) -> usize {
        const WORD: usize = size_of::<usize>();
        // SAFETY: the word before a block is its chunk's: the size, the word included, and three flags.
        // Neighbours write the flags, and the part's lock is theirs.
        let head = unsafe { (*block.sub(WORD).cast::<AtomicUsize>()).load(Relaxed) };
        (head & !7) - WORD
    }
}

impl Forks for Space {
    fn before(&self) {
        self.parts.iter().for_each(|part| part.0.before_fork());
    }

    unsafe fn after(&self) {
        // SAFETY: as promised.
        self.parts.iter().for_each(|part| unsafe { part.0.after_fork() });
    }
}

/// A heap bound to a node, whoever allocates from it.
///
/// ```
/// use std::alloc::{GlobalAlloc, Layout};
/// let heap = numa::Heap::on(0)?;
/// let layout = Layout::from_size_align(10_000, 64).unwrap();
/// // SAFETY: its size is not 0; and so many bytes are there, and it is freed once.
/// unsafe {
///     let block = heap.alloc(layout);
///     block.write_bytes(1, layout.size());
///     // Where the kernel refuses to bind memory, `bound` says why, and the heap works all the same.
///     if heap.bound().is_ok() {
///         assert_eq!(heap.look(block, layout.size()).elsewhere, 0);
///     }
///     heap.dealloc(block, layout);
/// }
/// # Ok::<(), numa::Errno>(())
/// ```
#[derive(Debug)]
pub struct Heap {
    space: NonNull<Space>,
    node: u32,
    bound: Result<(), Errno>,
}

// SAFETY: the space is shared, and nobody's own.
unsafe impl Send for Heap {}
// SAFETY: the same.
unsafe impl Sync for Heap {}

impl Heap {
    /// A heap of this node. If the kernel refuses to bind it, it is one without a node, see
    /// [`bound`](Self::bound).
    ///
    /// # Errors
    /// ENOMEM: there are no addresses left, or 64 heaps already.
    pub fn on(node: u32) -> Result<Self, Errno> {
        let none = Errno(libc::ENOMEM);
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, large enough and aligned to a page.
        let at = unsafe { memory::map(null_mut(), size_of::<Space>(), access, kind, -1) }.cast::<Space>();
        if at.cast() == libc::MAP_FAILED {
            return Err(none);
        }
        // SAFETY: the same; it is not null.
        let mut heap = unsafe {
            at.write(Space::new());
            Self { space: NonNull::new_unchecked(at), node, bound: Ok(()) }
        };
        heap.space().reserve()?;
        heap.bound = heap.space().bind(&Here, Some(node));
        // SAFETY: it stays there until it is dropped.
        if !unsafe { forks::remember(heap.space()) } {
            return Err(none);
        }
        Ok(heap)
    }

    fn space(&self) -> &Space {
        // SAFETY: it lives as long as this.
        unsafe { self.space.as_ref() }
    }

    /// The node.
    pub fn node(&self) -> u32 {
        self.node
    }

    /// Why it is not bound, if it is not.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn bound(&self) -> Result<(), Errno> {
        self.bound
    }

    /// Where the pages of a block, or of any range of memory, are: which of them on this heap's node.
    pub fn look(&self, block: *const u8, size: usize) -> Moved {
        look(block, size, self.node)
    }

    /// Bytes that the block has: at least those that were asked for.
    ///
    /// # Safety
    /// A block of this heap.
    pub unsafe fn usable(&self, block: *mut u8) -> usize {
        // SAFETY: as promised.
        unsafe { self.space().usable(block) }
    }
}

/// Which pages of a range are on a node.
pub fn look(at: *const u8, size: usize, node: u32) -> Moved {
    Batch::many(|batch| {
        let mut mover = Mover::new(&Here, node, false, batch);
        mover.range(at as usize, size);
        mover.end()
    })
}

// SAFETY: blocks are of the size and alignment asked for, and each byte belongs to one of them.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.space().allocate(layout.size(), layout.align(), false)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.space().allocate(layout.size(), layout.align(), true)
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: as the caller promises.
        unsafe { self.space().free(block) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe {
            let new = self.space().reallocate(block, layout, size);
            if !new.is_null() {
                return new;
            }
            // The part may be full, and others not.
            let new = self.space().allocate(size, layout.align(), false);
            if !new.is_null() {
                new.copy_from_nonoverlapping(block, layout.size().min(size));
                self.space().free(block);
            }
            new
        }
    }
}

impl Drop for Heap {
    /// All its blocks end.
    fn drop(&mut self) {
        forks::forget(self.space());
        let (base, size) = (self.space().base.load(Relaxed), self.space().each.load(Relaxed) * PARTS);
        // SAFETY: both mappings are this heap's, and nobody uses a heap that is dropped.
        unsafe {
            if base != 0 {
                memory::unmap(base as *mut _, size);
            }
            memory::unmap(self.space.as_ptr().cast(), size_of::<Space>());
        }
    }
}
