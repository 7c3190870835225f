// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wake-ups in signal handlers: POSIX lets them call `sem_post`, and a fiber may wait there.
//!
//! A handler may have interrupted its own thread in a section that the wake-up needs as well. So such
//! sections say so, and the handler leaves its wake-up to them.
//!
//! # State
//! Of each thread: `busy`, in how many such sections it is; `count` and `word`, what was put off. 0 in
//! `count`: nothing; [`ALL`] in `word`: wake-ups of several words.
//!
//! # Protocol
//! - B1. Before a section's lock: `busy` is one more. B2. After the release: one less. If it is 0 now and
//!   something was put off, that is done, and then forgotten.
//! - H1. A wake-up in a thread that is busy is put off.
//! - H2. First the word, then the count, each by one instruction: a handler may have interrupted another one.
//!
//! # Memory order
//! All is of one thread. The assembly, or a compiler's fence, keeps B1 before the lock and B2 behind it. A
//! handler before B2's subtraction puts off, which B2 sees. One after it wakes by itself. It may do what B2
//! is about to do as well: then there is a wake-up too many, and any wait may return without a cause.
//!
//! # Under the scheduler
//! What was put off waits for the section, which is short.
//!
//! # Fairness and space
//! 16 bytes a thread. Several words in one section wake all guests of the table. That is rare.
//!
//! # Rejected
//! Signals that are blocked meanwhile: two calls of the kernel a wait. A section that looks whether a handler
//! waits, without `busy`: a handler cannot tell its own thread's lock from another's.
//!
//! # Checked by
//! `tests/visits.rs`, by signals that come all the time.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

/// No address of a word.
const ALL: usize = 1;

/// Who makes up for what was put off.
pub type MakeUp = fn(PutOff);

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub enum PutOff {
    /// So many who wait for this word.
    Some(*const AtomicU32, u32),
    /// All guests.
    All,
}

static MAKE_UP: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// To be called before there are guests.
pub fn prepare(make_up: MakeUp) {
    MAKE_UP.store(make_up as *mut (), Relaxed);
}

#[cfg(target_arch = "x86_64")]
mod own {
    use linux::{own_asm, own_variable};

    // `busy` and `count` of 32 bits, `word` of 64.
    own_variable!("wakeful_busy", size 16, align 3);

    #[inline(always)]
    pub fn add() {
        // SAFETY: this thread's own variable.
        unsafe { own_asm!("wakeful_busy", "add dword ptr fs:[{a}], 1", options(nostack)) };
    }

    /// One instruction: no handler runs in the midst of it.
    #[inline(always)]
    pub fn subtract() {
        // SAFETY: as above.
        unsafe { own_asm!("wakeful_busy", "sub dword ptr fs:[{a}], 1", options(nostack)) };
    }

    /// `busy`, and `count` above it.
    #[inline(always)]
    pub fn state() -> u64 {
        let value: u64;
        // SAFETY: as above.
        unsafe {
            own_asm!("wakeful_busy", "mov {v}, qword ptr fs:[{a}]",
                v = lateout(reg) value, options(nostack, preserves_flags));
        }
        value
    }

    pub fn word() -> usize {
        let value: usize;
        // SAFETY: as above.
        unsafe {
            own_asm!("wakeful_busy", "mov {v}, qword ptr fs:[{a} + 8]",
                v = lateout(reg) value, options(nostack, preserves_flags));
        }
        value
    }

    pub fn set_word(word: usize) {
        // SAFETY: as above.
        unsafe {
            own_asm!("wakeful_busy", "mov qword ptr fs:[{a} + 8], {v}",
                v = in(reg) word, options(nostack, preserves_flags));
        }
    }

    /// Makes `word` this if it is 0. Returns what it was.
    pub fn claim(word: usize) -> usize {
        let mut was = 0;
        // SAFETY: as above.
        unsafe {
            own_asm!("wakeful_busy", "cmpxchg qword ptr fs:[{a} + 8], {v}",
                v = in(reg) word, inout("rax") was, options(nostack));
        }
        was
    }

    pub fn clear_count() {
        // SAFETY: as above.
        unsafe {
            own_asm!("wakeful_busy", "mov dword ptr fs:[{a} + 4], 0", options(nostack, preserves_flags))
        };
    }

    pub fn count(more: u32) {
        // SAFETY: as above.
        unsafe {
            own_asm!("wakeful_busy", "add dword ptr fs:[{a} + 4], {v:e}", v = in(reg) more, options(nostack));
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod own {
    use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*, compiler_fence};

    std::thread_local! {
        static OWN: (AtomicU32, AtomicU32, AtomicUsize) =
            const { (AtomicU32::new(0), AtomicU32::new(0), AtomicUsize::new(0)) };
    }

    #[inline(never)]
    pub fn add() {
        OWN.with(|own| own.0.fetch_add(1, Relaxed));
        compiler_fence(SeqCst);
    }

    #[inline(never)]
    pub fn subtract() {
        compiler_fence(SeqCst);
        OWN.with(|own| own.0.fetch_sub(1, Relaxed));
        compiler_fence(SeqCst);
    }

    #[inline(never)]
    pub fn state() -> u64 {
        OWN.with(|own| u64::from(own.0.load(Relaxed)) | u64::from(own.1.load(Relaxed)) << 32)
    }

    pub fn word() -> usize {
        OWN.with(|own| own.2.load(Relaxed))
    }

    #[inline(never)]
    pub fn set_word(word: usize) {
        OWN.with(|own| own.2.store(word, Relaxed));
    }

    #[inline(never)]
    pub fn claim(word: usize) -> usize {
        OWN.with(|own| own.2.compare_exchange(0, word, Relaxed, Relaxed)).unwrap_or_else(|was| was)
    }

    #[inline(never)]
    pub fn clear_count() {
        OWN.with(|own| own.1.store(0, Relaxed));
    }

    #[inline(never)]
    pub fn count(more: u32) {
        OWN.with(|own| own.1.fetch_add(more, Relaxed));
    }
}

/// Runs a section that a wake-up may need: B1, B2. It does not switch.
#[inline(always)]
pub fn busy<T>(section: impl FnOnce() -> T) -> T {
    own::add();
    let result = section();
    own::subtract();
    let state = own::state();
    if state != 0 && state as u32 == 0 {
        make_up();
    }
    result
}

/// H1. False: the thread is in no section, and the caller wakes.
pub fn put_off(word: *const AtomicU32, count: u32) -> bool {
    if own::state() as u32 == 0 {
        return false;
    }
    // H2.
    let was = own::claim(word.addr());
    if was != 0 && was != word.addr() {
        own::set_word(ALL);
    }
    own::count(count.max(1));
    true
}

/// B2. In no section a handler puts nothing off. One that comes in between may do this first.
#[cold]
#[inline(never)]
fn make_up() {
    let (count, word) = ((own::state() >> 32) as u32, own::word());
    own::set_word(0);
    own::clear_count();
    let make_up = MAKE_UP.load(Relaxed);
    if count != 0 && !make_up.is_null() {
        // SAFETY: `prepare` has stored such a function.
        let make_up = unsafe { core::mem::transmute::<*mut (), MakeUp>(make_up) };
        make_up(match word {
            ALL => PutOff::All,
            word => PutOff::Some(core::ptr::without_provenance(word), count),
        });
    }
}
