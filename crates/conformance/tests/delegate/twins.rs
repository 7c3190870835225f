// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checkers find what is broken: locks with a mistake, orderings weaker than written, wake-ups that get
//! lost.

use conformance::delegate as bodies;
use conformance::delegate_twins::*;
use conformance::loom::{Bounds, Loom};
use conformance::shuttle::{Schedules, Shuttle};
use conformance::twist::{Deaf, NoAcquire, NoRelease, Straight, Twisted};
use conformance::{Hints, Settings};
use platform::RunState;

/// Clients sleep at once.
const PREEMPTED: Settings =
    Settings { hints: Hints::Always(RunState::Preempted), clock_step_ns: 1_000_000, generation: 0 };

/// Clients look as long as they can.
const RUNNING: Settings =
    Settings { hints: Hints::Always(RunState::Running), clock_step_ns: 100, generation: 0 };

fn loom_finds(what: &str, body: impl Fn() + Send + Sync + 'static) {
    conformance::loom::finds(PREEMPTED, what, body);
}

fn shuttle_finds(what: &str, body: impl Fn() + Send + Sync + 'static) {
    conformance::shuttle::finds(PREEMPTED, what, body);
}

macro_rules! twins {
    ($($name:ident: [P] $right:ty, $wrong:ty, $threads:literal x $rounds:literal;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn loom() {
                type P = Loom;
                loom_finds(stringify!($name), || bodies::exclusion::<P, $wrong>($threads, $rounds));
                // And what is right passes.
                let bounds = Bounds { preemptions: 2, executions: 500 };
                conformance::loom::explore(stringify!($name), PREEMPTED, bounds, || {
                    bodies::exclusion::<P, $right>($threads, $rounds)
                });
            }

            #[test]
            fn shuttle() {
                type P = Shuttle;
                shuttle_finds(stringify!($name), || bodies::exclusion::<P, $wrong>($threads, $rounds));
                conformance::shuttle::explore(PREEMPTED, Schedules::Random, 500, || {
                    bodies::exclusion::<P, $right>($threads, $rounds)
                });
            }
        })*
    };
}
twins! {
    answers_early: [P] Combining<P, Right>, Combining<P, AnswersEarly>, 2 x 2;
    runs_twice: [P] Combining<P, Right>, Combining<P, RunsTwice>, 2 x 1;
    forgets_news: [P] Combining<P, Right>, Combining<P, ForgetsNews>, 2 x 2;
    forgets_to_hand_over: [P] Combining<P, Right>, Combining<P, ForgetsToHandOver>, 3 x 1;
    server_answers_early: [P] Served<P, Right>, Served<P, AnswersEarly>, 1 x 2;
    server_runs_twice: [P] Served<P, Right>, Served<P, RunsTwice>, 1 x 1;
    server_sleeps_over_requests: [P] Served<P, Right>, Served<P, SleepsOverRequests>, 1 x 1;
    withdraws_blindly: [P] Holding<P, Right>, Holding<P, WithdrawsBlindly>, 2 x 1;
    queue_answers_early: [P] Queue<P, Right>, Queue<P, AnswersEarly>, 2 x 2;
    queue_follows_late: [P] Queue<P, Right>, Queue<P, FollowsLate>, 2 x 2;
    queue_claims_blindly: [P] Queue<P, Right>, Queue<P, ClaimsBlindly>, 2 x 1;
    queue_forgets_to_hand_over: [P] Queue<P, Right>, Queue<P, ForgetsToHandOver>, 2 x 1;
}

/// Two servers that poll are too many steps for loom: in 20,000 executions it does not come to the mistake.
#[test]
fn spare_threads() {
    shuttle_finds("spare_takes_between", || {
        bodies::with_a_spare::<Shuttle, Spared<Shuttle, TakesBetween>>(2, 1);
    });
    shuttle_finds("server_goes_on", || bodies::with_a_spare::<Shuttle, Spared<Shuttle, GoesOn>>(2, 1));
    shuttle_finds("server_looks_once", || bodies::with_a_spare::<Shuttle, Spared<Shuttle, LooksOnce>>(2, 1));
    shuttle_finds("server_forgets_to_ring", || {
        bodies::with_a_spare::<Shuttle, Spared<Shuttle, ForgetsToRing>>(2, 1);
    });
    conformance::shuttle::explore(PREEMPTED, Schedules::Random, 500, || {
        bodies::with_a_spare::<Shuttle, Spared<Shuttle, Right>>(2, 1);
    });
}

/// As above: client and server poll.
#[test]
fn requests_that_are_taken_back() {
    shuttle_finds("client_takes_back_blindly", || {
        bodies::exclusion::<Shuttle, Recalled<Shuttle, WithdrawsBlindly>>(1, 2);
    });
    shuttle_finds("server_claims_blindly", || {
        bodies::exclusion::<Shuttle, Recalled<Shuttle, ClaimsBlindly>>(1, 2);
    });
    shuttle_finds("server_numbers_late", || {
        bodies::exclusion::<Shuttle, Recalled<Shuttle, NumbersLate>>(1, 2);
    });
    conformance::shuttle::explore(PREEMPTED, Schedules::Random, 500, || {
        bodies::exclusion::<Shuttle, Recalled<Shuttle, Right>>(2, 2);
    });
}

macro_rules! orderings {
    ($({
        $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*],
        $citation:literal, $summary:literal
    })*) => {
        /// Each algorithm without its acquires, without its releases, and when nobody is woken.
        $(mod $ident {
            use super::*;

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

            #[test]
            fn deaf() {
                type P = Twisted<Loom, Deaf>;
                loom_finds(concat!($name, ", deaf"), || bodies::exclusion::<P, $type>(2, 2));
                type S = Twisted<Shuttle, Deaf>;
                deaf_in_shuttle::<S>();
            }

            fn deaf_in_shuttle<P: conformance::Machine>() {
                shuttle_finds(concat!($name, ", deaf"), || bodies::exclusion::<P, $type>(3, 2));
            }

            /// The same bodies, twisted by nothing.
            #[test]
            fn whole() {
                type P = Twisted<Loom, Straight>;
                for settings in [PREEMPTED, RUNNING] {
                    let bounds = Bounds { preemptions: 3, executions: 500 };
                    conformance::loom::explore($name, settings, bounds, || {
                        bodies::exclusion::<P, $type>(2, 2)
                    });
                }
            }
        })*
    };
}
catalog::delegates!(orderings);
