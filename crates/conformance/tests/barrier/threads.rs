// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every barrier of the catalogue on this computer, with many more threads than processors.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use conformance::barrier_bodies::{Anonymous, Noded};
use conformance::twist::{Fickle, Lying, Twist, Twisted};
use conformance::{barrier_bodies, long};
use linux::Linux;
use platform::Crowd;
use sync::barrier::{BWakeful, BWakefulDrained, RawBarrier, RawBarrierDrained, RawBarrierDynamic};

const MANY: u32 = 32;

/// COST: with many threads, a barrier that is oblivious of the scheduler waits for a slice (3 ms on 2
/// processors) a thread, or level and thread, in each round.
fn rounds(name: &str, threads: u32) -> u32 {
    let oblivious =
        name.ends_with("-spin") || matches!(name, "tree" | "scal-sc" | "scal-sc-yield" | "c-sched");
    let tree = name.contains("mcs") || name.contains("tree");
    let rounds = match () {
        () if threads <= 5 => 50,
        () if oblivious => 3,
        () if tree => 20,
        () => 100,
    };
    if long() { rounds * 50 } else { rounds }
}

macro_rules! suite {
    ($({
        $name:literal, $ident:ident, [P] $type:ty, $kind:ident, [$($flag:ident)*],
        $citation:literal, $summary:literal
    })*) => {
        $(mod $ident {
            use super::*;

            #[test]
            fn episodes() {
                type P = Linux;
                for parties in [0, 1, 2, 3, 5] {
                    barrier_bodies::episodes::<P, $type>(parties, rounds($name, parties));
                }
                barrier_bodies::episodes::<P, $type>(MANY, rounds($name, MANY));
            }

            #[test]
            fn episodes_with_wrong_hints() {
                {
                    type P = Twisted<Linux, Lying>;
                    barrier_bodies::episodes::<P, $type>(8, rounds($name, 8));
                }
                type P = Twisted<Linux, Fickle>;
                barrier_bodies::episodes::<P, $type>(8, rounds($name, 8));
            }
        })*
    };
}
catalog::barriers!(suite);

type Default = BWakeful<Linux>;
type Drained = BWakefulDrained<Linux>;

#[test]
fn b_wakeful_is_full_also_where_some_have_arrived() {
    let barrier = Default::new(Default::MOST_PARTIES);
    barrier.arrive_only();
    assert!(!barrier.join());
    (2..Default::MOST_PARTIES).for_each(|_| barrier.arrive_only());
    assert!(barrier.lacks_one());
    assert!(barrier.wait());
}

#[test]
fn b_wakeful_combining() {
    barrier_bodies::episodes_with::<Linux, Default>(8, rounds("", MANY), 2);
    barrier_bodies::episodes_with::<Linux, Default>(MANY, rounds("", MANY), 4);
    barrier_bodies::episodes_with::<Linux, Default>(128, rounds("", MANY), 21);
    for _ in 0..rounds("", MANY) / 10 {
        barrier_bodies::coming_and_going::<Linux, Noded<_, 1>>(8, 5);
        barrier_bodies::groups::<Linux, Noded<_, 2>>(8, 5);
        barrier_bodies::joining_alone::<Linux, Noded<_, 1>>();
    }
    for _ in 0..rounds("", MANY) {
        barrier_bodies::renewing::<Linux, 2, false>(8);
    }
}

/// Arrivals at nodes are counted late, and the places of an episode are those of its beginning. Yet there is
/// room for who joins where others leave, and a barrier without room for that uses no nodes.
#[test]
fn b_wakeful_joining_and_leaving_beside_nodes() {
    for parties in [8, 6_000, 7_000] {
        let (barrier, nodes) = (Default::new(parties), barrier_bodies::nodes::<Linux>(1));
        let barrier = barrier.with(&nodes);
        // The places are those of now.
        assert!(barrier.enter().is_some());
        (0..1_000).for_each(|_| assert!(barrier.join()));
        for round in 0..3 * Default::MOST_PARTIES {
            assert!(barrier.join(), "{parties} parties, {round}");
            barrier.arrive_and_drop();
        }
        for missing in [parties + 999, parties + 1_000] {
            assert!((1..missing).all(|_| barrier.enter().is_some()), "the episode was over early");
            assert!(barrier.enter().is_none(), "the last to come has not ended the episode");
        }
    }
}

/// Few parties do without the nodes, until the episode has the number of the last one that used them.
#[test]
fn b_wakeful_nodes_unused_for_all_numbers() {
    let (barrier, nodes) = (Default::new(8), barrier_bodies::nodes::<Linux>(1));
    let barrier = barrier.with(&nodes);
    let episode = |parties: u32, leave: u32| {
        (0..leave).for_each(|_| barrier.arrive_and_drop());
        assert!((leave + 1..parties).all(|_| barrier.enter().is_some()), "the episode was over early");
        assert!(barrier.enter().is_none(), "the last to come has not ended the episode");
    };
    episode(8, 0);
    episode(8, 7);
    (2..65_536).for_each(|_| episode(1, 0));
    (0..8).for_each(|_| assert!(barrier.join()));
    episode(9, 0);
    episode(9, 0);
    episode(9, 0);
}

#[test]
fn b_wakeful_coming_and_going() {
    for _ in 0..rounds("", MANY) / 10 {
        barrier_bodies::coming_and_going::<Linux, Default>(8, 5);
    }
}

/// Each barrier by its name alone, as the interposer has them: 32 threads, eight of which go on at a time.
#[test]
fn seated() {
    barrier_bodies::groups::<Linux, Anonymous<_, sync::barrier::ScalSc<Linux>>>(8, 4);
    barrier_bodies::groups::<Linux, Anonymous<_, sync::barrier::CAvg3<Linux>>>(8, 4);
    for entry in catalog::BARRIERS {
        barrier_bodies::named::<Linux>(entry.name, 4, 25);
    }
}

#[test]
fn b_wakeful_groups() {
    for _ in 0..rounds("", MANY) {
        barrier_bodies::groups::<Linux, Default>(3, 5);
    }
}

#[test]
fn b_wakeful_draining() {
    for _ in 0..rounds("", MANY) {
        barrier_bodies::draining::<Linux, Drained>(4, 3);
    }
}

/// The memory is gone as soon as one thread has come out and drained it: whoever touches it then, dies.
#[test]
fn b_wakeful_is_unmapped_while_others_leave() {
    let parties = 6;
    for _ in 0..rounds("", MANY) {
        // SAFETY: a fresh page; no thread keeps a reference, and whoever unmaps it does so once, after
        // `drain`.
        let page = unsafe {
            let (all, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let page = libc::mmap(std::ptr::null_mut(), 4096, all, flags, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            page.cast::<Drained>().write(Drained::new(parties));
            page as usize
        };
        let first = Arc::new(AtomicUsize::new(0));
        let handles: Vec<_> = (0..parties)
            .map(|_| {
                let first = first.clone();
                std::thread::spawn(move || {
                    let barrier = page as *const Drained;
                    // SAFETY: it is there until all threads have arrived.
                    unsafe { (*barrier).wait() };
                    if first.fetch_add(1, SeqCst) == 0 {
                        // SAFETY: nobody unmaps it but us, and after `drain` nobody touches it.
                        unsafe {
                            (*barrier).drain();
                            libc::munmap(page as *mut _, 4096);
                        }
                    }
                })
            })
            .collect();
        for handle in handles {
            handle.join().expect("nobody panics");
        }
    }
}

#[test]
fn b_wakeful_summoning() {
    for _ in 0..rounds("", MANY) {
        barrier_bodies::summoning::<Linux>(4, 10);
    }
}

#[test]
fn b_wakeful_joining_alone() {
    for _ in 0..rounds("", MANY) {
        barrier_bodies::joining_alone::<Linux, Default>();
    }
}

#[test]
fn b_wakeful_freeing() {
    for _ in 0..rounds("", MANY) {
        barrier_bodies::freeing::<Linux, BWakefulDrained<Linux>>();
    }
}

/// As their theory statements say.
#[test]
fn sizes() {
    use sync::barrier::*;
    use sync::wait::Spin;
    assert_eq!(size_of::<CSpin<Linux>>(), 12);
    assert_eq!(size_of::<CBlock<Linux>>(), 16);
    assert_eq!(size_of::<CSpBlk<Linux>>(), 28);
    assert_eq!(size_of::<CLast1<Linux>>(), 28);
    assert_eq!(size_of::<CAvg3<Linux>>(), 28);
    assert_eq!(size_of::<CCoarse<Linux>>(), 28);
    assert_eq!(size_of::<CSched<Linux>>(), 256);
    assert_eq!(size_of::<Incremental<Linux, Spin>>(), 12);
    assert_eq!(size_of::<BWakeful<Linux>>(), 24);
    assert_eq!(size_of::<BWakefulDrained<Linux>>(), 28);
    assert_eq!(size_of::<BWakefulNode<Linux>>(), 128);
    assert_eq!(size_of::<TreePlace<Linux>>(), 64);
    assert_eq!(size_of::<ScalScPlace<Linux>>(), 64);
    assert_eq!(size_of::<BMcsPlace<Linux>>(), 64);
    assert_eq!(size_of::<IncrementalPlace<Linux>>(), 64);
}

/// With more threads than parties, one that is off its processor for more than half of the episode's
/// numbers still finds its own over.
#[test]
fn b_wakeful_sleeping_through_episodes() {
    type Meanwhile = Option<Box<dyn FnOnce()>>;
    thread_local! {
        static MEANWHILE: Cell<Meanwhile> = const { Cell::new(None) };
    }

    #[derive(Clone, Copy, Default)]
    struct Away;
    impl Twist for Away {
        fn processors(_: u32) -> u32 {
            2
        }
        fn pauses() {
            if let Some(meanwhile) = MEANWHILE.take() {
                meanwhile();
            }
        }
    }

    for episodes in [1, 32_767, 32_768, 65_535] {
        let barrier = Arc::new(BWakeful::<Twisted<Linux, Away>>::new(2));
        let (ended, ends) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let theirs = barrier.clone();
            MEANWHILE.set(Some(Box::new(move || {
                // The other party ends our episode, and another one leaves it alone with the rest.
                assert!(theirs.wait());
                theirs.arrive_and_drop();
                (1..episodes).for_each(|_| assert!(theirs.wait()));
            })));
            let serial = barrier.wait();
            ended.send(serial).unwrap();
        });
        let serial = ends.recv_timeout(std::time::Duration::from_secs(120));
        assert_eq!(serial, Ok(false), "a thread waits for an episode that was over {episodes} episodes ago");
    }
}

thread_local! {
    // What the others do when this test's thread waits, once.
    static ARRIVE: Cell<Option<Box<dyn Fn()>>> = const { Cell::new(None) };
}

/// The others come as soon as the waiter has decided.
fn arrive() {
    if let Some(arrive) = ARRIVE.take() {
        arrive();
    }
}

/// Beside foreign load that lasts who waits sleeps at once, from the first episode on; when the load has
/// gone, it stays awake. It does so, too, if one look has seen a load.
#[test]
fn b_wakeful_beside_foreign_load() {
    static OTHERS: AtomicU32 = AtomicU32::new(1);
    static LASTS: AtomicBool = AtomicBool::new(true);
    thread_local! {
        static YIELDS: Cell<u32> = const { Cell::new(0) };
        static SLEEPS: Cell<u32> = const { Cell::new(0) };
    }

    #[derive(Clone, Copy, Default)]
    struct Load;
    impl Twist for Load {
        fn processors(_: u32) -> u32 {
            2
        }
        fn crowd(_: u32, _: Option<Crowd>) -> Option<Crowd> {
            Some(Crowd { others: OTHERS.load(Relaxed), processors: 2, lasts: LASTS.load(Relaxed) })
        }
        fn yields() {
            YIELDS.set(YIELDS.get() + 1);
            arrive();
        }
        fn sleeps() {
            SLEEPS.set(SLEEPS.get() + 1);
            arrive();
        }
    }

    for parties in [2, 3] {
        OTHERS.store(1, Relaxed);
        let barrier = Arc::new(BWakeful::<Twisted<Linux, Load>>::new(parties));
        let episode = || {
            let others = barrier.clone();
            ARRIVE.set(Some(Box::new(move || (1..parties).for_each(|_| others.arrive_only()))));
            YIELDS.set(0);
            SLEEPS.set(0);
            assert!(!barrier.wait());
            (YIELDS.get(), SLEEPS.get())
        };
        LASTS.store(false, Relaxed);
        assert_eq!(episode(), (1, 0), "{parties} parties");
        LASTS.store(true, Relaxed);
        for _ in 0..100 {
            assert_eq!(episode(), (0, 1), "{parties} parties");
        }
        OTHERS.store(0, Relaxed);
        // The last of this one finds that the load has gone.
        assert_eq!(episode(), (0, 1), "{parties} parties");
        assert_eq!(episode(), (1, 0), "{parties} parties");
    }
}

/// Parties that sleep count as running, and hide other programs. If the processors went to somebody while a
/// waiter was away, it sleeps from then on. With all parties awake it believes that nobody else runs.
#[test]
fn b_wakeful_beside_hidden_load() {
    static SLEPT: AtomicBool = AtomicBool::new(false);
    thread_local! {
        static YIELDS: Cell<u32> = const { Cell::new(0) };
    }

    #[derive(Clone, Copy, Default)]
    struct Hidden;
    impl Twist for Hidden {
        fn processors(_: u32) -> u32 {
            2
        }
        fn crowd(awake: u32, _: Option<Crowd>) -> Option<Crowd> {
            // Three threads can run.
            Some(Crowd { others: 3u32.saturating_sub(awake), processors: 2, lasts: true })
        }
        fn cpu_ns(_: u64) -> u64 {
            0
        }
        fn yields() {
            YIELDS.set(YIELDS.get() + 1);
            // For some slices others have the processor. Then the waiter sleeps, and the others come.
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(9) {}
        }
        fn sleeps() {
            SLEPT.store(true, Relaxed);
            arrive();
        }
    }

    type Hiding = BWakeful<Twisted<Linux, Hidden>>;
    let yields = |barrier: &Arc<Hiding>, sleeper: bool| {
        std::thread::scope(|scope| {
            SLEPT.store(false, Relaxed);
            if sleeper {
                let theirs = barrier.clone();
                scope.spawn(move || {
                    let entered = theirs.enter().expect("others are to come");
                    while !theirs.sleep_or(&entered, || false) {}
                });
                while !SLEPT.load(Relaxed) {
                    std::thread::yield_now();
                }
            }
            let others = barrier.clone();
            ARRIVE
                .set(Some(Box::new(move || (1..3 - u32::from(sleeper)).for_each(|_| others.arrive_only()))));
            YIELDS.set(0);
            assert!(!barrier.wait());
            YIELDS.get()
        })
    };

    let barrier = Arc::new(Hiding::new(3));
    assert!((0..20).all(|_| yields(&barrier, false) == 1), "all are awake");
    // The samples are of 24 ms at most: other tests may have the processor meanwhile.
    assert!((0..1_000).any(|_| yields(&barrier, true) == 0), "somebody sleeps");
}

/// A waiter that yields to another party three times in a row moves to another processor; not beside foreign
/// load.
#[test]
fn b_wakeful_on_one_processor() {
    static OTHERS: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static MOVES: Cell<u32> = const { Cell::new(0) };
    }

    #[derive(Clone, Copy, Default)]
    struct Shared;
    impl Twist for Shared {
        fn processors(_: u32) -> u32 {
            2
        }
        fn crowd(_: u32, _: Option<Crowd>) -> Option<Crowd> {
            Some(Crowd { others: OTHERS.load(Relaxed), processors: 2, lasts: false })
        }
        fn yields() {
            // The other party has the processor, and comes.
            let began = Instant::now();
            while began.elapsed() < Duration::from_micros(20) {}
            arrive();
        }
        fn sleeps() {
            arrive();
        }
        fn moves() {
            MOVES.set(MOVES.get() + 1);
        }
    }

    for others in [0, 1] {
        OTHERS.store(others, Relaxed);
        let barrier = Arc::new(BWakeful::<Twisted<Linux, Shared>>::new(2));
        MOVES.set(0);
        // Three in a row within some milliseconds: other tests may have the processor meanwhile.
        let moved = (1..1_000).find(|_| {
            let other = barrier.clone();
            ARRIVE.set(Some(Box::new(move || other.arrive_only())));
            barrier.wait();
            MOVES.get() > 0
        });
        assert!(moved.is_none_or(|episodes| episodes > 2), "after {moved:?}");
        assert_eq!(moved.is_some(), others == 0, "beside {others}");
    }
}

/// Beside foreign load two parties that slept on one processor try what they make awake: one of them moves.
#[test]
fn b_wakeful_tries_apart() {
    thread_local! {
        static MOVES: Cell<u32> = const { Cell::new(0) };
    }

    #[derive(Clone, Copy, Default)]
    struct Load;
    impl Twist for Load {
        fn processors(_: u32) -> u32 {
            2
        }
        fn crowd(_: u32, _: Option<Crowd>) -> Option<Crowd> {
            Some(Crowd { others: 2, processors: 2, lasts: true })
        }
        fn yields() {
            // The other party has the processor, and comes.
            let began = Instant::now();
            while began.elapsed() < Duration::from_micros(20) {}
            arrive();
        }
        fn sleeps() {
            arrive();
        }
        fn moves() {
            MOVES.set(MOVES.get() + 1);
        }
    }

    let barrier = Arc::new(BWakeful::<Twisted<Linux, Load>>::new(2));
    let began = Instant::now();
    while MOVES.get() == 0 && began.elapsed() < Duration::from_secs(10) {
        let other = barrier.clone();
        ARRIVE.set(Some(Box::new(move || other.arrive_only())));
        barrier.wait();
    }
    assert_eq!(MOVES.get(), 1);
}

/// A thread that is back from a yield when the others sleep does not know how many are awake. So it sleeps.
#[test]
fn b_wakeful_back_when_the_others_sleep() {
    static RUNNABLE: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static YIELDS: Cell<u32> = const { Cell::new(0) };
        static AWAY: Cell<Option<Box<dyn Fn()>>> = const { Cell::new(None) };
    }

    #[derive(Clone, Copy, Default)]
    struct Load;
    impl Twist for Load {
        fn processors(_: u32) -> u32 {
            2
        }
        fn crowd(awake: u32, _: Option<Crowd>) -> Option<Crowd> {
            let others = RUNNABLE.load(Relaxed).saturating_sub(awake);
            Some(Crowd { others, processors: 2, lasts: true })
        }
        fn yields() {
            YIELDS.set(YIELDS.get() + 1);
            if let Some(away) = AWAY.take() {
                away();
            }
        }
        fn sleeps() {
            arrive();
        }
    }

    RUNNABLE.store(0, Relaxed);
    let barrier = Arc::new(BWakeful::<Twisted<Linux, Load>>::new(4));
    let others = barrier.clone();
    ARRIVE.set(Some(Box::new(move || (0..2).for_each(|_| others.arrive_only()))));
    let other = barrier.clone();
    AWAY.set(Some(Box::new(move || {
        let began = Instant::now();
        RUNNABLE.store(9, Relaxed);
        let (slept, sleeps) = mpsc::channel();
        let other = other.clone();
        std::thread::spawn(move || {
            ARRIVE.set(Some(Box::new(move || slept.send(()).unwrap())));
            other.wait();
        });
        sleeps.recv().unwrap();
        // Of the four parties and the others' threads.
        RUNNABLE.store(3, Relaxed);
        while began.elapsed() < Duration::from_nanos(sync::barrier::long_ns::<Linux>() * 2) {}
    })));
    barrier.wait();
    assert_eq!(YIELDS.get(), 1);
}

/// A barrier that is made beside foreign load knows of it, though its parties are not there yet: one that
/// looked while it waits would take the foreign threads for them.
#[test]
fn b_wakeful_made_before_its_parties() {
    static RUNNABLE: AtomicU32 = AtomicU32::new(1);
    thread_local! {
        static YIELDS: Cell<u32> = const { Cell::new(0) };
    }

    #[derive(Clone, Copy, Default)]
    struct Load;
    impl Twist for Load {
        fn processors(_: u32) -> u32 {
            2
        }
        fn crowd(awake: u32, _: Option<Crowd>) -> Option<Crowd> {
            let others = RUNNABLE.load(Relaxed).saturating_sub(awake);
            Some(Crowd { others, processors: 2, lasts: false })
        }
        fn yields() {
            YIELDS.set(YIELDS.get() + 1);
            arrive();
        }
        fn sleeps() {
            arrive();
        }
    }

    for (foreign, yields) in [(0, 1), (2, 0)] {
        RUNNABLE.store(1 + foreign, Relaxed);
        let barrier = Arc::new(BWakefulDrained::<Twisted<Linux, Load>>::new(3));
        let others = barrier.clone();
        ARRIVE.set(Some(Box::new(move || {
            for _ in 0..2 {
                let other = others.clone();
                std::thread::spawn(move || other.wait());
            }
        })));
        YIELDS.set(0);
        barrier.wait();
        assert_eq!(YIELDS.get().min(1), yields, "beside {foreign}");
    }
}
