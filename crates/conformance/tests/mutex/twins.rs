// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checkers find what is broken: locks with a mistake, orderings weaker than written, wake-ups that get
//! lost.

use std::panic::{AssertUnwindSafe, catch_unwind};

use conformance::loom::{Bounds, Loom};
use conformance::shuttle::{Schedules, Shuttle};
use conformance::twins::*;
use conformance::twist::{Deaf, NoAcquire, NoRelease, Straight, Twisted};
use conformance::{Hints, Settings, bodies};
use linux::Linux;
use platform::RunState;
use sync::mutex::{Native, Wakeful};

/// Waiters sleep, queues pass over.
const PREEMPTED: Settings =
    Settings { hints: Hints::Always(RunState::Preempted), clock_step_ns: 1_000_000, generation: 0 };

fn loom_finds(what: &str, body: impl Fn() + Send + Sync + 'static) {
    conformance::loom::finds(PREEMPTED, what, body);
}

fn shuttle_finds(what: &str, body: impl Fn() + Send + Sync + 'static) {
    let body = std::sync::Arc::new(body);
    for schedules in [Schedules::Random, Schedules::Pct(3)] {
        let body = body.clone();
        let explore = || conformance::shuttle::explore(PREEMPTED, schedules, 20_000, move || body());
        assert!(catch_unwind(AssertUnwindSafe(explore)).is_err(), "shuttle ({schedules:?}) let {what} pass");
    }
}

macro_rules! twins {
    ($($name:ident: [P] $type:ty, $threads:literal x $rounds:literal;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn loom() {
                type P = Loom;
                loom_finds(stringify!($name), || bodies::exclusion::<P, $type>($threads, $rounds));
            }

            #[test]
            fn shuttle() {
                type P = Shuttle;
                shuttle_finds(stringify!($name), || bodies::exclusion::<P, $type>($threads, $rounds));
            }
        })*
    };
}
twins! {
    test_then_set: [P] TestThenSet<P>, 2 x 1;
    takes_what_it_finds: [P] TakesWhatItFinds<P>, 2 x 1;
    serves_early: [P] ServesEarly<P>, 2 x 1;
    forgets_sleepers: [P] ForgetsSleepers<P>, 3 x 1;
    sleeps_unmarked: [P] SleepsUnmarked<P>, 2 x 1;
    overruns: [P] Overruns<P>, 4 x 1;
    serves_on_without_taking_back: [P] ServesOnWithoutTakingBack<P>, 3 x 1;
    queue_hs_without_rescind: [P] QueueHsWithoutRescind<P>, 3 x 1;
    forgets_its_wish: [P] ForgetsItsWish<P>, 1 x 1;
    leaves_next: [P] LeavesNext<P>, 2 x 1;
    smart_q_as_printed: [P] SmartQAsPrinted<P>, 2 x 1;
    wakeful_released_twice: [P] ReleasesTwice<Wakeful<P>>, 2 x 2;
    native_released_twice: [P] ReleasesTwice<Native<P>>, 2 x 2;
}

/// What needs no rare schedule is found on real threads too, if it leaves nobody waiting.
#[test]
fn real_threads_find_two_holders() {
    let found = || catch_unwind(|| bodies::exclusion::<Linux, TestThenSet<Linux>>(8, 20_000)).is_err();
    assert!(conformance::threads::found_in_time(found), "real threads let test_then_set pass");
}

macro_rules! orderings {
    ($({
        $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*],
        $citation:literal, $summary:literal
    })*) => {
        /// Each algorithm without its acquires, and without its releases: loom sees the protected data
        /// raced for.
        mod orderings {
            $(mod $ident {
                use super::super::*;

                #[test]
                fn acquire() {
                    type P = Twisted<Loom, NoAcquire>;
                    loom_finds(concat!($name, " without acquire"), || bodies::exclusion::<P, $type>(2, 1));
                }

                #[test]
                fn release() {
                    type P = Twisted<Loom, NoRelease>;
                    loom_finds(concat!($name, " without release"), || bodies::exclusion::<P, $type>(2, 1));
                }
            })*
        }

        /// Nothing is found where nothing is broken: the same bodies under the same settings, twisted by
        /// nothing.
        mod whole {
            $(mod $ident {
                use super::super::*;

                #[test]
                fn loom() {
                    type P = Twisted<Loom, Straight>;
                    let bounds = Bounds { preemptions: 3, executions: 500 };
                    conformance::loom::explore($name, PREEMPTED, bounds, || {
                        bodies::exclusion::<P, $type>(2, 2)
                    });
                    conformance::loom::explore($name, PREEMPTED, bounds, || {
                        bodies::exclusion::<P, $type>(3, 1)
                    });
                }

                #[test]
                fn shuttle() {
                    type P = Twisted<Shuttle, Straight>;
                    let body = || bodies::exclusion::<P, $type>(3, 2);
                    conformance::shuttle::explore(PREEMPTED, Schedules::Random, 500, body);
                }
            })*
        }

        /// Each algorithm that sleeps, when nobody is woken.
        mod deaf {
            $(mod $ident {
                use super::super::*;

                #[test]
                fn loom() {
                    type P = Twisted<Loom, Deaf>;
                    // Loom lets all others go first where a warned waiter yields, so that this one would
                    // never fall asleep.
                    let warned = catalog::entry($name).is_some_and(|entry| entry.wishes);
                    let settings = if warned { Settings::default() } else { PREEMPTED };
                    if sleeps($name) {
                        conformance::loom::finds(settings, concat!($name, ", deaf"), || {
                            bodies::exclusion::<P, $type>(2, 2)
                        });
                    }
                }

                #[test]
                fn shuttle() {
                    type P = Twisted<Shuttle, Deaf>;
                    if sleeps($name) {
                        shuttle_finds(concat!($name, ", deaf"), || bodies::exclusion::<P, $type>(3, 2));
                    }
                }
            })*
        }
    };
}
catalog::mutexes!(orderings);

fn sleeps(name: &str) -> bool {
    let spin = [
        "tas-b",
        "tas-b-np",
        "queue",
        "queue-np",
        "queue-hs",
        "smart-q",
        "ticket-np",
        "hardware",
        "hardware-np",
    ];
    !(name.ends_with("-spin") || spin.contains(&name))
}
