// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests, generic over algorithm and machine. Each panics on failure.

use std::sync::Arc;

use platform::{Clock, Deadline, Ordering::*, Priority, ThreadId, Wish};
use sync::mutex::{RawMutex, RawMutexTimed};
use sync::wait::publish;

use crate::{Cell, Machine};

/// A lock and what it protects.
pub struct Shared<M: Machine, L> {
    lock: L,
    cell: M::Cell,
}

impl<M: Machine, L: RawMutex<M>> Shared<M, L> {
    fn new() -> Self {
        Self::of(L::new())
    }

    fn of(lock: L) -> Self {
        Self { lock, cell: M::Cell::new() }
    }

    fn guard<'a>(&'a self, node: &'a L::Node) -> Guard<'a, M, L> {
        // SAFETY: the guard borrows the node and unlocks once.
        unsafe { self.lock.lock(node) };
        Guard { shared: self, node }
    }

    fn bump(&self) {
        let node = L::Node::default();
        let guard = self.guard(&node);
        guard.shared.cell.bump();
    }

    fn try_bump(&self) -> bool {
        let node = L::Node::default();
        // SAFETY: the guard borrows the node and unlocks once.
        let got = unsafe { self.lock.try_lock(&node) };
        if got {
            let guard = Guard { shared: self, node: &node };
            guard.shared.cell.bump();
        }
        got
    }

    /// The lock is free, works, and this many updates were made; this thread is as before.
    fn finish(&self, updates: u32) {
        assert!(self.try_bump(), "a free lock could not be taken without waiting");
        self.bump();
        assert_eq!(self.cell.get(), updates + 2, "an update got lost: two threads held the lock at once");
        assert_eq!(
            M::priority(M::current()),
            Priority::Running,
            "a thread that holds nothing kept its priority"
        );
        assert_eq!(M::wish(M::current()), Wish::Preemptable, "a thread that holds nothing kept its wish");
    }
}

struct Guard<'a, M: Machine, L: RawMutex<M>> {
    shared: &'a Shared<M, L>,
    node: &'a L::Node,
}

impl<M: Machine, L: RawMutex<M>> Drop for Guard<'_, M, L> {
    fn drop(&mut self) {
        // SAFETY: locked with this node, once.
        unsafe { self.shared.lock.unlock(self.node) };
    }
}

/// Runs `body(0..threads)` at once, the first one on the calling thread.
pub(crate) fn together<M: Machine>(threads: u32, body: impl Fn(u32) + Send + Sync + 'static) {
    let body = Arc::new(body);
    let handles: Vec<_> = (1..threads)
        .map(|index| {
            let body = body.clone();
            M::spawn(move || body(index))
        })
        .collect();
    body(0);
    handles.into_iter().for_each(M::join);
}

/// One at a time, and everybody gets there.
pub fn exclusion<M: Machine, L: RawMutex<M> + 'static>(threads: u32, rounds: u32) {
    exclusion_of::<M, L>(L::new(), threads, rounds);
}

/// The same with a lock in a certain state, which counts as free.
pub fn exclusion_of<M: Machine, L: RawMutex<M> + 'static>(lock: L, threads: u32, rounds: u32) {
    let shared = Arc::new(Shared::<M, L>::of(lock));
    let ours = shared.clone();
    together::<M>(threads, move |_| (0..rounds).for_each(|_| ours.bump()));
    shared.finish(threads * rounds);
}

/// All others have come, and wait as they do, when the first one releases. Then it comes again, `rounds`
/// times.
pub fn convoy<M: Machine, L: RawMutex<M> + 'static>(threads: u32, rounds: u32) {
    let shared = Arc::new(Shared::<M, L>::new());
    let node = L::Node::default();
    let guard = shared.guard(&node);
    let handles: Vec<_> = (1..threads)
        .map(|_| {
            let ours = shared.clone();
            M::spawn(move || ours.bump())
        })
        .collect();
    // In a model the others run now until they can do no more.
    M::pause();
    M::pause();
    drop(guard);
    (0..rounds).for_each(|_| shared.bump());
    handles.into_iter().for_each(M::join);
    shared.finish(threads - 1 + rounds);
}

/// The lock goes as soon as its next holder has released it: whoever released it before does not touch it
/// any more.
pub fn going<M: Machine, L: RawMutex<M> + 'static>() {
    struct Going<L>(*mut L);
    // SAFETY: a lock is made for that.
    unsafe impl<L> Send for Going<L> {}
    let lock = Box::into_raw(Box::new(L::new()));
    let node = L::Node::default();
    // SAFETY: it is there until the other thread has had it after us.
    unsafe { (*lock).lock(&node) };
    let theirs = Going(lock);
    let other = M::spawn(move || {
        let Going(lock) = { theirs };
        let node = L::Node::default();
        // SAFETY: as above; and then nobody uses it.
        unsafe {
            (*lock).lock(&node);
            (*lock).unlock(&node);
            drop(Box::from_raw(lock));
        }
    });
    M::pause();
    // SAFETY: locked above.
    unsafe { (*lock).unlock(&node) };
    M::join(other);
}

/// As [`exclusion`], with a lock that the calling thread holds already.
pub fn release_of<M: Machine, L: RawMutex<M, Node = ()> + 'static>(lock: L, threads: u32) {
    let shared = Arc::new(Shared::<M, L>::of(lock));
    let ours = shared.clone();
    together::<M>(threads, move |index| {
        if index == 0 {
            drop(Guard { shared: &*ours, node: &() });
        }
        ours.bump();
    });
    shared.finish(threads);
}

/// Who tries gets the lock or does not, and in either case harms nobody.
pub fn trying<M: Machine, L: RawMutex<M> + 'static>(threads: u32, rounds: u32) {
    let shared = Arc::new(Shared::<M, L>::new());
    let got = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let (ours, count) = (shared.clone(), got.clone());
    together::<M>(threads, move |index| {
        for _ in 0..rounds {
            if index % 2 == 0 {
                ours.bump();
                count.fetch_add(1, Relaxed);
            } else if ours.try_bump() {
                count.fetch_add(1, Relaxed);
            }
        }
    });
    let node = L::Node::default();
    let guard = shared.guard(&node);
    assert!(!shared.try_bump(), "a held lock was taken");
    drop(guard);
    shared.finish(got.load(Relaxed));
}

/// Who gives up comes back after the deadline, without the lock, and harms nobody.
pub fn timing<M: Machine, L: RawMutexTimed<M> + 'static>(threads: u32, rounds: u32, patience_ns: u64) {
    let shared = Arc::new(Shared::<M, L>::new());
    let got = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let (ours, count) = (shared.clone(), got.clone());
    together::<M>(threads, move |index| {
        for _ in 0..rounds {
            if index == 0 {
                ours.bump();
                count.fetch_add(1, Relaxed);
                continue;
            }
            let deadline = Deadline { ns: M::now_ns() + patience_ns, clock: Clock::Monotonic };
            let node = L::Node::default();
            // SAFETY: the guard borrows the node and unlocks once.
            if unsafe { ours.lock.lock_until(&node, deadline) } {
                let guard = Guard { shared: &*ours, node: &node };
                guard.shared.cell.bump();
                drop(guard);
                count.fetch_add(1, Relaxed);
            } else {
                assert!(M::past(deadline), "gave up before the deadline");
            }
        }
    });
    shared.finish(got.load(Relaxed));
}

/// A lock that is never released is not got, and its waiter comes back.
pub fn timing_out<M: Machine, L: RawMutexTimed<M> + 'static>(patience_ns: u64) {
    let shared = Arc::new(Shared::<M, L>::new());
    let node = L::Node::default();
    let guard = shared.guard(&node);
    let ours = shared.clone();
    M::join(M::spawn(move || {
        let deadline = Deadline { ns: M::now_ns() + patience_ns, clock: Clock::Monotonic };
        let node = L::Node::default();
        // SAFETY: never acquired.
        assert!(!unsafe { ours.lock.lock_until(&node, deadline) }, "a held lock was taken");
        assert!(M::past(deadline), "gave up before the deadline");
    }));
    drop(guard);
    shared.finish(0);
}

/// Which of the two locks of [`hold_both`] a thread has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Outer,
    Both,
    Inner,
    Neither,
}

/// Each thread takes two locks so often, one inside the other, and releases them in either order. After each
/// step its own `look` is called with what it holds, and with the outer lock.
fn hold_both<M: Machine, L: RawMutex<M> + 'static, F: FnMut(Held, &Shared<M, L>)>(
    threads: u32,
    rounds: u32,
    look: impl Fn(u32) -> F + Send + Sync + 'static,
) {
    let outer = Arc::new(Shared::<M, L>::new());
    let inner = Arc::new(Shared::<M, L>::new());
    let (first, second) = (outer.clone(), inner.clone());
    together::<M>(threads, move |index| {
        let mut look = look(index);
        for round in 0..rounds {
            let (first_node, second_node) = (L::Node::default(), L::Node::default());
            let a = first.guard(&first_node);
            look(Held::Outer, &first);
            let b = second.guard(&second_node);
            look(Held::Both, &first);
            a.shared.cell.bump();
            b.shared.cell.bump();
            if (index + round) % 2 == 0 {
                drop(a);
                look(Held::Inner, &first);
                drop(b);
            } else {
                drop(b);
                look(Held::Outer, &first);
                drop(a);
            }
            look(Held::Neither, &first);
        }
    });
    // A look may have bumped the outer one.
    let tried = outer.cell.get() - threads * rounds;
    outer.finish(threads * rounds + tried);
    inner.finish(threads * rounds);
}

/// Threads hold two locks at once and release them in either order; priorities come out right.
pub fn nesting<M: Machine, L: RawMutex<M> + 'static>(threads: u32, rounds: u32, informed: bool) {
    let look = move |held, _: &Shared<M, L>| match held {
        Held::Inner if informed && M::current() != ThreadId::NONE => {
            assert_eq!(M::priority(M::current()), Priority::LockHolder, "it still holds the inner lock");
        }
        Held::Neither => assert_eq!(M::priority(M::current()), Priority::Running),
        _ => {}
    };
    hold_both(threads, rounds, move |_| look);
}

/// A holder of a lock that wishes has the wish, whichever of two such locks it releases first. Nobody else
/// has it.
pub fn wishing<M: Machine, L: RawMutex<M> + 'static>(threads: u32, rounds: u32) {
    let look = |held, first: &Shared<M, L>| {
        let me = M::current();
        if held != Held::Neither {
            let asks = me == ThreadId::NONE || M::wish(me) != Wish::Preemptable;
            return assert!(asks, "a holder did not ask for anything");
        }
        assert_eq!(M::wish(me), Wish::Preemptable, "a thread that holds nothing kept its wish");
        if first.try_bump() {
            assert_eq!(M::wish(M::current()), Wish::Preemptable, "a thread that tried kept its wish");
        }
    };
    hold_both(threads, rounds, move |_| look);
}

/// A default lock's holder tells a scheduler that listens, from when its thread has begun to, whichever of
/// two locks it releases first. Whoever holds nothing has the priority that the program gave it. `told` is
/// called for each holder that tells.
pub fn publishing<M: Machine, L: RawMutex<M> + 'static>(threads: u32, rounds: u32, told: fn()) {
    hold_both(threads, rounds, move |index| {
        let me = M::register();
        if index % 2 == 1 {
            publish::set_own::<M>(me, Priority::LockWaiter);
        }
        let own = publish::own::<M>(me);
        let (mut begun, mut tells) = (false, false);
        move |held, first: &Shared<M, L>| {
            let now = (M::priority(me), M::wish(me));
            if held != Held::Neither {
                let tells_now = now == (Priority::LockHolder, Wish::UnpreemptableSelf);
                assert!(!begun || tells_now, "a holder does not tell what it told before");
                tells = if held == Held::Both { tells_now } else { tells };
                return;
            }
            let nothing = (own, Wish::Preemptable);
            // One that waits may just say that it is waited for (S7); it takes that back.
            let settled = || {
                while M::priority(me) == Priority::AwaitedHolder {
                    M::pause();
                }
                (M::priority(me), M::wish(me))
            };
            assert_eq!(settled(), nothing, "a thread that holds nothing is not as before");
            if tells {
                told();
            }
            begun |= tells;
            first.try_bump();
            assert_eq!(settled(), nothing, "a thread that tried is not as before");
        }
    });
}

/// S7: who holds a default lock and never waited is told for by the one that sleeps for it, until it
/// releases. `before` is called before that.
pub fn awaited<M: Machine, L: RawMutex<M> + 'static>(before: fn()) {
    let shared = Arc::new(Shared::<M, L>::new());
    let me = M::register();
    publish::set_own::<M>(me, Priority::LockWaiter);
    let node = L::Node::default();
    let guard = shared.guard(&node);
    let ours = shared.clone();
    let other = M::spawn(move || ours.bump());
    while M::priority(me) != Priority::AwaitedHolder {
        M::pause();
    }
    guard.shared.cell.bump();
    before();
    drop(guard);
    M::join(other);
    assert_eq!(M::priority(me), Priority::LockWaiter, "a thread that nobody waits for is not as before");
    publish::set_own::<M>(me, Priority::Running);
    shared.finish(2);
}

/// A release too many, which is the program's mistake, leaves the lock free.
pub fn released_too_often<M: Machine, L: RawMutex<M, Node = ()> + 'static>() {
    let shared = Shared::<M, L>::new();
    shared.bump();
    // SAFETY: the mistake that is tested; nobody else is there.
    unsafe { shared.lock.unlock(&()) };
    shared.finish(1);
}

/// A thread that panics inside releases the lock on its way out.
pub fn unwinding<M: Machine, L: RawMutex<M> + 'static>(threads: u32) {
    let shared = Arc::new(Shared::<M, L>::new());
    let ours = shared.clone();
    together::<M>(threads, move |index| {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let node = L::Node::default();
            let guard = ours.guard(&node);
            guard.shared.cell.bump();
            if index % 2 == 1 {
                std::panic::resume_unwind(Box::new("on purpose"));
            }
        }));
        assert_eq!(result.is_err(), index % 2 == 1);
    });
    shared.finish(threads);
}
