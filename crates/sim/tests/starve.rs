// SPDX-License-Identifier: MIT OR Apache-2.0
//! Under the second level, threads that poll stand at the running priority for ever. Nobody whom a default
//! has let go on may stand below them (rule S8 of `sync`'s `wait/publish.rs`).

use platform::{Atomic, AtomicInt, Ordering::*, Platform};
use sim::{
    Machine, Placed, Results, Setting, Sim, Word, World, clock_ns, fail, passed, simulate_with, work_ns,
};
use sync::barrier::{self, RawBarrier};
use sync::condvar;
use sync::mutex::{self, RawMutex};
use sync::rwlock::{self, RawRwLock};
use sync::semaphore::{self, RawSemaphore};

const WORKERS: u32 = 6;
const ROUNDS: u32 = 20_000;
const SECTION_NS: f64 = 20e3;

/// Some threads work, and four others poll until those are done, on four processors. The others do that from
/// the moment `from_ns` on.
fn run<T: 'static>(
    second_level: bool,
    (workers, from_ns): (u32, f64),
    shared: impl Fn() -> T,
    work: fn(&T, u32),
) -> Results {
    let setting = Setting { second_level: Some(second_level), limit_ms: 60_000.0, ..Setting::default() };
    let build = |world: &mut World| {
        let app = world.add_app();
        let shared = world.place(shared());
        let done: Placed<Word<u32>> = world.place(Atomic::new(0));
        for _ in 0..4 {
            world.spawn(app, move || {
                if from_ns > 0.0 {
                    Sim::nap((from_ns - clock_ns()) as u64);
                }
                while done.load(Relaxed) < workers {
                    (0..10).for_each(|_| Sim::pause());
                }
            });
        }
        for index in 0..workers {
            world.spawn(app, move || {
                work(shared.get(), index);
                done.fetch_add(1, Relaxed);
            });
        }
    };
    simulate_with(&Machine::named("ppro-4").unwrap(), &setting, 1, u64::from(workers * ROUNDS), build)
}

/// With the second level it takes at most twice as long as without.
fn nobody_starves<T: 'static>(name: &str, crowd: (u32, f64), shared: impl Fn() -> T, work: fn(&T, u32)) {
    let [without, with] = [false, true].map(|second_level| {
        let results = run(second_level, crowd, &shared, work);
        assert_eq!(results.failure, None, "{name}");
        results
    });
    println!("{name}: {} ms without the second level, {} ms with it", without.elapsed_ms, with.elapsed_ms);
    assert!(!with.limited, "{name}: {} sections in a minute", with.sections);
    assert!(with.elapsed_ms < 2.0 * without.elapsed_ms, "{name}");
}

const CROWD: (u32, f64) = (WORKERS, 0.0);

/// Two threads meet at a moment when nobody else is there: one waits awake, as a standby. Then the others
/// come, who have used less than those two, and take the processors.
const MEETING_NS: f64 = 50e6;
const AT_A_MEETING: (u32, f64) = (2, MEETING_NS + 15e3);

/// Computes until so long after the meeting.
fn meet(after_ns: f64) {
    work_ns(MEETING_NS + after_ns - clock_ns());
}

/// Says that the calling thread is in the section alone, and works there.
fn alone(inside: &Word<u32>) {
    if inside.swap(1, Relaxed) != 0 {
        fail("two threads are in the section".into());
    }
    work_ns(SECTION_NS);
    inside.store(0, Relaxed);
    passed(0.0);
}

#[test]
fn at_a_mutex() {
    let shared = || (mutex::Wakeful::<Sim>::new(), Word::new(0));
    nobody_starves("wakeful", CROWD, shared, |(lock, inside), _| {
        for _ in 0..ROUNDS {
            // SAFETY: it has no node, and is released by who locked it.
            unsafe { lock.lock(&()) };
            alone(inside);
            // SAFETY: locked above.
            unsafe { lock.unlock(&()) };
            work_ns(SECTION_NS);
        }
    });
}

#[test]
fn writers_at_a_reader_writer_lock() {
    let shared = || (rwlock::Wakeful::<Sim>::new(), Word::new(0));
    nobody_starves("rw-wakeful, writers", CROWD, shared, |(lock, inside), _| {
        for _ in 0..ROUNDS {
            // SAFETY: it has no node, and is released by who locked it.
            unsafe { lock.write(&()) };
            alone(inside);
            // SAFETY: locked above.
            unsafe { lock.unlock_write(&()) };
            work_ns(SECTION_NS);
        }
    });
}

#[test]
fn readers_at_a_reader_writer_lock() {
    let shared = || (rwlock::Wakeful::<Sim>::new(), Word::new(0));
    nobody_starves("rw-wakeful, readers and writers", CROWD, shared, |(lock, inside), index| {
        for _ in 0..ROUNDS {
            // SAFETY: it has no node, and is released by who locked it in this way.
            unsafe {
                if index < 2 {
                    lock.write(&());
                    alone(inside);
                    lock.unlock_write(&());
                } else {
                    lock.read(&());
                    work_ns(SECTION_NS);
                    passed(0.0);
                    lock.unlock_read(&());
                }
            }
            work_ns(SECTION_NS);
        }
    });
}

#[test]
fn at_a_condition_variable() {
    type Condvar = condvar::Wakeful<Sim>;
    type Shared = (mutex::Wakeful<Sim>, Condvar, Word<u32>);
    /// Somebody may stand by at the first wait.
    fn rested() -> Condvar {
        const { assert!(size_of::<Condvar>() == size_of::<[Word<u32>; 2]>()) };
        let words = [7u32, 1 << 10].map(|word| std::mem::ManuallyDrop::new(Word::new(word)));
        // SAFETY: two words, `sequence` and `state`.
        unsafe { std::ptr::from_ref(&words).cast::<Condvar>().read() }
    }
    let shared = || -> Shared { (mutex::Wakeful::new(), rested(), Word::new(0)) };
    nobody_starves("condition variable", AT_A_MEETING, shared, |(lock, signal, came), index| {
        if index == 0 {
            meet(0.0);
            // SAFETY: it has no node, and is released by who locked it.
            unsafe { lock.lock(&()) };
            while came.load(Relaxed) == 0 {
                let waiter = signal.enter();
                // SAFETY: locked above.
                unsafe { lock.unlock(&()) };
                signal.wait(waiter, None);
                // SAFETY: as above.
                unsafe { lock.lock(&()) };
            }
        } else {
            meet(100e3);
            // SAFETY: as above.
            unsafe { lock.lock(&()) };
            came.store(1, Relaxed);
            signal.signal();
        }
        // SAFETY: locked above.
        unsafe { lock.unlock(&()) };
    });
}

#[test]
fn at_a_semaphore() {
    // Somebody may stand by at the first wait.
    let shared = || semaphore::Wakeful::<Sim>::of_words(Word::new(0), Word::new(1 << 19));
    nobody_starves("semaphore", AT_A_MEETING, shared, |tokens, index| {
        if index == 0 {
            meet(0.0);
            tokens.acquire(None);
        } else {
            meet(100e3);
            tokens.release();
        }
    });
}

#[test]
fn at_a_barrier() {
    type Barrier = barrier::BWakeful<Sim>;
    type Places = Vec<<Barrier as RawBarrier<Sim>>::Place>;
    let places = || -> Places { (0..Barrier::places(WORKERS)).map(|_| Default::default()).collect() };
    nobody_starves(
        "b-wakeful",
        CROWD,
        move || (Barrier::new(WORKERS), places()),
        |(barrier, places), index| {
            for _ in 0..ROUNDS {
                work_ns(SECTION_NS);
                // SAFETY: barrier and places stay, and the index is this thread's.
                unsafe { RawBarrier::wait(barrier, places, index, &mut ()) };
                passed(0.0);
            }
        },
    );
}
