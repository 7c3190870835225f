// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pthread_cond_*`.
//!
//! **Layout**, in the C library's 48 bytes:
//!
//! | offset | holds                                                                                                   |
//! |--------|---------------------------------------------------------------------------------------------------------|
//! | 0      | the algorithm's two words                                                                               |
//! | 8      | twice the number of threads inside a wait; bit 0: somebody waits in `pthread_cond_destroy` for them     |
//! | 16     | the mutex of who waited last                                                                            |
//! | 36     | the C library's `__wrefs`: bit 0 process-shared, bit 1 the monotonic clock                              |
//!
//! **Ours or not.** A process-shared condition variable is the C library's, for its whole life, told by bit 0 of `__wrefs`. Ours works with any
//! mutex, for it releases and acquires through `pthread_mutex_unlock` and `pthread_mutex_lock`, which know whose the mutex is. Theirs
//! with a mutex of ours is the odd case; see `wait_mixed` in cancel.c.
//!
//! **Old symbols.** The functions of version `GLIBC_2.2.5` kept a pointer to the real object in the program's 48 bytes. A program linked
//! to those comes to the same functions of ours as others: the size and the initialiser (zeros) are the same, and
//! everything such a program does to the object goes through us.
//!
//! **Cancellation.** The waits are entered in cancel.c, by a jump and not a call, so that no Rust frame is on the stack
//! when a cancelled thread unwinds.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

use libc::{pthread_cond_t, pthread_condattr_t, pthread_mutex_t, timespec};
use linux::Linux;
use platform::{Clock, Deadline, Platform, Wait as Outcome};
use sync::condvar::{Step, Waiter, Wakeful};

use crate::{held, mutex, real, time};

#[repr(C)]
struct Cond {
    algorithm: Wakeful<Linux>,
    users: AtomicU32,
    unused: AtomicU32,
    mutex: AtomicUsize,
    unused2: [AtomicU32; 3],
    flags: AtomicU32,
}

const _: () = assert!(size_of::<Cond>() <= size_of::<pthread_cond_t>());
const _: () = assert!(core::mem::offset_of!(Cond, users) == 8);
const _: () = assert!(core::mem::offset_of!(Cond, mutex) == 16);
const _: () = assert!(core::mem::offset_of!(Cond, flags) == 36);

const SHARED: u32 = 1;
const MONOTONIC: u32 = 2;

const USER: u32 = 2;
const DESTROYING: u32 = 1;

impl Cond {
    /// # Safety
    /// `cond` points to an initialised condition variable that outlives the reference's use.
    #[inline(always)]
    unsafe fn from<'a>(cond: *mut pthread_cond_t) -> &'a Self {
        // SAFETY: as promised; all fields are atomics, and zeros are valid.
        unsafe { &*cond.cast() }
    }

    #[inline(always)]
    fn theirs(&self) -> bool {
        self.flags.load(Relaxed) & SHARED != 0
    }

    fn clock(&self) -> Clock {
        if self.flags.load(Relaxed) & MONOTONIC != 0 { Clock::Monotonic } else { Clock::Realtime }
    }

    /// The waiting thread's last access: a thread in `pthread_cond_destroy` may free the object after it.
    fn leave(&self) {
        let users = &raw const self.users;
        // ORDER: Release, pairs with the Acquire in `destroy`: our accesses come before the end of the object.
        if self.users.fetch_sub(USER, Release) == USER | DESTROYING {
            Linux::wake(users, 1);
        }
    }

    /// Has the only waiter woken when the caller releases the waiter's mutex, which it holds; else false. See mutex.rs, *Owed*.
    fn deliver_at_release(&self) -> bool {
        self.algorithm.has_lone_sleeper()
            && mutex::owe(self.mutex.load(Relaxed), self.algorithm.word(), || {
                self.algorithm.take_lone_sleeper().into()
            })
    }

    /// Has all waiters woken when the caller releases their mutex, which it holds; else false.
    fn deliver_all_at_release(&self, first: u32) -> bool {
        self.algorithm.has_sleepers()
            && mutex::owe(self.mutex.load(Relaxed), self.algorithm.word(), || self.algorithm.take_all(first))
    }

    fn destroy(&self) {
        let mut users = self.users.fetch_or(DESTROYING, Relaxed) | DESTROYING;
        if users != DESTROYING {
            // Whoever waits was signalled, but its wake-up may be owed by a mutex that the caller holds.
            Linux::wake(self.algorithm.word(), u32::MAX);
        }
        while users != DESTROYING {
            Linux::wait(&self.users, users, None);
            users = self.users.load(Relaxed);
        }
        // ORDER: Acquire, pairs with the Release in `leave`.
        self.users.load(Acquire);
    }
}

/// One wait; the twin of `struct wait` in cancel.c.
#[repr(C)]
struct Wait {
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    waiter: MaybeUninit<Waiter>,
    deadline_ns: u64,
    timed_out: u64,
    word: *const AtomicU32,
    expected: u32,
    clock: i32,
    time: timespec,
}

const _: () = assert!(size_of::<Waiter>() == 8);
const _: () = assert!(core::mem::offset_of!(Wait, word) == 40);
const _: () = assert!(size_of::<Wait>() == 72);

/// Values of `clock` as in cancel.c.
const FOREVER: c_int = -1;
const OWN_CLOCK: c_int = -2;

impl Wait {
    fn deadline(&self) -> Option<Deadline> {
        match self.clock {
            FOREVER => None,
            libc::CLOCK_REALTIME => Some(Deadline { ns: self.deadline_ns, clock: Clock::Realtime }),
            _ => Some(Deadline { ns: self.deadline_ns, clock: Clock::Monotonic }),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wakeful_cond_begin(
    w: *mut MaybeUninit<Wait>,
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: c_int,
    time: *const timespec,
) -> c_int {
    // SAFETY: cancel.c passes its own struct and what the program gave it; a deadline unless the clock is FOREVER.
    unsafe {
        let ours = Cond::from(cond);
        let deadline = match clock {
            FOREVER => None,
            OWN_CLOCK => match time::deadline(ours.clock(), &*time) {
                Ok(deadline) => Some(deadline),
                Err(error) => return error,
            },
            _ => match time::clock(clock).and_then(|clock| time::deadline(clock, &*time)) {
                Ok(deadline) => Some(deadline),
                Err(error) => return error,
            },
        };
        ours.users.fetch_add(USER, Relaxed);
        ours.mutex.store(mutex.expose_provenance(), Relaxed);
        held::waits();
        let waiter = ours.algorithm.enter();
        let error = mutex::unlock_to_wait(mutex, deadline.is_some());
        if error != 0 {
            // As if cancelled: whatever was given to this waiter goes to another.
            ours.algorithm.abandon(waiter);
            ours.leave();
            return error;
        }
        let ns = deadline.map_or(0, |deadline| deadline.ns);
        (*w).write(Wait {
            cond,
            mutex,
            waiter: MaybeUninit::new(waiter),
            deadline_ns: ns,
            timed_out: 0,
            word: ours.algorithm.word(),
            expected: 0,
            clock: match deadline {
                None => FOREVER,
                Some(Deadline { clock: Clock::Realtime, .. }) => libc::CLOCK_REALTIME,
                Some(Deadline { clock: Clock::Monotonic, .. }) => libc::CLOCK_MONOTONIC,
            },
            time: timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as _ },
        });
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wakeful_cond_step(w: *mut Wait, outcome: c_int) -> c_int {
    // SAFETY: after a `wakeful_cond_begin` that returned 0.
    unsafe {
        let w = &mut *w;
        let cond = Cond::from(w.cond);
        let deadline = w.deadline();
        let waiter = w.waiter.assume_init_mut();
        let step = match outcome {
            0 => cond.algorithm.step(waiter, deadline),
            -1 => cond.algorithm.slept(waiter, Outcome::Woken),
            libc::ETIMEDOUT => cond.algorithm.slept(waiter, Outcome::TimedOut),
            libc::EINTR => cond.algorithm.slept(waiter, Outcome::Interrupted),
            _ => cond.algorithm.slept(waiter, Outcome::Changed),
        };
        match step {
            Step::Sleep(expected) => {
                w.expected = expected;
                return 0;
            }
            Step::Signalled => {}
            Step::TimedOut => w.timed_out = 1,
        }
    }
    1
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wakeful_cond_finish(w: *mut Wait) -> c_int {
    // SAFETY: after a `wakeful_cond_step` that returned 1.
    unsafe {
        let w = &*w;
        Cond::from(w.cond).leave();
        match mutex::lock_after_wait(w.mutex) {
            0 if w.timed_out != 0 => libc::ETIMEDOUT,
            error => error,
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wakeful_cond_cancelled(w: *mut Wait) {
    // SAFETY: between `wakeful_cond_begin` and `wakeful_cond_finish`, asleep.
    unsafe {
        let w = &*w;
        let cond = Cond::from(w.cond);
        cond.algorithm.cancelled();
        cond.leave();
        mutex::lock_after_wait(w.mutex);
    }
}

/// The twin of `struct real` in cancel.c.
#[repr(C)]
struct Real {
    wait: *mut c_void,
    timedwait: *mut c_void,
    clockwait: *mut c_void,
    lock: *mut c_void,
    unlock: *mut c_void,
    mutex_too: i32,
    clock: i32,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wakeful_cond_theirs(
    real: *mut MaybeUninit<Real>,
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
) -> c_int {
    // SAFETY: cancel.c passes its own struct and what the program gave it.
    unsafe {
        let ours = Cond::from(cond);
        if !ours.theirs() {
            return 0;
        }
        (*real).write(Real {
            wait: real::address::cond_wait(),
            timedwait: real::address::cond_timedwait(),
            clockwait: real::address::cond_clockwait(),
            lock: real::address::mutex_lock(),
            unlock: real::address::mutex_unlock(),
            mutex_too: mutex::theirs(mutex).into(),
            clock: match ours.clock() {
                Clock::Realtime => libc::CLOCK_REALTIME,
                Clock::Monotonic => libc::CLOCK_MONOTONIC,
            },
        });
    }
    1
}

unsafe extern "C" {
    fn wakeful_cond_wait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int;
    fn wakeful_cond_timedwait(
        cond: *mut pthread_cond_t,
        mutex: *mut pthread_mutex_t,
        time: *const timespec,
    ) -> c_int;
    fn wakeful_cond_clockwait(
        cond: *mut pthread_cond_t,
        mutex: *mut pthread_mutex_t,
        clock: c_int,
        time: *const timespec,
    ) -> c_int;
}

crate::jump! {
    pthread_cond_wait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) => wakeful_cond_wait;
    pthread_cond_timedwait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, time: *const timespec) => wakeful_cond_timedwait;
    pthread_cond_clockwait(
        cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, clock: c_int, time: *const timespec
    ) => wakeful_cond_clockwait;
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)] // as the C library's function of this name; likewise below
pub unsafe extern "C" fn pthread_cond_signal(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: as promised.
    let ours = unsafe { Cond::from(cond) };
    if ours.theirs() {
        // SAFETY: a condition variable of the C library's.
        return unsafe { real::cond_signal(cond) };
    }
    if !ours.deliver_at_release() {
        ours.algorithm.signal();
    }
    0
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_cond_broadcast(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: as promised.
    let ours = unsafe { Cond::from(cond) };
    if ours.theirs() {
        // SAFETY: a condition variable of the C library's.
        return unsafe { real::cond_broadcast(cond) };
    }
    let first = held::first();
    if !ours.deliver_all_at_release(first) {
        ours.algorithm.broadcast(first);
    }
    0
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_cond_init(
    cond: *mut pthread_cond_t,
    attr: *const pthread_condattr_t,
) -> c_int {
    // SAFETY: as promised; an attribute object is an int: bit 0 process-shared, then the clock.
    unsafe {
        let flags = if attr.is_null() { 0 } else { attr.cast::<u32>().read() };
        if flags & SHARED != 0 {
            return real::cond_init(cond, attr);
        }
        cond.write_bytes(0, 1);
        Cond::from(cond).flags.store(flags & MONOTONIC, Relaxed);
    }
    0
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_cond_destroy(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: as promised.
    let ours = unsafe { Cond::from(cond) };
    if ours.theirs() {
        // SAFETY: a condition variable of the C library's.
        return unsafe { real::cond_destroy(cond) };
    }
    ours.destroy();
    0
}
