// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checkers find what is broken.

use super::*;

const PREEMPTED: Settings =
    Settings { hints: Hints::Always(RunState::Preempted), clock_step_ns: 1_000_000, generation: 0 };

fn loom_finds(what: &str, body: fn()) {
    conformance::loom::finds(PREEMPTED, what, body);
}

fn shuttle_finds(what: &str, body: fn()) {
    conformance::shuttle::finds(PREEMPTED, what, body);
}

macro_rules! twins {
    ($($name:ident: $body:expr, $same:expr;)*) => {
        $(#[test]
        fn $name() {
            loom_finds(stringify!($name), $body);
            shuttle_finds(stringify!($name), $same);
        })*
    };
}

twins! {
    the_checkers_find_a_notice_before_its_cause:
        || event::<Loom, Sleepy<Loom>, NOTICE_FIRST>(1),
        || event::<Shuttle, Sleepy<Shuttle>, NOTICE_FIRST>(1);
    the_checkers_find_a_count_in_two_steps:
        || holders::<Loom, TWO_STEPS>(2),
        || holders::<Shuttle, TWO_STEPS>(2);
    the_checkers_find_a_forgotten_maker:
        dependent::<Loom, FORGETS_MAKER>,
        dependent::<Shuttle, FORGETS_MAKER>;
    the_checkers_find_a_task_given_twice:
        || queue::<Loom, BrokenQueue<Loom, DOUBLES>>(1),
        || queue::<Shuttle, BrokenQueue<Shuttle, DOUBLES>>(1);
    the_checkers_find_a_lost_task:
        || queue::<Loom, BrokenQueue<Loom, LOSES>>(1), || queue::<Shuttle, BrokenQueue<Shuttle, LOSES>>(1);
    the_checkers_find_a_barrier_that_is_not_held:
        || tasks::<Loom, Sleepy<Loom>, HOLDS_NOTHING>(2, 1),
        || tasks::<Shuttle, Sleepy<Shuttle>, HOLDS_NOTHING>(2, 1);
    the_checkers_find_a_lost_call:
        || from_outside::<Loom, Sleepy<Loom>, CALLS_NOBODY>(1),
        || from_outside::<Shuttle, Sleepy<Shuttle>, CALLS_NOBODY>(1);
    the_checkers_find_an_early_join:
        || fork_join::<Loom, Sleepy<Loom>, JOINS_EARLY>(1, 1, 1),
        || fork_join::<Shuttle, Sleepy<Shuttle>, JOINS_EARLY>(1, 1, 1);
    the_checkers_find_an_early_fork:
        || fork_join::<Loom, Sleepy<Loom>, FORKS_EARLY>(1, 1, 1),
        || fork_join::<Shuttle, Sleepy<Shuttle>, FORKS_EARLY>(1, 1, 1);
    the_checkers_find_a_team_that_nobody_holds:
        || region::<Loom, Sleepy<Loom>, HOLDS_NO_TEAM>(0, 0, 0, true),
        || region::<Shuttle, Sleepy<Shuttle>, HOLDS_NO_TEAM>(0, 0, 0, true);
    the_checkers_find_what_is_ready_before_it_is_prepared:
        || turns::<Loom, Sleepy<Loom>, READY_FIRST>(2, 1, 1),
        || turns::<Shuttle, Sleepy<Shuttle>, READY_FIRST>(2, 1, 1);
    the_checkers_find_a_turn_passed_too_early:
        || order::<Loom, Sleepy<Loom>, PASSES_FIRST>(2, 1),
        || order::<Shuttle, Sleepy<Shuttle>, PASSES_FIRST>(2, 1);
}

/// The queue without its mistakes passes: what is found is the mistake.
#[test]
fn the_checkers_let_the_sound_twin_pass() {
    loom("sound twin", 2, || queue::<Loom, BrokenQueue<Loom, NONE>>(2));
    shuttle(|| queue::<Shuttle, BrokenQueue<Shuttle, NONE>>(2));
}

/// Loom does not come that far within its bounds.
#[test]
fn shuttle_finds_a_primary_thread_that_nobody_rings() {
    shuttle_finds("never back", || region::<Shuttle, Sleepy<Shuttle>, NEVER_BACK>(1, 0, 1, false));
}

#[test]
fn the_checkers_find_missing_orderings_and_wake_ups() {
    type A = Twisted<Loom, NoAcquire>;
    type R = Twisted<Loom, NoRelease>;
    type D = Twisted<Loom, Deaf>;
    loom_finds("counts without acquire", || awaited::<A>(2));
    loom_finds("counts without release", || awaited::<R>(2));
    loom_finds("shares without acquire", || turns::<A, Sleepy<A>, NONE>(2, 1, 1));
    loom_finds("shares without release", || turns::<R, Sleepy<R>, NONE>(2, 1, 1));
    loom_finds("order without acquire", || order::<A, Sleepless<A>, NONE>(2, 1));
    loom_finds("order without release", || order::<R, Sleepless<R>, NONE>(2, 1));
    loom_finds("deaf event", || event::<D, Sleepy<D>, NONE>(1));
    loom_finds("deaf fork and join", || fork_join::<D, Sleepy<D>, NONE>(1, 1, 1));
}
