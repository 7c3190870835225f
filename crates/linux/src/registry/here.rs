// SPDX-License-Identifier: MIT OR Apache-2.0
//! Was a thread last on the caller's processor? Then it does not run: the caller does.
//!
//! The kernel writes the number of the processor into each thread's `struct rseq` before it lets the thread
//! go on in user mode (Linux 4.18; glibc registers one from 2.35 on). It costs the thread nothing, needs no
//! right, and tells of the commonest preemption of all: a thread that wakes or creates another one loses
//! its processor to it. Views see more, but only of threads that are worth a view (`watch`).
//!
//! A thread that registers leaves the word's address in its block. Whoever asks reads the word by a system
//! call that compares it, because the thread, and the memory with it, may be gone by then: then the answer
//! is no. HINT: a thread that has left this processor for another in the kernel still counts as here.

use core::sync::atomic::Ordering::*;

use platform::ThreadId;

use super::space::Registry;
use crate::{futex, slice};

impl Registry {
    /// Leaves the calling thread's word where others find it.
    pub(super) fn tell_place(&self, id: ThreadId) {
        let word = if self.local().placeless.load(Relaxed) == 0 { slice::processor_word() } else { None };
        self.own(id)
            .processor
            .store(word.map_or(0, |word| word.as_ptr().expose_provenance() as u64), Relaxed);
    }

    /// HINT: see the module.
    pub fn last_here(&self, id: ThreadId) -> bool {
        if id == ThreadId::NONE {
            return false;
        }
        let word = self.own(id).processor.load(Relaxed) as usize;
        match slice::processor_word() {
            Some(mine) if word != 0 => {
                futex::holds(core::ptr::with_exposed_provenance(word), mine.load(Relaxed))
            }
            _ => false,
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use core::sync::atomic::AtomicU32;
    use std::sync::mpsc::channel;

    use super::super::space::build;
    use super::*;
    use abi::View;

    /// Puts the calling thread on this processor; false if it may not be there.
    fn go_to(processor: usize) -> bool {
        // SAFETY: zeros are a valid set, and the call reads it; it stands on this stack.
        unsafe {
            let mut set: libc::cpu_set_t = core::mem::zeroed();
            libc::CPU_SET(processor, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) == 0
        }
    }

    /// A space in the hands of several threads, as a published one is.
    #[derive(Clone, Copy)]
    struct Shared(Registry);
    // SAFETY: all of it that threads share is atomic.
    unsafe impl Send for Shared {}

    impl Shared {
        fn registry(self) -> Registry {
            self.0
        }
    }

    /// What the caller hears of a thread that sleeps on the first of its processors: from there, from another
    /// one if there is, and once the thread is gone.
    fn answers(view: View) -> (bool, Option<bool>, bool) {
        let shared = Shared(build(view).unwrap());
        std::thread::spawn(move || {
            let registry = shared.registry();
            let mut processors = (0..1024).filter(|&processor| go_to(processor));
            let first = processors.next().unwrap();
            let (tell, told) = channel();
            let (end, ended) = channel::<()>();
            let sleeper = std::thread::spawn(move || {
                assert!(go_to(first));
                tell.send(shared.registry().add(false)).unwrap();
                let _ = ended.recv();
            });
            let id = told.recv().unwrap();
            let elsewhere = processors.next().map(|_| registry.last_here(id));
            assert!(go_to(first));
            let here = registry.last_here(id);
            drop(end);
            sleeper.join().unwrap();
            registry.free(id);
            (here, elsewhere, registry.last_here(id))
        })
        .join()
        .unwrap()
    }

    #[test]
    fn a_thread_that_sleeps_here_is_here() {
        if slice::processor_word().is_none() {
            return; // A C library without restartable sequences: nobody is told anything.
        }
        let (here, elsewhere, gone) = answers(View::Perf);
        assert!(here);
        assert_ne!(elsewhere, Some(true));
        assert!(!gone);
    }

    #[test]
    fn who_wants_to_know_nothing_is_told_nothing() {
        assert!(!answers(View::None).0);
    }

    #[test]
    fn a_word_that_is_gone_holds_nothing() {
        let word = AtomicU32::new(7);
        assert!(futex::holds(word.as_ptr(), 7) && !futex::holds(word.as_ptr(), 8));
        assert!(!futex::holds(core::ptr::without_provenance(4096), 0));
    }
}
