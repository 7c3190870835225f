// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fibers on activations, on the simulated machine: whatever the kernel tells, each task runs once.

use sim::activations::{Job, Kind};
use sim::{Event, Hints, Machine, Program, Repartition, Results, Setting, Workload, simulate};

const TASKS: u64 = 40;

fn run(kind: Kind, compute_ns: f64, processors: u32, seed: u64, setting: Setting) -> Results {
    let machine = Machine::named("cxl-1024").unwrap().with_processors(processors);
    let job = Job::Tasks { compute_ns, kept_ns: 10e6, faults: false };
    let rounds = TASKS * u64::from(processors);
    let program = Program::Threads { kind, job };
    let workload = Workload { program, threads: processors, rounds, vary: 0.2, instances: 1, setting };
    let results = simulate(&machine, &workload, seed).unwrap();
    assert_eq!(results.failure, None);
    assert!(!results.limited);
    assert_eq!(results.sections, rounds, "each task runs to its end");
    results
}

fn fibers(processors: u32, seed: u64, setting: Setting) -> Results {
    run(Kind::Fibers { posts: 2, looks: true }, 2e6, processors, seed, setting)
}

fn with(hints: Hints) -> Setting {
    Setting { hints, ..Setting::default() }
}

fn idle(results: &Results) -> f64 {
    results.activity.as_ref().expect("tasks were ready").idle_while_ready_ns
}

#[test]
fn true_upcalls_leave_no_processor_idle_and_a_plain_pool_does() {
    let told = fibers(4, 1, Setting::default());
    assert_eq!(idle(&told), 0.0);
    let activity = told.activity.as_ref().unwrap();
    assert!(activity.used > 0.9, "{activity:?}");
    assert_eq!(activity.blocks, 4 * TASKS);
    assert!(activity.upcalls[Event::Blocked as usize] > 2 * TASKS, "{activity:?}");
    // What a kernel thread a processor loses is what this measures.
    let plain = run(Kind::Kernel { each: 1 }, 2e6, 4, 1, Setting::default());
    assert!(plain.activity.as_ref().unwrap().used < 0.5, "{plain:?}");
    assert!(idle(&plain) > 1e6);
}

#[test]
fn whatever_the_kernel_tells_each_task_runs_once() {
    let lies = [
        Hints::None,
        Hints::Delayed { us: 15_000.0 },
        Hints::Dropped { fraction: 0.5 },
        Hints::Inverted,
        Hints::True,
    ];
    for hints in lies {
        for seed in 1..4 {
            fibers(3, seed, with(hints));
        }
    }
}

#[test]
fn a_preempted_carrier_keeps_its_seat() {
    // As many foreign processes as processors.
    let foreign = Setting { foreign: 1.0, ..Setting::default() };
    let results = run(Kind::Fibers { posts: 2, looks: true }, 20e6, 4, 1, foreign);
    assert!(results.activity.unwrap().upcalls[Event::Preempted as usize] > 0);
    let repartition = Repartition { every_ms: 5.0, least: 1, most: 4, served: false };
    fibers(4, 1, Setting { repartition: Some(repartition), ..Setting::default() });
}

#[test]
fn one_seed_one_result() {
    assert_eq!(fibers(4, 5, Setting::default()), fibers(4, 5, Setting::default()));
}
