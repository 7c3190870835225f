// SPDX-License-Identifier: MIT OR Apache-2.0
//! The locks of a KSR 1's own, in short cases computed by hand. On one ring a line moves in 8,750 ns, over
//! both in 30,000. A store to a line that is here takes 100 ns, to lock a line takes 500 beside, and to free
//! it 500.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::{Platform, RunState, ThreadId};
use sim::{LockOrder, Machine, Setting, Sim, Workload, clock_ns, simulate, simulate_with, work_ns};
use sync::mutex::{Hardware, RawMutex};

fn ksr() -> Machine {
    Machine::named("ksr1-63").unwrap()
}

fn bound() -> Setting {
    Setting { bound: true, ..Setting::default() }
}

/// What happened, to whom, and when.
type Log<T> = Rc<RefCell<Vec<T>>>;

/// Each asks at a moment, on a processor, and has the lock for so long. Returns who got it when, in us.
fn turns(machine: &Machine, asks: &[(u32, f64)], keeps_us: f64) -> Vec<(u32, f64)> {
    let log: Log<(u32, f64)> = Log::default();
    let all = log.clone();
    let results = simulate_with(machine, &bound(), 1, 0, |world| {
        let app = world.add_app();
        let lock = world.place(Hardware::<Sim>::new());
        for &(processor, at_us) in asks {
            let log = all.clone();
            world.spawn_on(app, processor, move || {
                work_ns(at_us * 1e3 - clock_ns());
                // SAFETY: it has no node, and is released by who locked it.
                unsafe { lock.lock(&()) };
                log.borrow_mut().push((processor, clock_ns() / 1e3));
                work_ns(keeps_us * 1e3);
                // SAFETY: locked above.
                unsafe { lock.unlock(&()) };
            });
        }
    });
    assert_eq!(results.failure, None);
    log.take()
}

#[test]
fn a_free_lock_costs_a_transfer() {
    // The line comes from the first one's own memory, then from its cache: 8.75 + 0.1 + 0.5.
    let far = 30.0 + 0.1 + 0.5;
    assert_eq!(
        turns(&ksr(), &[(3, 500.0), (7, 1000.0), (40, 2000.0)], 100.0),
        [(3, 509.35), (7, 1009.35), (40, 2000.0 + far)]
    );
}

#[test]
fn the_nearest_is_next() {
    // The first has the line 9.35 us after it asks, and frees it 100 + 0.1 + 0.5 later. Of those that stall
    // it goes to 12, which is the next in the ring, 9.35 later. Then it goes round the ring to 5, and then to
    // the other ring, 30.6 later, although 40 asked first.
    let asks = [(10, 1000.0), (40, 1020.0), (5, 1030.0), (12, 1040.0)];
    let expected = [(10, 1009.35), (12, 1119.3), (5, 1229.25), (40, 1360.45)];
    let came = turns(&ksr(), &asks, 100.0);
    assert_eq!(came.len(), expected.len());
    for (is, should) in came.iter().zip(expected) {
        assert!(is.0 == should.0 && (is.1 - should.1).abs() < 1e-6, "{came:?}");
    }
}

#[test]
fn the_first_to_come_may_be_next() {
    let mut machine = ksr();
    let line = machine.hardware_lock.as_mut().and_then(|lock| lock.line.as_mut()).unwrap();
    line.order.value = LockOrder::Arrival;
    let came = turns(&machine, &[(10, 1000.0), (40, 1020.0), (5, 1030.0), (12, 1040.0)], 100.0);
    assert_eq!(came.iter().map(|turn| turn.0).collect::<Vec<_>>(), [10, 40, 5, 12]);
}

/// A thread that loses its processor while it is stalled does not ask any more.
#[test]
fn a_lock_is_not_given_to_a_preempted_thread() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Said {
        Frees(RunState),
        Has(u32),
    }
    let log: Log<Said> = Log::default();
    let all = log.clone();
    // A foreign process beside the thread of the first processor only.
    let setting = Setting { foreign: 1.0 / 63.0, ..bound() };
    let results = simulate_with(&ksr(), &setting, 1, 0, |world| {
        let app = world.add_app();
        let lock = world.place(Hardware::<Sim>::new());
        let done = Rc::new(Cell::new(false));
        let asks = |processor: u32, holds_ms: f64, outside_ms: f64| {
            let (log, done) = (all.clone(), done.clone());
            move || {
                Sim::register();
                for round in 0.. {
                    if processor == 31 && round == 40 {
                        done.set(true);
                    }
                    if done.get() {
                        break;
                    }
                    // SAFETY: it has no node, and is released by who locked it.
                    unsafe { lock.lock(&()) };
                    log.borrow_mut().push(Said::Has(processor));
                    work_ns(holds_ms * 1e6);
                    if processor == 31 {
                        log.borrow_mut().push(Said::Frees(Sim::run_state(ThreadId(1))));
                    }
                    // SAFETY: locked above.
                    unsafe { lock.unlock(&()) };
                    work_ns(outside_ms * 1e6);
                }
            }
        };
        // Behind 31 the ring comes to 0 first.
        for (processor, holds_ms, outside_ms) in [(0, 0.1, 0.1), (31, 70.0, 10.0), (5, 0.1, 0.1)] {
            world.spawn_on(app, processor, asks(processor, holds_ms, outside_ms));
        }
    });
    assert_eq!(results.failure, None);
    let log = log.take();
    let next: Vec<_> = log
        .windows(2)
        .filter_map(|pair| match pair[..] {
            [Said::Frees(state), Said::Has(next)] if next != 31 => Some((state, next)),
            _ => None,
        })
        .collect();
    let preempted = next.iter().filter(|it| it.0 == RunState::Preempted).count();
    assert!(preempted > 2 && preempted + 2 < next.len(), "{next:?}");
    assert!(next.iter().all(|&(state, next)| (next == 0) == (state == RunState::Running)), "{next:?}");
}

/// TR 1994, section 5.2: without the wish it deteriorates, with it it does not.
#[test]
fn the_wish_keeps_the_holder_at_work() {
    let at = |lock: &str, level: f64| {
        let workload = Workload::tr_lock(lock, 63, level, 65.0, 20);
        let results = simulate(&ksr(), &workload, 1).unwrap();
        assert_eq!(results.failure, None);
        results.estimated_ms
    };
    let (plain, np) = (at("hardware", 3.0), at("hardware-np", 3.0));
    println!("level 3: {plain} ms, with the wish {np} ms");
    assert!(np < 0.7 * plain, "{np} {plain}");
}
