// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ticket-np` as its paper prints it, beside ours: schedules that show what is wrong with it, and that the
//! same is not wrong with ours.

use std::ptr;

use platform::{Atomic, AtomicInt, Ordering::*, Platform};
use sim::explore::{Exploration, Strategy, explore, replay};
use sim::{Explored, Hints, TicketNpPrinted, World, fail};
use sync::mutex::{RawMutex, TicketNp};

type Printed = TicketNpPrinted<Explored>;

const CHANGED: &str = "a lock was changed after it had been freed";

fn strategies() -> [Exploration; 3] {
    [
        Strategy::Bounded { changes: 2, runs: 1000 },
        Strategy::Random { runs: 1000 },
        Strategy::Pct { runs: 1000, depth: 4 },
    ]
    .map(|strategy| Exploration { strategy, hints: Hints::True, seed: 1, steps: 20_000 })
}

/// Whoever held the lock last may free it, because nobody else will use it, and its words are somebody
/// else's then. One who has released it before must not change them.
fn last_one_frees<P: Platform, L: RawMutex<P, Node = ()> + 'static>(world: &mut World) {
    // The lock is three words of a number each.
    const { assert!(size_of::<L>() == size_of::<[P::AtomicU32; 3]>()) };
    let app = world.add_app();
    let lock = world.place(L::new());
    let users = world.place(P::AtomicU32::new(0));
    for _ in 0..2 {
        world.spawn(app, move || {
            // SAFETY: the node is (), and the lock stays where it is.
            unsafe { lock.lock(&()) };
            let last = users.fetch_add(1, Relaxed) == 1;
            // SAFETY: locked above.
            unsafe { lock.unlock(&()) };
            if !last {
                return;
            }
            // SAFETY: of the same size and layout, which the lock's head says.
            let words = unsafe { &*ptr::from_ref(lock.get()).cast::<[P::AtomicU32; 3]>() };
            // As if they were of a heap that hands them out again: the numbers that a releaser waits for.
            for number in [1, 2] {
                words.iter().for_each(|word| word.store(number, Relaxed));
                (0..3).for_each(|_| P::pause());
                if words.iter().any(|word| word.load(Relaxed) != number) {
                    fail(CHANGED.into());
                }
            }
        });
    }
}

#[test]
fn as_printed_a_releaser_changes_a_lock_that_is_gone() {
    let build = last_one_frees::<Explored, Printed>;
    let found = strategies().into_iter().find_map(|exploration| {
        let failure = explore(&exploration, build).failure?;
        Some((exploration, failure))
    });
    let (exploration, failure) = found.expect("a schedule shows it");
    assert_eq!(failure.what, CHANGED);
    assert_eq!(replay(&exploration, &failure.schedule, build).as_deref(), Some(CHANGED));
}

#[test]
fn ours_leaves_a_lock_that_is_gone_alone() {
    for exploration in strategies() {
        let report = explore(&exploration, last_one_frees::<Explored, TicketNp<Explored>>);
        assert_eq!(report.failure.map(|failure| failure.what), None);
    }
}

/// Beside that nothing is found.
#[test]
fn as_printed_it_excludes() {
    for exploration in strategies() {
        let report = explore(&exploration, sim::explore::mutex::<Explored, Printed>(3, 2));
        assert_eq!(report.failure.map(|failure| failure.what), None);
    }
}
