// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words that a fork copied, with threads of the parent on them that are not here.

use super::*;

/// One whose words a parent of this process wrote, with threads on it that are not here.
fn copied<P: Platform>(state: u32, crowd: u32) -> Wakeful<P> {
    const { assert!(size_of::<Wakeful<P>>() == 2 * size_of::<P::AtomicU32>()) };
    let words =
        [state, crowd].map(|word| std::mem::ManuallyDrop::new(<P::AtomicU32 as Atomic<u32>>::new(word)));
    // SAFETY: `Wakeful` is two words; a test below fails if they change places.
    unsafe { std::ptr::from_ref(&words).cast::<Wakeful<P>>().read() }
}

/// As [`exclusion`], with a copy.
struct Copy<P: Platform, const STATE: u32, const CROWD: u32>(Wakeful<P>);

impl<P: Platform, const STATE: u32, const CROWD: u32> RawSemaphore<P> for Copy<P, STATE, CROWD> {
    fn new(tokens: u32) -> Self {
        let copy = copied::<P>(STATE, CROWD);
        assert_eq!(copy.available(), 0);
        (0..tokens).for_each(|_| assert!(copy.release()));
        Self(copy)
    }
    fn acquire(&self, deadline: Option<platform::Deadline>) -> bool {
        self.0.acquire(deadline)
    }
    fn try_acquire(&self) -> bool {
        self.0.try_acquire()
    }
    fn release(&self) -> bool {
        self.0.release()
    }
    fn available(&self) -> u32 {
        self.0.available()
    }
}

/// STANDBY, SLEEPERS, generation 2 and two sleepers of it.
const STANDBY: u32 = 1;

const SLEEPERS: u32 = 2;

const CROWD: u32 = 2 << 16 | 2;

#[test]
fn copied_by_fork() {
    fn check<P: conformance::Machine>(explore: impl Fn(Settings, fn())) {
        for settings in conformance::distinct(&hinted(&STEPS)) {
            let settings = Settings { generation: 3, ..settings };
            explore(settings, || exclusion::<P, Copy<P, STANDBY, CROWD>>(3, 1));
            explore(settings, || exclusion::<P, Copy<P, { STANDBY | SLEEPERS }, CROWD>>(3, 1));
            explore(settings, || supply::<P, Copy<P, { STANDBY | SLEEPERS }, CROWD>>(2, 1));
        }
    }
    check::<Loom>(|settings, body| {
        let bounds = Bounds { preemptions: 2, executions: 200 };
        conformance::loom::explore("semaphore, copied", settings, bounds, body);
    });
    check::<Shuttle>(|settings, body| {
        conformance::shuttle::explore(settings, Schedules::Random, 100, body);
    });
}
