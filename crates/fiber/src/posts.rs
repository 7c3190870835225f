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
//! `conformance`: loom, shuttle, where a thread runs its handler before any of its steps; twins are caught
//! whose handler does not ask, that make up for nothing, or too early, that are busy late, and that keep one
//! word of two. And `tests/visits.rs`, by signals that come all the time.

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

/// The words of one thread. Each step is one instruction: no handler runs in the midst of it.
pub trait Words {
    /// One section more.
    fn add(&self);
    /// One less.
    fn subtract(&self);
    /// `busy`, and `count` above it.
    fn state(&self) -> u64;
    /// Which one was put off.
    fn word(&self) -> usize;
    /// It is this one.
    fn set_word(&self, word: usize);
    /// Makes it this one if it is 0. Returns what it was.
    fn claim(&self, word: usize) -> usize;
    /// Nothing was put off.
    fn clear_count(&self);
    /// So many more were.
    fn count(&self, more: u32);
}

/// The protocol: B1, B2, H1, H2.
pub trait Posts: Words {
    /// Runs a section that a wake-up may need: B1, B2. It does not switch.
    #[inline(always)]
    fn busy<T>(&self, section: impl FnOnce() -> T, make_up: impl FnOnce(PutOff)) -> T {
        self.add();
        let result = section();
        self.subtract();
        let state = self.state();
        if state != 0 && state as u32 == 0 {
            self.make_up(make_up);
        }
        result
    }

    /// H1. False: the thread is in no section, and the caller wakes.
    fn put_off(&self, word: usize, count: u32) -> bool {
        if self.state() as u32 == 0 {
            return false;
        }
        // H2.
        let was = self.claim(word);
        if was != 0 && was != word {
            self.set_word(ALL);
        }
        self.count(count.max(1));
        true
    }

    /// B2. In no section a handler puts nothing off. One that comes in between may do this first.
    #[cold]
    #[inline(never)]
    fn make_up(&self, make_up: impl FnOnce(PutOff)) {
        let (count, word) = ((self.state() >> 32) as u32, self.word());
        self.set_word(0);
        self.clear_count();
        if count != 0 {
            make_up(match word {
                ALL => PutOff::All,
                word => PutOff::Some(core::ptr::without_provenance(word), count),
            });
        }
    }
}

impl<W: Words> Posts for W {}

/// Those of the calling thread.
struct Own;

static MAKE_UP: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// To be called before there are guests.
pub(crate) fn prepare(make_up: MakeUp) {
    MAKE_UP.store(make_up as *mut (), Relaxed);
}

#[cfg(target_arch = "x86_64")]
mod own {
    use linux::{own_asm, own_variable};

    // `busy` and `count` of 32 bits, `word` of 64.
    own_variable!("wakeful_busy", size 16, align 3);

    impl super::Words for super::Own {
        #[inline(always)]
        fn add(&self) {
            // SAFETY: this thread's own variable.
            unsafe { own_asm!("wakeful_busy", "add dword ptr fs:[{a}], 1", options(nostack)) };
        }

        #[inline(always)]
        fn subtract(&self) {
            // SAFETY: as above.
            unsafe { own_asm!("wakeful_busy", "sub dword ptr fs:[{a}], 1", options(nostack)) };
        }

        #[inline(always)]
        fn state(&self) -> u64 {
            let value: u64;
            // SAFETY: as above.
            unsafe {
                own_asm!("wakeful_busy", "mov {v}, qword ptr fs:[{a}]",
                v = lateout(reg) value, options(nostack, preserves_flags));
            }
            value
        }

        fn word(&self) -> usize {
            let value: usize;
            // SAFETY: as above.
            unsafe {
                own_asm!("wakeful_busy", "mov {v}, qword ptr fs:[{a} + 8]",
                v = lateout(reg) value, options(nostack, preserves_flags));
            }
            value
        }

        fn set_word(&self, word: usize) {
            // SAFETY: as above.
            unsafe {
                own_asm!("wakeful_busy", "mov qword ptr fs:[{a} + 8], {v}",
                v = in(reg) word, options(nostack, preserves_flags));
            }
        }

        fn claim(&self, word: usize) -> usize {
            let mut was = 0;
            // SAFETY: as above.
            unsafe {
                own_asm!("wakeful_busy", "cmpxchg qword ptr fs:[{a} + 8], {v}",
                v = in(reg) word, inout("rax") was, options(nostack));
            }
            was
        }

        fn clear_count(&self) {
            // SAFETY: as above.
            unsafe {
                own_asm!("wakeful_busy", "mov dword ptr fs:[{a} + 4], 0", options(nostack, preserves_flags))
            };
        }

        fn count(&self, more: u32) {
            // SAFETY: as above.
            unsafe {
                own_asm!("wakeful_busy", "add dword ptr fs:[{a} + 4], {v:e}",
                    v = in(reg) more, options(nostack));
            }
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

    impl super::Words for super::Own {
        #[inline(never)]
        fn add(&self) {
            OWN.with(|own| own.0.fetch_add(1, Relaxed));
            compiler_fence(SeqCst);
        }

        #[inline(never)]
        fn subtract(&self) {
            compiler_fence(SeqCst);
            OWN.with(|own| own.0.fetch_sub(1, Relaxed));
            compiler_fence(SeqCst);
        }

        #[inline(never)]
        fn state(&self) -> u64 {
            OWN.with(|own| u64::from(own.0.load(Relaxed)) | u64::from(own.1.load(Relaxed)) << 32)
        }

        fn word(&self) -> usize {
            OWN.with(|own| own.2.load(Relaxed))
        }

        #[inline(never)]
        fn set_word(&self, word: usize) {
            OWN.with(|own| own.2.store(word, Relaxed));
        }

        #[inline(never)]
        fn claim(&self, word: usize) -> usize {
            let was = OWN.with(|own| own.2.compare_exchange(0, word, Relaxed, Relaxed));
            was.unwrap_or_else(|was| was)
        }

        #[inline(never)]
        fn clear_count(&self) {
            OWN.with(|own| own.1.store(0, Relaxed));
        }

        #[inline(never)]
        fn count(&self, more: u32) {
            OWN.with(|own| own.1.fetch_add(more, Relaxed));
        }
    }
}

/// [`Posts::busy`] in the calling thread.
#[inline(always)]
pub(crate) fn busy<T>(section: impl FnOnce() -> T) -> T {
    Own.busy(section, made_up)
}

/// [`Posts::put_off`] in the calling thread.
pub(crate) fn put_off(word: *const AtomicU32, count: u32) -> bool {
    Own.put_off(word.addr(), count)
}

fn made_up(put_off: PutOff) {
    let make_up = MAKE_UP.load(Relaxed);
    if !make_up.is_null() {
        // SAFETY: `prepare` has stored such a function.
        let make_up = unsafe { core::mem::transmute::<*mut (), MakeUp>(make_up) };
        make_up(put_off);
    }
}
