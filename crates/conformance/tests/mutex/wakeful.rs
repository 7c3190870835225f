// SPDX-License-Identifier: MIT OR Apache-2.0
//! The default mutex, further than the others: every hint, clocks of several speeds (each phase that ends
//! by the clock lasts one look or many), timed waiters among the others, and words copied by fork.

use conformance::loom::{Bounds, Loom};
use conformance::shuttle::{Schedules, Shuttle};
use conformance::twist::{Mute, Roomy, SleepingStrangers, SomeStrangers, Strangers, Twisted};
use conformance::{Cell as _, Hints, Machine, Settings, bodies, distinct, hinted};
use linux::Linux;
use platform::{Atomic, Clock, Deadline, Platform, RunState};
use std::sync::Arc;
use sync::mutex::Wakeful;
use sync::wait::Unpreemptable;
use sync::wait::room::Stay;

/// COST: ns a look; the longest phase of the algorithm is 1 ms, the shortest 130 ns.
const STEPS: [u64; 3] = [30_000, 150_000, 1_000_000];

fn loom(name: &str, preemptions: usize, executions: usize, body: fn()) {
    conformance::loom::explore_all(name, &hinted(&STEPS), preemptions, executions, body);
}

fn shuttle(name: &str, count: usize, body: fn()) {
    let schedules = &[Schedules::Random, Schedules::Pct(2), Schedules::Pct(5)];
    conformance::shuttle::explore_all(name, &hinted(&STEPS), schedules, count, body);
}

#[test]
fn loom_two() {
    loom("wakeful, two", 3, 1_000, || bodies::exclusion::<Loom, Wakeful<Loom>>(2, 3));
}

#[test]
fn loom_three() {
    loom("wakeful, three", 2, 1_000, || bodies::exclusion::<Loom, Wakeful<Loom>>(3, 2));
}

#[test]
fn loom_timed() {
    loom("wakeful, timed", 2, 500, || bodies::timing::<Loom, Wakeful<Loom>>(3, 2, 2_000_000));
}

#[test]
fn loom_timed_out() {
    loom("wakeful, timed out", 2, 500, || bodies::timing_out::<Loom, Wakeful<Loom>>(2_000_000));
}

#[test]
fn shuttle_exclusion() {
    shuttle("wakeful, exclusion", 150, || bodies::exclusion::<Shuttle, Wakeful<Shuttle>>(5, 4));
}

#[test]
fn shuttle_timed() {
    shuttle("wakeful, timed", 100, || bodies::timing::<Shuttle, Wakeful<Shuttle>>(4, 4, 2_000_000));
}

#[test]
fn shuttle_nested() {
    shuttle("wakeful, nested", 100, || bodies::nesting::<Shuttle, Wakeful<Shuttle>>(4, 3, false));
}

/// W8, P1 and N1: in line awake, passed over if the hint says so, warned and wishing.
mod awake {
    use super::*;
    type L = Twisted<Loom, Roomy>;
    type S = Twisted<Shuttle, Roomy>;

    #[test]
    fn loom_three() {
        loom("wakeful, awake, three", 2, 500, || bodies::exclusion::<L, Wakeful<L>>(3, 2));
    }

    #[test]
    fn loom_wishing() {
        loom("wakeful-np, awake, wishing", 2, 500, || bodies::wishing::<L, Wakeful<L, Unpreemptable>>(3, 1));
    }

    #[test]
    fn shuttle_exclusion() {
        shuttle("wakeful, awake, exclusion", 150, || bodies::exclusion::<S, Wakeful<S>>(5, 4));
        shuttle("wakeful-np, awake, exclusion", 150, || {
            bodies::exclusion::<S, Wakeful<S, Unpreemptable>>(5, 4)
        });
    }

    #[test]
    fn shuttle_timed() {
        shuttle("wakeful-np, awake, timed", 100, || {
            bodies::timing::<S, Wakeful<S, Unpreemptable>>(4, 4, 2_000_000);
        });
    }

    /// R1 that does not see KICK.
    #[derive(Clone, Copy, Debug, Default)]
    struct Overlooks;

    impl conformance::twist::Twist for Overlooks {
        fn retained(_: bool) -> bool {
            false
        }
    }

    #[test]
    fn overlooked() {
        type R = Twisted<Shuttle, Overlooks>;
        let settings = Settings { hints: Hints::Mixed, ..Settings::default() };
        conformance::shuttle::finds(settings, "R1 that does not see KICK", || {
            bodies::exclusion::<R, Wakeful<R>>(5, 4);
        });
    }

    /// Who is passed over, or promoted, and not told of it is missed.
    #[test]
    fn told() {
        type P = Twisted<Loom, Mute>;
        for hint in [RunState::Preempted, RunState::Running] {
            let settings = Settings { hints: Hints::Always(hint), ..Settings::default() };
            conformance::loom::finds(settings, "who is not told", || {
                bodies::exclusion::<P, Wakeful<P>>(3, 1)
            });
        }
    }
}

/// W2: threads without ids, which stand in line by turns, under the id of a waiting room. The models have
/// one room.
mod strangers {
    use super::*;
    type L = Twisted<Loom, Strangers>;
    type S = Twisted<Shuttle, Strangers>;

    #[test]
    fn loom_three() {
        loom("wakeful, strangers, three", 2, 500, || bodies::exclusion::<L, Wakeful<L>>(3, 2));
    }

    /// One holds, one is the standby, one is in line, one waits for its turn.
    #[test]
    fn loom_four() {
        loom("wakeful, strangers, four", 1, 1_000, || bodies::exclusion::<L, Wakeful<L>>(4, 1));
    }

    #[test]
    fn loom_some() {
        type M = Twisted<Loom, SomeStrangers>;
        loom("wakeful, some strangers, four", 1, 1_000, || bodies::exclusion::<M, Wakeful<M>>(4, 1));
    }

    #[test]
    fn loom_timed() {
        loom("wakeful, strangers, timed", 2, 500, || bodies::timing::<L, Wakeful<L>>(3, 2, 2_000_000));
    }

    #[test]
    fn shuttle_exclusion() {
        type M = Twisted<Shuttle, SomeStrangers>;
        shuttle("wakeful, strangers, exclusion", 150, || bodies::exclusion::<S, Wakeful<S>>(5, 4));
        shuttle("wakeful, some strangers, exclusion", 150, || bodies::exclusion::<M, Wakeful<M>>(6, 4));
        shuttle("wakeful-np, strangers, exclusion", 100, || {
            bodies::exclusion::<S, Wakeful<S, Unpreemptable>>(5, 4)
        });
    }

    #[test]
    fn shuttle_timed() {
        shuttle("wakeful, strangers, timed", 150, || bodies::timing::<S, Wakeful<S>>(5, 4, 2_000_000));
    }

    #[test]
    fn shuttle_nested() {
        shuttle("wakeful, strangers, nested", 100, || bodies::nesting::<S, Wakeful<S>>(4, 3, false));
    }

    #[test]
    fn threads() {
        type P = Twisted<Linux, Strangers>;
        bodies::exclusion::<P, Wakeful<P>>(32, 2_000);
        bodies::timing::<P, Wakeful<P>>(16, 500, 2_000_000);
    }

    /// Nobody is woken: with a lock that naps all would be well.
    #[test]
    fn they_sleep() {
        type P = Twisted<Loom, SleepingStrangers>;
        let settings = Settings { hints: Hints::Always(RunState::Preempted), ..Settings::default() };
        conformance::loom::finds(settings, "strangers that nobody wakes", || {
            bodies::exclusion::<P, Wakeful<P>>(4, 1)
        });
    }

    /// One has the turn at a time, and those who give up take nobody's wake-up with them. `locks` share the
    /// one room, which serves one of them at a time.
    fn turns<P: Machine + Platform>(threads: u32, locks: u32, some_give_up: bool) {
        let cell = Arc::new(P::Cell::new());
        let body = move |index: u32, cell: &P::Cell| {
            let lock = core::ptr::without_provenance(64 * (1 + index % locks) as usize);
            let gives_up = some_give_up && index == 1;
            let deadline = gives_up.then(|| Deadline { ns: P::now_ns() + 1, clock: Clock::Monotonic });
            loop {
                match Stay::<P>::begin(lock, deadline) {
                    Some(stay) => {
                        cell.bump();
                        break stay.end();
                    }
                    None if gives_up => break,
                    // Somebody opens the room just now, or it is the other lock's.
                    None => P::pause(),
                }
            }
        };
        let handles: Vec<_> = (1..threads)
            .map(|index| {
                let cell = cell.clone();
                P::spawn(move || body(index, &cell))
            })
            .collect();
        body(0, &cell);
        handles.into_iter().for_each(P::join);
        assert!((threads - some_give_up as u32..=threads).contains(&cell.get()));
        assert!(
            Stay::<P>::begin(core::ptr::without_provenance(1024), None).is_some(),
            "the room is free again"
        );
    }

    /// The room is closed, and opened for another lock, while somebody enters it (E1, E2). Who took it for
    /// the old lock's would wait for one who waits for it.
    fn opened_anew() {
        let lock = |number: usize| core::ptr::without_provenance(64 * number);
        let first = Stay::<Loom>::begin(lock(1), None).unwrap();
        let other = Loom::spawn(move || {
            if let Some(stay) = Stay::<Loom>::begin(lock(1), None) {
                stay.end();
            }
        });
        first.end();
        let second = Stay::<Loom>::begin(lock(2), None);
        Loom::join(other);
        if let Some(stay) = second {
            stay.end();
        }
    }

    #[test]
    fn loom_opened_anew() {
        loom("room, opened anew", 3, 2_000, opened_anew);
    }

    #[test]
    fn loom_turns() {
        loom("room, two", 3, 1_000, || turns::<Loom>(2, 1, false));
        loom("room, three", 2, 2_000, || turns::<Loom>(3, 1, false));
        loom("room, one gives up", 2, 2_000, || turns::<Loom>(3, 1, true));
    }

    #[test]
    fn loom_turns_at_two_locks() {
        loom("room, two locks", 3, 2_000, || turns::<Loom>(3, 2, false));
        loom("room, two locks, one gives up", 2, 2_000, || turns::<Loom>(4, 2, true));
    }
}

/// There is room for all, but other programs take most of it: a waiter spins as if nobody knew of the holder.
mod crowded {
    use super::*;
    use conformance::twist::Crowded;
    type L = Twisted<Loom, Crowded>;
    type S = Twisted<Shuttle, Crowded>;

    #[test]
    fn loom_three() {
        loom("wakeful, crowded, three", 2, 500, || bodies::exclusion::<L, Wakeful<L>>(3, 2));
    }

    #[test]
    fn shuttle_exclusion() {
        shuttle("wakeful, crowded, exclusion", 100, || bodies::exclusion::<S, Wakeful<S>>(5, 4));
        shuttle("wakeful, crowded, timed", 100, || bodies::timing::<S, Wakeful<S>>(4, 4, 2_000_000));
    }
}

/// F1 to F3: other programs share the few processors, and waiters sleep on the word.
mod futex {
    use super::*;
    use conformance::twist::Twist;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use sync::mutex::RawMutex;

    static PAUSED: AtomicBool = AtomicBool::new(false);
    static SLEPT: AtomicBool = AtomicBool::new(false);

    /// The view shows each holder running. `BESIDE`: and yet there are others. `NOTED`: what the waiters do
    /// is noted, of one test alone.
    #[derive(Clone, Copy, Debug, Default)]
    struct Shared<const BESIDE: bool, const NOTED: bool>;

    impl<const BESIDE: bool, const NOTED: bool> Twist for Shared<BESIDE, NOTED> {
        fn run_state(_: RunState) -> RunState {
            RunState::Running
        }
        fn room(_: bool) -> bool {
            false
        }
        fn is_beside_others(_: bool) -> bool {
            BESIDE
        }
        fn pauses() {
            PAUSED.fetch_or(NOTED && !SLEPT.load(SeqCst), SeqCst);
        }
        fn sleeps() {
            SLEPT.fetch_or(NOTED, SeqCst);
        }
    }

    /// Does a waiter of a held lock pause before it sleeps?
    fn pauses_first<const BESIDE: bool>() -> bool {
        type M<const BESIDE: bool> = Twisted<Linux, Shared<BESIDE, true>>;
        let lock = Wakeful::<M<BESIDE>>::new();
        let locked = || {
            // SAFETY: released by who calls.
            unsafe { lock.lock(&()) };
        };
        // SAFETY: acquired by who calls.
        let unlocked = || unsafe { lock.unlock(&()) };
        locked();
        PAUSED.store(false, SeqCst);
        SLEPT.store(false, SeqCst);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                locked();
                unlocked();
            });
            while !SLEPT.load(SeqCst) && !PAUSED.load(SeqCst) {
                std::thread::yield_now();
            }
            unlocked();
        });
        PAUSED.load(SeqCst)
    }

    #[test]
    fn nobody_spins() {
        assert!(!pauses_first::<true>());
        // The holder may be without a processor at that moment: then they sleep at once here, too.
        assert!((0..100).any(|_| pauses_first::<false>()), "without others they do");
    }

    #[test]
    fn loom_three() {
        type L = Twisted<Loom, Shared<true, false>>;
        loom("wakeful, futex, three", 2, 500, || bodies::exclusion::<L, Wakeful<L>>(3, 2));
    }

    /// Each waiter hears something else, so that the role is taken beside sleepers of F1.
    #[derive(Clone, Copy, Debug, Default)]
    struct Few;

    impl Twist for Few {
        fn room(_: bool) -> bool {
            false
        }
    }

    #[test]
    fn loom_mixed() {
        type L = Twisted<Loom, Few>;
        loom("wakeful, futex or not, three", 3, 1_000, || bodies::exclusion::<L, Wakeful<L>>(3, 1));
        loom("wakeful, futex or not, timed", 2, 500, || bodies::timing::<L, Wakeful<L>>(3, 1, 2_000_000));
    }

    #[test]
    fn shuttle_exclusion() {
        type S = Twisted<Shuttle, Shared<true, false>>;
        type M = Twisted<Shuttle, Few>;
        shuttle("wakeful, futex", 100, || bodies::exclusion::<S, Wakeful<S>>(5, 4));
        shuttle("wakeful, futex, timed", 100, || bodies::timing::<S, Wakeful<S>>(4, 4, 2_000_000));
        shuttle("wakeful, futex or not", 200, || bodies::exclusion::<M, Wakeful<M>>(5, 4));
        shuttle("wakeful, futex or not, timed", 200, || {
            bodies::timing::<M, Wakeful<M>>(5, 3, 2_000_000);
        });
    }

    /// F2 without KICK: who was woken takes the lock as an arrival does.
    #[derive(Clone, Copy, Debug, Default)]
    struct Forgets;

    impl Twist for Forgets {
        fn room(_: bool) -> bool {
            false
        }
        fn is_beside_others(_: bool) -> bool {
            true
        }
        fn stored(old: u32, new: u32) -> u32 {
            let takes = old & LOCKED == 0 && new & (LOCKED | KICK | STANDBY) == LOCKED | KICK;
            if takes { new & !KICK } else { new }
        }
    }

    /// F3 without its wake.
    #[derive(Clone, Copy, Debug, Default)]
    struct Leaves;

    impl Twist for Leaves {
        fn room(_: bool) -> bool {
            false
        }
        fn wakes(count: u32) -> u32 {
            if count == u32::MAX { 0 } else { count }
        }
    }

    #[test]
    fn twins() {
        type L = Twisted<Loom, Forgets>;
        type S = Twisted<Shuttle, Forgets>;
        type M = Twisted<Shuttle, Leaves>;
        let settings = |hints| Settings { hints, ..Settings::default() };
        let preempted = settings(Hints::Always(RunState::Preempted));
        conformance::loom::finds(preempted, "F2 without KICK", || bodies::exclusion::<L, Wakeful<L>>(3, 1));
        conformance::shuttle::finds(preempted, "F2 without KICK", || {
            bodies::exclusion::<S, Wakeful<S>>(4, 2);
        });
        conformance::shuttle::finds(settings(Hints::Mixed), "F3 without its wake", || {
            bodies::exclusion::<M, Wakeful<M>>(5, 3);
        });
    }
}

/// Where a scheduler listens, holders tell (S1 to S5), and those who wait hand off.
mod listened {
    use super::*;
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
        loom("wakeful, listened, telling", 2, 500, || bodies::publishing::<L, Wakeful<L>>(2, 2, told));
        assert_ne!(TOLD.load(Relaxed), 0, "nobody told");
    }

    #[test]
    fn loom_three() {
        loom("wakeful, listened, three", 2, 500, || bodies::exclusion::<L, Wakeful<L>>(3, 2));
    }

    #[test]
    fn loom_timed() {
        loom("wakeful, listened, timed", 2, 250, || bodies::timing::<L, Wakeful<L>>(3, 2, 2_000_000));
        loom("wakeful, listened, out", 2, 250, || bodies::timing_out::<L, Wakeful<L>>(2_000_000));
    }

    #[test]
    fn loom_trying() {
        loom("wakeful, listened, trying", 2, 500, || bodies::trying::<L, Wakeful<L>>(2, 2));
    }

    #[test]
    fn shuttle_telling() {
        shuttle("wakeful, listened, telling", 100, || {
            bodies::publishing::<S, Wakeful<S>>(4, 4, told);
        });
        shuttle("wakeful, listened, exclusion", 100, || bodies::exclusion::<S, Wakeful<S>>(5, 4));
        shuttle("wakeful, listened, timed", 100, || bodies::timing::<S, Wakeful<S>>(4, 4, 2_000_000));
    }

    #[test]
    fn threads() {
        type P = Twisted<Linux, Listening>;
        bodies::publishing::<P, Wakeful<P>>(16, 2_000, told);
        bodies::exclusion::<P, Wakeful<P>>(32, 2_000);
    }

    /// The waiters of informing locks hand off there, and do not sleep.
    #[test]
    fn informing() {
        use sync::mutex::{ArrayQueue, Mcs, Ticket, Ttas};
        use sync::wait::Informing;
        loom("ttas-informing, listened", 2, 300, || bodies::exclusion::<L, Ttas<L, Informing>>(3, 1));
        loom("mcs-informing, listened", 2, 300, || bodies::exclusion::<L, Mcs<L, Informing>>(3, 1));
        loom("ticket-informing, listened", 2, 300, || bodies::exclusion::<L, Ticket<L, Informing>>(3, 1));
        loom("array-queue-informing, listened", 2, 300, || {
            bodies::exclusion::<L, ArrayQueue<L, Informing, 2>>(3, 1);
        });
        shuttle("ttas-informing, listened", 50, || bodies::exclusion::<S, Ttas<S, Informing>>(4, 4));
        shuttle("mcs-informing, listened", 50, || bodies::exclusion::<S, Mcs<S, Informing>>(4, 4));
        shuttle("ticket-informing, listened", 50, || bodies::exclusion::<S, Ticket<S, Informing>>(4, 4));
    }

    /// Without a count the first of two locks to be released takes both their priorities.
    #[test]
    fn uncounted() {
        type P = Twisted<Loom, Uncounted>;
        let settings = Settings { hints: Hints::Always(RunState::Running), ..Settings::default() };
        conformance::loom::finds(settings, "holders that nobody counts", || {
            bodies::publishing::<P, Wakeful<P>>(2, 2, told)
        });
    }
}

/// P2 passes a waiter once at most. A thread registers when it comes to wait, and again whenever it has
/// been passed.
mod passed {
    use super::*;
    use conformance::twist::Twist;
    use platform::ThreadId;
    use std::cell::Cell;
    use sync::mutex::RawMutex;

    /// A crowded machine that counts.
    #[derive(Clone, Copy, Debug, Default)]
    struct Counting;

    thread_local! {
        /// How often each thread of the model registered since it came, and how often one did so twice.
        static REGISTERED: [Cell<u32>; 16] = const { [const { Cell::new(0) }; 16] };
        static TWICE: Cell<u32> = const { Cell::new(0) };
    }

    fn registered(thread: ThreadId, change: impl Fn(u32) -> u32) -> u32 {
        REGISTERED.with(|counts| counts[thread.0 as usize].replace(change(counts[thread.0 as usize].get())))
    }

    impl Twist for Counting {
        fn room(_: bool) -> bool {
            false
        }
        fn registers(thread: ThreadId) {
            registered(thread, |count| count + 1);
        }
    }

    /// They come while the first one holds the lock.
    fn waits<P: Machine>(threads: u32, rounds: u32) {
        let lock = Arc::new(Wakeful::<Twisted<P, Counting>>::new());
        // SAFETY: released below.
        unsafe { lock.lock(&()) };
        let ours = lock.clone();
        let body = move || {
            let me = P::register();
            for _ in 0..rounds {
                registered(me, |_| 0);
                // SAFETY: released once.
                unsafe { lock.lock(&()) };
                let times = registered(me, |count| count);
                assert!(times <= 2, "a waiter was passed {} times", times - 1);
                TWICE.set(TWICE.get() + u32::from(times == 2));
                // SAFETY: acquired above.
                unsafe { lock.unlock(&()) };
            }
        };
        let handles: Vec<_> = (1..threads).map(|_| P::spawn(body.clone())).collect();
        (0..8).for_each(|_| P::pause());
        // SAFETY: acquired above.
        unsafe { ours.unlock(&()) };
        body();
        handles.into_iter().for_each(P::join);
    }

    #[test]
    fn loom_once() {
        loom("wakeful, passed once", 2, 500, || waits::<Loom>(4, 2));
        assert_ne!(TWICE.get(), 0, "nobody was passed");
    }

    #[test]
    fn shuttle_once() {
        shuttle("wakeful, passed once", 150, || waits::<Shuttle>(6, 6));
        assert_ne!(TWICE.get(), 0, "nobody was passed");
    }
}

/// A mutex whose word a parent of this process wrote.
fn copied<P: Platform>(word: u32) -> Wakeful<P> {
    const { assert!(size_of::<Wakeful<P>>() == size_of::<P::AtomicU32>()) };
    let word = std::mem::ManuallyDrop::new(<P::AtomicU32 as Atomic<u32>>::new(word));
    // SAFETY: `Wakeful` is transparent over its word.
    unsafe { std::ptr::from_ref(&word).cast::<Wakeful<P>>().read() }
}

/// Bits of the word, see the state table of `wakeful`.
const LOCKED: u32 = 1;
const STANDBY: u32 = 1 << 1;
const KICK: u32 = 1 << 31;
const HANDOFF: u32 = 1 << 3;
const RELAY: u32 = 1 << 2;
const GENERATION_2: u32 = 2 << 4;
/// Thread 5 of the parent, which is not here, slept on it last.
const NEWEST_5: u32 = 5 << 19;

const COPIES: [u32; 6] = [
    STANDBY | GENERATION_2,
    STANDBY | KICK | GENERATION_2,
    STANDBY | GENERATION_2 | NEWEST_5,
    STANDBY | KICK | GENERATION_2 | NEWEST_5,
    STANDBY | HANDOFF | GENERATION_2 | NEWEST_5,
    STANDBY | HANDOFF | RELAY | GENERATION_2 | NEWEST_5,
];

/// The child's only thread comes to it, and then others, before and after its first contention.
#[test]
fn copied_by_fork() {
    for word in COPIES {
        for settings in distinct(&hinted(&STEPS)) {
            let settings = Settings { generation: 3, ..settings };
            let bounds = Bounds { preemptions: 2, executions: 100 };
            conformance::loom::explore(
                &format!("wakeful, copied free {word:x}"),
                settings,
                bounds,
                move || bodies::exclusion_of::<Loom, _>(copied::<Loom>(word), 2, 1),
            );
            conformance::loom::explore(
                &format!("wakeful, copied held {word:x}"),
                settings,
                bounds,
                move || bodies::release_of::<Loom, _>(copied::<Loom>(word | LOCKED), 2),
            );
            conformance::shuttle::explore(settings, Schedules::Random, 50, move || {
                bodies::release_of::<Shuttle, _>(copied::<Shuttle>(word | LOCKED), 4)
            });
        }
    }
}
