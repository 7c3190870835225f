// SPDX-License-Identifier: MIT OR Apache-2.0
//! In shuttle.

use super::*;

macro_rules! in_shuttle {
    ($($name:ident: $mutex:ident;)*) => {
        $(mod $name {
            use super::*;
            type P = Shuttle;
            type M = $mutex<P>;
            type C = Wakeful<P>;

            #[test]
            fn shuttle_signals() {
                shuttle("condvar, signals", 60, || bodies::signals::<P, M, C>(4, 2, true));
                shuttle("condvar, signals after", 60, || bodies::signals::<P, M, C>(4, 2, false));
            }

            #[test]
            fn shuttle_signals_to_sleepers() {
                shuttle("condvar, to sleepers", 60, || bodies::signals_to_sleepers::<P, M, C>(5, true));
                shuttle("condvar, to sleepers", 60, || bodies::signals_to_sleepers::<P, M, C>(5, false));
            }

            #[test]
            fn shuttle_broadcasts() {
                shuttle("condvar, broadcasts", 60, || bodies::broadcasts::<P, M, C>(4, 2, true));
                shuttle("condvar, broadcasts after", 60, || bodies::broadcasts::<P, M, C>(4, 2, false));
            }

            #[test]
            fn shuttle_timing() {
                shuttle("condvar, timing", 60, || bodies::timing::<P, M, C>(2, 3, PATIENCE_NS, true));
                shuttle("condvar, timing after", 60, || bodies::timing::<P, M, C>(2, 3, PATIENCE_NS, false));
            }

            #[test]
            fn shuttle_timing_out() {
                for settings in conformance::distinct(&hinted(&STEPS)) {
                    // Too sequential for PCT.
                    conformance::shuttle::explore(settings, Schedules::Random, 60, || {
                        bodies::timing_out::<P, M, C>(4, PATIENCE_NS)
                    });
                }
            }

            #[test]
            fn shuttle_no_stealing() {
                shuttle("condvar, no stealing", 60, || bodies::no_stealing::<P, M, C>(1, 1));
                shuttle("condvar, no stealing", 60, || bodies::no_stealing::<P, M, C>(3, 3));
            }

            #[test]
            fn shuttle_giving_up() {
                shuttle("condvar, abandoned", 60, || bodies::giving_up::<P, M, C>(3, false));
                shuttle("condvar, cancelled", 60, || bodies::giving_up::<P, M, C>(3, true));
            }

            #[test]
            fn shuttle_buffer() {
                shuttle("condvar, buffer", 60, || bodies::buffer::<P, M, C>(2, 3));
            }
        })*
    };
}

in_shuttle! {
    over_native: Native;
    over_wakeful: WakefulMutex;
}

#[test]
fn shuttle_many_gave_up() {
    shuttle("condvar, many gave up", 60, || {
        bodies::signals_of::<Shuttle, Native<Shuttle>, _>(in_state(1023 << 22), 3, 2, false)
    });
}
