// SPDX-License-Identifier: MIT OR Apache-2.0
//! The seam: what an algorithm may ask of the machine.
//!
//! Every algorithm of the `sync` crate is generic over [`Platform`] and uses nothing else, so that one
//! source file runs on Linux, under the model checkers and on the simulated multiprocessor. The atomics and
//! the cells are associated types for the same reason: a checker substitutes its own.
//!
//! What a platform tells about threads ([`Platform::run_state`], [`Platform::higher_preempted`]) is a
//! *hint*: it may be stale or wrong in either direction, and an algorithm must stay safe and live whatever
//! it says.
#![no_std]

mod atomic;
mod costs;
pub mod ke1;

pub use abi::{Priority, RunState, Wish};
#[doc(hidden)]
pub use atomic::unknown;
pub use atomic::{Atomic, AtomicInt};
use core::ptr::NonNull;
pub use core::sync::atomic::Ordering;
pub use costs::Costs;

/// A thread as the arena knows it: the index of its thread block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct ThreadId(pub u32);

impl ThreadId {
    /// Nobody we know: a thread that has not registered, or could not.
    pub const NONE: Self = Self(0);
    /// Ids are below this, so that they fit beside flags in a lock word.
    pub const LIMIT: u32 = abi::MAX_THREADS as u32;
}

/// Where a [`Platform::stamp`] holds the thread's id.
pub const STAMP_SHIFT: u32 = 7;
/// The bits of a [`Platform::stamp`] that hold the thread's id.
pub const STAMP_ID: u32 = (ThreadId::LIMIT - 1) << STAMP_SHIFT;

/// The clock of a [`Deadline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Never jumps; what our own API uses.
    Monotonic,
    /// Jumps when somebody sets it; POSIX asks for it in `pthread_mutex_timedlock`.
    Realtime,
}

/// An absolute moment, in nanoseconds of its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// Nanoseconds since the clock's epoch.
    pub ns: u64,
    /// Which clock.
    pub clock: Clock,
}

/// How crowded a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowd {
    /// Threads that run or could, of those that the caller does not know of: most often, other programs'.
    pub others: u32,
    /// Processors of the machine.
    pub processors: u32,
    /// Two looks, a millisecond or more apart, have seen so many. Else it was one look, and what it saw may
    /// be brief: the kernel's own threads run for some microseconds.
    pub lasts: bool,
}

/// Why [`Platform::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Somebody called [`Platform::wake`] (or something woke us that we cannot tell from it).
    Woken,
    /// The word did not hold the expected value; we did not sleep.
    Changed,
    /// A signal was handled; nobody woke us.
    Interrupted,
    /// The deadline passed.
    TimedOut,
}

/// The words of a waiting room: see `sync::wait::room`, to which they belong. All start as zeros.
#[allow(missing_docs)] // explained there
pub struct Room<P: Platform> {
    pub lock: &'static P::AtomicPtr<()>,
    pub users: &'static P::AtomicU32,
    pub turn: &'static P::AtomicU32,
    /// An id that no thread has, for its [`Platform::word`]s.
    pub guest: ThreadId,
}

/// What an algorithm may ask of the machine. All functions are associated: a platform is a name, not a value.
pub trait Platform: Copy + Default + Send + Sync + Sized + 'static {
    /// A 32-bit word that threads share.
    type AtomicU32: AtomicInt<u32>;
    /// A pointer that threads share.
    type AtomicPtr<T: 'static>: Atomic<*mut T>;

    /// Pauses in a row that make a difference. A model checker, where each is a choice of who goes on, says
    /// 1.
    const PAUSES: u32 = u32::MAX;

    /// What this machine's moves cost. Every limit of an algorithm is a multiple of one of them. The same
    /// at each call.
    #[inline]
    fn costs() -> Costs {
        Costs::VIRTUAL
    }

    /// Waiting rooms that there are.
    const ROOMS: u32 = 0;

    /// The waiting room of this number, below [`Platform::ROOMS`]. HINT: a machine without memory has none.
    fn room(_number: u32) -> Option<Room<Self>> {
        None
    }

    /// The calling thread's stamp: its id in the bits of [`STAMP_ID`], in the others what
    /// [`Platform::set_stamp`] left there. Costs one load; made for fast paths.
    fn stamp() -> u32;

    /// Sets the stamp's other bits, which belong to the default mutex (`sync::mutex::Wakeful`).
    fn set_stamp(rest: u32);

    /// The calling thread, if it has registered, else [`ThreadId::NONE`].
    #[inline(always)]
    fn current() -> ThreadId {
        ThreadId((Self::stamp() & STAMP_ID) >> STAMP_SHIFT)
    }

    /// The calling thread, registered on first use. Never allocates memory, never fails: a thread for which
    /// there is no room stays [`ThreadId::NONE`] and merely gives and gets no hints. Fit for slow paths.
    fn register() -> ThreadId;

    /// As [`Platform::register`], but the view begins to watch the thread only when that is worth its cost,
    /// which others pay for at each of the thread's context switches: once they have asked for its run
    /// state as often as it switched. To be called at each wait.
    fn register_lazily() -> ThreadId {
        Self::register()
    }

    /// HINT: does this thread run? [`RunState::Unknown`] for [`ThreadId::NONE`] and where no view looks.
    fn run_state(thread: ThreadId) -> RunState;

    /// HINT: was this other thread last on the processor that the caller is on? Then it does not run. Costs
    /// a system call, and is known of threads that no view watches.
    fn last_here(_thread: ThreadId) -> bool {
        false
    }

    /// HINT: has the application fewer processors than runnable threads *and* is a thread of higher
    /// user-level priority than `than` preempted? The papers' optimal spin-or-block rule (ICPP 2001,
    /// section 4). False where no view looks.
    fn higher_preempted(than: Priority) -> bool;

    /// Gives the processor up in favour of a preempted thread of higher priority, as well as this machine
    /// can; may return at once.
    fn hand_off();

    /// HINT: is [`Platform::hand_off`] the papers' call: does it go to the preempted thread of the highest
    /// priority, wherever that was preempted?
    fn hands_off() -> bool {
        false
    }

    /// The user-level priority of a thread; [`Priority::Running`] if it is not known.
    fn priority(thread: ThreadId) -> Priority;

    /// Sets the user-level priority of a thread. Relaxed: priorities publish nothing.
    fn set_priority(thread: ThreadId, priority: Priority);

    /// Changes the user-level priority of a thread if it still is `from` (ICPP 2001, figure 1, line 16).
    fn change_priority(thread: ThreadId, from: Priority, to: Priority) -> bool;

    /// How many locks a thread holds that raised its priority (the lowest 12 bits) or made it wish not to be
    /// preempted (upper half). Between, its own priority. Only the thread itself writes it. `None` for
    /// [`ThreadId::NONE`].
    fn holds(thread: ThreadId) -> Option<&'static Self::AtomicU32>;

    /// Has this machine locks of its own: does a processor lock a line, and stall until it is free? (TR 1994,
    /// section 5.2: `get_subpage` of a KSR 1.) The same at each call.
    fn locks_lines() -> bool {
        false
    }

    /// Locks the line of this word, which has a line for itself; false if it is locked and the caller does
    /// not wait. Only where [`Platform::locks_lines`]. Acquires what [`Platform::unlock_line`] releases.
    fn lock_line(_word: &Self::AtomicU32, _waits: bool) -> bool {
        false
    }

    /// Frees the line of this word, which the caller has locked.
    fn unlock_line(_word: &Self::AtomicU32) {}

    /// How many threads have given their processor up beside this lock for threads that matter more, and
    /// are not back. HINT: it says how long the next one stays away; locks may share a count. Only the
    /// address is used: the lock was released before.
    fn away(lock: *const ()) -> &'static Self::AtomicU32;

    /// HINT: has the application more processors than threads that could run? False where no view looks.
    fn spare_processors() -> bool;

    /// HINT: is there a processor for each thread of the application that uses locks, and are there more
    /// than two processors? Then nobody of our own is waiting for the processor of one who waits, and one
    /// awake waiter is not all that there can be. Cheap.
    fn roomy() -> bool {
        false
    }

    /// Sets the calling thread's KE-1 wish.
    fn set_wish(thread: ThreadId, wish: Wish);

    /// A thread's KE-1 wish.
    fn wish(thread: ThreadId) -> Wish;

    /// HINT: is there anybody who acts on wishes? Where not, a lock that wishes is its plain twin, dearer
    /// by the asking.
    fn honours_wishes() -> bool;

    /// Changes a thread's KE-1 wish if it still is `from` and the thread is not known to be preempted: one
    /// step, where the view's kernel half writes the word, too ([`ke1`]; TR 1994, figure 3:
    /// `compare_and_store (&cb->state, from, to)`). True for [`ThreadId::NONE`]: nothing is known against it.
    fn change_wish(thread: ThreadId, from: Wish, to: Wish) -> bool;

    /// KE-2: did the kernel put a preemption of this thread off? The thread should yield at the end of its
    /// critical section.
    fn warning(thread: ThreadId) -> bool;

    /// One of the eight words in a thread's block that algorithms use which queue thread ids instead of
    /// nodes. A thread waits in one place at a time, so one set a thread is enough. They start as 0.
    /// `thread` is not [`ThreadId::NONE`].
    fn word(thread: ThreadId, index: usize) -> &'static Self::AtomicU32;

    /// How often this process is a forked copy, modulo 8: a lock that was copied with threads queued on it
    /// finds out by this that they are not here.
    fn generation() -> u32;

    /// Processors that this application may use: affinity, cpuset, quota and partition considered. At least
    /// 1; `u32::MAX` where threads cost no processor. HINT: as of the last look.
    fn processors() -> u32;

    /// HINT: has the application less processor time than its processors, by a quota? Then an idle
    /// processor is not free: what one thread spins away another one lacks. As of the last look.
    fn metered() -> bool {
        false
    }

    /// Looks anew how many they are, if the last look was about a second ago. Cheap enough for one thread
    /// of an episode or for a slow path: it reads a clock, unless the caller brings the time. To be called
    /// before [`Platform::partition_generation`].
    #[inline]
    fn refresh_processors(now_ns: Option<u64>) {
        let _ = now_ns;
    }

    /// HINT: how often the partition has changed (KE-3, TR 1994, section 3).
    fn partition_generation() -> u32 {
        0
    }

    /// HINT: which cluster of processors, among which a cache line travels cheaply, the calling thread runs
    /// in.
    fn cluster() -> u32 {
        0
    }

    /// HINT: the processor that the calling thread runs on; `None`: nobody knows.
    fn running_on() -> Option<u32> {
        None
    }

    /// Moves the calling thread to this processor, or to any but its own, from where the system may move it
    /// as before. False if it may not run there, or this cannot be done. HINT: it may be elsewhere again on
    /// return.
    fn migrate(to: Option<u32>) -> bool {
        let _ = to;
        false
    }

    /// The calling thread is to run at once when it wakes, and then not for long; or as others do again.
    /// HINT: without, it stands behind who runs on its processor until the system's next tick.
    fn hurry(on: bool) {
        let _ = on;
    }

    /// The calling thread serves delegated sections from now on, or has come to another processor since it
    /// said so; or it ends to. `server` is an address that no other server has. HINT: for those who place
    /// memory.
    fn serves(server: *const (), serves: bool) {
        let _ = (server, serves);
    }

    /// Processor time that this process has used, in nanoseconds. HINT: a system call that looks at each
    /// thread; not for each round.
    fn cpu_ns() -> u64;

    /// HINT: how crowded the machine is, as of a look or two in the last milliseconds. The caller says how
    /// many threads of this application run or could: `awake`. `None`: nobody can tell, or this application
    /// may use some of the machine's processors only, and the others may be free.
    fn crowd(now_ns: u64, awake: u32) -> Option<Crowd> {
        let _ = (now_ns, awake);
        None
    }

    /// HINT: did other programs take a part of few processors of late, a fifth about, and more than was idle?
    /// False where nobody can tell.
    fn is_beside_others(now_ns: u64) -> bool {
        let _ = now_ns;
        false
    }

    /// Sleeps until woken, if `*word == expected`. May return [`Wait::Woken`] with no cause.
    fn wait(word: &Self::AtomicU32, expected: u32, deadline: Option<Deadline>) -> Wait;

    /// Wakes at most `count` threads asleep on `word`, those first who sleep longest; returns how many it
    /// woke. Only the address is used: the word's memory may be gone already.
    fn wake(word: *const Self::AtomicU32, count: u32) -> u32;

    /// Nanoseconds of the monotonic clock.
    fn now_ns() -> u64;

    /// True once the deadline is past.
    fn past(deadline: Deadline) -> bool;

    /// One turn of a spin loop; the processor may do something else meanwhile, the thread stays on it.
    fn pause();

    /// Sleeps for about this long, or less.
    fn nap(ns: u64);

    /// As [`Platform::nap`], beside this lock: [`Platform::rouse`] may end it. Only the address is used.
    fn nap_beside(_lock: *const Self::AtomicU32, ns: u64) {
        Self::nap(ns);
    }

    /// Ends a nap beside this lock. HINT: may end another's, or none; a nap ends by itself.
    fn rouse(_lock: *const Self::AtomicU32) {}

    /// Lets another runnable thread have the processor, if the machine can.
    fn yield_now();
}

/// A platform whose words can stand in a `static`.
pub trait StaticPlatform: Platform {
    /// A word of value 0.
    const ZERO_U32: Self::AtomicU32;
}

/// What the default reader-writer lock asks for besides: readers that write no word of the lock.
pub trait Readers: Platform {
    /// Where a thread says which reader-writer lock it reads, without writing to the lock. It starts as
    /// null. `thread` is not [`ThreadId::NONE`]. The pointer is an address and nothing else.
    fn reading(thread: ThreadId) -> &'static Self::AtomicPtr<()>;

    /// The ids of all threads are below this. A read-modify-write with `AcqRel`: who is not counted
    /// registers after it.
    fn most_threads() -> u32;

    /// A word beside this lock: a writer that goes adds 1 if readers are counted. HINT: waiters look at the
    /// lock when it changes; locks may share a word. It lies on another line than the lock. Only the address
    /// is used.
    fn turn(lock: *const ()) -> &'static Self::AtomicU32;
}

/// ASSUMED: so many processors with neighbouring numbers share a cache on common servers.
pub const CLUSTER: u32 = 8;

/// Memory for what has no room where the program keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Not 0.
    pub number: u32,
    /// Where it is, aligned to [`Block::PIECE`].
    pub memory: NonNull<u8>,
    /// So many of [`Block::PIECE`] bytes.
    pub pieces: usize,
}

impl Block {
    /// Bytes: two cache lines, which processors fetch together.
    pub const PIECE: usize = 128;
}

/// What barriers of many threads ask for besides: memory that stays.
///
/// # Safety
/// A block is there from when it is taken, for good, and nobody else's until it is given back. It holds
/// zeros, or what the one before left there.
pub unsafe trait Blocks: Platform {
    /// Takes one; `None`: there is none, or of fewer than three pieces. All are as large as the first caller
    /// wants it.
    fn take_block(pieces: usize) -> Option<Block>;

    /// The one of this number, if there are any.
    fn block(number: u32) -> Option<Block>;

    /// Gives it back. Who looks at it yet must not mind what is there.
    fn give_block(number: u32);
}

/// What the parts of an OpenMP runtime ask for besides: loops count in 64 bits.
pub trait Wide: Platform {
    /// A 64-bit word that threads share.
    type AtomicU64: AtomicInt<u64>;

    /// As `core::sync::atomic::fence`.
    fn fence(order: Ordering);
}
