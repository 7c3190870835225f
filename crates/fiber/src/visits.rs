// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a fiber waits at the locks of kernel threads: the functions of its [`Host`]. The protocol is in
//! `guests.rs`.

use core::ffi::{c_uint, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use core::time::Duration;
use std::io;

use linux::Errno;
use linux::host::Host;
use platform::{Clock, Deadline, Wait};

use crate::carrier::{self, switch};
use crate::guests::{self, GUESTS};
use crate::posts::{self, PutOff};
use crate::record::Why;
use crate::runtime::{Config, Runtime};
use crate::{table, waits};

static HOST: Host = Host { number, parks, wait, wake, nap, yield_now };

/// The C++ runtime's function that tells where the thread's exceptions are.
static EXCEPTIONS: AtomicUsize = AtomicUsize::new(0);

impl Runtime {
    /// Starts one. If the calling thread is SCHED_IDLE, so are all carriers: no user may make them usual.
    ///
    /// # Errors
    /// What epoll, or starting a thread, says.
    pub fn start(config: Config) -> io::Result<&'static Self> {
        // It allocates, and may hold the lock of who starts the default one.
        carrier::firmly(|| {
            guests::prepare(&HOST);
            posts::prepare(make_up);
            EXCEPTIONS.store(linux::exported(c"__cxa_get_globals").expose_provenance(), Relaxed);
            Self::begin(config)
        })
    }
}

/// The kernel's ids are below this. Records lie more than 64 KiB apart, below 2^47.
const FIBERS: u32 = 1 << 31;

extern "C" fn number() -> u32 {
    let fiber = carrier::current();
    if fiber.is_null() { 0 } else { FIBERS | (fiber.addr() >> 16) as u32 }
}

extern "C" fn parks() -> bool {
    !table::switching().is_null()
}

/// The C++ runtime's account of a thread's exceptions.
#[repr(C)]
#[derive(Clone, Copy)]
struct Exceptions {
    caught: *mut c_void,
    uncaught: c_uint,
}

/// What a carrier's thread has for itself, and a fiber keeps while it is parked: errno, and the exceptions of
/// C++ that it handles.
struct SetAside {
    errno: i32,
    exceptions: Exceptions,
}

impl SetAside {
    fn new() -> Self {
        let none = Exceptions { caught: null_mut(), uncaught: 0 };
        let place = exceptions();
        // SAFETY: the place of errno, and that of the exceptions if there is one; both are this thread's.
        unsafe {
            let exceptions = if place.is_null() { none } else { place.replace(none) };
            Self { errno: *libc::__errno_location(), exceptions }
        }
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        // A movable fiber may be on another thread now.
        let place = exceptions();
        // SAFETY: as above.
        unsafe {
            if !place.is_null() {
                *place = self.exceptions;
            }
            *libc::__errno_location() = self.errno;
        }
    }
}

/// Where this thread's exceptions are; null: the program has no C++ runtime that others see. Not inlined, so
/// that no compiler keeps the place across a switch.
#[inline(never)]
fn exceptions() -> *mut Exceptions {
    match EXCEPTIONS.load(Relaxed) {
        0 => null_mut(),
        // SAFETY: only such a function has this name.
        function => unsafe {
            let function = core::ptr::with_exposed_provenance_mut::<c_void>(function);
            core::mem::transmute::<*mut c_void, extern "C" fn() -> *mut Exceptions>(function)()
        },
    }
}

unsafe extern "C" fn wait(word: *const AtomicU32, expected: u32, clock: i32, ns: u64) -> i32 {
    let _aside = SetAside::new();
    let clock = if clock == libc::CLOCK_REALTIME {
        Some(Clock::Realtime)
    } else {
        (clock >= 0).then_some(Clock::Monotonic)
    };
    let deadline = clock.map(|clock| Deadline { ns, clock });
    GUESTS.enter();
    // SAFETY: as the caller promises.
    let outcome = table::wait::<true>(unsafe { &*word }, expected, deadline);
    GUESTS.leave();
    match outcome {
        Wait::Woken => 0,
        Wait::TimedOut => libc::ETIMEDOUT,
        Wait::Changed | Wait::Interrupted => libc::EAGAIN,
    }
}

extern "C" fn wake(word: *const AtomicU32, count: u32) -> u32 {
    if !GUESTS.any() || posts::put_off(word, count) {
        return 0;
    }
    let _errno = Errno::save();
    table::wake::<true>(word, count)
}

fn make_up(what: PutOff) {
    let _errno = Errno::save();
    match what {
        PutOff::Some(word, count) => _ = table::wake::<true>(word, count),
        PutOff::All => table::wake_guests(),
    }
}

extern "C" fn nap(ns: u64) {
    let _aside = SetAside::new();
    waits::nap(Duration::from_nanos(ns));
}

extern "C" fn yield_now() {
    let _aside = SetAside::new();
    switch(table::switching(), Why::Yields);
}
