// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which algorithm the mutexes use: the default, compiled into the fast path, or the one that `WAKEFUL_LOCK` names, by pointer.
//!
//! The choice is made at load, or at the first lock operation if another library comes first, and stays. A name that is
//! unknown or does not fit means the default: the library never speaks on a program's streams, the command checks names.

use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering::*};

use catalog::{Entry, InPlaceMutexVisitor, TimedMutexVisitor};
use linux::Linux;
use platform::{Deadline, Platform};
use sync::mutex::{RawMutex, RawMutexTimed};

/// The lock of every mutex where nothing else is asked for.
pub type Default = sync::mutex::Wakeful<Linux>;

/// Values of [`CHOICE`]; zero, because the fast path tests it together with the mutex kind.
pub const DEFAULT: u8 = 0;
const OTHER: u8 = 1;
const UNDECIDED: u8 = 2;

/// Decided?
pub static CHOICE: AtomicU8 = AtomicU8::new(UNDECIDED);
static ALGORITHM: AtomicPtr<Algorithm> = AtomicPtr::new(null_mut());

/// A lock of the catalogue, by pointers.
pub struct Algorithm {
    /// Where in `pthread_mutex_t` it lives.
    pub offset: usize,
    /// Acquires.
    pub lock: unsafe fn(*const u8),
    /// Acquires if that is possible at once.
    pub try_lock: unsafe fn(*const u8) -> bool,
    /// Acquires unless the deadline passes first.
    pub lock_until: unsafe fn(*const u8, Deadline) -> bool,
    /// Releases.
    pub unlock: unsafe fn(*const u8),
}

/// Where `__list` is in `pthread_mutex_t`: 16 bytes that only robust mutexes use.
const LIST_AT: usize = 24;
const LIST_SIZE: usize = 16;

unsafe fn lock<L: RawMutex<Linux, Node = ()>>(at: *const u8) {
    // SAFETY: the caller passes the address of a lock of this type; likewise below.
    unsafe { (*at.cast::<L>()).lock(&()) }
}

unsafe fn try_lock<L: RawMutex<Linux, Node = ()>>(at: *const u8) -> bool {
    // SAFETY: as above.
    unsafe { (*at.cast::<L>()).try_lock(&()) }
}

unsafe fn unlock<L: RawMutex<Linux, Node = ()>>(at: *const u8) {
    // SAFETY: as above.
    unsafe { (*at.cast::<L>()).unlock(&()) }
}

unsafe fn lock_until<L: RawMutexTimed<Linux, Node = ()>>(at: *const u8, deadline: Deadline) -> bool {
    // SAFETY: as above.
    unsafe { (*at.cast::<L>()).lock_until(&(), deadline) }
}

/// A lock without a timed acquire naps between tries: for what two sleeps cost at first, for a third of a
/// slice at most.
unsafe fn poll_until<L: RawMutex<Linux, Node = ()>>(at: *const u8, deadline: Deadline) -> bool {
    let costs = Linux::costs();
    let mut nap = 2 * costs.sleep;
    loop {
        // SAFETY: as above.
        if unsafe { try_lock::<L>(at) } {
            return true;
        }
        if Linux::past(deadline) {
            return false;
        }
        Linux::nap(nap);
        nap = (nap * 2).min(costs.slice / 3);
    }
}

struct Table<L>(core::marker::PhantomData<L>);

impl<L: RawMutex<Linux, Node = ()> + 'static> Table<L> {
    const OFFSET: usize = if size_of::<L>() <= 4 { 0 } else { LIST_AT };
    const POLLED: Algorithm = Algorithm {
        offset: Self::OFFSET,
        lock: lock::<L>,
        try_lock: try_lock::<L>,
        lock_until: poll_until::<L>,
        unlock: unlock::<L>,
    };

    /// Does it fit, and is it free when all its bytes are zero, as the static initialisers leave them?
    fn fits() -> bool {
        let size = size_of::<L>();
        if size > LIST_SIZE || align_of::<L>() > 8 {
            return false;
        }
        let mut lock = MaybeUninit::<L>::zeroed();
        lock.write(L::new());
        let bytes = lock.as_ptr().cast::<u8>();
        // SAFETY: inside the lock; the locks are words without padding.
        (0..size).all(|at| unsafe { bytes.add(at).read_volatile() } == 0)
    }
}

impl<L: RawMutexTimed<Linux, Node = ()> + 'static> Table<L> {
    const TIMED: Algorithm = Algorithm { lock_until: lock_until::<L>, ..Self::POLLED };
}

struct Polled;
impl InPlaceMutexVisitor<Linux> for Polled {
    type Output = Option<&'static Algorithm>;
    fn visit<L: RawMutex<Linux, Node = ()> + 'static>(self, _: &'static Entry) -> Self::Output {
        Table::<L>::fits().then_some(const { &Table::<L>::POLLED })
    }
}

struct Timed;
impl TimedMutexVisitor<Linux> for Timed {
    type Output = Option<&'static Algorithm>;
    fn visit<L: RawMutexTimed<Linux, Node = ()> + 'static>(self, _: &'static Entry) -> Self::Output {
        Table::<L>::fits().then_some(const { &Table::<L>::TIMED })
    }
}

fn asked_for() -> Option<&'static Algorithm> {
    // At load, before a program can change the environment.
    linux::server::variable(linux::environment::LOCK, |name| {
        let name = core::str::from_utf8(name).ok().filter(|&name| name != "wakeful")?;
        catalog::visit_timed_mutex(name, Timed)
            .or_else(|| catalog::visit_in_place_mutex(name, Polled))
            .flatten()
    })
}

/// Makes the choice, once. Two threads that come here together find the same.
#[cold]
#[unsafe(link_section = "wakeful_start")]
pub fn decide() {
    if CHOICE.load(Relaxed) != UNDECIDED {
        return;
    }
    match asked_for() {
        Some(algorithm) => {
            ALGORITHM.store(core::ptr::from_ref(algorithm).cast_mut(), Relaxed);
            // ORDER: Release, pairs with the Acquire in `algorithm`; publishes ALGORITHM.
            CHOICE.store(OTHER, Release);
        }
        None => CHOICE.store(DEFAULT, Relaxed),
    }
}

/// The algorithm asked for, `None` for the default.
#[inline]
pub fn algorithm() -> Option<&'static Algorithm> {
    loop {
        // ORDER: Acquire, pairs with the Release in `decide`.
        match CHOICE.load(Acquire) {
            DEFAULT => return None,
            // SAFETY: set before OTHER was published, and points to a constant.
            OTHER => return unsafe { ALGORITHM.load(Relaxed).as_ref() },
            _ => decide(),
        }
    }
}
