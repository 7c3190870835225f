// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calling thread's ring: what it writes, and how it comes to have one. The layout is [`abi::profile`]'s.
//!
//! A forked child inherits the mapping and the thread-local word, and must not write into its parent's ring.
//! The word also says which process took the ring, and a page that the kernel zeroes in a child
//! (`MADV_WIPEONFORK`) says which process this is.
//!
//! The recorder asks the kernel about threads by the numbers that they write. In another PID namespace they
//! have other ones. So a process there writes nothing.

use core::ffi::{CStr, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*, compiler_fence};

use abi::environment::PROFILE;
use abi::profile::{
    CONTROLS_AT, Control, EVENTS, EVENTS_AT, Event, FREE, Header, Kind, LastRelease, MAGIC, READY, RINGS,
    SIZE, TAKEN, UNTOLD, UNTOLD_AT, Untold, VERSION,
};
use linux::memory;

const PAGE: usize = 4096;

/// The mapping; null without one.
static BASE: AtomicPtr<u8> = AtomicPtr::new(null_mut());
/// A word with this process's number; 0 in a child that has not asked yet.
static PROCESS: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

/// [`Header::every`], of which there are two, for `around.c`.
#[unsafe(no_mangle)]
static wakeful_profile_every: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

/// The thread's word: the process in its upper half, the ring and one in its lower half.
#[cfg(target_arch = "x86_64")]
mod word {
    use linux::{own_asm, own_variable};

    own_variable!("wakeful_ring", size 8, align 3);

    #[inline(always)]
    pub fn get() -> u64 {
        let value: u64;
        // SAFETY: reads this thread's own variable.
        unsafe {
            own_asm!("wakeful_ring", "mov {v}, qword ptr fs:[{a}]",
                v = lateout(reg) value, options(nostack, preserves_flags, readonly));
        }
        value
    }

    #[inline(always)]
    pub fn set(value: u64) {
        // SAFETY: writes this thread's own variable.
        unsafe {
            own_asm!("wakeful_ring", "mov qword ptr fs:[{a}], {v}",
                v = in(reg) value, options(nostack, preserves_flags));
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod word {
    use core::cell::Cell;

    std::thread_local! {
        static RING: Cell<u64> = const { Cell::new(0) };
    }

    pub fn get() -> u64 {
        RING.with(Cell::get)
    }

    pub fn set(value: u64) {
        RING.with(|ring| ring.set(value));
    }
}

/// In the lower half of the word: there was no free ring.
const NONE: u32 = u32::MAX;

/// Maps the file that the recorder names. 1 if there is one.
#[unsafe(no_mangle)]
extern "C" fn wakeful_profile_attach() -> c_int {
    let done = linux::server::variable(PROFILE, |path| {
        // BOUND: "/proc/PID/fd/N" has less than half of it.
        let mut buffer = [0u8; 64];
        buffer.get_mut(..path.len())?.copy_from_slice(path);
        attach(CStr::from_bytes_until_nul(&buffer).ok()?)
    });
    c_int::from(done.is_some())
}

fn attach(path: &CStr) -> Option<()> {
    const ACCESS: c_int = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: C strings, numbers, and mappings that are new and never unmapped once they are published.
    unsafe {
        // Whatever it is that has this name.
        let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
        let file = libc::open(path.as_ptr(), flags);
        if file < 0 {
            return None;
        }
        let mut about: libc::stat = core::mem::zeroed();
        let fits = libc::fstat(file, &mut about) == 0 && about.st_size == SIZE as libc::off_t;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        // The beginning first: all of it may find no room, and then the recorder has to know why.
        let first = if fits { memory::map(null_mut(), PAGE, ACCESS, flags, file) } else { libc::MAP_FAILED };
        let base = if first == libc::MAP_FAILED { first } else { whole(&*first.cast::<Header>(), file) };
        if first != libc::MAP_FAILED {
            memory::unmap(first, PAGE);
        }
        libc::close(file);
        if base == libc::MAP_FAILED {
            return None;
        }
        let header = &*base.cast::<Header>();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = memory::map(null_mut(), PAGE, ACCESS, flags, -1);
        let wipes = page != libc::MAP_FAILED && memory::advise(page, PAGE, libc::MADV_WIPEONFORK);
        if !wipes {
            memory::unmap(base, SIZE);
            if page != libc::MAP_FAILED {
                memory::unmap(page, PAGE);
            }
            return None;
        }
        // A child asks for its number, and whether it is in our namespace.
        (*page.cast::<AtomicU32>()).store(libc::syscall(libc::SYS_getpid) as u32, Relaxed);
        // A program that crashes does not write half a gigabyte of holes.
        memory::advise(base, SIZE, libc::MADV_DONTDUMP);
        PROCESS.store(page.cast(), Relaxed);
        wakeful_profile_every.store(header.every.as_ptr().cast_mut(), Relaxed);
        // ORDER: Release, pairs with the Acquire in `note`; publishes PROCESS.
        BASE.store(base.cast(), Release);
        header.processes.fetch_add(1, Relaxed);
    }
    Some(())
}

/// Maps the whole file, if it is one for us; else it is MAP_FAILED.
///
/// # Safety
/// A file of SIZE bytes.
unsafe fn whole(header: &Header, file: c_int) -> *mut c_void {
    if header.magic.load(Relaxed) != MAGIC || header.version.load(Relaxed) != VERSION {
        return libc::MAP_FAILED;
    }
    if !is_of_namespace(header) {
        header.elsewhere.fetch_add(1, Relaxed);
        return libc::MAP_FAILED;
    }
    // SAFETY: a fresh mapping.
    let base = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        memory::map(null_mut(), SIZE, access, libc::MAP_SHARED | libc::MAP_NORESERVE, file)
    };
    if base == libc::MAP_FAILED {
        header.unmapped.fetch_add(1, Relaxed);
    }
    base
}

/// Does this process have the numbers that the recorder knows?
fn is_of_namespace(header: &Header) -> bool {
    let namespace = header.namespace.load(Relaxed);
    // SAFETY: numbers and a C string; the structure lives across the call.
    unsafe {
        let mut about: libc::stat = core::mem::zeroed();
        namespace == 0
            || libc::stat(c"/proc/self/ns/pid".as_ptr(), &mut about) != 0
            || about.st_ino as u64 == namespace
    }
}

/// The calling thread's ring, and nobody else's as long as this is there.
struct Own {
    base: *mut u8,
    index: usize,
    control: &'static Control,
}

impl Own {
    /// None without a file, or without a free ring; or if this is a signal handler, and the thread has it.
    fn get() -> Option<Self> {
        // ORDER: Acquire, pairs with the Release in `attach`.
        let base = BASE.load(Acquire);
        if base.is_null() {
            return None;
        }
        let index = own(base)?;
        // SAFETY: `own` gives an index below RINGS.
        let control = unsafe { control(base, index) };
        if control.busy.load(Relaxed) != 0 {
            control.dropped.fetch_add(1, Relaxed);
            return None;
        }
        control.busy.store(1, Relaxed);
        // A signal handler of this thread sees it before what follows.
        compiler_fence(SeqCst);
        Some(Self { base, index, control })
    }

    /// What says who it is, in `around.c`; never 0.
    fn number(&self) -> u32 {
        self.index as u32 + 1
    }

    /// Writes an event; or counts that there is no room for it, and returns false.
    fn write(&self, time_ns: u64, what: u64, object: u64, caller: u64) -> bool {
        let control = self.control;
        let head = control.head.load(Relaxed);
        // ORDER: Acquire, pairs with the recorder's Release: it has read what we overwrite.
        if head.wrapping_sub(control.tail.0.load(Acquire)) >= EVENTS as u64 {
            control.dropped.fetch_add(1, Relaxed);
            return false;
        }
        let at = self.index * EVENTS + (head as usize & (EVENTS - 1));
        // SAFETY: below RINGS times EVENTS, so it lies in the mapping.
        let event = unsafe { &*self.base.add(EVENTS_AT).cast::<Event>().add(at) };
        event.time_ns.store(time_ns, Relaxed);
        event.object.store(object, Relaxed);
        event.caller.store(caller, Relaxed);
        event.what.store(what, Relaxed);
        // ORDER: Release, pairs with the recorder's Acquire; publishes the event.
        control.head.store(head.wrapping_add(1), Release);
        true
    }

    /// Events that the recorder has not read.
    fn unread(&self) -> u64 {
        self.control.head.load(Relaxed).wrapping_sub(self.control.tail.0.load(Relaxed))
    }

    /// Where it counts waits that it does not tell; there are so many.
    fn untold(&self, at: usize) -> &'static Untold {
        let at = self.index * UNTOLD + (at & (UNTOLD - 1));
        // SAFETY: below RINGS times UNTOLD, so it lies in the mapping, which stays. All of it are atomics.
        unsafe { &*self.base.add(UNTOLD_AT).cast::<Untold>().add(at) }
    }

    /// Makes an event of the last release.
    fn tell_release(&self) {
        if let Some(release) = self.control.take_back() {
            self.write_release(release);
        }
    }

    fn write_release(&self, (time_ns, what, object): LastRelease) -> bool {
        self.write(time_ns, what, object, 0)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        compiler_fence(SeqCst);
        self.control.busy.store(0, Relaxed);
    }
}

fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives across the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// Writes an event. Returns the number of the thread's ring; 0 if nothing was written.
#[unsafe(no_mangle)]
extern "C" fn wakeful_profile_note(what: u32, number: u32, object: usize, caller: usize) -> u32 {
    let time_ns = now_ns();
    let Some(own) = Own::get() else { return 0 };
    own.tell_release();
    let what = u64::from(what) | u64::from(number) << 32;
    if own.write(time_ns, what, object as u64, caller as u64) { own.number() } else { 0 }
}

/// Is the thread's ring half full? Then a wait is only counted, so that no event finds no room.
#[unsafe(no_mangle)]
extern "C" fn wakeful_profile_is_crowded() -> c_int {
    let Some(own) = Own::get() else { return 0 };
    c_int::from(own.unread() > EVENTS as u64 / 2)
}

/// The thread waited for so long, and does not tell it.
#[unsafe(no_mangle)]
extern "C" fn wakeful_profile_untold(ns: u64, what: u32, object: usize, caller: usize) {
    let Some(own) = Own::get() else { return };
    let first = (object >> 4 ^ caller).wrapping_mul(0x9e37_79b9) >> 8;
    let (object, caller, what) = (object as u64, caller as u64, u64::from(what));
    let mut all = (0..UNTOLD).map(|step| own.untold(first + step));
    if all.any(|words| words.add(object, caller, what, ns))
        || (0..UNTOLD).any(|at| own.untold(at).add_at_place(caller, what, ns))
    {
        own.control.has_untold.store(1, Release);
        return;
    }
    if own.unread() > EVENTS as u64 / 4 * 3 {
        // What is left is for those that end a wait that was told.
        own.control.dropped.fetch_add(1, Relaxed);
        return;
    }
    // BOUND: an hour.
    let us = (ns / 1000).min(u32::MAX.into());
    own.write(now_ns(), Kind::Counted as u64 | what | us << 32, object, caller);
}

/// The same at a time that is known.
#[unsafe(no_mangle)]
extern "C" fn wakeful_profile_note_at(time_ns: u64, what: u32, number: u32, object: usize, caller: usize) {
    let Some(own) = Own::get() else { return };
    own.tell_release();
    own.write(time_ns, u64::from(what) | u64::from(number) << 32, object as u64, caller as u64);
}

/// The thread is about to release a lock for which others wait, and which was taken `number` times.
#[unsafe(no_mangle)]
extern "C" fn wakeful_profile_released(what: u32, number: u32, object: usize) {
    let time_ns = now_ns();
    let Some(own) = Own::get() else { return };
    own.tell_release();
    own.control.put_release((time_ns, u64::from(what) | u64::from(number) << 32, object as u64));
}

/// The thread has taken a lock for which others wait, without having waited. `holder` has the number of the
/// ring of the thread that was known to have it last; 0 if somebody else may have had it since, or if the
/// recorder does not know who has it.
///
/// # Safety
/// `holder` points to a word.
#[unsafe(no_mangle)]
unsafe extern "C" fn wakeful_profile_took(what: u32, number: u32, object: usize, holder: *const AtomicU32) {
    // SAFETY: as promised.
    let holder = unsafe { &*holder };
    let Some(own) = Own::get() else {
        holder.store(0, Relaxed);
        return;
    };
    let mut is_told = true;
    if let Some(release) = own.control.take_back() {
        if release.2 == object as u64 && holder.load(Relaxed) == own.number() {
            return;
        }
        is_told = own.write_release(release);
    }
    is_told &= own.write(now_ns(), u64::from(what) | u64::from(number) << 32, object as u64, 0);
    holder.store(if is_told { own.number() } else { 0 }, Relaxed);
}

/// # Safety
/// A mapping of the file, and an index below RINGS.
unsafe fn control<'a>(base: *mut u8, index: usize) -> &'a Control {
    // SAFETY: as promised; the mapping stays, and all of it are atomics.
    unsafe { &*base.add(CONTROLS_AT).cast::<Control>().add(index) }
}

/// The calling thread's ring. It takes one, if it has none yet.
fn own(base: *mut u8) -> Option<usize> {
    // SAFETY: PROCESS is published before BASE.
    let process = unsafe { &*PROCESS.load(Relaxed) }.load(Relaxed);
    let word = word::get();
    if process != 0 && (word >> 32) as u32 == process {
        let ring = word as u32;
        return (ring != NONE).then_some(ring as usize - 1);
    }
    take(base)
}

#[cold]
#[inline(never)]
fn take(base: *mut u8) -> Option<usize> {
    // SAFETY: no arguments. Past the C library, which may not know of a bare clone(2).
    let (process, thread) =
        unsafe { (libc::syscall(libc::SYS_getpid) as u32, libc::syscall(libc::SYS_gettid) as u32) };
    // SAFETY: the mapping begins with the header.
    let header = unsafe { &*base.cast::<Header>() };
    // SAFETY: as in `own`.
    let known = unsafe { &*PROCESS.load(Relaxed) };
    // A forked child, for the first time.
    if known.load(Relaxed) == 0 && !is_of_namespace(header) {
        header.elsewhere.fetch_add(1, Relaxed);
        // ORDER: Release, as in `attach`; from now on this process writes nothing.
        BASE.store(null_mut(), Release);
        return None;
    }
    known.store(process, Relaxed);
    let first = header.next.fetch_add(1, Relaxed) as usize;
    for step in 0..RINGS {
        let index = (first + step) % RINGS;
        // SAFETY: below RINGS.
        let control = unsafe { control(base, index) };
        // ORDER: Acquire, pairs with the recorder's Release when it frees a ring.
        if control.state.load(Relaxed) == FREE
            && control.state.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok()
        {
            control.process.store(process, Relaxed);
            control.thread.store(thread, Relaxed);
            // The last one may have been killed at work.
            control.busy.store(0, Relaxed);
            // ORDER: Release, pairs with the recorder's Acquire; publishes who we are.
            control.state.store(READY, Release);
            word::set(u64::from(process) << 32 | (index as u64 + 1));
            return Some(index);
        }
    }
    header.without_ring.fetch_add(1, Relaxed);
    word::set(u64::from(process) << 32 | u64::from(NONE));
    None
}
