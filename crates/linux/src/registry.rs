// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arena of this process and the threads in it.
//!
//! Threads register on their first contended operation and unregister when they exit. Everything here may be
//! called from inside `malloc` and from a lock's slow path: system calls and atomics only, no allocation, no lock.
//!
//! **Fork.** The [`Local`] page is `MADV_WIPEONFORK`: in a child, however it was made, it reads as zeros, so that `state` is
//! [`UNSET`] and the first contended operation sets everything up anew. The perf rings do not survive a fork (the
//! kernel marks them VM_DONTCOPY), so they must not be read before that check; every reader goes through
//! [`live`]. A stale thread id in the child's thread-local word is found out because its block is empty.

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use abi::{Arena, MAX_THREADS, RunState, Thread, View};
use platform::ThreadId;

use crate::{processors, tls, view::perf};

/// Values of [`Local::state`].
const UNSET: u32 = 0;
const BUSY: u32 = 1;
const READY: u32 = 2;

/// Set-ups so far in this line of processes: survives a fork, where [`Local`] does not.
static SET_UPS: AtomicU32 = AtomicU32::new(0);

/// How often this process is a forked copy, modulo 8. Not exact where nobody looked between two forks: then nothing was queued either.
pub fn generation() -> u32 {
    if live().is_none() {
        register();
    }
    SET_UPS.load(Relaxed) % 8
}

/// See [`platform::Platform::queue_word`].
#[inline]
pub fn queue_word(id: ThreadId, index: usize) -> &'static AtomicU32 {
    // ORDER: Acquire, as in `live`; whoever has an id knows that the space is there.
    let start = NonNull::new(SPACE_START.load(Acquire)).expect("a thread id comes from a registry");
    &Registry { start }.thread(id).queue[index]
}

/// What only this process sees; zeros in a forked child.
#[repr(C, align(4096))]
struct Local {
    state: AtomicU32,
    view: AtomicU32,
    /// Blocks at and above this were never used.
    high_water: AtomicU32,
    /// Threads for which there was no block or no event.
    unseen: AtomicU32,
}

/// Our address space: the local page, then the arena with its thread blocks, then a perf ring for each block.
const ARENA_AT: usize = size_of::<Local>();
const THREADS_AT: usize = ARENA_AT + size_of::<Arena>();
const RINGS_AT: usize = (THREADS_AT + MAX_THREADS * size_of::<Thread>()).next_multiple_of(4096);
const SPACE: usize = RINGS_AT + MAX_THREADS * perf::RING;

/// Start of our address space; null before the first use. Never unmapped.
static SPACE_START: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// The process's arena, ready for use.
#[derive(Clone, Copy)]
pub struct Registry {
    start: NonNull<u8>,
}

/// The arena, if it has been set up in this process (and not only in its parent).
#[inline]
pub fn live() -> Option<Registry> {
    // ORDER: Acquire, pairs with the Release in `space`; publishes the mapping.
    let registry = Registry { start: NonNull::new(SPACE_START.load(Acquire))? };
    // ORDER: Acquire, pairs with the Release in `set_up`; publishes the view.
    (registry.local().state.load(Acquire) == READY).then_some(registry)
}

impl Registry {
    #[inline]
    fn local(&self) -> &Local {
        // SAFETY: the space starts with a Local, zeros are a valid one, and it is never unmapped.
        unsafe { self.start.cast().as_ref() }
    }

    #[inline]
    fn thread(&self, id: ThreadId) -> &'static Thread {
        assert!((id.0 as usize) < MAX_THREADS);
        // SAFETY: inside the space, which is never unmapped; zeros are a valid Thread, and its fields are atomics.
        unsafe { &*self.start.as_ptr().add(THREADS_AT).cast::<Thread>().add(id.0 as usize) }
    }

    fn arena(&self) -> &Arena {
        // SAFETY: as for `thread`.
        unsafe { &*self.start.as_ptr().add(ARENA_AT).cast::<Arena>() }
    }

    #[inline]
    fn ring(&self, id: ThreadId) -> *mut u8 {
        // SAFETY: as for `thread`.
        unsafe { self.start.as_ptr().add(RINGS_AT + id.0 as usize * perf::RING) }
    }

    /// Which view fills this arena.
    pub fn view(&self) -> View {
        View::from_u32(self.local().view.load(Relaxed))
    }

    /// HINT: see [`platform::Platform::run_state`].
    #[inline]
    pub fn run_state(&self, id: ThreadId) -> RunState {
        if id.0 == 0 || id.0 as usize >= MAX_THREADS {
            return RunState::Unknown;
        }
        let state = self.thread(id).run_state.load(Relaxed);
        match RunState::from_u32(state) {
            // In the perf view the owner writes Running once, meaning "the ring knows".
            RunState::Running if self.local().view.load(Relaxed) == View::Perf as u32 => {
                // SAFETY: the ring's pages are always mapped: by perf or, before and after, anonymously; and
                // `live` found that this is not a forked child, where they are not.
                unsafe { perf::run_state(self.ring(id)) }
            }
            state => state,
        }
    }

    /// HINT: is a thread with a priority above `than` preempted?
    pub fn higher_preempted(&self, than: u32) -> bool {
        let end = self.local().high_water.load(Relaxed).min(MAX_THREADS as u32);
        (1..end)
            .map(ThreadId)
            .any(|id| self.thread(id).priority.load(Relaxed) > than && self.run_state(id) == RunState::Preempted)
    }

    /// A word that the application writes in a thread's block.
    #[inline]
    pub fn priority(&self, id: ThreadId) -> &AtomicU32 {
        &self.thread(id).priority
    }

    /// How many locks it holds that raised its priority.
    #[inline]
    pub fn holds(&self, id: ThreadId) -> &'static AtomicU32 {
        &self.thread(id).holds
    }

    /// The KE-1 wish of a thread.
    #[inline]
    pub fn wish(&self, id: ThreadId) -> &AtomicU32 {
        &self.thread(id).wish
    }

    /// The KE-2 warning of a thread.
    #[inline]
    pub fn warning(&self, id: ThreadId) -> &AtomicU32 {
        &self.thread(id).warning
    }

    /// Registers the calling thread in a free block; index 0 if there is none.
    fn add(&self) -> ThreadId {
        // SAFETY: no arguments.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
        for index in 1..MAX_THREADS as u32 {
            let id = ThreadId(index);
            let block = self.thread(id);
            let owner = &block.tid;
            // ORDER: Acquire, pairs with the Release in `remove`: its detach comes before our attach.
            if owner.load(Relaxed) != 0 || owner.compare_exchange(0, tid, Acquire, Relaxed).is_err() {
                continue;
            }
            self.local().high_water.fetch_max(index + 1, Relaxed);
            block.priority.store(abi::Priority::Running as u32, Relaxed);
            block.wish.store(abi::Wish::Preemptable as u32, Relaxed);
            block.holds.store(0, Relaxed);
            let seen = match self.view() {
                // SAFETY: the ring belongs to the block, which is ours now.
                View::Perf => unsafe { perf::attach(self.ring(id)) },
                _ => false,
            };
            let state = if seen { RunState::Running } else { RunState::Unknown };
            block.run_state.store(state as u32, Relaxed);
            if !seen && self.view() != View::None {
                self.local().unseen.fetch_add(1, Relaxed);
            }
            return id;
        }
        self.local().unseen.fetch_add(1, Relaxed);
        ThreadId::NONE
    }

    /// Frees the block of the calling thread.
    fn remove(&self, id: ThreadId) {
        let block = self.thread(id);
        block.run_state.store(RunState::Unknown as u32, Relaxed);
        if self.view() == View::Perf {
            // SAFETY: the ring belongs to the block, which is still ours.
            unsafe { perf::detach(self.ring(id)) };
        }
        // ORDER: Release, pairs with the Acquire in `add`.
        block.tid.store(0, Release);
    }

    fn owns(&self, id: ThreadId) -> bool {
        id.0 != 0 && self.thread(id).tid.load(Relaxed) != 0
    }
}

/// The address space, mapped on first use.
fn space() -> Option<Registry> {
    if let Some(start) = NonNull::new(SPACE_START.load(Acquire)) {
        return Some(Registry { start });
    }
    // SAFETY: a fresh anonymous mapping; WIPEONFORK is set before anybody else can see it.
    let start = unsafe {
        let start = libc::mmap(
            null_mut(),
            SPACE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        if start == libc::MAP_FAILED {
            return None;
        }
        libc::madvise(start, RINGS_AT, libc::MADV_WIPEONFORK);
        start.cast::<u8>()
    };
    // ORDER: Release, pairs with the Acquire in `live`.
    match SPACE_START.compare_exchange(null_mut(), start, AcqRel, Acquire) {
        Ok(_) => NonNull::new(start).map(|start| Registry { start }),
        Err(other) => {
            // SAFETY: ours, and nobody has seen it.
            unsafe { libc::munmap(start.cast(), SPACE) };
            NonNull::new(other).map(|start| Registry { start })
        }
    }
}

/// Sets the arena up in this process, with the view that the environment asks for. `None` while another thread is doing it.
fn set_up() -> Option<Registry> {
    let registry = space()?;
    let local = registry.local();
    if local.state.compare_exchange(UNSET, BUSY, Acquire, Acquire).is_err() {
        return live();
    }
    // A forked child finds the rings unmapped; map the whole range afresh.
    // SAFETY: the range is ours, and no thread of this process reads a ring before `state` is READY.
    unsafe {
        libc::mmap(
            registry.start.as_ptr().add(RINGS_AT).cast(),
            MAX_THREADS * perf::RING,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    SET_UPS.fetch_add(1, Relaxed);
    local.high_water.store(1, Relaxed);
    let view = crate::requested_view();
    local.view.store(view as u32, Relaxed);
    let arena = registry.arena();
    arena.magic.store(abi::MAGIC, Relaxed);
    arena.version.store(abi::VERSION, Relaxed);
    arena.arena_size.store(size_of::<Arena>() as u32, Relaxed);
    arena.thread_size.store(size_of::<Thread>() as u32, Relaxed);
    arena.max_threads.store(MAX_THREADS as u32, Relaxed);
    arena.view.store(view as u32, Relaxed);
    arena.partition.processors.store(processors::available(), Relaxed);
    // ORDER: Release, pairs with the Acquire in `live`.
    local.state.store(READY, Release);
    Some(registry)
}

/// The calling thread's id, registering it on first use.
pub fn register() -> ThreadId {
    let id = ThreadId(tls::id());
    if let Some(registry) = live()
        && registry.owns(id)
    {
        return id;
    }
    if tls::closed() {
        return ThreadId::NONE;
    }
    // A signal handler that comes here meanwhile must not register a second time.
    tls::set_closed(true);
    let id = match live().or_else(set_up) {
        Some(registry) => registry.add(),
        None => ThreadId::NONE,
    };
    tls::set_id(id.0);
    tls::set_closed(false);
    if id != ThreadId::NONE {
        at_exit::arm();
    }
    id
}

/// Unregisters the calling thread for good; it keeps working, unseen.
fn unregister() {
    let id = ThreadId(tls::id());
    tls::set_closed(true);
    tls::set_id(0);
    if let Some(registry) = live()
        && registry.owns(id)
    {
        registry.remove(id);
    }
}

/// Runs [`unregister`] when a thread exits.
mod at_exit {
    use core::ffi::c_void;
    use core::sync::atomic::{AtomicU32, Ordering::*};

    /// 1 + the key; 0: not made yet.
    static KEY: AtomicU32 = AtomicU32::new(0);

    unsafe extern "C" fn destructor(_: *mut c_void) {
        super::unregister();
    }

    fn key() -> Option<libc::pthread_key_t> {
        match KEY.load(Acquire) {
            0 => {
                let mut key = 0;
                // SAFETY: the pointer is valid and the destructor takes what a destructor takes.
                if unsafe { libc::pthread_key_create(&mut key, Some(destructor)) } != 0 {
                    return None;
                }
                match KEY.compare_exchange(0, key + 1, AcqRel, Acquire) {
                    Ok(_) => Some(key),
                    Err(other) => {
                        // SAFETY: ours, and unused.
                        unsafe { libc::pthread_key_delete(key) };
                        Some(other - 1)
                    }
                }
            }
            key => Some(key - 1),
        }
    }

    pub fn arm() {
        if let Some(key) = key() {
            // SAFETY: the key is live; any non-null value makes the destructor run.
            unsafe { libc::pthread_setspecific(key, core::ptr::without_provenance(1)) };
        }
    }
}
