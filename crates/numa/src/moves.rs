// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moving pages to a node, and looking afterwards where they are.

use core::ffi::c_int;
use core::ptr::null_mut;

use linux::memory;

use crate::kernel::{Errno, Kernel};

/// What became of pages that were to be on a node. Looked up after the move, page by page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Pages that are on the node.
    pub there: u64,
    /// Pages that could not be moved: another process has them too, the kernel uses them just now, or the
    /// node is full.
    pub elsewhere: u64,
    /// Pages that do not exist yet: where they will be, who touches them first decides, or their binding.
    pub absent: u64,
    /// Pages of which nobody can tell.
    pub unknown: u64,
    /// Why the kernel refused to move them, or to tell.
    pub refused: Option<Errno>,
}

impl Moved {
    /// Both together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            there: self.there + other.there,
            elsewhere: self.elsewhere + other.elsewhere,
            absent: self.absent + other.absent,
            unknown: self.unknown + other.unknown,
            refused: self.refused.or(other.refused),
        }
    }
}

/// Bytes of a page.
pub fn page() -> usize {
    // SAFETY: it has no preconditions, and does not fail.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// The whole pages inside of a range; beginning and size.
pub fn inside(at: usize, size: usize) -> (usize, usize) {
    let begin = at.next_multiple_of(page());
    (begin, ((at + size) & !(page() - 1)).saturating_sub(begin))
}

/// Room for the pages of one system call. Its time is that of the call itself, which has all processors
/// drain what they have put aside, so the calls are few.
pub struct Batch<'a> {
    pages: &'a mut [usize],
    nodes: &'a mut [c_int],
    found: &'a mut [c_int],
}

/// BOUND: pages of one call: 64 KiB of memory.
const MANY: usize = 4096;
/// BOUND: the same, on a stack.
const FEW: usize = 32;

impl Batch<'_> {
    /// Calls `work` with room for many pages; for few, if there is no memory.
    pub fn many<R>(work: impl FnOnce(&mut Batch<'_>) -> R) -> R {
        const SIZE: usize = MANY * (size_of::<usize>() + 2 * size_of::<c_int>());
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, which nobody else knows, divided into three, and unmapped afterwards.
        unsafe {
            let at = memory::map(null_mut(), SIZE, libc::PROT_READ | libc::PROT_WRITE, kind, -1);
            if at == libc::MAP_FAILED {
                return Self::few(work);
            }
            let pages = at.cast::<usize>();
            let nodes = pages.add(MANY).cast::<c_int>();
            let slice = |from: *mut c_int| core::slice::from_raw_parts_mut(from, MANY);
            let result = work(&mut Batch {
                pages: core::slice::from_raw_parts_mut(pages, MANY),
                nodes: slice(nodes),
                found: slice(nodes.add(MANY)),
            });
            memory::unmap(at, SIZE);
            result
        }
    }

    /// Calls `work` with room for few pages.
    pub fn few<R>(work: impl FnOnce(&mut Batch<'_>) -> R) -> R {
        let (mut pages, mut nodes, mut found) = ([0; FEW], [0; FEW], [0; FEW]);
        work(&mut Batch { pages: &mut pages, nodes: &mut nodes, found: &mut found })
    }
}

/// Moves the pages of ranges, which come in the order of addresses, to a node.
pub struct Mover<'a, 'b, K> {
    kernel: &'a K,
    node: u32,
    /// Or looks only.
    moves: bool,
    batch: &'a mut Batch<'b>,
    filled: usize,
    /// The end of the last page: blocks that are neighbours share one.
    end: usize,
    moved: Moved,
}

impl<'a, 'b, K: Kernel> Mover<'a, 'b, K> {
    pub fn new(kernel: &'a K, node: u32, moves: bool, batch: &'a mut Batch<'b>) -> Self {
        Self { kernel, node, moves, batch, filled: 0, end: 0, moved: Moved::default() }
    }

    pub fn range(&mut self, at: usize, size: usize) {
        let page = page();
        let mut next = (at & !(page - 1)).max(self.end);
        while next < at + size {
            self.batch.pages[self.filled] = next;
            self.filled += 1;
            next += page;
            self.end = next;
            if self.filled == self.batch.pages.len() {
                self.flush();
            }
        }
    }

    fn flush(&mut self) {
        let count = core::mem::take(&mut self.filled);
        let pages = &self.batch.pages[..count];
        let found = &mut self.batch.found[..count];
        let node = self.node as c_int;
        // The second: nothing is mapped there, or the page of zeros.
        let of = |at: c_int| (at != -libc::ENOENT && at != -libc::EFAULT).then_some(at == node);
        // A page that the kernel has put aside comes back from there with the next call.
        for _ in 0..2 {
            if self.moves {
                let to = &mut self.batch.nodes[..count];
                to.fill(self.node as c_int);
                if let Err(errno) = self.kernel.place(pages, Some(to), found) {
                    self.moved.refused = Some(errno);
                }
            }
            if let Err(errno) = self.kernel.place(pages, None, found) {
                self.moved.refused = self.moved.refused.or(Some(errno));
                self.moved.unknown += count as u64;
                return;
            }
            if !self.moves || self.moved.refused.is_some() || found.iter().all(|at| of(*at) != Some(false)) {
                break;
            }
        }
        for at in found {
            match of(*at) {
                Some(true) => self.moved.there += 1,
                Some(false) => self.moved.elsewhere += 1,
                None => self.moved.absent += 1,
            }
        }
    }

    pub fn end(mut self) -> Moved {
        self.flush();
        self.moved
    }
}
