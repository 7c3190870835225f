// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sem_*`, of unnamed semaphores that one process has for itself.
//!
//! **Layout**, in the C library's 32 bytes:
//!
//! | offset | holds                                                                                                   |
//! |--------|---------------------------------------------------------------------------------------------------------|
//! | 0      | the algorithm's two words (where the C library has the value and the number of waiters)                  |
//! | 8      | the C library's `private`: 0, or 128 if other processes may use it                                      |
//!
//! **Ours or not.** Semaphores that are process-shared or have a name (`sem_open`) are the C library's, told by `private`. So is
//! one that starts with more than 2^30 - 1 tokens: it is initialised as process-shared. A token beyond that number
//! is refused with EOVERFLOW; the C library refuses at twice as many. Where the C library keeps its flag elsewhere (before version 2.21), all
//! semaphores are its own.
//!
//! **Cancellation.** The waits are entered in sem.c, by a jump and not a call; see `cond`.

use core::ffi::{c_int, c_uint, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering::*};

use libc::{EAGAIN, EINVAL, EOVERFLOW, clockid_t, sem_t, timespec};
use linux::Linux;
use platform::{Deadline, Platform, Wait as Outcome};
use sync::semaphore::{MAX, RawSemaphore, Step, Waiter, Wakeful};

use crate::{real, time};

#[repr(C)]
struct Sem {
    algorithm: Wakeful<Linux>,
    private: AtomicU32,
}

const _: () = assert!(size_of::<Sem>() <= size_of::<sem_t>());
const _: () = assert!(core::mem::offset_of!(Sem, private) == 8);
const SHARED: u32 = 128;

const SEM_VALUE_MAX: c_uint = i32::MAX as c_uint;

/// Does the C library keep its flag where we look for it?
static LAYOUT: AtomicU8 = AtomicU8::new(UNDECIDED);
const AS_EXPECTED: u8 = 0;
const UNDECIDED: u8 = 1;
const OTHER: u8 = 2;

/// Finds out, by looking at one that is process-shared.
#[cold]
pub fn decide() {
    let mut sem = [0u32; size_of::<sem_t>() / 4];
    // SAFETY: large enough, and nobody else's.
    let error = unsafe { real::sem_init(sem.as_mut_ptr().cast(), 1, 5) };
    let expected = error == 0 && sem[2] == SHARED && sem[1] == 0;
    LAYOUT.store(if expected { AS_EXPECTED } else { OTHER }, Relaxed);
}

fn layout() -> u8 {
    if LAYOUT.load(Relaxed) == UNDECIDED {
        decide();
    }
    LAYOUT.load(Relaxed)
}

impl Sem {
    /// # Safety
    /// `sem` points to an initialised semaphore that outlives the reference's use.
    #[inline(always)]
    unsafe fn from<'a>(sem: *mut sem_t) -> &'a Self {
        // SAFETY: as promised; all fields are atomics.
        unsafe { &*sem.cast() }
    }

    #[cold]
    fn theirs_slow(&self) -> bool {
        layout() != AS_EXPECTED || self.private.load(Relaxed) != 0
    }

    #[inline(always)]
    fn theirs(&self) -> bool {
        self.private.load(Relaxed) | LAYOUT.load(Relaxed) as u32 != 0 && self.theirs_slow()
    }
}

fn fail(error: c_int) -> c_int {
    // SAFETY: the location is this thread's own and always valid.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// One wait; the twin of `struct wait` in sem.c.
#[repr(C)]
struct Wait {
    sem: *mut sem_t,
    waiter: Waiter,
    word: *const AtomicU32,
    expected: u32,
    clock: i32,
    time: timespec,
}

const _: () = assert!(size_of::<Waiter>() <= 8);
const _: () = assert!(core::mem::offset_of!(Wait, word) == 16);
const _: () = assert!(size_of::<Wait>() == 48);

impl Wait {
    fn deadline(&self) -> Option<Deadline> {
        let clock = time::clock(self.clock).ok()?;
        time::deadline(clock, &self.time).ok()
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wakeful_sem_try(sem: *mut sem_t) -> c_int {
    // SAFETY: sem.c passes what the program gave it.
    let ours = unsafe { Sem::from(sem) };
    if ours.theirs() { -1 } else { ours.algorithm.try_acquire().into() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wakeful_sem_begin(w: *mut Wait) {
    Linux::register_lazily();
    // SAFETY: sem.c passes its own struct, of which it has filled in semaphore, clock and time.
    unsafe {
        let w = &mut *w;
        w.waiter = Waiter::default();
        w.word = Sem::from(w.sem).algorithm.word();
        // A moment before the epoch is one that has passed, which the kernel does not take.
        if let Some(Deadline { ns, .. }) = w.deadline() {
            w.time = timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as _ };
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wakeful_sem_step(w: *mut Wait, outcome: c_int) -> c_int {
    // SAFETY: after `wakeful_sem_begin`.
    unsafe {
        let w = &mut *w;
        let algorithm = &Sem::from(w.sem).algorithm;
        let deadline = w.deadline();
        let step = match outcome {
            0 => algorithm.step(&mut w.waiter, deadline),
            -1 => algorithm.slept(&mut w.waiter, Outcome::Woken, deadline),
            libc::ETIMEDOUT => algorithm.slept(&mut w.waiter, Outcome::TimedOut, deadline),
            libc::EINTR => algorithm.slept(&mut w.waiter, Outcome::Interrupted, deadline),
            _ => algorithm.slept(&mut w.waiter, Outcome::Changed, deadline),
        };
        match step {
            Step::Sleep(expected) => {
                w.expected = expected;
                0
            }
            Step::Taken => -1,
            Step::TimedOut => libc::ETIMEDOUT,
            Step::Interrupted => libc::EINTR,
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wakeful_sem_cancelled(w: *mut Wait) {
    // SAFETY: between two calls of `wakeful_sem_step`, asleep.
    unsafe {
        let w = &mut *w;
        Sem::from(w.sem).algorithm.cancelled(&mut w.waiter);
    }
}

/// The twin of `struct real` in sem.c.
#[repr(C)]
struct Real {
    wait: *mut c_void,
    timedwait: *mut c_void,
    clockwait: *mut c_void,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wakeful_sem_real(real: *mut MaybeUninit<Real>) {
    // SAFETY: sem.c passes its own struct.
    unsafe {
        (*real).write(Real {
            wait: real::address::sem_wait(),
            timedwait: real::address::sem_timedwait(),
            clockwait: real::address::sem_clockwait(),
        });
    }
}

unsafe extern "C" {
    fn wakeful_sem_wait(sem: *mut sem_t) -> c_int;
    fn wakeful_sem_timedwait(sem: *mut sem_t, time: *const timespec) -> c_int;
    fn wakeful_sem_clockwait(sem: *mut sem_t, clock: clockid_t, time: *const timespec) -> c_int;
}

crate::jump! {
    sem_wait(sem: *mut sem_t) => wakeful_sem_wait;
    sem_timedwait(sem: *mut sem_t, time: *const timespec) => wakeful_sem_timedwait;
    sem_clockwait(sem: *mut sem_t, clock: clockid_t, time: *const timespec) => wakeful_sem_clockwait;
}

/// # Safety
/// As the C library's function of this name; likewise all below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_trywait(sem: *mut sem_t) -> c_int {
    // SAFETY: as promised.
    let ours = unsafe { Sem::from(sem) };
    if ours.theirs() {
        // SAFETY: a semaphore of the C library's.
        return unsafe { real::sem_trywait(sem) };
    }
    if ours.algorithm.try_acquire() { 0 } else { fail(EAGAIN) }
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)] // as above, likewise below
pub unsafe extern "C" fn sem_post(sem: *mut sem_t) -> c_int {
    // SAFETY: as promised.
    let ours = unsafe { Sem::from(sem) };
    if ours.theirs() {
        // SAFETY: a semaphore of the C library's.
        return unsafe { real::sem_post(sem) };
    }
    if ours.algorithm.release() { 0 } else { fail(EOVERFLOW) }
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn sem_getvalue(sem: *mut sem_t, value: *mut c_int) -> c_int {
    // SAFETY: as promised.
    unsafe {
        let ours = Sem::from(sem);
        if ours.theirs() {
            return real::sem_getvalue(sem, value);
        }
        *value = ours.algorithm.available() as c_int;
    }
    0
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn sem_init(sem: *mut sem_t, shared: c_int, value: c_uint) -> c_int {
    if value > SEM_VALUE_MAX {
        return fail(EINVAL);
    }
    // SAFETY: as promised.
    unsafe {
        if shared != 0 || layout() != AS_EXPECTED {
            return real::sem_init(sem, shared, value);
        }
        if value > MAX {
            return real::sem_init(sem, 1, value);
        }
        sem.write_bytes(0, 1);
        sem.cast::<Sem>().write(Sem { algorithm: Wakeful::new(value), private: AtomicU32::new(0) });
    }
    0
}

/// The C library's does nothing either, not even look: the memory may be gone.
#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn sem_destroy(_sem: *mut sem_t) -> c_int {
    0
}
