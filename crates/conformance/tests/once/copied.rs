// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words that a fork copied, with threads of the parent on them that are not here.

use super::*;

/// One whose word a parent of this process wrote: a thread that is not here (number 5) initialises, and
/// others sleep.
fn copied<P: Platform>(word: u32) -> Wakeful<P> {
    const { assert!(size_of::<Wakeful<P>>() == size_of::<P::AtomicU32>()) };
    let word = std::mem::ManuallyDrop::new(<P::AtomicU32 as Atomic<u32>>::new(word));
    // SAFETY: `Wakeful` is transparent over its word.
    unsafe { std::ptr::from_ref(&word).cast::<Wakeful<P>>().read() }
}

const RUNNING: u32 = 1 | 2 << 3 | 5 << 8;

const SLEEPERS: u32 = 4;

#[test]
fn copied_by_fork() {
    for word in [RUNNING, RUNNING | SLEEPERS] {
        for settings in conformance::distinct(&hinted(&STEPS)) {
            let settings = Settings { generation: 3, ..settings };
            let bounds = Bounds { preemptions: 2, executions: 200 };
            conformance::loom::explore("once, copied", settings, bounds, move || {
                once_of::<Loom, _>(copied::<Loom>(word), 3, 0)
            });
            conformance::shuttle::explore(settings, Schedules::Random, 50, move || {
                once_of::<Shuttle, _>(copied::<Shuttle>(word), 5, 2)
            });
        }
    }
}
