// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fibers as guests of kernel threads' locks: the crate's own, and the C library's under the interposer.
//!
//! Those algorithms run as they are. Where one sleeps and a fiber runs it, `linux::host` comes here, and the
//! fiber sleeps in the table of fibers, on the same word. Where one wakes, it wakes in the kernel and here.
//! `visits.rs` has the functions.
//!
//! # State
//! `waiting`: how many guests there are, or are about to be.
//!
//! # Invariants
//! - I1. A guest that sleeps on a word, or will without another look at it, is counted.
//!
//! # Protocol
//! - G1. Wait: count, fence, then F1 of `table.rs`, which looks at the word. G2. Afterwards: uncount.
//! - R1. Wake, after the word was changed: fence, look at the count. R2. If it is not 0: F3 of `table.rs`.
//!
//! # Memory order
//! G1 and R1 each write one word and read the other's, with a fence between. So R1 sees the guest, or F1 sees
//! the changed word. F1 and F3 are under one lock.
//!
//! # Under the scheduler
//! A guest that was woken may be pinned to a carrier that blocks; F3 prefers others. The algorithm has its
//! own means then, as for any waiter that is woken and does not run. HINT: to kernel threads a fiber that
//! holds a lock is a thread without an id.
//!
//! # Fairness and space
//! A wake-up goes to fibers and to kernel threads first, in turns.
//!
//! # Rejected
//! Guests that try a lock, and releases that look whether there are any: a load more in each release, and no
//! place in line. A lock that is not taken by trying, as a barrier, needs more.
//!
//! # Checked by
//! `conformance`: loom, shuttle; twins without fences, and that count late, are caught.

use core::ffi::c_void;
use core::marker::PhantomData;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering as Order};

use linux::Linux;
use linux::host::{self, Host};
use platform::{Atomic, AtomicInt, Ordering::*, Platform, Wide};

/// See the head of this file.
pub struct Guests<P: Platform> {
    waiting: P::AtomicU32,
    platform: PhantomData<P>,
}

impl<P: Wide> Guests<P> {
    /// Of a word that is 0.
    pub const fn of_word(waiting: P::AtomicU32) -> Self {
        Self { waiting, platform: PhantomData }
    }

    /// G1. The caller looks at the word that it waits for next.
    pub fn enter(&self) {
        self.waiting.fetch_add(1, Relaxed);
        // ORDER: SeqCst (G1), pairs with R1.
        P::fence(SeqCst);
    }

    /// G2.
    pub fn leave(&self) {
        self.waiting.fetch_sub(1, Relaxed);
    }

    /// R1. The caller changed the word before.
    pub fn any(&self) -> bool {
        // ORDER: SeqCst (R1), pairs with G1.
        P::fence(SeqCst);
        self.waiting.load(Relaxed) != 0
    }

    /// A forked child has no fibers.
    pub fn forget(&self) {
        self.waiting.store(0, Relaxed);
    }
}

/// Those of this process.
pub static GUESTS: Guests<Linux> = Guests::of_word(AtomicU32::new(0));

/// How they wait: see `visits.rs`.
static HOST: AtomicPtr<Host> = AtomicPtr::new(null_mut());

/// The interposer's function that takes a host, if it is loaded.
static INTERPOSER: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// To be called before the carriers of a runtime run.
pub fn prepare(host: &'static Host) {
    host::add(host);
    HOST.store(core::ptr::from_ref(host).cast_mut(), Order::Relaxed);
    INTERPOSER.store(linux::exported(c"wakeful_preload_fibers_2"), Order::Relaxed);
}

/// The calling thread is a carrier from now on.
pub fn here_is_a_carrier() {
    host::here_is_a_carrier();
    let interposer = INTERPOSER.load(Order::Relaxed);
    if !interposer.is_null() {
        // SAFETY: its type belongs to the name; `prepare` was called.
        unsafe {
            let interposer = core::mem::transmute::<*mut c_void, extern "C" fn(*const Host)>(interposer);
            interposer(HOST.load(Order::Relaxed));
        }
    }
}
