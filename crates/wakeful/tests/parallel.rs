// SPDX-License-Identifier: MIT OR Apache-2.0
//! `parallel`, as a program uses it.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::thread;
use std::time::Duration;

use static_assertions::assert_impl_all;
use wakeful::parallel::{Schedule, Team, parallel_blocks, parallel_for, reduce, with_fewer};

assert_impl_all!(Team: Send, Sync, std::fmt::Debug, std::panic::UnwindSafe, std::panic::RefUnwindSafe);

const SCHEDULES: [Schedule; 3] =
    [Schedule::Static, Schedule::Dynamic { chunk: 3 }, Schedule::Guided { least: 2 }];

fn counts(length: usize) -> Vec<AtomicUsize> {
    (0..length).map(|_| AtomicUsize::new(0)).collect()
}

fn all_are(counts: &[AtomicUsize], times: usize) -> bool {
    counts.iter().all(|count| count.load(Relaxed) == times)
}

#[test]
fn each_iteration_is_run_once() {
    for team in [Team::free(0), Team::free(1), Team::free(2), Team::free(8), Team::free(1000), Team::bound()]
    {
        for schedule in SCHEDULES {
            for length in [0, 1, 2, 3, 100, 1001] {
                let counts = counts(length);
                for round in 1..=20 {
                    team.for_each(7..7 + length, schedule, |i| _ = counts[i - 7].fetch_add(1, Relaxed));
                    assert!(all_are(&counts, round), "{team:?}, {schedule:?}, {length}");
                }
            }
        }
    }
    #[allow(clippy::reversed_empty_ranges)]
    parallel_for(5..2, |_| panic!("there is none"));
}

#[test]
fn results_are_borrowed_reduced_and_changed_in_place() {
    let values: Vec<u64> = (0..10_000).collect();
    assert_eq!(reduce(0..values.len(), || 0, |sum, i| sum + values[i], |a, b| a + b), 49_995_000);
    assert_eq!(reduce(3..3, || 17, |_: i32, _| 0, |a, _| a), 17);
    // In order, though not commutative.
    let team = Team::free(8);
    let text = team.reduce(0..1000, String::new, |text, i| format!("{text}{i},"), |a, b| a + &b);
    assert_eq!(text, (0..1000).map(|i| format!("{i},")).collect::<String>());
    let mut words = vec![String::new(); 100];
    team.for_each_mut(&mut words, Schedule::Guided { least: 1 }, |i, word| *word = i.to_string());
    assert!(words.iter().enumerate().all(|(i, word)| *word == i.to_string()));
    let longest = AtomicUsize::new(0);
    parallel_blocks(0..100, Schedule::Dynamic { chunk: 7 }, |block| {
        _ = longest.fetch_max(block.len(), Relaxed)
    });
    assert_eq!(longest.into_inner(), 7);
}

#[test]
fn helpers_help() {
    let team = Team::free(4);
    if team.members() < 2 {
        eprintln!("SKIPPED: needs two processors");
        return;
    }
    let threads = Mutex::new(HashSet::new());
    // Sooner or later, on a machine that is busy or stops us later.
    while threads.lock().unwrap().len() < 2 {
        team.for_each(0..2, Schedule::Static, |_| {
            thread::sleep(Duration::from_millis(1));
            threads.lock().unwrap().insert(thread::current().id());
        });
    }
}

/// Helpers asleep, between loops further apart than they are patient.
#[test]
fn loops_far_apart() {
    for team in [Team::free(2), Team::bound()] {
        let counts = counts(100);
        for round in 1..=10 {
            thread::sleep(Duration::from_millis(15));
            team.for_each(0..100, Schedule::Static, |i| _ = counts[i].fetch_add(1, Relaxed));
            assert!(all_are(&counts, round));
        }
    }
}

/// Iterations much longer than anybody spins, one part much longer than the others.
#[test]
fn uneven_parts() {
    let team = Team::free(4);
    for slow in 0..8 {
        let counts = counts(8);
        team.for_each(0..8, Schedule::Static, |i| {
            thread::sleep(Duration::from_millis(if i == slow { 20 } else { 0 }));
            counts[i].fetch_add(1, Relaxed);
        });
        assert!(all_are(&counts, 1));
    }
}

#[test]
fn a_loop_inside_a_body_runs_there() {
    let team = Team::free(4);
    let counts = counts(16 * 16);
    team.for_each(0..16, Schedule::Dynamic { chunk: 1 }, |i| {
        let outer = thread::current().id();
        team.for_each(0..16, Schedule::Static, |j| {
            assert_eq!(thread::current().id(), outer);
            counts[i * 16 + j].fetch_add(1, Relaxed);
        });
        // And in one of another team.
        assert_eq!(reduce(0..10, || 0, |sum, i| sum + i, |a, b| a + b), 45);
    });
    assert!(all_are(&counts, 1));
}

#[test]
fn many_threads_use_one_team() {
    static TEAM: Team = Team::free(4);
    let counts = counts(100);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    TEAM.for_each(0..100, Schedule::Guided { least: 1 }, |i| {
                        _ = counts[i].fetch_add(1, Relaxed)
                    });
                }
            });
        }
    });
    assert!(all_are(&counts, 1600));
}

#[test]
fn a_panic_reaches_the_caller_and_the_team_goes_on() {
    let team = Team::free(4);
    let inside = AtomicUsize::new(0);
    struct Inside<'a>(&'a AtomicUsize);
    impl Drop for Inside<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Relaxed);
        }
    }
    for schedule in SCHEDULES {
        for unlucky in 0..12 {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                team.for_each(0..12, schedule, |i| {
                    inside.fetch_add(1, Relaxed);
                    let _inside = Inside(&inside);
                    if i == unlucky {
                        std::panic::resume_unwind(Box::new(i));
                    }
                    thread::yield_now();
                });
            }));
            assert_eq!(inside.load(Relaxed), 0, "the caller went on while somebody worked");
            assert_eq!(caught.unwrap_err().downcast_ref::<usize>(), Some(&unlucky));
            let counts = counts(50);
            team.for_each(0..50, schedule, |i| _ = counts[i].fetch_add(1, Relaxed));
            assert!(all_are(&counts, 1));
        }
    }
    // By all at once: one of them is told.
    assert!(catch_unwind(|| parallel_for(0..4, |i| std::panic::resume_unwind(Box::new(i)))).is_err());
    let caught =
        catch_unwind(|| reduce(0..4, || 0, |_, _| std::panic::resume_unwind(Box::new("fold")), |a, _| a));
    assert!(caught.is_err());
}

/// Each helper's variables of a thread are destroyed before `drop` returns.
#[test]
fn dropping_a_team_ends_its_helpers() {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    struct Ends;
    impl Drop for Ends {
        fn drop(&mut self) {
            ENDED.fetch_add(1, Relaxed);
        }
    }
    thread_local!(static ENDS: Ends = const { Ends });
    let caller = thread::current().id();
    for asleep in [false, true] {
        ENDED.store(0, Relaxed);
        let team = Team::free(3);
        let helpers = Mutex::new(HashSet::new());
        for _ in 0..200 {
            team.for_each(0..3, Schedule::Static, |_| {
                let me = thread::current().id();
                if me != caller && helpers.lock().unwrap().insert(me) {
                    ENDS.with(|_| ());
                }
                thread::yield_now();
            });
        }
        if asleep {
            thread::sleep(Duration::from_millis(20));
        }
        drop(team);
        assert_eq!(ENDED.load(Relaxed), helpers.into_inner().unwrap().len());
    }
    // One that never ran anything.
    drop(Team::bound());
}

#[test]
fn a_phase_with_fewer_returns_what_it_computes_also_by_panic() {
    assert_eq!(with_fewer(1, || 5), 5);
    assert!(catch_unwind(|| with_fewer(0, || std::panic::resume_unwind(Box::new(())))).is_err());
}

/// Many more threads than processors want to run.
#[test]
fn oversubscribed() {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let team = Team::free(8);
        let counts = counts(64);
        for round in 1..=200 {
            team.for_each(0..64, Schedule::Dynamic { chunk: 4 }, |i| _ = counts[i].fetch_add(1, Relaxed));
            assert!(all_are(&counts, round));
        }
        over.store(true, Relaxed);
    });
}
