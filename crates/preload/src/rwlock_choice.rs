// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which algorithm the reader-writer locks use: as [`crate::choice`], by `WAKEFUL_RWLOCK`.

use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering::*};

use catalog::{Entry, TimedRwLockVisitor};
use linux::Linux;
use platform::Deadline;
use sync::rwlock::RawRwLockRecursive;

/// The lock where nothing else is asked for.
pub type Default = sync::rwlock::Wakeful<Linux>;

/// Bytes in `pthread_rwlock_t` that an algorithm can have.
pub const SIZE: usize = 24;

/// Values of [`CHOICE`]; zero, because the fast path tests it together with another field.
const DEFAULT: u8 = 0;
const OTHER: u8 = 1;
const UNDECIDED: u8 = 2;

/// Decided?
pub static CHOICE: AtomicU8 = AtomicU8::new(UNDECIDED);
static ALGORITHM: AtomicPtr<Algorithm> = AtomicPtr::new(null_mut());

/// A lock of the catalogue, by pointers.
#[allow(missing_docs)] // named like the methods
pub struct Algorithm {
    pub read: unsafe fn(*const u8),
    pub try_read: unsafe fn(*const u8) -> bool,
    pub read_until: unsafe fn(*const u8, Deadline) -> bool,
    pub read_recursive: unsafe fn(*const u8),
    pub try_read_recursive: unsafe fn(*const u8) -> bool,
    pub read_recursive_until: unsafe fn(*const u8, Deadline) -> bool,
    pub unlock_read: unsafe fn(*const u8),
    pub write: unsafe fn(*const u8),
    pub try_write: unsafe fn(*const u8) -> bool,
    pub write_until: unsafe fn(*const u8, Deadline) -> bool,
    pub unlock_write: unsafe fn(*const u8),
}

struct Table<L>(core::marker::PhantomData<L>);

macro_rules! by_pointer {
    ($($name:ident($([$node:expr])? $($arg:ident: $type:ty)?) $(-> $result:ty)?;)*) => {
        impl<L: RawRwLockRecursive<Linux> + 'static> Table<L> {
            $(unsafe fn $name(at: *const u8 $(, $arg: $type)?) $(-> $result)? {
                // SAFETY: the caller passes the address of a lock of this type.
                unsafe { (*at.cast::<L>()).$name($($node,)? $($arg)?) }
            })*

            const ALGORITHM: Algorithm = Algorithm { $($name: Self::$name),* };
        }
    };
}

by_pointer! {
    read([&()]);
    try_read([&()]) -> bool;
    read_until([&()] deadline: Deadline) -> bool;
    read_recursive();
    try_read_recursive() -> bool;
    read_recursive_until(deadline: Deadline) -> bool;
    unlock_read([&()]);
    write([&()]);
    try_write([&()]) -> bool;
    write_until([&()] deadline: Deadline) -> bool;
    unlock_write([&()]);
}

struct Fitting;
impl TimedRwLockVisitor<Linux> for Fitting {
    type Output = Option<&'static Algorithm>;
    /// Those that fit, and are free when all their bytes are zero, as the static initialisers leave them.
    fn visit<L: RawRwLockRecursive<Linux> + 'static>(self, _: &'static Entry) -> Self::Output {
        if size_of::<L>() > SIZE || align_of::<L>() > 8 {
            return None;
        }
        let mut lock = MaybeUninit::<L>::zeroed();
        lock.write(L::new());
        let bytes = lock.as_ptr().cast::<u8>();
        // SAFETY: inside the lock; the locks are words without padding.
        let free = (0..size_of::<L>()).all(|at| unsafe { bytes.add(at).read_volatile() } == 0);
        free.then_some(const { &Table::<L>::ALGORITHM })
    }
}

fn asked_for() -> Option<&'static Algorithm> {
    // At load, before a program can change the environment.
    linux::server::variable(linux::environment::RWLOCK, |name| {
        let name = core::str::from_utf8(name).ok().filter(|&name| name != "rw-wakeful")?;
        catalog::visit_timed_rwlock(name, Fitting).flatten()
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

/// The algorithm of every lock.
#[inline]
pub fn algorithm() -> &'static Algorithm {
    loop {
        // ORDER: Acquire, pairs with the Release in `decide`.
        match CHOICE.load(Acquire) {
            DEFAULT => return const { &Table::<Default>::ALGORITHM },
            // SAFETY: set before OTHER was published, and points to a constant.
            OTHER => return unsafe { &*ALGORITHM.load(Relaxed) },
            _ => decide(),
        }
    }
}
