// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each cost of a machine shows, and the kernel does what it is said to do.

use std::cell::RefCell;
use std::rc::Rc;

use platform::{Atomic, AtomicInt, Ordering::*, Platform, Priority, RunState, ThreadId, Wait, Wish};
use sim::{
    Hints, Machine, Queue, Results, Setting, Sim, Woken, Word, World, clock_ns, simulate_with, work_ns,
};

type Log<T> = Rc<RefCell<Vec<T>>>;

fn machine(name: &str, processors: u32) -> Machine {
    let mut machine = Machine::named(name).unwrap().with_processors(processors);
    machine.kernel.quantum_jitter.value = 0.0;
    machine
}

fn run(machine: &Machine, setting: &Setting, build: impl FnOnce(&mut World)) -> Results {
    let results = simulate_with(machine, setting, 1, 0, build);
    assert_eq!(results.failure, None);
    results
}

fn bound() -> Setting {
    Setting { bound: true, ..Setting::default() }
}

#[test]
fn a_line_that_goes_to_and_fro_costs_what_the_description_says() {
    let machine = machine("sgi-challenge-11", 2);
    let results = run(&machine, &bound(), |world| {
        let app = world.add_app();
        let word = world.place(Word::<u32>::new(0));
        for me in 0..2 {
            world.spawn(app, move || {
                for turn in 0..1000 {
                    // Each has the line from the other, once each turn.
                    while word.load(Relaxed) != 2 * turn + me {}
                    word.store(2 * turn + me + 1, Relaxed);
                }
            });
        }
    });
    // A hand-over: the reader's miss (900 ns), and the writer's upgrade (300 ns); beside them hits and the
    // bus.
    let turn_ns = results.elapsed_ms * 1e6 / 2000.0;
    assert!((1200.0..1500.0).contains(&turn_ns), "{turn_ns}");
    assert!((1990..=2010).contains(&results.invalidations), "{}", results.invalidations);
}

#[test]
fn pauses_work_and_the_clock_take_their_time() {
    let machine = machine("sgi-challenge-11", 1);
    let times: Log<f64> = Rc::default();
    let log = times.clone();
    run(&machine, &bound(), move |world| {
        let app = world.add_app();
        world.spawn(app, move || {
            let mut last = clock_ns();
            let mut lap = || {
                let now = clock_ns();
                log.borrow_mut().push(now - last);
                last = now;
            };
            Sim::pause();
            lap();
            work_ns(12_345.0);
            lap();
            Sim::now_ns();
            lap();
            Sim::nap(1_000_000);
            lap();
        });
    });
    let times = times.borrow();
    assert_eq!(times[..3], [40.0, 12_345.0, 1_000.0]);
    // System call and sleep; nobody else ran, so that coming back is no switch.
    assert_eq!(times[3], 1_010_000.0);
}

#[test]
fn a_preempted_holder_delays_by_a_quantum() {
    // The holder's processor has a foreign process, the waiter's has none.
    let waited = |foreign: f64| {
        let machine = machine("sgi-challenge-11", 2);
        let results = run(&machine, &Setting { foreign, ..bound() }, |world| {
            let app = world.add_app();
            let word = world.place(Word::<u32>::new(0));
            world.spawn(app, move || {
                word.store(1, Relaxed);
                // Longer than a quantum, shorter than two.
                work_ns(25e6);
                word.store(2, Relaxed);
            });
            world.spawn(app, move || {
                while word.load(Relaxed) == 0 {
                    Sim::pause();
                }
                let begin = clock_ns();
                while word.load(Relaxed) != 2 {
                    Sim::pause();
                }
                sim::passed(clock_ns() - begin);
            });
        });
        results.waits.unwrap().max_ns as f64 / 1e6
    };
    let alone = waited(0.0);
    assert!((24.5..25.5).contains(&alone), "{alone}");
    // Once or twice, as its first quantum is what was left of one.
    let beside = waited(0.5);
    assert!((44.0..46.5).contains(&beside) || (64.0..66.5).contains(&beside), "{beside}");
}

/// One processor, one foreign process: the thread wishes not to be preempted and is, in the end. Returns
/// results and the moments at which it saw the warning, and its processor go.
fn wishing(yields: bool, honours: bool) -> (Results, Vec<(bool, f64)>) {
    let machine = machine("sgi-challenge-11", 1);
    let seen: Log<(bool, f64)> = Rc::default();
    let log = seen.clone();
    let setting = Setting { foreign: 1.0, honours_wishes: Some(honours), ..bound() };
    let results = run(&machine, &setting, move |world| {
        let app = world.add_app();
        world.spawn(app, move || {
            let me = Sim::register();
            let mut warned = false;
            let mut last = clock_ns();
            while clock_ns() < 300e6 {
                Sim::set_wish(me, Wish::UnpreemptableSelf);
                work_ns(100_000.0);
                if Sim::warning(me) != warned {
                    warned = !warned;
                    log.borrow_mut().push((true, clock_ns()));
                    if warned && yields {
                        Sim::set_wish(me, Wish::Preemptable);
                        Sim::yield_now();
                        warned = Sim::warning(me);
                    }
                }
                let now = clock_ns();
                if now - last > 1e6 {
                    log.borrow_mut().push((false, now - last));
                }
                last = now;
            }
        });
    });
    let seen = seen.borrow().clone();
    (results, seen)
}

#[test]
fn a_wish_is_honoured_once() {
    let (results, _) = wishing(false, true);
    assert!(results.put_off > 3);
    assert_eq!(
        results.put_off,
        results.overrun + u64::from(results.put_off > results.overrun),
        "the second time never"
    );
    let (results, seen) = wishing(false, false);
    assert_eq!(results.put_off, 0);
    assert!(seen.iter().all(|&(warning, _)| !warning));
}

#[test]
fn what_a_wish_added_is_missing_from_the_next_quantum() {
    let (obedient, _) = wishing(true, true);
    let (greedy, _) = wishing(false, true);
    let (plain, _) = wishing(false, false);
    assert_eq!(obedient.overrun, 0, "who yields when warned is not preempted");
    // Half of the processor, whatever one wishes: within one quantum of 20 ms.
    for results in [&obedient, &greedy, &plain] {
        assert!(
            (results.cpu_ms - results.foreign_ms).abs() <= 22.0,
            "{} {}",
            results.cpu_ms,
            results.foreign_ms
        );
    }
}

#[test]
fn the_arena_says_who_runs() {
    let machine = machine("sgi-challenge-11", 2);
    let seen: Log<RunState> = Rc::default();
    let log = seen.clone();
    // Processor 0 has a foreign process too; processor 1 watches.
    run(&machine, &Setting { foreign: 0.5, ..bound() }, move |world| {
        let app = world.add_app();
        world.spawn(app, || {
            Sim::register();
            work_ns(100e6);
            Sim::nap(50_000_000);
            work_ns(10e6);
        });
        world.spawn(app, move || {
            let mut last = RunState::Unknown;
            while clock_ns() < 300e6 {
                work_ns(50_000.0);
                let state = Sim::run_state(ThreadId(1));
                let higher = Sim::higher_preempted(Priority::LockWaiter);
                assert_eq!(higher, state == RunState::Preempted);
                assert!(!Sim::higher_preempted(Priority::Running), "nobody has a higher one");
                if state != last {
                    log.borrow_mut().push(state);
                }
                last = state;
            }
        });
    });
    let seen = seen.borrow();
    for state in [RunState::Running, RunState::Preempted, RunState::Blocked] {
        assert!(seen.contains(&state), "{seen:?}");
    }
}

#[test]
fn a_kernel_may_lie() {
    for (hints, expected) in [
        (Hints::True, RunState::Running),
        (Hints::None, RunState::Unknown),
        (Hints::Inverted, RunState::Preempted),
        (Hints::Delayed { us: 1e6 }, RunState::Unknown),
        (Hints::Dropped { fraction: 1.0 }, RunState::Unknown),
    ] {
        let machine = machine("sgi-challenge-11", 2);
        run(&machine, &Setting { hints, ..bound() }, move |world| {
            let app = world.add_app();
            world.spawn(app, || work_ns(10e6));
            world.spawn(app, move || {
                work_ns(1e6);
                assert_eq!(Sim::run_state(ThreadId(1)), expected, "{hints:?}");
            });
        });
    }
}

#[test]
fn sleepers_wake_in_line_and_in_time() {
    let machine = machine("sgi-challenge-11", 4);
    let order: Log<(u32, Wait)> = Rc::default();
    let log = order.clone();
    run(&machine, &bound(), move |world| {
        let app = world.add_app();
        let word = world.place(Word::<u32>::new(0));
        for me in 0..3u32 {
            let log = log.clone();
            world.spawn(app, move || {
                work_ns(1e6 * f64::from(me + 1));
                let deadline = (me == 1).then(|| platform::Deadline {
                    ns: Sim::now_ns() + 1_000_000,
                    clock: platform::Clock::Monotonic,
                });
                let how = word.get();
                let how = Sim::wait(how, 0, deadline);
                log.borrow_mut().push((me, how));
            });
        }
        world.spawn(app, move || {
            work_ns(20e6);
            assert_eq!(Sim::wake(word.get(), 1), 1);
            work_ns(20e6);
            word.store(1, Relaxed);
            assert_eq!(Sim::wake(word.get(), 5), 1, "one sleeps; one was late, one was woken");
            assert_eq!(Sim::wait(word.get(), 0, None), Wait::Changed);
        });
    });
    assert_eq!(*order.borrow(), [(1, Wait::TimedOut), (0, Wait::Woken), (2, Wait::Woken)]);
}

#[test]
fn who_wakes_up_comes_last_next_or_at_once() {
    // One processor, three foreign processes with a quantum of 3 ms, and a thread that works 10 us and naps
    // 1 ms.
    let mean_ms = |woken: Woken| {
        let mut machine = machine("epyc-64", 1);
        machine.kernel.woken.value = woken;
        let results = run(&machine, &Setting { foreign: 3.0, ..bound() }, |world| {
            let app = world.add_app();
            world.spawn(app, || {
                for _ in 0..100 {
                    work_ns(10e3);
                    Sim::nap(1_000_000);
                }
            });
        });
        results.elapsed_ms / 100.0
    };
    // It waits behind three quanta, for the rest of one, or not at all.
    let (last, next, at_once) = (mean_ms(Woken::Last), mean_ms(Woken::Next), mean_ms(Woken::Preempts));
    assert!((7.0..=9.5).contains(&last), "{last}");
    assert!((2.0..=3.5).contains(&next), "{next}");
    assert!((1.0..=1.1).contains(&at_once), "{at_once}");
}

#[test]
fn a_thread_that_takes_its_share_gains_nothing_by_waking_up() {
    let mut machine = machine("epyc-64", 1);
    machine.kernel.woken.value = Woken::Preempts;
    let results = run(&machine, &Setting { foreign: 1.0, ..bound() }, |world| {
        let app = world.add_app();
        world.spawn(app, || {
            for _ in 0..100 {
                work_ns(1e6);
                Sim::nap(1);
            }
        });
    });
    // Half of the processor.
    assert!((185.0..=206.0).contains(&results.elapsed_ms), "{}", results.elapsed_ms);
}

#[test]
fn a_deadlock_is_reported() {
    let machine = machine("sgi-challenge-11", 2);
    let results = simulate_with(&machine, &Setting { foreign: 1.0, ..bound() }, 1, 0, |world| {
        let app = world.add_app();
        let word = world.place(Word::<u32>::new(0));
        world.spawn(app, move || {
            Sim::wait(word.get(), 0, None);
        });
    });
    assert!(results.failure.unwrap().contains("nobody will wake"));
}

#[test]
fn idle_processors_help_unless_threads_are_bound() {
    let work = |setting: &Setting| {
        let machine = machine("epyc-64", 4);
        run(&machine, setting, |world| {
            let app = world.add_app();
            for index in 0..8 {
                world.spawn(app, move || work_ns(if index % 4 == 0 { 100e6 } else { 1e6 }));
            }
        })
    };
    let free = work(&Setting::default());
    let bound = work(&bound());
    assert!((200.0..203.0).contains(&bound.elapsed_ms), "{}", bound.elapsed_ms);
    assert!((100.0..110.0).contains(&free.elapsed_ms), "{}", free.elapsed_ms);
    assert!(bound.migrations == 0 && free.migrations > 0);
    let global = work(&Setting { queue: Some(Queue::Global), ..Setting::default() });
    assert!((100.0..115.0).contains(&global.elapsed_ms), "{}", global.elapsed_ms);
}

#[test]
fn the_second_level_prefers_threads_that_matter() {
    // One processor, four threads; the third matters more.
    let done = |second_level: bool| {
        let machine = machine("ppro-4", 1);
        let order: Log<usize> = Rc::default();
        let log = order.clone();
        run(&machine, &Setting { second_level: Some(second_level), ..Setting::default() }, move |world| {
            let app = world.add_app();
            for index in 0..4usize {
                let log = log.clone();
                world.spawn(app, move || {
                    let me = Sim::register();
                    if index == 2 {
                        Sim::set_priority(me, Priority::LockHolder);
                    }
                    Sim::yield_now();
                    work_ns(500e6);
                    log.borrow_mut().push(index);
                });
            }
        });
        order.take()
    };
    assert_eq!(done(true)[0], 2);
    assert_ne!(done(false), done(true));
}

#[test]
fn a_partition_changes() {
    let machine = machine("ksr1-63", 8);
    let seen: Log<(u32, u32)> = Rc::default();
    let log = seen.clone();
    let repartition = sim::Repartition { every_ms: 20.0, least: 2, most: 6, served: false };
    let results = run(&machine, &Setting { repartition: Some(repartition), ..bound() }, move |world| {
        let app = world.add_app();
        for index in 0..8 {
            let log = log.clone();
            world.spawn(app, move || {
                for _ in 0..1000 {
                    work_ns(200_000.0);
                    if index == 0 {
                        log.borrow_mut().push((Sim::partition_generation(), Sim::processors()));
                    }
                }
            });
        }
    });
    let seen = seen.borrow();
    assert!(seen.iter().all(|&(_, processors)| (2..=6).contains(&processors)));
    assert!(seen.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    assert!(results.repartitions > 5, "{}", results.repartitions);
    assert!(seen.last().unwrap().0 > 2, "{:?}", seen.last());
    // 1.6 s of work on 4 processors on average.
    assert!((250.0..900.0).contains(&results.elapsed_ms), "{}", results.elapsed_ms);
}

/// What the program sees of a partition that the server's policy decides about: the numbers it asked for,
/// as long as it has any.
#[test]
fn a_served_partition_changes_as_others_come_and_go() {
    let machine = machine("epyc-64", 16);
    let seen: Log<u32> = Rc::default();
    let log = seen.clone();
    let repartition = sim::Repartition { every_ms: 5.0, least: 3, most: 10, served: true };
    let results = run(&machine, &Setting { repartition: Some(repartition), ..bound() }, move |world| {
        let app = world.add_app();
        for index in 0..10 {
            let log = log.clone();
            world.spawn(app, move || {
                for _ in 0..1000 {
                    work_ns(1_000_000.0);
                    if index == 0 {
                        log.borrow_mut().push(Sim::processors());
                    }
                }
            });
        }
    });
    let seen = seen.borrow();
    // The least is never taken from it; beyond, it depends on the others.
    assert!(seen.iter().all(|processors| (3..=10).contains(processors)), "{seen:?}");
    assert!(seen.contains(&3) && seen.contains(&10), "{seen:?}");
    assert!(results.repartitions > 20, "{}", results.repartitions);
}

#[test]
fn machines_in_different_threads_do_not_meet() {
    let one = || {
        let machine = machine("epyc-64", 16);
        run(&machine, &bound(), |world| {
            let app = world.add_app();
            let word = world.place(Word::<u32>::new(0));
            for _ in 0..16 {
                world.spawn(app, move || {
                    for _ in 0..200 {
                        word.fetch_add(1, Relaxed);
                    }
                });
            }
        })
    };
    let alone = one();
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(one)).collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), alone);
    }
}
