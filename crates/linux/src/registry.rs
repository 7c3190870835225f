// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arena of this process and the threads in it.
//!
//! Threads register on their first contended operation and unregister when they exit. What is reached from a lock ([`register`], [`live`] and
//! what follows from them) may be called inside `malloc` and in signal handlers: system calls and atomics only, no
//! allocation, no lock, errno unchanged.
//!
//! **State.** A *space* is one range of addresses: the [`Local`] page, the arena with its thread blocks, a perf ring for each
//! block. It is built in private and published by one compare-and-swap of [`SPACE`]; whoever loses unmaps his own. There is no
//! state "being built" that a signal handler, a second thread or a fork could find.
//!
//! **Fork.** The Local page is `MADV_WIPEONFORK`: in a child, however it was made, it reads as zeros, so that `view` is unset and
//! [`live`] says no. The child then builds *another* space. It cannot use the old addresses: the perf rings
//! (`VM_DONTCOPY`, the kernel's choice) and the bpf arena (`MADV_DONTFORK`, ours) are holes in the child, in which its
//! own mappings may lie by now. What is left of the old space stays mapped, untouched.
//!
//! Invariants
//!   I1  A published space has a view other than Unset in its Local page, except in a forked copy.
//!   I2  A reader looks at blocks and rings only after `live` said yes, in the same process.
//!   I3  Rings are always mapped in the process that built the space: by perf, or anonymously.
//!   I4  Only the owner of a block changes it from owned to free, except that the block of a thread that the kernel no longer
//!       knows may be freed by anybody, once.
//!   I5  A thread's id is valid if and only if its epoch is that of the live space.
//!
//! **Generation.** [`TOLD`] survives a fork, where Local does not. A space takes the number after it, and whoever tells
//! a generation first stores it there. Without memory for a space, the process id stored beside it says whether it was told in this process;
//! a space that can be had later takes the same number. So no generation that was ever told is told again in a child (modulo 8: a lock would have to be
//! copied with its queue through eight forks and a contended operation in each, and never be looked at).
//!
//! **exec** replaces everything. **vfork** and `CLONE_VM` children share the space and the parent's id: they must not
//! take locks, as POSIX says. **dlclose** of a library that contains this would leave the thread-exit destructor dangling: link it
//! with `-z nodelete`.

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use abi::{Arena, MAX_THREADS, RunState, Thread, View};
use platform::{Room, ThreadId};

use crate::view::bpf::Bpf;
use crate::view::perf::{self, Perf};
use crate::view::{self, Attached, Request, Slot, Source, none};
use crate::{Linux, futex, memory, processors, server, tls};

/// The greatest generation told in this line of processes, in the lower half. In the upper half the process that told it without
/// a space; 0 if it had one.
static TOLD: AtomicU64 = AtomicU64::new(0);

/// The space; null before the first use. Never unmapped once it was here.
static SPACE: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// The observer of this process, or, in a forked child, of its parent: its copied descriptors are closed when the child gets a space of
/// its own. (A child with memory of its own but its parent's descriptors, `CLONE_FILES` alone, thereby ends the parent's view.)
static OBSERVER: std::sync::OnceLock<bpf::Handle> = std::sync::OnceLock::new();

/// A line of its own for what changes often.
#[repr(align(64))]
struct Line<T>(T);

/// What only this process sees; zeros in a forked child.
#[repr(C, align(4096))]
struct Local {
    /// A [`View`]. Changes at most from Bpf to Perf and from Perf to None.
    view: AtomicU32,
    /// Which space this is in the line of processes.
    generation: AtomicU32,
    /// Changes when all threads must register again.
    epoch: AtomicU32,
    /// See `bpf::Enrolment`.
    enrolment: AtomicI32,
    /// Blocks at and above this were never used.
    high_water: AtomicU32,
    /// 1: there was no free block when somebody last looked.
    full: AtomicU32,
    /// 1: perf refused for good; do not ask for each thread.
    no_more: AtomicU32,
    /// What [`Registry::higher_preempted`] remembers: when to look again, in ns, shifted, and below it
    /// 1 + the greatest priority that was preempted, or 0.
    memo: Line<AtomicU64>,
    /// No block below this is free.
    free_from: Line<AtomicU32>,
    next_lease: AtomicU32,
    /// Searches for a free block that found none.
    turned_away: AtomicU32,
    /// When dead threads may be looked for again, in ns.
    reclaim_at: AtomicU64,
    /// See [`platform::Platform::away`]; by the lock's address.
    away: [AtomicU32; AWAYS],
    /// See [`platform::Platform::room`].
    rooms: [RoomWords; ROOMS as usize],
}

/// The words of a waiting room.
struct RoomWords {
    lock: AtomicPtr<()>,
    users: AtomicU32,
    turn: AtomicU32,
}

/// COST: 16 bytes each, and the last thread ids. A lock has use for one from the third thread on that waits for it and has no id or a deadline.
pub const ROOMS: u32 = 256;

/// The ids from this on are the waiting rooms'.
const FIRST_GUEST: u32 = MAX_THREADS as u32 - ROOMS;

/// So many threads can have an id.
pub const MOST_THREADS: u32 = FIRST_GUEST - 1;

/// COST: a word each; two locks in use that share one make each other's threads stay away longer.
const AWAYS: usize = 256;

const ARENA_AT: usize = size_of::<Local>();
const THREADS_AT: usize = ARENA_AT + size_of::<Arena>();
const RINGS_AT: usize = (THREADS_AT + MAX_THREADS * size_of::<Thread>()).next_multiple_of(4096);
const SIZE: usize = RINGS_AT + MAX_THREADS * perf::RING;

const MEMO_SHIFT: u32 = 4;
/// COST: ns for which the answer of a scan holds: far below a time slice (milliseconds), far above a look (a clock read, 25 ns).
const MEMO_NS: u64 = 2_000;
/// COST: a scan of n threads takes n x 10 to 20 ns; remembering it this many times as long bounds the whole process's expense for
/// scanning to a fifth of one processor.
const MEMO_FACTOR: u64 = 4;
/// COST: ns between two searches for dead threads; one is a system call a block, so 1 ms for all of them.
const RECLAIM_NS: u64 = 100_000_000;

/// Values of a block's `watch`. Not yet, or no longer: not worth it.
const UNWATCHED: u32 = 0;
/// Others ask for it. Given up after [`LEASE`] switches, to be earned anew.
const ON_DEMAND: u32 = 1;
/// For as long as the thread lives.
const ALWAYS: u32 = 2;
/// As [`UNWATCHED`], and it was not worth it because the thread switches so often: asks must be [`RESTLESS_ASKS`] times as many.
const RESTLESS: u32 = 4;
/// COST: to find out takes four system calls.
const RESTLESS_ASKS: u32 = 32;
/// The view does not take it.
const REFUSED: u32 = 3;

/// COST: a thread is watched when others have asked for its run state this often, and at least as often as it switched since they began: a waiter asks
/// about every 300 ns, which it may waste, and perf adds 420 ns to a switch. So the view costs a thread no more than twice what it can save (rent or buy,
/// Karlin et al. 1991). At least this often, because beginning takes 10 us and locked memory.
const ASKED: u32 = 32;
/// COST: bpf adds 60 ns to a switch, an eighth of that.
const BPF_SAVES: u32 = 8;
/// COST: ns. A thread that has run for less than this between two switches, over its life, is not watched by perf: it would pay more than a twentieth, and who
/// waits for it waits for a switch or two.
const RUN_NS: u64 = 10_000;
/// COST: after so many switches (perf: 0.4 ms of their time) a thread must earn it anew: ending it and beginning again takes a twentieth of that.
const LEASE: u32 = 1_000;

/// The value of `tid` while somebody frees the block of a dead thread.
const RECLAIMING: u32 = u32::MAX;

/// The process's space.
#[derive(Clone, Copy)]
pub struct Registry {
    start: NonNull<u8>,
}

/// The registry, if it has been set up in this process (and not only in its parent).
#[inline(always)]
pub fn live() -> Option<Registry> {
    vacant().err()
}

/// The space that another one may be put in the place of, for [`publish`]: null, or a wiped copy of our parent's (I1). Else the one that is live. One look at
/// SPACE decides both: between two, another thread may have set its space up, and would be left alone in it.
#[inline(always)]
fn vacant() -> Result<*mut u8, Registry> {
    // ORDER: Acquire, pairs with the Release in `publish`; the space was filled before.
    let space = SPACE.load(Acquire);
    match NonNull::new(space).map(|start| Registry { start }) {
        Some(registry) if registry.local().view.load(Relaxed) != View::Unset as u32 => Err(registry),
        _ => Ok(space),
    }
}

/// The registry, set up if need be; `None` if there is no address space left.
pub fn ensure() -> Option<Registry> {
    loop {
        let old = match vacant() {
            Ok(old) => old,
            Err(registry) => return Some(registry),
        };
        let new = build(Request::from_environment().without_bpf())?;
        if let Some(registry) = publish(old, new) {
            return Some(registry);
        }
    }
}

/// A space of our own that nobody knows yet.
fn build(view: View) -> Option<Registry> {
    let errno = futex::Errno::save();
    // SAFETY: a fresh mapping, which is ours.
    let registry = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let start = memory::map(null_mut(), SIZE, libc::PROT_READ, flags, -1);
        if start == libc::MAP_FAILED {
            return None;
        }
        if libc::mprotect(start, RINGS_AT, libc::PROT_READ | libc::PROT_WRITE) != 0
            || libc::madvise(start, RINGS_AT, libc::MADV_WIPEONFORK) != 0
        {
            memory::unmap(start, SIZE);
            return None;
        }
        Registry { start: NonNull::new(start.cast())? }
    };
    drop(errno);
    let local = registry.local();
    let generation = next_generation(TOLD.load(Relaxed)) as u32;
    local.generation.store(generation, Relaxed);
    local.epoch.store(generation << 4, Relaxed);
    local.high_water.store(1, Relaxed);
    local.free_from.0.store(1, Relaxed);
    local.next_lease.store(1, Relaxed);
    registry.head(view);
    Some(registry)
}

/// Makes `new` the space of this process, if it still is `old`.
fn publish(old: *mut u8, new: Registry) -> Option<Registry> {
    // ORDER: Release, pairs with the Acquire in `live`.
    match SPACE.compare_exchange(old, new.start.as_ptr(), Release, Relaxed) {
        Ok(_) => {
            new.told();
            if !old.is_null()
                && let Some(handle) = OBSERVER.get()
            {
                let _errno = futex::Errno::save();
                handle.close_copies();
            }
            Some(new)
        }
        Err(_) => {
            // SAFETY: ours, and nobody has seen it.
            unsafe { memory::unmap(new.start.as_ptr().cast(), SIZE) };
            None
        }
    }
}

/// What is to be done at program start, where it is cheap: see [`crate::prepare`].
pub fn prepare() {
    at_exit::key();
    // An inherited observer is taken over at once: until then our children would inherit its descriptors.
    if may_be_observed()
        && let Some(observer) = view::bpf::inherited()
    {
        let _ = observe_with(observer);
    }
}

fn may_be_observed() -> bool {
    Request::from_environment().allows_bpf() && live().is_none()
}

/// Why the bpf view could not be had.
#[derive(Debug)]
pub enum Refused {
    /// It could not be loaded, or not be used.
    Here(bpf::Error),
    /// The processor server did not lend it.
    Server(server::Error),
}

impl core::fmt::Display for Refused {
    fn fmt(&self, f: &mut core::fmt::Formatter) -> core::fmt::Result {
        match self {
            Self::Here(error) => error.fmt(f),
            Self::Server(error) => error.fmt(f),
        }
    }
}

/// Chooses the view, the privileged one included: see [`crate::init`]. Returns why the bpf view could not be had, if it was tried.
pub fn load() -> Option<Refused> {
    if !may_be_observed() {
        return None;
    }
    #[cfg(feature = "bpf")]
    let own = match bpf::Observer::load().and_then(observe_with) {
        Ok(()) => return None,
        Err(error) => Some(Refused::Here(error)),
    };
    #[cfg(not(feature = "bpf"))]
    let own = None;
    match server::observe() {
        Ok((observer, life)) => {
            view::bpf::lives_with(life);
            observe_with(observer).err().map(Refused::Here)
        }
        Err(server::Error::NoServer) => own,
        Err(error) => Some(Refused::Server(error)),
    }
}

/// Makes a space with the observer's arena in it that of this process.
fn observe_with(observer: bpf::Observer) -> Result<(), bpf::Error> {
    // Threads that have registered meanwhile stay where they are.
    let Ok(old) = vacant() else { return Ok(()) };
    let Some(registry) = build(View::Perf) else { return Err(std::io::Error::last_os_error().into()) };
    // SAFETY: the arena's place in a space that nobody has seen.
    let mapped = unsafe { observer.map(registry.start.as_ptr().add(ARENA_AT)) };
    // Whoever writes the magic number has the arena.
    let claimed = mapped.is_ok() && registry.arena().magic.compare_exchange(0, abi::MAGIC, Relaxed, Relaxed).is_ok();
    if !claimed {
        // SAFETY: as above.
        unsafe { memory::unmap(registry.start.as_ptr().cast(), SIZE) };
        return Err(mapped.map_or_else(Into::into, |_| bpf::Error::Taken));
    }
    registry.local().enrolment.store(observer.enrolment().number(), Relaxed);
    registry.head(View::Bpf);
    let handle = observer.handle()?;
    if publish(old, registry).is_some() {
        observer.keep_mapped();
        let _ = OBSERVER.set(handle);
    }
    Ok(())
}

/// What this process, having no space, is to store in [`TOLD`], which is `told`.
fn next_generation(told: u64) -> u64 {
    // SAFETY: no arguments.
    let process = unsafe { libc::syscall(libc::SYS_getpid) } as u64;
    if told >> 32 == process { told } else { process << 32 | (told as u32).wrapping_add(1) as u64 }
}

/// How often this process is a forked copy, modulo 8. See the module's Generation.
pub fn generation() -> u32 {
    loop {
        match ensure().map(|registry| registry.told()) {
            // Wiped since: a signal handler has forked, and this is the child.
            Some(0) => continue,
            Some(generation) => return generation % 8,
            // No memory for a space: a copy is the next generation all the same.
            None => {
                // ORDER: Acquire, pairs with the Release in `told`: if a space's number is here, `live` finds the space.
                let told = TOLD.load(Acquire);
                let next = next_generation(told);
                if live().is_none() && TOLD.compare_exchange(told, next, Relaxed, Relaxed).is_ok() {
                    return next as u32 % 8;
                }
            }
        }
    }
}

/// See [`platform::Platform::away`]. In the space, so that a forked copy, in which nobody is away, starts at 0.
pub fn away(lock: *const ()) -> &'static AtomicU32 {
    static NOWHERE: AtomicU32 = AtomicU32::new(0);
    live().map_or(&NOWHERE, |registry| &registry.local().away[futex::hash(lock.addr()) as usize % AWAYS])
}

/// See [`platform::Platform::room`]. In the space, so that a forked copy, in which nobody waits, has none that is in use.
pub fn room(number: u32) -> Option<Room<Linux>> {
    let RoomWords { lock, users, turn } = live()?.local().rooms.get(number as usize)?;
    Some(Room { lock, users, turn, guest: ThreadId(FIRST_GUEST + number) })
}

/// See [`platform::Platform::word`]. A thread block that nobody uses if there is no memory for blocks at all.
#[inline]
pub fn word(id: ThreadId, index: usize) -> &'static AtomicU32 {
    static NOWHERE: [AtomicU32; 8] = [const { AtomicU32::new(0) }; 8];
    match live().or_else(ensure) {
        Some(registry) => &registry.thread(id).words[index],
        None => &NOWHERE[index],
    }
}

macro_rules! dispatch {
    ($view:expr, $function:ident($slot:expr)) => {
        match $view {
            View::Bpf => Bpf::$function($slot),
            View::Perf => Perf::$function($slot),
            View::None | View::Unset => none::None::$function($slot),
        }
    };
}

impl Registry {
    #[inline(always)]
    fn local(&self) -> &'static Local {
        // SAFETY: the space starts with a Local, zeros are a valid one, and it is never unmapped once published.
        unsafe { self.start.cast().as_ref() }
    }

    #[inline(always)]
    fn thread(&self, id: ThreadId) -> &'static Thread {
        // The mask costs less than a branch and keeps every id inside; all ids in use are below the limit.
        let index = id.0 as usize & (MAX_THREADS - 1);
        // SAFETY: inside the space, which is never unmapped; zeros are a valid Thread, and its fields are atomics.
        unsafe { &*self.start.as_ptr().add(THREADS_AT).cast::<Thread>().add(index) }
    }

    fn arena(&self) -> &'static Arena {
        // SAFETY: as for `thread`.
        unsafe { &*self.start.as_ptr().add(ARENA_AT).cast::<Arena>() }
    }

    #[inline(always)]
    fn slot(&self, id: ThreadId) -> Slot {
        let index = id.0 as usize & (MAX_THREADS - 1);
        // SAFETY: as for `thread`.
        let ring = unsafe { self.start.as_ptr().add(RINGS_AT + index * perf::RING) };
        Slot { id, block: self.thread(id), ring, enrolment: self.local().enrolment.load(Relaxed) }
    }

    /// Writes the arena's header.
    fn head(&self, view: View) {
        let arena = self.arena();
        arena.version.store(abi::VERSION, Relaxed);
        arena.arena_size.store(size_of::<Arena>() as u32, Relaxed);
        arena.thread_size.store(size_of::<Thread>() as u32, Relaxed);
        arena.max_threads.store(MAX_THREADS as u32, Relaxed);
        self.set_partition(processors::available(), processors::changes());
        arena.magic.store(abi::MAGIC, Relaxed);
        self.set_view(view);
    }

    fn set_view(&self, view: View) {
        self.arena().view.store(view as u32, Relaxed);
        self.local().view.store(view as u32, Relaxed);
    }

    /// The generation, recorded for our children.
    fn told(&self) -> u32 {
        let generation = self.local().generation.load(Relaxed);
        if generation != 0 && TOLD.load(Relaxed) != generation as u64 {
            // ORDER: Release, pairs with the Acquire in `generation`; the space was published before.
            TOLD.store(generation as u64, Release);
        }
        generation
    }

    /// Which view fills this arena.
    #[inline(always)]
    pub fn view(&self) -> View {
        View::from_u32(self.local().view.load(Relaxed))
    }

    /// HINT: see [`platform::Platform::run_state`]. Counts as a reason to watch the thread.
    #[inline(always)]
    pub fn run_state(&self, id: ThreadId) -> RunState {
        let state = self.look(id);
        if state == RunState::Unknown {
            // Not exact, and need not be: two that ask together may count as one.
            let asked = &self.thread(id).asked;
            asked.store(asked.load(Relaxed).saturating_add(1), Relaxed);
        }
        state
    }

    /// HINT: the run state.
    #[inline(always)]
    fn look(&self, id: ThreadId) -> RunState {
        if id.0 == 0 {
            return RunState::Unknown;
        }
        let slot = self.slot(id);
        // In the order of their need for speed.
        match self.local().view.load(Relaxed) {
            view if view == View::Bpf as u32 => Bpf::run_state(slot),
            view if view == View::Perf as u32 => Perf::run_state(slot),
            _ => RunState::Unknown,
        }
    }

    /// The calling thread runs. False if the arena says otherwise, because it missed a switch, or nobody writes it any more.
    #[inline(always)]
    fn sees_me(&self, id: ThreadId) -> bool {
        self.view() != View::Bpf
            || matches!(self.look(id), RunState::Running | RunState::Unknown) && view::bpf::observes()
    }

    /// HINT: is a thread with a priority above `than` preempted?
    ///
    /// In the bpf view the kernel counts: a few loads from one line. In the perf view somebody must look at each thread; the
    /// answer is remembered for [`MEMO_NS`], or [`MEMO_FACTOR`] times as long as it took to find, and is that stale.
    pub fn higher_preempted(&self, than: u32) -> bool {
        match self.view() {
            // A thread is counted under the priority that it had when it was preempted; it may have been raised since.
            View::Bpf => {
                let counts = &self.arena().preempted;
                let (lower, higher) = counts.split_at((than as usize + 1).min(counts.len()));
                let any = |counts: &[AtomicU32]| counts.iter().any(|count| count.load(Relaxed) != 0);
                any(higher) || any(lower) && self.greatest_preempted() > than + 1
            }
            View::Perf => self.greatest_preempted() > than + 1,
            View::None | View::Unset => false,
        }
    }

    /// HINT: threads that have been registered at one time, at most.
    pub fn registered(&self) -> u32 {
        self.local().high_water.load(Relaxed).saturating_sub(1)
    }

    /// HINT: does the kernel's scheduler act on what the blocks say of wishes and priorities?
    pub fn scheduled(&self) -> bool {
        self.view() == View::Bpf && self.arena().scheduled.load(Relaxed) != 0
    }

    /// HINT: how many processors the scheduler gives us, and how often that has changed; `None` where none divides them.
    pub fn granted(&self) -> Option<(u32, u32)> {
        let partition = &self.arena().partition;
        let count = self.partition_is_kept().then(|| partition.processors.load(Relaxed)).filter(|&count| count != 0)?;
        Some((count, partition.generation.load(Relaxed)))
    }

    /// Is the partition block another's to write? It says from its first moment.
    fn partition_is_kept(&self) -> bool {
        self.arena().partition.threads_per_processor.load(Relaxed) != 0
    }

    /// HINT: threads that run or could; 0 where no view looks. Looks at each.
    pub fn runnable(&self) -> u32 {
        let could_run = |&id: &ThreadId| matches!(self.run_state(id), RunState::Running | RunState::Preempted);
        self.ids().filter(could_run).count() as u32
    }

    /// 1 + the greatest priority of a preempted thread; 0: none is.
    fn greatest_preempted(&self) -> u32 {
        const ANSWER: u64 = (1 << MEMO_SHIFT) - 1;
        let memo = &self.local().memo.0;
        let known = memo.load(Relaxed);
        let start = futex::now_ns();
        // The others go on with the old answer while one looks.
        if start < known >> MEMO_SHIFT
            || memo.compare_exchange(known, (start + MEMO_NS) << MEMO_SHIFT | known & ANSWER, Relaxed, Relaxed).is_err()
        {
            return (known & ANSWER) as u32;
        }
        let greatest = self
            .ids()
            .filter(|&id| self.look(id) == RunState::Preempted)
            .map(|id| 1 + self.thread(id).priority.load(Relaxed).min(abi::PRIORITIES as u32 - 1))
            .max()
            .unwrap_or(0);
        let end = futex::now_ns();
        let until = end + MEMO_NS.max(MEMO_FACTOR * (end - start));
        memo.store(until << MEMO_SHIFT | greatest as u64, Relaxed);
        greatest
    }

    /// Every id that was ever used.
    fn ids(&self) -> impl Iterator<Item = ThreadId> + use<> {
        (1..self.local().high_water.load(Relaxed).min(MAX_THREADS as u32)).map(ThreadId)
    }

    /// A word that the application writes in a thread's block.
    #[inline(always)]
    pub fn priority(&self, id: ThreadId) -> &'static AtomicU32 {
        &self.thread(id).priority
    }

    /// How many locks a thread holds that raised its priority.
    #[inline(always)]
    pub fn holds(&self, id: ThreadId) -> &'static AtomicU32 {
        &self.thread(id).holds
    }

    /// The KE-1 wish of a thread.
    #[inline(always)]
    pub fn wish(&self, id: ThreadId) -> &'static AtomicU32 {
        &self.thread(id).wish
    }

    /// The KE-2 warning of a thread.
    #[inline(always)]
    pub fn warning(&self, id: ThreadId) -> &'static AtomicU32 {
        &self.thread(id).warning
    }

    /// Records how many processors there are, and how often that has changed, unless the scheduler does.
    pub fn set_partition(&self, count: u32, changes: u32) {
        if self.partition_is_kept() {
            return;
        }
        let partition = &self.arena().partition;
        partition.processors.store(count, Relaxed);
        partition.generation.store(changes, Relaxed);
    }

    /// Threads with a block; of these, refused by the view; searches for a block that found none.
    pub fn census(&self) -> (u32, u32, u32) {
        let (mut registered, mut unseen) = (0, 0);
        for id in self.ids() {
            let block = self.thread(id);
            if block.tid.load(Relaxed) != 0 {
                registered += 1;
                unseen += (block.watch.load(Relaxed) == REFUSED) as u32;
            }
        }
        (registered, unseen, self.local().turned_away.load(Relaxed))
    }

    /// Registers the calling thread in a free block; [`ThreadId::NONE`] if there is none.
    fn add(&self, always: bool) -> ThreadId {
        let local = self.local();
        let id = self.take_block().or_else(|| if self.reclaim() { self.take_block() } else { None });
        let Some(id) = id else {
            local.turned_away.fetch_add(1, Relaxed);
            return ThreadId::NONE;
        };
        let block = self.thread(id);
        block.priority.store(abi::Priority::Running as u32, Relaxed);
        block.wish.store(abi::Wish::Preemptable as u32, Relaxed);
        block.holds.store(0, Relaxed);
        block.warning.store(0, Relaxed);
        for word in &block.words {
            word.store(0, Relaxed);
        }
        // Until the view says otherwise; the last holder of the block left nothing here.
        block.run_state.store(RunState::Unknown as u32, Relaxed);
        self.forget(id, switches().0);
        if always {
            self.watch(id, ALWAYS);
        }
        id
    }

    /// The thread, not watched, is to earn it anew.
    fn forget(&self, id: ThreadId, switches: u32) {
        let block = self.thread(id);
        block.watch.store(UNWATCHED, Relaxed);
        block.asked.store(0, Relaxed);
        block.switched.store(switches, Relaxed);
    }

    /// Is the calling thread watched as it should be?
    #[inline]
    fn content(&self, id: ThreadId, always: bool) -> bool {
        let block = self.thread(id);
        match block.watch.load(Relaxed) {
            UNWATCHED => !always && block.asked.load(Relaxed) < ASKED,
            RESTLESS => !always && block.asked.load(Relaxed) < ASKED * RESTLESS_ASKS,
            ON_DEMAND => !always && self.watched_switches(id) < LEASE,
            _ => true,
        }
    }

    /// The calling thread's switches since it is watched.
    fn watched_switches(&self, id: ThreadId) -> u32 {
        dispatch!(self.view(), switches(self.slot(id))).wrapping_sub(self.thread(id).switched.load(Relaxed))
    }

    /// Has the calling thread watched, or no longer, if it is not [`Registry::content`].
    fn reconsider(&self, id: ThreadId, always: bool) {
        let block = self.thread(id);
        match (block.watch.load(Relaxed), always) {
            (UNWATCHED | RESTLESS, true) => self.watch(id, ALWAYS),
            (ON_DEMAND, true) => block.watch.store(ALWAYS, Relaxed),
            (UNWATCHED | RESTLESS, false) => {
                let asked = block.asked.load(Relaxed);
                if asked < ASKED {
                    return;
                }
                let (switches, run_ns) = switches();
                let (asked, restless) = match self.view() {
                    View::Bpf => (asked.saturating_mul(BPF_SAVES), false),
                    _ => (asked, run_ns < RUN_NS),
                };
                if !restless && asked >= switches.wrapping_sub(block.switched.load(Relaxed)) {
                    self.watch(id, ON_DEMAND);
                } else {
                    self.forget(id, switches);
                    if restless {
                        block.watch.store(RESTLESS, Relaxed);
                    }
                }
            }
            (ON_DEMAND, false) if self.watched_switches(id) >= LEASE => {
                dispatch!(self.view(), detach(self.slot(id)));
                block.run_state.store(RunState::Unknown as u32, Relaxed);
                self.forget(id, switches().0);
            }
            _ => {}
        }
    }

    /// Lets the view watch the calling thread, for this reason, falling back from view to view where one ends for good.
    fn watch(&self, id: ThreadId, why: u32) {
        let block = self.thread(id);
        block.watch.store(REFUSED, Relaxed);
        let mut lease = self.local().next_lease.fetch_add(1, Relaxed);
        if lease == 0 {
            lease = self.local().next_lease.fetch_add(1, Relaxed);
        }
        block.lease.store(lease, Relaxed);
        loop {
            let view = self.view();
            if view == View::Perf && self.local().no_more.load(Relaxed) != 0 {
                return;
            }
            let mut attached = dispatch!(view, attach(self.slot(id)));
            if attached == Attached::NotThis && view == View::Perf && self.reclaim() {
                // Dead threads may have held the locked memory that this one lacks.
                attached = Perf::attach(self.slot(id));
            }
            match attached {
                Attached::Never => self.lose(view),
                Attached::Yes => {
                    if view == View::Perf {
                        block.run_state.store(RunState::Running as u32, Relaxed);
                    }
                    block.switched.store(dispatch!(view, switches(self.slot(id))), Relaxed);
                    block.watch.store(why, Relaxed);
                    return;
                }
                Attached::NotThis => {
                    block.run_state.store(RunState::Unknown as u32, Relaxed);
                    return;
                }
            }
        }
    }

    /// The view will watch no further thread: goes over to the next one, once, whoever comes first.
    fn lose(&self, view: View) {
        let local = self.local();
        if view == View::Perf {
            local.no_more.store(1, Relaxed);
            // Those that are watched already remain so.
            if self.ids().any(|id| self.thread(id).run_state.load(Relaxed) != RunState::Unknown as u32) {
                return;
            }
        }
        let next = if view == View::Bpf { View::Perf } else { View::None };
        if local.view.compare_exchange(view as u32, next as u32, Relaxed, Relaxed).is_err() {
            return;
        }
        self.arena().view.store(next as u32, Relaxed);
        if view == View::Bpf {
            for id in self.ids() {
                // If the kernel still writes, then from now on under leases that do not hold.
                self.thread(id).lease.store(0, Relaxed);
                self.thread(id).run_state.store(RunState::Unknown as u32, Relaxed);
            }
            // All threads register again, with the new view, when they next come by.
            local.epoch.fetch_add(1, Relaxed);
        }
    }

    /// Takes the first free block.
    fn take_block(&self) -> Option<ThreadId> {
        let local = self.local();
        // SAFETY: no arguments.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
        let from = local.free_from.0.load(Relaxed);
        // From the hint on, and then, because the hint may have been wrong, all.
        for index in (from..FIRST_GUEST).chain(1..from) {
            let owner = &self.thread(ThreadId(index)).tid;
            // ORDER: Acquire, pairs with the Release in `free`: its detach comes before our attach.
            if owner.load(Relaxed) == 0 && owner.compare_exchange(0, tid, Acquire, Relaxed).is_ok() {
                local.free_from.0.store(index + 1, Relaxed);
                local.high_water.fetch_max(index + 1, Relaxed);
                crate::reading::announce(index);
                return Some(ThreadId(index));
            }
        }
        local.full.store(1, Relaxed);
        None
    }

    /// Frees the block of the calling thread.
    fn remove(&self, id: ThreadId) {
        if matches!(self.thread(id).watch.load(Relaxed), ON_DEMAND | ALWAYS) {
            dispatch!(self.view(), detach(self.slot(id)));
        }
        self.free(id);
    }

    /// Makes the block available. It is the caller's, and no view writes to it any more.
    fn free(&self, id: ThreadId) {
        let block = self.thread(id);
        block.lease.store(0, Relaxed);
        block.run_state.store(RunState::Unknown as u32, Relaxed);
        block.priority.store(0, Relaxed);
        // ORDER: Release, pairs with the Acquire in `take_block`.
        block.tid.store(0, Release);
        let local = self.local();
        local.free_from.0.fetch_min(id.0, Relaxed);
        local.full.store(0, Relaxed);
    }

    /// Frees the blocks of threads that are no more and did not unregister: those that ended by a bare system call, and those whose
    /// thread-exit destructor could not be armed. True if there were any. Looks at most every [`RECLAIM_NS`].
    fn reclaim(&self) -> bool {
        let at = &self.local().reclaim_at;
        let (now, due) = (futex::now_ns(), at.load(Relaxed));
        if now < due || at.compare_exchange(due, now + RECLAIM_NS, Relaxed, Relaxed).is_err() {
            return false;
        }
        let mut any = false;
        for id in self.ids() {
            let block = self.thread(id);
            let tid = block.tid.load(Relaxed);
            if tid == 0 || tid == RECLAIMING || alive(tid) {
                continue;
            }
            if block.tid.compare_exchange(tid, RECLAIMING, Acquire, Relaxed).is_ok() {
                if self.view() == View::Perf {
                    Perf::detach(self.slot(id));
                }
                self.free(id);
                any = true;
            }
        }
        any
    }
}

/// Does a thread of this process have this id?
fn alive(tid: u32) -> bool {
    // SAFETY: signal 0 is not sent; errno is this thread's.
    unsafe {
        libc::syscall(libc::SYS_tgkill, libc::syscall(libc::SYS_getpid), tid, 0) == 0
            || *libc::__errno_location() != libc::ESRCH
    }
}

/// No signal handler runs while this lives: one that took a lock, or forked, in the midst of a registration would find half of it.
pub struct NoSignals(u64);

/// Bytes of the kernel's signal set.
const SIGSET: usize = 8;

impl NoSignals {
    /// Until it is dropped.
    pub fn new() -> Self {
        let (all, mut old) = (u64::MAX, 0u64);
        // SAFETY: both sets live and are of the size stated. The system call, because pthread_sigmask spares signals that libc uses.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &all, &mut old, SIGSET) };
        Self(old)
    }
}

impl Drop for NoSignals {
    fn drop(&mut self) {
        // SAFETY: as in `new`.
        unsafe {
            libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &self.0, core::ptr::null_mut::<u64>(), SIGSET)
        };
    }
}

/// The calling thread's context switches, modulo 2^32, and for how many ns it has run between two of them.
fn switches() -> (u32, u64) {
    // SAFETY: zeros are a valid rusage, which the call fills; it cannot fail.
    let usage = unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        libc::syscall(libc::SYS_getrusage, libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    let switches = usage.ru_nvcsw.wrapping_add(usage.ru_nivcsw) as u64;
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    (switches as u32, (ns(usage.ru_utime) + ns(usage.ru_stime)) / switches.max(1))
}

/// The calling thread's id, registering it on first use, and watched, at once or when it is worth while: see
/// [`platform::Platform::register_lazily`].
pub fn register(always: bool) -> ThreadId {
    if let Some(registry) = live() {
        let local = registry.local();
        if tls::epoch() == local.epoch.load(Relaxed) {
            let id = ThreadId(tls::id());
            if registry.sees_me(id) && registry.content(id, always) {
                return id;
            }
        } else if local.full.load(Relaxed) != 0 && futex::now_ns() < local.reclaim_at.load(Relaxed) {
            return ThreadId::NONE;
        }
    }
    register_slow(always)
}

#[cold]
#[inline(never)]
fn register_slow(always: bool) -> ThreadId {
    if tls::closed() {
        return ThreadId::NONE;
    }
    let _errno = futex::Errno::save();
    let _signals = NoSignals::new();
    let Some(registry) = ensure() else { return ThreadId::NONE };
    let local = registry.local();
    let mine = ThreadId(tls::id());
    if tls::epoch() == local.epoch.load(Relaxed) {
        // The thread is not content, or a handler registered us before signals were off, or we read that we do not run: the view has
        // missed a switch, or it is dead.
        if registry.sees_me(mine) || Bpf::attach(registry.slot(mine)) == Attached::Yes {
            registry.reconsider(mine, always);
            return mine;
        }
        registry.lose(View::Bpf);
    }
    let epoch = local.epoch.load(Relaxed);
    let id = if mine != ThreadId::NONE && tls::epoch() >> 4 == epoch >> 4 {
        // The same process, another view: the block stays ours.
        match registry.thread(mine).watch.load(Relaxed) {
            UNWATCHED | RESTLESS if !always => {}
            ON_DEMAND if !always => registry.watch(mine, ON_DEMAND),
            _ => registry.watch(mine, ALWAYS),
        }
        mine
    } else {
        registry.add(always)
    };
    tls::set_id(id.0);
    if id != ThreadId::NONE {
        tls::set_epoch(epoch);
        at_exit::arm();
    }
    id
}

/// Unregisters the calling thread for good; it keeps working, unseen.
pub fn unregister() {
    let _errno = futex::Errno::save();
    let _signals = NoSignals::new();
    let id = ThreadId(tls::id());
    let epoch = tls::epoch();
    tls::close();
    tls::set_id(0);
    tls::set_epoch(0);
    if id != ThreadId::NONE
        && let Some(registry) = live()
        && epoch >> 4 == registry.local().epoch.load(Relaxed) >> 4
    {
        registry.remove(id);
    }
}

/// Gives the program the pthread key by which exits of threads are noticed: it has none left. From then on the blocks of threads that exited
/// are reclaimed when they are needed. False if there is no such key.
pub fn give_key_back() -> bool {
    at_exit::give_back()
}

/// Runs [`unregister`] when a thread exits.
mod at_exit {
    use core::ffi::c_void;
    use core::sync::atomic::{AtomicU32, Ordering::*};

    /// 1 + the key, 0 if it is not made yet, or [`GONE`]; and above that how many threads are in [`arm`].
    static KEY: AtomicU32 = AtomicU32::new(0);

    /// The C library offers no key without allocation, or the program has it.
    const GONE: u32 = 0xff;
    const ARMING: u32 = 0x100;

    /// COST: glibc keeps the values of this many keys in the thread itself (PTHREAD_KEY_2NDLEVEL_SIZE) and allocates for more, which we
    /// may not; musl allocates for none of its 128. Past it, the blocks of threads that exited are reclaimed when they are needed.
    const KEYS_WITHOUT_ALLOCATION: u32 = if cfg!(target_env = "gnu") { 32 } else { 128 };

    unsafe extern "C" fn destructor(_: *mut c_void) {
        super::unregister();
    }

    /// The last key whose values need no allocation, so that the program gets those before it, as without us.
    fn make() -> Option<libc::pthread_key_t> {
        let mut keys = [0; KEYS_WITHOUT_ALLOCATION as usize];
        let (mut made, mut ours) = (0, None);
        for key in &mut keys {
            // SAFETY: the pointer is valid and the destructor takes what a destructor takes.
            if unsafe { libc::pthread_key_create(key, Some(destructor)) } != 0 {
                break;
            }
            made += 1;
            if *key < KEYS_WITHOUT_ALLOCATION {
                ours = Some(*key);
            }
            if *key >= KEYS_WITHOUT_ALLOCATION - 1 {
                break;
            }
        }
        for key in keys[..made].iter().filter(|key| ours != Some(**key)) {
            // SAFETY: ours, and unused.
            unsafe { libc::pthread_key_delete(*key) };
        }
        ours
    }

    /// Makes the key; the earlier the better, see [`KEYS_WITHOUT_ALLOCATION`].
    pub fn key() {
        if KEY.load(Relaxed) != 0 {
            return;
        }
        let key = make();
        // The key is a number that stands for itself: nothing is published with it.
        let word = key.map_or(GONE, |key| key + 1);
        if KEY.compare_exchange(0, word, Relaxed, Relaxed).is_err()
            && let Some(key) = key
        {
            // SAFETY: ours, and unused.
            unsafe { libc::pthread_key_delete(key) };
        }
    }

    /// With signals off, and so not for long.
    pub fn arm() {
        key();
        let mut word = KEY.load(Relaxed);
        while word % ARMING != GONE {
            match KEY.compare_exchange_weak(word, word + ARMING, Relaxed, Relaxed) {
                Ok(_) => {
                    let key = word % ARMING - 1;
                    // SAFETY: the key is live until ARMING is taken back; any non-null value makes the destructor run.
                    unsafe { libc::pthread_setspecific(key, core::ptr::without_provenance(1)) };
                    // ORDER: Release, pairs with the Acquire in `give_back`: the key ends after this use.
                    KEY.fetch_sub(ARMING, Release);
                    return;
                }
                Err(now) => word = now,
            }
        }
    }

    /// COST: how often threads that are in [`arm`], a few instructions, are waited for. In a forked child they may be the parent's, for ever.
    const LOOKS: u32 = 1_000;

    pub fn give_back() -> bool {
        for _ in 0..LOOKS {
            let word = KEY.load(Relaxed);
            if matches!(word % ARMING, 0 | GONE) {
                return false;
            }
            // ORDER: Acquire, pairs with the Release in `arm`.
            if word < ARMING && KEY.compare_exchange(word, GONE, Acquire, Relaxed).is_ok() {
                // SAFETY: ours, and nobody sets a value any more.
                return unsafe { libc::pthread_key_delete(word - 1) } == 0;
            }
            // SAFETY: no arguments.
            unsafe { libc::sched_yield() };
        }
        false
    }
}
