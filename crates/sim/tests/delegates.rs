// SPDX-License-Identifier: MIT OR Apache-2.0
//! The delegating locks of the catalogue on the machines, from the source that runs on the real one; and
//! what a program with them costs where caches are finite and pages have homes.

use sim::{Machine, Order, Program, Results, Setting, SimError, Touches, Workload, simulate};

fn workload(lock: &str, clients: u32, rounds: u64, touches: Touches, server: u32) -> Workload {
    let program = Program::Delegated { lock: lock.into(), touches, outside_ns: 100.0, server };
    let setting = Setting { bound: true, ..Setting::default() };
    Workload { program, threads: clients, rounds, vary: 0.2, instances: 1, setting }
}

fn run(machine: &str, workload: &Workload) -> Results {
    let results = simulate(&Machine::named(machine).unwrap(), workload, 5).unwrap();
    assert_eq!(results.failure, None, "{machine} {workload:?}");
    results
}

#[test]
fn every_lock_runs_and_twice_the_same() {
    for lock in catalog::DELEGATES.iter().map(|entry| entry.name).chain(["wakeful", "mcs-spin"]) {
        for (machine, processors, clients) in [
            ("sgi-challenge-11", 11, 10),
            ("xeon-e5420-2x4", 8, 1),
            ("xeon-e5420-2x4", 8, 7),
            ("numa-2x32", 64, 40),
            ("numa-8x8", 64, 63),
            // More threads than processors.
            ("ppro-4", 4, 9),
        ] {
            let workload = workload(lock, clients, 6, Touches::Lines(3), processors - 1);
            let first = run(machine, &workload);
            assert_eq!(
                (first.limited, first.sections),
                (false, u64::from(clients) * 6),
                "{lock} on {machine}"
            );
            assert_eq!(first, run(machine, &workload), "{lock} on {machine}");
        }
    }
}

#[test]
fn passing_spinners_over_changes_nothing_in_finite_caches() {
    let (mut passed, mut memory) = (0, 0.0);
    for lock in ["mcs-spin", "ticket-spin", "ttas-spin", "rcl", "flat-combining", "d-wakeful"] {
        // More lines than a cache has, and an array with pages on both nodes.
        for touches in
            [Touches::Lines(600), Touches::Element { elements: 1 << 18, order: Order::Random, node: 1 }]
        {
            let mut workload = workload(lock, 7, 30, touches, 4);
            let mut with = run("xeon-e5420-2x4", &workload);
            workload.setting.pass_over = false;
            let without = run("xeon-e5420-2x4", &workload);
            passed += with.passed_over;
            memory += with.path.unwrap().memory;
            with.passed_over = 0;
            assert_eq!(with, without, "{lock}, {touches:?}");
        }
    }
    assert!(memory > 1.0, "nothing had to go: {memory}");
    if cfg!(target_arch = "x86_64") {
        assert!(passed > 10_000, "{passed}");
    }
}

#[test]
fn an_unknown_lock_is_said_to_be_one() {
    let workload = workload("rlc", 2, 1, Touches::Lines(1), 0);
    let error = simulate(&Machine::named("ppro-4").unwrap(), &workload, 1).unwrap_err();
    let SimError::Unknown { kind, name } = error else { panic!("{error}") };
    assert_eq!((kind, &*name), ("delegating lock or mutex", "rlc"));
}

#[test]
fn the_path_is_what_the_description_says() {
    // Alone, all is in the own cache: the argument's word, and two accesses a line.
    let alone = run("sgi-challenge-11", &workload("mcs-spin", 1, 2_000, Touches::Lines(3), 10));
    let path = alone.path.unwrap();
    assert!((path.section_ns - 7.0 * 13.0).abs() < 3.0, "{path:?}");
    assert!(path.misses < 0.01, "{path:?}");
    // What the client does outside is in the hand-over.
    assert!((100.0..400.0).contains(&path.handover_ns), "{path:?}");
    // Sections of the server find the data, and fetch the argument.
    let served = run("sgi-challenge-11", &workload("rcl", 10, 200, Touches::Lines(3), 10)).path.unwrap();
    assert!((1.0..1.1).contains(&served.misses), "{served:?}");
    // Sections of the clients find the argument, and fetch the data, to read and to write it.
    let queued = run("sgi-challenge-11", &workload("mcs-spin", 10, 200, Touches::Lines(3), 10)).path.unwrap();
    assert!((5.9..6.1).contains(&queued.misses), "{queued:?}");
    assert!(queued.section_ns > 1.5 * served.section_ns, "{queued:?} {served:?}");
}

#[test]
fn the_servers_accesses_stay_on_the_node_of_the_pages() {
    let path = |order, node, processors_server| {
        let touches = Touches::Element { elements: 1 << 22, order, node };
        run("xeon-e5420-2x4", &workload("rcl", 3, 500, touches, processors_server)).path.unwrap()
    };
    // 16 MB, of which the caches hold 6: the first time each line comes from memory.
    let far = path(Order::Random, 0, 4);
    assert!(far.memory > 0.9 && far.remote == far.memory, "{far:?}");
    let near = path(Order::Random, 1, 4);
    assert!(near.memory == far.memory && near.remote == 0.0, "{near:?}");
    // 90 ns each, and what the next ones do not wait for.
    let gain = (far.section_ns - near.section_ns) / near.memory;
    assert!((85.0..95.0).contains(&gain), "{gain}");
    // The server on the other node.
    assert_eq!(path(Order::Random, 0, 3).remote, 0.0);
    // One access of 16 is to another line than the one before.
    let along = path(Order::Stride(1), 0, 4);
    assert!((0.06..0.08).contains(&along.memory), "{along:?}");
}
