// SPDX-License-Identifier: MIT OR Apache-2.0
//! What loops, sections and ordered regions must do.

use std::sync::Arc;

use platform::{Atomic, AtomicInt, Ordering::*, Wide};
use sync::openmp::{Deque, Event, First, Iterations, Order, Over, Patience, Progress, Slot, Turn};

use super::Job;
use crate::bodies::together;
use crate::{Cell, Machine};

// --- worksharing -------------------------------------------------------------

/// The first to come prepares the construct when it has said that it is ready.
pub const READY_FIRST: u32 = 1;

/// Members go through constructs without barriers between, with a ring of few shares.
pub fn turns<M: Machine, W: Patience, const MISTAKE: u32>(members: u32, constructs: u32, ring: u32) {
    let shares: Vec<_> =
        (0..ring).map(|index| (Turn::<M>::new(index), M::Cell::new(), M::Cell::new())).collect();
    let shared = Arc::new(shares);
    let ours = shared.clone();
    together::<M>(members, move |_| {
        for construct in 0..constructs {
            let (turn, made, cleaned) = &ours[(construct % ring) as usize];
            let mut first = false;
            turn.open::<W>(construct, members, || match MISTAKE {
                READY_FIRST => first = true,
                _ => made.bump(),
            });
            if first {
                made.bump();
            }
            assert_eq!(made.get(), construct / ring + 1, "not prepared");
            assert_eq!(cleaned.get(), construct / ring, "not clean");
            turn.leave(ring, || cleaned.bump());
        }
    });
}

/// Each iteration is run once, whoever comes to it.
pub fn iterations<M: Machine + Wide>(members: u32, all: u64, guided: bool, chunk: u64) {
    let shared = Arc::new((Iterations::<M>::default(), (0..all).map(|_| M::Cell::new()).collect::<Vec<_>>()));
    let ours = shared.clone();
    together::<M>(members, move |_| {
        let (taken, cells) = &*ours;
        let take = || match guided {
            true => taken.take_guided(all, chunk, 1, members as u64),
            false => taken.take_chunk(all, chunk, members as u64),
        };
        while let Some((first, last)) = take() {
            assert!(first < last);
            cells[first as usize..last as usize].iter().for_each(Cell::bump);
        }
    });
    assert!(shared.1.iter().all(|cell| cell.get() == 1), "an iteration was not run once");
    shared.0.cancel();
    assert!(shared.0.are_cancelled());
    assert_eq!(shared.0.take_chunk(all, 1, 1).or(shared.0.take_guided(all, 1, 1, 1)), None);
}

/// Of those who come to a construct one is the first, and what the first has made is seen by all.
pub fn first<M: Machine>(members: u32) {
    struct Shared<M: Machine> {
        first: First<M>,
        count: M::AtomicU32,
        slot: Slot<M, M::Cell>,
    }
    let shared =
        Arc::new(Shared::<M> { first: First::default(), count: Atomic::new(0), slot: Slot::default() });
    let ours = shared.clone();
    together::<M>(members, move |_| {
        if ours.first.is_first(0, members) {
            ours.count.fetch_add(1, Relaxed);
        }
        let make = || {
            let cell = M::Cell::new();
            cell.bump();
            Box::into_raw(Box::new(cell))
        };
        // SAFETY: nobody else has it.
        let made = ours.slot.get_or(make, |made| drop(unsafe { Box::from_raw(made) }));
        // SAFETY: never freed.
        assert_eq!(unsafe { &*made }.get(), 1);
    });
    assert_eq!(shared.count.load(Relaxed), 1, "there was not one first");
    shared.slot.empty();
}

// --- order -------------------------------------------------------------------

/// The turn is passed on before the ordered region.
pub const PASSES_FIRST: u32 = 1;

/// Members have iterations in turn, whose regions come one after another.
pub fn order<M: Machine + Wide, W: Patience, const MISTAKE: u32>(members: u32, each: u32) {
    let shared = Arc::new((Order::<M>::default(), M::Cell::new()));
    together::<M>(members, move |index| {
        let (order, cell) = &*shared;
        for mine in (0..each).map(|round| round * members + index) {
            order.wait::<W>(mine as u64, 1, |_| false);
            if MISTAKE == PASSES_FIRST {
                order.pass(mine as u64 + 1, 1);
            }
            assert_eq!(cell.get(), mine, "out of order");
            cell.bump();
            if MISTAKE != PASSES_FIRST {
                order.pass(mine as u64 + 1, 1);
            }
        }
    });
}

/// A thread waits for how far another has come, and for single iterations.
pub fn progress<M: Machine + Wide, W: Patience>() {
    let cells = [(); 2].map(|_| M::Cell::new());
    let shared = Arc::new((Progress::<M>::default(), Over::<M>::default(), Event::<M>::default(), cells));
    together::<M>(2, move |index| {
        let (progress, over, changed, cells) = &*shared;
        if index == 0 {
            cells[0].bump();
            progress.post(1, changed);
            cells[1].bump();
            over.post(31, changed);
        } else {
            progress.wait::<W>(1, changed);
            assert_eq!(cells[0].get(), 1);
            over.wait::<W>(31, changed);
            assert_eq!(cells[1].get(), 1);
        }
    });
}

/// Urgent tasks come out by priority, and among equals in the order in which they came.
pub fn priorities() {
    type C = <linux::Linux as Machine>::Cell;
    let deque = Deque::<linux::Linux, Job<C>>::default();
    // Tens are priorities.
    for number in [10, 21, 11, 32, 12, 22, 33] {
        deque.insert(Job::leak(number), |other| other.number / 10 < number / 10);
    }
    let take = || deque.take_newest(usize::MAX, || false, |_| true).map(|job| job.number);
    let order: Vec<_> = std::iter::from_fn(take).collect();
    assert_eq!(order, [32, 33, 21, 22, 10, 11, 12]);
}
