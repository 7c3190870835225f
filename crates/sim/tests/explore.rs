// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every algorithm of the catalogue, preempted at each of its shared accesses; random and PCT schedules;
//! hints late, lost and inverted.

use catalog::{BarrierEntry, BarrierVisitor, Entry, MutexVisitor, RwLockVisitor};
use sim::explore::{self, Exploration, Report, Strategy};
use sim::{Explored, Hints, World};
use sync::barrier::RawBarrier;
use sync::mutex::RawMutex;
use sync::rwlock::RawRwLock;

fn long() -> bool {
    std::env::var_os("WAKEFUL_LONG").is_some_and(|value| value == "1")
}

const HINTS: [Hints; 5] = [
    Hints::True,
    Hints::None,
    Hints::Inverted,
    Hints::Delayed { us: 200.0 },
    Hints::Dropped { fraction: 0.5 },
];

/// Explores one program in all ways; returns the schedules tried.
fn all_ways(name: &str, build: impl Fn(&mut World)) -> u64 {
    let (bounded, random) = if long() { (6_000, 2_000) } else { (300, 100) };
    let mut runs = 0;
    for hints in HINTS {
        for strategy in [
            // One preemption, wherever, and as many pairs as there is room for.
            Strategy::Bounded { changes: 2, runs: bounded },
            Strategy::Random { runs: random },
            Strategy::Pct { runs: random, depth: 3 },
        ] {
            let exploration = Exploration { strategy, hints, ..Exploration::default() };
            let Report { runs: tried, failure, .. } = explore::explore(&exploration, &build);
            runs += tried;
            if let Some(failure) = failure {
                let again = explore::replay(&exploration, &failure.schedule, &build);
                panic!("{name} with {hints:?}, {strategy:?}: {failure:?}; replayed: {again:?}");
            }
        }
    }
    runs
}

/// Each preemption alone, to the last.
fn each_alone(name: &str, build: impl Fn(&mut World)) -> u64 {
    let strategy = Strategy::Bounded { changes: 1, runs: u64::MAX };
    let report = explore::explore(&Exploration { strategy, ..Exploration::default() }, build);
    assert_eq!(report.failure, None, "{name}");
    assert!(report.complete);
    report.runs
}

struct Every;

impl MutexVisitor<Explored> for Every {
    type Output = u64;

    fn visit<L: RawMutex<Explored> + 'static>(self, entry: &'static Entry) -> u64 {
        each_alone(entry.name, explore::mutex::<Explored, L>(3, 2))
            + all_ways(entry.name, explore::mutex::<Explored, L>(3, 2))
    }
}

impl RwLockVisitor<Explored> for Every {
    type Output = u64;

    fn visit<L: RawRwLock<Explored> + 'static>(self, entry: &'static Entry) -> u64 {
        each_alone(entry.name, explore::rwlock::<Explored, L>(3, 2))
            + all_ways(entry.name, explore::rwlock::<Explored, L>(3, 2))
    }
}

impl BarrierVisitor<Explored> for Every {
    type Output = u64;

    fn visit<B: RawBarrier<Explored> + 'static>(self, entry: &'static BarrierEntry) -> u64
    where
        B::Place: 'static,
        B::Member: 'static,
    {
        each_alone(entry.name, explore::barrier::<Explored, B>(3, 2))
            + all_ways(entry.name, explore::barrier::<Explored, B>(3, 2))
    }
}

macro_rules! locks {
    ($({ $name:literal, $ident:ident, [P] $type:ty, $kind:ident, $flags:tt, $citation:literal, $summary:literal })*) => {
        $(#[test]
        fn $ident() {
            let runs = [
                catalog::visit_mutex::<Explored, _>($name, Every),
                catalog::visit_rwlock::<Explored, _>($name, Every),
                catalog::visit_barrier::<Explored, _>($name, Every),
            ];
            let runs = runs.into_iter().flatten().sum::<u64>();
            println!("{} schedules", runs);
            assert!(runs > 300, "{runs}");
        })*
    };
}

catalog::mutexes!(locks);
catalog::rwlocks!(locks);
catalog::barriers!(locks);

#[test]
fn a_schedule_is_replayed() {
    use platform::{Atomic, Ordering::*, Platform};

    /// Tests, and then sets.
    struct Broken(<Explored as Platform>::AtomicU32);

    impl RawMutex<Explored> for Broken {
        type Node = ();
        fn new() -> Self {
            Self(Atomic::new(0))
        }
        unsafe fn lock(&self, _: &()) {
            while self.0.load(Relaxed) != 0 {
                Explored::pause();
            }
            self.0.store(1, Relaxed);
        }
        unsafe fn try_lock(&self, _: &()) -> bool {
            false
        }
        unsafe fn unlock(&self, _: &()) {
            self.0.store(0, Relaxed);
        }
    }

    for strategy in [
        Strategy::Bounded { changes: 2, runs: 10_000 },
        Strategy::Random { runs: 10_000 },
        Strategy::Pct { runs: 10_000, depth: 3 },
    ] {
        let exploration = Exploration { strategy, ..Exploration::default() };
        let failure =
            explore::explore(&exploration, explore::mutex::<Explored, Broken>(2, 1)).failure.expect("found");
        println!("{strategy:?}: {failure:?}");
        let again =
            explore::replay(&exploration, &failure.schedule, explore::mutex::<Explored, Broken>(2, 1));
        assert_eq!(again, Some(failure.what));
        assert_eq!(
            explore::replay(&exploration, "-", explore::mutex::<Explored, Broken>(2, 1)),
            None,
            "by default all is well"
        );
    }
}

#[test]
#[should_panic(expected = "is no schedule")]
fn what_is_no_schedule_is_refused() {
    explore::replay(&Exploration::default(), "12", |_| ());
}
