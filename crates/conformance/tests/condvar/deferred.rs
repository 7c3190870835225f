// SPDX-License-Identifier: MIT OR Apache-2.0
//! A signal that is left to a woken thread on its way, and meant for a waiter that does not sleep yet; a
//! later waiter sleeps before that one. It must not take the signal.

use super::*;
use platform::AtomicInt;
use std::sync::Arc;
use sync::mutex::RawMutex;

fn stays<M: Machine>() {
    let condvar = Arc::new(in_state::<M>(4 << 5));
    // Says when the late one may stop; the mutex orders this and its waits, as in any use.
    let go = Arc::new((Native::<M>::new(), M::AtomicU32::new(0)));
    let early = condvar.enter();
    // Two for each processor are in flight: left to them.
    condvar.signal();
    let (theirs, gone) = (condvar.clone(), go.clone());
    let late = M::spawn(move || {
        loop {
            // SAFETY: there is no node; released below.
            unsafe { gone.0.lock(&()) };
            let waiter = (gone.1.load(Relaxed) == 0).then(|| theirs.enter());
            // SAFETY: locked above.
            unsafe { gone.0.unlock(&()) };
            let Some(waiter) = waiter else { return };
            theirs.wait(waiter, None);
        }
    });
    // In loom the others run now until they can do no more.
    M::pause();
    let theirs = condvar.clone();
    let early = M::spawn(move || {
        theirs.wait(early, None);
    });
    M::pause();
    // One of those in flight comes by.
    condvar.slept(&mut Wakeful::<M>::new().enter(), Wait::Woken);
    M::join(early);
    // SAFETY: there is no node; released at once.
    unsafe { go.0.lock(&()) };
    go.1.fetch_add(1, Relaxed);
    // SAFETY: locked above.
    unsafe { go.0.unlock(&()) };
    condvar.broadcast(u32::MAX);
    M::join(late);
}

/// Two in flight are to pass two signals on and find nobody: then nobody is in flight, and the next
/// signal wakes by itself.
fn finds_nobody<M: Machine>() {
    let condvar = Arc::new(in_state::<M>(2 << 5 | 2 << 13));
    for _ in 0..2 {
        condvar.slept(&mut Wakeful::<M>::new().enter(), Wait::Woken);
    }
    let (theirs, waiter) = (condvar.clone(), condvar.enter());
    let sleeper = M::spawn(move || assert!(theirs.wait(waiter, None)));
    M::pause();
    condvar.signal();
    M::join(sleeper);
}

/// The sleeper was counted out by the signal; a broadcast wakes it all the same.
fn is_woken_by_a_broadcast<M: Machine>() {
    let condvar = Arc::new(in_state::<M>(4 << 5));
    let (theirs, waiter) = (condvar.clone(), condvar.enter());
    let sleeper = M::spawn(move || assert!(theirs.wait(waiter, None)));
    M::pause();
    condvar.signal();
    condvar.broadcast(u32::MAX);
    M::join(sleeper);
}

/// Two are counted who gave up. A signal finds nobody asleep, and is late to say so: another one and a new
/// waiter make the state what it was.
fn signal_is_late<M: Machine>() {
    let condvar = Arc::new(in_state::<M>(2 << 22 | 1 << 10));
    let theirs = condvar.clone();
    let late = M::spawn(move || theirs.signal());
    condvar.signal();
    let (theirs, waiter) = (condvar.clone(), condvar.enter());
    let sleeper = M::spawn(move || assert!(theirs.wait(waiter, None)));
    M::join(late);
    condvar.signal();
    M::join(sleeper);
}

fn settings() -> Settings {
    Settings { hints: Hints::Always(RunState::Preempted), clock_step_ns: 1_000_000, ..Settings::default() }
}

#[test]
fn loom_deferred() {
    let bounds = Bounds { preemptions: 2, executions: 2_000 };
    conformance::loom::explore("condvar, deferred", settings(), bounds, stays::<Loom>);
    conformance::loom::explore("condvar, deferred to nobody", settings(), bounds, finds_nobody::<Loom>);
    conformance::loom::explore(
        "condvar, deferred, broadcast",
        settings(),
        bounds,
        is_woken_by_a_broadcast::<Loom>,
    );
}

#[test]
fn loom_late() {
    let bounds = Bounds { preemptions: 2, executions: 20_000 };
    conformance::loom::explore("condvar, signal late", settings(), bounds, signal_is_late::<Loom>);
}

#[test]
fn shuttle_deferred() {
    let bodies = [
        stays::<Shuttle>,
        finds_nobody::<Shuttle>,
        is_woken_by_a_broadcast::<Shuttle>,
        signal_is_late::<Shuttle>,
    ];
    for body in bodies {
        conformance::shuttle::explore(settings(), Schedules::Random, 2_000, body);
    }
}
