// SPDX-License-Identifier: MIT OR Apache-2.0
//! A signal to a lone sleeper, or a broadcast, that is delivered when the mutex is released (S5, S6), as
//! the interposer does it.

use super::*;

struct AtRelease<P: Platform, const FIRST: u32 = { u32::MAX }>(Wakeful<P>, P::AtomicU32);

impl<P: Platform, const FIRST: u32> Condvar<P> for AtRelease<P, FIRST> {
    fn new() -> Self {
        Self(Wakeful::new(), P::AtomicU32::new(0))
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
    /// The mutex has just been released.
    fn signal(&self) {
        if self.0.has_lone_sleeper() && self.0.take_lone_sleeper() {
            P::wake(self.0.word(), 1);
        } else {
            self.0.signal();
        }
    }
    fn broadcast(&self) {
        let owed = if self.0.has_sleepers() { self.0.take_all(FIRST) } else { 0 };
        if owed != 0 {
            self.1.swap(owed, Relaxed);
        } else {
            self.0.broadcast(FIRST);
        }
    }
    fn released(&self) {
        let owed = self.1.swap(0, Relaxed);
        if owed != 0 {
            P::wake(self.0.word(), owed);
        }
    }
}

#[test]
fn loom_at_release() {
    type C = AtRelease<Loom>;
    type M = Native<Loom>;
    loom("condvar, at release", 2, 300, || bodies::signals::<Loom, M, C>(1, 2, false));
    loom("condvar, at release, two", 2, 300, || bodies::signals_to_sleepers::<Loom, M, C>(2, false));
    loom("condvar, at release, broadcast", 2, 300, || bodies::broadcasts::<Loom, M, C>(2, 2, true));
    loom("condvar, chain at release", 2, 300, || {
        bodies::broadcasts::<Loom, M, AtRelease<Loom, 1>>(2, 2, true)
    });
    loom("condvar, at release, no stealing", 2, 300, || bodies::no_stealing::<Loom, M, C>(1, 1));
    loom("condvar, at release, timing", 2, 300, || bodies::timing::<Loom, M, C>(1, 1, PATIENCE_NS, false));
}

#[test]
fn shuttle_at_release() {
    type C = AtRelease<Shuttle>;
    type M = WakefulMutex<Shuttle>;
    shuttle("condvar, at release", 60, || bodies::signals::<Shuttle, M, C>(4, 2, false));
    shuttle("condvar, at release", 60, || bodies::signals_to_sleepers::<Shuttle, M, C>(5, false));
    shuttle("condvar, at release, broadcast", 60, || bodies::broadcasts::<Shuttle, M, C>(5, 3, true));
    shuttle("condvar, chain at release", 60, || {
        bodies::broadcasts::<Shuttle, M, AtRelease<Shuttle, 1>>(5, 3, true)
    });
    shuttle("condvar, at release, timing", 60, || bodies::timing::<Shuttle, M, C>(2, 3, PATIENCE_NS, false));
    shuttle("condvar, at release, no stealing", 60, || bodies::no_stealing::<Shuttle, M, C>(3, 3));
    shuttle("condvar, at release, cancelled", 60, || bodies::giving_up::<Shuttle, M, C>(3, true));
    shuttle("condvar, at release, buffer", 60, || bodies::buffer::<Shuttle, M, C>(2, 3));
}
