// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every reader-writer lock of the catalogue: on this computer with many more threads than processors, in
//! loom, in shuttle.

use conformance::loom::{Bounds, Loom};
use conformance::shuttle::{Schedules, Shuttle};
use conformance::twist::{Fickle, Lying, Twisted};
use conformance::{HINTS, Hints, Settings, further, long, rwlock as bodies};
use linux::Linux;
use platform::RunState;

/// COST: a queue that is oblivious of the scheduler waits for a slice (3 ms on 2 processors) at nearly each
/// of these.
fn rounds(name: &str) -> u32 {
    match (name, long()) {
        ("rw-queue", false) => 10,
        ("rw-queue", true) | (_, false) => 100,
        (_, true) => 2_000,
    }
}

const MANY: u32 = 32;

fn wishes(name: &str) -> bool {
    catalog::rwlock(name).expect("it is in the catalogue").wishes
}

fn settings(name: &str) -> Vec<Settings> {
    let informed = catalog::rwlock(name).expect("it is in the catalogue").informed;
    let hints = if informed { &HINTS[..] } else { &HINTS[..1] };
    hints.iter().map(|&hints| Settings { hints, ..Settings::default() }).collect()
}

fn loom(name: &'static str, what: &str, preemptions: usize, executions: usize, body: fn()) {
    let mut ran = 0;
    for settings in settings(name) {
        let bounds =
            Bounds { preemptions: preemptions + long() as usize, executions: executions * further() };
        ran += conformance::loom::explore(&format!("{name}, {what}"), settings, bounds, body);
    }
    eprintln!("loom: {name}, {what}: {ran} executions");
}

fn shuttle(name: &'static str, what: &str, count: usize, body: fn()) {
    let mut ran = 0;
    for settings in settings(name) {
        for schedules in [Schedules::Random, Schedules::Pct(3)] {
            ran += conformance::shuttle::explore(settings, schedules, count * further(), body);
        }
    }
    eprintln!("shuttle: {name}, {what}: {ran} executions");
}

macro_rules! timed_only {
    (timed $($item:item)*) => { $($item)* };
    ($kind:ident $($item:item)*) => {};
}

macro_rules! suite {
    ($({ $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*], $citation:literal, $summary:literal })*) => {
        $(mod $ident {
            mod threads {
                use super::super::*;

                #[test]
                fn exclusion() {
                    type P = Linux;
                    bodies::exclusion::<P, $type>(MANY, rounds($name));
                }

                #[test]
                fn exclusion_with_wrong_hints() {
                    {
                        type P = Twisted<Linux, Lying>;
                        bodies::exclusion::<P, $type>(8, rounds($name));
                    }
                    type P = Twisted<Linux, Fickle>;
                    bodies::exclusion::<P, $type>(8, rounds($name));
                }

                #[test]
                fn one_writer() {
                    type P = Linux;
                    bodies::one_writer::<P, $type>(8, rounds($name));
                }

                #[test]
                fn sharing() {
                    type P = Linux;
                    (0..rounds($name) / 5).for_each(|_| bodies::sharing::<P, $type>(6));
                }

                #[test]
                fn trying() {
                    type P = Linux;
                    bodies::trying::<P, $type>(8, rounds($name));
                }

                #[test]
                fn unwinding() {
                    type P = Linux;
                    bodies::unwinding::<P, $type>(4);
                }

                #[test]
                fn wishing() {
                    type P = Linux;
                    if wishes($name) {
                        bodies::wishing::<P, $type>(4, rounds($name));
                    }
                }

                timed_only! { $kind
                    #[test]
                    fn timing() {
                        type P = Linux;
                        bodies::timing::<P, $type>(MANY, rounds($name), 200_000);
                        bodies::timing::<P, $type>(MANY, rounds($name), 0);
                    }

                    #[test]
                    fn timing_out() {
                        type P = Linux;
                        for patience_ns in [0, 1, 50_000, 5_000_000] {
                            bodies::timing_out::<P, $type>(patience_ns);
                        }
                    }
                }
            }

            mod loom {
                use super::super::*;
                type P = Loom;

                #[test]
                fn two() {
                    loom($name, "two", 3, 1_000, || bodies::exclusion::<P, $type>(2, 2));
                }

                #[test]
                fn three() {
                    loom($name, "three", 2, 1_000, || bodies::exclusion::<P, $type>(3, 1));
                }

                #[test]
                fn one_writer() {
                    loom($name, "one writer", 2, 1_000, || bodies::one_writer::<P, $type>(3, 1));
                }

                #[test]
                fn sharing() {
                    loom($name, "sharing", 2, 1_000, || bodies::sharing::<P, $type>(2));
                }

                #[test]
                fn trying() {
                    loom($name, "trying", 2, 500, || bodies::trying::<P, $type>(2, 2));
                }

                #[test]
                fn wishing() {
                    if wishes($name) {
                        loom($name, "wishing", 2, 500, || bodies::wishing::<P, $type>(2, 1));
                    }
                }

                #[test]
                fn unwinding() {
                    // Not further in the long exploration: see loom.rs.
                    let bounds = Bounds { preemptions: 2, executions: 300 };
                    for settings in settings($name) {
                        let what = concat!($name, ", unwinding");
                        conformance::loom::explore(what, settings, bounds, || bodies::unwinding::<P, $type>(3));
                    }
                }

                timed_only! { $kind
                    #[test]
                    fn timing() {
                        loom($name, "timing", 2, 1_000, || bodies::timing::<P, $type>(3, 1, 3_000_000));
                    }

                    #[test]
                    fn timing_out() {
                        loom($name, "timing out", 2, 500, || bodies::timing_out::<P, $type>(3_000_000));
                    }
                }
            }

            mod shuttle {
                use super::super::*;
                type P = Shuttle;

                #[test]
                fn exclusion() {
                    shuttle($name, "exclusion", 100, || bodies::exclusion::<P, $type>(4, 3));
                }

                #[test]
                fn one_writer() {
                    shuttle($name, "one writer", 100, || bodies::one_writer::<P, $type>(5, 2));
                }

                #[test]
                fn sharing() {
                    shuttle($name, "sharing", 100, || bodies::sharing::<P, $type>(4));
                }

                #[test]
                fn trying() {
                    shuttle($name, "trying", 50, || bodies::trying::<P, $type>(4, 3));
                }

                #[test]
                fn wishing() {
                    if wishes($name) {
                        shuttle($name, "wishing", 50, || bodies::wishing::<P, $type>(3, 2));
                    }
                }

                timed_only! { $kind
                    #[test]
                    fn timing() {
                        shuttle($name, "timing", 100, || bodies::timing::<P, $type>(4, 3, 3_000_000));
                    }
                }
            }
        })*
    };
}
catalog::rwlocks!(suite);

/// Where readers are counted in a word beside other bits, so many that the count is full keep the next one
/// out; they do not come to look like a writer, or like nobody. (Guards that are forgotten are counted for
/// ever.)
mod crowd {
    use std::sync::atomic::AtomicU32;
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use sync::rwlock::{Native, RawRwLock, RawRwLockRecursive, TasB, Wakeful};

    fn stays_full<L: RawRwLock<Linux, Node = ()>>(lock: &L) {
        // SAFETY: acquired only if it returns true, and then released.
        unsafe {
            assert!(!lock.try_read(&()), "a reader more than can be counted");
            assert!(!lock.try_write(&()), "a writer beside readers");
            for _ in 0..2 {
                lock.unlock_read(&());
            }
            for _ in 0..2 {
                assert!(lock.try_read(&()), "no reader, though there is room");
                assert!(!lock.try_write(&()), "a writer beside readers");
            }
            assert!(!lock.try_read(&()), "a reader more than can be counted");
        }
    }

    #[test]
    fn of_tas_b() {
        // SAFETY: one word, `repr(transparent)`: so many readers.
        let lock: TasB<Linux> = unsafe { std::mem::transmute(AtomicU32::new(1 << 30)) };
        stays_full(&lock);
    }

    #[test]
    fn of_native() {
        // SAFETY: one word, `repr(transparent)`: so many readers, counted from bit 2 on.
        let lock: Native<Linux> = unsafe { std::mem::transmute(AtomicU32::new(1 << 31)) };
        stays_full(&lock);
    }

    #[test]
    fn of_wakeful() {
        stays_full(&*wakeful(1 << 18));
    }

    /// So many readers.
    fn wakeful(readers: u32) -> Arc<Wakeful<Linux>> {
        let words = [readers << 7, 0, 0, 0].map(AtomicU32::new);
        // SAFETY: four words, `repr(C)`: readers are counted in the first, from bit 7 on.
        Arc::new(unsafe { std::mem::transmute::<[AtomicU32; 4], Wakeful<Linux>>(words) })
    }

    /// A reader that waits for room to read once more does not wait behind a writer that waits for it.
    #[test]
    fn a_reader_of_a_crowd_reads_once_more() {
        const ROOM: u32 = 1 << 18;
        let lock = wakeful(ROOM - 1);
        let (ours, theirs) = (lock.clone(), lock.clone());
        // SAFETY: here and below, each is released once.
        let writer = move || unsafe {
            theirs.write(&());
            theirs.unlock_write(&());
        };
        let (ended, ends) = mpsc::channel();
        thread::spawn(move || {
            // SAFETY: see above.
            unsafe { ours.read(&()) };
            let writer = thread::spawn(writer);
            // More likely, the writer waits by now.
            thread::sleep(Duration::from_millis(50));
            ours.read_recursive();
            // SAFETY: see above.
            (0..2).for_each(|_| unsafe { ours.unlock_read(&()) });
            writer.join().unwrap();
            ended.send(()).unwrap();
        });
        thread::sleep(Duration::from_millis(100));
        // SAFETY: they are counted.
        (1..ROOM).for_each(|_| unsafe { lock.unlock_read(&()) });
        ends.recv_timeout(Duration::from_secs(120)).expect("a reader and a writer wait for each other");
    }
}

/// The default, further than the others: every hint at clocks of several speeds (each phase that ends by
/// the clock lasts one look or many), upgrades, recursion, and who gets in at all.
mod default {
    use std::time::Duration;

    use super::*;
    use platform::{Atomic, Platform};
    use sync::rwlock::{Native, Wakeful};

    /// COST: ns a look; the longest phase of the algorithm is 500 us, the shortest 100 ns.
    const STEPS: [u64; 3] = [700, 15_000, 1_000_000];

    fn all() -> impl Iterator<Item = Settings> {
        HINTS.into_iter().flat_map(|hints| {
            STEPS.into_iter().map(move |clock_step_ns| Settings {
                hints,
                clock_step_ns,
                ..Settings::default()
            })
        })
    }

    fn loom(what: &str, preemptions: usize, executions: usize, body: fn()) {
        let mut ran = 0;
        for settings in all() {
            let bounds =
                Bounds { preemptions: preemptions + long() as usize, executions: executions * further() };
            ran += conformance::loom::explore(&format!("rw-wakeful, {what}"), settings, bounds, body);
        }
        eprintln!("loom: rw-wakeful, {what}: {ran} executions");
    }

    fn shuttle(what: &str, count: usize, body: fn()) {
        let mut ran = 0;
        for settings in all() {
            for schedules in [Schedules::Random, Schedules::Pct(2), Schedules::Pct(5)] {
                ran += conformance::shuttle::explore(settings, schedules, count * further(), body);
            }
        }
        eprintln!("shuttle: rw-wakeful, {what}: {ran} executions");
    }

    #[test]
    fn loom_exclusion() {
        loom("exclusion", 2, 500, || bodies::exclusion::<Loom, Wakeful<Loom>>(3, 2));
    }

    /// Readers meet, and no longer count themselves.
    #[test]
    fn loom_bias() {
        loom("bias", 2, 1_000, || bodies::one_writer::<Loom, Wakeful<Loom>>(3, 2));
    }

    #[test]
    fn loom_bias_pair() {
        loom("bias, two", 3, 1_000, || bodies::aside_pair::<Loom, Wakeful<Loom>>(false));
        loom("bias, two, one tries", 3, 1_000, || bodies::aside_pair::<Loom, Wakeful<Loom>>(true));
    }

    #[test]
    fn loom_bias_recursion() {
        loom("bias and recursion", 2, 500, || bodies::aside::<Loom, Wakeful<Loom>>(2));
    }

    #[test]
    fn loom_bias_again() {
        let all: [fn(); 5] = [
            || bodies::aside_again::<Loom, Wakeful<Loom>>(bodies::Waits::Writer),
            || bodies::aside_again::<Loom, Wakeful<Loom>>(bodies::Waits::Until),
            || bodies::aside_again::<Loom, Wakeful<Loom>>(bodies::Waits::Tries),
            || bodies::aside_again::<Loom, Wakeful<Loom>>(bodies::Waits::Upgrades),
            || bodies::aside_again::<Loom, Wakeful<Loom>>(bodies::Waits::UpgradesUntil),
        ];
        all.into_iter().for_each(|body| loom("bias and recursion, again", 2, 200, body));
    }

    #[test]
    fn shuttle_bias_again() {
        let all: [fn(); 5] = [
            || bodies::aside_again::<Shuttle, Wakeful<Shuttle>>(bodies::Waits::Writer),
            || bodies::aside_again::<Shuttle, Wakeful<Shuttle>>(bodies::Waits::Until),
            || bodies::aside_again::<Shuttle, Wakeful<Shuttle>>(bodies::Waits::Tries),
            || bodies::aside_again::<Shuttle, Wakeful<Shuttle>>(bodies::Waits::Upgrades),
            || bodies::aside_again::<Shuttle, Wakeful<Shuttle>>(bodies::Waits::UpgradesUntil),
        ];
        all.into_iter().for_each(|body| shuttle("bias and recursion, again", 50, body));
    }

    /// The words as a fork copies them: a front of the parent's, of generation 2, has `line`, which is not
    /// here; and the word's bits.
    fn copied<P: Platform>(state: u32) -> Wakeful<P> {
        const { assert!(size_of::<Wakeful<P>>() == 4 * size_of::<P::AtomicU32>()) };
        let words = [state, 0, 1 << 15 | 2 << 12 | 5, 5 << platform::STAMP_SHIFT | 1];
        let words = words.map(|word| std::mem::ManuallyDrop::new(<P::AtomicU32 as Atomic<u32>>::new(word)));
        // SAFETY: `Wakeful` is `repr(C)`: `state`, `owner`, `front`, `line`.
        unsafe { std::ptr::from_ref(&words).cast::<Wakeful<P>>().read() }
    }

    /// DEMAND, SLEEPER and URGENT.
    const DEMANDED: u32 = 1 << 2 | 1 << 3 | 1 << 5;

    #[test]
    fn copied_by_fork() {
        for settings in all() {
            let settings = Settings { generation: 3, ..settings };
            let bounds = Bounds { preemptions: 2, executions: 200 * further() };
            for state in [0, DEMANDED] {
                let body = move || bodies::exclusion_of::<Loom, _>(copied::<Loom>(state), 2, 1);
                conformance::loom::explore("rw-wakeful, copied", settings, bounds, body);
                let body = move || bodies::exclusion_of::<Shuttle, _>(copied::<Shuttle>(state), 4, 2);
                conformance::shuttle::explore(settings, Schedules::Random, 50 * further(), body);
            }
            let body = || bodies::upgrading_beside::<Loom, _>(copied::<Loom>(0));
            conformance::loom::explore("rw-wakeful, copied, upgrading", settings, bounds, body);
            let body = || bodies::upgrading_beside::<Shuttle, _>(copied::<Shuttle>(0));
            conformance::shuttle::explore(settings, Schedules::Random, 50 * further(), body);
        }
    }

    #[test]
    fn loom_bias_after_a_writer() {
        loom("bias after a writer", 2, 500, bodies::aside_after_a_writer::<Loom, Wakeful<Loom>>);
    }

    #[test]
    fn loom_bias_leaving_elsewhere() {
        loom("bias, leaving beside a reader", 2, 500, || {
            bodies::leaving_elsewhere::<Loom, Wakeful<Loom>>(0, 1)
        });
        loom("bias, leaving beside a writer", 2, 500, || {
            bodies::leaving_elsewhere::<Loom, Wakeful<Loom>>(1, 0)
        });
    }

    #[test]
    fn shuttle_bias() {
        shuttle("bias", 100, || bodies::one_writer::<Shuttle, Wakeful<Shuttle>>(5, 4));
        shuttle("bias and recursion", 50, || bodies::aside::<Shuttle, Wakeful<Shuttle>>(4));
        shuttle("bias, leaving elsewhere", 50, || {
            bodies::leaving_elsewhere::<Shuttle, Wakeful<Shuttle>>(1, 2)
        });
    }

    #[test]
    fn aside() {
        for _ in 0..if long() { 2_000 } else { 100 } {
            bodies::aside::<Linux, Wakeful<Linux>>(4);
            bodies::leaving_elsewhere::<Linux, Wakeful<Linux>>(2, 4);
        }
    }

    #[test]
    fn loom_upgrading() {
        loom("upgrading", 2, 500, || bodies::upgrading::<Loom, Wakeful<Loom>>(3, 1, 2_000_000));
    }

    #[test]
    fn loom_recursion() {
        loom("recursion", 2, 500, || bodies::recursion::<Loom, Wakeful<Loom>>(1, 1));
    }

    #[test]
    fn loom_sharing_again() {
        loom("sharing again", 2, 500, || bodies::sharing_again::<Loom, Wakeful<Loom>>(1, 2));
    }

    #[test]
    fn loom_timing_again() {
        loom("timing again", 2, 300, || bodies::timing_again::<Loom, Wakeful<Loom>>(2, 2, 2_000_000));
    }

    #[test]
    fn loom_timing() {
        loom("timing", 2, 300, || bodies::timing::<Loom, Wakeful<Loom>>(3, 2, 2_000_000));
    }

    #[test]
    fn shuttle_exclusion() {
        shuttle("exclusion", 100, || bodies::exclusion::<Shuttle, Wakeful<Shuttle>>(5, 4));
    }

    #[test]
    fn shuttle_upgrading() {
        shuttle("upgrading", 100, || bodies::upgrading::<Shuttle, Wakeful<Shuttle>>(5, 3, 2_000_000));
    }

    #[test]
    fn shuttle_recursion() {
        shuttle("recursion", 50, || bodies::recursion::<Shuttle, Wakeful<Shuttle>>(3, 2));
    }

    #[test]
    fn shuttle_sharing_again() {
        shuttle("sharing again", 50, || bodies::sharing_again::<Shuttle, Wakeful<Shuttle>>(2, 3));
        shuttle("timing again", 50, || bodies::timing_again::<Shuttle, Wakeful<Shuttle>>(3, 4, 2_000_000));
    }

    #[test]
    fn sharing_again() {
        for _ in 0..if long() { 2_000 } else { 100 } {
            bodies::sharing_again::<Linux, Wakeful<Linux>>(4, 8);
            bodies::sharing_again::<Linux, Native<Linux>>(4, 8);
            bodies::timing_again::<Linux, Wakeful<Linux>>(8, 4, 200_000);
        }
    }

    #[test]
    fn shuttle_timing() {
        shuttle("timing", 50, || bodies::timing::<Shuttle, Wakeful<Shuttle>>(4, 4, 2_000_000));
    }

    #[test]
    fn upgrading() {
        let rounds = if long() { 5_000 } else { 300 };
        bodies::upgrading::<Linux, Wakeful<Linux>>(MANY, rounds, 200_000);
        bodies::upgrading::<Twisted<Linux, Lying>, Wakeful<Twisted<Linux, Lying>>>(8, rounds, 200_000);
    }

    #[test]
    fn recursion() {
        bodies::recursion::<Linux, Wakeful<Linux>>(8, if long() { 5_000 } else { 300 });
    }

    #[test]
    fn readers_do_not_keep_a_writer_out() {
        assert!(bodies::writer_gets_in::<Linux, Wakeful<Linux>>(8, Duration::from_secs(10)));
    }

    #[test]
    fn writers_do_not_keep_a_reader_out() {
        assert!(bodies::reader_gets_in::<Linux, Wakeful<Linux>>(8, Duration::from_secs(10)));
    }

    /// The test above can fail: a lock whose readers come first fails it.
    #[test]
    fn readers_who_come_first_keep_a_writer_out() {
        assert!(!bodies::writer_gets_in::<Linux, Native<Linux>>(8, Duration::from_millis(200)));
    }
}

/// The checkers find what is broken.
mod twins {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use conformance::rwlock_twins::*;
    use conformance::twist::{Deaf, NoAcquire, NoRelease};

    fn settings() -> [Settings; 2] {
        [Hints::Mixed, Hints::Always(RunState::Preempted)]
            .map(|hints| Settings { hints, ..Settings::default() })
    }

    fn loom_finds(what: &str, body: fn()) {
        let bounds = Bounds { preemptions: 3, executions: 20_000 };
        let found = settings().into_iter().any(|settings| {
            catch_unwind(AssertUnwindSafe(|| conformance::loom::explore(what, settings, bounds, body)))
                .is_err()
        });
        assert!(found, "loom let {what} pass");
    }

    fn shuttle_finds(what: &str, body: fn()) {
        // PCT does not find lets_writer_in.
        let found = settings().into_iter().any(|settings| {
            catch_unwind(AssertUnwindSafe(|| {
                conformance::shuttle::explore(settings, Schedules::Random, 20_000, body)
            }))
            .is_err()
        });
        assert!(found, "shuttle let {what} pass");
    }

    macro_rules! twins {
        ($($name:ident: [P] $body:expr;)*) => {
            $(mod $name {
                use super::*;

                #[test]
                fn loom() {
                    type P = Loom;
                    loom_finds(stringify!($name), || $body);
                }

                #[test]
                fn shuttle() {
                    type P = Shuttle;
                    shuttle_finds(stringify!($name), || $body);
                }
            })*
        };
    }
    twins! {
        loses_reader: [P] bodies::one_writer::<P, LosesReader<P>>(3, 1);
        lets_writer_in: [P] bodies::one_writer::<P, LetsWriterIn<P>>(2, 1);
        forgets_sleepers: [P] bodies::one_writer::<P, ForgetsSleepers<P>>(2, 1);
        mutual: [P] bodies::sharing::<P, Mutual<P>>(2);
        smart_q_as_printed: [P] bodies::exclusion::<P, SmartQAsPrinted<P>>(3, 1);
        lets_go: [P] bodies::upgrading::<P, LetsGo<P>>(2, 1, 1);
    }

    /// What needs no rare schedule is found on real threads too, if it leaves nobody waiting.
    #[test]
    fn real_threads_find_a_writer_beside_readers() {
        let found = || catch_unwind(|| bodies::one_writer::<Linux, LetsWriterIn<Linux>>(8, 20_000)).is_err();
        assert!((0..100).any(|_| found()), "real threads let lets_writer_in pass");
    }

    macro_rules! orderings {
        ($({ $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*], $citation:literal, $summary:literal })*) => {
            /// Each algorithm without its acquires, without its releases, and with nobody woken.
            mod orderings {
                $(mod $ident {
                    use super::super::*;

                    #[test]
                    fn acquire() {
                        type P = Twisted<Loom, NoAcquire>;
                        loom_finds(concat!($name, " without acquire"), || bodies::exclusion::<P, $type>(2, 1));
                    }

                    #[test]
                    fn release() {
                        type P = Twisted<Loom, NoRelease>;
                        loom_finds(concat!($name, " without release"), || bodies::exclusion::<P, $type>(2, 1));
                    }

                    #[test]
                    fn deaf() {
                        type P = Twisted<Shuttle, Deaf>;
                        if sleeps($name) {
                            shuttle_finds(concat!($name, ", deaf"), || bodies::exclusion::<P, $type>(3, 2));
                        }
                    }
                })*
            }
        };
    }
    catalog::rwlocks!(orderings);

    fn sleeps(name: &str) -> bool {
        matches!(name.trim_end_matches("-np"), "rw-wakeful" | "rw-native")
    }
}
