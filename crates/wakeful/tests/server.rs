// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Delegated` whose sections servers run.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

use wakeful::{ByServer, Condvar, Delegated, RclServer};

#[path = "../examples/lru/cache.rs"]
mod cache;

static_assertions::assert_impl_all!(Delegated<u64, ByServer>: Send, Sync, std::fmt::Debug);
static_assertions::assert_not_impl_any!(Delegated<std::rc::Rc<u64>, ByServer>: Send, Sync);
static_assertions::assert_impl_all!(RclServer: Send, Sync, Clone, std::fmt::Debug);

fn server() -> RclServer {
    RclServer::start().unwrap()
}

/// Each section once, on another thread; beside guards. Two servers of two locks, one within the other.
#[test]
fn sections_and_guards_exclude() {
    const ROUNDS: usize = 500;
    const THREADS: usize = 8;
    let servers = [server(), server()];
    let locks: Vec<_> = (0..4).map(|lock| Delegated::on(&servers[lock % 2], 0_usize)).collect();
    drop(servers);
    thread::scope(|scope| {
        for index in 0..THREADS {
            let locks = &locks;
            scope.spawn(move || {
                let me = thread::current().id();
                for round in 0..ROUNDS {
                    let outer = (index + round) % 3;
                    if round % 4 == 3 {
                        *locks[outer].lock() += 1;
                        *locks[outer + 1].lock() += 1;
                        continue;
                    }
                    let lent = [outer; 2];
                    let seen = locks[outer].run(|count| {
                        assert_ne!(thread::current().id(), me);
                        *count += 1;
                        locks[lent[1] + 1].run(|count| *count += 1);
                        *count
                    });
                    assert!(seen > 0);
                }
            });
        }
    });
    let counts: Vec<_> = locks.iter().map(|lock| lock.run(|count| *count)).collect();
    assert_eq!(counts.iter().sum::<usize>(), 2 * THREADS * ROUNDS);
    assert_eq!(locks.into_iter().map(Delegated::into_inner).collect::<Vec<_>>(), counts);
}

#[test]
fn panics_reach_their_callers() {
    let count = Delegated::on(&server(), 0_u32);
    thread::scope(|scope| {
        for index in 0..8_u32 {
            let count = &count;
            scope.spawn(move || {
                for round in 0..200_u32 {
                    let result = catch_unwind(AssertUnwindSafe(|| {
                        count.run(|count| {
                            *count += 1;
                            if round % 10 == index {
                                resume_unwind(Box::new((index, round)));
                            }
                        })
                    }));
                    let panic = result.err().map(|panic| *panic.downcast::<(u32, u32)>().unwrap());
                    assert_eq!(panic, (round % 10 == index).then_some((index, round)));
                }
            });
        }
    });
    assert_eq!(count.into_inner(), 8 * 200);
}

/// Sections of many locks wait, each for the next one's: each takes a thread, and there is one more.
#[test]
fn stuck_sections_get_threads() {
    const LOCKS: usize = 6;
    let server = server();
    let locks: Vec<_> = (0..=LOCKS).map(|_| Delegated::on(&server, ())).collect();
    let begun = AtomicUsize::new(0);
    thread::scope(|scope| {
        for lock in &locks[..LOCKS] {
            scope.spawn(|| {
                lock.run(|()| {
                    begun.fetch_add(1, Relaxed);
                    while begun.load(Relaxed) <= LOCKS {
                        thread::yield_now();
                    }
                });
            });
        }
        while begun.load(Relaxed) < LOCKS {
            thread::yield_now();
        }
        locks[LOCKS].run(|()| begun.fetch_add(1, Relaxed));
    });
    assert_eq!(begun.into_inner(), LOCKS + 1);
}

/// A section that comes to a lock which a guard holds: it waits, and all others go on.
#[test]
fn a_section_waits_for_a_guard() {
    let server = server();
    let [outer, inner, other] = [0; 3].map(|zero| Delegated::on(&server, zero));
    let inside = AtomicU32::new(0);
    thread::scope(|scope| {
        let mut held = inner.lock();
        scope.spawn(|| {
            outer.run(|_| {
                inside.store(1, Release);
                assert_eq!(inner.run(|data| *data), 7);
            });
        });
        while inside.load(Acquire) == 0 {
            thread::yield_now();
        }
        assert_eq!(other.run(|data| *data + 1), 1);
        *held = 7;
    });
}

#[test]
fn conditions() {
    const ROUNDS: usize = 300;
    const THREADS: usize = 4;
    let (turn, changed) = (Delegated::on(&server(), 0_usize), Condvar::new());
    thread::scope(|scope| {
        for index in 0..THREADS {
            let (turn, changed) = (&turn, &changed);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let ours = round * THREADS + index;
                    let next = |turn: &mut usize| {
                        *turn += 1;
                        changed.notify_all();
                        *turn
                    };
                    assert_eq!(turn.run_when(changed, |turn| *turn == ours, next), ours + 1);
                }
            });
        }
    });
    let until = Instant::now() + Duration::from_millis(3);
    let back = turn.run_when_until(&changed, until, |turn| *turn == 1, |turn| *turn = 0);
    assert!(Instant::now() >= until, "gave up before the deadline");
    turn.run(back.expect_err("nobody changes it"));
    assert_eq!(turn.run_when_for(&changed, Duration::ZERO, |turn| *turn == 0, |_| 5).ok(), Some(5));
}

/// Who gives up gets its section back, and it never runs; also with more clients than the server has slots.
#[test]
fn sections_are_given_back() {
    const THREADS: u32 = 40;
    let server = server();
    let count = Delegated::on(&server, 0_u32);
    let mut held = count.lock();
    let tried = AtomicU32::new(0);
    thread::scope(|scope| {
        for index in 0..THREADS {
            let (count, tried) = (&count, &tried);
            scope.spawn(move || {
                let time = Duration::from_millis(u64::from(index % 3));
                let begun = Instant::now();
                let back = count.try_run_for(time, |count| *count += 1_000);
                assert!(back.is_err() && begun.elapsed() >= time);
                let until = Instant::now() + time;
                assert!(count.try_run_until(until, |count| *count += 1_000).is_err());
                tried.fetch_add(1, Release);
                assert_eq!(count.try_run_for(Duration::from_secs(60), |count| *count += 1).ok(), Some(()));
            });
        }
        while tried.load(Acquire) < THREADS {
            thread::yield_now();
        }
        *held += 1;
        drop(held);
    });
    assert_eq!(count.run(|count| *count), THREADS + 1);
    let inside = Delegated::on(&server, ());
    // The server tells the caller before it releases, so it may hold the lock yet.
    let long = Duration::from_secs(60);
    assert_eq!(inside.run(|()| count.try_run_for(long, |count| *count).ok()), Some(THREADS + 1));
    let panics = || count.try_run_for(Duration::from_secs(60), |_| resume_unwind(Box::new(7))).ok();
    assert!(
        catch_unwind(AssertUnwindSafe(panics)).is_err_and(|panic| *panic.downcast::<i32>().unwrap() == 7)
    );
}

/// A section that is left runs though nobody waits for it; its panic waits for who does.
#[test]
fn sections_are_left() {
    let server = server();
    let log = Arc::new(Delegated::on(&server, Vec::new()));
    for round in 0..200 {
        let handles: Vec<_> =
            (0..5).map(|number| log.run_async(move |log| log.push((round, number)))).collect();
        if round % 3 == 0 {
            while !handles.iter().all(wakeful::SectionHandle::is_done) {
                thread::yield_now();
            }
        }
        if round % 2 == 0 {
            handles.into_iter().for_each(wakeful::SectionHandle::wait);
        }
    }
    assert_eq!(log.run(|log| log.len()), 1_000);
    let held = log.lock();
    let late = log.run_async(|log| log.len());
    let late = late.try_wait().expect_err("the lock is held");
    drop(held);
    assert_eq!(late.wait(), 1_000);
    let panics = log.run_async(|_| resume_unwind(Box::new(7)));
    let panic = catch_unwind(AssertUnwindSafe(|| panics.wait())).unwrap_err();
    assert_eq!(panic.downcast_ref::<i32>(), Some(&7));
    drop(log.run_async(|log| log.clear()));
    // A section may leave another one, which runs after it.
    let outer = Delegated::on(&server, ());
    let left = outer.run(|()| log.run_async(|log| log.push((0, 0))));
    left.wait();
    // It keeps lock and server, until it has run.
    let last = log.run_async(|log| log.len());
    drop((server, outer, log));
    assert_eq!(last.wait(), 1);
}

/// What another process's server had not run by the fork is that process's.
#[test]
fn a_left_section_is_its_parents() {
    let data = Arc::new(Delegated::on(&server(), 1));
    let held = data.lock();
    let mut handle = Some(data.run_async(|data| *data));
    in_a_child(|| {
        let handle = handle.take();
        let panics = catch_unwind(AssertUnwindSafe(|| handle.map(wakeful::SectionHandle::wait))).is_err();
        let more = catch_unwind(AssertUnwindSafe(|| drop(data.run_async(|data| *data)))).is_err();
        panics && more
    });
    drop(held);
    assert_eq!(handle.map(wakeful::SectionHandle::wait), Some(1));
}

/// A guard that was forgotten keeps others from its lock, but not from the lock that comes next there.
#[test]
fn a_lock_may_end_while_it_is_held() {
    let server = server();
    let held = || {
        let data = Delegated::on(&server, 3);
        std::mem::forget(data.lock());
        data
    };
    drop(held());
    assert_eq!(Delegated::on(&server, 1).run(|data| *data), 1);
    assert_eq!(held().into_inner(), 3);
    assert_eq!(Delegated::on(&server, 2).run(|data| *data), 2);
    let data = held();
    // SAFETY: this thread's guard was forgotten, and nobody uses the data.
    unsafe { data.force_unlock() };
    assert_eq!(data.run(|data| *data), 3);
}

/// This process's threads that have a server's name.
fn servers_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
    // One that has ended since has no name.
    names.filter(|name| name.as_ref().is_ok_and(|name| name.trim_end() == "rcl server")).count()
}

/// The threads end with the last handle or lock, and nothing is left. In a process of its own: other tests
/// have servers.
#[test]
fn the_last_one_ends_the_server() {
    const ALONE: &str = "WAKEFUL_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        alone.args(["--exact", "the_last_one_ends_the_server", "--nocapture"]).env(ALONE, "1");
        assert!(alone.status().unwrap().success());
        return;
    }
    let token = Arc::new(());
    for _ in 0..20 {
        let server = server();
        let more = server.clone();
        let data = Delegated::on(&server, token.clone());
        drop(server);
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(Delegated::on(&more, 1).run(|data| *data), 1));
            scope.spawn(|| drop(data.run(|data| data.clone())));
        });
        drop(more);
        data.run(|_| ());
        // Within another server's section, as well.
        let other = Delegated::on(&self::server(), Some(data));
        other.run(|data| drop(data.take()));
    }
    assert_eq!(Arc::strong_count(&token), 1);
    // A thread that has been joined may have a name for a moment.
    let deadline = Instant::now() + Duration::from_secs(60);
    while servers_threads() != 0 {
        assert!(Instant::now() < deadline, "{} threads are left", servers_threads());
        thread::yield_now();
    }
    let server = server();
    assert!(servers_threads() >= 2, "the threads have other names");
    drop(server);
}

#[test]
fn a_server_on_a_processor() {
    assert!(RclServer::start_on(usize::MAX).is_err());
    // SAFETY: a plain call.
    let here = unsafe { libc::sched_getcpu() };
    // One that the calling thread may not use, though the program may.
    let refused = thread::spawn(move || {
        let mut set = [0_u64; 128];
        set[here as usize / 64] = 1 << (here % 64);
        // SAFETY: the set lives, and is of the size stated.
        assert_eq!(unsafe { libc::sched_setaffinity(0, size_of_val(&set), set.as_ptr().cast()) }, 0);
        let others = (0..8_192).filter(|other| *other != here as usize);
        others.filter(|other| RclServer::start_on(*other).is_ok()).collect::<Vec<_>>()
    });
    assert_eq!(refused.join().unwrap(), []);
    let server = RclServer::start_on(here as usize).unwrap();
    // SAFETY: a plain call.
    assert_eq!(Delegated::on(&server, ()).run(|()| unsafe { libc::sched_getcpu() }), here);
}

/// A child of this process that uses what it inherited, and says whether all was well.
fn in_a_child(uses: impl FnOnce() -> bool) {
    // SAFETY: the child uses what it inherited, then leaves by _exit. If it hangs, the alarm ends it.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe { libc::alarm(20) };
        std::panic::set_hook(Box::new(|_| ()));
        let good = uses();
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    let mut status = 0;
    // SAFETY: our child, and a valid pointer.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}

/// A child has no server: a section panics there, and neither its locks' end nor the server's hangs.
#[test]
fn a_forked_child_has_no_server() {
    let server = server();
    let data = Delegated::on(&server, 1);
    assert_eq!(data.run(|data| *data), 1);
    let mut mine = Some((data, server));
    in_a_child(|| {
        let Some((data, server)) = mine.take() else { return false };
        let more = Delegated::on(&server, 2);
        let panics = catch_unwind(AssertUnwindSafe(|| data.run(|data| *data))).is_err();
        drop((data, more, server));
        panics
    });
    assert_eq!(mine.unwrap().0.run(|data| *data), 1);
}

/// A guard that the parent had ends in the child, which nobody else's lock notices, and also unwinds.
#[test]
fn a_guard_ends_in_a_forked_child() {
    let data = Delegated::on(&server(), 1);
    let mut guard = Some(data.lock());
    in_a_child(|| {
        let guard = guard.take();
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _guard = guard;
            resume_unwind(Box::new(7));
        }));
        unwound.is_err_and(|panic| panic.downcast_ref::<i32>() == Some(&7))
    });
    drop(guard);
    assert_eq!(data.run(|data| *data), 1);
}

/// The example's cache: what was used last stays, whoever runs the sections.
#[test]
fn a_cache_in_both_forms() {
    fn check(get: &(dyn Fn(u64) -> [u64; 8] + Sync)) {
        thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || {
                    for key in (0..500).map(|round| thread * round % 20) {
                        assert_eq!(get(key), [key; 8]);
                    }
                });
            }
        });
        assert_eq!([10, 11, 12, 13, 10, 14].map(get)[0], [10; 8]);
    }
    let by_holder = Delegated::new(cache::Lru::new(4));
    let by_server = Delegated::on(&server(), cache::Lru::new(4));
    check(&|key| by_holder.run(|cache| cache.get(key, || [key; 8])));
    check(&|key| by_server.run(|cache| cache.get(key, || [key; 8])));
    for cache in [by_holder.into_inner(), by_server.into_inner()] {
        assert_eq!(cache.keys().collect::<Vec<_>>(), [14, 10, 13, 12]);
        assert!(cache.hits > 0);
    }
}
