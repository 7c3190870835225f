// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests of reader-writer locks, generic over algorithm and machine. Each panics on failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use platform::{Atomic, AtomicInt, Clock, Deadline, Ordering::*, Platform, Priority, ThreadId, Wish};
use sync::mutex::RawMutex;
use sync::rwlock::{RawRwLock, RawRwLockRecursive, RawRwLockTimed, RawRwLockUpgrade};

use crate::bodies::together;
use crate::{Cell, Machine};

mod told;

pub use told::publishing;

/// A lock and what it protects.
struct Shared<M: Machine, L> {
    lock: L,
    cell: M::Cell,
    writes: AtomicU32,
}

/// How a thread has the lock.
#[derive(Clone, Copy)]
enum As {
    Reader,
    Writer,
}

impl<M: Machine, L: RawRwLock<M>> Shared<M, L> {
    fn new() -> Arc<Self> {
        Self::of(L::new())
    }

    fn of(lock: L) -> Arc<Self> {
        Arc::new(Self { lock, cell: M::Cell::new(), writes: AtomicU32::new(0) })
    }

    fn guard<'a>(&'a self, node: &'a L::Node, how: As) -> Guard<'a, M, L> {
        // SAFETY: the guard borrows the node and unlocks once.
        unsafe {
            match how {
                As::Reader => self.lock.read(node),
                As::Writer => self.lock.write(node),
            }
        }
        Guard { shared: self, node, how }
    }

    fn try_guard<'a>(&'a self, node: &'a L::Node, how: As) -> Option<Guard<'a, M, L>> {
        // SAFETY: the guard borrows the node and unlocks once.
        let got = unsafe {
            match how {
                As::Reader => self.lock.try_read(node),
                As::Writer => self.lock.try_write(node),
            }
        };
        got.then(|| Guard { shared: self, node, how })
    }

    /// The caller may read: nobody writes meanwhile.
    fn look(&self) -> u32 {
        let seen = self.cell.get();
        M::pause();
        assert_eq!(self.cell.get(), seen, "a writer was there beside a reader");
        seen
    }

    /// The caller may write.
    fn change(&self) {
        self.cell.bump();
        self.writes.fetch_add(1, Relaxed);
    }

    fn use_as(&self, how: As) {
        let node = L::Node::default();
        self.guard(&node, how).work();
    }

    /// The lock is free and works, nothing got lost, and this thread is as before.
    fn finish(&self) {
        for how in [As::Writer, As::Reader] {
            let node = L::Node::default();
            let guard = self.try_guard(&node, how).expect("a free lock could not be taken without waiting");
            guard.work();
        }
        self.use_as(As::Writer);
        self.use_as(As::Reader);
        let writes = self.writes.load(Relaxed);
        assert_eq!(self.cell.get(), writes, "an update got lost: two threads wrote at once");
        assert_eq!(
            M::priority(M::current()),
            Priority::Running,
            "a thread that holds nothing kept its priority"
        );
    }
}

struct Guard<'a, M: Machine, L: RawRwLock<M>> {
    shared: &'a Shared<M, L>,
    node: &'a L::Node,
    how: As,
}

impl<M: Machine, L: RawRwLock<M>> Guard<'_, M, L> {
    fn work(&self) {
        match self.how {
            As::Reader => {
                self.shared.look();
            }
            As::Writer => self.shared.change(),
        }
    }
}

impl<M: Machine, L: RawRwLock<M>> Drop for Guard<'_, M, L> {
    fn drop(&mut self) {
        // SAFETY: acquired with this node, in this way, once.
        unsafe {
            match self.how {
                As::Reader => self.shared.lock.unlock_read(self.node),
                As::Writer => self.shared.lock.unlock_write(self.node),
            }
        }
    }
}

/// Thread `index` in `round`: every other acquisition writes.
fn mixed(index: u32, round: u32) -> As {
    if (index + round).is_multiple_of(2) { As::Writer } else { As::Reader }
}

fn soon<M: Platform>(patience_ns: u64) -> Deadline {
    Deadline { ns: M::now_ns() + patience_ns, clock: Clock::Monotonic }
}

/// One writer or readers, and everybody gets there.
pub fn exclusion<M: Machine, L: RawRwLock<M> + 'static>(threads: u32, rounds: u32) {
    exclusion_of::<M, L>(L::new(), threads, rounds);
}

/// The same with a lock in a certain state, which counts as free.
pub fn exclusion_of<M: Machine, L: RawRwLock<M> + 'static>(lock: L, threads: u32, rounds: u32) {
    let shared = Shared::<M, L>::of(lock);
    let ours = shared.clone();
    together::<M>(threads, move |index| (0..rounds).for_each(|round| ours.use_as(mixed(index, round))));
    shared.finish();
}

/// Thread 0 writes, all others read.
pub fn one_writer<M: Machine, L: RawRwLock<M> + 'static>(threads: u32, rounds: u32) {
    let shared = Shared::<M, L>::new();
    let ours = shared.clone();
    together::<M>(threads, move |index| {
        (0..rounds).for_each(|_| ours.use_as(if index == 0 { As::Writer } else { As::Reader }));
    });
    shared.finish();
}

/// All write.
pub fn writers<M: Machine, L: RawRwLock<M> + 'static>(threads: u32, rounds: u32) {
    let shared = Shared::<M, L>::new();
    let ours = shared.clone();
    together::<M>(threads, move |_| (0..rounds).for_each(|_| ours.use_as(As::Writer)));
    shared.finish();
}

/// Readers who come after a writer all get in at once: none leaves before all are there.
pub fn sharing<M: Machine, L: RawRwLock<M> + 'static>(readers: u32) {
    let shared = Shared::<M, L>::new();
    let inside = Arc::new(M::AtomicU32::new(0));
    let (ours, count) = (shared.clone(), inside.clone());
    let node = L::Node::default();
    let writer = shared.guard(&node, As::Writer);
    let handles: Vec<_> = (0..readers)
        .map(|_| {
            let (ours, count) = (ours.clone(), count.clone());
            M::spawn(move || {
                let node = L::Node::default();
                // Without a guard: where nobody shares, the test ends here, and its threads must not touch
                // the model any more. SAFETY: acquired and released with this node.
                unsafe {
                    ours.lock.read(&node);
                    ours.look();
                    count.fetch_add(1, Relaxed);
                    while count.load(Relaxed) < readers {
                        M::yield_now();
                    }
                    ours.lock.unlock_read(&node);
                }
            })
        })
        .collect();
    writer.work();
    drop(writer);
    handles.into_iter().for_each(M::join);
    shared.finish();
}

/// Readers come in one after the other, each while the one before it is in, the first of them behind a
/// writer; the second leaves before the others. Nothing but the lock orders them: the last sees what the
/// writer wrote.
pub fn entering_beside<M: Machine, L: RawRwLock<M> + 'static>(readers: u32) {
    let shared = Shared::<M, L>::new();
    // How many are in, and how many may leave.
    let (inside, leaving) = (Arc::new(M::AtomicU32::new(0)), Arc::new(M::AtomicU32::new(0)));
    let node = L::Node::default();
    let writer = shared.guard(&node, As::Writer);
    let handles: Vec<_> = (0..readers)
        .map(|index| {
            let (ours, inside, leaving) = (shared.clone(), inside.clone(), leaving.clone());
            let rank = if index == 1 { 0 } else { 1 };
            M::spawn(move || {
                while inside.load(Relaxed) < index {
                    M::yield_now();
                }
                let node = L::Node::default();
                let reader = ours.guard(&node, As::Reader);
                reader.work();
                inside.fetch_add(1, Relaxed);
                while inside.load(Relaxed) < readers || leaving.load(Relaxed) < rank {
                    M::yield_now();
                }
                drop(reader);
                leaving.fetch_add(1, Relaxed);
            })
        })
        .collect();
    M::yield_now();
    writer.work();
    drop(writer);
    handles.into_iter().for_each(M::join);
    shared.finish();
}

/// Who tries gets the lock or does not, and in either case harms nobody.
pub fn trying<M: Machine, L: RawRwLock<M> + 'static>(threads: u32, rounds: u32) {
    let shared = Shared::<M, L>::new();
    let ours = shared.clone();
    together::<M>(threads, move |index| {
        for round in 0..rounds {
            if index.is_multiple_of(2) {
                ours.use_as(mixed(index / 2, round));
            } else {
                let node = L::Node::default();
                if let Some(guard) = ours.try_guard(&node, mixed(index / 2, round)) {
                    guard.work();
                }
            }
        }
    });
    let (node, other) = (L::Node::default(), L::Node::default());
    let guard = shared.guard(&node, As::Writer);
    assert!(shared.try_guard(&other, As::Reader).is_none(), "a reader got in beside a writer");
    assert!(shared.try_guard(&other, As::Writer).is_none(), "a second writer got in");
    drop(guard);
    let guard = shared.guard(&node, As::Reader);
    assert!(shared.try_guard(&other, As::Writer).is_none(), "a writer got in beside a reader");
    drop(guard);
    shared.finish();
}

/// A holder of a lock that wishes has the wish, whichever of several such locks it releases first, mutexes
/// too. Nobody else has it.
pub fn wishing<M: Machine, L: RawRwLock<M> + 'static>(threads: u32, rounds: u32) {
    type Mutex<M> = sync::mutex::TasB<M, sync::wait::Unpreemptable>;
    fn asks<M: Platform>() -> bool {
        M::current() == ThreadId::NONE || M::wish(M::current()) != Wish::Preemptable
    }
    let outer = Shared::<M, L>::new();
    let inner = Shared::<M, L>::new();
    let (first, second) = (outer.clone(), inner.clone());
    let mutex = Arc::new(<Mutex<M> as RawMutex<M>>::new());
    together::<M>(threads, move |index| {
        for round in 0..rounds {
            let (first_node, second_node, third_node) =
                (L::Node::default(), L::Node::default(), L::Node::default());
            let a = first.guard(&first_node, mixed(index, round));
            assert!(asks::<M>(), "a holder did not ask for anything");
            let b = second.guard(&second_node, mixed(index, round + 1));
            assert!(first.try_guard(&third_node, As::Writer).is_none(), "a writer got in beside a holder");
            assert!(asks::<M>(), "the wish was gone after an attempt that failed");
            a.work();
            b.work();
            let (sooner, later) = if (index + round) % 2 == 0 { (a, b) } else { (b, a) };
            drop(sooner);
            assert!(asks::<M>(), "the wish was gone with the first of two locks");
            drop(later);
            assert_eq!(M::wish(M::current()), Wish::Preemptable, "a thread that holds nothing kept its wish");
            // SAFETY: unlocked below; there is no node.
            unsafe { mutex.lock(&()) };
            first.use_as(mixed(index, round));
            assert!(asks::<M>(), "the wish was gone with a lock inside another");
            // SAFETY: locked above.
            unsafe { mutex.unlock(&()) };
            assert_eq!(M::wish(M::current()), Wish::Preemptable, "a thread that holds nothing kept its wish");
        }
    });
    outer.finish();
    inner.finish();
}

/// Who gives up comes back after the deadline, without the lock, and harms nobody.
pub fn timing<M: Machine, L: RawRwLockTimed<M> + 'static>(threads: u32, rounds: u32, patience_ns: u64) {
    let shared = Shared::<M, L>::new();
    let ours = shared.clone();
    together::<M>(threads, move |index| {
        for round in 0..rounds {
            let how = mixed(index, round);
            if index == 0 {
                ours.use_as(how);
                continue;
            }
            let deadline = soon::<M>(patience_ns);
            let node = L::Node::default();
            // SAFETY: the guard borrows the node and unlocks once.
            let got = unsafe {
                match how {
                    As::Reader => ours.lock.read_until(&node, deadline),
                    As::Writer => ours.lock.write_until(&node, deadline),
                }
            };
            if got {
                let guard = Guard { shared: &*ours, node: &node, how };
                guard.work();
            } else {
                assert!(M::past(deadline), "gave up before the deadline");
            }
        }
    });
    shared.finish();
}

/// A lock that is never released is not got, and its waiters come back.
pub fn timing_out<M: Machine, L: RawRwLockTimed<M> + 'static>(patience_ns: u64) {
    let shared = Shared::<M, L>::new();
    for (held, asked) in [(As::Writer, As::Reader), (As::Writer, As::Writer), (As::Reader, As::Writer)] {
        let node = L::Node::default();
        let guard = shared.guard(&node, held);
        let ours = shared.clone();
        M::join(M::spawn(move || {
            let deadline = soon::<M>(patience_ns);
            let node = L::Node::default();
            // SAFETY: never acquired.
            let got = unsafe {
                match asked {
                    As::Reader => ours.lock.read_until(&node, deadline),
                    As::Writer => ours.lock.write_until(&node, deadline),
                }
            };
            assert!(!got, "a held lock was taken");
            assert!(M::past(deadline), "gave up before the deadline");
        }));
        // Who gave up left nothing behind that keeps others out.
        if let As::Reader = held {
            let other = L::Node::default();
            let beside =
                shared.try_guard(&other, As::Reader).expect("a reader was kept out by a writer that gave up");
            beside.work();
        }
        drop(guard);
    }
    shared.finish();
}

/// A thread that panics inside releases the lock on its way out.
pub fn unwinding<M: Machine, L: RawRwLock<M> + 'static>(threads: u32) {
    let shared = Shared::<M, L>::new();
    let ours = shared.clone();
    together::<M>(threads, move |index| {
        let panics = index % 4 >= 2;
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let node = L::Node::default();
            let guard = ours.guard(&node, mixed(index, 0));
            guard.work();
            if panics {
                std::panic::resume_unwind(Box::new("on purpose"));
            }
        }));
        assert_eq!(result.is_err(), panics);
    });
    shared.finish();
}

/// A reader acquires the lock once more while a writer waits.
pub fn recursion<M: Machine, L: RawRwLockRecursive<M> + 'static>(writers: u32, rounds: u32) {
    let shared = Shared::<M, L>::new();
    let ours = shared.clone();
    together::<M>(writers + 1, move |index| {
        for _ in 0..rounds {
            if index > 0 {
                ours.use_as(As::Writer);
                continue;
            }
            let outer = ours.guard(&(), As::Reader);
            let seen = ours.look();
            ours.lock.read_recursive();
            let inner = Guard { shared: &*ours, node: &(), how: As::Reader };
            assert_eq!(ours.look(), seen, "a writer got in between the two acquisitions of a reader");
            assert!(ours.lock.try_read_recursive(), "a reader could not acquire the lock once more");
            drop(Guard { shared: &*ours, node: &(), how: As::Reader });
            drop(outer);
            inner.work();
        }
    });
    shared.finish();
}

/// Readers that came behind a writer, among other writers, wait for nobody else: none of them leaves before
/// all are there.
pub fn sharing_again<M: Machine, L: RawRwLockRecursive<M> + 'static>(writers: u32, readers: u32) {
    let shared = Shared::<M, L>::new();
    let inside = Arc::new(M::AtomicU32::new(0));
    let first = shared.guard(&(), As::Writer);
    let handles: Vec<_> = (0..writers + readers)
        .map(|index| {
            let (ours, inside) = (shared.clone(), inside.clone());
            M::spawn(move || {
                if index < writers {
                    return ours.use_as(As::Writer);
                }
                // Without a guard, as in `sharing`.
                ours.lock.read_recursive();
                ours.look();
                inside.fetch_add(1, Relaxed);
                while inside.load(Relaxed) < readers {
                    M::yield_now();
                }
                // SAFETY: acquired above.
                unsafe { ours.lock.unlock_read(&()) };
            })
        })
        .collect();
    M::yield_now();
    first.work();
    drop(first);
    handles.into_iter().for_each(M::join);
    shared.finish();
}

/// Recursive readers that give up behind a writer, which lets go or steps down, leave nothing behind.
pub fn timing_again<M: Machine, L: RawRwLockRecursive<M> + RawRwLockUpgrade<M> + 'static>(
    readers: u32,
    rounds: u32,
    patience_ns: u64,
) {
    let shared = Shared::<M, L>::new();
    let ours = shared.clone();
    together::<M>(readers + 1, move |index| {
        for round in 0..rounds {
            if index == 0 {
                let guard = ours.guard(&(), As::Writer);
                guard.work();
                if round % 2 == 1 {
                    core::mem::forget(guard);
                    // SAFETY: the writer becomes a reader, which is released once.
                    unsafe { ours.lock.downgrade() };
                    drop(Guard { shared: &*ours, node: &(), how: As::Reader });
                }
                continue;
            }
            let deadline = soon::<M>(patience_ns);
            if ours.lock.read_recursive_until(deadline) {
                Guard { shared: &*ours, node: &(), how: As::Reader }.work();
            } else {
                assert!(M::past(deadline), "gave up before the deadline");
            }
        }
    });
    shared.finish();
}

/// The smallest case of the next: one reads, who need not count itself, and one writes, or tries to.
pub fn aside_pair<M: Machine, L: RawRwLock<M, Node = ()> + 'static>(tries: bool) {
    let shared = Shared::<M, L>::new();
    M::register();
    {
        let (one, two) = (shared.guard(&(), As::Reader), shared.guard(&(), As::Reader));
        drop((one, two));
    }
    let ours = shared.clone();
    together::<M>(2, move |index| {
        if index == 0 {
            ours.use_as(As::Reader);
        } else if !tries {
            ours.use_as(As::Writer);
        } else if let Some(guard) = ours.try_guard(&(), As::Writer) {
            guard.work();
        }
    });
    shared.finish();
}

/// Who waits for a reader to leave, in [`aside_again`].
#[derive(Clone, Copy)]
pub enum Waits {
    /// A writer.
    Writer,
    /// A writer that gives up.
    Until,
    /// A writer that tries.
    Tries,
    /// A reader that upgrades.
    Upgrades,
    /// A reader that upgrades, and gives that up.
    UpgradesUntil,
}

/// A reader that need not count itself acquires the lock once more, releases that, and again, while another
/// waits for it to leave.
pub fn aside_again<M: Machine, L: RawRwLockRecursive<M> + RawRwLockUpgrade<M> + 'static>(waits: Waits) {
    let shared = Shared::<M, L>::new();
    M::register();
    {
        let (one, two) = (shared.guard(&(), As::Reader), shared.guard(&(), As::Reader));
        drop((one, two));
    }
    let ours = shared.clone();
    together::<M>(2, move |index| {
        // Who has no id counts itself.
        M::register();
        let lock = &ours.lock;
        if index == 0 {
            let outer = ours.guard(&(), As::Reader);
            let seen = ours.look();
            for _ in 0..2 {
                lock.read_recursive();
                drop(Guard { shared: &*ours, node: &(), how: As::Reader });
            }
            assert!(lock.try_read_recursive(), "a reader could not acquire the lock once more");
            let inner = Guard { shared: &*ours, node: &(), how: As::Reader };
            drop(outer);
            assert_eq!(ours.look(), seen, "a writer got in beside a reader that held the lock twice");
            drop(inner);
            return;
        }
        if let Waits::Upgrades | Waits::UpgradesUntil = waits {
            lock.upgradable();
        }
        let deadline = soon::<M>(1_000_000);
        // SAFETY: upgradable where it upgrades; a writer is released once.
        let writes = unsafe {
            match waits {
                Waits::Writer => {
                    lock.write(&());
                    true
                }
                Waits::Until => lock.write_until(&(), deadline),
                Waits::Tries => lock.try_write(&()),
                Waits::Upgrades => {
                    lock.upgrade();
                    true
                }
                Waits::UpgradesUntil => lock.upgrade_until(deadline),
            }
        };
        if writes {
            Guard { shared: &*ours, node: &(), how: As::Writer }.work();
        } else if let Waits::UpgradesUntil = waits {
            ours.look();
            // SAFETY: still upgradable.
            unsafe { lock.unlock_upgradable() };
        }
    });
    shared.finish();
}

/// A writer, and then readers who meet, after whom another reader need not count itself: it sees what the
/// writer wrote.
pub fn aside_after_a_writer<M: Machine, L: RawRwLock<M, Node = ()> + 'static>() {
    let shared = Shared::<M, L>::new();
    let ours = shared.clone();
    together::<M>(2, move |index| {
        M::register();
        if index == 0 {
            ours.use_as(As::Writer);
            let (one, two) = (ours.guard(&(), As::Reader), ours.guard(&(), As::Reader));
            two.work();
            drop((one, two));
        } else {
            ours.use_as(As::Reader);
        }
    });
    shared.finish();
}

/// A reader, counted or not, that another thread releases, while a writer waits for it or other readers
/// come and go.
pub fn leaving_elsewhere<M: Machine, L: RawRwLock<M, Node = ()> + 'static>(writers: u32, readers: u32) {
    let shared = Shared::<M, L>::new();
    {
        let (one, two) = (shared.guard(&(), As::Reader), shared.guard(&(), As::Reader));
        drop((one, two));
    }
    let ours = shared.clone();
    let reader = M::spawn(move || {
        M::register();
        // SAFETY: released below.
        unsafe { ours.lock.read(&()) };
        ours.look();
    });
    let others: Vec<_> = (0..writers + readers)
        .map(|index| {
            let ours = shared.clone();
            M::spawn(move || ours.use_as(if index < writers { As::Writer } else { As::Reader }))
        })
        .collect();
    M::join(reader);
    shared.look();
    // SAFETY: acquired by the thread that has ended.
    unsafe { shared.lock.unlock_read(&()) };
    others.into_iter().for_each(M::join);
    shared.finish();
}

/// Readers who hold the lock together for a while, and again, and acquire it once more inside; beside them
/// a writer, one that upgrades and one that tries.
pub fn aside<M: Machine, L: RawRwLockRecursive<M> + RawRwLockUpgrade<M> + 'static>(threads: u32) {
    let shared = Shared::<M, L>::new();
    // Who has no id counts itself.
    M::register();
    {
        // They meet here, before anybody writes.
        let (one, two) = (shared.guard(&(), As::Reader), shared.guard(&(), As::Reader));
        drop((one, two));
    }
    let ours = shared.clone();
    together::<M>(threads, move |index| match index {
        0 => {
            let outer = ours.guard(&(), As::Reader);
            let seen = ours.look();
            ours.lock.read_recursive();
            let inner = Guard { shared: &*ours, node: &(), how: As::Reader };
            drop(outer);
            assert_eq!(ours.look(), seen, "a writer got in beside a reader that held the lock twice");
            drop(inner);
        }
        1 => ours.use_as(As::Writer),
        2 => {
            ours.lock.upgradable();
            let seen = ours.look();
            // SAFETY: acquired above, upgraded below, once.
            unsafe {
                ours.lock.upgrade();
                assert_eq!(ours.cell.get(), seen, "a writer got in while another upgraded");
                ours.change();
                ours.lock.unlock_write(&());
            }
        }
        _ => {
            if let Some(guard) = ours.try_guard(&(), As::Writer) {
                guard.work();
            }
            let deadline = soon::<M>(1_000_000);
            // SAFETY: the guard unlocks once.
            if unsafe { ours.lock.write_until(&(), deadline) } {
                Guard { shared: &*ours, node: &(), how: As::Writer }.work();
            }
        }
    });
    shared.finish();
}

/// A reader that may upgrade becomes the writer, and no other writer gets in between; then it goes back in
/// one way or another.
pub fn upgrading<M: Machine, L: RawRwLockUpgrade<M> + 'static>(threads: u32, rounds: u32, patience_ns: u64) {
    let shared = Shared::<M, L>::new();
    let ours = shared.clone();
    together::<M>(threads, move |index| {
        for round in 0..rounds {
            if index % 3 == 2 {
                ours.use_as(mixed(index, round));
                continue;
            }
            let lock = &ours.lock;
            match round % 3 {
                0 => lock.upgradable(),
                1 if lock.try_upgradable() => {}
                2 if lock.upgradable_until(soon::<M>(patience_ns)) => {}
                _ => continue,
            }
            let seen = ours.look();
            // SAFETY: acquired above; each step is the one that the state allows.
            unsafe {
                let upgraded = match (index + round) % 3 {
                    0 => {
                        lock.upgrade();
                        true
                    }
                    1 => lock.upgrade_until(soon::<M>(patience_ns)),
                    _ => lock.try_upgrade(),
                };
                if !upgraded {
                    assert_eq!(ours.look(), seen, "a writer got in beside one that may upgrade");
                    lock.unlock_upgradable();
                    continue;
                }
                assert_eq!(ours.cell.get(), seen, "a writer got in while another upgraded");
                ours.change();
                if round % 2 == 0 {
                    lock.downgrade();
                } else {
                    lock.downgrade_to_upgradable();
                    assert_eq!(ours.look(), seen + 1, "a writer got in while another stepped down");
                    lock.downgrade_upgradable();
                }
                assert_eq!(ours.look(), seen + 1, "a writer got in while another stepped down");
                lock.unlock_read(&());
            }
        }
    });
    shared.finish();
}

/// A lock in a certain state, which counts as free: one waits for a reader to leave, to upgrade, when a
/// writer comes.
pub fn upgrading_beside<M: Machine, L: RawRwLockUpgrade<M> + 'static>(lock: L) {
    let shared = Shared::<M, L>::of(lock);
    let reader = shared.guard(&(), As::Reader);
    let ours = shared.clone();
    let upgrader = M::spawn(move || {
        ours.lock.upgradable();
        let seen = ours.look();
        // SAFETY: acquired above, upgraded here, once.
        unsafe { ours.lock.upgrade() };
        let writer = Guard { shared: &*ours, node: &(), how: As::Writer };
        assert_eq!(ours.cell.get(), seen, "a writer got in while another upgraded");
        writer.work();
    });
    let ours = shared.clone();
    let writer = M::spawn(move || ours.use_as(As::Writer));
    M::pause();
    drop(reader);
    M::join(upgrader);
    M::join(writer);
    shared.finish();
}

/// Threads that hold the lock `how` most of the time, and never let go together: does one that wants it the
/// other way get it within the patience? For real threads only.
fn gets_in<M: Machine, L: RawRwLock<M> + 'static>(
    threads: u32,
    crowd: As,
    one: As,
    patience: std::time::Duration,
) -> bool {
    let shared = Shared::<M, L>::new();
    let over = Arc::new(AtomicBool::new(false));
    let handles: Vec<_> = (0..threads)
        .map(|_| {
            let (ours, over) = (shared.clone(), over.clone());
            M::spawn(move || {
                while !over.load(Relaxed) {
                    let node = L::Node::default();
                    let _guard = ours.guard(&node, crowd);
                    let until = M::now_ns() + 50_000;
                    while M::now_ns() < until {
                        M::pause();
                    }
                }
            })
        })
        .collect();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let (got_in, gets_in) = std::sync::mpsc::channel();
    let ours = shared.clone();
    let handle = M::spawn(move || {
        // A few times: the first may have been luck.
        for _ in 0..5 {
            ours.use_as(one);
        }
        let _ = got_in.send(());
    });
    let result = gets_in.recv_timeout(patience).is_ok();
    over.store(true, Relaxed);
    handles.into_iter().for_each(M::join);
    M::join(handle);
    shared.finish();
    result
}

/// Readers who overlap do not keep a writer out.
pub fn writer_gets_in<M: Machine, L: RawRwLock<M> + 'static>(
    readers: u32,
    patience: std::time::Duration,
) -> bool {
    gets_in::<M, L>(readers, As::Reader, As::Writer, patience)
}

/// Writers who come at once again do not keep a reader out.
pub fn reader_gets_in<M: Machine, L: RawRwLock<M> + 'static>(
    writers: u32,
    patience: std::time::Duration,
) -> bool {
    gets_in::<M, L>(writers, As::Writer, As::Reader, patience)
}
