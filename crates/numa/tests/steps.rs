// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps of RCLAwareMalloc, over a kernel that has the nodes that a test needs.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};

use common::{Fake, PAGE};
use numa::policy::{Servers, place};
use numa::{Errno, Moved, Place, RclAware};

type Memory = RclAware<System, Fake>;

/// Static, as it is in a program; each use is one of its own.
macro_rules! memory {
    () => {{
        static MEMORY: Memory = RclAware::with(System, Fake::new());
        &MEMORY
    }};
}

/// So many whole pages, of which no other block has a part.
fn pages(count: usize) -> Layout {
    Layout::from_size_align(count * PAGE, PAGE).unwrap()
}

fn alloc(memory: &Memory, layout: Layout) -> *mut u8 {
    // SAFETY: no test asks for 0 bytes.
    let block = unsafe { memory.alloc(layout) };
    assert!(!block.is_null());
    block
}

fn free(memory: &Memory, block: *mut u8, layout: Layout) {
    // SAFETY: each test frees what it has, once.
    unsafe { memory.dealloc(block, layout) };
}

/// Steps 1, 3, 4 and 5, as cases.
fn keeps_to_the_steps(place: impl Fn(&[Option<u32>]) -> Place) -> Result<(), String> {
    let cases: [(&[Option<u32>], Place); 7] = [
        (&[], Place::Default),
        (&[Some(1)], Place::Node(1)),
        (&[Some(0)], Place::Node(0)),
        (&[Some(1), Some(1), Some(1)], Place::Node(1)),
        (&[Some(1), Some(0)], Place::Default),
        (&[Some(1), None], Place::Default),
        (&[None], Place::Default),
    ];
    for (servers, wanted) in cases {
        let found = place(servers);
        if found != wanted {
            return Err(format!("servers on {servers:?}: {found:?}, and not {wanted:?}"));
        }
    }
    Ok(())
}

#[test]
fn blocks_come_from_where_the_steps_say() {
    assert_eq!(keeps_to_the_steps(|servers| place(servers.iter().copied())), Ok(()));
}

/// A broken twin: step 5 as it is printed. "If after the next start of an RCL lock it is found that not all
/// servers run on one node, memory allocation is bound to the NUMA node." To which node it does not say, and
/// steps 3 and 4 say the contrary: the default unless all servers are on one. With the servers spread, each
/// node is the wrong one for some server. We take "not" for a misprint: bound when all are on one.
#[test]
fn step_5_as_printed_contradicts_steps_3_and_4() {
    let printed = |servers: &[Option<u32>]| match (place(servers.iter().copied()), servers.first()) {
        (Place::Default, Some(&Some(last))) if servers.len() > 1 => Place::Node(last),
        (place, _) => place,
    };
    let found = keeps_to_the_steps(printed);
    assert_eq!(found.unwrap_err(), "servers on [Some(1), Some(0)]: Node(1), and not Default");
}

#[test]
fn servers_come_go_and_move() {
    let mut servers = Servers::new();
    assert_eq!(servers.serves(1, Some(1)), Some(Place::Node(1)));
    assert_eq!(servers.serves(2, Some(1)), None, "nothing new");
    assert_eq!(servers.serves(2, Some(0)), Some(Place::Default), "spread");
    assert_eq!(servers.serves(1, Some(0)), Some(Place::Node(0)), "the first one has followed");
    assert_eq!(servers.count(), 2);
    assert_eq!(servers.ends(2), None);
    assert_eq!(servers.ends(1), Some(Place::Default), "as before the first");
    assert_eq!(servers.ends(1), None, "it had ended");
    assert_eq!(servers.count(), 0);
}

#[test]
fn of_more_servers_than_it_knows_it_says_nothing() {
    let mut servers = Servers::new();
    let places: Vec<_> = (1..=66).map(|server| servers.serves(server, Some(3))).collect();
    assert_eq!((places[0], places[64]), (Some(Place::Node(3)), Some(Place::Default)));
    assert_eq!(places.iter().flatten().count(), 2);
    assert_eq!(servers.ends(66), None);
    assert_eq!(servers.ends(65), Some(Place::Node(3)));
}

#[test]
fn memory_follows_the_servers() {
    let memory = memory!();
    let layout = pages(3);
    let before = alloc(memory, layout);
    assert!(!memory.holds(before));
    memory.kernel().state().touch(before, layout.size(), 0);
    let nodes = |block| memory.kernel().state().nodes(block, layout.size()).into_iter().collect::<Vec<_>>();

    memory.serves(7, Some(1));
    assert_eq!(nodes(before), [1], "a block from before the first lock has moved");
    assert_eq!(memory.report().moved, Moved { there: 3, ..Moved::default() });
    let after = alloc(memory, layout);
    assert!(memory.holds(after));
    memory.kernel().state().touch(after, layout.size(), 0);
    assert_eq!(nodes(after), [1], "a client of node 0 has touched it first");

    memory.serves(8, Some(0));
    assert_eq!((memory.report().place, memory.report().servers), (Place::Default, 2));
    let spread = alloc(memory, layout);
    assert!(!memory.holds(spread));
    memory.kernel().state().touch(spread, layout.size(), 0);
    assert_eq!((nodes(before), nodes(after)), (vec![1], vec![1]), "nothing moves back");

    memory.serves(7, Some(2));
    assert_eq!(memory.report().place, Place::Default);
    memory.serves(8, Some(2));
    assert_eq!(memory.report().place, Place::Node(2));
    for block in [before, after, spread] {
        assert_eq!(nodes(block), [2], "all follow the servers to another node");
        free(memory, block, layout);
    }
}

#[test]
fn freed_and_reallocated_blocks_are_not_listed() {
    let memory = memory!();
    let layout = pages(2);
    let [freed, moved] = [(); 2].map(|()| alloc(memory, layout));
    free(memory, freed, layout);
    // SAFETY: it has this layout.
    let new = unsafe { memory.realloc(moved, layout, 64 * PAGE) };
    assert!(!new.is_null());
    memory.serves(1, Some(1));
    let asked = memory.kernel().state().asked.clone();
    assert!(!asked.contains(&(freed as usize)), "freed");
    assert!(new == moved || !asked.contains(&(moved as usize)), "reallocated");
    assert!((0..64).all(|page| asked.contains(&((new as usize / PAGE + page) * PAGE))), "what it became");
    free(memory, new, Layout::from_size_align(64 * PAGE, PAGE).unwrap());
}

/// What is smaller than a page takes its neighbours along, and its page is asked to move once.
#[test]
fn small_blocks_share_their_page() {
    let memory = memory!();
    let layout = Layout::from_size_align(64, 16).unwrap();
    let blocks: Vec<_> = (0..200).map(|_| alloc(memory, layout)).collect();
    blocks.iter().for_each(|block| memory.kernel().state().touch(*block, 64, 0));
    memory.serves(1, Some(1));
    let state = memory.kernel().state();
    assert!(blocks.iter().all(|block| state.nodes(*block, 64).into_iter().eq([1])));
    let mut asked = state.asked.clone();
    let count = asked.len();
    asked.sort();
    asked.dedup();
    assert_eq!(asked.len(), count);
    assert!(count < blocks.len(), "{count} pages");
    drop(state);
    blocks.into_iter().for_each(|block| free(memory, block, layout));
}

#[test]
fn realloc_takes_a_block_along() {
    let memory = memory!();
    let layout = Layout::from_size_align(1_000, 16).unwrap();
    let block = alloc(memory, layout);
    // SAFETY: it has so many bytes, and the layouts are those of what comes.
    unsafe {
        block.write_bytes(7, 1_000);
        memory.serves(1, Some(1));
        let there = memory.realloc(block, layout, 2_000);
        assert!(memory.holds(there));
        let all_seven = |block: *mut u8, size| (0..size).all(|at| *block.add(at) == 7);
        assert!(all_seven(there, 1_000));
        memory.ends(1);
        let back = memory.realloc(there, Layout::from_size_align(2_000, 16).unwrap(), 500);
        assert!(!memory.holds(back) && all_seven(back, 500));
        free(memory, back, Layout::from_size_align(500, 16).unwrap());
    }
}

/// A container denies `mbind`; a kernel without NUMA does not have it.
#[test]
fn refused_bindings_are_told_and_the_default_goes_on() {
    for errno in [libc::EPERM, libc::ENOSYS, libc::EINVAL].map(Errno) {
        let memory = memory!();
        memory.kernel().state().refuses_to_bind = Some(errno);
        let before = alloc(memory, pages(1));
        memory.serves(1, Some(1));
        let report = memory.report();
        assert_eq!((report.place, report.refused), (Place::Default, Some(errno)));
        let after = alloc(memory, pages(1));
        assert!(!memory.holds(after));
        for block in [before, after] {
            free(memory, block, pages(1));
        }
        memory.kernel().state().refuses_to_bind = None;
        memory.ends(1);
        memory.serves(1, Some(1));
        assert_eq!((memory.report().place, memory.report().refused), (Place::Node(1), None));
        memory.ends(1);
    }
}

#[test]
fn refused_moves_are_told() {
    let memory = memory!();
    let refuse = |to_move, to_tell| {
        memory.kernel().state().refuses_to_move = to_move;
        memory.kernel().state().refuses_to_tell = to_tell;
    };
    let block = alloc(memory, pages(5));
    memory.kernel().state().touch(block, 5 * PAGE, 0);
    let denied = Some(Errno(libc::EPERM));
    refuse(denied, None);
    memory.serves(1, Some(1));
    assert_eq!(memory.report().place, Place::Node(1), "new blocks are bound all the same");
    assert_eq!(memory.report().moved, Moved { elsewhere: 5, refused: denied, ..Moved::default() });
    refuse(denied, denied);
    memory.serves(1, Some(2));
    assert_eq!(memory.report().moved, Moved { unknown: 5, refused: denied, ..Moved::default() });
    free(memory, block, pages(5));
}

#[test]
fn pages_that_could_not_move_are_told() {
    let memory = memory!();
    // More than one system call's.
    let layout = pages(5_000);
    let block = alloc(memory, layout);
    let page = |number: usize| block as usize + number * PAGE;
    {
        let mut state = memory.kernel().state();
        state.touch(block, 4_990 * PAGE, 0);
        // The last one is put aside by the kernel just now, and comes back with the next try.
        state.busy.extend([(page(3), u32::MAX), (page(4_500), u32::MAX), (page(70), 1)]);
    }
    memory.serves(1, Some(3));
    let moved = Moved { there: 4_988, elsewhere: 2, absent: 10, ..Moved::default() };
    assert_eq!(memory.report().moved, moved);
    free(memory, block, layout);
}

/// What a large block has not touched yet comes to the node too, as long as the block lives and the servers
/// are there.
#[test]
fn large_listed_blocks_are_bound() {
    let memory = memory!();
    let layout = pages(512);
    let [one, other] = [(); 2].map(|()| alloc(memory, layout));
    memory.serves(1, Some(1));
    let bound = |block: *mut u8| memory.kernel().state().bound.get(&(block as usize)).copied();
    assert_eq!((bound(one), bound(other)), (Some((512 * PAGE, 1)), Some((512 * PAGE, 1))));
    // The first and the last page, too, of one that begins in the midst of a page, as the C library's do.
    let odd = Layout::from_size_align(512 * PAGE, 16).unwrap();
    memory.ends(1);
    let aside = alloc(memory, odd);
    assert!(!(aside as usize).is_multiple_of(PAGE));
    memory.serves(1, Some(1));
    let mut state = memory.kernel().state();
    state.touch(aside, odd.size(), 0);
    assert!(state.nodes(aside, odd.size()).into_iter().eq([1]), "{:?}", state.nodes(aside, odd.size()));
    drop(state);
    free(memory, aside, odd);
    free(memory, one, layout);
    assert_eq!(bound(one), None, "freed");
    memory.serves(2, Some(0));
    assert_eq!(bound(other), None, "spread");
    free(memory, other, layout);
}

#[test]
fn it_stays_where_it_is_told_to() {
    let memory = memory!();
    let before = alloc(memory, pages(1));
    memory.kernel().state().touch(before, PAGE, 0);
    assert_eq!(memory.stay(2), Ok(()));
    assert!(memory.kernel().state().nodes(before, PAGE).into_iter().eq([2]));
    memory.serves(1, Some(1));
    assert_eq!(memory.report().place, Place::Node(2));
    free(memory, before, pages(1));
}

/// Has blocks that are aligned to more than a part of the bound heap has.
struct Wide;

/// 256 GiB.
const WIDE: usize = 1 << 38;

// SAFETY: the system's, or a mapping of its own.
unsafe impl GlobalAlloc for Wide {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() < WIDE {
            // SAFETY: as the caller promises.
            return unsafe { System.alloc(layout) };
        }
        // SAFETY: new addresses, of which the block has some.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let at = libc::mmap(std::ptr::null_mut(), 2 * WIDE, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            let block = (at as usize).next_multiple_of(WIDE) as *mut libc::c_void;
            assert_eq!(libc::mprotect(block, layout.size(), libc::PROT_READ | libc::PROT_WRITE), 0);
            block.cast()
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe {
            match layout.align() < WIDE {
                true => System.dealloc(block, layout),
                false => _ = libc::munmap(block.cast(), layout.size()),
            }
        }
    }
}

/// What the bound heap has no room for is listed, and bound if it is large. No page is moved for it.
#[test]
fn what_has_no_room_is_not_moved_at_once() {
    static MEMORY: RclAware<Wide, Fake> = RclAware::with(Wide, Fake::new());
    MEMORY.serves(1, Some(1));
    MEMORY.kernel().state().asked.clear();
    for size in [PAGE, 1 << 20] {
        let layout = Layout::from_size_align(size, WIDE).unwrap();
        // SAFETY: the size is not 0.
        let block = unsafe { MEMORY.alloc(layout) };
        assert!(!block.is_null() && !MEMORY.holds(block));
        assert_eq!(MEMORY.kernel().state().asked, []);
        let bound = MEMORY.kernel().state().bound.get(&(block as usize)).copied();
        assert_eq!(bound, (size > PAGE).then_some((size, 1)));
        MEMORY.serves(1, Some(2));
        assert!(MEMORY.kernel().state().asked.contains(&(block as usize)), "it is listed");
        // SAFETY: taken above.
        unsafe { MEMORY.dealloc(block, layout) };
        MEMORY.serves(1, Some(1));
        MEMORY.kernel().state().asked.clear();
    }
}

/// The first server begins while this one allocates, and has gone through the list.
struct Meanwhile;

static RACED: RclAware<Meanwhile, Fake> = RclAware::with(Meanwhile, Fake::new());

// SAFETY: the system's.
unsafe impl GlobalAlloc for Meanwhile {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let block = unsafe { System.alloc(layout) };
        RACED.kernel().state().touch(block, layout.size(), 0);
        RACED.serves(1, Some(1));
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) };
    }
}

#[test]
fn a_block_that_the_move_has_missed_follows() {
    let layout = pages(40);
    // SAFETY: the size is not 0.
    let block = unsafe { RACED.alloc(layout) };
    assert!(!RACED.holds(block));
    let state = RACED.kernel().state();
    assert!(state.nodes(block, layout.size()).into_iter().eq([1]));
    assert_eq!(state.bound.get(&(block as usize)), Some(&(layout.size(), 1)));
    drop(state);
    // SAFETY: taken above.
    unsafe { RACED.dealloc(block, layout) };
}
