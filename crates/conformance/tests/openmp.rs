// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of OpenMP, on this computer, in loom and in shuttle; and the checkers find what is broken.

use conformance::loom::{Bounds, Loom};
use conformance::openmp::*;
use conformance::shuttle::{Schedules, Shuttle};
use conformance::twist::{Deaf, Fickle, Lying, NoAcquire, NoRelease, Twisted};
use conformance::{HINTS, Hints, Machine, Settings, further};
use linux::Linux;
use platform::{RunState, Wide};
use sync::openmp::{Deque, Iterations};

fn loom(name: &str, preemptions: usize, body: fn()) {
    let bounds = Bounds { preemptions, executions: 2_000 * further() };
    let ran = conformance::loom::explore(name, Settings::default(), bounds, body);
    eprintln!("loom: {name}: {ran} executions");
}

/// Where a barrier is involved, which goes by hints.
fn loom_by_hints(name: &str, preemptions: usize, body: fn()) {
    let bounds = Bounds { preemptions, executions: 400 * further() };
    let explore =
        |hints| conformance::loom::explore(name, Settings { hints, ..Settings::default() }, bounds, body);
    let ran: usize = HINTS.into_iter().map(explore).sum();
    eprintln!("loom: {name}: {ran} executions");
}

fn shuttle(body: fn()) {
    for hints in HINTS {
        for schedules in [Schedules::Random, Schedules::Pct(3)] {
            let settings = Settings { hints, ..Settings::default() };
            conformance::shuttle::explore(settings, schedules, 40 * further(), body);
        }
    }
}

const PREEMPTED: Settings =
    Settings { hints: Hints::Always(RunState::Preempted), clock_step_ns: 1_000_000, generation: 0 };

fn loom_finds(what: &str, body: fn()) {
    conformance::loom::finds(PREEMPTED, what, body);
}

fn shuttle_finds(what: &str, body: fn()) {
    conformance::shuttle::finds(PREEMPTED, what, body);
}

type Sound<M> = Deque<M, Job<<M as Machine>::Cell>>;

/// Each body by itself, since a model has few threads.
fn each<M: Machine + Wide>() -> [fn(); 25] {
    [
        || event::<M, Sleepy<M>, NONE>(3),
        || event::<M, Sleepless<M>, NONE>(3),
        || awaited::<M>(3),
        || holders::<M, NONE>(3),
        alone::<M>,
        flag::<M>,
        dependent::<M, NONE>,
        followed::<M>,
        || queue::<M, Sound<M>>(3),
        || tasks::<M, Sleepy<M>, NONE>(3, 5),
        || tasks::<M, Sleepless<M>, NONE>(3, 3),
        || from_outside::<M, Sleepy<M>, NONE>(3),
        || from_outside::<M, Sleepless<M>, NONE>(3),
        || finish::<M, Sleepy<M>>(),
        sees_region::<M>,
        leaves::<M>,
        done::<M>,
        last::<M>,
        || fork_join::<M, Sleepy<M>, NONE>(3, 3, 1),
        || fork_join::<M, Sleepless<M>, NONE>(3, 3, 1),
        || turns::<M, Sleepy<M>, NONE>(3, 5, 2),
        || (iterations::<M>(3, 7, false, 2), iterations::<M>(3, 9, true, 1)).0,
        || first::<M>(3),
        || order::<M, Sleepy<M>, NONE>(3, 3),
        || progress::<M, Sleepy<M>>(),
    ]
}

#[test]
fn threads() {
    let lies = [each::<Linux>(), each::<Twisted<Linux, Lying>>(), each::<Twisted<Linux, Fickle>>()];
    for _ in 0..20 * further() {
        lies.iter().flatten().for_each(|body| body());
    }
    regions::<Linux>();
}

/// By one thread, so that the arithmetic is all there is.
#[test]
fn iterations_cover_each_length() {
    for all in (0..100).chain([1 << 20, u64::MAX >> 1, u64::MAX - 1]) {
        for (guided, chunk) in
            [(false, 0), (false, 3), (false, u64::MAX / 3), (true, 0), (true, 4), (true, u64::MAX / 3)]
        {
            let (taken, mut next) = (Iterations::<Linux>::default(), 0);
            if !guided && all / u64::max(chunk, 1) > 1 << 21 {
                continue;
            }
            while let Some((first, last)) = match guided {
                true => taken.take_guided(all, chunk, 2, 3),
                false => taken.take_chunk(all, chunk, 3),
            } {
                assert_eq!(first, next, "{all} iterations in chunks of {chunk}");
                assert!(last > first && (!guided || last == all || (last - first) % 2 == 0));
                next = last;
            }
            assert_eq!(next, all, "in chunks of {chunk}");
        }
    }
}

/// Priorities: the greatest is the newest, and of equals the first stands before the others.
#[test]
fn a_task_of_a_priority_stands_among_its_like() {
    priorities();
}

#[test]
fn loom_events() {
    loom("event", 3, || event::<Loom, Sleepy<Loom>, NONE>(1));
    loom("event, awake", 3, || event::<Loom, Sleepless<Loom>, NONE>(1));
    loom("event, two waiters", 2, || event::<Loom, Sleepy<Loom>, NONE>(2));
}

#[test]
fn loom_counts() {
    loom("awaited", 3, || awaited::<Loom>(2));
    loom("holders", 3, || holders::<Loom, NONE>(3));
    loom("one holder", 3, alone::<Loom>);
    loom("flag", 3, flag::<Loom>);
}

#[test]
fn loom_dependences() {
    loom("dependences", 2, dependent::<Loom, NONE>);
    loom("a followed task", 3, followed::<Loom>);
}

#[test]
fn loom_deque() {
    loom("deque", 2, || queue::<Loom, Sound<Loom>>(1));
    loom("deque, more", 2, || queue::<Loom, Sound<Loom>>(2));
}

#[test]
fn loom_tasks() {
    loom_by_hints("tasks", 2, || tasks::<Loom, Sleepy<Loom>, NONE>(2, 1));
    loom_by_hints("tasks, awake", 2, || tasks::<Loom, Sleepless<Loom>, NONE>(2, 2));
    loom_by_hints("tasks from outside", 2, || from_outside::<Loom, Sleepy<Loom>, NONE>(1));
    loom_by_hints("tasks from outside, two members", 2, || from_outside::<Loom, Sleepy<Loom>, NONE>(2));
    loom("tasks of a lone member", 3, finish::<Loom, Sleepy<Loom>>);
    loom("tasks, regions", 3, regions::<Loom>);
}

#[test]
fn loom_task_counts() {
    loom("tasks, seen region", 3, sees_region::<Loom>);
    loom("tasks, a runner leaves", 3, leaves::<Loom>);
    loom("tasks, all done", 3, done::<Loom>);
    loom("tasks, the last", 3, last::<Loom>);
}

#[test]
fn loom_fork_join() {
    loom_by_hints("fork and join", 3, || fork_join::<Loom, Sleepy<Loom>, NONE>(1, 2, 1));
    loom_by_hints("fork and join, awake", 3, || fork_join::<Loom, Sleepless<Loom>, NONE>(1, 2, 0));
    loom_by_hints("fork and join, two helpers", 2, || fork_join::<Loom, Sleepy<Loom>, NONE>(2, 1, 1));
}

#[test]
fn loom_shares() {
    loom("turns", 3, || turns::<Loom, Sleepy<Loom>, NONE>(2, 3, 2));
    loom("turns, a ring of one", 3, || turns::<Loom, Sleepy<Loom>, NONE>(2, 2, 1));
    loom("iterations", 3, || iterations::<Loom>(2, 3, false, 1));
    loom("iterations, guided", 3, || iterations::<Loom>(2, 4, true, 1));
    loom("first", 3, || first::<Loom>(2));
    loom("first of three", 2, || first::<Loom>(3));
}

#[test]
fn loom_order() {
    loom("order", 3, || order::<Loom, Sleepy<Loom>, NONE>(2, 2));
    loom("order of three", 2, || order::<Loom, Sleepy<Loom>, NONE>(3, 1));
    loom("progress", 3, progress::<Loom, Sleepy<Loom>>);
}

#[test]
fn shuttle_all() {
    each::<Shuttle>().into_iter().for_each(shuttle);
    shuttle(regions::<Shuttle>);
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
        || event::<Loom, Sleepy<Loom>, NOTICE_FIRST>(1), || event::<Shuttle, Sleepy<Shuttle>, NOTICE_FIRST>(1);
    the_checkers_find_a_count_in_two_steps: || holders::<Loom, TWO_STEPS>(2), || holders::<Shuttle, TWO_STEPS>(2);
    the_checkers_find_a_forgotten_maker: dependent::<Loom, FORGETS_MAKER>, dependent::<Shuttle, FORGETS_MAKER>;
    the_checkers_find_a_task_given_twice:
        || queue::<Loom, BrokenQueue<Loom, DOUBLES>>(1), || queue::<Shuttle, BrokenQueue<Shuttle, DOUBLES>>(1);
    the_checkers_find_a_lost_task:
        || queue::<Loom, BrokenQueue<Loom, LOSES>>(1), || queue::<Shuttle, BrokenQueue<Shuttle, LOSES>>(1);
    the_checkers_find_a_barrier_that_is_not_held:
        || tasks::<Loom, Sleepy<Loom>, HOLDS_NOTHING>(2, 1), || tasks::<Shuttle, Sleepy<Shuttle>, HOLDS_NOTHING>(2, 1);
    the_checkers_find_a_lost_call:
        || from_outside::<Loom, Sleepy<Loom>, CALLS_NOBODY>(1),
        || from_outside::<Shuttle, Sleepy<Shuttle>, CALLS_NOBODY>(1);
    the_checkers_find_an_early_join:
        || fork_join::<Loom, Sleepy<Loom>, JOINS_EARLY>(1, 1, 1),
        || fork_join::<Shuttle, Sleepy<Shuttle>, JOINS_EARLY>(1, 1, 1);
    the_checkers_find_an_early_fork:
        || fork_join::<Loom, Sleepy<Loom>, FORKS_EARLY>(1, 1, 1),
        || fork_join::<Shuttle, Sleepy<Shuttle>, FORKS_EARLY>(1, 1, 1);
    the_checkers_find_what_is_ready_before_it_is_prepared:
        || turns::<Loom, Sleepy<Loom>, READY_FIRST>(2, 1, 1), || turns::<Shuttle, Sleepy<Shuttle>, READY_FIRST>(2, 1, 1);
    the_checkers_find_a_turn_passed_too_early:
        || order::<Loom, Sleepy<Loom>, PASSES_FIRST>(2, 1), || order::<Shuttle, Sleepy<Shuttle>, PASSES_FIRST>(2, 1);
}

/// The queue without its mistakes passes: what is found is the mistake.
#[test]
fn the_checkers_let_the_sound_twin_pass() {
    loom("sound twin", 2, || queue::<Loom, BrokenQueue<Loom, NONE>>(2));
    shuttle(|| queue::<Shuttle, BrokenQueue<Shuttle, NONE>>(2));
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
