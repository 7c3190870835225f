// SPDX-License-Identifier: MIT OR Apache-2.0
//! In loom.

use super::*;
type P = Loom;
type M = Native<P>;
type C = Wakeful<P>;

#[test]
fn loom_signals() {
    loom("condvar, signals", 2, 300, || bodies::signals::<P, M, C>(2, 1, true));
    loom("condvar, signals after", 2, 300, || bodies::signals::<P, M, C>(2, 1, false));
}

#[test]
fn loom_signals_again() {
    loom("condvar, signals again", 2, 300, || bodies::signals::<P, M, C>(1, 2, true));
}

#[test]
fn loom_signals_to_sleepers() {
    loom("condvar, to sleepers", 2, 300, || bodies::signals_to_sleepers::<P, M, C>(2, false));
}

#[test]
fn loom_broadcasts() {
    loom("condvar, broadcasts", 2, 300, || bodies::broadcasts::<P, M, C>(2, 1, true));
    loom("condvar, broadcasts after", 2, 300, || bodies::broadcasts::<P, M, C>(2, 1, false));
}

#[test]
fn loom_timing() {
    loom("condvar, timing", 2, 300, || bodies::timing::<P, M, C>(1, 1, PATIENCE_NS, true));
    loom("condvar, timing after", 2, 300, || bodies::timing::<P, M, C>(1, 1, PATIENCE_NS, false));
}

#[test]
fn loom_timing_out() {
    loom("condvar, timing out", 2, 300, || bodies::timing_out::<P, M, C>(2, PATIENCE_NS));
}

#[test]
fn loom_no_stealing() {
    loom("condvar, no stealing", 2, 300, || bodies::no_stealing::<P, M, C>(1, 1));
}

#[test]
fn loom_giving_up() {
    loom("condvar, abandoned", 2, 300, || bodies::giving_up::<P, M, C>(1, false));
    loom("condvar, cancelled", 2, 300, || bodies::giving_up::<P, M, C>(1, true));
}

/// So many have given up waiting that the count of sleepers is full, or will be with the next: a waiter
/// that comes while a signal finds nobody asleep is not taken for one of those.
#[test]
fn loom_many_gave_up() {
    loom("condvar, many gave up", 2, 100, || {
        bodies::signals_of::<Loom, Native<Loom>, _>(in_state(1023 << 22), 1, 2, false)
    });
    loom("condvar, nearly many gave up", 2, 100, || {
        bodies::signals_of::<Loom, Native<Loom>, _>(in_state(1022 << 22), 1, 2, false)
    });
}
