// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine inside a model checker, written once for the two checkers, whose interfaces are the same.
//!
//! The state of an execution is a [`World`]: thread blocks and the futex table. The priorities and wishes
//! are not the checker's atomics: they are hints, and nothing may depend on them.

/// Defines `$name` in terms of the crate `$checker`. `$yield` lets others go first, `$choose` picks a bool.
macro_rules! model {
    ($(#[$doc:meta])* $name:ident, $checker:ident, $choose:expr) => {
        use std::cell::{Cell as StdCell, RefCell};
        use std::sync::atomic::Ordering::*;

        use ::$checker::sync::atomic;
        use ::$checker::sync::{Condvar, Mutex};
        use ::$checker::thread;
        use platform::{Atomic, AtomicInt, Crowd, Deadline, Ordering, Platform, Priority, Readers, Room, RunState, STAMP_ID, STAMP_SHIFT, ThreadId, Wait, Wide, Wish};

        use crate::distinct::{self, asked};
        use crate::{Hints, Machine, Settings};

        /// One of the checker's atomics.
        pub struct Word<A: Dies>(A);

        impl<A: Dies> Drop for Word<A> {
            fn drop(&mut self) {
                if !std::thread::panicking() {
                    self.0.dies();
                }
            }
        }


        /// An integer of the checker's.
        type AtomicU32 = Word<atomic::AtomicU32>;

        $crate::model::forward!([] u32, atomic::AtomicU32);
        $crate::model::forward!([T] *mut T, atomic::AtomicPtr<T>);

        $crate::model::forward!([] u64, atomic::AtomicU64);
        $crate::model::forward_int!(u32, atomic::AtomicU32);
        $crate::model::forward_int!(u64, atomic::AtomicU64);

        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name;

        /// Threads in a model, and one for [`ThreadId::NONE`].
        const THREADS: usize = 8;
        /// And with the guest of the waiting room.
        const IDS: usize = THREADS + 1;

        struct World {
            settings: Settings,
            trace: bool,
            queue: [[AtomicU32; 8]; IDS],
            reading: [Word<atomic::AtomicPtr<()>>; IDS],
            holds: [AtomicU32; IDS],
            away: AtomicU32,
            turn: AtomicU32,
            room: (Word<atomic::AtomicPtr<()>>, AtomicU32, AtomicU32),
            priority: [StdCell<Priority>; IDS],
            wish: [StdCell<Wish>; IDS],
            /// Who sleeps where, longest first.
            sleepers: Mutex<Vec<(usize, usize)>>,
            wake: [Condvar; THREADS],
            threads: StdCell<u32>,
            /// Counts writes.
            writes: StdCell<u64>,
            /// Spinners that nobody's write has given anything new to see.
            parked: RefCell<Vec<thread::Thread>>,
            /// Spinners that let a thread have its turn which had none for long.
            behind: RefCell<Vec<thread::Thread>>,
            /// Counts pauses.
            turns: StdCell<u64>,
            /// The pause at which each thread was last seen to do something; [`RESTS`] if it sleeps or has
            /// ended.
            seen: [StdCell<u64>; THREADS],
            /// Threads started.
            started: StdCell<usize>,
        }

        /// Not known to be able to run.
        const RESTS: u64 = u64::MAX;

        ::std::thread_local! {
            /// A model runs all its threads on one thread of the system.
            static WORLD: StdCell<Option<&'static World>> = const { StdCell::new(None) };
        }

        ::$checker::thread_local! {
            static ID: StdCell<u32> = StdCell::new(0);
            static STAMP: StdCell<u32> = StdCell::new(0);
            static CLOCK: StdCell<u64> = StdCell::new(0);
            static TURN: StdCell<u32> = StdCell::new(0);
            static MOVES: StdCell<u32> = StdCell::new(0);
            /// Which of [`World::seen`] is its own.
            static INDEX: StdCell<usize> = StdCell::new(0);
            /// Writes seen at the last pause, and pauses since without a new one.
            static SEEN: StdCell<(u64, u32)> = StdCell::new((0, 0));
        }

        /// Says what happens, in the execution that `WAKEFUL_TRACE` names.
        fn trace(what: std::fmt::Arguments<'_>) {
            if WORLD.get().is_some_and(|world| world.trace) {
                eprintln!("{:?}, id {}: {what}", thread::current().id(), $name::id());
            }
        }

        /// Somebody has written a word.
        fn wrote<A, V: std::fmt::Debug>(word: &A, value: V) {
            if let Some(world) = WORLD.get() {
                trace(format_args!("{word:p} := {value:x?}"));
                acts(world);
                world.writes.set(world.writes.get() + 1);
                for spinner in world.parked.take() {
                    spinner.unpark();
                }
            }
        }

        /// The calling thread does something.
        fn acts(world: &World) {
            INDEX.with(|index| world.seen[index.get()].set(world.turns.get()));
            for spinner in world.behind.take() {
                spinner.unpark();
            }
        }

        /// The calling thread sleeps, or ends.
        fn rests() {
            if let Some(world) = WORLD.get() {
                INDEX.with(|index| world.seen[index.get()].set(RESTS));
                for spinner in world.behind.take() {
                    spinner.unpark();
                }
            }
        }

        /// Lets others go first.
        ///
        /// A checker need not be fair. So a thread waits here, first, while another one that could run has
        /// done nothing for [`FAIR`] pauses of all. And then for a write, if it has paused often without
        /// anybody writing anything, and its clock has gone so far that whatever ends by the clock has
        /// ended: where everybody waits so, nobody will ever get anywhere, which the checker reports as a
        /// deadlock.
        fn pause() {
            let world = world();
            world.turns.set(world.turns.get() + 1);
            acts(world);
            while world.seen.iter().any(|seen| seen.get().checked_add(FAIR).is_some_and(|turn| turn < world.turns.get())) {
                trace(format_args!("waits for who had no turn"));
                world.behind.borrow_mut().push(thread::current());
                thread::park();
            }
            let writes = world.writes.get();
            let (seen, turns) = SEEN.with(|cell| cell.get());
            let turns = if seen == writes { turns + 1 } else { 0 };
            SEEN.with(|cell| cell.set((writes, turns)));
            if turns >= PAUSES {
                CLOCK.with(|clock| clock.set(clock.get() + LEAP_NS));
            }
            if turns < PAUSES + LEAPS {
                thread::yield_now();
            } else {
                trace(format_args!("waits for news"));
                world.parked.borrow_mut().push(thread::current());
                rests();
                thread::park();
                acts(world);
            }
        }

        /// Pauses of all threads after which one that did nothing has its turn.
        const FAIR: u64 = 256;

        /// Pauses without news before a spinner's clock leaps: so long it has been watched.
        const PAUSES: u32 = 64;

        /// Such pauses before it waits for news: more phases than any algorithm has that end by the clock
        /// one after the other.
        const LEAPS: u32 = 8;

        /// Longer than any such phase.
        const LEAP_NS: u64 = 20_000_000;

        fn world() -> &'static World {
            WORLD.get().expect("inside a model")
        }

        /// Runs `body` as the first thread of a fresh world.
        fn in_world(settings: Settings, execution: usize, body: &dyn Fn()) {
            let zeros = || std::array::from_fn(|_| Atomic::new(0));
            let world = Box::into_raw(Box::new(World {
                settings,
                trace: std::env::var("WAKEFUL_TRACE").is_ok_and(|number| number.parse() == Ok(execution)),
                queue: std::array::from_fn(|_| std::array::from_fn(|_| Atomic::new(0))),
                reading: std::array::from_fn(|_| Atomic::new(std::ptr::null_mut())),
                holds: zeros(),
                away: Atomic::new(0),
                turn: Atomic::new(0),
                room: (Atomic::new(std::ptr::null_mut()), Atomic::new(0), Atomic::new(0)),
                priority: std::array::from_fn(|_| StdCell::new(Priority::Running)),
                wish: std::array::from_fn(|_| StdCell::new(Wish::Preemptable)),
                sleepers: Mutex::new(Vec::new()),
                wake: std::array::from_fn(|_| Condvar::new()),
                threads: StdCell::new(0),
                writes: StdCell::new(0),
                parked: RefCell::new(Vec::new()),
                behind: RefCell::new(Vec::new()),
                turns: StdCell::new(0),
                seen: std::array::from_fn(|_| StdCell::new(RESTS)),
                started: StdCell::new(0),
            }));
            // SAFETY: freed below, when all threads have been joined; leaked if the body panics.
            WORLD.set(Some(unsafe { &*world }));
            body();
            WORLD.set(None);
            // SAFETY: made above by Box, and nobody has it any more.
            drop(unsafe { Box::from_raw(world) });
        }

        impl $name {
            fn choose(hint: RunState) -> bool {
                asked(1 << hint as u32);
                match world().settings.hints {
                    Hints::Always(state) => state == hint,
                    Hints::Mixed => $choose(TURN.with(|turn| turn.replace(turn.get() + 1))),
                }
            }

            /// The calling thread's id has been given out.
            fn id() -> u32 {
                ID.with(|id| id.get())
            }
        }

        impl Platform for $name {
            type AtomicU32 = AtomicU32;
            type AtomicPtr<T: 'static> = Word<atomic::AtomicPtr<T>>;
            const PAUSES: u32 = 1;
            const ROOMS: u32 = 1;

            fn room(_: u32) -> Option<Room<Self>> {
                let (lock, users, turn) = &world().room;
                Some(Room { lock, users, turn, guest: ThreadId(THREADS as u32) })
            }

            fn stamp() -> u32 {
                Self::id() << STAMP_SHIFT | STAMP.with(|stamp| stamp.get())
            }

            fn set_stamp(rest: u32) {
                STAMP.with(|stamp| stamp.set(rest & !STAMP_ID));
            }

            fn register() -> ThreadId {
                if Self::id() == 0 {
                    let world = world();
                    world.threads.set(world.threads.get() + 1);
                    ID.with(|id| id.set(world.threads.get()));
                }
                Self::current()
            }

            fn run_state(thread: ThreadId) -> RunState {
                if thread == ThreadId::NONE {
                    return RunState::Unknown;
                }
                asked(distinct::STATE);
                match world().settings.hints {
                    Hints::Always(state) => state,
                    Hints::Mixed if Self::choose(RunState::Preempted) => RunState::Preempted,
                    Hints::Mixed => RunState::Running,
                }
            }

            fn higher_preempted(_: Priority) -> bool {
                Self::choose(RunState::Preempted)
            }

            fn hand_off() {
                pause();
            }

            fn priority(thread: ThreadId) -> Priority {
                world().priority[thread.0 as usize].get()
            }

            fn set_priority(thread: ThreadId, priority: Priority) {
                world().priority[thread.0 as usize].set(priority);
            }

            fn change_priority(thread: ThreadId, from: Priority, to: Priority) -> bool {
                let was = Self::priority(thread) == from;
                if was {
                    Self::set_priority(thread, to);
                }
                was
            }

            fn holds(thread: ThreadId) -> Option<&'static AtomicU32> {
                (thread != ThreadId::NONE).then(|| &world().holds[thread.0 as usize])
            }

            fn away(_: *const ()) -> &'static AtomicU32 {
                &world().away
            }

            fn spare_processors() -> bool {
                Self::choose(RunState::Blocked)
            }

            fn roomy() -> bool {
                Self::choose(RunState::Blocked)
            }

            fn set_wish(thread: ThreadId, wish: Wish) {
                world().wish[thread.0 as usize].set(wish);
            }

            fn wish(thread: ThreadId) -> Wish {
                world().wish[thread.0 as usize].get()
            }

            /// It warns, as if it did.
            fn honours_wishes() -> bool {
                true
            }

            fn change_wish(thread: ThreadId, from: Wish, to: Wish) -> bool {
                let change = !Self::choose(RunState::Preempted) && world().wish[thread.0 as usize].get() == from;
                if change {
                    Self::set_wish(thread, to);
                }
                change
            }

            fn warning(_: ThreadId) -> bool {
                Self::choose(RunState::Preempted)
            }

            fn word(thread: ThreadId, index: usize) -> &'static AtomicU32 {
                assert_ne!(thread, ThreadId::NONE, "nobody has no queue words");
                &world().queue[thread.0 as usize][index]
            }

            fn generation() -> u32 {
                asked(distinct::GENERATION);
                world().settings.generation
            }

            fn processors() -> u32 {
                2
            }

            fn metered() -> bool {
                Self::choose(RunState::Blocked)
            }

            fn partition_generation() -> u32 {
                // Changes now and then where hints are mixed.
                asked(distinct::MIXED);
                match world().settings.hints {
                    Hints::Mixed => world().writes.get() as u32 / 8,
                    Hints::Always(_) => 0,
                }
            }

            fn cluster() -> u32 {
                // Threads move where hints are mixed, half of them one way and half the other.
                asked(distinct::MIXED);
                match world().settings.hints {
                    Hints::Mixed => (Self::register().0 + MOVES.with(|moves| moves.replace(moves.get() + 1))) % 2,
                    Hints::Always(_) => Self::id() % 2,
                }
            }

            fn running_on() -> Option<u32> {
                // Known where hints are mixed.
                asked(distinct::MIXED);
                (world().settings.hints == Hints::Mixed).then(Self::cluster)
            }

            fn migrate(_: Option<u32>) -> bool {
                Self::choose(RunState::Running)
            }

            fn cpu_ns() -> u64 {
                // All of both processors, or nothing.
                if Self::choose(RunState::Preempted) { 0 } else { 2 * CLOCK.with(|clock| clock.get()) }
            }

            fn crowd(_: u64, _: u32) -> Option<Crowd> {
                // Nobody knows unless hints are mixed; then others come and go.
                let others = || if Self::choose(RunState::Preempted) { 2 } else { 0 };
                let crowd = || Crowd { others: others(), processors: 2, lasts: true };
                asked(distinct::MIXED);
                (world().settings.hints == Hints::Mixed).then(crowd)
            }

            fn is_beside_others(_: u64) -> bool {
                asked(distinct::MIXED);
                world().settings.hints == Hints::Mixed && Self::choose(RunState::Preempted)
            }

            fn wait(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> Wait {
                let me = Self::register().0 as usize;
                let address = std::ptr::from_ref(word) as usize;
                let mut sleepers = world().sleepers.lock().unwrap();
                if word.load(Relaxed) != expected {
                    return Wait::Changed;
                }
                if let Some(deadline) = deadline {
                    if Self::past(deadline) {
                        return Wait::TimedOut;
                    }
                    sleepers.push((address, me));
                    drop(sleepers);
                    thread::yield_now();
                    CLOCK.with(|clock| clock.set(clock.get().max(deadline.ns)));
                    let mut sleepers = world().sleepers.lock().unwrap();
                    return match sleepers.iter().position(|&(_, thread)| thread == me) {
                        Some(place) => {
                            sleepers.remove(place);
                            Wait::TimedOut
                        }
                        None => Wait::Woken,
                    };
                }
                trace(format_args!("sleeps on {word:p} at {expected:x}"));
                sleepers.push((address, me));
                rests();
                while sleepers.iter().any(|&(_, thread)| thread == me) {
                    sleepers = world().wake[me].wait(sleepers).unwrap();
                }
                acts(world());
                Wait::Woken
            }

            fn wake(word: *const AtomicU32, count: u32) -> u32 {
                let mut sleepers = world().sleepers.lock().unwrap();
                let mut woken = 0;
                while woken < count {
                    let Some(place) = sleepers.iter().position(|&(address, _)| address == word as usize) else { break };
                    let (_, thread) = sleepers.remove(place);
                    trace(format_args!("wakes {thread} on {word:p}"));
                    world().wake[thread].notify_one();
                    woken += 1;
                }
                woken
            }

            fn now_ns() -> u64 {
                asked(distinct::CLOCK);
                CLOCK.with(|clock| {
                    clock.set(clock.get() + world().settings.clock_step_ns);
                    clock.get()
                })
            }

            fn past(deadline: Deadline) -> bool {
                Self::now_ns() >= deadline.ns
            }

            fn pause() {
                pause();
            }

            fn nap(_: u64) {
                pause();
            }

            fn yield_now() {
                pause();
            }
        }

        impl Readers for $name {
            fn reading(thread: ThreadId) -> &'static Word<atomic::AtomicPtr<()>> {
                assert_ne!(thread, ThreadId::NONE, "nobody reads nothing");
                &world().reading[thread.0 as usize]
            }

            fn most_threads() -> u32 {
                THREADS as u32
            }

            fn turn(_: *const ()) -> &'static AtomicU32 {
                &world().turn
            }
        }

        impl Wide for $name {
            type AtomicU64 = Word<atomic::AtomicU64>;

            fn fence(order: Ordering) {
                atomic::fence(order);
            }
        }

        impl Machine for $name {
            type Handle = thread::JoinHandle<()>;
            type Cell = Cell;

            fn spawn(body: impl FnOnce() + Send + 'static) -> Self::Handle {
                Self::start(Box::new(body))
            }

            fn join(handle: Self::Handle) {
                rests();
                handle.join().expect("a thread of the model panicked");
                acts(world());
            }
        }

        impl $name {
            /// Not generic, so that the checker's own part of it is compiled once.
            fn start(body: Box<dyn FnOnce() + Send>) -> thread::JoinHandle<()> {
                let world = world();
                world.started.set(world.started.get() + 1);
                let index = world.started.get();
                thread::spawn(move || {
                    INDEX.with(|own| own.set(index));
                    body();
                    rests();
                })
            }
        }
    };
}

macro_rules! forward {
    ([$($t:ident)?] $value:ty, $atomic:ty) => {
        impl$(<$t>)? Atomic<$value> for Word<$atomic> {
            fn new(value: $value) -> Self {
                Self(<$atomic>::new(value))
            }
            fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }
            fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, order);
                wrote(self, value);
            }
            fn swap(&self, value: $value, order: Ordering) -> $value {
                let was = self.0.swap(value, order);
                wrote(self, value);
                was
            }
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.0.compare_exchange(current, new, success, failure).inspect(|_| wrote(self, new))
            }
            fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.0.compare_exchange_weak(current, new, success, failure).inspect(|_| wrote(self, new))
            }
        }
    };
}

macro_rules! forward_int {
    ($value:ty, $atomic:ty) => {
        impl AtomicInt<$value> for Word<$atomic> {
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                let was = self.0.fetch_add(value, order);
                wrote(self, was.wrapping_add(value));
                was
            }
            fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                let was = self.0.fetch_sub(value, order);
                wrote(self, was.wrapping_sub(value));
                was
            }
            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                let was = self.0.fetch_or(value, order);
                wrote(self, was | value);
                was
            }
            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                let was = self.0.fetch_and(value, order);
                wrote(self, was & value);
                was
            }
            fn retain(&self, mask: $value, order: Ordering) -> bool {
                (self.fetch_and(mask, order) & mask).leading_zeros() == 0
            }
        }
    };
}

pub(crate) use {forward, forward_int, model};
