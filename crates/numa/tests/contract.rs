// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an allocator promises, kept by the heap and by the allocator that follows servers, in any order of
//! calls, by several threads, in forks, and while servers come and go.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;

use common::Fake;
use numa::{Heap, RclAware};

/// Pseudo-random numbers, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn layout(&mut self) -> Layout {
        let size = match self.below(20) {
            0 => 1 + self.below(3 << 20),
            1..5 => 1 + self.below(100_000),
            _ => 1 + self.below(600),
        };
        let align = if self.below(4) == 0 { 1 << self.below(14) } else { 8 };
        Layout::from_size_align(size, align).unwrap()
    }
}

/// A block, and what is written all over it.
struct Block {
    at: *mut u8,
    layout: Layout,
    mark: u8,
}

// SAFETY: the thread that has it has its block.
unsafe impl Send for Block {}

impl Block {
    fn take(memory: &impl GlobalAlloc, random: &mut Random) -> Self {
        let (layout, mark) = (random.layout(), random.below(256) as u8);
        // SAFETY: the size is not 0.
        unsafe {
            let at = if random.below(2) == 0 {
                let at = memory.alloc_zeroed(layout);
                (0..layout.size()).for_each(|byte| assert_eq!(*at.add(byte), 0));
                at
            } else {
                memory.alloc(layout)
            };
            Self { at, layout, mark }.written()
        }
    }

    fn written(self) -> Self {
        assert!(!self.at.is_null() && (self.at as usize).is_multiple_of(self.layout.align()));
        // SAFETY: it has so many bytes.
        unsafe { self.at.write_bytes(self.mark, self.layout.size()) };
        self
    }

    /// Nobody else has written there.
    fn check(&self, size: usize) {
        // SAFETY: it has so many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(self.at, size) };
        assert!(bytes.iter().all(|byte| *byte == self.mark), "{:?}", self.layout);
    }

    fn resize(&mut self, memory: &impl GlobalAlloc, random: &mut Random) {
        let size = random.layout().size();
        // SAFETY: the block's own layout.
        self.at = unsafe { memory.realloc(self.at, self.layout, size) };
        self.check(size.min(self.layout.size()));
        self.layout = Layout::from_size_align(size, self.layout.align()).unwrap();
        // SAFETY: it has so many bytes.
        unsafe { self.at.write_bytes(self.mark, size) };
    }

    fn free(self, memory: &impl GlobalAlloc) {
        self.check(self.layout.size());
        // SAFETY: it is its own, and gone with this.
        unsafe { memory.dealloc(self.at, self.layout) };
    }
}

/// Each thread frees some of its own blocks, and passes others on to its neighbour, who frees them.
fn keeps_the_contract(memory: &(impl GlobalAlloc + Sync), seed: u64) {
    let calls = 4_000 * if std::env::var_os("WAKEFUL_LONG").is_some() { 20 } else { 1 };
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| mpsc::channel::<Block>()).unzip();
    thread::scope(|scope| {
        for (number, receiver) in receivers.into_iter().enumerate() {
            let next = senders[(number + 1) % 3].clone();
            scope.spawn(move || {
                let mut random = Random(seed + number as u64);
                let mut own: Vec<Block> = Vec::new();
                for _ in 0..calls {
                    match random.below(8) {
                        0..4 => own.push(Block::take(memory, &mut random)),
                        4 if !own.is_empty() => {
                            let at = random.below(own.len());
                            own[at].resize(memory, &mut random);
                        }
                        5 if !own.is_empty() => {
                            let block = own.swap_remove(random.below(own.len()));
                            // The neighbour may have ended.
                            own.extend(next.send(block).err().map(|refused| refused.0));
                        }
                        _ if own.len() > 100 => {
                            own.drain(..50).for_each(|block| block.free(memory));
                        }
                        _ => receiver.try_iter().for_each(|block| block.free(memory)),
                    }
                }
                own.into_iter().for_each(|block| block.free(memory));
                receiver.try_iter().for_each(|block| block.free(memory));
            });
        }
    });
}

#[test]
fn a_heap_keeps_the_contract() {
    keeps_the_contract(&Heap::on(0).unwrap(), 1);
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// While servers come, spread, and go.
#[test]
fn the_allocator_that_follows_keeps_the_contract() {
    static MEMORY: RclAware<System, Fake> = RclAware::with(System, Fake::new());
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut turns = 0;
            while !ended.load(Relaxed) || turns == 0 {
                MEMORY.serves(1, Some(1));
                MEMORY.serves(2, Some(0));
                MEMORY.ends(1);
                MEMORY.ends(2);
                MEMORY.kernel().state().asked.clear();
                turns += 1;
            }
        });
        // Also if it fails.
        let _end = End(&ended);
        keeps_the_contract(&MEMORY, 9);
    });
}

#[test]
fn what_has_no_room_is_null() {
    let heap = Heap::on(0).unwrap();
    for (size, align) in [(isize::MAX as usize - 4095, 4096), (1 << 45, 8), (8, 1 << 45), (1 << 62, 1 << 61)]
    {
        let Ok(layout) = Layout::from_size_align(size, align) else { continue };
        // SAFETY: the size is not 0.
        assert!(unsafe { heap.alloc(layout) }.is_null(), "{layout:?}");
    }
    let small = Layout::new::<u64>();
    // SAFETY: as above; a block that cannot grow stays as it is.
    unsafe {
        let block = heap.alloc(small);
        block.write(5);
        assert!(heap.realloc(block, small, 1 << 50).is_null());
        assert_eq!(*block, 5);
        heap.dealloc(block, small);
    }
}

/// The bytes of a block are as many as were asked for at least, and all its own: dlmalloc's header says so.
#[test]
fn a_block_has_what_it_says() {
    let heap = Heap::on(0).unwrap();
    let sizes = (0..2_000).chain([4_096, 65_535, 1 << 20, 3 << 20]);
    let mut blocks = Vec::new();
    // SAFETY: layouts and blocks are of this heap, with a size that is not 0; and each byte that a block says
    // to have is written.
    unsafe {
        for size in sizes {
            for align in [1, 16, 64, 4_096] {
                let layout = Layout::from_size_align(size.max(1), align).unwrap();
                let at = heap.alloc(layout);
                let usable = heap.usable(at);
                assert!(usable >= size && usable <= size + 4_096 + 64, "{size} {align}: {usable}");
                let mark = blocks.len() as u8;
                at.write_bytes(mark, usable);
                blocks.push((at, usable, mark, layout));
            }
        }
        for (at, usable, mark, layout) in blocks {
            assert!((0..usable).all(|byte| *at.add(byte) == mark), "{layout:?}");
            heap.dealloc(at, layout);
        }
    }
}

/// A block of each part: two of this size have no room in one.
fn of_each_part(memory: &impl GlobalAlloc) -> [*mut u8; 8] {
    // SAFETY: the size is not 0. Nobody touches them, so they take no memory.
    let blocks = [(); 8].map(|()| unsafe { memory.alloc(FILLS) });
    assert!(blocks.iter().all(|block| !block.is_null()));
    blocks
}

const FILLS: Layout = Layout::new::<[u8; 3 << 35]>();

/// While other threads allocate, a child can. A lock that somebody held would be held for ever in it.
#[test]
fn children_allocate() {
    static MEMORY: RclAware<System, Fake> = RclAware::with(System, Fake::new());
    let heap = Heap::on(0).unwrap();
    MEMORY.serves(1, Some(1));
    let (ours, bound) = (of_each_part(&heap), of_each_part(&MEMORY));
    assert!(bound.iter().all(|block| MEMORY.holds(*block)));
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let layout = Layout::new::<[u64; 9]>();
                while !ended.load(Relaxed) {
                    // SAFETY: taken and freed.
                    unsafe {
                        heap.dealloc(heap.alloc(layout), layout);
                        MEMORY.dealloc(MEMORY.alloc(layout), layout);
                    }
                }
            });
        }
        let _end = End(&ended);
        let layout = Layout::new::<[u64; 99]>();
        for _ in 0..30 {
            // SAFETY: a child that uses what is made for that, and leaves by _exit.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::alarm(20);
                    // Who frees takes the lock of the block's part, whoever held it.
                    ours.into_iter().for_each(|block| heap.dealloc(block, FILLS));
                    bound.into_iter().for_each(|block| MEMORY.dealloc(block, FILLS));
                    let block = MEMORY.alloc(layout);
                    // There are no servers in it.
                    libc::_exit(if !block.is_null() && !MEMORY.holds(block) { 0 } else { 3 });
                }
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                assert_eq!(status, 0);
            }
        }
    });
    // SAFETY: taken and freed.
    unsafe {
        let block = MEMORY.alloc(Layout::new::<u64>());
        assert!(MEMORY.holds(block), "the parent has its servers still");
        MEMORY.dealloc(block, Layout::new::<u64>());
    }
}
