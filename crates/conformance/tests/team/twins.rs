// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checkers find what is broken.

use super::*;

const PREEMPTED: Settings =
    Settings { hints: Hints::Always(RunState::Preempted), clock_step_ns: 1_000_000, generation: 0 };

fn loom_finds(what: &str, body: impl Fn() + Send + Sync + 'static) {
    conformance::loom::finds(PREEMPTED, what, body);
}

fn shuttle_finds(what: &str, body: impl Fn() + Send + Sync + 'static) {
    conformance::shuttle::finds(PREEMPTED, what, body);
}

macro_rules! twins {
    ($($name:ident: $mistake:ident, $fails:expr;)*) => {
        /// The twin without a mistake passes: what is found is the mistake.
        #[test]
        fn the_checkers_let_the_sound_twin_pass() {
            for settings in hinted(&STEPS) {
                let bounds = Bounds { preemptions: 3, executions: 400 };
                $(conformance::loom::explore(stringify!($name), settings, bounds, || {
                    jobs::<Loom, Broken<Loom, NONE>>(1, $fails, Kind::Free)
                });)*
            }
        }
        $(#[test]
        fn $name() {
            loom_finds(stringify!($name), || jobs::<Loom, Broken<Loom, $mistake>>(1, $fails, Kind::Free));
            shuttle_finds(stringify!($name), || {
                jobs::<Shuttle, Broken<Shuttle, $mistake>>(1, $fails, Kind::Free)
            });
        })*
    };
}

twins! {
    the_checkers_find_a_lost_wake_up: LOSES_WAKE_UP, &[None];
    the_checkers_find_a_part_run_twice: RUNS_TWICE, &[None];
    the_checkers_find_an_early_return: RETURNS_EARLY, &[None];
    the_checkers_find_a_lost_failure: LOSES_FAILURE, &[Some(1)];
    the_checkers_find_a_forgotten_caller: FORGETS_CALLER, &[None];
}

#[test]
fn the_checkers_find_missing_orderings_and_wake_ups() {
    type A = Twisted<Loom, NoAcquire>;
    loom_finds("team without acquire", || jobs::<A, Wakeful<A>>(1, &[None], Kind::Free));
    type R = Twisted<Loom, NoRelease>;
    loom_finds("team without release", || jobs::<R, Wakeful<R>>(1, &[None], Kind::Free));
    type D = Twisted<Loom, Deaf>;
    loom_finds("deaf team", || jobs::<D, Wakeful<D>>(1, &[None], Kind::Free));
    type S = Twisted<Shuttle, Deaf>;
    shuttle_finds("deaf team", || jobs::<S, Wakeful<S>>(1, &[None], Kind::Free));
}
