// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checkers find what is broken.

use super::*;

fn shuttle_finds(what: &str, body: impl Fn() + Send + Sync + 'static) {
    conformance::shuttle::finds(PREEMPTED, what, body);
}

#[test]
fn the_checkers_find_twins() {
    loom_finds("a token added in two steps", adders::<Loom, AddsInTwoSteps<Loom>>);
    shuttle_finds("a token added in two steps", adders::<Shuttle, AddsInTwoSteps<Shuttle>>);
    loom_finds("forgotten sleepers", || supply::<Loom, ForgetsSleepers<Loom>>(2, 1));
    shuttle_finds("forgotten sleepers", || supply::<Shuttle, ForgetsSleepers<Shuttle>>(3, 1));
}

/// Two tokens, so that two threads add at once.
fn adders<M: conformance::Machine, S: RawSemaphore<M> + 'static>() {
    let semaphore = std::sync::Arc::new(S::new(2));
    let ours = semaphore.clone();
    let other = M::spawn(move || {
        ours.acquire(None);
        ours.release();
    });
    semaphore.acquire(None);
    semaphore.release();
    M::join(other);
    assert_eq!(semaphore.available(), 2);
}

#[test]
fn the_checkers_find_missing_orderings_and_wake_ups() {
    type A = Twisted<Loom, NoAcquire>;
    loom_finds("semaphore without acquire", || exclusion::<A, Wakeful<A>>(2, 1));
    type R = Twisted<Loom, NoRelease>;
    loom_finds("semaphore without release", || exclusion::<R, Wakeful<R>>(2, 1));
    type D = Twisted<Loom, Deaf>;
    loom_finds("deaf semaphore", || exclusion::<D, Wakeful<D>>(2, 2));
    type S = Twisted<Shuttle, Deaf>;
    shuttle_finds("deaf semaphore", || exclusion::<S, Wakeful<S>>(3, 2));
}
