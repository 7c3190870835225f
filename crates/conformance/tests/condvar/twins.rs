// SPDX-License-Identifier: MIT OR Apache-2.0
//! Condition variables with one mistake each, which the checkers find.

use super::*;
use platform::AtomicInt;
use std::marker::PhantomData;

macro_rules! wrapped {
    (
        $(#[$doc:meta])* $name:ident,
        $($method:ident($this:ident $(, $argument:ident: $type:ty)*) $(-> $result:ty)? $body:block)*
    ) => {
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
        let ns = P::now_ns() + PATIENCE_NS;
        this.wait(waiter, Some(Deadline { ns, clock: platform::Clock::Monotonic }));
        true
    }
    signal(this) { this.signal() }
    broadcast(this) { this.broadcast(u32::MAX) }
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

/// Who is woken wakes nobody in turn.
struct EndsChain<P: Platform>(Wakeful<P>);

impl<P: Platform> Condvar<P> for EndsChain<P> {
    fn new() -> Self {
        Self(Wakeful::new())
    }
    fn enter(&self) -> Waiter {
        self.0.enter()
    }
    fn wait(&self, mut waiter: Waiter, deadline: Option<Deadline>) -> bool {
        while let Step::Sleep(expected) = self.0.step(&mut waiter, deadline) {
            if P::wait(self.0.word(), expected, deadline) == Wait::Woken {
                return true;
            }
        }
        true
    }
    fn abandon(&self, _: Waiter) {}
    fn cancel(&self, _: Waiter) -> bool {
        false
    }
    fn signal(&self) {
        self.0.signal();
    }
    fn broadcast(&self) {
        self.0.broadcast(1);
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
    ends_chain: EndsChain, broadcasts(2, 1, true);
    keeps_signal_abandoned: KeepsSignal, giving_up(1, false);
    keeps_signal_cancelled: KeepsSignal, giving_up(1, true);
    steals: Steals, no_stealing(1, 1);
    looks_late: LooksLate, signals(1, 1, true);
}
