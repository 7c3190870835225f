// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of the fibers that threads share, on this computer, in loom and in shuttle; and the checkers
//! find
//! what is broken.

use conformance::fiber::*;
use conformance::loom::{Bounds, Loom};
use conformance::shuttle::{Schedules, Shuttle};
use conformance::{Machine, Settings, further, long};
use fiber::deque::Deque;
use fiber::token::Token;
use linux::Linux;

type Of<M> = Deque<M, <M as Machine>::Cell, 4>;

fn loom(name: &str, preemptions: usize, body: fn()) {
    let bounds = Bounds { preemptions: preemptions + long() as usize, executions: 10_000 * further() };
    let ran = conformance::loom::explore(name, Settings::default(), bounds, body);
    eprintln!("loom: {name}: {ran} executions");
}

fn shuttle(body: fn()) {
    for schedules in [Schedules::Random, Schedules::Pct(3)] {
        conformance::shuttle::explore(Settings::default(), schedules, 2_000 * further(), body);
    }
}

#[test]
fn threads() {
    for _ in 0..2_000 * further() {
        stealing::<Linux, Of<Linux>>(3, 40);
        parking::<Linux, Token<Linux>>(4);
        parking_and_waiting::<Linux, Token<Linux>>(3);
        ending::<Linux, 0>(true);
        ending::<Linux, 0>(false);
    }
    for _ in 0..500 * further() {
        seats::<Linux, NONE>(4, 2, 50);
        hearing::<Linux, NONE>();
        calling::<Linux, NONE>();
    }
}

#[test]
fn loom_stealing() {
    loom("deque, one thief", 3, || stealing::<Loom, Of<Loom>>(1, 3));
    loom("deque, two thieves", 2, || stealing::<Loom, Of<Loom>>(2, 2));
    loom("deque, full", 2, || stealing::<Loom, Of<Loom>>(1, 5));
}

#[test]
fn loom_parking() {
    loom("token, one giver", 3, || parking::<Loom, Token<Loom>>(1));
    loom("token, two givers", 3, || parking::<Loom, Token<Loom>>(2));
    loom("token, a waker and an unparker", 3, || parking_and_waiting::<Loom, Token<Loom>>(1));
    loom("token, a waker and two unparkers", 2, || parking_and_waiting::<Loom, Token<Loom>>(2));
}

#[test]
fn loom_ending() {
    loom("end, joined", 4, || ending::<Loom, 0>(true));
    loom("end, dropped", 4, || ending::<Loom, 0>(false));
}

#[test]
fn loom_seats() {
    loom("seats, one carrier", 3, || seats::<Loom, NONE>(1, 1, 2));
    loom("seats, two carriers", 2, || seats::<Loom, NONE>(2, 1, 2));
}

#[test]
fn loom_stealing_from_the_blocked() {
    unfenced(|| {
        loom("deque, its owner blocked", 4, stealing_from_the_blocked::<Loom, NONE>);
        let finds = |what: &str, body: fn()| conformance::loom::finds(Settings::default(), what, body);
        finds("an owner that comes back without a fence", stealing_from_the_blocked::<Loom, 1>);
        finds("a thief that has looked before", stealing_from_the_blocked::<Loom, 2>);
    });
}

#[test]
fn loom_hearing() {
    loom("an event and its seat", 4, hearing::<Loom, NONE>);
    loom("two sentinels and two calls", 2, calling::<Loom, NONE>);
}

#[test]
fn shuttle_all() {
    shuttle(hearing::<Shuttle, NONE>);
    shuttle(calling::<Shuttle, NONE>);
    shuttle(|| stealing::<Shuttle, Of<Shuttle>>(3, 8));
    shuttle(|| parking::<Shuttle, Token<Shuttle>>(4));
    shuttle(|| parking_and_waiting::<Shuttle, Token<Shuttle>>(3));
    shuttle(|| ending::<Shuttle, 0>(true));
    shuttle(|| ending::<Shuttle, 0>(false));
    shuttle(|| seats::<Shuttle, NONE>(3, 2, 4));
}

#[test]
fn loom_finds_the_broken() {
    let finds = |what: &str, body: fn()| conformance::loom::finds(Settings::default(), what, body);
    unfenced(|| {
        finds("a deque without fences", || stealing::<Loom, Of<Loom>>(1, 2));
        finds("seats without fences", || seats::<Loom, NONE>(1, 1, 2));
    });
    finds("a thief that looks first", || stealing::<Loom, LooksFirst<Loom, <Loom as Machine>::Cell>>(1, 2));
    finds("a token taken by a store", || parking::<Loom, BrokenToken<Loom, 1>>(2));
    finds("a context that is not published", || parking::<Loom, BrokenToken<Loom, 2>>(1));
    finds("a token parked by a store", || parking::<Loom, BrokenToken<Loom, 3>>(1));
    finds("one token for two kinds of wait", || parking_and_waiting::<Loom, BrokenToken<Loom, 4>>(1));
    finds("an unpark that is told late", || parking_and_waiting::<Loom, BrokenToken<Loom, 5>>(1));
    finds("an unpark taken by a store", || parking_and_waiting::<Loom, BrokenToken<Loom, 6>>(2));
    finds("an end that nobody hears of", || ending::<Loom, 1>(true));
    finds("a handle dropped by a look", || ending::<Loom, 2>(false));
    finds("an upcall delivered twice", || seats::<Loom, TWICE>(1, 1, 2));
    finds("a carrier that does not look again", || seats::<Loom, BLIND>(1, 1, 2));
    finds("an upcall lost", || seats::<Loom, FORGOTTEN>(1, 1, 2));
    finds("a carrier silenced with a seat", hearing::<Loom, DEAF>);
    finds("a block while it was silenced", hearing::<Loom, HASTY>);
    finds("an event enabled before there is a seat", hearing::<Loom, EARLY>);
    finds("a call that the other sentinel keeps", calling::<Loom, SELFISH>);
}

#[test]
fn shuttle_finds_the_broken() {
    let finds = |what: &str, body: fn()| conformance::shuttle::finds(Settings::default(), what, body);
    finds("a token parked by a store", || parking::<Shuttle, BrokenToken<Shuttle, 3>>(2));
    finds("one token for two kinds of wait", || parking_and_waiting::<Shuttle, BrokenToken<Shuttle, 4>>(1));
    finds("an unpark that is told late", || parking_and_waiting::<Shuttle, BrokenToken<Shuttle, 5>>(1));
    finds("an end that nobody hears of", || ending::<Shuttle, 1>(true));
    finds("a handle dropped by a look", || ending::<Shuttle, 2>(false));
    finds("an upcall delivered twice", || seats::<Shuttle, TWICE>(2, 1, 3));
    finds("a carrier that does not look again", || seats::<Shuttle, BLIND>(2, 1, 3));
    finds("an upcall lost", || seats::<Shuttle, FORGOTTEN>(2, 1, 3));
    finds("pinned work without a seat", || seats::<Shuttle, HOSTAGE>(2, 1, 5));
    finds("a carrier silenced with a seat", hearing::<Shuttle, DEAF>);
    finds("a block while it was silenced", hearing::<Shuttle, HASTY>);
    finds("an event enabled before there is a seat", hearing::<Shuttle, EARLY>);
    finds("a call that the other sentinel keeps", calling::<Shuttle, SELFISH>);
}
