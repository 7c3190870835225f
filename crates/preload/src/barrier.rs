// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pthread_barrier_*`.
//!
//! **Layout.** The algorithm's words come first, at most 28 of the C library's 32 bytes; the C library itself uses the first 20.
//! The last four say whose it is: [`OURS`], or zero. There is no static initialiser, so every barrier has been through
//! `pthread_barrier_init`; one that another process has initialised, without us, does not end in OURS.
//!
//! **Ours or not.** A process-shared barrier is the C library's, and so is one for more threads than our algorithm can count.

use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicU32, Ordering::*};

use libc::{EINVAL, pthread_barrier_t, pthread_barrierattr_t};
use linux::Linux;
use sync::barrier::{BWakeful, BWakefulDrained, RawBarrier, RawBarrierDrained};

use crate::real;

#[repr(C)]
struct Barrier {
    words: [AtomicU32; 7],
    whose: AtomicU32,
}

const _: () = assert!(size_of::<Barrier>() == size_of::<pthread_barrier_t>());
const _: () = assert!(size_of::<BWakefulDrained<Linux>>() <= 28 && align_of::<BWakefulDrained<Linux>>() <= 8);

/// "wake".
const OURS: u32 = u32::from_le_bytes(*b"wake");

/// The C library's limit.
const MOST: c_uint = c_uint::MAX / 2;

impl Barrier {
    /// # Safety
    /// `barrier` points to an initialised barrier that outlives the reference's use.
    #[inline(always)]
    unsafe fn from<'a>(barrier: *mut pthread_barrier_t) -> &'a Self {
        // SAFETY: as promised; all fields are atomics.
        unsafe { &*barrier.cast() }
    }

    #[inline(always)]
    fn ours(&self) -> Option<&BWakefulDrained<Linux>> {
        // SAFETY: `init` has put one here.
        (self.whose.load(Relaxed) == OURS).then(|| unsafe { &*core::ptr::from_ref(self).cast() })
    }
}

/// # Safety
/// As the C library's function of this name; likewise all below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_wait(barrier: *mut pthread_barrier_t) -> c_int {
    // SAFETY: as promised.
    unsafe {
        match Barrier::from(barrier).ours() {
            Some(ours) if ours.wait() => libc::PTHREAD_BARRIER_SERIAL_THREAD,
            Some(_) => 0,
            None => real::barrier_wait(barrier),
        }
    }
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)] // as above, likewise below
pub unsafe extern "C" fn pthread_barrier_init(
    barrier: *mut pthread_barrier_t,
    attr: *const pthread_barrierattr_t,
    count: c_uint,
) -> c_int {
    if !(1..=MOST).contains(&count) {
        return EINVAL;
    }
    // SAFETY: as promised; an attribute object is an int: process-shared or not.
    unsafe {
        let shared = !attr.is_null() && attr.cast::<u32>().read() != 0;
        barrier.write_bytes(0, 1);
        if shared || count > BWakeful::<Linux>::MOST_PARTIES {
            return real::barrier_init(barrier, attr, count);
        }
        barrier.cast::<BWakefulDrained<Linux>>().write(BWakefulDrained::new(count));
        Barrier::from(barrier).whose.store(OURS, Relaxed);
    }
    0
}

#[unsafe(no_mangle)]
#[allow(missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn pthread_barrier_destroy(barrier: *mut pthread_barrier_t) -> c_int {
    // SAFETY: as promised.
    unsafe {
        let handle = Barrier::from(barrier);
        match handle.ours() {
            Some(ours) => {
                // The others may still be on their way out.
                ours.drain();
                handle.whose.store(0, Relaxed);
                0
            }
            None => real::barrier_destroy(barrier),
        }
    }
}
