// SPDX-License-Identifier: MIT OR Apache-2.0
//! Broadcasts whose wake-ups are passed on from one sleeper to the next.

use super::*;
use std::sync::Arc;

/// Each broadcast wakes one, and that one the next.
pub(super) struct Chain<P: Platform>(Wakeful<P>);

impl<P: Platform> Condvar<P> for Chain<P> {
    fn new() -> Self {
        Self(Wakeful::new())
    }
    fn enter(&self) -> Waiter {
        self.0.enter()
    }
    fn wait(&self, waiter: Waiter, deadline: Option<Deadline>) -> bool {
        self.0.wait(waiter, deadline)
    }
    fn abandon(&self, waiter: Waiter) {
        self.0.abandon(waiter);
    }
    fn cancel(&self, waiter: Waiter) -> bool {
        Condvar::cancel(&self.0, waiter)
    }
    fn signal(&self) {
        self.0.signal();
    }
    fn broadcast(&self) {
        self.0.broadcast(1);
    }
}

/// So many wait. One is woken by a signal before, and may pass on while the broadcast is under way.
fn reaches_all<M: Machine>(waiters: u32, signals: u32) {
    let condvar = Arc::new(Wakeful::<M>::new());
    let all: Vec<_> = (0..waiters)
        .map(|_| {
            let (theirs, waiter) = (condvar.clone(), condvar.enter());
            M::spawn(move || assert!(theirs.wait(waiter, None)))
        })
        .collect();
    (0..signals).for_each(|_| condvar.signal());
    condvar.broadcast(1);
    all.into_iter().for_each(M::join);
}

/// Somebody who was woken before passes on while the chain is made.
fn meets_one_in_flight<M: Machine>() {
    let condvar = Arc::new(in_state::<M>(1 << 5));
    let all: Vec<_> = (0..2)
        .map(|_| {
            let (theirs, waiter) = (condvar.clone(), condvar.enter());
            M::spawn(move || assert!(theirs.wait(waiter, None)))
        })
        .collect();
    let theirs = condvar.clone();
    let woken = M::spawn(move || {
        theirs.slept(&mut Wakeful::<M>::new().enter(), Wait::Woken);
    });
    condvar.broadcast(1);
    all.into_iter().chain([woken]).for_each(M::join);
}

/// The one that is woken first is cancelled: all the others are awake all the same.
fn goes_on_after_a_cancelled_one<M: Machine>() {
    let condvar = Arc::new(Wakeful::<M>::new());
    let all: Vec<_> = (0..2)
        .map(|index| {
            let (theirs, waiter) = (condvar.clone(), condvar.enter());
            M::spawn(move || {
                if index == 0 {
                    Condvar::cancel(&*theirs, waiter);
                } else {
                    assert!(theirs.wait(waiter, None));
                }
            })
        })
        .collect();
    condvar.broadcast(1);
    all.into_iter().for_each(M::join);
}

/// A later waiter, who comes while the broadcast counts, sleeps before one who is to be woken. It does not
/// take that one's link.
fn reaches_who_sleeps_late<M: Machine>() {
    let condvar = Arc::new(Wakeful::<M>::new());
    let wait = |waiter| {
        let theirs = condvar.clone();
        M::spawn(move || assert!(theirs.wait(waiter, None)))
    };
    let (first, second) = (condvar.enter(), condvar.enter());
    let theirs = condvar.clone();
    let broadcaster = M::spawn(move || theirs.broadcast(1));
    let first = wait(first);
    let later = wait(condvar.enter());
    let second = wait(second);
    M::join(broadcaster);
    M::join(first);
    // Here the test hangs if the later one was woken instead.
    M::join(second);
    // Nobody promised the later one anything until now.
    condvar.signal();
    M::join(later);
}

/// Where a chain would be short, where there is no room for it, or where nobody knows how long it is, all are
/// woken at once.
fn has_room_or_is_none<M: Machine>() {
    for (state, first, owed, pending) in [
        (3 << 22, 1, 1, 2),
        (2 << 22 | 1 << 13, 1, 1, 2),
        (512 << 22, 1, 1, 511),
        (513 << 22, 1, u32::MAX, 0),
        (513 << 22, 2, 2, 511),
        (1023 << 22, 1, u32::MAX, 0),
        (3 << 22, 3, u32::MAX, 0),
        (7 << 22, 4, u32::MAX, 0),
        (8 << 22, 4, 4, 4),
        (1 << 13, 1, u32::MAX, 0),
        (4 << 5, 1, 0, 0),
    ] {
        let condvar = in_state::<M>(state);
        assert_eq!(condvar.take_all(first), owed, "{state:x}, {first}");
        let left = in_words(&condvar);
        assert_eq!(left, [7 + u32::from(owed != 0), pending << 13], "{state:x}, {first}");
    }
}

/// All whom it counts have left by themselves: nothing stays pending, and not a call for each of them.
fn ends_where_nobody_sleeps<M: Machine>() {
    for (state, changes) in [(1 << 5 | 5 << 13, 2), (5 << 13, 0)] {
        let condvar = in_state::<M>(state);
        condvar.slept(&mut Wakeful::<M>::new().enter(), Wait::Woken);
        assert_eq!(in_words(&condvar), [7 + changes, 0], "{state:x}");
    }
    let condvar = in_state::<M>(5 << 22);
    condvar.broadcast(1);
    assert_eq!(in_words(&condvar), [8, 0]);
}

/// `sequence` and `state`.
fn in_words<P: Platform>(condvar: &Wakeful<P>) -> [u32; 2] {
    // SAFETY: `Wakeful` has two words.
    let words = unsafe { &*std::ptr::from_ref(condvar).cast::<[P::AtomicU32; 2]>() };
    [words[0].load(Relaxed), words[1].load(Relaxed)]
}

const ASLEEP: Settings =
    Settings { hints: Hints::Always(RunState::Preempted), clock_step_ns: 1_000_000, generation: 0 };

#[test]
fn loom_chain() {
    type M = Native<Loom>;
    loom("condvar, chain", 2, 300, || bodies::broadcasts::<Loom, M, Chain<Loom>>(2, 1, true));
    loom("condvar, chain after", 2, 300, || bodies::broadcasts::<Loom, M, Chain<Loom>>(2, 1, false));
    let bounds = Bounds { preemptions: 3, executions: 20_000 };
    conformance::loom::explore("condvar, chain of three", ASLEEP, bounds, || reaches_all::<Loom>(3, 0));
    conformance::loom::explore("condvar, chain and signal", ASLEEP, bounds, || reaches_all::<Loom>(2, 1));
    conformance::loom::explore("condvar, chain, in flight", ASLEEP, bounds, meets_one_in_flight::<Loom>);
    conformance::loom::explore(
        "condvar, chain, cancel",
        ASLEEP,
        bounds,
        goes_on_after_a_cancelled_one::<Loom>,
    );
    conformance::loom::explore(
        "condvar, chain, sleeps late",
        ASLEEP,
        bounds,
        reaches_who_sleeps_late::<Loom>,
    );
    conformance::loom::explore("condvar, chain, room", ASLEEP, bounds, has_room_or_is_none::<Loom>);
    conformance::loom::explore("condvar, chain of none", ASLEEP, bounds, ends_where_nobody_sleeps::<Loom>);
}

#[test]
fn shuttle_chain() {
    type P = Shuttle;
    type M = WakefulMutex<Shuttle>;
    shuttle("condvar, chain", 60, || bodies::broadcasts::<P, M, Chain<P>>(5, 3, true));
    shuttle("condvar, chain after", 60, || bodies::broadcasts::<P, M, Chain<P>>(5, 3, false));
    shuttle("condvar, chain, signals", 60, || bodies::signals::<P, M, Chain<P>>(4, 2, true));
    shuttle("condvar, chain, no stealing", 60, || bodies::no_stealing::<P, M, Chain<P>>(3, 3));
    shuttle("condvar, chain, cancelled", 60, || bodies::giving_up::<P, M, Chain<P>>(3, true));
    let bodies = [
        || reaches_all::<P>(6, 0),
        || reaches_all::<P>(5, 2),
        meets_one_in_flight::<P>,
        reaches_who_sleeps_late::<P>,
    ];
    for body in bodies {
        conformance::shuttle::explore(ASLEEP, Schedules::Random, 5_000, body);
    }
}
