// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pthread_rwlock_*`.
//!
//! **Layout**, in the C library's 56 bytes:
//!
//! | offset | field          | holds                                                                      |
//! |--------|----------------|----------------------------------------------------------------------------|
//! | 0      | `__readers` .. | the algorithm's words, at most 24 bytes; zeros are a free lock             |
//! | 24     | `__cur_writer` | kernel thread id of the writer, or its number as a fiber                   |
//! | 28     | `__shared`     | the C library's: not 0, process-shared                                     |
//! | 48     | `__flags`      | the C library's: the kind                                                  |
//!
//! **Ours or not.** A process-shared lock is the C library's, for its whole life, told by `__shared`.
//!
//! **Kinds.** The default, `PTHREAD_RWLOCK_PREFER_READER_NP` (and `PREFER_WRITER_NP`, which the C library treats alike), lets a thread
//! that reads read once more, and lets a reader in while others read, whoever waits. Taken literally, that starves
//! writers. So a thread counts what it reads (one number for all locks): with something in its hands it waits for nobody but a writer that
//! is inside; else it lets a writer that waits go first, for [`patience_ns`] at most, in case those who read wait for it.
//! `PREFER_WRITER_NONRECURSIVE_NP` promises neither, and readers then wait for writers.
//!
//! **Other algorithms.** `WAKEFUL_RWLOCK` cannot ask for one that breaks this promise: an algorithm is used only if it has an acquisition
//! that waits for nobody but a writer that is inside ([`sync::rwlock::RawRwLockRecursive`]). The fair ones of the papers (`rw-queue`,
//! `rw-smart-q`, `rw-tas-b`) have none, so programs never get them.
//!
//! **Misuse.** EDEADLK where the writer locks again, as there. A lock that is released by another thread than its writer is released.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering::*};

use libc::{EBUSY, EDEADLK, ETIMEDOUT, clockid_t, pthread_rwlock_t, pthread_rwlockattr_t, timespec};
use linux::Linux;
use platform::{Clock, Deadline, Platform};
use sync::rwlock::RawRwLock;

use crate::local::READS;
use crate::rwlock_choice::{self as choice, Default};
use crate::{fiber, real, time};

#[repr(C, align(8))]
struct RwLock {
    words: [AtomicU32; 6],
    writer: AtomicU32,
    shared: AtomicU32,
    unused: [AtomicU32; 4],
    kind: AtomicU32,
}

const _: () = assert!(size_of::<RwLock>() <= size_of::<pthread_rwlock_t>());
const _: () = assert!(core::mem::offset_of!(RwLock, writer) == 24);
const _: () = assert!(core::mem::offset_of!(RwLock, shared) == 28);
const _: () = assert!(core::mem::offset_of!(RwLock, kind) == 48);
const _: () = assert!(size_of::<Default>() <= choice::SIZE && align_of::<Default>() <= 8);

const WRITER_NONRECURSIVE: u32 = 2;

/// How long a reader that reads nothing else lets a waiting writer go first: a few slices, so that both the
/// readers in front of the writer and the writer get a processor meanwhile.
fn patience_ns() -> u64 {
    3 * Linux::costs().slice
}

/// `pthread_rwlockattr_t`.
#[repr(C)]
struct Attr {
    kind: u32,
    shared: u32,
}

impl RwLock {
    /// # Safety
    /// `lock` points to an initialised lock that outlives the reference's use.
    #[inline(always)]
    unsafe fn from<'a>(lock: *mut pthread_rwlock_t) -> &'a Self {
        // SAFETY: as promised; all fields are atomics.
        unsafe { &*lock.cast() }
    }

    fn pointer(&self) -> *mut pthread_rwlock_t {
        core::ptr::from_ref(self).cast_mut().cast()
    }

    #[inline(always)]
    fn at(&self) -> *const u8 {
        core::ptr::from_ref(self).cast()
    }

    #[inline(always)]
    fn lock(&self) -> &Default {
        // SAFETY: the default fits, and zeros are a free one.
        unsafe { &*self.at().cast() }
    }

    #[inline(always)]
    fn theirs(&self) -> bool {
        self.shared.load(Relaxed) != 0
    }

    /// Ours, on the default algorithm.
    #[inline(always)]
    fn simple(&self) -> bool {
        self.shared.load(Relaxed) | choice::CHOICE.load(Relaxed) as u32 == 0
    }

    /// May a thread that reads read once more?
    #[inline(always)]
    fn recursive(&self) -> bool {
        self.kind.load(Relaxed) != WRITER_NONRECURSIVE
    }

    fn deadlock(&self) -> bool {
        let writer = self.writer.load(Relaxed);
        writer != 0 && writer == fiber::caller()
    }

    #[inline(always)]
    fn reads(&self, more: bool) {
        if self.recursive() {
            READS.change(more);
        }
    }

    #[inline(always)]
    fn writes(&self) {
        self.writer.store(fiber::caller(), Relaxed);
    }

    #[inline]
    fn try_read(&self) -> bool {
        let algorithm = choice::algorithm();
        // SAFETY: released by `unlock`; the words are of the algorithm's type.
        let got = unsafe {
            // Without something in hand it fails while a writer demands the lock.
            if self.recursive() && READS.get() != 0 {
                (algorithm.try_read_recursive)(self.at())
            } else {
                (algorithm.try_read)(self.at())
            }
        };
        if got {
            self.reads(true);
        }
        got
    }

    /// Waits; false if the deadline passed.
    fn wait_to_read(&self, deadline: Option<Deadline>) -> bool {
        let got =
            if self.recursive() { self.wait_to_read_again(deadline) } else { self.wait_in_line(deadline) };
        if got {
            self.reads(true);
        }
        got
    }

    fn wait_in_line(&self, deadline: Option<Deadline>) -> bool {
        let algorithm = choice::algorithm();
        // SAFETY: as above.
        unsafe {
            match deadline {
                None => (algorithm.read)(self.at()),
                Some(deadline) => return (algorithm.read_until)(self.at(), deadline),
            }
        }
        true
    }

    fn wait_to_read_again(&self, deadline: Option<Deadline>) -> bool {
        // The deadline, where that comes sooner.
        let soon = |deadline: &Deadline| {
            Linux::past(Deadline { ns: deadline.ns.saturating_sub(patience_ns()), ..*deadline })
        };
        let patience = || Deadline { ns: Linux::now_ns() + patience_ns(), clock: Clock::Monotonic };
        if READS.get() == 0 && self.wait_in_line(Some(deadline.filter(soon).unwrap_or_else(patience))) {
            return true;
        }
        let algorithm = choice::algorithm();
        // SAFETY: as above.
        unsafe {
            match deadline {
                None => (algorithm.read_recursive)(self.at()),
                Some(deadline) => return (algorithm.read_recursive_until)(self.at(), deadline),
            }
        }
        true
    }

    #[inline]
    fn try_write(&self) -> bool {
        // SAFETY: as above.
        let got = unsafe { (choice::algorithm().try_write)(self.at()) };
        if got {
            self.writes();
        }
        got
    }

    fn wait_to_write(&self, deadline: Option<Deadline>) -> bool {
        let algorithm = choice::algorithm();
        // SAFETY: as above.
        let got = unsafe {
            match deadline {
                None => {
                    (algorithm.write)(self.at());
                    true
                }
                Some(deadline) => (algorithm.write_until)(self.at(), deadline),
            }
        };
        if got {
            self.writes();
        }
        got
    }

    #[cold]
    #[inline(never)]
    fn read_other(&self) -> c_int {
        if self.theirs() {
            // SAFETY: a lock of the C library's.
            return unsafe { real::rwlock_rdlock(self.pointer()) };
        }
        self.locked(Self::try_read, Self::wait_to_read, None)
    }

    #[cold]
    #[inline(never)]
    fn write_other(&self) -> c_int {
        if self.theirs() {
            // SAFETY: a lock of the C library's.
            return unsafe { real::rwlock_wrlock(self.pointer()) };
        }
        self.locked(Self::try_write, Self::wait_to_write, None)
    }

    fn locked(
        &self,
        try_it: fn(&Self) -> bool,
        wait: fn(&Self, Option<Deadline>) -> bool,
        until: Option<Deadline>,
    ) -> c_int {
        if try_it(self) {
            0
        } else if self.deadlock() {
            EDEADLK
        } else if wait(self, until) {
            0
        } else {
            ETIMEDOUT
        }
    }

    /// The timed ones. The C library looks at the time whether it has to wait or not, and takes none for no deadline.
    ///
    /// # Safety
    /// `time` points to a timespec, or is null.
    unsafe fn locked_until(
        &self,
        try_it: fn(&Self) -> bool,
        wait: fn(&Self, Option<Deadline>) -> bool,
        clock: clockid_t,
        time: *const timespec,
    ) -> c_int {
        // SAFETY: as promised.
        let Some(time) = (unsafe { time.as_ref() }) else { return self.locked(try_it, wait, None) };
        match time::clock(clock).and_then(|clock| time::deadline(clock, time)) {
            Ok(deadline) => self.locked(try_it, wait, Some(deadline)),
            Err(error) => error,
        }
    }

    #[cold]
    #[inline(never)]
    fn unlock_other(&self) -> c_int {
        if self.theirs() {
            // SAFETY: a lock of the C library's.
            return unsafe { real::rwlock_unlock(self.pointer()) };
        }
        // SAFETY: the C library does not check either that the caller holds it.
        unsafe {
            let write = self.writer.load(Relaxed) != 0;
            if write {
                self.writer.store(0, Relaxed);
            } else {
                self.reads(false);
            }
            let algorithm = choice::algorithm();
            if write { (algorithm.unlock_write)(self.at()) } else { (algorithm.unlock_read)(self.at()) }
        }
        0
    }
}

/// # Safety
/// As the C library's function of this name; likewise all below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: as promised.
    let ours = unsafe { RwLock::from(lock) };
    // SAFETY: released by `unlock`.
    if ours.simple() && unsafe { ours.lock().try_read(&()) } {
        ours.reads(true);
        return 0;
    }
    ours.read_other()
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)] // as above, likewise below
pub unsafe extern "C" fn pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: as promised.
    let ours = unsafe { RwLock::from(lock) };
    // SAFETY: released by `unlock`. What tells a scheduler is tried by `write_other`.
    if ours.simple() && unsafe { ours.lock().try_write_untold() } {
        ours.writes();
        return 0;
    }
    ours.write_other()
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: as promised.
    let ours = unsafe { RwLock::from(lock) };
    if ours.theirs() {
        // SAFETY: a lock of the C library's.
        return unsafe { real::rwlock_tryrdlock(lock) };
    }
    // As there, it gets in while others read, whoever waits, and however often it tries.
    // SAFETY: released by `unlock`; the words are of the algorithm's type.
    let recursive = || ours.recursive() && unsafe { (choice::algorithm().try_read_recursive)(ours.at()) };
    if ours.try_read() {
        return 0;
    }
    if recursive() {
        ours.reads(true);
        return 0;
    }
    EBUSY
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: as promised.
    let ours = unsafe { RwLock::from(lock) };
    if ours.theirs() {
        // SAFETY: a lock of the C library's.
        return unsafe { real::rwlock_trywrlock(lock) };
    }
    if ours.try_write() { 0 } else { EBUSY }
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_rwlock_timedrdlock(
    lock: *mut pthread_rwlock_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: as promised.
    unsafe {
        let ours = RwLock::from(lock);
        if ours.theirs() {
            return real::rwlock_timedrdlock(lock, time);
        }
        ours.locked_until(RwLock::try_read, RwLock::wait_to_read, libc::CLOCK_REALTIME, time)
    }
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_rwlock_clockrdlock(
    lock: *mut pthread_rwlock_t,
    clock: clockid_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: as promised.
    unsafe {
        let ours = RwLock::from(lock);
        if ours.theirs() {
            return real::rwlock_clockrdlock(lock, clock, time);
        }
        ours.locked_until(RwLock::try_read, RwLock::wait_to_read, clock, time)
    }
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_rwlock_timedwrlock(
    lock: *mut pthread_rwlock_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: as promised.
    unsafe {
        let ours = RwLock::from(lock);
        if ours.theirs() {
            return real::rwlock_timedwrlock(lock, time);
        }
        ours.locked_until(RwLock::try_write, RwLock::wait_to_write, libc::CLOCK_REALTIME, time)
    }
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_rwlock_clockwrlock(
    lock: *mut pthread_rwlock_t,
    clock: clockid_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: as promised.
    unsafe {
        let ours = RwLock::from(lock);
        if ours.theirs() {
            return real::rwlock_clockwrlock(lock, clock, time);
        }
        ours.locked_until(RwLock::try_write, RwLock::wait_to_write, clock, time)
    }
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: as promised.
    let ours = unsafe { RwLock::from(lock) };
    if !ours.simple() {
        return ours.unlock_other();
    }
    // SAFETY: the C library does not check either that the caller holds it.
    unsafe {
        if ours.writer.load(Relaxed) != 0 {
            ours.writer.store(0, Relaxed);
            ours.lock().unlock_write(&());
        } else {
            ours.reads(false);
            ours.lock().unlock_read(&());
        }
    }
    0
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_rwlock_init(
    lock: *mut pthread_rwlock_t,
    attr: *const pthread_rwlockattr_t,
) -> c_int {
    // SAFETY: as promised; an attribute object starts with these.
    unsafe {
        let attributes =
            if attr.is_null() { Attr { kind: 0, shared: 0 } } else { attr.cast::<Attr>().read() };
        if attributes.shared != 0 {
            return real::rwlock_init(lock, attr);
        }
        lock.write_bytes(0, 1);
        RwLock::from(lock).kind.store(attributes.kind, Relaxed);
    }
    0
}

/// The C library's does nothing either, not even look: the memory may be gone.
#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_rwlock_destroy(_lock: *mut pthread_rwlock_t) -> c_int {
    0
}

crate::aliases! {
    __pthread_rwlock_rdlock = pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t);
    __pthread_rwlock_wrlock = pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t);
    __pthread_rwlock_tryrdlock = pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t);
    __pthread_rwlock_trywrlock = pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t);
    __pthread_rwlock_unlock = pthread_rwlock_unlock(lock: *mut pthread_rwlock_t);
    __pthread_rwlock_init = pthread_rwlock_init(lock: *mut pthread_rwlock_t, attr: *const pthread_rwlockattr_t);
    __pthread_rwlock_destroy = pthread_rwlock_destroy(lock: *mut pthread_rwlock_t);
}
