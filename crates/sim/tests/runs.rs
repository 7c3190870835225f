// SPDX-License-Identifier: MIT OR Apache-2.0
//! The catalogue on the machines: everything runs, twice the same, and as it was when the golden file was
//! written.

use std::fmt::Write;

use sim::{Machine, Order, Program, Repartition, Results, Setting, Touches, Workload, simulate};

fn run(machine: &str, workload: &Workload, seed: u64) -> Results {
    let results = simulate(&Machine::named(machine).unwrap(), workload, seed).unwrap();
    assert_eq!(results.failure, None, "{machine} {workload:?}");
    results
}

/// A small run of anything in the catalogue.
fn small(name: &str, processors: u32, level: f64) -> Workload {
    let lock = Workload::tr_lock(name, processors, level, 14.0, 10);
    if catalog::entry(name).is_some() {
        return lock;
    }
    if catalog::rwlock(name).is_some() {
        let program = Program::RwLock {
            lock: name.into(),
            critical_ns: 20e3,
            outside_ns: 280e3,
            writers_percent: 20.0,
        };
        return Workload { program, ..lock };
    }
    let threads = (level * f64::from(processors)) as u32;
    let setting = Setting { bound: true, ..Setting::default() };
    Workload { setting, ..Workload::tr_barrier(name, threads, 10) }
}

fn names() -> impl Iterator<Item = &'static str> {
    let locks = catalog::MUTEXES.iter().chain(catalog::RWLOCKS).map(|entry| entry.name);
    locks.chain(catalog::BARRIERS.iter().map(|entry| entry.name))
}

#[test]
fn everything_runs_and_twice_the_same() {
    for name in names() {
        for (machine, processors) in [("sgi-challenge-11", 11), ("epyc-64", 64)] {
            for level in [1.0, 2.0] {
                let mut workload = small(name, processors, level);
                workload.rounds = if processors > 11 { 2 } else { 10 };
                let first = run(machine, &workload, 7);
                assert!(
                    !first.limited,
                    "{name} on {machine} at {level}: {} of {}",
                    first.sections, first.wanted
                );
                assert_eq!(first.sections, first.wanted);
                assert_eq!(first, run(machine, &workload, 7), "{name} on {machine} at {level}");
            }
        }
    }
}

#[test]
fn another_seed_is_another_run() {
    let workload = small("tas-b", 11, 2.0);
    assert_ne!(
        run("sgi-challenge-11", &workload, 1).elapsed_ms,
        run("sgi-challenge-11", &workload, 2).elapsed_ms
    );
}

#[test]
fn passing_spinners_over_changes_nothing() {
    let mut passed = 0;
    for name in names() {
        for level in [1.0, 2.0] {
            let mut workload = small(name, 11, level);
            if level == 2.0 {
                workload.setting.repartition =
                    Some(Repartition { every_ms: 7.0, least: 5, most: 11, served: false });
            }
            workload.setting.limit_ms = 100.0;
            let mut with = run("sgi-challenge-11", &workload, 3);
            workload.setting.pass_over = false;
            let mut without = run("sgi-challenge-11", &workload, 3);
            assert_eq!(without.passed_over, 0);
            passed += with.passed_over;
            with.passed_over = 0;
            // At the limit, who is passed over has not yet been brought up to it.
            if with.limited {
                (with.accesses, without.accesses) = (0, 0);
            }
            assert_eq!(with, without, "{name} at {level}");
        }
    }
    if cfg!(target_arch = "x86_64") {
        assert!(passed > 100_000, "{passed}");
    }
}

/// A writer that ends a bias looks at the place of each thread. Foreign processes have none.
#[test]
fn a_writer_ends_a_bias_beside_foreign_processes() {
    for name in ["rw-wakeful", "rw-wakeful-np"] {
        let mut workload = small(name, 11, 2.0);
        workload.program =
            Program::RwLock { lock: name.into(), critical_ns: 2e3, outside_ns: 1e3, writers_percent: 0.1 };
        workload.rounds = 2_000;
        let results = run("sgi-challenge-11", &workload, 1);
        assert_eq!(results.sections, results.wanted);
    }
}

/// To write it anew, also after a change to an algorithm: `WAKEFUL_BLESS=1 cargo test -p wakeful-sim --test
/// runs`, after a change that is meant to change results.
#[test]
fn golden_runs() {
    let mut text = String::new();
    // Not the defaults: they are tuned, and this is about the simulator.
    for name in names().filter(|name| !name.contains("wakeful")) {
        for (machine, processors, level) in
            [("sgi-challenge-11", 11, 2.0), ("ksr1-63", 63, 1.0), ("cxl-1024", 128, 2.0)]
        {
            let mut workload = small(name, processors, level);
            workload.setting.limit_ms = 20.0;
            let results = run(machine, &workload, 42);
            // At the limit, accesses depend on who was passed over.
            let accesses = if results.limited { 0 } else { results.accesses };
            let Results { elapsed_ms, sections, misses, context_switches, preemptions, .. } = results;
            let max = results.waits.map_or(0, |waits| waits.max_ns);
            writeln!(
                text,
                "{name} {machine} {level} {elapsed_ms} {sections} {accesses} {misses} {context_switches} {preemptions} {max}"
            )
            .unwrap();
        }
    }
    // Finite caches, and pages with homes: more lines than a cache has, and an array.
    let array = |order| Touches::Element { elements: 1 << 20, order, node: 1 };
    for lock in ["native", "mcs-spin", "smart-q"] {
        for (name, touches) in [
            ("lines", Touches::Lines(700)),
            ("random", array(Order::Random)),
            ("stride", array(Order::Stride(1000))),
        ] {
            let program = Program::Delegated { lock: lock.into(), touches, outside_ns: 50.0, server: 4 };
            let setting = Setting { bound: true, ..Setting::default() };
            let workload = Workload { program, threads: 7, rounds: 50, vary: 0.2, instances: 1, setting };
            let results = run("xeon-e5420-2x4", &workload, 42);
            let Results { elapsed_ms, misses, invalidations, written_back, .. } = results;
            let path = results.path.expect("sections ran");
            let (memory, remote) = (path.memory, path.remote);
            write!(text, "{lock} xeon-e5420-2x4 {name} {elapsed_ms} {misses} {invalidations} ").unwrap();
            writeln!(text, "{written_back} {memory} {remote}").unwrap();
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden.txt");
    if std::env::var_os("WAKEFUL_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap();
    for (line, (is, was)) in text.lines().zip(golden.lines()).enumerate() {
        assert_eq!(is, was, "line {}; see above for how to write the file anew", line + 1);
    }
    assert_eq!(text.lines().count(), golden.lines().count());
}

#[test]
fn who_waits_for_preempted_threads_collapses_and_who_asks_does_not() {
    let at = |lock: &str, level: f64| {
        let workload = Workload::tr_lock(lock, 11, level, 14.0, 300);
        run("sgi-challenge-11", &workload, 1).estimated_ms
    };
    let grows = |lock: &str| at(lock, 2.0) / at(lock, 1.0);
    let (queue, tas, smart) = (grows("queue"), grows("tas-b"), grows("smart-q"));
    println!("queue {queue} tas-b {tas} smart-q {smart}");
    assert!(queue > 20.0, "{queue}");
    assert!(smart < 2.5, "half of the processors: twice the time: {smart}");
    assert!((smart..queue).contains(&tas), "{tas}");
}

#[test]
fn informing_locks_keep_their_speed_beside_other_programs() {
    let at = |lock: &str, degree: u32| {
        let mut workload = Workload::icpp_lock(lock, degree);
        workload.setting.limit_ms = 60_000.0;
        run("ppro-4", &workload, 1).estimated_ms
    };
    let (spin, informing) = (at("mcs-spin", 4), at("mcs-informing", 4));
    println!("mcs-spin {spin} ms, mcs-informing {informing} ms");
    assert!(spin > 20.0 * informing, "{spin} {informing}");
}

/// ICPP 2001, figure 2, Cholesky: threads that find no column poll at the running priority. A preempted
/// waiter whose lock has become free must not stand below them.
#[test]
fn nobody_starves_for_a_free_lock_beside_threads_that_poll() {
    let at = |lock: &str, degree| {
        let program = Program::Cholesky { lock: lock.into(), levels: 7, block: 16 };
        let mut workload = Workload { program, ..Workload::icpp_lock("", degree) };
        workload.setting.limit_ms = 100_000.0;
        run("ppro-4", &workload, 1).elapsed_ms
    };
    for degree in [2, 4] {
        let block = at("ttas-block", degree);
        for lock in ["ttas-informing", "wakeful"] {
            let informing = at(lock, degree);
            println!("degree {degree}: ttas-block {block} ms, {lock} {informing} ms");
            assert!(informing < 1.5 * block, "{lock}, degree {degree}: {informing} {block}");
        }
    }
}

#[test]
fn an_operation_takes_as_long_as_the_setting_says() {
    let work = |operation| {
        let setting = Setting { operation, ..Setting::default() };
        let program = Program::Quicksort { lock: "mcs-spin".into(), elements: 500, small: sim::SMALL };
        let workload = Workload { program, setting, ..Workload::tr_lock("", 1, 1.0, 0.0, 1) };
        run("sgi-challenge-11", &workload, 1).work_ms
    };
    assert!((work(4.0) - 4.0 * work(1.0)).abs() < 1e-6);
}

#[test]
fn a_range_that_is_sorted_alone_needs_no_lock() {
    let accesses = |small| {
        let program = Program::Quicksort { lock: "mcs-spin".into(), elements: 2000, small };
        let workload = Workload { program, ..Workload::tr_lock("", 4, 1.0, 0.0, 1) };
        let results = run("sgi-challenge-11", &workload, 1);
        (results.digest, results.misses)
    };
    let (often, seldom) = (accesses(sim::SMALL), accesses(2000));
    assert_eq!(often.0, seldom.0);
    assert!(seldom.1 < often.1, "{seldom:?} {often:?}");
}
