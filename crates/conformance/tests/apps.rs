// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs of `apps` compute the same on real threads and on simulated ones, whatever the lock.

use apps::{App, SMALL, Threads};
use linux::Linux;
use sim::{Machine, Program, Repartition, Setting, Workload, simulate};

const SORT: App = App::Quicksort { elements: 3000, small: SMALL };
const FACTOR: App = App::Cholesky { levels: 4, block: 1 };
const SEND: App = App::FanOut { levels: 4, block: 1 };
const SOLVE: App = App::Gauss { rows: 33 };
const DIVIDE: App = App::Lu { blocks: 9 };
const LIGHT: App = App::Radiosity { side: 1 };

fn simulated(program: Program, threads: u32, setting: Setting) -> u32 {
    let workload = Workload { program, threads, rounds: 1, vary: 0.0, instances: 1, setting };
    let results = simulate(&Machine::named("sgi-challenge-11").unwrap(), &workload, 5).unwrap();
    assert_eq!((results.failure, results.sections), (None, results.wanted), "{workload:?}");
    results.digest.expect("it is done")
}

fn real(app: App, lock: &str, threads: u32) -> u32 {
    let mut host = Threads::<Linux>::default();
    let digest = app.load(&mut host, lock, threads).unwrap();
    host.run();
    digest()
}

#[test]
fn with_every_mutex() {
    for lock in catalog::MUTEXES.iter().map(|entry| entry.name) {
        for threads in [1, 4] {
            assert_eq!(real(SORT, lock, threads), SORT.expected(), "quicksort, {lock}");
            assert_eq!(real(FACTOR, lock, threads), FACTOR.expected(), "cholesky, {lock}");
        }
        for (threads, foreign) in [(4, 0.0), (11, 1.0)] {
            let setting = || Setting { foreign, bound: true, ..Setting::default() };
            let sort = Program::Quicksort { lock: lock.into(), elements: 3000, small: SMALL };
            assert_eq!(simulated(sort, threads, setting()), SORT.expected(), "quicksort simulated, {lock}");
            let factor = Program::Cholesky { lock: lock.into(), levels: 4, block: 1 };
            assert_eq!(
                simulated(factor, threads, setting()),
                FACTOR.expected(),
                "cholesky simulated, {lock}"
            );
        }
    }
}

/// Not every mutex: on two real processors, four threads and all mutexes took more than three minutes.
#[test]
fn radiosity_with_some_mutexes() {
    for lock in ["native", "ttas-block", "mcs-block", "wakeful"] {
        assert_eq!(real(LIGHT, lock, 4), LIGHT.expected(), "{lock}");
    }
    for lock in ["ttas-informing", "mcs-informing", "array-queue-block", "ticket-spin", "wakeful"] {
        for threads in [1, 4, 11] {
            let light = Program::Radiosity { lock: lock.into(), side: 1 };
            let setting = Setting { bound: true, ..Setting::default() };
            assert_eq!(simulated(light, threads, setting), LIGHT.expected(), "simulated, {lock}");
        }
    }
}

#[test]
fn cholesky_with_owners_and_some_mutexes() {
    assert_eq!(SEND.expected(), FACTOR.expected());
    for lock in ["native", "ttas-block", "mcs-block", "wakeful"] {
        for threads in [1, 3, 4] {
            assert_eq!(real(SEND, lock, threads), SEND.expected(), "{lock}");
        }
    }
    for lock in ["ttas-informing", "mcs-informing", "array-queue-block", "ticket-spin", "wakeful"] {
        for threads in [1, 4, 11] {
            let send = Program::FanOut { lock: lock.into(), levels: 4, block: 1 };
            let setting = Setting { bound: true, ..Setting::default() };
            assert_eq!(simulated(send, threads, setting), SEND.expected(), "simulated, {lock}");
        }
    }
}

#[test]
fn with_every_barrier() {
    for barrier in catalog::BARRIERS.iter().map(|entry| entry.name) {
        for threads in [1, 4] {
            assert_eq!(real(SOLVE, barrier, threads), SOLVE.expected(), "{barrier}");
            assert_eq!(real(DIVIDE, barrier, threads), DIVIDE.expected(), "{barrier}, lu");
        }
        for threads in [4, 16] {
            let repartition = Some(Repartition { every_ms: 1.0, least: 5, most: 11, served: false });
            let setting = || Setting { repartition: repartition.clone(), ..Setting::default() };
            let solve = Program::Gauss { barrier: barrier.into(), rows: 33 };
            assert_eq!(simulated(solve, threads, setting()), SOLVE.expected(), "{barrier}, simulated");
            let divide = Program::Lu { barrier: barrier.into(), blocks: 9 };
            assert_eq!(simulated(divide, threads, setting()), DIVIDE.expected(), "{barrier}, lu simulated");
        }
    }
}

#[test]
fn sizes_at_the_edge() {
    for app in [
        App::Quicksort { elements: 0, small: SMALL },
        App::Quicksort { elements: 1, small: SMALL },
        App::Quicksort { elements: 33, small: SMALL },
        App::Quicksort { elements: 3000, small: 500 },
        App::Cholesky { levels: 1, block: 16 },
        App::Radiosity { side: 1 },
    ] {
        assert_eq!(real(app, "native", 3), app.expected(), "{app:?}");
    }
    for rows in [0, 1, 2] {
        assert_eq!(real(App::Gauss { rows }, "c-block", 3), App::Gauss { rows }.expected());
        assert_eq!(real(App::Lu { blocks: rows }, "c-block", 3), App::Lu { blocks: rows }.expected());
    }
    assert!(SORT.load(&mut Threads::<Linux>::default(), "none of the catalogue", 1).is_none());
}

#[test]
fn another_input_is_another_digest() {
    assert_ne!(SORT.expected(), App::Quicksort { elements: 2999, small: SMALL }.expected());
    assert_ne!(FACTOR.expected(), App::Cholesky { levels: 5, block: 1 }.expected());
    assert_ne!(SOLVE.expected(), App::Gauss { rows: 34 }.expected());
    assert_ne!(DIVIDE.expected(), App::Lu { blocks: 10 }.expected());
    assert_ne!(LIGHT.expected(), App::Radiosity { side: 3 }.expected());
}
