// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checkers find what is broken.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use conformance::rwlock_twins::*;
use conformance::twist::{Deaf, NoAcquire, NoRelease};

fn settings() -> [Settings; 2] {
    [Hints::Mixed, Hints::Always(RunState::Preempted)].map(|hints| Settings { hints, ..Settings::default() })
}

fn loom_finds(what: &str, body: fn()) {
    let bounds = Bounds { preemptions: 3, executions: 20_000 };
    let found = settings().into_iter().any(|settings| {
        catch_unwind(AssertUnwindSafe(|| conformance::loom::explore(what, settings, bounds, body))).is_err()
    });
    assert!(found, "loom let {what} pass");
}

fn shuttle_finds(what: &str, body: fn()) {
    // PCT does not find lets_writer_in.
    let found = settings().into_iter().any(|settings| {
        catch_unwind(AssertUnwindSafe(|| {
            conformance::shuttle::explore(settings, Schedules::Random, 20_000, body)
        }))
        .is_err()
    });
    assert!(found, "shuttle let {what} pass");
}

macro_rules! twins {
    ($($name:ident: [P] $body:expr;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn loom() {
                type P = Loom;
                loom_finds(stringify!($name), || $body);
            }

            #[test]
            fn shuttle() {
                type P = Shuttle;
                shuttle_finds(stringify!($name), || $body);
            }
        })*
    };
}
twins! {
    loses_reader: [P] bodies::one_writer::<P, LosesReader<P>>(3, 1);
    counts_late: [P] bodies::one_writer::<P, CountsLate<P>>(2, 1);
    lets_writer_in: [P] bodies::one_writer::<P, LetsWriterIn<P>>(2, 1);
    forgets_sleepers: [P] bodies::one_writer::<P, ForgetsSleepers<P>>(2, 1);
    mutual: [P] bodies::sharing::<P, Mutual<P>>(2);
    smart_q_as_printed: [P] bodies::exclusion::<P, SmartQAsPrinted<P>>(3, 1);
    goes_by_turn: [P] bodies::exclusion::<P, GoesByTurn<P>>(3, 1);
    lets_go: [P] bodies::upgrading::<P, LetsGo<P>>(2, 1, 1);
}

/// What needs no rare schedule is found on real threads too, if it leaves nobody waiting.
#[test]
fn real_threads_find_a_writer_beside_readers() {
    let found = || catch_unwind(|| bodies::one_writer::<Linux, LetsWriterIn<Linux>>(8, 20_000)).is_err();
    assert!(conformance::threads::found_in_time(found), "real threads let lets_writer_in pass");
}

macro_rules! orderings {
    ($({
        $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*],
        $citation:literal, $summary:literal
    })*) => {
        /// Each algorithm without its acquires, without its releases, and with nobody woken.
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

                #[test]
                fn deaf() {
                    type P = Twisted<Shuttle, Deaf>;
                    if sleeps($name) {
                        shuttle_finds(concat!($name, ", deaf"), || bodies::exclusion::<P, $type>(3, 2));
                    }
                }
            })*
        }
    };
}
catalog::rwlocks!(orderings);

fn sleeps(name: &str) -> bool {
    matches!(name.trim_end_matches("-np"), "rw-wakeful" | "rw-native")
}
