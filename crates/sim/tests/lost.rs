// SPDX-License-Identifier: MIT OR Apache-2.0
//! What time is lost to: all parts together are the threads' time, and each loss of TR 1994, table 1, is
//! where the paper says.

use sim::{Lost, Machine, Program, Repartition, Results, Setting, Workload, simulate};

fn results(workload: &Workload, seed: u64) -> Results {
    let machine = Machine::named("sgi-challenge-11").unwrap();
    let results = simulate(&machine, workload, seed).unwrap();
    assert_eq!(results.failure, None, "{workload:?}");
    results
}

fn lost(workload: &Workload, seed: u64) -> Lost {
    let mut workload = workload.clone();
    workload.setting.lost = true;
    results(&workload, seed).lost.unwrap()
}

/// 10 rounds of anything.
fn small(name: &str, level: f64) -> Workload {
    let lock = Workload::tr_lock(name, 11, level, 14.0, 10);
    if catalog::entry(name).is_some() {
        return lock;
    }
    if catalog::rwlock(name).is_some() {
        let (critical_ns, outside_ns) = (20e3, 280e3);
        let program = Program::RwLock { lock: name.into(), critical_ns, outside_ns, writers_percent: 20.0 };
        return Workload { program, ..lock };
    }
    let setting = Setting { bound: true, ..Setting::default() };
    Workload { setting, ..Workload::tr_barrier(name, (level * 11.0) as u32, 10) }
}

/// The threads' time, in ps, by what the kernel tells of each.
fn whole(results: &Results) -> f64 {
    results.threads.iter().map(|thread| thread.finished_ms.unwrap_or(results.elapsed_ms)).sum::<f64>() * 1e9
}

#[test]
fn all_parts_are_the_whole_and_asking_changes_nothing() {
    let locks = catalog::MUTEXES.iter().chain(catalog::RWLOCKS).map(|entry| entry.name);
    for name in locks.chain(catalog::BARRIERS.iter().map(|entry| entry.name)) {
        for (level, limit_ms) in [(1.0, 1e3), (2.0, 1e3), (2.0, 3.3)] {
            let mut workload = small(name, level);
            workload.setting.limit_ms = limit_ms;
            if name.starts_with("c-") {
                workload.setting.bound = false;
                workload.setting.repartition =
                    Some(Repartition { every_ms: 7.0, least: 5, most: 11, served: false });
            }
            let without = results(&workload, 3);
            workload.setting.lost = true;
            let with = results(&workload, 3);
            let lost = with.lost.unwrap();
            assert_eq!(lost.sum(), lost.whole, "{name} at {level}");
            let off = lost.whole as f64 - whole(&without);
            assert!(off.abs() < 1e3, "{name} at {level}: {off} ps");
            if !without.limited {
                assert!((lost.work as f64 / 1e9 - without.work_ms).abs() < 1e-6, "{name}: work");
                let on = (lost.processors() - lost.switches - lost.refills) as f64 / 1e9;
                assert!((on - without.cpu_ms).abs() < 1e-6, "{name} at {level}: {on} {}", without.cpu_ms);
                assert_eq!(with, Results { lost: with.lost, passed_over: with.passed_over, ..without });
            }
        }
    }
}

#[test]
fn the_apps_tell_too() {
    let machine = Machine::named("sgi-challenge-11").unwrap();
    let lock = |lock: &str| Program::Quicksort { lock: lock.into(), elements: 2048, small: sim::SMALL };
    let barrier = Program::Gauss { barrier: "c-spin".into(), rows: 32 };
    for program in [lock("queue"), lock("wakeful"), barrier] {
        let mut workload = Workload { program, ..small("queue", 2.0) };
        workload.setting.lost = true;
        let lost = simulate(&machine, &workload, 1).unwrap().lost.unwrap();
        assert_eq!(lost.sum(), lost.whole);
        assert!(lost.spun.holder_runs > 0, "{:?}", workload.program);
    }
}

/// Centralized locks: losses 1 and 3. Scalable ones: 2 as well. Locks that avoid preemption and do not hand
/// over to the preempted have neither. Of the processor time, level 2.
#[test]
fn table_one_of_the_tr() {
    let parts = |name: &str| {
        let lost = lost(&Workload { rounds: 400, ..small(name, 2.0) }, 1);
        let part = |time: u64| time as f64 / lost.processors() as f64;
        (part(lost.spun.holder_preempted), part(lost.spun.waiter_preempted))
    };
    let (holder, waiter) = parts("tas-b");
    assert!(holder > 0.1 && waiter < 0.02, "tas-b {holder} {waiter}");
    let (holder, waiter) = parts("queue");
    assert!(holder > 0.0 && waiter > 0.3, "queue {holder} {waiter}");
    let (holder, waiter) = parts("queue-np");
    assert!(holder < 0.01 && waiter > 0.3, "queue-np {holder} {waiter}");
    for name in ["tas-b-np", "queue-hs", "smart-q", "ticket-np"] {
        let (holder, waiter) = parts(name);
        assert!(holder < 0.02 && waiter < 0.02, "{name} {holder} {waiter}");
    }
}

/// A barrier loses to those who have not come and have no processor.
#[test]
fn a_barrier_waits_for_the_preempted() {
    let alone = lost(&small("c-spin", 1.0), 1);
    assert_eq!((alone.spun.holder_preempted, alone.away), (0, 0));
    let shared = lost(&small("c-spin", 2.0), 1);
    let part = shared.spun.holder_preempted as f64 / shared.processors() as f64;
    assert!(part > 0.5, "{part}");
}
