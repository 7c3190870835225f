// SPDX-License-Identifier: MIT OR Apache-2.0
//! On this computer.

use super::*;
type P = Linux;
type M = WakefulMutex<P>;
type C = Wakeful<P>;

fn rounds() -> u32 {
    if long() { 20_000 } else { 500 }
}

#[test]
fn signals() {
    bodies::signals::<P, M, C>(31, rounds(), true);
    bodies::signals::<P, M, C>(31, rounds(), false);
}

#[test]
fn broadcasts() {
    bodies::broadcasts::<P, M, C>(31, rounds(), true);
    bodies::broadcasts::<P, M, C>(31, rounds(), false);
}

#[test]
fn timing() {
    for round in 0..rounds() / 10 {
        bodies::timing::<P, M, C>(4, 4, u64::from(round) * 1_000, round % 2 == 0);
    }
}

#[test]
fn no_stealing() {
    (0..rounds() / 10).for_each(|_| bodies::no_stealing::<P, M, C>(3, 3));
}

#[test]
fn giving_up() {
    (0..rounds() / 10).for_each(|_| bodies::giving_up::<P, M, C>(3, false));
    (0..rounds() / 10).for_each(|_| bodies::giving_up::<P, M, C>(3, true));
}

#[test]
fn buffer() {
    bodies::buffer::<P, M, C>(16, rounds());
}

/// Processor time of the calling thread: being preempted takes none.
fn used_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live struct.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Waits that nobody ends but their deadline: one of them may try to stand by, the others sleep at once.
#[test]
fn waits_that_time_out_do_not_poll() {
    let condvar = Wakeful::<Linux>::new();
    let polls = |_: &u32| {
        let mut waiter = condvar.enter();
        let began = used_ns();
        assert!(matches!(condvar.step(&mut waiter, None), Step::Sleep(_)));
        let took = used_ns() - began;
        condvar.slept(&mut waiter, Wait::TimedOut);
        took > 20_000
    };
    // Being interrupted looks the same, now and then.
    let polled = (0..700).filter(polls).count();
    assert!(polled < 50, "{polled} of 700 waits polled");
}
