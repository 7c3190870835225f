// SPDX-License-Identifier: MIT OR Apache-2.0
//! Teams, on this computer, in loom, in shuttle and in the simulator; and the checkers find what is broken.

use std::cell::Cell as StdCell;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use conformance::loom::{Bounds, Loom};
use conformance::shuttle::{Schedules, Shuttle};
use conformance::team::*;
use conformance::twist::{Deaf, Fickle, Lying, NoAcquire, NoRelease, Twisted};
use conformance::{HINTS, Hints, Settings, further};
use linux::Linux;
use platform::{Platform, RunState};
use sim::explore::{Exploration, Strategy, explore};
use sim::{Explored, World};
use sync::team::{Chunks, Job, Kind, RawTeam, Schedule, Wakeful};

/// COST: ns a look of the models' clock: with the first a helper spins for some looks, with the second it
/// goes to sleep at once.
const STEPS: [u64; 2] = [60_000, 20_000_000];

const KINDS: [Kind; 2] = [Kind::Bound, Kind::Free];

fn all() -> impl Iterator<Item = Settings> {
    let settings = |hints, clock_step_ns| Settings { hints, clock_step_ns, ..Settings::default() };
    HINTS.into_iter().flat_map(move |hints| STEPS.into_iter().map(move |step| settings(hints, step)))
}

fn loom(name: &str, preemptions: usize, body: fn()) {
    let bounds = Bounds { preemptions, executions: 400 * further() };
    let ran: usize = all().map(|settings| conformance::loom::explore(name, settings, bounds, body)).sum();
    eprintln!("loom: {name}: {ran} executions");
}

fn shuttle(body: fn()) {
    for settings in all() {
        for schedules in [Schedules::Random, Schedules::Pct(3)] {
            conformance::shuttle::explore(settings, schedules, 50 * further(), body);
        }
    }
}

#[test]
fn threads() {
    for kind in KINDS {
        for _ in 0..20 * further() {
            jobs::<Linux, Wakeful<_>>(7, &[None; 100], kind);
            jobs::<Linux, Wakeful<_>>(3, &[None, Some(3), None, Some(0), Some(1), None], kind);
            jobs::<Twisted<Linux, Lying>, Wakeful<_>>(3, &[None; 20], kind);
            jobs::<Twisted<Linux, Fickle>, Wakeful<_>>(3, &[None; 20], kind);
        }
    }
    alone::<Linux, Wakeful<_>>(3);
}

/// Before and between loops, and after them nobody is any more who would not be needed.
#[test]
fn threads_bound_helpers_without_work_are_spare() {
    for kind in KINDS {
        let (spare, most) = (AtomicU32::new(0), AtomicU32::new(0));
        let work = Teamwork::<Linux, Wakeful<Linux>>::new(2, &[None]);
        std::thread::scope(|scope| {
            for index in 0..2 {
                let (work, spare, most) = (&work, &spare, &most);
                scope.spawn(move || {
                    work.help_and_tell(index, kind, |asleep| match asleep {
                        true => _ = most.fetch_max(spare.fetch_add(1, SeqCst) + 1, SeqCst),
                        false => _ = spare.fetch_sub(1, SeqCst),
                    });
                });
            }
            match kind {
                Kind::Bound => {
                    while spare.load(SeqCst) != 2 {
                        std::thread::yield_now();
                    }
                }
                // Longer than a bound one waits.
                Kind::Free => std::thread::sleep(std::time::Duration::from_millis(30)),
            }
            work.call();
        });
        assert_eq!(spare.into_inner(), 0);
        assert_eq!(most.into_inner(), if kind == Kind::Bound { 2 } else { 0 });
    }
}

const SCHEDULES: [Schedule; 5] = [
    Schedule::Static,
    Schedule::Dynamic { chunk: 0 },
    Schedule::Dynamic { chunk: 3 },
    Schedule::Guided { least: 0 },
    Schedule::Guided { least: 2 },
];

#[test]
fn threads_chunks() {
    for schedule in SCHEDULES {
        for length in [0, 1, 2, 7, 8, 9, 1000] {
            chunks::<Linux>(4, schedule, length);
        }
    }
}

/// By one thread, so that the arithmetic is all there is; also of lengths beyond 32 bits, where the
/// callers' ranges are added up.
#[test]
fn chunks_cover_each_length() {
    for schedule in SCHEDULES {
        for parts in [1, 2, 3, 64] {
            for length in (0..200).chain([1 << 20, u32::MAX as usize, 1 << 31]) {
                if matches!(schedule, Schedule::Dynamic { .. }) && length > 1 << 20 {
                    continue;
                }
                let chunks = Chunks::<Linux>::default();
                let mut next = 0;
                for part in 0..parts {
                    chunks.share(schedule, part, parts, length, |range| {
                        assert_eq!(range.start, next, "{schedule:?}, {parts} parts of {length}");
                        assert!(!range.is_empty());
                        next = range.end;
                    });
                }
                assert_eq!(next, length, "{schedule:?}, {parts} parts");
            }
        }
    }
    for schedule in [Schedule::Dynamic { chunk: usize::MAX / 3 }, Schedule::Guided { least: usize::MAX / 3 }]
    {
        let chunks = Chunks::<Linux>::default();
        let mut next = 0;
        chunks.share(schedule, 0, 2, usize::MAX, |range| {
            assert_eq!(range.start, next);
            next = range.end;
        });
        assert_eq!(next, usize::MAX);
    }
    let cancelled = Chunks::<Linux>::default();
    cancelled.cancel();
    cancelled.share(Schedule::Dynamic { chunk: 1 }, 0, 2, 10, |_| panic!("was cancelled"));
    cancelled.share(Schedule::Guided { least: 1 }, 0, 2, 10, |_| panic!("was cancelled"));
}

#[test]
fn loom_team() {
    loom("team, one helper", 3, || jobs::<Loom, Wakeful<_>>(1, &[None, None], Kind::Free));
    loom("team, one helper, bound", 3, || jobs::<Loom, Wakeful<_>>(1, &[None, None], Kind::Bound));
    loom("team, two helpers", 2, || jobs::<Loom, Wakeful<_>>(2, &[None], Kind::Free));
    loom("team, a failure", 3, || jobs::<Loom, Wakeful<_>>(1, &[Some(1), None], Kind::Free));
    loom("team, nobody there", 3, || alone::<Loom, Wakeful<_>>(2));
}

#[test]
fn loom_chunks() {
    loom("chunks, dynamic", 3, || chunks::<Loom>(2, Schedule::Dynamic { chunk: 1 }, 3));
    loom("chunks, guided", 3, || chunks::<Loom>(2, Schedule::Guided { least: 1 }, 4));
}

#[test]
fn shuttle_team() {
    shuttle(|| jobs::<Shuttle, Wakeful<_>>(3, &[None, None, Some(2), None], Kind::Free));
    shuttle(|| jobs::<Shuttle, Wakeful<_>>(2, &[None, None], Kind::Bound));
    shuttle(|| chunks::<Shuttle>(3, Schedule::Guided { least: 1 }, 9));
    shuttle(|| chunks::<Shuttle>(3, Schedule::Dynamic { chunk: 2 }, 9));
}

const PREEMPTED: Settings =
    Settings { hints: Hints::Always(RunState::Preempted), clock_step_ns: 1_000_000, generation: 0 };

fn loom_finds(what: &str, body: impl Fn() + Send + Sync + 'static) {
    conformance::loom::finds(PREEMPTED, what, body);
}

fn shuttle_finds(what: &str, body: impl Fn() + Send + Sync + 'static) {
    conformance::shuttle::finds(PREEMPTED, what, body);
}

macro_rules! twins {
    ($($name:ident: $mistake:ident, $fails:expr;)*) => {
        /// The twin without a mistake passes: what is found is the mistake.
        #[test]
        fn the_checkers_let_the_sound_twin_pass() {
            for settings in all() {
                let bounds = Bounds { preemptions: 3, executions: 400 };
                $(conformance::loom::explore(stringify!($name), settings, bounds, || jobs::<Loom, Broken<Loom, NONE>>(1, $fails, Kind::Free));)*
            }
        }
        $(#[test]
        fn $name() {
            loom_finds(stringify!($name), || jobs::<Loom, Broken<Loom, $mistake>>(1, $fails, Kind::Free));
            shuttle_finds(stringify!($name), || jobs::<Shuttle, Broken<Shuttle, $mistake>>(1, $fails, Kind::Free));
        })*
    };
}

twins! {
    the_checkers_find_a_lost_wake_up: LOSES_WAKE_UP, &[None];
    the_checkers_find_a_part_run_twice: RUNS_TWICE, &[None];
    the_checkers_find_an_early_return: RETURNS_EARLY, &[None];
    the_checkers_find_a_lost_failure: LOSES_FAILURE, &[Some(1)];
    the_checkers_find_a_forgotten_caller: FORGETS_CALLER, &[None];
}

/// A job of one helper, on the simulator's one processor; `fails`: its second part does.
fn simulated<T: RawTeam<Explored> + 'static>(fails: bool) -> impl Fn(&mut World)
where
    T::Place: 'static,
{
    #[repr(C)]
    struct Two {
        job: Job,
        fails: bool,
        ran: [StdCell<u32>; 2],
    }
    unsafe fn run(job: *const Job, part: u32) -> bool {
        // SAFETY: only `Two` names this function, and the job begins it.
        let this = unsafe { &*job.cast::<Two>() };
        let ran = &this.ran[part as usize];
        let before = ran.get();
        // Somebody else's turn, perhaps.
        Explored::pause();
        ran.set(before + 1);
        !(this.fails && part == 1)
    }
    move |world| {
        let app = world.add_app();
        let team = world.place(T::new());
        let places = world.place_all([T::Place::default()].into_iter());
        world.spawn(app, move || {
            for _ in 0..2 {
                // Never freed: who is late finds it all the same.
                let two: &'static Two =
                    Box::leak(Box::new(Two { job: Job { run }, fails, ran: Default::default() }));
                // SAFETY: one thread calls; the job is one and stays until then, as do the places.
                let fine = unsafe { team.run(places.get(), std::ptr::from_ref(two).cast()) };
                if fine == fails {
                    sim::fail("a failure was lost, or made up".into());
                }
                if two.ran.iter().any(|ran| ran.get() != 1) {
                    sim::fail("a part was not run once".into());
                }
            }
            team.dismiss(&places.get()[0]);
        });
        world.spawn(app, move || {
            // SAFETY: one thread a place.
            unsafe { team.serve(&places.get()[0], 1, Kind::Free, |_| ()) };
        });
    }
}

/// What the simulator finds in the first of these ways that finds something.
fn sim_finds<T: RawTeam<Explored> + 'static>(fails: bool, longer: u64) -> Option<String>
where
    T::Place: 'static,
{
    let hints = [sim::Hints::True, sim::Hints::Inverted, sim::Hints::None];
    let strategies = [
        Strategy::Bounded { changes: 2, runs: 500 * longer },
        Strategy::Random { runs: 250 * longer },
        Strategy::Pct { runs: 250 * longer, depth: 4 },
    ];
    hints.into_iter().flat_map(|hints| strategies.map(|strategy| (hints, strategy))).find_map(
        |(hints, strategy)| {
            let exploration = Exploration { strategy, hints, seed: 1, steps: 20_000 };
            explore(&exploration, simulated::<T>(fails)).failure.map(|failure| failure.what)
        },
    )
}

#[test]
fn sim_team() {
    for fails in [false, true] {
        assert_eq!(sim_finds::<Wakeful<Explored>>(fails, further() as u64), None);
        assert_eq!(sim_finds::<Broken<Explored, NONE>>(fails, 1), None);
    }
    assert!(sim_finds::<Broken<Explored, LOSES_WAKE_UP>>(false, 10).is_some());
    assert!(sim_finds::<Broken<Explored, RUNS_TWICE>>(false, 10).is_some());
    assert!(sim_finds::<Broken<Explored, RETURNS_EARLY>>(false, 10).is_some());
    assert!(sim_finds::<Broken<Explored, LOSES_FAILURE>>(true, 10).is_some());
    assert!(sim_finds::<Broken<Explored, FORGETS_CALLER>>(false, 10).is_some());
}

#[test]
fn the_checkers_find_missing_orderings_and_wake_ups() {
    type A = Twisted<Loom, NoAcquire>;
    loom_finds("team without acquire", || jobs::<A, Wakeful<A>>(1, &[None], Kind::Free));
    type R = Twisted<Loom, NoRelease>;
    loom_finds("team without release", || jobs::<R, Wakeful<R>>(1, &[None], Kind::Free));
    type D = Twisted<Loom, Deaf>;
    loom_finds("deaf team", || jobs::<D, Wakeful<D>>(1, &[None], Kind::Free));
    type S = Twisted<Shuttle, Deaf>;
    shuttle_finds("deaf team", || jobs::<S, Wakeful<S>>(1, &[None], Kind::Free));
}
