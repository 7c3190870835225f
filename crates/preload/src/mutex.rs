// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pthread_mutex_*`.
//!
//! **Layout.** What we keep lies where the C library keeps the same thing, so that static initialisers, debuggers and
//! the C library's own functions on mutexes that we leave to it find what they expect:
//!
//! | offset | field     | holds                                                                          |
//! |--------|-----------|--------------------------------------------------------------------------------|
//! | 0      | `__lock`  | the default algorithm's word, or another one's if it needs no more; 0 is free  |
//! | 4      | `__count` | depth of a recursive mutex                                                     |
//! | 8      | `__owner` | kernel thread id or a fiber's number, recursive and error-checking ones only   |
//! | 12     | `__nusers`| threads in `pthread_cond_wait` with this mutex, for `pthread_mutex_destroy`    |
//! | 16     | `__kind`  | the C library's: type, and bits for robust, priority-protocol, process-shared  |
//! | 20     | `__spins` | how many threads to wake at the release: see *Owed*                            |
//! | 24     | `__list`  | word of an algorithm that needs 5 to 16 bytes; else see *Owed*                 |
//!
//! **Owed.** Two things that a holder does are put off until it releases the mutex. The word to wake is in
//! `owed`, and how many sleep there in `wakes`. A bit in the kind takes the release off its fast path. Only
//! the holder writes the three. A yield is kept by the thread ([`held`]): its mutex may be gone, if another
//! thread has released it. Of a mutex that is not a plain one on the default algorithm, nothing is put off.
//!
//! - *A signal, a broadcast* ([`owe`]). A thread that is woken under the mutex that it waits for next runs
//!   for nothing, and often in place of the holder, whom it then waits for. One wake-up is put off; what
//!   comes after it is delivered at once.
//! - *A yield* ([`sched_yield`]). Who yields a held mutex gives the processor to threads that cannot go on
//!   without it. Each tries, sleeps, and is woken at the release. If all of them sleep, another program has
//!   the processor for a time slice. One yield is put off; the next one in the same section is made at once,
//!   since the holder may wait for somebody. A wait without a deadline takes its place. At the release it is
//!   made, but beside other programs once a slice only ([`linux::yield_now_and_then`]).
//!
//! **Ours or not.** A mutex is the C library's if its kind has any of the bits robust, priority-protocol or process-shared. The kind is set once,
//! by an initialiser, so the two never work on the same mutex. A destroyed mutex has all bits, as there, so what is done
//! to it then goes to the C library, and fails as there.

use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU32, Ordering::*};

use libc::{EAGAIN, EBUSY, EDEADLK, EPERM, clockid_t, pthread_mutex_t, pthread_mutexattr_t, timespec};
use linux::Linux;
use platform::{Clock, Deadline, Platform};
use sync::mutex::{RawMutex, RawMutexTimed};

use crate::choice::{self, CHOICE, Default};
use crate::{fiber, held, real, time};

/// `pthread_mutex_t` of the 64-bit ABIs.
#[repr(C)]
pub struct Mutex {
    lock: Default,
    count: AtomicU32,
    owner: AtomicU32,
    users: AtomicU32,
    kind: AtomicI32,
    wakes: AtomicU32,
    owed: AtomicPtr<AtomicU32>,
    list: AtomicPtr<()>,
}

const _: () = assert!(size_of::<Mutex>() <= size_of::<pthread_mutex_t>());
const _: () = assert!(core::mem::offset_of!(Mutex, kind) == 16);
const _: () = assert!(core::mem::offset_of!(Mutex, owed) == 24);

/// The type in `__kind`.
const TYPE: i32 = 3;
const RECURSIVE: i32 = 1;
const ERRORCHECK: i32 = 2;
/// Bit in `__kind`: a wake-up is owed, see *Owed*. Not the C library's.
const OWES: i32 = 8;
/// Bits in `__kind` of mutexes that are the C library's: robust, inherit, protect, shared. Below 256: the fast path
/// reads one byte.
const THEIRS: i32 = 16 | 32 | 64 | 128;

/// Bits in `pthread_mutexattr_t` that ask for one of those: shared, robust, protocol.
const ATTR_THEIRS: u32 = 0x8000_0000 | 0x4000_0000 | 0x3000_0000;
/// Bits there that are not the kind: the above and the priority ceiling.
const ATTR_FLAGS: u32 = ATTR_THEIRS | 0x00ff_f000;

/// What a mutex is to us.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Normal or adaptive: no owner.
    Plain,
    Recursive,
    ErrorCheck,
    Theirs,
}

impl Mutex {
    /// # Safety
    /// `mutex` points to an initialised mutex that outlives the reference's use.
    #[inline(always)]
    unsafe fn from<'a>(mutex: *mut pthread_mutex_t) -> &'a Self {
        // SAFETY: as promised; the layouts agree and all fields are atomics.
        unsafe { &*mutex.cast() }
    }

    fn pointer(&self) -> *mut pthread_mutex_t {
        core::ptr::from_ref(self).cast_mut().cast()
    }

    /// True for a normal mutex on the default algorithm: one load, one or, one branch.
    #[inline(always)]
    fn simple(&self) -> bool {
        // SAFETY: the low byte of `kind`, which has all of it that ever changes after initialisation (OWES), by the holder.
        let kind = unsafe { (*(&raw const self.kind).cast::<AtomicU8>()).load(Relaxed) };
        kind | CHOICE.load(Relaxed) == 0
    }

    /// Has the holder put something off until the release?
    fn owes(&self) -> bool {
        self.kind.load(Relaxed) & OWES != 0
    }

    #[inline]
    fn kind(&self) -> Kind {
        let kind = self.kind.load(Relaxed);
        if kind & THEIRS != 0 {
            return Kind::Theirs;
        }
        match kind & TYPE {
            RECURSIVE => Kind::Recursive,
            ERRORCHECK => Kind::ErrorCheck,
            _ => Kind::Plain,
        }
    }

    #[inline]
    fn at(&self, offset: usize) -> *const u8 {
        // SAFETY: offsets are 0 or that of `list`.
        unsafe { core::ptr::from_ref(self).cast::<u8>().add(offset) }
    }

    #[inline]
    fn raw_lock(&self) {
        // SAFETY: the lock is of that type; the caller pairs acquire and release.
        unsafe {
            match choice::algorithm() {
                None => self.lock.lock(&()),
                Some(other) => (other.lock)(self.at(other.offset)),
            }
        }
    }

    #[inline]
    fn raw_try_lock(&self) -> bool {
        // SAFETY: as above.
        unsafe {
            match choice::algorithm() {
                None => self.lock.try_lock(&()),
                Some(other) => (other.try_lock)(self.at(other.offset)),
            }
        }
    }

    #[inline]
    fn raw_lock_until(&self, deadline: Deadline) -> bool {
        // SAFETY: as above.
        unsafe {
            match choice::algorithm() {
                None => self.lock.lock_until(&(), deadline),
                Some(other) => (other.lock_until)(self.at(other.offset), deadline),
            }
        }
    }

    #[inline]
    fn raw_unlock(&self) {
        // SAFETY: as above.
        unsafe {
            match choice::algorithm() {
                None => self.lock.unlock(&()),
                Some(other) => (other.unlock)(self.at(other.offset)),
            }
        }
    }

    /// Is it held, or in use by a waiter on a condition variable? Asked by trying: a free word need not be zero.
    fn busy(&self) -> bool {
        if self.users.load(Relaxed) != 0 || !self.raw_try_lock() {
            return true;
        }
        self.raw_unlock();
        false
    }

    /// One more level of a recursive mutex that is ours.
    fn deeper(&self) -> c_int {
        match self.count.load(Relaxed).checked_add(1) {
            Some(count) => {
                self.count.store(count, Relaxed);
                0
            }
            None => EAGAIN,
        }
    }

    fn owned(&self, kind: Kind, me: u32) {
        self.owner.store(me, Relaxed);
        if kind == Kind::Recursive {
            self.count.store(1, Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_other(&self) -> c_int {
        match self.kind() {
            // SAFETY: a mutex of the C library's.
            Kind::Theirs => return unsafe { real::mutex_lock(self.pointer()) },
            Kind::Plain => {
                self.raw_lock();
                held::set(self.pointer().addr());
            }
            kind => {
                let me = fiber::caller();
                if self.owner.load(Relaxed) == me {
                    return if kind == Kind::Recursive { self.deeper() } else { EDEADLK };
                }
                self.raw_lock();
                self.owned(kind, me);
            }
        }
        0
    }

    #[cold]
    #[inline(never)]
    fn try_lock_other(&self) -> c_int {
        match self.kind() {
            // SAFETY: a mutex of the C library's.
            Kind::Theirs => return unsafe { real::mutex_trylock(self.pointer()) },
            Kind::Plain if self.raw_try_lock() => {}
            Kind::Plain => return EBUSY,
            kind => {
                let me = fiber::caller();
                if kind == Kind::Recursive && self.owner.load(Relaxed) == me {
                    return self.deeper();
                }
                if !self.raw_try_lock() {
                    return EBUSY;
                }
                self.owned(kind, me);
            }
        }
        0
    }

    /// Not for a mutex of the C library's.
    ///
    /// # Safety
    /// `time` points to a timespec.
    unsafe fn lock_until(&self, clock: Clock, time: *const timespec) -> c_int {
        let kind = self.kind();
        let me = if kind == Kind::Plain { 0 } else { fiber::caller() };
        if me != 0 && self.owner.load(Relaxed) == me {
            return if kind == Kind::Recursive { self.deeper() } else { EDEADLK };
        }
        if !self.raw_try_lock() {
            // The C library looks at the time only if it has to wait.
            // SAFETY: as promised.
            match time::deadline(clock, unsafe { &*time }) {
                Ok(deadline) if self.raw_lock_until(deadline) => {}
                Ok(_) => return libc::ETIMEDOUT,
                Err(error) => return error,
            }
        }
        if me != 0 {
            self.owned(kind, me);
        }
        0
    }

    #[cold]
    #[inline(never)]
    fn unlock_other(&self) -> c_int {
        match self.kind() {
            // SAFETY: a mutex of the C library's.
            Kind::Theirs => return unsafe { real::mutex_unlock(self.pointer()) },
            Kind::Plain => {
                held::set(0);
                let yields = held::take_yield(self.pointer().addr());
                if !self.owes() {
                    self.raw_unlock();
                } else {
                    let owed = self.owed.swap(null_mut(), Relaxed);
                    let count = self.wakes.load(Relaxed);
                    self.kind.fetch_and(!OWES, Relaxed);
                    self.raw_unlock();
                    // The condition variable may be gone by now; only the address is used.
                    Linux::wake(owed, count);
                }
                if yields {
                    linux::yield_now_and_then();
                }
            }
            kind => {
                if self.owner.load(Relaxed) != fiber::caller() {
                    return EPERM;
                }
                if kind == Kind::Recursive {
                    let count = self.count.load(Relaxed) - 1;
                    self.count.store(count, Relaxed);
                    if count != 0 {
                        return 0;
                    }
                }
                self.owner.store(0, Relaxed);
                self.raw_unlock();
            }
        }
        0
    }

    #[inline(always)]
    fn lock(&self) -> c_int {
        if self.simple() {
            // SAFETY: released by `unlock`.
            unsafe { self.lock.lock(&()) };
            held::set(self.pointer().addr());
            return 0;
        }
        self.lock_other()
    }

    #[inline(always)]
    fn unlock(&self) -> c_int {
        if self.simple() && held::yields_at() != self.pointer().addr() {
            held::set(0);
            // SAFETY: the C library does not check either that the caller holds a normal mutex.
            unsafe { self.lock.unlock(&()) };
            return 0;
        }
        self.unlock_other()
    }
}

/// The release before a wait on a condition variable, with or without a deadline: the mutex stays in use.
///
/// # Safety
/// As for `pthread_mutex_unlock`.
pub unsafe fn unlock_to_wait(mutex: *mut pthread_mutex_t, timed: bool) -> c_int {
    // SAFETY: as promised.
    let mutex = unsafe { Mutex::from(mutex) };
    // To wait is to yield. But a deadline may have passed: who waits in a loop until then would never yield.
    if !timed {
        held::take_yield(mutex.pointer().addr());
    }
    // Also of the C library's, which itself counts who holds it, and in its own wait who will hold it again.
    mutex.users.fetch_add(1, Relaxed);
    let error = mutex.unlock();
    if error != 0 {
        mutex.users.fetch_sub(1, Relaxed);
    } else if mutex.kind() != Kind::Theirs && choice::algorithm().is_none() {
        mutex.lock.leaving();
    }
    error
}

/// The acquisition after a wait on a condition variable.
///
/// # Safety
/// After an [`unlock_to_wait`] of the same thread that returned 0.
pub unsafe fn lock_after_wait(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: as promised.
    let mutex = unsafe { Mutex::from(mutex) };
    let error = mutex.lock();
    mutex.users.fetch_sub(1, Relaxed);
    error
}

/// Puts a wake-up on this word off until the caller releases the mutex at this address: `commit` decides, at the last moment,
/// of how many threads. False if that cannot be or it says 0, and nothing was done.
pub fn owe(mutex: usize, word: &AtomicU32, commit: impl FnOnce() -> u32) -> bool {
    if mutex == 0 || held::get() != mutex {
        return false;
    }
    // SAFETY: the caller holds it, so it exists.
    let mutex = unsafe { &*core::ptr::with_exposed_provenance::<Mutex>(mutex) };
    // It may have been given a new life without having been released (a child after fork).
    if !mutex.simple() || !mutex.lock.may_be_mine() {
        return false;
    }
    let count = commit();
    if count == 0 {
        return false;
    }
    mutex.wakes.store(count, Relaxed);
    mutex.owed.store(core::ptr::from_ref(word).cast_mut(), Relaxed);
    mutex.kind.fetch_or(OWES, Relaxed);
    true
}

/// Puts a yield off until the caller releases the mutex that it holds. False if it holds none, as far as we
/// know, or has asked before.
fn put_yield_off() -> bool {
    let mutex = held::get();
    // Only the address is used: another thread may have released the mutex, and its memory be gone.
    if mutex == 0 || choice::algorithm().is_some() || held::yields_at() == mutex {
        return false;
    }
    held::yield_at(mutex);
    true
}

/// As the C library's function of this name, but under a mutex (see *Owed*), and where other programs would
/// take what it gives ([`linux::yield_informed`]).
#[unsafe(no_mangle)]
pub extern "C" fn sched_yield() -> c_int {
    if !put_yield_off() {
        linux::yield_informed();
    }
    0
}

/// The same under its old name, which older programs are linked to.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_yield() -> c_int {
    sched_yield()
}

/// Is this mutex the C library's?
///
/// # Safety
/// `mutex` points to a mutex.
pub unsafe fn theirs(mutex: *mut pthread_mutex_t) -> bool {
    // SAFETY: as promised.
    unsafe { Mutex::from(mutex) }.kind() == Kind::Theirs
}

/// # Safety
/// As the C library's function of this name; likewise all below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: as promised.
    unsafe { Mutex::from(mutex) }.lock()
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)] // as above, likewise below
pub unsafe extern "C" fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: as promised.
    unsafe { Mutex::from(mutex) }.unlock()
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_mutex_trylock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: as promised.
    let mutex = unsafe { Mutex::from(mutex) };
    if mutex.simple() {
        // SAFETY: released by `unlock`.
        if unsafe { !mutex.lock.try_lock(&()) } {
            return EBUSY;
        }
        held::set(mutex.pointer().addr());
        return 0;
    }
    mutex.try_lock_other()
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_mutex_timedlock(
    mutex: *mut pthread_mutex_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: as promised.
    unsafe {
        let ours = Mutex::from(mutex);
        if ours.kind() == Kind::Theirs {
            return real::mutex_timedlock(mutex, time);
        }
        ours.lock_until(Clock::Realtime, time)
    }
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_mutex_clocklock(
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: as promised.
    unsafe {
        let ours = Mutex::from(mutex);
        if ours.kind() == Kind::Theirs {
            return real::mutex_clocklock(mutex, clock, time);
        }
        match time::clock(clock) {
            Ok(clock) => ours.lock_until(clock, time),
            Err(error) => error,
        }
    }
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_mutex_init(
    mutex: *mut pthread_mutex_t,
    attr: *const pthread_mutexattr_t,
) -> c_int {
    // SAFETY: as promised; an attribute object starts with its flags.
    unsafe {
        let flags = if attr.is_null() { 0 } else { attr.cast::<u32>().read() };
        if flags & ATTR_THEIRS != 0 {
            return real::mutex_init(mutex, attr);
        }
        mutex.write_bytes(0, 1);
        if held::get() == mutex.addr() {
            held::set(0);
        }
        Mutex::from(mutex).kind.store((flags & !ATTR_FLAGS) as i32, Relaxed);
    }
    0
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_mutex_destroy(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: as promised.
    unsafe {
        let ours = Mutex::from(mutex);
        if ours.kind() == Kind::Theirs {
            return real::mutex_destroy(mutex);
        }
        if ours.busy() {
            return EBUSY;
        }
        ours.kind.store(-1, Relaxed);
    }
    0
}

/// Names by which old programs and libraries reach the same functions.
mod aliases {
    use super::*;

    macro_rules! alias {
        ($($alias:ident = $function:ident($($arg:ident: $type:ty),*);)*) => {
            $(
                #[unsafe(no_mangle)]
                #[allow(missing_docs, clippy::missing_safety_doc)]
                pub unsafe extern "C" fn $alias($($arg: $type),*) -> c_int {
                    // SAFETY: the same function.
                    unsafe { $function($($arg),*) }
                }
            )*
        };
    }

    alias! {
        __pthread_mutex_lock = pthread_mutex_lock(mutex: *mut pthread_mutex_t);
        __pthread_mutex_unlock = pthread_mutex_unlock(mutex: *mut pthread_mutex_t);
        __pthread_mutex_trylock = pthread_mutex_trylock(mutex: *mut pthread_mutex_t);
        __pthread_mutex_init = pthread_mutex_init(mutex: *mut pthread_mutex_t, attr: *const pthread_mutexattr_t);
        __pthread_mutex_destroy = pthread_mutex_destroy(mutex: *mut pthread_mutex_t);
    }
}
