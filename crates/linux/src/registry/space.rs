// SPDX-License-Identifier: MIT OR Apache-2.0
//! The space: where this process's arena lies, how it comes into being, and what a fork leaves of it.

use core::ptr::{NonNull, null, null_mut};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use abi::{Arena, MAX_THREADS, Thread, View};
use platform::{Room, ThreadId};

use super::lent;
use crate::view::{Request, Slot, perf};
use crate::{Linux, futex, memory, processors};

/// The greatest generation told in this line of processes, in the lower half. In the upper half the
/// [`process`] that told it without a space; 0 if it had one.
static TOLD: AtomicU64 = AtomicU64::new(0);

const PAGE: usize = 4096;

/// Has room for a whole page that is wiped in a child, and is not aligned to one, which would move all small
/// variables to pages of their own. Its first word is the process's number ([`process`]); 0: it has none yet.
static ROOM: [AtomicU32; 2 * PAGE / size_of::<AtomicU32>()] =
    [const { AtomicU32::new(0) }; 2 * PAGE / size_of::<AtomicU32>()];

/// Is the page wiped in a child? 0: nobody has asked the kernel, and most programs never do.
static WIPES: AtomicU32 = AtomicU32::new(0);
const YES: u32 = 1;
const NO: u32 = 2;

/// The space; null before the first use. Never unmapped once it was here.
static SPACE: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// The observer of this process, or, in a forked child, of its parent, by `bpf::Handle::words`: its copied
/// descriptors are closed when the child gets a space of its own. (A child with memory of its own but its
/// parent's descriptors, `CLONE_FILES` alone, thereby ends the parent's view.) A copy of half a change closes
/// nothing that is another's: each number stands beside the kernel's id of what it must be.
static OBSERVER: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// The observer of this process is this one from now on. What it had of the one before is closed.
pub(super) fn observed_by(handle: bpf::Handle) {
    close_observer();
    for (place, word) in OBSERVER.iter().zip(handle.words()) {
        place.store(word, Relaxed);
    }
}

fn close_observer() {
    bpf::Handle::close_copies_of(OBSERVER.each_ref().map(|word| word.load(Relaxed)));
}

/// A line of its own for what changes often.
#[repr(align(64))]
pub(super) struct Line<T>(pub(super) T);

/// What of a thread only this process sees (I6).
#[repr(C, align(64))]
pub(super) struct Own {
    /// Kernel thread id; 0: the block is free.
    pub(super) tid: AtomicU32,
    /// See [`platform::Platform::holds`].
    pub(super) holds: AtomicU32,
    /// See [`platform::Platform::word`].
    pub(super) words: [AtomicU32; 8],
    /// Looks at its run state while no view watched it.
    pub(super) asked: AtomicU32,
    /// Why the view watches it, or not.
    pub(super) watch: AtomicU32,
    /// Its context switches when `asked` was 0.
    pub(super) switched: AtomicU32,
    /// 1: its ring is an event's.
    pub(super) ring: AtomicU32,
    /// Where the kernel writes its processor (`here`); 0: nobody knows.
    pub(super) processor: AtomicU64,
}

/// What only this process sees; zeros in a forked child.
#[repr(C, align(4096))]
pub(super) struct Local {
    /// [`Chosen`]. Changes at most from Bpf to Perf and from Perf to None, and back to Bpf (`successor`).
    pub(super) view: AtomicU32,
    /// Which space this is in the line of processes.
    pub(super) generation: AtomicU32,
    /// Changes when all threads must register again.
    pub(super) epoch: AtomicU32,
    /// See `bpf::Enrolment`.
    pub(super) enrolment: AtomicI32,
    /// Blocks at and above this were never used.
    pub(super) high_water: AtomicU32,
    /// Blocks at and above this have no room for a ring, and no thread gets them.
    pub(super) most: AtomicU32,
    /// 1: there was no free block when somebody last looked.
    pub(super) full: AtomicU32,
    /// 1: perf refused for good; do not ask for each thread.
    pub(super) no_more: AtomicU32,
    /// 1: the user wants nothing to be known, so nobody tells where it runs (`here`).
    pub(super) placeless: AtomicU32,
    /// What [`Registry::higher_preempted`] remembers: when to look again, in ns, shifted, and below it
    /// 1 + the greatest priority that was preempted, or 0.
    pub(super) memo: Line<AtomicU64>,
    /// No block below this is free.
    pub(super) free_from: Line<AtomicU32>,
    pub(super) next_lease: AtomicU32,
    /// Searches for a free block that found none.
    pub(super) turned_away: AtomicU32,
    /// When dead threads may be looked for again, in ns.
    pub(super) reclaim_at: AtomicU64,
    /// By the threads' ids.
    pub(super) own: [Own; MAX_THREADS],
    /// See [`platform::Platform::away`]; by the lock's address.
    pub(super) away: [AtomicU32; AWAYS],
    /// See [`platform::Platform::room`].
    pub(super) rooms: [RoomWords; ROOMS as usize],
}

/// The words of a waiting room.
pub(super) struct RoomWords {
    pub(super) lock: AtomicPtr<()>,
    pub(super) users: AtomicU32,
    pub(super) turn: AtomicU32,
}

/// BOUND: 16 bytes each, and the last thread ids. A lock has use for one from the third thread on that waits
/// for it and has no id or a deadline.
pub const ROOMS: u32 = 256;

/// The ids from this on are the waiting rooms'.
pub(super) const FIRST_GUEST: u32 = MAX_THREADS as u32 - ROOMS;

/// So many threads can have an id.
pub const MOST_THREADS: u32 = FIRST_GUEST - 1;

/// BOUND: a word each; two locks in use that share one make each other's threads stay away longer.
const AWAYS: usize = 256;

pub(super) const ARENA_AT: usize = size_of::<Local>();
const THREADS_AT: usize = ARENA_AT + size_of::<Arena>();
const RINGS_AT: usize = (THREADS_AT + MAX_THREADS * size_of::<Thread>()).next_multiple_of(4096);
pub(super) const SIZE: usize = RINGS_AT + MAX_THREADS * perf::RING;

/// BOUND: of a limited address space, the part of it that is for rings; and the fewest rings.
const RINGS_PART: usize = 128;
const FEWEST_RINGS: usize = 64;

/// How many rings there is room for, under this limit of address space (`ulimit -v`). Threads need stacks of
/// it, which are larger.
fn rings(limit: libc::rlim_t) -> usize {
    match usize::try_from(limit).unwrap_or(usize::MAX) / RINGS_PART / perf::RING {
        part if part < FIRST_GUEST as usize => part.max(FEWEST_RINGS),
        _ => MAX_THREADS,
    }
}

/// Bytes of a space with so many rings.
const fn size(rings: usize) -> usize {
    RINGS_AT + rings * perf::RING
}

/// A view, and above it how often one was set: who has lost one does not end the same one that came back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Chosen(u32);

/// The part of [`Chosen`] that is the view.
const VIEW: u32 = 0xff;

impl Chosen {
    #[inline(always)]
    pub(super) fn view(self) -> View {
        View::from_u32(self.0 & VIEW)
    }
}

/// The process's space.
#[derive(Clone, Copy)]
pub struct Registry {
    pub(super) start: NonNull<u8>,
}

/// The registry, if it has been set up in this process (and not only in its parent).
#[inline(always)]
pub fn live() -> Option<Registry> {
    vacant().err()
}

/// The space that another one may be put in the place of, for [`publish`]: null, or a wiped copy of our
/// parent's (I1). Else the one that is live. One look at SPACE decides both: between two, another thread
/// may have set its space up, and would be left alone in it.
#[inline(always)]
pub(super) fn vacant() -> Result<*mut u8, Registry> {
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
        if let Some(owner) = lent::lender() {
            let start = NonNull::new((owner.space)())?;
            // ORDER: Release, as in `publish`. Whoever was faster has stored the same.
            SPACE.store(start.as_ptr(), Release);
            return Some(Registry { start });
        }
        let new = build(Request::from_environment().without_bpf())?;
        if let Some(registry) = publish(old, new) {
            return Some(registry);
        }
    }
}

/// A space of our own that nobody knows yet.
pub(super) fn build(view: View) -> Option<Registry> {
    let errno = futex::Errno::save();
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a fresh mapping, which is ours; and a structure that lives across the call.
    let (registry, rings) = unsafe {
        // Not by the C library's function, which may have to be looked up first: we may be in a lock's wait.
        libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_AS, null::<libc::rlimit>(), &mut limit);
        let rings = rings(limit.rlim_cur);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let start = memory::map(null_mut(), size(rings), libc::PROT_READ, flags, -1);
        if start == libc::MAP_FAILED {
            return None;
        }
        if !memory::protect(start, RINGS_AT, libc::PROT_READ | libc::PROT_WRITE)
            || !memory::advise(start, RINGS_AT, libc::MADV_WIPEONFORK)
        {
            memory::unmap(start, size(rings));
            return None;
        }
        (Registry { start: NonNull::new(start.cast())? }, rings)
    };
    drop(errno);
    let local = registry.local();
    let generation = next_generation(TOLD.load(Relaxed)) as u32;
    local.generation.store(generation, Relaxed);
    local.epoch.store(generation << VIEWS | 1, Relaxed);
    local.high_water.store(1, Relaxed);
    local.most.store(FIRST_GUEST.min(rings as u32), Relaxed);
    local.free_from.0.store(1, Relaxed);
    local.next_lease.store(1, Relaxed);
    local.placeless.store((view == View::None) as u32, Relaxed);
    registry.head(view);
    Some(registry)
}

/// In an epoch: below it the number of times that the view has changed; above it the generation.
pub(super) const VIEWS: u32 = 12;

/// Makes `new` the space of this process, if it still is `old`.
pub(super) fn publish(old: *mut u8, new: Registry) -> Option<Registry> {
    // ORDER: Release, pairs with the Acquire in `live`.
    match SPACE.compare_exchange(old, new.start.as_ptr(), Release, Relaxed) {
        Ok(_) => {
            new.told();
            if !old.is_null() {
                let _errno = futex::Errno::save();
                close_observer();
            }
            Some(new)
        }
        Err(_) => {
            // SAFETY: nobody has seen it.
            unsafe { new.unmap() };
            None
        }
    }
}

/// The number of this process: another one than that of the process that it is a copy of, which is in the
/// upper half of `told`. Who shares our memory, after `vfork`, has ours. A process id can say neither: in a
/// new namespace of them it may be the parent's again.
fn process(told: u64) -> u64 {
    let page = &ROOM[(&raw const ROOM).addr().wrapping_neg() % PAGE / size_of::<AtomicU32>()];
    if WIPES.load(Relaxed) == 0 {
        let _errno = futex::Errno::save();
        // The kernel wipes whole pages of its own, in which other variables may be.
        // SAFETY: a whole page, and ours; a kernel that refuses changes nothing but errno.
        let done = unsafe {
            libc::getauxval(libc::AT_PAGESZ) as usize == PAGE
                && memory::advise(core::ptr::from_ref(page).cast_mut().cast(), PAGE, libc::MADV_WIPEONFORK)
        };
        // The first answer counts, for our children too.
        let _ = WIPES.compare_exchange(0, if done { YES } else { NO }, Relaxed, Relaxed);
    }
    if WIPES.load(Relaxed) == NO {
        // SAFETY: no arguments.
        return unsafe { libc::syscall(libc::SYS_getpid) } as u64;
    }
    let next = ((told >> 32) as u32).wrapping_add(1).max(1);
    page.compare_exchange(0, next, Relaxed, Relaxed).map_or_else(u64::from, |_| u64::from(next))
}

/// What this process, having no space, is to store in [`TOLD`], which is `told`.
fn next_generation(told: u64) -> u64 {
    let process = process(told);
    if told >> 32 == process { told } else { process << 32 | (told as u32).wrapping_add(1) as u64 }
}

/// How often this process is a forked copy, modulo 8. See the module's Generation. Makes no space: libraries
/// that a program loads ask before [`super::prepare`], which chooses the view of the space.
pub fn generation() -> u32 {
    loop {
        match live().map(|registry| registry.told()) {
            // Wiped since: a signal handler has forked, and this is the child.
            Some(0) => continue,
            Some(generation) => return generation % 8,
            // No space: a copy is the next generation all the same.
            None => {
                // ORDER: Acquire, pairs with the Release in `told`: if a space's number is here, `live`
                // finds the space.
                let told = TOLD.load(Acquire);
                let next = next_generation(told);
                if live().is_none() && TOLD.compare_exchange(told, next, Relaxed, Relaxed).is_ok() {
                    return next as u32 % 8;
                }
            }
        }
    }
}

/// See [`platform::Platform::away`]. In the space, so that a forked copy, in which nobody is away, starts
/// at 0.
pub fn away(lock: *const ()) -> &'static AtomicU32 {
    static NOWHERE: AtomicU32 = AtomicU32::new(0);
    live().map_or(&NOWHERE, |registry| &registry.local().away[futex::hash(lock.addr()) as usize % AWAYS])
}

/// See [`platform::Platform::room`]. In the space, so that a forked copy, in which nobody waits, has none
/// that is in use.
pub fn room(number: u32) -> Option<Room<Linux>> {
    let RoomWords { lock, users, turn } = live()?.local().rooms.get(number as usize)?;
    Some(Room { lock, users, turn, guest: ThreadId(FIRST_GUEST + number) })
}

/// See [`platform::Platform::word`]. A thread block that nobody uses if there is no memory for blocks at all.
#[inline]
pub fn word(id: ThreadId, index: usize) -> &'static AtomicU32 {
    static NOWHERE: [AtomicU32; 8] = [const { AtomicU32::new(0) }; 8];
    match live().or_else(ensure) {
        Some(registry) => &registry.own(id).words[index],
        None => &NOWHERE[index],
    }
}

impl Registry {
    #[inline(always)]
    pub(super) fn local(&self) -> &'static Local {
        // SAFETY: the space starts with a Local, zeros are a valid one, and it is never unmapped once
        // published.
        unsafe { self.start.cast().as_ref() }
    }

    #[inline(always)]
    pub(super) fn thread(&self, id: ThreadId) -> &'static Thread {
        // The mask costs less than a branch and keeps every id inside; all ids in use are below the limit.
        let index = id.0 as usize & (MAX_THREADS - 1);
        // SAFETY: inside the space, which is never unmapped; zeros are a valid Thread, and its fields are
        // atomics.
        unsafe { &*self.start.as_ptr().add(THREADS_AT).cast::<Thread>().add(index) }
    }

    /// The thread's private line.
    #[inline(always)]
    pub(super) fn own(&self, id: ThreadId) -> &'static Own {
        // The mask as for `thread`; it lets the compiler leave the check of the bound out.
        &self.local().own[id.0 as usize & (MAX_THREADS - 1)]
    }

    pub(super) fn arena(&self) -> &'static Arena {
        // SAFETY: as for `thread`.
        unsafe { &*self.start.as_ptr().add(ARENA_AT).cast::<Arena>() }
    }

    #[inline(always)]
    pub(super) fn slot(&self, id: ThreadId) -> Slot {
        let index = id.0 as usize & (MAX_THREADS - 1);
        // One that no thread has may lie behind the space. Another program may have the block say that it
        // runs (I6): ring 0 is nobody's, and always there.
        let rings = self.rings();
        let ring = if index < rings { RINGS_AT + index * perf::RING } else { RINGS_AT };
        let ring = self.start.as_ptr().wrapping_add(ring);
        Slot { id, block: self.thread(id), ring, enrolment: self.local().enrolment.load(Relaxed) }
    }

    /// How many are mapped.
    #[inline(always)]
    fn rings(&self) -> usize {
        match self.local().most.load(Relaxed) {
            FIRST_GUEST => MAX_THREADS,
            rings => rings as usize,
        }
    }

    /// # Safety
    /// [`build`] has made it, and nobody uses it.
    pub(super) unsafe fn unmap(self) {
        let rings = self.rings();
        // SAFETY: as promised; this is its size.
        unsafe { memory::unmap(self.start.as_ptr().cast(), size(rings)) };
    }

    /// Writes the arena's header.
    pub(super) fn head(&self, view: View) {
        let arena = self.arena();
        arena.version.store(abi::VERSION, Relaxed);
        arena.arena_size.store(size_of::<Arena>() as u32, Relaxed);
        arena.thread_size.store(size_of::<Thread>() as u32, Relaxed);
        arena.max_threads.store(MAX_THREADS as u32, Relaxed);
        self.set_partition(processors::available(), processors::changes());
        arena.magic.store(abi::MAGIC, Relaxed);
        self.set_view(view);
    }

    pub(super) fn set_view(&self, view: View) {
        self.arena().view.store(view as u32, Relaxed);
        let word = &self.local().view;
        let times = (word.load(Relaxed) & !VIEW).wrapping_add(VIEW + 1);
        // ORDER: Release, pairs with the Acquire in `chosen`; what threads enrol with comes before.
        word.store(times | view as u32, Release);
    }

    /// The view, for who goes on to attach a thread, and may have to [`Registry::lose`] it.
    pub(super) fn chosen(&self) -> Chosen {
        // ORDER: Acquire, pairs with the Release in `set_view`; the thread enrols with what this view has.
        Chosen(self.local().view.load(Acquire))
    }

    /// Goes over from one view to the next. False if it is another one by now, or was set anew.
    pub(super) fn go_over(&self, from: Chosen, to: View) -> bool {
        let next = from.0 & !VIEW | to as u32;
        let gone = self.local().view.compare_exchange(from.0, next, Relaxed, Relaxed).is_ok();
        if gone {
            self.arena().view.store(to as u32, Relaxed);
        }
        gone
    }

    /// The generation, recorded for our children.
    pub(super) fn told(&self) -> u32 {
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
        Chosen(self.local().view.load(Relaxed)).view()
    }

    /// Is the partition block another's to write? It says from its first moment.
    pub(super) fn partition_is_kept(&self) -> bool {
        self.arena().partition.threads_per_processor.load(Relaxed) != 0
    }

    /// HINT: is the arena one that a scheduler fills, whether or not a thread has enrolled yet?
    #[inline]
    pub(super) fn is_schedulers(&self) -> bool {
        self.view() == View::Bpf && self.partition_is_kept()
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

    /// Every id that was ever used.
    pub(super) fn ids(&self) -> impl Iterator<Item = ThreadId> + use<> {
        (1..self.local().high_water.load(Relaxed).min(MAX_THREADS as u32)).map(ThreadId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_limit_of_address_space_leaves_most_of_it_to_the_program() {
        assert_eq!(size(rings(libc::RLIM_INFINITY)), SIZE);
        for limit in [0, 60_000 << 10, 256 << 20, 1 << 30, 3 << 30, 4 << 30, 1 << 40] {
            let size = size(rings(limit)) - RINGS_AT;
            assert!(size <= FEWEST_RINGS * perf::RING || size <= limit as usize / 100, "{limit}: {size}");
        }
        assert_eq!((rings(60_000 << 10), rings(1 << 30), rings(1 << 40)), (64, 1_024, MAX_THREADS));
    }

    #[test]
    fn what_is_built_goes_whole() {
        let mapped = |at: *mut u8| {
            let mut resident = 0u8;
            // SAFETY: one page, one byte.
            unsafe { libc::syscall(libc::SYS_mincore, at, PAGE, &raw mut resident) == 0 }
        };
        let registry = build(View::None).unwrap();
        let last = registry.start.as_ptr().wrapping_add(SIZE - PAGE);
        assert!(mapped(last) && registry.local().most.load(Relaxed) == FIRST_GUEST);
        // SAFETY: nobody else has it.
        unsafe { registry.unmap() };
    }
}
