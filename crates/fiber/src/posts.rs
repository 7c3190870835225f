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

    pub fn put(word: usize, count: u32) {
        // SAFETY: as above.
        unsafe {
            own_asm!("wakeful_busy", "mov qword ptr fs:[{a} + 8], {v}",
                v = in(reg) word, options(nostack, preserves_flags));
            own_asm!("wakeful_busy", "mov dword ptr fs:[{a} + 4], {v:e}",
                v = in(reg) count, options(nostack, preserves_flags));
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod own {
    use core::sync::atomic::{Ordering::SeqCst, compiler_fence};
    use std::cell::Cell;

    std::thread_local! {
        static OWN: (Cell<u32>, Cell<u32>, Cell<usize>) =
            const { (Cell::new(0), Cell::new(0), Cell::new(0)) };
    }

    #[inline(never)]
    pub fn add() {
        OWN.with(|own| own.0.set(own.0.get() + 1));
        compiler_fence(SeqCst);
    }

    #[inline(never)]
    pub fn subtract() {
        compiler_fence(SeqCst);
        OWN.with(|own| own.0.set(own.0.get() - 1));
        compiler_fence(SeqCst);
    }

    #[inline(never)]
    pub fn state() -> u64 {
        OWN.with(|own| u64::from(own.0.get()) | u64::from(own.1.get()) << 32)
    }

    pub fn word() -> usize {
        OWN.with(|own| own.2.get())
    }

    #[inline(never)]
    pub fn put(word: usize, count: u32) {
        OWN.with(|own| {
            own.2.set(word);
            own.1.set(count);
        });
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
    let state = own::state();
    if state as u32 == 0 {
        return false;
    }
    match ((state >> 32) as u32, own::word()) {
        (0, _) => own::put(word.addr(), count.max(1)),
        (before, other) if other == word.addr() => own::put(other, before.saturating_add(count)),
        _ => own::put(ALL, u32::MAX),
    }
    true
}

/// B2. In no section a handler puts nothing off. One that comes in between may do this first.
#[cold]
#[inline(never)]
fn make_up() {
    let (count, word) = ((own::state() >> 32) as u32, own::word());
    own::put(0, 0);
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
