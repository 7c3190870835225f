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

#[test]
fn the_checkers_find_twins() {
    loom_finds("a second beginning", || once::<Loom, BeginsTwice<Loom>>(2, 0));
    shuttle_finds("a second beginning", || once::<Shuttle, BeginsTwice<Shuttle>>(2, 0));
    loom_finds("one woken of two", || once::<Loom, WakesOne<Loom>>(3, 0));
    shuttle_finds("one woken of two", || once::<Shuttle, WakesOne<Shuttle>>(3, 0));
}

#[test]
fn the_checkers_find_missing_orderings_and_wake_ups() {
    type A = Twisted<Loom, NoAcquire>;
    loom_finds("once without acquire", || once::<A, Wakeful<A>>(2, 0));
    type R = Twisted<Loom, NoRelease>;
    loom_finds("once without release", || once::<R, Wakeful<R>>(2, 0));
    type D = Twisted<Loom, Deaf>;
    loom_finds("deaf once", || once::<D, Wakeful<D>>(2, 0));
    type S = Twisted<Shuttle, Deaf>;
    shuttle_finds("deaf once", || once::<S, Wakeful<S>>(2, 0));
}
