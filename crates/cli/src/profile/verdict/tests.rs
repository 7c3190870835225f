// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use crate::profile::names::Site;
use crate::profile::report::{BlockedIn, WorkedIn};

fn row(class: Class, set: impl FnOnce(&mut Row)) -> Row {
    let mut row = Row::new(class, &Site { name: "work".into(), ..Site::default() });
    set(&mut row);
    row
}

fn summary() -> Summary {
    Summary {
        run_ns: 1_000,
        elapsed_ns: 1_000,
        threads: 2,
        processes: 1,
        foreign_ns: Some(0),
        ..Summary::default()
    }
}

#[test]
fn the_greatest_cause_comes_first() {
    let lock = row(Class::Mutex, |row| {
        row.holder_preempted_ns = 600;
        row.holder_running_ns = 100;
    });
    let barrier = row(Class::Barrier, |row| row.holder_running_ns = 300);
    let verdict = of(&summary(), &[lock.clone(), barrier.clone()], "prog");
    assert_eq!(verdict.cause, "preempted");
    let words = "100 % of thread time was waiting for locks and barriers (1.00us); 60 % of it was for";
    assert!(verdict.words.starts_with(words), "{}", verdict.words);
    assert!(verdict.words.contains("100 % of that at the mutex in work"), "{}", verdict.words);
    let then = others(&verdict).unwrap();
    assert_eq!(then, "Then, of that waiting: 30 % for a last thread that worked, 10 % for running holders.");
    let much = Summary { run_ns: 30_000, ..summary() };
    let small = of(&much, &[lock.clone(), barrier.clone()], "prog");
    assert_eq!((small.cause, others(&small)), ("preempted", None));
    let other = row(Class::Barrier, |row| row.holder_running_ns = 3_000);
    assert_eq!(of(&summary(), &[lock.clone(), other], "prog").cause, "last-running");
    // A quota stops whoever it may be that waits.
    let throttled = Summary { throttled: Some(3), periods: Some(9), ..summary() };
    let verdict = of(&throttled, &[lock.clone(), barrier], "prog");
    assert_eq!(verdict.cause, "throttled");
    let then = others(&verdict).unwrap();
    assert!(then.starts_with("Of the waiting for locks and barriers, 100 % of thread time: 60 %"), "{then}");
    let seldom = Summary { throttled: Some(1), periods: Some(9), ..summary() };
    assert_eq!(of(&seldom, &[lock], "prog").cause, "preempted");
}

#[test]
fn a_gain_is_bounded_by_what_is_left() {
    let lock = row(Class::Mutex, |row| {
        (row.holder_preempted_ns, row.holder_behind_own_ns) = (600, 500);
    });
    let base = Summary { run_ns: 800, threads: 6, processors: 2, ..summary() };
    let waited = Summary { waited_behind_waiters_or_free_ns: 500, waited_behind_own_ns: 200, ..base };
    let verdict = of(&waited, std::slice::from_ref(&lock), "prog");
    let bounds = |verdict: &Verdict| -> Vec<(&str, f64)> {
        verdict.gains.iter().map(|gain| (gain.by, gain.at_most)).collect()
    };
    assert_eq!(bounds(&verdict), [("run", 2.0), ("fewer-threads", 1.25)]);
    assert!(verdict.advice.starts_with("Another thread of the program had taken"), "{}", verdict.advice);
    let words = gained(&verdict).unwrap();
    assert!(words.contains("2.0 x by `wakeful run`: for 50 %"), "{words}");
    let fewer =
        "1.2 x by no more threads at work than processors, 2 (there were 6 threads at one time): for 20 %";
    assert!(words.contains(fewer), "{words}");
    // The processors are full already.
    let full = Summary { run_ns: 1_600, ..waited };
    assert_eq!(
        bounds(&of(&full, std::slice::from_ref(&lock), "prog")),
        [("run", 1.25), ("fewer-threads", 1.25)]
    );
    let few = Summary { threads: 2, run_ns: 800, ..full };
    assert_eq!(bounds(&of(&few, std::slice::from_ref(&lock), "prog")), [("run", 2.0)]);
    let always = Summary { waited_behind_waiters_or_free_ns: 1_000, run_ns: 10, ..few };
    let verdict = of(&always, std::slice::from_ref(&lock), "prog");
    assert!(gained(&verdict).unwrap().contains("more than 20 x by `wakeful run`"), "{verdict:?}");
    // Nobody knows, or a section is long: other locks change nothing.
    let unknown = Summary { without_switches: Some("denied".into()), ..always };
    assert!(of(&unknown, std::slice::from_ref(&lock), "prog").gains.is_empty());
    // What gains nothing is not advised.
    let base = Summary { waited_behind_waiters_or_free_ns: 500, waited_behind_own_ns: 200, ..summary() };
    let base = Summary { processors: 2, processors_allowed: 4, threads: 6, ..base };
    let busy = Summary { run_ns: 1_996, ready_ns: 2_000, ..base };
    let spin = row(Class::Spin, |row| row.holder_preempted_ns = 600);
    let verdict = of(&busy, &[spin], "prog");
    assert!(verdict.advice.contains("`wakeful compare -- prog`"), "{}", verdict.advice);
    let verdict = of(&busy, &[lock], "prog");
    assert_eq!((bounds(&verdict).len(), gained(&verdict)), (2, None));
    let advice = "Waiting for locks is not what costs the time: the threads kept the 2 processors on which \
                  they ran 100 % busy. Other kinds of locks, or fewer threads, gain less than 5 %.";
    // Nothing binds them there, as far as is known.
    assert_eq!(verdict.advice, advice);
    let ready = "For longer, 50 % of thread time (2.00us), threads were ready without a processor: 6 \
                 threads ran on 2 of 4 processors.";
    assert!(verdict.words.ends_with(ready), "{}", verdict.words);
    let long = row(Class::Mutex, |row| row.holder_running_ns = 600);
    assert_eq!(gained(&of(&summary(), &[long], "prog")), None);
}

#[test]
fn no_lock_gives_a_processor_back() {
    let lock = row(Class::Mutex, |row| {
        (row.holder_preempted_ns, row.holder_behind_own_ns) = (600, 600);
    });
    let lock = std::slice::from_ref(&lock);
    let base = Summary { run_ns: 800, threads: 2, processors: 2, waited_for_preempted_ns: 600, ..summary() };
    let verdict = of(&base, lock, "prog");
    assert_eq!((verdict.cause, gained(&verdict)), ("preempted", None));
    let advice = "Another thread of the program had taken the processor. No other lock gives a thread its \
                  processor back: the other one never waits, and goes on to want it.";
    assert_eq!(verdict.advice, advice);
    // Fewer threads leave it there.
    let many = Summary { threads: 6, waited_behind_own_ns: 500, ..base };
    let verdict = of(&many, lock, "prog");
    assert!(verdict.advice.ends_with("Use fewer threads."), "{}", verdict.advice);
}

#[test]
fn shorter_sections_gain_what_the_processors_allow() {
    let long = row(Class::Mutex, |row| row.holder_running_ns = 600);
    let summary = Summary { processors: 2, processors_allowed: 2, waited_ns: 600, ..summary() };
    let advice = of(&summary, std::slice::from_ref(&long), "prog").advice;
    let words = "At most 2.0 x is to be gained: the program kept 1.00 processors busy, and there are 2.";
    assert!(advice.ends_with(words), "{advice}");
    // Others have as much of the processor on which it never ran.
    let beside = (Some(300), Some(0.7));
    let one = Summary { processors: 1, run_ns: 700, foreign_ns: beside.0, had: beside.1, ..summary.clone() };
    let advice = of(&one, std::slice::from_ref(&long), "prog").advice;
    let words = "the program kept 0.70 processors busy, and other programs leave it 1.40. Stop the other";
    assert!(advice.contains(words), "{advice}");
    // It slept for most of the time, and its threads waited for a part of it.
    let asleep = Summary { run_ns: 100, waited_ns: 500, ..summary.clone() };
    let advice = of(&asleep, std::slice::from_ref(&long), "prog").advice;
    assert!(
        advice.ends_with("At most 2.0 x is to be gained: threads waited for 500ns of 1.00us."),
        "{advice}"
    );
    let limited = Summary { quota_milli: Some(1_500), ..summary };
    let advice = of(&limited, &[long], "prog").advice;
    assert!(advice.ends_with("the program kept 1.00 processors busy, and its quota is 1.50."), "{advice}");
}

#[test]
fn who_comes_last_is_named() {
    let last =
        |name: &str, thread, running_ns| Last { thread, name: name.into(), running_ns, ..Last::default() };
    let barrier = row(Class::Barrier, |row| {
        row.holder_running_ns = 900;
        row.last = vec![last("w-1", 8, 300), last("w-0", 7, 600)];
    });
    let verdict = of(&summary(), std::slice::from_ref(&barrier), "prog");
    let words = "until the last thread finished its work (67 % of that: `w-0` (7)). 100 % of that at the";
    assert!(verdict.words.contains(words), "{}", verdict.words);
    let other = row(Class::Barrier, |row| {
        row.holder_running_ns = 600;
        row.last = vec![last("w-1", 8, 300), last("w-2", 9, 300)];
    });
    let verdict = of(&summary(), &[barrier, other], "prog");
    assert!(verdict.words.contains("the last thread finished its work. 60 % of that"), "{}", verdict.words);
    let one = row(Class::Barrier, |row| {
        row.holder_running_ns = 900;
        row.last = vec![last("w-0", 7, 900)];
    });
    let verdict = of(&summary(), &[one], "prog");
    assert!(verdict.words.contains("until `w-0` (7) finished its work. 100 %"), "{}", verdict.words);
    let even = row(Class::Barrier, |row| {
        row.holder_running_ns = 900;
        row.last = vec![last("w-1", 8, 450), last("w-0", 7, 450)];
    });
    let verdict = of(&summary(), &[even], "prog");
    assert!(verdict.words.contains("until the last thread finished"), "{}", verdict.words);
    let blocked = row(Class::Barrier, |row| {
        row.holder_blocked_ns = 900;
        row.last = vec![Last { thread: 7, blocked_ns: 900, ..Last::default() }];
        let place = Site { name: "next_block".into(), line: Some("s.c:4".into()), ..Site::default() };
        row.blocked_in = vec![BlockedIn { call: "page fault".into(), place, looks: 3 }];
    });
    let verdict = of(&summary(), &[blocked], "prog 3");
    let words = "until thread 7 came, which was blocked, seen in a page fault in next_block s.c:4. 100 %";
    assert!(verdict.words.contains(words), "{}", verdict.words);
    assert!(verdict.advice.contains("`wakeful watch -- prog 3`"), "{}", verdict.advice);
    assert!(verdict.advice.contains("MAP_POPULATE"), "{}", verdict.advice);
}

#[test]
fn a_quota_is_no_lock_problem_if_nothing_waits() {
    let base = Summary {
        throttled: Some(23),
        periods: Some(24),
        quota_milli: Some(400),
        period_us: Some(100_000),
        ..summary()
    };
    let alone = Summary { ready_ns: 3_000, ..base };
    let verdict = of(&alone, &[], "prog");
    let words = "the CPU quota of 0.40 processors stopped the whole program: throttled in 23 of 24 \
                 periods of 100ms. Its threads ran for 1.00us, and were ready without a processor for \
                 3.00us, 75 % of thread time. Nothing waited for a lock or a barrier: this is no lock \
                 problem.";
    assert_eq!(verdict.words, words);
    assert_eq!(verdict.advice, "Raise the quota of 0.40 processors: it stops even one thread.");
    let most =
        Summary { elapsed_ns: 2_000, run_ns: 1_000, threads: 3, processors_allowed: 2, ..alone.clone() };
    let words = "To gain at most: 4.0 x by a quota of 2 processors, with as many threads: they took 1.00us \
                 of processor time in 2.00us.";
    assert_eq!(gained(&of(&most, &[], "prog")).as_deref(), Some(words));
    assert_eq!(gained(&of(&Summary { quota_milli: Some(2_000), ..most.clone() }, &[], "prog")), None);
    for unbounded in [
        Summary { processes: 0, ..most.clone() },
        Summary { programs_silent: 1, ..most.clone() },
        Summary { openmp: Some("libgomp"), ..most.clone() },
        Summary { spinning: vec!["mutex mcs".into()], ..most.clone() },
    ] {
        assert_eq!(gained(&of(&unbounded, &[], "prog")), None);
    }
    let lock = row(Class::Mutex, |row| row.holder_running_ns = 500);
    let many = Summary { threads: 8, quota_milli: Some(2_500), ..alone };
    let verdict = of(&many, &[lock], "prog");
    let advice = "Raise the quota of 2.5 processors, or use 2 threads. `wakeful run -- prog` spins less \
                  under a quota.";
    assert_eq!(verdict.advice, advice);
    assert!(!verdict.words.contains("no lock problem"), "{}", verdict.words);
    // Most had ended when the others began.
    let in_turns = Summary { threads: 100, threads_at_once: 2, ..many };
    let advice = of(&in_turns, &[], "prog").advice;
    assert_eq!(advice, "Raise the quota of 2.5 processors.");
}

#[test]
fn what_is_estimated_is_told_so() {
    let end = row(Class::Region, |row| {
        (row.free_ns, row.estimated_ns) = (600, 570);
    });
    let idle = Summary { processors: 2, waited_behind_waiters_or_free_ns: 20, ..summary() };
    let verdict = of(&idle, &[end], "prog");
    let words = "60 % of thread time was waiting for locks and barriers (600ns, 95 % of it estimated, in \
                 OpenMP regions that were not told); 100 %";
    assert!(verdict.words.starts_with(words), "{}", verdict.words);
    // Nobody knows when those waited, so there is no bound.
    assert!(verdict.gains.is_empty() && verdict.advice.contains("`wakeful compare"), "{verdict:?}");
    let call = |name: &str| BlockedIn { call: name.into(), place: Site::default(), looks: 1 }.called();
    assert_eq!([call("openat"), call("page fault")], ["openat", "a page fault"]);
}

#[test]
fn wake_ups_in_vain_count_by_what_they_cost() {
    let cond = |vain, vain_run_ns| {
        row(Class::Cond, |row| (row.waits, row.vain, row.vain_run_ns) = (100, vain, vain_run_ns))
    };
    assert_eq!(of(&summary(), &[cond(80, 100)], "prog").cause, "vain");
    let many = row(Class::Cond, |row| (row.waits, row.vain, row.vain_run_ns) = (6_094, 4_629, 430));
    let verdict = of(&summary(), &[many], "prog");
    assert!(verdict.words.starts_with("4,629 of 6,094 wake-ups"), "{}", verdict.words);
    assert_eq!(of(&summary(), &[cond(20, 100)], "prog").cause, "nothing");
    assert_eq!(of(&summary(), &[cond(80, 10)], "prog").cause, "nothing");
    let unknown = Summary { run_ns: 0, ..summary() };
    assert_eq!(of(&unknown, &[cond(80, 0)], "prog").cause, "vain");
}

#[test]
fn who_waits_for_work_at_a_semaphore_hides_no_lock() {
    let pool = row(Class::Semaphore, |row| {
        (row.waited_ns, row.holder_unknown_ns) = (9_000, 9_000);
    });
    let lock = row(Class::Mutex, |row| row.holder_running_ns = 100);
    let verdict = of(&summary(), &[pool.clone(), lock], "prog");
    assert_eq!(verdict.cause, "running");
    assert!(verdict.words.starts_with("10 % of thread time was waiting"), "{}", verdict.words);
    assert!(verdict.words.contains("; 100 % of it was for holders"), "{}", verdict.words);
    let verdict = of(&summary(), &[pool], "prog");
    assert_eq!(verdict.cause, "nothing");
    assert!(verdict.words.contains("for semaphores for 9.00us, maybe for work"), "{}", verdict.words);
}

#[test]
fn a_barrier_has_words_of_its_own_for_what_is_unknown() {
    let barrier = row(Class::Barrier, |row| row.holder_unknown_ns = 900);
    let verdict = of(&summary(), &[barrier], "prog");
    assert_eq!(verdict.cause, "last-unknown");
    assert!(verdict.words.contains("never came") && !verdict.advice.contains("readers"), "{}", verdict.words);
}

#[test]
fn who_does_not_wait_is_told_so() {
    let verdict = of(&summary(), &[], "prog");
    assert!(verdict.words.starts_with("nothing waited"), "{}", verdict.words);
    let little = row(Class::Mutex, |row| row.free_ns = 9);
    assert!(of(&summary(), &[little], "prog").words.starts_with("almost nothing waited: 9ns"));
    let unloaded = Summary { processes: 0, ..summary() };
    let verdict = of(&unloaded, &[], "prog");
    assert!(verdict.cause == "unknown" && verdict.advice.contains("LD_PRELOAD"), "{}", verdict.advice);
    let elsewhere = Summary { processes_elsewhere: 1, ..summary() };
    assert!(of(&elsewhere, &[], "prog").words.contains("PID namespace"));
    let unmapped = Summary { processes_unmapped: 1, ..summary() };
    assert!(of(&unmapped, &[], "prog").advice.contains("ulimit -v"));
    let openmp = Summary { openmp: Some("libgomp"), ..summary() };
    assert!(of(&openmp, &[], "prog").words.contains("libgomp"));
}

#[test]
fn what_other_programs_had_bounds_the_gain_and_comes_first_if_it_is_more() {
    let lock = row(Class::Mutex, |row| row.free_ns = 600);
    let lock = std::slice::from_ref(&lock);
    let base = Summary { processors: 2, run_ns: 800, waited_behind_waiters_or_free_ns: 600, ..summary() };
    let alone = of(&base, lock, "prog");
    assert_eq!(alone.gains[0].at_most, 2.5);
    // It had 0.8 of 2 processors, and wanted all of the time all that there were.
    let beside = Summary { foreign_ns: Some(1_200), had: Some(0.8), ..base.clone() };
    let verdict = of(&beside, lock, "prog");
    let words = "other programs had 60 % of the 2 processors, while this one wanted them. It got 0.80 of \
                 them when it wanted all. Then, 75 % of thread time was waiting";
    assert!(verdict.words.starts_with(words), "{}", verdict.words);
    assert!(verdict.advice.starts_with("Stop the other programs"), "{}", verdict.advice);
    assert!(
        verdict.advice.contains("all of the processors that the other programs left"),
        "{}",
        verdict.advice
    );
    assert!(!verdict.advice.contains("wakeful compare"), "{}", verdict.advice);
    assert_eq!((verdict.gains[0].at_most, gained(&verdict)), (1.0, None));
    // It wanted both for half of the time only.
    let half = Summary { had: Some(1.2), ..beside.clone() };
    let at_most = of(&half, lock, "prog").gains[0].at_most;
    assert!((at_most - 1.5).abs() < 1e-9, "{at_most}");
    // Little, or unknown: as if there were none.
    for (foreign_ns, had) in [(Some(100), Some(1.2)), (None, Some(1.9)), (None, None)] {
        let verdict = of(&Summary { foreign_ns, had, ..half.clone() }, lock, "prog");
        assert!(verdict.words.starts_with("75 %"), "{}", verdict.words);
        assert_eq!(verdict.gains[0].at_most, 2.5);
    }
    // More was waited: that comes first.
    let less = Summary { foreign_ns: Some(500), had: Some(1.5), ..base };
    let verdict = of(&less, lock, "prog");
    assert!(verdict.words.starts_with("75 % of thread time was waiting"), "{}", verdict.words);
    let words = " Other programs had 25 % of the 2 processors, while this one wanted them. It got 1.50 of \
                 them when it wanted all.";
    assert!(verdict.words.ends_with(words), "{}", verdict.words);
    assert!(
        verdict.advice.ends_with(
            " Stop the other programs, or give this one more, by nice(1), a \
        cpuset or a cgroup's weight."
        ),
        "{}",
        verdict.advice
    );
    // Without any lock, too.
    let verdict = of(&beside, &[], "prog");
    assert!(verdict.words.starts_with("other programs had 60 %"), "{}", verdict.words);
    assert_eq!((verdict.cause, verdict.advice.ends_with("its locks.")), ("nothing", true));
    // Who gets his quota loses nothing to others.
    let throttled = (Some(9), Some(10), Some(800));
    let quota =
        Summary { throttled: throttled.0, periods: throttled.1, quota_milli: throttled.2, ..beside.clone() };
    let verdict = of(&quota, lock, "prog");
    assert!(!verdict.words.contains("other programs"), "{}", verdict.words);
    let less = Summary { quota_milli: Some(1_500), ..quota };
    assert!(of(&less, lock, "prog").words.contains("Other programs"));
    let one = Summary { processors: 1, foreign_ns: Some(600), ..beside.clone() };
    let words = of(&one, &[], "prog").words;
    assert!(
        words.contains("on which the threads ran, while this one wanted it. It got 0.80 of it"),
        "{words}"
    );
}

#[test]
fn under_wakefuls_locks_other_things_are_advised() {
    let base = Summary { is_helped: true, waited_behind_waiters_or_free_ns: 600, ..summary() };
    let lock = |set: fn(&mut Row)| row(Class::Mutex, set);
    let barrier = |set: fn(&mut Row)| row(Class::Barrier, set);
    let rows = [
        lock(|row| row.free_ns = 600),
        lock(|row| row.holder_preempted_ns = 600),
        barrier(|row| row.free_ns = 600),
        barrier(|row| row.holder_preempted_ns = 600),
        row(Class::Spin, |row| row.holder_preempted_ns = 600),
    ];
    for row in rows {
        let verdict = of(&base, &[row], "prog");
        assert!(!verdict.advice.contains("wakeful compare"), "{}", verdict.advice);
        let already = "already, and no more is to be gained by `wakeful run`";
        assert!(verdict.advice.contains(already) && verdict.gains.is_empty(), "{verdict:?}");
    }
    let behind = lock(|row| (row.holder_preempted_ns, row.holder_behind_own_ns) = (600, 600));
    let many = Summary { threads: 9, processors: 2, waited_behind_own_ns: 500, ..base.clone() };
    let verdict = of(&many, &[behind], "prog");
    assert!(verdict.advice.ends_with("Use fewer threads."), "{}", verdict.advice);
    assert_eq!(verdict.gains.iter().map(|gain| gain.by).collect::<Vec<_>>(), ["fewer-threads"]);
    let throttled = Summary { throttled: Some(9), periods: Some(9), ..base.clone() };
    let verdict = of(&throttled, &[lock(|row| row.free_ns = 600)], "prog");
    assert!(!verdict.advice.contains("wakeful run"), "{}", verdict.advice);
    let openmp = Summary { openmp: Some("libgomp"), ..base.clone() };
    assert!(!of(&openmp, &[], "prog").advice.contains("wakeful compare"));
}

/// They may burn in processor time what another lock would save.
#[test]
fn where_threads_may_spin_no_bound_is_told() {
    let base = Summary { waited_behind_waiters_or_free_ns: 500, processors: 2, ..summary() };
    let team = row(Class::Team, |row| (row.waited_ns, row.free_ns) = (500, 500));
    let lock = row(Class::Mutex, |row| (row.waited_ns, row.free_ns) = (700, 700));
    let verdict = of(&base, &[lock.clone(), team], "prog");
    assert!(verdict.gains.is_empty() && verdict.advice.contains("wakeful compare"), "{verdict:?}");
    assert!(!of(&base, &[lock], "prog").gains.is_empty());
}

/// In a run that is too short to measure the other programs.
#[test]
fn what_was_not_measured_is_not_guessed() {
    let lock = row(Class::Mutex, |row| row.holder_preempted_ns = 600);
    let long = row(Class::Mutex, |row| row.holder_running_ns = 600);
    let base = Summary { processors: 1, processors_allowed: 2, threads: 6, ready_ns: 3_000, ..summary() };
    let base = Summary { waited_behind_waiters_or_free_ns: 600, waited_behind_own_ns: 500, ..base };
    let short = Summary { run_ns: 400, foreign_ns: None, had: Some(0.4), ..base.clone() };
    let verdict = of(&short, std::slice::from_ref(&lock), "prog");
    assert!(verdict.gains.is_empty() && !verdict.advice.contains("binds"), "{verdict:?}");
    assert!(verdict.advice.ends_with("what other programs took: no bound is told."), "{}", verdict.advice);
    let advice = of(&short, &[long], "prog").advice;
    assert!(!advice.contains("to be gained"), "{advice}");
    // It had all that there was, or somebody has measured: then a bound is one.
    for measured in [Summary { had: Some(0.95), ..short.clone() }, Summary { foreign_ns: Some(0), ..short }] {
        assert!(!of(&measured, std::slice::from_ref(&lock), "prog").gains.is_empty());
    }
    // What binds them is told where somebody has asked.
    let bound = |processors_bound| {
        let summary = Summary { run_ns: 1_000, processors_bound, ..base.clone() };
        of(&summary, std::slice::from_ref(&lock), "prog").advice
    };
    let words = "Something binds the threads to 1 of 2 processors (taskset, sched_setaffinity or a cpuset): \
                 take it away.";
    assert!(bound(Some(1)).ends_with(words), "{}", bound(Some(1)));
    assert!([Some(2), None].iter().all(|known| !bound(*known).contains("binds")));
}

#[test]
fn processes_are_no_threads() {
    let base =
        Summary { threads: 200, threads_at_once: 9, processes_all: 200, processes_at_once: 9, ..summary() };
    let shell = Summary { threads_of_one: 1, ready_ns: 3_000, processors: 2, ..base };
    let words =
        "Its processes were ready for long without a processor: fewer processes at one time would do.";
    assert_eq!(of(&shell, &[], "prog").advice, words);
    assert_eq!((shell.all_words(), shell.at_once_words()), ("200 processes".into(), "9 processes".into()));
    let threads = Summary { threads_of_one: 4, ..shell.clone() };
    assert_eq!(threads.at_once_words(), "9 threads of 9 processes");
    let one = Summary { processes_all: 1, processes_at_once: 1, threads_of_one: 9, ..shell.clone() };
    assert_eq!((one.at_once_words(), one.unit()), ("9 threads".into(), "thread"));
    let lock = row(Class::Mutex, |row| row.holder_preempted_ns = 600);
    let behind = Summary { waited_behind_own_ns: 500, ..shell.clone() };
    let verdict = of(&behind, std::slice::from_ref(&lock), "prog");
    let words = "by no more processes at work than processors, 2 (there were 9 processes at one time)";
    assert!(verdict.gains.iter().any(|gain| gain.words.contains(words)), "{verdict:?}");
    let quota = Summary { throttled: Some(9), periods: Some(9), quota_milli: Some(2_000), ..shell };
    assert_eq!(of(&quota, &[], "prog").advice, "Raise the quota of 2.0 processors, or use 2 processes.");
}

#[test]
fn locks_that_are_not_seen_are_no_sign_that_nothing_waits() {
    let base = Summary { elsewhere_ns: 500, elsewhere_looks: 9, ..summary() };
    let base = Summary { elsewhere_in: Some("take a.rs:5".into()), ..base };
    let verdict = of(&base, &[], "prog");
    let words = "nothing waited for a lock or a barrier of pthread's. For some 50 % of thread time, threads \
                 were blocked in futex(2) outside of the locks that are seen here, mostly in take a.rs:5:";
    assert!(verdict.words.starts_with(words), "{}", verdict.words);
    assert!(
        verdict.advice.starts_with("`wakeful watch -- prog` shows where they block."),
        "{}",
        verdict.advice
    );
    let lock = row(Class::Mutex, |row| row.holder_running_ns = 900);
    assert!(of(&base, &[lock], "prog").words.contains("For some 50 % of thread time"));
    let little = Summary { elsewhere_ns: 50, ..base.clone() };
    assert!(!of(&little, &[], "prog").words.contains("futex"));
    assert!(!of(&Summary { elsewhere_looks: 2, ..base }, &[], "prog").words.contains("futex"));
}

#[test]
fn many_wake_ups_in_vain_are_told_whatever_they_cost() {
    let cond = row(Class::Cond, |row| (row.waits, row.vain, row.vain_run_ns) = (475, 390, 3));
    let verdict = of(&summary(), std::slice::from_ref(&cond), "prog");
    assert_eq!(verdict.cause, "nothing");
    let words = " And 390 of 475 wake-ups from the condition variable in work were in vain; less than 1 % of \
                 the processor time went there.";
    assert!(verdict.words.ends_with(words), "{}", verdict.words);
}

#[test]
fn a_place_without_a_name_is_told_so() {
    let place = Site { name: "prog+0x20d1".into(), module: "prog".into(), ..Site::default() };
    let mut lock = Row::new(Class::Mutex, &place);
    (lock.holder_running_ns, lock.worked_in) = (900, vec![WorkedIn { place, callers: Vec::new(), looks: 3 }]);
    let words = of(&summary(), &[lock], "prog").words;
    let said = "at the mutex in prog+0x20d1 (no symbol). The holder was seen at work in prog+0x20d1 (no \
                symbol) (3 of 3 samples).";
    assert!(words.contains(said), "{words}");
}

#[test]
fn a_stop_is_told_in_one_line() {
    let stopped = |stops, stopped_ns| Summary { stops, stopped_ns, ..summary() }.stopped();
    let words = "It was stopped from outside for 3.20s (SIGSTOP, Ctrl-Z, a debugger, a frozen control \
                 group); not counted.";
    assert_eq!((stopped(0, 0), stopped(1, 3_200_000_000).as_deref()), (None, Some(words)));
    let halted = vec![crate::recorded::Halted { process: 7, name: "child".into(), length_ns: 9_000_000 }];
    let part = Summary { halted, ..summary() }.stopped().unwrap();
    assert_eq!(
        part,
        "Its process `child` (7) was stopped for 9.00ms while others went on; that counts as blocked."
    );
    assert!(stopped(3, 1).unwrap().contains(", at least 3 times (SIGSTOP"));
    let halted = vec![crate::recorded::Halted { process: 7, name: String::new(), length_ns: 9_000_000 }];
    let part = Summary { halted, ..summary() }.stopped().unwrap();
    assert!(part.starts_with("Its process 7 was stopped for"), "{part}");
}
