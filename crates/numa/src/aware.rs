// SPDX-License-Identifier: MIT OR Apache-2.0
//! RCLAwareMalloc: the allocator that follows the servers. See the crate's head.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::alloc::System;
use std::sync::OnceLock;

use crate::forks::{self, Forks};
use crate::heap::Space;
use crate::kernel::{Errno, Here, Kernel};
use crate::list::AllocList;
use crate::locked::Locked;
use crate::moves::{Batch, Moved, Mover, page};
use crate::policy::{Place, Servers};

/// BOUND: bytes. A listed block of this size is bound while it lives, so that what it has not touched yet
/// comes to the node as well. The C library maps such blocks, most often side by side. Each one that has no
/// such neighbour costs the kernel two mappings more, of which a program has 65,530.
const LARGE: usize = 1 << 17;

/// What has become of the steps, for whoever asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Where new blocks come from.
    pub place: Place,
    /// Servers that run.
    pub servers: usize,
    /// Nodes on which the program may have memory; 0: nobody can tell. With 1 there is nothing to gain.
    pub nodes: u32,
    /// Why blocks come from the default allocator though all servers are on one node.
    pub refused: Option<Errno>,
    /// What became of the pages when blocks were moved last.
    pub moved: Moved,
    /// Blocks that could not be listed, and so do not move.
    pub unlisted: u64,
}

/// The allocator that follows the servers: `B` is DefaultMalloc.
pub struct RclAware<B = System, K = Here> {
    default: B,
    kernel: K,
    heap: Space,
    list: AllocList,
    /// 0: the default; else the node and 1.
    place: AtomicU32,
    /// Large listed blocks may be bound.
    binds: AtomicBool,
    /// It stays where it was told to.
    stays: AtomicBool,
    unlisted: AtomicU64,
    remembered: AtomicBool,
    events: Locked<Events>,
}

struct Events {
    servers: Servers,
    report: Report,
}

impl<B, K> fmt::Debug for RclAware<B, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RclAware").finish_non_exhaustive()
    }
}

impl RclAware {
    /// On the system's allocator.
    #[allow(clippy::new_without_default)] // 2 MB, for a static
    pub const fn new() -> Self {
        Self::with(System, Here)
    }
}

impl<B: GlobalAlloc + Sync, K: Kernel> RclAware<B, K> {
    /// On another allocator, whose blocks are aligned to 16 bytes, or not listed.
    pub const fn with(default: B, kernel: K) -> Self {
        Self {
            default,
            kernel,
            heap: Space::new(),
            list: AllocList::new(),
            place: AtomicU32::new(0),
            binds: AtomicBool::new(false),
            stays: AtomicBool::new(false),
            unlisted: AtomicU64::new(0),
            events: Locked::new(Events {
                servers: Servers::new(),
                report: Report {
                    place: Place::Default,
                    servers: 0,
                    nodes: 0,
                    refused: None,
                    moved: Moved { there: 0, elsewhere: 0, absent: 0, unknown: 0, refused: None },
                    unlisted: 0,
                },
            }),
            remembered: AtomicBool::new(false),
        }
    }

    /// DefaultMalloc.
    pub fn default(&self) -> &B {
        &self.default
    }

    /// What it asks about nodes.
    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    /// A server begins, or runs on another node now; `None`: nobody knows on which, or on several. Returns
    /// when the blocks have been moved, if they had to.
    pub fn serves(&'static self, server: usize, node: Option<u32>) {
        self.event(|servers| servers.serves(server, node));
    }

    /// A server ends.
    pub fn ends(&'static self, server: usize) {
        self.event(|servers| servers.ends(server));
    }

    /// Allocates on this node from now on, wherever servers run, and moves what is listed there. For a
    /// program without servers that is to have its memory on a node.
    ///
    /// # Errors
    /// Why the kernel refused to bind memory. Then blocks come from the default allocator.
    pub fn stay(&'static self, node: u32) -> Result<(), Errno> {
        self.remember();
        self.events.with(|events| {
            self.stays.store(true, Relaxed);
            self.go(events, Place::Node(node));
            events.report.refused.map_or(Ok(()), Err)
        })
    }

    /// What has become of the steps.
    pub fn report(&self) -> Report {
        let unlisted = self.unlisted.load(Relaxed);
        self.events.with(|events| Report { unlisted, servers: events.servers.count(), ..events.report })
    }

    /// Is it a block of the bound heap?
    #[inline]
    pub fn holds(&self, block: *mut u8) -> bool {
        self.heap.holds(block)
    }

    /// Bytes that a block of the bound heap has.
    ///
    /// # Safety
    /// A block that this allocator [holds](Self::holds).
    pub unsafe fn usable(&self, block: *mut u8) -> usize {
        // SAFETY: as promised.
        unsafe { self.heap.usable(block) }
    }

    /// Has its locks held at each fork from now on. That allocates: not to be called inside `malloc`.
    pub fn remember(&'static self) {
        // Not under our own lock: who forks takes the locks the other way round.
        if !self.remembered.swap(true, Relaxed) {
            // SAFETY: it is static. One too many is not remembered: such a program has to leave forks alone.
            unsafe { forks::remember(self) };
        }
    }

    fn event(&'static self, change: impl FnOnce(&mut Servers) -> Option<Place>) {
        self.remember();
        self.events.with(|events| {
            let changed = change(&mut events.servers);
            if let Some(place) = changed
                && !self.stays.load(Relaxed)
            {
                self.go(events, place);
            }
        });
    }

    /// The new place: first for blocks to come, then for those that are there.
    fn go(&'static self, events: &mut Events, place: Place) {
        let nodes = self.kernel.nodes().unwrap_or(0);
        events.report = Report { nodes, ..Report::default() };
        let node = match place {
            Place::Node(node) => match self.bind(node) {
                Ok(()) => Some(node),
                Err(errno) => {
                    events.report.refused = Some(errno);
                    None
                }
            },
            Place::Default => None,
        };
        events.report.place = node.map_or(Place::Default, Place::Node);
        // ORDER: SeqCst (P1), pairs with `listed`: before we go through the list.
        self.place.store(node.map_or(0, |node| node + 1), SeqCst);
        match node {
            Some(node) => events.report.moved = self.migrate(node),
            None => self.let_go(),
        }
    }

    fn bind(&self, node: u32) -> Result<(), Errno> {
        self.heap.reserve()?;
        self.heap.bind(&self.kernel, Some(node))
    }

    /// Step 6: moves the blocks of the list, and those of the heap, which may have been another node's.
    fn migrate(&self, node: u32) -> Moved {
        self.binds.store(true, Relaxed);
        Batch::many(|batch| {
            let mut mover = Mover::new(&self.kernel, node, true, batch);
            self.list.each(|block, size| {
                self.bind_block(block, size, Some(node));
                mover.range(block, size);
            });
            let listed = mover.end();
            let mut mover = Mover::new(&self.kernel, node, true, batch);
            self.heap.follow(&mut mover);
            listed.and(mover.end())
        })
    }

    /// Large listed blocks are as by default again. Pages stay where they are.
    fn let_go(&self) {
        if self.binds.swap(false, Relaxed) {
            self.list.each(|block, size| self.bind_block(block, size, None));
        }
    }

    /// HINT: what is refused comes from where it is touched first.
    fn bind_block(&self, block: usize, size: usize, node: Option<u32>) {
        if size >= LARGE {
            // With its first and last page, of which neighbours may have a part.
            let begin = block & !(page() - 1);
            _ = self.kernel.bind(begin, (block + size).next_multiple_of(page()) - begin, node);
        }
    }

    /// Step 2: lists a block of the default allocator. If the servers came to a node after `place` was read,
    /// who moved the blocks may have missed this one. If they were there before, the bound heap had no room,
    /// and pages that exist stay where they are: to move them takes a system call an allocation.
    fn listed(&self, block: *mut u8, size: usize, place: u32) -> *mut u8 {
        if block.is_null() {
            return block;
        }
        let at = block as usize;
        if !at.is_multiple_of(16) || !self.list.add(at, size) {
            self.unlisted.fetch_add(1, Relaxed);
            return block;
        }
        // ORDER: SeqCst (P2), pairs with P1, behind `AllocList::add`.
        let now = self.place.load(SeqCst);
        if let Some(node) = now.checked_sub(1) {
            if now == place {
                self.bind_block(at, size, Some(node));
            } else {
                self.follow(at, size, node);
            }
        }
        block
    }

    #[cold]
    #[inline(never)]
    fn follow(&self, at: usize, size: usize, node: u32) {
        self.bind_block(at, size, Some(node));
        Batch::few(|batch| {
            let mut mover = Mover::new(&self.kernel, node, true, batch);
            mover.range(at, size);
            mover.end();
        });
    }

    /// Before a block is given to the default allocator: unlists it. Its size, if it was listed.
    fn unlisted(&self, block: *mut u8) -> Option<usize> {
        let size = self.list.remove(block as usize);
        if self.binds.load(Relaxed)
            && let Some(size) = size
        {
            self.bind_block(block as usize, size, None);
        }
        size
    }

    #[inline]
    unsafe fn take(&self, layout: Layout, zeroed: bool) -> *mut u8 {
        let place = self.place.load(Relaxed);
        if place != 0 {
            let block = self.heap.allocate(layout.size(), layout.align(), zeroed);
            if !block.is_null() {
                return block;
            }
        }
        // SAFETY: as the caller promises.
        let block =
            unsafe { if zeroed { self.default.alloc_zeroed(layout) } else { self.default.alloc(layout) } };
        self.listed(block, layout.size(), place)
    }
}

// SAFETY: both allocators do what is asked for, and a block goes back to the one that it is of.
unsafe impl<B: GlobalAlloc + Sync, K: Kernel> GlobalAlloc for RclAware<B, K> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { self.take(layout, false) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { self.take(layout, true) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe {
            if self.heap.holds(block) {
                self.heap.free(block);
            } else {
                self.unlisted(block);
                self.default.dealloc(block, layout);
            }
        }
    }

    /// A block stays with its allocator if new blocks come from that one; else it goes over to the other.
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let place = self.place.load(Relaxed);
        // SAFETY: as the caller promises.
        unsafe {
            match (self.heap.holds(block), place != 0) {
                (true, true) => {
                    let new = self.heap.reallocate(block, layout, size);
                    if !new.is_null() {
                        return new;
                    }
                }
                (false, false) => {
                    let old = self.unlisted(block);
                    let new = self.default.realloc(block, layout, size);
                    if !new.is_null() {
                        return self.listed(new, size, place);
                    }
                    old.map(|old| self.listed(block, old, place));
                    return new;
                }
                _ => {}
            }
            let new = self.take(Layout::from_size_align_unchecked(size, layout.align()), false);
            if !new.is_null() {
                new.copy_from_nonoverlapping(block, layout.size().min(size));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

impl<B: GlobalAlloc + Sync, K: Kernel> Forks for RclAware<B, K> {
    fn before(&self) {
        self.events.before_fork();
        self.heap.before();
    }

    /// The servers are gone.
    fn in_child(&self) {
        if !self.stays.load(Relaxed) {
            self.place.store(0, Relaxed);
            self.events.with(|events| {
                events.servers = Servers::new();
                events.report.place = Place::Default;
            });
        }
    }

    unsafe fn after(&self) {
        // SAFETY: as promised.
        unsafe {
            self.heap.after();
            self.events.after_fork();
        }
    }
}

/// What hears where servers run.
trait Follows: Sync {
    fn tell(&'static self, server: usize, serves: bool);
}

impl<B: GlobalAlloc + Sync, K: Kernel> Follows for RclAware<B, K> {
    fn tell(&'static self, server: usize, serves: bool) {
        if serves { self.serves(server, self.kernel.home()) } else { self.ends(server) }
    }
}

/// BOUND: a program has one such allocator, most often.
static FOLLOWERS: [OnceLock<&'static dyn Follows>; 4] = [const { OnceLock::new() }; 4];

impl<B: GlobalAlloc + Sync, K: Kernel> RclAware<B, K> {
    /// Hears from now on where the servers of this program's `rcl` locks run. To be called at the beginning
    /// of `main`, once. False if four others hear already.
    pub fn follow_servers(&'static self) -> bool {
        self.remember();
        linux::serving::on_serving(told);
        FOLLOWERS.iter().any(|place| place.set(self).is_ok())
    }

    /// What a library that hears by the name [`linux::serving::SYMBOL`] passes on.
    pub fn told(&'static self, server: *const c_void, serves: bool) {
        self.tell(server as usize, serves);
    }
}

extern "C" fn told(server: *const c_void, serves: i32) {
    FOLLOWERS.iter().filter_map(OnceLock::get).for_each(|one| one.tell(server as usize, serves != 0));
}
