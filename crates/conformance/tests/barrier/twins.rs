// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checkers find what is broken: barriers with a mistake, orderings weaker than written, wake-ups that
//! get lost.

use std::panic::catch_unwind;

use conformance::barrier_twins::*;
use conformance::loom::{Bounds, Loom};
use conformance::shuttle::{Schedules, Shuttle};
use conformance::twist::{Deaf, NoAcquire, NoRelease, OneProcessor, Straight, Twisted};
use conformance::{Hints, Settings, barrier_bodies};
use linux::Linux;
use platform::RunState;
use sync::barrier::BWakefulDrained;

/// Waiters sleep.
const PREEMPTED: Settings =
    Settings { hints: Hints::Always(RunState::Preempted), clock_step_ns: 10_000_000, generation: 0 };

fn loom_finds(what: &str, body: impl Fn() + Send + Sync + 'static) {
    conformance::loom::finds(PREEMPTED, what, body);
}

fn shuttle_finds(what: &str, body: impl Fn() + Send + Sync + 'static) {
    // PCT does not find clears_late.
    conformance::shuttle::finds(PREEMPTED, what, body);
}

macro_rules! twins {
    ($($name:ident: [P, $twist:ty] $type:ty, $threads:literal x $rounds:literal;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn loom() {
                type P = Twisted<Loom, $twist>;
                loom_finds(stringify!($name), || barrier_bodies::episodes::<P, $type>($threads, $rounds));
            }

            #[test]
            fn shuttle() {
                type P = Twisted<Shuttle, $twist>;
                shuttle_finds(stringify!($name), || barrier_bodies::episodes::<P, $type>($threads, $rounds));
            }
        })*
    };
}
twins! {
    no_sense: [P, Straight] NoSense<P>, 2 x 2;
    releases_early: [P, Straight] ReleasesEarly<P>, 2 x 1;
    clears_late: [P, Straight] ClearsLate<P>, 2 x 2;
    forgets_sleepers: [P, Straight] ForgetsSleepers<P>, 2 x 1;
    two_serial: [P, Straight] TwoSerial<P>, 2 x 1;
    leaves_a_child: [P, Straight] LeavesAChild<P>, 3 x 1;
    c_sched_as_printed: [P, OneProcessor] CSchedAsPrinted<P>, 3 x 3;
}

/// The combining tree.
mod combining {
    use super::*;

    #[test]
    fn leaves_past_nodes() {
        loom_finds("leaves_past_nodes", || {
            barrier_bodies::coming_and_going::<Loom, LeavesPastNodes<_, 2>>(2, 1)
        });
        shuttle_finds("leaves_past_nodes", || {
            barrier_bodies::coming_and_going::<Shuttle, LeavesPastNodes<_, 2>>(2, 1)
        });
    }

    #[test]
    fn comes_out_before_it_was_told() {
        loom_finds("comes_out_before_it_was_told", || barrier_bodies::renewing::<Loom, 1, true>(2));
        shuttle_finds("comes_out_before_it_was_told", || barrier_bodies::renewing::<Shuttle, 1, true>(2));
    }
}

/// Seats of the papers' barriers.
mod seats_unlocked {
    use super::*;
    use sync::barrier::CSpin;

    #[test]
    fn loom() {
        loom_finds("seats_unlocked", || barrier_bodies::groups::<Loom, SeatsUnlocked<_, CSpin<Loom>>>(2, 2));
    }

    #[test]
    fn shuttle() {
        shuttle_finds("seats_unlocked", || {
            barrier_bodies::groups::<Shuttle, SeatsUnlocked<_, CSpin<Shuttle>>>(2, 2)
        });
    }
}

/// Who drains is left asleep.
mod leaves_silently {
    use super::*;

    #[test]
    fn loom() {
        type P = Twisted<Loom, Straight>;
        loom_finds("leaves_silently", barrier_bodies::freeing::<P, LeavesSilently<P>>);
    }

    #[test]
    fn shuttle() {
        type P = Twisted<Shuttle, Straight>;
        shuttle_finds("leaves_silently", barrier_bodies::freeing::<P, LeavesSilently<P>>);
    }

    /// The bodies find nothing where the last one out wakes.
    #[test]
    fn whole() {
        type P = Twisted<Shuttle, Straight>;
        let body = barrier_bodies::freeing::<P, BWakefulDrained<P>>;
        conformance::shuttle::explore(PREEMPTED, Schedules::Random, 1_000, body);
        type Q = Twisted<Loom, Straight>;
        let bounds = Bounds { preemptions: 2, executions: 1_000 };
        let body = barrier_bodies::freeing::<Q, BWakefulDrained<Q>>;
        conformance::loom::explore("b-wakeful, freeing", PREEMPTED, bounds, body);
    }
}

/// What needs no rare schedule is found on real threads too, if it leaves nobody waiting: a thread that
/// fails does not come to the barrier again.
mod threads {
    use super::*;

    fn threads_find(what: &str, body: impl Fn() + std::panic::UnwindSafe) {
        assert!(catch_unwind(body).is_err(), "real threads let {what} pass");
    }

    #[test]
    fn releases_early() {
        type P = Linux;
        threads_find("releases_early", || barrier_bodies::episodes::<P, ReleasesEarly<P>>(2, 1_000));
    }

    #[test]
    fn two_serial() {
        type P = Linux;
        threads_find("two_serial", || barrier_bodies::episodes::<P, TwoSerial<P>>(2, 10));
    }
}

macro_rules! orderings {
    ($({
        $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*],
        $citation:literal, $summary:literal
    })*) => {
        /// Each algorithm without its acquires, and without its releases: loom sees the members' data raced
        /// for.
        mod orderings {
            $(mod $ident {
                use super::super::*;

                #[test]
                fn acquire() {
                    type P = Twisted<Loom, NoAcquire>;
                    loom_finds(concat!($name, " without acquire"), || {
                        barrier_bodies::episodes::<P, $type>(2, 1)
                    });
                }

                #[test]
                fn release() {
                    type P = Twisted<Loom, NoRelease>;
                    loom_finds(concat!($name, " without release"), || {
                        barrier_bodies::episodes::<P, $type>(2, 1)
                    });
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
                    let bounds = Bounds { preemptions: 3, executions: 300 };
                    conformance::loom::explore($name, PREEMPTED, bounds, || {
                        barrier_bodies::episodes::<P, $type>(2, 2)
                    });
                }

                #[test]
                fn shuttle() {
                    type P = Twisted<Shuttle, OneProcessor>;
                    let body = || barrier_bodies::episodes::<P, $type>(3, 3);
                    conformance::shuttle::explore(PREEMPTED, Schedules::Random, 300, body);
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
                    if sleeps($name) {
                        loom_finds(concat!($name, ", deaf"), || barrier_bodies::episodes::<P, $type>(3, 2));
                    }
                }

                #[test]
                fn shuttle() {
                    type P = Twisted<Shuttle, Deaf>;
                    if sleeps($name) {
                        shuttle_finds(concat!($name, ", deaf"), || {
                            barrier_bodies::episodes::<P, $type>(3, 2)
                        });
                    }
                }
            })*
        }
    };
}
catalog::barriers!(orderings);

fn sleeps(name: &str) -> bool {
    !(name.ends_with("-spin") || matches!(name, "tree" | "scal-sc-yield"))
}
