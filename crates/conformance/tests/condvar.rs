// SPDX-License-Identifier: MIT OR Apache-2.0
//! The default condition variable in loom and shuttle, on this computer, and twins of it with one mistake
//! each.

use std::panic::{AssertUnwindSafe, catch_unwind};

use conformance::condvar::{self as bodies, Condvar};
use conformance::loom::{Bounds, Loom};
use conformance::shuttle::{Schedules, Shuttle};
use conformance::{HINTS, Hints, Machine, Settings, further, long};
use linux::Linux;
use platform::{Atomic, Deadline, Ordering::*, Platform, RunState, Wait};
use sync::condvar::{Step, Waiter, Wakeful};
use sync::mutex::{Native, Wakeful as WakefulMutex};

/// COST: ns a look; a standby stays for 40 us, looks every 150 ns and asks every 2 us.
const STEPS: [u64; 3] = [1_000, 15_000, 1_000_000];

fn all() -> impl Iterator<Item = Settings> {
    HINTS.into_iter().flat_map(|hints| {
        STEPS.into_iter().map(move |clock_step_ns| Settings { hints, clock_step_ns, ..Settings::default() })
    })
}

fn loom(name: &str, preemptions: usize, executions: usize, body: fn()) {
    let mut ran = 0;
    for settings in all() {
        let bounds =
            Bounds { preemptions: preemptions + long() as usize, executions: executions * further() };
        ran += conformance::loom::explore(name, settings, bounds, body);
    }
    eprintln!("loom: {name}: {ran} executions");
}

fn shuttle(name: &str, count: usize, body: fn()) {
    let mut ran = 0;
    for settings in all() {
        for schedules in [Schedules::Random, Schedules::Pct(2), Schedules::Pct(5)] {
            ran += conformance::shuttle::explore(settings, schedules, count * further(), body);
        }
    }
    eprintln!("shuttle: {name}: {ran} executions");
}

/// Deadlines of the models: some looks away.
const PATIENCE_NS: u64 = 2_000_000;

mod in_loom {
    use super::*;
    type P = Loom;
    type M = Native<P>;
    type C = Wakeful<P>;

    #[test]
    fn loom_signals() {
        loom("condvar, signals", 2, 300, || bodies::signals::<P, M, C>(2, 1, true));
        loom("condvar, signals after", 2, 300, || bodies::signals::<P, M, C>(2, 1, false));
    }

    #[test]
    fn loom_signals_again() {
        loom("condvar, signals again", 2, 300, || bodies::signals::<P, M, C>(1, 2, true));
    }

    #[test]
    fn loom_signals_to_sleepers() {
        loom("condvar, to sleepers", 2, 300, || bodies::signals_to_sleepers::<P, M, C>(2, false));
    }

    #[test]
    fn loom_broadcasts() {
        loom("condvar, broadcasts", 2, 300, || bodies::broadcasts::<P, M, C>(2, 1, true));
        loom("condvar, broadcasts after", 2, 300, || bodies::broadcasts::<P, M, C>(2, 1, false));
    }

    #[test]
    fn loom_timing() {
        loom("condvar, timing", 2, 300, || bodies::timing::<P, M, C>(1, 1, PATIENCE_NS, true));
        loom("condvar, timing after", 2, 300, || bodies::timing::<P, M, C>(1, 1, PATIENCE_NS, false));
    }

    #[test]
    fn loom_timing_out() {
        loom("condvar, timing out", 2, 300, || bodies::timing_out::<P, M, C>(2, PATIENCE_NS));
    }

    #[test]
    fn loom_no_stealing() {
        loom("condvar, no stealing", 2, 300, || bodies::no_stealing::<P, M, C>(1, 1));
    }

    #[test]
    fn loom_giving_up() {
        loom("condvar, abandoned", 2, 300, || bodies::giving_up::<P, M, C>(1, false));
        loom("condvar, cancelled", 2, 300, || bodies::giving_up::<P, M, C>(1, true));
    }
}

macro_rules! in_shuttle {
    ($($name:ident: $mutex:ident;)*) => {
        $(mod $name {
            use super::*;
            type P = Shuttle;
            type M = $mutex<P>;
            type C = Wakeful<P>;

            #[test]
            fn shuttle_signals() {
                shuttle("condvar, signals", 60, || bodies::signals::<P, M, C>(4, 2, true));
                shuttle("condvar, signals after", 60, || bodies::signals::<P, M, C>(4, 2, false));
            }

            #[test]
            fn shuttle_signals_to_sleepers() {
                shuttle("condvar, to sleepers", 60, || bodies::signals_to_sleepers::<P, M, C>(5, true));
                shuttle("condvar, to sleepers", 60, || bodies::signals_to_sleepers::<P, M, C>(5, false));
            }

            #[test]
            fn shuttle_broadcasts() {
                shuttle("condvar, broadcasts", 60, || bodies::broadcasts::<P, M, C>(4, 2, true));
                shuttle("condvar, broadcasts after", 60, || bodies::broadcasts::<P, M, C>(4, 2, false));
            }

            #[test]
            fn shuttle_timing() {
                shuttle("condvar, timing", 60, || bodies::timing::<P, M, C>(2, 3, PATIENCE_NS, true));
                shuttle("condvar, timing after", 60, || bodies::timing::<P, M, C>(2, 3, PATIENCE_NS, false));
            }

            #[test]
            fn shuttle_timing_out() {
                for settings in all() {
                    // Too sequential for PCT.
                    conformance::shuttle::explore(settings, Schedules::Random, 60, || {
                        bodies::timing_out::<P, M, C>(4, PATIENCE_NS)
                    });
                }
            }

            #[test]
            fn shuttle_no_stealing() {
                shuttle("condvar, no stealing", 60, || bodies::no_stealing::<P, M, C>(1, 1));
                shuttle("condvar, no stealing", 60, || bodies::no_stealing::<P, M, C>(3, 3));
            }

            #[test]
            fn shuttle_giving_up() {
                shuttle("condvar, abandoned", 60, || bodies::giving_up::<P, M, C>(3, false));
                shuttle("condvar, cancelled", 60, || bodies::giving_up::<P, M, C>(3, true));
            }

            #[test]
            fn shuttle_buffer() {
                shuttle("condvar, buffer", 60, || bodies::buffer::<P, M, C>(2, 3));
            }
        })*
    };
}
in_shuttle! {
    over_native: Native;
    over_wakeful: WakefulMutex;
}

mod on_threads {
    use super::*;
    type P = Linux;
    type M = WakefulMutex<P>;
    type C = Wakeful<P>;

    fn rounds() -> u32 {
        if long() { 20_000 } else { 500 }
    }

    #[test]
    fn signals() {
        bodies::signals::<P, M, C>(31, rounds(), true);
        bodies::signals::<P, M, C>(31, rounds(), false);
    }

    #[test]
    fn broadcasts() {
        bodies::broadcasts::<P, M, C>(31, rounds(), true);
        bodies::broadcasts::<P, M, C>(31, rounds(), false);
    }

    #[test]
    fn timing() {
        for round in 0..rounds() / 10 {
            bodies::timing::<P, M, C>(4, 4, u64::from(round) * 1_000, round % 2 == 0);
        }
    }

    #[test]
    fn no_stealing() {
        (0..rounds() / 10).for_each(|_| bodies::no_stealing::<P, M, C>(3, 3));
    }

    #[test]
    fn giving_up() {
        (0..rounds() / 10).for_each(|_| bodies::giving_up::<P, M, C>(3, false));
        (0..rounds() / 10).for_each(|_| bodies::giving_up::<P, M, C>(3, true));
    }

    #[test]
    fn buffer() {
        bodies::buffer::<P, M, C>(16, rounds());
    }
}

/// A condition variable in this state, see its table.
fn in_state<P: Platform>(state: u32) -> Wakeful<P> {
    const { assert!(size_of::<Wakeful<P>>() == 2 * size_of::<P::AtomicU32>()) };
    let words = [7, state].map(|word| std::mem::ManuallyDrop::new(<P::AtomicU32 as Atomic<u32>>::new(word)));
    // SAFETY: `Wakeful` has two words, `sequence` and `state`.
    unsafe { std::ptr::from_ref(&words).cast::<Wakeful<P>>().read() }
}

/// So many have given up waiting that the count of sleepers is full, or will be with the next: a waiter
/// that comes while a signal finds nobody asleep is not taken for one of those.
#[test]
fn loom_many_gave_up() {
    loom("condvar, many gave up", 2, 100, || {
        bodies::signals_of::<Loom, Native<Loom>, _>(in_state(1023 << 22), 1, 2, false)
    });
    loom("condvar, nearly many gave up", 2, 100, || {
        bodies::signals_of::<Loom, Native<Loom>, _>(in_state(1022 << 22), 1, 2, false)
    });
}

#[test]
fn shuttle_many_gave_up() {
    shuttle("condvar, many gave up", 60, || {
        bodies::signals_of::<Shuttle, Native<Shuttle>, _>(in_state(1023 << 22), 3, 2, false)
    });
}

/// Waits that nobody ends but their deadline: one of them may try to stand by, the others sleep at once.
#[test]
fn waits_that_time_out_do_not_poll() {
    let condvar = Wakeful::<Linux>::new();
    let polls = |_: &u32| {
        let mut waiter = condvar.enter();
        let began = Linux::now_ns();
        assert!(matches!(condvar.step(&mut waiter, None), Step::Sleep(_)));
        let took = Linux::now_ns() - began;
        condvar.slept(&mut waiter, Wait::TimedOut);
        took > 20_000
    };
    // Being preempted looks the same, now and then.
    let polled = (0..700).filter(polls).count();
    assert!(polled < 50, "{polled} of 700 waits polled");
}

/// A signal that is left to a woken thread on its way, and meant for a waiter that does not sleep yet; a
/// later waiter sleeps before that one. It must not take the signal.
mod a_deferred_signal {
    use super::*;
    use platform::AtomicInt;
    use std::sync::Arc;
    use sync::mutex::RawMutex;

    fn stays<M: Machine>() {
        let condvar = Arc::new(in_state::<M>(4 << 5));
        // Says when the late one may stop; the mutex orders this and its waits, as in any use.
        let go = Arc::new((Native::<M>::new(), M::AtomicU32::new(0)));
        let early = condvar.enter();
        // Two for each processor are in flight: left to them.
        condvar.signal();
        let (theirs, gone) = (condvar.clone(), go.clone());
        let late = M::spawn(move || {
            loop {
                // SAFETY: there is no node; released below.
                unsafe { gone.0.lock(&()) };
                let waiter = (gone.1.load(Relaxed) == 0).then(|| theirs.enter());
                // SAFETY: locked above.
                unsafe { gone.0.unlock(&()) };
                let Some(waiter) = waiter else { return };
                theirs.wait(waiter, None);
            }
        });
        // In loom the others run now until they can do no more.
        M::pause();
        let theirs = condvar.clone();
        let early = M::spawn(move || {
            theirs.wait(early, None);
        });
        M::pause();
        // One of those in flight comes by.
        condvar.slept(&mut Wakeful::<M>::new().enter(), Wait::Woken);
        M::join(early);
        // SAFETY: there is no node; released at once.
        unsafe { go.0.lock(&()) };
        go.1.fetch_add(1, Relaxed);
        // SAFETY: locked above.
        unsafe { go.0.unlock(&()) };
        condvar.broadcast();
        M::join(late);
    }

    /// Two in flight are to pass two signals on and find nobody: then nobody is in flight, and the next
    /// signal wakes by itself.
    fn finds_nobody<M: Machine>() {
        let condvar = Arc::new(in_state::<M>(2 << 5 | 2 << 13));
        for _ in 0..2 {
            condvar.slept(&mut Wakeful::<M>::new().enter(), Wait::Woken);
        }
        let (theirs, waiter) = (condvar.clone(), condvar.enter());
        let sleeper = M::spawn(move || assert!(theirs.wait(waiter, None)));
        M::pause();
        condvar.signal();
        M::join(sleeper);
    }

    /// The sleeper was counted out by the signal; a broadcast wakes it all the same.
    fn is_woken_by_a_broadcast<M: Machine>() {
        let condvar = Arc::new(in_state::<M>(4 << 5));
        let (theirs, waiter) = (condvar.clone(), condvar.enter());
        let sleeper = M::spawn(move || assert!(theirs.wait(waiter, None)));
        M::pause();
        condvar.signal();
        condvar.broadcast();
        M::join(sleeper);
    }

    fn settings() -> Settings {
        Settings {
            hints: Hints::Always(RunState::Preempted),
            clock_step_ns: 1_000_000,
            ..Settings::default()
        }
    }

    #[test]
    fn loom_deferred() {
        let bounds = Bounds { preemptions: 2, executions: 2_000 };
        conformance::loom::explore("condvar, deferred", settings(), bounds, stays::<Loom>);
        conformance::loom::explore("condvar, deferred to nobody", settings(), bounds, finds_nobody::<Loom>);
        conformance::loom::explore(
            "condvar, deferred, broadcast",
            settings(),
            bounds,
            is_woken_by_a_broadcast::<Loom>,
        );
    }

    #[test]
    fn shuttle_deferred() {
        for body in [stays::<Shuttle>, finds_nobody::<Shuttle>, is_woken_by_a_broadcast::<Shuttle>] {
            conformance::shuttle::explore(settings(), Schedules::Random, 2_000, body);
        }
    }
}

/// A signal to a lone sleeper, or a broadcast, that is delivered when the mutex is released (S5, S6), as
/// the interposer does it.
struct AtRelease<P: Platform>(Wakeful<P>, P::AtomicU32);

impl<P: Platform> Condvar<P> for AtRelease<P> {
    fn new() -> Self {
        Self(Wakeful::new(), P::AtomicU32::new(0))
    }
    fn enter(&self) -> Waiter {
        self.0.enter()
    }
    fn wait(&self, waiter: Waiter, deadline: Option<Deadline>) -> bool {
        self.0.wait(waiter, deadline)
    }
    fn abandon(&self, waiter: Waiter) {
        self.0.abandon(waiter);
    }
    fn cancel(&self, waiter: Waiter) -> bool {
        Condvar::cancel(&self.0, waiter)
    }
    /// The mutex has just been released.
    fn signal(&self) {
        if self.0.has_lone_sleeper() && self.0.take_lone_sleeper() {
            P::wake(self.0.word(), 1);
        } else {
            self.0.signal();
        }
    }
    fn broadcast(&self) {
        if self.0.has_sleepers() && self.0.take_all() {
            self.1.swap(1, Relaxed);
        } else {
            self.0.broadcast();
        }
    }
    fn released(&self) {
        if self.1.swap(0, Relaxed) != 0 {
            P::wake(self.0.word(), u32::MAX);
        }
    }
}

mod at_release {
    use super::*;

    #[test]
    fn loom_at_release() {
        type C = AtRelease<Loom>;
        type M = Native<Loom>;
        loom("condvar, at release", 2, 300, || bodies::signals::<Loom, M, C>(1, 2, false));
        loom("condvar, at release, two", 2, 300, || bodies::signals_to_sleepers::<Loom, M, C>(2, false));
        loom("condvar, at release, broadcast", 2, 300, || bodies::broadcasts::<Loom, M, C>(2, 2, true));
        loom("condvar, at release, no stealing", 2, 300, || bodies::no_stealing::<Loom, M, C>(1, 1));
        loom("condvar, at release, timing", 2, 300, || {
            bodies::timing::<Loom, M, C>(1, 1, PATIENCE_NS, false)
        });
    }

    #[test]
    fn shuttle_at_release() {
        type C = AtRelease<Shuttle>;
        type M = WakefulMutex<Shuttle>;
        shuttle("condvar, at release", 60, || bodies::signals::<Shuttle, M, C>(4, 2, false));
        shuttle("condvar, at release", 60, || bodies::signals_to_sleepers::<Shuttle, M, C>(5, false));
        shuttle("condvar, at release, broadcast", 60, || bodies::broadcasts::<Shuttle, M, C>(5, 3, true));
        shuttle("condvar, at release, timing", 60, || {
            bodies::timing::<Shuttle, M, C>(2, 3, PATIENCE_NS, false)
        });
        shuttle("condvar, at release, no stealing", 60, || bodies::no_stealing::<Shuttle, M, C>(3, 3));
        shuttle("condvar, at release, cancelled", 60, || bodies::giving_up::<Shuttle, M, C>(3, true));
        shuttle("condvar, at release, buffer", 60, || bodies::buffer::<Shuttle, M, C>(2, 3));
    }
}

/// The words of a condition variable that was copied by fork, with waiters of the parent that are not here.
mod copied_by_fork {
    use super::*;

    const GENERATION_2: u32 = 2 << 2;
    /// A standby; a signalled one; sleepers; in flight; pending; skip; all of them.
    const COPIES: [u32; 7] =
        [1, 2, 3 << 22, 2 << 5, 1 << 13 | 1 << 5, 7 << 10, 2 | 31 << 5 | 5 << 13 | 1023 << 22];

    #[test]
    fn works_afresh() {
        for state in COPIES {
            for settings in all() {
                let settings = Settings { generation: 3, ..settings };
                let bounds = Bounds { preemptions: 2, executions: 100 };
                let body = move || {
                    bodies::signals_of::<Loom, Native<Loom>, _>(in_state(state | GENERATION_2), 1, 1, true)
                };
                conformance::loom::explore("condvar, copied by fork", settings, bounds, body);
                let body = move || {
                    bodies::signals_of::<Shuttle, Native<Shuttle>, _>(
                        in_state(state | GENERATION_2),
                        3,
                        2,
                        false,
                    )
                };
                conformance::shuttle::explore(settings, Schedules::Random, 20, body);
            }
        }
    }
}

/// Condition variables with one mistake each.
mod twins {
    use super::*;
    use platform::AtomicInt;
    use std::marker::PhantomData;

    macro_rules! wrapped {
        ($(#[$doc:meta])* $name:ident, $($method:ident($this:ident $(, $argument:ident: $type:ty)*) $(-> $result:ty)? $body:block)*) => {
            $(#[$doc])*
            struct $name<P: Platform>(Wakeful<P>);

            impl<P: Platform> Condvar<P> for $name<P> {
                // The first wait may stand by already.
                fn new() -> Self {
                    Self(in_state(1 << 10))
                }
                $(fn $method(&self $(, $argument: $type)*) $(-> $result)? {
                    let $this = &self.0;
                    $body
                })*
            }
        };
    }

    wrapped! {
        /// Wakes one where it should wake all.
        BroadcastsToOne,
        enter(this) -> Waiter { this.enter() }
        wait(this, waiter: Waiter, deadline: Option<Deadline>) -> bool { this.wait(waiter, deadline) }
        abandon(this, waiter: Waiter) { this.abandon(waiter) }
        cancel(this, waiter: Waiter) -> bool { Condvar::cancel(this, waiter) }
        signal(this) { this.signal() }
        broadcast(this) { this.signal() }
    }

    wrapped! {
        /// Keeps the signal of a wait that is abandoned or cancelled.
        KeepsSignal,
        enter(this) -> Waiter { this.enter() }
        wait(this, waiter: Waiter, deadline: Option<Deadline>) -> bool { this.wait(waiter, deadline) }
        abandon(this, waiter: Waiter) {
            // Goes through the wait as far as it can without a signal of its own.
            this.wait(waiter, Some(Deadline { ns: P::now_ns(), clock: platform::Clock::Monotonic }));
        }
        cancel(this, waiter: Waiter) -> bool {
            this.wait(waiter, Some(Deadline { ns: P::now_ns() + PATIENCE_NS, clock: platform::Clock::Monotonic }));
            true
        }
        signal(this) { this.signal() }
        broadcast(this) { this.broadcast() }
    }

    /// A count of waiters and a count of signals, from which whoever comes first takes: also one that came
    /// after the signal.
    struct Steals<P: Platform> {
        sequence: P::AtomicU32,
        signals: P::AtomicU32,
        waiters: P::AtomicU32,
        platform: PhantomData<P>,
    }

    impl<P: Platform> Condvar<P> for Steals<P> {
        fn new() -> Self {
            let zero = <P::AtomicU32 as Atomic<u32>>::new;
            Self { sequence: zero(0), signals: zero(0), waiters: zero(0), platform: PhantomData }
        }
        fn enter(&self) -> Waiter {
            self.waiters.fetch_add(1, AcqRel);
            Wakeful::<P>::new().enter()
        }
        fn wait(&self, _: Waiter, _: Option<Deadline>) -> bool {
            loop {
                let sequence = self.sequence.load(Acquire);
                let signals = self.signals.load(Acquire);
                if signals == 0 {
                    P::wait(&self.sequence, sequence, None);
                } else if self.signals.compare_exchange(signals, signals - 1, AcqRel, Relaxed).is_ok() {
                    return true;
                }
            }
        }
        fn abandon(&self, _: Waiter) {}
        fn cancel(&self, _: Waiter) -> bool {
            false
        }
        fn signal(&self) {
            let waiters = self.waiters.load(Acquire);
            if waiters > 0 {
                self.waiters.fetch_sub(1, AcqRel);
                self.signals.fetch_add(1, AcqRel);
                self.sequence.fetch_add(1, AcqRel);
                P::wake(&self.sequence, 1);
            }
        }
        fn broadcast(&self) {
            let waiters = self.waiters.swap(0, AcqRel);
            self.signals.fetch_add(waiters, AcqRel);
            self.sequence.fetch_add(1, AcqRel);
            P::wake(&self.sequence, u32::MAX);
        }
    }

    /// Reads the sequence when it goes to sleep, and not when it starts to wait: a signal in between is lost.
    struct LooksLate<P: Platform>(P::AtomicU32);

    impl<P: Platform> Condvar<P> for LooksLate<P> {
        fn new() -> Self {
            Self(Atomic::new(0))
        }
        fn enter(&self) -> Waiter {
            Wakeful::<P>::new().enter()
        }
        fn wait(&self, _: Waiter, _: Option<Deadline>) -> bool {
            let sequence = self.0.load(Relaxed);
            P::wait(&self.0, sequence, None);
            true
        }
        fn abandon(&self, _: Waiter) {}
        fn cancel(&self, _: Waiter) -> bool {
            false
        }
        fn signal(&self) {
            self.0.fetch_add(1, Relaxed);
            P::wake(&self.0, 1);
        }
        fn broadcast(&self) {
            self.0.fetch_add(1, Relaxed);
            P::wake(&self.0, u32::MAX);
        }
    }

    const PREEMPTED: Settings =
        Settings { hints: Hints::Always(RunState::Preempted), clock_step_ns: 1_000_000, generation: 0 };
    /// Where a standby stays for some looks.
    const RUNNING: Settings =
        Settings { hints: Hints::Always(RunState::Running), clock_step_ns: 5_000, generation: 0 };
    /// Where one waiter stands by and another does not.
    const MIXED: Settings = Settings { hints: Hints::Mixed, ..RUNNING };

    fn caught(explore: impl Fn(Settings)) -> bool {
        [PREEMPTED, RUNNING, MIXED]
            .into_iter()
            .any(|settings| catch_unwind(AssertUnwindSafe(|| explore(settings))).is_err())
    }

    fn loom_finds(what: &str, body: fn()) {
        let bounds = Bounds { preemptions: 2, executions: 20_000 };
        let found = caught(|settings| {
            conformance::loom::explore(what, settings, bounds, body);
        });
        assert!(found, "loom let {what} pass");
    }

    fn shuttle_finds(what: &str, body: fn()) {
        let found = caught(|settings| {
            conformance::shuttle::explore(settings, Schedules::Random, 20_000, body);
        });
        assert!(found, "shuttle let {what} pass");
    }

    macro_rules! twins {
        ($($name:ident: $twin:ident, $body:ident($($argument:expr),*);)*) => {
            $(mod $name {
                use super::*;

                #[test]
                fn loom() {
                    type P = Loom;
                    loom_finds(stringify!($name), || bodies::$body::<P, Native<P>, $twin<P>>($($argument),*));
                }

                #[test]
                fn shuttle() {
                    type P = Shuttle;
                    shuttle_finds(stringify!($name), || bodies::$body::<P, Native<P>, $twin<P>>($($argument),*));
                }
            })*
        };
    }
    twins! {
        broadcasts_to_one: BroadcastsToOne, broadcasts(2, 1, true);
        keeps_signal_abandoned: KeepsSignal, giving_up(1, false);
        keeps_signal_cancelled: KeepsSignal, giving_up(1, true);
        steals: Steals, no_stealing(1, 1);
        looks_late: LooksLate, signals(1, 1, true);
    }
}
