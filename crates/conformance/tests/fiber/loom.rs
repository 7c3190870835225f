// SPDX-License-Identifier: MIT OR Apache-2.0
//! In loom.

use super::*;

#[test]
fn loom_stealing() {
    loom("deque, one thief", 3, || stealing::<Loom, Of<Loom>>(1, 3));
    loom("deque, an entry for each", 4, || stealing::<Loom, Of<Loom>>(1, 2));
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
    unfenced(|| loom("deque, its owner blocked", 4, stealing_from_the_blocked::<Loom, NONE>));
}

#[test]
fn loom_hearing() {
    loom("an event and its seat", 4, hearing::<Loom, NONE>);
    loom("an event and a carrier that comes back", 4, || coming_back::<Loom, NONE>(Then::Waits));
    loom("an event and a carrier that blocks again", 4, || coming_back::<Loom, NONE>(Then::Blocks));
    loom("an event and a carrier that lies down", 4, || coming_back::<Loom, NONE>(Then::Rests));
    loom("two sentinels and two calls", 2, calling::<Loom, NONE>);
}

#[test]
fn loom_visiting() {
    loom("a guest", 4, || visiting::<Loom, Guests<Loom>, NONE>(1));
    loom("two guests", 2, || visiting::<Loom, Guests<Loom>, NONE>(2));
}

#[test]
fn loom_posting() {
    loom("handlers that post", 2, || posting::<Loom, NONE>(false));
    loom("handlers that post at once", 2, || posting::<Loom, NONE>(true));
}

#[test]
fn loom_spreading() {
    loom("a fiber begins elsewhere", 4, leaving::<Loom, NONE>);
    loom("two fibers begin", 2, || spreading::<Loom, NONE>(0, 2));
    loom("a fiber has begun, two begin", 2, || spreading::<Loom, NONE>(1, 3));
}

#[test]
fn loom_moving() {
    loom("a task between two carriers", 3, || moving::<Loom, NONE>(1, false));
    loom("a task that waits", 3, || moving::<Loom, NONE>(2, true));
    loom("a bell, one ringer", 4, || ringing::<Loom, NONE>(1));
    loom("a bell, two ringers", 3, || ringing::<Loom, NONE>(2));
}

#[test]
fn loom_rounds() {
    loom("rounds that a sentinel ends", 4, rounds::<Loom, NONE>);
}

#[test]
fn loom_steering() {
    loom("a carrier that is steered", 4, || steering::<Loom, Steer<Loom>>(1, 2));
    loom("a carrier, one who steers it and one who does not", 3, || steering::<Loom, Steer<Loom>>(2, 2));
}

#[test]
fn loom_bolting() {
    loom("a bolt, two threads", 3, || bolting::<Loom, Bolt<Loom>>(2, 2));
    loom("a bolt, three threads", 2, || bolting::<Loom, Bolt<Loom>>(3, 1));
    loom("a condition, one waiter", 3, || notifying::<Loom, NONE>(1, false, false));
    loom("a condition, one waiter, signalled without the mutex", 3, || {
        notifying::<Loom, NONE>(1, false, true)
    });
    loom("a condition, two waiters", 2, || notifying::<Loom, NONE>(2, false, true));
    loom("a condition, two waiters at once", 2, || notifying::<Loom, NONE>(2, true, true));
}
