// SPDX-License-Identifier: MIT OR Apache-2.0
//! The default, further than the others: every hint at clocks of several speeds (each phase that ends by
//! the clock lasts one look or many), upgrades, recursion, and who gets in at all.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::*;
use conformance::threads::{this_thread, until_it_waits};
use platform::{Atomic, Platform};
use sync::rwlock::{Native, RawRwLock, Wakeful};

/// COST: ns a look; the longest phase of the algorithm is 500 us, the shortest 100 ns.
const STEPS: [u64; 3] = [700, 15_000, 1_000_000];

fn loom(what: &str, preemptions: usize, executions: usize, body: fn()) {
    conformance::loom::explore_all(
        &format!("rw-wakeful, {what}"),
        &hinted(&STEPS),
        preemptions,
        executions,
        body,
    );
}

fn shuttle(what: &str, count: usize, body: fn()) {
    let schedules = &[Schedules::Random, Schedules::Pct(2), Schedules::Pct(5)];
    conformance::shuttle::explore_all(
        &format!("rw-wakeful, {what}"),
        &hinted(&STEPS),
        schedules,
        count,
        body,
    );
}

#[test]
fn loom_exclusion() {
    loom("exclusion", 2, 500, || bodies::exclusion::<Loom, Wakeful<Loom>>(3, 2));
}

/// Readers meet, and no longer count themselves.
#[test]
fn loom_bias() {
    loom("bias", 2, 1_000, || bodies::one_writer::<Loom, Wakeful<Loom>>(3, 2));
}

#[test]
fn loom_bias_pair() {
    loom("bias, two", 3, 1_000, || bodies::aside_pair::<Loom, Wakeful<Loom>>(false));
    loom("bias, two, one tries", 3, 1_000, || bodies::aside_pair::<Loom, Wakeful<Loom>>(true));
}

#[test]
fn loom_bias_recursion() {
    loom("bias and recursion", 2, 500, || bodies::aside::<Loom, Wakeful<Loom>>(2));
}

#[test]
fn loom_bias_again() {
    let all: [fn(); 5] = [
        || bodies::aside_again::<Loom, Wakeful<Loom>>(bodies::Waits::Writer),
        || bodies::aside_again::<Loom, Wakeful<Loom>>(bodies::Waits::Until),
        || bodies::aside_again::<Loom, Wakeful<Loom>>(bodies::Waits::Tries),
        || bodies::aside_again::<Loom, Wakeful<Loom>>(bodies::Waits::Upgrades),
        || bodies::aside_again::<Loom, Wakeful<Loom>>(bodies::Waits::UpgradesUntil),
    ];
    all.into_iter().for_each(|body| loom("bias and recursion, again", 2, 200, body));
}

#[test]
fn shuttle_bias_again() {
    let all: [fn(); 5] = [
        || bodies::aside_again::<Shuttle, Wakeful<Shuttle>>(bodies::Waits::Writer),
        || bodies::aside_again::<Shuttle, Wakeful<Shuttle>>(bodies::Waits::Until),
        || bodies::aside_again::<Shuttle, Wakeful<Shuttle>>(bodies::Waits::Tries),
        || bodies::aside_again::<Shuttle, Wakeful<Shuttle>>(bodies::Waits::Upgrades),
        || bodies::aside_again::<Shuttle, Wakeful<Shuttle>>(bodies::Waits::UpgradesUntil),
    ];
    all.into_iter().for_each(|body| shuttle("bias and recursion, again", 50, body));
}

/// The words as a fork copies them: a front of the parent's, of generation 2, has `line`, which is not
/// here; and the word's bits.
fn copied<P: Platform>(state: u32) -> Wakeful<P> {
    const { assert!(size_of::<Wakeful<P>>() == 5 * size_of::<P::AtomicU32>()) };
    let words = [state, 0, 1 << 15 | 2 << 12 | 5, 5 << platform::STAMP_SHIFT | 1, 0];
    let words = words.map(|word| std::mem::ManuallyDrop::new(<P::AtomicU32 as Atomic<u32>>::new(word)));
    // SAFETY: `Wakeful` is `repr(C)`: `state`, `owner`, `front`, `line`, `last`.
    unsafe { std::ptr::from_ref(&words).cast::<Wakeful<P>>().read() }
}

/// DEMAND, SLEEPER and URGENT.
const DEMANDED: u32 = 1 << 2 | 1 << 3 | 1 << 5;

#[test]
fn copied_by_fork() {
    for settings in conformance::distinct(&hinted(&STEPS)) {
        let settings = Settings { generation: 3, ..settings };
        let bounds = Bounds { preemptions: 2, executions: 200 * further() };
        for state in [0, DEMANDED] {
            let body = move || bodies::exclusion_of::<Loom, _>(copied::<Loom>(state), 2, 1);
            conformance::loom::explore("rw-wakeful, copied", settings, bounds, body);
            let body = move || bodies::exclusion_of::<Shuttle, _>(copied::<Shuttle>(state), 4, 2);
            conformance::shuttle::explore(settings, Schedules::Random, 50 * further(), body);
        }
        let body = || bodies::upgrading_beside::<Loom, _>(copied::<Loom>(0));
        conformance::loom::explore("rw-wakeful, copied, upgrading", settings, bounds, body);
        let body = || bodies::upgrading_beside::<Shuttle, _>(copied::<Shuttle>(0));
        conformance::shuttle::explore(settings, Schedules::Random, 50 * further(), body);
    }
}

#[test]
fn loom_bias_after_a_writer() {
    loom("bias after a writer", 2, 500, bodies::aside_after_a_writer::<Loom, Wakeful<Loom>>);
}

#[test]
fn loom_bias_leaving_elsewhere() {
    loom("bias, leaving beside a reader", 2, 500, || bodies::leaving_elsewhere::<Loom, Wakeful<Loom>>(0, 1));
    loom("bias, leaving beside a writer", 2, 500, || bodies::leaving_elsewhere::<Loom, Wakeful<Loom>>(1, 0));
}

#[test]
fn shuttle_bias() {
    shuttle("bias", 100, || bodies::one_writer::<Shuttle, Wakeful<Shuttle>>(5, 4));
    shuttle("bias and recursion", 50, || bodies::aside::<Shuttle, Wakeful<Shuttle>>(4));
    shuttle("bias, leaving elsewhere", 50, || bodies::leaving_elsewhere::<Shuttle, Wakeful<Shuttle>>(1, 2));
}

#[test]
fn aside() {
    for _ in 0..if long() { 2_000 } else { 100 } {
        bodies::aside::<Linux, Wakeful<Linux>>(4);
        bodies::leaving_elsewhere::<Linux, Wakeful<Linux>>(2, 4);
    }
}

#[test]
fn loom_upgrading() {
    loom("upgrading", 2, 500, || bodies::upgrading::<Loom, Wakeful<Loom>>(3, 1, 2_000_000));
}

#[test]
fn loom_recursion() {
    loom("recursion", 2, 500, || bodies::recursion::<Loom, Wakeful<Loom>>(1, 1));
}

#[test]
fn loom_sharing_again() {
    loom("sharing again", 2, 500, || bodies::sharing_again::<Loom, Wakeful<Loom>>(1, 2));
}

#[test]
fn loom_timing_again() {
    loom("timing again", 2, 300, || bodies::timing_again::<Loom, Wakeful<Loom>>(2, 2, 2_000_000));
}

#[test]
fn loom_timing() {
    loom("timing", 2, 300, || bodies::timing::<Loom, Wakeful<Loom>>(3, 2, 2_000_000));
}

#[test]
fn shuttle_exclusion() {
    shuttle("exclusion", 100, || bodies::exclusion::<Shuttle, Wakeful<Shuttle>>(5, 4));
}

#[test]
fn shuttle_upgrading() {
    shuttle("upgrading", 100, || bodies::upgrading::<Shuttle, Wakeful<Shuttle>>(5, 3, 2_000_000));
}

#[test]
fn shuttle_recursion() {
    shuttle("recursion", 50, || bodies::recursion::<Shuttle, Wakeful<Shuttle>>(3, 2));
}

#[test]
fn shuttle_sharing_again() {
    shuttle("sharing again", 50, || bodies::sharing_again::<Shuttle, Wakeful<Shuttle>>(2, 3));
    shuttle("timing again", 50, || bodies::timing_again::<Shuttle, Wakeful<Shuttle>>(3, 4, 2_000_000));
}

#[test]
fn sharing_again() {
    for _ in 0..if long() { 2_000 } else { 100 } {
        bodies::sharing_again::<Linux, Wakeful<Linux>>(4, 8);
        bodies::sharing_again::<Linux, Native<Linux>>(4, 8);
        bodies::timing_again::<Linux, Wakeful<Linux>>(8, 4, 200_000);
    }
}

#[test]
fn shuttle_timing() {
    shuttle("timing", 50, || bodies::timing::<Shuttle, Wakeful<Shuttle>>(4, 4, 2_000_000));
}

#[test]
fn upgrading() {
    let rounds = if long() { 5_000 } else { 300 };
    bodies::upgrading::<Linux, Wakeful<Linux>>(MANY, rounds, 200_000);
    bodies::upgrading::<Twisted<Linux, Lying>, Wakeful<Twisted<Linux, Lying>>>(8, rounds, 200_000);
}

#[test]
fn recursion() {
    bodies::recursion::<Linux, Wakeful<Linux>>(8, if long() { 5_000 } else { 300 });
}

#[test]
fn readers_do_not_keep_a_writer_out() {
    assert!(bodies::writer_gets_in::<Linux, Wakeful<Linux>>(8, Duration::from_secs(10)));
}

#[test]
fn writers_do_not_keep_a_reader_out() {
    assert!(bodies::reader_gets_in::<Linux, Wakeful<Linux>>(8, Duration::from_secs(10)));
}

/// The test above can fail: where readers come first, those who overlap pass a writer that waits, each time.
#[test]
fn readers_who_come_first_keep_a_writer_out() {
    let lock = Arc::new(Native::<Linux>::new());
    // SAFETY: here and below, each is released once; there are no nodes.
    unsafe { lock.read(&()) };
    let (theirs, (here, comes)) = (lock.clone(), mpsc::channel());
    let writer = thread::spawn(move || {
        here.send(this_thread()).unwrap();
        // SAFETY: see above.
        unsafe {
            theirs.write(&());
            theirs.unlock_write(&());
        }
    });
    until_it_waits(&comes.recv().unwrap());
    for _ in 0..10_000 {
        // SAFETY: see above.
        unsafe {
            assert!(lock.try_read(&()), "a waiting writer kept a reader out");
            lock.unlock_read(&());
        }
    }
    assert!(!writer.is_finished());
    // SAFETY: see above.
    unsafe { lock.unlock_read(&()) };
    writer.join().unwrap();
}

/// A7, T1 to T6: readers wait counted, and the writer lets them in together.
mod turns {
    use super::*;
    use conformance::twist::Honoured;
    use sync::wait::Unpreemptable;
    type L = Twisted<Loom, Honoured>;
    type S = Twisted<Shuttle, Honoured>;

    #[test]
    fn loom_sharing() {
        loom("turns, sharing", 2, 500, || bodies::sharing::<L, Wakeful<L, Unpreemptable>>(2));
    }

    #[test]
    fn loom_exclusion() {
        loom("turns, exclusion", 2, 500, || bodies::exclusion::<L, Wakeful<L, Unpreemptable>>(3, 2));
    }

    #[test]
    fn loom_wishing() {
        loom("turns, wishing", 2, 300, || bodies::wishing::<L, Wakeful<L, Unpreemptable>>(3, 1));
    }

    #[test]
    fn loom_timing() {
        loom("turns, timing", 2, 300, || bodies::timing::<L, Wakeful<L, Unpreemptable>>(3, 2, 2_000_000));
    }

    #[test]
    fn loom_upgrading() {
        loom("turns, upgrading", 2, 300, || {
            bodies::upgrading::<L, Wakeful<L, Unpreemptable>>(3, 1, 2_000_000)
        });
    }

    #[test]
    fn loom_recursion() {
        loom("turns, recursion", 2, 300, || bodies::recursion::<L, Wakeful<L, Unpreemptable>>(1, 1));
    }

    #[test]
    fn shuttle_exclusion() {
        shuttle("turns, exclusion", 100, || bodies::exclusion::<S, Wakeful<S, Unpreemptable>>(5, 4));
        shuttle("turns, one writer", 100, || bodies::one_writer::<S, Wakeful<S, Unpreemptable>>(5, 4));
    }

    #[test]
    fn shuttle_timing() {
        shuttle("turns, timing", 50, || {
            bodies::timing::<S, Wakeful<S, Unpreemptable>>(4, 4, 2_000_000);
        });
        shuttle("turns, timing again", 50, || {
            bodies::timing_again::<S, Wakeful<S, Unpreemptable>>(3, 4, 2_000_000)
        });
    }

    #[test]
    fn shuttle_upgrading() {
        shuttle("turns, upgrading", 50, || {
            bodies::upgrading::<S, Wakeful<S, Unpreemptable>>(5, 3, 2_000_000)
        });
        shuttle("turns, recursion", 50, || bodies::recursion::<S, Wakeful<S, Unpreemptable>>(3, 2));
    }

    #[test]
    fn threads() {
        type R = Twisted<Linux, Honoured>;
        let rounds = if long() { 20_000 } else { 1_000 };
        bodies::exclusion::<R, Wakeful<R, Unpreemptable>>(MANY, rounds);
        bodies::one_writer::<R, Wakeful<R, Unpreemptable>>(MANY, rounds);
        bodies::timing::<R, Wakeful<R, Unpreemptable>>(MANY, rounds / 10, 200_000);
    }
}

/// Where a scheduler listens, writers tell (L1 to L4), and those who wait hand off (L5).
mod listened {
    use super::*;
    use conformance::rwlock_twins::TellsForEver;
    use conformance::twist::{Listening, Uncounted};
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    type L = Twisted<Loom, Listening>;
    type S = Twisted<Shuttle, Listening>;

    static TOLD: AtomicU32 = AtomicU32::new(0);

    fn told() {
        TOLD.fetch_add(1, Relaxed);
    }

    #[test]
    fn loom_telling() {
        loom("listened, telling", 2, 500, || bodies::publishing::<L, Wakeful<L>>(2, 2, told));
        assert_ne!(TOLD.load(Relaxed), 0, "nobody told");
    }

    #[test]
    fn loom_exclusion() {
        loom("listened, exclusion", 2, 500, || bodies::exclusion::<L, Wakeful<L>>(3, 2));
        loom("listened, upgrading", 2, 250, || bodies::upgrading::<L, Wakeful<L>>(2, 2, 2_000_000));
    }

    #[test]
    fn loom_timed() {
        loom("listened, timed", 2, 250, || bodies::timing::<L, Wakeful<L>>(3, 2, 2_000_000));
        loom("listened, out", 2, 250, || bodies::timing_out::<L, Wakeful<L>>(2_000_000));
    }

    #[test]
    fn shuttle_telling() {
        shuttle("listened, telling", 100, || bodies::publishing::<S, Wakeful<S>>(4, 4, told));
        shuttle("listened, exclusion", 100, || bodies::exclusion::<S, Wakeful<S>>(5, 4));
        shuttle("listened, recursion", 100, || bodies::recursion::<S, Wakeful<S>>(2, 3));
    }

    #[test]
    fn threads() {
        type P = Twisted<Linux, Listening>;
        bodies::publishing::<P, Wakeful<P>>(16, 2_000, told);
        bodies::exclusion::<P, Wakeful<P>>(32, 2_000);
    }

    fn finds(what: &str, body: fn()) {
        let settings = Settings { hints: Hints::Always(RunState::Running), ..Settings::default() };
        conformance::loom::finds(settings, what, body);
    }

    /// Twins: nobody counts, and a release that does not untell.
    #[test]
    fn twins() {
        type U = Twisted<Loom, Uncounted>;
        finds("writers that nobody counts", || bodies::publishing::<U, Wakeful<U>>(2, 2, told));
        finds("writers that tell for ever", || bodies::publishing::<L, TellsForEver<L>>(2, 2, told));
    }
}

/// There is room for all, but other programs take most of it: nobody waits awake.
#[test]
fn crowded() {
    use conformance::twist::Crowded;
    type L = Twisted<Loom, Crowded>;
    type S = Twisted<Shuttle, Crowded>;
    loom("crowded, exclusion", 2, 500, || bodies::exclusion::<L, Wakeful<L>>(3, 2));
    shuttle("crowded, timing", 50, || bodies::timing::<S, Wakeful<S>>(4, 4, 2_000_000));
}

/// A lock for one alone: sharing has been found to lose (H3), and the front naps. Nobody else naps here, for
/// nobody reads, and no other program runs.
mod for_one {
    use super::*;
    use conformance::twist::Twist;

    #[test]
    fn writers() {
        loom("for one alone", 2, 100, || bodies::writers::<Loom, Wakeful<Loom>>(3, 3));
        shuttle("for one alone", 50, || bodies::writers::<Shuttle, Wakeful<Shuttle>>(3, 6));
    }

    /// A front that sleeps where it should nap. Nobody wakes it.
    #[derive(Clone, Copy, Debug, Default)]
    struct SleepsOn;

    impl Twist for SleepsOn {
        fn naps() -> bool {
            false
        }
    }

    /// Shuttle comes to that state, and sees what is wrong there.
    #[test]
    fn twin() {
        type S = Twisted<Shuttle, SleepsOn>;
        let hints = Hints::Always(RunState::Running);
        let settings = Settings { hints, clock_step_ns: STEPS[0], ..Settings::default() };
        conformance::shuttle::finds(settings, "a front that sleeps beside one alone", || {
            bodies::writers::<S, Wakeful<S>>(3, 6);
        });
    }
}
