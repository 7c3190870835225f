// SPDX-License-Identifier: MIT OR Apache-2.0
//! KE-1 in one word: nobody is granted a lock at the moment he loses his processor. Two words, or a kernel
//! that stores the whole word, are caught.

use conformance::ke1::{Block, OneWord, StoresWhole, TwoWords, granted};
use conformance::loom::{Bounds, Loom};
use conformance::shuttle::{Schedules, Shuttle};
use conformance::twist::{Straight, Twisted, TwoWords as TwoSteps};
use conformance::{Settings, loom, shuttle};
use platform::Platform;
use sim::{Machine, Setting, Sim, World, simulate_with};
use sync::mutex::{RawMutex, SmartQ};

#[test]
fn loom_one_word() {
    for nested in [false, true] {
        let bounds = Bounds { preemptions: 6, executions: 200_000 };
        let ran = loom::explore("KE-1", Settings::default(), bounds, move || {
            granted::<Loom, OneWord<Loom>>(nested)
        });
        eprintln!("loom: KE-1: {ran} executions");
    }
}

#[test]
fn shuttle_one_word() {
    for schedules in [Schedules::Random, Schedules::Pct(3)] {
        for nested in [false, true] {
            shuttle::explore(Settings::default(), schedules, 5_000, move || {
                granted::<Shuttle, OneWord<Shuttle>>(nested)
            });
        }
    }
}

fn both_find<L: Block, S: Block>(what: &str, nested: bool) {
    loom::finds(Settings::default(), what, move || granted::<Loom, L>(nested));
    shuttle::finds(Settings::default(), what, move || granted::<Shuttle, S>(nested));
}

#[test]
fn two_words_are_caught() {
    both_find::<TwoWords<Loom>, TwoWords<Shuttle>>("KE-1 in two words", false);
}

#[test]
fn a_word_that_is_stored_whole_is_caught() {
    both_find::<StoresWhole<Loom>, StoresWhole<Shuttle>>("KE-1 with a kernel that stores the word", true);
}

/// `smart-q` on 11 processors with three times as many threads, whose kernel acts on wishes and has short
/// quanta: how it ended.
fn smart_q<P: Platform>(seed: u64) -> Option<String> {
    let mut machine = Machine::named("sgi-challenge-11").expect("it comes with the crate");
    machine.kernel.quantum_ms.value = 0.2;
    let build = |world: &mut World| {
        let app = world.add_app();
        let lock = world.place(SmartQ::<P>::new());
        for _ in 0..3 * machine.processors.count.value {
            let node = world.place(<SmartQ<P> as RawMutex<P>>::Node::default());
            world.spawn(app, move || {
                while sim::clock_ns() < 200e6 {
                    // SAFETY: the node is this thread's, in use once at a time, and stays where it is.
                    unsafe { lock.lock(node.get()) };
                    sim::work_ns(1_000.0);
                    // SAFETY: locked above with this node.
                    unsafe { lock.unlock(node.get()) };
                    sim::work_ns(1_000.0);
                }
            });
        }
    };
    simulate_with(&machine, &Setting::default(), seed, 0, build).failure
}

#[test]
fn the_simulator_finds_two_words_under_a_lock() {
    let mut seeds = 1..=20;
    for seed in seeds.clone().take(3) {
        assert_eq!(smart_q::<Twisted<Sim, Straight>>(seed), None);
    }
    let found = seeds.find_map(smart_q::<Twisted<Sim, TwoSteps>>).expect("two words were let pass");
    assert!(found.contains("was granted a lock"), "{found}");
}
