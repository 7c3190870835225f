// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue in an array with two slots, so that threads share them and tickets go round, which 16 slots in
//! a model never do.

use std::panic::{AssertUnwindSafe, catch_unwind};

use conformance::loom::{Bounds, Loom};
use conformance::shuttle::{Schedules, Shuttle};
use conformance::twist::{Lying, Stingy, Twisted};
use conformance::{HINTS, Hints, Settings, bodies, distinct, further, long};
use linux::Linux;
use platform::RunState;
use sync::mutex::ArrayQueue;
use sync::wait::{Block, Informing, Spin};

type Queue<P, W> = ArrayQueue<P, W, 2>;

fn each(informed: bool) -> Vec<Settings> {
    let hints = if informed { &HINTS[..] } else { &HINTS[..1] };
    hints.iter().map(|&hints| Settings { hints, ..Settings::default() }).collect()
}

fn loom(informed: bool, name: &str, preemptions: usize, body: fn()) {
    let executions = 2_000 * further();
    let mut ran = 0;
    for settings in distinct(&each(informed)) {
        let bounds = Bounds { preemptions: preemptions + long() as usize, executions };
        ran += conformance::loom::explore(name, settings, bounds, body);
    }
    eprintln!("loom: {name}: {ran} executions");
}

fn shuttle(informed: bool, name: &str, body: fn()) {
    let mut ran = 0;
    for settings in distinct(&each(informed)) {
        for schedules in [Schedules::Random, Schedules::Pct(3)] {
            ran += conformance::shuttle::explore(settings, schedules, 200 * further(), body);
        }
    }
    eprintln!("shuttle: {name}: {ran} executions");
}

macro_rules! suite {
    ($($name:ident: $wait:ty, $informed:literal, $rounds:literal;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn loom_exclusion() {
                type L = Queue<Loom, $wait>;
                loom($informed, "two slots, two", 3, || bodies::exclusion::<Loom, L>(2, 3));
                loom($informed, "two slots, three", 2, || bodies::exclusion::<Loom, L>(3, 2));
                loom($informed, "two slots, trying", 2, || bodies::trying::<Loom, L>(2, 3));
            }

            /// Two threads wait at one slot: the holder, one at the other slot, and these.
            #[test]
            fn loom_shared_slot() {
                loom($informed, "two slots, convoy", 1, || bodies::convoy::<Loom, Queue<Loom, $wait>>(4, 0));
            }

            #[test]
            fn shuttle_exclusion() {
                type L = Queue<Shuttle, $wait>;
                shuttle($informed, "two slots, exclusion", || bodies::exclusion::<Shuttle, L>(5, 3));
                shuttle($informed, "two slots, trying", || bodies::trying::<Shuttle, L>(4, 3));
                shuttle($informed, "two slots, nesting", || bodies::nesting::<Shuttle, L>(3, 2, $informed));
            }

            #[test]
            fn threads() {
                let rounds = if long() { $rounds * 20 } else { $rounds };
                bodies::exclusion::<Linux, Queue<Linux, $wait>>(32, rounds);
                bodies::trying::<Linux, Queue<Linux, $wait>>(8, rounds);
                type P = Twisted<Linux, Lying>;
                bodies::exclusion::<P, Queue<P, $wait>>(8, rounds);
            }
        })*
    };
}
// COST: rounds; a queue that is oblivious of the scheduler waits for a slice (3 ms on 2 processors) at
// nearly each turn.
suite! {
    spin: Spin, false, 10;
    block: Block, false, 100;
    informing: Informing, true, 100;
}

/// Where only one of those who sleep at a slot is woken it may be the wrong one: both checkers see it.
mod twins {
    use super::*;

    const PREEMPTED: Settings =
        Settings { hints: Hints::Always(RunState::Preempted), clock_step_ns: 1_000_000, generation: 0 };

    fn loom_finds(name: &str, body: fn()) -> bool {
        let bounds = Bounds { preemptions: 3, executions: 20_000 };
        catch_unwind(AssertUnwindSafe(|| conformance::loom::explore(name, PREEMPTED, bounds, body))).is_err()
    }

    fn shuttle_finds(body: fn()) -> bool {
        let explore = || conformance::shuttle::explore(PREEMPTED, Schedules::Random, 20_000, body);
        catch_unwind(AssertUnwindSafe(explore)).is_err()
    }

    #[test]
    fn wakes_one() {
        type L<W> = Queue<Twisted<Loom, Stingy>, W>;
        assert!(loom_finds("two slots, block, wakes one", || bodies::convoy::<_, L<Block>>(4, 0)));
        assert!(loom_finds("two slots, informing, wakes one", || bodies::convoy::<_, L<Informing>>(4, 0)));
        type S<W> = Queue<Twisted<Shuttle, Stingy>, W>;
        assert!(shuttle_finds(|| bodies::exclusion::<_, S<Block>>(4, 1)));
        assert!(shuttle_finds(|| bodies::exclusion::<_, S<Informing>>(4, 1)));
    }

    /// With a slot for each thread it does not matter: it is the sharing that these tests see.
    #[test]
    fn wakes_one_where_nobody_shares() {
        type L<W> = ArrayQueue<Twisted<Loom, Stingy>, W, 4>;
        assert!(!loom_finds("four slots, block, wakes one", || bodies::convoy::<_, L<Block>>(4, 0)));
    }
}
