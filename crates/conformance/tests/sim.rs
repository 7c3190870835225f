// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulator's exploration finds what is broken, and prints a schedule that does it again.

use std::ptr;
use std::time::Duration;

use conformance::twist::{Deaf, Straight, Twisted};
use conformance::{barrier_twins, rwlock_twins, twins};
use platform::{Atomic, Ordering::*, Platform};
use sim::explore::{Exploration, Report, Strategy, explore, replay};
use sim::{Explored, Hints, World};
use sync::mutex::{Native, RawMutex, Wakeful};

/// COST: processor time that a search may take; a second or less where nothing else runs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Processor time of the calling thread: who else runs, and for how long we are stopped, is not in it.
fn spent() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the time, which is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Tries one way after the other, and says which found it.
fn finds(what: &str, build: impl Fn(&mut World)) {
    let begin = spent();
    let (mut runs, mut steps) = (0, 0);
    for seed in 1.. {
        for hints in [Hints::True, Hints::Inverted, Hints::Delayed { us: 200.0 }, Hints::None] {
            for strategy in [
                Strategy::Bounded { changes: 2, runs: 2000 * seed },
                Strategy::Random { runs: 1000 },
                Strategy::Pct { runs: 1000, depth: 4 },
            ] {
                let exploration = Exploration { strategy, hints, seed, steps: 20_000 };
                let Report { runs: tried, steps: made, failure, .. } = explore(&exploration, &build);
                (runs, steps) = (runs + tried, steps + made);
                if let Some(failure) = failure {
                    println!(
                        "{what}: {} after {runs} schedules, {steps} steps: {hints:?}, {}",
                        failure.what, failure.schedule
                    );
                    let again = replay(&exploration, &failure.schedule, &build);
                    assert_eq!(
                        again.as_deref(),
                        Some(&*failure.what),
                        "{what}: the schedule does something else"
                    );
                    assert!(spent() - begin < PATIENCE, "{what} took {:?}", spent() - begin);
                    return;
                }
            }
        }
        assert!(spent() - begin < PATIENCE, "{what} was let pass, {runs} times");
    }
}

macro_rules! twins {
    ($($name:ident: [P, $twist:ty] $body:ident $type:ty, $threads:literal x $rounds:literal;)*) => {
        $(#[test]
        fn $name() {
            type P = Twisted<Explored, $twist>;
            finds(stringify!($name), sim::explore::$body::<P, $type>($threads, $rounds));
        })*
    };
}

twins! {
    test_then_set: [P, Straight] mutex twins::TestThenSet<P>, 2 x 1;
    takes_what_it_finds: [P, Straight] mutex twins::TakesWhatItFinds<P>, 2 x 1;
    serves_early: [P, Straight] mutex twins::ServesEarly<P>, 2 x 1;
    forgets_sleepers: [P, Straight] mutex twins::ForgetsSleepers<P>, 3 x 1;
    sleeps_unmarked: [P, Straight] mutex twins::SleepsUnmarked<P>, 2 x 1;
    overruns: [P, Straight] mutex twins::Overruns<P>, 4 x 1;
    serves_on_without_taking_back: [P, Straight] mutex twins::ServesOnWithoutTakingBack<P>, 3 x 1;
    queue_hs_without_rescind: [P, Straight] mutex twins::QueueHsWithoutRescind<P>, 3 x 1;
    leaves_next: [P, Straight] mutex twins::LeavesNext<P>, 2 x 1;
    smart_q_as_printed: [P, Straight] mutex twins::SmartQAsPrinted<P>, 2 x 2;
    wakeful_released_twice: [P, Straight] mutex twins::ReleasesTwice<Wakeful<P>>, 2 x 2;
    native_released_twice: [P, Straight] mutex twins::ReleasesTwice<Native<P>>, 2 x 2;
    timing_window: [P, Straight] mutex TimingWindow<P>, 3 x 1;
    deaf_mcs_block: [P, Deaf] mutex sync::mutex::Mcs<P, sync::wait::Block>, 3 x 1;
    deaf_native: [P, Deaf] mutex Native<P>, 3 x 1;
    rw_loses_reader: [P, Straight] rwlock rwlock_twins::LosesReader<P>, 3 x 1;
    rw_lets_writer_in: [P, Straight] rwlock rwlock_twins::LetsWriterIn<P>, 2 x 1;
    rw_counts_late: [P, Straight] rwlock rwlock_twins::CountsLate<P>, 2 x 1;
    rw_forgets_sleepers: [P, Straight] rwlock rwlock_twins::ForgetsSleepers<P>, 3 x 1;
    rw_smart_q_as_printed: [P, Straight] rwlock rwlock_twins::SmartQAsPrinted<P>, 3 x 1;
    b_no_sense: [P, Straight] barrier barrier_twins::NoSense<P>, 2 x 2;
    b_releases_early: [P, Straight] barrier barrier_twins::ReleasesEarly<P>, 2 x 1;
    b_clears_late: [P, Straight] barrier barrier_twins::ClearsLate<P>, 2 x 2;
    b_forgets_sleepers: [P, Straight] barrier barrier_twins::ForgetsSleepers<P>, 2 x 1;
    b_two_serial: [P, Straight] barrier barrier_twins::TwoSerial<P>, 2 x 1;
    c_sched_as_printed: [P, Straight] barrier barrier_twins::CSchedAsPrinted<P>, 3 x 3;
}

/// `queue-hs` with loads and stores where TR 1994, figure 2, has `fetch_and_store` on the status: the
/// timing window that its section 4.1 speaks of. The successor sees `CAN_GO` just before the releaser takes
/// it back; both go on.
struct TimingWindow<P: Platform>(P::AtomicPtr<Node<P>>);

struct Node<P: Platform> {
    next: P::AtomicPtr<Node<P>>,
    prev: P::AtomicPtr<Node<P>>,
    next_done: P::AtomicU32,
    status: P::AtomicU32,
}

impl<P: Platform> Default for Node<P> {
    fn default() -> Self {
        let (null, zero) = (|| Atomic::new(ptr::null_mut()), || Atomic::new(0));
        Self { next: null(), prev: null(), next_done: zero(), status: zero() }
    }
}

const NOT_YET: u32 = 0;
const CAN_GO: u32 = 1;
const GOT_IT: u32 = 2;
const LOST_IT: u32 = 3;
const ACK: u32 = 4;
const NACK: u32 = 5;

impl<P: Platform> RawMutex<P> for TimingWindow<P> {
    type Node = Node<P>;

    fn new() -> Self {
        Self(Atomic::new(ptr::null_mut()))
    }

    unsafe fn lock(&self, node: &Node<P>) {
        loop {
            node.next.store(ptr::null_mut(), Relaxed);
            node.status.store(NOT_YET, Relaxed);
            let before = self.0.swap(ptr::from_ref(node).cast_mut(), AcqRel);
            if before.is_null() {
                return;
            }
            node.prev.store(before, Relaxed);
            // SAFETY: nodes stay as long as the machine.
            unsafe { &*before }.next.store(ptr::from_ref(node).cast_mut(), Release);
            while node.status.load(Acquire) == NOT_YET {
                P::pause();
            }
            let status = node.status.load(Acquire);
            node.status.store(GOT_IT, Release);
            if status == CAN_GO {
                // SAFETY: as above.
                unsafe { &*node.prev.load(Relaxed) }.next_done.store(1, Release);
                while node.status.load(Acquire) != ACK {
                    P::pause();
                }
                return;
            }
            while node.status.load(Acquire) != NACK {
                P::pause();
            }
        }
    }

    unsafe fn try_lock(&self, _: &Node<P>) -> bool {
        false
    }

    unsafe fn unlock(&self, node: &Node<P>) {
        let tail =
            |node: *mut Node<P>| self.0.compare_exchange(node, ptr::null_mut(), Release, Relaxed).is_ok();
        let mut next = node.next.load(Acquire);
        if next.is_null() {
            if tail(ptr::from_ref(node).cast_mut()) {
                return;
            }
            while next.is_null() {
                P::pause();
                next = node.next.load(Acquire);
            }
        }
        node.next_done.store(0, Relaxed);
        loop {
            // SAFETY: nodes stay as long as the machine.
            let candidate = unsafe { &*next };
            candidate.status.store(CAN_GO, Release);
            P::pause();
            if node.next_done.load(Acquire) != 0 {
                candidate.status.store(ACK, Release);
                return;
            }
            let status = candidate.status.load(Acquire);
            candidate.status.store(LOST_IT, Release);
            if status == GOT_IT {
                while node.next_done.load(Acquire) == 0 {
                    P::pause();
                }
                candidate.status.store(ACK, Release);
                return;
            }
            let mut after = candidate.next.load(Acquire);
            if after.is_null() {
                if tail(next) {
                    candidate.status.store(NACK, Release);
                    return;
                }
                while after.is_null() {
                    P::pause();
                    after = candidate.next.load(Acquire);
                }
            }
            // SAFETY: as above.
            unsafe { &*after }.prev.store(ptr::from_ref(node).cast_mut(), Relaxed);
            candidate.status.store(NACK, Release);
            next = after;
        }
    }
}
